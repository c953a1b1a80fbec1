"""Training scripts whose memory hangs on values, or whose later steps take more: fit-values.py KIND."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


def model_of(width=1024, classes=20_000):
    body = nn.Sequential(nn.Linear(width, width), nn.GELU()).cuda()
    return body, nn.Linear(width, classes).cuda()


def train(loss_of, steps=100, after=lambda loss, step: None, tokens=16_384):
    body, head = model_of()
    parameters = [*body.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters)
    for step in range(steps):
        x = torch.randn(tokens, 1024, device="cuda")
        y = torch.randint(0, 2, (tokens,), device="cuda")
        loss = loss_of(body(x), head, y)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        after(loss, step)


def mask():
    """3.6 GiB with everything selected."""
    train(lambda h, head, y: head(h[y > 0]).float().square().mean())


def where():
    train(lambda h, head, y: head(h[torch.where(y > 0)[0]]).float().square().mean())


def unique():
    train(lambda h, head, y: head(h[: len(torch.unique(y))]).float().square().mean())


def small_mask():
    train(lambda h, head, y: head(h[:64]).float().square().mean() + h[y > 0].sum())


def count(mask):
    return int(mask.sum().item())


def size():
    """A function gives the number back, so that its line says nothing of a size."""
    train(lambda h, head, y: head(h[: count(y > 0)]).float().square().mean())


def bins():
    train(lambda h, head, y: head(h[:64]).sum() + torch.zeros(len(torch.bincount(y)), device="cuda").sum())


def listed():
    """As many rows as a list of Python's says."""
    train(lambda h, head, y: head(h[:64]).sum() + torch.zeros(sum(y[:10].tolist()), 1000, device="cuda").sum())


def rounded():
    """Padded to whole tiles, as a function has it: 37 and 100 would both be one tile."""
    def up(n):
        return (n + 127) // 128 * 128

    train(lambda h, head, y: head(h[: up(count(y > 0))]).float().square().mean())


def checked():
    """A length that is refused when it is too large, and a size all the same."""
    def checked(n):
        if n > 64:
            raise ValueError(n)
        return n

    train(lambda h, head, y: head(h.repeat(16, 1)[: 1024 * checked(count(y > 0))]).float().square().mean())


def lbfgs():
    """How many directions it keeps is what the values say, and more of them with each step."""
    body = nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.LBFGS(body.parameters(), max_iter=4)
    x = torch.randn(64, 1024, device="cuda")

    def closure():
        optimizer.zero_grad()
        loss = body(x).square().mean()
        loss.backward()
        return loss

    for _ in range(100):
        optimizer.step(closure)


def cond():
    """4.9 GiB one way, as torch itself reads which."""
    def loss_of(h, head, y):
        large = lambda h: (h.repeat(40, 1) * 2).square().sum()
        return head(h[:64]).sum() + torch.cond((y > 0).any(), large, lambda h: h.sum(), (h,))

    train(loss_of)


def sparse():
    """How many rows of the gradient are told apart is what the values say."""
    body = nn.Embedding(20_000, 256, sparse=True).cuda()
    optimizer = torch.optim.SparseAdam(body.parameters())
    for _ in range(100):
        body(torch.randint(0, 20_000, (4096,), device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def full(yes):
    """12 GiB, where it is so."""
    if yes:
        torch.empty(3 * 2**30, device="cuda")


def both():
    """Never, where all truth values of a step are the same."""
    train(lambda h, head, y: (full((h > 0.5).any() and not (h > 0.5).all()), head(h[:64]).sum())[1])


def twice():
    """The same by a function that reads for both."""
    is_true = lambda tensor: bool(tensor)
    train(lambda h, head, y: (full(not is_true((h > 2).any()) and is_true((h < 1).any())), head(h[:64]).sum())[1])


def guarded():
    """A size behind the condition that it is one."""
    def loss_of(h, head, y):
        n = (y > 0).sum()
        if n > 0:
            torch.empty(int(n) * 2**16, device="cuda")
        return head(h[:64]).sum()

    train(loss_of)


def rising():
    """What is compared with the step before."""
    seen = [1e9]

    def after(loss, step):
        now = loss.item()
        full(now > seen[-1] + 0.5)
        seen.append(now)

    train(lambda h, head, y: head(h[:64]).square().mean(), after=after)


def distinct():
    """As many as there are different numbers."""
    train(lambda h, head, y: head(h[:64]).sum() + torch.empty(len(set(h[:, :2000].argmax(1).tolist())) * 2**20, device="cuda")[0])


class Meter:
    def write(self, value):
        self.value = value


def own_write():
    """A method that is called as those that only show, and keeps what it is given."""
    meter = Meter()

    def after(loss, step):
        meter.write(loss.item())
        full(meter.value > 5)

    train(lambda h, head, y: head(h[:64]).square().mean(), after=after)


def only_false():
    """It fits where the condition is true in each step."""
    train(lambda h, head, y: (full(not bool(h.sum() < 100)), head(h[:64]).sum())[1])


def compared():
    """Losses that are kept, compared and shown, and a check of both: nothing of memory hangs on them."""
    best, losses = [float("inf")], []

    def after(loss, step):
        losses.append(loss.item())
        best.append(min(best[-1], losses[-1]))
        if torch.isnan(loss) or not torch.isfinite(loss):
            print("not finite")
        print(losses[-1] > best[-1], sum(losses) / len(losses), (loss > 1).any().item())

    train(lambda h, head, y: head(h[:64]).square().mean(), after=after)


def thread():
    """Trained in a thread, whose reads are not watched."""
    import threading

    one = threading.Thread(target=mask)
    one.start()
    one.join()


def compiled():
    """Steps that grow, beside a helper that is compiled."""
    double = torch.compile(lambda x: x * 2, backend="eager")
    for_step = iter(range(100))
    train(lambda h, head, y: head(double(h)[: 64 * (next(for_step) + 1)]).float().square().mean())


def backward():
    """Read in the backward pass."""

    class Chosen(torch.autograd.Function):
        @staticmethod
        def forward(context, h, y):
            context.save_for_backward(h, y)
            return h * 1

        @staticmethod
        def backward(context, gradient):
            h, y = context.saved_tensors
            chosen = h[y > 0]
            chosen.repeat(1, 100).sum()
            return gradient, None

    train(lambda h, head, y: head(Chosen.apply(h, y)[:64]).sum())


def logged():
    """Loss, accuracy, progress, the best of all, a scaler and a check: none of it is memory."""
    scaler = torch.amp.GradScaler("cuda")
    best, losses, right = 1e9, [], 0
    body, head = model_of()
    parameters = [*body.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    for step in range(100):
        x, y = torch.randn(64, 1024, device="cuda"), torch.zeros(64, dtype=torch.long, device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            out = head(body(x))
            loss = nn.functional.cross_entropy(out, y)
        if torch.isnan(loss):
            raise RuntimeError("loss is not a number")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        right += (out.argmax(1) == y).sum().item()
        losses.append(loss.item())
        if losses[-1] < best:
            best = losses[-1]
        if norm > 5:
            print("large", norm.item())
        schedule.step(loss.item())
        print(f"{step} {loss.item():.3f} {right / (step + 1)} {best}", out[0, 0])


def branch():
    """Which branch is gone changes 200 MiB: it fits either way on a large card."""
    def loss_of(h, head, y):
        rows = 512 if y.any() else 2048
        return head(h[:rows]).float().square().mean()

    train(loss_of)


def loop():
    def loss_of(h, head, y):
        kept = [h]
        while y.any():
            kept.append(kept[-1] * 1)
        return sum(one.sum() for one in kept) + head(h[:64]).sum()

    train(loss_of)


class Padded(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.zeros(10 + index * 7 % 97, dtype=torch.long)


def padded():
    body, head = nn.Embedding(1000, 256).cuda(), nn.Linear(256, 1000).cuda()
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()])
    pad = lambda batch: nn.utils.rnn.pad_sequence(batch, batch_first=True)
    for x in DataLoader(Padded(), batch_size=8, collate_fn=pad):
        head(body(x.cuda())).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def sizes():
    """Without a loader: lengths come from the program."""
    for_step = iter(range(100))
    train(lambda h, head, y: head(h[: 64 * (next(for_step) + 1)]).float().square().mean())


def with_evaluation(evaluate, batch, data=None):
    body, head = model_of(784, 10)
    model = nn.Sequential(body, head)
    optimizer = torch.optim.AdamW(model.parameters())
    data = data or TensorDataset(torch.zeros(2000, 784), torch.zeros(2000, dtype=torch.long))
    training, validation = DataLoader(data, batch_size=32), DataLoader(data, batch_size=batch)
    for _ in range(3):
        model.train()
        for x, y in training:
            nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
            optimizer.step()
            optimizer.zero_grad()
        evaluate(model, validation)


def quietly(model, loader):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            total += nn.functional.cross_entropy(model(x.cuda()), y.cuda()).item()
    return total


def keeping(model, loader):
    model.eval()
    kept = []
    with torch.no_grad():
        for x, _ in loader:
            kept.append(model(x.cuda()))
    return torch.cat(kept)


def evaluated():
    with_evaluation(quietly, 32)


def evaluated_larger():
    with_evaluation(quietly, 256)


def evaluated_keeping():
    with_evaluation(keeping, 32)


@torch.no_grad()
def evaluate(model, loader):
    return sum(nn.functional.cross_entropy(model(x.cuda()), y.cuda()).item() for x, y in loader)


def evaluated_plainly():
    """No mode is changed for it."""
    with_evaluation(evaluate, 256)


def quality(model, loader):
    """Of a name that says nothing, and no mode is changed for it."""
    with torch.no_grad():
        return model(torch.zeros(8 << 20, 784, device="cuda")).mean().item()


def evaluated_unnamed():
    with_evaluation(quality, 32)


class Curve:
    def __init__(self):
        self.kept = []

    def update(self, out):
        self.kept.append(out)


def measuring(model, loader):
    model.eval()
    curve = Curve()
    with torch.no_grad():
        for x, _ in loader:
            curve.update(model(x.cuda()))
    return torch.cat(curve.kept).mean().item()


def evaluated_measuring():
    with_evaluation(measuring, 32)


def in_loop():
    """In a block of the loop that the first steps do not go into."""
    def look(loss, step):
        if step % 25 == 24:
            with torch.no_grad():
                body(torch.zeros(1 << 20, 1024, device="cuda"))

    body = nn.Linear(1024, 1024).cuda()
    train(lambda h, head, y: head(h[:64]).sum(), after=look)


def leak():
    """What is kept of each step fills the card long after the first ones."""
    kept = []
    train(lambda h, head, y: kept.append(h) or head(h[:64]).sum())


def kept_where_true():
    """The same of the steps in which values say so."""
    kept = []
    train(lambda h, head, y: (kept.append(h.clone()) if (y > 0).any() else None, head(h[:64]).sum())[1])


def kept_where_higher():
    """One copy of the weights, as they were best."""
    body, best = nn.Linear(4096, 4096).cuda(), [0.0, None]

    def after(loss, step):
        if loss.item() > best[0]:
            best[:] = loss.item(), {name: one.clone() for name, one in body.state_dict().items()}

    train(lambda h, head, y: head(h[:64]).square().mean(), after=after)


def longer():
    """Each batch is less than one hundredth longer than the one before."""
    for_step = iter(range(100_000))
    train(lambda h, head, y: head(h[: 8192 + 16 * next(for_step)]).float().square().mean())


def saved():
    """What is printed, scheduled and saved is no evaluation."""
    body, head = model_of()
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()])
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    for step in range(100):
        out = head(body(torch.zeros(64, 1024, device="cuda")))
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % 50 == 49:
            print(step, loss.item(), out.argmax(1).float().mean().item(), schedule.get_last_lr())
            torch.save({"body": body.state_dict(), "step": step}, "/dev/null")
    torch.save(head.state_dict(), "/dev/null")


class Labelled(Dataset):
    """As torchvision's: a picture and a number."""

    def __len__(self):
        return 2000

    def __getitem__(self, index):
        return torch.zeros(784), index % 10


def evaluated_labelled():
    with_evaluation(quietly, 32, Labelled())


def ends():
    """The same, watched to its end."""
    body, head = model_of(784, 10)
    model = nn.Sequential(body, head)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(torch.zeros(32, 784, device="cuda")).sum().backward()
        optimizer.step()
    keeping(model, [(torch.zeros(4096, 784), None)])


if __name__ == "__main__":
    globals()[sys.argv[1]]()
