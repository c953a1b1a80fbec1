"""Sconce's probe: what a program does on its cards, seen from inside, without a change to it.

Standard library alone, Python 3.8 to 3.15. It costs nothing until torch is imported, writes nothing to
the terminal, and an error of its own never reaches the program.
"""

import os


def begin():
    """Watches for what the environment asks to be watched, and applies what it names."""
    if os.environ.get("SCONCE_FIT_SERVE"):
        from . import fork_server

        fork_server.serve()
    if os.environ.get("SCONCE_RANKS"):
        from . import ranks

        ranks.begin()
    if os.environ.get("SCONCE_PLAN"):
        from . import imports, plans

        plans.before_torch()
        imports.after("torch", plans.begin)
    if os.environ.get("SCONCE_FIT"):
        from . import fit, imports

        imports.after("torch", fit.begin)
    if os.environ.get("SCONCE_ACCOUNT"):
        from . import imports

        imports.after("torch", _account)


def _account(torch):
    from . import account

    account.begin(torch)
