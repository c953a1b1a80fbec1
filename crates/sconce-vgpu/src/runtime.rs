//! `cuda_runtime_api.h`: what PyTorch's libraries ask of the CUDA runtime.
//!
//! Registration of kernels (`__cudaRegisterFatBinary` and so on) stays with the real runtime, which
//! only writes it down until a card is first used.

pub mod device;
pub mod event;
pub mod graph;
pub mod launch;
pub mod memory;
pub mod properties;
pub mod stream;

use std::cell::Cell;
use std::ffi::{CStr, c_char};

use crate::abi;

/// A status of the runtime (`cudaError`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Error {
    InvalidValue = 1,
    MemoryAllocation = 2,
    NoDevice = 100,
    InvalidDevice = 101,
    InvalidResourceHandle = 400,
    SymbolNotFound = 500,
    NotReady = 600,
    StreamCaptureInvalidated = 901,
    NotSupported = 801,
}

pub type Result<T> = std::result::Result<T, Error>;

thread_local! {
    static LAST: Cell<i32> = const { Cell::new(0) };
}

/// The status of a call, kept for `cudaGetLastError` where it is an error.
pub fn status(answer: Result<()>) -> i32 {
    match answer {
        Ok(()) => 0,
        Err(why) => {
            // What is not ready yet is no error that stays.
            if why != Error::NotReady {
                LAST.set(why as i32);
            }
            why as i32
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> i32 {
    LAST.replace(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> i32 {
    LAST.get()
}

fn said(status: i32) -> (&'static CStr, &'static CStr) {
    match status {
        0 => (c"cudaSuccess", c"no error"),
        1 => (c"cudaErrorInvalidValue", c"invalid argument"),
        2 => (c"cudaErrorMemoryAllocation", c"out of memory"),
        100 => (c"cudaErrorNoDevice", c"no CUDA-capable device is detected"),
        101 => (c"cudaErrorInvalidDevice", c"invalid device ordinal"),
        400 => (
            c"cudaErrorInvalidResourceHandle",
            c"invalid resource handle",
        ),
        500 => (c"cudaErrorSymbolNotFound", c"named symbol not found"),
        600 => (c"cudaErrorNotReady", c"device not ready"),
        801 => (c"cudaErrorNotSupported", c"operation not supported"),
        _ => (c"cudaErrorUnknown", c"unknown error"),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorName(status: i32) -> *const c_char {
    abi::text(said(status).0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(status: i32) -> *const c_char {
    abi::text(said(status).1)
}

crate::abi::refused! { Error::NotSupported;
    cudaGraphAddEmptyNode cudaGraphAddNode cudaGraphConditionalHandleCreate
    cudaGraphNodeGetDependencies cudaGraphNodeGetType cudaStreamUpdateCaptureDependencies
    cudaIpcCloseMemHandle cudaIpcGetEventHandle cudaIpcGetMemHandle cudaIpcOpenEventHandle
    cudaIpcOpenMemHandle cudaLibraryGetGlobal cudaLibraryGetKernel cudaLibraryGetKernelCount
    cudaLibraryGetManaged cudaLibraryGetUnifiedFunction cudaLibraryLoadData cudaLibraryLoadFromFile
    cudaLibraryUnload
}
