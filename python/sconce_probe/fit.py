"""`sconce fit`: ends a training program after a few optimizer steps and tells what it had on its cards.

The variable SCONCE_FIT is `FOLDER`, SCONCE_FIT_STEPS how many steps, SCONCE_FIT_SECONDS how long at most.
Each process that had anything on a card, or took a step, writes FOLDER/PID/fit.json and
FOLDER/PID/snapshot.pickle, which is PyTorch's own; FOLDER/torch is there once any has imported torch. Nothing here asks the card for memory or waits for it.

With SCONCE_FIT_WORK=1 one step more is run, whose work is counted (`work.py`), after memory was told: the
counting can change nothing of it. With SCONCE_FIT_HISTORY=0 there is no snapshot.
"""

import atexit
import json
import os
import sys
import threading
import time
import weakref

from . import fork_server, live_objects, remaining_code, substitute_values, values, work

FORMAT = 1
# Entries of the allocator's history; older ones are overwritten.
HISTORY = 2_000_000
# Steps after the first in which what is compiled may still be compiled anew: so many more are run
# (`COMPILING` of inconclusive.rs).
COMPILING = 2
# Steps that are run beyond those where each has more memory than the one before: what only swings does not.
GROWING = 2
# An optimizer that steps more seldom than the others is waited for until they took so many times more.
PATIENCE = 8
LONGEST_TEXT = 8000
# What the step that is counted may take, in seconds.
LONGEST_COUNT = 120


ENVIRONMENT = dict(os.environ)


class Watch:
    """One process that has imported torch."""

    def __init__(self, torch, folder, steps, seconds):
        self.torch = torch
        # What is set before torch is imported may be meant for it.
        self.same_environment = dict(os.environ) == ENVIRONMENT
        self.folder = folder
        self.wanted = steps
        self.seconds = seconds
        self.pid = os.getpid()
        # Those that are at it, the outermost first: optimizers may be wrapped in others.
        self.stepping = []
        self.taken = {}
        self.optimizers = []
        self.steps = []
        self.began_us = None
        self.written = False
        self.history = False
        # The work of a step that is being counted, and the optimizer that ends it.
        self.counted = None
        self.counted_by = None
        self.lock = threading.Lock()
        self.reads = None
        self.answers = None
        self.later = None

    def begin(self):
        from torch.optim import optimizer

        optimizer.register_optimizer_step_pre_hook(self.before_step)
        optimizer.register_optimizer_step_post_hook(self.after_step)
        # Called once the program itself has begun to use CUDA: to begin it here would keep the program
        # from forking.
        if os.environ.get("SCONCE_FIT_HISTORY") != "0":
            self.torch.cuda._lazy_call(self.record_history)
        self.reads = values.begin(self.torch)
        if self.reads:
            self.answers = substitute_values.begin(self.torch, self.reads)
            self.later = remaining_code.begin(self.torch, self.reads.is_library)
        atexit.register(self.at_exit)
        if self.seconds:
            threading.Thread(target=self.wait, name="sconce-fit", daemon=True).start()

    def record_history(self):
        try:
            record = self.torch.cuda.memory._record_memory_history
            record("all", context="all", stacks="python", max_entries=HISTORY)
            self.history = True
        except Exception:
            pass

    def is_ours(self):
        """Not in what was forked off: loaders' workers are none of ours."""
        return os.getpid() == self.pid

    # --- steps ----------------------------------------------------------------------------------
    def before_step(self, optimizer, _args, _kwargs):
        if not self.is_ours():
            return
        self.drop(optimizer)
        if not self.stepping:
            self.began_us = now_us()
        self.stepping.append(id(optimizer))

    def after_step(self, optimizer, _args, _kwargs):
        if not self.is_ours():
            return
        self.drop(optimizer)
        if self.stepping:
            return
        if self.counted is not None:
            if self.counted_by == id(optimizer):
                self.end_count()
            return
        if self.answers:
            self.answers.steps += 1
        try:
            self.count(optimizer)
            enough = self.enough()
            if self.later and len(self.steps) == 1:
                quietly(self.later.executed.note_step, None)
        except Exception:
            return
        if enough:
            if self.later:
                quietly(lambda: self.later.note_stack(sys._getframe(2)), None)
            self.write("steps")
            if os.environ.get("SCONCE_FIT_WORK") != "1":
                leave()
            self.begin_count(optimizer)

    def begin_count(self, optimizer):
        try:
            self.counted_by = id(optimizer)
            self.counted = work.counter(self.torch)
            self.counted.__enter__()
            threading.Thread(target=leave_after, args=(LONGEST_COUNT,), daemon=True).start()
        except Exception:
            leave()

    def end_count(self):
        try:
            self.counted.__exit__(None, None, None)
            calls = [[*key, count] for key, count in self.counted.calls.items()]
            path = os.path.join(self.folder, str(self.pid), "fit.json")
            with open(path, encoding="utf-8") as file:
                seen = json.load(file)
            seen["work"] = calls
            written(path, seen)
        finally:
            leave()

    def drop(self, optimizer):
        """Forgets it and what it began, also where a step had ended by an error."""
        if id(optimizer) in self.stepping:
            del self.stepping[self.stepping.index(id(optimizer)) :]

    def count(self, optimizer):
        key = id(optimizer)
        if key not in self.taken:
            self.optimizers.append(weakref.ref(optimizer))
        self.taken[key] = self.taken.get(key, 0) + 1
        self.steps.append(
            {
                "optimizer": list(self.taken).index(key),
                "begin-us": self.began_us,
                "end-us": now_us(),
                "devices": [
                    {
                        "allocated-bytes": stats.get("allocated_bytes.all.current"),
                        "allocated-peak-bytes": stats.get("allocated_bytes.all.peak"),
                        "reserved-peak-bytes": stats.get("reserved_bytes.all.peak"),
                        # All that was ever asked for, until now.
                        "requested-bytes": stats.get("requested_bytes.all.allocated"),
                    }
                    for stats in self.stats()
                ],
            }
        )

    def enough(self):
        """Every optimizer took its steps: of a model that is trained against another one, both."""
        counts = self.taken.values()
        wanted = self.wanted + (COMPILING if is_compiled() else 0)
        wanted += GROWING if self.grows() else 0
        return min(counts) >= wanted or max(counts) >= PATIENCE * wanted

    def grows(self):
        """Whether an optimizer's last step left more memory in use than its one before, or took more; its first one
        makes its state."""
        for number in range(len(self.taken)):
            own = [one["devices"] for one in self.steps if one["optimizer"] == number]
            pairs = zip(own[-2], own[-1]) if len(own) > 2 else ()
            names = ("allocated-bytes", "allocated-peak-bytes")
            if any((before[name] or 0) < (after[name] or 0) for before, after in pairs for name in names):
                return True
        return False

    # --- ends -----------------------------------------------------------------------------------
    def wait(self):
        time.sleep(self.seconds)
        if self.is_ours() and not self.written:
            self.write("time")
            leave()

    def at_exit(self):
        if self.is_ours():
            self.write("exit")

    # --- what was seen --------------------------------------------------------------------------
    def stats(self):
        cuda = self.torch.cuda
        if not cuda.is_initialized():
            return []
        return [cuda.memory_stats(device) for device in range(cuda.device_count())]

    def write(self, ended):
        """Writes what was seen, once."""
        with self.lock:
            if self.written:
                return
            self.written = True
        if self.reads:
            quietly(self.reads.end, None)
        try:
            if not (self.steps or self.torch.cuda.is_initialized() or is_first()):
                return
            folder = os.path.join(self.folder, str(self.pid))
            os.makedirs(folder, exist_ok=True)
            if self.torch.cuda.is_initialized() and self.history:
                self.torch.cuda.memory._dump_snapshot(os.path.join(folder, "snapshot.pickle"))
            written(os.path.join(folder, "fit.json"), self.seen(ended))
        except Exception:
            pass

    def seen(self, ended):
        torch = self.torch
        seen = {
            "format": FORMAT,
            "torch": str(torch.__version__),
            "cuda": torch.version.cuda,
            "python": "%d.%d.%d" % sys.version_info[:3],
            "ended": ended,
            "wanted-steps": self.wanted,
            "steps": self.steps,
            "optimizers": len(self.taken),
            "used-cuda": torch.cuda.is_initialized(),
            "error": self.error(),
            "devices": quietly(self.devices, []),
            "holds": [],
            "installed": quietly(installed, []),
            "imported": quietly(fork_server.imported, []) if self.same_environment else [],
        }
        if plans := sys.modules.get("sconce_probe.plans"):
            seen["plan"] = plans.applied.seen()
        seen.update(quietly(asked_of_the_virtual_gpu, {}))
        if self.reads:
            seen["reads"] = quietly(self.reads.seen, [])
        if self.answers:
            seen["answers"] = quietly(self.answers.seen, None)
        if self.later:
            quietly(lambda: self.later.note_reads(self.reads.sites), None)
            seen.update(quietly(self.later.seen, {}))
            seen["compiled"] = quietly(is_compiled, False)
        if torch.cuda.is_initialized():
            optimizers = [one for one in (each() for each in self.optimizers) if one is not None]
            seen["holds"] = quietly(lambda: live_objects.held(torch, optimizers), [])
            seen["forwards"] = quietly(lambda: live_objects.forwards(torch), []) if self.history else []
        return seen

    def devices(self):
        cuda = self.torch.cuda
        devices = []
        for index, stats in enumerate(self.stats()):
            free, total = cuda.mem_get_info(index)
            reserved = stats.get("reserved_bytes.all.current", 0)
            devices.append(
                {
                    "name": cuda.get_device_name(index),
                    "total-bytes": total,
                    "outside-bytes": total - free - reserved,
                    **quietly(lambda: communicators(index), {}),
                    "stats": {name: value for name, value in stats.items() if type(value) is int},
                }
            )
        return devices

    def error(self):
        """What ended the program, which Python has shown already."""
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is None or isinstance(error, (SystemExit, KeyboardInterrupt)):
            return None
        return {
            "type": type(error).__name__,
            "message": str(error)[:LONGEST_TEXT],
            # NCCL's buffers that find no room are no error of PyTorch's allocator.
            "out-of-memory": isinstance(error, self.torch.cuda.OutOfMemoryError)
            or "Failed to CUDA calloc" in str(error),
        }


def communicators(device):
    """NCCL's communicators on a virtual card, and what they were taken to need."""
    import ctypes

    gpu = ctypes.CDLL(None)
    asked = {"communicators": gpu.sconce_vgpu_communicators, "nccl-bytes": gpu.sconce_vgpu_nccl_bytes}
    for function in asked.values():
        function.argtypes, function.restype = [ctypes.c_size_t], ctypes.c_uint64
    return {name: function(device) for name, function in asked.items()}


def asked_of_the_virtual_gpu():
    import ctypes

    gpu = ctypes.CDLL(None)
    counts = {
        "dnn-plans": gpu.sconce_vgpu_dnn_plans,
        "dnn-modelled": gpu.sconce_vgpu_dnn_modelled,
        "dnn-workspace-bytes": gpu.sconce_vgpu_dnn_workspace_bytes,
        "dnn-recurrent": gpu.sconce_vgpu_dnn_recurrent,
        "pairs": gpu.sconce_vgpu_pairs,
        "reads-elsewhere": gpu.sconce_vgpu_reads_elsewhere,
    }
    for function in counts.values():
        function.restype = ctypes.c_uint64
    gpu.sconce_vgpu_unknown.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    gpu.sconce_vgpu_unknown.restype = ctypes.c_size_t
    text = ctypes.create_string_buffer(1 << 16)
    size = gpu.sconce_vgpu_unknown(text, len(text))
    unknown = text.raw[:size].decode("utf-8", "replace").split("\n")
    seen = {name: function() for name, function in counts.items()}
    return {**seen, "unknown": [name for name in unknown if name]}


def written(path, seen):
    """Whole, or not at all."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(seen, file)
    os.replace(path + ".new", path)


def is_compiled():
    """Whether anything of it ran compiled: what its first steps take is then the compiler's too."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return bool(dynamo and dynamo.counters.get("frames"))


def installed():
    """Packages that some plans need."""
    import importlib.util

    return [name for name in ("bitsandbytes",) if importlib.util.find_spec(name)]


def now_us():
    return time.time_ns() // 1000


def quietly(function, otherwise):
    try:
        return function()
    except Exception:
        return otherwise


def is_first():
    """Whether no multiprocessing of Python's started this process."""
    if "multiprocessing" not in sys.modules:
        return True
    from multiprocessing import process

    return process.parent_process() is None


def leave():
    """Ends the process at once: no handler of the program's may go on to save what was never trained."""
    for stream in (sys.stdout, sys.stderr):
        quietly(stream.flush, None)
    if "multiprocessing" in sys.modules:
        from multiprocessing import process

        for child in quietly(process.active_children, []):
            quietly(child.terminate, None)
    os._exit(0)


def leave_after(seconds):
    time.sleep(seconds)
    leave()


def leave_mark(folder):
    """Tells that torch was imported, whatever becomes of the process (`ended.rs` of `sconce fit`)."""
    with open(os.path.join(folder, "torch"), "a", encoding="utf-8"):
        pass


def begin(torch):
    """Begins to watch, as soon as torch is there."""
    quietly(lambda: leave_mark(os.environ["SCONCE_FIT"]), None)
    number = lambda name, otherwise: int(os.environ.get(name) or otherwise)
    Watch(
        torch,
        os.environ["SCONCE_FIT"],
        max(1, number("SCONCE_FIT_STEPS", 3)),
        max(0, number("SCONCE_FIT_SECONDS", 0)),
    ).begin()
