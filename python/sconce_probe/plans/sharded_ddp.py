"""DistributedDataParallel that divides what it is given, for scripts that have it.

It stays the class that it is, for those who ask, inherit or have it by another name: what an object of it
does is changed.
"""

import contextlib
import functools

from . import sharding

# Options of DDP that mean nothing where there are no buckets, and options that would be left out silently.
NOT_MEANT = ("mixed_precision", "delay_all_reduce_named_params")
# What scripts ask a DDP for beside training, and what is given instead.
NOT_THERE = {
    "register_comm_hook": None,
    "_register_builtin_comm_hook": None,
    "_set_static_graph": None,
    "join": contextlib.nullcontext,
}


def begin(to):
    ddp = to.torch.nn.parallel.DistributedDataParallel
    made = ddp.__init__

    @functools.wraps(made)
    def init(self, module, *args, **kwargs):
        if to.divides_parameters and to.tried(divide, to, self, module, made, args, kwargs):
            to.done = True
            return
        made(self, module, *args, **kwargs)
        if not to.divides_parameters:
            to.done = True

    ddp.__init__ = init
    if to.divides_parameters:
        forwards(to, ddp)
        without(to, ddp)


def divide(to, self, module, made, args, kwargs):
    """Makes the object what it is to be; True once it is."""
    import inspect

    bound = inspect.signature(made).bind(self, module, *args, **kwargs)
    bound.apply_defaults()
    said = bound.arguments
    for name in NOT_MEANT:
        if said.get(name) is not None:
            raise sharding.Problem(f"DDP is given {name}")
    if not any(one.requires_grad for one in module.parameters()):
        raise sharding.Problem("DDP is given a model that trains nothing")
    group = said.get("process_group")
    if said.get("device_mesh") is not None:
        group = said["device_mesh"].get_group(mesh_dim=0)
    device = next(module.parameters()).device
    if device.type == "cpu" and to.torch.cuda.is_available():
        raise sharding.Problem("DDP is given a model that is not on a card")
    to.divided(module, group)
    to.torch.nn.Module.__init__(self)
    self.module = module
    self.device = device
    self.device_type = device.type
    self.device_ids = said.get("device_ids")
    self.output_device = said.get("output_device")
    self.process_group = group or to.torch.distributed.group.WORLD
    self.broadcast_buffers = said.get("broadcast_buffers", True)
    self.find_unused_parameters = said.get("find_unused_parameters", False)
    self.static_graph = False
    self.__dict__["_sconce_divided"] = True
    self.require_backward_grad_sync = True
    return True


def divided(ddp):
    return "_sconce_divided" in ddp.__dict__


def forwards(to, ddp):
    before = ddp.forward
    torch = to.torch

    @functools.wraps(before)
    def forward(self, *args, **kwargs):
        if not divided(self):
            return before(self, *args, **kwargs)
        if self.broadcast_buffers and self.require_backward_grad_sync and torch.is_grad_enabled():
            sharding.send(torch.distributed, self.process_group, list(self.module.buffers()))
        return self.module(*args, **kwargs)

    def get(self):
        return self.__dict__.get("require_backward_grad_sync", True)

    def put(self, value):
        self.__dict__["require_backward_grad_sync"] = value
        if divided(self):
            self.module.set_requires_gradient_sync(value)

    ddp.forward = forward
    # `no_sync` sets it, and so do some scripts.
    ddp.require_backward_grad_sync = property(get, put)


def without(to, ddp):
    def of(name, before, instead):
        @functools.wraps(before)
        def other(self, *args, **kwargs):
            if not divided(self):
                return before(self, *args, **kwargs)
            to.applied.problem(to.name, f"the script calls {name} of DDP, which is not there")
            return instead() if instead else None

        return other

    for name, instead in NOT_THERE.items():
        if hasattr(ddp, name):
            setattr(ddp, name, of(name, getattr(ddp, name), instead))
