"""The work of a training step: operations of products and bytes that are moved, as PyTorch's calls have
them. A model of time is made of it elsewhere."""

import os
from collections import Counter

# What gathers reads as much of its source as it writes.
GATHERS = {"embedding", "index", "gather", "index_select"}
# They start no kernel.
NO_WORK = ("empty", "new_empty", "detach", "lift_fresh", "alias", "record_stream", "set_", "resize_", "is_same_size",
           "_local_scalar_dense", "item", "_unsafe_view", "_reshape_alias", "sym_")
HALF = ("torch.float16", "torch.bfloat16")

running = []


def over_the_bus(size):
    """Something was moved between the host and the card that no call shows."""
    for one in running:
        one.calls["bus", 0, size] += 1


def counter(torch):
    """A context in which calls of this thread and of its backward passes are counted."""
    from torch.utils._python_dispatch import TorchDispatchMode

    try:
        from torch.utils.flop_counter import flop_registry
    except ImportError:
        flop_registry = {}

    class Counted(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            # By kind, operations and bytes.
            self.calls = Counter()

        def __enter__(self):
            running.append(self)
            return super().__enter__()

        def __exit__(self, *error):
            running.remove(self)
            return super().__exit__(*error)

        @property
        def operations(self):
            return sum(operations * count for (_, operations, _), count in self.calls.items())

        @property
        def bytes(self):
            return sum(size * count for (_, _, size), count in self.calls.items())

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            out = func(*args, **kwargs)
            try:
                self.add(func, args, kwargs, out)
            except Exception:
                # What it cannot count is not counted.
                pass
            return out

        def add(self, func, args, kwargs, out):
            if "c10d" in func.namespace:
                self.add_exchange(func, args, kwargs, out)
                return
            name = func._schema.name.partition("::")[2]
            if func.is_view or name.startswith(NO_WORK):
                return
            inputs = tensors(torch, (args, list(kwargs.values())))
            outputs = tensors(torch, out)
            on_card = [one for one in (*inputs, *outputs) if one.is_cuda]
            if not on_card and any(one.is_cuda for one in inputs + outputs):
                return
            if name in ("copy_", "_to_copy") and len({one.device.type for one in inputs + outputs}) > 1:
                self.calls["bus", 0, sum(map(size, outputs))] += 1
                return
            moved = {id(one): size(one) for one in inputs + outputs}
            if name in GATHERS:
                moved = {id(one): size(one) for one in outputs + inputs[1:]}
                moved[None] = sum(map(size, outputs))
            count = flop_registry.get(func._overloadpacket)
            operations = count(*args, **kwargs, out_val=out) if count else 0
            kind = kind_of(torch, name, inputs) if operations else "move"
            self.calls[kind, int(operations), sum(moved.values())] += 1

        def add_exchange(self, func, args, kwargs, out):
            """What a rank sends in a ring of all: of a sum all twice but its own part, of the others once."""
            name = func._schema.name.partition("::")[2]
            words = [*args, *kwargs.values()]
            whole = max((sum(map(size, tensors(torch, one))) for one in (*words, out)), default=0)
            members = members_of(torch, words)
            if not whole or len(members) < 2 or name.startswith("wait_tensor"):
                return
            others = (len(members) - 1) / len(members)
            times = 2 * others if name.replace("_", "").startswith("allreduce") else others
            if name.startswith(("broadcast", "send", "recv")):
                times = 1
            local = int(os.environ.get("LOCAL_WORLD_SIZE") or len(members))
            near = len({one // local for one in members}) == 1
            self.calls["near" if near else "far", 0, int(whole * times)] += 1

    return Counted()


def kind_of(torch, name, inputs):
    """What a product is made with: `half`, `tf32` where the program allows it, `single`."""
    dtype = next((str(one.dtype) for one in inputs if one.is_floating_point()), "")
    if dtype in HALF or "float8" in dtype:
        return "half"
    if "conv" in name:
        return "tf32" if torch.backends.cudnn.allow_tf32 else "single"
    return "single" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def members_of(torch, words):
    """The ranks of the group that an exchange is of."""
    dist = torch.distributed
    for one in words:
        if isinstance(one, torch.ScriptObject):
            try:
                return dist.get_process_group_ranks(dist.ProcessGroup.unbox(one))
            except Exception:
                # Of what is reduced, how: an object too.
                continue
        if isinstance(one, str) and one:
            try:
                from torch.distributed.distributed_c10d import _resolve_process_group

                return dist.get_process_group_ranks(_resolve_process_group(one))
            except Exception:
                continue
    return range(dist.get_world_size())


def size(tensor):
    """Its bytes; of one that is expanded those that are there."""
    try:
        return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
    except Exception:
        return tensor.numel() * tensor.element_size()


def tensors(torch, value, depth=3):
    if isinstance(value, torch.Tensor):
        return [value]
    if depth and isinstance(value, (list, tuple)):
        return [one for inside in value for one in tensors(torch, inside, depth - 1)]
    return []
