//! A virtual GPU: answers the CUDA calls of an unmodified PyTorch on a machine without a card.
//!
//! The library goes ahead of NVIDIA's in the loader's search (`LD_PRELOAD`, and as `libcuda.so.1` and
//! `libnvidia-ml.so.1` in `LD_LIBRARY_PATH`) and defines what PyTorch's libraries import: the CUDA
//! runtime, driver, NVML, and the libraries on top of them. Kernels do nothing. Device memory is a
//! range of addresses with a capacity and no bytes behind it, so that PyTorch's real caching allocator
//! runs and reports what it would on that card.
//!
//! Which cards there are is said by the file that `SCONCE_VGPU` names; without it there are none. The
//! signatures are those of NVIDIA's public headers; every name stands where the header that has it
//! would be looked for: [`runtime`] for `cuda_runtime_api.h`, [`driver`] for `cuda.h`, and so on.
#![expect(unsafe_code, reason = "it answers a C interface")]
#![expect(
    unreachable_pub,
    reason = "entry points are reached by their names, not through Rust's modules"
)]
#![expect(
    missing_docs,
    reason = "entry points are documented by the headers that declare them"
)]

pub mod abi;
pub mod card;
pub mod clock;
pub mod control;
pub mod driver;
pub mod libraries;
pub mod machine;
pub mod memory;
pub mod runtime;
pub mod unknown;
