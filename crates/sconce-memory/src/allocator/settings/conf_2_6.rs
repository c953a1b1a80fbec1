//! The settings of PyTorch 2.6 to 2.8 (`c10/cuda/CUDAAllocatorConfig.cpp`).

use super::conf_2_9::validate_thread_count;
use super::numbers::{parse_double, parse_int, parse_unsigned};
use super::{AllocatorSettings, Divisions, SettingsError, mebibytes, words};

/// What `max_split_size_mb` and `max_non_split_rounding_mb` must exceed: a large segment.
const LARGE_MB: u64 = 20;

struct ConfigTokens(Vec<String>);

impl ConfigTokens {
    /// The word at `index`, which has to be a separator.
    fn separator(&self, index: usize, expected: char) -> Result<(), SettingsError> {
        let word = self.0.get(index).map(String::as_str).unwrap_or_default();
        match word.len() == 1 && word.starts_with(expected) {
            true => Ok(()),
            false => Err(SettingsError::Separator { expected }),
        }
    }

    fn value(&self, index: usize) -> Result<&str, SettingsError> {
        let ends = SettingsError::Ends {
            expected: "a value",
        };
        self.0.get(index).map(String::as_str).ok_or(ends)
    }

    fn switch(&self, index: usize, key: &'static str) -> Result<bool, SettingsError> {
        match self.0.get(index).map(String::as_str) {
            Some("True") => Ok(true),
            Some("False") => Ok(false),
            _ => Err(SettingsError::NoSwitch { key }),
        }
    }
}

pub(super) fn parse(settings: &mut AllocatorSettings, text: &str) -> Result<(), SettingsError> {
    let words = ConfigTokens(words(text, |c| c == ' ')?);
    let mut index = 0;
    while index < words.0.len() {
        index = option(settings, &words, index)? + 1;
        if index < words.0.len() {
            words.separator(index, ',')?;
            index += 1;
        }
    }
    Ok(())
}

/// Reads one option; gives where its value ends.
fn option(
    settings: &mut AllocatorSettings,
    words: &ConfigTokens,
    index: usize,
) -> Result<usize, SettingsError> {
    let key = words.0[index].as_str();
    let value = index + 2;
    let colon = || words.separator(index + 1, ':');
    let least = |name: &'static str| {
        colon()?;
        let size_mb = parse_int(words.value(value)?)?;
        match size_mb > LARGE_MB {
            true => Ok(mebibytes(size_mb)),
            false => Err(SettingsError::NotAbove {
                key: name,
                limit_mb: LARGE_MB,
            }),
        }
    };
    let switch = |name: &'static str| {
        colon()?;
        words.switch(value, name)
    };
    match key {
        "max_split_size_mb" => settings.max_split_size = Some(least("max_split_size_mb")?),
        "max_non_split_rounding_mb" => {
            settings.max_non_split_rounding = least("max_non_split_rounding_mb")?;
        }
        "garbage_collection_threshold" => {
            colon()?;
            let part = parse_double(words.value(value)?)?;
            if !(part > 0.0 && part < 1.0) {
                return Err(SettingsError::Threshold);
            }
            settings.garbage_collection_threshold = Some(part);
        }
        "roundup_power2_divisions" => {
            colon()?;
            return divisions(settings, words, value);
        }
        "backend" => {
            colon()?;
            settings.malloc_async = match words.value(value)? {
                "native" => false,
                "cudaMallocAsync" => true,
                _ => return Err(SettingsError::Backend),
            };
        }
        "expandable_segments" => settings.expandable_segments = switch("expandable_segments")?,
        "release_lock_on_cudamalloc" | "release_lock_on_hipmalloc" => {
            switch("release_lock_on_cudamalloc")?;
        }
        "pinned_use_cuda_host_register" | "pinned_use_hip_host_register" => {
            switch("pinned_use_cuda_host_register")?;
        }
        "pinned_use_background_threads" => drop(switch("pinned_use_background_threads")?),
        "pinned_num_register_threads" => {
            colon()?;
            validate_thread_count(parse_int(words.value(value)?)?)?;
        }
        _ => {
            return Err(SettingsError::UnknownOption {
                key: key.to_owned(),
            });
        }
    }
    Ok(value)
}

fn divisions(
    settings: &mut AllocatorSettings,
    words: &ConfigTokens,
    value: usize,
) -> Result<usize, SettingsError> {
    if words.value(value)? != "[" {
        let count = parse_int(words.value(value)?)?;
        if !count.is_power_of_two() {
            return Err(SettingsError::Divisions);
        }
        settings.roundup_power2_divisions.fill(count);
        return Ok(value);
    }
    let mut list = Divisions::new(&mut settings.roundup_power2_divisions);
    let mut index = value + 1;
    loop {
        // An end without its bracket is read past there.
        let Some(boundary) = words.0.get(index) else {
            return Err(SettingsError::Ends {
                expected: "a closing bracket",
            });
        };
        if boundary == "]" {
            return Ok(index);
        }
        words.separator(index + 1, ':')?;
        let count = parse_int(words.value(index + 2)?)?;
        if count != 0 && !count.is_power_of_two() {
            return Err(SettingsError::DivisionsOrZero);
        }
        if boundary == ">" {
            list.rest(count, true);
        } else {
            let boundary = parse_unsigned(boundary, "stoul")?;
            if !boundary.is_power_of_two() {
                return Err(SettingsError::Intervals);
            }
            list.set(boundary, count);
        }
        index += 3;
        if words.0.get(index).is_some_and(|word| word != "]") {
            words.separator(index, ',')?;
            index += 1;
        }
    }
}
