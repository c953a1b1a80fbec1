"""Watching a function in its own frame, so that no frame is added to the program's stacks.

A warning's `stacklevel` counts frames, and a traceback shows them: a wrapper would change both. So the
function stays the same object, and its code is compiled anew from its own source, with lines and columns as
they are, to

    if _sconce.clock.closed or not _sconce.BEGINS(PARAMETERS):
        BODY
    else:
        try:
            BODY
        except:
            _sconce.failed()
            raise
        finally:
            _sconce.ends()

`BEGINS` says whether the call is watched. Its body stands there twice in place of a local variable, which
those who show the variables of a traceback would see.
"""

import ast
import copy
import dis
import inspect
import itertools
import linecache

# What the watch is called among the function's globals.
NAME = "_sconce"
# What has to be the same in the code that Python runs and in that of the source as it is found. Not the
# instructions: Python chooses some by what the rest of the module imports.
SAME = ("co_names", "co_varnames", "co_cellvars", "co_freevars", "co_firstlineno")
# That a function stands in a class, as Python 3.14 and later say: here it stands alone.
METHOD = 0x8000000


# Of `from __future__ import annotations`, the one that Python does not always do.
ANNOTATIONS = 0x1000000


class Unknown(Exception):
    """The function's source is not there, or not what Python runs."""


def watch(function, watcher, begins, returns=None):
    """Watches the function by the watcher's methods of these names; `returns` is given what it returns, and
    returns it.

    Raises `Unknown`, and the function stays as it was.
    """
    own = getattr(function, "__code__", None)
    if own is None or function.__globals__.get(NAME, watcher) is not watcher:
        raise Unknown
    tree, found = source(own)
    if mark(compiled(tree, own)) != mark(own):
        raise Unknown
    found.body = watched(found, begins, returns)
    code = compiled(ast.fix_missing_locations(tree), own)
    code = code.replace(co_flags=own.co_flags)
    if hasattr(own, "co_qualname"):
        code = code.replace(co_qualname=own.co_qualname)
    function.__globals__[NAME] = watcher
    function.__code__ = code


def source(own):
    """A module with nothing but the function, where it stands in its file; and the function in it."""
    lines = linecache.getlines(own.co_filename)[own.co_firstlineno - 1 :]
    try:
        text = "".join(inspect.getblock(lines))
        inside = text[:1].isspace()
        tree = ast.parse("if 1:\n" + text if inside else text)
        found = (tree.body[0].body if inside else tree.body)[0]
    except (SyntaxError, IndexError):
        raise Unknown from None
    if not isinstance(found, ast.FunctionDef) or found.name != own.co_name:
        raise Unknown
    ast.increment_lineno(tree, own.co_firstlineno - (2 if inside else 1))
    return tree, found


def compiled(tree, own):
    """The function's code."""
    code = compile(tree, own.co_filename, "exec", flags=own.co_flags & ANNOTATIONS, dont_inherit=True)
    return next(one for one in code.co_consts if inspect.iscode(one) and one.co_name == own.co_name)


def mark(code):
    """By what it is known to be of the same source."""
    constants = [mark(one) if inspect.iscode(one) else one for one in code.co_consts]
    # Names of functions inside, before 3.11: the class is not known here.
    constants = [one for one in constants if not (isinstance(one, str) and ".<locals>." in one)]
    lines = [line for _, line in dis.findlinestarts(code)]
    same = [getattr(code, name) for name in SAME], code.co_flags & ~METHOD
    return same, constants, [key for key, _ in itertools.groupby(lines)]


def watched(found, begins, returns):
    """The body of the function that is watched."""
    given = found.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [one.arg for one in (given.vararg, given.kwarg) if one is not None]
    asked = "%s.clock.closed or not %s.%s(%s)" % (NAME, NAME, begins, ", ".join(names))
    frame = ast.parse(
        "if %s: pass\nelse:\n try: pass\n except: %s.failed(); raise\n finally: %s.ends()" % (asked, NAME, NAME)
    ).body[0]
    for one in ast.walk(frame):
        if hasattr(one, "lineno"):
            one.lineno = one.end_lineno = found.lineno
            one.col_offset = one.end_col_offset = found.col_offset
    text = isinstance(found.body[0], ast.Expr) and isinstance(found.body[0].value, ast.Constant)
    head, body = (found.body[:1], found.body[1:]) if text else ([], found.body)
    frame.body = body
    frame.orelse[0].body = [Returned(returns).visit(copy.deepcopy(one)) for one in body] if returns else body
    return [*head, frame]


class Returned(ast.NodeTransformer):
    """Gives what is returned to the watch first."""

    def __init__(self, name):
        self.name = name

    def visit_FunctionDef(self, node):
        # Another function's.
        return node

    visit_AsyncFunctionDef = visit_Lambda = visit_ClassDef = visit_FunctionDef

    def visit_Return(self, node):
        if node.value is not None:
            own = ast.Attribute(ast.Name(NAME, ast.Load()), self.name, ast.Load())
            call = ast.Call(own, [node.value], [])
            for one in (own.value, own, call):
                ast.copy_location(one, node.value)
            node.value = call
        return node
