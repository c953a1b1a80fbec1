"""What batches and programs are made of, seen from outside of them."""

import os
import sys

# Entries of a batch that are looked at.
MOST = 16
DEPTH = 2
MODULES = 200_000
ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


# Not a function inside the other one: that would refer to itself, and keep each batch until Python looks
# for cycles.
def look(kind, name, value, depth, found):
    if len(found) >= MOST:
        return
    if isinstance(value, kind):
        found.append((name, value))
    elif depth:
        if isinstance(value, (list, tuple)):
            for one in value[:MOST]:
                look(kind, None, one, depth - 1, found)
        elif isinstance(value, dict) or hasattr(value, "keys") and hasattr(value, "data"):
            for key in list(value.keys())[:MOST]:
                look(kind, key, value[key], depth - 1, found)
        elif hasattr(type(value), "__dataclass_fields__"):
            for key in list(type(value).__dataclass_fields__)[:MOST]:
                look(kind, key, getattr(value, key, None), depth - 1, found)


def batch(torch, value):
    """Samples, tokens and shapes of a batch; what cannot be seen is None."""
    found, shapes, samples, ids = [], [], None, None
    look(torch.Tensor, None, value, DEPTH, found)
    for name, one in found:
        shape = one.shape
        if shape:
            # Where they differ there is none.
            samples = shape[0] if samples in (None, shape[0]) else 0
        # One that says that it is it, packed ones too; else the batch's first tensor, as labels and categories
        # beside others are no tokens.
        likely = name == "input_ids" and 1 <= len(shape) <= 2 or not shapes and len(shape) == 2
        if likely and one.dtype in (torch.int64, torch.int32):
            ids = shape
        shapes.append(shape)
    tokens = ids and ids[0] * (ids[1] if len(ids) == 2 else 1)
    return samples or None, tokens, shapes


def plain(torch, value):
    """What `is_like` is asked with: shapes and dtypes of a batch that is a list of tensors and nothing else."""
    if type(value) in (list, tuple) and len(value) <= MOST and all(type(one) is torch.Tensor for one in value):
        return [(one.shape, one.dtype) for one in value]
    return None


def is_like(torch, value, known):
    """Whether a batch is as the one before, of which the rest is known then: most are, and this is quick."""
    if known is None or type(value) not in (list, tuple) or len(value) != len(known):
        return False
    for one, (shape, dtype) in zip(value, known):
        if type(one) is not torch.Tensor or one.shape != shape or one.dtype != dtype:
            return False
    return True


def is_shorter(shapes, usual):
    """Whether these are of the same shapes but for fewer samples."""
    pairs = list(zip(shapes, usual))
    return len(shapes) == len(usual) and all(one[1:] == other[1:] and one[:1] <= other[:1] for one, other in pairs)


def autocast(torch, model):
    """The dtype of autocast that a trainer wrapped around the forward pass."""
    kind = getattr(torch.amp.autocast_mode, "autocast", ())
    looked, at = set(), [getattr(model, "forward", None)]
    while at and len(looked) < 64:
        one = at.pop()
        one = getattr(one, "__func__", one)
        if one is None or id(one) in looked:
            continue
        looked.add(id(one))
        if isinstance(one, kind):
            return one.fast_dtype if getattr(one, "_enabled", True) else None
        at.append(getattr(one, "__wrapped__", None))
        for cell in getattr(one, "__closure__", None) or ():
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            if callable(value) or isinstance(value, kind):
                at.append(value)
    return None


def autocast_now(torch):
    """The dtype of autocast here and now."""
    for device in ("cuda", "cpu"):
        try:
            if torch.is_autocast_enabled(device):
                return torch.get_autocast_dtype(device)
        except TypeError:
            # Before 2.4 each device had names of its own.
            if torch.is_autocast_enabled():
                return torch.get_autocast_gpu_dtype()
            return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return None


def dtype(one):
    return str(one).replace("torch.", "") if one is not None else None


def unwrapped(model):
    """The program's own model below those that distribute and compile it."""
    compiled = False
    for _ in range(4):
        inside = model.__dict__.get("_modules") or {}
        if "_orig_mod" in inside:
            model, compiled = inside["_orig_mod"], True
        elif type(model).__name__ in ("DistributedDataParallel", "DataParallel") and "module" in inside:
            model = inside["module"]
        else:
            break
    return model, compiled or model.__dict__.get("_compiled_call_impl") is not None


def of_model(torch, model):
    own, compiled = unwrapped(model)
    modules, convolutions = 0, False
    for one in own.modules():
        modules += 1
        convolutions = convolutions or isinstance(one, torch.nn.modules.conv._ConvNd)
        if modules >= MODULES:
            break
    parameters = list(own.parameters())
    return {
        "model": type(own).__qualname__[:200],
        "modules": modules,
        "parameters": sum(one.numel() for one in parameters),
        "dtype": dtype(parameters[0].dtype) if parameters else None,
        "convolutions": convolutions,
        "compiled": compiled,
    }


def of_loader(loader):
    batch = getattr(loader, "batch_size", None)
    if batch is None:
        batch = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    prefetch = getattr(loader, "prefetch_factor", None)
    return {
        "workers": int(loader.num_workers),
        "pinned": bool(loader.pin_memory),
        "persistent": bool(loader.persistent_workers),
        **({"prefetch": prefetch} if isinstance(prefetch, int) else {}),
        **({"batch": batch} if isinstance(batch, int) else {}),
    }


def of_process(torch):
    allocator = next((os.environ[name] for name in ALLOCATOR if os.environ.get(name)), None)
    return {
        "python": "%d.%d.%d" % sys.version_info[:3],
        "torch": str(torch.__version__),
        "cudnn-benchmark": bool(torch.backends.cudnn.benchmark),
        "allocator": allocator and allocator[:1000],
        "card": card(torch),
    }


def card(torch):
    """The UUID of the card in use. Never asked for where the program has not begun to use one."""
    if not torch.cuda.is_initialized():
        return None
    uuid = getattr(torch.cuda.get_device_properties(torch._C._cuda_getDevice()), "uuid", None)
    return "GPU-%s" % uuid if uuid is not None else None


def rank(torch):
    """Rank and number of ranks, as soon as either tells."""
    ranks = sys.modules.get("torch.distributed")
    if ranks is not None and ranks.is_available() and ranks.is_initialized():
        return ranks.get_rank(), ranks.get_world_size()
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return None, None


def backend():
    """What ranks exchange with: `gloo`, `nccl`, or one for each kind of device, `cpu:gloo,cuda:nccl`."""
    ranks = sys.modules.get("torch.distributed")
    if ranks is None or not ranks.is_available() or not ranks.is_initialized():
        return None
    name = str(ranks.get_backend())
    if name == "undefined" and hasattr(ranks, "get_backend_config"):
        name = str(ranks.get_backend_config())
    return name[:100]
