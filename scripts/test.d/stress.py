"""Many processes of Sconce on one store: runs, builds, pushes, prunes, and kills at any moment.

Some runs are begun first and stay until the end: whatever begins and ends meanwhile has not waited for
another's command. Packages come once from their indexes and then from a server on loopback, so that what
a prune removes can be brought again quickly. Counts are printed; the exit code says whether all was right.
"""

import collections
import fcntl
import functools
import hashlib
import http.server
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

SPEC = """name = "{name}"
[python]
packages = ["six==1.16.0"]
[build]
run = ["echo {name} >/opt/{name}"]
[run]
command = ["python", "-c", "import six; print('{name}', six.__version__)"]
"""
NAMES = ["one", "two", "three"]
# Kinds of the store whose items are locked as long as a run or a build stands on them.
HELD = ("system", "wheel", "bytecode", "interpreter", "compiler", "probe", "unpacked", "stacked")
STAYING = 3
# Longer than any of them takes where nothing hangs, in seconds.
HANGS = 240


class Mirror(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Stress:
    def __init__(self, sconce, count, seconds, seed):
        self.count, self.seconds = count, seconds
        self.chance = random.Random(seed)
        self.lock = threading.Lock()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sconce-stress-"))
        self.folder.chmod(0o755)
        self.sconce = self.folder / "sconce"
        shutil.copy(sconce, self.sconce)
        self.sconce.chmod(0o755)
        self.env = dict(os.environ)
        for name in ["DATA", "STATE", "CONFIG"]:
            self.env[f"XDG_{name}_HOME"] = str(self.folder / name.lower())
        self.store = self.folder / "data/sconce"
        self.counts = collections.Counter()
        self.wrong = []
        self.children = []

    # --- before ---------------------------------------------------------------------------------

    def prepare(self):
        for name in NAMES:
            (self.folder / name).mkdir()
            (self.folder / name / "sconce.toml").write_text(SPEC.format(name=name))
        first = self.folder / NAMES[0]
        done = subprocess.run([self.sconce, "-q", "build", "--tag", "warm:up", first], env=self.env)
        if done.returncode != 0:
            sys.exit("stress: the environment cannot be built at all")
        self.serve()
        # With an empty store, all begin at once.
        shutil.rmtree(self.store / "items")
        shutil.rmtree(self.store / "images")

    def serve(self):
        files = self.folder / "mirror"
        files.mkdir()
        for blob in (self.store / "items/blob").iterdir():
            shutil.copy(blob / "content", files / blob.name)
        text = (self.folder / NAMES[0] / "sconce.lock").read_text()
        handler = functools.partial(Mirror, directory=str(files))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        table = re.compile(r'^url = "([^"]+)"((?:\n[^\[\n].*)*?)\nsha256 = "([0-9a-f]{64})"', re.M)

        def local(found):
            if not (files / found[3]).exists():
                return found[0]
            return f'url = "{address}/{found[3]}"{found[2]}\nsha256 = "{found[3]}"'

        text = table.sub(local, text)
        for name in NAMES:
            spec = self.folder / name
            # The lock says of which spec it is.
            subprocess.run([self.sconce, "-q", "lock", spec], env=self.env, check=True)
            own = re.search(r'^inputs = ".*"$', (spec / "sconce.lock").read_text(), re.M)[0]
            (spec / "sconce.lock").write_text(re.sub(r'^inputs = ".*"$', own, text, flags=re.M))

    def registry(self):
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        config = self.folder / "registry.yml"
        config.write_text(
            f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {self.folder}/registry\n"
            f"http:\n  addr: 127.0.0.1:{port}\n"
        )
        log = open(self.folder / "registry.log", "w")
        command = ["docker-registry", "serve", config]
        self.children.append(subprocess.Popen(command, stdout=log, stderr=log))
        for _ in range(100):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    return f"127.0.0.1:{port}"
            time.sleep(0.1)
        sys.exit("stress: docker-registry did not start")

    def staying(self):
        """Runs that begin now and end when they are told to."""
        command = [self.sconce, "-q", "run", self.folder / NAMES[0], "--", "sh", "-c", "echo begun; cat"]
        for _ in range(STAYING):
            run = subprocess.Popen(
                command, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self.children.append(run)
            yield run

    # --- meanwhile ------------------------------------------------------------------------------

    def pick(self, number, upto=None):
        with self.lock:
            return self.chance.choice(number) if upto is None else self.chance.uniform(number, upto)

    def one(self, what):
        """Starts one process, may kill it, and judges what it said."""
        name = self.pick(NAMES)
        spec, want = self.folder / name, None
        if what == "run":
            words, want = ["run", spec], f"{name} 1.16.0\n"
        elif what == "build":
            words = ["build", "--tag", f"{name}:t", spec]
        elif what == "push":
            words = ["build", "--tag", f"{name}:t", "--push", f"{self.at}/r/{name}:t", spec]
        elif what == "run-image":
            words, want = ["run", f"{name}:t", "--", "cat", f"/opt/{name}"], f"{name}\n"
        else:
            self.age()
            words = "prune --unused 1".split()
        process = subprocess.Popen(
            [self.sconce, "-q", *words],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        kill_after = self.pick(0.0, 6.0) if self.pick(range(4)) == 0 else None
        try:
            out, err = process.communicate(timeout=kill_after or HANGS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            out, err = process.communicate()
            with self.lock:
                if kill_after is None:
                    self.wrong.append(f"{what} {name} hung for {HANGS} s")
                else:
                    self.counts[f"{what} killed"] += 1
            return
        with self.lock:
            # An image that was not built yet, or whose layers a prune took before it had a name.
            absent = what == "run-image" and process.returncode != 0 and f"{name}:t" not in self.built
            if absent:
                self.counts["run-image absent"] += 1
            elif process.returncode != 0:
                self.wrong.append(f"{what} {name}: exit code {process.returncode}: {err.strip()}")
            elif want is not None and out != want:
                self.wrong.append(f"{what} {name}: printed {out!r}, not {want!r}")
            else:
                self.counts[f"{what} right"] += 1
                if what in ("build", "push"):
                    self.built.add(f"{name}:t")

    def age(self):
        """Makes some of the items that runs and builds hold look unused for days. What they do not hold, the
        time keeps for them: a prune leaves what was used within its days."""
        then = time.time() - 3 * 24 * 3600
        for folder in (self.store / "items").glob("*/*"):
            if folder.parent.name in HELD and self.pick(range(3)) == 0:
                for name in ["boot", "synced"]:
                    try:
                        os.utime(folder / name, (then, then))
                    except OSError:
                        pass

    def work(self, until):
        kinds = ["run"] * 5 + ["build"] * 2 + ["push"] * 2 + ["run-image", "prune"]
        while time.monotonic() < until and not self.wrong:
            self.one(self.pick(kinds))

    # --- after ----------------------------------------------------------------------------------

    def finish(self):
        """One of each with nothing beside it, and then what is left."""
        for what in ["run", "build", "push", "run-image"]:
            self.pick = lambda number, upto=None: number[-1] if upto is None else upto
            self.one(what)
        held = []
        for lock in (self.store / "locks").iterdir():
            with open(lock, "r+") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    held.append(lock.name)
        if held:
            self.wrong.append(f"locks are held after the end: {held}")
        for name in ["tmp", "scratch"]:
            left = [path.name for path in (self.store / name).glob("*")]
            left = [path for path in left if path not in ("edits", "virtual-gpu")]
            if left:
                self.wrong.append(f"left in {name}: {left}")
        for blob in (self.store / "items/blob").iterdir():
            found = hashlib.sha256((blob / "content").read_bytes()).hexdigest()
            if found != blob.name:
                self.wrong.append(f"the blob {blob.name} has the digest {found}")
        images = self.folder / "data/sconce/images"
        odd = [path.name for path in images.iterdir() if path.name.startswith(".")]
        # One that was killed while it wrote a name may leave the file that was to take it.
        self.counts["names left by the killed"] = len(odd)

    def main(self):
        self.built = set()
        self.prepare()
        self.at = self.registry()
        staying = list(self.staying())
        began = time.monotonic()
        threads = [
            threading.Thread(target=self.work, args=(began + self.seconds,)) for _ in range(self.count)
        ]
        for thread in threads:
            thread.start()
        for run in staying:
            if run.stdout.readline() != "begun\n":
                self.wrong.append("a run that was to stay did not begin")
        for thread in threads:
            thread.join()
        took = time.monotonic() - began
        for run in staying:
            if run.poll() is not None:
                self.wrong.append("a run that was to stay has ended before it was told to")
            out, _ = run.communicate("ended\n")
            if (out, run.returncode) != ("ended\n", 0):
                self.wrong.append(f"a run that stayed printed {out!r}, exit code {run.returncode}")
        self.finish()
        for what, number in sorted(self.counts.items()):
            print(f"{number:6} {what}")
        print(f"{self.count} at a time beside {STAYING} runs that stayed, {took:.0f} s")
        for line in self.wrong:
            print(f"wrong: {line}")
        return 1 if self.wrong else 0


def main():
    sconce = sys.argv[1]
    count, seconds, seed = [*map(int, sys.argv[2:]), *[8, 40, 1][len(sys.argv) - 2 :]]
    stress = Stress(sconce, count, seconds, seed)
    try:
        code = stress.main()
    finally:
        for child in stress.children:
            if child.poll() is None:
                child.terminate()
                child.wait()
        subprocess.run(["chmod", "-R", "u+rwX", stress.folder], stderr=subprocess.DEVNULL)
        shutil.rmtree(stress.folder, ignore_errors=True)
    sys.exit(code)


main()
