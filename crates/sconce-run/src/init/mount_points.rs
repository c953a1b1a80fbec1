//! Places inside the root file system, found without ever leaving it: neither a link in an image
//! nor one in a mounted folder leads a mount out (openat2(2), `RESOLVE_IN_ROOT`).

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, FsWord, Mode, OFlags, ResolveFlags, fstat, fstatfs, mkdirat, openat2,
};
use rustix::io::{Errno, Result};

/// `f_type` of /proc and /sys (statfs(2)).
const KERNELS: [FsWord; 2] = [0x9fa0, 0x6265_6572];

/// What a place is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MountPointKind {
    Folder,
    File,
}

/// Opens `path` below `root`, and makes it where it is missing: folders on the way, then an empty
/// file or folder, each with its parent's owner.
pub(super) fn ensure_mount_point(
    root: BorrowedFd<'_>,
    path: &Path,
    kind: MountPointKind,
) -> Result<OwnedFd> {
    let place = match open_in_root(root, path) {
        Err(Errno::NOENT) => {
            let parent = ensure_dir(root, path.parent().unwrap_or(Path::new("/")))?;
            let name = path.file_name().ok_or(Errno::INVAL)?;
            match kind {
                MountPointKind::Folder => make_folder(&parent, name)?,
                MountPointKind::File => make_file(&parent, name)?,
            }
            open_in_root(root, path)?
        }
        other => other?,
    };
    let (found, top) = (fstat(&place)?, fstat(root)?);
    if (found.st_dev, found.st_ino) == (top.st_dev, top.st_ino) {
        return Err(Errno::BUSY);
    }
    // A link in an image must not lead a mount over the kernel's own files, which hide and protect
    // themselves by mounts (CVE-2019-16884). Files of drivers are asked for there by that name.
    let asked = ["/proc", "/sys"].iter().any(|own| path.starts_with(own));
    if !asked && KERNELS.contains(&fstatfs(&place)?.f_type) {
        return Err(Errno::LOOP);
    }
    let is_folder = FileType::from_raw_mode(found.st_mode).is_dir();
    match (kind, is_folder) {
        (MountPointKind::Folder, false) => Err(Errno::NOTDIR),
        (MountPointKind::File, true) => Err(Errno::ISDIR),
        _ => Ok(place),
    }
}

/// Opens the folder `path` below `root`, and makes it and those on the way where they are missing.
pub(super) fn ensure_dir(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    match open_in_root(root, path) {
        Err(Errno::NOENT) => {}
        other => return other,
    }
    let mut so_far = PathBuf::from("/");
    let mut parent = open_in_root(root, &so_far)?;
    for part in path.components() {
        let Component::Normal(name) = part else {
            continue;
        };
        so_far.push(name);
        parent = match open_in_root(root, &so_far) {
            Err(Errno::NOENT) => {
                make_folder(&parent, name)?;
                open_in_root(root, &so_far)?
            }
            other => other?,
        };
    }
    Ok(parent)
}

/// Opens `path` below `root`, links followed within it.
pub(super) fn open_in_root(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    // A rename elsewhere while the path is walked makes the kernel ask for another try.
    for _ in 0..32 {
        match openat2(
            root,
            path,
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        ) {
            Err(Errno::AGAIN) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

fn make_folder(parent: &OwnedFd, name: &OsStr) -> Result<()> {
    match mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        // A link that leads nowhere is there too; it fails when it is opened.
        Err(Errno::EXIST) => return Ok(()),
        other => other?,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    // Whoever owns the parent may have put another folder in its place by now. One with something in
    // it is not given away.
    let mut names = Dir::read_from(&made)?.filter_map(Result::ok);
    if names.any(|entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")) {
        return Ok(());
    }
    same_owner(parent, &made)
}

fn make_file(parent: &OwnedFd, name: &OsStr) -> Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
    let made = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
    same_owner(parent, &made)
}

/// Gives what was made in a mounted folder to that folder's owner. By its descriptor: a name can be
/// exchanged for that of another file while this is done.
fn same_owner(parent: &OwnedFd, made: &OwnedFd) -> Result<()> {
    use rustix::fs::{Gid, Uid};
    let (owner, now) = (fstat(parent)?, fstat(made)?);
    if (owner.st_uid, owner.st_gid) == (now.st_uid, now.st_gid) {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
    match rustix::fs::fchown(made, Some(uid), Some(gid)) {
        // In a user namespace only the caller's own ids exist; then it belongs to the caller.
        Err(Errno::PERM | Errno::INVAL | Errno::OVERFLOW) => Ok(()),
        other => other,
    }
}

/// Makes the link `path` → `target` below `root`; replaces a file or link of that name.
pub(super) fn create_link(root: BorrowedFd<'_>, target: &str, path: &Path) -> Result<()> {
    let parent = ensure_dir(root, path.parent().unwrap_or(Path::new("/")))?;
    let name = path.file_name().ok_or(Errno::INVAL)?;
    match rustix::fs::symlinkat(target, &parent, name) {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
            rustix::fs::symlinkat(target, &parent, name)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    fn root() -> (tempfile::TempDir, OwnedFd) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("root")).unwrap();
        std::fs::create_dir(folder.path().join("outside")).unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let fd = rustix::fs::open(folder.path().join("root"), flags, Mode::empty()).unwrap();
        (folder, fd)
    }

    #[test]
    fn missing_places_are_made() {
        let (folder, root) = root();
        ensure_mount_point(root.as_fd(), Path::new("/a/b/c"), MountPointKind::Folder).unwrap();
        ensure_mount_point(root.as_fd(), Path::new("/a/b/f"), MountPointKind::File).unwrap();
        assert!(folder.path().join("root/a/b/c").is_dir());
        assert!(folder.path().join("root/a/b/f").is_file());
        assert_eq!(
            ensure_mount_point(root.as_fd(), Path::new("/a/b/f"), MountPointKind::Folder)
                .unwrap_err(),
            Errno::NOTDIR
        );
        assert_eq!(
            ensure_mount_point(root.as_fd(), Path::new("/a/b"), MountPointKind::File).unwrap_err(),
            Errno::ISDIR
        );
        assert!(
            ensure_mount_point(root.as_fd(), Path::new("/a/b/f/g"), MountPointKind::File).is_err()
        );
    }

    #[test]
    fn links_stay_inside() {
        let (folder, root) = root();
        let inside = folder.path().join("root");
        symlink("../../../outside", inside.join("up")).unwrap();
        symlink(folder.path().join("outside"), inside.join("absolute")).unwrap();
        symlink("/proc/self/root", inside.join("magic")).unwrap();
        symlink("/nowhere", inside.join("dangling")).unwrap();
        for (name, kind) in [
            ("up/a", MountPointKind::Folder),
            ("absolute/b", MountPointKind::File),
            ("magic/c", MountPointKind::Folder),
        ] {
            let _ = ensure_mount_point(root.as_fd(), &Path::new("/").join(name), kind);
        }
        // A link that leads nowhere inside is an error, not a new file somewhere.
        assert!(
            ensure_mount_point(root.as_fd(), Path::new("/dangling"), MountPointKind::File).is_err()
        );
        assert!(create_link(root.as_fd(), "target", Path::new("/up/link")).is_err());
        let outside = std::fs::read_dir(folder.path().join("outside")).unwrap();
        assert_eq!(outside.count(), 0);
        assert!(!Path::new("/nowhere").exists());
    }

    #[test]
    fn links_replace_files() {
        let (folder, root) = root();
        for target in ["libcuda.so.580", "libcuda.so.1"] {
            create_link(root.as_fd(), target, Path::new("/usr/lib/libcuda.so")).unwrap();
        }
        let made = std::fs::read_link(folder.path().join("root/usr/lib/libcuda.so")).unwrap();
        assert_eq!(made, Path::new("libcuda.so.1"));
    }
}
