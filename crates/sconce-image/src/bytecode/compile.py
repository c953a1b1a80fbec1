"""Compile the sources of unpacked wheels to bytecode, for Sconce.

Runs inside the environment's own interpreter: python -I -S -B compile.py SOURCE OUTPUT, two
folders. Every OUTPUT/.../__pycache__/name.cpython-3xx.pyc is written whole or not at all, and one
that is there is not made again, so that a killed compilation goes on where it was. A file that
does not compile (a template, Python 2) is passed over, as pip does.
"""

import importlib.util
import marshal
import os
import sys
import warnings


# As every file of a wheel's tree: 1980-01-01.
FIXED_TIME = 315532800


def pyc(source_path, shown_path):
    """The bytes of a .pyc: magic, flags 0, the source's mtime and size (PEP 552)."""
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
    return head + data


def compile_tree(source_root, output_root):
    tag = sys.implementation.cache_tag
    for folder, folders, names in os.walk(source_root):
        folders.sort()
        relative = os.path.relpath(folder, source_root)
        cache = os.path.join(output_root, relative, "__pycache__")
        for name in sorted(names):
            if not name.endswith(".py"):
                continue
            target = os.path.join(cache, f"{name[:-3]}.{tag}.pyc")
            if os.path.exists(target):
                continue
            path = os.path.join(folder, name)
            try:
                data = pyc(path, "/" + os.path.join(relative, name))
            except (SyntaxError, ValueError, RecursionError, OverflowError, MemoryError):
                continue
            except FileNotFoundError:
                # A link to nothing, as Debian's packages may bring.
                continue
            os.makedirs(cache, exist_ok=True)
            # Process ids say nothing: every container begins to count anew, and two may be at work.
            part = f"{target}.{os.urandom(8).hex()}"
            with open(part, "wb") as file:
                file.write(data)
            # An image of these files must not depend on when they were made.
            os.utime(part, (FIXED_TIME, FIXED_TIME))
            os.replace(part, target)


os.umask(0o022)
warnings.simplefilter("ignore")
compile_tree(*sys.argv[1:])
