"""A training script of a kind: trouble.py KIND [STEPS [WORKERS]]. Nothing in it knows of Sconce.

healthy, healthy-workers, healthy-noisy: nothing is wrong. starved: the loader sleeps, one worker. mended: the
same with enough workers. leaking, leaking-workers, leaking-card: 64 KiB more are kept each step. healthy-card:
nothing is, on a card. caching: memory grows for a while and then no more. handed-over: steps of less than a
millisecond, WORKERS workers. bursts: the same with batches that take 32 ms, so that workers end together. ranks: two ranks by torchrun. straggler: of them the second is slow;
straggler-backward: in its backward pass; wide-ranks, straggler-wide: the same two with layers whose exchange takes long.
card-memory: a card's memory runs out. host-memory: the machine's does.
"""

import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

kind = sys.argv[1]
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 400
workers = int(sys.argv[3]) if len(sys.argv) > 3 else 0
torch.manual_seed(0)
torch.set_num_threads(1)


class Pictures(Dataset):
    def __init__(self, sleep_s=0.0):
        self.sleep_s = sleep_s

    def __len__(self):
        return 16 * steps

    def __getitem__(self, index):
        if self.sleep_s:
            time.sleep(self.sleep_s)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 16, 16, generator=generator), index % 10


class Numbers(Dataset):
    """Samples that are there already."""

    def __init__(self):
        self.x, self.y = torch.randn(16 * steps, 32), torch.zeros(16 * steps, dtype=torch.long)

    def __len__(self):
        return 16 * steps

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Late(torch.autograd.Function):
    """Passes gradients on, late."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        time.sleep(0.02)
        return gradient


class SlowBackward(nn.Module):
    def forward(self, x):
        return Late.apply(x)


def network(width=24):
    return nn.Sequential(
        nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, width, 3), nn.ReLU(), nn.Flatten(), nn.Linear(width * 12 * 12, 10)
    )


def train(model, loader, device="cpu", each=lambda number: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    for number, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()
        each(number)
    print("done", kind, steps)


def made_on(device):
    """Batches that cost nothing: a virtual card computes nothing either, and training would starve."""
    x, y = torch.randn(16, 3, 16, 16, device=device), torch.zeros(16, dtype=torch.long, device=device)
    return ((x, y) for _ in range(steps))


def leaking(workers=0, device="cpu", floats=16 * 1024):
    kept = []

    def each(number):
        if floats:
            # As a list of losses that keep more than a number, the classic.
            kept.append(torch.ones(floats, device=device))

    loader = DataLoader(Pictures(), 16, num_workers=workers) if device == "cpu" else made_on(device)
    train(network().to(device), loader, device, each)


def caching():
    kept = {}

    def each(number):
        if number % 50 not in kept and number < steps // 3:
            kept[number % 50] = torch.ones(64 * 1024)

    train(network(), DataLoader(Pictures(), 16), each=each)


def noisy():
    def each(number):
        # As much as it likes, but it gives it back.
        torch.ones(1 + (number * 7919) % 200, 32 * 1024)

    train(network(), DataLoader(Pictures(), 16), each=each)


def wide():
    """Layers of which there is more to exchange than to compute."""
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 1024), nn.Linear(1024, 1024), nn.Linear(1024, 10))


def ranks(slow_s, backward=False, model=None):
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = model or network()
    if backward and rank == 1:
        # Behind the largest layer: its gradients come before the wait, those of the others after.
        model.insert(2, SlowBackward())
    model = nn.parallel.DistributedDataParallel(model)

    def each(number):
        if rank == 1 and slow_s:
            time.sleep(slow_s)

    train(model, DataLoader(Pictures(), 16), each=each)
    dist.destroy_process_group()


def card_memory():
    model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(8))).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    kept = []
    for _ in range(steps):
        x = torch.randn(8192, 4096, device="cuda")
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(x)


def host_memory():
    kept = []
    train(network(), DataLoader(Pictures(), 16), each=lambda number: kept.append(torch.ones(4 << 20)))


KINDS = {
    "healthy": lambda: train(network(), DataLoader(Pictures(), 16)),
    "healthy-workers": lambda: train(network(96), DataLoader(Pictures(), 16, num_workers=1)),
    "healthy-noisy": noisy,
    "starved": lambda: train(network(), DataLoader(Pictures(0.004), 16, num_workers=1)),
    "mended": lambda: train(network(), DataLoader(Pictures(0.004), 16, num_workers=8)),
    "leaking": leaking,
    "leaking-workers": lambda: leaking(workers=2),
    "leaking-card": lambda: leaking(device="cuda"),
    "healthy-card": lambda: leaking(device="cuda", floats=0),
    "caching": caching,
    "ranks": lambda: ranks(0),
    "straggler": lambda: ranks(0.02),
    "straggler-backward": lambda: ranks(0, backward=True),
    "wide-ranks": lambda: ranks(0, model=wide()),
    "straggler-wide": lambda: ranks(0, backward=True, model=wide()),
    "handed-over": lambda: train(nn.Linear(32, 10), DataLoader(Numbers(), 16, num_workers=workers)),
    "bursts": lambda: train(
        nn.Sequential(nn.Flatten(), nn.Linear(768, 10)), DataLoader(Pictures(0.002), 16, num_workers=workers)),
    "card-memory": card_memory,
    "host-memory": host_memory,
}
if os.environ.get("RANK") != "1":
    print("pid", os.getpid())
KINDS[kind]()
