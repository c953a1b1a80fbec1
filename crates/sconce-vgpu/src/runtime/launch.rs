//! Kernels: they do nothing, and take a time that is a guess.

use crate::abi::{Handle, InPointer, OutPointer, entries, nothing};
use crate::machine::{current_device, lock_state};

use super::kernels::KernelTargets;
use super::{Error, Result, remember_status};

/// `dim3`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

impl Dim3 {
    pub fn new(x: u32, y: u32, z: u32) -> Self {
        Self { x, y, z }
    }

    fn all(self) -> u64 {
        u64::from(self.x) * u64::from(self.y) * u64::from(self.z)
    }
}

/// `cudaLaunchConfig_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: Handle,
    attributes: Handle,
    attribute_count: u32,
}

/// `cudaFuncAttributes`, the same in CUDA 12 and 13 as far as anything is said here.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct FunctionAttributes {
    shared_bytes: usize,
    const_bytes: usize,
    local_bytes: usize,
    max_threads_per_block: i32,
    registers: i32,
    ptx_version: i32,
    binary_version: i32,
    cache_mode: i32,
    max_dynamic_shared_bytes: i32,
    preferred_carveout: i32,
    cluster_must_be_set: i32,
    cluster: [i32; 3],
    cluster_policy: i32,
    non_portable_cluster: i32,
    reserved: [i32; 16],
}

/// Bytes that one thread is taken to move: four elements of four bytes, read twice and written once.
const BYTES_PER_THREAD: u64 = 48;

/// Starts a kernel of so many blocks and threads.
pub fn launch_grid(grid: Dim3, block: Dim3, stream: Handle) -> Result<()> {
    let mut machine = lock_state();
    let card = &machine
        .devices
        .get(current_device())
        .ok_or(Error::NoDevice)?
        .card;
    let bytes = grid
        .all()
        .saturating_mul(block.all())
        .saturating_mul(BYTES_PER_THREAD);
    let duration = duration_ns(bytes, card.memory_rate);
    machine.launch_kernel(stream, duration);
    Ok(())
}

/// How long `amount` takes at `rate` in a second, in ns; 0 where the rate is not known.
pub fn duration_ns(amount: u64, rate: u64) -> u64 {
    let ns = u128::from(amount) * 1_000_000_000;
    let ns = ns.checked_div(u128::from(rate)).unwrap_or(0);
    u64::try_from(ns).unwrap_or(u64::MAX >> 1)
}

/// What the kernel was compiled for that runs on the current card.
///
/// # Errors
/// [`Error::NoKernelImageForDevice`] where none does: a release of PyTorch that is too new for the
/// card, or too old.
fn compiled(function: Handle) -> Result<KernelTargets> {
    let machine = &mut *lock_state();
    let device = machine
        .devices
        .get(current_device())
        .ok_or(Error::NoDevice)?;
    machine
        .kernels
        .kernel_targets(function, device.card.compute_capability())
}

entries! { remember_status;
    fn cudaLaunchKernel(function: Handle, grid: Dim3, block: Dim3, arguments: Handle, shared: usize, stream: Handle) {
        let _ = (arguments, shared);
        compiled(function)?;
        launch_grid(grid, block, stream)
    }
    fn cudaLaunchCooperativeKernel(function: Handle, grid: Dim3, block: Dim3, arguments: Handle, shared: usize, stream: Handle) {
        let _ = (arguments, shared);
        compiled(function)?;
        launch_grid(grid, block, stream)
    }
    fn __cudaLaunchKernel(kernel: Handle, grid: Dim3, block: Dim3, arguments: Handle, shared: usize, stream: Handle) {
        let _ = (arguments, shared);
        compiled(kernel)?;
        launch_grid(grid, block, stream)
    }
    fn cudaLaunchKernelExC(config: InPointer<LaunchConfig>, function: Handle, arguments: Handle) {
        let _ = arguments;
        compiled(function)?;
        let config = config.get().ok_or(Error::InvalidValue)?;
        launch_grid(config.grid, config.block, config.stream)
    }
    fn __cudaGetKernel(kernel: OutPointer<Handle>, function: Handle) {
        kernel.write(function);
        Ok(())
    }
    fn cudaFuncGetAttributes(to: OutPointer<FunctionAttributes>, function: Handle) {
        let compiled = compiled(function)?;
        to.write(FunctionAttributes {
            max_threads_per_block: 1024,
            registers: 32,
            ptx_version: compiled.ptx as i32,
            binary_version: compiled.machine_code as i32,
            max_dynamic_shared_bytes: 48 << 10,
            preferred_carveout: -1,
            ..FunctionAttributes::default()
        });
        Ok(())
    }
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks: OutPointer<i32>, function: Handle, threads: i32, shared: usize) {
        compiled(function)?;
        blocks.write(max_active_blocks(threads, shared)?);
        Ok(())
    }
    fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: OutPointer<i32>, function: Handle, threads: i32, shared: usize, flags: u32) {
        let _ = flags;
        compiled(function)?;
        blocks.write(max_active_blocks(threads, shared)?);
        Ok(())
    }
}

/// Blocks that a multiprocessor holds at once, by threads and shared memory alone: which registers a
/// kernel needs is in its code.
pub fn max_active_blocks(threads: i32, shared: usize) -> Result<i32> {
    let machine = lock_state();
    let card = &machine
        .devices
        .get(current_device())
        .ok_or(Error::NoDevice)?
        .card;
    let has = card.multiprocessor_limits();
    let by_threads = has.threads / threads.clamp(1, 1024);
    // Each block takes 1 KiB of its own.
    let by_shared = has.shared_bytes as usize / (shared + 1024);
    Ok(by_threads.min(has.blocks).min(by_shared as i32))
}

nothing! {
    cudaFuncSetAttribute cudaFuncSetCacheConfig cudaKernelSetAttributeForDevice cudaFuncSetSharedMemConfig
}
