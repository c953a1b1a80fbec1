//! Releases of PyTorch whose allocators differ.

use std::fmt;
use std::str::FromStr;

/// A release of PyTorch, by its first two numbers.
///
/// Sizes, splitting, best fit and merging are the same in all of them. What changed is asked for
/// by name below; where public sources only say between which releases, the function says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TorchVersion {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

impl TorchVersion {
    /// The oldest release whose rules are known.
    pub const MIN_KNOWN: Self = Self::new(2, 6);
    /// The newest release whose rules are known; its wheel was compared with the simulator.
    pub const MAX_KNOWN: Self = Self::new(2, 15);

    /// `major.minor`; [`FromStr`] refuses releases that are not known.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Settings are read by a tokenizer that takes any separator for any other. Before, a wrong
    /// one was an error. (2.9: when the settings moved to `c10/core/AllocatorConfig`.)
    #[must_use]
    pub fn lax_settings(self) -> bool {
        self >= Self::new(2, 9)
    }

    /// In a list of divisions, `>` takes the last interval that was listed with it. (Seen in 2.6 and
    /// 2.9, not in 2.11 and 2.15.)
    #[must_use]
    pub fn rest_takes_last(self) -> bool {
        self < Self::new(2, 10)
    }

    /// A fraction of 1 lifts the limit. Before, it set one of all memory. (Between 2.6 and 2.11.)
    #[must_use]
    pub fn whole_fraction_is_no_limit(self) -> bool {
        self >= Self::new(2, 9)
    }

    /// Of several pools that take a stream's requests, the one begun last gets them. Before, the
    /// one begun first. (Between 2.6 and 2.11.)
    #[must_use]
    pub fn last_pool_wins(self) -> bool {
        self >= Self::new(2, 9)
    }

    /// A pool with an allocator of its own does not use expandable segments, and pools can be told
    /// never to split, or to help out when memory ran out. (Between 2.6 and 2.11.)
    #[must_use]
    pub fn pool_options(self) -> bool {
        self >= Self::new(2, 9)
    }

    /// Of free blocks of the same size, one of the oldest segment is taken. Before, the one with the
    /// lowest address. (2.12 or 2.13: seen from 2.13 on, not in
    /// 2.11.)
    #[must_use]
    pub fn older_segments_first(self) -> bool {
        self >= Self::new(2, 12)
    }

    /// While requests go to a pool of the user, and no graph is captured, cached blocks are given
    /// back when memory runs out. Before, they were not. (2.13.)
    #[must_use]
    pub fn pools_reclaim(self) -> bool {
        self >= Self::new(2, 13)
    }

    /// The message of an out-of-memory error does not recommend expandable segments to those who
    /// use them. (2.15.)
    #[must_use]
    pub fn advice_knows_settings(self) -> bool {
        self >= Self::new(2, 15)
    }
}

impl Default for TorchVersion {
    fn default() -> Self {
        Self::MAX_KNOWN
    }
}

/// A text that names no release whose allocator is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no release of PyTorch whose allocator is known ({} to {})",
    TorchVersion::MIN_KNOWN,
    TorchVersion::MAX_KNOWN
)]
pub struct TorchVersionError {
    /// What was given.
    pub text: String,
}

impl sconce_schema::Hint for TorchVersionError {
    fn exit_code(&self) -> u8 {
        sconce_schema::exit::USAGE
    }
}

impl FromStr for TorchVersion {
    type Err = TorchVersionError;

    /// Reads `2.15` and what begins so, such as `2.15.0+cu132`.
    fn from_str(text: &str) -> Result<Self, TorchVersionError> {
        let wrong = || TorchVersionError {
            text: text.to_owned(),
        };
        let mut parts = text.trim().splitn(3, '.');
        let mut number = || parts.next()?.parse().ok();
        let (Some(major), Some(minor)) = (number(), number()) else {
            return Err(wrong());
        };
        let version = Self::new(major, minor);
        match (Self::MIN_KNOWN..=Self::MAX_KNOWN).contains(&version) {
            true => Ok(version),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for TorchVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_read_as_pip_writes_them() {
        for (text, version) in [
            ("2.6", TorchVersion::MIN_KNOWN),
            ("2.10.1", TorchVersion::new(2, 10)),
            ("2.15.0+cu132", TorchVersion::MAX_KNOWN),
        ] {
            assert_eq!(text.parse(), Ok(version), "{text}");
        }
        for text in ["", "2", "2.", "2.5", "2.16", "3.0", "2.x", "-2.6"] {
            assert!(text.parse::<TorchVersion>().is_err(), "{text}");
        }
    }
}
