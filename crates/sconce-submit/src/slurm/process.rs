//! One program of Slurm's, started, fed, read and bounded: in time, in what it may write, with all its children.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use sconce_base::Env;

use crate::error::SubmitError;

/// The most that a program may write to each of its outputs: squeue writes 200 bytes a job or so.
pub(super) const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// How often it is looked whether a program has ended whose outputs somebody else still holds. pidfd_open(2), which
/// would say it at once, came with Linux 5.3, and login nodes are older.
const EXIT_POLL: Duration = Duration::from_millis(20);

/// What a program wrote, and how it ended.
#[derive(Debug)]
pub(super) struct ProgramOutput {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// What is started, and how long it may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProgramCall<'a> {
    /// Its name, for errors.
    pub(super) program: &'static str,
    /// Where it is.
    pub(super) path: &'a Path,
    pub(super) args: &'a [String],
    /// The caller's variables; see [`keeps_variable`].
    pub(super) env: &'a Env,
    /// What it reads.
    pub(super) input: &'a str,
    pub(super) timeout: Duration,
}

/// Whether a variable of the caller is passed on. Those of Slurm's programs change what they do, and those of sbatch
/// win over the script's own lines (sbatch(1), "INPUT ENVIRONMENT VARIABLES"); within a job, `SLURM_…` speaks of that
/// job. `SLURM_CONF` says where the cluster is, `SLURM_JWT` who asks.
pub(super) fn keeps_variable(name: &str) -> bool {
    let changes = ["SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SLURM_"];
    matches!(name, "SLURM_CONF" | "SLURM_JWT")
        || !changes.iter().any(|prefix| name.starts_with(prefix))
}

/// Runs a program to its end.
///
/// # Errors
/// It cannot be started, takes too long or writes too much: it is killed then, with all that it started and that is
/// still in its process group.
pub(super) fn run_program(call: ProgramCall<'_>) -> Result<ProgramOutput, SubmitError> {
    let program = call.program;
    let failed = |source| SubmitError::Start { program, source };
    let variables = call.env.iter();
    let variables = variables.filter(|(name, _)| name.to_str().is_none_or(keeps_variable));
    let mut command = Command::new(call.path);
    command
        .env_clear()
        .envs(variables)
        // Seconds since 1970 (strftime(3)), in place of a local time without its zone; squeue(1) and sacct(1).
        .env("SLURM_TIME_FORMAT", "%s")
        .args(call.args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Out of reach of the terminal's signals, and to be killed as one.
        .process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    match talk(&mut child, &call) {
        Ok(Ok((status, stdout, stderr))) => Ok(ProgramOutput {
            status,
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }),
        Ok(Err(error)) => {
            kill_group(&mut child);
            Err(error)
        }
        Err(source) => {
            kill_group(&mut child);
            Err(failed(source))
        }
    }
}

/// Kills a child that was not waited for, and its group, which has its id as long as it is there.
fn kill_group(child: &mut Child) {
    if let Ok(None) = child.try_wait() {
        let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
        let _ = child.wait();
    }
}

/// What a program answered, or the limit that it broke.
type Answer = Result<(ExitStatus, Vec<u8>, Vec<u8>), SubmitError>;

/// Feeds and reads a child until it ends.
fn talk(child: &mut Child, call: &ProgramCall<'_>) -> io::Result<Answer> {
    let program = call.program;
    let deadline = Instant::now() + call.timeout;
    let mut input = call.input.as_bytes();
    let mut stdin = child.stdin.take().filter(|_| !input.is_empty());
    let mut stdout = child.stdout.take();
    let mut stderr = child.stderr.take();
    let (mut from_stdout, mut from_stderr) = (Vec::new(), Vec::new());
    set_nonblocking(stdin.as_ref())?;
    set_nonblocking(stdout.as_ref())?;
    set_nonblocking(stderr.as_ref())?;
    // Its end wakes the wait below; before Linux 5.3 it is looked for.
    let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok();
    loop {
        // Asked before its outputs are read: what it wrote before its end is in them.
        let ended = child.try_wait()?;
        read_ready(&mut stdout, &mut from_stdout)?;
        read_ready(&mut stderr, &mut from_stderr)?;
        if from_stdout.len().max(from_stderr.len()) > MAX_OUTPUT_BYTES {
            let max_bytes = MAX_OUTPUT_BYTES;
            return Ok(Err(SubmitError::TooMuchOutput { program, max_bytes }));
        }
        if let Some(status) = ended {
            return Ok(Ok((status, from_stdout, from_stderr)));
        }
        write_ready(&mut stdin, &mut input)?;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let timeout = call.timeout;
            return Ok(Err(SubmitError::Timeout { program, timeout }));
        }
        let pause = match end {
            Some(_) => left,
            None => left.min(EXIT_POLL),
        };
        wait_ready(
            &stdin,
            [
                stdout.as_ref().map(AsFd::as_fd),
                stderr.as_ref().map(AsFd::as_fd),
                end.as_ref().map(AsFd::as_fd),
            ],
            pause,
        )?;
    }
}

fn set_nonblocking(stream: Option<&impl AsFd>) -> io::Result<()> {
    let Some(stream) = stream else {
        return Ok(());
    };
    let flags = rustix::fs::fcntl_getfl(stream)? | rustix::fs::OFlags::NONBLOCK;
    Ok(rustix::fs::fcntl_setfl(stream, flags)?)
}

/// Reads what is there; at its end the stream is gone. It stops past the limit.
fn read_ready(stream: &mut Option<impl Read>, into: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 1 << 14];
    while let Some(open) = stream
        && into.len() <= MAX_OUTPUT_BYTES
    {
        match open.read(&mut buffer) {
            Ok(0) => *stream = None,
            Ok(count) => into.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes what the child takes; when all is written, or it reads no more, the stream is gone.
fn write_ready(stream: &mut Option<impl Write>, input: &mut &[u8]) -> io::Result<()> {
    while let Some(open) = stream {
        match open.write(input) {
            Ok(count) => *input = &input[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // It says itself, by its end, why it did not read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => *input = &[],
            Err(error) => return Err(error),
        }
        if input.is_empty() {
            *stream = None;
        }
    }
    Ok(())
}

/// Waits until what is written can go on, one of `sources` has something, or the time is over.
fn wait_ready(
    stdin: &Option<impl AsFd>,
    sources: [Option<BorrowedFd<'_>>; 3],
    timeout: Duration,
) -> io::Result<()> {
    let mut streams = Vec::with_capacity(4);
    if let Some(stdin) = stdin {
        streams.push(PollFd::new(stdin, PollFlags::OUT));
    }
    let sources = sources.into_iter().flatten();
    streams.extend(sources.map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN)));
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    match poll(&mut streams, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, input: &str, timeout: Duration) -> Result<ProgramOutput, SubmitError> {
        let env = Env::from_variables([
            ("PATH", "/usr/bin:/bin"),
            ("SBATCH_PARTITION", "other"),
            ("SLURM_CONF", "/etc/s.conf"),
        ]);
        run_program(ProgramCall {
            program: "sbatch",
            path: Path::new("/bin/sh"),
            args: &["-c".to_owned(), script.to_owned()],
            env: &env,
            input,
            timeout,
        })
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn input_outputs_and_status_are_the_programs_own() {
        let input = "x".repeat(1 << 20);
        let output = run("wc -c; echo to-stderr >&2; exit 3", &input, LONG).unwrap();
        assert_eq!(output.stdout.trim(), "1048576");
        assert_eq!(output.stderr, "to-stderr\n");
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn variables_that_change_what_programs_do_are_left_out() {
        let output = run("env", "", LONG).unwrap();
        let has = |name: &str| output.stdout.lines().any(|line| line.starts_with(name));
        assert!(!has("SBATCH_PARTITION"));
        assert!(has("SLURM_CONF=/etc/s.conf") && has("SLURM_TIME_FORMAT=%s"));
    }

    #[test]
    fn a_program_that_reads_nothing_and_ends_is_no_error() {
        let input = "x".repeat(1 << 20);
        let output = run("exec <&-; echo done", &input, LONG).unwrap();
        assert_eq!(output.stdout, "done\n");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 1000 & echo $! >'{}'; wait", file.display());
        let error = run(&script, "", Duration::from_secs(2)).unwrap_err();
        assert!(matches!(error, SubmitError::Timeout { .. }), "{error}");
        let pid = std::fs::read_to_string(file).unwrap();
        // It dies a moment after the signal, and may be a zombie until its new parent has waited for it.
        let stat = format!("/proc/{}/stat", pid.trim());
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::sleep(EXIT_POLL);
        }
    }

    #[test]
    fn outputs_that_a_child_keeps_open_are_not_waited_for() {
        let output = run("sleep 3 & echo 7", "", LONG).unwrap();
        assert_eq!(output.stdout, "7\n");
    }

    #[test]
    fn output_without_an_end_is_an_error() {
        let error = run("yes", "", LONG).unwrap_err();
        assert!(
            matches!(error, SubmitError::TooMuchOutput { .. }),
            "{error}"
        );
    }
}
