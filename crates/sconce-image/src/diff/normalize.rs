//! From an upper layer as overlayfs leaves it to a tree that says the same everywhere.
//!
//! What is gone is marked file by file: overlayfs's other mark, a folder that hides everything
//! below it, is an attribute that root's and a plain user's mounts name differently. Caches and what
//! is not a file go, and times that are the clock's become the fixed one.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};
use sconce_base::direct_io::MTIME;
use sconce_base::tree::remove_tree;

use super::{ChangesError, file};
use crate::layer::is_whiteout;

/// Folders whose files no image needs: what is temporary, and what can be fetched or made again.
const LEFT_OUT: [&str; 5] = ["tmp", "var/tmp", "run", "root/.cache", "home/sconce/.cache"];

/// The marks of a folder that hides what is below it: root's mounts, and those of others.
const OPAQUE: [&str; 2] = ["trusted.overlay.opaque", "user.overlay.opaque"];

/// Makes the upper layer `root` over the trees `lower` (lowest first) such a tree.
pub(super) fn normalize_upper_dir(
    root: &Path,
    lower: &[&Path],
    is_machinery: &dyn Fn(&Path) -> bool,
) -> Result<(), ChangesError> {
    let tidy = LayerNormalizer {
        root,
        lower,
        is_machinery,
    };
    tidy.folder(Path::new(""), false).map(drop)
}

struct LayerNormalizer<'a> {
    root: &'a Path,
    lower: &'a [&'a Path],
    is_machinery: &'a dyn Fn(&Path) -> bool,
}

impl LayerNormalizer<'_> {
    /// Works on a folder; whether anything is left in it. `hides` says that nothing of it below is
    /// to be seen.
    fn folder(&self, folder: &Path, hides: bool) -> Result<bool, ChangesError> {
        let real = self.root.join(folder);
        let list = || fs::read_dir(&real)?.collect::<io::Result<Vec<_>>>();
        let mut names = BTreeSet::new();
        for entry in list().map_err(file("list", &real))? {
            let path = folder.join(entry.file_name());
            let meta = entry.metadata().map_err(file("look at", &entry.path()))?;
            if self.stays(&path, &meta, hides)? {
                names.insert(entry.file_name());
            } else {
                let real = entry.path();
                remove_tree(&real).map_err(file("remove", &real))?;
            }
        }
        if hides {
            for name in self.names_below(folder)? {
                if !names.contains(&name) && !self.is_left_out(&folder.join(&name)) {
                    take_away(&real.join(&name))?;
                    names.insert(name);
                }
            }
        }
        Ok(!names.is_empty())
    }

    /// Whether a path stays.
    fn stays(&self, path: &Path, meta: &Metadata, hides: bool) -> Result<bool, ChangesError> {
        if self.is_left_out(path) {
            return Ok(false);
        }
        if meta.is_dir() {
            let hides = hides || is_opaque(&self.root.join(path));
            // A folder in which nothing was changed in the end says nothing.
            let same = |below: Metadata| below.is_dir() && below.mode() == meta.mode();
            let left = self.folder(path, hides)?;
            return Ok(left || hides || !self.below(path).is_some_and(same));
        }
        if is_whiteout(meta) {
            return Ok(self.below(path).is_some());
        }
        if !meta.is_file() && !meta.is_symlink() {
            // Sockets and pipes belong to processes, and those are gone.
            return Ok(false);
        }
        let below = self.highest(path);
        let below = below.filter(|(below, _)| below.is_file() && meta.is_file());
        let mut time = meta.mtime();
        // A file that was copied up without being written has its package's time still.
        let copied = below
            .as_ref()
            .is_some_and(|(below, _)| below.mtime() == time);
        if meta.is_file() && time > MTIME as i64 && !copied {
            time = MTIME as i64;
            set_time(&self.root.join(path))?;
        }
        // One of which only the owner was changed, which no layer says, is as before.
        match below {
            Some((below, other)) if !hides => {
                let now = (meta.mode(), meta.len(), time);
                let alike = (below.mode(), below.len(), below.mtime()) == now;
                Ok(!alike || !same_bytes(&self.root.join(path), &other)?)
            }
            _ => Ok(true),
        }
    }

    fn is_left_out(&self, path: &Path) -> bool {
        LEFT_OUT.iter().any(|out| path.starts_with(out)) || (self.is_machinery)(path)
    }

    /// What is at a path in the highest tree that has it and does not take it away, and where.
    fn highest(&self, path: &Path) -> Option<(Metadata, PathBuf)> {
        let mut trees = self.lower.iter().rev();
        let (tree, found) = trees.find_map(|tree| Some((tree, at(tree, path)?)))?;
        let meta = found.filter(|meta| !is_whiteout(meta))?;
        Some((meta, tree.join(path)))
    }

    fn below(&self, path: &Path) -> Option<Metadata> {
        Some(self.highest(path)?.0)
    }

    /// The names in a folder of all trees below.
    fn names_below(&self, folder: &Path) -> Result<BTreeSet<OsString>, ChangesError> {
        let mut names = BTreeSet::new();
        for tree in self.lower {
            if !at(tree, folder).flatten().is_some_and(|meta| meta.is_dir()) {
                continue;
            }
            let real = tree.join(folder);
            for entry in fs::read_dir(&real).map_err(file("list", &real))? {
                names.insert(entry.map_err(file("list", &real))?.file_name());
            }
        }
        Ok(names)
    }
}

/// What a tree says of a path: nothing, or what is there. A file above it in the path means that
/// nothing is there, whatever lower trees have.
fn at(tree: &Path, path: &Path) -> Option<Option<Metadata>> {
    let mut real = PathBuf::from(tree);
    let mut meta = real.symlink_metadata().ok()?;
    for part in path {
        if !meta.is_dir() {
            return Some(None);
        }
        real.push(part);
        meta = real.symlink_metadata().ok()?;
    }
    Some(Some(meta))
}

fn same_bytes(one: &Path, other: &Path) -> Result<bool, ChangesError> {
    const CHUNK_BYTES: usize = 64 << 10;
    let open = |path: &Path| File::open(path).map_err(file("read", path));
    let (mut left, mut right) = (open(one)?, open(other)?);
    let (mut a, mut b) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    loop {
        let n = left.read(&mut a).map_err(file("read", one))?;
        if n == 0 {
            return Ok(true);
        }
        // A file that ends early, while it is as long as the other, is not the same.
        match right.read_exact(&mut b[..n]) {
            Ok(()) if a[..n] == b[..n] => {}
            _ => return Ok(false),
        }
    }
}

fn is_opaque(folder: &Path) -> bool {
    let mut value = [0_u8; 1];
    OPAQUE.iter().any(
        |name| matches!(rustix::fs::lgetxattr(folder, *name, &mut value), Ok(1) if value == *b"y"),
    )
}

/// Marks a path as taken away. Every user may make such a device (Linux 5.8 and later).
fn take_away(path: &Path) -> Result<(), ChangesError> {
    let made = rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0);
    made.map_err(|error| file("mark as removed", path)(error.into()))
}

fn set_time(path: &Path) -> Result<(), ChangesError> {
    let time = Timespec {
        tv_sec: MTIME as i64,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    let set = rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
    set.map_err(|error| file("set the time of", path)(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
    use std::time::{Duration, SystemTime};

    use sconce_base::direct_io::fixed_time;

    /// A folder from lines: `a/b` a file, `a/` a folder, `-a/b` a removed file, `a->b` a link.
    fn tree(lines: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for line in lines {
            let path = |name: &str| {
                let path = dir.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                path
            };
            if let Some(gone) = line.strip_prefix('-') {
                take_away(&path(gone)).unwrap();
            } else if let Some((name, target)) = line.split_once("->") {
                symlink(target, path(name)).unwrap();
            } else if let Some(folder) = line.strip_suffix('/') {
                fs::create_dir_all(path(folder)).unwrap();
            } else {
                fs::write(path(line), *line).unwrap();
            }
        }
        dir
    }

    /// As [`tree`] takes it, sorted.
    fn lines(root: &Path) -> Vec<String> {
        fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(root.join(folder)).unwrap().map(Result::unwrap) {
                let path = folder.join(entry.file_name());
                let meta = entry.metadata().unwrap();
                let name = path.to_str().unwrap();
                if meta.is_dir() {
                    let before = found.len();
                    walk(root, &path, found);
                    if found.len() == before {
                        found.push(format!("{name}/"));
                    }
                } else if meta.file_type().is_char_device() {
                    found.push(format!("-{name}"));
                } else if meta.is_symlink() {
                    let target = fs::read_link(entry.path()).unwrap();
                    found.push(format!("{name}->{}", target.display()));
                } else {
                    found.push(name.to_owned());
                }
            }
        }
        let mut found = Vec::new();
        walk(root, Path::new(""), &mut found);
        found.sort();
        found
    }

    fn hide(folder: &Path) -> bool {
        let set = |name| {
            rustix::fs::lsetxattr(folder, name, b"y", rustix::fs::XattrFlags::empty()).is_ok()
        };
        OPAQUE.into_iter().any(set)
    }

    fn tidied(upper: &tempfile::TempDir, lower: &[&tempfile::TempDir]) -> Vec<String> {
        let lower: Vec<&Path> = lower.iter().map(|tree| tree.path()).collect();
        let own = |path: &Path| path.starts_with("dev") || path == Path::new("etc/hosts");
        normalize_upper_dir(upper.path(), &lower, &own).unwrap();
        lines(upper.path())
    }

    #[test]
    fn caches_machinery_and_what_is_no_file_are_left_out() {
        let base = tree(&["etc/hosts", "tmp/", "root/", "var/"]);
        let upper = tree(&[
            "dev/null",
            "etc/hosts",
            "etc/issue",
            "tmp/x",
            "-var/tmp",
            "root/.cache/pip/x",
            "root/.profile",
            "opt/a",
            "opt/link->/nowhere",
            "opt/empty/",
            "run/lock",
        ]);
        rustix::fs::mknodat(
            CWD,
            upper.path().join("opt/pipe"),
            FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        assert_eq!(
            tidied(&upper, &[&base]),
            [
                "etc/issue",
                "opt/a",
                "opt/empty/",
                "opt/link->/nowhere",
                "root/.profile"
            ]
        );
    }

    #[test]
    fn folders_that_are_as_before_and_marks_for_nothing_go() {
        let base = tree(&["a/b/c", "a/d/", "e/f"]);
        let upper = tree(&["a/b/", "a/d/", "-e/f", "-e/g", "h/"]);
        assert_eq!(tidied(&upper, &[&base]), ["-e/f", "h/"]);
        let upper = tree(&["a/d/"]);
        fs::set_permissions(upper.path().join("a/d"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(tidied(&upper, &[&base]), ["a/d/"]);
    }

    #[test]
    fn a_folder_that_was_made_anew_takes_away_file_by_file() {
        let base = tree(&[
            "a/one", "a/two", "a/sub/x", "a/sub/y", "a/empty/", "a/tmp->b",
        ]);
        let middle = tree(&["a/three", "-a/two"]);
        let upper = tree(&["a/one", "a/sub/x", "a/empty/", "a/new"]);
        if !hide(&upper.path().join("a")) {
            return; // A file system without attributes.
        }
        assert_eq!(
            tidied(&upper, &[&base, &middle]),
            [
                "-a/sub/y", "-a/three", "-a/tmp", "-a/two", "a/empty/", "a/new", "a/one", "a/sub/x"
            ]
        );
    }

    #[test]
    fn what_a_middle_tree_took_away_is_not_below() {
        let base = tree(&["a/b/"]);
        let middle = tree(&["-a"]);
        let upper = tree(&["a/b/"]);
        assert_eq!(tidied(&upper, &[&base, &middle]), ["a/b/"]);
        let linked = tree(&["a->c"]);
        let upper = tree(&["-a/b"]);
        assert_eq!(tidied(&upper, &[&base, &linked]), ["a/"]);
    }

    #[test]
    fn a_file_of_which_only_the_owner_was_changed_is_as_before() {
        let base = tree(&["owned", "mode", "link->owned"]);
        let upper = tree(&["owned", "mode", "link->owned"]);
        for root in [&base, &upper] {
            for name in ["owned", "mode"] {
                let file = File::options().write(true).open(root.path().join(name));
                file.unwrap().set_modified(fixed_time()).unwrap();
            }
        }
        fs::set_permissions(upper.path().join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(tidied(&upper, &[&base]), ["link->owned", "mode"]);
        let upper = tree(&["owned"]);
        fs::write(upper.path().join("owned"), "OWNED").unwrap();
        assert_eq!(tidied(&upper, &[&base]), ["owned"]);
    }

    #[test]
    fn only_the_clocks_times_are_changed() {
        let packaged = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        let stamp = |dir: &tempfile::TempDir, name: &str, time| {
            let file = File::options().write(true).open(dir.path().join(name));
            file.unwrap().set_modified(time).unwrap();
        };
        let (base, upper) = (
            tree(&["copied", "written"]),
            tree(&["copied", "written", "old"]),
        );
        fs::write(upper.path().join("copied"), "written, its time set back").unwrap();
        stamp(&base, "copied", packaged);
        stamp(&base, "written", packaged);
        stamp(&upper, "copied", packaged);
        stamp(&upper, "old", SystemTime::UNIX_EPOCH);
        tidied(&upper, &[&base]);
        let time = |name: &str| {
            upper
                .path()
                .join(name)
                .metadata()
                .unwrap()
                .modified()
                .unwrap()
        };
        assert_eq!(time("copied"), packaged);
        assert_eq!(time("written"), fixed_time());
        assert_eq!(time("old"), SystemTime::UNIX_EPOCH);
    }
}
