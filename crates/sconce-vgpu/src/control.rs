//! Entry points of the virtual GPU's own, for programs that hold it against something: `ctypes` finds
//! them in the process.

use crate::abi::Handle;
use crate::machine::machine;

/// With 1, events are done only when [`sconce_vgpu_complete`] says so; with 0, as the model of time
/// has it.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_hold_events(hold: i32) {
    machine().clock.hold(hold != 0);
}

/// The oldest `count` events of a stream that are held are done.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_complete(stream: Handle, count: usize) {
    machine().clock.complete(stream, count);
}
