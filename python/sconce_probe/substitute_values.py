"""Other values in the place of the zeros that a virtual card gives: what a program takes of memory with them
tells whether it hangs on values at all, and how much it takes at most.

SCONCE_FIT_VALUES is `SHARE,TRUTH,NUMBER,PATTERN`: how much of a tensor is selected where values decide how large
the result is (`none`, `half`, `all`), whether truth values are true anywhere (0, 1), what other numbers are, and
when that is so: for all alike (`every-other-step`, `always`), or for each place that reads in other steps (`varied`,
`varied-again`). SCONCE_FIT_PINNED names lines, `FILE:LINE` each on its own, whose values stay zero.

It is only laid where SCONCE_FIT_VALUES is set: the trial that is told of is watched without it.
"""

import ctypes
import os
import threading

SHARES = {"none": 0.0, "half": 0.5, "all": 1.0}
# So many times in a step a line reads what was asked for; then zero, so that a loop ends.
MOST_IN_A_STEP = 64
# What selects, and how many elements it selects of at most.
SELECTING = {
    "nonzero": lambda self, *_, **__: self.numel(),
    "_unique2": lambda self, *_, **__: self.numel(),
    "_unique": lambda self, *_, **__: self.numel(),
    "unique_consecutive": lambda self, *_, dim=None, **__: self.numel() if dim is None else self.size(dim),
    "unique_dim": lambda self, dim, *_, **__: self.size(dim),
    "unique_dim_consecutive": lambda self, dim, *_, **__: self.size(dim),
}
KEY = "CUDA"
# What the smallest integers hold.
LARGEST_BYTE = 127
# Steps of a trial until its pattern begins anew.
STEPS_IN_PATTERN = 3
# In which of the steps of two trials (0 to 2, 3 to 5) a place is told something, counted from the first in which it
# reads. Of any two of these sets each has a step that the other has not; of the first six also where a place reads
# twice only, as after the optimizer's step. That both or neither are told something is tried by other patterns.
# The first place is told it once after a step without, once before one, and twice in a row.
CODES = [{1, 2, 3}, {0, 4, 5}, {0, 1, 5}, {2, 3, 4}, {0, 2, 3}, {1, 4, 5}, {0, 2, 5}, {1, 2, 5}, {2, 3, 5}, {2, 4, 5}]


class Pattern:
    """When a place is told something else than zero."""

    def __init__(self, name):
        self.varies = name.startswith("varied")
        self.is_constant = name == "always"
        self.first_step = STEPS_IN_PATTERN if name == "varied-again" else 0
        # The code of each place, by when it first read, and that step.
        self.places = {}

    def tells(self, place, step):
        """Whether a place (any key) is told something in a step, counted from 0."""
        if not self.varies:
            return self.is_constant or step % 2 == 0
        number, first = self.places.setdefault(place, (len(self.places), step))
        return self.first_step + (step - first) % STEPS_IN_PATTERN in CODES[number % len(CODES)]


class Answers:
    """What is answered in the place of zeros, and to whom."""

    def __init__(self, torch, reads, text, pinned):
        share, truth, number, pattern = text.split(",")
        self.pattern = Pattern(pattern)
        self.torch = torch
        self.reads = reads
        self.share = SHARES[share]
        self.truth = truth == "1"
        self.number = int(number)
        self.pinned = {tuple(line.rsplit(":", 1)) for line in pinned.split("\n") if ":" in line}
        self.own = threading.local()
        self.steps = 0
        self.times = {}
        # Lines that would not have come to an end.
        self.endless = set()
        # The line that was last told something else than zero.
        self.last = None
        # How often something was selected, and how often of an unknown number of elements.
        self.library = None

    # --- laid -----------------------------------------------------------------------------------
    def begin(self):
        torch = self.torch
        self.library = torch.library.Library("aten", "IMPL")
        self.impl("_local_scalar_dense", self.scalar)
        self.impl("nonzero", self.nonzero)
        for name in SELECTING:
            if name != "nonzero":
                self.wrap(name)
        for name in ("cpu", "to", "tolist", "copy_"):
            setattr(torch.Tensor, name, self.method(name, getattr(torch.Tensor, name)))

    def impl(self, name, function, **how):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.library.impl(name, function, KEY, **how)

    def wrap(self, name):
        """Around PyTorch's own kernel, which its later releases give out. With others it stays unknown how
        much is selected."""
        try:
            kernel = self.torch.library.get_kernel(f"aten::{name}", KEY)
        except Exception:
            return
        most = SELECTING[name]

        def wrapped(keys, *arguments, **named):
            with Selecting(self, name, most(*arguments, **named)):
                return kernel.call_boxed(keys, *arguments, **named)

        try:
            self.impl(name, wrapped, with_keyset=True)
        except Exception:
            pass

    # --- what selects -----------------------------------------------------------------------------
    def nonzero(self, tensor):
        torch = self.torch
        with Selecting(self, "nonzero", tensor.numel()):
            return torch.ops.aten.nonzero.out(tensor, out=torch.empty(0, dtype=torch.long, device=tensor.device))

    def selecting(self):
        return getattr(self.own, "selecting", None)

    # --- single values ----------------------------------------------------------------------------
    def scalar(self, tensor):
        """The value of a tensor with one element."""
        self.own.scalar = None
        self.own.inside = True
        try:
            value = tensor.cpu_of_torch().item()
        finally:
            self.own.inside = False
        asked, self.own.scalar = self.own.scalar, None
        if not asked:
            # It is known, or another thread's.
            return value
        if selecting := self.selecting():
            return type(value)(selecting.count())
        return self.value(type(value), tensor.dtype)

    def value(self, kind, dtype):
        return kind(self.substitute(dtype) or 0)

    def substitute(self, dtype):
        """What a place is told that reads a value of a type; `None` where zero has to stay."""
        torch = self.torch
        name = "bool" if dtype == torch.bool else "number"
        site = self.reads.noted(name)
        if site is None or not self.may(site):
            return None
        # A line that reads several times in a step is several places, as a function is that several others call.
        tells = self.pattern.tells((site, self.times[site, self.steps] % len(CODES)), self.steps)
        if name == "bool":
            said = self.truth and tells
        else:
            # Numbers are compared with those of other places and of steps before.
            said = self.number if tells or not self.pattern.varies else min(self.number, 1)
            if dtype in (torch.int8, torch.uint8):
                # Two numbers stay two.
                said %= LARGEST_BYTE
        if said:
            self.last = site[:2]
        return said

    def may(self, site):
        """Whether a line is told something else than zero."""
        if (site[0], str(site[1])) in self.pinned:
            return False
        key = (site, self.steps)
        times = self.times[key] = self.times.get(key, 0) + 1
        if times > MOST_IN_A_STEP:
            self.endless.add(site[:2])
            return False
        return True

    # --- whole tensors ----------------------------------------------------------------------------
    def method(self, name, function):
        """The method of tensors, with other values in what it copies from a card."""
        torch = self.torch
        if name == "cpu":
            torch.Tensor.cpu_of_torch = function

        def tolist(tensor):
            return function(tensor.cpu()) if tensor.is_cuda and tensor.dim() else function(tensor)

        def copying(tensor, *arguments, **named):
            if torch.compiler.is_compiling() or getattr(self.own, "inside", False):
                return function(tensor, *arguments, **named)
            self.own.inside, self.own.scalar = True, None
            try:
                copied = function(tensor, *arguments, **named)
            finally:
                self.own.inside = False
            asked, self.own.scalar = self.own.scalar, None
            if asked and not copied.is_cuda:
                self.fill(copied)
            return copied

        return tolist if name == "tolist" else copying

    def fill(self, copied):
        value = self.substitute(copied.dtype)
        if value is None or not (value or self.pattern.varies):
            return
        self.own.inside = True
        try:
            if self.pattern.varies and copied.numel() > 1:
                copied.detach().copy_(self.different(copied, value).reshape(copied.shape))
            else:
                copied.detach().fill_(value)
        except Exception:
            pass
        finally:
            self.own.inside = False

    def different(self, copied, value):
        """As many values as a tensor has: truth values in turn, numbers that differ, as they may be counted."""
        torch = self.torch
        numbers = torch.arange(copied.numel())
        if copied.dtype == torch.bool:
            return (numbers % 2 == 0) == bool(value)
        return value - numbers % max(1, int(value) // 2)

    # --- reads, as the card tells them ---------------------------------------------------------------
    def read(self, to, size):
        """Whether this read was somebody's here, who answers it."""
        if getattr(self.own, "inside", False):
            self.own.scalar = True
            return True
        if selecting := self.selecting():
            if size in (4, 8):
                ctypes.memmove(to, selecting.count().to_bytes(size, "little"), size)
                return True
        return False

    def seen(self):
        line = lambda site: {"file": site[0], "line": site[1]}
        return {
            "endless": [line(site) for site in self.endless],
            "last": line(self.last) if self.last else None,
        }


class Selecting:
    """While an operation runs whose result is as large as values say."""

    def __init__(self, answers, name, most):
        self.answers = answers
        self.name = name
        self.most = most
        self.noted = False

    def __enter__(self):
        self.before = self.answers.selecting()
        self.answers.own.selecting = self
        return self

    def __exit__(self, *_):
        self.answers.own.selecting = self.before

    def count(self):
        if not self.noted:
            self.noted = True
            self.answers.reads.noted(self.name.strip("_").rstrip("2"), "size")
        return int(self.most * self.answers.share)


def begin(torch, reads):
    """`None` where nothing but zeros is asked for, or where PyTorch does not let it be laid."""
    text = os.environ.get("SCONCE_FIT_VALUES")
    if not text or reads is None:
        return None
    answers = Answers(torch, reads, text, os.environ.get("SCONCE_FIT_PINNED") or "")
    answers.begin()
    reads.answers = answers
    return answers
