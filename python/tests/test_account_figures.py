"""Exchange of FSDP and operations of a step without torch: stand-ins take the place of its functions."""

import dataclasses
import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from sconce_probe.account import clock as clocks  # noqa: E402
from sconce_probe.account import batch_facts, hooks, operations, sharded  # noqa: E402
from sconce_probe.account.ring import NONE  # noqa: E402

DEVICES = {kind: types.SimpleNamespace(type=kind) for kind in ("cpu", "cuda")}


class Time:
    """The clock of a module; a call takes what it is told to."""

    def __init__(self):
        self.now = 1000

    def __call__(self):
        return self.now

    def takes(self, ns, result=None):
        self.now += ns
        return result


class Work:
    """A collective that goes on beside; it ends after `ns`."""

    def __init__(self, time, ns):
        self.time, self.ends, self.called = time, time.now + ns, []

    def get_future(self):
        return types.SimpleNamespace(add_done_callback=self.called.append)

    def end(self):
        self.time.now = max(self.time.now, self.ends)
        for called in self.called:
            called(self)
        self.called = []

    def wait(self):
        self.end()


class Events:
    """CUDA's events, in the time of the host."""

    def __init__(self, time):
        self.time, self.there, self.made = time, True, 0

    def __call__(self, enable_timing):
        self.made += 1
        return types.SimpleNamespace(
            record=lambda: None, query=lambda: self.there, elapsed_time=lambda other: 0.002, time=self.time
        )


class Exchange(unittest.TestCase):
    def setUp(self):
        self.time = Time()
        self.before = sharded.monotonic_ns
        sharded.monotonic_ns = self.time
        self.clock = clocks.Clock(lambda *_: None)
        self.clock.trains = True
        self.events = Events(self.time)
        stream = types.SimpleNamespace(wait_event=lambda event: None)
        cuda = types.SimpleNamespace(
            Event=self.events, is_current_stream_capturing=lambda: False, current_stream=lambda: stream
        )
        self.torch = types.SimpleNamespace(cuda=cuda)
        self.account = types.SimpleNamespace(clock=self.clock, sharded=sharded.Sharded(self.torch, self.clock))
        self.hook = sharded.Hook(self.torch, self.account, types.SimpleNamespace(stop=self.clock.stop))

    def tearDown(self):
        sharded.monotonic_ns = self.before

    def module(self, gather, scatter, copied=None):
        """FSDP2's, as it is since its communication is an object."""

        def foreach_all_gather(params, device, all_gather_comm):
            self.time.takes(100)
            return all_gather_comm(output_tensor=types.SimpleNamespace(device=DEVICES[device]))

        def foreach_reduce(params, device, reduce_scatter_comm, more=None):
            self.time.takes(100)
            return reduce_scatter_comm(output_tensor=types.SimpleNamespace(device=DEVICES[device]))

        def foreach_all_gather_copy_out(result, params):
            return self.time.takes(100, copied)

        module = types.SimpleNamespace(
            foreach_all_gather=foreach_all_gather,
            foreach_reduce=foreach_reduce,
            foreach_all_gather_copy_out=foreach_all_gather_copy_out,
        )
        self.hook.of_groups(module)
        self.gather = lambda device="cpu": module.foreach_all_gather([], device, gather)
        self.scatter = lambda device="cpu": module.foreach_reduce([], device, reduce_scatter_comm=scatter)
        return module

    def told(self):
        self.account.sharded.step_ends()
        return self.account.sharded.told()

    def test_without_fsdp_nothing_is_told(self):
        for _ in range(3):
            self.assertEqual(self.told(), (NONE,) * 5)
        self.assertEqual(self.events.made, 0)

    def test_what_the_host_waits_for_is_exposed(self):
        self.module(lambda **_: self.time.takes(7), lambda **_: self.time.takes(5))
        for _ in range(2):
            self.assertIsNone(self.gather())
            self.gather()
            self.scatter()
            self.told()
        self.assertEqual(self.told(), (2, 28, 28, 10, 10))

    def test_what_goes_on_beside_is_exposed_as_long_as_it_is_waited_for(self):
        work = []
        module = self.module(lambda **_: work.append(Work(self.time, 50)) or work[-1], None)
        result = types.SimpleNamespace(
            all_gather_work=self.gather(), all_gather_event=None, all_gather_output=types.SimpleNamespace(device=DEVICES["cpu"])
        )
        self.assertIs(result.all_gather_work, work[0])
        self.time.takes(20)
        module.foreach_all_gather_copy_out(result, [])
        self.assertEqual(self.told(), (1, 50, 30, 0, 0))
        # One that ended before it was needed took as long as it took.
        result.all_gather_work = self.gather()
        self.time.takes(20)
        work[1].ends = self.time.now
        work[1].end()
        self.time.takes(500)
        module.foreach_all_gather_copy_out(result, [])
        self.assertEqual(self.told(), (2, 70, 30, 0, 0))

    def test_evaluation_is_not_of_a_step(self):
        self.module(lambda **_: self.time.takes(7), None)
        self.clock.trains, self.clock.phase = False, clocks.FORWARD
        self.gather()
        self.assertEqual(self.told(), (NONE,) * 5)
        self.clock.phase = clocks.BACKWARD
        self.gather()
        self.assertEqual(self.told()[:2], (1, 7))

    def test_an_error_of_the_programs_is_the_programs(self):
        def fails(**_):
            raise ValueError("lost a rank")

        self.module(fails, None)
        with self.assertRaisesRegex(ValueError, "lost a rank"):
            self.gather()
        self.assertFalse(self.clock.off)

    def test_an_error_of_the_probes_stops_it_alone(self):
        self.module(lambda **_: object(), None)
        # What is given has no future.
        self.assertIsNotNone(self.gather())
        self.assertTrue(self.clock.off)

    def test_on_a_card_events_are_read_once_they_have_happened(self):
        self.module(lambda **_: None, lambda **_: None)
        self.events.there = False
        self.gather("cuda")
        self.scatter("cuda")
        for _ in range(3):
            self.assertEqual(self.told(), (NONE,) * 5)
        self.events.there = True
        self.assertEqual(self.told(), (1, 2000, 0, 2000, 0))
        self.assertEqual(self.events.made, 4)

    def test_before_communication_was_an_object(self):
        def foreach_all_gather(params, group, async_op, stream, other, device):
            return self.time.takes(9, types.SimpleNamespace(all_gather_work=None))

        def foreach_reduce(params, grads, group, stream, dtype, other, device, *more):
            return self.time.takes(4, "a tuple")

        module = types.SimpleNamespace(
            foreach_all_gather=foreach_all_gather, foreach_reduce=foreach_reduce, foreach_all_gather_copy_out=None
        )
        module.foreach_all_gather_copy_out = lambda result, *_: None
        self.hook.of_groups(module)
        for device in (DEVICES["cpu"], DEVICES["cuda"]):
            module.foreach_all_gather([], None, False, None, None, device)
            self.assertEqual(module.foreach_reduce([], [], None, None, None, None, device), "a tuple")
        self.assertEqual(self.told(), (1, 9, 9, 4, 4))


class Counting(unittest.TestCase):
    def setUp(self):
        self.clock = types.SimpleNamespace(evaluated=0, trains=True)
        self.counted = operations.Operations(types.SimpleNamespace(Tensor=Tensor), self.clock)
        self.before = operations.registry
        operations.registry = lambda: {"mm": lambda *_, out_val: 12}

    def tearDown(self):
        operations.registry = self.before

    def call(self, name, namespace="aten", dtype="torch.float64"):
        schema = types.SimpleNamespace(name="%s::%s" % (namespace, name))
        func = types.SimpleNamespace(_overloadpacket=name, _schema=schema, namespace=namespace, is_view=False)
        self.counted.add(func, (Tensor(dtype),), {}, None)

    def test_what_trains_is_counted(self):
        self.call("mm")
        self.call("mm", dtype="torch.bfloat16")
        self.call("add")
        self.assertEqual(self.counted.total, {"other": 12, "half": 12})
        self.assertEqual(list(self.counted.without), [])

    def test_passes_without_gradients_count_where_the_batch_trains(self):
        self.clock.trains = False
        self.call("mm")
        self.assertEqual(sum(self.counted.total.values()), 0)
        # That was evaluation; and this is a part of what trains.
        self.clock.evaluated = 1
        self.call("mm")
        self.clock.trains = True
        self.call("mm")
        self.assertEqual(sum(self.counted.total.values()), 24)

    def test_products_without_a_formula_are_named(self):
        for name in ("mkldnn_rnn_layer", "mm_of_mine", "addmv", "_linalg_svd", "native_layer_norm", "_cudnn_rnn"):
            self.call(name)
        self.call("forward", "flash_attn")
        self.assertEqual(
            list(self.counted.without), ["aten::mkldnn_rnn_layer", "aten::addmv", "aten::_linalg_svd", "aten::_cudnn_rnn", "flash_attn::forward"]
        )
        for number in range(20):
            self.call("forward", "n%d" % number)
        self.assertEqual(len(self.counted.without), operations.NAMES)

    def test_nothing_is_counted_that_was_not_asked_for(self):
        for steps in range(40):
            self.assertFalse(self.counted.step_ends(steps))
        self.assertIsNone(self.counted.told)


class Batches(unittest.TestCase):
    def tokens(self, batch):
        torch = types.SimpleNamespace(Tensor=Shaped, int64="int64", int32="int32")
        return batch_facts.batch(torch, batch)[:2]

    def test_tokens_are_what_comes_first_or_says_so(self):
        self.assertEqual(self.tokens([Shaped(4, 9), Shaped(4, 9)]), (4, 36))
        self.assertEqual(self.tokens({"labels": Shaped(4, 2), "input_ids": Shaped(4, 9)}), (4, 36))
        self.assertEqual(self.tokens({"input_ids": Shaped(70), "position_ids": Shaped(70)}), (70, 70))
        # Images with several labels each.
        self.assertEqual(self.tokens([Shaped(4, 3, 8, 8, dtype="float32"), Shaped(4, 5)]), (4, None))
        self.assertEqual(self.tokens([Shaped(4, dtype="int64")]), (4, None))

    def test_a_batch_may_be_a_data_class(self):
        @dataclasses.dataclass
        class Batch:
            input_ids: Shaped
            weight: float = 1.0

        self.assertEqual(self.tokens(Batch(Shaped(2, 5))), (2, 10))
        self.assertEqual(self.tokens([Batch(Shaped(2, 5))]), (2, 10))


    def test_a_batch_is_like_the_one_before_only_if_all_of_it_is(self):
        torch = types.SimpleNamespace(Tensor=Shaped)
        labels = Shaped(4)
        known = batch_facts.plain(torch, [Shaped(4, 9), labels])
        self.assertTrue(batch_facts.is_like(torch, (Shaped(4, 9), Shaped(4)), known))
        others = (
            [Shaped(4, 9)], [Shaped(4, 8), labels], [Shaped(4, 9, dtype="float32"), labels], [labels, labels, labels],
            [Part(4, 9), labels], {0: Shaped(4, 9), 1: labels}, Shaped(4, 9), [[4, 9], labels], None,
        )
        for other in others:
            self.assertFalse(batch_facts.is_like(torch, other, known), other)
        for other in ([Part(4, 9)], {"x": labels}, [labels, "name"], Shaped(4), [[labels]], [labels] * 17):
            self.assertIsNone(batch_facts.plain(torch, other), other)
            self.assertFalse(batch_facts.is_like(torch, other, None), other)


class Shaped:
    def __init__(self, *shape, dtype="int64"):
        self.shape, self.dtype = shape, dtype


class Part(Shaped):
    """Of a class of its own, which may answer as it likes."""


class Tensor:
    def __init__(self, dtype):
        self.dtype = dtype

    def is_floating_point(self):
        return True

    def is_complex(self):
        return False


if __name__ == "__main__":
    unittest.main()
