"""One rank of many: a network of LLaMA's shape under FSDP2, as torchrun would start it. Plain PyTorch.

llama.py 7b|70b [--batch N] [--length N] [--checkpoint]
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

# Width, layers, heads, heads of keys and values, width inside the feed-forward network.
SHAPES = {"tiny": (512, 4, 8, 4, 1376), "7b": (4096, 32, 32, 32, 11008), "70b": (8192, 80, 64, 8, 28672)}
WORDS = 32000


class Block(nn.Module):
    def __init__(self, width, heads, shared, inside):
        super().__init__()
        self.heads, self.shared, self.each = heads, shared, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, shared * self.each, bias=False)
        self.value = nn.Linear(width, shared * self.each, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, inside, bias=False)
        self.up = nn.Linear(width, inside, bias=False)
        self.down = nn.Linear(inside, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        y = self.norm1(x)
        split = lambda y, heads: y.view(batch, length, heads, self.each).transpose(1, 2)  # noqa: E731
        query, key, value = split(self.query(y), self.heads), split(self.key(y), self.shared), split(self.value(y), self.shared)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=self.heads != self.shared)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Network(nn.Module):
    def __init__(self, width, layers, heads, shared, inside):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList([Block(width, heads, shared, inside) for _ in range(layers)])
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, WORDS, bias=False)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()

    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    with torch.device("meta"):
        model = Network(*SHAPES[args.shape])
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for index, block in enumerate(model.blocks):
        if args.checkpoint:
            block = model.blocks[index] = checkpoint_wrapper(block)
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device="cuda")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    tokens = torch.randint(WORDS, (args.batch, args.length), device="cuda")
    for _ in range(args.steps):
        loss = F.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if dist.get_rank() == 0:
        print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
    dist.destroy_process_group()


main()
