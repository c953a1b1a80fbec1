"""Trains a few steps without a card, or on one: plans.py KIND DEVICE STEPS [--rows N]. Prints what came of
it to the last bit, or what the allocator had at most."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("kind")
parser.add_argument("device")
parser.add_argument("steps", type=int)
parser.add_argument("--rows", type=int, default=8)
options = parser.parse_args()


class Block(nn.Module):
    """Normalisation over the batch and dropout: what is computed twice must show neither."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, scale=1.0):
        return x + scale * self.dropout(self.layers(self.norm(x)))


class Model(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        for block in self.blocks:
            x = block(x, scale=0.5)
        return self.head(x)


width, depth = {"small": (32, 4), "large": (1024, 16)}[options.kind]
torch.manual_seed(0)
model = Model(width, depth).to(options.device)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(options.steps):
    x = torch.randn(options.rows, width, device=options.device)
    loss = nn.functional.cross_entropy(model(x), torch.arange(options.rows, device=options.device) % 10)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
if options.device == "cpu":
    print(loss.item().hex(), sum(one.double().sum() for one in model.state_dict().values()).item().hex(), loss.dtype)
else:
    print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
