"""The measuring of bench/account/probe.

Times are the process's CPU time, with one thread: what else the machine does disturbs it least.
"""

import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

PROBE = str(pathlib.Path(__file__).resolve().parents[2] / "python")


def interval(differences):
    """The median and its 95 % interval, by resampling."""
    chance = random.Random(1)
    again = sorted(
        statistics.median(chance.choices(differences, k=len(differences))) for _ in range(2000)
    )
    return statistics.median(differences), again[50], again[1949]


class Switch:
    """The probe's hooks, in place or not: codes of PyTorch's functions, and its list of hooks of optimizers."""

    def __init__(self, torch):
        from torch.optim import optimizer
        from torch.utils.data import dataloader

        self.functions = [
            torch.nn.Module.__call__,
            torch.autograd._engine_run_backward,
            dataloader._BaseDataLoaderIter.__next__,
            dataloader._BaseDataLoaderIter.__init__,
        ]
        self.hooks = [optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks]
        self.without = self.look()
        sys.path.insert(0, PROBE)
        from sconce_probe import account

        os.environ["SCONCE_ACCOUNT"] = tempfile.mkdtemp()
        account.begin(torch)
        self.on = self.look()
        assert all(one != other for one, other in zip(self.on, self.without))

    def look(self):
        return [*(one.__code__ for one in self.functions), *(dict(one) for one in self.hooks)]

    def put(self, probe):
        values = self.on if probe else self.without
        for function, code in zip(self.functions, values):
            function.__code__ = code
        for hooks, held in zip(self.hooks, values[len(self.functions) :]):
            hooks.clear()
            hooks.update(held)


def paired(switch, step, blocks, steps, warm):
    """Differences and the time without, µs a step."""
    differences, plain = [], []
    for block in range(blocks):
        took = {}
        # Which comes first changes too.
        for probe in (block % 2 == 0, block % 2 == 1):
            switch.put(probe)
            for _ in range(warm):
                step()
            began = time.process_time_ns()
            for _ in range(steps):
                step()
            took[probe] = (time.process_time_ns() - began) / steps / 1000
        differences.append(took[True] - took[False])
        plain.append(took[False])
    return differences, statistics.median(plain)


def forever(loader):
    while True:
        yield from loader


def trainer(torch, model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    batches = forever(loader)
    loss = torch.nn.CrossEntropyLoss()

    def step():
        inputs, labels = next(batches)
        optimizer.zero_grad()
        loss(model(inputs), labels).backward()
        optimizer.step()

    return step


def start():
    """Python's start with the probe and without it, ms."""
    differences = []
    plain = dict(os.environ)
    plain.pop("SCONCE_ACCOUNT", None)
    # As in a run: what is compiled once stays.
    plain.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cp", "-r", PROBE, folder], check=True)
        probe = {**plain, "PYTHONPATH": folder + "/python", "SCONCE_ACCOUNT": folder}
        for _ in range(40):
            took = []
            for environment in (plain, probe):
                child = subprocess.Popen([sys.executable, "-c", ""], env=environment)
                used = os.wait4(child.pid, 0)[2]
                child.returncode = 0
                took.append(1000 * (used.ru_utime + used.ru_stime))
            differences.append(took[1] - took[0])
    return interval(differences)


def main():
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    print("Python's start, later by: %.2f ms (%.2f to %.2f)" % start())
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    switch = Switch(torch)
    inside = lambda: nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.ReLU())
    model = nn.Sequential(*(inside() for _ in range(10)))
    assert len(list(model.modules())) == 41
    data = TensorDataset(torch.randn(256, 32), torch.randint(0, 32, (256,)))
    step = trainer(torch, model, DataLoader(data, batch_size=16))
    for _ in range(200):
        step()
    differences, plain = paired(switch, step, 5 * blocks, 50, 5)
    print("41 modules: %.1f us a step (%.1f to %.1f), of %.0f" % (*interval(differences), plain))
    try:
        from torchvision.models import resnet18
    except ImportError:
        return
    # Five batches: each place among them comes as often with the probe as without.
    data = TensorDataset(torch.randn(80, 3, 64, 64), torch.randint(0, 10, (80,)))
    step = trainer(torch, resnet18(num_classes=10), DataLoader(data, batch_size=16))
    step()
    # Blocks of one step: what disturbs one of this length disturbs the next one alike, and there are more of them.
    differences, plain = paired(switch, step, 25 * blocks, 1, 0)
    figures = [100 * one / plain for one in interval(differences)]
    print("ResNet-18, batch 16, 64x64: %.2f %% (%.2f to %.2f), of %.0f ms" % (*figures, plain / 1000))


main()
