//! Trials beside each other: a run holds the signals of its process, so each trial of a plan is a worker
//! ([`WorkerTask::Trial`]).

use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sconce_compat::tables::Hardware;
use sconce_memory::forecast::training_plan::TrainingPlans;
use sconce_schema::Bytes;

use super::trial::{TrialContext, TrialOutput, TrialRequest, file_error};
use sconce_app::failure::Result;
use sconce_app::file_action::FileAction;
use sconce_app::worker::current_exe;
use sconce_app::worker::{TrialTask, WorkerTask, worker_command};

pub(super) const ERRORS: &str = "stderr";
/// Memory of the machine that a trial may take; fewer run beside each other where there is less.
const TRIAL_MEMORY_BYTES: u64 = 3 << 30;
/// The end of what a trial said that is looked at, in bytes.
const OUTPUT_TAIL_BYTES: usize = 4000;

/// The trial of a task; an error where a card or a plan is not known.
fn wanted_trial<'a>(
    task: &'a TrialTask,
    cards: &[&'static Hardware],
) -> std::result::Result<TrialRequest<'a>, String> {
    let plans = task
        .plans
        .as_deref()
        .map(str::parse::<TrainingPlans>)
        .transpose();
    Ok(TrialRequest {
        hardware: cards.get(task.card).ok_or("no such card")?,
        memory: task.memory.map(Bytes),
        command: &task.command,
        plans: plans
            .map_err(|error| error.to_string())?
            .unwrap_or_default(),
        history: false,
        work: true,
        answers: task.answers.clone(),
        seconds: None,
        steps: None,
    })
}

/// In the process of one trial: makes it. Its exit code is the command's.
pub(super) fn carry_out(
    asked: &TrialContext<'_>,
    cards: &[&'static Hardware],
    folder: &Path,
    task: &TrialTask,
) -> Result<u8> {
    let wrong = |error: String| {
        file_error(FileAction::MakeTrialIn, folder)(io::Error::new(
            io::ErrorKind::InvalidData,
            error,
        ))
    };
    let wanted = wanted_trial(task, cards).map_err(wrong)?;
    asked.run_as(folder, wanted, task.serve)
}

/// What came of a trial: what was seen, or the last that was said.
pub(super) type TrialResult = std::result::Result<TrialOutput, String>;

/// Makes trials, as many at once as this machine has cores and memory for; in their order.
pub(super) fn run_trials(
    asked: &mut TrialContext<'_>,
    cards: &[&'static Hardware],
    tasks: &[TrialTask],
) -> Result<Vec<TrialResult>> {
    asked.start_server();
    let first = asked.trials;
    let mut folders: Vec<PathBuf> = Vec::new();
    for _ in tasks {
        let folder = asked.create_trial_dir(asked.trials)?;
        asked.trials += 1;
        folders.push(folder);
    }
    let program = current_exe()?;
    let (server, arguments) = (&asked.server, &asked.context.arguments);
    let next = AtomicUsize::new(0);
    let came: Mutex<Vec<(usize, io::Result<u8>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once().min(tasks.len()) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(folder), Some(task)) = (folders.get(number), tasks.get(number))
                    else {
                        break;
                    };
                    let served = match wanted_trial(task, cards) {
                        Ok(wanted) => server.run_trial(first + number, folder, &wanted),
                        Err(why) => Err(io::Error::other(why)),
                    };
                    let code = served.or_else(|_| run_worker(&program, arguments, folder, task));
                    let mut came = came
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    came.push((number, code));
                }
            });
        }
    });
    let mut came = came
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    came.sort_by_key(|(number, _)| *number);
    let mut all = Vec::new();
    for ((_, code), folder) in came.into_iter().zip(folders) {
        let words = last_words(&folder.join(ERRORS));
        let code = code.map_err(file_error(FileAction::Start, &program))?;
        all.push(
            TrialOutput::from_dir(folder, code)
                .map_err(|failure| words.unwrap_or_else(|| failure.to_plain_text())),
        );
    }
    Ok(all)
}

/// This program once more, with the arguments of its caller, for a trial in a directory.
pub(super) fn trial_command(
    program: &Path,
    arguments: &[OsString],
    folder: &Path,
    task: &TrialTask,
) -> io::Result<Command> {
    let task = WorkerTask::Trial {
        directory: folder.into(),
        task: Box::new(task.clone()),
    };
    let mut command = worker_command(program, &task)?;
    command
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(File::create(folder.join(ERRORS))?);
    Ok(command)
}

fn run_worker(
    program: &Path,
    arguments: &[OsString],
    folder: &Path,
    task: &TrialTask,
) -> io::Result<u8> {
    let status = trial_command(program, arguments, folder, task)?.status()?;
    Ok(status
        .code()
        .and_then(|code| code.try_into().ok())
        .unwrap_or(u8::MAX))
}

fn at_once() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let machine = sconce_host::HostProfile::read(&sconce_host::Roots::default());
    let memory = machine
        .memory_available
        .map_or(1, |bytes| bytes.0 / TRIAL_MEMORY_BYTES);
    cores.min(usize::try_from(memory).unwrap_or(1)).clamp(1, 8)
}

/// The last line that was said, which of a Python program is its error.
fn last_words(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(OUTPUT_TAIL_BYTES)..])
        .into_owned();
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_testkit::golden_files::Goldens;

    #[test]
    fn task_of_another_process_is_as_before() {
        let task = TrialTask {
            card: 1,
            memory: Some(8 << 30),
            command: vec!["python".to_owned()],
            plans: Some("bf16".to_owned()),
            answers: Default::default(),
            serve: true,
        };
        let goldens = Goldens::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../sconce-app"));
        goldens.assert_values("fit-task.json", &[&task]);
        let text = goldens.read_text("fit-task.json");
        let read: TrialTask = serde_json::from_str(&text).unwrap();
        assert_eq!((read.card, read.memory, read.serve), (1, task.memory, true));
    }
}
