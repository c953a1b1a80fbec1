//! One trial: the command on one virtual card, watched by the probe until it took its steps.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::stdio;
use sconce_base::tree::TreeDirectory;
use sconce_compat::tables::Hardware;
use sconce_memory::forecast::training_plan::TrainingPlans;
use sconce_memory::forecast::values::SubstituteValues;
use sconce_memory::forecast::{self, probe_report::ProbeReport};
use sconce_memory::snapshot::{self, Snapshot, SnapshotLimits};
use sconce_schema::Bytes;

use super::FitArgs;
use super::ended::explain_silence;
use super::server::ForkServer;
use crate::error::CliError;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::{AppError, Result};
use sconce_app::file_action::FileAction;
use sconce_app::probe::{self, Probe, ProbeOptions};
use sconce_app::ranks::RankWorld;
use sconce_app::run::{self, TrialRun};
use sconce_app::run_options::RunOverrides;
use sconce_app::virtual_gpu::VirtualGpus;

/// Processes of one trial that are looked at.
const MAX_PROCESSES: usize = 1024;
/// What a process may tell of itself.
const MAX_REPORT_BYTES: u64 = 256 << 20;

/// What trials are made with.
pub(super) struct TrialContext<'a> {
    pub(super) args: &'a FitArgs,
    pub(super) overrides: &'a RunOverrides,
    pub(super) context: &'a AppContext,
    pub(super) places: &'a SconceDirs,
    /// Trials so far.
    pub(super) trials: usize,
    /// What was imported for all trials but the first.
    pub(super) server: ForkServer,
}

/// One trial to be made.
#[derive(Clone)]
pub(super) struct TrialRequest<'a> {
    pub(super) hardware: &'a Hardware,
    /// Other memory than the card's own.
    pub(super) memory: Option<Bytes>,
    pub(super) command: &'a [String],
    pub(super) plans: TrainingPlans,
    /// Whether the allocator's history is recorded.
    pub(super) history: bool,
    /// Whether the work of one more step is counted.
    pub(super) work: bool,
    /// What it is told in the place of zeros.
    pub(super) answers: SubstituteValues,
    /// Seconds until it is ended, where other than what was asked for.
    pub(super) seconds: Option<u32>,
    /// Steps that it is watched for, where other than what was asked for.
    pub(super) steps: Option<u32>,
}

impl TrialRequest<'_> {
    /// The variables in which it differs from other trials.
    pub(super) fn env_variables(&self) -> Vec<(&'static str, String)> {
        let mut told = probe::of_trial(&self.plans, self.history, self.work, &self.answers);
        let seconds = self
            .seconds
            .map(|seconds| ("SCONCE_FIT_SECONDS", seconds.to_string()));
        told.extend(seconds);
        let steps = self.steps;
        told.extend(steps.map(|steps| ("SCONCE_FIT_STEPS", steps.to_string())));
        told
    }
}

/// A trial that is over. Its files are there for as long as it is.
pub(super) struct TrialOutput {
    folder: PathBuf,
    /// What the foremost process left.
    left: ProcessDirectory,
    pub(super) seen: ProbeReport,
    /// How many processes used cards.
    pub(super) processes: usize,
    /// What the command ended with.
    pub(super) code: u8,
}

/// The folder of one process, and where it is.
struct ProcessDirectory {
    open: TreeDirectory,
    path: PathBuf,
}

/// What the processes of a trial left, in its folder.
pub(super) const SEEN: &str = "seen";
const SNAPSHOT: &str = "snapshot.pickle";

impl Drop for TrialOutput {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl TrialOutput {
    /// What a command that ended with `code` left in a trial's folder, which is this one's from now on.
    pub(super) fn from_dir(folder: PathBuf, code: u8) -> Result<Self> {
        let seen = folder.join(SEEN);
        let found = read(&seen).map_err(file_error(FileAction::Read, &seen));
        match found.inspect_err(|_| drop(fs::remove_dir_all(&folder)))? {
            Some((processes, left, seen)) => Ok(Self {
                folder,
                left,
                seen,
                processes,
                code,
            }),
            None => {
                let why = explain_silence(&folder, code);
                let _ = fs::remove_dir_all(&folder);
                Err(why.into())
            }
        }
    }

    /// The file of PyTorch's snapshot. `None` where no history was recorded.
    pub(super) fn open_snapshot(&self) -> Result<Option<File>> {
        match self.left.open.open_regular_file(SNAPSHOT.as_ref()) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file_error(FileAction::Read, &self.snapshot_path())(error).into()),
        }
    }

    fn snapshot_path(&self) -> PathBuf {
        self.left.path.join(SNAPSHOT)
    }

    /// PyTorch's snapshot. `None` where no history was recorded.
    pub(super) fn read_snapshot(&self) -> Result<Option<Snapshot>> {
        let Some(file) = self.open_snapshot()? else {
            return Ok(None);
        };
        let read = snapshot::read(file, &SnapshotLimits::default());
        Ok(Some(read.map_err(|source| CliError::Snapshot {
            path: self.snapshot_path(),
            source,
        })?))
    }
}

impl TrialContext<'_> {
    /// Runs a command on a card and tells what was seen.
    pub(super) fn run_trial(&mut self, wanted: TrialRequest<'_>) -> Result<TrialOutput> {
        let folder = self.create_trial_dir(self.trials)?;
        // What it says is heard once, and is no data.
        let aside = match self.trials {
            0 => Aside::to_stderr(),
            _ => Aside::to_nowhere(),
        };
        let number = self.trials;
        self.trials += 1;
        self.start_server();
        if let Ok(code) = self.server.run_trial(number, &folder, &wanted) {
            return TrialOutput::from_dir(folder, code);
        }
        let ended = self.run_in(&folder, wanted);
        drop(aside);
        let code = ended.inspect_err(|_| drop(fs::remove_dir_all(&folder)))?;
        let done = TrialOutput::from_dir(folder, code)?;
        if number == 0 && self.args.host {
            let world = RankWorld::for_ranks(self.args.ranks.ranks, 1, &self.args.command)?;
            self.server = ForkServer::for_command(&self.args.command, &done.seen.imported, world);
        }
        Ok(done)
    }

    /// Starts the server, where there is to be one.
    pub(super) fn start_server(&mut self) {
        if self.server.is_wanted() {
            let folder = self.create_trial_dir(self.trials);
            self.trials += 1;
            let started =
                folder.and_then(|folder| self.server.start(folder, &self.context.arguments));
            // Without it each trial imports for itself.
            self.server = started.unwrap_or_default();
        }
    }

    /// A new folder for the trial of that number.
    pub(super) fn create_trial_dir(&self, number: usize) -> Result<PathBuf> {
        let name = format!("{}-{number}", sconce_base::random_name());
        let folder = self.places.scratch.join("fit").join(name);
        let seen = folder.join(SEEN);
        // Inside, the command may be another user; the folder above is nobody else's.
        fs::create_dir_all(&seen)
            .and_then(|()| fs::set_permissions(&folder, Permissions::from_mode(0o700)))
            .and_then(|()| fs::set_permissions(&seen, Permissions::from_mode(0o1777)))
            .map_err(file_error(FileAction::Create, &seen))?;
        Ok(folder)
    }

    /// Runs a command; what is seen of it lies in the folder.
    pub(super) fn run_in(&self, folder: &Path, wanted: TrialRequest<'_>) -> Result<u8> {
        self.run_as(folder, wanted, false)
    }

    /// As [`Self::run_in`], or as the process from which trials are forked.
    pub(super) fn run_as(
        &self,
        folder: &Path,
        wanted: TrialRequest<'_>,
        serve: bool,
    ) -> Result<u8> {
        let scratch = &self.places.scratch;
        let watch = ProbeOptions {
            seen: folder.join(SEEN),
            steps: wanted.steps.unwrap_or(self.args.steps),
            seconds: wanted.seconds.unwrap_or(self.args.time),
            history: wanted.history,
            work: wanted.work,
            answers: wanted.answers,
            serve,
        };
        let world = RankWorld::for_ranks(self.args.ranks.ranks, 1, wanted.command)?;
        let cards = world.map_or(vec![wanted.hardware], |world| {
            world.first_host_gpus(&[wanted.hardware])
        });
        let trial = TrialRun {
            gpus: VirtualGpus::from_hardware(&cards, wanted.memory, scratch)?,
            probe: Probe::prepare(Some(watch), wanted.plans, world, self.places)?,
            runs: folder.join("runs"),
        };
        self.carried_out(trial, wanted.command)
    }

    fn carried_out(&self, trial: TrialRun, command: &[String]) -> Result<u8> {
        match self.args.host {
            true => run::on_host(self.overrides, command, None, Some(trial), self.context),
            false => {
                let spec = &self.args.spec;
                run::contained_as(
                    spec,
                    self.overrides,
                    run::RunWorkload::Command(command),
                    None,
                    Some(trial),
                    self.context,
                )
            }
        }
    }
}

/// What the processes left: how many used cards, and the foremost one with its folder. What is not
/// understood is passed over: anything can write there, links and pipes too.
fn read(folder: &Path) -> io::Result<Option<(usize, ProcessDirectory, ProbeReport)>> {
    let left = TreeDirectory::open(folder)?;
    let mut names = left.list_names()?;
    names.truncate(MAX_PROCESSES);
    names.sort();
    let read = |name: OsString| Some((read_report(&left, &name)?, name));
    let all: Vec<(ProbeReport, OsString)> = names.into_iter().filter_map(read).collect();
    let seen = all.iter().map(|(seen, _)| seen.clone()).collect();
    let foremost = forecast::select_main_process(seen);
    Ok(foremost.and_then(|(used, chosen)| {
        let (seen, name) = all.into_iter().find(|(seen, _)| *seen == chosen)?;
        let own = ProcessDirectory {
            open: left.open_subdir(&name).ok()?,
            path: folder.join(name),
        };
        Some((used, own, seen))
    }))
}

/// What a process told of itself.
fn read_report(left: &TreeDirectory, name: &OsStr) -> Option<ProbeReport> {
    let own = left.open_subdir(name).ok()?;
    let file = own.open_regular_file("fit.json".as_ref()).ok()?;
    let mut text = String::new();
    let size = file
        .take(MAX_REPORT_BYTES + 1)
        .read_to_string(&mut text)
        .ok()?;
    let is_small = u64::try_from(size).is_ok_and(|size| size <= MAX_REPORT_BYTES);
    is_small.then(|| ProbeReport::parse(&text).ok()).flatten()
}

pub(super) fn file_error(action: FileAction, path: &Path) -> impl FnOnce(io::Error) -> AppError {
    let path = path.to_owned();
    move |source| AppError::File {
        action,
        path,
        source,
    }
}

/// Standard output, and error, of what is started lead elsewhere for as long as this is.
struct Aside {
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl Aside {
    fn to_stderr() -> Self {
        Self {
            stdout: put(stdio::stdout(), stdio::stderr(), stdio::dup2_stdout),
            stderr: None,
        }
    }

    fn to_nowhere() -> Self {
        let null = File::options().write(true).open("/dev/null").ok();
        let null = null.as_ref().map(File::as_fd);
        Self {
            stdout: null.and_then(|null| put(stdio::stdout(), null, stdio::dup2_stdout)),
            stderr: null.and_then(|null| put(stdio::stderr(), null, stdio::dup2_stderr)),
        }
    }
}

/// Puts one in the place of the other, which is kept.
fn put<F: AsFd, T: AsFd>(
    from: F,
    to: T,
    set: impl FnOnce(T) -> rustix::io::Result<()>,
) -> Option<OwnedFd> {
    let kept = rustix::io::fcntl_dupfd_cloexec(from, 3).ok()?;
    set(to).ok()?;
    Some(kept)
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Some(kept) = &self.stdout {
            let _ = stdio::dup2_stdout(kept);
        }
        if let Some(kept) = &self.stderr {
            let _ = stdio::dup2_stderr(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link to a device is endless, and a pipe has no end either.
    #[test]
    fn what_is_no_file_of_a_process_is_passed_over() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("trial");
        let seen = folder.join(SEEN);
        let own = |name: &str| {
            let own = seen.join(name);
            fs::create_dir_all(&own).unwrap();
            own
        };
        let link = std::os::unix::fs::symlink::<&str, PathBuf>;
        link("/dev/zero", own("device").join("fit.json")).unwrap();
        link("device", seen.join("link")).unwrap();
        let (cwd, mode) = (rustix::fs::CWD, rustix::fs::Mode::RWXU);
        let fifo = own("pipe").join("fit.json");
        rustix::fs::mknodat(cwd, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        fs::create_dir(own("folder").join("fit.json")).unwrap();
        assert!(read(&seen).unwrap().is_none());
        assert!(TrialOutput::from_dir(folder.clone(), 0).is_err() && !folder.exists());
    }
}
