//! Entry points of the virtual GPU's own, for programs that hold it against something or ask what was
//! done on it: `ctypes` finds them in the process.

use std::cell::Cell;

use crate::abi::{self, Handle};
use crate::machine::{change_cards, machine};

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

/// How many plans of cuDNN were carried out: convolutions and attention.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_dnn_plans() -> u64 {
    machine().asked.dnn.plans
}

/// Of them, those whose workspace NVIDIA's own library could not be asked for.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_dnn_modelled() -> u64 {
    machine().asked.dnn.modelled
}

/// The largest workspace of them, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_dnn_workspace_bytes() -> u64 {
    machine().asked.dnn.workspace_bytes
}

/// How many times recurrent networks of cuDNN were carried out, whose sizes are modelled.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_dnn_recurrent() -> u64 {
    machine().asked.dnn.recurrent
}

/// How many communicators of NCCL with other ranks than this one are on a card.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_communicators(device: usize) -> u64 {
    let machine = machine();
    let all = machine.communicators.values();
    all.filter(|one| one.device() == device && one.buffers_bytes > 0)
        .count() as u64
}

/// What their buffers take of it, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_nccl_bytes(device: usize) -> u64 {
    let machine = machine();
    let all = machine.communicators.values();
    let on_it = all.filter(|one| one.device() == device);
    on_it.map(|one| one.buffers_bytes).sum()
}

/// How many times single ranks were sent to or received from.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_pairs() -> u64 {
    machine().asked.pairs
}

/// Writes the names of what was asked and is not known, a line each, as far as they fit into `size`
/// bytes; how many bytes were written.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_unknown(text: Handle, size: usize) -> usize {
    let names = machine().asked.unknown.join("\n");
    let bytes = &names.as_bytes()[..names.len().min(size)];
    abi::copy(text, bytes.as_ptr() as usize, bytes.len());
    bytes.len()
}

/// Reads the description of the cards anew, for what was forked off before anything was asked of them.
/// 1 where that is done; 0 where something was asked of the cards before.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_change_cards() -> i32 {
    i32::from(change_cards())
}

/// What is called with the number of bytes.
type OnRead = extern "C" fn(usize);

thread_local! {
    static ON_READ: Cell<Option<OnRead>> = const { Cell::new(None) };
}

/// From now on `call` is called in this thread whenever the thread reads memory of a card, with the number
/// of bytes, where it got zeros as it is not known what a card would have held; null ends it. Other
/// threads are not watched: they may hold locks that the one who is called waits for.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_on_read(call: Option<OnRead>) {
    ON_READ.set(call);
}

/// Calls who wants to know of reads of this thread. The machine must not be held.
pub fn tell_of_read(size: usize) {
    // At a thread's end it may be gone.
    if let Ok(Some(call)) = ON_READ.try_with(Cell::get) {
        call(size);
    }
}
