"""What a program would have done after its last watched step, and what its batches were like until then.

A trial is ended after a few steps. Batches of other shapes, and an evaluation that was never reached, may
take more memory than what was seen. Both are told from what is there: the loaders that live, the shapes of
what they gave, and the syntax of the program's own files.
"""

import ast
import gc
import sys

from . import values

# Files that are looked at, batches of a loader whose shapes are kept, tensors of a batch, levels of it.
MOST_FILES = 200
MOST_SHAPES = 64
MOST_TENSORS = 16
DEEPEST = 4
MOST_TOLD = 20
# Methods that evaluate, of trainers of others.
EVALUATING = {"evaluate", "predict", "validate", "test"}
# What keeps what is computed, and what takes it off the card before.
KEEPING = {"append", "extend", "cat", "concat", "concatenate", "stack", "vstack", "hstack", "generate", "gather"}
TAKEN_OFF = {"item", "cpu", "tolist", "numpy"}
# Builtins that give numbers; methods of a tensor have the same names, and stay where it is.
NUMBERS = {"float", "int", "len", "max", "min", "bool", "str"}
# What moves a batch, which the next one replaces.
MOVING = {"to", "cuda"}
# Functions that evaluate, by their names alone, where they record no gradients: `evaluate(model, loader)`.
EVALUATORS = {"evaluate", "validate", "test"}
WITHOUT_GRADIENTS = {"no_grad", "inference_mode"}
DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef)


class Later:
    """One process."""

    def __init__(self, torch, is_library):
        self.torch = torch
        self.is_library = is_library
        # The program's own lines under which a model was told to evaluate.
        self.evaluated = set()
        # The files of those who told it so themselves.
        self.evaluators = set()
        # By loader: its own size of a batch, how many it gave, and the shapes of them.
        self.given = {}
        # The program's own functions that are at work, and where: file, first line (of a module 0), line.
        self.stack = []

    def begin(self):
        from torch.utils.data import dataloader

        module, iterator = self.torch.nn.Module, dataloader._BaseDataLoaderIter
        evaluate, following = module.eval, iterator.__next__

        def watched_eval(one):
            values_of(self.note_evaluation, sys._getframe(1))
            return evaluate(one)

        def watched_next(one):
            batch = following(one)
            values_of(self.note_batch, one, batch)
            return batch

        watched_eval.__name__, watched_next.__name__ = "eval", "__next__"
        watched_eval.__doc__, watched_next.__doc__ = evaluate.__doc__, following.__doc__
        module.eval, iterator.__next__ = watched_eval, watched_next
        self.loader = dataloader.DataLoader

    def note_evaluation(self, frame):
        self.evaluators.add(frame.f_code.co_filename)
        while frame:
            self.evaluated.add((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back

    def note_batch(self, iterator, batch):
        # Iterators know their loader's sampler alone; two loaders share none.
        key = id(iterator._index_sampler)
        size = getattr(iterator._index_sampler, "batch_size", None)
        size = size if type(size) is int else None
        kept = self.given.setdefault(key, {"batch-size": size, "batches": 0, "shapes": []})
        kept["batches"] += 1
        shapes = []
        shapes_of(self.torch, batch, shapes, DEEPEST)
        if shapes not in kept["shapes"] and len(kept["shapes"]) < MOST_SHAPES:
            kept["shapes"].append(shapes)

    def note_stack(self, frame):
        """Where the program is, from the hook of its step."""
        self.stack = []
        while frame:
            code = frame.f_code
            if not self.is_library(code.co_filename):
                first = 0 if code.co_name == "<module>" else code.co_firstlineno
                self.stack.append((code.co_filename, first, frame.f_lineno))
            frame = frame.f_back

    # --- told -------------------------------------------------------------------------------------
    def seen(self):
        return {"batches": list(self.given.values()), "later": self.evaluations()[:MOST_TOLD]}

    def loaders(self):
        """Those that live and gave nothing."""
        found = []
        for one in gc.get_objects():
            if issubclass(type(one), self.loader):
                own = object.__getattribute__(one, "__dict__")
                samplers = (own.get("batch_sampler"), own.get("sampler"))
                if not any(id(sampler) in self.given for sampler in samplers):
                    found.append(own)
        return found

    def evaluations(self):
        """Lines that evaluate and were not reached, and whether what they need is bounded by a step."""
        smaller = self.no_larger_batches()
        told = []
        trees = {path: values.file_of(path)[0] for path in self.files()}
        trees = {path: tree for path, tree in trees.items() if tree is not None}
        named, functions = reachable(trees, self.stack), evaluating_functions(trees.values())
        for path, tree in trees.items():
            for node, function in unreached(tree, path, self.evaluated, self.stack, named, self.evaluators, functions):
                bounded = smaller and keeps_nothing(function)
                told.append({"file": path, "line": node.lineno, "bounded": bounded,
                             "code": values.source_line(path, node.lineno)})
        told.extend(self.trainers())
        if all(one["bounded"] for one in told):
            told.extend(self.larger_loaders())
        told.sort(key=lambda one: one["bounded"])
        return told

    def files(self):
        found = []
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            if isinstance(path, str) and path.endswith(".py") and not self.is_library(path) and path not in found:
                found.append(path)
        return found[:MOST_FILES]

    def no_larger_batches(self):
        """Whether every loader that is still to come gives batches of no more of the same."""
        given = [one["batch-size"] for one in self.given.values()]
        others = self.loaders()
        if not others or not given or None in given:
            return False
        watched = [shapes for one in self.given.values() for shapes in one["shapes"]]
        samples = {str([shape[1:] for shape in shapes]) for shapes in watched}
        for own in others:
            size = own.get("batch_size")
            if type(size) is not int or size > max(given):
                return False
            try:
                # Of one element, as a batch of it would be.
                shapes = []
                shapes_of(self.torch, own["dataset"][0], shapes, DEEPEST)
                if str([list(shape) for shape in shapes]) not in samples:
                    return False
            except Exception:
                return False
        return True

    def larger_loaders(self):
        """A loader that lives and gave nothing is there for something that comes; where its batches are larger than
        those that were watched, that takes more. Told with the line at which the script is."""
        given = [one["batch-size"] for one in self.given.values()]
        if not given or None in given or not self.stack:
            return []
        sizes = [own.get("batch_size") for own in self.loaders()]
        largest = max((size for size in sizes if type(size) is int), default=0)
        if largest <= max(given):
            return []
        file, _, line = self.stack[-1]
        code = f"a DataLoader with batches of {largest}, which gave none yet"
        return [{"file": file, "line": line, "bounded": False, "code": code}]

    def trainers(self):
        """Trainers of transformers, which evaluate by their arguments."""
        module = sys.modules.get("transformers.trainer")
        kind = getattr(module, "Trainer", None)
        if kind is None:
            return []
        # `from_pretrained` evaluates, too, in another file.
        reached = module.__file__ in self.evaluators
        for one in gc.get_objects():
            if issubclass(type(one), kind) and not reached:
                own = object.__getattribute__(one, "__dict__")
                arguments = own.get("args")
                when = getattr(arguments, "eval_strategy", None) or getattr(arguments, "evaluation_strategy", "no")
                if own.get("eval_dataset") is not None and str(getattr(when, "value", when)) != "no":
                    return [{"file": module.__file__, "line": 1, "bounded": False, "code": "Trainer, eval_strategy"}]
        return []


def values_of(function, *arguments):
    try:
        function(*arguments)
    except Exception:
        pass


def shapes_of(torch, batch, into, depth):
    """The shapes of a batch's tensors, in their order."""
    if len(into) >= MOST_TENSORS or depth == 0:
        return
    if isinstance(batch, torch.Tensor):
        into.append(list(batch.shape))
    elif hasattr(batch, "values") and hasattr(batch, "keys"):
        for one in list(batch.values()):
            shapes_of(torch, one, into, depth - 1)
    elif isinstance(batch, (list, tuple)):
        for one in batch[:MOST_TENSORS]:
            shapes_of(torch, one, into, depth - 1)
    elif hasattr(batch, "shape") and type(batch).__module__ == "numpy":
        into.append(list(batch.shape))
    elif isinstance(batch, (int, float)):
        # Of one sample; a batch has a tensor of them (torch.utils.data.default_collate).
        into.append([])
    elif hasattr(batch, "to_dict") or hasattr(batch, "__dict__"):
        inside = getattr(batch, "_store", None) or getattr(batch, "__dict__", {})
        for one in list(inside.values()):
            shapes_of(torch, one, into, depth - 1)


def names_in(node):
    """What a piece of code speaks of, but for functions that it defines."""
    pending, found = list(ast.iter_child_nodes(node)), set()
    while pending:
        one = pending.pop()
        if isinstance(one, DEFINED):
            pending.extend(one.decorator_list)
            continue
        if isinstance(one, ast.Name):
            found.add(one.id)
        elif isinstance(one, ast.Attribute):
            found.add(one.attr)
        pending.extend(ast.iter_child_nodes(one))
    return found


def reachable(trees, stack):
    """The names that code speaks of which runs, or may yet run: that of modules, of functions that are at
    work, and of what these speak of. By name alone, so rather too many."""
    uses, found = {}, set()
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module):
                found |= names_in(node)
            elif isinstance(node, DEFINED):
                uses.setdefault(node.name, set()).update(names_in(node))
                firsts = {node.lineno, *(one.lineno for one in node.decorator_list)}
                if any(file == path and first in firsts for file, first, _ in stack):
                    found |= names_in(node) | {node.name}
            elif isinstance(node, ast.ClassDef):
                # Who makes one may call all that it has.
                methods = {one.name for one in node.body if isinstance(one, DEFINED)}
                uses.setdefault(node.name, set()).update(methods)
    pending = list(found)
    while pending:
        new = uses.get(pending.pop(), set()) - found
        found |= new
        pending.extend(new)
    return found


def is_of_lightning(path):
    parts = path.replace("\\", "/").split("/")
    return "lightning" in parts or "pytorch_lightning" in parts


def evaluating_functions(trees):
    """Functions that evaluate by their names and tell no model so: without gradients alone."""
    found = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, DEFINED) and node.name in EVALUATORS and is_without_gradients(node):
                calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
                if not any(tells_to_evaluate(one) for one in calls):
                    found[node.name] = node
    return found


def unreached(tree, path, reached, stack, named, evaluators=(), evaluating=None):
    """Calls that evaluate, with the function that they stand in, which were not reached and may be yet; of a call of
    one of `evaluating`, with that."""
    validated = any(is_of_lightning(one) for one in evaluators)
    known = {line for file, line in reached if file == path}
    found = []
    for node, outer in with_outer(tree):
        functions = [one for one in outer if isinstance(one, DEFINED)]
        if any(one.name not in named for one in functions):
            continue
        if isinstance(node, ast.FunctionDef) and node.name == "validation_step" and not validated:
            found.append((node, node))
        if not isinstance(node, ast.Call):
            continue
        called = (evaluating or {}).get(getattr(node.func, "id", None))
        evaluates = called or tells_to_evaluate(node) or is_of_a_trainer(node)
        if not evaluates or known & set(range(node.lineno, node.end_lineno + 1)):
            continue
        function = functions[-1] if functions else tree
        if not is_passed(node, outer, function, path, stack):
            found.append((node, called or function))
    return found


def tells_to_evaluate(call):
    """`model.eval()` and `model.train(False)`."""
    name = getattr(call.func, "attr", None)
    return (name == "eval" and not call.args) or (name == "train" and is_told_false(call))


def is_of_a_trainer(call):
    return getattr(call.func, "attr", None) in EVALUATING and not is_of_others(call)


def is_told_false(call):
    """`model.train(False)`, which is `model.eval()`."""
    told = [*call.args, *(one.value for one in call.keywords if one.arg == "mode")]
    return any(isinstance(one, ast.Constant) and one.value is False for one in told)


def is_of_others(node):
    """`Metric.evaluate` of a module, as `evaluate.load`, is a function of somebody else's; `test` is of trainers
    alone."""
    owner = node.func.value
    if node.func.attr == "test":
        name = getattr(owner, "id", None) or getattr(owner, "attr", "")
        return "trainer" not in name.lower()
    return isinstance(owner, ast.Name) and owner.id[:1].isupper()


def with_outer(tree):
    """Every node, with what it stands in, outermost first."""
    pending = [(tree, [])]
    while pending:
        node, outer = pending.pop()
        yield node, outer
        pending.extend((child, [*outer, node]) for child in ast.iter_child_nodes(node))


def is_passed(node, outer, function, path, stack):
    """Whether the program is further on in the same function, and in no loop that leads back."""
    firsts = {0}
    if isinstance(function, DEFINED):
        firsts = {function.lineno, *(one.lineno for one in function.decorator_list)}
    for file, of, line in stack:
        if file != path or of not in firsts or line <= node.lineno:
            continue
        loops = [one for one in outer if isinstance(one, (ast.For, ast.AsyncFor, ast.While))]
        if not any(one.lineno <= line <= one.end_lineno for one in loops):
            return True
    return False


def keeps_nothing(function):
    """Whether a function records no gradients and keeps nothing of what it computes on the card."""
    kept = (one for node in ast.walk(function) for one in kept_by(node))
    return is_without_gradients(function) and not any(computes(one) for one in kept)


def is_without_gradients(function):
    """Whether anything in it is under `no_grad` or `inference_mode`, as a block or a decorator."""
    for node in ast.walk(function):
        blocks = [one.context_expr for one in node.items] if isinstance(node, (ast.With, ast.AsyncWith)) else []
        for block in [*blocks, *getattr(node, "decorator_list", [])]:
            if any(getattr(one, "attr", getattr(one, "id", None)) in WITHOUT_GRADIENTS for one in ast.walk(block)):
                return True
    return False


def kept_by(node):
    """The pieces of code whose values stay when the next batch comes."""
    if isinstance(node, ast.Call) and values.called(node) in KEEPING:
        # Names too: `all.append(out)`.
        return [node]
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return [node.elt]
    if isinstance(node, ast.DictComp):
        return [node.value]
    if isinstance(node, ast.AugAssign) and isinstance(node.value, (ast.List, ast.Tuple)):
        return [node.value]
    if isinstance(node, ast.Assign) and any(isinstance(target, ast.Subscript) for target in node.targets):
        return [node.value]
    return []


def computes(node):
    """Whether a value may be one that was computed on the card and is there still."""
    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
    inside = [one for one in calls if one is not node]
    taken = any(values.called(one) in TAKEN_OFF or getattr(one.func, "id", None) in NUMBERS for one in inside)
    if isinstance(node, ast.Call) and values.called(node) in KEEPING:
        return not taken
    outermost = isinstance(node, ast.Call) and (
        values.called(node) in TAKEN_OFF or getattr(node.func, "id", None) in NUMBERS)
    moved = all(values.called(one) in MOVING for one in calls)
    return bool(calls) and not moved and not taken and not outermost


def begin(torch, is_library):
    try:
        later = Later(torch, is_library)
        later.begin()
        return later
    except Exception:
        return None
