"""One process as rank 0 of a world whose other ranks are not there.

SCONCE_RANKS is set by `sconce` with `--ranks`; RANK, WORLD_SIZE and the others of torchrun stand beside it.
What ranks exchange on cards the virtual NCCL answers. Here is what torch.distributed does beside it, and
would wait for others with: the store, barriers on it, objects, and groups on CPUs.
"""

import copy
import os
import sys

# NCCL's communicators of many ranks are begun by several of them, PyTorch waits for their keys: here by one.
ONE_ROOT = ("TORCH_NCCL_RANKS_PER_ROOT", str(1 << 20))


def begin():
    """Watches for torch.distributed."""
    from . import imports

    if ONE_ROOT[0] not in os.environ:
        os.environ[ONE_ROOT[0]] = ONE_ROOT[1]
    imports.after("torch.distributed.distributed_c10d", alone)
    imports.after("torch.distributed.rendezvous", stores)


def stores(module):
    """A store waits for nobody: in the rendezvous, and where a program makes one of its own."""
    real = module.TCPStore
    # Named as in its own signature; what a program leaves out stays left out.
    names = ["host_name", "port", "world_size", "is_master", "timeout", "wait_for_workers"]

    class TCPStore(real):
        def __init__(self, *words, **named):
            if len(words) >= len(names):
                words = (*words[: len(names) - 1], False, *words[len(names) :])
            else:
                named["wait_for_workers"] = False
            super().__init__(*words, **named)

    TCPStore.__module__, TCPStore.__qualname__ = real.__module__, real.__qualname__
    put(real, TCPStore)


def alone(c10d):
    """What would wait for other ranks is answered here."""
    answers = {
        "_store_based_barrier": nothing,
        "monitored_barrier": nothing,
        "split_group": split(c10d),
        "_get_split_source": nothing,
    }
    for name, answer in {**answers, **objects(c10d)}.items():
        real = getattr(c10d, name, None)
        if hasattr(c10d, name) or name in answers:
            setattr(c10d, name, answer)
        if real is not None:
            # Where torch was imported before, others have it already.
            put(real, answer)
    gloo = getattr(c10d, "ProcessGroupGloo", None)
    fake = getattr(sys.modules["torch._C._distributed_c10d"], "FakeProcessGroup", None)
    if gloo is not None and fake is not None:
        put(gloo, on_cpus(gloo, fake))
        # Releases before 2.15 ask for these, and have them of no such group.
        fake._set_sequence_number_for_group = nothing


def put(real, instead):
    """Every module of torch.distributed that has the one under its name has the other."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed"):
            for key, value in list(vars(module).items()):
                if value is real:
                    setattr(module, key, instead)


def on_cpus(gloo, fake):
    """Groups of gloo connect to every rank; PyTorch has a group for tests that pretends to."""

    class Kind(type):
        def __instancecheck__(cls, one):
            return isinstance(one, (gloo, fake))

        def __getattr__(cls, name):
            return getattr(gloo, name)

    class ProcessGroupGloo(metaclass=Kind):
        def __new__(cls, _store, rank, size, *_words, **_named):
            made = getattr(fake, "_create_internal", None) or fake
            return made(rank, size)

    ProcessGroupGloo.__module__ = gloo.__module__
    return ProcessGroupGloo


def split(c10d):
    """A communicator that is split does not tell NCCL how many ranks its parts have, and groups on CPUs that
    are only pretended cannot be: each part is made anew."""

    def split_group(parent_pg=None, split_ranks=None, *_words, **named):
        parent = parent_pg or c10d._get_default_group()
        known = ("timeout", "group_desc")
        named = {name: value for name, value in named.items() if name in known and value is not None}
        inside = c10d.get_rank(parent)
        for ranks in split_ranks or []:
            if inside in ranks:
                return c10d.new_group([c10d.get_global_rank(parent, one) for one in ranks], **named)
        return None

    return split_group


def nothing(*_words, **_named):
    """Nobody is waited for."""


def objects(c10d):
    """Collectives of objects: each rank has what this one has."""

    def of(group):
        group = group if group is not None else c10d._get_default_group()
        return c10d.get_rank(group), c10d.get_world_size(group)

    def is_in(group):
        return not c10d._rank_not_in_group(group)

    def all_gather_object(object_list, obj, group=None):
        if is_in(group):
            for place in range(of(group)[1]):
                object_list[place] = copied(obj)

    def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
        if is_in(group) and object_gather_list is not None:
            all_gather_object(object_gather_list, obj, group)

    def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
        """What another rank would send is taken to be what is there."""

    def scatter_object_list(
        scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None
    ):
        if is_in(group) and scatter_object_input_list:
            scatter_object_output_list[0] = scatter_object_input_list[of(group)[0]]

    def send_object_list(object_list, dst=None, group=None, device=None, group_dst=None, use_batch=False):
        """Nobody is there to have it."""

    def recv_object_list(object_list, src=None, group=None, device=None, group_src=None, use_batch=False):
        if src is not None or group_src is None:
            return src if src is not None else 0
        return c10d.get_global_rank(group or c10d._get_default_group(), group_src)

    return {
        name: answer for name, answer in locals().items() if name.endswith(("_object", "_object_list"))
    }


def copied(value):
    """As another process would have it; itself where it cannot be copied."""
    try:
        return copy.deepcopy(value)
    except Exception:
        return value
