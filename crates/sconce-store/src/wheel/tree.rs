//! The tree that a wheel's entries become.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sha2::Digest as _;

use super::error::WheelError;
use super::layout::{EntryDestination, WheelLayout, check_name};
use super::record;
use super::record::WheelRecord;
use super::script::{entry_points, with_interpreter};
use super::stream::EntrySink;
use super::zip::DirectoryEntry;
use sconce_base::direct_io::DirectWriter;
use sconce_base::direct_io::fixed_time;

/// Nobody's list of files is longer.
const MAX_RECORD_BYTES: usize = 256 << 20;

/// A file that was installed.
#[derive(Debug)]
struct InstalledFile {
    /// Its name in the archive; empty for files that the installer wrote.
    entry: String,
    size: u64,
    /// Set where the file is not as the archive has it.
    digest: Option<[u8; 32]>,
    executable: bool,
}

/// A tree under way. As a [`EntrySink`] it takes the entries, then [`WheelTree::finish`] makes it whole.
pub(super) struct WheelTree<'a> {
    root: &'a Path,
    layout: &'a WheelLayout,
    /// The project, as the lock spells it.
    project: &'a str,
    /// Its normalised name, which names the folder of its headers: a tree is named by the wheel's
    /// bytes, so no lock's spelling may show in it.
    normalised: String,
    writer: &'a mut DirectWriter,
    /// The entry under way.
    entry: String,
    goal: EntryDestination,
    folders: BTreeSet<String>,
    /// Installed files by path within the tree.
    files: BTreeMap<String, InstalledFile>,
    info: Option<String>,
    data: Option<String>,
    record: Vec<u8>,
    wheel: Option<String>,
    entry_points: Option<String>,
}

impl<'a> WheelTree<'a> {
    /// A tree in the empty folder `root`.
    pub(super) fn new(
        root: &'a Path,
        layout: &'a WheelLayout,
        project: &'a str,
        writer: &'a mut DirectWriter,
    ) -> Self {
        Self {
            root,
            layout,
            project,
            normalised: normalised(project),
            writer,
            entry: String::new(),
            goal: EntryDestination::Dropped,
            folders: BTreeSet::new(),
            files: BTreeMap::new(),
            info: None,
            data: None,
            record: Vec::new(),
            wheel: None,
            entry_points: None,
        }
    }

    fn metadata(why: impl Into<String>) -> WheelError {
        WheelError::Metadata { why: why.into() }
    }

    /// Notes the one `.dist-info` and the one `.data` folder.
    fn note_folder(&mut self, name: &str) -> Result<(), WheelError> {
        let Some((top, _)) = name.split_once('/') else {
            return Ok(());
        };
        let kind = if top.ends_with(".dist-info") {
            &mut self.info
        } else if top.ends_with(".data") {
            &mut self.data
        } else {
            return Ok(());
        };
        match kind {
            Some(known) if known != top => Err(Self::metadata(format!(
                "there are both `{known}` and `{top}`"
            ))),
            Some(_) => Ok(()),
            None => {
                *kind = Some(top.to_owned());
                Ok(())
            }
        }
    }

    fn make_parents(&mut self, path: &str) -> Result<(), WheelError> {
        let Some((folder, _)) = path.rsplit_once('/') else {
            return Ok(());
        };
        if self.folders.contains(folder) {
            return Ok(());
        }
        self.make_parents(folder)?;
        let full = self.root.join(folder);
        fs::create_dir(&full)
            .and_then(|()| fs::set_permissions(&full, fs::Permissions::from_mode(0o755)))
            .map_err(|e| self.write_error(full, e))?;
        self.folders.insert(folder.to_owned());
        Ok(())
    }

    /// What a failed write of the present entry means: the tree is ours alone, so what is in the
    /// way came out of the same wheel.
    fn write_error(&self, path: PathBuf, source: io::Error) -> WheelError {
        match source.kind() {
            io::ErrorKind::AlreadyExists
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory => WheelError::Twice {
                name: self.entry.clone(),
            },
            _ => WheelError::Write { path, source },
        }
    }

    fn writer_error(&self, source: io::Error) -> WheelError {
        self.write_error(self.writer.path().to_owned(), source)
    }

    /// Writes a file of our own making, or in place of the entry `entry`.
    fn put(
        &mut self,
        path: &str,
        entry: String,
        bytes: &[u8],
        executable: bool,
    ) -> Result<(), WheelError> {
        self.make_parents(path)?;
        let full = self.root.join(path);
        let mode = if executable { 0o755 } else { 0o644 };
        let write = || {
            let mut file = fs::File::create_new(&full)?;
            io::Write::write_all(&mut file, bytes)?;
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.set_modified(fixed_time())
        };
        write().map_err(|e| self.write_error(full.clone(), e))?;
        self.files.insert(
            path.to_owned(),
            InstalledFile {
                entry,
                size: bytes.len() as u64,
                digest: Some(sha2::Sha256::digest(bytes).into()),
                executable,
            },
        );
        Ok(())
    }

    /// Makes the tree whole once every entry is there and the bytes are verified. `listed` is
    /// the archive's directory.
    pub(super) fn finish(mut self, listed: &[DirectoryEntry]) -> Result<(), WheelError> {
        let info = self
            .info
            .take()
            .ok_or_else(|| Self::metadata("it has no .dist-info folder"))?;
        self.check_metadata(&info)?;
        self.make_executable(listed)?;
        let points = entry_points(self.entry_points.as_deref().unwrap_or_default())?;
        for point in &points {
            let path = self.layout.script_path(&point.name);
            if self.layout.is_reserved(&path) {
                return Err(Self::metadata(format!(
                    "the script `{}` would replace the interpreter",
                    point.name
                )));
            }
            // An entry point's script goes before one that the wheel ships, as with pip.
            if self.files.remove(&path).is_some() {
                let full = self.root.join(&path);
                fs::remove_file(&full)
                    .map_err(|source| WheelError::Write { path: full, source })?;
            }
            self.entry = format!("the script {}", point.name);
            self.put(&path, String::new(), point.render_script().as_bytes(), true)?;
        }
        let folder = format!("{}/{info}", self.layout.site_packages());
        self.put(
            &format!("{folder}/INSTALLER"),
            String::new(),
            b"sconce\n",
            false,
        )?;
        let recorded = record::parse(&String::from_utf8_lossy(&self.record));
        let own = format!("{folder}/RECORD");
        let text = self.record_text(&recorded, &own)?;
        self.put(&own, String::new(), text.as_bytes(), false)?;
        for folder in self.folders.iter().rev() {
            let full = self.root.join(folder);
            fs::File::open(&full)
                .and_then(|f| f.set_modified(fixed_time()))
                .map_err(|source| WheelError::Write { path: full, source })?;
        }
        fs::File::open(self.root)
            .and_then(|f| f.set_modified(fixed_time()))
            .map_err(|source| WheelError::Write {
                path: self.root.to_owned(),
                source,
            })
    }

    fn check_metadata(&self, info: &str) -> Result<(), WheelError> {
        let name = info.split('-').next().unwrap_or_default();
        if normalised(name) != normalised(self.project) {
            return Err(Self::metadata(format!(
                "it is a wheel of `{name}`, not of `{}`",
                self.project
            )));
        }
        let wheel = self
            .wheel
            .as_deref()
            .ok_or_else(|| Self::metadata("it has no WHEEL file"))?;
        let version = wheel
            .lines()
            .find_map(|line| line.strip_prefix("Wheel-Version:"))
            .map(str::trim)
            .unwrap_or_default();
        if version.split('.').next() != Some("1") {
            return Err(Self::metadata(format!(
                "its format version is `{version}`, known is 1"
            )));
        }
        Ok(())
    }

    /// Refuses entries that are no files, and gives executables their mode: only the directory
    /// at the archive's end tells both.
    fn make_executable(&mut self, listed: &[DirectoryEntry]) -> Result<(), WheelError> {
        let mut executable = HashSet::new();
        for one in listed {
            let name = &one.entry.name;
            let what = match (one.mode & 0o170_000, name.ends_with('/')) {
                (0, _) | (0o100_000, false) | (0o040_000, true) => {
                    if one.mode & 0o111 != 0 {
                        executable.insert(name.as_str());
                    }
                    continue;
                }
                (0o120_000, _) => "a symbolic link",
                (0o100_000, true) | (0o040_000, false) => "a file and a folder at once",
                _ => "a device, a pipe or a socket",
            };
            return Err(WheelError::NotAFile {
                name: name.clone(),
                what,
            });
        }
        for (path, file) in &self.files {
            if file.executable || executable.contains(file.entry.as_str()) {
                let full = self.root.join(path);
                fs::set_permissions(&full, fs::Permissions::from_mode(0o755))
                    .map_err(|source| WheelError::Write { path: full, source })?;
            }
        }
        Ok(())
    }

    /// The text of `RECORD`, sorted. The wheel's own digests are kept for files that are as they
    /// were; the wheel as a whole was verified, so they are as good as its bytes.
    fn record_text(&self, recorded: &WheelRecord, own: &str) -> Result<String, WheelError> {
        let mut lines = vec![record::own_line(&self.layout.record_path(own))];
        for (path, file) in &self.files {
            let kept = recorded
                .get(&file.entry)
                .filter(|(_, size)| size.is_none_or(|size| size == file.size));
            let digest = match (file.digest, kept) {
                (Some(digest), _) | (None, Some(&(digest, _))) => digest,
                (None, None) => self.digest_of(path)?,
            };
            lines.push(record::format_line(
                &self.layout.record_path(path),
                &digest,
                file.size,
            ));
        }
        lines.sort();
        Ok(lines.concat())
    }

    fn digest_of(&self, path: &str) -> Result<[u8; 32], WheelError> {
        let full = self.root.join(path);
        let digest = || {
            let mut hash = sha2::Sha256::new();
            let mut file = fs::File::open(&full)?;
            let mut chunk = vec![0; 64 << 10];
            loop {
                match io::Read::read(&mut file, &mut chunk)? {
                    0 => return Ok(hash.finalize().into()),
                    n => hash.update(&chunk[..n]),
                }
            }
        };
        digest().map_err(|source| WheelError::Write {
            path: full.clone(),
            source,
        })
    }
}

impl WheelTree<'_> {
    /// A script that is too large for the buffer cannot have its first line rewritten any more.
    fn check_large_script(&self) -> Result<(), WheelError> {
        let path = self.writer.path();
        let mut start = [0; 8];
        fs::File::open(path)
            .and_then(|mut file| io::Read::read_exact(&mut file, &mut start))
            .map_err(|source| WheelError::Write {
                path: path.to_owned(),
                source,
            })?;
        if &start == b"#!python" {
            return Err(Self::metadata(format!(
                "the script `{}` is too large to be given an interpreter",
                self.entry
            )));
        }
        Ok(())
    }
}

impl EntrySink for WheelTree<'_> {
    fn begin(&mut self, name: &str, size: Option<u64>) -> Result<(), WheelError> {
        self.entry = name.to_owned();
        self.goal = self.layout.entry_destination(name, &self.normalised)?;
        self.note_folder(name)?;
        match &self.goal {
            EntryDestination::File(path)
            | EntryDestination::Script(path)
            | EntryDestination::Metadata(path) => {
                let path = path.clone();
                self.make_parents(&path)?;
                self.writer.start_file(self.root.join(path), size);
            }
            EntryDestination::Record | EntryDestination::Dropped => {
                self.writer.start_file(PathBuf::new(), None)
            }
        }
        Ok(())
    }

    fn room(&mut self) -> Result<&mut [u8], WheelError> {
        if matches!(
            self.goal,
            EntryDestination::Record | EntryDestination::Dropped
        ) {
            if let Some(bytes) = self.writer.full_buffer() {
                if self.goal == EntryDestination::Record {
                    self.record.extend_from_slice(bytes);
                }
                self.writer.start_file(PathBuf::new(), None);
            }
            if self.record.len() > MAX_RECORD_BYTES {
                return Err(Self::metadata("its RECORD is too large"));
            }
        }
        if let Err(e) = self.writer.make_room() {
            return Err(self.writer_error(e));
        }
        Ok(self.writer.unfilled_buffer())
    }

    fn filled(&mut self, n: usize) -> Result<(), WheelError> {
        self.writer.mark_filled(n);
        Ok(())
    }

    fn end(&mut self) -> Result<(), WheelError> {
        let small = self.writer.buffered_file();
        let (path, executable) = match std::mem::replace(&mut self.goal, EntryDestination::Dropped)
        {
            EntryDestination::Dropped => return Ok(()),
            EntryDestination::Record => {
                self.record.extend_from_slice(small.unwrap_or_default());
                return Ok(());
            }
            EntryDestination::File(path) => (path, false),
            EntryDestination::Metadata(path) => {
                let text = small
                    .and_then(|bytes| std::str::from_utf8(bytes).ok())
                    .ok_or_else(|| Self::metadata(format!("`{}` is not a small text", self.entry)))?
                    .to_owned();
                if path.ends_with("/WHEEL") {
                    self.wheel = Some(text);
                } else {
                    self.entry_points = Some(text);
                }
                (path, false)
            }
            EntryDestination::Script(path) => {
                if let Some(text) = small.and_then(with_interpreter) {
                    let entry = std::mem::take(&mut self.entry);
                    return self.put(&path, entry, &text, true);
                }
                (path, true)
            }
        };
        let large = executable && small.is_none();
        let size = self
            .writer
            .finish_file()
            .map_err(|e| self.writer_error(e))?;
        if large {
            self.check_large_script()?;
        }
        self.files.insert(
            path,
            InstalledFile {
                entry: std::mem::take(&mut self.entry),
                size,
                digest: None,
                executable,
            },
        );
        Ok(())
    }

    fn folder(&mut self, name: &str) -> Result<(), WheelError> {
        check_name(name)?;
        self.note_folder(name)
    }
}

/// A project's name with case and separators made alike (the name normalisation specification).
fn normalised(name: &str) -> String {
    let parts: Vec<&str> = name
        .split(['-', '_', '.'])
        .filter(|p| !p.is_empty())
        .collect();
    parts.join("-").to_ascii_lowercase()
}
