"""Plans of ranks: what each rank holds of a model, where a script has it whole.

ddp     each rank has all of it, and gradients are averaged
zero1   the optimizer's state is divided: ZeroRedundancyOptimizer, beside DDP
zero2   gradients and parameters too, but in a step parameters are gathered once: fully_shard of each block
        that repeats and of the root, with reshard_after_forward=False
zero3   the same with True: after each block's forward pass its parameters are given back

In a script that has DistributedDataParallel it is DDP that changes what it does (`sharded_ddp.py`). A script of
one process becomes one rank of several when its optimizer is made: then its model is known. What the script
has as its batch is each rank's then.
"""

import functools
import gc
import inspect
import os
import threading
import weakref

from . import blocks

NAMES = ("ddp", "zero1", "zero2", "zero3")


class Problem(Exception):
    """Why it is not applied."""


class Sharding:
    def __init__(self, torch, name, applied):
        self.torch = torch
        self.name = name
        self.applied = applied
        # Optimizers that there are, for those who are given what is divided after they were made.
        self.optimizers = weakref.WeakSet()
        # What has taken the place of a parameter, by the parameter; those hold no memory any more.
        self.instead = {}
        # What was made of a plain script's models; its gradients are averaged for as long as it is there.
        self.wrapped = []
        self.done = False
        self.making = threading.local()

    @property
    def divides_parameters(self):
        return self.name in ("zero2", "zero3")

    def begin(self):
        if int(os.environ.get("WORLD_SIZE") or 1) < 2:
            raise Problem("there is one rank")
        if not self.torch.distributed.is_available():
            raise Problem("this PyTorch has no torch.distributed")
        around_optimizers(self.torch, self)
        if self.name == "zero1":
            instead_of_optimizers(self.torch, self)
        from . import sharded_ddp

        sharded_ddp.begin(self)
        from .training import after_first_step

        after_first_step(self.torch, self.tell)

    def tell(self):
        if not self.done and not any(name == self.name for name, _ in self.applied.problems):
            self.applied.problem(self.name, "the script begins torch.distributed, and has no DistributedDataParallel")

    def tried(self, function, *words):
        """What it gives; `None` where it could not be applied, which is told."""
        try:
            return function(*words)
        except Problem as problem:
            self.applied.problem(self.name, str(problem))
        except Exception as error:
            self.applied.problem(self.name, f"{type(error).__name__}: {error}")
        return None

    # --- optimizers -----------------------------------------------------------------------------
    def of_optimizer(self, optimizer, groups):
        """Called for each before it is made, with its groups of parameters, whose members may be replaced."""
        if type(optimizer).__name__ == "ZeroRedundancyOptimizer" and self.name != "ddp":
            if not getattr(self.making, "ours", False):
                raise Problem("the script divides its optimizer's state itself")
        if any(hasattr(one, "_local_tensor") and id(one) not in self.given() for one in members(groups)):
            raise Problem("the script divides its parameters itself")
        if not self.torch.distributed.is_initialized() or self.wrapped:
            self.of_plain_script([one for one in members(groups) if id(one) not in self.given()])
        self.optimizers.add(optimizer)

    def given(self):
        """Those that were replaced, and those that replaced them."""
        return {*self.instead, *(id(new) for _, new in self.instead.values())}

    def replace(self, groups):
        for group in groups:
            group["params"] = [self.replaced(one) for one in group["params"]]

    def replaced(self, one):
        if isinstance(one, tuple):
            return (one[0], self.replaced(one[1]))
        return self.instead[id(one)][1] if id(one) in self.instead else one

    # --- a script of one process ----------------------------------------------------------------
    def of_plain_script(self, parameters):
        known = {id(one) for root, _ in self.wrapped for one in root.parameters()}
        parameters = [one for one in parameters if id(one) not in known]
        if not parameters:
            return
        if self.wrapped:
            raise Problem("the script has several optimizers, of several models")
        devices = {one.device for one in parameters}
        if len(devices) != 1:
            raise Problem("the model is on several devices")
        device = devices.pop()
        if device.type == "meta" or (device.type == "cpu" and self.torch.cuda.is_available()):
            raise Problem("the model is not on a card when its optimizer is made")
        roots = found(self.torch.nn.Module, parameters)
        begin_group(self.torch, device)
        for root in roots:
            self.wrapped.append((root, self.divided(root) if self.divides_parameters else averaged(self.torch, root)))
        self.done = True

    # --- models ---------------------------------------------------------------------------------
    def divided(self, root, group=None):
        """Divides a model among ranks, which begin with what the first has."""
        from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
        from torch.distributed.fsdp import fully_shard

        dist = self.torch.distributed
        before = {name: one for name, one in root.named_parameters(remove_duplicate=False)}
        if any(hasattr(one, "_local_tensor") for one in before.values()):
            raise Problem("the script divides its parameters itself")
        if any(optimizer.state for optimizer in self.optimizers):
            raise Problem("the optimizer has a state before the model is wrapped")
        kind = next(iter(before.values())).device.type
        group = group or dist.group.WORLD
        send(dist, group, [*{id(one): one for one in before.values()}.values(), *root.buffers()])
        if group is dist.group.WORLD:
            mesh = init_device_mesh(kind, (dist.get_world_size(),))
        else:
            mesh = DeviceMesh.from_group(group, kind)
        units = alone(blocks.repeated(self.torch.nn, root), root)
        for one in (*units, root):
            fully_shard(one, mesh=mesh, reshard_after_forward=self.name == "zero3")
        self.applied.note("units", len(units) + 1)
        for name, new in root.named_parameters(remove_duplicate=False):
            old = before[name]
            if old is not new and id(old) not in self.instead:
                # Whoever holds the old one still shall not hold its memory, nor use what is no longer true.
                old.data = old.data.new_empty(0)
                self.instead[id(old)] = (old, new)
        for optimizer in self.optimizers:
            self.replace(optimizer.param_groups)
        return root


def begin(torch, plans, applied):
    named = [name for name in NAMES if name in plans]
    if len(named) > 1:
        applied.problem("+".join(named), "they exclude each other")
        return
    if "8-bit" in plans and named[0] in ("zero2", "zero3"):
        applied.problem(named[0], "optimizers of bitsandbytes do not know divided parameters")
        return
    sharding = Sharding(torch, named[0], applied)
    sharding.tried(sharding.begin)


def around_optimizers(torch, sharding):
    original = torch.optim.Optimizer.__init__

    @functools.wraps(original)
    def init(self, params, *args, **kwargs):
        if not getattr(sharding.making, "inner", False) and not isinstance(params, torch.Tensor):
            params = list(params)
            whole = grouped(params)
            sharding.tried(sharding.of_optimizer, self, whole)
            sharding.replace(whole)
            params = whole if params and isinstance(params[0], dict) else whole[0]["params"]
        original(self, params, *args, **kwargs)

    torch.optim.Optimizer.__init__ = init


def grouped(params):
    """As groups, which are ours to change."""
    if not params or not isinstance(params[0], dict):
        return [{"params": params}]
    single = lambda inside: [inside] if hasattr(inside, "grad_fn") else list(inside)
    return [{**group, "params": single(group["params"])} for group in params]


def members(groups):
    return [one[1] if isinstance(one, tuple) else one for group in groups for one in group["params"]]


def instead_of_optimizers(torch, sharding):
    """Each optimizer that a script makes is a ZeroRedundancyOptimizer, which has one of its kind."""
    making = sharding.making

    def new(kind, *args, **kwargs):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        # Without arguments it is copied, or read from a file.
        known = issubclass(kind, ZeroRedundancyOptimizer) or getattr(making, "inner", False)
        if known or not (args or kwargs):
            return object.__new__(kind)
        try:
            bound = inspect.signature(kind.__init__).bind(None, *args, **kwargs)
        except TypeError:
            # Its own error is the script's to see.
            return object.__new__(kind)
        words = dict(list(bound.arguments.items())[1:])
        for name, parameter in bound.signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                words.update(words.pop(name, {}))
        params = list(words.pop(next(iter(words))))
        if params and isinstance(params[0], tuple):
            params = [one for _, one in params]

        def inner(params, **named):
            making.inner = True
            try:
                return kind(params, **named)
            finally:
                making.inner = False

        making.ours = True
        try:
            return ZeroRedundancyOptimizer(params, inner, **words)
        finally:
            making.ours = False

    torch.optim.Optimizer.__new__ = new


def begin_group(torch, device):
    """A script of one process has not begun its group: here it is."""
    import atexit

    dist = torch.distributed
    if dist.is_initialized():
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    atexit.register(lambda: dist.is_initialized() and dist.destroy_process_group())


def found(kind, parameters):
    """The outermost modules that have the parameters; of those that only have another one inside, that."""
    wanted = {id(one) for one in parameters}
    modules = [one for one in gc.get_objects() if issubclass(type(one), kind) and "_modules" in vars(one)]
    inside = {id(child) for one in modules for child in one.children()}
    roots = [one for one in modules if id(one) not in inside and has(one, wanted)]
    roots = {id(one): one for one in map(innermost, roots)}
    roots = [one for one in roots.values() if not any(within(one, other) for other in roots.values())]
    missing = wanted - {id(one) for root in roots for one in root.parameters()}
    if missing:
        raise Problem("the optimizer has parameters that are in no module")
    return roots


def has(module, wanted):
    return any(id(one) in wanted for one in module.parameters())


def innermost(module):
    """What a module of no parameters of its own, as a trainer, has as its only one."""
    while not any(one is not None for one in module._parameters.values()):
        inside = [one for one in module.children() if next(one.parameters(), None) is not None]
        if len(inside) != 1 or type(inside[0]).__name__ in ("ModuleList", "ModuleDict"):
            break
        module = inside[0]
    return module


def within(module, other):
    return module is not other and any(module is one for one in other.modules())


def alone(units, root):
    """Blocks that share no parameter with what is outside of them: the others stay with the root."""
    owners = {}
    for module in root.modules():
        for one in module._parameters.values():
            if one is not None:
                owners.setdefault(id(one), set()).add(id(module))
    kept = []
    for unit in units:
        own = {id(module) for module in unit.modules()}
        if all(owners[id(one)] <= own for one in unit.parameters()):
            kept.append(unit)
    return kept


def averaged(torch, root):
    """DDP around a model that the script calls without it."""
    ddp = torch.nn.parallel.DistributedDataParallel(root)
    # Of those that are called they stand around all others.
    root.register_forward_pre_hook(lambda _, args, kwargs: ddp._pre_forward(*args, **kwargs), with_kwargs=True)
    root.register_forward_hook(lambda _, __, out: ddp._post_forward(out))
    return ddp


def send(dist, group, tensors):
    """What the first rank has, as DDP does when it is made; larger ones alone, which are not copied for it."""
    tensors = [one.detach() for one in tensors if one.numel()]
    if tensors:
        dist._broadcast_coalesced(group, tensors, 1 << 20, 0)
