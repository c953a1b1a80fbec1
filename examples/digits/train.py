"""A small convolutional network learns the 1,797 handwritten digits that ship with scikit-learn."""

import argparse
import random
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, Dataset


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
    args = parser.parse_args()

    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(f"torch {torch.__version__} on {device}, {torch.get_num_threads()} threads", flush=True)

    digits = load_digits()
    train_x, test_x, train_y, test_y = train_test_split(
        digits.images, digits.target, test_size=0.2, random_state=args.seed, stratify=digits.target
    )
    train = DataLoader(
        Digits(train_x, train_y, augment=True),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        pin_memory=device.type == "cuda",
    )
    test = DataLoader(Digits(test_x, test_y), batch_size=256)

    model = make_model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = args.epochs * len(train)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)

    began = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        model.train()
        total = 0.0
        for images, labels in train:
            images, labels = images.to(device), labels.to(device)
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(labels)
        print(f"epoch {epoch:2}  loss {total / len(train.dataset):.4f}", flush=True)

    seconds = time.perf_counter() - began
    print(f"test accuracy {accuracy(model, test, device):.2%} after {seconds:.1f} s of training")


if __name__ == "__main__":
    main()
