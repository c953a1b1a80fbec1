"""Phases, steps and evaluation without torch: a made-up time takes the place of the clock's."""

import json
import os
import pathlib
import struct
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock

import skips

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from sconce_probe.account import clock as clocks  # noqa: E402
from sconce_probe.account import Account, batch_facts, hooks, memory, oom, ring  # noqa: E402


class Steps(unittest.TestCase):
    def setUp(self):
        self.now = 1000
        self.before = clocks.monotonic_ns
        clocks.monotonic_ns = lambda: self.now
        self.steps = []
        self.until = [0] * 6
        self.clock = clocks.Clock(self.ended)

    def tearDown(self):
        clocks.monotonic_ns = self.before

    def ended(self, at, until):
        self.steps.append((at, [now - then for now, then in zip(until, self.until)]))
        self.until = until

    def takes(self, ns, begin, *arguments):
        before = begin(*arguments)
        self.now += ns
        self.clock.leave(before)

    def data(self, ns=10):
        self.takes(ns, self.clock.batch_begins)

    def forward(self, ns=20, with_grad=True, whole=True):
        self.takes(ns, self.clock.forward_begins, with_grad, whole)

    def backward(self, ns=30):
        self.takes(ns, self.clock.backward_begins)

    def optimizer(self, ns=5, key=1):
        self.clock.optimizer_begins(key)
        self.now += ns
        self.clock.optimizer_ends(key)

    def test_phases_sum_to_the_step(self):
        for _ in range(3):
            self.data()
            self.now += 1
            self.forward()
            self.backward()
            self.optimizer()
            self.now += 2
        self.data()
        self.assertEqual([spent for _, spent in self.steps], [[10, 0, 20, 30, 5, 1], [10, 0, 20, 30, 5, 3]] + [[10, 0, 20, 30, 5, 3]])
        ends = [at for at, _ in self.steps]
        self.assertEqual(ends[2] - ends[0], sum(map(sum, (spent for _, spent in self.steps[1:]))))

    def test_accumulated_batches_are_one_step(self):
        for _ in range(2):
            for _ in range(4):
                self.data()
                self.forward()
                self.backward()
            self.optimizer()
        self.data()
        self.assertEqual([spent[:5] for _, spent in self.steps], [[40, 0, 80, 120, 5]] * 2)

    def test_two_optimizers_of_one_batch_are_one_step(self):
        for _ in range(3):
            self.data()
            for key in (1, 2):
                self.forward()
                self.backward()
                self.optimizer(key=key)
        self.data()
        self.assertEqual([spent[4] for _, spent in self.steps], [10, 10, 10])

    def test_two_optimizers_without_a_loader_are_one_step(self):
        self.clock.made = 2
        for _ in range(3):
            for key in (1, 2):
                self.forward()
                self.backward()
                self.optimizer(key=key)
        self.clock.end_step()
        self.assertEqual([spent[4] for _, spent in self.steps], [10, 10, 10])

    def test_several_steps_on_one_batch_of_a_loader(self):
        self.data()
        for _ in range(3):
            self.forward()
            self.backward()
            self.optimizer()
        self.data()
        self.assertEqual([spent for _, spent in self.steps], [[10, 0, 20, 30, 5, 0]] + [[0, 0, 20, 30, 5, 0]] * 2)

    def test_an_optimizer_that_calls_a_closure(self):
        self.data()
        self.clock.optimizer_begins(1)
        self.now += 1
        self.assertFalse(self.clock.closed)
        self.forward()
        self.backward()
        self.now += 1
        self.clock.optimizer_ends(1)
        self.data()
        self.assertEqual([spent for _, spent in self.steps], [[10, 0, 20, 30, 2, 0]])

    def test_optimizers_inside_each_other_are_one(self):
        self.data()
        self.clock.optimizer_begins(1)
        self.optimizer(key=2)
        self.clock.optimizer_ends(1)
        self.data()
        self.assertEqual([spent[4] for _, spent in self.steps], [5])

    def test_a_step_that_ended_by_an_error(self):
        self.data()
        self.clock.optimizer_begins(1)
        self.now += 7
        self.data()
        self.forward()
        self.optimizer()
        self.data()
        self.assertEqual([spent for _, spent in self.steps], [[20, 0, 20, 0, 12, 0]])

    def test_what_trains_nothing_is_evaluation(self):
        self.data()
        self.forward()
        self.backward()
        self.optimizer()
        for _ in range(3):
            self.data()
            self.forward(with_grad=False)
            self.now += 4
        self.data(ns=1)
        self.forward()
        self.optimizer()
        self.data()
        self.assertEqual((self.clock.evaluated, self.clock.evaluation_ns), (3, 3 * 34))
        self.assertEqual([sum(spent) for _, spent in self.steps], [65, 26])

    def test_a_batch_that_is_looked_at_without_gradients_and_then_trains(self):
        self.data()
        self.forward(with_grad=False)
        self.forward()
        self.backward()
        self.optimizer()
        self.data()
        self.assertEqual(self.clock.evaluated, 0)
        self.assertEqual(self.steps[0][1][2], 40)

    def test_without_a_loader(self):
        for _ in range(2):
            self.forward()
            self.backward()
            self.optimizer()
        for _ in range(3):
            self.forward(with_grad=False)
            self.forward(ns=1, with_grad=False, whole=False)
        self.forward(with_grad=False)
        self.assertEqual(len(self.steps), 2)
        self.assertEqual((self.clock.evaluated, self.clock.evaluation_ns), (3, 63))

    def test_nothing_is_measured_inside(self):
        before = self.clock.enter(clocks.FORWARD)
        self.assertTrue(self.clock.closed)
        self.clock.leave(before)
        self.assertFalse(self.clock.closed)
        self.clock.stop()
        self.clock.leave(self.clock.enter(clocks.FORWARD))
        self.assertTrue(self.clock.closed)


class Loaders(unittest.TestCase):
    """What was asked of a loader for training, and what for validation."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.account = Account(TORCH, folder.name)
        self.folder = pathlib.Path(folder.name)

    def batch(self, ready):
        queue = types.SimpleNamespace(qsize=lambda: ready)
        before = self.account.batch_begins(types.SimpleNamespace(_data_queue=queue) if ready is not None else object())
        self.account.clock.leave(before)
        self.account.batch_ends([Tensor(4, 2)])

    def passes(self, with_grad):
        self.account.clock.leave(self.account.clock.forward_begins(with_grad, True))

    def step(self):
        self.passes(True)
        self.account.optimizer_begins(self)
        self.account.optimizer_ends(self)

    def loader(self):
        account = self.account
        return account.batches, account.empty if account.waits else None, account.ready

    def test_batches_of_a_validation_are_not_among_those_of_training(self):
        for ready in (0, 2, 3):
            self.batch(ready)
            self.step()
        for _ in range(5):
            self.batch(0)
            self.passes(False)
        self.batch(1)
        self.assertEqual(self.loader(), (3, 1, 3))
        self.step()
        self.account.end()
        self.assertEqual(self.loader(), (4, 1, 1))
        self.assertEqual((self.account.clock.evaluated, self.account.samples), (5, 16))

    def test_a_trainer_that_asks_for_a_batch_ahead(self):
        for _ in range(2):
            self.batch(0)
            for _ in range(3):
                self.batch(2)
                self.step()
            self.step()
            self.batch(0)
            for _ in range(4):
                self.batch(0)
                self.passes(False)
            self.passes(False)
        self.account.end()
        self.assertEqual(self.loader(), (8, 2, 2))

    def test_a_loader_that_is_only_looped_over(self):
        for _ in range(3):
            self.batch(0)
        self.account.end()
        self.assertEqual(self.loader(), (3, 3, 0))

    def test_a_validation_with_workers_says_nothing_of_training_without_any(self):
        self.batch(None)
        self.step()
        self.batch(0)
        self.passes(False)
        self.account.end()
        self.assertEqual(self.loader(), (1, None, None))

    def told(self):
        """The figures, and the entries of steps."""
        whole = next(self.folder.glob("*.ring")).read_bytes()
        (count,) = struct.unpack_from("<Q", whole, ring.TOLD_AT)
        figures = struct.unpack_from("<41Q", whole, ring.FIGURES_AT[count & 1])
        return figures, [struct.unpack_from("<9Q", whole, ring.STEPS_AT + 72 * step) for step in range(figures[0])]

    def test_what_is_told_of_each_step_and_of_all(self):
        with unittest.mock.patch.dict(os.environ, {"RANK": "3", "WORLD_SIZE": "4"}):
            for _ in range(3):
                self.batch(None)
                self.step()
            for _ in range(2):
                self.batch(None)
                self.passes(False)
            self.batch(None)
            self.step()
            self.batch(None)
        figures, steps = self.told()
        self.assertEqual(figures[0], 4)
        self.assertEqual([step[0] for step in steps], [1, 2, 3, 4])
        # What was evaluated is part of no step.
        self.assertEqual(sum(step[2] for step in steps), figures[2])
        self.assertEqual(sum(step[3] for step in steps), figures[3])
        self.assertLessEqual(sum(figures[3:8]), figures[2])
        self.assertEqual(figures[8], 2)
        self.assertEqual(figures[10:12], (16, ring.NONE))
        # No card, the rank, the resident set, nothing of FSDP's.
        self.assertEqual(figures[22:35], (*12 * (ring.NONE,), 3))
        resident = [step[4] for step in steps if step[4] != ring.NONE]
        self.assertEqual((figures[35], figures[36:]), (resident[-1], 5 * (ring.NONE,)))
        self.assertGreater(figures[35], 1 << 20)

    def test_a_look_at_what_is_kept_is_part_of_no_step_and_takes_nothing_from_one(self):
        now, before = 1000, clocks.monotonic_ns

        def look(*_):
            nonlocal now
            now += 100
            return False

        def passes(ns):
            nonlocal now
            begun = self.account.clock.forward_begins(True, True)
            now += ns
            self.account.clock.leave(begun)

        self.account.more = True
        self.account.kept = types.SimpleNamespace(is_due=lambda steps: True, step_ends=look, told=None)
        accounts = sys.modules[Account.__module__]
        clocks.monotonic_ns = accounts.monotonic_ns = lambda: now
        try:
            for _ in range(3):
                passes(5)
                self.account.optimizer_begins(self)
                now += 2
                self.account.optimizer_ends(self)
                now += 7
        finally:
            clocks.monotonic_ns = accounts.monotonic_ns = before
        self.assertEqual([step[2] for step in self.told()[1]], [7, 14])
    def shaped(self, *sizes):
        """Whether shapes count as fixed after steps with batches of so many samples, two numbers each."""
        for size in sizes:
            self.batch(None)
            self.account.look([Tensor(*size) if isinstance(size, tuple) else Tensor(size, 2)])
            self.step()
        self.account.end()
        return self.account.fixed

    def test_the_last_batch_of_an_epoch_is_no_other_shape(self):
        self.assertIs(self.shaped(*(2 * [*(10 * [4]), 3])), True)

    def test_batches_that_are_often_shorter_are_of_other_shapes(self):
        self.assertIs(self.shaped(*(4 * [4, 4, 4, 3])), False)

    def test_longer_batches_are_of_other_shapes(self):
        self.assertIs(self.shaped(*(20 * [4]), 5), False)

    def test_samples_of_another_size_are_of_other_shapes(self):
        self.assertIs(self.shaped(*(20 * [(4, 2)]), (4, 3)), False)

    def test_a_batch_that_is_cut_after_its_loader_is_of_other_shapes(self):
        # Pictures that are scaled to another size now and then: the loader's batches are all the same.
        for size in (8, 8, 8):
            self.account.inputs_seen(1, (Tensor(4, size),))
            self.account.inputs_seen(2, (Tensor(4, 10), Tensor(4)))
        self.account.inputs_seen(1, (Tensor(3, 8),))
        self.assertIsNone(self.account.fixed)
        self.account.inputs_seen(1, (Tensor(4, 6),))
        self.assertIs(self.account.fixed, False)

    def test_a_cell_that_ends_begins_anew(self):
        from sconce_probe.account.cells import Cells

        watcher = types.SimpleNamespace(clock=self.account.clock)
        cells = Cells(self.account, watcher, types.SimpleNamespace())
        self.batch(None)
        self.step()
        before = self.account.memory
        cells.end(self.account)
        self.assertEqual(self.account.steps, 0)
        self.assertIs(self.account.cells, cells)
        self.assertIs(watcher.clock, self.account.clock)
        self.assertIsNot(self.account.memory, before)

    def test_a_setup_that_changes_without_end_is_told_sixteen_times(self):
        self.batch(None)
        self.step()
        told = []
        for name in range(40):
            self.account.fixed = name
            self.account.tell_setup()
            told.append(json.loads(next(self.folder.glob("*.setup.json")).read_text())["fixed-shapes"])
        self.assertEqual(told, list(range(15)) + [14] * 25)
        self.account.fixed = 99
        for _ in range(2):
            self.account.tell_setup(last=True)
        self.assertEqual(json.loads(next(self.folder.glob("*.setup.json")).read_text())["fixed-shapes"], 99)
        self.assertEqual(self.account.setups, 16)


class Copies(unittest.TestCase):
    def test_what_sends_a_batch_is_a_copy_once_a_card_is_in_use(self):
        clock, card = clocks.Clock(lambda *_: None), [False]
        account = types.SimpleNamespace(clock=clock, thread=threading.get_ident(), raised=lambda error: None)
        torch = types.SimpleNamespace(cuda=types.SimpleNamespace(is_initialized=lambda: card[0]))

        def send(batch, device, fails=False):
            if fails:
                raise ValueError(batch)
            return clock.phase, batch, device

        module = types.SimpleNamespace(send_to_device=send)
        # It has variables of the function around it: it is watched by another function.
        watcher = hooks.Watcher(torch, account)
        hooks.of_sender(module, "no_such_name", watcher)
        hooks.of_sender(module, "send_to_device", watcher)
        self.assertEqual(module.send_to_device(5, device="card"), (clocks.OTHER, 5, "card"))
        card[0] = True
        self.assertEqual(module.send_to_device(5, device="card"), (clocks.COPY, 5, "card"))
        with self.assertRaises(ValueError):
            module.send_to_device(5, "card", fails=True)
        self.assertEqual(clock.phase, clocks.OTHER)
        # Inside a pass it is part of the pass.
        before = clock.backward_begins()
        self.assertEqual(module.send_to_device(5, "card")[0], clocks.BACKWARD)
        clock.leave(before)


class File(unittest.TestCase):
    def test_figures_are_where_the_reader_looks(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "7-1.ring")
            made = ring.Ring(path, 7, 1, 99)
            made.live[0] = 3
            seldom = [ring.NONE] * 25
            for number, step in ((41, (1, 5, 6)), (42, (ring.ENTRIES + 1, 7, 8)), (43, None)):
                made.tell([number] + [ring.NONE] * 14, step and step + 5 * (ring.NONE,) + (9,))
                made.keep(number, *seldom)
            with open(path, "rb") as file:
                whole = file.read()
            self.assertEqual(len(whole), ring.SIZE)
            self.assertEqual(struct.unpack_from("<8s4I8xQQB", whole), (b"SCONCEAC", 2, 2048, 7, 1, 99, 3, 3))
            # What is kept is told with the figures that come after it.
            self.assertEqual(struct.unpack_from("<41Q", whole, 1536), (43, *14 * [ring.NONE], 42, *seldom))
            self.assertEqual(struct.unpack_from("<16Q", whole, 1024), (42, *14 * [ring.NONE], 41))
            self.assertEqual(struct.unpack_from("<9Q", whole, 4096), (2049, 7, 8, *5 * (ring.NONE,), 9))
            self.assertEqual(os.listdir(folder), ["7-1.ring"])


class Tensor:
    def __init__(self, *shape, dtype="float32"):
        self.shape, self.dtype = shape, dtype


TORCH = types.SimpleNamespace(
    Tensor=Tensor,
    int64="int64",
    int32="int32",
    __version__="2.99.0",
    OutOfMemoryError=MemoryError,
    cuda=types.SimpleNamespace(is_initialized=lambda: False),
    backends=types.SimpleNamespace(cudnn=types.SimpleNamespace(benchmark=False)),
)


class Batches(unittest.TestCase):
    def test_samples_and_tokens(self):
        look = lambda batch: batch_facts.batch(TORCH, batch)[:2]
        self.assertEqual(look([Tensor(8, 3, 4), Tensor(8)]), (8, None))
        self.assertEqual(look({"mask": Tensor(4, 9, dtype="int64"), "input_ids": Tensor(4, 7, dtype="int64")}), (4, 28))
        self.assertEqual(look([Tensor(8), Tensor(4)]), (None, None))
        self.assertEqual(look("no batch"), (None, None))
        self.assertEqual(look([[Tensor(2, 5)], {"a": Tensor()}]), (2, None))


class Memory(unittest.TestCase):
    def test_sizes_in_pytorchs_text(self):
        text = (
            "CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 23.50 GiB of"
            " which 177.00 MiB is free."
        )
        self.assertEqual(
            oom.of_text(text), {"asked": 256 << 20, "total": int(23.5 * (1 << 30)), "free": 177 << 20}
        )
        self.assertEqual(oom.of_text("something else"), {})

    def test_a_stack_goes_on_with_the_thread_that_called(self):
        def inside():
            return sys._getframe()

        own = oom.stack(inside(), None, sys._getframe())
        names = [frame.rsplit(" ", 1)[1] for frame in own]
        self.assertEqual(names[:2], ["inside", "test_a_stack_goes_on_with_the_thread_that_called"])
        self.assertEqual(names.count(names[1]), 2)
        self.assertLessEqual(len(own), oom.STACK)

    def test_a_snapshot_has_an_end(self):
        with tempfile.TemporaryFile() as file:
            bounded = oom.Bounded(file)
            bounded.left = 3
            bounded.write(b"abc")
            with self.assertRaises(ValueError):
                bounded.write(b"d")

    def test_a_batch_that_was_looked_at_is_not_kept(self):
        import gc
        import types
        import weakref

        from sconce_probe.account import batch_facts

        class Tensor:
            shape, dtype = (2, 3), "int64"

        torch = types.SimpleNamespace(Tensor=Tensor, int64="int64", int32="int32")
        gc.disable()
        try:
            one = Tensor()
            gone = weakref.ref(one)
            self.assertEqual(batch_facts.batch(torch, {"input_ids": [one]})[:2], (2, 6))
            del one
            self.assertIsNone(gone())
        finally:
            gc.enable()

    def test_readings_are_as_seldom_as_they_are_dear(self):
        asked = []
        seldom = memory.Seldom(lambda: asked.append(1) or 5)
        self.assertEqual(seldom.latest(0), 5)
        self.assertIsNone(seldom.latest(seldom.due - 1))
        self.assertEqual(len(asked), 1)

    def test_a_reading_beside_another_one_is_taken_whatever_it_costs(self):
        asked = []
        seldom = memory.Seldom(lambda: asked.append(1) or 5)
        seldom.latest(0)
        self.assertEqual(seldom.latest(seldom.due - 1, True), 5)
        # It is due again by its cost, from then on.
        self.assertIsNone(seldom.latest(seldom.due - 1))
        self.assertEqual(len(asked), 2)

    def readings(self, steps, step_ns, cost_of, times=1):
        """The steps in which a reading was taken; `cost_of` gives the cost of each reading in its turn."""
        now, taken, before = 0, [], memory.monotonic_ns

        def read():
            nonlocal now
            now += cost_of(len(taken))
            return 1

        memory.monotonic_ns = lambda: now
        try:
            seldom = memory.Seldom(read, times)
            for step in range(steps):
                if seldom.latest(now) is not None:
                    taken.append(step)
                now += step_ns
        finally:
            memory.monotonic_ns = before
        return taken

    def test_a_reading_that_was_interrupted_silences_nothing(self):
        # 20 ms in place of 2 us: by its cost alone the next reading would be 8 s later.
        taken = self.readings(350, 40_000_000, lambda reading: 20_000_000 if reading in (0, 18) else 2_000)
        self.assertEqual(taken[-1], 349)
        # Before it is known what one costs, the pause has an end; afterwards there is none.
        self.assertEqual(taken[1], memory.LEAST)
        self.assertEqual(taken[1:], list(range(taken[1], 350)))

    def test_dear_readings_are_taken_still(self):
        # However long steps are: every other one, and later a hundredth of them.
        for step_ns in (40_000_000, 1_000_000):
            taken = self.readings(1000, step_ns, lambda _: 5_000_000)
            apart = [(a, b - a) for a, b in zip(taken, taken[1:])]
            self.assertEqual({pause for step, pause in apart if step < 297}, {2})
            self.assertEqual({pause for step, pause in apart if 500 <= step < 590}, {5})
            self.assertEqual(apart[-1][1], 9)

    def test_however_many_steps_there_are_growth_has_its_readings(self):
        # As growth.rs asks: 96 values after the first fifth, in 18 of 24 blocks at least.
        taken = self.readings(50_000, 200_000, lambda _: 5_000_000)
        for steps in (400, 700, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000, 50_000):
            values = [step for step in taken if steps / 5 <= step < steps]
            blocks = {int((step - steps / 5) / (0.8 * steps) * 24) for step in values}
            self.assertGreaterEqual(len(values), 120, steps)
            self.assertEqual(len(blocks), 24, steps)
        # And no more than that.
        self.assertLess(len(taken), 1_000)

    def test_what_malloc_gave_out_grows_with_what_is_kept(self):
        process = memory.Process()
        self.addCleanup(process.close)
        if process.heap is None:
            skips.skip(self, "mallinfo2", "a C library without mallinfo2")
        (resident, before), size = process(), 64 * 1024
        kept = [bytearray(size) for _ in range(100)]
        self.assertGreater(resident, 1 << 20)
        self.assertTrue(100 * size <= process()[1] - before < 110 * size)
        kept.clear()
        self.assertLess(process()[1] - before, 10 * size)

    def test_a_heap_that_takes_long_to_walk_over_is_left_alone(self):
        process = memory.Process()
        self.addCleanup(process.close)
        now, before = 0, memory.monotonic_ns

        def slow():
            nonlocal now
            now += costs.pop(0)
            return types.SimpleNamespace(uordblks=5, hblkhd=6)

        process.heap, memory.monotonic_ns = slow, lambda: now
        try:
            # One that was interrupted is no reason.
            costs = [memory.SLOW + 1] * 7 + [20_000] + [memory.SLOW + 1] * 8
            told = [process()[1] for _ in range(18)]
        finally:
            memory.monotonic_ns = before
        self.assertEqual(told, 16 * [11] + 2 * [memory.NONE])

    def test_a_leak_has_its_readings_within_300_steps_whatever_they_cost(self):
        # As growth.rs asks: 96 values after the first fifth. A busy machine makes each reading dear.
        for cost in (2_000, 60_000, 5_000_000, 200_000_000):
            for step_ns in (200_000, 3_000_000, 100_000_000):
                taken = self.readings(300, step_ns, lambda _, cost=cost: cost)
                self.assertGreaterEqual(len([step for step in taken if step >= 60]), 96, (cost, step_ns))

    def test_cheap_readings_of_short_steps_stay_seldom(self):
        # 2 us each are due again 0.8 ms later.
        taken = self.readings(1000, 100_000, lambda _: 2_000)
        self.assertEqual({b - a for a, b in zip(taken, taken[1:]) if b > 800}, {8})

    def test_readings_that_slow_what_comes_after_them_are_rarer(self):
        # 5 us each: due again 2 ms later, or five times that.
        for times, every in ((1, 2), (5, 6)):
            taken = self.readings(1000, 1_800_000, lambda _: 5_000, times=times)
            self.assertEqual({b - a for a, b in zip(taken, taken[1:]) if b > 700}, {every})


if __name__ == "__main__":
    unittest.main()
