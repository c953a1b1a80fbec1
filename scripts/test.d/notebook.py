"""Trains in a notebook as a person would: notebook.py BROWSER SCONCE FOLDER. FOLDER has the environment."""

import base64
import json
import os
import re
import subprocess
import sys
import time

import pages
from checks import check, failed
from pages import Browser

# JupyterLab is large, and the machine may be busy.
pages.PATIENCE = 120
ACTIVE = "document.querySelector('.jp-Notebook .jp-Cell.jp-mod-active')"
# What a person writes who has no `main`: the loop stands in the cell itself.
LOOP = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
images = TensorDataset(torch.randn(640, 64), torch.randint(0, 10, (640,)))
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    for inputs, labels in DataLoader(images, batch_size=64):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
print("forty", "steps")"""
LOOP_STEPS, EPOCHS, STEPS_AN_EPOCH = 40, 2, 6
PAUSE_S = 6


class Lab(Browser):
    """Knows errors from what a page only mentions."""

    errors = ()

    def note(self, event):
        before = len(self.problems)
        super().note(event)
        about = event.get("params", {})
        level = about.get("type") or about.get("entry", {}).get("level")
        if len(self.problems) > before and level != "warning":
            self.errors = (*self.errors, self.problems[-1])

    def press(self, key, code, shift=False):
        named = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", **named)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def picture(self, name):
        if pictures := os.environ.get("PICTURES"):
            data = self.call("Page.captureScreenshot")["data"]
            with open(f"{pictures}/{name}.png", "wb") as file:
                file.write(base64.b64decode(data))


def session(lab, link, port):
    lab.call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    lab.call("Page.navigate", url=link)
    card = ".jp-LauncherCard[data-category='Notebook']"
    check("JupyterLab loads", lab.until(f"document.querySelector(\"{card}\") !== null"), lab.errors)
    check("the token leaves the address", lab.until("!location.href.includes('token')"), lab.tell("location.href"))
    lab.picture("launcher")
    lab.click(card)
    check("a notebook opens", lab.until(f"{ACTIVE} !== null"))
    # What is asked before the kernel is there, JupyterLab may leave unanswered.
    idle = "[...document.querySelectorAll('.jp-StatusBar-TextItem')].some(one => one.textContent.endsWith('| Idle'))"
    check("its kernel is there", lab.until(idle))
    lab.click(".jp-Notebook .jp-Cell.jp-mod-active .cm-content")
    for letter in f"%run train.py --epochs {EPOCHS}":
        lab.key(letter, letter)
    outputs = "[...document.querySelectorAll('.jp-OutputArea-output')].map(one => one.textContent).join(' ')"
    lab.press("Enter", 13, shift=True)
    check("a typed cell trains", lab.until(f"{outputs}.includes('test accuracy')"), lab.tell(outputs))
    lab.picture("trained")
    # The kernel idles: this belongs to no step.
    time.sleep(PAUSE_S)
    check("the next cell is entered", lab.tell(f"{ACTIVE} === [...document.querySelectorAll('.jp-Notebook .jp-Cell')].at(-1)"))
    lab.click(".jp-Notebook .jp-Cell.jp-mod-active .cm-content")
    lab.call("Input.insertText", text=LOOP)
    lab.press("Enter", 13, shift=True)
    check("a pasted loop trains", lab.until(f"{outputs}.includes('forty steps')"), lab.tell(outputs))
    check("no output is an error", lab.tell("document.querySelector('[data-mime-type=\"application/vnd.jupyter.error\"]') === null"), lab.tell(outputs))
    lab.picture("notebook")
    check("nothing fails in the page", not lab.errors, lab.errors)
    ours = re.compile(rf"(http|ws)://127\.0\.0\.1:{port}/|data:|blob:|about:")
    others = [url for url in lab.asked_for if not ours.match(url)]
    check("nobody else is asked", not others, others)


def record(sconce):
    told = json.loads(subprocess.run([sconce, "report", "--json", "last"], check=True, capture_output=True, text=True).stdout)
    cells = {one.get("cell"): one for one in told["training"]}
    check("each cell is told for itself", sorted(cells, key=str) == [1, 2], cells.keys())
    if len(cells) != 2:
        return
    digits, loop = cells[1], cells[2]
    check("of one kernel", digits["pid"] == loop["pid"])
    wanted = (EPOCHS * STEPS_AN_EPOCH, LOOP_STEPS)
    check("every step is counted", (digits["steps"], loop["steps"]) == wanted, (digits["steps"], loop["steps"]))
    for name, one in (("digits", digits), ("loop", loop)):
        phases = one["phases"]
        check(f"{name}: its phases", all(phases[f"{phase}_seconds"] > 0 for phase in ("data", "forward", "backward", "optimizer")), phases)
        check(f"{name}: they sum to its time", abs(sum(spent or 0 for spent in phases.values()) - one["wall_seconds"]) < 0.01, (phases, one["wall_seconds"]))
    # It would be what no phase accounts for; how long the steps are is the machine's business.
    check("no pause is a step's time", loop["phases"]["other_seconds"] < PAUSE_S / 2, loop["phases"])
    check("the loader's workers are told", digits["setup"]["workers"] == 2, digits["setup"])
    check("batches for training", (digits["loader"]["batches"], loop["loader"]["batches"]) == wanted, (digits["loader"], loop["loader"]))
    check("what was evaluated is told apart", digits["evaluation"]["batches"] == 2 and not loop.get("evaluation"), digits["evaluation"])
    check("models are not mixed up", digits["setup"]["parameters"] != loop["setup"]["parameters"] and loop["setup"]["optimizers"] == ["SGD"], (digits["setup"], loop["setup"]))


def main(program, sconce, folder):
    started = subprocess.run([sconce, "up", f"{folder}/digits"], capture_output=True, text=True)
    link = re.search(r"http://127\.0\.0\.1:(\d+)/\S+", started.stdout)
    check("up prints a link", started.returncode == 0 and link, started.stdout + started.stderr)
    if not link:
        return 1
    lab = Lab(program, folder)
    try:
        session(lab, link[0], link[1])
    finally:
        lab.end()
    began = time.monotonic()
    stopped = subprocess.run([sconce, "stop", "digits"], capture_output=True, text=True)
    check("stop ends it", stopped.returncode == 0, stopped.stderr)
    print(f"stopped within {time.monotonic() - began:.1f} s")
    record(sconce)
    print(subprocess.run([sconce, "report", "last"], capture_output=True, text=True).stdout)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
