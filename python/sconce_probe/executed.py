"""Which lines of a program's own files were executed.

From Python 3.12 on `sys.monitoring` tells each line once and is then silent, so that it costs next to nothing;
no frame's variables are looked at, as a tracing function would (it would keep tensors for a line longer). Before
3.12 the allocator's history tells: what computed on the card while it was watched allocated there.
"""

import dis
import sys

# Tools of others have the numbers 0 to 2 and 5.
TOOLS = (4, 3)
NAME = "sconce-fit"
# What stands between a jump and the piece of code that it leads to.
BETWEEN = {"NOT_TAKEN", "POP_TOP", "CACHE", "NOP", "EXTENDED_ARG", "COPY", "TO_BOOL"}
MOST_BETWEEN = 8


class Executed:
    """Lines and the beginnings of branches that were executed, in one process."""

    def __init__(self, torch, is_library):
        self.torch = torch
        self.is_library = is_library
        # By file; of branches with their column.
        self.lines = set()
        self.branches = set()
        # Lines since the first step: what runs in a step runs again in the next one.
        self.recent = set()
        self.tool = None

    def begin(self):
        monitoring = getattr(sys, "monitoring", None)
        if monitoring is None:
            return
        self.tool = next((tool for tool in TOOLS if monitoring.get_tool(tool) is None), None)
        if self.tool is None:
            return
        monitoring.use_tool_id(self.tool, NAME)
        events = monitoring.events
        branch = [getattr(events, name) for name in ("BRANCH_LEFT", "BRANCH_RIGHT") if hasattr(events, name)]
        branch = branch or [events.BRANCH]
        self.wanted = events.LINE | sum(branch)
        # An older event has both ways of a branch, and would be silent about the second one.
        silent = monitoring.DISABLE if len(branch) == 2 else None

        def started(code, _offset):
            quietly(self.watch, code)
            return monitoring.DISABLE

        def line_of(code, line):
            self.lines.add((code.co_filename, line))
            self.recent.add((code.co_filename, line))
            return monitoring.DISABLE

        def branch_of(code, _offset, to):
            quietly(self.note_branch, code, to)
            return silent

        monitoring.register_callback(self.tool, events.PY_START, started)
        monitoring.register_callback(self.tool, events.LINE, line_of)
        for event in branch:
            monitoring.register_callback(self.tool, event, branch_of)
        # What is at work already began before.
        frame = sys._getframe(1)
        while frame:
            self.watch(frame.f_code)
            frame = frame.f_back
        monitoring.set_events(self.tool, events.PY_START)
        self.follow_compiler()

    def watch(self, code):
        if not self.is_library(code.co_filename) and not code.co_filename.startswith("<"):
            sys.monitoring.set_local_events(self.tool, code, self.wanted)

    def follow_compiler(self):
        """What is compiled is not executed; its lines are those that the compiler went through."""
        from torch._guards import TracingContext

        note = TracingContext.set_current_loc

        def noted(filename, line, *others, **named):
            self.lines.add((filename, line))
            self.recent.add((filename, line))
            return note(filename, line, *others, **named)

        TracingContext.set_current_loc = staticmethod(noted)

    def note_branch(self, code, to):
        names = code.co_code
        place = to // 2
        for _ in range(MOST_BETWEEN):
            if 2 * place + 1 >= len(names) or dis.opname[names[2 * place]] not in BETWEEN:
                break
            place += 1
        for number, (line, _, column, _) in enumerate(code.co_positions()):
            if number == place:
                self.branches.add((code.co_filename, line, column))
                return

    def note_step(self):
        """After a first step: what runs from here on is part of one."""
        if self.tool is not None:
            self.recent.clear()
            sys.monitoring.restart_events()

    def end(self):
        """Before anything is asked: what looks is not what ran."""
        if self.tool is not None:
            sys.monitoring.set_events(self.tool, 0)
            sys.monitoring.free_tool_id(self.tool)
            return
        if self.torch.cuda.is_initialized():
            for trace in self.torch.cuda.memory._snapshot()["device_traces"]:
                for event in trace:
                    self.lines.update((frame["filename"], frame["line"]) for frame in event.get("frames", ()))

    def tells(self):
        """Whether anything is known of what was executed."""
        return bool(self.lines)

    def knows_steps(self):
        """Whether every line is known, and those of a step apart."""
        return self.tool is not None

    # --- of pieces of code ----------------------------------------------------------------------------
    def ran(self, path, node):
        """Whether any line of it ran."""
        return any((path, line) in self.lines for line in lines_of(node))

    def ran_in_a_step(self, path, node):
        return any((path, line) in self.recent for line in lines_of(node))

    def is_branch_taken(self, path, nodes):
        """Whether what stands on the same line as its condition was gone into. Conditions allocate nothing, so that a
        line that did tells it too."""
        if self.tool is None:
            return any(self.ran(path, one) for one in nodes)
        first, last = nodes[0], nodes[-1]
        begin, end = (first.lineno, first.col_offset), (last.end_lineno, last.end_col_offset)
        return any(file == path and None not in (line, column) and begin <= (line, column) < end
                   for file, line, column in self.branches)


def lines_of(node):
    return range(node.lineno, node.end_lineno + 1)


def quietly(function, *arguments):
    try:
        function(*arguments)
    except Exception:
        pass
