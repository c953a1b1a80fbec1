//! Which folder of which file system a path leads to: two paths may lead to one folder by bind mounts.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// The mounts of this process.
#[derive(Debug, Default)]
pub(super) struct MountTable(Vec<MountEntry>);

#[derive(Debug)]
struct MountEntry {
    id: u64,
    /// The mount that it lies on.
    parent: u64,
    /// `major:minor` of the file system.
    device: String,
    /// The folder of the file system that is mounted.
    root: PathBuf,
    mount_point: PathBuf,
}

/// A folder of a file system, by whatever path it was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    device: String,
    path: PathBuf,
}

impl Location {
    /// Whether it is in the other, or both are one.
    pub(super) fn lies_in(&self, other: &Self) -> bool {
        self.device == other.device && self.path.starts_with(&other.path)
    }
}

impl MountTable {
    /// The mounts of this process; none where the kernel does not say.
    pub(super) fn read() -> Self {
        let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        Self::parse(&text)
    }

    /// Reads the kernel's table (proc_pid_mountinfo(5)). Lines that are none are passed over.
    fn parse(text: &[u8]) -> Self {
        let lines = text.split(|byte| *byte == b'\n');
        Self(lines.filter_map(MountEntry::parse).collect())
    }

    /// Where a path without links leads to.
    pub(super) fn locate(&self, path: &Path) -> Option<Location> {
        let entry = self.mount_of(path)?;
        let below = path.strip_prefix(&entry.mount_point).ok()?;
        Some(Location {
            device: entry.device.clone(),
            path: entry.root.join(below),
        })
    }

    /// All that comes along where a folder is mounted elsewhere with what is mounted below it.
    pub(super) fn locate_tree(&self, path: &Path) -> Vec<Location> {
        let below = self.0.iter().filter(|entry| {
            entry.mount_point.starts_with(path)
                && entry.mount_point.as_path() != path
                && (self.mount_of(&entry.mount_point)).is_some_and(|seen| seen.id == entry.id)
        });
        let below = below.map(|entry| Location {
            device: entry.device.clone(),
            path: entry.root.clone(),
        });
        self.locate(path).into_iter().chain(below).collect()
    }

    /// The mount that a path leads to, found as the kernel finds it: from the root over each mount that lies on the
    /// one before. The longest mount point may be hidden below a mount that came later.
    fn mount_of(&self, path: &Path) -> Option<&MountEntry> {
        let next = |on: Option<&MountEntry>| {
            let lies_on = |entry: &&MountEntry| match on {
                Some(on) => entry.parent == on.id && entry.id != on.id,
                None => self.is_first(entry),
            };
            let above = (self.0.iter()).filter(|entry| path.starts_with(&entry.mount_point));
            let above = above.filter(lies_on);
            above.min_by_key(|entry| entry.mount_point.components().count())
        };
        // At most one step a mount: the kernel has no circles, what is no table of its may have.
        let steps = std::iter::successors(next(None), |on| next(Some(on)));
        steps.take(self.0.len()).last()
    }

    /// Whether no mount of the table is below: that of the root, or of what is seen of it after a chroot.
    fn is_first(&self, entry: &MountEntry) -> bool {
        let mut others = self.0.iter().filter(|other| other.id != entry.id);
        others.all(|other| other.id != entry.parent)
    }
}

impl MountEntry {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
        let (id, parent) = (number()?, number()?);
        let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
        let (root, mount_point) = (unescape(fields.next()?), unescape(fields.next()?));
        let is_whole = device.contains(':') && root.is_absolute() && mount_point.is_absolute();
        is_whole.then_some(Self {
            id,
            parent,
            device,
            root,
            mount_point,
        })
    }
}

/// Spaces, tabs, line ends and backslashes stand as `\` and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| after.get(..3)).flatten();
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match value {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From a Debian 12 machine, kernel 6.18, with bind mounts made by hand and the names changed.
    const TABLE: &str = "\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 21 254:16 / /big rw,relatime shared:2 - ext4 /dev/vdb rw
41 21 254:16 /sconce /home/ada/.local/share/sconce rw,relatime shared:2 - ext4 /dev/vdb rw
42 21 254:0 /home/ada /data/home/ada rw,relatime shared:1 - ext4 /dev/vda rw
43 21 0:40 / /home/ada/with\\040space rw - tmpfs none rw
44 43 254:16 /sconce/items /home/ada/with\\040space/items rw - ext4 /dev/vdb rw
45 21 0:41 / /twice rw - tmpfs none rw
46 45 254:16 /other /twice rw - ext4 /dev/vdb rw
48 21 254:16 /sconce /hidden/below rw - ext4 /dev/vdb rw
49 21 0:42 / /hidden rw - tmpfs none rw
";

    fn at(table: &MountTable, path: &str) -> Location {
        table.locate(Path::new(path)).unwrap()
    }

    fn location(device: &str, path: &str) -> Location {
        Location {
            device: device.to_owned(),
            path: path.into(),
        }
    }

    #[test]
    fn a_path_leads_to_a_folder_of_a_file_system() {
        let table = MountTable::parse(TABLE.as_bytes());
        for (path, device, leads) in [
            ("/etc", "254:0", "/etc"),
            ("/big/sconce/items", "254:16", "/sconce/items"),
            (
                "/home/ada/.local/share/sconce/items",
                "254:16",
                "/sconce/items",
            ),
            ("/data/home/ada/x", "254:0", "/home/ada/x"),
            ("/home/ada/with space/a", "0:40", "/a"),
            ("/twice/a", "254:16", "/other/a"),
            ("/hidden/below/a", "0:42", "/below/a"),
            ("/bigger", "254:0", "/bigger"),
        ] {
            assert_eq!(at(&table, path), location(device, leads), "{path}");
        }
    }

    #[test]
    fn folders_overlap_by_any_path() {
        let table = MountTable::parse(TABLE.as_bytes());
        let store = at(&table, "/home/ada/.local/share/sconce");
        let reaches = |path: &str| {
            let tree = table.locate_tree(Path::new(path));
            tree.iter()
                .any(|one| one.lies_in(&store) || store.lies_in(one))
        };
        for path in [
            "/",
            "/big",
            "/big/sconce/items/wheel",
            "/home/ada",
            "/home/ada/with space",
        ] {
            assert!(reaches(path), "{path}");
        }
        for path in ["/etc", "/big/other", "/data/home/ada", "/twice", "/hidden"] {
            assert!(!reaches(path), "{path}");
        }
        let home = at(&table, "/home/ada/.config");
        assert!(at(&table, "/data/home").lies_in(&at(&table, "/data")));
        assert!(home.lies_in(&at(&table, "/data/home/ada")));
        assert!(!at(&table, "/data/home/ada").lies_in(&home));
    }

    #[test]
    fn what_is_no_table_says_nothing() {
        for text in [
            "",
            "\n\n",
            "1 2 3",
            "1 2 3:4 a b",
            "1 2 34 / /",
            "1 2 3:4 / \\",
            "a 2 3:4 / /",
        ] {
            assert!(
                MountTable::parse(text.as_bytes())
                    .locate(Path::new("/a"))
                    .is_none(),
                "{text}"
            );
        }
        // Circles.
        let text = b"1 2 3:4 / /\n2 1 3:4 / /\n3 3 3:5 / /\n4 3 3:6 / /a\n5 4 3:7 / /a\n";
        let table = MountTable::parse(text);
        assert_eq!(at(&table, "/a/b"), location("3:7", "/b"));
        assert_eq!(unescape(b"/a\\04"), Path::new("/a\\04"));
        assert_eq!(unescape(b"/a\\999\\134"), Path::new("/a\\999\\"));
        assert!(MountTable::read().locate(Path::new("/")).is_some());
    }
}
