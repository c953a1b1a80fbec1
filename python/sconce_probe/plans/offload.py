"""What is kept for the backward pass waits in the host's memory, and comes back when it is needed."""

import os

# Smaller ones are not worth the way.
LEAST_BYTES = 1 << 20


class Offload:
    def __init__(self, torch):
        self.torch = torch
        # In a trial no bytes are moved: the card's side of it is the same, and the host's memory is
        # spared. What goes over the bus is counted.
        self.trial = bool(os.environ.get("SCONCE_FIT"))

    def hooks(self):
        return self.torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)

    def goes(self, tensor):
        if not tensor.is_cuda or not tensor.is_floating_point():
            return False
        # Parameters stay on the card whatever is done, and so do views of them.
        base = tensor._base if tensor._is_view() else tensor
        if base is not None and base.is_leaf:
            return False
        return tensor.numel() * tensor.element_size() >= LEAST_BYTES

    def pack(self, tensor):
        if not self.goes(tensor):
            return tensor
        if self.trial:
            moved(tensor)
            return Away(tensor.device, None, (tensor.shape, tensor.dtype))
        copy = self.torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        copy.copy_(tensor)
        return Away(tensor.device, copy, None)

    def unpack(self, packed):
        if not isinstance(packed, Away):
            return packed
        if packed.copy is not None:
            return packed.copy.to(packed.device, non_blocking=True)
        shape, dtype = packed.like
        tensor = self.torch.empty(shape, dtype=dtype, device=packed.device)
        moved(tensor)
        return tensor


class Away:
    def __init__(self, device, copy, like):
        self.device = device
        self.copy = copy
        self.like = like


def moved(tensor):
    from .. import work

    work.over_the_bus(tensor.numel() * tensor.element_size())
