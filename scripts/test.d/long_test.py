"""Tests of long.py and suites.py. They need git, and no network."""

import contextlib
import datetime
import io
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import long
from long import Row
from suites import SUITES, Suite

DAY = datetime.date(2026, 11, 24)
DIGESTS = {"check": "a" * 64}


def row(**changed):
    good = Row("check", "3", "3", "abc1234", "2026-11-20", "a CPU, 2 cores, Linux 6.1", "20.0", "a" * 64)
    return good._replace(**changed)


def judged(*rows, day=DAY):
    return long.judge(["check"], rows, DIGESTS, day)


class Judgement(unittest.TestCase):
    def test_fresh_row_without_failures_holds(self):
        self.assertEqual(judged(row()), ([], []))

    def test_suite_without_row_fails(self):
        failures, stale = judged()
        self.assertEqual(len(failures), 1)
        self.assertIn("check: 0 rows", failures[0])
        self.assertEqual(stale, [])

    def test_suite_with_two_rows_fails(self):
        self.assertIn("check: 2 rows", judged(row(), row())[0][0])

    def test_row_with_failed_case_fails(self):
        self.assertEqual(judged(row(passed="2"))[0], ["check: 2 of 3 cases passed"])

    def test_row_of_no_cases_fails(self):
        self.assertEqual(judged(row(cases="0", passed="0"))[0], ["check: 0 of 0 cases passed"])

    def test_row_of_another_digest_is_stale(self):
        failures, stale = judged(row(digest="b" * 64))
        self.assertEqual((failures, stale), ([], ["check: what it covers has changed since abc1234"]))

    def test_row_is_stale_after_thirty_days(self):
        on = {age: judged(row(), day=datetime.date(2026, 11, 20) + datetime.timedelta(age)) for age in (-1, 0, 30, 31)}
        self.assertEqual(on[0], ([], []))
        self.assertEqual(on[30], ([], []))
        self.assertEqual(on[31], ([], ["check: its row is 31 days old"]))
        self.assertEqual(on[-1], ([], ["check: its row is -1 days old"]))

    def test_suite_that_takes_too_long_fails(self):
        self.assertEqual(judged(row(minutes="60.1"))[0], ["check: it took 60.1 minutes, and is to be divided"])

    def test_row_of_unknown_suite_fails(self):
        self.assertEqual(judged(row(), row(suite="gone"))[0], ["gone: there is no such suite"])

    def test_row_that_cannot_be_read_fails(self):
        for changed in ({"cases": "many"}, {"minutes": ""}, {"date": "yesterday"}):
            self.assertIn("its row cannot be read", judged(row(**changed))[0][0])

    def test_exit_code_is_of_failures_alone(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(long.tell_judgement([], ["check: old"]), 0)
            self.assertEqual(long.tell_judgement(["check: no row"], []), 1)
        self.assertIn("stale check: old", out.getvalue())
        self.assertIn("FAIL check: no row", out.getvalue())


class Table(unittest.TestCase):
    def test_each_suite_has_cases_of_which_some_are_small(self):
        for suite in SUITES:
            cases = long.cases_of(long.ROOT, suite)
            small = {long.small_case(suite, cases, str(commit)) for commit in range(200)}
            self.assertGreater(len(small), 1, suite.name)
            self.assertLessEqual(small, set(cases))

    def test_every_target_is_a_case_of_fuzz(self):
        text = (long.ROOT / "fuzz/src/targets.rs").read_text()
        count = int(re.search(r"TARGETS: \[Target; (\d+)\]", text)[1])
        (fuzz,) = [suite for suite in SUITES if suite.name == "fuzz"]
        self.assertEqual(len(long.cases_of(long.ROOT, fuzz)), count)

    def test_covered_paths_are_there(self):
        for suite in SUITES:
            lost = [path for path in suite.paths if not (long.ROOT / path).exists()]
            self.assertEqual(lost, [], suite.name)

    def test_a_suite_covers_its_own_script(self):
        for suite in SUITES:
            self.assertIn(suite.command[0], suite.paths)

    def test_ci_holds_the_rows_once_each_suite_has_one(self):
        text = (long.ROOT / "scripts/test").read_text()
        names = {suite.name for suite in SUITES}
        with_rows = {row.suite for row in long.read_lines(long.ROWS, Row)}
        self.assertEqual("long.py judge" in text, with_rows >= names)
        if with_rows >= names:
            sampled = set(re.findall(r"sample ([a-z]+)$", text, re.M))
            (loop,) = re.findall(r"for name in ([a-z ]+); do .*long.py sample", text)
            self.assertEqual(sampled | set(loop.split()), names)

    def test_rows_in_the_repository_can_be_read(self):
        self.assertTrue(long.ROWS.exists())
        self.assertEqual(long.ROWS.read_text().splitlines()[0], "\t".join(Row._fields))
        long.read_lines(long.ROWS, Row)


# A suite whose cases leave a line in the file `tried`, and do what their names say.
SCRIPT = """#!/bin/sh
if [ "$1" = --cases ]; then printf 'good 1\\ngood 2\\nlast 3\\n'; exit; fi
echo "$*" >>tried
case $1 in
  good) ;;
  last) if [ -e hang ]; then touch hangs; sleep 300; fi; exit "$(cat code 2>/dev/null || echo 0)" ;;
esac
"""
SUITE = Suite("small", ("./suite", "--cases"), ("./suite", "{case}"), ("good *",), ("suite", "covered"))


class OfASmallSuite(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "suite").write_text(SCRIPT)
        (self.root / "suite").chmod(0o755)
        self.git("init", "-q")
        self.commit("one")

    def git(self, *words):
        name = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *name, *words], cwd=self.root, env=long.git_env(), check=True, capture_output=True)

    def commit(self, text):
        (self.root / "covered").write_text(text)
        self.git("add", "suite", "covered")
        self.git("commit", "-qm", text)

    def new_run(self):
        return long.Run(SUITE, self.root, self.root / "target", self.root / "long.tsv")

    def run_suite(self):
        with contextlib.redirect_stdout(io.StringIO()):
            return self.new_run().run()

    def tried(self):
        path = self.root / "tried"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    def row(self):
        (found,) = long.read_lines(self.root / "long.tsv", Row)
        return found

    def cut(self):
        """Runs the suite in a process of its own, and ends it in its last case."""
        (self.root / "hang").touch()
        code = (
            "import signal, sys; import long, long_test; signal.signal(signal.SIGTERM, long.interrupt)\n"
            "case = long_test.OfASmallSuite(); case.root = long.pathlib.Path(sys.argv[1]); case.new_run().run()"
        )
        environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)}
        run = subprocess.Popen(
            [sys.executable, "-c", code, self.root],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not (self.root / "hangs").exists():
            self.assertIsNone(run.poll())
            time.sleep(0.01)
        run.send_signal(signal.SIGTERM)
        self.assertNotEqual(run.wait(), 0)
        for name in ("hang", "hangs"):
            (self.root / name).unlink()

    def test_suite_that_passed_leaves_a_row(self):
        self.assertEqual(self.run_suite(), 0)
        self.assertEqual(self.tried(), ["good 1", "good 2", "last 3"])
        row = self.row()
        self.assertEqual((row.suite, row.cases, row.passed), ("small", "3", "3"))
        digest = long.digest_of(self.root, SUITE)
        self.assertEqual(long.judge(["small"], [row], {"small": digest}, long.today()), ([], []))

    def test_machine_is_named_without_its_hostname(self):
        with unittest.mock.patch("platform.node", return_value="its-hostname"):
            self.assertNotIn("its-hostname", long.machine())
        self.assertIn(" cores, Linux ", long.machine())

    def test_failed_and_left_out_cases_are_no_passed_ones(self):
        for code in (1, 77):
            (self.root / "code").write_text(str(code))
            self.assertEqual(self.run_suite(), 1)
            self.assertEqual((self.row().cases, self.row().passed), ("3", "2"))

    def test_cut_suite_goes_on_with_what_had_not_ended(self):
        self.cut()
        self.assertEqual(self.tried(), ["good 1", "good 2", "last 3"])
        self.assertFalse((self.root / "long.tsv").exists())
        self.assertEqual(self.run_suite(), 0)
        self.assertEqual(self.tried(), ["last 3"])
        self.assertEqual(self.row().passed, "3")

    def test_cut_suite_begins_anew_where_covered_paths_changed(self):
        self.cut()
        self.tried()
        self.commit("two")
        self.assertEqual(self.run_suite(), 0)
        self.assertEqual(self.tried(), ["good 1", "good 2", "last 3"])

    def test_ended_suite_begins_anew(self):
        self.run_suite()
        self.tried()
        self.run_suite()
        self.assertEqual(len(self.tried()), 3)
        self.assertEqual(self.row().passed, "3")

    def test_files_that_are_not_committed_are_refused(self):
        (self.root / "covered").write_text("changed")
        with self.assertRaisesRegex(long.LongError, "covers what is not committed: covered"):
            self.run_suite()
        self.assertEqual(self.tried(), [])

    def test_files_that_change_during_a_run_end_it_without_a_row(self):
        (self.root / "suite").write_text(SCRIPT.replace("good) ;;", "good) echo changed >covered ;;"))
        self.commit("two")
        with self.assertRaisesRegex(long.LongError, "not committed"):
            self.run_suite()
        self.assertEqual(self.tried(), ["good 1"])
        self.assertFalse((self.root / "long.tsv").exists())

    def test_digest_is_of_covered_paths_alone(self):
        before = long.digest_of(self.root, SUITE)
        (self.root / "other").write_text("x")
        self.git("add", "other")
        self.git("commit", "-qm", "other")
        self.assertEqual(long.digest_of(self.root, SUITE), before)
        self.commit("two")
        self.assertNotEqual(long.digest_of(self.root, SUITE), before)

    def test_repository_of_a_hook_is_not_asked(self):
        before = long.digest_of(self.root, SUITE)
        with unittest.mock.patch.dict(os.environ, GIT_DIR=str(self.root / "nowhere"), GIT_INDEX_FILE="/nowhere"):
            self.assertEqual(long.digest_of(self.root, SUITE), before)
            self.assertEqual(long.uncommitted(self.root, SUITE), [])

    def test_rows_of_other_suites_stay(self):
        long.write_row(self.root / "long.tsv", row())
        self.run_suite()
        names = [one.suite for one in long.read_lines(self.root / "long.tsv", Row)]
        self.assertEqual(names, ["check", "small"])

    def test_sample_runs_one_small_case_and_gives_its_exit_code(self):
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(long.sample(SUITE, self.root, self.root / "target"), 0)
        (tried,) = self.tried()
        self.assertIn(tried, ["good 1", "good 2"])


if __name__ == "__main__":
    unittest.main()
