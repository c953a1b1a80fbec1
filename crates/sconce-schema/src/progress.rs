//! What a long-running stage tells while it works. The library tells, the program draws.

use std::fmt;
use std::time::SystemTime;

/// A stage's view of whoever watches. All methods may be called from several threads at once.
///
/// `name` identifies one item (a wheel's file name, a package) for as long as it is under way.
pub trait Progress: Send + Sync {
    /// A stage begins: a word for people (`"resolve"`, `"download"`, `"unpack"`) and how many
    /// bytes it will take in, where that is known.
    fn stage(&self, stage: &str, total_bytes: Option<u64>);
    /// `bytes` more of `name` have arrived and been worked on; 0: it is being worked on.
    fn advance(&self, name: &str, bytes: u64);
    /// `name` is complete.
    fn done(&self, name: &str);
    /// Something a person should know, though nothing failed (a retry, a slower way).
    fn note(&self, text: &str);
    /// `name` waits for another process. Told again when that is another one, and with `None` when
    /// the wait is over.
    fn waits(&self, name: &str, wait: Option<&WaitCause>);
    /// The stage that is under way has ended, and none follows.
    fn finish(&self) {}
}

/// Whom something waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitCause {
    /// The process that makes it.
    Maker(MakerProcess),
    /// A process that makes it and did not say who it is: an older Sconce.
    Unknown,
    /// Processes that still use what is to be replaced.
    Users,
}

/// A process that makes, replaces or removes something, as it describes itself. The machine's name is
/// told because the process may be on another one, or in a container that counts processes anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MakerProcess {
    /// Its process id, as it sees it.
    pub pid: u32,
    /// The name of its machine.
    pub host: String,
    /// When it began.
    pub since: SystemTime,
    /// What it does: `installs six-1.16.0-py2.py3-none-any.whl`.
    pub work: String,
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Maker(maker) => {
                write!(f, "waiting for process {} on {}", maker.pid, maker.host)?;
                match maker.work.as_str() {
                    "" => Ok(()),
                    work => write!(f, ", which {work}"),
                }
            }
            Self::Unknown => f.write_str("waiting for another process"),
            Self::Users => f.write_str("waiting for the runs that use what is to be replaced"),
        }
    }
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn stage(&self, _: &str, _: Option<u64>) {}
    fn advance(&self, _: &str, _: u64) {}
    fn done(&self, _: &str) {}
    fn note(&self, _: &str) {}
    fn waits(&self, _: &str, _: Option<&WaitCause>) {}
}
