//! Trees of the store to a tar archive whose bytes are a function of what they hold.
//!
//! Nothing of the machine enters: entries are sorted by their path's parts, everything belongs to
//! root but the plain user's home, folders and links have one fixed time, and files have the time
//! that their package gave them. The form is POSIX ustar, with a pax header where a name does not
//! fit (pax, IEEE Std 1003.1-2017, "pax Interchange Format"). What a tree takes away from those
//! below it is written as OCI layers say it (image-spec, layer.md, "Whiteouts").

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use sconce_base::direct_io::DirectReader;
use sconce_base::direct_io::MTIME;
use sconce_schema::spec::WORKSPACE;
use tar::{EntryType, Header};

use super::TreeSource;
use crate::slim::StrippedFile;
use crate::system::{PLAIN_HOME, PLAIN_ID};

/// What the name of a file that is taken away begins with.
const WHITEOUT: &str = ".wh.";
/// A tar archive's unit.
const BLOCK: usize = 512;

/// Why a tree could not be archived.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A file of the tree could not be read.
    #[error("cannot {action} {}", path.display())]
    Read {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file became shorter or longer while it was read: something writes to the store.
    #[error("{} changed while it was read", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A device, a pipe or a socket.
    #[error("{} is neither a file nor a folder nor a link", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
    },
    /// A name that would take another file away.
    #[error("{} has a name that image layers keep for themselves", path.display())]
    Reserved {
        /// The file.
        path: PathBuf,
    },
    /// The archive could not be written.
    #[error("the archive cannot be written")]
    Write(#[from] io::Error),
}

/// What lies at a path.
pub(crate) struct ArchiveEntry {
    /// The file of the store.
    pub(crate) source: PathBuf,
    /// What the system says of it.
    pub(crate) meta: Metadata,
    /// Which of the trees it is from, as they were given.
    pub(crate) tree: usize,
    /// What is taken of a file that goes without a part of it.
    pub(crate) stripped: Option<StrippedFile>,
}

impl ArchiveEntry {
    /// Bytes of a file, as it is archived.
    fn size(&self) -> u64 {
        match &self.stripped {
            Some(stripped) => stripped.size(),
            None => self.meta.len(),
        }
    }
}

/// All entries of an archive, by their paths: a folder stands before what is in it.
pub(crate) struct ArchiveEntries(pub(crate) BTreeMap<PathBuf, ArchiveEntry>);

impl ArchiveEntries {
    /// The union of `trees`; where two have the same path, the later one's entry counts. Folders
    /// above a wanted entry are there in any case.
    ///
    /// # Errors
    /// [`ArchiveError::Read`].
    pub(crate) fn from_trees(trees: &[TreeSource<'_>]) -> Result<Self, ArchiveError> {
        let mut entries = BTreeMap::new();
        for (number, tree) in trees.iter().enumerate() {
            collect((number, tree), Path::new(""), &mut entries)?;
        }
        Ok(Self(entries))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Bytes in their files.
    pub(crate) fn file_bytes(&self) -> u64 {
        let files = self.0.values().filter(|entry| entry.meta.is_file());
        files.map(ArchiveEntry::size).sum()
    }

    /// Writes the archive. `told` gets the bytes that were read, from time to time.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub(crate) fn write(
        &self,
        out: &mut impl Write,
        told: impl Fn(u64),
    ) -> Result<(), ArchiveError> {
        let mut names = HashMap::new();
        let mut reader = DirectReader::new();
        for (path, entry) in &self.0 {
            append(path, entry, &mut names, &mut reader, out)?;
            if entry.meta.is_file() {
                told(entry.size());
            }
        }
        Ok(write_end_of_archive(out)?)
    }
}

/// Adds the entries of a folder of `tree`; whether there were any.
fn collect(
    (number, tree): (usize, &TreeSource<'_>),
    folder: &Path,
    entries: &mut BTreeMap<PathBuf, ArchiveEntry>,
) -> Result<bool, ArchiveError> {
    let real = tree.root.join(folder);
    let list = || fs::read_dir(&real)?.collect::<io::Result<Vec<_>>>();
    let mut any = false;
    for found in list().map_err(io_error("list", &real))? {
        let path = folder.join(found.file_name());
        let source = found.path();
        let meta = found.metadata().map_err(io_error("look at", &source))?;
        if found
            .file_name()
            .as_bytes()
            .starts_with(WHITEOUT.as_bytes())
        {
            return Err(ArchiveError::Reserved { path: source });
        }
        let inside = meta.is_dir() && collect((number, tree), &path, entries)?;
        if inside || (tree.part.has)(&path, meta.is_dir()) {
            any = true;
            let rules = tree.part.shrinks;
            let stripped = rules.and_then(|rules| rules.strip_file(&source, &meta));
            let entry = ArchiveEntry {
                source,
                meta,
                tree: number,
                stripped,
            };
            entries.insert(path, entry);
        }
    }
    Ok(any)
}

pub(crate) fn io_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> ArchiveError {
    move |source| ArchiveError::Read {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Writes one entry. `names` has the files with several names that were written.
fn append(
    path: &Path,
    entry: &ArchiveEntry,
    names: &mut HashMap<(u64, u64), PathBuf>,
    reader: &mut DirectReader,
    out: &mut impl Write,
) -> Result<(), ArchiveError> {
    let ArchiveEntry { source, meta, .. } = entry;
    let mut header = Header::new_ustar();
    header.set_mode(meta.mode() & 0o7777);
    let owner = owner_id(path);
    header.set_uid(owner.into());
    header.set_gid(owner.into());
    header.set_mtime(MTIME);
    header.set_size(0);
    let mut name = path.as_os_str().as_bytes().to_vec();
    if meta.is_dir() {
        header.set_entry_type(EntryType::Directory);
        name.push(b'/');
        return Ok(put_header(header, &name, &[], out)?);
    }
    if meta.is_symlink() {
        header.set_entry_type(EntryType::Symlink);
        header.set_mode(0o777);
        let target = fs::read_link(source).map_err(io_error("read", source))?;
        return Ok(put_header(
            header,
            &name,
            target.as_os_str().as_bytes(),
            out,
        )?);
    }
    if is_whiteout(meta) {
        let name = [
            WHITEOUT.as_bytes(),
            path.file_name().unwrap_or_default().as_bytes(),
        ]
        .concat();
        let name = path.with_file_name(OsStr::from_bytes(&name));
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        return Ok(put_header(header, name.as_os_str().as_bytes(), &[], out)?);
    }
    if !meta.is_file() {
        return Err(ArchiveError::Kind {
            path: source.clone(),
        });
    }
    header.set_mtime(u64::try_from(meta.mtime()).unwrap_or(MTIME));
    if meta.nlink() > 1 {
        let file = (meta.dev(), meta.ino());
        if let Some(first) = names.get(&file) {
            header.set_entry_type(EntryType::Link);
            return Ok(put_header(
                header,
                &name,
                first.as_os_str().as_bytes(),
                out,
            )?);
        }
        names.insert(file, path.to_owned());
    }
    header.set_entry_type(EntryType::Regular);
    header.set_size(entry.size());
    put_header(header, &name, &[], out)?;
    put_data(entry, reader, out)
}

/// Whether a tree takes away what lies at this path below it: overlayfs's own mark, a character
/// device with the number 0 (Documentation/filesystems/overlayfs.rst, "whiteouts and opaque
/// directories").
pub(crate) fn is_whiteout(meta: &Metadata) -> bool {
    meta.file_type().is_char_device() && meta.rdev() == 0
}

/// The plain user's home and the workspace are its own, everything else is root's: whoever unpacked
/// the packages.
pub(crate) fn owner_id(path: &Path) -> u32 {
    let own = |folder: &str| path.starts_with(folder.trim_start_matches('/'));
    if own(PLAIN_HOME) || own(WORKSPACE) {
        PLAIN_ID
    } else {
        0
    }
}

fn put_data(
    entry: &ArchiveEntry,
    reader: &mut DirectReader,
    out: &mut impl Write,
) -> Result<(), ArchiveError> {
    let (path, size) = (&entry.source, entry.meta.len());
    let changed = || ArchiveError::Changed { path: path.clone() };
    let mut left = size;
    let sent = reader.read_chunks(path, size, |bytes| {
        let offset = size - left;
        left = left.checked_sub(bytes.len() as u64).ok_or_else(changed)?;
        let written = match &entry.stripped {
            Some(stripped) => out.write_all(&stripped.patch_head(offset, bytes)),
            None => out.write_all(bytes),
        };
        written.map_err(ArchiveError::Write)
    });
    sent.map_err(io_error("read", path))??;
    if left > 0 {
        return Err(changed());
    }
    if let Some(stripped) = &entry.stripped {
        out.write_all(stripped.tail_bytes())?;
    }
    Ok(write_padding(entry.size(), out)?)
}

/// Writes the header of a file that is not from a tree. Its `size` bytes follow, then [`write_padding`].
pub(crate) fn put_file(name: &str, size: u64, out: &mut impl Write) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(MTIME);
    header.set_size(size);
    put_header(header, name.as_bytes(), &[], out)
}

/// Fills the last block of a file of `size` bytes.
pub(crate) fn write_padding(size: u64, out: &mut impl Write) -> io::Result<()> {
    match (size % BLOCK as u64) as usize {
        0 => Ok(()),
        over => out.write_all(&[0; BLOCK][over..]),
    }
}

/// Ends an archive: two empty blocks.
pub(crate) fn write_end_of_archive(out: &mut impl Write) -> io::Result<()> {
    out.write_all(&[0; 2 * BLOCK])
}

/// Writes `header` with this name and link, after a pax header for what does not fit it.
fn put_header(
    mut header: Header,
    name: &[u8],
    link: &[u8],
    out: &mut impl Write,
) -> io::Result<()> {
    let mut long = Vec::new();
    match split(name) {
        Some((prefix, rest)) => {
            if let Some(ustar) = header.as_ustar_mut() {
                ustar.prefix[..prefix.len()].copy_from_slice(prefix);
                ustar.name[..rest.len()].copy_from_slice(rest);
            }
        }
        None => {
            record(&mut long, "path", name);
            let short = &name[..name.len().min(100)];
            header.as_mut_bytes()[..short.len()].copy_from_slice(short);
        }
    }
    if let Some(ustar) = header.as_ustar_mut() {
        let short = &link[..link.len().min(100)];
        ustar.linkname[..short.len()].copy_from_slice(short);
    }
    if link.len() > 100 {
        record(&mut long, "linkpath", link);
    }
    if !long.is_empty() {
        let mut pax = Header::new_ustar();
        pax.as_mut_bytes()[..9].copy_from_slice(b"pax/entry");
        pax.set_entry_type(EntryType::XHeader);
        pax.set_mode(0o644);
        pax.set_uid(0);
        pax.set_gid(0);
        pax.set_mtime(MTIME);
        pax.set_size(long.len() as u64);
        pax.set_cksum();
        out.write_all(pax.as_bytes())?;
        out.write_all(&long)?;
        write_padding(long.len() as u64, out)?;
    }
    header.set_cksum();
    out.write_all(header.as_bytes())?;
    Ok(())
}

/// Splits a name into ustar's prefix (155 bytes) and name (100 bytes), if it can be.
fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    if name.len() <= 100 {
        return Some((&[], name));
    }
    // The slash between the two stands in neither; a folder's own slash stays with its name.
    (name.len() - 101..name.len() - 1)
        .find(|&at| name[at] == b'/')
        .filter(|&at| at <= 155)
        .map(|at| (&name[..at], &name[at + 1..]))
}

/// A pax record: its own length in decimal digits, the key and the value.
fn record(into: &mut Vec<u8>, key: &str, value: &[u8]) {
    // Space, equals sign and newline.
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    into.extend_from_slice(format!("{length} {key}=").as_bytes());
    into.extend_from_slice(value);
    into.push(b'\n');
}

/// Whether `path` is `below` or lies in it.
pub(crate) fn is_below(path: &Path, below: &str) -> bool {
    path.strip_prefix(below).is_ok() || path.as_os_str() == OsStr::new(below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::TreeSubset;
    use std::fs::File;
    use std::io::Read as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn packed(trees: &[TreeSource<'_>]) -> Result<Vec<u8>, ArchiveError> {
        let mut out = Vec::new();
        ArchiveEntries::from_trees(trees)?.write(&mut out, |_| ())?;
        Ok(out)
    }

    fn archive(roots: &[&Path]) -> Vec<u8> {
        let trees: Vec<_> = roots
            .iter()
            .map(|root| TreeSource::from_root(root))
            .collect();
        packed(&trees).unwrap()
    }

    type Listed = (String, EntryType, u32, u64, u64, String);

    fn listed(bytes: &[u8]) -> Vec<Listed> {
        let mut archive = tar::Archive::new(bytes);
        let entries = archive.entries().unwrap().map(Result::unwrap);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        entries
            .map(|e| {
                let header = e.header();
                (
                    text(&e.path_bytes()),
                    header.entry_type(),
                    header.mode().unwrap(),
                    header.uid().unwrap(),
                    header.mtime().unwrap(),
                    text(&e.link_name_bytes().unwrap_or_default()),
                )
            })
            .collect()
    }

    #[test]
    fn entries_are_sorted_and_say_nothing_of_the_machine() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::create_dir_all(root.join("b/c")).unwrap();
        fs::create_dir_all(root.join("home/sconce")).unwrap();
        fs::write(root.join("b-a"), "two").unwrap();
        fs::write(root.join("b/c/x"), "1").unwrap();
        fs::hard_link(root.join("b/c/x"), root.join("b/z")).unwrap();
        symlink("b/c", root.join("link")).unwrap();
        for (name, mode) in [("b", 0o755), ("b/c", 0o1777), ("home", 0o755)] {
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        for name in ["b-a", "b/c/x"] {
            let file = File::options().append(true).open(root.join(name)).unwrap();
            file.set_modified(sconce_base::direct_io::fixed_time())
                .unwrap();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
        fs::set_permissions(root.join("home/sconce"), fs::Permissions::from_mode(0o750)).unwrap();
        let entry = |path: &str, kind, mode, owner, link: &str| {
            (path.to_owned(), kind, mode, owner, MTIME, link.to_owned())
        };
        use EntryType::{Directory, Link, Regular, Symlink};
        assert_eq!(
            listed(&archive(&[root])),
            [
                entry("b/", Directory, 0o755, 0, ""),
                entry("b/c/", Directory, 0o1777, 0, ""),
                entry("b/c/x", Regular, 0o644, 0, ""),
                entry("b/z", Link, 0o644, 0, "b/c/x"),
                entry("b-a", Regular, 0o644, 0, ""),
                entry("home/", Directory, 0o755, 0, ""),
                entry("home/sconce/", Directory, 0o750, 1000, ""),
                entry("link", Symlink, 0o777, 0, "b/c"),
            ]
        );
    }

    #[test]
    fn what_is_taken_away_is_said_as_layers_say_it() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        let gone = root.path().join("etc/passwd");
        mknodat(CWD, &gone, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
        let out = archive(&[root.path()]);
        let entry = &listed(&out)[1];
        assert_eq!(
            (entry.0.as_str(), entry.1, entry.2, entry.4),
            ("etc/.wh.passwd", EntryType::Regular, 0o644, MTIME)
        );
        // A file of that name would take another one away.
        fs::write(root.path().join("etc/.wh.group"), "").unwrap();
        let tree = TreeSource::from_root(root.path());
        assert!(matches!(
            packed(&[tree]),
            Err(ArchiveError::Reserved { .. })
        ));
    }

    #[test]
    fn a_later_part_replaces_and_a_filter_keeps_the_folders_above() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (root, text) in [(&one, "one"), (&two, "two")] {
            fs::create_dir_all(root.path().join("usr/lib/python")).unwrap();
            fs::create_dir_all(root.path().join("usr/share")).unwrap();
            fs::write(root.path().join("usr/lib/python/a"), text).unwrap();
        }
        let both = archive(&[one.path(), two.path()]);
        let mut read = tar::Archive::new(&both[..]);
        let mut file = read
            .entries()
            .unwrap()
            .map(Result::unwrap)
            .find(|e| e.path_bytes().ends_with(b"/a"))
            .unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "two");

        let tree = TreeSource {
            root: one.path(),
            part: TreeSubset {
                name: "python".to_owned(),
                has: Box::new(|path, _| is_below(path, "usr/lib/python")),
                shrinks: None,
            },
        };
        let out = packed(&[tree]).unwrap();
        let names: Vec<String> = listed(&out).into_iter().map(|entry| entry.0).collect();
        assert_eq!(
            names,
            ["usr/", "usr/lib/", "usr/lib/python/", "usr/lib/python/a"]
        );
    }

    #[test]
    fn names_of_any_length_come_back() {
        for length in [1, 99, 100, 101, 155, 156, 200, 255] {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("d".repeat(length.min(120)));
            fs::create_dir(&folder).unwrap();
            let file = folder.join("f".repeat(length));
            fs::write(&file, "x").unwrap();
            symlink("t".repeat(length), folder.join("s")).unwrap();
            let found = listed(&archive(&[root.path()]));
            let name = file.strip_prefix(root.path()).unwrap().to_str().unwrap();
            assert_eq!(found[1].0, name, "{length}");
            assert_eq!(found[2].5, "t".repeat(length), "{length}");
        }
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.path().join("s")).unwrap();
        let tree = TreeSource::from_root(root.path());
        let refused = packed(&[tree]);
        assert!(matches!(refused, Err(ArchiveError::Kind { .. })));
    }
}
