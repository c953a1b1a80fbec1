//! What a scheduler calls a job.

use std::fmt;

/// The longest id of a job that is read, characters.
const MAX_ID_CHARS: usize = 253;

/// What a scheduler calls a job: Slurm's number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchedulerJobId(String);

impl SchedulerJobId {
    /// Reads an id: letters, digits, `-`, `_` and `.`, of which the first is a letter or digit, so that it can be a
    /// program's argument and part of a list that commas separate.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        (begins && text.len() <= MAX_ID_CHARS && text.chars().all(is_part))
            .then(|| Self(text.to_owned()))
    }

    /// The id of an element of this job, an array: `4711_3` (squeue(1), `JobArrayID`).
    #[must_use]
    pub fn element(&self, index: u32) -> Self {
        Self(format!("{}_{index}", self.0))
    }

    /// The id of the job that this is an element of; of any other, its own.
    #[must_use]
    pub fn whole_job(&self) -> &str {
        self.0.split_once('_').map_or(&*self.0, |(job, _)| job)
    }

    /// Returns it as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<u32> for SchedulerJobId {
    fn from(number: u32) -> Self {
        Self(number.to_string())
    }
}

impl fmt::Display for SchedulerJobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_no_option_and_no_list() {
        for text in ["1", "4711", "sconce-abc.1", "12_3"] {
            assert_eq!(SchedulerJobId::parse(text).unwrap().as_str(), text);
        }
        let array = SchedulerJobId::parse("12").unwrap();
        assert_eq!(array.element(3).as_str(), "12_3");
        assert_eq!(
            (array.element(3).whole_job(), array.whole_job()),
            ("12", "12")
        );
        let long = "1".repeat(MAX_ID_CHARS + 1);
        for text in ["", "-1", "1,2", "1 2", "1\n", "_1", "é", &long] {
            assert_eq!(SchedulerJobId::parse(text), None, "{text:?}");
        }
    }
}
