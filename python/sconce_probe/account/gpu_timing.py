"""The same phases on the card, by CUDA events that are recorded where the host changes its phase.

They are read once they have happened, which is asked for and never waited for. A step is marked as often as
its marks cost little; while work is captured into a graph, none is.
"""

from collections import deque
from time import monotonic_ns

from .clock import OTHER
from .memory import SHARE

# Steps whose marks are waited for, and marks of a step.
WAITING = 8
MOST = 256


class OnCard:
    def __init__(self, torch, clock):
        self.torch = torch
        self.clock = clock
        self.free = []
        self.waiting = deque()
        self.marks = None
        self.cost = 0
        self.due = 0
        self.steps = 0
        self.ns = [0] * 6
        self.off = False

    def mark(self, phase):
        began = monotonic_ns()
        try:
            if len(self.marks) >= MOST or self.torch.cuda.is_current_stream_capturing():
                self.spoil()
                return
            event = self.free.pop() if self.free else self.torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append((phase, event))
            self.cost += monotonic_ns() - began
        except Exception:
            self.off = True
            self.spoil()

    def spoil(self):
        """These marks are not those of a step."""
        self.clock.card = None
        self.marks = None

    def step_ends(self, phase):
        """Ends the marks of one step, begins those of the next where they are due, and reads what is there.

        Called while a card is in use.
        """
        if self.off:
            return
        now = monotonic_ns()
        if self.marks is not None:
            self.mark(OTHER)
            if self.marks is not None:
                self.waiting.append(self.marks)
                self.due = now + SHARE * self.cost
                self.spoil()
        try:
            while self.waiting and self.waiting[0][-1][1].query():
                self.read(self.waiting.popleft())
            if len(self.waiting) < WAITING and now >= self.due:
                self.marks, self.cost = [], 0
                self.clock.card = self
                self.mark(phase)
        except Exception:
            self.off = True
            self.spoil()

    def read(self, marks):
        for (phase, event), (_, until) in zip(marks, marks[1:]):
            self.ns[phase] += max(0, int(event.elapsed_time(until) * 1e6))
        self.steps += 1
        self.free.extend(event for _, event in marks)
