//! Memory of the cards and of the host.

use crate::abi::{Handle, OutPointer, entries, host_alloc, host_free, nothing};
use crate::control::tell_of_read;
use crate::machine::{current_device, lock_state};
use crate::memory::is_of_a_card;

use super::device::check_device;
use super::{Error, Result, remember_status};

/// `cudaPointerAttributes`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PointerAttributes {
    /// 0 not CUDA's, 1 of the host, 2 of a card, 3 managed.
    kind: i32,
    device: i32,
    device_pointer: usize,
    host_pointer: usize,
}

const HOST: i32 = 1;
const DEVICE: i32 = 2;

fn allocate(address: OutPointer<u64>, size: usize) -> Result<()> {
    check_device(0)?;
    if size == 0 {
        address.write(0);
        return Ok(());
    }
    let taken = lock_state().allocate(current_device(), size as u64);
    address.write(taken.unwrap_or(0));
    taken.map(|_| ()).ok_or(Error::MemoryAllocation)
}

fn pinned(address: OutPointer<usize>, size: usize) -> Result<()> {
    let given = host_alloc(size);
    if given == 0 {
        return Err(Error::MemoryAllocation);
    }
    lock_state().pinned.insert(given, size);
    address.write(given);
    Ok(())
}

entries! { remember_status;
    fn cudaMalloc(address: OutPointer<u64>, size: usize) { allocate(address, size) }
    fn cudaMallocAsync(address: OutPointer<u64>, size: usize, stream: Handle) {
        let _ = stream;
        allocate(address, size)
    }
    fn cudaMallocManaged(address: OutPointer<u64>, size: usize, flags: u32) {
        let _ = flags;
        allocate(address, size)
    }
    fn cudaFree(address: u64) {
        match address == 0 || lock_state().give_back(address) {
            true => Ok(()),
            false => Err(Error::InvalidValue),
        }
    }
    fn cudaFreeAsync(address: u64, stream: Handle) {
        let _ = stream;
        match address == 0 || lock_state().give_back(address) {
            true => Ok(()),
            false => Err(Error::InvalidValue),
        }
    }
    fn cudaMemGetInfo(free: OutPointer<usize>, total: OutPointer<usize>) {
        let index = check_device(current_device() as i32)?;
        let machine = lock_state();
        let device = &machine.devices[index];
        free.write(device.free_bytes() as usize);
        total.write(device.card.memory_bytes as usize);
        Ok(())
    }
    fn cudaMallocHost(address: OutPointer<usize>, size: usize) { pinned(address, size) }
    fn cudaHostAlloc(address: OutPointer<usize>, size: usize, flags: u32) {
        let _ = flags;
        pinned(address, size)
    }
    fn cudaFreeHost(address: usize) {
        if address != 0 && lock_state().pinned.remove(&address).is_none() {
            return Err(Error::InvalidValue);
        }
        host_free(address);
        Ok(())
    }
    fn cudaHostRegister(address: usize, size: usize, flags: u32) {
        let _ = flags;
        lock_state().pinned.insert(address, size);
        Ok(())
    }
    fn cudaHostUnregister(address: usize) {
        lock_state().pinned.remove(&address);
        Ok(())
    }
    fn cudaHostGetDevicePointer(to: OutPointer<usize>, address: usize, flags: u32) {
        let _ = flags;
        to.write(address);
        Ok(())
    }
    fn cudaPointerGetAttributes(to: OutPointer<PointerAttributes>, address: u64) {
        let machine = lock_state();
        let of_card = machine.device_at(address);
        let near = machine.pinned.range(..=address as usize).next_back();
        let is_pinned = near.is_some_and(|(start, size)| address as usize - start < *size);
        let host_pointer = if is_pinned { address as usize } else { 0 };
        to.write(match of_card {
            Some(device) => PointerAttributes {
                kind: DEVICE,
                device: device as i32,
                device_pointer: address as usize,
                host_pointer: 0,
            },
            None => PointerAttributes {
                kind: if is_pinned { HOST } else { 0 },
                device: if is_pinned { current_device() as i32 } else { -2 },
                device_pointer: host_pointer,
                host_pointer,
            },
        });
        Ok(())
    }
    fn cudaMemcpy(to: u64, from: u64, size: usize, kind: i32) {
        let _ = kind;
        let mut machine = lock_state();
        let made_up = machine.copy_memory(to, from, size, 0);
        machine.clock.await_stream(0);
        drop(machine);
        if made_up {
            tell_of_read(to, size);
        }
        Ok(())
    }
    fn cudaMemcpyAsync(to: u64, from: u64, size: usize, kind: i32, stream: Handle) {
        let _ = kind;
        copied(to, from, size, stream)
    }
    fn cudaMemcpyPeerAsync(to: u64, to_device: i32, from: u64, from_device: i32, size: usize, stream: Handle) {
        let _ = (to_device, from_device);
        copied(to, from, size, stream)
    }
    fn cudaMemcpy2DAsync(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, kind: i32, stream: Handle) {
        let _ = kind;
        for row in 0..height {
            copied(to + (row * to_pitch) as u64, from + (row * from_pitch) as u64, width, stream)?;
        }
        Ok(())
    }
    fn cudaMemset(to: u64, value: i32, size: usize) {
        lock_state().fill_memory(to, value as u8, size, 0);
        Ok(())
    }
    fn cudaMemsetAsync(to: u64, value: i32, size: usize, stream: Handle) {
        lock_state().fill_memory(to, value as u8, size, stream);
        Ok(())
    }
    // A variable of a kernel's file: no memory that anything asks for.
    fn cudaGetSymbolAddress(to: OutPointer<u64>, symbol: usize) {
        let _ = symbol;
        let first = lock_state().devices.first().map(|_| crate::memory::CARD_BASE);
        to.write(first.ok_or(Error::NoDevice)?);
        Ok(())
    }
    fn cudaDeviceGetDefaultMemPool(pool: OutPointer<Handle>, device: i32) {
        pool.write(0x100 + check_device(device)?);
        Ok(())
    }
    fn cudaMemPoolGetAttribute(pool: Handle, attribute: i32, to: OutPointer<u64>) {
        let _ = (pool, attribute);
        to.write(0);
        Ok(())
    }
    fn cudaDeviceGetGraphMemAttribute(device: i32, attribute: i32, to: OutPointer<u64>) {
        let _ = (device, attribute);
        to.write(0);
        Ok(())
    }
}

/// Copies between this process and a card wait for the stream, as they do for memory that is not
/// pinned; from a card to the host the caller waits itself where it is.
fn copied(to: u64, from: u64, size: usize, stream: Handle) -> Result<()> {
    let mut machine = lock_state();
    let made_up = machine.copy_memory(to, from, size, stream);
    if !is_of_a_card(to) {
        machine.clock.await_stream(stream);
    }
    // Who is told may ask the machine for something.
    drop(machine);
    if made_up {
        tell_of_read(to, size);
    }
    Ok(())
}

nothing! {
    cudaMemcpyToSymbol cudaMemcpyToSymbolAsync cudaMemPoolSetAccess cudaMemPoolSetAttribute cudaMemPoolTrimTo
    cudaMemAdvise cudaMemPrefetchAsync
}
