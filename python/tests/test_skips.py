"""How a test is left out."""

import os
import pathlib
import tempfile
import unittest
import unittest.mock

import skips


class Skips(unittest.TestCase):
    def test_only_what_is_named_is_allowed(self):
        text = "# head\na\tci,v2-root\twhy\nb\tv2-user\twhy\n"
        self.assertTrue(skips.allowed("a", text, ""))
        self.assertFalse(skips.allowed("b", text, ""))
        self.assertTrue(skips.allowed("b", text, "x,b"))
        self.assertFalse(skips.allowed("c", text, ""))

    def test_a_skip_is_counted_and_fails_in_ci(self):
        with tempfile.NamedTemporaryFile("r") as file:
            with unittest.mock.patch.dict(os.environ, {"SCONCE_SKIPPED_FILE": file.name, "CI": "true"}):
                self.assertRaisesRegex(AssertionError, "no-such-skip", skips.skip, self, "no-such-skip", "a test")
                os.environ["SCONCE_SKIP"] = "no-such-skip"
                self.assertRaises(unittest.SkipTest, skips.skip, self, "no-such-skip", "a test")
            lines = file.read().splitlines()
        self.assertEqual(len(lines), 2)
        self.assertTrue(lines[0].startswith("no-such-skip\t") and lines[0].endswith("\ta test"))

    def test_no_test_leaves_itself_out_in_silence(self):
        for path in pathlib.Path(__file__).parent.glob("test_*.py"):
            if path.name != pathlib.Path(__file__).name:
                self.assertNotIn("skipTest(", path.read_text(), path.name)
                self.assertNotIn("unittest.skip", path.read_text(), path.name)
