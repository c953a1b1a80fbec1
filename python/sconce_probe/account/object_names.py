"""What a container or a variable is called in the program, and which of its lines add to it."""

import ast
import gc
import linecache
import os
import sys
from types import FrameType

# How far out frames are looked at, and how far up containers of containers.
FRAMES = 64
UP = 2
OUTER = 4
LINES = 3
LARGEST = 1 << 20
LONGEST = 160
CONTAINERS = (dict, list, tuple, set)
ADDS = ("append", "extend", "add", "insert", "update", "setdefault", "appendleft", "extendleft")
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# CPython: code has fast locals (inspect.CO_OPTIMIZED).
OPTIMIZED = 1
# References to a frame's variables that nobody else has: the frame's, ours, and the question's.
OURS = 3


def variables(thread):
    """Of the frames of a thread, innermost first: ((file, function, name), value)."""
    found, frame = [], sys._current_frames().get(thread)
    for _ in range(FRAMES):
        if frame is None:
            break
        code = frame.f_code
        if not code.co_filename.startswith(HERE):
            inside = frame.f_locals
            found.extend(((code.co_filename, code.co_name, key), value) for key, value in list(inside.items()))
            # Until 3.12 it is a copy that the frame keeps, and with it what the program lets go of; one that
            # others have too, by `locals()`, is theirs.
            if sys.version_info < (3, 13) and code.co_flags & OPTIMIZED and sys.getrefcount(inside) <= OURS:
                inside.clear()
        frame = frame.f_back
    return found


def of_variable(place):
    """What is told of a variable that a graph grows behind."""
    file, function, name = place
    return {"name": name, "of": function, "adds": lines(file, name, again=True)}


def of_container(container, known, hidden, up=UP):
    """What is told of a container by the variable, module or instance that has it, or that of a container that it
    is in; empty where none is found. `hidden`: objects of the account's own."""
    for (file, function, name), value in known:
        if value is container:
            return {"name": name, "of": function, "adds": lines(file, name)}
    holders = gc.get_referrers(container)
    hidden = {*hidden, id(known), id(holders)}
    outer = []
    for one in holders:
        if id(one) in hidden or type(one) is FrameType:
            continue
        told = of_module(one, container) or of_instance(one, container)
        if told:
            return told
        if issubclass(type(one), CONTAINERS):
            outer.append(one)
    hidden.add(id(outer))
    for one in outer[:OUTER]:
        # Mostly the attributes of an instance.
        owner = next((each for each in gc.get_referrers(one) if attributes(each) is one), None)
        told = of_instance(owner, container)
        if not told and up:
            told = of_container(one, known, hidden, up - 1)
        if told:
            return told
    return {}


def of_module(one, container):
    if type(one) is not dict or type(one.get("__name__")) is not str:
        return None
    module = sys.modules.get(one["__name__"])
    if module is None or vars(module) is not one:
        return None
    name = key_of(one, container)
    return {"name": name, "of": module.__name__, "adds": lines(one.get("__file__"), name)} if name else None


def of_instance(one, container):
    inside = attributes(one)
    name = key_of(inside, container) if inside else None
    if not name:
        return None
    kind = type(one)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return {"name": name, "of": kind.__qualname__, "adds": lines(file, name, attribute=True)}


def attributes(one):
    """Its own, without running code of its class."""
    if one is None or issubclass(type(one), (*CONTAINERS, type)):
        return None
    try:
        inside = object.__getattribute__(one, "__dict__")
    except Exception:
        return None
    return inside if type(inside) is dict else None


def key_of(inside, value):
    return next((key for key, one in list(inside.items()) if one is value and type(key) is str), None)


def lines(file, name, attribute=False, again=False):
    """Lines of a file that add to what has this name; `again`: that make it anew out of itself."""
    try:
        if not file or not file.endswith(".py") or os.path.getsize(file) > LARGEST:
            return []
        text = linecache.getlines(file)
        tree = ast.parse("".join(text))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []

    def meant(node):
        # `caches[kind].append(…)` adds to what is in it.
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Attribute):
            return node.attr == name
        return not attribute and isinstance(node, ast.Name) and node.id == name

    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and meant(node.target):
            adds = True
        elif again:
            adds = isinstance(node, ast.Assign) and any(map(meant, node.targets)) and any(map(meant, ast.walk(node.value)))
        elif isinstance(node, ast.Call):
            adds = isinstance(node.func, ast.Attribute) and node.func.attr in ADDS and meant(node.func.value)
        else:
            targets = node.targets if isinstance(node, ast.Assign) else ()
            adds = any(isinstance(one, ast.Subscript) and meant(one.value) for one in targets)
        if adds:
            found.add(node.lineno)
    return ["%s:%d %s" % (file, line, text[line - 1].strip()[:LONGEST]) for line in sorted(found)[:LINES]]
