//! `nccl.h`: one rank of a world whose others are not there.
//!
//! What this rank sends is taken for what all send: gathered it stands in every place, broadcast it is
//! the root's.

use std::cell::Cell;
use std::ffi::c_char;

use crate::abi::{Handle, InPointer, OutPointer, entries, nothing, refused};
use crate::machine::{DriverState, current_device, lock_state};
use crate::runtime::launch::duration_ns;

/// A status of NCCL (`ncclResult_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum NcclStatus {
    UnhandledCuda = 1,
    InvalidArgument = 4,
    InvalidUsage = 5,
}

pub type Result<T> = std::result::Result<T, NcclStatus>;

fn status(answer: Result<()>) -> i32 {
    match answer {
        Ok(()) => 0,
        Err(why) => why as i32,
    }
}

/// A communicator, as this rank sees it.
#[derive(Debug, Clone, Copy)]
pub struct Communicator {
    ranks: i32,
    rank: i32,
    device: usize,
    /// What its buffers take of the card.
    pub buffers_bytes: u64,
}

impl Communicator {
    /// The card that it is on.
    pub fn device(&self) -> usize {
        self.device
    }
}

/// `ncclUniqueId`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct UniqueId([u8; 128]);

/// Between cards, in bytes a second: NVLink of the Hopper generation, in one direction.
const LINK_BYTES_PER_S: u64 = 450_000_000_000;

fn element_bytes(kind: i32) -> usize {
    match kind {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        4 | 5 | 8 => 8,
        _ => 4,
    }
}

fn begin(communicator: OutPointer<Handle>, ranks: i32, rank: i32) -> Result<()> {
    if rank < 0 || rank >= ranks {
        return Err(NcclStatus::InvalidArgument);
    }
    let mut machine = lock_state();
    let Some(made) = machine.communicator(ranks, rank, current_device()) else {
        FULL.set(true);
        return Err(NcclStatus::UnhandledCuda);
    };
    FULL.set(false);
    let handle = machine.next_handle();
    machine.communicators.insert(handle, made);
    communicator.write(handle);
    Ok(())
}

thread_local! {
    /// The last communicator that this thread began did not fit.
    static FULL: Cell<bool> = const { Cell::new(false) };
}

impl DriverState {
    /// A communicator with its buffers on the card: real ones are allocated as it is begun, or as the first
    /// collective connects it. `None` where the card has no room.
    fn communicator(&mut self, ranks: i32, rank: i32, device: usize) -> Option<Communicator> {
        let on = self.devices.get_mut(device)?;
        // One that is alone has nobody to send to.
        let buffers_bytes = if ranks > 1 { on.card.nccl_bytes } else { 0 };
        let capacity = on.usable_bytes();
        on.taken
            .try_reserve(buffers_bytes, capacity)
            .then_some(Communicator {
                ranks,
                rank,
                device,
                buffers_bytes,
            })
    }

    fn end_communicator(&mut self, handle: Handle) {
        let Some(ended) = self.communicators.remove(&handle) else {
            return;
        };
        if let Some(device) = self.devices.get_mut(ended.device) {
            device.taken.give_back(ended.buffers_bytes);
        }
    }
}

fn known(machine: &DriverState, communicator: Handle) -> Result<Communicator> {
    machine
        .communicators
        .get(&communicator)
        .copied()
        .ok_or(NcclStatus::InvalidArgument)
}

/// Bytes go round; `copies` of what is sent arrive.
fn moved(
    from: u64,
    to: u64,
    size: usize,
    copies: i32,
    communicator: Handle,
    stream: Handle,
) -> Result<()> {
    let mut machine = lock_state();
    let ranks = known(&machine, communicator)?.ranks;
    let sent = machine.known_bytes(from, size);
    let total = (size as u64).saturating_mul(ranks.max(1) as u64);
    machine.launch_collective(stream, duration_ns(total, LINK_BYTES_PER_S));
    machine.forget_bytes(to, size.saturating_mul(copies.max(1) as usize));
    let Some(sent) = sent else { return Ok(()) };
    for copy in 0..copies as u64 {
        machine.remember_bytes(to + copy * size as u64, sent.clone());
    }
    Ok(())
}

/// Calls between `ncclGroupStart` and `ncclGroupEnd`.
#[derive(Debug, Default)]
pub struct NcclGroup {
    depth: u32,
    broadcasts: Vec<Broadcast>,
}

#[derive(Debug, Clone, Copy)]
struct Broadcast {
    from: u64,
    to: u64,
    size: usize,
    is_root: bool,
    stream: Handle,
}

/// Broadcasts of one group: what this rank sends as their root, the other roots send too. So ranks
/// that compare what they have, as DDP does, find the same.
fn broadcast(machine: &mut DriverState, group: &[Broadcast]) {
    let own = group
        .iter()
        .find(|one| one.is_root)
        .map(|one| (one.size, machine.known_bytes(one.from, one.size)));
    for one in group {
        let sent = match &own {
            Some((size, bytes)) if *size == one.size => bytes.clone(),
            _ => machine.known_bytes(one.from, one.size),
        };
        machine.launch_collective(one.stream, duration_ns(one.size as u64, LINK_BYTES_PER_S));
        machine.forget_bytes(one.to, one.size);
        if let Some(bytes) = sent {
            machine.remember_bytes(one.to, bytes);
        }
    }
}

entries! { status;
    fn ncclGetUniqueId(id: OutPointer<UniqueId>) {
        let mut bytes = [0; 128];
        bytes[..8].copy_from_slice(&lock_state().next_handle().to_ne_bytes());
        id.write(UniqueId(bytes));
        Ok(())
    }
    fn ncclCommInitRank(communicator: OutPointer<Handle>, ranks: i32, id: UniqueId, rank: i32) {
        let _ = id;
        begin(communicator, ranks, rank)
    }
    fn ncclCommInitRankConfig(communicator: OutPointer<Handle>, ranks: i32, id: UniqueId, rank: i32, config: Handle) {
        let _ = (id, config);
        begin(communicator, ranks, rank)
    }
    fn ncclCommInitRankScalable(communicator: OutPointer<Handle>, ranks: i32, rank: i32, ids: i32, id: Handle, config: Handle) {
        let _ = (ids, id, config);
        begin(communicator, ranks, rank)
    }
    fn ncclCommInitAll(communicators: OutPointer<Handle>, count: i32, devices: InPointer<i32>) {
        let _ = (count, devices);
        begin(communicators, 1, 0)
    }
    fn ncclCommSplit(communicator: Handle, colour: i32, key: i32, made: OutPointer<Handle>, config: Handle) {
        let _ = (key, config);
        let of = known(&lock_state(), communicator)?;
        if colour < 0 {
            made.write(0);
            return Ok(());
        }
        // Who else has this colour is not known here: at most all.
        begin(made, of.ranks, of.rank)
    }
    fn ncclCommCount(communicator: Handle, count: OutPointer<i32>) {
        count.write(known(&lock_state(), communicator)?.ranks);
        Ok(())
    }
    fn ncclCommUserRank(communicator: Handle, rank: OutPointer<i32>) {
        rank.write(known(&lock_state(), communicator)?.rank);
        Ok(())
    }
    fn ncclCommCuDevice(communicator: Handle, device: OutPointer<i32>) {
        device.write(known(&lock_state(), communicator)?.device as i32);
        Ok(())
    }
    fn ncclCommGetAsyncError(communicator: Handle, state: OutPointer<i32>) {
        let _ = communicator;
        state.write(0);
        Ok(())
    }
    fn ncclCommDestroy(communicator: Handle) {
        lock_state().end_communicator(communicator);
        Ok(())
    }
    fn ncclCommAbort(communicator: Handle) {
        lock_state().end_communicator(communicator);
        Ok(())
    }
    fn ncclAllReduce(from: u64, to: u64, count: usize, kind: i32, operation: i32, communicator: Handle, stream: Handle) {
        let _ = operation;
        moved(from, to, count * element_bytes(kind), 1, communicator, stream)
    }
    fn ncclReduce(from: u64, to: u64, count: usize, kind: i32, operation: i32, root: i32, communicator: Handle, stream: Handle) {
        let _ = (operation, root);
        moved(from, to, count * element_bytes(kind), 1, communicator, stream)
    }
    fn ncclGroupStart() {
        lock_state().group.depth += 1;
        Ok(())
    }
    fn ncclGroupEnd() {
        let mut machine = lock_state();
        machine.group.depth = machine.group.depth.saturating_sub(1);
        if machine.group.depth == 0 {
            let waiting = std::mem::take(&mut machine.group.broadcasts);
            broadcast(&mut machine, &waiting);
        }
        Ok(())
    }
    fn ncclBroadcast(from: u64, to: u64, count: usize, kind: i32, root: i32, communicator: Handle, stream: Handle) {
        let mut machine = lock_state();
        let is_root = known(&machine, communicator)?.rank == root;
        let one = Broadcast { from, to, size: count * element_bytes(kind), is_root, stream };
        match machine.group.depth {
            0 => broadcast(&mut machine, &[one]),
            _ => machine.group.broadcasts.push(one),
        }
        Ok(())
    }
    fn ncclBcast(buffer: u64, count: usize, kind: i32, root: i32, communicator: Handle, stream: Handle) {
        let _ = root;
        moved(buffer, buffer, count * element_bytes(kind), 1, communicator, stream)
    }
    fn ncclAllGather(from: u64, to: u64, count: usize, kind: i32, communicator: Handle, stream: Handle) {
        let ranks = known(&lock_state(), communicator)?.ranks;
        moved(from, to, count * element_bytes(kind), ranks, communicator, stream)
    }
    // `count` is what arrives: what is sent is that for every rank, and this rank's part is like the first.
    fn ncclReduceScatter(from: u64, to: u64, count: usize, kind: i32, operation: i32, communicator: Handle, stream: Handle) {
        let _ = operation;
        moved(from, to, count * element_bytes(kind), 1, communicator, stream)
    }
    fn ncclAlltoAll(from: u64, to: u64, count: usize, kind: i32, communicator: Handle, stream: Handle) {
        let ranks = known(&lock_state(), communicator)?.ranks;
        lock_state().asked.pairs += 1;
        moved(from, to, count * element_bytes(kind) * ranks as usize, 1, communicator, stream)
    }
    fn ncclGather(from: u64, to: u64, count: usize, kind: i32, root: i32, communicator: Handle, stream: Handle) {
        let _ = root;
        let ranks = known(&lock_state(), communicator)?.ranks;
        moved(from, to, count * element_bytes(kind), ranks, communicator, stream)
    }
    fn ncclSend(from: u64, count: usize, kind: i32, peer: i32, communicator: Handle, stream: Handle) {
        let _ = (from, peer);
        let mut machine = lock_state();
        known(&machine, communicator)?;
        machine.asked.pairs += 1;
        machine.launch_collective(stream, duration_ns((count * element_bytes(kind)) as u64, LINK_BYTES_PER_S));
        Ok(())
    }
    fn ncclRecv(to: u64, count: usize, kind: i32, peer: i32, communicator: Handle, stream: Handle) {
        let _ = peer;
        let mut machine = lock_state();
        known(&machine, communicator)?;
        machine.asked.pairs += 1;
        machine.forget_bytes(to, count * element_bytes(kind));
        machine.launch_collective(stream, duration_ns((count * element_bytes(kind)) as u64, LINK_BYTES_PER_S));
        Ok(())
    }
    fn ncclMemAlloc(address: OutPointer<u64>, size: usize) {
        let given = lock_state().allocate(current_device(), size as u64);
        address.write(given.ok_or(NcclStatus::UnhandledCuda)?);
        Ok(())
    }
    fn ncclMemFree(address: u64) {
        match lock_state().give_back(address) {
            true => Ok(()),
            false => Err(NcclStatus::InvalidArgument),
        }
    }
    fn ncclRedOpCreatePreMulSum(operation: OutPointer<i32>) {
        // Behind the operations that there are.
        operation.write(5);
        Ok(())
    }
    fn ncclCommRegister(communicator: Handle, buffer: Handle, size: usize, handle: OutPointer<Handle>) {
        let _ = (communicator, buffer, size);
        handle.write(lock_state().next_handle());
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(code: i32) -> *const c_char {
    match code {
        0 => c"no error".as_ptr(),
        1 => c"unhandled cuda error".as_ptr(),
        4 => c"invalid argument".as_ptr(),
        5 => c"invalid usage".as_ptr(),
        _ => c"unknown result code".as_ptr(),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(communicator: Handle) -> *const c_char {
    let _ = communicator;
    match FULL.get() {
        // As NCCL says it, without the size: the probe knows it by these words.
        true => c"Failed to CUDA calloc buffers: out of memory".as_ptr(),
        false => c"".as_ptr(),
    }
}

nothing! {
    ncclCommFinalize ncclCommDeregister ncclGroupSimulateEnd
    ncclRedOpDestroy ncclCommSuspend ncclCommResume ncclCommRevoke
}

refused! { NcclStatus::InvalidUsage;
    ncclCommShrink ncclCommGrow ncclCommGetUniqueId ncclCommMemStats ncclCommWindowRegister
    ncclCommWindowDeregister ncclDevCommCreate ncclDevCommDestroy ncclGetLsaMultimemDevicePointer
    ncclGetPeerDevicePointer ncclPutSignal ncclSignal ncclWaitSignal ncclWinGetUserPtr ncclScatter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_communicator_takes_of_the_card_until_it_ends() {
        let text = "card\tcapability=9.0\tmemory_bytes=1000\tcontext_bytes=100\tnccl_bytes=400\tmultiprocessors=1";
        let mut machine = DriverState::new(crate::card::parse(text).unwrap());
        let free = |machine: &DriverState| machine.devices[0].free_bytes();
        let alone = machine.communicator(1, 0, 0).unwrap();
        assert_eq!((alone.buffers_bytes, free(&machine)), (0, 900));
        for handle in [1, 2] {
            let made = machine.communicator(64, 0, 0).unwrap();
            machine.communicators.insert(handle, made);
        }
        assert_eq!(free(&machine), 100);
        assert!(machine.communicator(64, 0, 0).is_none());
        machine.end_communicator(1);
        machine.end_communicator(1);
        assert_eq!(free(&machine), 500);
        assert!(machine.communicator(2, 0, 9).is_none());
    }
}
