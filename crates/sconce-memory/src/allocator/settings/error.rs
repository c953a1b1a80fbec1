//! What PyTorch says of settings that it does not take.

use sconce_schema::{Hint, exit};

/// Settings that PyTorch refuses, in its words, but for those where it says that it met a bug.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// A key that this release does not know (2.9 and later).
    #[error("Unrecognized key '{key}' in {parser} allocator config.")]
    UnknownKey {
        /// The word.
        key: String,
        /// Which of its two parsers says so.
        parser: &'static str,
    },
    /// A key that this release does not know (before 2.9).
    #[error("Unrecognized CachingAllocator option: {key}")]
    UnknownOption {
        /// The word.
        key: String,
    },
    /// The text ends where a value or a bracket should be.
    #[error("the settings end where {expected} should follow")]
    Ends {
        /// What is missing.
        expected: &'static str,
    },
    /// Another separator than the one that should be there (before 2.9).
    #[error("Error parsing CachingAllocator settings, expected {expected}")]
    Separator {
        /// The one that should be there.
        expected: char,
    },
    /// Neither `True` nor `False`.
    #[error("Expected 'True' or 'False' at index {index} in ConfigTokenizer but got '{word}'")]
    NoBool {
        /// The place among the words.
        index: usize,
        /// What stands there.
        word: String,
    },
    /// Neither `True` nor `False` (before 2.9).
    #[error("Expected a single True/False argument for {key}")]
    NoSwitch {
        /// The setting.
        key: &'static str,
    },
    /// Not a number, or one that is too large.
    #[error("{function}: `{word}`")]
    NoNumber {
        /// The function of C++'s library that throws, whose name is all that PyTorch says.
        function: &'static str,
        /// What stands there.
        word: String,
    },
    /// Smaller than a large segment.
    #[error("CachingAllocator option {key} too small, must be >= {least_mb}")]
    TooSmall {
        /// The setting.
        key: &'static str,
        /// The least that it may be, in MiB.
        least_mb: u64,
    },
    /// Not larger than a large segment (before 2.9).
    #[error("CachingAllocator option {key} too small, must be > {limit_mb}")]
    NotAbove {
        /// The setting.
        key: &'static str,
        /// What it must exceed, in MiB.
        limit_mb: u64,
    },
    /// `large_segment_size_mb` of 10 or less.
    #[error("CachingAllocator option large_segment_size_mb must be > 10 MB")]
    SmallSegment,
    /// `garbage_collection_threshold` outside of its range.
    #[error("garbage_collect_threshold is invalid, set it in (0.0, 1.0)")]
    Threshold,
    /// `per_process_memory_fraction` outside of its range.
    #[error("per_process_memory_fraction is invalid, set it in [0.0, 1.0]")]
    Fraction,
    /// A number of divisions that is no power of two.
    #[error("For roundups, the divisions has to be power of 2")]
    Divisions,
    /// A number of divisions in a list that is neither 0 nor a power of two.
    #[error("For roundups, the divisions has to be power of 2 or 0 to disable roundup")]
    DivisionsOrZero,
    /// An interval that is no power of two.
    #[error("For roundups, the intervals have to be power of 2")]
    Intervals,
    /// `backend` that is neither of both.
    #[error("Unknown allocator backend, options are native and cudaMallocAsync")]
    Backend,
    /// `pinned_num_register_threads` that is no power of two.
    #[error("Number of register threads has to be power of 2, got {count}")]
    Threads {
        /// What was given.
        count: u64,
    },
    /// `pinned_num_register_threads` above 128.
    #[error("Number of register threads should be less than or equal to 128, got {count}")]
    ManyThreads {
        /// What was given.
        count: u64,
    },
    /// `pinned_reserve_segment_size_mb` of 0.
    #[error("Pinned reserve segment size has to be greater than 0")]
    PinnedReserve,
    /// More words than any settings need. PyTorch has no such limit.
    #[error("the settings have more than {} words", super::MAX_WORDS)]
    TooLong,
}

impl Hint for SettingsError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoBool { .. } | Self::NoSwitch { .. } => {
                "write `True` or `False`, with a capital"
            }
            Self::Ends { .. } | Self::Separator { .. } => {
                "settings are `key:value,key:value`; lists are `key:[size:value,>:value]`"
            }
            Self::UnknownKey { .. } | Self::UnknownOption { .. } => {
                "another release of PyTorch may know it: name yours with --torch"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}
