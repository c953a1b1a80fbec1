"""Where time and memory of a training program go: for `sconce run`, whose variable SCONCE_ACCOUNT names the
folder for it.

    clock.py          phases, steps, evaluation
    hooks.py          what switches the clock
    cells.py          the cells of a notebook
    frame_hooks.py    how functions are watched without a frame of its own
    ring.py           the file in which figures are told
    batch_facts.py    what batches, models and loaders are
    memory.py         counters of memory
    gpu_timing.py     the phases on the card
    sharded.py        what FSDP's ranks exchange
    operations.py     operations of one step, where that was asked for
    leak_detection.py what a program keeps more and more of, where that was asked for
    object_names.py   what that is called, and which lines add to it
    oom.py            what there was when a card's memory ran out

Nothing here asks a card for memory, begins to use one, or waits for one; no random number is drawn and no
tensor is touched, so that results are the same bit for bit.
"""

import atexit
import json
import os
import threading
import weakref
from time import monotonic_ns

from . import batch_facts, memory
from .clock import DATA, Clock
from .gpu_timing import OnCard
from .leak_detection import Kept
from .oom import OutOfMemory
from .operations import Operations
from .ring import NONE, Ring
from .sharded import Sharded

# Steps after which the setup is looked at again.
LOOK_AGAIN = (1, 4, 32)
# Times that it is told, however often it changes.
SETUPS = 16
# Between two questions to DDP, in nanoseconds.
EXCHANGE_EVERY = 1_000_000_000
# Steps to one batch that is shorter than the others, for shapes to count as fixed.
EPOCH = 8
OPTIMIZERS = 16
LOADERS = 64


class Account:
    """One process that has imported torch."""

    def __init__(self, torch, folder):
        self.torch = torch
        self.folder = folder
        self.oom = self.operations = None
        self.fresh()
        self.oom = OutOfMemory(torch, self)

    def fresh(self):
        """Begins with nothing; so does a child that was forked off."""
        torch = self.torch
        self.pid = os.getpid()
        # In a notebook: its cells, and loaders of those before this one that may be used again.
        self.cells = None
        self.earlier = {}
        self.thread = threading.get_ident()
        self.ring = None
        self.steps = self.wall = self.samples = self.tokens = 0
        self.began = monotonic_ns()
        self.phases = [0] * 6
        self.batches = self.empty = 0
        self.ready = None
        self.waits = self.loads = False
        # Batches of which it is not known yet what they are for: how many, those for which none stood ready.
        self.pending = [0, 0]
        # Whether the last one's loader has workers, and how many stood ready.
        self.asked = (False, None)
        self.looked = (0, 0)
        self.known = None
        self.shapes = self.shapes_now = None
        self.fixed = None
        # By module, shapes of what it was first called with; batches that were shorter than others.
        self.inputs = {}
        self.rests = 0
        # Samples and tokens up to now; those up to the last step are told.
        self.counted = (0, 0)
        self.counts_by = None
        self.models = {}
        self.optimizers = {}
        self.loader = None
        self.loaders = {}
        self.iterator = None
        self.rank = (None, None)
        self.autocast = None
        self.told_setup = None
        self.setups = 0
        self.name = None
        self.exchange = (NONE, NONE)
        self.ask_exchange = 0
        self.is_card_used = torch.cuda.is_initialized
        self.card = memory.Seldom(lambda: memory.card(torch))
        self.last_card = memory.NO_CARD
        self.memory = memory.Seldom(memory.Process(), memory.AFTERMATH)
        self.last_resident = NONE
        self.clock = Clock(self.step_ended)
        self.on_card = OnCard(torch, self.clock)
        self.sharded = Sharded(torch, self.clock)
        if self.operations is not None:
            self.operations.stop()
        self.operations = Operations(torch, self.clock)
        self.kept = Kept(torch)
        # Whether more than the account was asked for.
        self.more = bool(self.operations.tries or self.kept.due)
        if self.oom is not None:
            self.oom.fresh()

    def is_elsewhere(self):
        """In another thread than the one that trains."""
        return threading.get_ident() != self.thread

    # --- what hooks tell --------------------------------------------------------------------------
    def batch_begins(self, iterator):
        self.settle()
        queue = getattr(iterator, "_data_queue", None)
        evaluated = self.clock.evaluated
        before = self.clock.batch_begins()
        if self.clock.evaluated != evaluated:
            # The batch before this one was not for training.
            samples, tokens = self.looked
            self.counted = self.counted[0] - samples, self.counted[1] - tokens
        self.iterator = id(iterator)
        ready = None
        if queue is not None:
            # Out of order, the one that is asked for may lie aside already.
            aside = len(getattr(iterator, "_task_info", {}).get(getattr(iterator, "_rcvd_idx", None), ())) == 2
            try:
                ready = queue.qsize() + aside
            except (NotImplementedError, OSError):
                pass
        self.asked = (queue is not None, ready)
        return before

    def batch_ends(self, batch):
        self.loads = True
        self.pending[0] += 1
        self.pending[1] += self.asked[1] == 0
        if self.ring is None:
            self.open()
        self.look(batch)

    def settle(self, last=False):
        """What the last batches were for may be known now: those of an evaluation are counted by the clock.

        Trainers ask for a batch ahead of the one that they use, and the first one for nothing yet.
        """
        clock = self.clock
        if not (clock.trains or clock.looks or last) or not self.pending[0]:
            return
        (batches, empty), self.pending = self.pending, [0, 0]
        if clock.trains or not clock.looks:
            self.batches += batches
            self.empty += empty
            waits, ready = self.asked
            if waits:
                self.waits, self.ready = True, ready

    def loader_seen(self, loader, iterator):
        # Which of them is that of training is only known once a step has ended.
        if self.loader is None and len(self.loaders) < LOADERS:
            self.loaders[id(iterator)] = batch_facts.of_loader(loader)

    def raised(self, error):
        """An error passes by the outermost call."""
        self.oom.raised(error)

    def look(self, batch):
        if not batch_facts.is_like(self.torch, batch, self.known):
            samples, tokens, self.shapes_now = batch_facts.batch(self.torch, batch)
            self.looked = samples or 0, tokens or 0
            self.known = batch_facts.plain(self.torch, batch)
        samples, tokens = self.looked
        self.counted = self.counted[0] + samples, self.counted[1] + tokens

    def forward_begins(self, module, arguments):
        torch = self.torch
        with_grad = torch.is_grad_enabled()
        before = self.clock.forward_begins(with_grad, with_grad or bool(module._modules or module._parameters))
        if not with_grad:
            return before
        key = id(module)
        if self.steps < LOOK_AGAIN[-1]:
            if key not in self.models and len(self.models) < 64:
                self.models[key] = weakref.ref(module)
            if self.autocast is None:
                self.autocast = batch_facts.autocast_now(torch)
            if self.fixed is not False:
                self.inputs_seen(key, arguments)
        if not self.loads:
            # Without a loader of PyTorch's, the first module that is called tells the batch.
            if self.counts_by is None:
                self.counts_by = key
            if self.counts_by == key:
                self.look(arguments)
        return before

    def inputs_seen(self, key, arguments):
        """What a module is called with: a batch may be cut or scaled after its loader."""
        shapes = batch_facts.batch(self.torch, arguments)[2]
        usual = self.inputs.setdefault(key, shapes)
        if shapes != usual and not batch_facts.is_shorter(shapes, usual):
            self.fixed = False

    def is_rest(self, shapes):
        """Whether it is like the last batch of an epoch: shorter, and such are few."""
        self.rests += 1
        return batch_facts.is_shorter(shapes, self.shapes) and EPOCH * self.rests <= self.steps

    def optimizer_made(self, _):
        self.clock.made += 1

    def optimizer_begins(self, optimizer):
        key = id(optimizer)
        if key not in self.optimizers and len(self.optimizers) < OPTIMIZERS:
            self.optimizers[key] = type(optimizer).__qualname__[:200]
        self.clock.optimizer_begins(key)

    def optimizer_ends(self, optimizer):
        self.clock.optimizer_ends(id(optimizer))
        if self.ring is None:
            self.open()

    # --- what is told -----------------------------------------------------------------------------
    def open(self):
        name = os.path.join(self.folder, "%d-%d" % (self.pid, self.began))
        self.name = name
        cell = self.cells.number() if self.cells else 0
        self.ring = Ring(name + ".ring", self.pid, os.getppid(), self.began, cell)
        self.ring.live[0] = self.clock.phase
        self.clock.live = self.ring.live

    def step_ended(self, at, phases):
        """A step ended at that time. `phases`: nanoseconds since the beginning."""
        self.steps += 1
        if self.loader is None:
            # That of validation may have been the first one.
            self.loader = self.loaders.get(self.iterator) or self.earlier.get(self.iterator)
        wall = sum(phases)
        took, data = wall - self.wall, phases[DATA] - self.phases[DATA]
        self.wall, self.phases = wall, phases
        self.samples, self.tokens = self.counted
        if self.shapes_now and self.shapes_now != self.shapes and self.fixed is not False:
            self.fixed = self.shapes is None or self.is_rest(self.shapes_now)
            self.shapes = self.shapes or self.shapes_now
        now = monotonic_ns()
        resident, heap = self.memory.latest(now) or (NONE, NONE)
        fresh = resident != NONE
        if fresh:
            self.last_resident = resident
        card = memory.NO_CARD
        if self.is_card_used():
            # With the process's memory that of the card: what is told of few steps is told of the same ones.
            read = self.card.latest(now, fresh)
            fresh = True
            if read is not None:
                self.last_card = card = read
            self.on_card.step_ends(self.clock.phase)
        if self.sharded.used:
            fresh = True
            self.sharded.step_ends()
        if now >= self.ask_exchange:
            fresh = True
            self.ask_exchange = now + EXCHANGE_EVERY
            self.ask()
        if self.ring is None:
            return
        if fresh:
            self.keep()
        self.tell(at, (self.steps, at, took, data, resident, card[1], card[3], card[6], heap))
        new = self.more and self.look_closer()
        if new or self.steps in LOOK_AGAIN or self.fixed is False and (self.told_setup or {}).get("fixed-shapes"):
            self.tell_setup()

    def look_closer(self):
        """Does what is only done where it was asked for. Whether there is something new to tell."""
        new = self.operations.step_ends(self.steps)
        if self.kept.is_due(self.steps):
            self.clock.tick()
            new = self.kept.step_ends(self.steps, self.thread) or new
            # No part of any step.
            self.clock.mark = monotonic_ns()
        return new

    def tell(self, at, step=None):
        clock = self.clock
        self.ring.tell(
            (
                self.steps,
                at,
                self.wall,
                *self.phases[:5],
                clock.evaluated,
                clock.evaluation_ns,
                self.samples or NONE,
                self.tokens or NONE,
                self.batches or NONE,
                self.empty if self.waits else NONE,
                self.ready if self.ready is not None else NONE,
            ),
            step,
        )

    def keep(self):
        """Hands over what is told with each step but changes seldom."""
        on_card = self.on_card
        self.ring.keep(
            on_card.steps or NONE,
            *on_card.ns,
            *self.last_card,
            *self.exchange,
            self.rank[0] if self.rank[0] is not None else NONE,
            self.last_resident,
            *self.sharded.told(),
        )

    def ask(self):
        """What changes seldom: the rank, and what DDP measured."""
        self.rank = batch_facts.rank(self.torch)
        for model in self.models.values():
            ask = getattr(type(model()), "_get_ddp_logging_data", None)
            if ask is None:
                continue
            data = ask(model())
            together = data.get("avg_backward_comm_time")
            if together:
                hidden = data.get("avg_backward_compute_comm_overlap_time", 0)
                self.exchange = (together // 1000, max(0, together - hidden) // 1000)

    def tell_setup(self, last=False):
        # One of them is kept for the end.
        if self.setups >= SETUPS - (not last):
            return
        torch = self.torch
        models = [one for one in (each() for each in self.models.values()) if one is not None]
        # Losses and metrics are modules too.
        model = max(models, key=lambda one: sum(each.numel() for each in one.parameters()), default=None)
        rank, size = self.rank
        told = {"rank": rank, "world-size": size, "backend": batch_facts.backend(), **batch_facts.of_process(torch)}
        if model is not None:
            told.update(batch_facts.of_model(torch, model))
            self.autocast = self.autocast or batch_facts.autocast(torch, batch_facts.unwrapped(model)[0])
        told["autocast"] = batch_facts.dtype(self.autocast)
        told["optimizers"] = list(dict.fromkeys(self.optimizers.values()))
        told["fixed-shapes"] = self.fixed
        told.update(self.operations.told or {})
        told.update(self.kept.told or {})
        told["loader"] = self.loader or next(iter(self.loaders.values()), None)
        # A model that is gone, as at a program's end, was what it was.
        told = {**(self.told_setup or {}), **{name: value for name, value in told.items() if value is not None}}
        if told != self.told_setup:
            self.told_setup = told
            self.setups += 1
            write(self.name + ".setup.json", told)

    def end(self):
        """What is left to tell when the program ends by itself."""
        if self.pid != os.getpid():
            return
        self.oom.ended()
        if self.ring is not None:
            self.settle(last=True)
            self.tell_rest()
            self.tell_setup(last=True)

    def tell_rest(self):
        """What is only known once nothing comes any more."""
        self.clock.end_step()
        self.clock.tick()
        self.clock.end_segment()
        self.keep()
        self.tell(self.clock.mark)


def write(path, told):
    """Whole, or not at all."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(told, file)
    os.replace(path + ".new", path)


def quietly(function):
    try:
        function()
    except Exception:
        pass


def begin(torch):
    """Begins to account, as soon as torch is there."""
    from . import cells, hooks, sharded

    account = Account(torch, os.environ["SCONCE_ACCOUNT"])
    watcher = hooks.install(torch, account)
    sharded.install(torch, account, watcher)
    cells.install(account, watcher)
    account.oom.begin()
    atexit.register(quietly, account.end)
