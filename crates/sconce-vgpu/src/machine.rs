//! The state of the virtual machine: cards, what is on them, and what was asked of them.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::abi::Handle;
use crate::card::{self, GpuProperties};
use crate::clock::Clock;
use crate::libraries::{blas, dnn, nccl};
use crate::memory::{AddressSpace, GRANULE, MemoryGauge, card_of, is_of_a_card};
use crate::runtime::graph::Captures;
use crate::runtime::kernels::KernelRegistry;

/// The largest copy to a card whose bytes are kept, in bytes: what scripts read back at once (sizes,
/// shapes, flags).
const MAX_RETAINED_BYTES: usize = 64 << 10;

/// One card and its memory.
#[derive(Debug)]
pub struct VirtualDevice {
    pub card: GpuProperties,
    pub space: AddressSpace,
    /// Addresses that were reserved while it was the current card.
    pub ranges: AddressSpace,
    pub taken: MemoryGauge,
    /// The context of this process stands on it.
    pub has_context: bool,
}

impl VirtualDevice {
    fn new(index: usize, card: GpuProperties) -> Self {
        Self {
            card,
            space: AddressSpace::of_card(index),
            ranges: AddressSpace::of_ranges(index),
            taken: MemoryGauge::default(),
            has_context: false,
        }
    }

    /// What this process can have, in bytes.
    pub fn usable_bytes(&self) -> u64 {
        self.card
            .memory_bytes
            .saturating_sub(self.card.context_bytes)
    }

    pub fn free_bytes(&self) -> u64 {
        self.usable_bytes() - self.taken.current
    }
}

/// A piece of memory that is not mapped by itself (`cuMemCreate`).
#[derive(Debug, Clone, Copy)]
pub struct PhysicalAllocation {
    pub device: usize,
    pub size: u64,
    /// Handles and mappings that hold it.
    pub held: u32,
}

/// What was asked, for the account at the end.
#[derive(Debug, Default, Clone)]
pub struct CallCounters {
    pub launches: u64,
    /// Multiply-adds count as two.
    pub matrix_operations: u64,
    pub dnn: dnn::CudnnCounters,
    /// Sends, receives and all-to-alls of NCCL, for which it connects single ranks.
    pub pairs: u64,
    pub unknown: Vec<String>,
}

/// All of it.
#[derive(Debug)]
pub struct DriverState {
    pub devices: Vec<VirtualDevice>,
    /// Where pieces are mapped: address to handle and size.
    pub mapped: BTreeMap<u64, (Handle, u64)>,
    pub pieces: HashMap<Handle, PhysicalAllocation>,
    pub clock: Clock,
    /// Bytes of small copies, until something is launched that may change them.
    kept: BTreeMap<u64, Vec<u8>>,
    /// Memory of this process that was given out as pinned, with its size.
    pub pinned: BTreeMap<usize, usize>,
    pub streams: HashMap<Handle, Stream>,
    pub asked: CallCounters,
    pub captures: Captures,
    pub kernels: KernelRegistry,
    pub blas_streams: HashMap<Handle, Handle>,
    pub matrices: HashMap<Handle, blas::MatrixLayout>,
    pub tensors: HashMap<Handle, dnn::Tensor>,
    pub backend: HashMap<Handle, dnn::BackendDescriptor>,
    pub networks: HashMap<Handle, dnn::Rnn>,
    /// Steps and batch of a network's data.
    pub network_data: HashMap<Handle, (usize, usize)>,
    pub communicators: HashMap<Handle, nccl::Communicator>,
    pub group: nccl::NcclGroup,
    next: Handle,
}

/// A stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stream {
    pub device: usize,
    pub priority: i32,
    pub flags: u32,
}

thread_local! {
    static DEVICE: Cell<usize> = const { Cell::new(0) };
}

/// The card that this thread has chosen.
pub fn current_device() -> usize {
    DEVICE.get()
}

pub fn set_current_device(device: usize) {
    DEVICE.set(device);
}

static MACHINE: OnceLock<Mutex<DriverState>> = OnceLock::new();
/// Whether anything was asked of the machine but to know of code.
static IS_MACHINE_USED: AtomicBool = AtomicBool::new(false);

/// The machine, for as long as the guard lives.
pub fn lock_state() -> MutexGuard<'static, DriverState> {
    IS_MACHINE_USED.store(true, Ordering::Relaxed);
    lock_state_without_query()
}

/// The same for libraries that are being loaded: they say which code they have, and learn nothing of the
/// cards.
pub fn lock_state_without_query() -> MutexGuard<'static, DriverState> {
    let machine = MACHINE.get_or_init(|| Mutex::new(DriverState::new(cards())));
    machine
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Puts the cards that are described now in the place of those before. `false`, and nothing changed,
/// where somebody may know those already.
pub fn change_cards() -> bool {
    let mut machine = lock_state_without_query();
    let unknown = !IS_MACHINE_USED.load(Ordering::Relaxed);
    if unknown {
        machine.devices = devices(cards());
    }
    unknown
}

/// Where the cards are described.
const CARDS: &str = "SCONCE_VGPU";

fn cards() -> Vec<GpuProperties> {
    let Some(path) = std::env::var_os(CARDS) else {
        return Vec::new();
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(why) => {
            print_diagnostic(&format!("cannot read {}: {why}", path.display()));
            return Vec::new();
        }
    };
    match card::parse(&text) {
        Ok(cards) => cards,
        Err(why) => {
            print_diagnostic(&format!("{}: {why}", path.display()));
            Vec::new()
        }
    }
}

fn devices(cards: Vec<GpuProperties>) -> Vec<VirtualDevice> {
    let devices = cards.into_iter().enumerate();
    devices
        .map(|(index, card)| VirtualDevice::new(index, card))
        .collect()
}

/// Says something to the person who runs the script.
#[expect(
    clippy::print_stderr,
    reason = "the process is another's; there is no other way out"
)]
pub fn print_diagnostic(what: &str) {
    eprintln!("sconce: virtual GPU: {what}");
}

impl DriverState {
    pub fn new(cards: Vec<GpuProperties>) -> Self {
        Self {
            devices: devices(cards),
            mapped: BTreeMap::new(),
            pieces: HashMap::new(),
            clock: Clock::default(),
            kept: BTreeMap::new(),
            pinned: BTreeMap::new(),
            streams: HashMap::new(),
            asked: CallCounters::default(),
            captures: Captures::default(),
            kernels: KernelRegistry::default(),
            blas_streams: HashMap::new(),
            matrices: HashMap::new(),
            tensors: HashMap::new(),
            backend: HashMap::new(),
            networks: HashMap::new(),
            network_data: HashMap::new(),
            communicators: HashMap::new(),
            group: nccl::NcclGroup::default(),
            // Handles are addresses to their holders, and must not be small numbers that mean streams.
            next: 0x1_0000,
        }
    }

    pub fn next_handle(&mut self) -> Handle {
        self.next += 0x10;
        self.next
    }

    /// Memory of a card.
    pub fn allocate(&mut self, device: usize, size: u64) -> Option<u64> {
        let device = self.devices.get_mut(device)?;
        let size = size.checked_next_multiple_of(GRANULE)?;
        let capacity = device.usable_bytes();
        if !device.taken.try_reserve(size, capacity) {
            return None;
        }
        let address = device.space.allocate(size);
        if address.is_none() {
            device.taken.give_back(size);
        }
        address
    }

    /// Gives memory of a card back. False where none begins there.
    pub fn give_back(&mut self, address: u64) -> bool {
        let Some(device) = card_of(address).and_then(|index| self.devices.get_mut(index)) else {
            return false;
        };
        let Some(size) = device.space.give_back(address) else {
            return false;
        };
        device.taken.give_back(size);
        true
    }

    /// Which card has the memory at an address, be it allocated or mapped.
    pub fn device_at(&self, address: u64) -> Option<usize> {
        if let Some(index) = card_of(address) {
            self.devices.get(index)?.space.find_allocation(address)?;
            return Some(index);
        }
        let (start, (handle, size)) = self.mapped.range(..=address).next_back()?;
        let piece = self.pieces.get(handle)?;
        (address - start < *size).then_some(piece.device)
    }

    /// A kernel runs for `duration` ns: it may write anywhere.
    pub fn launch_kernel(&mut self, stream: Handle, duration: u64) {
        self.asked.launches += 1;
        self.kept.clear();
        self.clock.queue_work(stream, duration);
    }

    /// A collective runs: it writes where it says and nowhere else.
    pub fn launch_collective(&mut self, stream: Handle, duration: u64) {
        self.asked.launches += 1;
        self.clock.queue_work(stream, duration);
    }

    /// A copy, wherever from and to. Whether the host got zeros for what a card's memory would have held.
    pub fn copy_memory(&mut self, to: u64, from: u64, size: usize, stream: Handle) -> bool {
        let found = match is_of_a_card(from) {
            false if size <= MAX_RETAINED_BYTES || !is_of_a_card(to) => {
                Some(crate::abi::read_bytes(from as usize, size))
            }
            false => None,
            true => self.kept_at(from, size),
        };
        let made_up = found.is_none() && !is_of_a_card(to) && size > 0;
        match (is_of_a_card(to), found) {
            (true, found) => {
                self.lose(to, size);
                if let Some(bytes) = found.filter(|bytes| bytes.len() <= MAX_RETAINED_BYTES) {
                    self.kept.insert(to, bytes);
                }
            }
            (false, Some(bytes)) => {
                crate::abi::copy_bytes(to as usize, bytes.as_ptr() as usize, size)
            }
            (false, None) => crate::abi::fill_bytes(to as usize, 0, size),
        }
        let device = self
            .device_at(to)
            .or_else(|| self.device_at(from))
            .unwrap_or(0);
        // Between host and card at the rate of PCI Express 4.0 x16.
        let rate = 25_000_000_000_u64;
        let _ = device;
        let duration = (size as u64).saturating_mul(1_000_000_000) / rate;
        self.clock.queue_work(stream, duration);
        made_up
    }

    /// Bytes of one value on a card.
    pub fn fill_memory(&mut self, to: u64, value: u8, size: usize, stream: Handle) {
        if !is_of_a_card(to) {
            crate::abi::fill_bytes(to as usize, value, size);
            return;
        }
        self.lose(to, size);
        if size <= MAX_RETAINED_BYTES {
            self.kept.insert(to, vec![value; size]);
        }
        self.clock.queue_work(stream, 0);
    }

    /// Bytes of a small range that are known.
    pub fn known_bytes(&self, from: u64, size: usize) -> Option<Vec<u8>> {
        self.kept_at(from, size)
    }

    /// A range is written with what is not known.
    pub fn forget_bytes(&mut self, to: u64, size: usize) {
        self.lose(to, size);
    }

    /// Says what a range holds.
    pub fn remember_bytes(&mut self, to: u64, bytes: Vec<u8>) {
        self.lose(to, bytes.len());
        self.kept.insert(to, bytes);
    }

    fn kept_at(&self, from: u64, size: usize) -> Option<Vec<u8>> {
        let (start, bytes) = self.kept.range(..=from).next_back()?;
        let skip = usize::try_from(from - start).ok()?;
        bytes.get(skip..skip.checked_add(size)?).map(<[u8]>::to_vec)
    }

    /// Forgets what was kept of a range that is written.
    fn lose(&mut self, to: u64, size: usize) {
        let end = to.saturating_add(size as u64);
        let over: Vec<u64> = self
            .kept
            .range(..end)
            .rev()
            .take_while(|(start, bytes)| **start + bytes.len() as u64 > to || **start >= to)
            .map(|(start, _)| *start)
            .collect();
        for start in over {
            self.kept.remove(&start);
        }
    }
}
