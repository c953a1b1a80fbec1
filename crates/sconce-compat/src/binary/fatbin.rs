//! CUDA fat binaries: which cards a library has device code for.
//!
//! The format is not published by NVIDIA. This is as found in the libraries themselves, PyTorch 2.4
//! to 2.15 and CUDA 12.1 to 13.2, and in the public notes of jiegec/fatbinary and
//! GrigoryEvko/nvopen-tools. All numbers are little-endian.
//!
//! ```text
//! container  +0 magic 0xBA55ED50   +4 u16 version 1   +6 u16 bytes of this header
//!            +8 u64 bytes of the entries, which follow
//! entry      +0 u16 kind: 1 PTX, 2 machine code       +4 u32 bytes of this header
//!            +8 u64 bytes of the code, which follows, padded
//!           +24 u16 minor, +26 u16 major: of PTX the version of the language
//!           +28 u32 compute capability, times ten     +40 u64 flags
//! ```
//!
//! Containers stand back to back, one for each file that was compiled. Sections may begin with, end
//! with, or have zeros between them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use sconce_schema::ComputeCapability;

use super::BinaryError;
use super::bytes::{BlockReader, ByteSource, u16_at, u32_at, u64_at};
use super::unused_code::UnusedCodeFinder;
use crate::library::{CodeKind, CodeReach, CodeTarget, Coverage, GpuCode};

const MAGIC: u32 = 0xBA55_ED50;
const CONTAINER_HEADER: usize = 16;
/// Of an entry's header, what is read. Seen are headers of 64 bytes and more.
const ENTRY_HEADER: usize = 48;
/// Of an entry's code, what is read: ELF's, zstd's and LZ4's first bytes, and those of text, are not
/// all zero.
const CODE_PREFIX_BYTES: usize = 8;
const KIND_PTX: u16 = 1;
const KIND_ELF: u16 = 2;
const FLAG_EXACT: u64 = 0x10_0000;
const FLAG_FAMILY: u64 = 0x20_0000;
/// Ten times the highest capability that is believed.
const MAX_ARCH: u32 = 999;
/// Entries are some ten to hundred kilobytes apart: reading more at once is reading for nothing.
const BLOCK: usize = 512;
/// Kinds of emptied entries that are told apart.
const MAX_EMPTIED_KINDS: usize = 256;
/// How much of a gap between containers is read at once: first [`BLOCK`], then more up to this.
const SEARCH_BLOCK: usize = 64 << 10;

/// What is spent on one file at most, over all its sections. What is left behind then counts as
/// unread.
#[derive(Debug)]
pub(super) struct FatbinLimits {
    /// Containers and entries. libcublasLt of CUDA 12.8 has 9,000.
    parts: u32,
    /// Bytes that are searched for the next container; between real ones lies nothing.
    searched: u64,
}

impl Default for FatbinLimits {
    fn default() -> Self {
        Self {
            parts: 1 << 20,
            searched: 16 << 20,
        }
    }
}

/// Containers as they are counted.
#[derive(Debug, Default)]
pub(super) struct ContainerCounts<'a> {
    kinds: BTreeMap<Vec<CodeTarget>, u32>,
    unread: u64,
    emptied: BTreeSet<CodeTarget>,
    /// Gets every container too, where it is wanted.
    pub(super) superfluous: Option<UnusedCodeFinder<'a>>,
}

impl ContainerCounts<'_> {
    /// Counts what lies in `size` bytes from `offset`. The part of it that the file does not have
    /// is unread.
    pub(super) fn add_containers(
        &mut self,
        bytes: &dyn ByteSource,
        offset: u64,
        size: u64,
        limits: &mut FatbinLimits,
    ) -> Result<(), BinaryError> {
        let there = size.min(bytes.size().saturating_sub(offset));
        self.lose(size - there);
        let end = offset + there;
        let mut window = BlockReader::new(bytes, BLOCK);
        let mut at = offset;
        while at < end {
            if limits.parts == 0 {
                self.lose(end - at);
                break;
            }
            let Some(entries) = container(&mut window, at, end)? else {
                at = self.search(bytes, at, end, limits)?;
                continue;
            };
            limits.parts -= 1;
            let Range {
                start: from,
                end: to,
            } = entries;
            // Of one that goes on beyond the end, what is here.
            at = to.min(end);
            self.entries(&mut window, from, at, limits)?;
        }
        Ok(())
    }

    /// Counts one container, whose entries lie in this range of the file.
    fn entries(
        &mut self,
        window: &mut BlockReader<'_>,
        from: u64,
        to: u64,
        limits: &mut FatbinLimits,
    ) -> Result<(), BinaryError> {
        let mut entries = Vec::new();
        let mut at = from;
        while at < to {
            let entry = if limits.parts == 0 {
                None
            } else {
                entry(window, at, to)?
            };
            let Some(entry) = entry else {
                self.lose(to - at);
                break;
            };
            limits.parts -= 1;
            match entry.target {
                Some(target) if entry.is_emptied => {
                    // A file has some ten; only one that was made up has thousands.
                    if self.emptied.len() < MAX_EMPTIED_KINDS {
                        self.emptied.insert(target);
                    }
                }
                Some(target) => entries.push((target, entry.code..entry.end)),
                None => self.lose(entry.end - at),
            }
            at = entry.end;
        }
        if let Some(superfluous) = &mut self.superfluous {
            superfluous.add_container(&entries);
        }
        let mut targets: Vec<CodeTarget> = entries.into_iter().map(|(target, _)| target).collect();
        targets.sort_unstable();
        targets.dedup();
        // One that has no code is none.
        if !targets.is_empty() {
            let count = self.kinds.entry(targets).or_default();
            *count = count.saturating_add(1);
        }
        Ok(())
    }

    /// Where the next container begins, or the end. Zeros before it are padding.
    fn search(
        &mut self,
        bytes: &dyn ByteSource,
        from: u64,
        end: u64,
        limits: &mut FatbinLimits,
    ) -> Result<u64, BinaryError> {
        let mut window = BlockReader::new(bytes, BLOCK);
        let mut most = BLOCK;
        let mut at = from;
        while at < end {
            if limits.searched == 0 {
                self.lose(end - at);
                return Ok(end);
            }
            let length = usize::try_from(end - at).map_or(most, |length| length.min(most));
            let block = window.up_to(at, length)?;
            most = (most * 2).min(SEARCH_BLOCK);
            limits.searched = limits.searched.saturating_sub(block.len() as u64);
            // Containers lie at multiples of four at least. The first place is known to have none.
            let places = (0..block.len()).step_by(4);
            let magic = MAGIC.to_le_bytes();
            let next = places
                .skip(usize::from(at == from))
                .find(|&place| block[place..].starts_with(&magic));
            let skipped = &block[..next.unwrap_or(block.len())];
            let lost = skipped.iter().filter(|&&byte| byte != 0).count();
            at += skipped.len() as u64;
            self.lose(lost as u64);
            if next.is_some() {
                break;
            }
        }
        Ok(at)
    }

    fn lose(&mut self, bytes: u64) {
        self.unread = self.unread.saturating_add(bytes);
    }

    /// Adds what another one counted.
    pub(super) fn merge(&mut self, other: &GpuCode) {
        for kind in &other.coverage {
            let count = self.kinds.entry(kind.targets.clone()).or_default();
            *count = count.saturating_add(kind.containers);
        }
        self.lose(other.unread_bytes);
        self.emptied.extend(&other.emptied);
    }

    /// The sum.
    pub(super) fn finish(self) -> GpuCode {
        let kinds = self.kinds.into_iter();
        let mut coverage: Vec<Coverage> = kinds
            .map(|(targets, containers)| Coverage {
                targets,
                containers,
            })
            .collect();
        // Stable: those as common as each other stay in the order of their targets.
        coverage.sort_by_key(|kind| Reverse(kind.containers));
        GpuCode {
            coverage,
            unread_bytes: self.unread,
            emptied: self.emptied.into_iter().collect(),
        }
    }
}

/// Where the entries lie of the container at `at`; they may go beyond `end`.
fn container(
    window: &mut BlockReader<'_>,
    at: u64,
    end: u64,
) -> Result<Option<Range<u64>>, BinaryError> {
    if end - at < CONTAINER_HEADER as u64 {
        return Ok(None);
    }
    let bytes = window.up_to(at, CONTAINER_HEADER)?;
    let Some(header) = bytes.first_chunk::<CONTAINER_HEADER>() else {
        return Ok(None);
    };
    let length = u16_at(header, 6);
    if u32_at(header, 0) != MAGIC
        || u16_at(header, 4) != 1
        || usize::from(length) < CONTAINER_HEADER
    {
        return Ok(None);
    }
    let from = at + u64::from(length);
    let to = from.saturating_add(u64_at(header, 8));
    Ok((from <= end).then_some(from..to))
}

struct Entry {
    /// `None` for a kind of code that is not known.
    target: Option<CodeTarget>,
    /// Where its code begins.
    code: u64,
    /// Its code begins with zeros, as no code does: a slim image was made without it.
    is_emptied: bool,
    /// Where the next one begins.
    end: u64,
}

/// The entry at `at`; `None` where it has no sound header or goes beyond `to`.
fn entry(window: &mut BlockReader<'_>, at: u64, to: u64) -> Result<Option<Entry>, BinaryError> {
    if to - at < ENTRY_HEADER as u64 {
        return Ok(None);
    }
    let bytes = window.up_to(at, ENTRY_HEADER)?;
    let Some(header) = bytes.first_chunk::<ENTRY_HEADER>() else {
        return Ok(None);
    };
    let length = u32_at(header, 4);
    let end = (at + u64::from(length)).checked_add(u64_at(header, 8));
    let sound = |end: &u64| length as usize >= ENTRY_HEADER && *end <= to;
    let Some(end) = end.filter(sound) else {
        return Ok(None);
    };
    let (target, code) = (target(header), at + u64::from(length));
    let most =
        usize::try_from(end - code).map_or(CODE_PREFIX_BYTES, |size| size.min(CODE_PREFIX_BYTES));
    let begin = window.up_to(code, most)?;
    Ok(Some(Entry {
        target,
        code,
        is_emptied: begin.len() == CODE_PREFIX_BYTES && begin.iter().all(|&byte| byte == 0),
        end,
    }))
}

fn target(header: &[u8; ENTRY_HEADER]) -> Option<CodeTarget> {
    let code = match u16_at(header, 0) {
        KIND_PTX => CodeKind::Ptx {
            major: u16_at(header, 26),
            minor: u16_at(header, 24),
        },
        KIND_ELF => CodeKind::Sass,
        _ => return None,
    };
    let arch = Some(u32_at(header, 28)).filter(|arch| (10..=MAX_ARCH).contains(arch))?;
    let flags = u64_at(header, 40);
    let reach = if flags & FLAG_EXACT != 0 {
        CodeReach::Exact
    } else if flags & FLAG_FAMILY != 0 {
        CodeReach::Family
    } else {
        CodeReach::Onward
    };
    Some(CodeTarget {
        capability: ComputeCapability::new(arch / 10, arch % 10),
        code,
        reach,
    })
}
