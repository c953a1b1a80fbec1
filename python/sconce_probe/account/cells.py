"""Cells of a notebook: a kernel lives for days, idles, and trains now this and now that.

Each cell that trains is told for itself, under the number that the notebook shows beside it. What lies between
two cells is part of no step, nor is what a cell leaves without an optimizer's step: a batch that was only looked
at, a forward pass that was tried.
"""

import sys

# Loaders of earlier cells: one with lasting workers makes no new iterator.
EARLIER = 32


def install(account, watcher):
    """Watches the ends of cells, where this is a kernel or another shell of IPython's."""
    shell = shell_of()
    if shell is None:
        return
    cells = account.cells = Cells(account, watcher, shell)
    # The cell that imports torch ends later, and is seen to.
    shell.events.register("post_run_cell", cells.ended)


def shell_of():
    asked = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return asked() if asked else None


class Cells:
    def __init__(self, account, watcher, shell):
        self.account = account
        self.watcher = watcher
        self.shell = shell
        self.last = 0

    def number(self):
        """That of the cell which runs. No two have the same one, also where the shell does not count them."""
        # `In` has it before it runs. When `execution_count` grows is another moment in each release of IPython.
        entered = getattr(getattr(self.shell, "history_manager", None), "input_hist_parsed", ())
        self.last = max(len(entered) - 1, self.last + 1)
        return self.last

    def ended(self, *_):
        account = self.account
        # A kernel may run cells in threads beside the one that trains.
        if self.watcher.clock.off or account.is_elsewhere():
            return
        try:
            self.end(account)
        except Exception:
            self.watcher.stop()

    def end(self, account):
        if account.ring is not None:
            account.settle()
            account.clock.end_step()
            if not account.steps:
                # Looked at, or read through; an evaluation's are counted by the clock.
                account.batches = account.empty = 0
                account.ready = None
            account.tell_rest()
            if account.steps or account.clock.evaluated:
                account.tell_setup(last=True)
            account.ring.end()
        earlier = {**account.earlier, **account.loaders}
        made = account.clock.made
        account.memory.function.close()
        account.fresh()
        account.cells = self
        account.earlier = dict(list(earlier.items())[-EARLIER:])
        # Those that step in this cell may have been made in one before.
        account.clock.made = made
        self.watcher.before = self.watcher.batch = None
        self.watcher.clock = account.clock
