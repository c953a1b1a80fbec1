"""Plans around the forward pass: where it begins, where the loss ends, and what is put around both."""

import functools
import os
import threading
import weakref

from . import blocks, offload


class Autocast:
    """On from the first outermost forward pass until the backward pass begins: so the loss is under it,
    as it is where people write `with torch.autocast(...)` around both."""

    def __init__(self, torch, dtype):
        self.torch = torch
        self.dtype = dtype
        self.on = threading.local()

    def enter(self, module):
        first = next(module.parameters(), None)
        if first is None or getattr(self.on, "context", None) is not None:
            return
        kind = first.device.type
        enabled = self.torch.is_autocast_enabled
        # A program that has its own keeps it.
        if enabled() if kind == "cuda" else self.torch.is_autocast_cpu_enabled():
            return
        context = self.torch.autocast(kind, dtype=self.dtype)
        context.__enter__()
        self.on.context = context

    def leave(self):
        context = getattr(self.on, "context", None)
        self.on.context = None
        if context is not None:
            context.__exit__(None, None, None)


def begin(torch, plans, applied):
    autocast = None
    if "bf16" in plans:
        autocast = Autocast(torch, torch.bfloat16)
    elif "fp16" in plans:
        if os.environ.get("SCONCE_FIT"):
            autocast = Autocast(torch, torch.float16)
        else:
            applied.problem("fp16", "its gradients need a torch.amp.GradScaler, in the program itself")
    checkpoint = None
    if "checkpoint" in plans:
        checkpoint = blocks.Checkpoint(torch, plans["checkpoint"], applied)
    away = offload.Offload(torch) if "offload" in plans else None
    around_calls(torch, autocast, checkpoint, away)
    if autocast:
        before_backward(torch, autocast)
    if checkpoint:
        after_first_step(torch, checkpoint.tell)


def around_calls(torch, autocast, checkpoint, away):
    """Around each outermost call of a module that trains."""
    original = torch.nn.Module.__call__
    here = threading.local()
    # A forward pass that checkpointing does again has what the first one had from checkpointing itself;
    # hooks of ours inside of its own would take from it what it counts.
    task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
    in_backward = lambda: task() != -1
    known = weakref.WeakSet()

    @functools.wraps(original)
    def call(self, *args, **kwargs):
        if getattr(here, "inside", False) or not self.training or not torch.is_grad_enabled() or in_backward():
            return original(self, *args, **kwargs)
        here.inside = True
        try:
            if checkpoint:
                if self not in known:
                    known.add(self)
                    checkpoint.find(self)
                checkpoint.choose()
            if autocast:
                autocast.enter(self)
            if away is None:
                return original(self, *args, **kwargs)
            with away.hooks():
                return original(self, *args, **kwargs)
        finally:
            here.inside = False

    torch.nn.Module.__call__ = call


def before_backward(torch, autocast):
    backward, grad = torch.autograd.backward, torch.autograd.grad

    @functools.wraps(backward)
    def left(*args, **kwargs):
        autocast.leave()
        return backward(*args, **kwargs)

    @functools.wraps(grad)
    def without(*args, **kwargs):
        # The forward pass may go on after it, as with a penalty on gradients.
        if getattr(autocast.on, "context", None) is None:
            return grad(*args, **kwargs)
        with torch.autocast(autocast.on.context.device, enabled=False):
            return grad(*args, **kwargs)

    torch.autograd.backward, torch.autograd.grad = left, without
    # For those who have another way back than this one.
    from torch.optim import optimizer

    optimizer.register_optimizer_step_pre_hook(lambda *_: autocast.leave())


def after_first_step(torch, tell):
    from torch.optim import optimizer

    told = []

    def once(*_):
        if not told:
            told.append(True)
            tell()

    optimizer.register_optimizer_step_post_hook(once)
