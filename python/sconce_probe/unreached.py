"""Code of a program that may still come, that computes on the card, and that was not executed while it was watched.

A call comes where the function that it stands in is at work and not past it, where that function ran in a step, or
where such code speaks of it. What a condition left out that was asked for, and that is the same in every step, does
not come.
"""

import ast
import functools
import sys

from . import values
from .program import DEFINED, LOOPS, UNKNOWN, name_of, root_of, target_of

# Methods that evaluate, of trainers of others.
EVALUATING = {"evaluate", "predict", "validate", "test"}
WITHOUT_GRADIENTS = {"no_grad", "inference_mode"}
# Of a library's own class, what only a call that stands in the program leads to.
CALLED_FOR = {"test_step", "predict_step", "forward"}
# Calls whose answer is the same in every step.
SETTLED = {"isinstance", "hasattr", "callable", "getattr", "bool", "len", "type", "exists", "lower", "endswith", "startswith", "get"}
# Of PyTorch, what takes no memory of a card worth speaking of.
QUIET_PARTS = ("torch.cuda", "torch.optim", "torch.amp", "torch.utils", "torch.profiler", "torch.autograd.grad_mode",
               "torch.serialization", "torch.backends", "torch.random", "torch.autograd.profiler")
QUIET = {"save", "no_grad", "inference_mode", "enable_grad", "set_grad_enabled", "autocast", "device", "manual_seed", "barrier",
         "destroy_process_group", "get_rank", "get_world_size", "is_initialized", "is_available", "set_num_threads",
         "is_tensor", "finfo", "iinfo", "Size", "Generator", "get_rng_state", "is_grad_enabled", "item", "cpu", "numpy"}
# Methods that bring a step on, or take what is there apart; of a tensor, what is no larger than it.
OF_A_STEP = {"step", "zero_grad", "backward", "unscale_", "state_dict", "parameters", "named_parameters", "buffers",
             "named_buffers", "modules", "named_modules", "children", "named_children", "train", "eval", "requires_grad_",
             "update_parameters", "save_pretrained", "push_to_hub", "save_state", "load_state_dict"}
SMALL = {"item", "tolist", "cpu", "numpy", "detach", "size", "dim", "numel", "mean", "sum", "max", "min", "argmax", "argmin",
         "std", "var", "norm", "float", "double", "long", "int", "abs", "eq", "any", "all", "isnan", "isinf", "view", "reshape",
         "squeeze", "flatten", "item", "is_floating_point", "element_size", "data_ptr", "square", "sqrt", "median"}
# Of what is not known what it is.
ALLOCATING = {"repeat", "repeat_interleave", "tile", "clone", "cuda", "new_zeros", "new_ones", "new_empty", "new_full",
              "generate", "forward"}
# Builtins that call what they are given.
CALLING = {"map", "filter", "exec", "eval"}


class Unreached:
    """What of one program comes. `reached` are lines under which a model was told to evaluate, `reads` lines that read
    values of the card."""

    def __init__(self, program, executed, torch=None, reached=(), reads=(), is_library=lambda _: False):
        self.program = program
        self.executed = executed
        self.torch = torch
        self.reached = set(reached)
        self.reads = set(reads)
        self.is_library = is_library
        self.computing = {}
        self.coming = self.functions()

    # --- what comes -------------------------------------------------------------------------------
    def functions(self):
        """Those that are at work, that run in a step or are called by a library, and all that these speak of."""
        program = self.program
        found = dict.fromkeys(program.at_work)
        for one in program.functions:
            if isinstance(one.node, DEFINED) and (self.runs_in_a_step(one) or self.is_of_a_library(one)):
                found[one] = None
        pending = list(found)
        while pending:
            function = pending.pop()
            for node in function.nodes:
                for one in self.spoken_of(function, node):
                    if one not in found and self.comes(function, node):
                        found[one] = None
                        pending.append(one)
        return list(found)

    def spoken_of(self, function, node):
        program = self.program
        if isinstance(node, ast.Call):
            target = target_of(node)
            named = program.by_name.get(name_of(target), ()) if target is not node.func else ()
            return [*program.called(function, node), *named]
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            return []
        name = name_of(node)
        inside = [one for one in program.methods(name) if one.name == "__init__"] if name in program.classes else []
        return [*program.by_name.get(name, ()), *inside]

    def runs_in_a_step(self, function):
        body = function.node.body
        if self.executed.knows_steps():
            return any(self.executed.ran_in_a_step(function.path, one) for one in body)
        return function.name in ("forward", "training_step") and any(self.executed.ran(function.path, one) for one in body)

    def is_of_a_library(self, function):
        """Whether a library calls it: a method of its own class, other than PyTorch's, that the program overrides."""
        if function.owner is None or function.name in CALLED_FOR or not self.is_made(function.owner):
            return False
        kind = self.program.globals.get(function.path, {}).get(function.owner.name)
        kinds = kind.__mro__[1:] if isinstance(kind, type) else ()
        return any(function.name in vars(one) and one.__module__.split(".")[0] not in ("builtins", "torch")
                   and self.is_library(file_of(one)) for one in kinds)

    def is_made(self, owner):
        methods = self.program.methods(owner.name)
        return any(self.executed.ran(one.path, part) for one in methods for part in one.node.body)

    def comes(self, function, node):
        return not self.program.is_passed(function, node) and not self.is_left_out(function, node)

    def is_left_out(self, function, node):
        """Whether a condition that was asked for, and is the same in every step, leaves it out; or only an error leads to it."""
        executed, path = self.executed, function.path
        for outer, child in self.program.outer(node):
            if isinstance(outer, (ast.Try, getattr(ast, "TryStar", ast.Try))) and isinstance(child, ast.ExceptHandler):
                return True
            if isinstance(child, ast.ExceptHandler):
                return True
            for test, block in branches_of(outer):
                if child in block and self.was_asked(function, test) and not self.ran_block(path, test, block):
                    if self.is_of_values(function, test) or not self.changes(function, test):
                        return True
            if isinstance(child, ast.stmt) and not executed.ran(path, child):
                if any(self.is_settled_exit(function, one) for one in before(outer, child)):
                    return True
        return False

    def was_asked(self, function, test):
        """Whether a condition was; where lines are those that allocated, whether any behind it did."""
        path = function.path
        if self.executed.knows_steps():
            return self.executed.ran(path, test)
        last = getattr(function.node, "end_lineno", None) or test.end_lineno
        at = self.program.at_work.get(function, (0,))[0]
        return at > test.lineno or any((path, line) in self.executed.lines for line in range(test.lineno, last + 1))

    def is_settled_exit(self, function, node):
        """`if not wanted: return`, which was gone into."""
        path = function.path
        return (isinstance(node, ast.If) and isinstance(node.body[-1], (ast.Return, ast.Continue, ast.Raise, ast.Break))
                and self.ran_block(path, node.test, node.body) and not self.changes(function, node.test))

    def ran_block(self, path, test, block):
        if block[0].lineno <= test.end_lineno:
            return self.executed.is_branch_taken(path, block)
        return any(self.executed.ran(path, one) for one in block)

    def ran(self, function, node):
        """Whether a call was executed."""
        path = function.path
        if not self.executed.ran(path, node):
            return False
        # Behind the call that goes on, on a line that no step came to again.
        end = self.program.end_of_call(function)
        if end and node.lineno <= end[0] and (node.end_lineno, node.end_col_offset) > end:
            if not any((path, line) in self.executed.recent for line in range(node.lineno, end[0] + 1)):
                return False
        for outer, child in self.program.outer(node):
            for test, block in branches_of(outer):
                if child in block and block[0].lineno <= test.end_lineno and not self.executed.is_branch_taken(path, block):
                    return False
        return True

    # --- conditions ---------------------------------------------------------------------------------
    def is_of_values(self, function, test):
        """Whether it asks for a value of the card, which is tried with others."""
        lines = {line for file, line in self.reads if file == function.path}
        if lines & set(range(test.lineno, test.end_lineno + 1)):
            return True
        names = {one.id for one in ast.walk(test) if isinstance(one, ast.Name)}
        assigned = [one for one in function.nodes if isinstance(one, (ast.Assign, ast.AnnAssign)) and one.lineno in lines]
        return any(values.names(one) & names for one in assigned)

    def changes(self, function, test):
        """Whether a condition may be another one in a later step."""
        rebound = self.rebound(function)
        counts = False
        for node in ast.walk(test):
            if isinstance(node, ast.Call):
                name = name_of(node.func)
                if name not in SETTLED and not name.startswith(("is_", "has_", "get_")):
                    return True
            elif isinstance(node, ast.Name) and node.id in rebound:
                return True
            elif isinstance(node, ast.Attribute) and node.attr in self.program.stored and isinstance(node.ctx, ast.Load):
                return True
            elif isinstance(node, ast.BinOp):
                counts = counts or isinstance(node.op, ast.Mod)
            elif isinstance(node, ast.Compare):
                counts = counts or any(is_number(one) for one in [node.left, *node.comparators]) or any(
                    isinstance(one, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for one in node.ops)
        # What a function is given may be the number of a step; what an object has, which it is given, is not.
        given = {*function.parameters, *function.keywords} if self.program.is_called_again(function) else set()
        owners = {one.value for one in ast.walk(test) if isinstance(one, ast.Attribute)}
        return counts and any(isinstance(one, ast.Name) and one.id in given and one not in owners for one in ast.walk(test))

    def rebound(self, function):
        """Names that a loop of the function binds, or that it counts up."""
        found = set()
        for node in function.nodes:
            if isinstance(node, (ast.AugAssign, ast.Global, ast.Nonlocal)):
                found |= set(getattr(node, "names", ())) or values.names(node)
            elif isinstance(node, LOOPS):
                found |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        for other in self.program.functions:
            found |= {name for one in other.nodes if isinstance(one, ast.Global) for name in one.names}
        return found

    # --- what computes --------------------------------------------------------------------------------
    def found(self):
        """Calls that evaluate or compute, were not executed and come, each with the function that it stands in."""
        told = []
        for function in self.coming:
            # Steps of Lightning's evaluation are told of by themselves.
            if function.name == "validation_step":
                continue
            signs = [one for one in function.nodes if self.is_sign(function, one)]
            signs = [one for one in signs if not self.was_reached(function, one) and not self.program.is_passed(function, one)]
            told.extend((function, one) for one in signs)
        signed = {function for function, _ in told}
        for function in self.coming:
            if function not in signed and function.name != "validation_step" and self.is_looked_through(function):
                told.extend((function, one) for one in self.first_unseen(function, signed))
        return told

    def is_looked_through(self, function):
        """What never ran is told of where it is called."""
        return function in self.program.at_work or self.is_of_a_library(function) or self.runs_in_a_step(function)

    def first_unseen(self, function, signed):
        calls = [one for one in function.nodes if isinstance(one, ast.Call)]
        for call in sorted(calls, key=lambda one: (one.lineno, one.col_offset)):
            if self.ran(function, call) or not self.comes(function, call) or not self.computes(function, call):
                continue
            if not self.executed.tells() and not self.is_without_gradients(function, call):
                continue
            if not signed & self.closure(function, call):
                return [call]
        return []

    def closure(self, function, call):
        """The program's own functions that a call leads to."""
        found = dict.fromkeys(self.program.called(function, call))
        pending = list(found)
        while pending:
            one = pending.pop()
            for inner in one.nodes:
                for other in self.program.called(one, inner) if isinstance(inner, ast.Call) else ():
                    if other not in found:
                        found[other] = None
                        pending.append(other)
        return set(found)

    def callers(self, function):
        """Calls that come and lead to a function, each with the function that it stands in."""
        found = []
        for one in self.coming:
            if one is function or not self.is_looked_through(one):
                continue
            for call in one.nodes:
                if (isinstance(call, ast.Call) and not self.program.is_passed(one, call) and not self.ran(one, call)
                        and function in self.closure(one, call)):
                    found.append((one, call))
        return found

    def statements(self, function, call):
        """The statements of a function that come, were not executed and compute, one of which has that call; and those
        that speak of what these bind."""
        whole = list(self.outermost(function, function.node.body))
        computing = [one for one in whole if any(inner is call or self.is_unseen(function, inner) for inner in ast.walk(one))]
        bound = {inner.id for one in computing for inner in ast.walk(one)
                 if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}
        return [one for one in whole if one in computing or any(
            isinstance(inner, ast.Name) and inner.id in bound for inner in ast.walk(one))]

    def is_unseen(self, function, node):
        """Whether it is a call that was not executed and evaluates or computes."""
        return isinstance(node, ast.Call) and not self.ran(function, node) and (
            tells_to_evaluate(node) or self.computes(function, node))

    def outermost(self, function, block):
        """Statements with a call that was not executed, the outermost without any that was."""
        for node in block:
            if isinstance(node, (*DEFINED, ast.ClassDef)):
                continue
            calls = [self.ran(function, one) for one in ast.walk(node) if isinstance(one, ast.Call)]
            inside = [one for name in ("body", "orelse", "finalbody") for one in getattr(node, name, [])]
            passed = self.program.is_passed(function, node)
            if inside and (any(calls) or passed):
                yield from self.outermost(function, inside)
            elif not all(calls) and not passed:
                yield node

    def was_reached(self, function, node):
        known = {line for file, line in self.reached if file == function.path}
        if known & set(range(node.lineno, node.end_lineno + 1)):
            return True
        return self.executed.knows_steps() and self.ran(function, node)

    def is_without_gradients(self, function, call):
        within = [one for one, _ in self.program.outer(call)]
        return any(is_quiet_block(one) for one in [*within, function.node]) or any(
            is_quiet_block(one) for other in self.closure(function, call) for one in [other.node, *other.nodes])

    def is_sign(self, function, node):
        if not isinstance(node, ast.Call):
            return False
        if is_of_a_trainer(node):
            # A function of a module is somebody else's.
            return not self.program.called(function, node) and not hasattr(
                self.program.value(function, node.func.value), "__path__")
        return tells_to_evaluate(node)

    def computes(self, function, call):
        """Whether a call may take memory of the card."""
        target = target_of(call)
        value = self.program.value(function, target) if isinstance(target, ast.expr) else UNKNOWN
        name = name_of(target)
        own = [] if name in OF_A_STEP else self.program.called(function, call)
        if own:
            return any(self.function_computes(one) for one in own)
        if lambdas := self.program.lambdas(value):
            return any(isinstance(inner, ast.Call) and self.computes(one, inner) for one, node in lambdas for inner in ast.walk(node))
        given = [self.program.value(function, one) for one in [*call.args, *(one.value for one in call.keywords)]]
        while isinstance(value, functools.partial):
            given, value = [*given, *value.args, *value.keywords.values()], value.func
        gives_module = any(self.is_module(one) for one in given)
        if value is UNKNOWN:
            return self.unknown_computes(function, target, name) or (name == "to" and not is_of_cpus(call))
        if self.is_module(value):
            return True
        if self.is_made_on_cpus(call, value):
            return False
        owner = self.program.value(function, target.value) if isinstance(target, ast.Attribute) else UNKNOWN
        if self.is_module(owner):
            return name not in OF_A_STEP and name not in SMALL and not name.endswith("_")
        if self.torch is not None and isinstance(owner, self.torch.Tensor):
            return owner.is_cuda and name not in SMALL and name not in OF_A_STEP and not name.endswith("_")
        module = getattr(value, "__module__", None) or type(owner).__module__ or ""
        if getattr(value, "__self__", None) is not None and module.startswith("builtins"):
            return False
        if root_of(target) in ("torch", "nn", "F") or module.split(".")[0] == "torch":
            return name not in QUIET and not module.startswith(QUIET_PARTS) and not name.endswith("_") and name not in OF_A_STEP
        if module == "builtins":
            return gives_module and name in CALLING
        return gives_module and name not in values.SHOWING and name not in OF_A_STEP

    def unknown_computes(self, function, target, name):
        if isinstance(target, ast.Name):
            return True
        if not isinstance(target, ast.Attribute):
            return True
        if root_of(target) in ("torch", "nn", "F"):
            return name not in QUIET and not name.endswith("_")
        if name in ALLOCATING or name in EVALUATING:
            return True
        # `self.model(x)`.
        return isinstance(target.value, ast.Name) and target.value.id == "self" and name not in OF_A_STEP and not name.startswith("log")

    def function_computes(self, function):
        if function not in self.computing:
            # Of what calls itself the rest tells.
            self.computing[function] = False
            self.computing[function] = any(isinstance(one, ast.Call) and self.computes(function, one) for one in function.nodes)
        return self.computing[function]

    def is_module(self, value):
        return self.torch is not None and isinstance(value, self.torch.nn.Module)

    def is_made_on_cpus(self, call, value):
        """Whether a layer of PyTorch is made, and nothing says that it is made on a card."""
        if self.torch is None or not isinstance(value, type) or not issubclass(value, self.torch.nn.Module):
            return False
        # Wrappers, as DistributedDataParallel, are elsewhere: they have buffers on the card.
        if not value.__module__.startswith("torch.nn.modules.") or any(one.arg in (None, "device") for one in call.keywords):
            return False
        return self.default_device == "cpu"

    @functools.cached_property
    def default_device(self):
        """The type of the device on which tensors are made that name none; None where the program changes it."""
        for function in self.program.functions:
            for node in function.nodes:
                if isinstance(node, ast.Call) and name_of(node.func) in ("set_default_device", "set_default_tensor_type"):
                    return None
                blocks = node.items if isinstance(node, (ast.With, ast.AsyncWith)) else ()
                if any("device" in name_of(one).lower() for block in blocks for one in ast.walk(block.context_expr)):
                    return None
        return self.torch.empty(0).device.type


def is_of_cpus(call):
    """Whether `tensor.to(...)` names no device but that of CPUs: a string, or a type as `torch.float16`."""
    given = [*call.args, *(one.value for one in call.keywords)]
    return all(isinstance(one, ast.Constant) and one.value in ("cpu", True, False)
               or isinstance(one, ast.Attribute) and root_of(one) == "torch" for one in given)


def branches_of(node):
    """Conditions of a node, each with what is done under it: statements or an expression."""
    if isinstance(node, (ast.If, ast.While)):
        return [(node.test, node.body), *([(node.test, node.orelse)] if node.orelse else [])]
    if isinstance(node, ast.IfExp):
        return [(node.test, [node.body]), (node.test, [node.orelse])]
    if isinstance(node, ast.BoolOp):
        return [(before, [after]) for before, after in zip(node.values, node.values[1:])]
    return []


def before(outer, child):
    """The statements that stand before one in the same block."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(outer, name, None)
        if isinstance(block, list) and child in block:
            return block[: block.index(child)]
    return []


def is_number(node):
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def is_quiet_block(node):
    """Whether it is under `no_grad` or `inference_mode`, as a block or by a decorator."""
    blocks = [one.context_expr for one in node.items] if isinstance(node, (ast.With, ast.AsyncWith)) else []
    for block in [*blocks, *getattr(node, "decorator_list", [])]:
        if any(name_of(one) in WITHOUT_GRADIENTS for one in ast.walk(block)):
            return True
        if isinstance(block, ast.Call) and name_of(block.func) == "set_grad_enabled" and is_told_false(block):
            return True
    return False


def tells_to_evaluate(call):
    """`model.eval()`, `model.train(False)`, `getattr(model, "eval")()`, `nn.Module.eval(model)`, and
    `model.train(flag)`, of which it is not known."""
    target = target_of(call)
    if not isinstance(target, ast.Attribute):
        return False
    # Called of the class, the first argument is the object.
    of_class = name_of(target.value) == "Module"
    told = [*call.args[1 if of_class else 0 :], *(one.value for one in call.keywords if one.arg == "mode")]
    if target.attr == "eval":
        return not told
    return target.attr == "train" and len(told) == 1 and not (isinstance(told[0], ast.Constant) and told[0].value is not False)


def is_told_false(call):
    told = [*call.args, *(one.value for one in call.keywords if one.arg == "mode")]
    return any(isinstance(one, ast.Constant) and one.value is False for one in told)


def is_of_a_trainer(call):
    """`trainer.evaluate()`; `evaluate.load` and `Metric.evaluate` are functions of somebody else's, and `test` is of
    trainers alone."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in EVALUATING:
        return False
    owner = call.func.value
    if call.func.attr == "test":
        return "trainer" in name_of(owner).lower()
    return not (isinstance(owner, ast.Name) and owner.id[:1].isupper())


def file_of(kind):
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
