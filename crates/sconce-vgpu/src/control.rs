//! Entry points of the virtual GPU's own, for programs that hold it against something or ask what was
//! done on it: `ctypes` finds them in the process.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::abi::{self, Handle};
use crate::machine::{change_cards, lock_state};

/// With 1, events are done only when [`sconce_vgpu_complete`] says so; with 0, as the model of time
/// has it.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_hold_events(hold: i32) {
    lock_state().clock.set_manual_completion(hold != 0);
}

/// The oldest `count` events of a stream that are held are done.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_complete(stream: Handle, count: usize) {
    lock_state().clock.complete_events(stream, count);
}

/// How many plans of cuDNN were carried out: convolutions and attention.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_dnn_plans() -> u64 {
    lock_state().asked.dnn.plans
}

/// Of them, those whose workspace NVIDIA's own library could not be asked for.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_dnn_modelled() -> u64 {
    lock_state().asked.dnn.modelled
}

/// The largest workspace of them, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_dnn_workspace_bytes() -> u64 {
    lock_state().asked.dnn.workspace_bytes
}

/// How many times recurrent networks of cuDNN were carried out, whose sizes are modelled.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_dnn_recurrent() -> u64 {
    lock_state().asked.dnn.recurrent
}

/// How many communicators of NCCL with other ranks than this one are on a card.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_communicators(device: usize) -> u64 {
    let machine = lock_state();
    let all = machine.communicators.values();
    all.filter(|one| one.device() == device && one.buffers_bytes > 0)
        .count() as u64
}

/// What their buffers take of it, in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_nccl_bytes(device: usize) -> u64 {
    let machine = lock_state();
    let all = machine.communicators.values();
    let on_it = all.filter(|one| one.device() == device);
    on_it.map(|one| one.buffers_bytes).sum()
}

/// How many times single ranks were sent to or received from.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_pairs() -> u64 {
    lock_state().asked.pairs
}

/// Writes the names of what was asked and is not known, a line each, as far as they fit into `size`
/// bytes; how many bytes were written.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_unknown(text: Handle, size: usize) -> usize {
    let names = lock_state().asked.unknown.join("\n");
    let bytes = &names.as_bytes()[..names.len().min(size)];
    abi::copy_bytes(text, bytes.as_ptr() as usize, bytes.len());
    bytes.len()
}

/// Reads the description of the cards anew, for what was forked off before anything was asked of them.
/// 1 where that is done; 0 where something was asked of the cards before.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_change_cards() -> i32 {
    i32::from(change_cards())
}

/// What is called with the host's address and the number of bytes.
type OnRead = extern "C" fn(usize, usize);

thread_local! {
    static ON_READ: Cell<Option<OnRead>> = const { Cell::new(None) };
    /// Whether this is a thread in which PyTorch's backward passes run; asked for once.
    static IS_BACKWARD: Cell<Option<bool>> = const { Cell::new(None) };
}

/// The same for threads of backward passes.
static ON_READ_BACKWARD: Mutex<Option<OnRead>> = Mutex::new(None);

/// From now on `call` is called in this thread, and in those of PyTorch's backward passes, whenever they
/// read memory of a card, with the address that was written to and the number of bytes, where they got
/// zeros as it is not known what a card would have held: the one who is called may write others there.
/// Null ends it. Other threads are not watched: they may hold locks that the one who is called waits for. What they
/// read meanwhile is counted ([`sconce_vgpu_reads_elsewhere`]).
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_on_read(call: Option<OnRead>) {
    ON_READ.set(call);
    *backward() = call;
}

/// How many reads of the kind that is told were those of threads that are not watched, while others were.
static READS_ELSEWHERE: AtomicU64 = AtomicU64::new(0);

/// How many times threads that are not watched read what is not known, while others were watched.
#[unsafe(no_mangle)]
pub extern "C" fn sconce_vgpu_reads_elsewhere() -> u64 {
    READS_ELSEWHERE.load(Ordering::Relaxed)
}

fn backward() -> MutexGuard<'static, Option<OnRead>> {
    let lock = ON_READ_BACKWARD.lock();
    lock.unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// PyTorch names those threads (`c10::setThreadName`, from 2.5 on).
fn is_backward() -> bool {
    let known = IS_BACKWARD.try_with(Cell::get).ok().flatten();
    known.unwrap_or_else(|| {
        let name = std::fs::read_to_string("/proc/thread-self/comm");
        let is_it = name.is_ok_and(|name| name.starts_with("pt_autograd"));
        // A thread that ends has no place to keep it.
        let _ = IS_BACKWARD.try_with(|known| known.set(Some(is_it)));
        is_it
    })
}

/// Calls who wants to know of reads of this thread. The machine must not be held.
pub fn tell_of_read(to: u64, size: usize) {
    // At a thread's end it may be gone.
    let Ok(own) = ON_READ.try_with(Cell::get) else {
        return;
    };
    // Not held while it is called: it may end the watching.
    let of_backward = *backward();
    match own.or(of_backward.filter(|_| is_backward())) {
        Some(call) => call(to as usize, size),
        None if of_backward.is_some() => {
            READS_ELSEWHERE.fetch_add(1, Ordering::Relaxed);
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static CALLS: AtomicU64 = AtomicU64::new(0);

    extern "C" fn called(_to: usize, _size: usize) {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }

    /// One test alone: what is watched is the process's.
    #[test]
    fn reads_of_threads_that_are_not_watched_are_counted() {
        let elsewhere = || std::thread::spawn(|| tell_of_read(1, 4)).join().unwrap();
        elsewhere();
        assert_eq!(sconce_vgpu_reads_elsewhere(), 0);
        sconce_vgpu_on_read(Some(called));
        elsewhere();
        tell_of_read(1, 4);
        let backward = std::thread::Builder::new().name("pt_autograd_0".to_owned());
        let backward = backward.spawn(|| tell_of_read(1, 4)).unwrap();
        backward.join().unwrap();
        let counts = || (sconce_vgpu_reads_elsewhere(), CALLS.load(Ordering::Relaxed));
        assert_eq!(counts(), (1, 2));
        sconce_vgpu_on_read(None);
        elsewhere();
        assert_eq!(counts(), (1, 2));
    }
}
