"""What is answered in the place of a virtual card's zeros, and which reads do nothing with them."""

import ast
import ctypes
import itertools
import pathlib
import sys
import tempfile
import textwrap
import types
import unittest

PROBE = pathlib.Path(__file__).parent.parent


class Bounds(unittest.TestCase):
    """What is answered in the place of zeros."""

    def setUp(self):
        sys.path.insert(0, str(PROBE))
        from sconce_probe import substitute_values, values

        self.bounds, self.values = substitute_values, values

    def tearDown(self):
        sys.path.remove(str(PROBE))

    def answers(self, text, pinned=""):
        torch = types.SimpleNamespace(bool="bool", int8="int8", uint8="uint8")
        reads = types.SimpleNamespace(noted=lambda *_: ("/w/a.py", 3))
        return self.bounds.Answers(torch, reads, text, pinned)

    def test_truth_is_told_in_every_other_step(self):
        answers = self.answers("none,1,0,every-other-step")
        told = []
        for answers.steps in range(4):
            told.append((answers.value(bool, "bool"), answers.value(int, "int64")))
        self.assertEqual(told, [(True, 0), (False, 0), (True, 0), (False, 0)])
        self.assertEqual(answers.last, ("/w/a.py", 3))

    def test_numbers_are_of_the_type_that_was_asked_for(self):
        answers = self.answers("none,0,1000,every-other-step")
        told = [answers.value(float, "float32"), answers.value(int, "int8"), answers.value(bool, "bool")]
        self.assertEqual([repr(one) for one in told], ["1000.0", "111", "False"])

    def test_two_numbers_are_two_numbers_of_one_byte(self):
        # As values.rs has them.
        for pair in ((4099, 1031), (257, 67), (60, 14), (9, 2)):
            told = [self.answers(f"none,0,{number},every-other-step").value(int, "uint8") for number in pair]
            self.assertEqual(len({0, *told}), 3, pair)

    def test_lines_that_are_pinned_stay_zero(self):
        answers = self.answers("all,1,9,every-other-step", "/w/b.py:3\n/w/a.py:3")
        self.assertEqual([answers.value(int, "int64"), answers.value(bool, "bool")], [0, False])
        self.assertIsNone(answers.last)

    def test_a_loop_comes_to_an_end(self):
        answers = self.answers("none,1,0,every-other-step")
        times = 0
        while answers.value(bool, "bool"):
            times += 1
        self.assertEqual((times, answers.endless), (self.bounds.MOST_IN_A_STEP, {("/w/a.py", 3)}))

    def test_a_selection_counts_its_share(self):
        for share, expected in (("none", 0), ("half", 500), ("all", 1001)):
            answers = self.answers(f"{share},0,0,every-other-step")
            with self.bounds.Selecting(answers, "nonzero", 1001) as selecting:
                self.assertIs(answers.selecting(), selecting)
                self.assertEqual(selecting.count(), expected)
                count = ctypes.c_int32(7)
                self.assertTrue(answers.read(ctypes.addressof(count), 4))
                self.assertEqual(count.value, expected)
                # Whole tensors are not answered here.
                self.assertFalse(answers.read(ctypes.addressof(count), 400))
            self.assertIsNone(answers.selecting())

    def test_what_is_only_shown_is_told_from_syntax(self):
        text = """
            print(read())
            print(f"{read():.3f}", read() / 2)
            logger.info("loss %s", round(read(), 3))
            bar.set_postfix(loss=read())
            losses.append(read())
            print(table[read()])
            print(make(read()))
            said = print(read())
            total += read()
            print([one for one in rows if read()])
        """
        shown = {1: True, 2: True, 3: True, 4: True}
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(textwrap.dedent(text).lstrip())
            file.flush()
            for node in ast.walk(self.values.file_of(file.name)[0]):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "read":
                    told = self.values.is_only_shown(file.name, node.lineno, self.values.span(node))
                    self.assertEqual(told, shown.get(node.lineno, False), node.lineno)

    def told(self, places, steps):
        """When places are told something in both trials, those of them that read in so many steps of each."""
        told = {place: [] for place in range(places)}
        for name in ("varied", "varied-again"):
            pattern = self.bounds.Pattern(name)
            for step in range(1, steps + 1):
                for place, when in told.items():
                    when.append(pattern.tells(place, step))
        return told.values()

    def test_of_any_two_places_each_is_told_something_alone(self):
        for places, steps in ((len(self.bounds.CODES), 3), (6, 2)):
            for one, other in itertools.permutations(self.told(places, steps), 2):
                self.assertIn((True, False), set(zip(one, other)))

    def test_a_line_that_reads_twice_in_a_step_is_two_places(self):
        answers = self.answers("none,1,0,varied-again")
        told = set()
        for answers.steps in range(3):
            told.add((answers.value(bool, "bool"), answers.value(bool, "bool")))
        self.assertLessEqual({(True, False), (False, True)}, told)

    def test_numbers_rise_and_fall_from_step_to_step(self):
        changes = set()
        for pattern in ("varied", "varied-again"):
            answers, told = self.answers(f"none,0,4099,{pattern}"), []
            # After the optimizer's step, and not after the last.
            for answers.steps in (1, 2):
                told.append(answers.value(float, "float32"))
            changes.add((told[0] < told[1]) - (told[0] > told[1]))
        self.assertEqual(changes, {1, -1})

    def test_the_program_may_have_its_own_print(self):
        text = """
            def write(self, value): self.value = value
            info = note = open
            import shutil as print
            self.add_scalar = lambda value: value
        """
        tree = ast.parse(textwrap.dedent(text))
        self.assertEqual(
            set(self.values.given_names(tree)) & self.values.SHOWING, {"write", "info", "print", "add_scalar"}
        )
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write("meter.write(read())\n")
            file.flush()
            place = (1, 12), (1, 18)
            self.assertTrue(self.values.is_only_shown(file.name, 1, place))
            self.assertFalse(self.values.is_only_shown(file.name, 1, place, self.values.SHOWING - {"write"}))


if __name__ == "__main__":
    unittest.main()
