"""A training that runs out of memory by fragmentation, and writes a snapshot of it.

    sconce run --host --virtual-gpu "RTX 3070" -- python tagger.py SNAPSHOT [LENGTH]

A tagger of texts: an epoch of training, then an evaluation that keeps its predictions on the card,
batches sorted by length as is usual, then the next epoch. Each batch of the evaluation is a little
longer than the last, so that what the last one freed is too small for it, and the predictions in
between keep the pieces apart. The next epoch needs blocks that no piece is large enough for.

Exit code 0: it ran to its end. 7: it ran out of memory, and the snapshot says why.
"""

import sys

import torch
from torch import nn
from torch.nn import functional

WORDS, WIDTH, TAGS, LAYERS, BATCH = 30_000, 1024, 512, 4, 32


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden):
        return hidden + self.narrow(functional.gelu(self.wide(hidden)))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.tags = nn.Linear(WIDTH, TAGS)

    def forward(self, words):
        return self.tags(self.blocks(self.words(words)))


def batch(length):
    words = torch.zeros(BATCH, length, dtype=torch.long, device="cuda")
    return words, torch.zeros(BATCH * length, dtype=torch.long, device="cuda")


def train(model, optimizer, longest, steps=4):
    for _ in range(steps):
        words, tags = batch(longest)
        loss = functional.cross_entropy(model(words).flatten(0, 1), tags)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def evaluate(model, longest):
    predictions = []
    for length in range(16, longest + 1, 8):
        words, _ = batch(length)
        predictions.append(model(words))
    return predictions


def main():
    path = sys.argv[1]
    longest = int(sys.argv[2]) if len(sys.argv) > 2 else 760
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=1_000_000)
    model = Tagger().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    code = 0
    try:
        for _ in range(2):
            train(model, optimizer, longest)
            predictions = evaluate(model, longest)
    except torch.OutOfMemoryError as error:
        print(error, file=sys.stderr)
        code = 7
    torch.cuda.memory._dump_snapshot(path)
    print(f"peak reserved {torch.cuda.max_memory_reserved()}, allocated {torch.cuda.max_memory_allocated()}")
    sys.exit(code)


main()
