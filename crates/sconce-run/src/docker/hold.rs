//! A handed-over run from its container's making to its removal.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sconce_schema::Runtime;
use sconce_schema::event::{Exit, OutOfMemory, Unenforced};
use sconce_schema::request::RunRequest;

use super::client::{self, State};
use super::remover::Remover;
use super::seen::{target, unseen};
use super::{Docker, line};
use crate::desk::Desk;
use crate::error::RunError;
use crate::logs::Logs;
use crate::protocol::{self, Order};
use crate::sys::signals::{Catcher, Caught};
use crate::sys::socket;
use crate::{Outcome, RunOptions, Watcher};
use crate::{cgroup, prepare, state, supervise};

/// Time between two looks whether the container has begun.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Keys that take the client away from a container: Docker's own, Ctrl-P and Ctrl-Q, mean something to
/// shells.
const DETACH_KEYS: &str = "ctrl-^,ctrl-],ctrl-^,ctrl-]";

pub(super) fn run(
    docker: &Docker,
    request: &RunRequest,
    image: &str,
    options: &RunOptions<'_>,
    watcher: &mut dyn Watcher,
) -> Result<Outcome, RunError> {
    prepare::check(request, options.host)?;
    line::check(request, options.keep.is_some())?;
    state::sweep(&options.state_dir, &cgroup::Kernel);
    let scratch = supervise::scratch(request, options)?;
    let done = Handed {
        docker,
        request,
        options,
        name: line::name(request),
    }
    .run(image, &scratch.folder, watcher);
    let removed = scratch.remove();
    let mut outcome = done?;
    outcome
        .left_behind
        .extend(removed.err().map(|(path, _)| path));
    Ok(outcome)
}

struct Handed<'a> {
    docker: &'a Docker,
    request: &'a RunRequest,
    options: &'a RunOptions<'a>,
    /// The container's.
    name: String,
}

impl Handed<'_> {
    fn run(
        &self,
        image: &str,
        scratch: &Path,
        watcher: &mut dyn Watcher,
    ) -> Result<Outcome, RunError> {
        let signals = Catcher::new().map_err(RunError::setup("catch signals"))?;
        let _remover = Remover::start(self.docker, &self.name)?;
        let mut unenforced = line::unenforced(self.request, self.docker.can);
        let (id, warnings) = self.create(image, scratch)?;
        unenforced.extend(warnings);
        self.tell(&unenforced, watcher)?;
        let mut logs = Logs::default();
        let output = match &self.options.control {
            Some(control) if control.log_command => {
                Some(logs.add("run").map_err(RunError::setup("make a pipe"))?)
            }
            _ => None,
        };
        let mut client = self.start(output.as_ref())?;
        drop(output);
        let ended = self.watch(&id, &mut client, &signals, &mut logs, watcher);
        if ended.is_err() {
            // Whatever the container does: it is removed, and its client has nothing to wait for.
            let _ = client.kill();
        }
        let _ = client.wait();
        logs.finish();
        let (exit, out_of_memory) = ended?;
        watcher.ended(exit, out_of_memory);
        Ok(Outcome {
            exit,
            out_of_memory,
            used: None,
            left_behind: Vec::new(),
        })
    }

    /// Says what does not hold.
    fn tell(&self, all: &[Unenforced], watcher: &mut dyn Watcher) -> Result<(), RunError> {
        if all.is_empty() {
            return Ok(());
        }
        watcher.unenforced(all);
        match self.options.strict {
            true => Err(RunError::Unenforced(all.to_vec())),
            false => Ok(()),
        }
    }

    /// Makes the container; gives its id, and what the daemon warns of.
    fn create(&self, image: &str, scratch: &Path) -> Result<(String, Vec<Unenforced>), RunError> {
        let (variables, filter) = (scratch.join("environment"), scratch.join("seccomp.json"));
        let env = prepare::environment(self.request, self.options);
        write_private(&variables, &line::variables(&env)?)?;
        write_private(&filter, crate::seccomp::oci().to_string().as_bytes())?;
        let words = line::create(&line::Asked {
            request: self.request,
            image,
            can: self.docker.can,
            shm_bytes: prepare::shared_memory(self.request, self.options),
            variables: &variables,
            filter: &filter,
        })?;
        let output = self
            .docker
            .command(&[])
            .args(words)
            .stdin(Stdio::null())
            .output();
        // The daemon has them now.
        let _ = std::fs::remove_file(&variables);
        let output = output.map_err(client::cannot_start)?;
        if !output.status.success() {
            return Err(client::failed(&output));
        }
        let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((id, warnings(&said)))
    }

    /// Starts the client that carries the command's streams, and with it the command.
    fn start(&self, output: Option<&OwnedFd>) -> Result<Child, RunError> {
        let keys = ["start", "--attach", "--interactive", "--detach-keys"];
        let mut command = self.docker.command(&keys);
        command.args([DETACH_KEYS, &self.name]);
        if let Some(output) = output {
            let copy = || output.try_clone().map_err(RunError::setup("make a pipe"));
            command.stdin(Stdio::null()).stdout(copy()?).stderr(copy()?);
        }
        // The terminal's size and settings are found by it alone.
        let term = self.request.env.get("TERM");
        command.envs(term.map(|term| ("TERM", term)));
        command.spawn().map_err(client::cannot_start)
    }

    fn watch(
        &self,
        id: &str,
        client: &mut Child,
        signals: &Catcher,
        logs: &mut Logs,
        watcher: &mut dyn Watcher,
    ) -> Result<(Exit, Option<OutOfMemory>), RunError> {
        let state = self.begun(client)?;
        let target = target(&state, id);
        // One that has ended meanwhile has no figures either, which its report says by itself.
        if target.is_none() && self.docker.state(&self.name)?.running {
            watcher.unenforced(&[unseen()]);
        }
        watcher.started(&target.unwrap_or_default());
        let mut desk = Desk::new(self.request, Some(Runtime::Docker));
        if let Some(control) = &self.options.control {
            let _ = desk.open(&control.folder);
            let _ = logs.begin(&control.folder);
            // One that was not is told below, to whoever waits for it.
            if state.was_started() && control.log_command {
                watcher.goes_on();
            }
        }
        self.until_its_end(client, signals, &mut desk, watcher)?;
        self.ended()
    }

    /// Waits until the container runs, or has run already.
    fn begun(&self, client: &mut Child) -> Result<State, RunError> {
        loop {
            let over = client.try_wait().map_err(client::cannot_start)?.is_some();
            let state = self.docker.state(&self.name)?;
            if state.was_started() || over {
                return Ok(state);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn until_its_end(
        &self,
        client: &mut Child,
        signals: &Catcher,
        desk: &mut Desk,
        watcher: &mut dyn Watcher,
    ) -> Result<(), RunError> {
        let (to_init, orders) = socket::pair().map_err(RunError::setup("make a socket"))?;
        let mut ending = Ending::default();
        let ended = Pid::from_raw(client.id().cast_signed())
            .map(|pid| pidfd_open(pid, PidfdFlags::empty()))
            .transpose()
            .ok()
            .flatten();
        let Some(ended) = ended else {
            return Ok(());
        };
        let mut next = Instant::now() + self.options.sample_every;
        while client.try_wait().map_err(client::cannot_start)?.is_none() {
            let due = ending.kill_at.map_or(next, |at| at.min(next));
            let left = due.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let mut fds = vec![
                PollFd::new(&ended, PollFlags::IN),
                PollFd::from_borrowed_fd(signals.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(orders.as_fd(), PollFlags::IN),
            ];
            fds.extend(desk.watched());
            let _ = poll(&mut fds, Some(&timeout));
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            for (who, asks) in desk.numbers().into_iter().zip(&ready[3..]) {
                match who {
                    _ if !asks => {}
                    None => desk.accept(),
                    Some(number) => desk.hear(number, &to_init),
                }
            }
            while let Some(caught) = signals.next() {
                self.pass_on(caught, &mut ending);
            }
            if ready[2]
                && let Ok(Some((order, _))) = protocol::receive::<Order>(&orders)
            {
                self.obey(&order, &mut ending);
            }
            let now = Instant::now();
            if ending.kill_at.is_some_and(|at| at <= now) {
                ending.kill_at = None;
                self.signal(libc::SIGKILL);
            }
            if next <= now {
                watcher.tick();
                next = (next + self.options.sample_every).max(Instant::now());
            }
        }
        Ok(())
    }

    /// As where Sconce holds the run itself: a second signal after the grace kills.
    fn pass_on(&self, caught: Caught, ending: &mut Ending) {
        if caught.signal == libc::SIGWINCH {
            // The client has the same terminal.
            return;
        }
        let ends = matches!(caught.signal, libc::SIGINT | libc::SIGTERM);
        let grace = self.options.grace;
        let over = ending.asked.is_some_and(|asked| asked.elapsed() >= grace);
        if ends {
            ending.asked.get_or_insert_with(Instant::now);
        }
        match (ends && over, caught.by_terminal) {
            (true, _) => self.signal(libc::SIGKILL),
            // The client has it as well, and passes it on.
            (false, true) => {}
            (false, false) => self.signal(caught.signal),
        }
    }

    fn obey(&self, order: &Order, ending: &mut Ending) {
        match order {
            Order::Stop { grace } => {
                let grace = grace.unwrap_or(self.options.grace);
                ending.kill_at.get_or_insert_with(|| Instant::now() + grace);
                self.signal(libc::SIGTERM);
            }
            Order::Kill => self.signal(libc::SIGKILL),
            Order::Signal(signal) => self.signal(*signal),
            // There are no services, and no other commands.
            _ => {}
        }
    }

    /// A container that is gone needs no signal.
    fn signal(&self, signal: i32) {
        let _ = self
            .docker
            .answer(&["kill", "--signal", &signal.to_string(), &self.name]);
    }

    /// How it ended, in the daemon's words.
    fn ended(&self) -> Result<(Exit, Option<OutOfMemory>), RunError> {
        // The container was there: what cannot be asked is the daemon.
        let gone = |_| RunError::DockerSilent {
            host: self.docker.host.clone(),
            said: "it went away while the run went on".to_owned(),
        };
        let state = self.docker.state(&self.name).map_err(gone)?;
        if state.running {
            return Err(RunError::DockerClient);
        }
        if !state.was_started() {
            return Err(not_started(self.request, state));
        }
        let out_of_memory = state.oom_killed.then_some(OutOfMemory {
            limit: self.request.limits.memory,
            // The daemon says that there was one, and not how many.
            kills: 1,
        });
        Ok((Exit::Code(state.exit_code as u8), out_of_memory))
    }
}

/// Without `--init` the daemon itself finds out that there is no such command (127) or that it is no
/// program (126). It gives the same codes for other files that it misses, such as a cgroup; of a command
/// it says `exec: "NAME"`.
fn not_started(request: &RunRequest, state: State) -> RunError {
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
        _ => client::engine((!state.error.is_empty()).then_some(state.error)),
    }
}

/// What was asked of a run's end.
#[derive(Default)]
struct Ending {
    asked: Option<Instant>,
    kill_at: Option<Instant>,
}

/// What the client repeats of the daemon's warnings when it makes a container: limits that this kernel
/// does not have.
fn warnings(said: &str) -> Vec<Unenforced> {
    let lines = said
        .lines()
        .filter_map(|line| line.strip_prefix("WARNING: "));
    lines
        .map(|line| Unenforced {
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
            let request = crate::docker::line::tests::request();
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
