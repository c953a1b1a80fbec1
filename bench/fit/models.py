"""Trains one of four well-known networks in fp32 with AdamW, as tutorials do: a script that knows nothing of Sconce.

    models.py gpt2|vit-l|resnet50|llama-1b [--batch-size N] [--micro-batch N] [--steps 10]

Shapes are the published ones, values are made up. A batch is worked through in pieces of --micro-batch, whose
gradients add up; by default in one piece. Needs torchvision or transformers.
"""

import argparse

import torch
from torch.nn.functional import cross_entropy

BATCHES = {"gpt2": 16, "vit-l": 24, "resnet50": 128, "llama-1b": 4}
LENGTH = {"gpt2": 1024, "llama-1b": 2048}

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=BATCHES)
parser.add_argument("--batch-size", type=int)
parser.add_argument("--micro-batch", type=int)
parser.add_argument("--steps", type=int, default=10)
options = parser.parse_args()
batch = options.batch_size or BATCHES[options.model]
piece = options.micro_batch or batch

with torch.device("cuda"):
    if options.model == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel

        model = GPT2LMHeadModel(GPT2Config(use_cache=False))
    elif options.model == "llama-1b":
        from transformers import LlamaConfig, LlamaForCausalLM

        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                num_attention_heads=32, num_key_value_heads=8, tie_word_embeddings=True, use_cache=False,
            )
        )
    else:
        from torchvision import models

        model = models.vit_l_16() if options.model == "vit-l" else models.resnet50()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

for step in range(options.steps):
    optimizer.zero_grad()
    for begin in range(0, batch, piece):
        some = min(piece, batch - begin)
        if options.model in LENGTH:
            words = torch.randint(1000, (some, LENGTH[options.model])).cuda()
            loss = model(input_ids=words, labels=words).loss
        else:
            pictures, classes = torch.randn(some, 3, 224, 224), torch.randint(1000, (some,))
            loss = cross_entropy(model(pictures.cuda()), classes.cuda())
        (loss * some / batch).backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
