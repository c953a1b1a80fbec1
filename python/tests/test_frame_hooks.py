"""Functions that are watched in their own frames: what a program sees of itself stays the same. No torch."""

import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import types
import unittest

PROBE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROBE))
from sconce_probe.account import frame_hooks  # noqa: E402

MODULE = '''
from __future__ import annotations

import sys
import traceback
import warnings


class Thing:
    def call(self, one, *args, key=None, **kwargs):
        """Does something."""
        try:
            for _ in range(1):
                if args and key is None:
                    return one(*args,
                               **kwargs)
        finally:
            pass
        return [each
                for each in (one,)]

    def private(self):
        return self.__hidden

    def outer(self):
        return super().__repr__()


def free(value: NotThere, then=lambda value: value):
    def inside():
        return value + 1

    return then(inside())


def ends(value):
    value.append(1)


def fails(value):
    return value / 0


exec("def nowhere(): return 1")
'''


class Watcher:
    def __init__(self):
        self.clock = types.SimpleNamespace(closed=False)
        self.told = []
        self.counts = True

    def begins(self, *arguments):
        self.told.append(arguments)
        return self.counts

    def returns(self, value):
        self.told.append(("returns", value))
        return value

    def failed(self):
        self.told.append(sys.exc_info()[0])

    def ends(self):
        self.told.append("ends")


class InPlace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "made_up.py")
        self.path.write_text(MODULE)
        self.module = types.ModuleType("made_up")
        self.module.__file__ = str(self.path)
        exec(compile(MODULE, str(self.path), "exec"), vars(self.module))
        self.watcher = Watcher()

    def test_the_function_stays_the_same_object_and_is_watched(self):
        own = self.module.Thing.call
        was = own.__code__
        frame_hooks.watch(own, self.watcher, "begins", "returns")
        thing = self.module.Thing()
        self.assertEqual(thing.call(max, 3, 4), 4)
        self.assertEqual(self.watcher.told, [(thing, max, None, (3, 4), {}), ("returns", 4), "ends"])
        self.assertEqual((own.__name__, own.__doc__), ("call", "Does something."))
        for name in ("co_filename", "co_firstlineno", "co_name", "co_qualname", "co_varnames", "co_flags"):
            self.assertEqual(getattr(own.__code__, name, None), getattr(was, name, None), name)
        self.assertIn("for each in (one,)", inspect.getsource(own))

    def test_a_method_is_watched_where_its_code_says_that_it_is_one(self):
        own = self.module.Thing.call
        own.__code__ = own.__code__.replace(co_flags=own.__code__.co_flags | frame_hooks.METHOD)
        frame_hooks.watch(own, self.watcher, "begins", "returns")
        self.assertTrue(own.__code__.co_flags & frame_hooks.METHOD)
        self.assertEqual(self.module.Thing().call(max, 3, 4), 4)

    def test_what_does_not_count_is_left_alone(self):
        frame_hooks.watch(self.module.free, self.watcher, "begins", "returns")
        self.watcher.counts = False
        self.assertEqual(self.module.free(2), 3)
        self.assertEqual(len(self.watcher.told), 1)
        self.watcher.clock.closed = True
        self.assertEqual(self.module.free(5), 6)
        self.assertEqual(len(self.watcher.told), 1)

    def test_one_that_returns_nothing(self):
        frame_hooks.watch(self.module.ends, self.watcher, "begins", "returns")
        value = []
        self.assertIsNone(self.module.ends(value))
        self.assertEqual(self.watcher.told, [([1],), "ends"])

    def test_an_error_is_told_and_goes_on(self):
        frame_hooks.watch(self.module.fails, self.watcher, "begins")
        with self.assertRaises(ZeroDivisionError):
            self.module.fails(1)
        self.assertEqual(self.watcher.told, [(1,), ZeroDivisionError, "ends"])

    def test_what_cannot_be_compiled_anew_stays_as_it_is(self):
        thing = self.module.Thing
        changed = self.module.free
        self.path.write_text(MODULE.replace("value + 1", "value + 2 if value else 0"))
        for own in (thing.private, thing.outer, self.module.nowhere, changed, len, lambda: 1):
            code = getattr(own, "__code__", None)
            with self.assertRaises(frame_hooks.Unknown, msg=own):
                frame_hooks.watch(own, self.watcher, "begins")
            self.assertIs(getattr(own, "__code__", None), code)
        self.assertEqual(changed(1), 2)

    def test_another_ones_name_is_not_taken(self):
        vars(self.module)[frame_hooks.NAME] = "theirs"
        with self.assertRaises(frame_hooks.Unknown):
            frame_hooks.watch(self.module.free, self.watcher, "begins")


WATCHED = '''
import os, sys, traceback, types, warnings
sys.path[:0] = [%r, os.path.dirname(os.path.abspath(__file__))]
import made_up
if sys.argv[1] == "watched":
    from sconce_probe.account import frame_hooks
    watcher = types.SimpleNamespace(clock=types.SimpleNamespace(closed=False), begins=lambda *_: True,
        returns=lambda value: value, failed=lambda: None, ends=lambda: None)
    for own in (made_up.Thing.call, made_up.free, made_up.ends, made_up.fails):
        frame_hooks.watch(own, watcher, "begins", "returns")
warnings.simplefilter("always")

def tells(value=None):
    for level in range(1, 6):
        warnings.warn("level %%d" %% level, stacklevel=level)
    traceback.print_stack()
    return 1

thing = made_up.Thing()
thing.call(made_up.free, 1, then=tells)
def fails(*_):
    try:
        made_up.fails(3)
    except ZeroDivisionError:
        thing.call(made_up.ends, 1, key=None)
for _ in range(2):
    try:
        thing.call(fails, 1)
    except Exception as error:
        sys.stderr.write(traceback.format_exc())
        for frame, line in traceback.walk_tb(error.__traceback__):
            if frame.f_code.co_name != "<module>":
                print(frame.f_code.co_name, line, sorted(frame.f_locals), file=sys.stderr)
thing.call(thing.call, fails, 2)
'''


class SameBytes(unittest.TestCase):
    def run_in(self, folder, script, *arguments, **environment):
        path = pathlib.Path(folder, "script.py")
        path.write_text(script)
        environment = {**os.environ, **environment}
        done = subprocess.run(
            [sys.executable, str(path), *arguments], env=environment, stderr=subprocess.PIPE, timeout=60
        )
        return done.returncode, done.stderr.decode()

    def test_warnings_stacks_and_tracebacks_are_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "made_up.py").write_text(MODULE)
            script = WATCHED % str(PROBE)
            plain = self.run_in(folder, script, "plain")
            self.assertEqual(plain[0], 1)
            self.assertIn("AttributeError: 'int' object has no attribute 'append'", plain[1])
            self.assertIn("made_up.py:15: UserWarning: level 3", plain[1])
            self.assertEqual(self.run_in(folder, script, "watched"), plain)

    def test_a_module_that_is_watched_for_fails_and_warns_as_ever(self):
        modules = {
            "made_up_one": "import warnings\nfor level in range(1, 5): warnings.warn('w', stacklevel=level)\n1 / 0\n",
            "made_up_two": "import no_such_module_of_anybody\n",
            "made_up_three": "def broken(:\n",
        }
        script = textwrap.dedent(
            """
            import sys, traceback
            sys.path.append(%r)
            from sconce_probe import imports
            if sys.argv[1] == "watched":
                for name in ("made_up_one", "made_up_two", "made_up_three"):
                    imports.after(name, print)
            for name in ("one", "two", "three"):
                try:
                    __import__("made_up_" + name)
                except Exception:
                    traceback.print_exc()
            import made_up_one
            """
            % str(PROBE)
        )
        with tempfile.TemporaryDirectory() as folder:
            for name, text in modules.items():
                pathlib.Path(folder, name + ".py").write_text(text)
            plain = self.run_in(folder, script, "plain", PYTHONDONTWRITEBYTECODE="1")
            self.assertEqual(plain[0], 1)
            self.assertEqual(self.run_in(folder, script, "watched", PYTHONDONTWRITEBYTECODE="1"), plain)


if __name__ == "__main__":
    unittest.main()
