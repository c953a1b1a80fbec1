"""What a program does after its last watched step, told from its syntax."""

import ast
import pathlib
import sys
import tempfile
import textwrap
import types
import unittest

PROBE = pathlib.Path(__file__).parent.parent


class Later(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, str(PROBE))
        from sconce_probe import evaluation, executed, remaining_code, program, unreached

        self.later, self.program, self.unreached = remaining_code, program, unreached
        self.executed, self.evaluation = executed, evaluation

    def tearDown(self):
        sys.path.remove(str(PROBE))

    def lines(self, text, reached=(), stack=(), ran=()):
        """The lines that are said to evaluate later, and whether what they begin needs no more than a step."""
        tree = ast.parse(textwrap.dedent(text).lstrip("\n"))
        known = self.executed.Executed(None, lambda path: False)
        known.lines = {("a.py", line) for line in [*ran, *(line for _, line in stack)]}
        whole = self.program.Program({"a.py": tree}, [("a.py", first, line) for first, line in stack])
        found = self.unreached.Unreached(whole, known, reached={("a.py", line) for line in reached})
        judge = self.evaluation.Evaluation(whole, known)
        told = [(node.lineno, self.later.is_bounded(found, judge, function, node)) for function, node in found.found()]
        return sorted(told)

    FUNCTION = """
        def validate(model, loader):
            model.eval()
            with torch.no_grad():
                for x in loader:
                    losses.append(model(x).item())
        def main():
            for x in training:
                step(x)
            validate(model, validation)
        main()
    """

    def test_an_evaluation_that_comes_is_found(self):
        at = [(0, 10), (6, 8)]
        self.assertEqual(self.lines(self.FUNCTION, stack=at), [(2, True)])
        self.assertEqual(self.lines(self.FUNCTION, reached=[2], ran=[2, 3, 4, 5, 9], stack=at), [])
        keeping = self.FUNCTION.replace(".item()", "")
        self.assertEqual(self.lines(keeping, stack=at), [(2, False)])
        with_gradients = self.FUNCTION.replace("torch.no_grad()", "timer")
        self.assertEqual(self.lines(with_gradients, stack=at), [(2, False)])
        decorated = self.FUNCTION.replace("torch.no_grad()", "timer").replace("def validate", "@torch.inference_mode()\n        def validate")
        self.assertEqual(self.lines(decorated, stack=[(0, 11), (7, 9)]), [(3, True)])

    def test_an_evaluation_without_gradients_alone_is_found(self):
        at = [(0, 10), (6, 8)]
        silent = self.FUNCTION.replace("model.eval()", "pass")
        self.assertEqual(self.lines(silent, stack=at), [(9, True)])
        self.assertEqual(self.lines(silent.replace(".item()", ""), stack=at), [(9, False)])
        # With gradients it takes what nobody watched, and one that evaluates by itself is told once.
        self.assertEqual(self.lines(silent.replace("torch.no_grad()", "timer"), stack=at), [(9, False)])
        self.assertEqual(self.lines(self.FUNCTION, stack=at), [(2, True)])

    def test_a_loader_of_larger_batches_comes_by_itself(self):
        later = self.later.Later(None, lambda path: False)
        later.given = {1: {"batch-size": 32, "batches": 3, "shapes": []}}
        later.stack = [("/w/b.py", 3, 7), ("/w/a.py", 0, 9)]
        loaders = [{"batch_size": 32}, {"batch_size": None}]
        later.loaders = lambda: loaders
        self.assertEqual(later.larger_loaders(), [])
        loaders.append({"batch_size": 256})
        told = later.larger_loaders()
        self.assertEqual([(one["file"], one["line"], one["bounded"]) for one in told], [("/w/a.py", 9, False)])
        self.assertIn("256", told[0]["code"])
        # Training without a loader, or with batches of which no size is known, is no reason to take it for a small one.
        for given in ({}, {1: {"batch-size": None, "batches": 3, "shapes": []}}):
            later.given = given
            self.assertEqual([one["line"] for one in later.larger_loaders()], [9])
        loaders.clear()
        self.assertEqual(later.larger_loaders(), [])

    def test_what_cannot_be_looked_through_is_not_known(self):
        later = self.later.Later(None, lambda path: False)
        later.stack = [("/w/a.py", 0, 9)]
        later.evaluations = lambda: 1 / 0
        told = later.seen()["later"]
        self.assertEqual([(one["file"], one["line"], one["bounded"]) for one in told], [("/w/a.py", 9, False)])

    def test_what_nobody_calls_does_not_come(self):
        nobody = self.FUNCTION.replace("            validate(model, validation)\n", "")
        self.assertEqual(self.lines(nobody, stack=[(0, 9), (6, 8)]), [])
        # The same called by a function that is not called either.
        chain = nobody.replace("main()\n    ", "main()\n        def other(): validate(1, 2)\n    ")
        self.assertEqual(self.lines(chain, stack=[(0, 9), (6, 8)]), [])

    def test_what_was_passed_by_does_not_come(self):
        text = """
            if only_evaluate:
                model.eval()
                sys.exit()
            for epoch in range(3):
                for x in loader:
                    step(x)
                model.eval()
                check()
        """
        self.assertEqual(self.lines(text, stack=[(0, 6)]), [(7, False)])
        looped = """
            for epoch in range(3):
                if epoch:
                    model.eval()
                step()
        """
        self.assertEqual(self.lines(looped, stack=[(0, 4)]), [(3, False)])

    def test_trainers_of_others_evaluate(self):
        self.assertEqual(self.lines("trainer.fit(m)\ntrainer.validate(m)\nMetric.evaluate(1)", stack=[(0, 1)]), [(2, False)])
        module = """
            class Model(Module):
                def training_step(self, x): return 1
                def validation_step(self, x): return 2
            fit(Model())
        """
        self.assertEqual(self.lines(module, stack=[(0, 4)]), [])
        later = self.later.Later(None, lambda path: False)
        whole = self.program.Program({"a.py": ast.parse(textwrap.dedent(module).lstrip())}, [("a.py", 0, 4)])
        self.assertEqual([told["line"] for told in later.validations(whole)], [3])
        # Something else was told to evaluate, such as a frozen network; then Lightning's own loop was.
        later.evaluators.add("/w/a.py")
        self.assertEqual(len(later.validations(whole)), 1)
        later.evaluators.add("/x/site-packages/lightning/pytorch/core/hooks.py")
        self.assertEqual(later.validations(whole), [])
        self.assertEqual(self.lines("trainer.fit(m)\ntrainer.test(m)\nre.test(m)", stack=[(0, 1)]), [(2, False)])

    def test_train_of_false_is_an_evaluation(self):
        for told in ("False", "mode=False"):
            text = self.FUNCTION.replace("eval()", "train(%s)" % told)
            self.assertEqual(self.lines(text, stack=[(0, 10), (6, 8)]), [(2, True)])
        for told in ("", "True", "mode=True"):
            text = self.FUNCTION.replace("eval()", "train(%s)" % told).replace("no_grad", "timer")
            # That is no evaluation, but what follows is code that nobody watched.
            self.assertEqual(self.lines(text, stack=[(0, 10), (6, 8)]), [(9, False)])

    def test_what_stays_on_the_card_is_kept(self):
        at = [(0, 10), (6, 8)]
        for line in ("kept.append(model(x).float())", "kept.append(model(x).max(1)[1])", "kept = [model(y) for y in x]",
                     "kept += [model(x)]", "kept[i] = model(x)", "kept = {k: model(v) for k, v in x}",
                     "kept.append(out)"):
            text = self.FUNCTION.replace("losses.append(model(x).item())", line)
            self.assertEqual(self.lines(text, stack=at), [(2, False)], line)
        for line in ("total += model(x)", "kept.append(float(model(x)))", "kept += [model(x).cpu()]", "kept[i] = model(x).item()",
                     "x = [y.to(device) for y in x]", "x = {k: v.cuda() for k, v in x.items()}", "n[i] = 3"):
            text = self.FUNCTION.replace("losses.append(model(x).item())", line)
            self.assertEqual(self.lines(text, stack=at), [(2, True)], line)

    def test_trainers_of_transformers_evaluate_in_their_own_file(self):
        class Trainer:
            pass
        file = "/x/site-packages/transformers/trainer.py"
        sys.modules["transformers.trainer"] = types.SimpleNamespace(Trainer=Trainer, __file__=file)
        self.addCleanup(sys.modules.pop, "transformers.trainer")
        one = Trainer()
        one.args, one.eval_dataset = types.SimpleNamespace(eval_strategy="epoch"), [1]
        later = self.later.Later(None, lambda path: False)
        # As `from_pretrained` does.
        later.evaluators.add("/x/site-packages/transformers/modeling_utils.py")
        later.evaluated.add(("/x/site-packages/transformers/modeling_utils.py", 3))
        self.assertEqual([told["file"] for told in later.trainers()], [file])
        later.evaluators.add(file)
        self.assertEqual(later.trainers(), [])

    def test_a_number_of_a_sample_is_a_tensor_of_a_batch(self):
        torch = types.SimpleNamespace(Tensor=type("Tensor", (), {}))
        image, labels = torch.Tensor(), torch.Tensor()
        image.shape, labels.shape = (3, 8, 8), (4,)
        shapes = []
        self.later.shapes_of(torch, (image, 5), shapes, 4)
        self.assertEqual(shapes, [[3, 8, 8], []])

    def test_hostile_files_say_nothing(self):
        for text in ("", "eval('1')", "x.eval", "model.eval(1)", "lambda: 0"):
            self.assertEqual(self.lines(text), [])


if __name__ == "__main__":
    unittest.main()
