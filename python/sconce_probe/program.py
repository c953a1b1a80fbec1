"""The syntax of a program's own files, with what its names stand for where it is now."""

import ast
import builtins
import functools
import sys
import types

from . import values

DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
UNKNOWN = object()


class Function:
    """A function of the program, or the code of a module."""

    def __init__(self, path, node, owner):
        self.path = path
        self.node = node
        # The class that it is a method of.
        self.owner = owner
        self.nodes = list(own_nodes(node))
        arguments = getattr(node, "args", None)
        self.parameters = [one.arg for one in [*arguments.posonlyargs, *arguments.args]] if arguments else []
        self.keywords = [one.arg for one in arguments.kwonlyargs] if arguments else []
        self.locals = {*self.parameters, *self.keywords}
        if isinstance(node, DEFINED):
            self.locals |= {one.id for one in self.nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
            self.locals |= {extra.arg for extra in (arguments.vararg, arguments.kwarg) if extra}

    @property
    def name(self):
        return getattr(self.node, "name", "")

    def firsts(self):
        """The lines at which its code begins, as the interpreter has them."""
        decorators = getattr(self.node, "decorator_list", [])
        return {self.node.lineno, *(one.lineno for one in decorators)} if isinstance(self.node, DEFINED) else {0}


class Program:
    """Its files, and where it is: `stack` has the functions at work, innermost first, each with its file, its first
    line (of a module 0), its line, and its frame where that is known."""

    def __init__(self, trees, stack):
        self.trees = trees
        self.parents = {}
        self.functions = []
        self.by_name = {}
        self.classes = {}
        # Attributes that change after their object was made.
        self.stored = set()
        for path, tree in trees.items():
            self.add(path, tree)
        self.at_work = {}
        for file, first, line, *frame in stack:
            for one in self.functions:
                if one.path == file and first in one.firsts():
                    self.at_work.setdefault(one, (line, frame[0] if frame else None))
        self.globals = {}
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            if path in trees:
                self.globals[path] = vars(module)

    def add(self, path, tree):
        pending = [(tree, None)]
        while pending:
            node, owner = pending.pop()
            if isinstance(node, (ast.Module, *DEFINED)):
                function = Function(path, node, owner)
                self.functions.append(function)
                self.by_name.setdefault(function.name, []).append(function)
                if function.name != "__init__":
                    self.stored |= {one.attr for one in function.nodes
                                    if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)}
            elif isinstance(node, ast.ClassDef):
                self.classes.setdefault(node.name, []).append((path, node))
            inside = node if isinstance(node, ast.ClassDef) else None
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
                pending.append((child, inside if isinstance(child, DEFINED) else None))

    def outer(self, node):
        """What a node stands in within its function, innermost first, each with its child on the way."""
        found = []
        while (parent := self.parents.get(node)) is not None:
            found.append((parent, node))
            if isinstance(parent, (ast.Module, *DEFINED)):
                break
            node = parent
        return found

    def is_passed(self, function, node):
        """Whether the program is further on in that function, and in no loop that leads back."""
        if function not in self.at_work:
            return False
        line = self.at_work[function][0]
        if line <= node.lineno:
            return False
        loops = [one for one, _ in self.outer(node) if isinstance(one, LOOPS)]
        return not any(one.lineno <= line <= one.end_lineno for one in loops)

    def is_called_again(self, function):
        """Whether a loop leads to it again: one of a function that called it, where it is at work."""
        if function not in self.at_work:
            return True
        order = list(self.at_work)
        outer = order[order.index(function) + 1 :]
        return any(isinstance(node, LOOPS) and node.lineno <= self.at_work[one][0] <= node.end_lineno
                   for one in outer for node in one.nodes)

    def end_of_call(self, function):
        """Where the call ends that a function at work is in: line and column."""
        frame = self.at_work.get(function, (0, None))[1]
        place = values.position(frame.f_code, frame.f_lasti) if frame is not None else None
        return place[1] if place else None

    # --- what names stand for ---------------------------------------------------------------------
    def value(self, function, node):
        """The object that an expression stands for now; nothing is called for it."""
        if isinstance(node, ast.Name):
            frame = self.at_work.get(function, (0, None))[1]
            if frame is not None and node.id in frame.f_locals:
                return frame.f_locals[node.id]
            if node.id in function.locals:
                return UNKNOWN
            names = self.globals.get(function.path, {})
            if node.id in names:
                return names[node.id]
            # A function inside of another one is none of the module's.
            return UNKNOWN if node.id in self.by_name else getattr(builtins, node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            owner = self.value(function, node.value)
            return UNKNOWN if owner is UNKNOWN else attribute_of(owner, node.attr)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            owner = self.value(function, node.value)
            if type(owner) in (dict, list, tuple):
                try:
                    return owner[node.slice.value]
                except (LookupError, TypeError):
                    pass
        return UNKNOWN

    def called(self, function, call):
        """The program's own functions that a call may go to, by its object or else by name alone."""
        target = target_of(call)
        value = self.value(function, target) if isinstance(target, ast.expr) else UNKNOWN
        while isinstance(value, functools.partial):
            value = value.func
        value = getattr(value, "__func__", value)
        if isinstance(value, type):
            return [one for one in self.methods(value.__name__) if one.name == "__init__"]
        code = getattr(value, "__code__", None)
        # Decorators wrap what they are given.
        code = getattr(getattr(value, "__wrapped__", None), "__code__", code)
        if isinstance(code, types.CodeType):
            return [one for one in self.by_name.get(code.co_name, ())
                    if one.path == code.co_filename and code.co_firstlineno in one.firsts()]
        if value is not UNKNOWN:
            methods = self.methods(type(value).__name__)
            return [one for one in methods if one.name in ("forward", "__call__")]
        name = name_of(target)
        if name in self.classes:
            return [one for one in self.methods(name) if one.name == "__init__"]
        return self.by_name.get(name, ())

    def lambdas(self, value):
        """Where an object is a `lambda` of the program's: those at its line, with the function in which they are."""
        code = getattr(value, "__code__", None)
        if not isinstance(code, types.CodeType) or code.co_name != "<lambda>":
            return []
        return [(one, node) for one in self.functions if one.path == code.co_filename
                for node in one.nodes if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno]

    def speaks_of(self, name):
        return any(isinstance(one, ast.Name) and one.id == name for function in self.functions for one in function.nodes)

    def methods(self, name):
        owners = {node for _, node in self.classes.get(name, ())}
        return [one for one in self.functions if one.owner in owners]


def own_nodes(function):
    """What a function's code is, but for functions that it defines."""
    pending = list(getattr(function, "body", []))
    while pending:
        one = pending.pop(0)
        if not isinstance(one, DEFINED):
            yield one
            pending.extend(ast.iter_child_nodes(one))


def target_of(call):
    """What a call calls: of `getattr(net, "eval")()` the attribute."""
    inner = call.func
    if isinstance(inner, ast.Call) and getattr(inner.func, "id", "") == "getattr" and len(inner.args) > 1:
        name = inner.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return ast.Attribute(value=inner.args[0], attr=name.value, ctx=ast.Load())
    return inner


def name_of(node):
    return getattr(node, "attr", None) or getattr(node, "id", None) or ""


def root_of(node):
    """The name at the beginning of `a.b.c`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return getattr(node, "id", "")


def attribute_of(owner, name):
    """An attribute, without running anything of the program's."""
    kinds = owner.__mro__ if isinstance(owner, type) else type(owner).__mro__
    try:
        own = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        own = {}
    for names in (own, *(own.get(one) or {} for one in ("_modules", "_parameters", "_buffers"))):
        if name in names:
            return names[name]
    return next((vars(kind)[name] for kind in kinds if name in vars(kind)), UNKNOWN)


def trees_of(paths):
    trees = {path: values.file_of(path)[0] for path in paths}
    return {path: tree for path, tree in trees.items() if tree is not None}
