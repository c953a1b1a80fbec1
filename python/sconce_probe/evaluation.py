"""Whether code that was not watched needs no more memory of a card than a step that was, told from its syntax.

It does where it records no gradients, where batches come from loaders whose batches are no larger, where these go
through modules that were trained and operations whose result is no larger than what they are given, and where nothing
of it is kept when the next batch comes. Whatever is not known to be so is not.
"""

import ast
import re

from . import values
from .program import UNKNOWN, attribute_of, name_of, root_of, target_of
from .unreached import is_quiet_block, tells_to_evaluate

# What a value is: nothing of the card's, no larger than what a step has, a module, something else.
OFF, STEP, MODULE, OTHER = "off", "step", "module", "other"
TAKEN_OFF = {"item", "cpu", "tolist", "numpy", "size", "dim", "numel", "data_ptr", "element_size"}
NUMBERS = {"float", "int", "len", "bool", "str", "round", "isinstance", "range", "print", "type", "repr", "format", "open", "id",
           "hasattr"}
# The result is what they are given, or no larger.
THROUGH = {"enumerate", "iter", "next", "reversed", "tqdm", "trange", "zip", "track"}
SAME = {"to", "cuda", "float", "half", "bfloat16", "long", "int", "bool", "detach", "mean", "sum", "max", "min", "argmax", "argmin", "std", "var",
        "norm", "abs", "eq", "ne", "gt", "lt", "ge", "le", "view", "reshape", "permute", "transpose", "flatten", "squeeze", "contiguous",
        "softmax", "log_softmax", "sigmoid", "relu", "gelu", "tanh", "log", "exp", "square", "sqrt", "pow", "sub", "div", "add", "mul",
        "clamp", "round", "any", "all", "view_as", "reshape_as", "type", "t", "topk", "isnan", "dequantize", "items", "values", "keys", "get",
        "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div",
        "normalize", "layer_norm", "dropout", "where", "logical_and", "logical_not"}
MOVING = {"to", "cuda", "cpu", "detach", "float", "long"}
MODES = {"eval", "train", "no_grad", "inference_mode", "set_grad_enabled", "autocast", "synchronize", "perf_counter", "time", "monotonic",
         "barrier", "empty_cache", "is_available", "set_epoch", "zero_grad", "requires_grad_"}
# Of what is off the card alone.
HARMLESS = {*values.SHOWING, "append", "extend", "update", "add", "log", "warning", "join", "format", "close", "flush", "reset", "compute", "average",
            "set_description", "refresh", "setdefault", "pop", "clear", "items", "keys", "values", "get", "count", "dump", "dumps"}
ATTRIBUTES_OFF = {"shape", "dtype", "device", "ndim", "is_cuda"}


class Unbounded(Exception):
    """Something may take more than a step."""


class Evaluation:
    """Judges pieces of one program's code; `torch` is absent where no objects are known."""

    def __init__(self, program, executed, torch=None):
        self.program = program
        self.executed = executed
        self.torch = torch
        self.following = []

    def is_no_larger(self, function, statements, given=()):
        """Whether these statements of a function need no more than a step."""
        try:
            self.run(function, statements, dict(given), is_quiet_block(function.node))
            return bool(statements)
        except (Unbounded, RecursionError):
            return False

    # --- statements -------------------------------------------------------------------------------
    def run(self, function, statements, kinds, quiet):
        """Carries statements out on kinds of values; gives the kind of what is returned."""
        given = OFF
        for node in statements:
            given = worst(given, self.statement(function, node, kinds, quiet))
        return given

    def statement(self, function, node, kinds, quiet):
        kind = lambda one: self.kind(function, one, kinds, quiet)
        run = lambda block, still=quiet: self.run(function, block, kinds, still)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                given = kind(item.context_expr)
                if item.optional_vars is not None:
                    self.bind(item.optional_vars, given, kinds)
            return run(node.body, quiet or is_quiet_block(node))
        if isinstance(node, (ast.For, ast.AsyncFor)):
            self.bind(node.target, self.element(function, node.iter, kinds, quiet), kinds)
            # What is bound late in a round is there in the next one.
            return worst(run(node.body), run(node.body), run(node.orelse))
        if isinstance(node, ast.While):
            kind(node.test)
            return worst(run(node.body), run(node.body), run(node.orelse))
        if isinstance(node, ast.If):
            kind(node.test)
            return worst(run(node.body), run(node.orelse))
        if isinstance(node, ast.Try):
            handlers = [one for handler in node.handlers for one in handler.body]
            return worst(run(node.body), run(handlers), run(node.orelse), run(node.finalbody))
        if isinstance(node, ast.Return):
            return OFF if node.value is None else kind(node.value)
        if isinstance(node, ast.Expr):
            kind(node.value)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            self.assign(function, node, kinds, kind)
        elif isinstance(node, (ast.Assert, ast.Delete, ast.Raise, ast.Pass, ast.Break, ast.Continue, ast.Import, ast.ImportFrom,
                               ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal)):
            pass
        else:
            raise Unbounded
        return OFF

    def assign(self, function, node, kinds, kind):
        if node.value is None:
            return
        targets = getattr(node, "targets", None) or [node.target]
        if isinstance(node.value, ast.Tuple) and all(
                isinstance(one, ast.Tuple) and len(one.elts) == len(node.value.elts) for one in targets):
            # `x, y = x.to(device), y.to(device)`.
            for number, value in enumerate(node.value.elts):
                parts = [one.elts[number] for one in targets]
                self.assign(function, ast.Assign(targets=parts, value=value), kinds, kind)
            return
        given = kind(node.value)
        shows = any(isinstance(one, (ast.List, ast.Tuple, ast.Dict, ast.Set)) and not isinstance(getattr(one, "ctx", None), ast.Store)
                    for one in ast.walk(node.value))
        if given in (STEP, OTHER):
            places = {spelled(one) for target in targets for one in ast.walk(target) if isinstance(one, (ast.Name, ast.Attribute))}
            speaks_of_itself = lambda code: any(isinstance(one, (ast.Name, ast.Attribute)) and spelled(one) in places
                                                for one in ast.walk(code))
            own = [one for one in ast.walk(node.value) if isinstance(one, ast.Call) and self.program.called(function, one)]
            # `kept = [*kept, out]`, and what a function of the program's makes of both.
            if (shows and (isinstance(node, ast.AugAssign) or speaks_of_itself(node.value))) or any(map(speaks_of_itself, own)):
                raise Unbounded
        for target in targets:
            if isinstance(target, ast.Subscript) and given == STEP and kind(target.value) != STEP:
                raise Unbounded
            before = kinds.get(target.id, OFF) if isinstance(node, ast.AugAssign) and isinstance(target, ast.Name) else OFF
            self.bind(target, worst(before, given), kinds)

    def bind(self, target, given, kinds):
        for one in ast.walk(target):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                kinds[one.id] = given

    def element(self, function, node, kinds, quiet):
        """What a loop is given: of what is no loader's, nothing is known."""
        if isinstance(node, ast.Call) and name_of(node.func) in THROUGH and node.args:
            return worst(*(self.element(function, one, kinds, quiet) for one in node.args if not isinstance(one, ast.Starred)))
        if isinstance(node, ast.Call) and name_of(node.func) in ("range", "trange"):
            return OFF
        given = self.kind(function, node, kinds, quiet)
        if given != OTHER:
            return given
        value = self.object(function, node, kinds)
        if value is UNKNOWN:
            return STEP if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) else OTHER
        return STEP if self.torch is not None and isinstance(value, self.torch.utils.data.DataLoader) else OTHER

    # --- expressions --------------------------------------------------------------------------------
    def kind(self, function, node, kinds, quiet):
        kind = lambda one: self.kind(function, one, kinds, quiet)
        if node is None or isinstance(node, (ast.Constant, ast.Lambda)):
            return OFF
        if isinstance(node, ast.Name):
            given = kinds.get(node.id)
            if given is not None:
                return given[0] if isinstance(given, tuple) else given
            return self.kind_of(self.program.value(function, node))
        if isinstance(node, ast.Attribute):
            given = kind(node.value)
            if given == STEP:
                return OFF if node.attr in ATTRIBUTES_OFF else STEP
            return given if given == OFF else self.kind_of(self.object(function, node, kinds))
        if isinstance(node, ast.Subscript):
            if any(isinstance(one, ast.Constant) and one.value is None for one in ast.walk(node.slice)):
                raise Unbounded
            kind(node.slice)
            return kind(node.value)
        if isinstance(node, ast.Slice):
            return worst(kind(node.lower), kind(node.upper), kind(node.step))
        if isinstance(node, ast.Call):
            return self.call(function, node, kinds, quiet)
        if isinstance(node, ast.BinOp):
            both = kind(node.left), kind(node.right)
            if STEP in both and (OTHER in both or isinstance(node.op, ast.MatMult)):
                raise Unbounded
            return worst(*both)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            return self.comprehension(function, node, dict(kinds), quiet)
        if isinstance(node, ast.Compare):
            return worst(kind(node.left), *(kind(one) for one in node.comparators))
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)):
            raise Unbounded
        return worst(OFF, *(kind(one) for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)),
                     *(kind(one.value) for one in ast.iter_child_nodes(node) if isinstance(one, ast.keyword)))

    def comprehension(self, function, node, kinds, quiet):
        batches = True
        for one in node.generators:
            iterated = self.element(function, one.iter, kinds, quiet)
            batches = batches and self.kind(function, one.iter, kinds, quiet) == STEP
            self.bind(one.target, iterated, kinds)
            for test in one.ifs:
                self.kind(function, test, kinds, quiet)
        inside = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        given = worst(*(self.kind(function, one, kinds, quiet) for one in inside))
        # The parts of one batch are a batch, wherever they are; of what is computed of each, all is there at once.
        calls = {values.called(one) for code in inside for one in ast.walk(code) if isinstance(one, ast.Call)}
        if given in (STEP, OTHER) and not (batches and calls <= MOVING) and not isinstance(node, ast.GeneratorExp):
            raise Unbounded
        return given

    def call(self, function, node, kinds, quiet):
        target, name = target_of(node), name_of(target_of(node))
        words = [(one.arg, one.value) for one in node.keywords]
        given = [self.kind(function, one, kinds, quiet) for one in [*node.args, *(value for _, value in words)]]
        most = worst(OFF, *given)
        value = self.object(function, target, kinds) if isinstance(target, ast.expr) else UNKNOWN
        if tells_to_evaluate(node) or name in MODES:
            return OFF
        if self.is_module(value):
            return self.through(value, most, quiet)
        if name in TAKEN_OFF and isinstance(target, ast.Attribute):
            self.kind(function, target.value, kinds, quiet)
            return OFF
        if isinstance(target, ast.Name):
            return self.call_of_name(function, node, target, given, most, kinds, quiet)
        if not isinstance(target, ast.Attribute):
            raise Unbounded
        if root_of(target) in ("torch", "nn", "F"):
            if name in SAME and most in (OFF, STEP) and (quiet or most == OFF):
                return most
            raise Unbounded
        owner = self.kind(function, target.value, kinds, quiet)
        if owner == STEP:
            if name in SAME and all(one in (OFF, STEP) or isinstance(arg, (ast.Name, ast.Attribute)) and name in ("to", "cuda")
                                    for one, arg in zip(given, [*node.args, *(one for _, one in words)])):
                return STEP
            raise Unbounded
        followed = self.program.called(function, node)
        if followed and owner != MODULE:
            receiver = [target.value] if any(one.owner for one in followed) else []
            return self.follow(followed, [*(OTHER for _ in receiver), *given], quiet, function, [*receiver, *node.args], words, kinds)
        if most == OFF and name in HARMLESS:
            return OFF
        if self.torch is None and getattr(target.value, "id", "") == "self" and most == STEP and quiet:
            # `self.model(x)`, where no objects are known.
            return STEP
        raise Unbounded

    def call_of_name(self, function, node, target, given, most, kinds, quiet):
        name = target.id
        if name in kinds or name in function.locals:
            value = self.object(function, target, kinds)
            if self.torch is None and most == STEP and quiet:
                # `model(x)`, where no objects are known.
                return STEP
            followed = self.program.called(function, node) if value is not UNKNOWN else ()
        else:
            followed = self.program.called(function, node)
        if followed:
            words = [(one.arg, one.value) for one in node.keywords]
            receiver = [ast.Constant(None)] if any(one.owner for one in followed) else []
            return self.follow(followed, [*(OTHER for _ in receiver), *given], quiet, function, [*receiver, *node.args], words, kinds)
        if name in NUMBERS:
            return OFF
        if name in ("max", "min", "sum", "abs", "sorted", "list", "tuple", *THROUGH):
            return most
        if name in SAME and most in (OFF, STEP):
            return most
        raise Unbounded

    def follow(self, functions, given, quiet, caller, arguments, words, kinds):
        """What the program's own functions give back, as they are called here: `given` are the kinds of the arguments and
        then of the words."""
        told = OFF
        for one in functions:
            if one in self.following or len(self.following) > 20:
                raise Unbounded
            bound = {name: OTHER for name in [*one.parameters, *one.keywords]}
            places = len(given) - len(words)
            bound.update(zip(one.parameters, given[:places]))
            bound.update({name: kind for (name, _), kind in zip(words, given[places:]) if name})
            # What is known of the objects that it is given.
            for name, node in [*zip(one.parameters, arguments), *words]:
                value = self.object(caller, node, kinds)
                if name in bound and value is not UNKNOWN and bound[name] not in (OFF, STEP):
                    bound[name] = (bound[name], value)
            self.following.append(one)
            try:
                back = self.run(one, one.node.body, bound, quiet or is_quiet_block(one.node))
            finally:
                self.following.pop()
            # An object of the program's own.
            told = worst(told, OTHER if one.name == "__init__" else back)
        return told

    # --- objects ------------------------------------------------------------------------------------
    def object(self, function, node, kinds):
        """What an expression stands for, parameters included where a call told them."""
        if isinstance(node, ast.Name) and isinstance(kinds.get(node.id), tuple):
            return kinds[node.id][1]
        if isinstance(node, ast.Name) and node.id in kinds:
            return UNKNOWN
        if isinstance(node, ast.Attribute):
            owner = self.object(function, node.value, kinds)
            return UNKNOWN if owner is UNKNOWN else attribute_of(owner, node.attr)
        return self.program.value(function, node)

    def kind_of(self, value):
        if value is None or isinstance(value, (int, float, str, bool)):
            return OFF
        if self.torch is not None and isinstance(value, (self.torch.device, self.torch.dtype)):
            return OFF
        return MODULE if self.is_module(value) else OTHER

    def is_module(self, value):
        return self.torch is not None and isinstance(value, self.torch.nn.Module)

    def through(self, module, most, quiet):
        """A module that was trained gives no more for what is no larger."""
        if most not in (OFF, STEP) or not quiet or not self.is_known(module):
            raise Unbounded
        return STEP

    def is_known(self, module):
        parameters = list(module.parameters())
        if not parameters:
            return type(module).__module__ == "torch.nn.modules.loss"
        if not any(one.grad is not None for one in parameters):
            return False
        own = {type(part).__name__: part for part in module.modules() if type(part).__name__ in self.program.classes}
        return all(self.is_watched(one, part) for name, part in own.items()
                   for one in self.program.methods(name) if one.name == "forward")

    def is_watched(self, forward, module):
        """Whether a forward pass ran, and what of it did not takes no more than a step; the evaluation may go there."""
        if not any(self.executed.ran(forward.path, one) for one in forward.node.body):
            return False
        if forward in self.following:
            return True
        left = unexecuted(self.executed, forward, forward.node.body)
        kinds = {name: STEP for name in forward.locals}
        kinds.update({name: (OTHER, module) for name in forward.parameters[:1]})
        self.following.append(forward)
        try:
            self.run(forward, left, kinds, True)
            return True
        except Unbounded:
            return False
        finally:
            self.following.pop()


def unexecuted(executed, function, statements):
    """The statements of a function of which no line ran, outermost."""
    found = []
    for node in statements:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if not executed.ran(function.path, node):
            found.append(node)
            continue
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None) or []
            test = getattr(node, "test", None)
            if test is not None and block and block[0].lineno <= test.end_lineno and not executed.is_branch_taken(function.path, block):
                found.extend(block)
            else:
                found.extend(unexecuted(executed, function, block))
    return found


def spelled(node):
    """A name or an attribute as it is written, whether it is read or set there."""
    return re.sub(r", ctx=\w+\(\)", "", ast.dump(node))


def worst(*kinds):
    order = (OFF, MODULE, STEP, OTHER)
    return max((one[0] if isinstance(one, tuple) else one for one in kinds), key=order.index, default=OFF)
