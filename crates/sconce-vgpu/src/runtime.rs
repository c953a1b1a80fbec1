//! `cuda_runtime_api.h`: what PyTorch's libraries ask of the CUDA runtime.
//!
//! What the compiler puts around a launch (`__cudaPushCallConfiguration`, `__cudaPopCallConfiguration`)
//! stays with the real runtime, which only keeps it for a moment.

pub mod device;
pub mod event;
pub mod graph;
pub mod kernels;
pub mod launch;
pub mod memory;
pub mod properties;
pub mod stream;

use std::cell::Cell;
use std::ffi::c_char;

use crate::abi::{self, statuses};

// `cudaError`. Not all are given here: a library of kernels may ask what a status of its own means.
statuses! {
    c"cudaSuccess" c"no error";
    InvalidValue = 1 c"cudaErrorInvalidValue" c"invalid argument";
    MemoryAllocation = 2 c"cudaErrorMemoryAllocation" c"out of memory";
    InvalidDeviceFunction = 98 c"cudaErrorInvalidDeviceFunction" c"invalid device function";
    NoDevice = 100 c"cudaErrorNoDevice" c"no CUDA-capable device is detected";
    InvalidDevice = 101 c"cudaErrorInvalidDevice" c"invalid device ordinal";
    NoKernelImageForDevice = 209 c"cudaErrorNoKernelImageForDevice"
        c"no kernel image is available for execution on the device";
    InvalidResourceHandle = 400 c"cudaErrorInvalidResourceHandle" c"invalid resource handle";
    SymbolNotFound = 500 c"cudaErrorSymbolNotFound" c"named symbol not found";
    NotReady = 600 c"cudaErrorNotReady" c"device not ready";
    NotSupported = 801 c"cudaErrorNotSupported" c"operation not supported";
    StreamCaptureInvalidated = 901 c"cudaErrorStreamCaptureInvalidated"
        c"operation failed due to a previous error during capture";
    _ c"cudaErrorUnknown" c"unknown error";
}

pub type Result<T> = std::result::Result<T, Error>;

thread_local! {
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
}

/// The status of a call, kept for `cudaGetLastError` where it is an error.
pub fn remember_status(answer: Result<()>) -> i32 {
    match answer {
        Ok(()) => 0,
        Err(why) => {
            // What is not ready yet is no error that stays.
            if why != Error::NotReady {
                LAST_ERROR.set(why as i32);
            }
            why as i32
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> i32 {
    LAST_ERROR.replace(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> i32 {
    LAST_ERROR.get()
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorName(status: i32) -> *const c_char {
    abi::text_pointer(said(status).0)
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(status: i32) -> *const c_char {
    abi::text_pointer(said(status).1)
}

crate::abi::refused! { Error::NotSupported;
    cudaGraphAddEmptyNode cudaGraphAddNode cudaGraphConditionalHandleCreate
    cudaGraphNodeGetDependencies cudaGraphNodeGetType cudaStreamUpdateCaptureDependencies
    cudaIpcCloseMemHandle cudaIpcGetEventHandle cudaIpcGetMemHandle cudaIpcOpenEventHandle
    cudaIpcOpenMemHandle cudaLibraryGetGlobal cudaLibraryGetKernel cudaLibraryGetKernelCount
    cudaLibraryGetManaged cudaLibraryGetUnifiedFunction cudaLibraryLoadData cudaLibraryLoadFromFile
    cudaLibraryUnload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_its_name_and_text() {
        let (name, text) = said(Error::NoKernelImageForDevice as i32);
        assert_eq!(name, c"cudaErrorNoKernelImageForDevice");
        assert_eq!(
            text,
            c"no kernel image is available for execution on the device"
        );
        assert_eq!(said(0).0, c"cudaSuccess");
        assert_eq!(said(12345).1, c"unknown error");
    }
}
