"""A plain training run of one kind that writes a record of its steps, with each step's resident set and heap as
the probe reads them. For `verdicts`, which asks what Sconce says of it.

    leaks.py FOLDER ID MODEL WORKERS BATCH STEPS LEAK_BYTES
"""

import json
import os
import pathlib
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from sconce_probe.account import memory
from sconce_probe.account.ring import NONE


class Images(Dataset):
    def __init__(self, size, ragged):
        self.size, self.ragged = size, ragged

    def __len__(self):
        return 100_000

    def __getitem__(self, n):
        generator = torch.Generator().manual_seed(n)
        length = 8 + n * 7919 % 57 if self.ragged else self.size
        shape = (3, self.size, self.size) if not self.ragged else (length, 32)
        return torch.randn(shape, generator=generator), n % 10


def padded(rows):
    """Batches of uneven length, as texts are."""
    longest = max(row.shape[0] for row, _ in rows)
    batch = torch.zeros(len(rows), longest, 32)
    for at, (row, _) in enumerate(rows):
        batch[at, : row.shape[0]] = row
    return batch, torch.tensor([label for _, label in rows])


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(32, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.body(x).mean(1))


def model_of(kind):
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 256), nn.ReLU(), nn.Linear(256, 10))
    if kind == "cnn":
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return {"lstm": Recurrent, "transformer": Attention}[kind]()


def main():
    folder, run, kind, workers, batch, steps, leak = sys.argv[1:8]
    workers, batch, steps, leak = int(workers), int(batch), int(steps), int(leak)
    torch.set_num_threads(1)
    ragged = kind in ("lstm", "transformer")
    loader = DataLoader(Images(16, ragged), batch, num_workers=workers, shuffle=True,
                        collate_fn=padded if ragged else None)
    model = model_of(kind)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    criterion, kept, losses, seen = nn.CrossEntropyLoss(), [], [], []
    # As seldom as the probe does.
    read = memory.Seldom(memory.Process(), memory.AFTERMATH)
    began = before = time.monotonic()
    for number, (x, y) in enumerate(loader, 1):
        loaded = time.monotonic()
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if leak:
            kept.append(torch.ones(leak // 4))
        if number % 50 == 0:  # a validation as many scripts have one
            with torch.no_grad():
                model(torch.cat([x, x]))
        now = time.monotonic()
        seen.append((number, now - began, now - before, loaded - before, *(read.latest(time.monotonic_ns()) or (None, NONE))))
        before = now
        if number == steps:
            break
    write(folder, run, kind, loader, seen)


def write(folder, run, kind, loader, seen):
    us = lambda seconds: round(seconds * 1e6)
    wall, data = sum(step[2] for step in seen), sum(step[3] for step in seen)
    started = {
        "format": 2, "id": run, "unix-ms": 0, "command": ["python", "train.py", kind], "folder": "/",
        "mode": "host", "sconce-pid": 1, "limits": {}, "gpus": [],
        "host": {"hostname": "bench", "kernel": "linux", "cpus": os.cpu_count(),
                 "memory": os.sysconf("SC_PHYS_PAGES") * memory.PAGE},
    }
    lines = [{"t_us": 0, "event": "started", **started}]
    for at in range(0, len(seen), 50):
        part = seen[at : at + 50]
        share = (at + len(part)) / len(seen)
        training = {
            "pid": 1, "steps": part[-1][0], "wall-us": us(wall * share),
            "phases": {"data-us": us(data * share), "forward-us": us((wall - data) * share)},
            "recent": [
                {"step": n, "t-us": us(t), "wall-us": us(took), "data-us": us(waited), "rss": rss}
                for n, t, took, waited, rss, _ in part
            ],
            "heap": [[n, heap] for n, *_, heap in part if heap != NONE],
        }
        lines.append({"t_us": us(part[-1][1]), "event": "sample", "training": [training]})
    lines.append({"t_us": us(seen[-1][1]), "event": "ended", "exit": {"code": 0}, "last": {}})
    path = os.path.join(folder, run)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "events.jsonl"), "w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


main()
