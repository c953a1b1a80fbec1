"""What switches the clock: the outermost calls alone, so that what they call inside costs next to nothing.

| what | where |
|---|---|
| forward | `nn.Module.__call__` |
| backward, `autograd.grad` | `torch.autograd._engine_run_backward`, which both end in; before 2.3 both themselves |
| optimizer | PyTorch's hooks for all optimizers; `Optimizer.__init__` says how many there are |
| data | `__next__` of the iterators of PyTorch's loaders; their `__init__` says which loader it is |
| copy | what Accelerate and Lightning send batches to a card with; tensors' own methods stay as they are |

All but the optimizers' hooks are watched in their own frames (frame_hooks.py): stacks, warnings and tracebacks
are the program's own. An error of the probe stops it for good, and goes no further.
"""

import functools
import os
import sys
from threading import get_ident

from .. import imports
from . import frame_hooks
from .clock import COPY, DATA

# What sends batches to a card, by module; Transformers' trainer uses the first.
SENDERS = (
    ("accelerate.utils.operations", "send_to_device"),
    ("lightning.fabric.utilities.apply_func", "move_data_to_device"),
    ("lightning_fabric.utilities.apply_func", "move_data_to_device"),
)


def install(torch, account):
    """Begins to watch; gives the watcher."""
    watcher = Watcher(torch, account)
    of_torch(torch, watcher)
    imports.after("torch.utils.data.dataloader", lambda module: of_loaders(module, watcher))
    for name, function in SENDERS:
        imports.after(name, lambda module, function=function: of_sender(module, function, watcher))
    os.register_at_fork(after_in_child=watcher.child)
    return watcher


class Watcher:
    """What watched functions call: `…_begins` says whether the call is one that counts; then `ends` follows.

    It keeps the probe's errors from the program, and the probe out of what is not its own.
    """

    def __init__(self, torch, account):
        self.torch = torch
        self.account = account
        self.clock = account.clock
        self.compiling = is_compiling(torch)
        # The phase before that of the outermost call, while there is one.
        self.before = None
        self.batch = None

    def stop(self):
        self.clock.stop()

    def child(self):
        """A loader's worker tells nothing, as it takes no step; a child that trains tells for itself."""
        self.before = self.batch = None
        try:
            self.account.fresh()
            self.clock = self.account.clock
        except Exception:
            self.stop()

    def begins(self, function, *arguments):
        if self.compiling() or get_ident() != self.account.thread:
            return False
        try:
            self.before = function(*arguments)
        except Exception:
            self.stop()
            return False
        return True

    def forward_begins(self, module, args, kwargs):
        return self.begins(self.account.forward_begins, module, args or kwargs)

    def backward_begins(self, *_):
        return self.begins(self.clock.backward_begins)

    def batch_begins(self, iterator):
        return self.begins(self.account.batch_begins, iterator)

    def copy_begins(self, *_):
        # Without a card in use nothing is copied; the first batch may be what begins to use it.
        return self.torch.cuda.is_initialized() and self.begins(self.clock.enter, COPY)

    def batch_returns(self, batch):
        # Looked at once it is clear that the call ends well, and its time is told.
        self.batch = (batch,)
        return batch

    def failed(self):
        """An error passes by the outermost call."""
        self.batch = None
        self.account.raised(sys.exc_info()[1])

    def ends(self):
        before, self.before, batch, self.batch = self.before, None, self.batch, None
        # None in a child that was forked off meanwhile.
        if before is None:
            return
        phase = self.clock.phase
        self.clock.leave(before)
        if batch is not None:
            self.tell(self.account.batch_ends, *batch)
        elif phase == DATA:
            self.clock.by_loader = False

    def tell(self, function, *arguments):
        """Tells what is no phase: nothing has to be ended."""
        if self.compiling() or self.clock.closed or get_ident() != self.account.thread:
            return False
        try:
            function(*arguments)
        except Exception:
            self.stop()
        return False

    def iterator_begins(self, iterator, loader=None, *_):
        # The loader itself is only known where its iterator is made.
        return self.tell(self.account.loader_seen, loader, iterator)

    def optimizer_made(self, optimizer, *_):
        return self.tell(self.account.optimizer_made, optimizer)

    def optimizer_begins(self, optimizer, *_):
        self.tell(self.account.optimizer_begins, optimizer)

    def optimizer_ends(self, optimizer, *_):
        self.tell(self.account.optimizer_ends, optimizer)


def of_torch(torch, watcher):
    from torch.optim import optimizer

    watch(torch.nn.Module, "__call__", watcher, "forward_begins")
    places = ["_engine_run_backward"] if hasattr(torch.autograd, "_engine_run_backward") else ["backward", "grad"]
    for name in places:
        watch(torch.autograd, name, watcher, "backward_begins")
    watch(optimizer.Optimizer, "__init__", watcher, "optimizer_made")
    optimizer.register_optimizer_step_pre_hook(watcher.optimizer_begins)
    optimizer.register_optimizer_step_post_hook(watcher.optimizer_ends)


def of_loaders(module, watcher):
    kind = module._BaseDataLoaderIter
    watch(kind, "__next__", watcher, "batch_begins", "batch_returns")
    watch(kind, "__init__", watcher, "iterator_begins")


def of_sender(module, name, watcher):
    if hasattr(module, name):
        watch(module, name, watcher, "copy_begins")


def watch(place, name, watcher, begins, returns=None):
    """Watches a function: in its own frame, or by one around it where its source cannot be had."""
    own = getattr(place, name)
    try:
        frame_hooks.watch(own, watcher, begins, returns)
    except Exception:
        setattr(place, name, around(own, watcher, begins, returns))


def around(own, watcher, begins, returns):
    begins = getattr(watcher, begins)
    returns = getattr(watcher, returns) if returns else lambda value: value
    forward = begins == watcher.forward_begins

    @functools.wraps(own)
    def watched(*args, **kwargs):
        if watcher.clock.closed or not (begins(args[0], args[1:], kwargs) if forward else begins(*args)):
            return own(*args, **kwargs)
        try:
            return returns(own(*args, **kwargs))
        except BaseException:
            watcher.failed()
            raise
        finally:
            watcher.ends()

    return watched


def is_compiling(torch):
    """Whether this is no call but one that a compiler looks at."""
    asked = getattr(getattr(torch, "compiler", None), "is_compiling", None)
    return asked or (lambda: False)
