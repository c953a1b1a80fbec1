//! What a run compiles when it first runs it, kept for the next run: the kernels of torch.compile and
//! Triton, and extensions that are built when they are loaded.
//!
//! They are code, so nobody gets those of others. There is a folder for each user, environment,
//! project and kind of processor; only its user opens it, and nothing of the store is in it. What runs
//! is not trusted with more: in a folder of theirs nothing is done by a path ([`sconce_base::tree`]). The
//! project counts by its path, its inode and when its folder was made: a clone with the same lock
//! elsewhere, or in the place of one that was removed, has a folder of its own.
//!
//! Runs of one project at the same time share its folder, as several processes of one machine share
//! PyTorch's and Triton's own: both write a file under another name and rename it, and inductor locks
//! (flock) what it compiles. Extensions have a file that says that one is being built, for which others wait
//! without end, also when its builder was killed: one run at a time has those that are kept.

mod owner;

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sconce_base::tree::{TreeDirectory, measure_disk_space, remove_tree};
use sconce_schema::lock::LockedVersions;
use sconce_schema::request::{ContainerUser, Mount, RunRequest};
use sconce_schema::{Bytes, Sha256};
use sha2::Digest as _;

pub use owner::KernelCacheOwner;

use crate::context::AppContext;
use crate::failure::Result;
use crate::file_action::FileAction;
use crate::reporter::AppEvent;
use crate::run_temp_dir::file_error;

/// Where it is inside.
const CONTAINER_DIR: &str = "/var/cache/sconce";
/// What says where kernels are kept (torch/_inductor/runtime/cache_dir_utils.py, triton/knobs.py,
/// torch/utils/cpp_extension.py), and the folder of each.
const VARIABLES: [(&str, &str); 3] = [
    ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
    ("TRITON_CACHE_DIR", "triton"),
    ("TORCH_EXTENSIONS_DIR", EXTENSIONS),
];
const EXTENSIONS: &str = "extensions";
/// The file by which processes that build one extension wait for each other.
const LOCK_FILE: &str = "lock";
/// All folders of a user together, unless their configuration says otherwise.
pub const DEFAULT_CACHE_SIZE: Bytes = Bytes::from_gib(2);
/// uid and gid of [`ContainerUser::Plain`].
const PLAIN: u32 = 1000;

/// The folder that all of a user's are in, and what they may take together.
#[derive(Debug, Clone)]
pub struct KernelCache {
    /// Its directory.
    pub root: PathBuf,
    /// What it may take on the disk; 0: nothing is kept.
    pub most: Bytes,
}

/// A folder that is in use, for as long as this is.
#[derive(Debug)]
pub struct KernelCacheGuard {
    all: KernelCache,
    folder: PathBuf,
    /// Locked (flock), shared with other runs.
    lock: File,
    /// Locked by the run that has the extensions that are kept there.
    extensions: Option<File>,
}

impl KernelCache {
    /// The folder of `owner`, made if it is not there; `None` where none are to be kept.
    ///
    /// # Errors
    /// It cannot be made, or is not the caller's alone.
    pub fn open(&self, owner: &KernelCacheOwner<'_>) -> Result<Option<KernelCacheGuard>> {
        if self.most.0 == 0 {
            return Ok(None);
        }
        let path = &self.root;
        private_to_caller(path)
            .map_err(|error| file_error(FileAction::KeepKernelsIn, path, error))?;
        let key = owner.cache_key();
        let folder = self.root.join(&key);
        let open = || {
            let lock = self.lock(&key)?;
            make(&folder, owner.user)?;
            Ok((lock, self.lock_extensions(&key)?))
        };
        let locked =
            open().map_err(|error| file_error(FileAction::KeepKernelsIn, &folder, error))?;
        let (lock, extensions) = locked;
        Ok(Some(KernelCacheGuard {
            all: self.clone(),
            folder,
            lock,
            extensions,
        }))
    }

    /// As [`KernelCache::open`]; what goes wrong is said, as a run is right without.
    pub fn open_or_say(
        &self,
        owner: &KernelCacheOwner<'_>,
        context: &AppContext,
    ) -> Option<KernelCacheGuard> {
        self.open(owner).unwrap_or_else(|error| {
            context.report(&AppEvent::KernelsNotKept(&error));
            None
        })
    }

    /// The lock of a folder, held shared. Whoever removes the folder removes it too.
    fn lock(&self, key: &str) -> io::Result<File> {
        let path = self.lock_path(key);
        loop {
            let lock = open_lock(&path, true)?;
            lock.lock_shared()?;
            if is_named(&lock, &path) {
                return Ok(lock);
            }
        }
    }

    /// The lock of the extensions of a folder that is in use, unless another run has it: a lock of their own, as
    /// turning one kind of flock into another lets go of it in between.
    fn lock_extensions(&self, key: &str) -> io::Result<Option<File>> {
        let lock = open_lock(&self.extensions_lock_path(key), true)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Whoever said that it builds one was killed.
        remove_batons(&self.root.join(key));
        Ok(Some(lock))
    }

    fn lock_path(&self, key: &str) -> PathBuf {
        self.root.join(format!("{key}.lock"))
    }

    fn extensions_lock_path(&self, key: &str) -> PathBuf {
        self.root.join(format!("{key}.extensions"))
    }

    /// Every folder: when it was last used, its key, and the disk space that it took then.
    fn all(&self) -> Vec<(SystemTime, String, u64)> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let mut all: Vec<_> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let key = name.strip_suffix(".lock")?.to_owned();
                let used = entry.metadata().ok()?.modified().ok()?;
                let noted = fs::read_to_string(entry.path()).ok()?.trim().parse();
                // A run that was killed has noted nothing.
                let size = noted.unwrap_or_else(|_| measure_disk_space(&self.root.join(&key)));
                Some((used, key, size))
            })
            .collect();
        all.sort();
        all
    }

    /// Removes a folder that no run uses. Whether it is gone.
    fn remove(&self, key: &str) -> bool {
        let lock = open_lock(&self.lock_path(key), false);
        lock.is_ok_and(|lock| self.remove_by(&lock, key))
    }

    /// The same by a lock that is open. It may have lost its name to another one, and its folder to a run that came
    /// since.
    fn remove_by(&self, lock: &File, key: &str) -> bool {
        let path = self.lock_path(key);
        let is_unused = lock.try_lock().is_ok() && is_named(lock, &path);
        if !is_unused || remove_tree(&self.root.join(key)).is_err() {
            return false;
        }
        // An empty file, which costs nothing where it stays.
        let _ = fs::remove_file(self.extensions_lock_path(key));
        fs::remove_file(&path).is_ok()
    }

    /// Removes folders that are too large by themselves, then those that were used longest ago, until the rest is not
    /// too large. One that is too large and in use costs no other its place.
    fn shrink(&self) {
        let most = self.most.0;
        let (large, rest): (Vec<_>, Vec<_>) =
            (self.all().into_iter()).partition(|all| all.2 > most);
        for (_, key, _) in large {
            self.remove(&key);
        }
        let sizes = rest.iter().map(|(.., size)| *size);
        let mut total = sizes.fold(0, u64::saturating_add);
        for (_, key, size) in rest {
            if total <= most {
                return;
            }
            if self.remove(&key) {
                total = total.saturating_sub(size);
            }
        }
    }

    /// Removes what was not used for `unused`; with `dry`, nothing. How many folders, and their disk
    /// space.
    pub fn prune(&self, unused: Duration, dry: bool) -> (usize, Bytes) {
        let old = |used: &SystemTime| used.elapsed().is_ok_and(|age| age >= unused);
        let all = self.all().into_iter().filter(|(used, ..)| old(used));
        let gone = all.filter(|(_, key, _)| dry || self.remove(key));
        gone.fold((0, Bytes(0)), |(count, bytes), (.., size)| {
            (count + 1, Bytes(bytes.0.saturating_add(size)))
        })
    }
}

impl KernelCacheGuard {
    /// Has `request` keep its kernels there. A variable that it has already stays.
    pub fn apply_to(&self, request: &mut RunRequest) {
        let free = VARIABLES.iter().filter(|(name, folder)| {
            let is_shared = self.extensions.is_some() || *folder != EXTENSIONS;
            is_shared && !request.env.contains_key(*name)
        });
        let told: Vec<(String, String)> = free
            .map(|(name, folder)| ((*name).to_owned(), format!("{CONTAINER_DIR}/{folder}")))
            .collect();
        if told.is_empty() {
            return;
        }
        request.env.extend(told);
        request.mounts.push(Mount {
            source: self.folder.clone(),
            target: CONTAINER_DIR.into(),
            read_only: false,
        });
    }
}

impl Drop for KernelCacheGuard {
    fn drop(&mut self) {
        self.extensions = None;
        // What it takes is looked at once a run, and kept: others are not looked through again.
        // In one write of one length, as two runs may end at once.
        let size = format!("{:<20}\n", measure_disk_space(&self.folder));
        let noted = self.lock.write_all_at(size.as_bytes(), 0);
        let _ = noted.and_then(|()| self.lock.set_modified(SystemTime::now()));
        let _ = self.lock.unlock();
        self.all.shrink();
    }
}

/// Opened to read and write, which NFS wants of a file that is locked (flock(2)).
fn open_lock(path: &Path, create: bool) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(create)
        .mode(0o600)
        .open(path)
}

/// Whether a path still leads to an open file.
fn is_named(file: &File, path: &Path) -> bool {
    let id = |meta: io::Result<fs::Metadata>| meta.map(|meta| (meta.dev(), meta.ino())).ok();
    let own = id(file.metadata());
    own.is_some() && own == id(path.symlink_metadata())
}

/// Whether runs of an environment compile kernels.
pub fn are_compiled(versions: &LockedVersions) -> bool {
    versions.torch.is_some() || versions.triton.is_some()
}

/// Of a lock's text.
pub fn digest_text(text: &str) -> String {
    Sha256(sha2::Sha256::digest(text).into()).to_string()
}

/// Makes a folder of the caller's alone, or sees that one that is there is.
fn private_to_caller(path: &Path) -> io::Result<()> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made?;
    let meta = path.symlink_metadata()?;
    let caller = rustix::process::geteuid().as_raw();
    if !meta.is_dir() || meta.uid() != caller || meta.mode() & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is not a folder of the caller's that nobody else opens (mode 0700)",
        ));
    }
    Ok(())
}

/// Makes the folder that is mounted, which is the user's inside. Where the machine's root starts a
/// run as a plain user, it belongs to that one; those above it are root's alone.
fn make(folder: &Path, user: ContainerUser) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    // One that is there may be of a run that was killed before it gave it away.
    let is_theirs = folder.symlink_metadata()?.uid() == PLAIN;
    if user == ContainerUser::Plain && sconce_run::is_machine_root() && !is_theirs {
        std::os::unix::fs::lchown(folder, Some(PLAIN), Some(PLAIN))?;
    }
    Ok(())
}

/// Removes the files that say that an extension is being built: `extensions/py313_cpu/NAME/lock`. Other runs have
/// the folder meanwhile, and may put a link in the place of whatever is in it.
fn remove_batons(folder: &Path) {
    let extensions =
        TreeDirectory::open(folder).and_then(|kept| kept.open_subdir(EXTENSIONS.as_ref()));
    let names = |folder: &TreeDirectory| folder.list_names().unwrap_or_default();
    let Ok(extensions) = extensions else { return };
    for name in names(&extensions) {
        let Ok(kind) = extensions.open_subdir(&name) else {
            continue;
        };
        let _ = kind.remove_file(LOCK_FILE.as_ref());
        for name in names(&kind) {
            let extension = kind.open_subdir(&name);
            let _ = extension.and_then(|extension| extension.remove_file(LOCK_FILE.as_ref()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::request::RunRoot;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    fn owner<'a>(environment: &str, folder: &'a Path) -> KernelCacheOwner<'a> {
        KernelCacheOwner {
            environment: environment.to_owned(),
            folders: vec![folder],
            user: ContainerUser::Root,
            virtual_gpus: false,
        }
    }

    fn kernels(place: &Path, most: u64) -> KernelCache {
        KernelCache {
            root: place.join("kernels"),
            most: Bytes(most),
        }
    }

    fn opened(kernels: &KernelCache, owner: &KernelCacheOwner<'_>) -> KernelCacheGuard {
        kernels.open(owner).ok().unwrap().unwrap()
    }

    #[test]
    fn what_is_kept_is_there_for_the_next_run_and_nobody_else_opens_it() {
        let place = tempfile::tempdir().unwrap();
        let kernels = kernels(place.path(), 1 << 30);
        let one = opened(&kernels, &owner("a", place.path()));
        // Two at once are no trouble.
        let beside = opened(&kernels, &owner("a", place.path()));
        assert_eq!(one.folder, beside.folder);
        for path in [&kernels.root, &one.folder] {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
        fs::write(one.folder.join("kernel"), [1; 5000]).unwrap();
        drop((one, beside));
        let again = opened(&kernels, &owner("a", place.path()));
        assert!(again.folder.join("kernel").exists());
        assert!(
            !opened(&kernels, &owner("b", place.path()))
                .folder
                .join("kernel")
                .exists()
        );
        drop(again);
        fs::set_permissions(&kernels.root, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(kernels.open(&owner("a", place.path())).is_err());
        let none = KernelCache {
            most: Bytes(0),
            ..kernels
        };
        assert!(none.open(&owner("a", place.path())).ok().unwrap().is_none());
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let place = tempfile::tempdir().unwrap();
        let kernels = kernels(place.path(), 40 << 10);
        let fill = |name: &str, bytes: usize| {
            let kept = opened(&kernels, &owner(name, place.path()));
            fs::write(kept.folder.join("kernel"), vec![1; bytes]).unwrap();
            fs::create_dir(kept.folder.join("closed")).unwrap();
            fs::set_permissions(
                kept.folder.join("closed"),
                fs::Permissions::from_mode(0o000),
            )
            .unwrap();
            kept.folder.clone()
        };
        let old = fill("old", 16 << 10);
        let held = opened(&kernels, &owner("held", place.path()));
        let young = fill("young", 16 << 10);
        assert!(old.exists());
        let new = fill("new", 16 << 10);
        assert!(!old.exists() && held.folder.exists() && young.exists() && new.exists());
        // What is too large by itself begins anew the next time, and costs no other its place: nor while it is in use.
        let large = fill("large", 64 << 10);
        assert!(!large.exists() && young.exists() && new.exists());
        let large = opened(&kernels, &owner("large", place.path()));
        fs::write(large.folder.join("kernel"), vec![1; 64 << 10]).unwrap();
        drop(opened(&kernels, &owner("large", place.path())));
        assert!(large.folder.exists() && young.exists() && new.exists());
        drop(large);
        assert_eq!(kernels.prune(Duration::from_secs(3600), false).0, 0);
        let left = kernels.all().len();
        let (count, _) = kernels.prune(Duration::ZERO, true);
        assert_eq!((count, kernels.all().len()), (left, left));
        kernels.prune(Duration::ZERO, false);
        // A run's own stays.
        assert!(held.folder.exists());
        assert_eq!(kernels.all().len(), 1);
    }

    #[test]
    fn a_killed_build_of_an_extension_holds_up_nobody() {
        let place = tempfile::tempdir().unwrap();
        let kernels = kernels(place.path(), 1 << 30);
        let one = opened(&kernels, &owner("a", place.path()));
        let build = one.folder.join("extensions/py313_cpu/mine");
        fs::create_dir_all(&build).unwrap();
        fs::write(build.join("lock"), "").unwrap();
        // Another run builds it now.
        let beside = opened(&kernels, &owner("a", place.path()));
        assert!(build.join("lock").exists());
        let told = |kept: &KernelCacheGuard| {
            let mut request = RunRequest::new("a", RunRoot::Host, vec!["true".to_owned()]);
            kept.apply_to(&mut request);
            ["TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR"].map(|name| request.env.contains_key(name))
        };
        assert_eq!((told(&one), told(&beside)), ([true, true], [false, true]));
        drop(one);
        // It was killed: whoever has the extensions next finds nothing to wait for, be others there or not.
        let next = opened(&kernels, &owner("a", place.path()));
        assert!(told(&next) == [true, true] && !build.join("lock").exists());
        assert_eq!(told(&beside), [false, true]);
        drop((next, beside));
        fs::write(build.join("lock"), "").unwrap();
        // A link leads out of the folder.
        let outside = place.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("lock"), "").unwrap();
        std::os::unix::fs::symlink(&outside, build.with_file_name("link")).unwrap();
        let alone = opened(&kernels, &owner("a", place.path()));
        assert!(!build.join("lock").exists() && outside.join("lock").exists());
        assert_eq!(told(&alone), [true, true]);
    }

    /// Whoever runs as another user inside gets files of the one who starts runs removed no more.
    #[test]
    fn a_run_that_puts_links_in_the_place_of_folders_has_nothing_else_cleared() {
        const FOLDERS: usize = 100;
        // In memory where that can be: the more rounds, the surer one is lost.
        let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let place = place.unwrap();
        let victim = place.path().join("victim");
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("lock"), "").unwrap();
        let folder = place.path().join("folder");
        let pairs: Vec<[PathBuf; 2]> = (0..FOLDERS)
            .map(|number| {
                ["extensions/k", "links"].map(|at| folder.join(at).join(number.to_string()))
            })
            .collect();
        fs::create_dir_all(folder.join("links")).unwrap();
        for [extension, link] in &pairs {
            fs::create_dir_all(extension).unwrap();
            std::os::unix::fs::symlink(&victim, link).unwrap();
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for [extension, link] in pairs.iter().cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let (cwd, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
                    let _ = rustix::fs::renameat_with(cwd, extension, cwd, link, flags);
                }
            });
            let end = Instant::now() + Duration::from_secs(2);
            while Instant::now() < end && victim.join("lock").exists() {
                remove_batons(&folder);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(victim.join("lock").exists());
    }

    #[test]
    fn locks_are_opened_as_nfs_wants_it() {
        let place = tempfile::tempdir().unwrap();
        for create in [true, false] {
            let lock = open_lock(&place.path().join("a.lock"), create).unwrap();
            let flags = rustix::fs::fcntl_getfl(&lock).unwrap();
            assert!(flags.contains(rustix::fs::OFlags::RDWR), "{flags:?}");
        }
    }

    /// A run that was killed between the two would have had the folder closed to all that follow.
    #[test]
    fn a_folder_that_is_there_is_given_to_the_runs_user() {
        if !sconce_run::is_machine_root() {
            sconce_testkit::report_skip("not-root", "gives folders to others");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("folder");
        fs::create_dir(&folder).unwrap();
        make(&folder, ContainerUser::Root).unwrap();
        assert_eq!(folder.metadata().unwrap().uid(), 0);
        make(&folder, ContainerUser::Plain).unwrap();
        let owner = folder.metadata().unwrap();
        assert_eq!((owner.uid(), owner.gid()), (PLAIN, PLAIN));
    }

    #[test]
    fn a_lock_that_lost_its_name_removes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let kernels = kernels(place.path(), 1 << 30);
        let key = {
            let kept = opened(&kernels, &owner("a", place.path()));
            kept.folder
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        };
        let stale = open_lock(&kernels.lock_path(&key), false).unwrap();
        assert!(kernels.remove(&key));
        let next = opened(&kernels, &owner("a", place.path()));
        assert!(!kernels.remove_by(&stale, &key));
        assert!(next.folder.exists() && kernels.lock_path(&key).exists());
    }

    #[test]
    fn what_a_folder_takes_is_noted_by_runs_that_end_together_and_measured_after_a_kill() {
        let place = tempfile::tempdir().unwrap();
        let kernels = kernels(place.path(), 1 << 30);
        let two = [(); 2].map(|()| opened(&kernels, &owner("a", place.path())));
        fs::write(two[0].folder.join("kernel"), vec![1; 8 << 10]).unwrap();
        let key = two[0]
            .folder
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        // Nothing is noted yet, as after a kill.
        assert!(kernels.all()[0].2 >= 8 << 10);
        let taken = measure_disk_space(&two[0].folder);
        drop(two);
        assert_eq!(kernels.all()[0].2, taken);
        let note = fs::read_to_string(kernels.lock_path(&key)).unwrap();
        assert_eq!((note.len(), note.trim()), (21, taken.to_string().as_str()));
    }

    #[test]
    fn variables_that_are_set_stay() {
        let place = tempfile::tempdir().unwrap();
        let kept = opened(&kernels(place.path(), 1 << 30), &owner("a", place.path()));
        let mut request = RunRequest::new("a", RunRoot::Host, vec!["true".to_owned()]);
        request
            .env
            .insert("TRITON_CACHE_DIR".to_owned(), "/x".to_owned());
        kept.apply_to(&mut request);
        assert_eq!(request.env["TRITON_CACHE_DIR"], "/x");
        assert_eq!(
            request.env["TORCHINDUCTOR_CACHE_DIR"],
            "/var/cache/sconce/inductor"
        );
        assert_eq!(request.mounts.len(), 1);
        for (name, _) in VARIABLES {
            request.env.insert(name.to_owned(), "/x".to_owned());
        }
        kept.apply_to(&mut request);
        assert_eq!(request.mounts.len(), 1);
    }
}
