"""Training of one kind, small; it prints a digest of all its parameters. Used by `account`."""

import hashlib
import os
import signal
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KIND = sys.argv[1]
torch.manual_seed(3)
torch.set_num_threads(1)


class Data(Dataset):
    def __init__(self, size, shape, classes=4, sleep=0.0):
        chance = torch.Generator().manual_seed(5)
        self.inputs = torch.randn(size, *shape, generator=chance)
        self.labels = torch.randint(0, classes, (size,), generator=chance)
        self.sleep = sleep

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], self.labels[index]


def told(*models):
    values = hashlib.sha256()
    for model in models:
        for one in model.state_dict().values() if isinstance(model, nn.Module) else model:
            values.update(one.detach().numpy().tobytes())
    print("digest", values.hexdigest()[:24])


def plain(model, shape, workers=0, optimizer=torch.optim.Adam, epochs=2):
    steps = optimizer(model.parameters())
    for _ in range(epochs):
        model.train()
        for inputs, labels in DataLoader(Data(64, shape), batch_size=8, shuffle=True, num_workers=workers):
            steps.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            steps.step()
        model.eval()
        with torch.no_grad():
            for inputs, _ in DataLoader(Data(32, shape), batch_size=8):
                model(inputs)
    told(model)


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 36, 4)
    )


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.LSTM(6, 12, 2, batch_first=True, dropout=0.1)
        self.last = nn.Linear(12, 4)

    def forward(self, inputs):
        return self.last(self.inside(inputs)[0][:, -1])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
        self.last = nn.Linear(8, 4)

    def forward(self, inputs):
        return self.last(self.inside(inputs).mean(1))


def functional():
    weight = torch.randn(6, 4, requires_grad=True)
    for _ in range(20):
        loss = (torch.randn(8, 6) @ weight).sin().sum()
        (gradient,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight -= 0.1 * gradient
    optimizer = torch.optim.LBFGS([weight], max_iter=4)

    def closure():
        optimizer.zero_grad()
        loss = (weight.sin() ** 2).sum()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    told([weight])


def gan():
    maker, judge = nn.Sequential(nn.Linear(4, 6), nn.Tanh()), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    of_maker, of_judge = (torch.optim.Adam(one.parameters()) for one in (maker, judge))
    for inputs, _ in DataLoader(Data(160, (6,)), batch_size=8):
        with torch.no_grad():
            made = maker(torch.randn(8, 4))
        of_judge.zero_grad()
        (judge(made).mean() - judge(inputs).mean()).backward()
        of_judge.step()
        of_maker.zero_grad()
        (-judge(maker(torch.randn(8, 4))).mean()).backward()
        of_maker.step()
    told(maker, judge)


def compiled():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    plain(torch.compile(model, backend="aot_eager", fullgraph=True), (6,))


def ranks():
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Linear(6, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(24):
        optimizer.zero_grad()
        model(torch.randn(8, 6)).sum().backward()
        optimizer.step()
        time.sleep(0.1)
    if dist.get_rank() == 0:
        told(model)
    dist.destroy_process_group()


def sharded(kind):
    """Two ranks on the host; `late`: the second begins its steps late, and the first waits for it;
    `beside`: parameters are gathered while the host does something else; `long`: enough steps for a verdict."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    model = nn.Sequential(*(nn.Linear(32, 32) for _ in range(4)))
    if kind == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
    else:
        from torch.distributed.device_mesh import init_device_mesh

        try:
            from torch.distributed.fsdp import fully_shard
        except ImportError:
            from torch.distributed._composable.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (2,))
        for one in (*model, model):
            fully_shard(one, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    chance = torch.Generator().manual_seed(dist.get_rank())
    for step in range(60 if kind == "fsdp-long" else 24):
        if kind == "fsdp-late" and dist.get_rank() == 1:
            time.sleep(0.05)
        if kind == "fsdp-beside":
            # All of them are there once they are needed.
            for one in model:
                one.unshard(async_op=True)
            time.sleep(0.05)
        optimizer.zero_grad()
        model(torch.randn(8, 32, generator=chance)).square().sum().backward()
        optimizer.step()
    # What trains nothing is not counted.
    with torch.no_grad():
        model(torch.randn(8, 32, generator=chance))
    if kind == "fsdp1":
        parameters = list(model.parameters())
    else:
        parameters = [one.full_tensor() for one in model.parameters()]
    if dist.get_rank() == 0:
        told(parameters)
    dist.destroy_process_group()


def stalled(share):
    """A step of about 40 ms, of which about that share is the loader's; it prints what it was."""
    waited = 0

    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = nn.Linear(6, 4)

        def forward(self, inputs):
            time.sleep(0.04 * (1 - share))
            return self.inside(inputs)

    class Late(Data):
        def __getitems__(self, indices):
            nonlocal waited
            began = time.perf_counter()
            time.sleep(0.04 * share)
            waited += time.perf_counter() - began
            return [self[index] for index in indices]

    model = Slow()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    began = time.perf_counter()
    for inputs, labels in DataLoader(Late(400, (6,)), batch_size=8):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    print("stall", round(100 * waited / (time.perf_counter() - began), 2))


def killed():
    model = nn.Linear(6, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(100):
        if step == 60:
            os.kill(os.getpid(), signal.SIGKILL)
        model(torch.randn(8, 6)).sum().backward()
        optimizer.step()


def out_of_memory():
    model = nn.Sequential(nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    kept = []
    for _ in range(1000):
        kept.append(model(torch.randn(16384, 4096, device="cuda")))
        kept[-1].sum().backward()
        optimizer.step()
        optimizer.zero_grad()


class Keeper:
    def __init__(self):
        self.outputs = []

    def keep(self, one):
        self.outputs.append(one)


def leaking(kind):
    """300 steps that log their loss, as programs do, and of which one kind keeps more than that."""
    model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, history, keeper, total = [], [], Keeper(), torch.zeros(())
    for step in range(300):
        inputs = torch.randn(64, 64)
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        outputs = model(inputs)
        if kind == "leak-graph":
            losses.append(outputs.mean())
        elif kind == "leak-attribute":
            keeper.keep(outputs)
        elif kind == "leak-total":
            total = total + outputs.mean()
    told(model)


KINDS = {
    "cnn": lambda: plain(cnn(), (3, 8, 8)),
    "workers": lambda: plain(cnn(), (3, 8, 8), workers=2),
    "transformer": lambda: plain(Transformer(), (5, 8), optimizer=torch.optim.AdamW),
    "rnn": lambda: plain(Recurrent(), (5, 6)),
    "functional": functional,
    "gan": gan,
    "compiled": compiled,
    "ranks": ranks,
    **{kind: lambda kind=kind: sharded(kind) for kind in ("fsdp1", "fsdp2", "fsdp-beside", "fsdp-late", "fsdp-long")},
    "killed": killed,
    "oom": out_of_memory,
    **{kind: lambda kind=kind: leaking(kind) for kind in ("leak-graph", "leak-attribute", "leak-total", "leak-none")},
}
if __name__ == "__main__":
    if KIND.startswith("stall-"):
        stalled(int(KIND[6:]) / 100)
    else:
        KINDS[KIND]()
