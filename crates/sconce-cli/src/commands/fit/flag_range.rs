//! `--vary`: a flag of the command's own, and the largest value of it that fits.

use std::fmt;
use std::str::FromStr;

/// A flag with the values that it may have: `--batch-size=8..256`, or `--batch-size 8..256` where the
/// command has them as two words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FlagRange {
    flag: String,
    joined: bool,
    pub(super) least: u64,
    pub(super) most: u64,
}

impl FromStr for FlagRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let told = || "FLAG=LEAST..MOST, such as --batch-size=8..256".to_owned();
        let (flag, range) = text.split_once(['=', ' ']).ok_or_else(told)?;
        let (least, most) = range.trim().split_once("..").ok_or_else(told)?;
        let vary = Self {
            flag: flag.to_owned(),
            joined: text[flag.len()..].starts_with('='),
            least: least.parse().map_err(|_| told())?,
            most: most.parse().map_err(|_| told())?,
        };
        match flag.is_empty() || vary.least == 0 || vary.least > vary.most {
            true => Err(told()),
            false => Ok(vary),
        }
    }
}

impl fmt::Display for FlagRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.flag)
    }
}

impl FlagRange {
    /// The command with that value in place of its own; at its end where it has none.
    pub(super) fn command_with_value(&self, command: &[String], value: u64) -> Vec<String> {
        let begin = format!("{}=", self.flag);
        let mut words: Vec<String> = Vec::with_capacity(command.len() + 2);
        let mut rest = command.iter();
        let mut done = false;
        while let Some(word) = rest.next() {
            if word.starts_with(&begin) {
                words.push(format!("{begin}{value}"));
            } else if *word == self.flag {
                rest.next();
                words.extend([self.flag.clone(), value.to_string()]);
            } else {
                words.push(word.clone());
                continue;
            }
            done = true;
        }
        match (done, self.joined) {
            (true, _) => {}
            (false, true) => words.push(format!("{begin}{value}")),
            (false, false) => words.extend([self.flag.clone(), value.to_string()]),
        }
        words
    }

    /// The largest value that fits, found by halving: what needs more never fits where less does not.
    pub(super) fn find_largest_fitting<E>(
        &self,
        mut fits: impl FnMut(u64) -> Result<bool, E>,
    ) -> Result<Option<u64>, E> {
        if fits(self.most)? {
            return Ok(Some(self.most));
        }
        if self.least == self.most || !fits(self.least)? {
            return Ok(None);
        }
        let (mut does, mut does_not) = (self.least, self.most);
        while does_not - does > 1 {
            let middle = does + (does_not - does) / 2;
            if fits(middle)? {
                does = middle;
            } else {
                does_not = middle;
            }
        }
        Ok(Some(does))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vary(text: &str) -> FlagRange {
        text.parse().unwrap()
    }

    #[test]
    fn a_flag_has_a_range() {
        let one = vary("--batch-size=8..256");
        assert_eq!((one.least, one.most, one.joined), (8, 256, true));
        assert!(!vary("-b 1..1").joined);
        let wrong = [
            "",
            "--b",
            "--b=",
            "--b=8",
            "--b=0..4",
            "--b=9..8",
            "=1..2",
            "--b=-1..2",
            "--b=1..x",
        ];
        for text in wrong {
            assert!(text.parse::<FlagRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_commands_own_value_is_replaced() {
        let of = |text: &str, command: &str| {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            vary(text).command_with_value(&words, 9).join(" ")
        };
        assert_eq!(of("-b=1..2", "python t.py"), "python t.py -b=9");
        assert_eq!(of("-b 1..2", "python t.py"), "python t.py -b 9");
        assert_eq!(of("-b 1..2", "t -b=4 -c"), "t -b=9 -c");
        assert_eq!(of("-b=1..2", "t -b 4 -c"), "t -b 9 -c");
        assert_eq!(of("-b=1..2", "t -b"), "t -b 9");
    }

    #[test]
    fn the_largest_value_is_found() {
        let one = vary("-b=3..1000");
        for largest in [0, 3, 4, 77, 999, 1000, 2000] {
            let mut tried = 0;
            let found = one.find_largest_fitting(|value| {
                tried += 1;
                Ok::<bool, ()>(value <= largest)
            });
            let expected = (largest >= 3).then_some(largest.min(1000));
            assert_eq!(found, Ok(expected));
            assert!(tried <= 12, "{tried}");
        }
        assert_eq!(one.find_largest_fitting(|_| Err(7)), Err(7));
    }
}
