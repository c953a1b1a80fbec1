"""Training scripts of several kinds: fit.py KIND STEPS. The last line is what the allocator had at most."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def peaks():
    print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)


def train(model, batch, steps, optimizer=torch.optim.AdamW, loss=lambda y: y.float().square().mean()):
    model = model.cuda()
    optimizer = optimizer(model.parameters())
    for _ in range(steps):
        loss(model(batch)).backward()
        optimizer.step()
        peaks()
        optimizer.zero_grad()


def conv(steps):
    layers = []
    for into, out in [(3, 64), (64, 128), (128, 256)]:
        layers += [nn.Conv2d(into, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1000))
    momentum = lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    train(model, torch.zeros(16, 3, 96, 96, device="cuda"), steps, momentum)


def mlp(steps, width=2048):
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.GELU())]
    train(nn.Sequential(*layers), torch.zeros(256, width, device="cuda"), steps)


def large(steps):
    mlp(steps, 15_000)


def accumulate(steps):
    """Two batches a step, mixed precision with a scaler, and workers that load."""
    data = TensorDataset(torch.zeros(20_000, 784), torch.zeros(20_000, dtype=torch.long))
    loader = DataLoader(data, batch_size=64, num_workers=2, pin_memory=True)
    model = nn.Sequential(nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 10)).cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
    for number, (x, y) in enumerate(loader, 1):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda())
        scaler.scale(loss / 2).backward()
        if number % 2 == 0:
            scaler.step(optimizer)
            peaks()
            scaler.update()
            optimizer.zero_grad()
        if number == 2 * steps:
            break


def lstm(steps):
    model = nn.LSTM(256, 512, 2).cuda()
    train(model, torch.zeros(50, 32, 256, device="cuda"), steps, torch.optim.Adam, lambda y: y[0].sum())


def transformer(steps):
    layer = nn.TransformerEncoderLayer(512, 8, batch_first=True)
    model = nn.Sequential(nn.Embedding(10_000, 512), nn.TransformerEncoder(layer, 4), nn.Linear(512, 10_000))
    train(model, torch.zeros(8, 256, dtype=torch.long, device="cuda"), steps)


def decide(steps):
    """What runs hangs on values: a branch, a loop, a tensor as large as values say. Printing is none of it."""
    model = nn.Linear(512, 512).cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
    for step in range(steps):
        y = model(torch.ones(64, 512, device="cuda"))
        scaler.scale(y.square().mean()).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        kept = y[y > 0]
        value = norm.item()
        if value < 1:
            kept = torch.cat([kept, y.flatten()])
        while torch.isnan(norm):
            norm = norm / 2
        print("norm", norm.item(), kept.shape)
        scaler.step(optimizer)
        scaler.update()
        peaks()
        optimizer.zero_grad()


def gan(steps):
    """Two optimizers in turn."""
    maker, judge = nn.Linear(64, 4096).cuda(), nn.Linear(4096, 1).cuda()
    of_maker, of_judge = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())
    for _ in range(steps):
        judge(maker(torch.zeros(32, 64, device="cuda")).detach()).mean().backward()
        of_judge.step()
        of_judge.zero_grad()
        judge(maker(torch.zeros(32, 64, device="cuda"))).mean().backward()
        of_maker.step()
        peaks()
        of_maker.zero_grad()


if __name__ == "__main__":
    globals()[sys.argv[1]](int(sys.argv[2]))
