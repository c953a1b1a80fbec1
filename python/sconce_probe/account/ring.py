"""The file in which a process tells what it does: of one size, mapped, read by Sconce from outside.

All numbers are little-endian and of 64 bits unless said otherwise; `NONE` is a figure that is not known.

    0     magic; at 8 (32 bits each) version, entries of the ring, process id, parent's process id, the cell
          of a notebook (0 without), 1 once nothing more will come although the process goes on
    32    when the process began to tell, nanoseconds of CLOCK_MONOTONIC
    40    how many times the figures were told: n
    48    the phase now, one byte
    1024  figures, told at even n; at 1536 those told at odd n, with room for 64 numbers each
    4096  the last steps, 9 numbers each

The figures that `n` names are always whole: the next ones go to the other place before `n` grows. So
neither a reading at the same time nor a kill spoils them.
"""

import mmap
import os
import struct

MAGIC = b"SCONCEAC"
VERSION = 2
ENTRIES = 2048
SELDOM = struct.Struct("<26Q")
FIGURES = struct.Struct("<15Q%ds" % SELDOM.size)
STEP = struct.Struct("<9Q")
ENDED_AT, TOLD_AT, PHASE_AT = 28, 40, 48
FIGURES_AT = (1024, 1536)
STEPS_AT = 4096
SIZE = STEPS_AT + ENTRIES * STEP.size
NONE = (1 << 64) - 1


class Ring:
    def __init__(self, path, pid, parent, began, cell=0):
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(path + ".new", flags, 0o644)
        try:
            # Room that is not there shall be an error here, and not a signal later.
            os.posix_fallocate(fd, 0, SIZE)
            self.map = mmap.mmap(fd, SIZE)
        finally:
            os.close(fd)
        self.told = 0
        self.kept = SELDOM.pack(*SELDOM.size // 8 * (NONE,))
        struct.pack_into("<8s6IQ", self.map, 0, MAGIC, VERSION, ENTRIES, pid, parent, cell, 0, began)
        self.count = memoryview(self.map)[TOLD_AT : TOLD_AT + 8].cast("Q")
        self.live = memoryview(self.map)[PHASE_AT : PHASE_AT + 1]
        os.rename(path + ".new", path)

    def tell(self, figures, step=None):
        """Publishes the figures, with those that were kept for it, and the step that ended."""
        if step is not None:
            STEP.pack_into(self.map, STEPS_AT + (step[0] - 1) % ENTRIES * STEP.size, *step)
        told = self.told + 1
        FIGURES.pack_into(self.map, FIGURES_AT[told & 1], *figures, self.kept)
        # One store, so that no reader finds half of it.
        self.count[0] = self.told = told

    def keep(self, *figures):
        """Keeps the last of the figures, which are told again and again until they change."""
        self.kept = SELDOM.pack(*figures)

    def end(self):
        """Nothing more will come."""
        struct.pack_into("<I", self.map, ENDED_AT, 1)
