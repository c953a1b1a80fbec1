"""Models and settings that `fit` and the record are held against a card with: three optimizer steps, or
as many as are asked for, then what the allocator and the card say and how long the steps after the first
three took, as one line of JSON. Needs torch alone."""

import argparse
import json
import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4096, 4096), nn.GELU()) for _ in range(8))

    def example(self, batch):
        return torch.randn(batch, 4096, device="cuda")


class Bottleneck(nn.Module):
    """A block of ResNet-50, or with `wide` 1 of ResNet-18 (He et al., 2015)."""

    def __init__(self, inside, planes, stride, wide):
        super().__init__()
        outside = planes * wide
        kernels = [(inside, planes, 1, 1), (planes, planes, 3, stride), (planes, outside, 1, 1)]
        if wide == 1:
            kernels = [(inside, planes, 3, stride), (planes, planes, 3, 1)]
        layers = []
        for first, second, size, step in kernels:
            convolution = nn.Conv2d(first, second, size, step, size // 2, bias=False)
            layers += [convolution, nn.BatchNorm2d(second), nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers[:-1])
        self.skip = nn.Identity()
        if stride != 1 or inside != outside:
            self.skip = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        return torch.relu_(self.body(x) + self.skip(x))


class ResNet(nn.Module):
    def __init__(self, depths, wide):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        blocks, inside = [], 64
        for at, depth in enumerate(depths):
            for index in range(depth):
                blocks.append(Bottleneck(inside, 64 << at, 2 if at and not index else 1, wide))
                inside = (64 << at) * wide
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))

    def example(self, batch):
        return torch.randn(batch, 3, 224, 224, device="cuda")


class Transformer(nn.Module):
    """ViT-B/16, or GPT-2 small with 512 tokens."""

    def __init__(self, causal):
        super().__init__()
        self.causal = causal
        self.stem = nn.Embedding(50257, 768) if causal else nn.Conv2d(3, 768, 16, 16)
        layer = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(768, 12, 3072, **layer) for _ in range(12))
        self.head = nn.Linear(768, 50257 if causal else 1000, bias=False)

    def example(self, batch):
        if self.causal:
            return torch.zeros(batch, 512, dtype=torch.long, device="cuda")
        return torch.randn(batch, 3, 224, 224, device="cuda")


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(512, 1024, num_layers=2, batch_first=True)
        self.head = nn.Linear(1024, 512)

    def example(self, batch):
        return torch.randn(batch, 256, 512, device="cuda")


def forward(model, x, checkpointed):
    if isinstance(model, Lstm):
        return model.head(model.lstm(x)[0])
    x = getattr(model, "stem", nn.Identity())(x)
    if isinstance(model, Transformer) and not model.causal:
        x = x.flatten(2).transpose(1, 2)
    for block in model.blocks:
        x = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
    return getattr(model, "head", nn.Identity())(x)


MODELS = {
    "mlp": Mlp,
    "resnet18": lambda: ResNet([2, 2, 2, 2], 1),
    "resnet50": lambda: ResNet([3, 4, 6, 3], 4),
    "vit-b": lambda: Transformer(False),
    "gpt2": lambda: Transformer(True),
    "lstm": Lstm,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--optimizer", choices=["AdamW", "SGD"], default="AdamW")
    parser.add_argument("--amp", choices=["bfloat16", "float16"])
    parser.add_argument("--steps", type=int, default=3)
    for flag in ("--checkpoint", "--channels-last", "--benchmark"):
        parser.add_argument(flag, action="store_true")
    given = parser.parse_args()
    torch.backends.cudnn.benchmark = given.benchmark
    model = MODELS[given.model]().cuda()
    if given.channels_last:
        model = model.to(memory_format=torch.channels_last)
    momentum = {"momentum": 0.9} if given.optimizer == "SGD" else {}
    optimizer = getattr(torch.optim, given.optimizer)(model.parameters(), lr=1e-4, **momentum)
    scaler = torch.amp.GradScaler("cuda", enabled=given.amp == "float16")
    x = model.example(given.batch)
    if given.channels_last:
        x = x.to(memory_format=torch.channels_last)
    began = 0.0
    for step in range(given.steps):
        if step == 3:
            torch.cuda.synchronize()
            began = time.monotonic()
        with torch.autocast("cuda", dtype=getattr(torch, given.amp or "float16"), enabled=bool(given.amp)):
            loss = forward(model, x, given.checkpoint).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    seconds = time.monotonic() - began
    free, total = torch.cuda.mem_get_info()
    peak, now = torch.cuda.max_memory_reserved(), torch.cuda.memory_reserved()
    # The card was at its fullest when most was reserved.
    seen = {"allocated": torch.cuda.max_memory_allocated(), "reserved": peak, "used": total - free + peak - now}
    if given.steps > 3:
        seen["seconds-per-step"] = seconds / (given.steps - 3)
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
