//! NVIDIA's own cuDNN of the environment, asked which engines it would choose on a card that is not
//! here, and what workspace each takes.
//!
//! From 9.8 on it answers that for a card that is only described ("deviceless ahead-of-time
//! compilation" in its documentation; `CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR` in `cudnn_graph.h`). The
//! description is JSON whose keys are not published: they were found in the library's messages, its log
//! and its texts. A release that wants others refuses it, and then the model answers. Nothing is ever
//! launched by it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::abi::{Handle, OutPointer, find_loaded_library, symbol_of};
use crate::card::GpuProperties;
use crate::machine::{current_device, lock_state};
use crate::runtime::device::DRIVER_VERSION;

type Create = extern "C" fn(i32, *mut Handle) -> i32;
type OfOne = extern "C" fn(Handle) -> i32;
type Set = extern "C" fn(Handle, i32, i32, i64, Handle) -> i32;
type Get = extern "C" fn(Handle, i32, i32, i64, *mut i64, Handle) -> i32;

/// The functions of its backend.
#[derive(Debug)]
pub struct CudnnBackend {
    create: Create,
    destroy: OfOne,
    finalize: OfOne,
    set: Set,
    get: Get,
    /// By card, its description, where the library takes it.
    cards: Mutex<HashMap<usize, Option<Handle>>>,
}

/// The first release that takes a description of a card.
const MIN_VERSION: usize = 90_800;

const KIND_CARD: i32 = 38;
const CARD_JSON: i32 = 2702;
const TYPE_TEXT: i32 = 24;
const TYPE_DESCRIPTOR: i32 = 15;

/// Says to take no workspace at all (`none`), or to use the model (`model`), instead of asking.
pub const CHOICE: &str = "SCONCE_VGPU_WORKSPACES";

/// The library, where this process has one that can be asked about the current card.
pub fn queryable_library() -> Option<&'static CudnnBackend> {
    static FOUND: OnceLock<Option<CudnnBackend>> = OnceLock::new();
    let nvidia = FOUND.get_or_init(find).as_ref()?;
    nvidia.card().map(|_| nvidia)
}

/// How many threads are asking. It may work in threads of its own, so this is no thread's.
static ASKING_THREADS: AtomicUsize = AtomicUsize::new(0);

/// Whether NVIDIA's library is being asked: what calls this one then may be that.
pub fn is_asking() -> bool {
    ASKING_THREADS.load(Ordering::Relaxed) > 0
}

fn asking<T>(ask: impl FnOnce() -> T) -> T {
    ASKING_THREADS.fetch_add(1, Ordering::Relaxed);
    let answer = ask();
    ASKING_THREADS.fetch_sub(1, Ordering::Relaxed);
    answer
}

const LIBRARY: &std::ffi::CStr = c"libcudnn.so.9";

/// The release that this process has, as `CUDNN_VERSION` writes it.
pub fn cudnn_version() -> Option<usize> {
    let version = symbol_of(find_loaded_library(LIBRARY)?, c"cudnnGetVersion")?;
    // SAFETY: `size_t cudnnGetVersion(void)`.
    let version = unsafe { std::mem::transmute::<usize, extern "C" fn() -> usize>(version) };
    Some(version())
}

fn find() -> Option<CudnnBackend> {
    if std::env::var_os(CHOICE).is_some_and(|choice| choice != "cudnn") {
        return None;
    }
    let library = find_loaded_library(LIBRARY)?;
    if cudnn_version()? < MIN_VERSION {
        return None;
    }
    let create = symbol_of(library, c"cudnnBackendCreateDescriptor")?;
    let destroy = symbol_of(library, c"cudnnBackendDestroyDescriptor")?;
    let finalize = symbol_of(library, c"cudnnBackendFinalize")?;
    let set = symbol_of(library, c"cudnnBackendSetAttribute")?;
    let get = symbol_of(library, c"cudnnBackendGetAttribute")?;
    // SAFETY: all five are declared so in `cudnn_graph.h`; enumerations are of 32 bits.
    unsafe {
        Some(CudnnBackend {
            create: std::mem::transmute::<usize, Create>(create),
            destroy: std::mem::transmute::<usize, OfOne>(destroy),
            finalize: std::mem::transmute::<usize, OfOne>(finalize),
            set: std::mem::transmute::<usize, Set>(set),
            get: std::mem::transmute::<usize, Get>(get),
            cards: Mutex::default(),
        })
    }
}

impl CudnnBackend {
    /// The description of the current card.
    fn card(&self) -> Option<Handle> {
        let index = current_device();
        let mut cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        *cards.entry(index).or_insert_with(|| {
            let text = json(&lock_state().devices.get(index)?.card);
            asking(|| self.describe(&text))
        })
    }

    fn describe(&self, text: &str) -> Option<Handle> {
        let mut card = 0;
        let bytes = [text.as_bytes(), b"\0"].concat();
        let count = i64::try_from(bytes.len()).ok()?;
        let taken = (self.create)(KIND_CARD, &raw mut card) == 0
            && (self.set)(card, CARD_JSON, TYPE_TEXT, count, bytes.as_ptr() as Handle) == 0
            && (self.finalize)(card) == 0;
        taken.then_some(card)
    }

    pub fn create_descriptor(&self, kind: i32, descriptor: &mut Handle) -> i32 {
        asking(|| (self.create)(kind, descriptor))
    }

    pub fn destroy_descriptor(&self, descriptor: Handle) -> i32 {
        asking(|| (self.destroy)(descriptor))
    }

    pub fn finalize_descriptor(&self, descriptor: Handle) -> i32 {
        asking(|| (self.finalize)(descriptor))
    }

    pub fn set_attribute(
        &self,
        descriptor: Handle,
        name: i32,
        kind: i32,
        count: i64,
        values: Handle,
    ) -> i32 {
        asking(|| (self.set)(descriptor, name, kind, count, values))
    }

    pub fn get_attribute(
        &self,
        descriptor: Handle,
        name: i32,
        kind: i32,
        wanted: i64,
        count: OutPointer<i64>,
        values: Handle,
    ) -> i32 {
        asking(|| (self.get)(descriptor, name, kind, wanted, count.as_mut_ptr(), values))
    }

    /// Says that a descriptor is meant for the current card.
    pub fn set_card(&self, descriptor: Handle, name: i32) -> i32 {
        let card = self.card().unwrap_or(0);
        self.set_attribute(
            descriptor,
            name,
            TYPE_DESCRIPTOR,
            1,
            &raw const card as Handle,
        )
    }
}

/// The description of a card. Rates of clocks are not known here: other values changed no answer, and
/// neither did the number of multiprocessors.
fn json(card: &GpuProperties) -> String {
    let per = card.multiprocessor_limits();
    let name: String = card
        .name
        .chars()
        .filter(|letter| letter.is_ascii_graphic() || *letter == ' ')
        .filter(|letter| !matches!(letter, '"' | '\\'))
        .collect();
    format!(
        "{{\"deviceName\":\"{name}\",\"cudaDeviceId\":{id},\"deviceVer\":{version},\
         \"driverVer\":{DRIVER_VERSION},\"totalGlobalMem\":{memory},\
         \"multiProcessorCount\":{multiprocessors},\"l2CacheSize\":{l2},\
         \"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":{optin},\
         \"oversizedSharedMemoryPerBlock\":0,\"reservedSharedMemoryPerBlock\":{reserved},\
         \"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":{blocks},\
         \"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":{threads},\"warpSize\":32,\
         \"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\
         \"smClockRateKHz\":1500000,\"memClockRateKHz\":5000000,\
         \"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1}}",
        id = current_device(),
        version = card.compute_capability() * 10,
        memory = card.memory_bytes,
        multiprocessors = card.multiprocessors,
        l2 = card.l2_bytes,
        optin = per.shared_optin_bytes,
        reserved = if card.major >= 8 { 1024 } else { 0 },
        blocks = per.blocks,
        threads = per.threads,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_break_the_description() {
        let line = "card\tname=a\"b\\ü c\tcapability=8.9\tmemory_bytes=1024\tmultiprocessors=128";
        let cards = crate::card::parse(line).unwrap();
        let text = json(&cards[0]);
        assert!(text.starts_with("{\"deviceName\":\"ab c\",\"cudaDeviceId\":0,\"deviceVer\":890,"));
        assert!(text.contains("\"maxSharedMemoryPerBlockOptin\":101376,"));
        assert_eq!(text.matches('"').count() % 2, 0);
    }
}
