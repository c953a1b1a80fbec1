//! Who makes an item and who uses it: one file for each item, locked by flock(2).
//!
//! Whoever makes, replaces or removes an item holds its lock alone; whoever has it stay for a run
//! shares it. The kernel gives a lock back when its process ends, however it ends.
//!
//! Nobody sleeps in flock(2). A sleeper would wait for all who share the lock, which a run does for
//! as long as its command takes, though the item has long been good. So a lock is tried, and between
//! two tries its caller looks whether there is anything left to wait for.
//!
//! The file itself says who holds it alone and what for, for those who wait. That is a courtesy: an
//! older Sconce says nothing, and what a killed one said is read by nobody, as its lock is free.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sconce_base::locks::are_unsupported;
use sconce_schema::{MakerProcess, WaitCause};

use crate::StoreError;
use crate::file_system::is_local;

/// Locked by whoever tries a lock that it may not get. No item has such a name.
const ATTEMPT_LOCK_FILE: &str = ".trying";
/// How long a try waits for another one, which takes microseconds, unless its process was stopped.
const ATTEMPT_LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// More bytes than what a holder says of itself has.
const MAX_NOTE_BYTES: usize = 1024;

/// A lock that is held: the right to make an item, or to have it stay. Given back when it is dropped,
/// and by the kernel when the process ends.
#[derive(Debug)]
pub struct ItemGuard {
    /// `None` where locks tell nobody anything, and whoever works has a directory of its own.
    file: Option<File>,
    /// Whether it is held alone, and the file says by whom.
    alone: bool,
}

impl ItemGuard {
    /// The right to a directory that nobody else knows.
    pub(crate) fn of_own_dir() -> Self {
        Self {
            file: None,
            alone: false,
        }
    }
}

impl Drop for ItemGuard {
    fn drop(&mut self) {
        if let (true, Some(file)) = (self.alone, &self.file) {
            let _ = file.set_len(0);
        }
    }
}

/// What came of a try to have an item stay.
#[derive(Debug)]
pub(crate) enum ShareAttempt {
    /// It stays.
    Shared(ItemGuard),
    /// Another one holds its lock alone.
    Taken,
    /// This process cannot lock it: the store is another user's or may not be written, or has no locks.
    Impossible,
}

/// What came of a try to hold a lock alone.
#[derive(Debug)]
pub(crate) enum LockAttempt {
    /// It is held.
    Alone(ItemGuard),
    /// Another one holds it alone, and says who it is.
    Taken(Option<MakerProcess>),
    /// Others share it.
    Shared,
}

impl LockAttempt {
    /// The lock, or who is waited for.
    pub(crate) fn into_guard(self) -> Result<ItemGuard, WaitCause> {
        match self {
            Self::Alone(held) => Ok(held),
            Self::Taken(maker) => Err(maker.map_or(WaitCause::Unknown, WaitCause::Maker)),
            Self::Shared => Err(WaitCause::Users),
        }
    }
}

/// The lock of an item.
#[derive(Debug, Clone)]
pub(crate) struct ItemLock {
    path: PathBuf,
}

impl ItemLock {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Opened as it is: what is in it belongs to its holder. Shared file systems that lock by byte
    /// ranges (nfs(5)) lock alone only what is open for writing.
    fn open(&self, path: &Path) -> Result<File, StoreError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let opened = options.mode(0o600).open(path);
        opened.map_err(StoreError::from_io("open", path))
    }

    /// Tries to hold the lock alone, to do `work`: `installs six`.
    pub(crate) fn try_lock_exclusive(&self, work: &str) -> Result<LockAttempt, StoreError> {
        let trying = self.trying()?;
        let file = self.open(&self.path)?;
        if locks(file.try_lock(), &self.path)? {
            return Ok(LockAttempt::Alone(self.noted(file, work)));
        }
        if !locks(file.try_lock_shared(), &self.path)? {
            return Ok(LockAttempt::Taken(note(&file)));
        }
        // Either it is shared, or who held it alone has just let go. As one process tries at a time,
        // nobody new holds it alone now.
        file.unlock()
            .map_err(StoreError::from_io("lock", &self.path))?;
        if locks(file.try_lock(), &self.path)? {
            return Ok(LockAttempt::Alone(self.noted(file, work)));
        }
        Ok(match trying {
            Some(_) => LockAttempt::Shared,
            None => LockAttempt::Taken(None),
        })
    }

    /// Tries to share the lock. Its file is opened for reading, which suffices on every file system (nfs(5)), and
    /// made only where it has gone and may be made: whoever made the item has left one.
    pub(crate) fn try_lock_shared(&self) -> Result<ShareAttempt, StoreError> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => match self.open(&self.path) {
                Err(StoreError::Disk { source, .. }) if is_refused(&source) => {
                    return Ok(ShareAttempt::Impossible);
                }
                made => made?,
            },
            Err(error) if is_refused(&error) => return Ok(ShareAttempt::Impossible),
            opened => opened.map_err(StoreError::from_io("open", &self.path))?,
        };
        match locks(file.try_lock_shared(), &self.path) {
            Ok(true) => Ok(ShareAttempt::Shared(ItemGuard {
                file: Some(file),
                alone: false,
            })),
            Ok(false) => Ok(ShareAttempt::Taken),
            Err(StoreError::NoLocks { .. }) => Ok(ShareAttempt::Impossible),
            Err(error) => Err(error),
        }
    }

    /// Why nobody can lock anything in the directory of locks `dir`, where that is so: tried, as nothing else tells.
    pub(crate) fn find_obstacle(dir: &Path) -> Option<StoreError> {
        let lock = Self::new(dir.join(ATTEMPT_LOCK_FILE));
        let tried = lock.open(&lock.path);
        let tried = tried.and_then(|file| locks(file.try_lock_shared(), &lock.path));
        tried
            .err()
            .filter(|error| matches!(error, StoreError::NoLocks { .. }))
    }

    /// Writes into a lock that is held alone who holds it. That this fails is no failure.
    fn noted(&self, file: File, work: &str) -> ItemGuard {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let name = rustix::system::uname();
        let text = format!(
            "{}\n{}\n{}\n{work}\n",
            std::process::id(),
            name.nodename().to_string_lossy(),
            since.unwrap_or_default().as_secs(),
        );
        let _ = file.set_len(0);
        let _ = file.write_all_at(text.as_bytes(), 0);
        // NFS keeps what was written in this machine's memory, and those who wait may be on others.
        if !is_local(&self.path) {
            let _ = file.sync_data();
        }
        ItemGuard {
            file: Some(file),
            alone: true,
        }
    }

    /// The right to try. `None` where another process keeps it for long, because it was stopped.
    fn trying(&self) -> Result<Option<File>, StoreError> {
        let path = self.path.with_file_name(ATTEMPT_LOCK_FILE);
        let file = self.open(&path)?;
        let mut left = ATTEMPT_LOCK_TIMEOUT;
        let pause = Duration::from_millis(1);
        while !locks(file.try_lock(), &path)? {
            if left.is_zero() {
                return Ok(None);
            }
            thread::sleep(pause);
            left = left.saturating_sub(pause);
        }
        Ok(Some(file))
    }
}

/// Whether an error says that this user, or anybody, may not write there.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// Whether a try got the lock.
fn locks(tried: Result<(), TryLockError>, path: &Path) -> Result<bool, StoreError> {
    use rustix::io::Errno;
    match tried {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => {
            // Some answer that the call is wrong.
            let is_invalid = Errno::from_io_error(&source) == Some(Errno::INVAL);
            Err(match is_invalid || are_unsupported(&source) {
                true => StoreError::NoLocks {
                    path: path.to_owned(),
                    source,
                },
                false => StoreError::from_io("lock", path)(source),
            })
        }
    }
}

/// Who holds the lock, as that process wrote it.
fn note(file: &File) -> Option<MakerProcess> {
    let mut bytes = vec![0; MAX_NOTE_BYTES];
    let length = read_up_to(file, &mut bytes).ok()?;
    parse_note(str::from_utf8(&bytes[..length]).ok()?)
}

fn read_up_to(file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < bytes.len() {
        match file.read_at(&mut bytes[at..], at as u64)? {
            0 => break,
            n => at += n,
        }
    }
    Ok(at)
}

/// Four lines: process id, machine, seconds since 1970, what it does. Another user of the same store
/// may have written it, so nothing in it moves a terminal's cursor.
fn parse_note(text: &str) -> Option<MakerProcess> {
    let mut lines = text.lines();
    let pid = lines.next()?.parse().ok()?;
    let host: String = plain(lines.next()?);
    let seconds = lines.next()?.parse().ok()?;
    Some(MakerProcess {
        pid,
        host,
        since: UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?,
        work: plain(lines.next()?),
    })
}

fn plain(text: &str) -> String {
    let shown = text
        .chars()
        .filter(|c| !sconce_base::text::is_unprintable(*c));
    shown.take(200).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sconce_schema::{Hint as _, exit};

    use super::*;

    fn lock() -> (tempfile::TempDir, ItemLock) {
        let folder = tempfile::tempdir().unwrap();
        let lock = ItemLock::new(folder.path().join("kind~key"));
        (folder, lock)
    }

    fn share(lock: &ItemLock) -> ItemGuard {
        match lock.try_lock_shared().unwrap() {
            ShareAttempt::Shared(guard) => guard,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_alone_or_many_and_who_is_told() {
        let (_folder, lock) = lock();
        let LockAttempt::Alone(maker) = lock.try_lock_exclusive("installs demo.whl").unwrap()
        else {
            panic!("nobody holds it");
        };
        assert!(matches!(
            lock.try_lock_shared().unwrap(),
            ShareAttempt::Taken
        ));
        let LockAttempt::Taken(Some(told)) = lock.try_lock_exclusive("wants it too").unwrap()
        else {
            panic!("it says who it is");
        };
        assert_eq!(told.pid, std::process::id());
        assert_eq!(told.work, "installs demo.whl");
        assert!(!told.host.is_empty() && told.since <= SystemTime::now());
        drop(maker);
        assert_eq!(std::fs::read(&lock.path).unwrap(), b"");

        let users = [share(&lock), share(&lock)];
        for _ in 0..3 {
            assert!(matches!(
                lock.try_lock_exclusive("waits").unwrap(),
                LockAttempt::Shared
            ));
        }
        drop(users);
        assert!(matches!(
            lock.try_lock_exclusive("may").unwrap(),
            LockAttempt::Alone(_)
        ));
    }

    #[test]
    fn an_older_sconce_says_nothing() {
        let (_folder, lock) = lock();
        let file = File::create(&lock.path).unwrap();
        file.lock().unwrap();
        assert!(matches!(
            lock.try_lock_exclusive("waits").unwrap(),
            LockAttempt::Taken(None)
        ));
        file.unlock().unwrap();
        file.lock_shared().unwrap();
        assert!(matches!(
            lock.try_lock_exclusive("waits").unwrap(),
            LockAttempt::Shared
        ));
    }

    /// Many that try at once never take each other for users.
    #[test]
    fn those_who_try_are_no_users() {
        let (_folder, lock) = lock();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let tried = lock.try_lock_exclusive("tries").unwrap();
                        assert!(!matches!(tried, LockAttempt::Shared));
                    }
                });
            }
        });
    }

    /// A process that was stopped while it tried does not stop the others.
    #[test]
    fn a_try_that_was_stopped_holds_nobody_up() {
        let (_folder, lock) = lock();
        let stopped = lock.trying().unwrap();
        assert!(matches!(
            lock.try_lock_exclusive("goes on").unwrap(),
            LockAttempt::Alone(_)
        ));
        let _user = share(&lock);
        // Without the right to try, nothing is known for sure.
        assert!(matches!(
            lock.try_lock_exclusive("waits").unwrap(),
            LockAttempt::Taken(None)
        ));
        drop(stopped);
        assert!(matches!(
            lock.try_lock_exclusive("waits").unwrap(),
            LockAttempt::Shared
        ));
    }

    #[test]
    fn a_file_system_without_locks_is_said() {
        use rustix::io::Errno;
        for errno in [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP] {
            let tried = Err(TryLockError::Error(errno.into()));
            let error = locks(tried, Path::new("/store/locks/a")).unwrap_err();
            assert!(matches!(error, StoreError::NoLocks { .. }), "{error:?}");
            assert_eq!(error.exit_code(), exit::STORE);
            assert!(error.hint().unwrap().contains("mount"), "{error:?}");
        }
        let other = Err(TryLockError::Error(Errno::IO.into()));
        let error = locks(other, Path::new("/store/locks/a")).unwrap_err();
        assert!(matches!(error, StoreError::Disk { .. }), "{error:?}");
    }

    proptest! {
        #[test]
        fn no_note_panics_or_moves_the_cursor(text in "(\\PC|[0-9\\n\\x1b\\r]){0,80}") {
            if let Some(maker) = parse_note(&text) {
                prop_assert!(!maker.work.contains(char::is_control));
                prop_assert!(!maker.host.contains(char::is_control));
            }
        }
    }
}
