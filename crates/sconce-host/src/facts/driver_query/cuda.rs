//! `cuInit`, which finds what no file tells: a driver that does not fit its module, a card that a
//! cgroup hides, a fabric manager that does not run. It creates no context and takes no memory of
//! a card (CUDA's driver API, "Initialization").
#![expect(unsafe_code, reason = "CUDA's driver library has a C interface")]

use std::ffi::{OsStr, c_int, c_uint};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use sconce_schema::facts::CudaInit;

use crate::facts::nvml::cuda_version;

type Init = unsafe extern "C" fn(c_uint) -> c_int;
type Number = unsafe extern "C" fn(*mut c_int) -> c_int;

/// Loads the library, starts it, and asks for its version and its devices. The version needs no
/// start, and is told although the start failed.
pub(super) fn init_driver(library: &OsStr) -> CudaInit {
    call(library).unwrap_or_else(|error| CudaInit {
        error: Some(error.to_string()),
        ..CudaInit::default()
    })
}

fn call(library: &OsStr) -> Result<CudaInit, libloading::Error> {
    // SAFETY: its constructors run with this; it is the machine's own driver, or a file that the
    // caller named, and the process exists for it alone.
    let library = unsafe { Library::open(Some(library), RTLD_NOW | RTLD_LOCAL) }?;
    // Unloading a driver that has started runs code of its that nothing needs.
    let library = std::mem::ManuallyDrop::new(library);
    // SAFETY: the functions have these types (cuda.h), and the library stays loaded.
    let (start, version, count) = unsafe {
        (
            *library.get::<Init>(b"cuInit\0")?,
            *library.get::<Number>(b"cuDriverGetVersion\0")?,
            *library.get::<Number>(b"cuDeviceGetCount\0")?,
        )
    };
    // SAFETY: the only defined flag is 0.
    let result = unsafe { start(0) };
    let ask = |function: Number| {
        let mut number = 0;
        // SAFETY: the function writes one number.
        let result = unsafe { function(&raw mut number) };
        (result == 0).then_some(number)
    };
    Ok(CudaInit {
        result: Some(result),
        error: None,
        driver_cuda: ask(version).and_then(cuda_version),
        devices: match result {
            0 => ask(count).and_then(|count| u32::try_from(count).ok()),
            _ => None,
        },
    })
}
