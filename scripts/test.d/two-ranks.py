"""One of two ranks that are really there, on CPUs: two-ranks.py KIND. Trains a few steps, each rank with batches
of its own; the first one prints every weight."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WIDTH, BLOCKS = 30, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    """With weights that are tied, and some that are frozen."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(17, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.head = nn.Linear(WIDTH, 17, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        x = self.words(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.frozen(x))


def optimizer_of(model):
    """Groups as most scripts have them."""
    trains = [one for one in model.parameters() if one.requires_grad]
    groups = [
        {"params": [one for one in trains if one.dim() > 1], "weight_decay": 0.1},
        {"params": [one for one in trains if one.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=1e-2)


def main():
    kind, rank = sys.argv[1], int(os.environ["RANK"])
    # What each rank begins with is its own: the first one's counts.
    torch.manual_seed(rank)
    model = Model()
    if kind == "plain":
        optimizer = optimizer_of(model)
    else:
        dist.init_process_group("gloo")
        # Some scripts have their optimizer first.
        optimizer = optimizer_of(model) if kind == "optimizer-first" else None
        model = DDP(model)
        optimizer = optimizer or optimizer_of(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    torch.manual_seed(100 + rank)
    for step in range(4):
        pieces = 2 if kind != "plain" else 1
        for piece in range(pieces):
            x = torch.randint(17, (8,))
            if kind != "plain":
                # As nanoGPT does; `no_sync` sets the same.
                model.require_backward_grad_sync = piece == pieces - 1
            loss = nn.functional.cross_entropy(model(x), x)
            (loss / pieces).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    # Every rank takes part in it.
    state = {name: getattr(one, "full_tensor", lambda one=one: one)() for name, one in model.state_dict().items()}
    if rank == 0:
        weights = {name.removeprefix("module."): one.double().flatten().tolist() for name, one in state.items()}
        print(json.dumps(weights), flush=True)
    # A rank that goes while the other still listens may abort it.
    dist.barrier()
    dist.destroy_process_group()


main()
