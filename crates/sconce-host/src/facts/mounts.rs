//! File systems: /dev/shm, and the store's.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, StatVfs, accessat, statvfs};
use sconce_schema::Bytes;
use sconce_schema::facts::{FilesystemFacts, Shm};

use crate::cgroups::unescape_octal;
use crate::roots::Roots;
use crate::small_files;

/// The mount table: mount points and kinds, in order.
pub(super) struct Mounts(Vec<(PathBuf, String)>);

impl Mounts {
    pub(super) fn read(roots: &Roots) -> Self {
        Self(parse(
            &small_files::read_text(&roots.proc.join("self/mountinfo")).unwrap_or_default(),
        ))
    }

    /// The kind of the file system on which `path` lies: the longest mount point above it, and of
    /// several there the last.
    fn kind(&self, path: &Path) -> Option<String> {
        let above = self.0.iter().filter(|(point, _)| path.starts_with(point));
        let deepest = above.max_by_key(|(point, _)| point.components().count())?;
        Some(deepest.1.clone())
    }

    /// /dev/shm; `None` where there is none.
    pub(super) fn read_shm(&self, roots: &Roots) -> Option<Shm> {
        let path = roots.dev.join("shm");
        let told = statvfs(&path).ok()?;
        Some(Shm {
            size: size(&told, told.f_blocks),
            free: size(&told, told.f_bavail),
            kind: self.kind(Path::new("/dev/shm")),
            writable: Some(accessat(CWD, &path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()),
        })
    }

    /// The file system of the folder, or of the nearest above it that exists.
    pub(super) fn read_disk(&self, roots: &Roots, path: &Path) -> FilesystemFacts {
        let there = path.ancestors().find_map(|folder| {
            let end = roots.locate(folder).canonicalize().ok()?;
            Some((folder, end))
        });
        let told = there.as_ref().and_then(|(_, end)| statvfs(end).ok());
        // Links count where the paths are the machine's own.
        let named = there
            .as_ref()
            .map(|(folder, end)| match roots.root == Path::new("/") {
                true => end.as_path(),
                false => folder,
            });
        FilesystemFacts {
            path: path.to_string_lossy().into_owned(),
            kind: named.and_then(|path| self.kind(path)),
            size: told.as_ref().and_then(|told| size(told, told.f_blocks)),
            free: told.as_ref().and_then(|told| size(told, told.f_bavail)),
            // A file system that makes files as it needs them says that it can have none.
            free_files: told
                .filter(|told| told.f_files > 0)
                .map(|told| told.f_favail),
        }
    }
}

fn size(told: &StatVfs, blocks: u64) -> Option<Bytes> {
    told.f_frsize.checked_mul(blocks).map(Bytes)
}

/// Mount points and kinds of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
fn parse(text: &str) -> Vec<(PathBuf, String)> {
    let of_line = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let point = unescape_octal(mount.split(' ').nth(4)?);
        let kind = file_system.split(' ').next()?;
        Some((PathBuf::from(point), kind.to_owned()))
    };
    text.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A login node: home on NFS, scratch on Lustre, and a mount over a mount.
    const TABLE: &str = "\
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
25 22 0:23 / /dev rw,nosuid shared:2 - devtmpfs udev rw
27 25 0:25 / /dev/shm rw,nosuid,nodev shared:4 - tmpfs tmpfs rw
90 22 0:60 / /home rw shared:30 - autofs auto.home rw
91 90 0:61 / /home rw shared:31 - nfs4 nas:/home rw,vers=4.2
92 22 0:62 / /scratch\\040big rw shared:32 - lustre 10.0.0.1@o2ib:/fs rw
";

    #[test]
    fn the_deepest_and_last_mount_counts() {
        let mounts = Mounts(parse(TABLE));
        for (path, kind) in [
            ("/home/me/.cache", "nfs4"),
            ("/homework", "ext4"),
            ("/scratch big/x", "lustre"),
            ("/dev/shm", "tmpfs"),
        ] {
            assert_eq!(
                mounts.kind(Path::new(path)).as_deref(),
                Some(kind),
                "{path}"
            );
        }
        assert_eq!(
            Mounts(parse("- \nnonsense - x\n")).kind(Path::new("/")),
            None
        );
    }

    #[test]
    fn a_store_that_does_not_exist_yet() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::from_dir(folder.path());
        let disk = Mounts(parse(TABLE)).read_disk(&roots, Path::new("/home/me/store"));
        assert_eq!(disk.path, "/home/me/store");
        assert_eq!(disk.kind.as_deref(), Some("ext4"), "only / exists there");
        assert!(disk.size >= disk.free && disk.size.is_some());
    }

    #[test]
    fn this_machines_memory_folder() {
        let roots = Roots::default();
        if let Some(shm) = Mounts::read(&roots).read_shm(&roots) {
            assert!(shm.size.is_some() && shm.kind.is_some(), "{shm:?}");
        }
    }
}
