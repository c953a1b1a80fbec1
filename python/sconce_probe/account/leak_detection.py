"""What a program keeps more of from step to step, where that was asked for (SCONCE_ACCOUNT_KEPT): lists, dicts,
sets and queues that grow, graphs that grow behind a variable, and blocks on the card by the frames that asked
for them where the program records those. `object_names.py` says what they are called and which line adds to them.

A few times everything that Python can reach is counted between two steps; in between nothing is done. What has
grown between looks twice in a row is told. Containers are only counted and never
changed; of tensors nothing but their shapes and sizes is read.
"""

import gc
import os
import sys
from collections import deque
from types import CodeType, FrameType, FunctionType, ModuleType

from . import object_names, oom

# Steps after which it is counted: three times at a run's beginning, which is no part of what growth is judged by,
# as a look leaves memory free that a leak fills first; and later, where nothing was found that holds much.
AT = (16, 32, 56, 1000, 2000, 4000)
MUCH = 1024
# What rose so often in a row has grown, by one in so many steps at least.
RISES = 2
SELDOM = 16
# Smaller containers are not looked at; nor more objects.
LEAST = 8
OBJECTS = 5_000_000
TOLD = 4
# Frames of blocks: of PyTorch's there are many below the program's own.
FRAMES = 32
# Elements that are weighed, and how deep; nodes of a graph.
SAMPLE = 16
DEEP = 3
NODES = 20_000
KINDS = (list, dict, set, deque)
NO_WEIGHT = (type, ModuleType, FunctionType, CodeType, FrameType)
PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None))


class Kept:
    def __init__(self, torch):
        self.torch = torch
        self.due = list(AT) if os.environ.get("SCONCE_ACCOUNT_KEPT") == "1" else []
        self.step = 0
        # By what it is: how large when it was first seen and at which step, how large at last, rises since.
        self.seen = {}
        self.told = None

    def is_due(self, steps):
        return bool(self.due) and steps >= self.due[0]

    def step_ends(self, steps, thread):
        """Whether there is something new to tell."""
        if not self.is_due(steps):
            return False
        self.due = [one for one in self.due if one > steps]
        try:
            found = self.look(steps, thread)
        except Exception:
            # What cannot be looked at once will not be the next time.
            self.due = []
            return False
        give_back()
        self.step = steps
        if any(one.get("graph") or one["bytes"] >= MUCH * one["steps"] for one in found):
            self.due = []
        told = {"kept": found}
        new = told != (self.told or {"kept": []})
        self.told = told
        return new

    def look(self, steps, thread):
        sizes = {}
        variables = object_names.variables(thread)
        objects = gc.get_objects()
        # Python does not list a dict of nothing but numbers and texts.
        objects.extend(value for _, value in variables if is_a(value, dict) and not gc.is_tracked(value))
        # The account's own grow as well.
        own = {id(objects), id(variables), id(self.seen), id(sizes)}
        bases = Bases()
        for one in objects[:OBJECTS]:
            base = bases[id(type(one))] if id(type(one)) in bases else bases.of(type(one))
            if base is not None and base.__len__(one) >= LEAST and id(one) not in own:
                sizes["container", id(one)] = base.__len__(one)
        for place, value in variables:
            if is_a(value, self.torch.Tensor) and value.grad_fn is not None:
                sizes["graph", place] = graph(value.grad_fn)
        for frames, (size, _) in self.blocks().items():
            sizes["blocks", frames] = size
        grown = self.grown(sizes, steps)
        ids = {which for kind, which in grown if kind == "container"}
        things = {id(one): one for one in objects if id(one) in ids}
        del objects
        told = [self.told_of(what, steps, things) for what in grown]
        # What hangs on a graph holds more than itself.
        told.sort(key=lambda one: (not one[0].get("graph"), -one[0]["bytes"]))
        hidden = {id(things)}
        return [{**one, **self.name(what, things, variables, hidden)} for one, what in told[:TOLD]]

    def grown(self, sizes, steps):
        """What rose again, the most first. A container that shrank begins anew, as another may be in its place."""
        before, self.seen = self.seen, {}
        least = max(1, (steps - self.step) // SELDOM)
        for what, size in sizes.items():
            first, since, last, rises = before.get(what, (size, steps, size, 0))
            if size < last + least:
                first, since, rises = size, steps, 0
            else:
                rises += 1
            self.seen[what] = (first, since, size, rises)
        grown = [what for what, (_, _, _, rises) in self.seen.items() if rises >= RISES]
        return sorted(grown, key=lambda what: self.seen[what][0] - self.seen[what][2])[: 4 * TOLD]

    def told_of(self, what, steps, things):
        """What is told of it but for its name, and what it is."""
        kind, which = what
        first, since, last, _ = self.seen[what]
        told = {"grown": last - first, "steps": steps - since}
        if kind == "graph":
            told.update({"bytes": 0, "graph": True, "holds": "nodes of its graph"})
        elif kind == "blocks":
            told.update({"grown": 0, "bytes": last - first, "holds": "blocks on the card"})
        else:
            each, holds, on_graph = contents(self.torch, things[which])
            told.update({"bytes": each * (last - first), "holds": holds, "graph": on_graph})
        return told, what

    def name(self, what, things, variables, hidden):
        kind, which = what
        if kind == "graph":
            return object_names.of_variable(which)
        if kind == "blocks":
            return {"adds": list(which)}
        return object_names.of_container(things[which], variables, hidden)

    def blocks(self):
        """On the card by the frames that asked, where the program records those."""
        if not self.torch.cuda.is_initialized():
            return {}
        try:
            return oom.recorded(self.torch, self.torch._C._cuda_getDevice(), FRAMES)
        except Exception:
            return {}


def is_a(one, kinds):
    """By its type itself: some objects lie about their class, or run code when they are asked."""
    return issubclass(type(one), kinds)


def give_back():
    """What a look took goes back to the kernel, for growth to be seen from there on."""
    try:
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
    except (ImportError, OSError, AttributeError):
        # A C library other than glibc.
        pass


class Bases(dict):
    """Which of the kinds a type is, by the type's id: types may say themselves what they equal."""

    def of(self, kind):
        base = self[id(kind)] = next((base for base in KINDS if issubclass(kind, base)), None)
        return base


def length(one):
    """How many it holds; -1 of what is no container."""
    base = Bases().of(type(one))
    return -1 if base is None else base.__len__(one)


def latest(container):
    """Some of its elements, the latest where it knows."""
    base = next(base for base in KINDS if is_a(container, base))
    if base is dict:
        turn = reversed(dict.values(container))
    else:
        turn = base.__iter__(container) if base is set else base.__reversed__(container)
    return [one for one, _ in zip(turn, range(SAMPLE))]


def contents(torch, container):
    """Bytes of an element, what most of them are, whether they hang on a graph."""
    found = latest(container)
    names, weights, on_graph = [], [], False
    for one in found:
        weight, graph_too = weigh(torch, one, DEEP)
        weights.append(weight)
        names.append(name(torch, one))
        on_graph = on_graph or graph_too
    most = max(set(names), key=names.count) if names else "nothing"
    return sum(weights) // max(1, len(weights)), most[:200], on_graph


def name(torch, one):
    if is_a(one, torch.Tensor):
        shape = ", ".join(str(size) for size in one.shape)
        return "%s[%s]" % (str(one.dtype).replace("torch.", ""), shape)
    kind = type(one)
    return kind.__qualname__ if kind.__module__ == "builtins" else "%s.%s" % (kind.__module__, kind.__qualname__)


def weigh(torch, one, depth):
    """Bytes of an object and of what it refers to, and whether a tensor in it hangs on a graph."""
    kind = type(one)
    if issubclass(kind, torch.Tensor):
        try:
            return one.untyped_storage().nbytes(), one.grad_fn is not None
        except Exception:
            # Tensors of no storage: sparse ones, those that only pretend.
            return 0, False
    if issubclass(kind, PLAIN):
        return sys.getsizeof(one) if kind in PLAIN else 0, False
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return one.nbytes, False
    weight, on_graph = object.__sizeof__(one), False
    if not depth:
        return weight, on_graph
    size = len(one) if kind is tuple else length(one)
    inner = list(one[:SAMPLE]) if kind is tuple else latest(one) if size >= 0 else gc.get_referents(one)
    found = [weigh(torch, inside, depth - 1) for inside in inner[: 4 * SAMPLE] if not is_a(inside, NO_WEIGHT)]
    inside = sum(each for each, _ in found)
    if size > len(inner):
        # Others are like those that were looked at.
        inside = inside * size // len(inner)
    return weight + inside, any(too for _, too in found)


def graph(node):
    """Nodes that it leads to, `NODES` at most."""
    found, at = {node: None}, [node]
    while at and len(found) < NODES:
        for after, _ in at.pop().next_functions:
            if after is not None and after not in found:
                found[after] = None
                at.append(after)
    return len(found)
