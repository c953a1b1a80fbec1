"""Warnings and tracebacks from everywhere that the probe watches: what it writes to standard error must be
the same bytes with and without the probe. Used by `account`.

    account-frames.py          all places, caught, with stacks and warnings of every level
    account-frames.py PLACE    that place fails, and nothing catches it
"""

import logging
import sys
import traceback
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FAILS = sys.argv[1] if len(sys.argv) > 1 else None
LEVELS = 12
warnings.simplefilter("always")
logging.basicConfig(format="%(message)s")
torch.manual_seed(1)


def here(place):
    """Tells where it is called, in each way that programs have."""
    if FAILS is not None:
        if FAILS == place:
            raise ValueError("it fails in " + place)
        return
    for level in range(1, LEVELS):
        warnings.warn("%s %d" % (place, level), UserWarning, stacklevel=level)
    sys.stderr.write("stack in %s\n%s" % (place, "".join(traceback.format_stack())))
    if place not in failed:
        failed.add(place)
        raise ValueError("it fails in " + place)


failed = set()


class Inner(nn.Module):
    def forward(self, inputs):
        here("inner forward")
        return inputs


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.inner = nn.Linear(3, 2), Inner()

    def forward(self, inputs):
        here("forward")
        return self.inner(self.linear(inputs))


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(context, inputs):
        return inputs * 2

    @staticmethod
    def backward(context, gradient):
        here("backward")
        return gradient * 2


class Data(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        here("data")
        return torch.ones(3) * index


def together(batch):
    here("collate")
    return torch.stack(batch)


class Own(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self, closure=None):
        here("optimizer")
        return closure() if closure else None


model = Model()
optimizer = Own(model.parameters())


def closure():
    here("closure")
    loss = Twice.apply(model(torch.ones(2, 3))).sum()
    loss.backward()
    return loss


def batches():
    for batch in DataLoader(Data(), batch_size=2, collate_fn=together):
        here("loop")


def workers():
    for batch in DataLoader(Data(), batch_size=2, num_workers=1, collate_fn=together):
        pass


def gradient():
    (found,) = torch.autograd.grad(Twice.apply(model(torch.ones(2, 3))).sum(), model.linear.weight)
    here("grad")


def step():
    optimizer.step()
    optimizer.step(closure)


def again():
    # An error of torch's own, and one while another one is handled.
    try:
        model(torch.ones(2, 5))
    except RuntimeError:
        loss = model(torch.ones(2, 3)).sum()
        loss.backward()
        loss.backward()


def recursion():
    model.inner.forward = model.forward
    model(torch.ones(2, 3))


def attempt(function):
    """Until each place in it has failed once."""
    for _ in range(6):
        try:
            function()
            return
        except Exception as error:
            logging.exception("caught in %s", function.__name__)
            sys.stderr.write(traceback.format_exc())
            for frame, line in traceback.walk_tb(error.__traceback__):
                # PyTorch calls hooks for optimizers, if there are any, by variables of its own.
                if not frame.f_code.co_filename.endswith("optim/optimizer.py"):
                    sys.stderr.write("%s %d %s\n" % (frame.f_code.co_filename, line, sorted(frame.f_locals)))


for one in (batches, step, gradient, again):
    if FAILS is None:
        attempt(one)
    elif FAILS == one.__name__ or one is not again:
        one()
if FAILS == "workers":
    FAILS = "data"
    workers()
if FAILS == "recursion":
    recursion()
