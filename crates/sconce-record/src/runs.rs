//! All runs of a folder: listing, finding, and letting old ones go.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sconce_base::tree::open_regular_file;
use sconce_schema::event::{RecordEvent, RecordLine, RunStarted};

use crate::read::{MAX_LINE_BYTES, read_file};
use crate::write::io_error;
use crate::{FILE, RecordError};

/// One run, as far as its first and last lines tell.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEntry {
    /// The log's file, for [`crate::open_record`].
    pub path: PathBuf,
    /// How it began.
    pub started: RunStarted,
    /// Where it stands.
    pub state: RunState,
    /// The last line that can be read, when it is not the first one: the end, or the last
    /// sample.
    pub last: Option<RecordLine>,
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// Its `sconce` is at work.
    Running,
    /// It ended, and the record says how.
    Ended,
    /// Its `sconce` is gone and did not say how it ended: killed, or the machine went down.
    Interrupted,
}

/// What [`list_runs`] found.
#[derive(Debug, Default)]
pub struct RunListing {
    /// Newest first.
    pub runs: Vec<RunEntry>,
    /// Records that cannot be read, and why.
    pub unreadable: Vec<RecordError>,
}

/// The runs recorded in `dir`. A folder that does not exist holds none.
///
/// # Errors
/// [`RecordError::Io`] when `dir` cannot be read.
pub fn list_runs(dir: &Path) -> Result<RunListing, RecordError> {
    let mut listing = RunListing::default();
    for (_, path) in logs(dir)? {
        match read_run_entry(&path) {
            Ok(run) => listing.runs.push(run),
            Err(RecordError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                // Somebody let it go meanwhile.
            }
            Err(error) => listing.unreadable.push(error),
        }
    }
    (listing.runs).sort_by(|a, b| {
        (b.started.unix_ms, &b.started.id).cmp(&(a.started.unix_ms, &a.started.id))
    });
    Ok(listing)
}

/// The log's file of one run in `dir`: `last` is the newest; otherwise an id, or its beginning
/// where only one run's begins so.
///
/// # Errors
/// [`RecordError::NoRuns`], [`RecordError::NotFound`] with the nearest ids,
/// [`RecordError::Ambiguous`] with the candidates, [`RecordError::Io`].
pub fn resolve_run(dir: &Path, which: &str) -> Result<PathBuf, RecordError> {
    let none = || RecordError::NoRuns {
        dir: dir.to_owned(),
    };
    if which == "last" {
        let listing = list_runs(dir)?;
        let Some(newest) = listing.runs.into_iter().next() else {
            return Err(listing.unreadable.into_iter().next().unwrap_or_else(none));
        };
        return Ok(newest.path);
    }
    let logs = logs(dir)?;
    if logs.is_empty() {
        return Err(none());
    }
    let names = || {
        logs.iter()
            .map(|(name, path)| (name.to_string_lossy().into_owned(), path))
    };
    if let Some((_, path)) = names().find(|(name, _)| name == which) {
        return Ok(path.clone());
    }
    let mut matches: Vec<_> = names()
        .filter(|(name, _)| name.starts_with(which))
        .collect();
    match matches.as_slice() {
        [] => Err(RecordError::NotFound {
            which: which.to_owned(),
            nearest: nearest(which, names().map(|(name, _)| name)),
        }),
        [(_, path)] => Ok((*path).clone()),
        _ => {
            matches.sort_by(|a, b| b.0.cmp(&a.0));
            Err(RecordError::Ambiguous {
                which: which.to_owned(),
                matches: matches.into_iter().map(|(name, _)| name).collect(),
            })
        }
    }
}

/// Lets old runs go: of those that are not under way, all but the `keep` newest. Records that
/// cannot be read are left alone. Nothing calls this by itself: a record stays until its user
/// says otherwise. Gives the ids that are gone, newest first.
///
/// # Errors
/// [`RecordError::Io`]; what was removed before stays removed.
pub fn prune_runs(dir: &Path, keep: usize) -> Result<Vec<String>, RecordError> {
    let mut gone = Vec::new();
    let ended = |run: &RunEntry| run.state != RunState::Running;
    for run in list_runs(dir)?.runs.into_iter().filter(ended).skip(keep) {
        // `logs` found it as a folder's file.
        let folder = run.path.parent().unwrap_or(&run.path);
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result.map_err(io_error("remove", folder))?,
        }
        gone.push(run.started.id);
    }
    Ok(gone)
}

/// Name and log of each folder in `dir` that has one. Hidden folders are not runs.
fn logs(dir: &Path) -> Result<Vec<(OsString, PathBuf)>, RecordError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        result => result.map_err(io_error("read", dir))?,
    };
    let mut logs = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io_error("read", dir))?;
        // Where a link leads is somebody else's; `read` says what is wrong with a log that is no file.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let log = entry.path().join(FILE);
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !hidden && is_folder && log.symlink_metadata().is_ok() {
            logs.push((entry.file_name(), log));
        }
    }
    Ok(logs)
}

/// One run, as far as its first and last lines tell. `path` is the log's file.
///
/// # Errors
/// As [`crate::open_record`].
pub fn read_run_entry(path: &Path) -> Result<RunEntry, RecordError> {
    let record = read_file(path)?;
    let last = last_line(path).map_err(io_error("read", path))?;
    let state = match &last {
        Some(line) if matches!(line.event, RecordEvent::Ended(_)) => RunState::Ended,
        _ if record.running => RunState::Running,
        _ => RunState::Interrupted,
    };
    Ok(RunEntry {
        path: path.to_owned(),
        started: record.started,
        state,
        last: last.filter(|line| !matches!(line.event, RecordEvent::Started(_))),
    })
}

/// The last line of a log that is an event; reads no more than its end.
fn last_line(path: &Path) -> io::Result<Option<RecordLine>> {
    let mut file = open_regular_file(path)?;
    let size = file.metadata()?.len();
    for reach in [16 << 10, 2 * MAX_LINE_BYTES as u64] {
        let from = size.saturating_sub(reach);
        file.seek(SeekFrom::Start(from))?;
        let mut end = Vec::new();
        BufReader::new(&file).take(reach).read_to_end(&mut end)?;
        let line = (end.rsplit(|byte| *byte == b'\n'))
            .find_map(|line| serde_json::from_slice::<RecordLine>(line).ok());
        if line.is_some() || from == 0 {
            return Ok(line);
        }
    }
    Ok(None)
}

/// Up to three ids that are spelt like `which`, nearest first. An id's beginning of the same
/// length is compared too, so that `digts` is near to `digits-2026…`.
fn nearest(which: &str, ids: impl Iterator<Item = String>) -> Vec<String> {
    let length = which.chars().count();
    let mut near: Vec<(usize, String)> = ids
        .map(|id| {
            let beginning: String = id.chars().take(length + 1).collect();
            let distance = strsim::damerau_levenshtein(which, &id)
                .min(strsim::damerau_levenshtein(which, &beginning));
            (distance, id)
        })
        .filter(|(distance, _)| *distance <= 1 + length / 4)
        .collect();
    near.sort();
    near.truncate(3);
    near.into_iter().map(|(_, id)| id).collect()
}
