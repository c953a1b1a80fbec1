//! Modules and kernels that are loaded as code, by Triton and by run-time compilation.

use crate::abi::{Handle, OutPointer, entries, nothing};
use crate::machine::{current_device, lock_state};
use crate::runtime::launch::{Dim3, launch_grid, max_active_blocks};

use super::{Error, Result, status_code};

fn made(handle: OutPointer<Handle>) -> Result<()> {
    handle.write(lock_state().next_handle());
    Ok(())
}

entries! { status_code;
    fn cuModuleLoad(module: OutPointer<Handle>, path: Handle) { let _ = path; made(module) }
    fn cuModuleLoadData(module: OutPointer<Handle>, image: Handle) { let _ = image; made(module) }
    fn cuModuleLoadDataEx(module: OutPointer<Handle>, image: Handle) { let _ = image; made(module) }
    fn cuLibraryLoadData(library: OutPointer<Handle>, image: Handle) { let _ = image; made(library) }
    fn cuModuleGetFunction(function: OutPointer<Handle>, module: Handle, name: Handle) {
        let _ = (module, name);
        made(function)
    }
    fn cuLibraryGetKernel(kernel: OutPointer<Handle>, library: Handle, name: Handle) {
        let _ = (library, name);
        made(kernel)
    }
    fn cuKernelGetFunction(function: OutPointer<Handle>, kernel: Handle) {
        function.write(kernel);
        Ok(())
    }
    fn cuFuncGetAttribute(value: OutPointer<i32>, attribute: i32, function: Handle) {
        let _ = function;
        // The most threads of a block, and registers; nothing is spilt.
        value.write(match attribute {
            0 => 1024,
            4 => 32,
            _ => 0,
        });
        Ok(())
    }
    fn cuKernelGetAttribute(value: OutPointer<i32>, attribute: i32, kernel: Handle, device: i32) {
        let _ = (kernel, device);
        value.write(match attribute {
            0 => 1024,
            4 => 32,
            _ => 0,
        });
        Ok(())
    }
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks: OutPointer<i32>, function: Handle, threads: i32, shared: usize) {
        let _ = function;
        blocks.write(max_active_blocks(threads, shared).map_err(|_| Error::NoDevice)?);
        Ok(())
    }
    fn cuOccupancyMaxActiveClusters(clusters: OutPointer<i32>) {
        let machine = lock_state();
        let device = machine.devices.get(current_device()).ok_or(Error::NoDevice)?;
        clusters.write(device.card.multiprocessors / 2);
        Ok(())
    }
    fn cuLaunchKernel(function: Handle, x: u32, y: u32, z: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle) {
        let _ = (function, shared);
        launch_grid(Dim3::new(x, y, z), Dim3::new(bx, by, bz), stream).map_err(|_| Error::NoDevice)
    }
    fn cuLaunchCooperativeKernel(function: Handle, x: u32, y: u32, z: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: Handle) {
        let _ = (function, shared);
        launch_grid(Dim3::new(x, y, z), Dim3::new(bx, by, bz), stream).map_err(|_| Error::NoDevice)
    }
    fn cuLaunchKernelEx(config: crate::abi::InPointer<LaunchConfig>, function: Handle) {
        let _ = function;
        let config = config.get().ok_or(Error::InvalidValue)?;
        launch_grid(config.grid, config.block, config.stream).map_err(|_| Error::NoDevice)
    }
}

/// `CUlaunchConfig`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared_bytes: u32,
    stream: Handle,
}

nothing! {
    cuModuleUnload cuLibraryUnload cuFuncSetAttribute cuKernelSetAttribute cuFuncSetCacheConfig
    cuTensorMapEncodeTiled cuTensorMapEncodeIm2col cuStreamWriteValue32 cuStreamWriteValue32_v2
    cuLogsRegisterCallback cuLogsUnregisterCallback
}
