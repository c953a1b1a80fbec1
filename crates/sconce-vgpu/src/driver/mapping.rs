//! Virtual memory: ranges of addresses, pieces of memory, and which piece is mapped where.

use crate::abi::{Handle, InPointer, OutPointer, entries, nothing};
use crate::machine::{PhysicalAllocation, current_device, lock_state};
use crate::memory::GRANULE;

use super::{Error, Result, status_code};

/// `CUmemAllocationProp`, as far as anything is read of it.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct AllocationProperties {
    kind: i32,
    handle_types: i32,
    location_kind: i32,
    location: i32,
    metadata: Handle,
    flags: [u8; 8],
}

fn release(handle: Handle) -> Result<()> {
    let mut machine = lock_state();
    let piece = machine.pieces.get_mut(&handle).ok_or(Error::InvalidValue)?;
    piece.held -= 1;
    let piece = *piece;
    if piece.held == 0 {
        machine.pieces.remove(&handle);
        if let Some(device) = machine.devices.get_mut(piece.device) {
            device.taken.give_back(piece.size);
        }
    }
    Ok(())
}

entries! { status_code;
    fn cuMemGetAllocationGranularity(size: OutPointer<usize>, properties: Handle, option: i32) {
        let _ = (properties, option);
        size.write(GRANULE as usize);
        Ok(())
    }
    fn cuMemAddressReserve(address: OutPointer<u64>, size: usize, alignment: usize, wanted: u64, flags: u64) {
        let _ = (alignment, wanted, flags);
        let size = (size as u64).checked_next_multiple_of(GRANULE).ok_or(Error::InvalidValue)?;
        let mut machine = lock_state();
        let device = machine.devices.get_mut(current_device()).ok_or(Error::NoDevice)?;
        address.write(device.ranges.allocate(size).ok_or(Error::OutOfMemory)?);
        Ok(())
    }
    fn cuMemAddressFree(address: u64, size: usize) {
        let _ = size;
        let mut machine = lock_state();
        let given = machine.devices.iter_mut().find_map(|device| device.ranges.give_back(address));
        given.map(|_| ()).ok_or(Error::InvalidValue)
    }
    fn cuMemCreate(handle: OutPointer<Handle>, size: usize, properties: InPointer<AllocationProperties>, flags: u64) {
        let _ = flags;
        let index = properties.get().map_or(0, |properties| properties.location);
        let index = usize::try_from(index).map_err(|_| Error::InvalidDevice)?;
        let size = (size as u64).checked_next_multiple_of(GRANULE).ok_or(Error::InvalidValue)?;
        let mut machine = lock_state();
        let device = machine.devices.get_mut(index).ok_or(Error::InvalidDevice)?;
        let capacity = device.usable_bytes();
        if !device.taken.try_reserve(size, capacity) {
            return Err(Error::OutOfMemory);
        }
        let made = machine.next_handle();
        let piece = PhysicalAllocation { device: index, size, held: 1 };
        machine.pieces.insert(made, piece);
        handle.write(made);
        Ok(())
    }
    fn cuMemRelease(handle: Handle) { release(handle) }
    fn cuMemMap(address: u64, size: usize, offset: usize, handle: Handle, flags: u64) {
        let _ = (offset, flags);
        let mut machine = lock_state();
        machine.pieces.get_mut(&handle).ok_or(Error::InvalidValue)?.held += 1;
        machine.mapped.insert(address, (handle, size as u64));
        Ok(())
    }
    fn cuMemUnmap(address: u64, size: usize) {
        let end = address.saturating_add(size as u64);
        let mut machine = lock_state();
        let within: Vec<u64> = machine.mapped.range(address..end).map(|(at, _)| *at).collect();
        let handles: Vec<Handle> = within
            .iter()
            .filter_map(|at| Some(machine.mapped.remove(at)?.0))
            .collect();
        drop(machine);
        handles.into_iter().try_for_each(release)
    }
    fn cuMemRetainAllocationHandle(handle: OutPointer<Handle>, address: u64) {
        let mut machine = lock_state();
        let (_, (found, _)) = machine.mapped.range(..=address).next_back().ok_or(Error::InvalidValue)?;
        let found = *found;
        machine.pieces.get_mut(&found).ok_or(Error::InvalidValue)?.held += 1;
        handle.write(found);
        Ok(())
    }
    fn cuMemGetAddressRange_v2(start: OutPointer<u64>, size: OutPointer<usize>, address: u64) {
        let machine = lock_state();
        let of_card = crate::memory::card_of(address).and_then(|index| machine.devices.get(index));
        let found = match of_card {
            Some(device) => device.space.find_allocation(address),
            None => machine.devices.iter().find_map(|device| device.ranges.find_allocation(address)),
        };
        let (at, bytes) = found.ok_or(Error::InvalidValue)?;
        start.write(at);
        size.write(bytes as usize);
        Ok(())
    }
    fn cuMemGetInfo_v2(free: OutPointer<usize>, total: OutPointer<usize>) {
        let machine = lock_state();
        let device = machine.devices.get(current_device()).ok_or(Error::NoDevice)?;
        free.write(device.free_bytes() as usize);
        total.write(device.card.memory_bytes as usize);
        Ok(())
    }
    fn cuPointerGetAttribute(value: OutPointer<u64>, attribute: i32, address: u64) {
        const CONTEXT: i32 = 1;
        const KIND: i32 = 2;
        const DEVICE_POINTER: i32 = 3;
        const ORDINAL: i32 = 9;
        let device = lock_state().device_at(address).ok_or(Error::InvalidValue)?;
        match attribute {
            CONTEXT => value.write(0x2000 + 0x10 * device as u64),
            DEVICE_POINTER => value.write(address),
            // Numbers of 32 bits.
            KIND | ORDINAL => small(value, if attribute == KIND { 2 } else { device as u32 }),
            _ => small(value, 0),
        }
        Ok(())
    }
    fn cuMemsetD8Async(address: u64, value: u8, count: usize, stream: Handle) {
        lock_state().fill_memory(address, value, count, stream);
        Ok(())
    }
    fn cuMemsetD32Async(address: u64, value: u32, count: usize, stream: Handle) {
        // Only what is the same in every byte can be said.
        lock_state().fill_memory(address, value as u8, 4 * count, stream);
        Ok(())
    }
}

fn small(to: OutPointer<u64>, value: u32) {
    to.narrow::<u32>().write(value);
}

nothing! { cuMemSetAccess }
