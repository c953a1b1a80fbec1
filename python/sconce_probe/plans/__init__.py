"""Plans: changes to how a program trains, made from outside of it. SCONCE_PLAN is their names with `+`.

bf16            the model's forward pass and the loss under torch.autocast
fp16            the same in half precision, for measuring alone: to train it needs a scaler in the program
checkpoint      blocks that repeat keep their input alone, and are computed again in the backward pass
checkpoint=N    N of them, those that keep the most bytes for the least work
foreach-off     optimizers take one tensor after the other
fused           optimizers take all tensors in one kernel
8-bit           Adam and AdamW of bitsandbytes
expandable      PyTorch's allocator has segments that grow
offload         what is kept for the backward pass waits in the host's memory
ddp, zero1, zero2, zero3
                what each of several ranks holds: see sharding.py

What a plan could not do is told once on standard error: it shall not be taken for done.
"""

import os
import sys

TRAINING = ("bf16", "fp16", "checkpoint", "offload")
OPTIMIZERS = ("foreach-off", "fused", "8-bit")
RANKS = ("ddp", "zero1", "zero2", "zero3")


class Applied:
    """What became of the plans in this process."""

    def __init__(self, text):
        self.text = text
        self.notes = {}
        self.problems = []

    def note(self, name, value):
        self.notes[name] = value

    def problem(self, name, why):
        if [name, why] in self.problems:
            return
        self.problems.append([name, why])
        # A trial has an account of its own.
        if not os.environ.get("SCONCE_FIT"):
            print(f"sconce: plan {name} is not applied: {why}", file=sys.stderr, flush=True)

    def seen(self):
        return {"plan": self.text, "notes": self.notes, "problems": self.problems}


def parsed(text):
    """Names with their values."""
    plans = {}
    for word in text.split("+"):
        name, _, value = word.strip().partition("=")
        if name:
            plans[name] = int(value) if value else None
    return plans


applied = None


def before_torch():
    """What must be there when torch is imported: it reads its allocator's settings once."""
    global applied
    applied = Applied(os.environ["SCONCE_PLAN"])
    if "expandable" in parsed(applied.text):
        name = "PYTORCH_ALLOC_CONF" if os.environ.get("PYTORCH_ALLOC_CONF") else "PYTORCH_CUDA_ALLOC_CONF"
        os.environ[name] = with_setting(os.environ.get(name, ""), "expandable_segments", "True")


def with_setting(settings, name, value):
    """The allocator's settings with this one set, in place of what was said of it."""
    kept = [one for one in split(settings) if one.partition(":")[0].strip() != name]
    return ",".join([*kept, f"{name}:{value}"])


def split(settings):
    """At the commas that are not inside of a list."""
    parts, depth = [""], 0
    for letter in settings:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [one for one in parts if one.strip()]


def begin(torch):
    """Applies them, as soon as torch is there."""
    plans = parsed(applied.text)
    for name in plans:
        if name not in (*TRAINING, *OPTIMIZERS, *RANKS, "expandable"):
            applied.problem(name, "it is not known")
    try:
        if any(name in plans for name in OPTIMIZERS):
            from . import optimizers

            optimizers.begin(torch, plans, applied)
        if any(name in plans for name in RANKS):
            from . import sharding

            sharding.begin(torch, plans, applied)
        if any(name in plans for name in TRAINING):
            from . import training

            training.begin(torch, plans, applied)
    except Exception as error:
        applied.problem(applied.text, f"{type(error).__name__}: {error}")
