"""The probe without torch: a made-up module takes its place. `python3 -m unittest discover python/tests`"""

import ast
import functools
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import textwrap
import types
import unittest

PROBE = pathlib.Path(__file__).resolve().parent.parent

# As much of torch as the probe asks for.
TORCH = '''
import sys, types
__version__ = "2.99.0+made.up"
version = types.SimpleNamespace(cuda="13.0")
class Tensor: pass
class OutOfMemoryError(RuntimeError): pass
class Module: pass
def _module(name, **inside):
    module = types.ModuleType(name)
    module.__dict__.update(inside)
    sys.modules[name] = module
    return module
nn = _module("torch.nn", Module=Module)
pre, post = [], []
optimizer = _module("torch.optim.optimizer",
    register_optimizer_step_pre_hook=pre.append, register_optimizer_step_post_hook=post.append)
class Device: type, index = "cuda", 0
class Parameter(Tensor):
    is_leaf, device = True, Device
    def __init__(self, address, size): self.address, self.size, self.grad = address, size, None
    def untyped_storage(self): return self
    def data_ptr(self): return self.address
    def nbytes(self): return self.size
class Optimizer:
    def __init__(self, params=(), inner=None):
        self.param_groups, self.state, self.inner = [{"params": list(params)}], {}, inner
    def step(self, fail=False):
        for hook in pre: hook(self, (), {})
        if fail: raise ValueError("no step")
        if self.inner: self.inner.step()
        for one in self.param_groups[0]["params"]:
            self.state[one] = {"moments": [Parameter(one.address + 1, one.size)]}
        for hook in post: hook(self, (), {})
optim = _module("torch.optim", optimizer=optimizer, Optimizer=Optimizer)
optim.__path__ = []
class memory:
    history = None
    def _record_memory_history(*words, **named): memory.history = (words, named)
    def _dump_snapshot(path): open(path, "w").write("snapshot")
class cuda:
    begun, queue, OutOfMemoryError, memory = False, [], OutOfMemoryError, memory
    def _lazy_call(call): call() if cuda.begun else cuda.queue.append(call)
    def is_initialized(): return cuda.begun
    def init():
        cuda.begun = True
        for call in cuda.queue: call()
    def device_count(): return 1
    def get_device_name(index): return "Made Up 1"
    def mem_get_info(index): return (60, 100)
    def memory_stats(index):
        return {"allocated_bytes.all.peak": 20, "reserved_bytes.all.current": 30, "reserved_bytes.all.peak": 35}
'''


class Plans(unittest.TestCase):
    """Names and settings; what plans do is tried with a real torch, in scripts/test.d/fit."""

    def setUp(self):
        sys.path.insert(0, str(PROBE))
        from sconce_probe import plans

        self.plans = plans

    def tearDown(self):
        sys.path.remove(str(PROBE))

    def test_names_are_read(self):
        self.assertEqual(self.plans.parsed("bf16 + checkpoint=12"), {"bf16": None, "checkpoint": 12})

    def test_a_setting_of_the_allocator_joins_the_others(self):
        put = lambda settings: self.plans.with_setting(settings, "expandable_segments", "True")
        self.assertEqual(put(""), "expandable_segments:True")
        self.assertEqual(
            put("roundup_power2_divisions:[256:1,>:8],expandable_segments:False,max_split_size_mb:64"),
            "roundup_power2_divisions:[256:1,>:8],max_split_size_mb:64,expandable_segments:True",
        )


class Values(unittest.TestCase):
    """What lines do with what they read; a made-up card calls as the virtual one does."""

    SCRIPT = """
        if read(): pass
        print(read(), f"{read()}")
        while (value := read()) > 1: pass
        loss = float(read())
        log.append(read())
        rows = table[read()]
        few = unique(read())
        many = [one for one in range(read()) if read()]
        assert not read()
        one = 1 if read() else 2
        def stop():
            norm = read() / 2
            kept = read()
            return read() if norm > 1 else kept
        match read():
            case _: pass
        both = read() and read()
        best = best if loss > 0 else 0
    """
    USES = {1: "branch", 2: "value", 3: "branch", 4: "branch", 5: "value", 6: "value", 7: "value", 8: "branch",
            9: "branch", 10: "branch", 12: "branch", 13: "value", 14: "value", 15: "branch", 17: "branch"}

    def setUp(self):
        sys.path.insert(0, str(PROBE))
        from sconce_probe import values

        self.values = values

    def tearDown(self):
        sys.path.remove(str(PROBE))

    def test_what_is_done_with_a_value_is_told_from_syntax(self):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            text = textwrap.dedent(self.SCRIPT).lstrip()
            if sys.version_info < (3, 10):
                text = text.replace("match read():\n    case _: pass", "if read():\n    pass")
            file.write(text)
            file.flush()
            tree = self.values.file_of(file.name)[0]
            found = {}
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "read":
                    use = self.values.use(file.name, node.lineno, self.values.span(node))
                    found.setdefault(node.lineno, set()).add(use)
            # What is handed to another function, or read as the last of several, may be done anything with.
            self.assertEqual(found[17], {"branch", "value"})
            self.assertEqual({line: max(uses, key=self.values.ORDER.index) for line, uses in found.items()}, self.USES)
            for line, use in [(1, "branch"), (2, "value"), (4, "branch"), (6, "size"), (99, "value")]:
                self.assertEqual(self.values.use(file.name, line, None), use, line)
            self.assertEqual(self.values.use(file.name, 7, ((7, 6), (7, 20))), "size")

    def test_files_that_are_no_python_say_nothing(self):
        for text in (b"if (", b"\xff\xfe\x00", b"(" * 100_000, b"\0"):
            with tempfile.NamedTemporaryFile(suffix=".py") as file:
                file.write(text)
                file.flush()
                self.assertEqual(self.values.use(file.name, 1, ((1, 0), (1, 4))), "value")
        self.assertEqual(self.values.source_line("/nowhere.py", 3), "")

    def test_reads_are_counted_by_line_and_what_torch_reads_for_itself_is_not(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "torch" / "amp").mkdir(parents=True)
            (folder / "torch" / "optim").mkdir()
            (folder / "site-packages" / "other").mkdir(parents=True)
            script = "def train(read):\n    for _ in range(3):\n        if read(): pass\n    other(read)\n    own(read)\n    wrapped(read)\n    print(decided(read))\n    made(read)\n"
            files = {
                "train.py": script,
                "site-packages/other/model.py": "def other(read):\n    read()\n",
                "torch/amp/grad_scaler.py": "def own(read):\n    read()\n",
                "torch/_tensor.py": "def wrapped(read):\n    read()\n",
                "torch/optim/lbfgs.py": "def decided(read):\n    wrapped(read)\n    wrapped(read)\n",
                "torch/cond.py": "def chosen(read):\n    read()\n",
            }
            scope = {}
            for name, text in files.items():
                (folder / name).write_text(text)
                exec(compile(text, str(folder / name), "exec"), scope)
            exec(compile("def made(read):\n    chosen(read)\n", "<eval_with_key>.7", "exec"), scope)
            reads = self.values.Reads(types.SimpleNamespace(__file__=str(folder / "torch" / "__init__.py")))
            places = []
            scope["train"](lambda: places.append(reads.add(sys._getframe(1))))
            told = [(one["file"][len(str(folder)) + 1 :], one["line"], one["use"], one["times"]) for one in reads.seen()]
            expected = [("train.py", 3, "branch", 3), ("train.py", 7, "branch", 2), ("train.py", 8, "branch", 1), ("train.py", 6, "value", 1),
                        ("site-packages/other/model.py", 2, "value", 1)]
            self.assertEqual(told, expected)
            # What torch decides by is not only shown, though what it gives back may be.
            self.assertFalse(reads.seen()[1]["shown"])
            # What is kept by it grows.
            self.assertEqual([one["operation"] for one in reads.seen()[1:3]], ["unanswered", ""])
            self.assertEqual(reads.seen()[4]["by"], {"file": str(folder / "train.py"), "line": 4})
            self.assertEqual(reads.seen()[0]["code"], "if read(): pass")
            # Two reads of one line of the script are two places in torch: a loop of neither.
            self.assertEqual([len({one for one in places if one and one[1] == line}) for line in (3, 7)], [1, 2])

    def test_libraries_are_known_by_what_installed_them_wherever_they_lie(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            # As `pip install --target` leaves it, with the project's own files beside them.
            for name in ("six-1.dist-info", "own-1.dist-info", "package"):
                (folder / name).mkdir()
            (folder / "six-1.dist-info/RECORD").write_text(
                "six.py,sha256=a,1\n\"package/b,c.py\",,\npackage/a.py,,\n../../bin/six,,\nsix-1.dist-info/RECORD,,\n")
            # An editable install names none of the project's files.
            (folder / "own-1.dist-info/RECORD").write_text("__editable__.own.pth,,\n")
            torch = types.SimpleNamespace(__file__=str(folder / "torch/__init__.py"))
            sys.path.insert(0, str(folder))
            try:
                reads = self.values.Reads(torch)
            finally:
                sys.path.remove(str(folder))
            names = ("six.py", "package/a.py", "package/other.py", "train.py", "six_more.py", "own/model.py", "../../bin/six")
            found = [name for name in names if reads.is_library(str(folder / name))]
            self.assertEqual(found, ["six.py", "package/a.py", "package/other.py"])

    def test_a_card_that_does_not_tell_is_no_error(self):
        torch = types.SimpleNamespace(__file__="/nowhere/torch/__init__.py")
        self.assertIsNone(self.values.begin(torch))


class Forwards(unittest.TestCase):
    def test_code_is_named_by_the_class_that_has_it(self):
        sys.path.insert(0, str(PROBE))
        from sconce_probe import live_objects

        class Module:
            pass

        def wrapped(function):
            @functools.wraps(function)
            def around(self):
                return function(self)

            return around

        class Norm(Module):
            def forward(self):
                return 1

        class Norm1(Norm):
            pass

        class Norm2(Norm):
            pass

        class Other(Module):
            @wrapped
            def forward(self):
                return 2

        class Kind(Other):
            pass

        live = [Norm1(), Norm2(), Kind(), Norm]
        torch = types.SimpleNamespace(nn=types.SimpleNamespace(Module=Module))
        found = {tuple(place): name for *place, name in live_objects.forwards(torch)}
        # One class alone names what it has of a parent; several have the parent's name.
        self.assertEqual(sorted(set(found.values())), ["Kind", "Norm"])
        for (file, first, last), name in found.items():
            self.assertEqual(file, __file__)
            self.assertLess(first, last)
        self.assertEqual(len(live), 4)


class Probe(unittest.TestCase):
    def run_script(self, script, steps=2, seconds=0, sitecustomize=None, torch=TORCH, **variables):
        """What a script printed, how it ended, and what the probe wrote of each of its processes."""
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for name, text in [("torch.py", torch), ("train.py", script), ("sitecustomize.py", sitecustomize)]:
                if text is not None:
                    (folder / name).write_text(textwrap.dedent(text))
            out = folder / "out"
            out.mkdir()
            env = {
                **os.environ,
                "PYTHONPATH": f"{PROBE}{os.pathsep}{folder}",
                "PYTHONDONTWRITEBYTECODE": "1",
                "SCONCE_FIT": str(out),
                "SCONCE_FIT_STEPS": str(steps),
                "SCONCE_FIT_SECONDS": str(seconds),
                **variables,
            }
            command = [sys.executable, str(folder / "train.py")]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
            seen = [json.loads(file.read_text()) for file in sorted(out.glob("*/fit.json"))]
            self.marked = (out / "torch").exists()
            self.snapshots = len(list(out.glob("*/snapshot.pickle")))
            return done, seen

    def test_that_torch_was_imported_is_known_of_a_process_that_tells_nothing(self):
        for end, code in [("os._exit(7)", 7), ("os.kill(os.getpid(), 9)", -9), ("os.abort()", -6)]:
            done, seen = self.run_script(f"import os, torch; torch.cuda.init(); {end}")
            self.assertEqual((done.returncode, seen, self.marked), (code, [], True))
        done, seen = self.run_script("import os; os._exit(7)")
        self.assertEqual((done.returncode, seen, self.marked), (7, [], False))

    def test_a_script_ends_after_its_steps(self):
        script = """
            import sys, torch
            p = torch.Parameter(4096, 8)
            p.grad = torch.Parameter(8192, 8)
            m = torch.nn.Module(); m._parameters = {"p": p}; m._buffers = {"b": torch.Parameter(1, 3), "n": None}
            o = torch.optim.Optimizer([p])
            torch.cuda.init()
            assert torch.cuda.memory.history[1]["stacks"] == "python"
            for number in range(5):
                o.step()
                print("step", number)
        """
        done, [seen] = self.run_script(script)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "step 0\n", ""))
        self.assertEqual((seen["ended"], len(seen["steps"]), self.snapshots), ("steps", 2, 1))
        self.assertEqual(seen["devices"][0]["outside-bytes"], 10)
        self.assertEqual(
            sorted(seen["holds"]),
            [["buffers", 0, 1, 3], ["gradients", 0, 8192, 8], ["optimizer-state", 0, 4097, 8],
             ["parameters", 0, 4096, 8]],
        )

    def test_what_is_compiled_takes_two_steps_more(self):
        script = """
            import sys, torch, types
            sys.modules["torch._dynamo.utils"] = types.SimpleNamespace(counters={"frames": {"ok": 1}})
            o = torch.optim.Optimizer([torch.Parameter(4096, 8)])
            torch.cuda.init()
            for number in range(9):
                o.step()
        """
        _, [seen] = self.run_script(script)
        self.assertEqual((seen["ended"], len(seen["steps"]), seen["wanted-steps"]), ("steps", 4, 2))

    def test_what_grows_takes_two_steps_more(self):
        script = """
            import torch
            o = torch.optim.Optimizer([torch.Parameter(4096, 8)])
            torch.cuda.init()
            plain = torch.cuda.memory_stats
            allocated = iter(SERIES)
            torch.cuda.memory_stats = lambda index: {**plain(index), "allocated_bytes.all.current": now}
            for now in allocated:
                o.step()
        """
        # With three steps wanted; the first one makes the optimizer's state, and what only swings ends with the swing.
        for series, steps in (("[9, 9, 9, 9, 9, 9]", 3), ("[1, 9, 9, 9, 9, 9]", 3), ("[1, 2, 3, 4, 5, 6]", 5), ("[1, 2, 3, 2, 3, 2]", 4)):
            _, [seen] = self.run_script(script.replace("SERIES", series), steps=3)
            self.assertEqual((seen["ended"], len(seen["steps"])), ("steps", steps), series)

    def test_wrapped_optimizers_count_once_and_failed_steps_not_at_all(self):
        script = """
            import torch
            o = torch.optim.Optimizer(inner=torch.optim.Optimizer())
            try:
                o.step(fail=True)
            except ValueError:
                pass
            o.step()
        """
        done, [seen] = self.run_script(script)
        self.assertEqual((done.returncode, seen["ended"], len(seen["steps"])), (0, "exit", 1))

    def test_all_optimizers_take_their_steps(self):
        script = """
            import torch
            a, b = torch.optim.Optimizer(), torch.optim.Optimizer()
            while True:
                a.step(); a.step(); b.step()
        """
        _, [seen] = self.run_script(script)
        self.assertEqual([step["optimizer"] for step in seen["steps"]], [0, 0])
        _, [seen] = self.run_script(script, steps=3)
        self.assertEqual([step["optimizer"] for step in seen["steps"]], [0, 0, 1, 0, 0, 1, 0, 0, 1])

    def test_a_script_that_never_steps_is_told_of_at_its_end_or_after_its_time(self):
        done, [seen] = self.run_script("import torch; torch.cuda.init(); print(1)")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "1\n", ""))
        self.assertEqual((seen["ended"], seen["steps"], seen["used-cuda"]), ("exit", [], True))
        done, [seen] = self.run_script("import time, torch; time.sleep(50)", seconds=1)
        self.assertEqual((done.returncode, seen["ended"]), (0, "time"))

    def test_a_script_that_fails_shows_its_own_error(self):
        done, [seen] = self.run_script("import torch; torch.cuda.init(); raise torch.OutOfMemoryError('too much')")
        self.assertEqual(done.returncode, 1)
        self.assertIn("OutOfMemoryError: too much", done.stderr)
        # A temporary directory may be named after Sconce; the module is not to be seen.
        self.assertNotIn("sconce_probe", done.stderr)
        self.assertEqual(seen["error"], {"type": "OutOfMemoryError", "message": "too much", "out-of-memory": True})
        done, [seen] = self.run_script("import sys, torch; sys.exit(7)")
        self.assertEqual((done.returncode, seen["error"]), (7, None))

    def test_workers_are_left_alone(self):
        for method in ("fork", "spawn"):
            script = f"""
                import multiprocessing, torch
                def work():
                    # One of them, kept: two that are gone at once have one address in some Pythons and not in others.
                    o = torch.optim.Optimizer(); o.step(); o.step(); print("worked", flush=True)
                if __name__ == "__main__":
                    o = torch.optim.Optimizer()
                    worker = multiprocessing.get_context("{method}").Process(target=work)
                    worker.start(); worker.join()
                    assert worker.exitcode == 0
                    o.step(); o.step()
                    print("not reached")
            """
            done, seen = self.run_script(script)
            # What is spawned imports torch anew and is a program of its own, as a rank is.
            expected = "worked\n" if method == "fork" else ""
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, expected, ""), method)
            self.assertEqual({one["ended"] for one in seen}, {"steps"})

    def test_work_is_counted_in_one_step_more(self):
        counting = """
import sys, types
class Mode:
    def __enter__(self): Mode.on = True
    def __exit__(self, *error): Mode.on = False
_module("torch.utils", __path__=[])
_module("torch.utils._python_dispatch", TorchDispatchMode=Mode)
"""
        script = """
            import torch
            from torch.utils._python_dispatch import TorchDispatchMode as mode
            o = torch.optim.Optimizer()
            mode.on = False
            for number in range(9):
                print(number, mode.on, flush=True)
                o.step()
        """
        done, [seen] = self.run_script(script, torch=TORCH + counting, SCONCE_FIT_WORK="1")
        self.assertEqual((done.stdout, done.stderr), ("0 False\n1 False\n2 True\n", ""))
        self.assertEqual((seen["ended"], len(seen["steps"]), seen["work"]), ("steps", 2, []))

    def test_no_history_is_kept_where_none_is_wanted(self):
        script = "import torch; torch.cuda.init(); print(torch.cuda.memory.history)"
        done, _ = self.run_script(script, SCONCE_FIT_HISTORY="0")
        self.assertEqual((done.stdout, self.snapshots), ("None\n", 0))

    def test_a_plan_that_is_not_applied_is_told(self):
        done, [seen] = self.run_script("import os, torch; print(os.environ['PYTORCH_CUDA_ALLOC_CONF'])",
                                       SCONCE_PLAN="quantum+expandable", PYTORCH_CUDA_ALLOC_CONF="")
        self.assertEqual((done.stdout, done.stderr), ("expandable_segments:True\n", ""))
        self.assertEqual(seen["plan"]["problems"], [["quantum", "it is not known"]])
        done, _ = self.run_script("import torch", SCONCE_PLAN="quantum", SCONCE_FIT="")
        self.assertEqual(done.stderr, "sconce: plan quantum is not applied: it is not known\n")

    def test_nothing_is_left_of_the_probe_where_it_cannot_work(self):
        done, seen = self.run_script("import torch; print(torch.x)", torch="x = 1")
        self.assertEqual((done.returncode, done.stdout, done.stderr, seen), (0, "1\n", "", []))
        done, seen = self.run_script("print(1)", torch="x = 1")
        self.assertEqual((done.stdout, seen), ("1\n", []))

    def test_the_environments_own_sitecustomize_runs(self):
        own = "import builtins; builtins.mine = __file__"
        script = "import sys, sitecustomize, torch; print(mine == sitecustomize.__file__, any(p.endswith('python') for p in sys.path))"
        done, _ = self.run_script(script, sitecustomize=own)
        self.assertEqual((done.stdout, done.stderr), ("True False\n", ""))

    def test_a_loader_is_what_it_was(self):
        script = """
            import inspect, torch
            print(len(inspect.getsource(torch)) > 100, type(torch.__loader__).__name__, vars(torch.__loader__).keys())
        """
        done, _ = self.run_script(script)
        self.assertEqual(done.stdout, "True SourceFileLoader dict_keys(['name', 'path'])\n")


class Server(unittest.TestCase):
    """Trials that are forked from what was imported."""

    CARDS = """
import ctypes, types
ctypes.CDLL = lambda name: types.SimpleNamespace(sconce_vgpu_change_cards=lambda: {answer})
"""

    def started(self, folder, torch, script="import torch"):
        (folder / "torch.py").write_text(torch)
        (folder / "train.py").write_text(textwrap.dedent(script))
        (folder / "modules").write_text("torch\nnot.there")
        env = {
            **os.environ,
            "PYTHONPATH": f"{PROBE}{os.pathsep}{folder}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "SCONCE_FIT": str(folder),
            "SCONCE_FIT_STEPS": "2",
            "SCONCE_FIT_SERVE": "1",
        }
        return subprocess.Popen([sys.executable, str(folder / "train.py")], env=env)

    def test_each_trial_is_as_if_it_were_the_program(self):
        script = """
            import os, sys, torch
            assert __name__ == "__main__" and __file__ == sys.argv[0] and "SCONCE_FIT_SERVE" not in os.environ
            print("on", os.environ["SCONCE_VGPU"][-7:], os.environ["WHICH"], sys.argv[1:], file=sys.stderr, flush=True)
            if sys.argv[1] == "fail":
                sys.exit(7)
            if sys.argv[1] == "kill":
                os.kill(os.getpid(), 9)
            while True:
                torch.optim.Optimizer().step()
        """
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            server = self.started(folder, TORCH + self.CARDS.format(answer=1), script)
            while not (folder / "socket").exists():
                self.assertIsNone(server.poll())
            held = self.connected(folder)
            wanted = {"train": 0, "fail": 7, "kill": 137}
            asked = [(word, self.asked(folder, number, word)) for number, word in enumerate(wanted)]
            for number, (word, connection) in enumerate(asked):
                with connection, connection.makefile() as lines:
                    self.assertEqual(lines.readline(), f"{wanted[word]}\n")
                told = (folder / str(number) / "stderr").read_text()
                self.assertEqual(told, f"on {number}/cards {word} ['{word}']\n")
            [seen] = (folder / "0" / "seen").glob("*/fit.json")
            self.assertEqual(json.loads(seen.read_text())["ended"], "steps")
            held.close()
            self.assertEqual(server.wait(60), 0)

    def asked(self, folder, number, word):
        (folder / str(number) / "seen").mkdir(parents=True)
        request = {"folder": str(number), "environment": {"WHICH": word}, "arguments": [word]}
        connection = self.connected(folder)
        connection.sendall(json.dumps(request).encode() + b"\n")
        return connection

    def connected(self, folder):
        connection = socket.socket(socket.AF_UNIX)
        while True:
            try:
                connection.connect(str(folder / "socket"))
                return connection
            except ConnectionRefusedError:
                pass

    def test_what_cannot_be_forked_is_not_served(self):
        thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
        for torch in [self.CARDS.format(answer=0), thread + self.CARDS.format(answer=1), "1 / 0"]:
            with tempfile.TemporaryDirectory() as name:
                server = self.started(pathlib.Path(name), TORCH + torch, "print('not reached')")
                server.wait(60)
                self.assertFalse((pathlib.Path(name) / "socket").exists(), torch)

    def test_only_large_packages_beside_torch_are_imported_ahead(self):
        with tempfile.TemporaryDirectory() as name:
            for package in ("torch", "torchvision", "other"):
                (pathlib.Path(name) / package).mkdir()
                (pathlib.Path(name) / package / "__init__.py").write_text("")
            (pathlib.Path(name) / "torchvision" / "models.py").write_text("")
            program = "import torch, other, torchvision.models; from sconce_probe import fork_server; print(fork_server.imported())"
            env = {**os.environ, "PYTHONPATH": f"{PROBE}{os.pathsep}{name}"}
            done = subprocess.run([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE)
            self.assertEqual(done.stdout, b"['torch', 'torchvision', 'torchvision.models']\n")


if __name__ == "__main__":
    unittest.main()
