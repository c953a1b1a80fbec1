//! Writing one run's record.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sconce_base::secrets;
use sconce_schema::event::{RecordEvent, RunStarted};
use sconce_schema::training::GpuOutOfMemory;
use serde::Serialize;

use crate::append::AppendFile;
use crate::preallocation::ReservedTail;
use crate::process_names::ProcessNames;
use crate::{FILE, RecordError, segments};

/// Writes the record of one run. Nothing is held back in memory: what [`RecordWriter::write_event`] took is
/// in the kernel's hands when it returns. It is not synced to the disk unless [`RecordWriter::sync_data`] is
/// called: a crash of the whole machine may take the last half minute.
#[derive(Debug)]
pub struct RecordWriter {
    log: AppendFile<File>,
    path: PathBuf,
    started: Box<RunStarted>,
    /// Which part the file will be when it is closed.
    part: u32,
    /// The size at which it is closed, bytes.
    close_at: u64,
    /// What the file has said of processes.
    names: ProcessNames,
    /// For the line that says how the run ended.
    room: ReservedTail,
    lost: u64,
}

impl RecordWriter {
    /// Begins the record `dir/<id>/events.jsonl` with its first line. Folders are made as needed,
    /// for the user alone (0700, the file 0600). The file appears under its name only when its
    /// first line is in it and its lock is held.
    ///
    /// # Errors
    /// [`RecordError::Taken`] when there is such a run (take another id);
    /// [`RecordError::BadId`] when the id is not a plain name; [`RecordError::Io`].
    pub fn create(dir: &Path, started: &RunStarted) -> Result<Self, RecordError> {
        let id = &started.id;
        if !is_plain(id) {
            return Err(RecordError::BadId { id: id.clone() });
        }
        let mut private = DirBuilder::new();
        private.mode(0o700);
        (private.recursive(true).create(dir)).map_err(io_error("create", dir))?;
        let folder = dir.join(id);
        match private.recursive(false).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(RecordError::Taken { id: id.clone() });
            }
            result => result.map_err(io_error("create", &folder))?,
        }

        let path = folder.join(FILE);
        let mut started = Box::new(started.clone());
        // JSON is text; a folder whose name is not is written as it is shown.
        started.folder = PathBuf::from(started.folder.to_string_lossy().into_owned());
        // A record is shown, exported and sent; a password in a command line is for the command alone.
        started.command = secrets::mask_command(&started.command);
        let log = (begin(&path, &started, 1, None)).inspect_err(|_| {
            // Of a record that could not begin, nothing stays.
            let _ = fs::remove_dir_all(&folder);
        })?;
        let mut writer = Self {
            log,
            path,
            started,
            part: 1,
            close_at: segments::ROTATE_AT_BYTES,
            names: ProcessNames::default(),
            room: ReservedTail::default(),
            lost: 0,
        };
        writer.keep_room();
        Ok(writer)
    }

    /// Appends what happened `t_us` microseconds after the run began.
    ///
    /// # Errors
    /// The first line that cannot be written is an error, for the program to say once; the ones
    /// after it are only counted ([`RecordWriter::lost_event_count`]), so that a full disk never breaks a run.
    /// Every later line is tried again. For [`RecordEvent::Ended`] room was kept, where the file system can.
    pub fn write_event(&mut self, t_us: u64, event: &RecordEvent) -> Result<(), RecordError> {
        let ended = matches!(event, RecordEvent::Ended(_));
        let written = self.append(t_us, event, ended);
        if ended {
            self.room
                .give_back(self.log.get_ref(), self.log.bytes_written());
        }
        let Err(error) = written else {
            return Ok(());
        };
        self.lost += 1;
        // What that line said of processes is to be said again.
        self.names = ProcessNames::default();
        if self.lost > 1 {
            return Ok(());
        }
        Err(io_error("write", &self.path)(error))
    }

    /// One line, in a new file where the old one has grown; none but the last into the room that is kept.
    fn append(&mut self, t_us: u64, event: &RecordEvent, ended: bool) -> io::Result<()> {
        if self.log.bytes_written() >= self.close_at && self.close(t_us, event).is_ok() {
            return Ok(());
        }
        let line = line(t_us, event, None, &mut self.names)?;
        if !ended {
            let size = self.log.bytes_written() + line.len() as u64 + 1;
            self.room.reserve_space(self.log.get_ref(), size)?;
        }
        self.log.write_line(&line)
    }

    /// Makes a part of the file, and begins it anew with `event`. Each step leaves a record that holds
    /// every line once: until the new file has its name, its forerunner is what counts.
    fn close(&mut self, t_us: u64, event: &RecordEvent) -> Result<(), RecordError> {
        // Whatever comes of it, it is not tried again before the file has grown by half.
        self.close_at = self.log.bytes_written() + segments::ROTATE_AT_BYTES / 2;
        self.keep_part()?;
        let mut names = ProcessNames::default();
        let first = line(t_us, event, None, &mut names).map_err(io_error("write", &self.path))?;
        // The lock of the old file is let go when the new one has taken its place.
        self.log = begin(&self.path, &self.started, self.part + 1, Some(&first))?;
        self.part += 1;
        self.close_at = segments::ROTATE_AT_BYTES;
        self.names = names;
        self.room = ReservedTail::default();
        self.keep_room();
        Ok(())
    }

    /// Of a new file. Where there is none, the next line says so.
    fn keep_room(&mut self) {
        let _ = self
            .room
            .reserve_space(self.log.get_ref(), self.log.bytes_written());
    }

    /// The compressed copy of the file, under its name.
    fn keep_part(&self) -> Result<(), RecordError> {
        let name = segments::file_name(self.part);
        let (part, hidden) = (
            self.path.with_file_name(&name),
            self.path.with_file_name(format!(".{name}")),
        );
        // Of an earlier try.
        let _ = fs::remove_file(&hidden);
        let made =
            segments::compress(&self.path, &hidden).and_then(|()| fs::rename(&hidden, &part));
        made.inspect_err(|_| {
            let _ = fs::remove_file(&hidden);
        })
        .map_err(io_error("write", &part))
    }

    /// Has the disk keep what was written so far, in a thread of its own, since a disk may take long: when
    /// the machine goes down later, the record is there. What goes wrong is as if it had not been asked for.
    pub fn keep_beside(&self) {
        if let Ok(file) = self.log.get_ref().try_clone() {
            let thread = std::thread::Builder::new().name("record".to_owned());
            let _ = thread.spawn(move || file.sync_data());
        }
    }

    /// Has the disk keep what was written so far, and waits for it. What goes wrong is as if it had not been
    /// asked for.
    pub fn sync_data(&self) {
        let _ = self.log.get_ref().sync_data();
    }

    /// How many events could not be written.
    #[must_use]
    pub fn lost_event_count(&self) -> u64 {
        self.lost
    }

    /// The log's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether an id can be a folder's name: no separator, not hidden, nothing that a terminal obeys.
fn is_plain(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= 200
        && !id.starts_with('.')
        && !id.contains(|c: char| c == '/' || c.is_control())
}

/// A new file at `path` with its first line, and `next` as its second: locked, and then given its name.
fn begin(
    path: &Path,
    started: &RunStarted,
    part: u32,
    next: Option<&[u8]>,
) -> Result<AppendFile<File>, RecordError> {
    let hidden = path.with_file_name(format!(".{FILE}"));
    // Of an earlier try.
    let _ = fs::remove_file(&hidden);
    let file = (OpenOptions::new().append(true).create_new(true).mode(0o600))
        .open(&hidden)
        .map_err(io_error("create", &hidden))?;
    match file.try_lock() {
        // A file system without locks: the record is as good, but a reader cannot tell a running
        // run from an interrupted one by it.
        Ok(()) | Err(TryLockError::Error(_)) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(io_error("lock", &hidden)(io::ErrorKind::WouldBlock.into()));
        }
    }
    let mut log = AppendFile::new(file);
    let part = (part > 1).then_some(part);
    let first = RecordEvent::Started(Box::new(started.clone()));
    line(0, &first, part, &mut ProcessNames::default())
        .and_then(|first| log.write_line(&first))
        .and_then(|()| next.map_or(Ok(()), |next| log.write_line(next)))
        .map_err(io_error("write", &hidden))?;
    if part.is_some() {
        // It takes the place of one that the disk has.
        (log.get_ref().sync_data()).map_err(io_error("write", &hidden))?;
    }
    fs::rename(&hidden, path).map_err(io_error("create", path))?;
    Ok(log)
}

/// One line of the log: a [`sconce_schema::event::RecordLine`] that borrows.
fn line(
    t_us: u64,
    event: &RecordEvent,
    part: Option<u32>,
    names: &mut ProcessNames,
) -> io::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Line<'a> {
        t_us: u64,
        #[serde(flatten)]
        event: &'a RecordEvent,
        /// Of a first line: which part the file will be, where it is not the first.
        #[serde(skip_serializing_if = "Option::is_none")]
        part: Option<u32>,
    }
    let shortened = match event {
        RecordEvent::CardOutOfMemory(oom) => oom.message.as_deref().map(|message| {
            let message = Some(secrets::mask_text(message));
            RecordEvent::CardOutOfMemory(Box::new(GpuOutOfMemory {
                message,
                ..(**oom).clone()
            }))
        }),
        RecordEvent::Sample(sample) if !sample.by_process.is_empty() => {
            let mut sample = sample.clone();
            names.omit_repeated_details(&mut sample);
            Some(RecordEvent::Sample(sample))
        }
        _ => None,
    };
    let event = shortened.as_ref().unwrap_or(event);
    serde_json::to_vec(&Line { t_us, event, part }).map_err(io::Error::from)
}

pub(crate) fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RecordError {
    move |source| RecordError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
#[path = "golden.rs"]
mod golden;
#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
