"""What a program would have done after its last watched step, and what its batches were like until then.

A trial is ended after a few steps. Batches of other shapes, and an evaluation that was never reached, may
take more memory than what was seen. Both are told from what is there: the loaders that live, the shapes of
what they gave, the lines that were executed, and the syntax of the program's own files.
"""

import ast
import gc
import sys

from . import evaluation, executed, program, unreached, values

# Files that are looked at, batches of a loader whose shapes are kept, tensors of a batch, levels of it.
MOST_FILES = 200
MOST_SHAPES = 64
MOST_TENSORS = 16
DEEPEST = 4
MOST_TOLD = 20


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
        # The program's own functions that are at work, and where: file, first line (of a module 0), line, frame.
        self.stack = []
        self.executed = executed.Executed(torch, is_library)
        # Lines that read values of the card.
        self.reads = set()

    def begin(self):
        values_of(self.executed.begin)
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
                self.stack.append((code.co_filename, first, frame.f_lineno, frame))
            frame = frame.f_back

    def note_reads(self, sites):
        """Lines that read values of the card, and the program's own that led there."""
        for (code, _, line), own in sites:
            self.reads.add((code.co_filename, line))
            self.reads.update([own] if own else [])

    # --- told -------------------------------------------------------------------------------------
    def seen(self):
        return {"batches": list(self.given.values()), "later": self.evaluations_or_doubt()[:MOST_TOLD]}

    def evaluations_or_doubt(self):
        """What cannot be looked through is no reason for a yes."""
        try:
            return self.evaluations()
        except Exception as error:
            file, _, line, *_ = self.stack[-1] if self.stack else ("", 0, 0)
            self.stack = []
            code = f"what comes after could not be looked through: {type(error).__name__}"
            return [{"file": file, "line": line, "bounded": False, "code": code}]

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
        values_of(self.executed.end)
        smaller = self.no_larger_batches()
        told = []
        whole = program.Program(program.trees_of(self.files()), self.stack)
        found = unreached.Unreached(whole, self.executed, self.torch, self.evaluated, self.reads, self.is_library)
        judge = evaluation.Evaluation(whole, self.executed, self.torch)
        for function, node in found.found():
            bounded = smaller and is_bounded(found, judge, function, node)
            told.append({"file": function.path, "line": node.lineno, "bounded": bounded,
                         "code": values.source_line(function.path, node.lineno)})
        told.extend(self.validations(whole))
        told.extend(self.trainers())
        if all(one["bounded"] for one in told):
            told.extend(self.larger_loaders())
        # Frames keep what their functions have.
        self.stack = [one[:3] for one in self.stack]
        told.sort(key=lambda one: one["bounded"])
        return told

    def validations(self, whole):
        """Steps of Lightning's own evaluation, where that was not watched."""
        if any(is_of_lightning(one) for one in self.evaluators):
            return []
        return [{"file": one.path, "line": one.node.lineno, "bounded": False,
                 "code": values.source_line(one.path, one.node.lineno)}
                for one in whole.by_name.get("validation_step", ()) if one.owner and whole.speaks_of(one.owner.name)]

    def files(self):
        found = []
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            if isinstance(path, str) and path.endswith(".py") and not self.is_library(path) and path not in found:
                found.append(path)
        # A script's name may end otherwise.
        found.extend(one[0] for one in self.stack if one[0] not in found and not one[0].startswith("<"))
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
        those that were watched, or there were none to compare them with, that may take more. Told with the line at
        which the script is."""
        given = [one["batch-size"] for one in self.given.values()]
        watched = 0 if None in given else max(given, default=0)
        sizes = [own.get("batch_size") for own in self.loaders()]
        largest = max((size for size in sizes if type(size) is int), default=0)
        if largest <= watched or not self.stack:
            return []
        file, _, line, *_ = self.stack[-1]
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


def is_bounded(found, judge, function, node):
    """Whether what begins at a line needs no more than a step, from wherever it is called."""
    callers = [(function, node)] if found.is_looked_through(function) else found.callers(function)
    for one, call in callers:
        statements = found.statements(one, call)
        # What records gradients is no evaluation; what only changes a mode changes what later steps do.
        quiet = found.is_without_gradients(one, call) or any(
            unreached.is_quiet_block(inner) for outer in statements for inner in ast.walk(outer))
        if not quiet or not judge.is_no_larger(one, statements):
            return False
    return bool(callers)


def is_of_lightning(path):
    parts = path.replace("\\", "/").split("/")
    return "lightning" in parts or "pytorch_lightning" in parts


def begin(torch, is_library):
    try:
        later = Later(torch, is_library)
        later.begin()
        return later
    except Exception:
        return None
