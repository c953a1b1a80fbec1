//! Settings: what `PYTORCH_CUDA_ALLOC_CONF` says.
//!
//! What PyTorch takes is taken, and what it refuses is refused with its words. Up to 2.8 a wrong
//! separator is an error ([`conf_2_6`]); from 2.9 on nothing looks at separators ([`conf_2_9`]):
//! `expandable_segments,True` is as good as `expandable_segments:True`.

mod conf_2_6;
mod conf_2_9;
mod error;
mod numbers;

use super::TorchVersion;
use super::sizes::MIB;

pub use error::SettingsError;

/// Intervals of sizes that have their own number of divisions: 1 MiB, 2 MiB, … 32 GiB and above.
pub const INTERVALS: usize = 16;
/// A text with more words is refused: no setting needs them.
pub const MAX_WORDS: usize = 4096;

/// The allocator's settings.
#[derive(Debug, Clone, PartialEq)]
pub struct AllocatorSettings {
    /// `expandable_segments`.
    pub expandable_segments: bool,
    /// `max_split_size_mb` in bytes: blocks from this size on are not split. Absent: all are.
    pub max_split_size: Option<u64>,
    /// `max_non_split_rounding_mb` in bytes: how much larger a block that is not split may be.
    pub max_non_split_rounding: u64,
    /// `garbage_collection_threshold`, above 0 and below 1: the part of the allowed memory from
    /// which on old blocks are given back. Absent: none are.
    pub garbage_collection_threshold: Option<f64>,
    /// `roundup_power2_divisions` by interval: 0, or a power of two. 0 and 1 are off.
    pub roundup_power2_divisions: [u64; INTERVALS],
    /// `large_segment_size_mb` in bytes.
    pub large_segment_size: u64,
    /// `per_process_memory_fraction`, 0 to 1: as `set_fraction`, from the beginning.
    pub per_process_memory_fraction: f64,
    /// `throw_on_cudamalloc_oom`: what the fraction forbids is refused before anything is given
    /// back.
    pub throw_on_cudamalloc_oom: bool,
    /// `backend:cudaMallocAsync`: CUDA's own pools, of which nothing here is true.
    pub malloc_async: bool,
    /// `expandable_segments_reserve`: addresses that an expandable segment reserves.
    pub expandable_segments_reserve: Option<AddressReservation>,
}

/// How many addresses are reserved for an expandable segment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AddressReservation {
    /// A part of the card's memory.
    Fraction(f64),
    /// So many GiB.
    Gib(f64),
}

impl Default for AllocatorSettings {
    fn default() -> Self {
        Self {
            expandable_segments: false,
            max_split_size: None,
            max_non_split_rounding: 20 * MIB,
            garbage_collection_threshold: None,
            roundup_power2_divisions: [0; INTERVALS],
            large_segment_size: 20 * MIB,
            per_process_memory_fraction: 1.0,
            throw_on_cudamalloc_oom: false,
            malloc_async: false,
            expandable_segments_reserve: None,
        }
    }
}

impl AllocatorSettings {
    /// Reads the text of `PYTORCH_CUDA_ALLOC_CONF` as a release of PyTorch does when it starts.
    ///
    /// # Errors
    /// [`SettingsError`] where that release raises one.
    pub fn parse(text: &str, version: TorchVersion) -> Result<Self, SettingsError> {
        Self::default().with_conf(text, version)
    }

    /// The settings after `torch.cuda.memory._set_allocator_settings(text)`. What `text` does not
    /// name stays, but for `max_split_size_mb`, `roundup_power2_divisions` and
    /// `garbage_collection_threshold`, which go back to what they are by default.
    ///
    /// # Errors
    /// [`SettingsError`] where that release raises one.
    pub fn with_conf(&self, text: &str, version: TorchVersion) -> Result<Self, SettingsError> {
        let mut settings = Self {
            max_split_size: None,
            roundup_power2_divisions: [0; INTERVALS],
            garbage_collection_threshold: None,
            ..self.clone()
        };
        match version.lax_settings() {
            true => conf_2_9::parse(&mut settings, text, version)?,
            false => conf_2_6::parse(&mut settings, text)?,
        }
        Ok(settings)
    }

    /// The divisions of the interval that a request of `bytes` (not 0) is in.
    pub(crate) fn divisions_for(&self, bytes: u64) -> u64 {
        let interval = bytes.ilog2().saturating_sub(MIB.ilog2()) as usize;
        self.roundup_power2_divisions[interval.min(INTERVALS - 1)]
    }

    /// From which size on blocks are not split.
    pub(crate) fn split_limit(&self) -> u64 {
        self.max_split_size.unwrap_or(u64::MAX)
    }
}

/// The words of a text: `,`, `:`, `[` and `]` stand alone, and blanks count for nothing.
fn words(text: &str, blank: impl Fn(char) -> bool) -> Result<Vec<String>, SettingsError> {
    let mut words: Vec<String> = Vec::new();
    let mut open = false;
    for c in text.chars() {
        if matches!(c, ',' | ':' | '[' | ']') {
            words.push(c.into());
            open = false;
        } else if !blank(c) {
            match words.last_mut().filter(|_| open) {
                Some(word) => word.push(c),
                None => words.push(c.into()),
            }
            open = true;
        }
        if words.len() > MAX_WORDS {
            return Err(SettingsError::TooLong);
        }
    }
    Ok(words)
}

/// A number of MiB as bytes; more than fits is as much as fits.
fn mebibytes(count: u64) -> u64 {
    count.min(u64::MAX / MIB) * MIB
}

/// One entry of `roundup_power2_divisions:[…]`.
struct Divisions<'a> {
    slots: &'a mut [u64; INTERVALS],
    first: bool,
    last: usize,
}

impl<'a> Divisions<'a> {
    fn new(slots: &'a mut [u64; INTERVALS]) -> Self {
        Self {
            slots,
            first: true,
            last: 0,
        }
    }

    /// `boundary` MiB, a power of two, and what is below it where it is the first.
    fn set(&mut self, boundary: u64, value: u64) {
        let index = (boundary.ilog2() as usize).min(INTERVALS - 1);
        if std::mem::take(&mut self.first) {
            self.slots[..index].fill(value);
        }
        self.slots[index] = value;
        self.last = index;
    }

    /// `>`: what is above the last one; before 2.9, that one too.
    fn rest(&mut self, value: u64, last_too: bool) {
        let from = self.last + usize::from(!last_too);
        self.slots[from.min(INTERVALS)..].fill(value);
    }
}

#[cfg(test)]
mod tests;
