"""What a program keeps more and more of, without torch: a stand-in takes the place of its tensors."""

import collections
import gc
import pathlib
import sys
import threading
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from sconce_probe.account import leak_detection, object_names  # noqa: E402

FILE = __file__
cache = {}


class Tensor:
    def __init__(self, numbers=100, grad_fn=None):
        self.shape, self.dtype, self.grad_fn, self.numbers = (numbers,), "torch.float32", grad_fn, numbers

    def untyped_storage(self):
        return types.SimpleNamespace(nbytes=lambda: 4 * self.numbers)


TORCH = types.SimpleNamespace(Tensor=Tensor, cuda=types.SimpleNamespace(is_initialized=lambda: False))


class Keeper:
    def __init__(self):
        self.outputs = []

    def keep(self, one):
        self.outputs.append(one)


class Kept(unittest.TestCase):
    def setUp(self):
        self.kept = leak_detection.Kept(TORCH)
        self.kept.due = list(leak_detection.AT)
        cache.clear()

    def after(self, step, steps=60):
        """What is told once `step` was called for each of the steps."""
        for number in range(1, steps + 1):
            step(number)
            self.kept.step_ends(number, threading.get_ident())
        return {one.get("name"): one for one in (self.kept.told or {}).get("kept", ())}

    def test_a_list_of_a_function_and_the_line_that_adds_to_it(self):
        losses = []

        def step(_):
            losses.append(Tensor(1, grad_fn=types.SimpleNamespace(next_functions=())))

        found = self.after(step)["losses"]
        text = pathlib.Path(FILE).read_text().splitlines()
        line = next(n for n, one in enumerate(text, 1) if "losses.append(Tensor(1" in one)
        self.assertTrue(found["adds"][0].startswith("%s:%d losses.append(" % (FILE, line)), found)
        self.assertEqual((found["grown"], found["steps"], found["bytes"]), (40, 40, 4 * 40))
        self.assertEqual((found["holds"], found["graph"]), ("float32[1]", True))

    def test_an_attribute_a_module_and_what_is_in_another(self):
        keeper, nested, texts = Keeper(), {"inner": []}, {}

        def step(number):
            keeper.keep(Tensor())
            cache[number] = [b"x" * 1000]
            texts[number] = "x" * 500
            nested["inner"].append(Tensor(10))

        found = self.after(step)
        self.assertEqual(found["outputs"]["of"], "Keeper")
        self.assertIn("self.outputs.append(one)", found["outputs"]["adds"][0])
        self.assertIn("cache[number] =", found["cache"]["adds"][0])
        self.assertGreater(found["cache"]["bytes"], 40 * 1000)
        self.assertEqual(found["nested"]["bytes"], 40 * 40)
        self.assertGreater(found["texts"]["bytes"], 40 * 500)
        self.assertIn('nested["inner"].append', found["nested"]["adds"][0])

    def test_what_stays_or_shrinks_is_not_told(self):
        window = collections.deque(maxlen=30)
        epoch, seldom, table = [], list(range(100)), {n: n for n in range(100)}

        def step(number):
            window.append(Tensor())
            epoch.append(Tensor())
            table[number % 100] = number
            if number % 25 == 0:
                epoch.clear()
            if number % 50 == 0:
                seldom.append(number)

        found = self.after(step)
        self.assertFalse({"window", "epoch", "seldom", "table"} & set(found), found)

    def test_a_graph_behind_a_variable(self):
        total = Tensor(1, types.SimpleNamespace(next_functions=()))

        class Node:
            def __init__(self, *before):
                self.next_functions = [(one, 0) for one in before] + [(None, 0)]

        def step(_):
            nonlocal total
            total = Tensor(1, Node(total.grad_fn))

        total.grad_fn = Node()
        found = self.after(step)["total"]
        self.assertEqual((found["graph"], found["grown"], found["holds"]), (True, 40, "nodes of its graph"))

    def test_lines_that_make_a_variable_anew(self):
        folder = pathlib.Path(FILE).parent
        self.assertEqual(object_names.lines(FILE, "nowhere_here", again=True), [])
        self.assertEqual(object_names.lines(str(folder / "none.py"), "total", again=True), [])
        summed = 1
        summed = summed + 1
        summed += 1
        found = [text.split(" ", 1)[1] for text in object_names.lines(FILE, "summed", again=True)]
        self.assertEqual(found, ["summed = summed + 1", "summed += 1"])

    def test_no_code_of_the_programs_runs(self):
        called = []

        def trap(*_):
            called.append(1)
            raise RuntimeError

        class Liar:
            __class__ = property(trap)
            __len__ = __iter__ = __eq__ = __hash__ = __getattr__ = trap

        class List(list):
            __len__ = __iter__ = __reversed__ = __eq__ = __sizeof__ = trap
            __getitem__ = trap

        class Dict(dict):
            __len__ = __iter__ = values = items = keys = get = __getitem__ = trap

        liars, rows = List(), Dict()

        def step(number):
            list.append(liars, Liar())
            dict.__setitem__(rows, number, Liar())

        found = self.after(step)
        self.assertTrue({"liars", "rows"} <= set(found), found)
        self.assertEqual(called, [])

    def test_variables_are_let_go_of_and_what_locals_gave_stays(self):
        class Big:
            pass

        def run(keep):
            mine = locals() if keep else None
            big = Big()
            self.kept.look(1, threading.get_ident())
            before = len([one for one in gc.get_objects() if type(one) is Big])
            del big
            gc.collect()
            return mine, before, len([one for one in gc.get_objects() if type(one) is Big])

        self.assertEqual(run(False)[1:], (1, 0))
        self.assertIs(run(True)[0]["keep"], True)

    def test_it_ends_and_is_off_unasked(self):
        self.assertEqual(leak_detection.Kept(TORCH).due, [])

        def looks(found):
            self.kept.due, at = list(leak_detection.AT), []
            self.kept.look = lambda step, _: at.append(step) or (found if step >= 56 else [])
            for step in range(1, 20_000):
                self.kept.step_ends(step, threading.get_ident())
            return tuple(at)

        self.assertEqual(looks([{"bytes": 40 * 1000, "steps": 40}]), leak_detection.AT)
        # Once there is something that holds much, it is enough.
        self.assertEqual(looks([{"bytes": 40 * 1024, "steps": 40}]), (16, 32, 56))
        self.assertEqual(looks([{"bytes": 0, "steps": 40, "graph": True}]), (16, 32, 56))

    def test_what_has_stopped_to_grow_is_told_no_more(self):
        grows = [{"name": "window", "bytes": 0, "steps": 1}]
        found = {56: grows, 1000: grows, 2000: []}
        self.kept.look = lambda step, _: found.get(step, [])
        told = [step for step in range(1, 5000) if self.kept.step_ends(step, 0)]
        self.assertEqual((told, self.kept.told), ([56, 2000], {"kept": []}))

    def test_what_cannot_be_looked_at_is_given_up(self):
        self.kept.look = lambda *_: 1 / 0
        self.assertFalse(self.kept.step_ends(leak_detection.AT[0], 0))
        self.assertEqual(self.kept.due, [])


if __name__ == "__main__":
    unittest.main()
