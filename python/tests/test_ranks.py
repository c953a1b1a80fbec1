"""One rank of many without torch: made-up modules take its place."""

import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from sconce_probe import ranks  # noqa: E402


class TCPStore:
    def __init__(self, host_name, port, world_size=None, is_master=False, timeout=300, wait_for_workers=True,
                 multi_tenant=False):
        self.asked = (host_name, port, world_size, is_master, timeout, wait_for_workers, multi_tenant)


class Gloo:
    from_gloo = "an attribute"

    def __init__(self, *_words, **_named):
        raise AssertionError("it would wait for other ranks")


class Fake:
    def __init__(self, rank, size):
        self.told = (rank, size)


class Hidden:
    """As later releases have it."""

    def __init__(self):
        self.told = None

    @classmethod
    def _create_internal(cls, rank, size):
        made = cls()
        made.told = (rank, size)
        return made


class Group:
    def __init__(self, own, members):
        self.own, self.members = own, members


def made_up(fake=Fake, rank=0, size=4):
    """As much of torch.distributed as is asked for."""
    c10d = types.ModuleType("torch.distributed.distributed_c10d")
    native = types.ModuleType("torch._C._distributed_c10d")
    native.FakeProcessGroup = fake
    world = Group(rank, list(range(size)))
    c10d.ProcessGroupGloo = Gloo
    c10d._get_default_group = lambda: world
    c10d.get_rank = lambda group: group.own
    c10d.get_world_size = lambda group: len(group.members)
    c10d.get_global_rank = lambda group, one: group.members[one]
    c10d._rank_not_in_group = lambda group: group is not None and group.own < 0
    c10d.new_group = lambda members, **named: (members, named)
    for name in ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "recv_object_list"):
        setattr(c10d, name, None)
    return c10d, native


class Ranks(unittest.TestCase):
    def setUp(self):
        self.before = dict(sys.modules)

    def tearDown(self):
        for name in set(sys.modules) - set(self.before):
            del sys.modules[name]

    def alone(self, **named):
        c10d, native = made_up(**named)
        sys.modules[c10d.__name__], sys.modules[native.__name__] = c10d, native
        ranks.alone(c10d)
        return c10d

    def test_a_store_waits_for_nobody(self):
        module = types.ModuleType("torch.distributed.rendezvous")
        package = types.ModuleType("torch.distributed")
        module.TCPStore = package.TCPStore = TCPStore
        sys.modules[module.__name__], sys.modules[package.__name__] = module, package
        ranks.stores(module)
        self.assertIs(module.TCPStore, package.TCPStore)
        self.assertTrue(issubclass(module.TCPStore, TCPStore))
        store = module.TCPStore(host_name="a", port=1, world_size=64, is_master=True, multi_tenant=True)
        self.assertEqual(store.asked, ("a", 1, 64, True, 300, False, True))
        self.assertEqual(module.TCPStore("a", 1, 64, True).asked[5], False)
        self.assertEqual(module.TCPStore("a", 1, 64, True, 9, True, True).asked, ("a", 1, 64, True, 9, False, True))

    def test_every_rank_has_the_objects_of_this_one(self):
        c10d = self.alone()
        had, sent = [None] * 4, {"a": [1]}
        c10d.all_gather_object(had, sent)
        self.assertEqual(had, [sent] * 4)
        self.assertIsNot(had[3]["a"], sent["a"])
        c10d.gather_object(7, had, dst=0)
        self.assertEqual(had, [7] * 4)
        c10d.gather_object(7)
        one = [None]
        c10d.scatter_object_list(one, ["first", "second", "third", "fourth"], src=0)
        self.assertEqual(one, ["first"])
        c10d.broadcast_object_list(one, src=0)
        self.assertEqual((one, c10d.recv_object_list(one, src=2)), (["first"], 2))

    def test_a_rank_outside_of_a_group_has_nothing(self):
        c10d = self.alone()
        had = [None] * 2
        c10d.all_gather_object(had, 1, group=Group(-1, [1, 2]))
        self.assertEqual(had, [None] * 2)

    def test_what_cannot_be_copied_is_given_itself(self):
        lock = __import__("threading").Lock()
        self.assertIs(ranks.copied(lock), lock)

    def test_groups_on_cpus_are_pretended(self):
        for fake in (Fake, Hidden):
            c10d = self.alone(fake=fake)
            group = c10d.ProcessGroupGloo("store", 0, 64, timeout=1)
            self.assertEqual(group.told, (0, 64))
            self.assertIsInstance(group, c10d.ProcessGroupGloo)
            self.assertEqual(c10d.ProcessGroupGloo.from_gloo, "an attribute")
            group._set_sequence_number_for_group()

    def test_a_group_is_made_anew_where_it_would_be_split(self):
        c10d = self.alone(rank=2)
        split = c10d.split_group(split_ranks=[[0, 1], [2, 3]], timeout=9, pg_options="none")
        self.assertEqual(split, ([2, 3], {"timeout": 9}))
        self.assertIsNone(c10d.split_group(None, [[0, 1]]))
        parent = Group(1, [4, 6, 8])
        self.assertEqual(c10d.split_group(parent, [[1, 2]])[0], [6, 8])
        self.assertIsNone(c10d._get_split_source("any", "any"))

    def test_nobody_is_waited_for(self):
        c10d = self.alone()
        self.assertIsNone(c10d._store_based_barrier(0, "store", "name", 64, 9))
        self.assertIsNone(c10d.monitored_barrier(timeout=1))


if __name__ == "__main__":
    unittest.main()
