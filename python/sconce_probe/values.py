"""Where a program reads values of a virtual card: they are zeros there, and what hangs on them goes the way
of zeros.

The virtual card calls for each read of the main thread whose bytes it does not know; nothing of torch is
changed for it. What a line does with what it reads is told from its syntax alone, so that some of it is
not found: values that are handed on by a function, kept in an attribute or read in the backward pass.
"""

import ast
import dis
import os
import sys
import sysconfig

# Places that are told apart, and lines that are told of.
MOST = 2000
MOST_TOLD = 200
# Bytes of a file whose syntax is looked at, and letters of a line that is told.
LARGEST = 4 << 20
LONGEST = 160
# Files of torch that hand on what they read to the line that calls them.
FOR_OTHERS = ("_tensor.py", "functional.py", "_jit_internal.py", "overrides.py", "_ops.py", "utils/_device.py",
              "utils/_contextlib.py", "nn/functional.py", "library.py")
# Files and folders of torch that read for themselves: to skip a step that overflowed, to print, to save, to bring
# gradients to the host, to agree with other ranks, to compile. Whatever else of torch reads may take memory by it (LBFGS, `torch.cond`).
FOR_ITSELF = ("amp/", "cuda/amp/", "autograd/", "nn/utils/clip_grad.py", "optim/lr_scheduler.py", "_tensor_str.py", "_utils.py",
              "serialization.py", "storage.py", "multiprocessing/", "profiler/", "_dynamo/", "_inductor/", "distributed/checkpoint/",
              "distributed/fsdp/", "distributed/optim/", "distributed/distributed_c10d.py", "distributed/utils.py",
              "nn/parallel/distributed.py")
# What these keep grows with later steps, as values say: no values of a few steps bound it.
UNBOUNDED = ("optim/lbfgs.py",)
# Code that torch makes of a graph.
MADE = "<eval_with_key>"
# Of tensors as large as values say.
SIZES = {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "where", "repeat_interleave", "bincount",
         "_unique2", "nonzero_tuple"}
# What is made of a value is a value still.
ONWARD = {"float", "int", "bool", "abs", "round", "min", "max", "sum", "len", "any", "all", "isnan", "isinf", "isfinite",
          "item", "tolist", "cpu", "numpy", "to", "detach", "sqrt", "exp", "log", "mean"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Module)
SHOWN_IN = (ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.Dict, ast.keyword,
            ast.Attribute, ast.Starred)
LOOPS = (ast.For, ast.AsyncFor, ast.comprehension)
# What only writes down what it is given, unless the program has a function of its own by that name.
SHOWING = {"print", "info", "debug", "set_postfix", "set_postfix_str", "set_description", "add_scalar", "write"}
# What a read of so many bytes is, where nothing else tells.
KINDS = {1: "bool", 2: "number", 4: "number", 8: "number"}
# The probe's own files.
OWN = os.path.dirname(__file__) + os.sep
# The more a read does, the later.
ORDER = ("value", "branch", "size")


class Reads:
    """The reads of one process."""

    def __init__(self, torch):
        self.torch = os.path.dirname(torch.__file__) + os.sep
        paths = sysconfig.get_paths()
        probe = os.path.dirname(os.path.dirname(__file__))
        folders = {folder + os.sep for folder in (paths["stdlib"], paths["platstdlib"], probe)}
        self.libraries = tuple(folders | installed(sys.path))
        self.pid = os.getpid()
        # How often each instruction read, by code, instruction, and the script's line that led there.
        self.sites = {}
        # What is known of an instruction's reads beyond its syntax: the operation, and its use.
        self.known = {}
        # Who answers reads with other values than zeros, where somebody does.
        self.answers = None

    def begin(self):
        import ctypes

        kind = ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_size_t)
        # Kept for as long as the process lives: it may be called until then.
        self.call = kind(self.read)
        self.tell = ctypes.CDLL(None).sconce_vgpu_on_read
        self.tell(self.call)

    def end(self):
        """From the same thread; another one changes nothing."""
        self.tell(None)

    def read(self, to, size):
        try:
            if os.getpid() != self.pid:
                return
            if self.answers is None or not self.answers.read(to, size):
                self.noted(KINDS.get(size, "copy") if self.answers is None else "unanswered")
        except Exception:
            pass

    def noted(self, operation, use=None):
        """The line that reads: file, number, and the place in torch where that reads by itself. `None` where torch
        reads for itself."""
        # Of a thread that runs no Python nothing is to be told: nodes of autograd's own.
        try:
            frame = sys._getframe(1)
        except ValueError:
            return None
        return self.add(frame, operation, use)

    def add(self, frame, operation="", use=None):
        # What torch reads for itself is as it is on a card, or told nobody.
        place = None
        while frame and frame.f_code.co_filename.startswith((self.torch, OWN, MADE)):
            file = frame.f_code.co_filename
            name = file[len(self.torch) :] if file.startswith(self.torch) else None
            if place is None and name and name not in FOR_OTHERS:
                if name.startswith(FOR_ITSELF):
                    return None
                # What torch does next hangs on it; nobody else has it.
                place, use = (file, frame.f_lasti), use or "branch"
                operation = "unanswered" if name in UNBOUNDED else operation
            frame = frame.f_back
        if frame is None:
            return None
        reader = (frame.f_code, frame.f_lasti, frame.f_lineno)
        while frame and self.is_library(frame.f_code.co_filename):
            frame = frame.f_back
        own = (frame.f_code.co_filename, frame.f_lineno) if frame else None
        key = (reader, own)
        if key in self.sites or len(self.sites) < MOST:
            self.sites[key] = self.sites.get(key, 0) + 1
            before = self.known.get(key)
            if before is None or use:
                self.known[key] = (operation, use)
        return reader[0].co_filename, reader[2], place

    def own_names(self):
        """Names that the program's own files give to functions, and to whatever else is assigned."""
        found = set()
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            if isinstance(path, str) and path.endswith(".py") and not self.is_library(path):
                tree = file_of(path)[0]
                found.update(given_names(tree) if tree else ())
        return found

    def is_library(self, file):
        return (
            file.startswith(self.torch)
            or file.startswith(self.libraries)
            or "/site-packages/" in file
            or "/dist-packages/" in file
            or "/torchinductor_" in file
            or file.startswith("<frozen")
        )

    def seen(self):
        """A line of the program each, with what is done with what it reads, how often it read, and the
        line of the script that called it where it is of a library."""
        lines = {}
        showing = SHOWING - self.own_names()
        for key, times in self.sites.items():
            (code, instruction, line), own = key
            file = code.co_filename
            one = lines.setdefault((file, line, own), {"use": "value", "times": 0, "shown": True, "operation": ""})
            one["times"] += times
            operation, done = self.known[key]
            where = position(code, instruction)
            done = done or ("branch" if jumps(code, instruction) else use(file, line, where))
            one["use"] = max(one["use"], done, key=ORDER.index)
            one["shown"] = one["shown"] and done == "value" and is_only_shown(file, line, where, showing)
            one["operation"] = one["operation"] or operation
        told = []
        for (file, line, own), one in lines.items():
            by = {"file": own[0], "line": own[1]} if own and own != (file, line) else None
            told.append({"file": file, "line": line, **one, "by": by, "code": source_line(file, line)})
        told.sort(key=lambda one: (-ORDER.index(one["use"]), one["by"] is not None, -one["times"]))
        return told[:MOST_TOLD]


def installed(folders):
    """Packages and modules that an installer wrote into folders of the path: a `pip install --target` has no
    `site-packages` in its name, and the program's own files may lie beside it."""
    found = set()
    for folder in folders:
        folder = os.path.abspath(folder)
        if folder.endswith(("site-packages", "dist-packages")):
            continue
        try:
            names = [name for name in os.listdir(folder) if name.endswith(".dist-info")]
        except OSError:
            continue
        for name in names:
            try:
                with open(os.path.join(folder, name, "RECORD"), encoding="utf-8", errors="replace") as record:
                    for line in record:
                        top, inside, _ = line.split(",", 1)[0].strip('"').partition("/")
                        if inside and top not in ("..", ""):
                            found.add(os.path.join(folder, top) + os.sep)
                        elif top.endswith(".py"):
                            found.add(os.path.join(folder, top))
            except OSError:
                pass
    return found


def jumps(code, instruction):
    """Whether it is a condition of Python's own, which asks a tensor whether it is true."""
    name = dis.opname[code.co_code[instruction]]
    return "JUMP" in name or name == "TO_BOOL"


def position(code, instruction):
    """Where an instruction stands, as syntax trees have it: line, column, to line, column. Python tells it
    from 3.11 on."""
    try:
        for number, (line, to_line, column, to_column) in enumerate(code.co_positions()):
            if number == instruction // 2 and None not in (line, to_line, column, to_column):
                return (line, column), (to_line, to_column)
    except AttributeError:
        pass
    return None


_files = {}


def file_of(path):
    """Its syntax and its lines; nothing where they cannot be read."""
    if path not in _files:
        _files[path] = None, []
        try:
            if os.path.getsize(path) <= LARGEST:
                import tokenize

                with tokenize.open(path) as file:
                    text = file.read()
                _files[path] = ast.parse(text), text.splitlines()
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            pass
    return _files[path]


def source_line(path, line):
    lines = file_of(path)[1]
    return lines[line - 1].strip()[:LONGEST] if 0 < line <= len(lines) else ""


def use(path, line, where):
    """What is done with a value that is read there: `branch`, `size` or, where that is not known, `value`."""
    tree = file_of(path)[0]
    if tree is None:
        return "value"
    if where is None:
        return of_line(tree, line)
    return of_path(path_to(tree, *where))


def of_line(tree, line):
    """The same where only the line is known: what any expression of it would do."""
    found = [of_path(path_to(tree, *span(node))) for node in ast.walk(tree)
             if isinstance(node, (ast.Call, ast.Subscript, ast.Compare, ast.Name)) and node.lineno == line]
    return max(found, key=ORDER.index, default="value")


def span(node):
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def path_to(tree, begin, end):
    """The nodes from the whole tree down to the smallest that holds a place."""
    path = [tree]
    while inner := next((one for one in ast.iter_child_nodes(path[-1]) if holds(one, begin, end)), None):
        path.append(inner)
    return path


def holds(node, begin, end):
    """Whether it holds a place; nodes without one (comprehensions, arguments) hold what is in them."""
    if hasattr(node, "end_lineno"):
        first, last = span(node)
        return first <= begin and end <= last
    return any(holds(one, begin, end) for one in ast.iter_child_nodes(node))


def of_path(path):
    """What becomes of the innermost node's value, from there on outwards."""
    node = path[-1]
    if isinstance(node, ast.Subscript) or (isinstance(node, ast.Call) and called(node) in SIZES):
        return "size"
    for outer in reversed(path[:-1]):
        test = getattr(outer, "test", None) or getattr(outer, "subject", None)
        if node is test or (isinstance(outer, ast.BoolOp) and node is not outer.values[-1]):
            return "branch"
        if isinstance(outer, LOOPS):
            is_it = node is outer.iter or node in getattr(outer, "ifs", ())
            return "branch" if is_it else "value"
        if isinstance(outer, ast.Call):
            name = called(outer)
            if name == "range":
                return "branch"
            if name not in ONWARD:
                return "value"
        elif isinstance(outer, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            if is_tested(path, names(outer)):
                return "branch"
            if not isinstance(outer, ast.NamedExpr):
                return "value"
        elif isinstance(outer, ast.stmt):
            return "value"
        node = outer
    return "value"


def is_only_shown(path, line, where, showing=frozenset(SHOWING)):
    """Whether what is read there is written down and nothing else: in a call of `print` or a logger (`showing`)."""
    tree = file_of(path)[0]
    if tree is None or where is None:
        return False
    inside = path_to(tree, *where)
    for node in reversed(inside[:-1]):
        if isinstance(node, ast.Call):
            name = called(node)
            if name in showing:
                # What a call gives back may be used.
                return isinstance(inside[inside.index(node) - 1], ast.Expr)
            if name not in ONWARD and name != "format":
                return False
        elif not isinstance(node, SHOWN_IN):
            return False
    return False


def given_names(tree):
    """Names of a file's functions, and of what it assigns, imports under another name or makes an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname


def called(call):
    function = call.func
    return getattr(function, "attr", None) or getattr(function, "id", None)


def names(assigned):
    targets = getattr(assigned, "targets", None) or [assigned.target]
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def is_tested(path, wanted):
    """Whether a name is in a condition of the same function."""
    function = next(node for node in reversed(path) if isinstance(node, FUNCTIONS))
    for node in ast.walk(function):
        for test in (getattr(node, "test", None), *(getattr(node, "ifs", None) or ())):
            if test is not None and any(isinstance(one, ast.Name) and one.id in wanted for one in ast.walk(test)):
                return True
    return False


def begin(torch):
    """Watches the reads of this thread from now on. `None` without a virtual card."""
    try:
        reads = Reads(torch)
        reads.begin()
        return reads
    except Exception:
        return None
