"""Random programs of allocator calls, carried out by PyTorch's real caching allocator on a virtual card.

    sconce run --host --virtual-gpu CARD -- python real.py SEED PROGRAMS OPERATIONS FOLDER [FRACTION] [all]

Writes FOLDER/program.jsonl, as `sconce memory simulate` reads it, FOLDER/real.jsonl with what the
allocator answered, and FOLDER/card with the card's memory and what of it is not free, in bytes. The
settings are the environment's PYTORCH_CUDA_ALLOC_CONF. Memory is used from one other stream; with
`all`, from every other one.
"""

import ctypes
import json
import random
import sys

import torch

STREAMS = 3
MIB = 1 << 20


def size(rng):
    """A size in bytes, of every kind that the allocator tells apart."""
    kind = rng.random()
    if kind < 0.35:
        return rng.randint(1, 4096)
    if kind < 0.55:
        return rng.randint(4097, MIB)
    if kind < 0.72:
        return rng.randint(MIB, 10 * MIB)
    if kind < 0.86:
        return rng.randint(10 * MIB, 200 * MIB)
    if kind < 0.96:
        return rng.randint(200 * MIB, 1500 * MIB)
    return rng.choice([0, 512, MIB, MIB + 1, 10 * MIB, 20 * MIB, 64 * MIB, 256 * MIB, 600 * MIB])


class Real:
    """The allocator, and what it was asked and answered."""

    def __init__(self, folder):
        self.card = ctypes.CDLL(None)
        self.card.sconce_vgpu_hold_events(1)
        self.card.sconce_vgpu_complete.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
        self.streams = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(STREAMS - 1)]
        self.live = {}
        self.next = 0
        self.program = open(f"{folder}/program.jsonl", "w")
        self.answers = open(f"{folder}/real.jsonl", "w")

    def said(self, answer, **call):
        print(json.dumps(call), file=self.program)
        print(json.dumps(answer), file=self.answers)

    def alloc(self, amount, stream):
        self.next += 1
        call = dict(op="alloc", id=self.next, bytes=amount, stream=stream)
        try:
            with torch.cuda.stream(self.streams[stream]):
                block = torch.empty(amount, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            self.said({"error": True}, **call)
            return
        self.live[self.next] = block
        self.said({"address": block.data_ptr()}, **call)

    def free(self, name):
        self.said({}, op="free", id=name)
        del self.live[name]

    def record(self, name, stream):
        self.live[name].record_stream(self.streams[stream])
        self.said({}, op="record_stream", id=name, stream=stream)

    def complete(self, stream, events):
        self.card.sconce_vgpu_complete(self.streams[stream].cuda_stream, events)
        self.said({}, op="complete", stream=stream, events=events)

    def synchronize(self):
        torch.cuda.synchronize()
        self.said({}, op="synchronize")

    def empty_cache(self):
        torch.cuda.empty_cache()
        self.said({}, op="empty_cache")

    def fraction(self, part):
        torch.cuda.set_per_process_memory_fraction(part)
        self.said({}, op="set_fraction", fraction=part)

    def stats(self):
        self.said(torch.cuda.memory_stats(), op="stats")

    def end(self):
        """What one program leaves is not there for the next."""
        for name in list(self.live):
            self.free(name)
        self.synchronize()
        self.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self.said({}, op="reset_peaks")


def main():
    seed, programs, operations = (int(word) for word in sys.argv[1:4])
    folder, rest = sys.argv[4], sys.argv[5:]
    used_by_all = "all" in rest
    rng = random.Random(seed)
    free, total = torch.cuda.mem_get_info()
    with open(f"{folder}/card", "w") as card:
        print(total, total - free, file=card)
    real = Real(folder)
    for part in rest:
        if part != "all":
            real.fraction(float(part))
    for _ in range(programs):
        most = rng.choice([10, 40, 150])
        for _ in range(operations):
            what = rng.random()
            if real.live and (what < 0.42 or len(real.live) > most):
                real.free(rng.choice(list(real.live)))
            elif real.live and what < 0.48:
                name = rng.choice(list(real.live))
                # A tensor of no bytes has no memory to be used.
                if real.live[name].numel():
                    real.record(name, rng.randrange(STREAMS) if used_by_all else 1)
            elif what < 0.52:
                real.complete(rng.randrange(STREAMS), rng.choice([1, 1, 2, 1000]))
            elif what < 0.525:
                real.synchronize()
            elif what < 0.53:
                real.empty_cache()
            else:
                real.alloc(size(rng), rng.randrange(STREAMS))
        real.stats()
        real.end()


main()
