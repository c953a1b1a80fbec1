//! What failed of a file, as an error says it and as an exit code tells it.

use std::fmt;

use sconce_schema::exit;

/// What the program was doing with a file, a directory or a socket when the system refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what its text says")]
pub enum FileAction {
    Create,
    Enter,
    Find,
    KeepKernelsIn,
    ListenOn,
    MakeTrialIn,
    Mount,
    Move,
    Open,
    Read,
    Start,
    Use,
    Write,
}

impl FileAction {
    /// Returns the exit code of such a failure: of the place where something was to be kept, or of what
    /// was given.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Create | Self::ListenOn | Self::Write => exit::STORE,
            Self::Enter
            | Self::Find
            | Self::KeepKernelsIn
            | Self::MakeTrialIn
            | Self::Mount
            | Self::Move
            | Self::Open
            | Self::Read
            | Self::Start
            | Self::Use => exit::BAD_INPUT,
        }
    }
}

/// The verb of "cannot … FILE".
impl fmt::Display for FileAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Enter => "enter",
            Self::Find => "find",
            Self::KeepKernelsIn => "keep kernels in",
            Self::ListenOn => "listen on",
            Self::MakeTrialIn => "make",
            Self::Mount => "mount",
            Self::Move => "move",
            Self::Open => "open",
            Self::Read => "read",
            Self::Start => "start",
            Self::Use => "use",
            Self::Write => "write",
        })
    }
}
