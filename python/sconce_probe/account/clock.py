"""Where the time of a process goes: phases, steps, and what trains nothing.

Every switch from one phase to another adds the time since the last one to the phase that it leaves. So the
phases of a step sum to its time, whatever happens in it.

A step ends where an optimizer's step ended, which is only known later: when the next batch is asked for,
when the same optimizer steps again, or, with one optimizer and no loader, when the next forward or backward
pass begins.
A batch with forward passes under no_grad, and with nothing that trains, is evaluation.
"""

from time import monotonic_ns

DATA, COPY, FORWARD, BACKWARD, OPTIMIZER, OTHER = range(6)


class Clock:
    __slots__ = (
        "closed",
        "off",
        "phase",
        "mark",
        "spent",
        "ended",
        "stepping",
        "known",
        "made",
        "since_close",
        "segment",
        "by_loader",
        "trains",
        "looks",
        "evaluated",
        "evaluation_ns",
        "live",
        "card",
        "on_step",
    )

    def __init__(self, on_step):
        # Nothing is measured inside a phase that is closed; an optimizer's step is open, for its closure.
        self.closed = False
        self.off = False
        self.phase = OTHER
        self.mark = None
        # Nanoseconds by phase since the beginning, without what was evaluation.
        self.spent = [0] * 6
        # The same as an optimizer's step ended, and when that was.
        self.ended = None
        self.stepping = []
        # Optimizers that have stepped, and how many were made.
        self.known = set()
        self.made = 0
        self.since_close = set()
        self.segment = None
        self.by_loader = False
        self.trains = False
        self.looks = 0
        self.evaluated = 0
        self.evaluation_ns = 0
        # The phase for those who look from outside.
        self.live = bytearray(1)
        # Marks on the card, while those of a step are taken.
        self.card = None
        # Called with when a step ended and the nanoseconds by phase until then.
        self.on_step = on_step

    def stop(self):
        """Measures nothing any more."""
        self.off = self.closed = True

    def tick(self):
        """Adds the time up to now."""
        now = monotonic_ns()
        if self.mark is not None:
            self.spent[self.phase] += now - self.mark
        self.mark = now

    def enter(self, phase):
        """Begins a phase; what it returns is for `leave`."""
        now = monotonic_ns()
        before = self.phase
        if self.mark is not None:
            self.spent[before] += now - self.mark
        self.mark = now
        self.phase = phase
        self.live[0] = phase
        self.closed = phase != OPTIMIZER or self.off
        if self.card is not None:
            self.card.mark(phase)
        return before

    def leave(self, before):
        """Ends the phase, and goes on with that before."""
        now = monotonic_ns()
        self.spent[self.phase] += now - self.mark
        self.mark = now
        self.phase = before
        self.live[0] = before
        self.closed = before < OPTIMIZER or self.off
        if self.card is not None:
            self.card.mark(before)

    def batch_begins(self):
        """A loader is asked for a batch: what came before it is whole."""
        # An optimizer's step that ended by an error left its phase behind.
        self.stepping.clear()
        self.tick()
        self.phase = OTHER if self.phase == OPTIMIZER else self.phase
        self.end_step()
        self.end_segment()
        self.by_loader = True
        return self.enter(DATA)

    def forward_begins(self, with_grad, whole):
        """The outermost module is called. `whole`: it has parameters or modules in it."""
        if with_grad:
            if self.ended is not None:
                self.passes_again()
            self.trains = True
        else:
            if not self.by_loader and whole and not self.stepping:
                self.tick()
                self.end_step()
                self.end_segment()
            self.looks += 1
        return self.enter(FORWARD)

    def backward_begins(self):
        if self.ended is not None:
            self.passes_again()
        self.trains = True
        return self.enter(BACKWARD)

    def passes_again(self):
        # Another optimizer may yet belong to the step: that of the same batch, where a loader gave one.
        alone = not self.by_loader and self.made < 2 and len(self.known) < 2
        if alone and not self.stepping:
            self.end_step()

    def optimizer_begins(self, key):
        if key in self.stepping:
            # It had ended by an error.
            del self.stepping[self.stepping.index(key) :]
        if self.stepping:
            # One inside another, which counts.
            self.stepping.append(key)
            return
        if key in self.since_close:
            self.tick()
            self.phase = OTHER
            self.end_step()
        self.trains = True
        self.enter(OPTIMIZER)
        self.stepping.append(key)

    def optimizer_ends(self, key):
        if key not in self.stepping:
            return
        del self.stepping[self.stepping.index(key) :]
        if self.stepping:
            return
        self.known.add(key)
        self.since_close.add(key)
        self.leave(OTHER)
        self.ended = (self.mark, list(self.spent))

    def end_step(self):
        """Tells of the step that an optimizer has ended, if there is one."""
        if self.ended is None:
            return
        at, spent = self.ended
        self.ended = None
        self.since_close.clear()
        self.on_step(at, spent)

    def end_segment(self):
        """Sets aside what was evaluation, and begins anew."""
        if self.looks and not self.trains and self.segment is not None:
            self.evaluation_ns += sum(self.spent) - sum(self.segment)
            self.evaluated += 1
            self.spent = self.segment
            if self.card is not None:
                self.card.spoil()
        self.segment = list(self.spent)
        self.by_loader = self.trains = False
        self.looks = 0
