"""Activation checkpointing of blocks that repeat, from outside of the model."""

import contextlib
import functools
import weakref

# Operations that a card does while it moves one byte, about: makes one cost of both.
OPERATIONS_PER_BYTE = 100


class Checkpoint:
    """All blocks, or the `count` of them that keep the most bytes for the work of computing them again.

    For the latter all are checkpointed in the first step, which measures them."""

    def __init__(self, torch, count, applied):
        self.torch = torch
        self.count = count
        self.applied = applied
        self.found = []
        self.chosen = weakref.WeakSet()
        self.measured = weakref.WeakKeyDictionary()
        self.patched = set()
        self.ranked = count is None

    def find(self, root):
        for module in root.modules():
            if getattr(module, "is_gradient_checkpointing", False) is True:
                self.applied.problem("checkpoint", "the model does so by itself already")
                return
            config = getattr(module, "config", None)
            if getattr(config, "use_cache", None) is True:
                # A cache of keys and values would be filled twice.
                config.use_cache = False
        for block in repeated(self.torch.nn, root):
            # Who has put a forward pass of its own there knows the old one.
            if block in self.chosen or "forward" in vars(block):
                continue
            self.found.append(weakref.ref(block))
            self.chosen.add(block)
            self.patch(type(block))

    def patch(self, kind):
        # On the class: copies of a module, and files that it is saved to, have nothing of ours.
        if kind in self.patched:
            return
        self.patched.add(kind)
        original = kind.forward
        again = self.torch.utils.checkpoint.checkpoint

        @functools.wraps(original)
        def forward(block, *args, **kwargs):
            if block not in self.chosen or not block.training or not self.torch.is_grad_enabled():
                return original(block, *args, **kwargs)
            run = Run(self, block, functools.partial(original, block, **kwargs))
            return again(run, *args, use_reentrant=False)

        kind.forward = forward

    def choose(self):
        """Once all were measured, leaves those that are worth it."""
        if self.ranked or len(self.measured) < len(self.found) or not self.found:
            return
        self.ranked = True
        blocks = [one for one in (each() for each in self.found) if one is not None]
        # Rounded: of equal ones the first.
        worth = lambda block: float("%.1e" % self.measured[block])
        ranked = sorted((one for one in blocks if one in self.measured), key=worth, reverse=True)
        for block in ranked[self.count :]:
            self.chosen.discard(block)

    def tell(self):
        if not self.found:
            self.applied.problem("checkpoint", "the model has no blocks that repeat")
        else:
            self.applied.note("blocks", len(self.found))


class Run:
    """A block's forward pass, which is called a second time to compute again."""

    def __init__(self, checkpoint, block, forward):
        self.checkpoint = checkpoint
        self.block = block
        self.forward = forward
        self.ran = False

    def __call__(self, *args):
        if not self.ran:
            self.ran = True
            return self.forward(*args)
        with steady(self.checkpoint.torch.nn, self.block), self.measured():
            return self.forward(*args)

    @contextlib.contextmanager
    def measured(self):
        to = self.checkpoint
        if to.ranked or self.block in to.measured:
            yield
            return
        from .. import work

        cuda = to.torch.cuda
        before = cuda.memory_allocated() if cuda.is_initialized() else 0
        counted = work.counter(to.torch)
        try:
            with counted:
                yield
        finally:
            after = cuda.memory_allocated() if cuda.is_initialized() else 0
            cost = 1 + counted.operations + OPERATIONS_PER_BYTE * counted.bytes
            to.measured[self.block] = max(after - before, 0) / cost


@contextlib.contextmanager
def steady(nn, block):
    """Normalisation counts a batch once, though it is computed twice."""
    norms = []
    for module in block.modules():
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats:
            norms.append((module, module.momentum, module._buffers.get("num_batches_tracked")))
            module.momentum = 0.0
            module._buffers["num_batches_tracked"] = None
    try:
        yield
    finally:
        for module, momentum, batches in norms:
            module.momentum = momentum
            module._buffers["num_batches_tracked"] = batches


def repeated(nn, module):
    """The outermost modules that stand beside others of their class in a list, and are made of others."""
    children = list(module.children())
    containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
    found, whole = [], []
    for child in children:
        inside = []
        beside = [one for one in children if type(one) is type(child)]
        is_one = isinstance(module, containers) and len(beside) > 1 and trains(child)
        if is_one and not isinstance(child, containers):
            found.append(child)
            continue
        inside = repeated(nn, child)
        # A sequence of plain layers is one too.
        if is_one and not inside and isinstance(child, nn.Sequential):
            whole.append(child)
        found.extend(inside)
    return found + (whole if len(whole) > 1 else [])


def trains(module):
    return next(module.children(), None) is not None and any(one.requires_grad for one in module.parameters())
