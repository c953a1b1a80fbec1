//! Cards and contexts: each card has its one context, the primary one.

use crate::abi::{CTextPointer, Handle, OutPointer, entries, nothing, symbol, write_text};
use crate::machine::{choose, current, machine};
use crate::runtime::device::DRIVER_VERSION;
use crate::runtime::properties;

use super::{Error, Result, status};

/// Contexts are told apart by their cards.
const CONTEXT: Handle = 0x2000;

fn known(device: i32) -> Result<usize> {
    let count = machine().devices.len();
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
    (index < machine().devices.len()).then_some(index)
}

entries! { status;
    fn cuInit(flags: u32) {
        let _ = flags;
        known(0).map(|_| ())
    }
    fn cuDriverGetVersion(version: OutPointer<i32>) {
        version.put(DRIVER_VERSION);
        Ok(())
    }
    fn cuDeviceGetCount(count: OutPointer<i32>) {
        count.put(machine().devices.len() as i32);
        Ok(())
    }
    fn cuDeviceGet(device: OutPointer<i32>, ordinal: i32) {
        device.put(known(ordinal)? as i32);
        Ok(())
    }
    fn cuDeviceGetName(name: Handle, size: i32, device: i32) {
        let index = known(device)?;
        write_text(name, usize::try_from(size).unwrap_or(0), &machine().devices[index].card.name);
        Ok(())
    }
    fn cuDeviceGetUuid(uuid: OutPointer<[u8; 16]>, device: i32) {
        uuid.put(properties::uuid(known(device)?));
        Ok(())
    }
    fn cuDeviceGetUuid_v2(uuid: OutPointer<[u8; 16]>, device: i32) {
        uuid.put(properties::uuid(known(device)?));
        Ok(())
    }
    fn cuDeviceTotalMem_v2(bytes: OutPointer<usize>, device: i32) {
        let index = known(device)?;
        bytes.put(machine().devices[index].card.memory_bytes as usize);
        Ok(())
    }
    fn cuDeviceGetAttribute(value: OutPointer<i32>, attribute: i32, device: i32) {
        let index = known(device)?;
        value.put(properties::attribute(&machine().devices[index].card, index, attribute));
        Ok(())
    }
    fn cuDevicePrimaryCtxGetState(device: i32, flags: OutPointer<u32>, active: OutPointer<i32>) {
        let index = known(device)?;
        flags.put(0);
        active.put(i32::from(machine().devices[index].has_context));
        Ok(())
    }
    fn cuDevicePrimaryCtxRetain(context: OutPointer<Handle>, device: i32) {
        let index = known(device)?;
        machine().devices[index].has_context = true;
        context.put(context_of(index));
        Ok(())
    }
    fn cuCtxGetCurrent(context: OutPointer<Handle>) {
        let has = machine().devices.get(current()).is_some_and(|device| device.has_context);
        context.put(if has { context_of(current()) } else { 0 });
        Ok(())
    }
    fn cuCtxSetCurrent(context: Handle) {
        if context != 0 {
            choose(index_of(context).ok_or(Error::InvalidContext)?);
        }
        Ok(())
    }
    fn cuCtxPushCurrent_v2(context: Handle) {
        choose(index_of(context).ok_or(Error::InvalidContext)?);
        Ok(())
    }
    fn cuCtxPopCurrent_v2(context: OutPointer<Handle>) {
        context.put(context_of(current()));
        Ok(())
    }
    // The names before CUDA 4, which cuDNN still looks for.
    fn cuCtxPushCurrent(context: Handle) {
        choose(index_of(context).ok_or(Error::InvalidContext)?);
        Ok(())
    }
    fn cuCtxPopCurrent(context: OutPointer<Handle>) {
        context.put(context_of(current()));
        Ok(())
    }
    fn cuCtxGetDevice(device: OutPointer<i32>) {
        device.put(current() as i32);
        Ok(())
    }
    fn cuCtxGetLimit(value: OutPointer<usize>, limit: i32) {
        let _ = limit;
        value.put(1024);
        Ok(())
    }
    fn cuStreamGetCtx(stream: Handle, context: OutPointer<Handle>) {
        let _ = stream;
        context.put(context_of(current()));
        Ok(())
    }
    fn cuStreamIsCapturing(stream: Handle, state: OutPointer<i32>) {
        if crate::runtime::graph::cudaStreamIsCapturing(stream, state) != 0 {
            return Err(Error::InvalidValue);
        }
        Ok(())
    }
    fn cuStreamSynchronize(stream: Handle) {
        machine().clock.await_stream(stream);
        Ok(())
    }
    fn cuGetProcAddress_v2(name: CTextPointer, function: OutPointer<Handle>, version: i32, flags: u64, found: OutPointer<i32>) {
        let _ = (version, flags);
        let name = name.get();
        let named = |suffix: &str| std::ffi::CString::new(format!("{name}{suffix}")).ok();
        let address = ["_v3", "_v2", ""].iter().find_map(|suffix| symbol(&named(suffix)?));
        function.put(address.unwrap_or(0));
        found.put(i32::from(address.is_none()));
        address.map(|_| ()).ok_or(Error::NotFound)
    }
}

nothing! { cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxSetFlags_v2 cuCtxSynchronize cuCtxSetLimit cuProfilerStart cuProfilerStop }
