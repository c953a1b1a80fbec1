//! The leases on disk: one writer at a time, any number of processes.
//!
//! In the folder lie `lock`, which whoever reads to decide holds (flock(2): the kernel gives it
//! back however its holder ends), `leases.log` ([`super::log`]), and `leases.log.1`, the log before
//! the last compaction. A compaction writes a new log beside the old one and renames it over it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};

use super::log::{self, LogCorruption, LogHeader};
use super::types::{LeaseEvent, LeaseRequest, LeaseResponse, LeaseUser, ProcessRef};
use super::{
    LeaseError, LeaseRefusal, LeaseState, LeaseSystem, Policy, advance_time, decide_request,
};

/// A log that grew by more than this over its first line is compacted.
const COMPACT_GROWTH_BYTES: u64 = 64 << 10;

/// The leases of a machine, in a folder.
#[derive(Debug)]
pub struct Database {
    folder: PathBuf,
    known: Option<CachedLog>,
}

/// What was read already.
#[derive(Debug)]
struct CachedLog {
    /// Of which log: the number of a file that was replaced is soon another's.
    head: LogHeader,
    length: u64,
    first: u64,
    state: LeaseState,
}

/// A decision that is written, and may not be on the disk yet.
#[must_use]
#[derive(Debug)]
pub struct WrittenDecision {
    answer: LeaseResponse,
    log: Option<File>,
    path: PathBuf,
}

impl WrittenDecision {
    /// Waits until it survives a power failure, and tells it.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn sync_to_disk(self) -> Result<LeaseResponse, LeaseError> {
        if let Some(log) = self.log {
            log.sync_data().map_err(|source| LeaseError::File {
                action: "write",
                path: self.path,
                source,
            })?;
        }
        Ok(self.answer)
    }
}

/// The log, while its lock is held.
struct LockedLog {
    log: File,
    known: CachedLog,
    _lock: File,
}

impl Database {
    /// The leases in `folder`, which is made when something is first written.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            known: None,
        }
    }

    /// Where they lie.
    #[must_use]
    pub fn dir_path(&self) -> &Path {
        &self.folder
    }

    /// Does what `person` asks, and writes it down before it is told. `pid` is the process that
    /// asks.
    ///
    /// # Errors
    /// When the log cannot be read or written. Then nothing was given.
    pub fn apply_request(
        &mut self,
        policy: &Policy,
        world: &dyn LeaseSystem,
        person: &LeaseUser,
        pid: u32,
        ask: &LeaseRequest,
    ) -> Result<LeaseResponse, LeaseError> {
        let process = world.process(pid);
        self.write_decision(policy, world, person, process, ask)?
            .sync_to_disk()
    }

    /// As [`Database::apply_request`], but of a process that was looked at already, and without the wait
    /// until the disk has it: that is [`WrittenDecision::sync_to_disk`], for which nobody else needs to wait.
    ///
    /// # Errors
    /// As [`Database::apply_request`].
    pub fn write_decision(
        &mut self,
        policy: &Policy,
        world: &dyn LeaseSystem,
        person: &LeaseUser,
        process: Option<ProcessRef>,
        ask: &LeaseRequest,
    ) -> Result<WrittenDecision, LeaseError> {
        // A lease of a process that is gone already would have nothing that ends it.
        let lives = matches!(ask, LeaseRequest::Take(take) if take.while_alive || take.wait);
        if lives && process.is_none() {
            let path = self.folder.join("leases.log");
            return Ok(WrittenDecision {
                answer: LeaseResponse::Refused(LeaseRefusal::NoProcess),
                log: None,
                path,
            });
        }
        let (answer, log) = self.change(world, |state, seen| {
            let decision = decide_request(state, policy, seen, person, process.as_ref(), ask);
            (decision.events, decision.answer)
        })?;
        let path = self.folder.join("leases.log");
        Ok(WrittenDecision { answer, log, path })
    }

    /// Lets time pass, then writes down what `more` finds, and lets whoever waited for that have
    /// it. Gives the state afterwards.
    ///
    /// # Errors
    /// As [`Database::apply_request`].
    pub fn record_events(
        &mut self,
        policy: &Policy,
        world: &dyn LeaseSystem,
        more: impl FnOnce(&LeaseState) -> Vec<LeaseEvent>,
    ) -> Result<LeaseState, LeaseError> {
        let (state, log) = self.change(world, |state, seen| {
            let mut events = advance_time(state, policy, seen);
            let found = more(state);
            if !found.is_empty() {
                found.iter().for_each(|event| state.apply(event));
                events.extend(found);
                events.extend(advance_time(state, policy, seen));
            }
            (events, state.clone())
        })?;
        self.sync(log)?;
        Ok(state)
    }

    /// Reads, decides and writes under the lock; gives the log where it was written to.
    fn change<T>(
        &mut self,
        world: &dyn LeaseSystem,
        decide: impl FnOnce(&mut LeaseState, &super::SystemObservation) -> (Vec<LeaseEvent>, T),
    ) -> Result<(T, Option<File>), LeaseError> {
        let mut open = self.open()?;
        let seen = world.see(&open.known.state).ok_or(LeaseError::NoClock)?;
        let (events, told) = decide(&mut open.known.state, &seen);
        if events.is_empty() {
            self.known = Some(open.known);
            return Ok((told, None));
        }
        let line = log::decision_line(&events);
        let written = log::append(&mut open.log, open.known.length, &line);
        written.map_err(self.at("write", "leases.log"))?;
        open.known.length += line.len() as u64;
        let LockedLog { log, known, _lock } = open;
        if known.length - known.first > COMPACT_GROWTH_BYTES + 2 * known.first {
            // The decision stands already; a log that stays long is no reason to take it back.
            if let Ok(compacted) = self.write_first(&known.state) {
                self.known = Some(compacted);
                return Ok((told, None));
            }
        }
        self.known = Some(known);
        Ok((told, Some(log)))
    }

    /// Waits until what was written survives a power failure. The lock is not held meanwhile, so
    /// that those who come at once wait for the disk together.
    fn sync(&self, log: Option<File>) -> Result<(), LeaseError> {
        match log {
            Some(log) => log.sync_data().map_err(self.at("write", "leases.log")),
            None => Ok(()),
        }
    }

    fn at(&self, action: &'static str, name: &str) -> impl FnOnce(io::Error) -> LeaseError + use<> {
        let path = self.folder.join(name);
        move |source| LeaseError::File {
            action,
            path,
            source,
        }
    }

    fn open(&mut self) -> Result<LockedLog, LeaseError> {
        fs::create_dir_all(&self.folder).map_err(self.at("create", ""))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.folder.join("lock"))
            .map_err(self.at("open", "lock"))?;
        loop {
            match flock(&lock, FlockOperation::LockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.at("lock", "lock")(error.into())),
            }
        }
        let path = self.folder.join("leases.log");
        let opened = OpenOptions::new().read(true).append(true).open(&path);
        let mut log = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let first = self.write_first(&LeaseState::default());
                self.known = Some(first.map_err(self.at("write", "leases.log"))?);
                let opened = OpenOptions::new().read(true).append(true).open(&path);
                opened.map_err(self.at("open", "leases.log"))?
            }
            opened => opened.map_err(self.at("open", "leases.log"))?,
        };
        let known = self.read(&mut log)?;
        Ok(LockedLog {
            log,
            known,
            _lock: lock,
        })
    }

    /// The state, of which nothing is read twice.
    fn read(&mut self, log: &mut File) -> Result<CachedLog, LeaseError> {
        let found = log.metadata().map_err(self.at("read", "leases.log"))?;
        let head = Self::head(log).map_err(self.at("read", "leases.log"))?;
        let same = |known: &CachedLog| known.head == head && known.length <= found.len();
        let (start, first, mut state) = match self.known.take().filter(same) {
            Some(known) => (known.length, Some(known.first), Some(known.state)),
            None => (0, None, None),
        };
        let mut bytes = Vec::new();
        let read = log
            .seek(SeekFrom::Start(start))
            .and_then(|_| log.read_to_end(&mut bytes));
        read.map_err(self.at("read", "leases.log"))?;
        let path = self.folder.join("leases.log");
        let counted = log::replay_lines(&bytes, &mut state).map_err(|wrong| match wrong {
            LogCorruption::Damaged(line) => LeaseError::Damaged {
                path: path.clone(),
                line,
            },
            LogCorruption::Newer(format) => LeaseError::Newer {
                path: path.clone(),
                format,
            },
        })?;
        let length = start + counted as u64;
        if counted < bytes.len() {
            // What a killed writer left must not stand before the next line.
            let cut = log.set_len(length);
            cut.map_err(self.at("write", "leases.log"))?;
        }
        let first = first.unwrap_or_else(|| {
            let end = bytes.iter().position(|&byte| byte == b'\n');
            end.map_or(0, |end| end as u64 + 1)
        });
        Ok(CachedLog {
            head,
            length,
            first,
            state: state.ok_or(LeaseError::Damaged { path, line: 1 })?,
        })
    }

    fn head(log: &File) -> io::Result<LogHeader> {
        let mut bytes = [0; log::HEAD];
        let mut read = 0;
        while read < bytes.len() {
            match log.read_at(&mut bytes[read..], read as u64)? {
                0 => break,
                more => read += more,
            }
        }
        Ok(log::log_header(&bytes[..read]))
    }

    /// Replaces the log by one that begins with `state`.
    fn write_first(&self, state: &LeaseState) -> io::Result<CachedLog> {
        let (new, log) = (
            self.folder.join("leases.log.new"),
            self.folder.join("leases.log"),
        );
        let line = log::first_line(state, generation());
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&new)?;
        let written = file.write_all(&line).and_then(|()| file.sync_all());
        if let Err(error) = written {
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        let before = self.folder.join("leases.log.1");
        let _ = fs::remove_file(&before);
        let _ = fs::hard_link(&log, &before);
        fs::rename(&new, &log)?;
        File::open(&self.folder)?.sync_all()?;
        Ok(CachedLog {
            head: log::log_header(&line),
            length: line.len() as u64,
            first: line.len() as u64,
            state: state.clone(),
        })
    }
}

/// A number that no log had before: nanoseconds since 1970. Where the clock was set back to the
/// very nanosecond, the sum of the first line still tells two logs apart.
fn generation() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}
