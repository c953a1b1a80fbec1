"""Code that comes after the watched steps and was not executed in them, told from lines and from syntax."""

import ast
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import types
import unittest

import skips

PROBE = pathlib.Path(__file__).parent.parent


class Unreached(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, str(PROBE))
        from sconce_probe import evaluation, executed, remaining_code, program, unreached

        self.later, self.program, self.unreached = remaining_code, program, unreached
        self.executed, self.evaluation = executed, evaluation

    def tearDown(self):
        sys.path.remove(str(PROBE))

    def told(self, text, at, left=(), reads=(), torch=None, names=None):
        """Lines that are told of, with the program at a line of its module and all lines executed but those that are
        left out; and whether each needs no more than a step. `names` are what the module has."""
        text = textwrap.dedent(text).lstrip("\n")
        known = self.executed.Executed(None, lambda path: False)
        known.tool = 4
        known.lines = {("a.py", line) for line in range(1, len(text.splitlines()) + 1) if line not in left}
        known.recent = set(known.lines)
        whole = self.program.Program({"a.py": ast.parse(text)}, [("a.py", 0, at)])
        whole.globals["a.py"] = names or {}
        found = self.unreached.Unreached(whole, known, torch, reads={("a.py", line) for line in reads})
        judge = self.evaluation.Evaluation(whole, known, torch)
        return sorted((node.lineno, self.later.is_bounded(found, judge, function, node)) for function, node in found.found())

    def test_a_block_of_the_loop_that_was_not_gone_into_comes(self):
        loop = """
            for step in range(50):
                train(step)
                if step % 25 == 24:
                    with torch.no_grad():
                        net(torch.randn(8, 256))
        """
        self.assertEqual(self.told(loop, 2, left=[4, 5]), [(5, False)])
        self.assertEqual(self.told(loop, 2), [])
        for instead in ("print(loss.item())", "torch.save(net.state_dict(), path)", "schedule.step()", "logger.info('%s', loss.item())"):
            self.assertEqual(self.told(loop.replace("net(torch.randn(8, 256))", instead), 2, left=[4, 5]), [], instead)

    def test_a_layer_that_is_made_on_cpus_takes_nothing(self):
        module = type("Module", (), {})
        linear = type("Linear", (module,), {"__module__": "torch.nn.modules.linear"})
        parallel = type("DistributedDataParallel", (module,), {"__module__": "torch.nn.parallel.distributed"})
        device = lambda kind: types.SimpleNamespace(type=kind)
        torch = types.SimpleNamespace(
            Tensor=type("Tensor", (), {}), nn=types.SimpleNamespace(Module=module), device=type(None), dtype=type(None),
            empty=lambda size: types.SimpleNamespace(device=device("cpu")))
        names = {"Linear": linear, "Parallel": parallel, "nn": types.SimpleNamespace(Linear=linear)}

        def told(code, torch=torch, more=""):
            text = f"def build():\n    return Linear(8, 8)\nfor step in range(50):\n    train(step)\n{code}\n{more}"
            return self.told(text, 4, left=range(5, 9), torch=torch, names=names)

        for code in ("size = sum(one.numel() for one in build().parameters())", "net = nn.Linear(8, 8).to('cpu')", "net = Linear(8, 8)"):
            self.assertEqual(told(code), [], code)
        for code in ("net = Linear(8, 8, device=card)", "net = Linear(8, 8, **settings)", "net = Linear(8, 8).to(card)",
                     "net = Linear(8, 8).to('cuda')", "net = Linear(8, 8).cuda()", "net = build()(batch)", "net = Parallel(other)"):
            self.assertEqual(told(code), [(5, False)], code)
        # Where tensors are made on the card that name no device.
        self.assertEqual(told("net = Linear(8, 8)", more="torch.set_default_device('cuda')"), [(5, False)])
        self.assertEqual(told("with torch.device('cuda'):\n    net = Linear(8, 8)"), [(6, False)])
        torch.empty = lambda size: types.SimpleNamespace(device=device("cuda"))
        self.assertEqual(told("net = Linear(8, 8)"), [(5, False)])

    def test_what_stands_behind_an_exit_comes(self):
        loop = """
            for step in range(50):
                train(step)
                if step % 25 != 24:
                    continue
                net(big)
        """
        self.assertEqual(self.told(loop, 2, left=[5]), [(5, False)])
        # The same in every step.
        settled = loop.replace("step % 25 != 24", "not arguments.look")
        self.assertEqual(self.told(settled, 2, left=[5]), [])

    def test_a_condition_that_stays_as_it_is_leaves_out(self):
        for test, expected in (("arguments.average", []), ("arguments.clip > 0", []), ("mode == 'finetune'", []), ("is_main()", []),
                               ("target is None", []), ("step > 10", [(4, False)]), ("random() < 0.1", [(4, False)]),
                               ("counter.now >= 10", [(4, False)]), ("step in wanted", [(4, False)])):
            loop = f"""
                for step in range(50):
                    train(step)
                    if {test}:
                        net(big)
                def count():
                    counter.now += 1
            """
            self.assertEqual(self.told(loop, 2, left=[4, 6]), expected, test)

    def test_what_values_of_the_card_decide_is_tried_with_others(self):
        loop = """
            for step in range(50):
                loss = train(step)
                value = loss.item()
                if value > 10:
                    net(big)
        """
        self.assertEqual(self.told(loop, 2, left=[5], reads=[3]), [])
        self.assertEqual(self.told(loop, 2, left=[5]), [(5, False)])

    def test_functions_of_any_name_are_followed(self):
        text = """
            def inner(m):
                with torch.no_grad():
                    return m(torch.randn(8, 256))
            def quality(m):
                return inner(m).item()
            def names():
                return len(str(1))
            for step in range(50):
                train(step)
            print(quality(net))
            print(names())
        """
        self.assertEqual(self.told(text, 9, left=[2, 3, 5, 7, 10, 11]), [(10, False)])

    def test_ways_to_tell_a_model_to_evaluate(self):
        for code, expected in (("getattr(net, 'eval')()", True), ("net.train(flag)", True), ("nn.Module.eval(net)", True),
                               ("net.train(mode=False)", True), ("net.train(True)", False), ("frame.eval('a + b')", False)):
            text = f"for step in range(9):\n    train()\n{code}\n"
            self.assertEqual(bool(self.told(text, 2, left=[3])), expected, code)

    def test_only_what_is_known_to_be_no_larger_is_bounded(self):
        text = """
            def look(m, loader, metric):
                total = 0.0
                with torch.no_grad():
                    for x, y in loader:
                        x, y = x.to(device), y.to(device)
                        LINE
                return total
            for step in range(9):
                train()
            print(look(net, loader, metric))
        """
        for line, expected in (("total += F.cross_entropy(m(x), y).item()", True), ("total += m(x).argmax(1).eq(y).sum().item()", True),
                               ("losses.append(m(x).mean().item())", True), ("meter.update(m(x).mean().item(), x.size(0))", True),
                               ("m(x.repeat(9, 1))", False), ("m(x[:, None] - x[None])", False), ("m(torch.cat([x, x]))", False),
                               ("metric.update(m(x))", False), ("kept.add(m(x))", False), ("kept.put_nowait(m(x))", False),
                               ("kept.setdefault(1, m(x))", False), ("kept = [*kept, m(x)]", False), ("kept = (kept, m(x))", False),
                               ("self.kept = self.kept + [m(x)]", False), ("m(x) @ everything", False), ("yield m(x)", False),
                               ("m.generate(x)", False), ("bank[y] = m(x)", False), ("kept.insert(0, m(x))", False)):
            told = self.told(text.replace("LINE", line), 9, left=[*range(2, 8), 10])
            self.assertEqual(told, [(10, expected)], line)

    def test_what_a_called_function_keeps_is_kept(self):
        text = """
            class Curve:
                def __init__(self):
                    self.kept = []
                def note(self, out):
                    self.kept.append(out)
            def look(m, loader):
                curve = Curve()
                with torch.no_grad():
                    for x in loader:
                        curve.note(m(x))
            for step in range(9):
                train()
            look(net, loader)
        """
        left = [3, 5, *range(7, 11), 13]
        self.assertEqual(self.told(text, 12, left=left), [(13, False)])
        self.assertEqual(self.told(text.replace("curve.note(m(x))", "curve.note(m(x).item())"), 12, left=left), [(13, True)])

    def test_what_an_error_alone_leads_to_does_not_come(self):
        text = """
            for step in range(9):
                try:
                    train()
                except MemoryError:
                    net(small)
        """
        self.assertEqual(self.told(text, 3, left=[4, 5]), [])


class Executed(unittest.TestCase):
    PROGRAM = """
        import ast, sys, types
        guards = types.ModuleType("torch._guards")
        class TracingContext:
            @staticmethod
            def set_current_loc(*_): pass
        guards.TracingContext = TracingContext
        sys.modules.update({"torch": types.ModuleType("torch"), "torch._guards": guards})
        from sconce_probe import executed
        one = executed.Executed(None, lambda path: path != __file__)
        one.begin()
        def net(number): return number
        def step(number):
            if number % 25 == 24: net(0)
            if number % 2 == 1: net(1)
            number == 100 and net(0)
            number == 1 and net(1)
            net(0) if number > 100 else net(1)
            if number > 100:
                net(0)
            if number == 0:
                net(2)
            while number > 100: net(0)
        for number in range(10):
            step(number)
            if number == 0:
                one.note_step()
        one.end()
        for node in ast.walk(ast.parse(open(__file__).read())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "net":
                ran = one.ran(__file__, node) and one.is_branch_taken(__file__, [node])
                on_its_own_line = node.col_offset == 8
                ran = one.ran(__file__, node) if on_its_own_line else ran
                assert bool(node.args[0].value) == ran, ast.unparse(node) + str(node.lineno)
                if on_its_own_line:
                    assert not one.ran_in_a_step(__file__, node), node.lineno
        print("all")
    """

    def test_lines_and_branches_on_one_line(self):
        if not hasattr(sys, "monitoring"):
            skips.skip(self, "python-without-monitoring", "Python 3.12 tells which lines are executed")
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(textwrap.dedent(self.PROGRAM).lstrip())
            file.flush()
            done = subprocess.run([sys.executable, file.name], env={"PYTHONPATH": str(PROBE)}, capture_output=True, text=True)
        self.assertEqual((done.stdout, done.stderr), ("all\n", ""))

    def test_before_python_312_lines_that_allocated_tell(self):
        sys.path.insert(0, str(PROBE))
        self.addCleanup(sys.path.remove, str(PROBE))
        from sconce_probe import executed

        events = [{"action": "alloc", "frames": [{"filename": "a.py", "line": 2, "name": "f"}]}, {"action": "free"}]
        memory = types.SimpleNamespace(_snapshot=lambda: {"device_traces": [events]})
        torch = types.SimpleNamespace(cuda=types.SimpleNamespace(is_initialized=lambda: True, memory=memory))
        one = executed.Executed(torch, lambda path: False)
        one.end()
        first, second = ast.parse("x = 1\nif step: net(2)").body
        self.assertEqual((one.ran("a.py", first), one.ran("a.py", second)), (False, True))
        self.assertTrue(one.is_branch_taken("a.py", second.body))
        self.assertFalse(one.knows_steps())


if __name__ == "__main__":
    unittest.main()
