//! The kernels that programs bring, and which cards they have code for (`crt/host_runtime.h`).
//!
//! As a library with kernels is loaded it registers its fat binaries and the kernels in them, by the
//! addresses of their host functions. A card runs a kernel only if its fat binary has code for it: that
//! a release of PyTorch is too new or too old for a card is known from nothing else. NVIDIA's runtime
//! is not told, as it is never asked to launch.
//!
//! The format of fat binaries is not published; `sconce-compat` says what is known of it and from where
//! (`binary/fatbin.rs`).

use std::collections::HashMap;

use crate::abi::{self, Handle, InPointer};
use crate::machine::lock_state_without_query;

use super::{Error, Result};

/// What is registered: where a fat binary lies.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FatbinWrapper {
    magic: u32,
    version: u32,
    container: usize,
    others: usize,
}

/// Code of a fat binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Code {
    /// Compute capability, times ten.
    capability: u32,
    is_ptx: bool,
    reach: Reach,
}

/// Which cards run code beside those of its own capability (CUDA C++ Programming Guide, "Compute
/// capability and binary compatibility").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Onward,
    /// `sm_100f`
    Family,
    /// `sm_90a`
    Exact,
}

impl Code {
    fn serves(self, card: u32) -> bool {
        let same_major = card / 10 == self.capability / 10;
        match self.reach {
            Reach::Exact => card == self.capability,
            Reach::Onward if self.is_ptx => card >= self.capability,
            Reach::Onward | Reach::Family => same_major && card >= self.capability,
        }
    }
}

/// What a kernel was compiled for that runs on a card: compute capabilities, times ten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelTargets {
    pub ptx: u32,
    pub machine_code: u32,
}

/// Fat binaries and the kernels in them.
#[derive(Debug, Default)]
pub struct KernelRegistry {
    /// Where each container lies, and what it holds once that was asked: to read all as they are loaded
    /// would fetch pages of gigabytes of libraries.
    containers: Vec<(usize, Option<Vec<Code>>)>,
    /// Host function to container.
    functions: HashMap<Handle, usize>,
}

impl KernelRegistry {
    fn add_container(&mut self, container: usize) -> Handle {
        self.containers.push((container, None));
        // A handle is an address to its holder: never null.
        self.containers.len()
    }

    fn add_function(&mut self, container: Handle, function: Handle) {
        if let Some(index) = container.checked_sub(1) {
            self.functions.insert(function, index);
        }
    }

    /// The code that a card of this compute capability, times ten, takes of a kernel.
    ///
    /// # Errors
    /// [`Error::NoKernelImageForDevice`] where it has none. A function that nobody registered, and a
    /// container that is not understood, have code for every card.
    pub fn kernel_targets(&mut self, function: Handle, card: u32) -> Result<KernelTargets> {
        let of_card = KernelTargets {
            ptx: card,
            machine_code: card,
        };
        let index = self.functions.get(&function);
        let Some((at, codes)) = index.and_then(|index| self.containers.get_mut(*index)) else {
            return Ok(of_card);
        };
        let codes = codes.get_or_insert_with(|| codes_at(*at));
        if codes.is_empty() {
            return Ok(of_card);
        }
        let serving = codes.iter().filter(|code| code.serves(card));
        // Machine code before PTX, and of each what is closest to the card.
        let best = serving.max_by_key(|code| (!code.is_ptx, code.capability));
        let best = best.ok_or(Error::NoKernelImageForDevice)?;
        Ok(KernelTargets {
            ptx: best.capability,
            machine_code: match best.is_ptx {
                true => card,
                false => best.capability,
            },
        })
    }
}

const MAGIC: u32 = 0xBA55_ED50;
const CONTAINER_HEADER: usize = 16;
/// Of an entry's header, what is read.
const ENTRY_HEADER: usize = 48;
const KIND_PTX: u16 = 1;
const KIND_ELF: u16 = 2;
const FLAG_EXACT: u64 = 0x10_0000;
const FLAG_FAMILY: u64 = 0x20_0000;

/// What lies in the container at an address. None where it is not understood.
fn codes_at(address: usize) -> Vec<Code> {
    if address == 0 {
        return Vec::new();
    }
    let header = abi::read_bytes(address, CONTAINER_HEADER);
    if u32_at(&header, 0) != Some(MAGIC) {
        return Vec::new();
    }
    let header_size = u32_at(&header, 4).unwrap_or(0) >> 16;
    let size = u64_at(&header, 8).unwrap_or(0);
    codes(size, |at| {
        abi::read_bytes(address + header_size as usize + at, ENTRY_HEADER)
    })
}

/// The code of a container of `size` bytes, of which `read` gives the [`ENTRY_HEADER`] bytes from a
/// place on.
fn codes(size: u64, read: impl Fn(usize) -> Vec<u8>) -> Vec<Code> {
    let mut codes = Vec::new();
    let mut at = 0;
    while let Some(left) = size.checked_sub(at)
        && left >= ENTRY_HEADER as u64
    {
        let Some((code, entry)) = usize::try_from(at).ok().and_then(|at| code(&read(at))) else {
            break;
        };
        codes.extend(code);
        at = at.saturating_add(entry);
    }
    codes
}

/// An entry's code, where it is of a kind that is known, and the entry's size.
fn code(header: &[u8]) -> Option<(Option<Code>, u64)> {
    let size = u64::from(u32_at(header, 4)?).checked_add(u64_at(header, 8)?)?;
    if size < ENTRY_HEADER as u64 {
        return None;
    }
    let kind = u32_at(header, 0)? as u16;
    let flags = u64_at(header, 40)?;
    let code = Code {
        capability: u32_at(header, 28)?,
        is_ptx: kind == KIND_PTX,
        reach: match (flags & FLAG_EXACT, flags & FLAG_FAMILY) {
            (0, 0) => Reach::Onward,
            (0, _) => Reach::Family,
            _ => Reach::Exact,
        },
    };
    let code = Some(code).filter(|_| matches!(kind, KIND_PTX | KIND_ELF));
    Some((code, size))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*field))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*field))
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFatBinary(wrapper: InPointer<FatbinWrapper>) -> Handle {
    let container = wrapper.get().map_or(0, |wrapper| wrapper.container);
    lock_state_without_query().kernels.add_container(container)
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFunction(container: Handle, function: Handle) {
    lock_state_without_query()
        .kernels
        .add_function(container, function);
}

abi::nothing! {
    __cudaRegisterFatBinaryEnd __cudaUnregisterFatBinary __cudaInitModule __cudaRegisterVar
    __cudaRegisterManagedVar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(entries: &[(u16, u32, u64)]) -> Vec<u8> {
        let mut body = Vec::new();
        for (kind, capability, flags) in entries {
            let mut header = [0; 64];
            header[..2].copy_from_slice(&kind.to_le_bytes());
            header[4] = 64;
            header[8] = 8;
            header[28..32].copy_from_slice(&capability.to_le_bytes());
            header[40..48].copy_from_slice(&flags.to_le_bytes());
            body.extend(header);
            body.extend([0x7f; 8]);
        }
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend([1, 0, 16, 0]);
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    /// What cards of these capabilities take of a kernel in a container.
    fn compiled<const N: usize>(bytes: &[u8], cards: [u32; N]) -> [Option<(u32, u32)>; N] {
        let mut kernels = KernelRegistry::default();
        let handle = kernels.add_container(bytes.as_ptr() as usize);
        kernels.add_function(handle, 7);
        cards.map(|card| {
            let compiled = kernels.kernel_targets(7, card).ok()?;
            Some((compiled.ptx, compiled.machine_code))
        })
    }

    #[test]
    fn a_card_runs_what_was_compiled_for_an_older_one_of_its_major_version() {
        // PyTorch 2.15's libtorch_cuda.so, and what was left out of it since 2.9: code for 7.0.
        let wheel = container(&[75, 80, 86, 90, 100, 120].map(|of| (KIND_ELF, of, 0x8011)));
        let cards = [70, 75, 80, 89, 90, 103, 121];
        let same = |of| Some((of, of));
        let expected = [
            None,
            same(75),
            same(80),
            same(86),
            same(90),
            same(100),
            same(120),
        ];
        assert_eq!(compiled(&wheel, cards), expected);
        // 2.6's ends at 9.0.
        let wheel = container(&[50, 60, 70, 75, 80, 86, 90].map(|of| (KIND_ELF, of, 0x2011)));
        assert_eq!(compiled(&wheel, [70, 100]), [same(70), None]);
    }

    #[test]
    fn ptx_runs_on_newer_cards_and_what_is_for_one_card_on_no_other() {
        let made = container(&[
            (KIND_ELF, 80, 0),
            (KIND_PTX, 80, 0),
            (KIND_ELF, 90, FLAG_EXACT),
            (KIND_ELF, 100, FLAG_FAMILY),
        ]);
        let cards = [75, 89, 90, 103, 120];
        let expected = [
            None,
            Some((80, 80)),
            Some((90, 90)),
            Some((100, 100)),
            Some((80, 120)),
        ];
        assert_eq!(compiled(&made, cards), expected);
    }

    #[test]
    fn what_is_not_understood_runs_everywhere() {
        let cards = [70];
        let all = [Some((70, 70))];
        assert_eq!(compiled(&[0; 16], cards), all);
        assert_eq!(compiled(&container(&[]), cards), all);
        let mut kernels = KernelRegistry::default();
        assert!(kernels.kernel_targets(7, 70).is_ok());
        kernels.add_function(0, 7);
        kernels.add_function(99, 7);
        assert!(kernels.kernel_targets(7, 70).is_ok());
        // An entry of no size ends it, as does one that goes on beyond all.
        assert_eq!(codes(u64::MAX, |_| vec![0; ENTRY_HEADER]), []);
        assert_eq!(codes(u64::MAX, |_| vec![0xff; ENTRY_HEADER]), []);
        let cut = |at: usize| container(&[(KIND_ELF, 80, 0)])[16..][at..][..ENTRY_HEADER].to_vec();
        assert_eq!(codes(50, cut).len(), 1);
    }
}
