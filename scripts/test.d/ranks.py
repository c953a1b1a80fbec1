"""Trains as a script for torchrun does. Prints what the allocator had at most.

ranks.py ddp|zero|fsdp1|fsdp2|hybrid
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    from torch.distributed._composable.fsdp import fully_shard

WIDTH, BLOCKS = 1024, 8


def block():
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))


def talks(ranks):
    """What ranks tell each other beside training."""
    everyone = [None] * ranks
    dist.all_gather_object(everyone, {"rank": dist.get_rank()})
    assert everyone == [{"rank": 0}] * ranks
    settings = ["a setting"]
    dist.broadcast_object_list(settings)
    dist.barrier()
    first = dist.new_group(range(2))
    dist.all_reduce(torch.ones(4, device="cuda"), group=first)
    # Groups on CPUs have other ranks as little.
    cpus = dist.new_group(backend="gloo")
    dist.all_reduce(torch.ones(4), group=cpus)
    dist.barrier(cpus)
    dist.monitored_barrier(cpus)
    gathered = [torch.empty(1) for _ in range(ranks)]
    dist.all_gather(gathered, torch.ones(1), group=cpus)


def main():
    # Plans from outside, where there are any.
    plan = os.environ.get("SCONCE_PLAN")
    kind, local, ranks = sys.argv[1], int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(local)
    eager = {"device_id": torch.device("cuda", local)} if kind == "hybrid" else {}
    if kind != "plain":
        dist.init_process_group("cpu:gloo,cuda:nccl" if kind == "fsdp2" else "nccl", **eager)
        assert (dist.get_rank(), dist.get_world_size(), torch.cuda.device_count()) == (0, ranks, 8)
        talks(ranks)
    model = nn.Sequential(*[block() for _ in range(BLOCKS)])
    if kind in ("fsdp2", "hybrid"):
        shape = (ranks // 8, 8) if kind == "hybrid" else (ranks,)
        mesh = init_device_mesh("cuda", shape, mesh_dim_names=("copies", "shards")[-len(shape) :])
        model = model.to("meta")
        for part in model:
            fully_shard(part, mesh=mesh)
        fully_shard(model, mesh=mesh)
        model.to_empty(device="cuda")
    elif kind == "fsdp1":
        parts = [FullyShardedDataParallel(part, device_id=local) for part in model]
        model = FullyShardedDataParallel(nn.Sequential(*parts), device_id=local)
    elif kind == "plain":
        model = model.cuda()
    else:
        model = DistributedDataParallel(model.cuda(), device_ids=[local])
    if kind == "zero":
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
    else:
        optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(16, WIDTH, device="cuda")).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if kind in ("fsdp2", "hybrid") or plan in ("zero2", "zero3"):
        # A parameter, its gradient and two moments, each in so many parts; rank 0 has the largest.
        # Beside it are workspaces of cuBLAS, 64 MiB with PyTorch 2.6.
        shards = 8 if kind == "hybrid" else ranks
        held = sum(-(-one.shape[0] // shards) * one[0].numel() * 4 for one in block().parameters())
        assert torch.cuda.memory_allocated() >= 3 * BLOCKS * held, torch.cuda.memory_allocated()
        assert torch.cuda.memory_allocated() <= 3 * BLOCKS * held + (72 << 20), torch.cuda.memory_allocated()
    if dist.is_initialized():
        dist.destroy_process_group()
    print(kind, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
    # Without PyTorch's own end, which can abort (docs/virtual-gpu.md).
    os._exit(0)


main()
