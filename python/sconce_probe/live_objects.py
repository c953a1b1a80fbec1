"""Which memory of the cards is parameters, buffers, gradients and optimizer state: from the live objects."""

import dis
import gc

# A hold is [what, device, address, bytes].
MOST = 500_000
DEEPEST = 6


def held(torch, optimizers):
    """Every storage of a kind once; what is in more than one counts as the first that is found."""
    found = {}
    # Of one that divides its state, that which has it.
    inner = (getattr(one, "optim", None) for one in optimizers)
    optimizers = [*optimizers, *(one for one in inner if isinstance(one, torch.optim.Optimizer))]

    def add(what, tensor):
        # Of a sharded tensor what this process has.
        tensor = getattr(tensor, "_local_tensor", tensor)
        try:
            if tensor.device.type != "cuda":
                return
            storage = tensor.untyped_storage()
            place = (tensor.device.index or 0, storage.data_ptr())
            if place[1] and place not in found and len(found) < MOST:
                found[place] = (what, storage.nbytes())
        except Exception:
            # Tensors of no storage: sparse ones, those that only pretend.
            pass

    parameters = []
    buffers = []
    for one in gc.get_objects():
        # Of the type itself: some objects lie about their class, or run code when they are asked.
        if issubclass(type(one), torch.nn.Module):
            inside = object.__getattribute__(one, "__dict__")
            parameters.extend((inside.get("_parameters") or {}).values())
            buffers.extend((inside.get("_buffers") or {}).values())
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            parameters.extend(group["params"])
    parameters = [one for one in parameters if one is not None]
    for one in parameters:
        add("parameters", one)
    for one in buffers:
        if one is not None:
            add("buffers", one)
    for one in parameters:
        # `.grad` of a tensor that is no leaf warns.
        if one.is_leaf and one.grad is not None:
            add("gradients", one.grad)
    for optimizer in optimizers:
        for state in list(optimizer.state.values()):
            for tensor in tensors(torch, state, DEEPEST):
                add("optimizer-state", tensor)
    return [[what, device, address, size] for (device, address), (what, size) in found.items()]


def forwards(torch):
    """The code of the forward passes of all modules that live: file, first and last line, class. Code that
    several classes have from one is named by that one."""
    kinds = {type(one) for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)}
    found = {}
    for kind in kinds:
        # What a class calls of its parents has a name too.
        for parent in kind.__mro__:
            function = vars(parent).get("forward")
            # Decorators leave a way to what they are around.
            for _ in range(DEEPEST):
                code = getattr(function, "__code__", None)
                name = getattr(function, "__qualname__", "").split(".")
                if code is not None and len(name) > 1 and not name[-2].startswith("<") and len(found) < MOST:
                    lines = [line for _, line in dis.findlinestarts(code) if line]
                    place = (code.co_filename, code.co_firstlineno, max(lines, default=code.co_firstlineno))
                    found.setdefault(place, (name[-2], set()))[1].add(kind.__name__)
                function = getattr(function, "__wrapped__", None)
    return [[*place, *(users if len(users) == 1 else [owner])] for place, (owner, users) in found.items()]


def tensors(torch, value, depth):
    """Those inside each other's lists and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, dict):
        for one in value.values():
            yield from tensors(torch, one, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors(torch, one, depth - 1)
