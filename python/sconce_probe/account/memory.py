"""Memory of the process and of its card, read seldom enough to cost nothing that counts."""

import os
from collections import deque
from time import monotonic_ns

from .ring import NONE

# A reading may take one part in so many of the time.
SHARE = 400
# What a system call costs in truth, in times of what it takes: caches and what the processor has learned of
# branches are the kernel's afterwards. Measured by steps with readings and without.
AFTERMATH = 5
# Calls whose least cost counts, and the longest pause between two: so many steps, or nanoseconds.
COSTS = 8
STEPS = 8
PAUSE = 50_000_000
# A leak shall be found within 300 steps, so the first ones are read each, unless a reading is this dear, ns.
FIRST = 512
DEAR = 50_000
PAGE = os.sysconf("SC_PAGE_SIZE")


class Seldom:
    """Calls a function as often as its cost allows; in between its last answer stands.

    The cost is the least of the last few calls, since one call that was interrupted says nothing of the
    next, so many `times`; and no pause is longer than `STEPS` steps or `PAUSE`, whichever is longer, whatever
    the calls cost. The `first` calls are made each, while one costs less than `DEAR`.
    """

    def __init__(self, function, first=0, times=1):
        self.function = function
        self.first = first
        self.share = SHARE * times
        self.due = self.overdue = 0
        self.left_out = 0
        self.costs = deque(maxlen=COSTS)

    def latest(self, now):
        """A new answer, or None where it is not due. Asked once a step."""
        if self.first and (not self.costs or min(self.costs) < DEAR):
            self.first -= 1
        elif now < self.due:
            self.left_out += 1
            if self.left_out < STEPS or now < self.overdue:
                return None
        self.left_out = 0
        before = monotonic_ns()
        answer = self.function()
        after = monotonic_ns()
        self.costs.append(after - before)
        self.due = after + self.share * min(self.costs)
        self.overdue = after + PAUSE
        return answer


class Resident:
    """The process's resident set."""

    def __init__(self):
        self.fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def __call__(self):
        return int(os.pread(self.fd, 128, 0).split(None, 2)[1]) * PAGE

    def close(self):
        os.close(self.fd)


# Of `CardMemory`, in its order after the device.
def card(torch):
    """PyTorch's counters of the current card; None where no card is in use."""
    if not torch.cuda.is_initialized():
        return None
    device = torch._C._cuda_getDevice()
    stats = torch._C._cuda_memoryStats(device)
    all_of = lambda name: stats[name]["all"]
    return (
        device,
        all_of("allocated_bytes")["current"],
        all_of("allocated_bytes")["peak"],
        all_of("reserved_bytes")["current"],
        all_of("reserved_bytes")["peak"],
        all_of("inactive_split_bytes")["current"],
        all_of("allocation")["current"],
        all_of("allocation")["allocated"],
        stats["num_alloc_retries"],
        stats["num_ooms"],
    )


NAMES = (
    "device",
    "allocated",
    "allocated-peak",
    "reserved",
    "reserved-peak",
    "inactive-split",
    "blocks",
    "allocations",
    "retries",
    "ooms",
)
NO_CARD = (NONE,) * len(NAMES)
