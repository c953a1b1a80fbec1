//! Cards: how many, what they are, which one a thread has chosen.

use crate::abi::{CTextPointer, Handle, OutPointer, entries, nothing, symbol, write_text};
use crate::machine::{choose, current, machine};

use super::properties::{self, PropertiesLayout};
use super::{Error, Result, status};

/// The newest CUDA that the virtual driver says it runs.
pub const DRIVER_VERSION: i32 = 13_020;

/// The index of a card that there is.
pub(super) fn known(device: i32) -> Result<usize> {
    let count = machine().devices.len();
    match usize::try_from(device) {
        _ if count == 0 => Err(Error::NoDevice),
        Ok(index) if index < count => Ok(index),
        _ => Err(Error::InvalidDevice),
    }
}

entries! { status;
    fn cudaGetDeviceCount(count: OutPointer<i32>) {
        let devices = machine().devices.len();
        count.put(i32::try_from(devices).unwrap_or(0));
        if devices == 0 { Err(Error::NoDevice) } else { Ok(()) }
    }
    fn cudaGetDevice(device: OutPointer<i32>) {
        known(0)?;
        device.put(current() as i32);
        Ok(())
    }
    fn cudaSetDevice(device: i32) {
        let index = known(device)?;
        choose(index);
        machine().devices[index].has_context = true;
        Ok(())
    }
    fn cudaDeviceReset() { Ok(()) }
    fn cudaDeviceSynchronize() {
        known(0)?;
        machine().clock.await_all();
        Ok(())
    }
    fn cudaGetDeviceProperties(to: Handle, device: i32) {
        let index = known(device)?;
        properties::write(to, &machine().devices[index].card, index, &PropertiesLayout::THIRTEEN);
        Ok(())
    }
    fn cudaGetDeviceProperties_v2(to: Handle, device: i32) {
        let index = known(device)?;
        properties::write(to, &machine().devices[index].card, index, &PropertiesLayout::TWELVE);
        Ok(())
    }
    fn cudaDeviceGetAttribute(value: OutPointer<i32>, attribute: i32, device: i32) {
        let index = known(device)?;
        value.put(properties::attribute(&machine().devices[index].card, index, attribute));
        Ok(())
    }
    fn cudaDeviceGetPCIBusId(to: Handle, size: i32, device: i32) {
        let index = known(device)?;
        write_text(to, usize::try_from(size).unwrap_or(0), &properties::bus(index));
        Ok(())
    }
    fn cudaDeviceGetStreamPriorityRange(least: OutPointer<i32>, greatest: OutPointer<i32>) {
        least.put(0);
        greatest.put(-5);
        Ok(())
    }
    fn cudaDeviceCanAccessPeer(can: OutPointer<i32>, device: i32, peer: i32) {
        let (device, peer) = (known(device)?, known(peer)?);
        can.put(i32::from(device != peer));
        Ok(())
    }
    fn cudaDriverGetVersion(version: OutPointer<i32>) {
        version.put(DRIVER_VERSION);
        Ok(())
    }
    fn cudaDeviceGetLimit(value: OutPointer<usize>, limit: i32) {
        let _ = limit;
        value.put(1024);
        Ok(())
    }
    fn cudaGetDriverEntryPoint(name: CTextPointer, function: OutPointer<Handle>, flags: u64, found: OutPointer<i32>) {
        let _ = flags;
        entry_point(&name.get(), function, found)
    }
    fn cudaGetDriverEntryPointByVersion(name: CTextPointer, function: OutPointer<Handle>, version: u32, flags: u64, found: OutPointer<i32>) {
        let _ = (version, flags);
        entry_point(&name.get(), function, found)
    }
}

/// A function of the driver. Those whose arguments have changed have a version in their names.
fn entry_point(name: &str, function: OutPointer<Handle>, found: OutPointer<i32>) -> Result<()> {
    let named = |suffix: &str| std::ffi::CString::new(format!("{name}{suffix}")).ok();
    let address = ["_v3", "_v2", ""]
        .iter()
        .find_map(|suffix| symbol(&named(suffix)?));
    function.put(address.unwrap_or(0));
    found.put(i32::from(address.is_none()));
    match address {
        Some(_) => Ok(()),
        None => {
            crate::unknown::met(name);
            Err(Error::SymbolNotFound)
        }
    }
}

nothing! {
    cudaDeviceEnablePeerAccess cudaDeviceDisablePeerAccess cudaDeviceSetLimit cudaDeviceSetCacheConfig
    cudaSetDeviceFlags cudaInitDevice cudaProfilerStart cudaProfilerStop
    cudaDeviceSetGraphMemAttribute cudaDeviceGraphMemTrim
}
