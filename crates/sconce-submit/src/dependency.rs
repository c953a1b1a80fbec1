//! Which jobs come before another, and how they have to end.

use std::fmt;

use crate::job_id::SchedulerJobId;

/// How a job has to end before the one that waits for it starts, in Slurm's words (sbatch(1), `--dependency`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DependencyKind {
    /// With 0.
    AfterOk,
    /// Otherwise.
    AfterNotOk,
    /// Anyhow.
    AfterAny,
}

impl DependencyKind {
    /// All of them, as they are listed for people.
    pub const ALL: [Self; 3] = [Self::AfterOk, Self::AfterAny, Self::AfterNotOk];

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AfterOk => "afterok",
            Self::AfterNotOk => "afternotok",
            Self::AfterAny => "afterany",
        }
    }

    /// The kind with this word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == word)
    }

    /// Whether what waits may start once the job before has ended, well or not.
    #[must_use]
    pub fn allows(self, has_ended_well: bool) -> bool {
        match self {
            Self::AfterOk => has_ended_well,
            Self::AfterNotOk => !has_ended_well,
            Self::AfterAny => true,
        }
    }
}

/// A job that comes before another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDependency {
    /// How it has to end.
    pub kind: DependencyKind,
    /// Which it is.
    pub job: SchedulerJobId,
}

impl JobDependency {
    /// One that has to end well.
    #[must_use]
    pub fn after_ok(job: SchedulerJobId) -> Self {
        let kind = DependencyKind::AfterOk;
        Self { kind, job }
    }

    /// Reads what [`fmt::Display`] writes; an id alone is one that has to end well.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, job) = text.split_once(':').unwrap_or(("afterok", text));
        Some(Self {
            kind: DependencyKind::parse(kind)?,
            job: SchedulerJobId::parse(job)?,
        })
    }
}

impl fmt::Display for JobDependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            DependencyKind::AfterOk => write!(f, "{}", self.job),
            kind => write!(f, "{}:{}", kind.name(), self.job),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_is_read_as_it_is_written() {
        for text in ["7", "afterany:7", "afternotok:7_3"] {
            assert_eq!(JobDependency::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(JobDependency::parse("afterok:7").unwrap().to_string(), "7");
        for text in ["", "after:7", "afterok:", "afterok:7:8", "7,8"] {
            assert_eq!(JobDependency::parse(text), None, "{text}");
        }
    }

    #[test]
    fn each_kind_allows_its_ends() {
        let allows = |kind: DependencyKind| [kind.allows(true), kind.allows(false)];
        assert_eq!(
            DependencyKind::ALL.map(allows),
            [[true, false], [true, true], [false, true]]
        );
    }
}
