"""That PyTorch 2.15 may abort at the end of a script, shown with no CUDA and no virtual GPU.

The accelerator is one written in Python, so that autograd starts a thread for it. Of 50 runs,

    for run in $(seq 50); do python end.py || echo "$run: $?"; done

some end with 134 (4 of the first 37 with 2.15, none of 12 with 2.11). Not a test: it depends on which thread is the faster. Why:
docs/virtual-gpu.md. With `fails` the backward pass raises an error that nobody catches: 3 of 30 runs ended with 134.
"""

import sys

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("nowhere")


class Nothing(torch.Tensor):
    """A tensor of that accelerator with a shape and no data."""

    @staticmethod
    def __new__(cls, shape, requires_grad=False):
        made = torch.Tensor._make_wrapper_subclass
        return made(cls, shape, dtype=torch.float32, device="nowhere:0", requires_grad=requires_grad)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return cls(args[0].shape)

    __torch_function__ = torch._C._disabled_torch_function_impl


class Fails(torch.autograd.Function):
    """As where a card's memory runs out in a backward pass."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("no memory")


weight = Nothing((8,), requires_grad=True)
product = weight * weight
if sys.argv[1:] == ["fails"]:
    product = Fails.apply(product)
product.backward(gradient=Nothing((8,)))
print("done", flush=True)
