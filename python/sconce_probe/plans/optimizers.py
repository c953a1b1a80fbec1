"""Plans of optimizers: what they do by default where the program does not say."""

import functools
import importlib.util
import inspect


def begin(torch, plans, applied):
    if "foreach-off" in plans:
        foreach_off(torch)
    if "8-bit" in plans:
        eight_bit(torch, applied)
    if "fused" in plans:
        fused(torch, applied)


def foreach_off(torch):
    original = torch.optim.Optimizer.__init__

    @functools.wraps(original)
    def init(self, params, defaults, *args, **kwargs):
        if isinstance(defaults, dict) and defaults.get("foreach", True) is None and not defaults.get("fused"):
            defaults["foreach"] = False
        original(self, params, defaults, *args, **kwargs)

    torch.optim.Optimizer.__init__ = init


def fused(torch, applied):
    known = 0
    for kind in list(vars(torch.optim).values()):
        if inspect.isclass(kind) and "fused" in signature(kind) and "__init__" in vars(kind):
            kind.__init__ = with_fused(kind.__init__)
            known += 1
    if not known:
        applied.problem("fused", "this PyTorch has no fused optimizers")


def signature(kind):
    try:
        return inspect.signature(kind.__init__).parameters
    except (TypeError, ValueError):
        return {}


def with_fused(original):
    @functools.wraps(original)
    def init(self, *args, **kwargs):
        said = inspect.signature(original).bind_partial(self, *args, **kwargs).arguments
        if said.get("fused") is None and not said.get("foreach") and not said.get("differentiable"):
            kwargs["fused"] = True
        original(self, *args, **kwargs)

    return init


def eight_bit(torch, applied):
    if importlib.util.find_spec("bitsandbytes") is None:
        applied.problem("8-bit", "bitsandbytes is not installed")
        return
    import bitsandbytes

    for name in ("Adam", "AdamW"):
        theirs = getattr(bitsandbytes.optim, f"{name}8bit")
        setattr(torch.optim, name, of_8_bits(getattr(torch.optim, name), theirs))


def of_8_bits(ours, theirs):
    """A class that makes theirs, and is ours for those who ask."""
    takes = set(inspect.signature(theirs.__init__).parameters)
    ignored = {"foreach", "fused", "capturable", "differentiable", "maximize"}

    class EightBit(ours):
        def __new__(cls, params, *args, **kwargs):
            words = {name: value for name, value in kwargs.items() if name in takes}
            if set(kwargs) - takes - ignored:
                return super().__new__(cls)
            return theirs(params, *args, **words)

    EightBit.__name__ = EightBit.__qualname__ = ours.__name__
    EightBit.__module__ = ours.__module__
    return EightBit
