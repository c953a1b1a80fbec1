"""Trains a ViT-Large/16 on made-up pictures in fp32 with AdamW: a script that knows nothing of Sconce.

    vit_large.py [--batch-size 24] [--micro-batch N] [--steps 10]

A batch is worked through in pieces of --micro-batch, whose gradients add up; by default in one piece.
"""

import argparse

import torch
from torch.nn.functional import cross_entropy
from torchvision.models import vit_l_16

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=24)
parser.add_argument("--micro-batch", type=int)
parser.add_argument("--steps", type=int, default=10)
options = parser.parse_args()
piece = options.micro_batch or options.batch_size

model = vit_l_16().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.3)
for step in range(options.steps):
    pictures = torch.randn(options.batch_size, 3, 224, 224)
    classes = torch.randint(1000, (options.batch_size,))
    optimizer.zero_grad()
    for some, theirs in zip(pictures.split(piece), classes.split(piece)):
        loss = cross_entropy(model(some.cuda()), theirs.cuda())
        (loss * len(some) / options.batch_size).backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
