"""What `scripts/test.d/compile` runs inside: compiles for real, and says how often it found a kernel that was
compiled before. Words: what to compile, each once."""
import os
import sys
import tempfile
import warnings

warnings.simplefilter("ignore")
import torch


def inductor():
    function = lambda x: (x.sin() + 1).cos() * 2
    x = torch.linspace(0, 9, 1000)
    torch.testing.assert_close(torch.compile(function)(x), function(x))
    from torch._dynamo.utils import counters

    return "hits=%d" % counters["inductor"]["fxgraph_cache_hit"]


def flex():
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 2, 128, 64)
    bias = lambda score, batch, head, i, j: score + (i - j)
    compiled = torch.compile(flex_attention)(q, q, q, score_mod=bias)
    torch.testing.assert_close(compiled, flex_attention(q, q, q, score_mod=bias))
    return "right"


def triton():
    """What Triton compiles before it starts a kernel: C against Python's headers, by Triton's own function."""
    from triton.runtime.build import _build

    source = """#include <Python.h>
static struct PyModuleDef stub = {PyModuleDef_HEAD_INIT, "stub", 0, -1, 0};
PyMODINIT_FUNC PyInit_stub(void) { return PyModule_Create(&stub); }
"""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "stub.c")
        with open(path, "w") as file:
            file.write(source)
        _build("stub", path, folder, [], [], [], [])
        sys.path.insert(0, folder)
        import stub
    return stub.__name__


def cuda():
    """A kernel of Triton's from its source to machine code, and the C that starts it: where the card is played, too."""
    compiled = torch.compile(lambda x: (x.sin() + 1).cos() * 2)
    compiled(torch.ones(1000, device="cuda"))
    kept = [name for _, _, names in os.walk(os.environ["TRITON_CACHE_DIR"]) for name in names]
    assert any(name.startswith("cuda_utils") and name.endswith(".so") for name in kept), kept
    return "cubin" if any(name.endswith(".cubin") for name in kept) else kept


def inline():
    from torch.utils.cpp_extension import _get_build_directory, load_inline

    built = os.path.join(_get_build_directory("twice", False), "twice.so")
    before = os.path.exists(built)
    source = "torch::Tensor twice(torch::Tensor x) { return x * 2; }"
    twice = load_inline("twice", cpp_sources=source, functions=["twice"])
    assert torch.equal(twice.twice(torch.ones(3)), torch.full((3,), 2.0))
    return "kept" if before else "made"


for word in sys.argv[1:]:
    print(word, globals()[word](), flush=True)
