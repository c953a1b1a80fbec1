"""Plans of ranks without torch: which module is divided, and what optimizers are given. What real PyTorch makes of
it is in scripts/test.d/ranks."""

import os
import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from sconce_probe import plans, work  # noqa: E402
from sconce_probe.plans import sharding  # noqa: E402


class Parameter:
    grad_fn = None


class Module:
    """As much of torch's as is asked for."""

    def __init__(self, own=(), **children):
        self._parameters = dict(enumerate(own))
        self._modules = children

    def children(self):
        return list(self._modules.values())

    def modules(self):
        return [self, *(one for child in self.children() for one in child.modules())]

    def parameters(self):
        return iter([one for module in self.modules() for one in module._parameters.values() if one is not None])


class ModuleList(Module):
    pass


def applied():
    os.environ["SCONCE_FIT"] = "/nowhere"
    try:
        return plans.Applied("zero3")
    finally:
        del os.environ["SCONCE_FIT"]


class Sharding(unittest.TestCase):
    def test_the_outermost_module_with_the_parameters_is_found(self):
        weight, other = Parameter(), Parameter()
        model = Module(block=Module([weight]), head=Module([other]))
        trainer = Module(model=model, loss=Module())
        self.assertEqual(sharding.found(Module, [weight]), [model])
        self.assertIs(sharding.innermost(trainer), model)
        # What is no module that is called stays where it is.
        listed = Module(blocks=ModuleList(a=Module([weight])))
        self.assertIs(sharding.innermost(listed), listed)

    def test_parameters_of_no_module_are_told(self):
        model = Module([Parameter()])
        with self.assertRaisesRegex(sharding.Problem, "in no module"):
            sharding.found(Module, [*model.parameters(), Parameter()])

    def test_blocks_that_share_weights_stay_with_the_root(self):
        tied = Parameter()
        blocks = [Module([Parameter()]), Module([tied]), Module(a=Module([Parameter()]))]
        root = Module(a=blocks[0], b=blocks[1], c=blocks[2], head=Module([tied]))
        self.assertEqual(sharding.alone(blocks, root), [blocks[0], blocks[2]])

    def test_groups_are_replaced_and_the_scripts_own_are_left(self):
        one, other, new = Parameter(), Parameter(), Parameter()
        to = sharding.Sharding(None, "zero3", applied())
        to.instead[id(one)] = (one, new)
        theirs = [{"params": [one, other], "lr": 1}, {"params": one}]
        groups = sharding.grouped(theirs)
        to.replace(groups)
        self.assertEqual(groups, [{"params": [new, other], "lr": 1}, {"params": [new]}])
        self.assertEqual(theirs[0]["params"], [one, other])
        named = sharding.grouped([("w", one)])
        to.replace(named)
        self.assertEqual(named, [{"params": [("w", new)]}])
        self.assertEqual(sharding.members(named), [new])

    def test_what_cannot_be_applied_is_told_once(self):
        done = applied()
        os.environ["SCONCE_FIT"] = "/nowhere"
        self.addCleanup(os.environ.pop, "SCONCE_FIT")
        os.environ.pop("WORLD_SIZE", None)
        sharding.begin(None, {"zero3": None}, done)
        sharding.begin(None, {"zero1": None, "zero3": None}, done)
        sharding.begin(None, {"8-bit": None, "zero2": None}, done)
        told = {name: why for name, why in done.problems}
        self.assertEqual(told["zero3"], "there is one rank")
        self.assertIn("exclude", told["zero1+zero3"])
        self.assertIn("bitsandbytes", told["zero2"])
        to = sharding.Sharding(None, "zero3", done)
        to.tell()
        self.assertEqual(len(done.problems), 3)

    def test_the_ranks_of_an_exchange(self):
        class Script:
            def __init__(self, ranks):
                self.ranks = ranks

        def unbox(one):
            if one.ranks is None:
                raise TypeError("not a group")
            return one

        group = types.SimpleNamespace(unbox=unbox)
        dist = types.SimpleNamespace(ProcessGroup=group, get_process_group_ranks=lambda one: one.ranks, get_world_size=lambda: 4)
        torch = types.SimpleNamespace(ScriptObject=Script, distributed=dist)
        self.assertEqual(work.members_of(torch, [1, Script(None), Script([0, 8])]), [0, 8])
        self.assertEqual(list(work.members_of(torch, [])), [0, 1, 2, 3])


if __name__ == "__main__":
    unittest.main()
