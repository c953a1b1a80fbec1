"""What the Python tests of scripts/test.d have in common, as scripts/common is for those in shell.

`check` prints PASS or FAIL and counts in `failed`; `same` and `stop` end a script that has failed.
"""

import sys

failed = []


def check(name, good, seen="", show=False):
    """Prints a check's outcome, and what was seen where it failed, or always with `show`."""
    print(("PASS " if good else "FAIL ") + name, flush=True)
    if show or not good:
        for line in str(seen).strip().splitlines():
            print("     " + line, flush=True)
    if not good:
        failed.append(name)


def same(what, seen, wanted):
    if seen != wanted:
        stop(f"{what}: {seen!r}, not {wanted!r}")


def stop(*why):
    sys.exit(" ".join(str(one) for one in why))
