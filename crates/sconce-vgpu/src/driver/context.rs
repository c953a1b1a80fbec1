//! Cards and contexts: each card has its one context, the primary one.

use crate::abi::{CTextPointer, Handle, OutPointer, entries, find_symbol, nothing, write_text};
use crate::machine::{current_device, lock_state, set_current_device};
use crate::runtime::device::DRIVER_VERSION;
use crate::runtime::properties;

use super::{Error, Result, status_code};

/// Contexts are told apart by their cards.
const CONTEXT: Handle = 0x2000;

fn known(device: i32) -> Result<usize> {
    let count = lock_state().devices.len();
    match usize::try_from(device) {
        Ok(index) if index < count => Ok(index),
        _ if count == 0 => Err(Error::NoDevice),
        _ => Err(Error::InvalidDevice),
    }
}

fn context_of(index: usize) -> Handle {
    CONTEXT + index * 0x10
}

fn index_of(context: Handle) -> Option<usize> {
    let index = context.checked_sub(CONTEXT)? / 0x10;
    (index < lock_state().devices.len()).then_some(index)
}

entries! { status_code;
    fn cuInit(flags: u32) {
        let _ = flags;
        known(0).map(|_| ())
    }
    fn cuDriverGetVersion(version: OutPointer<i32>) {
        version.write(DRIVER_VERSION);
        Ok(())
    }
    fn cuDeviceGetCount(count: OutPointer<i32>) {
        count.write(lock_state().devices.len() as i32);
        Ok(())
    }
    fn cuDeviceGet(device: OutPointer<i32>, ordinal: i32) {
        device.write(known(ordinal)? as i32);
        Ok(())
    }
    fn cuDeviceGetName(name: Handle, size: i32, device: i32) {
        let index = known(device)?;
        write_text(name, usize::try_from(size).unwrap_or(0), &lock_state().devices[index].card.name);
        Ok(())
    }
    fn cuDeviceGetUuid(uuid: OutPointer<[u8; 16]>, device: i32) {
        uuid.write(properties::uuid(known(device)?));
        Ok(())
    }
    fn cuDeviceGetUuid_v2(uuid: OutPointer<[u8; 16]>, device: i32) {
        uuid.write(properties::uuid(known(device)?));
        Ok(())
    }
    fn cuDeviceTotalMem_v2(bytes: OutPointer<usize>, device: i32) {
        let index = known(device)?;
        bytes.write(lock_state().devices[index].card.memory_bytes as usize);
        Ok(())
    }
    fn cuDeviceGetAttribute(value: OutPointer<i32>, attribute: i32, device: i32) {
        let index = known(device)?;
        value.write(properties::device_attribute(&lock_state().devices[index].card, index, attribute));
        Ok(())
    }
    fn cuDevicePrimaryCtxGetState(device: i32, flags: OutPointer<u32>, active: OutPointer<i32>) {
        let index = known(device)?;
        flags.write(0);
        active.write(i32::from(lock_state().devices[index].has_context));
        Ok(())
    }
    fn cuDevicePrimaryCtxRetain(context: OutPointer<Handle>, device: i32) {
        let index = known(device)?;
        lock_state().devices[index].has_context = true;
        context.write(context_of(index));
        Ok(())
    }
    fn cuCtxGetCurrent(context: OutPointer<Handle>) {
        let has = lock_state().devices.get(current_device()).is_some_and(|device| device.has_context);
        context.write(if has { context_of(current_device()) } else { 0 });
        Ok(())
    }
    fn cuCtxSetCurrent(context: Handle) {
        if context != 0 {
            set_current_device(index_of(context).ok_or(Error::InvalidContext)?);
        }
        Ok(())
    }
    fn cuCtxPushCurrent_v2(context: Handle) {
        set_current_device(index_of(context).ok_or(Error::InvalidContext)?);
        Ok(())
    }
    fn cuCtxPopCurrent_v2(context: OutPointer<Handle>) {
        context.write(context_of(current_device()));
        Ok(())
    }
    // The names before CUDA 4, which cuDNN still looks for.
    fn cuCtxPushCurrent(context: Handle) {
        set_current_device(index_of(context).ok_or(Error::InvalidContext)?);
        Ok(())
    }
    fn cuCtxPopCurrent(context: OutPointer<Handle>) {
        context.write(context_of(current_device()));
        Ok(())
    }
    fn cuCtxGetDevice(device: OutPointer<i32>) {
        device.write(current_device() as i32);
        Ok(())
    }
    fn cuCtxGetLimit(value: OutPointer<usize>, limit: i32) {
        let _ = limit;
        value.write(1024);
        Ok(())
    }
    fn cuStreamGetCtx(stream: Handle, context: OutPointer<Handle>) {
        let _ = stream;
        context.write(context_of(current_device()));
        Ok(())
    }
    fn cuStreamIsCapturing(stream: Handle, state: OutPointer<i32>) {
        if crate::runtime::graph::cudaStreamIsCapturing(stream, state) != 0 {
            return Err(Error::InvalidValue);
        }
        Ok(())
    }
    fn cuStreamSynchronize(stream: Handle) {
        lock_state().clock.await_stream(stream);
        Ok(())
    }
    fn cuGetProcAddress_v2(name: CTextPointer, function: OutPointer<Handle>, version: i32, flags: u64, found: OutPointer<i32>) {
        let _ = (version, flags);
        let name = name.to_string_lossy();
        let named = |suffix: &str| std::ffi::CString::new(format!("{name}{suffix}")).ok();
        let address = ["_v3", "_v2", ""].iter().find_map(|suffix| find_symbol(&named(suffix)?));
        function.write(address.unwrap_or(0));
        found.write(i32::from(address.is_none()));
        address.map(|_| ()).ok_or(Error::NotFound)
    }
}

nothing! { cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxSetFlags_v2 cuCtxSynchronize cuCtxSetLimit cuProfilerStart cuProfilerStop }
