"""ResNet-50 on synthetic images of ImageNet's shape: how many images a second?"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet50


class SyntheticImageNet(Dataset):
    """Random images, 3 x 224 x 224, with random labels of 1,000 classes; the same for one seed."""

    def __init__(self, length, seed):
        self.length = length
        self.seed = seed

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + i)
        image = torch.randn(3, 224, 224, generator=generator)
        label = torch.randint(0, 1000, (), generator=generator)
        return image, label


def main():
    on_card = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100 if on_card else 4)
    parser.add_argument("--warmup", type=int, default=10 if on_card else 1, help="steps not timed")
    parser.add_argument("--batch-size", type=int, default=64 if on_card else 4)
    parser.add_argument("--workers", type=int, default=4 if on_card else 1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.steps < 1 or args.warmup < 0:
        parser.error("--steps must be at least 1 and --warmup at least 0")

    torch.manual_seed(args.seed)
    device = torch.device("cuda" if on_card else "cpu")
    name = torch.cuda.get_device_name() if on_card else f"{torch.get_num_threads()} CPU threads"
    print(f"torch {torch.__version__} on {name}, batches of {args.batch_size}", flush=True)

    steps = args.warmup + args.steps
    loader = DataLoader(
        SyntheticImageNet(steps * args.batch_size, args.seed),
        batch_size=args.batch_size,
        num_workers=args.workers,
        pin_memory=on_card,
    )
    # Channels-last is the layout that tensor cores want.
    model = resnet50(weights=None).to(device, memory_format=torch.channels_last)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type, enabled=on_card)

    began = None
    for step, (images, labels) in enumerate(loader):
        if step == args.warmup:
            if on_card:
                torch.cuda.synchronize()
            began = time.perf_counter()
        images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.float16, enabled=on_card):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if step % max(1, steps // 10) == 0 or step == steps - 1:
            print(f"step {step + 1:4} of {steps}  loss {loss.item():.4f}", flush=True)
    if on_card:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began

    images = args.steps * args.batch_size
    print(f"{images / seconds:.1f} images/s ({images} images in {seconds:.1f} s)")
    if on_card:
        peak = torch.cuda.max_memory_allocated() / 2**30
        print(f"at most {peak:.1f} GiB of the card's memory allocated")


if __name__ == "__main__":
    main()
