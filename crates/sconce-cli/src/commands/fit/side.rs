//! Trials beside each other: a run holds the signals of its process, so each trial of a plan is a process
//! of this program, which is told by a file in the trial's folder what to run.

use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sconce_compat::tables::Hardware;
use sconce_memory::forecast::plan::Plans;
use sconce_memory::forecast::values::Answers;
use sconce_schema::Bytes;
use serde::{Deserialize, Serialize};

use super::trial::{Asked, Done, Wanted, failed};
use crate::commands::run::program;
use crate::failure::Result;
use crate::style::Style;

const TASK: &str = "task.json";
pub(super) const ERRORS: &str = "stderr";
/// Memory of the machine that a trial may take; fewer run beside each other where there is less.
const MEMORY_EACH: u64 = 3 << 30;
/// The end of what a trial said that is looked at, in bytes.
const LAST_WORDS: usize = 4000;

/// A trial, as it is told to the process that makes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Task {
    /// Which of the cards that were asked about.
    pub(super) card: usize,
    /// Other memory than the card's own, in bytes.
    pub(super) memory: Option<u64>,
    /// The command.
    pub(super) command: Vec<String>,
    /// Plans, as they are named.
    pub(super) plans: Option<String>,
    /// What it is told in the place of zeros.
    #[serde(default)]
    pub(super) answers: Answers,
    /// Whether it is no trial, but the process from which trials are forked.
    #[serde(default)]
    pub(super) serve: bool,
}

impl Task {
    /// The trial; an error where a card or a plan is not known.
    fn wanted(&self, cards: &[&'static Hardware]) -> std::result::Result<Wanted<'_>, String> {
        let plans = self.plans.as_deref().map(str::parse::<Plans>).transpose();
        Ok(Wanted {
            hardware: cards.get(self.card).ok_or("no such card")?,
            memory: self.memory.map(Bytes),
            command: &self.command,
            plans: plans
                .map_err(|error| error.to_string())?
                .unwrap_or_default(),
            history: false,
            work: true,
            answers: self.answers.clone(),
            seconds: None,
        })
    }
}

/// In the process of one trial: makes it. Its exit code is the command's.
pub(super) fn carry_out(
    asked: &Asked<'_>,
    cards: &[&'static Hardware],
    folder: &Path,
) -> Result<u8> {
    let path = folder.join(TASK);
    let text = fs::read_to_string(&path).map_err(failed("read", &path))?;
    let wrong =
        |error: String| failed("read", &path)(io::Error::new(io::ErrorKind::InvalidData, error));
    let task: Task = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let wanted = task.wanted(cards).map_err(wrong)?;
    asked.run_as(folder, wanted, task.serve)
}

/// What came of a trial: what was seen, or the last that was said.
pub(super) type Came = std::result::Result<Done, String>;

/// Makes trials, as many at once as this machine has cores and memory for; in their order.
pub(super) fn all(
    asked: &mut Asked<'_>,
    cards: &[&'static Hardware],
    tasks: &[Task],
) -> Result<Vec<Came>> {
    asked.start_server();
    let first = asked.trials;
    let mut folders: Vec<PathBuf> = Vec::new();
    for task in tasks {
        let folder = asked.folder(asked.trials)?;
        asked.trials += 1;
        let path = folder.join(TASK);
        tell(task, &folder).map_err(failed("write", &path))?;
        folders.push(folder);
    }
    let program = program()?;
    let server = &asked.server;
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
                    let served = match task.wanted(cards) {
                        Ok(wanted) => server.run(first + number, folder, &wanted),
                        Err(why) => Err(io::Error::other(why)),
                    };
                    let code = served.or_else(|_| one(&program, folder));
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
        let code = code.map_err(failed("start", &program))?;
        all.push(
            Done::of(folder, code)
                .map_err(|failure| words.unwrap_or_else(|| failure.text(&Style { color: false }))),
        );
    }
    Ok(all)
}

/// Tells the process that is started for a folder what to run.
pub(super) fn tell(task: &Task, folder: &Path) -> io::Result<()> {
    fs::write(folder.join(TASK), serde_json::to_string(task)?)
}

/// This program once more, for what a folder tells.
pub(super) fn process(program: &Path, folder: &Path) -> io::Result<Command> {
    let mut command = Command::new(program);
    command
        .args(with_trial(std::env::args_os().skip(1), folder))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(folder.join(ERRORS))?);
    Ok(command)
}

fn one(program: &Path, folder: &Path) -> io::Result<u8> {
    let status = process(program, folder)?.status()?;
    Ok(status
        .code()
        .and_then(|code| code.try_into().ok())
        .unwrap_or(u8::MAX))
}

/// The arguments of this program with a trial's folder: before the command, which is not the program's.
fn with_trial(own: impl Iterator<Item = OsString>, folder: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = own.collect();
    let at = words.iter().position(|word| word == "--");
    let trial = [OsString::from("--trial"), folder.as_os_str().to_owned()];
    let at = at.unwrap_or(words.len());
    words.splice(at..at, trial);
    words
}

fn at_once() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let machine = sconce_host::Machine::read(&sconce_host::Roots::default());
    let memory = machine
        .memory_available
        .map_or(1, |bytes| bytes.0 / MEMORY_EACH);
    cores.min(usize::try_from(memory).unwrap_or(1)).clamp(1, 8)
}

/// The last line that was said, which of a Python program is its error.
fn last_words(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text =
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LAST_WORDS)..]).into_owned();
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_named_before_the_command() {
        let with = |text: &str| {
            let words = text.split(' ').map(OsString::from);
            let words = with_trial(words, Path::new("/t"));
            let words: Vec<String> = words
                .into_iter()
                .map(|word| word.into_string().unwrap())
                .collect();
            words.join(" ")
        };
        assert_eq!(
            with("fit --gpu t4 -- a -- b"),
            "fit --gpu t4 --trial /t -- a -- b"
        );
        assert_eq!(with("-q fit ."), "-q fit . --trial /t");
    }

    #[test]
    fn task_of_another_process_is_as_before() {
        let task = Task {
            card: 1,
            memory: Some(8 << 30),
            command: vec!["python".to_owned()],
            plans: Some("bf16".to_owned()),
            answers: Answers::default(),
            serve: true,
        };
        crate::golden::assert_lines("fit-task.json", &[&task]);
        let text = crate::golden::goldens().text("fit-task.json");
        let read: Task = serde_json::from_str(&text).unwrap();
        assert_eq!((read.card, read.memory, read.serve), (1, task.memory, true));
    }
}
