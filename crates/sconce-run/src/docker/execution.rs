//! A run in a container of Docker's daemon, from its making to its removal.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sconce_schema::Runtime;
use sconce_schema::event::{ExitStatus, OomKill, UnenforcedLimit};
use sconce_schema::request::RunRequest;
use sconce_schema::runtime::RuntimeSummary;

use super::cleanup::ContainerCleanup;
use super::client::{self, ContainerState};
use super::inspect::{sample_scope, unreadable_cgroup};
use super::{DockerClient, DockerContainer, create_args};
use crate::error::RunError;
use crate::executor::{Execution, Executor, Job, RunEnd, RunEvent};
use crate::logs::LogWriters;
use crate::output_tail::{ErrorRelay, OutputTail, WriteFailure};
use crate::prepare;
use crate::protocol::SupervisorRequest;
use crate::sys::pipes;
use crate::{RunObserver, RunOptions};

/// Time between two looks whether the container has begun.
const START_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Keys that take the client away from a container: Docker's own, Ctrl-P and Ctrl-Q, mean something to
/// shells.
const DETACH_KEYS: &str = "ctrl-^,ctrl-],ctrl-^,ctrl-]";

impl Executor for DockerContainer {
    fn summary(&self) -> Option<RuntimeSummary> {
        Some(RuntimeSummary {
            name: Runtime::Docker,
            version: self.docker.version.clone(),
        })
    }

    fn maps_owners(&self) -> bool {
        false
    }

    fn shares_memory(&self) -> bool {
        false
    }

    fn check(&self, request: &RunRequest, options: &RunOptions<'_>) -> Result<(), RunError> {
        create_args::validate_request(request, options.keep.is_some())
    }

    fn prepare<'a>(&'a self, job: Job<'a, '_>) -> Result<Box<dyn Execution + 'a>, RunError> {
        Ok(Box::new(DockerExecution::prepare(self, job)?))
    }
}

/// A container, and the client that carries its command's streams.
struct DockerExecution<'a> {
    docker: &'a DockerClient,
    request: &'a RunRequest,
    options: &'a RunOptions<'a>,
    /// The container's.
    name: String,
    id: String,
    unenforced: Vec<UnenforcedLimit>,
    /// Where the command's output goes, until it is started, when not to the caller.
    output: Option<OwnedFd>,
    /// Carries its standard error, where neither that goes elsewhere nor it has a terminal.
    error_relay: Option<ErrorRelay>,
    /// The end of what that carried.
    tail: OutputTail,
    /// Once it is started.
    client: Option<Client>,
    /// When what was asked to end is killed.
    kill_at: Option<Instant>,
    remover: Option<ContainerCleanup<'a>>,
}

struct Client {
    process: Child,
    /// Readable when it has ended.
    pidfd: OwnedFd,
}

impl<'a> DockerExecution<'a> {
    /// Makes the container.
    fn prepare(container: &'a DockerContainer, job: Job<'a, '_>) -> Result<Self, RunError> {
        let Job {
            request,
            options,
            scratch,
            logs,
        } = job;
        let DockerContainer { docker, image } = container;
        let name = create_args::container_name(request);
        let remover = ContainerCleanup::start(docker, &name)?;
        let mut unenforced = create_args::unenforced_limits(request, docker.can);
        let (id, warnings) = create(docker, request, image, options, &scratch.folder)?;
        unenforced.extend(warnings);
        Ok(Self {
            docker,
            request,
            options,
            name,
            id,
            unenforced,
            output: output_of_command(options, logs)?,
            error_relay: None,
            tail: OutputTail::default(),
            client: None,
            kill_at: None,
            remover: Some(remover),
        })
    }

    /// Starts the client, and with it the command.
    fn start_client(&mut self) -> Result<(), RunError> {
        let keys = ["start", "--attach", "--interactive", "--detach-keys"];
        let mut command = self.docker.build_command(&keys);
        command.args([DETACH_KEYS, &self.name]);
        if let Some(output) = self.output.take() {
            let copy = output
                .try_clone()
                .map_err(RunError::at_step("make a pipe"))?;
            command.stdin(Stdio::null()).stdout(copy).stderr(output);
        } else if !self.request.terminal {
            self.relay_errors(&mut command)
                .map_err(RunError::at_step("make a pipe"))?;
        }
        // The terminal's size and settings are found by it alone.
        let term = self.request.env.get("TERM");
        command.envs(term.map(|term| ("TERM", term)));
        let mut process = command.spawn().map_err(client::cannot_start)?;
        let pidfd = Pid::from_raw(process.id().cast_signed())
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        match pidfd {
            Ok(pidfd) => {
                self.client = Some(Client { process, pidfd });
                Ok(())
            }
            Err(errno) => {
                let _ = process.kill();
                let _ = process.wait();
                Err(RunError::at_step("watch docker's client")(errno.into()))
            }
        }
    }

    fn relay_errors(&mut self, command: &mut Command) -> std::io::Result<()> {
        if let Some((relay, streams)) = ErrorRelay::start(self.tail.clone(), WriteFailure::PassOn)?
        {
            if streams.both {
                command.stdout(streams.writer.try_clone()?);
            }
            command.stderr(streams.writer);
            self.error_relay = Some(relay);
        }
        Ok(())
    }

    /// Whether the client has ended: with the command, or without it.
    fn has_client_ended(&mut self) -> Result<bool, RunError> {
        match &mut self.client {
            Some(client) => {
                let ended = client.process.try_wait().map_err(client::cannot_start)?;
                Ok(ended.is_some())
            }
            None => Ok(true),
        }
    }

    /// Waits until the container runs, or has run already.
    fn wait_until_started(&mut self) -> Result<ContainerState, RunError> {
        loop {
            let has_ended = self.has_client_ended()?;
            let state = self.docker.container_state(&self.name)?;
            if state.was_started() || has_ended {
                return Ok(state);
            }
            std::thread::sleep(START_POLL_INTERVAL);
        }
    }

    /// A container that is gone needs no signal.
    fn signal(&self, signal: i32) {
        let _ = self
            .docker
            .run_command(&["kill", "--signal", &signal.to_string(), &self.name]);
    }

    /// How it ended, in the daemon's words.
    fn read_end(&mut self) -> Result<RunEnd, RunError> {
        // The client has ended: all that it wrote is there.
        self.error_relay = None;
        let last_output = self.tail.to_bytes();
        // The container was there: what cannot be asked is the daemon.
        let gone = |_| RunError::DockerSilent {
            host: self.docker.host.clone(),
            said: "it went away while the run went on".to_owned(),
        };
        let state = self.docker.container_state(&self.name).map_err(gone)?;
        // The client copies what the command writes, and ends by itself when nobody reads that any more. Then it is
        // as if the command had got the signal of its own write.
        if state.running && pipes::is_output_unread() {
            return Ok(RunEnd {
                exit: ExitStatus::Signal(libc::SIGPIPE),
                out_of_memory: None,
                used: None,
                last_output,
                lost_output: None,
            });
        }
        if state.running {
            return Err(RunError::DockerClient);
        }
        if !state.was_started() {
            return Err(not_started(self.request, state));
        }
        Ok(RunEnd {
            exit: ExitStatus::Code(state.exit_code as u8),
            out_of_memory: state.oom_killed.then_some(OomKill {
                limit: self.request.limits.memory,
                // The daemon says that there was one, and not how many.
                kills: 1,
            }),
            used: None,
            last_output,
            lost_output: None,
        })
    }
}

impl Execution for DockerExecution<'_> {
    fn wait_until_prepared(
        &mut self,
        _: &mut dyn RunObserver,
    ) -> Result<Vec<UnenforcedLimit>, RunError> {
        Ok(std::mem::take(&mut self.unenforced))
    }

    fn start(&mut self) -> Result<Vec<RunEvent>, RunError> {
        let is_logged = self.output.is_some();
        self.start_client()?;
        let state = self.wait_until_started()?;
        let target = sample_scope(&state, &self.id);
        let mut events = Vec::new();
        // One that has ended meanwhile has no figures either, which its report says by itself.
        if target.is_none() && self.docker.container_state(&self.name)?.running {
            events.push(RunEvent::NotEnforced(unreadable_cgroup()));
        }
        events.push(RunEvent::Started(target.unwrap_or_default()));
        // One that was not started is told by its end, to whoever waits for it.
        if is_logged && state.was_started() {
            events.push(RunEvent::Detached);
        }
        Ok(events)
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.client.as_ref().map(|client| client.pidfd.as_fd())
    }

    fn read_events(&mut self) -> Result<Vec<RunEvent>, RunError> {
        match self.has_client_ended()? {
            true => Ok(vec![RunEvent::Ended(self.read_end()?)]),
            false => Ok(Vec::new()),
        }
    }

    fn deliver(&mut self, order: &SupervisorRequest, _: &[BorrowedFd<'_>]) -> io::Result<()> {
        match order {
            SupervisorRequest::Stop { grace } => {
                let grace = grace.unwrap_or(self.options.grace);
                self.kill_at.get_or_insert_with(|| Instant::now() + grace);
                self.signal(libc::SIGTERM);
            }
            SupervisorRequest::Kill => self.signal(libc::SIGKILL),
            SupervisorRequest::Signal(signal) => self.signal(*signal),
            // There are no services, and no other commands.
            _ => {}
        }
        Ok(())
    }

    /// The client has the caller's terminal, and passes its signals and its size on.
    fn is_in_foreground(&self) -> bool {
        true
    }

    fn deadline(&self) -> Option<Instant> {
        self.kill_at
    }

    fn pass_deadline(&mut self) {
        self.kill_at = None;
        self.signal(libc::SIGKILL);
    }

    fn end(&mut self, has_failed: bool) -> Vec<PathBuf> {
        if let Some(mut client) = self.client.take() {
            if has_failed {
                // Whatever the container does: it is removed, and its client has nothing to wait for.
                let _ = client.process.kill();
            }
            let _ = client.process.wait();
        }
        // Removes the container.
        self.remover = None;
        Vec::new()
    }
}

/// Makes the container; gives its id, and what the daemon warns of.
fn create(
    docker: &DockerClient,
    request: &RunRequest,
    image: &str,
    options: &RunOptions<'_>,
    scratch: &Path,
) -> Result<(String, Vec<UnenforcedLimit>), RunError> {
    let (variables, filter) = (scratch.join("environment"), scratch.join("seccomp.json"));
    let env = prepare::build_env(request, options);
    write_private(&variables, &create_args::render_env_file(&env)?)?;
    write_private(
        &filter,
        crate::seccomp::build_oci_filter().to_string().as_bytes(),
    )?;
    let words = create_args::build_create_args(&create_args::CreateArgs {
        request,
        image,
        can: docker.can,
        shm_bytes: prepare::shared_memory(request, options),
        variables: &variables,
        filter: &filter,
    })?;
    let output = docker
        .build_command(&[])
        .args(words)
        .stdin(Stdio::null())
        .output();
    // The daemon has them now.
    let _ = std::fs::remove_file(&variables);
    let output = output.map_err(client::cannot_start)?;
    if !output.status.success() {
        return Err(client::error_from_output(&output));
    }
    let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((id, warnings(&said)))
}

/// A pipe into the log, where the command's output goes there.
fn output_of_command(
    options: &RunOptions<'_>,
    logs: &mut LogWriters,
) -> Result<Option<OwnedFd>, RunError> {
    match &options.control {
        Some(control) if control.log_command => {
            let pipe = logs
                .add_service("run")
                .map_err(RunError::at_step("make a pipe"))?;
            Ok(Some(pipe))
        }
        _ => Ok(None),
    }
}

/// Without `--init` the daemon itself finds out that there is no such command (127) or that it is no
/// program (126). It gives the same codes for other files that it misses, such as a cgroup; of a command
/// it says `exec: "NAME"`.
fn not_started(request: &RunRequest, state: ContainerState) -> RunError {
    let command = request.command.first().cloned().unwrap_or_default();
    let of_command = state.error.contains(&format!("exec: \"{command}\""));
    match state.exit_code {
        127 if of_command => RunError::NotFound {
            searched: request
                .env
                .get("PATH")
                .filter(|_| !command.contains('/'))
                .cloned(),
            command,
        },
        126 if of_command => RunError::NotExecutable {
            path: PathBuf::from(command),
            source: rustix::io::Errno::ACCESS.into(),
        },
        _ => client::engine_error((!state.error.is_empty()).then_some(state.error)),
    }
}

/// What the client repeats of the daemon's warnings when it makes a container: limits that this kernel
/// does not have.
fn warnings(said: &str) -> Vec<UnenforcedLimit> {
    let lines = said
        .lines()
        .filter_map(|line| line.strip_prefix("WARNING: "));
    lines
        .map(|line| UnenforcedLimit {
            what: "docker's limits".to_owned(),
            why: line.trim().to_owned(),
            hint: None,
        })
        .collect()
}

/// Writes a file that nobody else can read.
fn write_private(path: &Path, text: &[u8]) -> Result<(), RunError> {
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file: File| file.write_all(text));
    written.map_err(|source| RunError::State {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_command_is_told_from_a_container_that_could_not_be_made() {
        let error = |code: u8, said: &str| {
            let text = serde_json::json!({
                "Running": false, "OOMKilled": false, "Pid": 0, "ExitCode": code, "Error": said,
                "StartedAt": "0001-01-01T00:00:00Z",
            });
            let request = crate::docker::create_args::tests::request();
            not_started(&request, serde_json::from_value(text).unwrap())
        };
        let of_command =
            r#"unable to start: exec: "--version": executable file not found in $PATH"#;
        assert!(matches!(error(127, of_command), RunError::NotFound { .. }));
        assert!(matches!(
            error(126, of_command),
            RunError::NotExecutable { .. }
        ));
        let of_cgroup = "mkdir /sys/fs/cgroup/cpuset/docker: no such file or directory";
        for code in [126, 127, 128] {
            let told = error(code, of_cgroup);
            assert!(matches!(told, RunError::Engine { .. }), "{told}");
        }
    }

    #[test]
    fn warnings_are_told_and_other_words_are_not() {
        let said = "WARNING: Your kernel does not support swap limit capabilities.\nelse\n";
        let told = warnings(said);
        assert_eq!(told.len(), 1);
        assert!(told[0].why.contains("swap limit"));
        assert!(warnings("").is_empty());
    }
}
