"""Bytecode files, for Sconce: the part that its two compilers share.

Runs inside the environment's own interpreter, with -I -S -B.
"""

import gc
import importlib.util
import marshal
import os
import sys
import warnings

# Code refers to itself nowhere, so there is nothing for the collector to find.
gc.disable()
os.umask(0o022)
warnings.simplefilter("ignore")

# A file that does not compile (a template, Python 2) is passed over, as pip does.
UNCOMPILABLE = (SyntaxError, ValueError, RecursionError, OverflowError, MemoryError)


def pyc_name(name):
    """The name of the bytecode of the source file `name`, in its folder's __pycache__."""
    return f"{name[:-3]}.{sys.implementation.cache_tag}.pyc"


def pyc(source_path, shown_path):
    """The code of a source, and the bytes of its .pyc: magic, flags 0, the source's mtime and size
    (PEP 552)."""
    with open(source_path, "rb") as file:
        source = file.read()
        info = os.fstat(file.fileno())
    code = compile(source, shown_path, "exec", dont_inherit=True, optimize=0)
    # marshal marks an object that is referenced more than once, and whether it sees the string
    # constants of `code` so depends on what was compiled before. Loading and dumping again
    # leaves only references that are in the code itself.
    data = marshal.dumps(marshal.loads(marshal.dumps(code)))
    head = importlib.util.MAGIC_NUMBER + (0).to_bytes(4, "little")
    head += (int(info.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little")
    head += (info.st_size & 0xFFFFFFFF).to_bytes(4, "little")
    return code, head + data


def write(target, data):
    """Writes a file whole or not at all, whoever else writes the same one."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    # Process ids say nothing: every container begins to count at 1.
    part = f"{target}.{os.urandom(8).hex()}"
    with open(part, "wb") as file:
        file.write(data)
    os.replace(part, target)
