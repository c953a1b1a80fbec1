"""Operations of one step, counted as PyTorch's calls are made, where that was asked for (SCONCE_ACCOUNT_FLOPS).

A dispatch mode sees each call and hands it on as it is: the same kernels with the same values. Formulas are those
of PyTorch's own counter: products, convolutions and attention; recomputed ones count again. Calls that may be
products and have no formula are named. Nothing is counted where a compiler made a part of the program, as it
would run that part otherwise under a mode.
"""

import os
import re
import sys
from collections import Counter

from ..work import kind_of

# Steps before the one that is counted; after so many more it is given up.
BEFORE = 4
TRIES = 32
NAMES = 8
PLAIN = ("aten", "prims", "prim", "c10d", "_c10d_functional", "_dtensor", "fsdp", "profiler", "torchvision", "inductor")
LIKE_PRODUCTS = re.compile(r"rnn|lstm$|gru$|attention|mm$|matmul|conv|mv$|^dot$|^vdot$|bilinear|linalg|^_?fft|cdist")
NO_PEAK = ("float64", "complex", "float8", "float4")


class Operations:
    def __init__(self, torch, clock):
        self.torch = torch
        self.clock = clock
        self.tries = TRIES if os.environ.get("SCONCE_ACCOUNT_FLOPS") == "1" else 0
        self.mode = None
        # By kind: of what trains, and of what may yet be found to train nothing.
        self.total = Counter()
        self.looked = Counter()
        self.evaluated = 0
        self.without = {}
        self.told = None

    def step_ends(self, steps):
        """Whether there is something new to tell."""
        if self.mode is not None:
            return self.end()
        if self.tries and steps >= BEFORE:
            self.tries -= 1
            return self.begin()
        return False

    def begin(self):
        why = None
        if compiled():
            why, self.tries = "a compiler made a part of it", 0
        elif self.torch._C._len_torch_dispatch_stack():
            # A mode of the program's own around it would end before this one.
            why = "the program looks at PyTorch's calls itself"
        else:
            self.evaluated = self.clock.evaluated
            self.mode = mode(self.torch, self)
            self.mode.__enter__()
            return False
        self.told = {"no-flops": why}
        return not self.tries

    def end(self):
        from torch.utils import _python_dispatch as dispatch

        current = getattr(dispatch, "_get_current_dispatch_mode", lambda: self.mode)
        if current() is not self.mode:
            # One of the program's is above it: at a later step, then, and of one step again.
            self.total.clear()
            return False
        self.stop()
        self.tries = 0
        by_kind = {kind: count for kind, count in self.total.items() if count}
        self.told = {"flops": by_kind, "flops-per-step": sum(by_kind.values())}
        if self.without:
            self.told["flops-without"] = list(self.without)
        if not by_kind:
            self.told = {"no-flops": "no call with a formula was seen"}
        return True

    def stop(self):
        """Counts no more; in a child that was forked off too."""
        if self.mode is not None:
            self.mode.__exit__(None, None, None)
            self.mode = None

    def add(self, func, args, kwargs, out):
        clock = self.clock
        if clock.evaluated != self.evaluated:
            self.evaluated = clock.evaluated
            self.looked.clear()
        count = registry().get(func._overloadpacket)
        name = func._schema.name.partition("::")[2]
        if count is None:
            if func.namespace not in PLAIN or LIKE_PRODUCTS.search(name) and not func.is_view:
                if len(self.without) < NAMES:
                    self.without[func._schema.name[:100]] = None
            return
        operations = int(count(*args, **kwargs, out_val=out))
        inputs = [one for one in args if isinstance(one, self.torch.Tensor)]
        dtype = next((str(one.dtype) for one in inputs if one.is_floating_point() or one.is_complex()), "")
        kind = "other" if any(word in dtype for word in NO_PEAK) else kind_of(self.torch, name, inputs)
        self.looked[kind] += operations
        if clock.trains:
            self.total.update(self.looked)
            self.looked.clear()


def registry():
    from torch.utils.flop_counter import flop_registry

    return flop_registry


def compiled():
    utils = sys.modules.get("torch._dynamo.utils")
    return bool(utils and utils.counters["stats"].get("unique_graphs"))


def mode(torch, operations):
    from torch.utils._python_dispatch import TorchDispatchMode

    registry()
    plain = torch._C._disabled_torch_dispatch_impl

    class Counted(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if any(getattr(kind, "__torch_dispatch__", plain) is not plain for kind in types):
                # What a kind of tensors of its own makes of it comes by again.
                return NotImplemented
            kwargs = kwargs or {}
            out = func(*args, **kwargs)
            try:
                operations.add(func, args, kwargs, out)
            except Exception:
                # What cannot be counted is not counted, and said.
                if len(operations.without) < NAMES:
                    operations.without[str(func)[:100]] = None
            return out

    return Counted()
