"""A card that this release of PyTorch has no code for says so, as a real one does, and others do not."""

import torch

capability = torch.cuda.get_device_capability()
built = [divmod(int(name.removeprefix("sm_")), 10) for name in torch.cuda.get_arch_list() if name[3:].isdigit()]
served = any(major == capability[0] and minor <= capability[1] for major, minor in built)
try:
    torch.ones(8, device="cuda").add(1)
except RuntimeError as error:
    assert "no kernel image is available for execution on the device" in str(error), error
    assert not served, f"{capability} is served by {built}"
else:
    assert served, f"{capability} is not served by {built}"
# cuBLAS 13 has nothing for cards before Turing, whatever PyTorch has.
dropped = int(torch.version.cuda.split(".")[0]) >= 13 and capability < (7, 5)
try:
    torch.empty(8, 8, device="cuda").mm(torch.empty(8, 8, device="cuda"))
except RuntimeError as error:
    assert dropped and "CUBLAS_STATUS_ARCH_MISMATCH" in str(error), error
else:
    assert not dropped, f"cuBLAS of CUDA {torch.version.cuda} multiplies on {capability}"
print("worked: code for", *capability, served)
