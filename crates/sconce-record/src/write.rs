//! Writing one run's record.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sconce_schema::event::{Event, Started};
use serde::Serialize;

use crate::append::Append;
use crate::{FILE, RecordError};

/// Writes the record of one run. Nothing is held back in memory: what [`Writer::event`] took is
/// in the kernel's hands when it returns. It is not synced to the disk: a crash of the whole
/// machine may take the last seconds.
#[derive(Debug)]
pub struct Writer {
    log: Append<File>,
    path: PathBuf,
    lost: u64,
}

impl Writer {
    /// Begins the record `dir/<id>/events.jsonl` with its first line. Folders are made as needed,
    /// for the user alone (0700, the file 0600). The file appears under its name only when its
    /// first line is in it and its lock is held.
    ///
    /// # Errors
    /// [`RecordError::Taken`] when there is such a run (take another id);
    /// [`RecordError::BadId`] when the id is not a plain name; [`RecordError::Io`].
    pub fn create(dir: &Path, started: &Started) -> Result<Self, RecordError> {
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
        begin(&folder, &path, started).inspect_err(|_| {
            // Of a record that could not begin, nothing stays.
            let _ = fs::remove_dir_all(&folder);
        })
    }

    /// Appends what happened `t_us` microseconds after the run began.
    ///
    /// # Errors
    /// The first line that cannot be written is an error, for the program to say once; the ones
    /// after it are only counted ([`Writer::lost`]), so that a full disk never breaks a run.
    /// Every later line is tried again.
    pub fn event(&mut self, t_us: u64, event: &Event) -> Result<(), RecordError> {
        let written = line(t_us, event).and_then(|line| self.log.line(&line));
        let Err(error) = written else {
            return Ok(());
        };
        self.lost += 1;
        if self.lost > 1 {
            return Ok(());
        }
        Err(io_error("write", &self.path)(error))
    }

    /// How many events could not be written.
    #[must_use]
    pub fn lost(&self) -> u64 {
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

fn begin(folder: &Path, path: &Path, started: &Started) -> Result<Writer, RecordError> {
    let hidden = folder.join(format!(".{FILE}"));
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
    let mut started = Box::new(started.clone());
    // JSON is text; a folder whose name is not is written as it is shown.
    started.folder = PathBuf::from(started.folder.to_string_lossy().into_owned());
    let mut log = Append::new(file);
    line(0, &Event::Started(started))
        .and_then(|line| log.line(&line))
        .map_err(io_error("write", &hidden))?;
    fs::rename(&hidden, path).map_err(io_error("create", path))?;
    Ok(Writer {
        log,
        path: path.to_owned(),
        lost: 0,
    })
}

/// One line of the log: a [`sconce_schema::event::Line`] that borrows.
fn line(t_us: u64, event: &Event) -> io::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Line<'a> {
        t_us: u64,
        #[serde(flatten)]
        event: &'a Event,
    }
    serde_json::to_vec(&Line { t_us, event }).map_err(io::Error::from)
}

pub(crate) fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RecordError {
    move |source| RecordError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::Hint;

    #[test]
    fn a_full_disk_is_an_error_once() {
        let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let mut writer = Writer {
            log: Append::new(full),
            path: PathBuf::from("/dev/full"),
            lost: 0,
        };
        let sample = Event::Sample(Box::default());
        let error = writer.event(1, &sample).unwrap_err();
        assert_eq!(error.to_string(), "cannot write /dev/full");
        assert!(error.hint().unwrap().contains("the run itself goes on"));
        writer.event(2, &sample).unwrap();
        writer.event(3, &sample).unwrap();
        assert_eq!(writer.lost(), 3);
    }
}
