//! What the probe inside training processes tells, read from the folder that they write to.
//!
//! The run can put anything there: names, sizes and numbers of files are bounded, no link is followed,
//! and nothing but regular files is opened.

mod groups;
mod ring;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use sconce_schema::training::{GpuOutOfMemory, TrainingSample, TrainingSetup, TrainingStep};

use self::groups::{RankGroups, RankInGroup};
use crate::roots::Roots;
use crate::small_files;

pub use ring::{ProbeRing, SIZE};

/// Processes that are listened to at one time.
const MAX_PROCESSES: usize = 256;
/// A text file of the probe's may have so many bytes.
const MAX_FILE_BYTES: u64 = 256 << 10;
/// All steps of a process are taken up to this one. Then one in two of those about twice as far, and so on, so
/// that every part of a run has many, however fast its steps are; and [`MIN_STEPS_PER_READING`] of each reading at least.
const FULLY_SAMPLED_STEPS: u64 = 2048;
const MIN_STEPS_PER_READING: u64 = 4;
/// One reading has no more of the first steps than so many, as a line of a record has an end.
const MAX_STEPS_PER_READING: u64 = 2048;
/// How often a process may change what it is made of, and how often all of a run may: each is an event.
const MAX_SETUPS_PER_PROCESS: u32 = 16;
const MAX_SETUPS_PER_RUN: u32 = 4096;
/// Times that a run's processes may tell that memory ran out.
const MAX_OUT_OF_MEMORY_EVENTS: u32 = 256;
/// One that was never found among the run's processes, and tells nothing new, has ended after so many
/// readings.
const MAX_UNSEEN_READINGS: u32 = 8;
/// Names of processes that ended and whose files could not be removed.
const MAX_LEFTOVER_FILES: usize = 65_536;
/// A reading that a process disturbs is repeated so often.
const MAX_ATTEMPTS: u32 = 8;
/// Texts in what a process tells are cut here, bytes; lists after so many.
const MAX_TEXT_BYTES: usize = 4096;
const MAX_LIST_ITEMS: usize = 64;

/// What processes told since the last reading.
#[derive(Debug, Default)]
pub struct ProbeUpdate {
    /// Each process that trains, and those that ended since the last reading.
    pub training: Vec<TrainingSample>,
    /// Processes for which there is no room now; once nothing more will come, those that were never told.
    pub left_out: Option<u32>,
    /// What is new of what they are made of.
    pub setups: Vec<TrainingSetup>,
    /// Cards whose memory ran out, with PyTorch's snapshot where there is one.
    pub out_of_memory: Vec<(GpuOutOfMemory, Option<File>)>,
}

/// Reads a folder of the probe's.
#[derive(Debug)]
pub struct TrainingReader {
    folder: PathBuf,
    proc: PathBuf,
    /// When the run began, on `CLOCK_MONOTONIC`.
    began_ns: u64,
    processes: BTreeMap<String, Process>,
    /// Processes that ended, whose files are still there.
    left: BTreeSet<String>,
    groups: RankGroups,
    setups: u32,
    out_of_memory: u32,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Process {
    ring: File,
    inner_pid: u32,
    parent: u32,
    /// The cell of a notebook; the process may tell of others under other names.
    cell: Option<u32>,
    /// Its rank and group, once it has told something.
    member: Option<RankInGroup>,
    /// Readings in which it was not among the run's processes and told nothing new, and how often it had
    /// told something then.
    unseen: u32,
    told: u64,
    /// In the host's numbering, once it was found.
    pid: Option<u32>,
    /// The last step that was handed on.
    given: u64,
    last: Option<TrainingSample>,
    setup: Option<TrainingSetup>,
    setups: u32,
    setup_file: Option<Version>,
    memory: Memory,
}

/// Which version of a file it is: inode, size, time of its last change.
type Version = (u64, u64, i64, i64);

/// How far the account of memory that ran out is.
#[derive(Debug, Default)]
enum Memory {
    #[default]
    Enough,
    /// It is there, and may yet be completed.
    Seen(Version),
    Told,
}

impl TrainingReader {
    /// Reads `folder` for a run that begins now.
    #[must_use]
    pub fn new(folder: PathBuf, roots: &Roots) -> Self {
        Self {
            folder,
            proc: roots.proc.clone(),
            began_ns: monotonic_ns(),
            processes: BTreeMap::new(),
            left: BTreeSet::new(),
            groups: RankGroups::default(),
            setups: 0,
            out_of_memory: 0,
            buffer: vec![0; SIZE],
        }
    }

    /// What was told since the last reading. `pids`: the run's processes now, in the host's numbering.
    /// `ended`: nothing more will come.
    pub fn read(&mut self, pids: &[u32], ended: bool) -> ProbeUpdate {
        let waiting = self.find();
        self.join(pids);
        let mut told = ProbeUpdate {
            left_out: (waiting > 0).then_some(waiting),
            ..ProbeUpdate::default()
        };
        let mut processes = std::mem::take(&mut self.processes);
        // What they told last is read after they are known to have ended.
        let ends: Vec<bool> = (processes.values_mut())
            .map(|process| !ended && process.has_ended(&self.proc, pids))
            .collect();
        let most = (MAX_STEPS_PER_READING / processes.len().max(1) as u64).max(1);
        let mut at = Vec::new();
        for ((name, process), &ends) in processes.iter_mut().zip(&ends) {
            told.setups.extend(self.setup(name, process));
            if let Some(figures) = self.figures(process, most) {
                told.training.push(figures);
                at.push(name.clone());
            }
            told.out_of_memory
                .extend(self.memory(name, process, ended || ends));
        }
        (self.groups).assign(&mut processes, &at, &mut told.training);
        let mut ends = ends.into_iter();
        processes.retain(|name, _| {
            let ends = ends.next().unwrap_or_default();
            if ends {
                self.remove(name);
            }
            !ends
        });
        self.processes = processes;
        told
    }

    /// Makes room for another process: this one has ended, and all of it is told.
    fn remove(&mut self, name: &str) {
        for kind in ["setup.json", "oom.json", "snapshot.pickle", "ring"] {
            let path = self.folder.join(format!("{name}.{kind}"));
            let gone = std::fs::remove_file(path);
            if kind == "ring" && gone.is_err() && self.left.len() < MAX_LEFTOVER_FILES {
                self.left.insert(name.to_owned());
            }
        }
    }

    /// Opens what processes have begun; gives how many there is no room for.
    fn find(&mut self) -> u32 {
        let Ok(entries) = self.folder.read_dir() else {
            return 0;
        };
        let mut waiting = 0;
        // Twice as many names as files that may be meant, and the texts beside them.
        for entry in entries.flatten().take(MAX_PROCESSES * 8) {
            let name = entry.file_name();
            let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".ring")) else {
                continue;
            };
            if !is_plain(name) || self.processes.contains_key(name) || self.left.contains(name) {
                continue;
            }
            if self.processes.len() >= MAX_PROCESSES {
                waiting += 1;
                continue;
            }
            let Some(ring) = self.open(name, "ring") else {
                continue;
            };
            let mut start = vec![0; SIZE];
            let whole = ring
                .metadata()
                .is_ok_and(|found| found.len() == SIZE as u64)
                && ring.read_exact_at(&mut start, 0).is_ok();
            let inner = whole.then(|| {
                let found = ProbeRing::from_bytes(&start)?;
                Some((
                    found.inner_pid()?,
                    found.parent_pid()?,
                    found.notebook_cell(),
                ))
            });
            if let Some((inner_pid, parent, cell)) = inner.flatten() {
                let process = Process {
                    ring,
                    inner_pid,
                    parent,
                    cell,
                    member: None,
                    unseen: 0,
                    told: 0,
                    pid: None,
                    given: 0,
                    last: None,
                    setup: None,
                    setups: 0,
                    setup_file: None,
                    memory: Memory::default(),
                };
                self.processes.insert(name.to_owned(), process);
            }
        }
        waiting
    }

    /// Finds out which processes of the machine they are: each knows its own number alone, which is the
    /// last in `NSpid` (`proc_pid_status(5)`).
    fn join(&mut self, pids: &[u32]) {
        if self.processes.values().all(|process| process.pid.is_some()) {
            return;
        }
        for &pid in pids {
            let Some(inner) = inner_pid(&self.proc, pid) else {
                continue;
            };
            // One that has executed another program is there twice.
            for process in self.processes.values_mut() {
                if process.inner_pid == inner {
                    process.pid.get_or_insert(pid);
                }
            }
        }
    }

    fn figures(&mut self, process: &mut Process, most: u64) -> Option<TrainingSample> {
        for _ in 0..MAX_ATTEMPTS {
            process.ring.read_exact_at(&mut self.buffer, 0).ok()?;
            let ring = ProbeRing::from_bytes(&self.buffer)?;
            let mut after = [0; 8];
            process.ring.read_exact_at(&mut after, 40).ok()?;
            if u64::from_le_bytes(after) != ring.update_count() {
                continue;
            }
            if process.told != ring.update_count() {
                process.told = ring.update_count();
                process.unseen = 0;
            }
            let mut training = ring.training_sample()?;
            let given = &mut process.given;
            training.recent = recent(ring, training.steps, given, most, self.began_ns);
            let heap = |step: &TrainingStep| Some((step.step, ring.heap_after_step(step.step)?));
            training.heap = training.recent.iter().filter_map(heap).collect();
            training.flops_per_step = (process.setup.as_ref()).and_then(|it| it.flops_per_step);
            process.last = Some(TrainingSample {
                recent: Vec::new(),
                heap: Vec::new(),
                ..training.clone()
            });
            training.pid = process.number();
            training.cell = process.cell;
            return Some(training);
        }
        // It tells faster than can be read: what it told before still holds.
        let mut training = process.last.clone()?;
        training.pid = process.number();
        Some(training)
    }

    fn setup(&mut self, name: &str, process: &mut Process) -> Option<TrainingSetup> {
        if process.setups >= MAX_SETUPS_PER_PROCESS || self.setups >= MAX_SETUPS_PER_RUN {
            return None;
        }
        let file = self.open(name, "setup.json")?;
        let version = version(&file)?;
        if process.setup_file == Some(version) {
            return None;
        }
        process.setup_file = Some(version);
        let mut setup: TrainingSetup = serde_json::from_str(&text(file)?).ok()?;
        setup.pid = process.number();
        setup.cell = process.cell;
        for text in [&mut setup.python, &mut setup.torch] {
            cut(text);
        }
        let texts = [
            &mut setup.backend,
            &mut setup.card,
            &mut setup.model,
            &mut setup.autocast,
            &mut setup.dtype,
            &mut setup.allocator,
            &mut setup.no_flops,
        ];
        texts.into_iter().flatten().for_each(cut);
        cut_list(&mut setup.optimizers);
        cut_list(&mut setup.flops_without);
        setup.kept.truncate(MAX_LIST_ITEMS);
        for kept in &mut setup.kept {
            let names = [&mut kept.name, &mut kept.of].into_iter().flatten();
            names.chain([&mut kept.holds]).for_each(cut);
            cut_list(&mut kept.adds);
        }
        // What the card could do is not for the process to say.
        setup.peak = None;
        if process.setup.as_ref() == Some(&setup) {
            return None;
        }
        process.setup = Some(setup.clone());
        process.setups += 1;
        self.setups += 1;
        Some(setup)
    }

    fn memory(
        &mut self,
        name: &str,
        process: &mut Process,
        ended: bool,
    ) -> Option<(GpuOutOfMemory, Option<File>)> {
        if matches!(process.memory, Memory::Told) || self.out_of_memory >= MAX_OUT_OF_MEMORY_EVENTS
        {
            return None;
        }
        let file = self.open(name, "oom.json")?;
        let version = version(&file)?;
        // The error's own text comes a moment after the rest.
        let complete = matches!(&process.memory, Memory::Seen(before) if *before == version);
        if !complete && !ended {
            process.memory = Memory::Seen(version);
            return None;
        }
        process.memory = Memory::Told;
        let mut told: GpuOutOfMemory = serde_json::from_str(&text(file)?).ok()?;
        told.pid = process.number();
        self.out_of_memory += 1;
        let texts = [&mut told.phase, &mut told.message, &mut told.no_snapshot];
        texts.into_iter().flatten().for_each(cut);
        cut_list(&mut told.stack);
        told.holders.truncate(MAX_LIST_ITEMS);
        for holder in &mut told.holders {
            holder.tensor.iter_mut().for_each(cut);
            cut_list(&mut holder.stack);
        }
        // Which file it is, is for the reader to say.
        told.snapshot = None;
        let snapshot = match told.no_snapshot {
            None => self.open(name, "snapshot.pickle"),
            Some(_) => None,
        };
        Some((told, snapshot))
    }

    /// Opens a regular file of the folder's own.
    fn open(&self, name: &str, kind: &str) -> Option<File> {
        let path = self.folder.join(format!("{name}.{kind}"));
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        file.metadata()
            .is_ok_and(|found| found.is_file())
            .then_some(file)
    }
}

impl Process {
    /// In the host's numbering; in its own, where it was gone before it was found.
    fn number(&self) -> u32 {
        self.pid.unwrap_or(self.inner_pid)
    }

    /// Whether nothing more can come of it. `pids`: the run's processes now; none where they are not known.
    fn has_ended(&mut self, proc: &Path, pids: &[u32]) -> bool {
        let mut start = [0; ring::START];
        if self.ring.read_exact_at(&mut start, 0).is_ok() && ring::is_closed(&start) {
            return true;
        }
        match self.pid {
            _ if pids.is_empty() => false,
            // One whose parent ended first may not be among the run's, and lives.
            Some(pid) => !pids.contains(&pid) && !lives(proc, pid, self.inner_pid),
            None => {
                self.unseen += 1;
                self.unseen > MAX_UNSEEN_READINGS
            }
        }
    }
}

/// Steps since `given`, oldest first: all of the first, some of the later ones. Of the first ones at most
/// `most`; the others are for the next reading.
fn recent(
    ring: ProbeRing<'_>,
    steps: u64,
    given: &mut u64,
    most: u64,
    began_ns: u64,
) -> Vec<TrainingStep> {
    let first = given
        .saturating_add(1)
        .max(ProbeRing::oldest_intact_step(steps));
    // Numbers that shrink are not those of the probe.
    if steps < first || steps < *given {
        return Vec::new();
    }
    let all_up_to = steps.min(FULLY_SAMPLED_STEPS);
    let last = all_up_to.min(first.saturating_add(most - 1));
    let waits = first <= all_up_to && last < all_up_to;
    *given = if waits { last } else { steps };

    let late = first.max(FULLY_SAMPLED_STEPS + 1);
    let count = (*given + 1).saturating_sub(late);
    let thinned = (count * FULLY_SAMPLED_STEPS / (*given).max(1)).min(most);
    let parts = MIN_STEPS_PER_READING.max(thinned).min(count);
    // Evenly; of each part the last one of which memory was read, as that is not done for each.
    let end = |part: u64| late + count * part / parts;
    let some = (1..=parts).map(|part| {
        let latest = || (end(part - 1)..end(part)).rev();
        let read = latest().find(|&number| ring.has_process(number));
        let read = read.or_else(|| latest().find(|&number| ring.has_card(number)));
        read.unwrap_or(end(part) - 1)
    });
    (first..=last)
        .chain(some)
        .filter_map(|number| ring.read_step(number, began_ns))
        .collect()
}

/// `PID-BEGAN`, as the probe names its files.
fn is_plain(name: &str) -> bool {
    name.len() <= 64
        && name.split('-').count() == 2
        && name
            .split('-')
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A process's number in its own namespace.
fn inner_pid(proc: &Path, pid: u32) -> Option<u32> {
    inner_pid_in(&status(proc, pid)?)
}

/// `proc_pid_status(5)`.
fn status(proc: &Path, pid: u32) -> Option<String> {
    small_files::text_up_to(&proc.join(pid.to_string()).join("status"), 8192)
}

fn inner_pid_in(status: &str) -> Option<u32> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

/// Whether it still runs, and is not another one of the same number.
fn lives(proc: &Path, pid: u32, inner: u32) -> bool {
    let Some(status) = status(proc, pid) else {
        return false;
    };
    let state = status
        .lines()
        .find_map(|line| line.strip_prefix("State:"))
        .map(str::trim_start);
    let dead = state.is_some_and(|state| state.starts_with(['Z', 'X']));
    !dead && inner_pid_in(&status) == Some(inner)
}

fn version(file: &File) -> Option<Version> {
    let found = file.metadata().ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

/// The text of a file that is not too large.
fn text(file: File) -> Option<String> {
    let mut text = String::new();
    let read = file
        .take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .ok()?;
    (read as u64 <= MAX_FILE_BYTES).then_some(text)
}

fn cut(text: &mut String) {
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
    }
}

fn cut_list(list: &mut Vec<String>) {
    list.truncate(MAX_LIST_ITEMS);
    list.iter_mut().for_each(cut);
}

/// Nanoseconds of `CLOCK_MONOTONIC`, by which the probe tells its times too.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let rest = u64::try_from(now.tv_nsec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

#[cfg(test)]
mod tests;
