//! The settings of PyTorch 2.9 and later.
//!
//! Two parsers run over the same words, one after the other, and each steps over the other's keys
//! (`c10/core/AllocatorConfig.cpp`, `c10/cuda/CUDAAllocatorConfig.cpp`). Words are taken by their
//! place: what stands where a separator should is not looked at. Every case of the tests was given
//! to torch 2.15.0.

use super::super::TorchVersion;
use super::numbers::{parse_double, parse_unsigned};
use super::{AddressReservation, AllocatorSettings, Divisions, SettingsError, mebibytes, words};

/// Keys, the releases that know them, and whose they are. Releases in between were not looked at
/// one by one: a key is taken from the oldest release on that may have it.
const KEYS: [(&str, u32, ConfigParser); 21] = [
    ("max_split_size_mb", 9, ConfigParser::Common),
    ("max_non_split_rounding_mb", 9, ConfigParser::Common),
    ("garbage_collection_threshold", 9, ConfigParser::Common),
    ("roundup_power2_divisions", 9, ConfigParser::Common),
    ("expandable_segments", 9, ConfigParser::Common),
    ("pinned_use_background_threads", 9, ConfigParser::Common),
    ("large_segment_size_mb", 10, ConfigParser::Common),
    ("pinned_max_round_threshold_mb", 11, ConfigParser::Common),
    ("pinned_max_cached_size_mb", 11, ConfigParser::Common),
    ("backend", 9, ConfigParser::Cuda),
    ("release_lock_on_cudamalloc", 9, ConfigParser::Cuda),
    ("release_lock_on_hipmalloc", 9, ConfigParser::Cuda),
    ("pinned_use_cuda_host_register", 9, ConfigParser::Cuda),
    ("pinned_use_hip_host_register", 9, ConfigParser::Cuda),
    ("pinned_num_register_threads", 9, ConfigParser::Cuda),
    ("pinned_reserve_segment_size_mb", 9, ConfigParser::Cuda),
    ("graph_capture_record_stream_reuse", 9, ConfigParser::Cuda),
    ("per_process_memory_fraction", 10, ConfigParser::Cuda),
    ("pinned_free_catch_all", 11, ConfigParser::Cuda),
    ("throw_on_cudamalloc_oom", 11, ConfigParser::Cuda),
    ("expandable_segments_reserve", 15, ConfigParser::Cuda),
];
/// Its value is a list alone.
const BY_CLASS: &str = "expandable_segments_reserve_by_class";

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConfigParser {
    Common,
    Cuda,
}

fn whose(key: &str, version: TorchVersion) -> Option<ConfigParser> {
    if key == BY_CLASS {
        return (version >= TorchVersion::new(2, 15)).then_some(ConfigParser::Cuda);
    }
    let known = |&&(name, since, _): &&(&str, u32, ConfigParser)| {
        name == key && version >= TorchVersion::new(2, since)
    };
    KEYS.iter().find(known).map(|&(_, _, whose)| whose)
}

/// Words by their place.
struct ConfigTokens(Vec<String>);

impl ConfigTokens {
    fn at(&self, index: usize) -> Result<&str, SettingsError> {
        let ends = SettingsError::Ends {
            expected: "a value",
        };
        self.0.get(index).map(String::as_str).ok_or(ends)
    }

    fn count(&self, index: usize) -> Result<u64, SettingsError> {
        parse_unsigned(self.at(index)?, "stoull")
    }

    fn switch(&self, index: usize) -> Result<bool, SettingsError> {
        match self.at(index)? {
            "True" => Ok(true),
            "False" => Ok(false),
            word => Err(SettingsError::NoBool {
                index,
                word: word.to_owned(),
            }),
        }
    }

    /// Where the value of the key at `index` ends.
    fn skip(&self, index: usize) -> Result<usize, SettingsError> {
        let value = index + 2;
        if self.at(value)? != "[" {
            return Ok(value);
        }
        let end = self.0[value + 1..].iter().position(|word| word == "]");
        end.map(|end| value + 1 + end).ok_or(SettingsError::Ends {
            expected: "a closing bracket",
        })
    }
}

pub(super) fn parse(
    settings: &mut AllocatorSettings,
    text: &str,
    version: TorchVersion,
) -> Result<(), SettingsError> {
    // As `isspace` of C's locale.
    let words = ConfigTokens(words(text, |c| matches!(c, ' ' | '\t'..='\r'))?);
    // The size of segments goes first: others may not be below it.
    let mut index = 0;
    while index < words.0.len() {
        if words.0[index] == "large_segment_size_mb" && version >= TorchVersion::new(2, 10) {
            index += 2;
            let size_mb = words.count(index)?;
            if size_mb <= 10 {
                return Err(SettingsError::SmallSegment);
            }
            settings.large_segment_size = mebibytes(size_mb);
        }
        index += 1;
    }
    for parser in [ConfigParser::Common, ConfigParser::Cuda] {
        let mut index = 0;
        while index < words.0.len() {
            let key = words.0[index].as_str();
            index = match whose(key, version) {
                None => {
                    return Err(SettingsError::UnknownKey {
                        key: key.to_owned(),
                        parser: match parser {
                            ConfigParser::Common => "Accelerator",
                            ConfigParser::Cuda => "CUDA",
                        },
                    });
                }
                Some(whose) if whose != parser => words.skip(index)?,
                Some(ConfigParser::Common) => common(settings, key, &words, index, version)?,
                Some(ConfigParser::Cuda) => cuda(settings, key, &words, index)?,
            };
            // The value's end, and whatever stands between it and the next key.
            index += 2;
        }
    }
    Ok(())
}

/// Reads the value of one key; gives where it ends.
fn common(
    settings: &mut AllocatorSettings,
    key: &str,
    words: &ConfigTokens,
    index: usize,
    version: TorchVersion,
) -> Result<usize, SettingsError> {
    let value = index + 2;
    let least = |name: &'static str, least: u64| {
        let size_mb = words.count(value)?;
        let least_mb = least / super::MIB;
        match size_mb >= least_mb {
            true => Ok(mebibytes(size_mb)),
            false => Err(SettingsError::TooSmall {
                key: name,
                least_mb,
            }),
        }
    };
    match key {
        "max_split_size_mb" => {
            settings.max_split_size =
                Some(least("max_split_size_mb", settings.large_segment_size)?);
        }
        "max_non_split_rounding_mb" => {
            settings.max_non_split_rounding =
                least("max_non_split_rounding_mb", settings.large_segment_size)?;
        }
        "garbage_collection_threshold" => {
            let part = parse_double(words.at(value)?)?;
            if !(part > 0.0 && part < 1.0) {
                return Err(SettingsError::Threshold);
            }
            settings.garbage_collection_threshold = Some(part);
        }
        "roundup_power2_divisions" => return divisions(settings, words, value, version),
        "expandable_segments" => settings.expandable_segments = words.switch(value)?,
        "pinned_use_background_threads" => drop(words.switch(value)?),
        "large_segment_size_mb" => return words.skip(index),
        // The pinned ones: memory of the host, which is not simulated.
        _ => drop(words.count(value)?),
    }
    Ok(value)
}

fn divisions(
    settings: &mut AllocatorSettings,
    words: &ConfigTokens,
    value: usize,
    version: TorchVersion,
) -> Result<usize, SettingsError> {
    if words.at(value)? != "[" {
        let count = words.count(value)?;
        if !count.is_power_of_two() {
            return Err(SettingsError::Divisions);
        }
        settings.roundup_power2_divisions.fill(count);
        return Ok(value);
    }
    let mut list = Divisions::new(&mut settings.roundup_power2_divisions);
    let mut index = value + 1;
    loop {
        let Some(boundary) = words.0.get(index) else {
            return Err(SettingsError::Ends {
                expected: "a closing bracket",
            });
        };
        if boundary == "]" {
            return Ok(index);
        }
        let count = words.count(index + 2)?;
        if count != 0 && !count.is_power_of_two() {
            return Err(SettingsError::DivisionsOrZero);
        }
        if boundary == ">" {
            list.rest(count, version.rest_takes_last());
        } else {
            let boundary = parse_unsigned(boundary, "stoull")?;
            if !boundary.is_power_of_two() {
                return Err(SettingsError::Intervals);
            }
            list.set(boundary, count);
        }
        index += 3;
        if words.at(index)? != "]" {
            index += 1;
        }
    }
}

/// Reads the value of one key; gives where it ends.
fn cuda(
    settings: &mut AllocatorSettings,
    key: &str,
    words: &ConfigTokens,
    index: usize,
) -> Result<usize, SettingsError> {
    let value = index + 2;
    match key {
        "backend" => {
            settings.malloc_async = match words.at(value)? {
                "native" => false,
                "cudaMallocAsync" => true,
                _ => return Err(SettingsError::Backend),
            }
        }
        "pinned_num_register_threads" => validate_thread_count(words.count(value)?)?,
        "pinned_reserve_segment_size_mb" => {
            if words.count(value)? == 0 {
                return Err(SettingsError::PinnedReserve);
            }
        }
        "per_process_memory_fraction" => {
            let part = parse_double(words.at(value)?)?;
            if !(0.0..=1.0).contains(&part) {
                return Err(SettingsError::Fraction);
            }
            settings.per_process_memory_fraction = part;
        }
        "throw_on_cudamalloc_oom" => settings.throw_on_cudamalloc_oom = words.switch(value)?,
        "expandable_segments_reserve" => {
            // A wrong one is a warning there, and the default stays.
            if let Some(reserve) = reserve(words.at(value)?) {
                settings.expandable_segments_reserve = Some(reserve);
            }
        }
        BY_CLASS => return by_class(words, value),
        // Locks, the host's memory, and reuse within a graph: nothing here depends on them.
        _ => drop(words.switch(value)?),
    }
    Ok(value)
}

/// Classes belong to streams that a serving layer names; none is known here.
fn by_class(words: &ConfigTokens, value: usize) -> Result<usize, SettingsError> {
    let mut index = value + 1;
    while words.at(index)? != "]" {
        words.at(index + 2)?;
        index += 3;
        if words.at(index)? == "," {
            index += 1;
        }
    }
    Ok(index)
}

pub(super) fn validate_thread_count(count: u64) -> Result<(), SettingsError> {
    if !count.is_power_of_two() {
        return Err(SettingsError::Threads { count });
    }
    match count <= 128 {
        true => Ok(()),
        false => Err(SettingsError::ManyThreads { count }),
    }
}

/// `0.5` of the card's memory, or `40G`.
fn reserve(word: &str) -> Option<AddressReservation> {
    let whole = |text: &str| {
        let value: f64 = text.parse().ok()?;
        (value.is_finite() && value > 0.0).then_some(value)
    };
    match word.strip_suffix(['G', 'g']) {
        Some(gib) => whole(gib).map(AddressReservation::Gib),
        None => whole(word).map(AddressReservation::Fraction),
    }
}
