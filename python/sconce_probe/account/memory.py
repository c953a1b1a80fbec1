"""Memory of the process and of its card, read seldom enough to cost nothing that counts."""

import os
from collections import deque
from time import monotonic_ns

from .ring import NONE

# A reading may take one part in so many of the time.
SHARE = 400
# What a reading of the resident set costs in truth, in times of what it takes: measured by steps with readings
# and without.
AFTERMATH = 5
# Calls whose least cost counts.
COSTS = 8
# Steps from one reading to the next at most: every other one, or this part of all the steps so far. A leak shall be
# found within 300 steps, and growth is judged from the first fifth of the steps on: there are 120 readings then or
# more, however many the steps are and whatever readings cost.
LEAST = 2
PART = 100
# So long a call of malloc's is too slow, ns, where several in a row are.
SLOW = 1_000_000
PAGE = os.sysconf("SC_PAGE_SIZE")


class Seldom:
    """Calls a function as often as its cost allows; in between its last answer stands.

    The cost is the least of the last few calls, since one call that was interrupted says nothing of the
    next, so many `times`. Whatever calls cost, as on a machine with much else to do they all cost more, growth is
    judged by steps and not by time: they are no further apart than a `PART` of the steps so far.
    """

    def __init__(self, function, times=1):
        self.function = function
        self.share = SHARE * times
        self.due = 0
        self.asked = 0
        self.left_out = 0
        self.costs = deque(maxlen=COSTS)

    def latest(self, now, anyway=False):
        """A new answer, or None where it is not due. Asked once a step."""
        self.asked += 1
        if now < self.due and not anyway:
            self.left_out += 1
            if self.left_out < LEAST or self.left_out < self.asked // PART:
                return None
        self.left_out = 0
        before = monotonic_ns()
        answer = self.function()
        after = monotonic_ns()
        self.costs.append(after - before)
        self.due = after + self.share * min(self.costs)
        return answer


class Process:
    """The process's resident set, and what malloc has given out and not got back, bytes.

    The second tells of a leak first: what is kept may fill what lies free in the heap for hundreds of steps,
    and the resident set stays as it is meanwhile.
    """

    def __init__(self):
        self.fd = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self.heap = heap()
        self.slow = 0

    def __call__(self):
        resident = int(os.pread(self.fd, 128, 0).split(None, 2)[1]) * PAGE
        if self.heap is None:
            return resident, NONE
        before = monotonic_ns()
        found = self.heap()
        # It walks over all that lies free, and there can be a great deal of it.
        self.slow = self.slow + 1 if monotonic_ns() - before > SLOW else 0
        if self.slow == COSTS:
            self.heap = None
        # The large ones, which are mapped each for itself, are counted apart.
        return resident, found.uordblks + found.hblkhd

    def close(self):
        os.close(self.fd)


def heap():
    """glibc's `mallinfo2` (2.33 and later); None where the C library has none."""
    try:
        import ctypes

        names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
        kind = type("mallinfo2", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_size_t) for name in names.split()]})
        # Python's lock is kept: giving it away and taking it again costs more than the call.
        function = ctypes.PyDLL(None).mallinfo2
        function.restype, function.argtypes = kind, ()
        return function
    except (ImportError, OSError, AttributeError):
        return None


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
