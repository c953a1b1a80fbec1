"""What FSDP's all-gathers and reduce-scatters take, and how much of it nothing else hides.

Where ranks exchange on the host (gloo) a collective that is not waited for apart is exposed from its beginning
to its end. On a card it is timed by CUDA events where it is begun; what is exposed is how long the stream of the
computation stood still for it. Events are read once they have happened, which is asked for and never waited for,
and steps are timed on a card as often as their events cost little.

| what | where |
|---|---|
| FSDP2 | `foreach_all_gather`, `foreach_reduce` and their communication, `foreach_all_gather_copy_out`, the end of the backward pass |
| FSDP1 | `FlatParamHandle._all_gather_flat_param`, `_reduce_grad`; on a card, what is exposed is not seen |
"""

import functools
import inspect
from collections import deque
from time import monotonic_ns

from .. import imports
from .clock import FORWARD
from .hooks import is_compiling
from .memory import SHARE
from .gpu_timing import WAITING
from .ring import NONE

ALL_GATHER, GATHER_EXPOSED, REDUCE_SCATTER, SCATTER_EXPOSED = range(4)
FSDP2 = (
    "torch.distributed.fsdp._fully_shard._fsdp_",
    # Before 2.6.
    "torch.distributed._composable.fsdp._fsdp_",
)
FSDP1 = "torch.distributed.fsdp."
# Collectives and waits of a step; large models have hundreds.
MOST = 4096


class Sharded:
    """Of one process: nanoseconds of the steps in which there was any."""

    def __init__(self, torch, clock):
        self.torch = torch
        self.clock = clock
        self.steps = 0
        self.ns = [0] * 4
        self.now = [0] * 4
        self.any = False
        # Whether FSDP was ever seen to train.
        self.used = False
        # Of FSDP1 on a card it is not known what is exposed.
        self.exposed = True
        self.begun = {}
        self.free = []
        self.waiting = deque()
        # Of the step: pairs of events and what lies between them; `None` while none are taken.
        self.pairs = []
        self.cost = 0
        self.due = 0

    def told(self):
        """How many steps, and their nanoseconds."""
        if not self.steps:
            return (NONE,) * 5
        gather, gather_exposed, scatter, scatter_exposed = self.ns
        known = self.exposed
        return (
            self.steps,
            gather,
            gather_exposed if known else NONE,
            scatter,
            scatter_exposed if known else NONE,
        )

    def counts(self):
        """Whether this is of training."""
        return not self.clock.off and (self.clock.trains or self.clock.phase != FORWARD)

    # --- on the host ------------------------------------------------------------------------------
    def took(self, what, ns):
        """A collective that the host waited for."""
        self.any = True
        self.now[what] += ns
        self.now[what + 1] += ns

    def begins(self, work, at):
        """One that goes on beside the host."""
        if len(self.begun) < MOST:
            ended = []
            work.get_future().add_done_callback(lambda _: ended.append(monotonic_ns()))
            self.begun[id(work)] = (at, ended)

    def waits(self, work):
        """The host needs it now."""
        at, ended = self.begun.pop(id(work), (None, None))
        if at is None:
            return
        now = monotonic_ns()
        # Waited for a second time it returns at once.
        work.wait()
        then = ended[0] if ended else monotonic_ns()
        self.any = True
        self.now[ALL_GATHER] += then - at
        self.now[GATHER_EXPOSED] += max(0, then - now)

    # --- on a card --------------------------------------------------------------------------------
    def event(self):
        """Now, in the current stream of the card; `None` where this step is not timed."""
        if self.pairs is None:
            return None
        began = monotonic_ns()
        if len(self.pairs) >= MOST or self.torch.cuda.is_current_stream_capturing():
            self.spoil()
            return None
        event = self.free.pop() if self.free else self.torch.cuda.Event(enable_timing=True)
        event.record()
        self.cost += monotonic_ns() - began
        return event

    def pair(self, what, begins):
        ends = self.event() if begins is not None else None
        if ends is not None:
            self.pairs.append((what, begins, ends))

    def spoil(self):
        """This step is not timed."""
        self.pairs = None

    # --- steps ------------------------------------------------------------------------------------
    def step_ends(self):
        if self.any:
            self.steps += 1
            self.ns = [total + one for total, one in zip(self.ns, self.now)]
            self.now, self.any = [0] * 4, False
            self.begun.clear()
        if self.pairs == [] and not self.waiting:
            return
        now = monotonic_ns()
        if self.pairs:
            self.waiting.append(self.pairs)
            self.due = now + SHARE * self.cost
        self.pairs = None
        while self.waiting and all(ends.query() for _, _, ends in self.waiting[0]):
            self.read(self.waiting.popleft())
        if len(self.waiting) < WAITING and now >= self.due:
            self.pairs, self.cost = [], 0

    def read(self, pairs):
        self.steps += 1
        for what, begins, ends in pairs:
            self.ns[what] += max(0, int(begins.elapsed_time(ends) * 1e6))
            self.free += (begins, ends)


def install(torch, account, watcher):
    """Watches for FSDP; without it this is all that is done."""
    hook = Hook(torch, account, watcher)
    for kind in FSDP2:
        imports.after(kind + "param_group", hook.of_groups)
        imports.after(kind + "state", hook.of_ends)
    imports.after(FSDP1 + "_flat_param", hook.of_handles)
    imports.after(FSDP1 + "_runtime_utils", hook.of_reductions)


class Hook:
    """Puts functions in the place of FSDP's own; no thread is asked for, as a card's backward pass has its own."""

    def __init__(self, torch, account, watcher):
        self.torch = torch
        self.account = account
        self.watcher = watcher
        self.compiling = is_compiling(torch)

    def times(self):
        """That of the process, where this call counts."""
        if self.compiling():
            return None
        sharded = self.account.sharded
        if not sharded.counts():
            return None
        sharded.used = True
        return sharded

    def begin(self, times, on_card):
        """When it begins, where that can be said."""
        try:
            return times.event() if on_card else monotonic_ns()
        except Exception:
            self.watcher.stop()
            return None

    def end(self, times, on_card, what, began, result=None):
        """A collective, or what stands for one, has been called."""
        if began is None:
            return
        try:
            if result is not None and not on_card:
                times.begins(result, began)
            elif result is not None:
                # It ends where it is waited for, which may be in another step.
                times.spoil()
            elif on_card:
                times.pair(what, began)
            else:
                times.took(what, monotonic_ns() - began)
        except Exception:
            self.watcher.stop()

    def timed(self, own, what, on_card, work=lambda result: result):
        """`own`, timed. `on_card`: by its arguments, whether it is there; None where that cannot be timed."""

        @functools.wraps(own)
        def call(*args, **kwargs):
            times = self.times()
            there = on_card(*args, **kwargs) if times is not None else None
            if there is None:
                return own(*args, **kwargs)
            began = self.begin(times, there)
            result = own(*args, **kwargs)
            self.end(times, there, what, began, work(result))
            return result

        return call

    def of_groups(self, module):
        cuda = lambda device: device.type == "cuda"
        for name, argument, what in (
            ("foreach_all_gather", "all_gather_comm", ALL_GATHER),
            ("foreach_reduce", "reduce_scatter_comm", REDUCE_SCATTER),
        ):
            own = getattr(module, name)
            signature = inspect.signature(own)
            if argument in signature.parameters:
                instead = self.communicating(own, list(signature.parameters).index(argument), argument, what)
            else:
                # Before these were objects of their own: with what is copied beside it, and on the host alone.
                place = list(signature.parameters).index("device")
                on_host = lambda *args, place=place, **kwargs: (
                    None if cuda(args[place] if len(args) > place else kwargs["device"]) else False
                )
                work = lambda result: getattr(result, "all_gather_work", None)
                instead = self.timed(own, what, on_host, work)
            setattr(module, name, instead)
        own = module.foreach_all_gather_copy_out

        @functools.wraps(own)
        def foreach_all_gather_copy_out(result, *args, **kwargs):
            times = self.times()
            if times is not None:
                try:
                    self.waits(times, result, cuda(result.all_gather_output.device))
                except Exception:
                    self.watcher.stop()
            return own(result, *args, **kwargs)

        module.foreach_all_gather_copy_out = foreach_all_gather_copy_out

    def communicating(self, own, place, argument, what):
        """`own` with its communication timed."""

        @functools.wraps(own)
        def call(*args, **kwargs):
            if self.times() is not None:
                if argument in kwargs:
                    kwargs[argument] = Communication(kwargs[argument], self, what)
                elif len(args) > place:
                    args = (*args[:place], Communication(args[place], self, what), *args[place + 1 :])
            return own(*args, **kwargs)

        return call

    def waits(self, times, result, on_card):
        """As `foreach_all_gather_copy_out` begins: to wait for the same again changes nothing."""
        if not on_card:
            if result.all_gather_work is not None:
                times.waits(result.all_gather_work)
        elif result.all_gather_event is not None:
            began = times.event()
            if began is not None:
                self.torch.cuda.current_stream().wait_event(result.all_gather_event)
                times.pair(GATHER_EXPOSED, began)

    def of_ends(self, module):
        """The backward pass ends with a wait for the last reduce-scatters."""
        kind = module.FSDPState
        own = kind._root_post_backward_final_callback
        on_card = lambda state, *_, **__: True if state._device.type == "cuda" else None
        kind._root_post_backward_final_callback = self.timed(own, SCATTER_EXPOSED, on_card)

    def of_handles(self, module):
        kind = module.FlatParamHandle
        own = kind._all_gather_flat_param
        kind._all_gather_flat_param = self.timed(own, ALL_GATHER, self.flat, lambda _: None)

    def of_reductions(self, module):
        on_card = lambda _, handle: self.flat(handle)
        module._reduce_grad = self.timed(module._reduce_grad, REDUCE_SCATTER, on_card, lambda _: None)

    def flat(self, handle, *_, **__):
        on_card = handle.flat_param.device.type == "cuda"
        if on_card:
            self.account.sharded.exposed = False
        return on_card


class Communication:
    """FSDP2's own object for it, timed where it is called."""

    def __init__(self, own, hook, what):
        self.own = own
        self.hook = hook
        self.what = what

    def __getattr__(self, name):
        return getattr(self.own, name)

    def __call__(self, *args, **kwargs):
        hook = self.hook
        times = hook.times()
        output = kwargs.get("output_tensor", args[0] if args else None)
        if times is None or output is None:
            return self.own(*args, **kwargs)
        on_card = output.device.type == "cuda"
        began = hook.begin(times, on_card)
        result = self.own(*args, **kwargs)
        hook.end(times, on_card, self.what, began, result)
        return result
