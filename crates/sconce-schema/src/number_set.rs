//! Sets of small numbers as the kernel writes them: CPUs, memory nodes.

use std::fmt;
use std::str::FromStr;

use crate::units::{UnitError, serde_as_text};

/// CPUs or memory nodes by their numbers, 0 to 1023 (as many as `cpu_set_t` of the C library has).
/// Reads and prints the kernel's list format, `0-3,8,10-11` (Documentation/admin-guide/
/// cputopology.rst); never empty when it was read from text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NumberSet([u64; NumberSet::WORDS]);

const EXPECTED: &str = "a list of numbers from 0 to 1023 such as 0-3 or 0,2,8-11";

impl NumberSet {
    const WORDS: usize = 16;
    /// One more than the largest number.
    pub const END: u32 = 64 * Self::WORDS as u32;

    /// Whether `number` is in it.
    #[must_use]
    pub const fn contains(&self, number: u32) -> bool {
        number < Self::END && self.0[(number / 64) as usize] >> (number % 64) & 1 == 1
    }

    /// Puts `number` in; one that is too large is left out, and `false` says so.
    pub const fn insert(&mut self, number: u32) -> bool {
        if number >= Self::END {
            return false;
        }
        self.0[(number / 64) as usize] |= 1 << (number % 64);
        true
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Each, upwards.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..Self::END).filter(|&number| self.contains(number))
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.joined(other, |a, b| a & b)
    }

    /// What is in one of them.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.joined(other, |a, b| a | b)
    }

    /// What is here and not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.joined(other, |a, b| a & !b)
    }

    fn joined(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|word| of(self.0[word], other.0[word])))
    }

    /// As bits, the lowest number in the lowest bit of the first word.
    #[must_use]
    pub const fn as_words(&self) -> &[u64; Self::WORDS] {
        &self.0
    }
}

impl FromIterator<u32> for NumberSet {
    /// Numbers that are too large are left out.
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut set = Self::default();
        for number in numbers {
            set.insert(number);
        }
        set
    }
}

impl FromStr for NumberSet {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError {
            text: text.to_owned(),
            expected: EXPECTED,
        };
        // `+1` is a number to Rust and none to the kernel.
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            let number = text.parse().ok().filter(|&n: &u32| n < Self::END);
            number.filter(|_| digits).ok_or_else(wrong)
        };
        let mut set = Self::default();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return Err(wrong());
            }
            for number in first..=last {
                set.insert(number);
            }
        }
        Ok(set)
    }
}

impl fmt::Display for NumberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for NumberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

serde_as_text!(NumberSet);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    fn set(text: &str) -> NumberSet {
        text.parse().unwrap()
    }

    #[test]
    fn the_kernels_lists() {
        for (text, count, written) in [
            ("0", 1, "0"),
            ("0-1\n", 2, "0-1"),
            ("8,0-3,10-11", 7, "0-3,8,10-11"),
            ("0,1,2,3", 4, "0-3"),
            ("5,5-6", 2, "5-6"),
            ("1023", 1, "1023"),
        ] {
            assert_eq!(
                (set(text).len(), set(text).to_string()),
                (count, written.to_owned())
            );
        }
        assert!(set("62-65").contains(64) && !set("62-65").contains(66));
        assert!(!set("1023").contains(1024));
    }

    #[test]
    fn what_is_no_list() {
        for text in [
            "",
            ",",
            "0,",
            "a",
            "-1",
            "0-",
            "-",
            "3-1",
            "1024",
            "0-4294967296",
            "+1",
            "0 1",
            "0-1-2",
            "0x1",
        ] {
            let error = text.parse::<NumberSet>().unwrap_err().to_string();
            assert!(error.contains("0-3 or 0,2,8-11"), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_in_both_one_and_neither() {
        let (a, b) = (set("0-3,64"), set("2-5"));
        assert_eq!(a.intersection(&b), set("2-3"));
        assert_eq!(a.union(&b), set("0-5,64"));
        assert_eq!(a.difference(&b), set("0-1,64"));
        assert!(a.difference(&a).is_empty());
    }

    proptest! {
        #[test]
        fn text_and_numbers_are_the_same(numbers in btree_set(0_u32..1024, 1..60)) {
            let set: NumberSet = numbers.iter().copied().collect();
            prop_assert_eq!(set.to_string().parse::<NumberSet>().unwrap(), set);
            prop_assert!(set.iter().eq(numbers));
        }

        #[test]
        fn text_never_panics(text in "[0-9,-]{0,12}|\\PC*") {
            let _ = text.parse::<NumberSet>();
        }
    }
}
