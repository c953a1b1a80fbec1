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
use std::process::{Command, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};
use sconce_schema::exit;

use crate::args::Global;
use crate::failure::{CliError, Result};
use crate::output;
use crate::style::Style;

/// What the supervisor itself says once nobody is there to read it: in the folder of the logs.
const OWN_LOG: &str = "sconce.txt";

/// How the start of a run in the background went.
pub(crate) enum Start {
    /// It goes on, under this id.
    Begun(String),
    /// It ended before, with this exit code, and has said why.
    Ended(u8),
}

/// Whether the run whose folder this is was started in the background: its `sconce` has a log of its
/// own.
pub(crate) fn is_detached(folder: &Path) -> bool {
    let own = folder.join(sconce_run::logs::FOLDER).join(OWN_LOG);
    own.symlink_metadata().is_ok()
}

/// Starts this program again with the same arguments, as the holder of a run, and waits until the
/// run has begun.
pub(crate) fn start(global: &Global) -> Result<Start> {
    if !global.quiet
        && let Some(warning) = logout()
    {
        output::say(&Style::for_stderr().warn(&warning));
    }
    let failed = |source| CliError::File {
        action: "start",
        path: "sconce".into(),
        source,
    };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut child = Command::new(crate::commands::run::program()?)
        .arg("--held")
        .args(std::env::args_os().skip(1))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .map_err(failed)?;
    let mut told = String::new();
    let _ = (&ours).take(256).read_to_string(&mut told);
    match told.strip_suffix('\n') {
        Some(id) => Ok(Start::Begun(id.to_owned())),
        None => {
            let status = child.wait().map_err(failed)?;
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            Ok(Start::Ended(code.unwrap_or(exit::RUN)))
        }
    }
}

/// `sconce run --detach`.
pub(crate) fn run(global: &Global) -> Result<u8> {
    match start(global)? {
        Start::Ended(code) => Ok(code),
        Start::Begun(id) => {
            output::data(&id)?;
            Ok(exit::OK)
        }
    }
}

/// The first thing that the holder does.
pub(crate) fn begin() {
    let _ = rustix::process::setsid();
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
}

/// The run has begun: lets go of everything of the caller's, and tells it.
pub(crate) fn settle(folder: &Path, id: &str) {
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

/// What there is to say where this machine ends everything of a user who logs out (logind.conf(5),
/// `KillUserProcesses=`).
fn logout() -> Option<String> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if rustix::process::geteuid().is_root() || !in_session(&own) {
        return None;
    }
    let asked = Command::new("loginctl")
        .args(["show-session", "--property=KillUserProcesses", "--value"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    (asked.stdout.trim_ascii() == b"yes").then(|| {
        "this machine ends what you started when you log out (KillUserProcesses=yes): `loginctl \
         enable-linger` once, and then start it with `systemd-run --user --scope sconce …`"
            .to_owned()
    })
}

/// Whether a process is part of a login session, by its `/proc/PID/cgroup`.
fn in_session(cgroups: &str) -> bool {
    let parts = cgroups.lines().flat_map(|line| line.split('/'));
    parts
        .into_iter()
        .any(|part| part.starts_with("session-") && part.ends_with(".scope"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_session_is_seen() {
        assert!(in_session(
            "0::/user.slice/user-1000.slice/session-3.scope\n"
        ));
        for other in [
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope\n",
            "0::/\n",
            "",
        ] {
            assert!(!in_session(other), "{other}");
        }
    }
}
