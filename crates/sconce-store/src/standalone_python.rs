//! Pythons that are built to lie anywhere, as python-build-standalone publishes them: an archive
//! `….tar.gz` with one folder `python`, the `install_only` form.
//!
//! What would be a package that no lock names, or bytecode that nobody here compiled, is left out:
//! `site-packages`, the programs of pip, and every `.pyc`.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use sconce_schema::{Hint, exit};

use crate::scoped_root::{OnConflict, ScopedRoot};
use crate::tar_stream::{Budget, Entry, TarError, unpack_entry, walk_entries};

/// The folder that everything lies in.
const TOP: &[u8] = b"python";
/// What comes out at most, bytes; the largest known has half a GiB.
const MAX_BYTES: u64 = 4 << 30;
/// Files, folders and links at most; the largest known has 10,000.
const MAX_ENTRIES: u64 = 200_000;

/// Why an archive could not be unpacked. The target folder is then incomplete.
#[derive(Debug, thiserror::Error)]
pub enum StandalonePythonError {
    /// The file could not be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its bytes cannot be read: cut off, not gzip, or broken.
    #[error("the archive cannot be read")]
    Read {
        /// What the reader or the decompressor said.
        source: io::Error,
    },
    /// It is no archive of a Python.
    #[error("not an archive of a standalone Python: {why}")]
    Format {
        /// What is wrong.
        why: &'static str,
    },
    /// A name or a link that cannot be followed inside the tree.
    #[error("the entry `{name}` {why}")]
    Entry {
        /// The entry, made printable.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More comes out than any has.
    #[error("the archive unpacks to more than {limit} {unit}")]
    TooLarge {
        /// The limit.
        limit: u64,
        /// `bytes` or `entries`.
        unit: &'static str,
    },
    /// A file of the tree could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl From<TarError> for StandalonePythonError {
    fn from(error: TarError) -> Self {
        match error {
            TarError::Read { source, .. } => Self::Read { source },
            TarError::Format(why) => Self::Format { why },
            TarError::Entry { name, why } => Self::Entry { name, why },
            TarError::TooLarge { limit, unit } => Self::TooLarge { limit, unit },
            TarError::Write { path, source } => Self::Write { path, source },
        }
    }
}

impl Hint for StandalonePythonError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Open { .. } => None,
            Self::Write { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull => Some("the disk is full; make room".to_owned()),
                _ => None,
            },
            _ => Some(
                "take another version with `[python] version`, or another table of Pythons with \
                 `python-downloads` in config.toml"
                    .to_owned(),
            ),
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Open { .. } | Self::Write { .. } => exit::STORE,
            Self::Read { .. }
            | Self::Format { .. }
            | Self::Entry { .. }
            | Self::TooLarge { .. } => exit::VERIFY,
        }
    }
}

/// Unpacks the archive `path` into `root`, which is there and empty: what lies in its folder `python`
/// lies below `prefix` then. Owners are whoever runs this; set-user-id and set-group-id bits are
/// dropped; files get the archive's times.
///
/// # Errors
/// [`StandalonePythonError`].
pub fn unpack_archive(path: &Path, root: &Path, prefix: &str) -> Result<(), StandalonePythonError> {
    let file = File::open(path).map_err(|source| StandalonePythonError::Open {
        path: path.to_owned(),
        source,
    })?;
    unpack(BufReader::with_capacity(256 << 10, file), root, prefix)
}

fn unpack(reader: impl Read, root: &Path, prefix: &str) -> Result<(), StandalonePythonError> {
    const ARCHIVE: &str = "the archive";
    let budget = Budget::new(MAX_BYTES, MAX_ENTRIES);
    let mut inside = ScopedRoot::new(root, OnConflict::Stay);
    let prefix = prefix.trim_matches('/').as_bytes();
    let mut is_empty = true;
    let moved = |name: &[u8]| match below_top(name) {
        Some(rest) => Ok([prefix, b"/", rest].concat()),
        None => Err(TarError::entry(name, "is not in the folder `python`")),
    };
    walk_entries(
        MultiGzDecoder::new(reader),
        ARCHIVE,
        &budget,
        |entry, data| {
            is_empty = false;
            if below_top(&entry.name).is_some_and(is_left_out) {
                return Ok(());
            }
            let name = moved(&entry.name)?;
            let link = match entry.kind {
                tar::EntryType::Link => moved(&entry.link)?,
                _ => entry.link.clone(),
            };
            let moved = Entry {
                name,
                link,
                ..*entry
            };
            unpack_entry(&moved, data, &mut inside, ARCHIVE, &budget)
        },
    )?;
    match is_empty {
        true => Err(StandalonePythonError::Format { why: "it is empty" }),
        false => Ok(()),
    }
}

/// What a name is below the top folder: empty for that itself, `None` outside of it.
fn below_top(name: &[u8]) -> Option<&[u8]> {
    let name = name.strip_prefix(b"./").unwrap_or(name);
    let rest = name.strip_prefix(TOP)?;
    match rest {
        [] => Some(rest),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

/// Whether what has this name below the top folder is not the interpreter's.
fn is_left_out(name: &[u8]) -> bool {
    let parts: Vec<&[u8]> = name
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty())
        .collect();
    match parts[..] {
        [b"bin", program] if program.starts_with(b"pip") => true,
        [b"lib", _, b"site-packages", _, ..] => true,
        _ => parts.contains(&&b"__pycache__"[..]) || name.ends_with(b".pyc"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    use tar::{Builder, EntryType, Header};

    /// Name, kind, mode, data or link.
    type Item<'a> = (&'a str, EntryType, u32, &'a str);

    const FILE: EntryType = EntryType::Regular;
    const LINK: EntryType = EntryType::Symlink;
    const HARD: EntryType = EntryType::Link;

    fn archive(items: &[Item<'_>]) -> Vec<u8> {
        let mut tar = Builder::new(Vec::new());
        for (name, kind, mode, text) in items {
            let mut header = Header::new_gnu();
            let is_link = matches!(*kind, LINK | HARD);
            let data = if is_link { "" } else { text };
            header.set_entry_type(*kind);
            header.set_mode(*mode);
            header.set_mtime(1_700_000_000);
            header.set_size(data.len() as u64);
            // As they are: the crate would refuse a hostile one.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            if is_link {
                header.set_link_name_literal(text).unwrap();
            }
            header.set_cksum();
            tar.append(&header, data.as_bytes()).unwrap();
        }
        let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
        gz.write_all(&tar.into_inner().unwrap()).unwrap();
        gz.finish().unwrap()
    }

    fn unpacked(items: &[Item<'_>]) -> (tempfile::TempDir, Result<(), StandalonePythonError>) {
        let root = tempfile::tempdir().unwrap();
        let ended = unpack(&archive(items)[..], root.path(), "/opt/python/3.10");
        (root, ended)
    }

    #[test]
    fn an_interpreter_lies_below_its_prefix_without_packages_and_bytecode() {
        let (root, ended) = unpacked(&[
            ("python/bin/python3.10", FILE, 0o4755, "elf"),
            ("python/bin/python3", LINK, 0o777, "python3.10"),
            ("python/bin/python", HARD, 0o755, "python/bin/python3.10"),
            ("python/bin/pip3.10", FILE, 0o755, "#!/install/bin/python3"),
            ("python/lib/python3.10/os.py", FILE, 0o644, "import sys"),
            (
                "python/lib/python3.10/__pycache__/os.cpython-310.pyc",
                FILE,
                0o644,
                "x",
            ),
            (
                "python/lib/python3.10/site-packages/README.txt",
                FILE,
                0o644,
                "x",
            ),
            (
                "python/lib/python3.10/site-packages/pip/__init__.py",
                FILE,
                0o644,
                "x",
            ),
        ]);
        ended.unwrap();
        let prefix = root.path().join("opt/python/3.10");
        let program = prefix.join("bin/python3.10").metadata().unwrap();
        assert_eq!(program.permissions().mode() & 0o7777, 0o755);
        let link = fs::read_link(prefix.join("bin/python3")).unwrap();
        assert_eq!(link, Path::new("python3.10"));
        assert_eq!(fs::read(prefix.join("bin/python")).unwrap(), b"elf");
        assert!(prefix.join("lib/python3.10/os.py").exists());
        for gone in [
            "bin/pip3.10",
            "lib/python3.10/__pycache__",
            "lib/python3.10/site-packages",
        ] {
            assert!(!prefix.join(gone).exists(), "{gone}");
        }
    }

    #[test]
    fn nothing_of_a_hostile_archive_lands_outside() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "kept").unwrap();
        let way = outside.path().to_str().unwrap();
        let through = format!("{way}/new");
        for items in [
            vec![("python/../../../x", FILE, 0o644, "x")],
            vec![("/python/x", FILE, 0o644, "x")],
            vec![("pythonx/x", FILE, 0o644, "x")],
            vec![("etc/passwd", FILE, 0o644, "x")],
            vec![("python/a", HARD, 0o644, "etc/passwd")],
            vec![("python/a", HARD, 0o644, "python/../../../etc/passwd")],
            vec![("python/a", EntryType::Char, 0o644, "")],
            vec![("python/a", EntryType::Fifo, 0o644, "")],
            vec![],
        ] {
            let (_root, ended) = unpacked(&items);
            let error = ended.unwrap_err();
            assert_eq!(error.exit_code(), exit::VERIFY, "{items:?}");
            assert!(error.hint().is_some(), "{items:?}");
        }
        // Links are followed as if the root were that of the file system.
        let (root, ended) = unpacked(&[
            ("python/lib", LINK, 0o777, way),
            ("python/lib/new", FILE, 0o644, "x"),
            ("python/kept", LINK, 0o777, &through),
            ("python/kept", FILE, 0o644, "x"),
        ]);
        ended.unwrap();
        let inside = root.path().join(way.trim_start_matches('/')).join("new");
        assert!(inside.exists());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_broken_archive_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let whole = archive(&[("python/bin/python3.10", FILE, 0o755, "elf")]);
        for bytes in [&whole[..whole.len() / 2], b"not gzip", b""] {
            let error = unpack(bytes, root.path(), "/opt/python/3.10").unwrap_err();
            assert!(
                matches!(error, StandalonePythonError::Read { .. }),
                "{error}"
            );
        }
    }
}
