"""A notebook's kernel as far as cells go: IPython's shell runs them, with pauses between. Used by `account`.

    1  imports    2  a loader, a model and its optimizer are made; a batch is looked at, a pass is tried
    3  16 steps   4  sleeps, and evaluates                          5  8 steps of another model, no loader
    6  16 steps of the model of before, of which the 5th raises     7  8 steps with lasting workers of cell 2
"""

import time

from IPython.core.interactiveshell import InteractiveShell

CELLS = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(3)
torch.set_num_threads(1)
#
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
loader, lasting = DataLoader(data, batch_size=4), DataLoader(data, batch_size=8, num_workers=1, persistent_workers=True)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(loader, fails=0):
    for number, (inputs, labels) in enumerate(loader, 1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        if number == fails:
            raise KeyError("as asked")
        optimizer.step()
for _ in lasting:
    pass
inputs, labels = next(iter(loader))
_ = model(inputs)
#
train(loader)
#
time.sleep(0.4)
with torch.no_grad():
    for inputs, _ in loader:
        _ = model(inputs)
#
other = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
adam = torch.optim.Adam(other.parameters())
for _ in range(8):
    adam.zero_grad()
    other(torch.randn(5, 3)).sum().backward()
    adam.step()
#
train(loader, fails=5)
#
train(lasting)
"""

shell = InteractiveShell.instance()
shell.showtraceback = lambda *_, **__: None
for cell in CELLS.split("#\n"):
    shell.run_cell(cell.strip(), store_history=True)
    # Nobody has asked for anything: no step's time.
    time.sleep(0.6)
