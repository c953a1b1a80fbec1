"""What Python imports first of all where Sconce's folder is ahead on PYTHONPATH: it begins the probe.

The environment's own sitecustomize runs after it, as if this one were not there.
"""

import sys

try:
    import sconce_probe

    sconce_probe.begin()
except Exception:
    # The probe never stands in the way of a program.
    pass


def _the_environments_own():
    import os

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [one for one in sys.path if os.path.abspath(one or os.curdir) != here]
    # What importlib's own modules would bring with them takes longer than all the rest of this.
    own = sys.modules["_frozen_importlib"], sys.modules["_frozen_importlib_external"]
    spec = own[1].PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = own[0].module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_the_environments_own()
