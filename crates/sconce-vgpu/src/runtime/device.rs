//! Cards: how many, what they are, which one a thread has chosen.

use crate::abi::{CTextPointer, Handle, OutPointer, entries, find_symbol, nothing, write_text};
use crate::machine::{current_device, lock_state, set_current_device};

use super::properties::{self, PropertiesLayout};
use super::{Error, Result, remember_status};

/// The newest CUDA that the virtual driver says it runs.
pub const DRIVER_VERSION: i32 = 13_020;

/// The index of a card that there is.
pub(super) fn check_device(device: i32) -> Result<usize> {
    let count = lock_state().devices.len();
    match usize::try_from(device) {
        _ if count == 0 => Err(Error::NoDevice),
        Ok(index) if index < count => Ok(index),
        _ => Err(Error::InvalidDevice),
    }
}

entries! { remember_status;
    fn cudaGetDeviceCount(count: OutPointer<i32>) {
        let devices = lock_state().devices.len();
        count.write(i32::try_from(devices).unwrap_or(0));
        if devices == 0 { Err(Error::NoDevice) } else { Ok(()) }
    }
    fn cudaGetDevice(device: OutPointer<i32>) {
        check_device(0)?;
        device.write(current_device() as i32);
        Ok(())
    }
    fn cudaSetDevice(device: i32) {
        let index = check_device(device)?;
        set_current_device(index);
        lock_state().devices[index].has_context = true;
        Ok(())
    }
    fn cudaDeviceReset() { Ok(()) }
    fn cudaDeviceSynchronize() {
        check_device(0)?;
        lock_state().clock.await_all();
        Ok(())
    }
    fn cudaGetDeviceProperties(to: Handle, device: i32) {
        let index = check_device(device)?;
        properties::write(to, &lock_state().devices[index].card, index, &PropertiesLayout::THIRTEEN);
        Ok(())
    }
    fn cudaGetDeviceProperties_v2(to: Handle, device: i32) {
        let index = check_device(device)?;
        properties::write(to, &lock_state().devices[index].card, index, &PropertiesLayout::TWELVE);
        Ok(())
    }
    fn cudaDeviceGetAttribute(value: OutPointer<i32>, attribute: i32, device: i32) {
        let index = check_device(device)?;
        value.write(properties::device_attribute(&lock_state().devices[index].card, index, attribute));
        Ok(())
    }
    fn cudaDeviceGetPCIBusId(to: Handle, size: i32, device: i32) {
        let index = check_device(device)?;
        write_text(to, usize::try_from(size).unwrap_or(0), &properties::pci_bus_id(index));
        Ok(())
    }
    fn cudaDeviceGetStreamPriorityRange(least: OutPointer<i32>, greatest: OutPointer<i32>) {
        least.write(0);
        greatest.write(-5);
        Ok(())
    }
    fn cudaDeviceCanAccessPeer(can: OutPointer<i32>, device: i32, peer: i32) {
        let (device, peer) = (check_device(device)?, check_device(peer)?);
        can.write(i32::from(device != peer));
        Ok(())
    }
    fn cudaDriverGetVersion(version: OutPointer<i32>) {
        version.write(DRIVER_VERSION);
        Ok(())
    }
    fn cudaDeviceGetLimit(value: OutPointer<usize>, limit: i32) {
        let _ = limit;
        value.write(1024);
        Ok(())
    }
    fn cudaGetDriverEntryPoint(name: CTextPointer, function: OutPointer<Handle>, flags: u64, found: OutPointer<i32>) {
        let _ = flags;
        entry_point(&name.to_string_lossy(), function, found)
    }
    fn cudaGetDriverEntryPointByVersion(name: CTextPointer, function: OutPointer<Handle>, version: u32, flags: u64, found: OutPointer<i32>) {
        let _ = (version, flags);
        entry_point(&name.to_string_lossy(), function, found)
    }
}

/// A function of the driver. Those whose arguments have changed have a version in their names.
fn entry_point(name: &str, function: OutPointer<Handle>, found: OutPointer<i32>) -> Result<()> {
    let named = |suffix: &str| std::ffi::CString::new(format!("{name}{suffix}")).ok();
    let address = ["_v3", "_v2", ""]
        .iter()
        .find_map(|suffix| find_symbol(&named(suffix)?));
    function.write(address.unwrap_or(0));
    found.write(i32::from(address.is_none()));
    match address {
        Some(_) => Ok(()),
        None => {
            crate::unknown::report_unknown_call(name);
            Err(Error::SymbolNotFound)
        }
    }
}

nothing! {
    cudaDeviceEnablePeerAccess cudaDeviceDisablePeerAccess cudaDeviceSetLimit cudaDeviceSetCacheConfig
    cudaSetDeviceFlags cudaInitDevice cudaProfilerStart cudaProfilerStop
    cudaDeviceSetGraphMemAttribute cudaDeviceGraphMemTrim
}
