"""A small convolutional network learns the 1,797 handwritten digits that ship with scikit-learn."""

import argparse
import os
import random
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Digits(Dataset):
    """8 x 8 grey images, enlarged to 16 x 16; while training each is moved by up to two pixels."""

    def __init__(self, images, labels, augment=False):
        images = torch.tensor(images, dtype=torch.float32).unsqueeze(1) / 16
        self.images = nn.functional.interpolate(images, scale_factor=2, mode="bilinear")
        self.labels = torch.tensor(labels, dtype=torch.int64)
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = self.images[i]
        if self.augment:
            dy, dx = torch.randint(0, 5, (2,)).tolist()
            padded = nn.functional.pad(image, (2, 2, 2, 2))
            image = padded[:, dy : dy + 16, dx : dx + 16]
        return image, self.labels[i]


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(64 * 4 * 4, 10),
    )


@torch.no_grad()
def accuracy(model, loader, device):
    model.eval()
    right = 0
    for images, labels in loader:
        guesses = model(images.to(device)).argmax(dim=1)
        right += (guesses == labels.to(device)).sum().item()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--print-steps", type=int, default=0, help="print the exact loss of so many steps")
    args = parser.parse_args()

    # As one of several ranks, where torchrun or a scheduler started it.
    ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if ranks > 1:
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))

    def say(text):
        if rank == 0:
            print(text, flush=True)

    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    say(f"torch {torch.__version__} on {device}, {torch.get_num_threads()} threads" + f", {ranks} ranks" * (ranks > 1))

    digits = load_digits()
    train_x, test_x, train_y, test_y = train_test_split(
        digits.images, digits.target, test_size=0.2, random_state=args.seed, stratify=digits.target
    )
    dataset = Digits(train_x, train_y, augment=True)
    shares = DistributedSampler(dataset, seed=args.seed) if ranks > 1 else None
    train = DataLoader(
        dataset,
        batch_size=args.batch_size // ranks,
        shuffle=shares is None,
        sampler=shares,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        pin_memory=device.type == "cuda",
    )
    test = DataLoader(Digits(test_x, test_y), batch_size=256)

    model = make_model().to(device)
    if ranks > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = args.epochs * len(train)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)

    began = time.perf_counter()
    step = 0
    for epoch in range(1, args.epochs + 1):
        model.train()
        if shares is not None:
            shares.set_epoch(epoch)
        total, seen = 0.0, 0
        for images, labels in train:
            images, labels = images.to(device), labels.to(device)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step <= args.print_steps:
                say(f"step {step:2}  loss {loss.item().hex()}")
            total, seen = total + loss.item() * len(labels), seen + len(labels)
        say(f"epoch {epoch:2}  loss {total / seen:.4f}")

    seconds = time.perf_counter() - began
    if rank == 0:
        say(f"test accuracy {accuracy(getattr(model, 'module', model), test, device):.2%} after {seconds:.1f} s of training")
    if ranks > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
