"""One process that has imported what the program will import; trials are forked from it.

Importing is most of a short trial. With SCONCE_FIT_SERVE this is called while Python starts: it imports
the modules that FOLDER/modules names (FOLDER is SCONCE_FIT), then listens at FOLDER/socket. The first
connection is kept by who asks, and with its end this process ends. Each further one is a trial: a line of
JSON, and at its end the exit code. What is forked off for it returns from here, and Python goes on to run
the program as it would have without.

It serves nothing where importing began to use a card, or threads: neither outlives a fork.
"""

import json
import os
import sys

# Packages whose modules are imported ahead: large, and without a mind of their own at import.
AHEAD = ("torch", "torchvision", "torchaudio", "transformers", "timm")
# Seconds until somebody asks.
PATIENCE = 60


def imported():
    """The names of modules that may be imported ahead, in their order: they lie where torch does."""
    home = os.path.dirname(os.path.dirname(sys.modules["torch"].__file__))
    names = []
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        origin = getattr(spec, "origin", None)
        if name.partition(".")[0] in AHEAD and isinstance(origin, str) and origin.startswith(home + os.sep):
            names.append(name)
    return names


def serve():
    """Returns in the process of each trial, and never in the first one."""
    try:
        folder = os.environ["SCONCE_FIT"]
        if not import_ahead(folder):
            os._exit(0)
        become(folder, wait(folder))
    except BaseException:
        # This process is never the program itself.
        os._exit(1)


def import_ahead(folder):
    """Whether what was imported can be forked."""
    import importlib

    with open(os.path.join(folder, "modules"), encoding="utf-8") as file:
        names = file.read().split()
    try:
        # Its threads know of forks, unlike others'.
        importlib.import_module("numpy")
    except ImportError:
        pass
    threads = count_threads()
    importlib.import_module("torch")
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:
            # Some come into being only beside others. The program imports what it needs itself.
            pass
    return count_threads() == threads and change_cards()


def count_threads():
    return len(os.listdir("/proc/self/task"))


def change_cards():
    import ctypes

    return ctypes.CDLL(None).sconce_vgpu_change_cards() == 1


def wait(folder):
    """Waits for trials. Returns in the process of one, with what it was told."""
    import select
    import socket

    listener = socket.socket(socket.AF_UNIX)
    # The folder's path may be too long for a socket's.
    here = os.open(folder, os.O_PATH)
    listener.bind(f"/proc/self/fd/{here}/socket")
    os.close(here)
    listener.listen(64)
    listener.settimeout(PATIENCE)
    try:
        held = listener.accept()[0]
    except OSError:
        os._exit(0)
    while True:
        asking = select.select([held, listener], [], [])[0]
        reap()
        if held in asking:
            os._exit(0)
        asked = listener.accept()[0]
        if os.fork() == 0:
            held.close()
            listener.close()
            return of_one(asked)
        asked.close()


def reap():
    """Of what ended the processor time is counted."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def of_one(asked):
    """Forks a trial, in which it returns, and tells how it ended."""
    with asked.makefile("r", encoding="utf-8") as lines:
        request = json.loads(lines.readline())
    trial = os.fork()
    if trial == 0:
        asked.close()
        return request
    status = os.waitpid(trial, 0)[1]
    asked.sendall(b"%d\n" % (os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)))
    os._exit(0)


def become(folder, request):
    """Makes this process the one that the trial would have been."""
    own = os.path.join(folder, request["folder"])
    nothing = os.open(os.devnull, os.O_RDWR)
    errors = os.open(os.path.join(own, "stderr"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for number, to in enumerate((nothing, nothing, errors)):
        os.dup2(to, number)
    os.close(nothing)
    os.close(errors)
    del os.environ["SCONCE_FIT_SERVE"]
    os.environ["SCONCE_FIT"] = os.path.join(own, "seen")
    os.environ["SCONCE_VGPU"] = os.path.join(own, "cards")
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]
    if not change_cards():
        os._exit(1)
