//! Streams.

use crate::abi::{Handle, OutPointer, entries, nothing};
use crate::machine::{Stream, current_device, lock_state};

use super::{Error, Result, remember_status};

fn create(stream: OutPointer<Handle>, flags: u32, priority: i32) -> Result<()> {
    let mut machine = lock_state();
    let handle = machine.next_handle();
    let made = Stream {
        device: current_device(),
        priority,
        flags,
    };
    machine.streams.insert(handle, made);
    stream.write(handle);
    Ok(())
}

entries! { remember_status;
    fn cudaStreamCreate(stream: OutPointer<Handle>) { create(stream, 0, 0) }
    fn cudaStreamCreateWithFlags(stream: OutPointer<Handle>, flags: u32) { create(stream, flags, 0) }
    fn cudaStreamCreateWithPriority(stream: OutPointer<Handle>, flags: u32, priority: i32) {
        create(stream, flags, priority)
    }
    fn cudaStreamDestroy(stream: Handle) {
        let mut machine = lock_state();
        machine.streams.remove(&stream);
        machine.clock.forget_stream(stream);
        Ok(())
    }
    fn cudaStreamGetPriority(stream: Handle, priority: OutPointer<i32>) {
        priority.write(lock_state().streams.get(&stream).map_or(0, |stream| stream.priority));
        Ok(())
    }
    fn cudaStreamGetFlags(stream: Handle, flags: OutPointer<u32>) {
        flags.write(lock_state().streams.get(&stream).map_or(0, |stream| stream.flags));
        Ok(())
    }
    fn cudaStreamGetDevice(stream: Handle, device: OutPointer<i32>) {
        let made = lock_state().streams.get(&stream).copied();
        device.write(made.map_or(current_device(), |stream| stream.device) as i32);
        Ok(())
    }
    fn cudaStreamQuery(stream: Handle) {
        match lock_state().clock.is_idle(stream) {
            true => Ok(()),
            false => Err(Error::NotReady),
        }
    }
    fn cudaStreamSynchronize(stream: Handle) {
        lock_state().clock.await_stream(stream);
        Ok(())
    }
    fn cudaStreamWaitEvent(stream: Handle, event: Handle, flags: u32) {
        let _ = flags;
        let mut machine = lock_state();
        machine.clock.stream_wait_event(stream, event);
        machine.join_capture(stream, event);
        Ok(())
    }
}

/// Calls a function of the host when the stream has come that far: at once, as values are not waited for.
#[unsafe(no_mangle)]
pub extern "C" fn cudaLaunchHostFunc(
    stream: Handle,
    function: Option<extern "C" fn(Handle)>,
    data: Handle,
) -> i32 {
    let _ = stream;
    if let Some(function) = function {
        function(data);
    }
    0
}

/// As [`cudaLaunchHostFunc`], with the stream and its status.
#[unsafe(no_mangle)]
pub extern "C" fn cudaStreamAddCallback(
    stream: Handle,
    function: Option<extern "C" fn(Handle, i32, Handle)>,
    data: Handle,
    flags: u32,
) -> i32 {
    let _ = flags;
    if let Some(function) = function {
        function(stream, 0, data);
    }
    0
}

nothing! { cudaStreamAttachMemAsync cudaStreamSetAttribute cudaStreamCopyAttributes }
