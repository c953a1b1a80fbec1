//! Runs that go on in the background.
//!
//! The program starts itself once more, in a session of its own, which does what was asked with the
//! caller's terminal as long as it is being prepared. When its command was executed, or its services
//! are about to be started, it lets the terminal go and says so on the socket that is its standard
//! input; its caller then ends. If the caller ends before, so does it.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Signal, set_parent_process_death_signal};
use sconce_schema::exit;

use crate::context::AppContext;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::logout;
use crate::reporter::AppEvent;
use crate::worker::{WorkerTask, bare_command};

/// What the supervisor itself says once nobody is there to read it: in the folder of the logs.
const OWN_LOG: &str = "sconce.txt";

/// How the start of a run in the background went.
pub enum DetachOutcome {
    /// It goes on, under this id.
    Begun(String),
    /// It ended before, with this exit code, and has said why.
    Ended(u8),
}

/// Whether the run whose folder this is was started in the background: its `sconce` has a log of its
/// own.
pub fn is_detached(folder: &Path) -> bool {
    let own = folder.join(sconce_run::logs::FOLDER).join(OWN_LOG);
    own.symlink_metadata().is_ok()
}

/// Starts this program again with the same arguments, as the holder of a run, and waits until the
/// run has begun.
pub fn start_background_run(context: &AppContext) -> Result<DetachOutcome> {
    if !context.quiet
        && let Some(warning) = logout::warning()
    {
        context.report(&AppEvent::EndsWithLogin(&warning));
    }
    let failed = |source| AppError::File {
        action: FileAction::Start,
        path: "sconce".into(),
        source,
    };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let task = WorkerTask::HoldRun.to_line().map_err(failed)?;
    (&ours).write_all(&task).map_err(failed)?;
    let mut child = bare_command(&crate::worker::current_exe()?)
        .args(&context.arguments)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .map_err(failed)?;
    tracing::debug!(pid = child.id(), "another process holds the run");
    let mut told = String::new();
    let _ = (&ours).take(256).read_to_string(&mut told);
    match told.strip_suffix('\n') {
        Some(id) => Ok(DetachOutcome::Begun(id.to_owned())),
        None => {
            let status = child.wait().map_err(failed)?;
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            Ok(DetachOutcome::Ended(code.unwrap_or(exit::RUN)))
        }
    }
}

/// The first thing that the holder does.
pub fn start_holder_session() {
    let _ = rustix::process::setsid();
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
}

/// The `sconce` that was called, which waits; for the holder to ask.
pub fn caller_pid() -> Option<u32> {
    let parent = rustix::process::getppid()?;
    u32::try_from(parent.as_raw_nonzero().get()).ok()
}

/// The run has begun: lets go of everything of the caller's, and tells it.
pub fn release_caller(folder: &Path, id: &str) {
    let caller = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3);
    let _ = set_parent_process_death_signal(None);
    let logs = folder.join(sconce_run::logs::FOLDER);
    let _ = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&logs);
    let mut append = std::fs::File::options();
    append.append(true).create(true).mode(0o600);
    let nothing = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null");
    if let Ok(nothing) = &nothing {
        let _ = rustix::stdio::dup2_stdin(nothing);
    }
    // What cannot be kept is dropped: nobody's terminal stays open.
    if let Ok(own) = append.open(logs.join(OWN_LOG)).or(nothing) {
        let _ = rustix::stdio::dup2_stdout(&own);
        let _ = rustix::stdio::dup2_stderr(&own);
    }
    if let Ok(caller) = caller {
        let _ = writeln!(UnixStream::from(caller), "{id}");
    }
}
