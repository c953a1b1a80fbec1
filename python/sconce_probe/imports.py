"""Calling something once a module has been imported."""

import sys

MACHINERY = "<frozen importlib._bootstrap_external>"


class _Finder:
    """Finds the module as the other finders do, and calls `then` after it has been executed."""

    def __init__(self, name, then):
        self.name = name
        self.then = then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                self.watch(spec.loader)
                return spec
        return None

    def watch(self, loader):
        # The loader stays what it is, for those who ask it for more; only this one call is watched.
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def watched(module):
            try:
                del loader.exec_module
            except AttributeError:
                pass
            execute(module)
            called(self.then, module)

        # It is under the module's own frames while that is executed. Python leaves those of the import's
        # machinery out of tracebacks and warnings.
        watched.__code__ = watched.__code__.replace(co_filename=MACHINERY, co_name="exec_module")
        try:
            loader.exec_module = watched
        except AttributeError:
            pass


def called(function, *arguments):
    """Calls it. Its errors are the probe's own, and nobody else's business."""
    try:
        function(*arguments)
    except Exception:
        pass


def after(name, then):
    """Calls `then(module)` once the module is imported; now, if it is."""
    if name in sys.modules:
        called(then, sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, then))
