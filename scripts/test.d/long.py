"""Runs the suites of suites.py and holds their results, for scripts/test.

  long.py run SUITE      runs its cases, but for those that an earlier run, which was cut, had ended; when all have
                         ended, writes the suite's row in bench/results/long.tsv
  long.py sample SUITE   runs one small case, chosen by the commit's hash
  long.py judge          fails on a suite without a row or with failures, and lists what is stale
  long.py names          prints the suites' names
"""

import collections
import concurrent.futures
import datetime
import fnmatch
import hashlib
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time

from suites import SUITES

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
ROWS = ROOT / "bench/results/long.tsv"

Row = collections.namedtuple("Row", "suite cases passed commit date machine minutes digest")
Ended = collections.namedtuple("Ended", "case outcome seconds date digest")

# A suite that takes longer is to be divided.
MAX_SUITE_MINUTES = 60
MAX_ROW_DAYS = 30
CASE_TIMEOUT_S = 60 * MAX_SUITE_MINUTES
STOP_GRACE_PERIOD_S = 20


class LongError(Exception):
    """What keeps a suite from running or a result from being read."""


# --- what a result is of -----------------------------------------------------------------------


def git_env():
    """Without what a hook says of its repository: `root` says which one is meant."""
    hooks = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")
    return {name: value for name, value in os.environ.items() if name not in hooks}


def git(root, *words):
    command = ["git", "--no-optional-locks", *words]
    done = subprocess.run(command, cwd=root, env=git_env(), capture_output=True, text=True)
    if done.returncode != 0:
        raise LongError(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout


def digest_of(root, suite):
    """The digest of the covered paths as they are committed."""
    for path in suite.paths:
        if not git(root, "ls-tree", "HEAD", "--", path):
            raise LongError(f"{suite.name} covers {path}, which is not in the commit")
    return hashlib.sha256(git(root, "ls-tree", "-r", "HEAD", "--", *suite.paths).encode()).hexdigest()


def uncommitted(root, suite):
    """The covered files that are not as they are committed."""
    lines = git(root, "status", "--porcelain", "--untracked-files=all", "--", *suite.paths).splitlines()
    return [line[3:] for line in lines]


def today():
    return datetime.datetime.now(datetime.timezone.utc).date()


def cores():
    return len(os.sched_getaffinity(0))


def machine():
    """CPU model, cores and kernel. No hostname: the rows are published."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.machine()
    return f"{model}, {cores()} cores, Linux {platform.release()}"


# --- files of lines with tabs -------------------------------------------------------------------


def read_lines(path, kind):
    """The lines after the header, each as a `kind`."""
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_text().splitlines()[1:], start=2):
        fields = line.split("\t")
        if len(fields) != len(kind._fields):
            raise LongError(f"{path}:{number}: {len(fields)} columns, not {len(kind._fields)}")
        found.append(kind(*fields))
    return found


def write_lines(path, kind, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text("".join("\t".join(map(str, line)) + "\n" for line in (kind._fields, *lines)))
    part.replace(path)


def write_row(path, row):
    others = [one for one in read_lines(path, Row) if one.suite != row.suite]
    write_lines(path, Row, sorted([*others, row]))


# --- whether results hold -----------------------------------------------------------------------


def judge(names, rows, digests, day):
    """What fails and what is stale on a day, as two lists of sentences that begin with a suite's name."""
    failures, stale = [], []
    for name in names:
        of_name = [row for row in rows if row.suite == name]
        if len(of_name) != 1:
            failures.append(f"{name}: {len(of_name)} rows, not one; `scripts/test --long {name}` writes it")
            continue
        (row,) = of_name
        try:
            cases, passed, minutes = int(row.cases), int(row.passed), float(row.minutes)
            age = (day - datetime.date.fromisoformat(row.date)).days
        except ValueError as error:
            failures.append(f"{name}: its row cannot be read: {error}")
            continue
        if cases < 1 or passed != cases:
            failures.append(f"{name}: {passed} of {cases} cases passed")
        if minutes > MAX_SUITE_MINUTES:
            failures.append(f"{name}: it took {row.minutes} minutes, and is to be divided")
        if row.digest != digests[name]:
            stale.append(f"{name}: what it covers has changed since {row.commit}")
        if not 0 <= age <= MAX_ROW_DAYS:
            stale.append(f"{name}: its row is {age} days old")
    unknown = sorted({row.suite for row in rows} - set(names))
    failures.extend(f"{name}: there is no such suite" for name in unknown)
    return failures, stale


def tell_judgement(failures, stale):
    for line in stale:
        print(f"stale {line}")
    for line in failures:
        print(f"FAIL {line}")
    print(f"{len(SUITES)} suites outside of CI: {len(failures)} failures, {len(stale)} reasons to run one again")
    return 1 if failures else 0


# --- cases --------------------------------------------------------------------------------------


def cases_of(root, suite):
    done = subprocess.run(suite.list_command, cwd=root, stdout=subprocess.PIPE, text=True)
    cases = done.stdout.splitlines()
    if done.returncode != 0 or not cases or len(set(cases)) != len(cases):
        raise LongError(f"{' '.join(suite.list_command)} printed no cases, or one twice")
    return cases


def command_of(words, sconce, case):
    found = []
    for word in words:
        found.extend(case.split() if word == "{case}" else [word.replace("{sconce}", str(sconce))])
    return found


def small_case(suite, cases, commit):
    """The one that CI runs of a commit."""
    small = [case for case in cases if any(fnmatch.fnmatchcase(case, one) for one in suite.small_cases)]
    if not small:
        raise LongError(f"{suite.name} has no small case")
    number = hashlib.sha256(f"{commit} {suite.name}".encode()).hexdigest()
    return small[int(number, 16) % len(small)]


class Cases:
    """Runs cases, and ends those that are running when it is stopped."""

    def __init__(self, root, env):
        self.root, self.env = root, env
        self.lock = threading.Lock()
        self.running = set()
        self.is_stopping = threading.Event()

    def run(self, command):
        """Returns the exit code, or None where it was stopped."""
        with self.lock:
            if self.is_stopping.is_set():
                return None
            # A session of its own, so that its own processes end with it.
            process = subprocess.Popen(command, cwd=self.root, env=self.env, start_new_session=True)
            self.running.add(process)
        try:
            code = process.wait(timeout=CASE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            print(f"FAIL {' '.join(command)}: it did not end within {CASE_TIMEOUT_S} s")
            end(process)
            code = 1
        self.running.discard(process)
        return None if self.is_stopping.is_set() else code

    def stop(self):
        with self.lock:
            self.is_stopping.set()
        for process in list(self.running):
            end(process)


def end(process):
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=STOP_GRACE_PERIOD_S)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


# --- a suite ------------------------------------------------------------------------------------


class Run:
    """A run of a suite, which may be cut at any moment and goes on the next time."""

    def __init__(self, suite, root=ROOT, target=TARGET, rows=ROWS):
        self.suite, self.root, self.target, self.rows = suite, root, target, rows
        self.ended_path = target / f"long/{suite.name}.tsv"
        # What a suite leaves there for its next case, as an installed torch.
        self.kept = target / f"long/{suite.name}.kept"
        self.digest = self.checked_digest()
        self.ended = [one for one in read_lines(self.ended_path, Ended) if one.digest == self.digest]
        # A skip that CI would not allow fails: a row says that all was tried.
        env = {**os.environ, "CI": os.environ.get("CI") or "long", "SCONCE_KEPT": str(self.kept)}
        self.cases = Cases(root, env)
        self.lock = threading.Lock()

    def checked_digest(self):
        """The digest, of files that are as they are committed: a result is of nothing else."""
        if changed := uncommitted(self.root, self.suite):
            raise LongError(f"{self.suite.name} covers what is not committed: {', '.join(changed)}")
        return digest_of(self.root, self.suite)

    def run_case(self, case):
        if self.checked_digest() != self.digest:
            raise LongError(f"what {self.suite.name} covers has changed meanwhile; the next run begins anew")
        print(f"\n-- {self.suite.name}: {case}", flush=True)
        began = time.monotonic()
        code = self.cases.run(command_of(self.suite.command, self.target / "release/sconce", case))
        if code is None:
            return
        outcome = {0: "passed", 77: "left out"}.get(code, "failed")
        line = Ended(case, outcome, f"{time.monotonic() - began:.0f}", today().isoformat(), self.digest)
        with self.lock:
            self.ended.append(line)
            write_lines(self.ended_path, Ended, self.ended)
        print(f"-- {self.suite.name}: {case}: {outcome} ({line.seconds} s)", flush=True)

    def run(self):
        """Runs what has not ended, and returns the exit code."""
        cases = cases_of(self.root, self.suite)
        before = {one.case for one in self.ended}
        left = [case for case in cases if case not in before]
        print(f"{self.suite.name}: {len(cases)} cases, of which {len(cases) - len(left)} had ended before", flush=True)
        workers = cores() if self.suite.one_per_core else 1
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            try:
                for one in [pool.submit(self.run_case, case) for case in left]:
                    one.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.cases.stop()
                raise
        if self.checked_digest() != self.digest:
            raise LongError(f"what {self.suite.name} covers has changed meanwhile; the next run begins anew")
        return self.write_result(cases, workers)

    def write_result(self, cases, workers):
        """Writes the row. What had ended is forgotten: the next run is of all cases again."""
        of_cases = [one for one in self.ended if one.case in set(cases)]
        passed = sum(one.outcome == "passed" for one in of_cases)
        row = Row(
            suite=self.suite.name,
            cases=len(cases),
            passed=passed,
            commit=git(self.root, "rev-parse", "--short", "HEAD").strip(),
            # A row is as old as its oldest case.
            date=min(one.date for one in of_cases),
            machine=machine(),
            minutes=f"{sum(int(one.seconds) for one in of_cases) / 60 / workers:.1f}",
            digest=self.digest,
        )
        write_row(self.rows, row)
        self.ended_path.unlink()
        shutil.rmtree(self.kept, ignore_errors=True)
        for one in of_cases:
            if one.outcome != "passed":
                print(f"FAIL {self.suite.name}: {one.case}: {one.outcome}")
        print(f"{self.suite.name}: {passed} of {len(cases)} passed in {row.minutes} minutes; its row is in {self.rows}")
        return 0 if passed == len(cases) else 1


def sample(suite, root=ROOT, target=TARGET):
    """Runs a small case, and returns its exit code."""
    case = small_case(suite, cases_of(root, suite), git(root, "rev-parse", "HEAD").strip())
    print(f"{suite.name}: {case}", flush=True)
    command = command_of(suite.small_command or suite.command, target / "release/sconce", case)
    return subprocess.run(command, cwd=root).returncode


def interrupt(*_):
    raise KeyboardInterrupt


def main(verb, *names):
    suites = {suite.name: suite for suite in SUITES}
    if unknown := set(names) - suites.keys():
        raise LongError(f"there is no suite {', '.join(unknown)}; there are {', '.join(suites)}")
    chosen = [suites[name] for name in names]
    match verb, chosen:
        case "names", []:
            print("\n".join(suites))
            return 0
        case "judge", []:
            digests = {suite.name: digest_of(ROOT, suite) for suite in SUITES}
            return tell_judgement(*judge(list(suites), read_lines(ROWS, Row), digests, today()))
        case "run", [suite]:
            return Run(suite).run()
        case "sample", [suite]:
            return sample(suite)
        case _:
            print(__doc__.strip(), file=sys.stderr)
            return 2


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)
    try:
        sys.exit(main(*sys.argv[1:]))
    except LongError as error:
        sys.exit(f"FAIL {error}")
    except KeyboardInterrupt:
        sys.exit(130)
