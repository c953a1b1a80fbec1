//! The process from which trials are forked: it has imported what the command imports, which is most of
//! a short trial. The other side is `python/sconce_probe/fork_server.py`.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use serde::Serialize;

use super::UNLIMITED_CARD_MEMORY;
use super::trial::{SEEN, TrialRequest};
use super::trial_process::{self, ERRORS};
use sconce_app::ranks::RankWorld;
use sconce_app::virtual_gpu;
use sconce_app::worker::TrialTask;
use sconce_app::worker::current_exe;

/// Between two looks whether it listens.
const LISTEN_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// An exit code is no longer, in bytes.
const MAX_ANSWER_BYTES: u64 = 16;

/// Whether trials are forked from a server.
#[derive(Debug, Default)]
pub(super) enum ForkServer {
    /// Each trial is a process of its own.
    #[default]
    None,
    /// One can be started, for this command and with these modules.
    Wanted {
        command: Vec<String>,
        modules: Vec<String>,
        world: Option<RankWorld>,
    },
    /// It listens.
    Running(ForkServerProcess),
}

/// One that listens.
#[derive(Debug)]
pub(super) struct ForkServerProcess {
    command: Vec<String>,
    world: Option<RankWorld>,
    folder: PathBuf,
    child: Child,
    /// It ends with this connection.
    held: Option<UnixStream>,
}

impl Drop for ForkServerProcess {
    fn drop(&mut self) {
        drop(self.held.take());
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A trial, as it is told.
#[derive(Debug, Serialize)]
struct Request<'a> {
    /// Its folder, below that of the server.
    folder: String,
    environment: std::collections::BTreeMap<&'static str, String>,
    arguments: &'a [String],
}

impl ForkServer {
    /// What serves a command whose first trial, in this world, had imported `modules`.
    pub(super) fn for_command(
        command: &[String],
        modules: &[String],
        world: Option<RankWorld>,
    ) -> Self {
        match words_before(command) {
            Some(_) if !modules.is_empty() => Self::Wanted {
                command: command.to_vec(),
                modules: modules.to_vec(),
                world,
            },
            _ => Self::None,
        }
    }

    /// Whether it can be started, and is not.
    pub(super) fn is_wanted(&self) -> bool {
        matches!(self, Self::Wanted { .. })
    }

    /// Starts it, with a folder that is its own from now on, and waits until it listens.
    ///
    /// # Errors
    /// Files that cannot be written. Where it ends because it cannot serve, it is none.
    pub(super) fn start(
        &self,
        folder: PathBuf,
        arguments: &[OsString],
    ) -> sconce_app::failure::Result<Self> {
        let program = current_exe()?;
        let Self::Wanted {
            command,
            modules,
            world,
        } = self
        else {
            return Ok(Self::None);
        };
        let task = TrialTask {
            card: 0,
            memory: Some(UNLIMITED_CARD_MEMORY.0),
            command: command.clone(),
            plans: None,
            answers: Default::default(),
            serve: true,
        };
        let start = || -> io::Result<ForkServerProcess> {
            fs::write(folder.join(SEEN).join("modules"), modules.join("\n"))?;
            let child =
                trial_process::trial_command(&program, arguments, &folder, &task)?.spawn()?;
            let mut running = ForkServerProcess {
                command: command.clone(),
                world: *world,
                folder: folder.clone(),
                child,
                held: None,
            };
            while running.held.is_none() && running.child.try_wait()?.is_none() {
                std::thread::sleep(LISTEN_POLL_INTERVAL);
                running.held = running.connect().ok();
            }
            Ok(running)
        };
        Ok(match start() {
            Ok(running) if running.held.is_some() => Self::Running(running),
            _ => {
                let _ = fs::remove_dir_all(&folder);
                Self::None
            }
        })
    }

    /// Runs a trial; what is seen of it comes into its folder.
    ///
    /// # Errors
    /// There is no server for this command, or it does not answer: the folder is as it was.
    pub(super) fn run_trial(
        &self,
        number: usize,
        folder: &Path,
        wanted: &TrialRequest<'_>,
    ) -> io::Result<u8> {
        let not = io::ErrorKind::NotConnected;
        let Self::Running(running) = self else {
            return Err(not.into());
        };
        let before = words_before(&running.command).unwrap_or_default();
        if running.command.get(..before) != wanted.command.get(..before) {
            return Err(not.into());
        }
        let arguments = wanted.command.get(before..).unwrap_or_default();
        running.run(number, folder, wanted, arguments)
    }
}

impl ForkServerProcess {
    fn connect(&self) -> io::Result<UnixStream> {
        // The folder's path may be too long for a socket's.
        let seen = File::open(self.folder.join(SEEN))?;
        UnixStream::connect(format!("/proc/self/fd/{}/socket", seen.as_raw_fd()))
    }

    fn run(
        &self,
        number: usize,
        folder: &Path,
        wanted: &TrialRequest<'_>,
        arguments: &[String],
    ) -> io::Result<u8> {
        let name = number.to_string();
        let own = self.folder.join(SEEN).join(&name);
        let seen = own.join(SEEN);
        fs::create_dir_all(&seen)?;
        fs::set_permissions(&seen, Permissions::from_mode(0o1777))?;
        let memory = wanted.memory.unwrap_or(wanted.hardware.total);
        let one = vec![wanted.hardware];
        let cards = self
            .world
            .map_or(one, |world| world.first_host_gpus(&[wanted.hardware]));
        let cards: String = cards
            .iter()
            .map(|card| virtual_gpu::format_gpu_line(card, memory) + "\n")
            .collect();
        fs::write(own.join("cards"), cards)?;
        let request = Request {
            folder: name,
            environment: wanted
                .env_variables()
                .into_iter()
                .chain(self.world.map(|_| RankWorld::of_trial()))
                .collect(),
            arguments,
        };
        let mut server = self.connect()?;
        writeln!(server, "{}", serde_json::to_string(&request)?)?;
        let mut answer = String::new();
        BufReader::new(server.take(MAX_ANSWER_BYTES)).read_line(&mut answer)?;
        let code = answer.trim().parse();
        let code: u8 = code.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        fs::rename(own.join(ERRORS), folder.join(ERRORS))?;
        fs::rename(seen, folder.join(SEEN))?;
        Ok(code)
    }
}

/// How many words a command has before the script's own, where it is Python with a script or a module
/// and no other process between.
fn words_before(command: &[String]) -> Option<usize> {
    let name = command.first()?.rsplit('/').next()?;
    let version = name.strip_prefix("python")?;
    let is_digit = |one: char| one.is_ascii_digit() || one == '.';
    if !version.chars().all(is_digit) {
        return None;
    }
    let mut words = command.iter().enumerate().skip(1);
    while let Some((at, word)) = words.next() {
        match word.as_str() {
            // Python's own, which hold for the server as they do for a trial.
            "-u" | "-B" | "-O" | "-OO" | "-q" | "-b" => {}
            "-W" | "-X" => drop(words.next()?),
            // Those of torch start processes of their own.
            "-m" => {
                let (at, module) = words.next()?;
                return (!module.starts_with("torch.")).then_some(at + 1);
            }
            _ => return word.ends_with(".py").then_some(at + 1),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_python_with_a_script_is_served() {
        let served = |text: &str| {
            let command: Vec<String> = text.split(' ').map(str::to_owned).collect();
            ForkServer::for_command(&command, &["torch".to_owned()], None).is_wanted()
        };
        assert!(served("python train.py"));
        assert!(served("/v/bin/python3.12 a/train.py --batch 8"));
        assert!(served("python -u -W ignore -X dev train.py"));
        assert!(served("python -m train --batch 8"));
        assert!(!served("python -m torch.distributed.run train.py"));
        assert!(!served("python -c print()"));
        assert!(!served("python -I train.py"));
        assert!(!served("python -u"));
        assert!(!served("python -m"));
        assert!(!served("python -"));
        assert!(!served("torchrun train.py"));
        assert!(!served("bash train.sh"));
        assert!(!served("pythonic train.py"));
        assert!(!served("python"));
        assert!(
            !ForkServer::for_command(&["python".to_owned(), "a.py".to_owned()], &[], None)
                .is_wanted()
        );
    }

    #[test]
    fn request_to_the_server_is_as_before() {
        let request = Request {
            folder: "1".to_owned(),
            environment: [("SCONCE_FIT_STEPS", "3".to_owned())].into(),
            arguments: &["--lr".to_owned()],
        };
        crate::golden::goldens().assert_values("fit-request.json", &[&request]);
    }
}
