"""What there was when a card's memory ran out: kept the first time, and again for the one that ends the
program.

PyTorch calls its observers where it gives up, with the frames that asked still there. What passes the
outermost calls, or ends the program, adds the error's own text. Nothing here asks for memory on a card.
"""

import gc
import os
import pickle
import re
import sys

from . import memory
from .clock import OTHER

NAMES = ("data", "copy", "forward", "backward", "optimizer", "other")
STACK = 32
HOLDERS = 24
FRAMES = 8
LONGEST = 4000
# Objects that are looked through for tensors, and bytes of a snapshot.
OBJECTS = 5_000_000
LARGEST = 64 << 20
# A caught one comes again and again.
TOLD = 8
UNITS = {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SIZE = r"([0-9.]+) (bytes|KiB|MiB|GiB|TiB)"
OBSERVERS = ("_cuda_attach_out_of_memory_observer", "_cuda_attachOutOfMemoryObserver")


class OutOfMemory:
    def __init__(self, torch, account):
        self.torch = torch
        self.account = account
        self.fresh()
        self.kind = getattr(torch, "OutOfMemoryError", None) or torch.cuda.OutOfMemoryError

    def fresh(self):
        self.told = None
        self.times = 0
        self.snapshot = False
        self.error = None

    def begin(self):
        for name in OBSERVERS:
            attach = getattr(self.torch._C, name, None)
            if attach is not None:
                # Once the program has begun to use CUDA, and not before.
                self.torch.cuda._lazy_call(lambda: attach(self.observed))
                break

    def observed(self, device, asked, total, free):
        """PyTorch has given up, and is about to raise."""
        try:
            self.times += 1
            if self.times <= TOLD:
                self.tell(self.frames(), int(device), {"asked": int(asked), "total": int(total), "free": int(free)})
        except Exception:
            pass

    def frames(self):
        """The innermost frame of each thread that had a part in it.

        A backward pass on a card has a thread of its own, with no frame of Python's but those of the
        program's own autograd functions: the one that called for it says more.
        """
        found = [sys._getframe(1).f_back]
        if self.account.is_elsewhere():
            found.append(sys._current_frames().get(self.account.thread))
        return found

    def raised(self, error):
        """An error passes by; what it is may be known already."""
        try:
            if not isinstance(error, self.kind) or error is self.error:
                return
            self.error = error
            text = str(error)[:LONGEST]
            if self.told is None or "message" in self.told:
                # No observer was called for it.
                frame = error.__traceback__
                while frame is not None and frame.tb_next is not None:
                    frame = frame.tb_next
                self.tell([frame and frame.tb_frame], self.torch._C._cuda_getDevice(), of_text(text))
            self.told["message"] = text
            self.write()
        except Exception:
            pass

    def ended(self):
        """What ended the program, which Python has shown already."""
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if error is not None:
            self.raised(error)

    def tell(self, frames, device, known):
        account, torch = self.account, self.torch
        counters = memory.card(torch)
        phase = account.clock.phase
        rank = account.rank[0]
        self.told = {
            **({"rank": rank} if rank is not None else {}),
            "device": device,
            "step": account.steps + (2 if account.clock.ended is not None and phase != OTHER else 1),
            "phase": NAMES[phase],
            **known,
            "stack": stack(*frames),
        }
        if counters is not None:
            self.told["memory"] = dict(zip(memory.NAMES, counters))
        if account.ring is None:
            account.open()
            account.tell(account.began)
        self.write()
        self.told["holders"] = holders(torch, device)
        if not self.snapshot:
            self.snapshot = True
            self.keep_snapshot()
        self.write()

    def keep_snapshot(self):
        path = self.account.name + ".snapshot.pickle"
        try:
            with open(path, "wb") as file:
                pickle.dump(self.torch.cuda.memory._snapshot(), Bounded(file))
            self.told.pop("no-snapshot", None)
        except Exception as error:
            os.unlink(path)
            self.told["no-snapshot"] = str(error)[:200]

    def write(self):
        from . import write

        write(self.account.name + ".oom.json", self.told)


class Bounded:
    """A file that takes no more than that."""

    def __init__(self, file):
        self.file = file
        self.left = LARGEST

    def write(self, data):
        self.left -= len(data)
        if self.left < 0:
            raise ValueError("it has more than %d MiB" % (LARGEST >> 20))
        return self.file.write(data)


def stack(*frames):
    """The program's frames, innermost first."""
    found = []
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for frame in frames:
        while frame is not None and len(found) < STACK:
            code = frame.f_code
            if not code.co_filename.startswith(here):
                found.append("%s:%d %s" % (code.co_filename, frame.f_lineno, code.co_name))
            frame = frame.f_back
    return found


def holders(torch, device):
    """Who has the most: by the frames that asked where PyTorch recorded them, else by what the tensors are."""
    try:
        by_frames = recorded(torch, device)
    except Exception:
        by_frames = {}
    if by_frames:
        largest = sorted(by_frames.items(), key=lambda one: -one[1][0])[:HOLDERS]
        return [{"bytes": size, "blocks": blocks, "stack": list(frames)} for frames, (size, blocks) in largest]
    largest = sorted(live(torch, device).items(), key=lambda one: -one[1][0])[:HOLDERS]
    return [{"bytes": size, "blocks": blocks, "tensor": tensor} for tensor, (size, blocks) in largest]


def recorded(torch, device, most=FRAMES):
    """Bytes and blocks by the frames that asked for them, so many of them."""
    found = {}
    for segment in torch.cuda.memory._snapshot()["segments"]:
        if segment["device"] != device:
            continue
        for block in segment["blocks"]:
            if block["state"] != "active_allocated" or not block.get("frames"):
                continue
            own = [one for one in block["frames"] if one["filename"].endswith(".py")][:most]
            key = tuple("%s:%d %s" % (one["filename"], one["line"], one["name"]) for one in own)
            size, blocks = found.get(key, (0, 0))
            found[key] = (size + block["size"], blocks + 1)
    return found


def live(torch, device):
    """Storages of the tensors that Python knows: what autograd alone keeps is not among them."""
    found, seen = {}, set()
    objects = gc.get_objects()
    for one in objects[:OBJECTS]:
        # Of the type itself: some objects lie about their class, or run code when they are asked.
        if not issubclass(type(one), torch.Tensor):
            continue
        try:
            if one.device.type != "cuda" or one.device.index != device:
                continue
            storage = one.untyped_storage()
            if storage.data_ptr() in seen:
                continue
            seen.add(storage.data_ptr())
            shape = ", ".join(str(size) for size in one.shape)
            key = "%s[%s]" % (str(one.dtype).replace("torch.", ""), shape[:200])
            size, blocks = found.get(key, (0, 0))
            found[key] = (size + storage.nbytes(), blocks + 1)
        except Exception:
            # Tensors of no storage: sparse ones, those that only pretend.
            continue
    return found


def of_text(text):
    """What PyTorch's text tells of sizes."""
    patterns = {
        "asked": r"Tried to allocate " + SIZE,
        "total": r"total capacity of " + SIZE,
        "free": r"of which " + SIZE + r" is free",
    }
    found = {name: re.search(pattern, text) for name, pattern in patterns.items()}
    return {name: int(float(one[1]) * UNITS[one[2]]) for name, one in found.items() if one}
