//! `cuda.h`: the driver, as far as PyTorch, Triton and the expandable segments of the caching
//! allocator ask it.

mod context;
mod mapping;
mod module;

use crate::abi::{Handle, OutPointer, entries, refused, statuses};

// `CUresult`.
statuses! {
    c"CUDA_SUCCESS" c"no error";
    InvalidValue = 1 c"CUDA_ERROR_INVALID_VALUE" c"invalid argument";
    OutOfMemory = 2 c"CUDA_ERROR_OUT_OF_MEMORY" c"out of memory";
    NoDevice = 100 c"CUDA_ERROR_NO_DEVICE" c"no CUDA-capable device is detected";
    InvalidDevice = 101 c"CUDA_ERROR_INVALID_DEVICE" c"invalid device ordinal";
    InvalidContext = 201 c"CUDA_ERROR_INVALID_CONTEXT" c"invalid device context";
    NotFound = 500 c"CUDA_ERROR_NOT_FOUND" c"named symbol not found";
    NotSupported = 801 c"CUDA_ERROR_NOT_SUPPORTED" c"operation not supported";
    _ c"CUDA_ERROR_UNKNOWN" c"unknown error";
}

pub type Result<T> = std::result::Result<T, Error>;

pub fn status_code(answer: Result<()>) -> i32 {
    match answer {
        Ok(()) => 0,
        Err(why) => why as i32,
    }
}

entries! { status_code;
    fn cuGetErrorName(code: i32, name: OutPointer<Handle>) {
        name.write(said(code).0.as_ptr() as usize);
        Ok(())
    }
    fn cuGetErrorString(code: i32, text: OutPointer<Handle>) {
        text.write(said(code).1.as_ptr() as usize);
        Ok(())
    }
    // What the real CUDA runtime would ask for first: it has no place here, and a call that got there
    // is one that this library does not know.
    fn cuGetExportTable(table: OutPointer<Handle>, id: Handle) {
        let _ = id;
        table.write(0);
        // cuDNN has a CUDA runtime within, which looks for a card while it is asked about one.
        if !crate::libraries::dnn::is_asking() {
            crate::unknown::report_unknown_call("a function of the CUDA runtime");
        }
        Err(Error::NotFound)
    }
}

refused! { Error::NotSupported;
    cuMemExportToShareableHandle cuMemImportFromShareableHandle cuMemGetAllocationPropertiesFromHandle
    cuMulticastCreate cuMulticastAddDevice cuMulticastBindMem cuMulticastBindMem_v2 cuMulticastUnbind
    cuMulticastGetGranularity cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxStreamCreate cuCtxFromGreenCtx
    cuDevResourceGenerateDesc cuDevSmResourceSplitByCount cuDeviceGetDevResource
    cuIpcGetMemHandle cuIpcOpenMemHandle_v2
    cuLibraryLoadFromFile cuOccupancyMaxPotentialClusterSize
    cuLinkCreate cuLinkCreate_v2 cuLinkAddData cuLinkAddData_v2 cuLinkComplete cuLinkDestroy
    cuStreamGetGreenCtx
}
