//! `nvml.h`: cards by index, and no processes on them.

use std::ffi::c_char;

use crate::abi::{CTextPointer, Handle, OutPointer, entries, nothing, write_text};
use crate::machine::lock_state;
use crate::runtime::device::DRIVER_VERSION;
use crate::runtime::properties;

/// A status of NVML (`nvmlReturn_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum NvmlStatus {
    NotSupported = 3,
    NotFound = 6,
    DriverNotLoaded = 9,
}

fn status(answer: Result<(), NvmlStatus>) -> i32 {
    match answer {
        Ok(()) => 0,
        Err(why) => why as i32,
    }
}

const DEVICE: Handle = 0x3000;

fn index_of(device: Handle) -> Result<usize, NvmlStatus> {
    let index = device.checked_sub(DEVICE).ok_or(NvmlStatus::NotFound)? / 0x10;
    match index < lock_state().devices.len() {
        true => Ok(index),
        false => Err(NvmlStatus::NotFound),
    }
}

fn by_index(index: usize, device: OutPointer<Handle>) -> Result<(), NvmlStatus> {
    if index >= lock_state().devices.len() {
        return Err(NvmlStatus::NotFound);
    }
    device.write(DEVICE + index * 0x10);
    Ok(())
}

fn uuid(index: usize) -> String {
    let hex: String = properties::uuid(index)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let part = |from: usize, to: usize| hex[from..to].to_owned();
    format!(
        "GPU-{}-{}-{}-{}-{}",
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32)
    )
}

/// `nvmlMemory_t`.
#[derive(Debug)]
#[repr(C)]
pub struct NvmlMemory {
    total: u64,
    free: u64,
    used: u64,
}

entries! { status;
    fn nvmlInit() { begun() }
    fn nvmlInit_v2() { begun() }
    fn nvmlDeviceGetCount(count: OutPointer<u32>) {
        count.write(lock_state().devices.len() as u32);
        Ok(())
    }
    fn nvmlDeviceGetCount_v2(count: OutPointer<u32>) {
        count.write(lock_state().devices.len() as u32);
        Ok(())
    }
    fn nvmlDeviceGetHandleByIndex(index: u32, device: OutPointer<Handle>) { by_index(index as usize, device) }
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: OutPointer<Handle>) { by_index(index as usize, device) }
    fn nvmlDeviceGetHandleByPciBusId_v2(bus: CTextPointer, device: OutPointer<Handle>) {
        let bus = bus.to_string_lossy();
        let count = lock_state().devices.len();
        let index = (0..count).find(|index| bus.ends_with(&properties::pci_bus_id(*index)[4..]));
        by_index(index.unwrap_or(usize::MAX), device)
    }
    fn nvmlDeviceGetHandleByUUID(wanted: CTextPointer, device: OutPointer<Handle>) {
        let wanted = wanted.to_string_lossy();
        let count = lock_state().devices.len();
        by_index((0..count).find(|index| uuid(*index) == wanted).unwrap_or(usize::MAX), device)
    }
    fn nvmlDeviceGetUUID(device: Handle, text: Handle, size: u32) {
        write_text(text, size as usize, &uuid(index_of(device)?));
        Ok(())
    }
    fn nvmlDeviceGetName(device: Handle, text: Handle, size: u32) {
        let index = index_of(device)?;
        write_text(text, size as usize, &lock_state().devices[index].card.name);
        Ok(())
    }
    fn nvmlDeviceGetMemoryInfo(device: Handle, memory: OutPointer<NvmlMemory>) {
        let index = index_of(device)?;
        let machine = lock_state();
        let device = &machine.devices[index];
        memory.write(NvmlMemory {
            total: device.card.memory_bytes,
            free: device.free_bytes(),
            used: device.card.memory_bytes - device.free_bytes(),
        });
        Ok(())
    }
    fn nvmlDeviceGetComputeRunningProcesses(device: Handle, count: OutPointer<u32>) {
        index_of(device)?;
        count.write(0);
        Ok(())
    }
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Handle, count: OutPointer<u32>) {
        index_of(device)?;
        count.write(0);
        Ok(())
    }
    fn nvmlSystemGetCudaDriverVersion_v2(version: OutPointer<i32>) {
        version.write(DRIVER_VERSION);
        Ok(())
    }
    fn nvmlSystemGetDriverVersion(text: Handle, size: u32) {
        write_text(text, size as usize, "595.00");
        Ok(())
    }
    fn nvmlDeviceGetNvLinkRemoteDeviceType() { Err(NvmlStatus::NotSupported) }
    fn nvmlDeviceGetNvLinkRemotePciInfo_v2() { Err(NvmlStatus::NotSupported) }
    fn nvmlDeviceGetGpuFabricInfoV() { Err(NvmlStatus::NotSupported) }
    fn nvmlDeviceGetP2PStatus() { Err(NvmlStatus::NotSupported) }
}

fn begun() -> Result<(), NvmlStatus> {
    match lock_state().devices.is_empty() {
        true => Err(NvmlStatus::DriverNotLoaded),
        false => Ok(()),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: i32) -> *const c_char {
    let said = match code {
        0 => c"Success",
        3 => c"Not Supported",
        6 => c"Not Found",
        9 => c"Driver Not Loaded",
        _ => c"Unknown Error",
    };
    said.as_ptr()
}

nothing! { nvmlShutdown }
