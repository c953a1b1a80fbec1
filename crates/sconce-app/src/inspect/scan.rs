//! What the libraries of a tree say of themselves: read once, and kept in the store where the tree
//! is of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, FileType};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sconce_compat::binary::{self, BinaryError, ByteSource, ParsedBinary};
use sconce_compat::library::ElfLibrary;
use sconce_schema::NoProgress;
use sconce_store::{Store, TreeBuildOptions};
use serde::{Deserialize, Serialize};

use crate::failure::{AppError, Result};
use crate::file_action::FileAction;

/// Kind of scans in the store.
const KIND: &str = "scan";
/// The file of a scan.
const FILE: &str = "scan.json";
/// Counts up whenever the same tree would be read to something else.
const FORMAT: u32 = 2;
/// Folders in each other that are looked into. Deeper ones belong to no loader's search.
const MAX_DEPTH: usize = 64;
/// Folders outside a tree that links of it may lead to.
const MAX_OUTSIDE_FOLDERS: usize = 10_000;
/// A larger version.py is none.
const MAX_VERSION_FILE_BYTES: u64 = 64 << 10;

/// What was read of a tree. Paths are relative to it, without a slash before them.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct TreeScan {
    /// Libraries, Python extensions, and the interpreter.
    pub(super) libraries: BTreeMap<String, ElfLibrary>,
    /// Files that are called like libraries and are none; whether they are too short to be one.
    pub(super) refused: BTreeMap<String, bool>,
    /// Files that could not be read, and why.
    pub(super) unread: BTreeMap<String, String>,
    /// Symbolic links to libraries and folders.
    pub(super) links: BTreeMap<String, String>,
    /// Folders of Python packages' metadata, `site-packages/torch-2.15.0.dist-info`.
    pub(super) metadata: Vec<String>,
    /// `torch/version.py`, and the folder that torch lies in.
    pub(super) torch: Option<(String, String)>,
}

impl TreeScan {
    /// Of a tree of the store, kept beside it; of any other folder, read anew.
    pub(super) fn load_or_read(root: &Path, store: Option<&Store>) -> Result<Self> {
        let kept = store.and_then(|store| Some((store, key(root, store)?)));
        let Some((store, key)) = kept else {
            return Self::read(root, true);
        };
        if let Some(found) = store.find_tree(KIND, &key).and_then(|folder| load(&folder)) {
            return Ok(found);
        }
        let scan = Self::read(root, false)?;
        let write = |folder: &Path| -> io::Result<()> {
            let text = serde_json::to_vec(&scan)?;
            fs::write(folder.join(FILE), text)
        };
        // Only time is lost where it cannot be kept.
        let making = TreeBuildOptions {
            name: KIND,
            work: "keeps what it read of a tree",
            progress: &NoProgress,
            accept: &|folder| load(folder).is_some(),
        };
        let _ = store.build_tree_with(KIND, &key, making, write);
        Ok(scan)
    }

    /// Of the root of a whole system, whose links lead nowhere but into it.
    pub(super) fn read_system(root: &Path) -> Result<Self> {
        Self::read(root, false)
    }

    /// Reads a folder, on every core. On this machine links may lead out of it, as uv and conda make
    /// them into their caches; what they lead to is taken for what stands there. An image's links
    /// lead nowhere but into the image.
    fn read(root: &Path, on_this_machine: bool) -> Result<Self> {
        let mut scan = Self::default();
        let mut walk = Walk {
            root,
            outside: on_this_machine.then(BTreeSet::new),
            files: Vec::new(),
        };
        let walked = scan.walk(&mut walk, Path::new(""), 0);
        let files = walk.files;
        walked.map_err(|(path, source)| AppError::File {
            action: FileAction::Read,
            path,
            source,
        })?;
        let files = files
            .into_iter()
            .map(|(path, size)| (root.join(&path), size, path));
        for (path, read) in read_libraries(files.collect()) {
            match read {
                ScannedFile::Library(library) => drop(scan.libraries.insert(path, *library)),
                ScannedFile::Refused { is_short } => drop(scan.refused.insert(path, is_short)),
                ScannedFile::CutOff(why) => {
                    scan.refused.insert(path.clone(), true);
                    scan.unread.insert(path, why);
                }
                ScannedFile::Failed(why) => drop(scan.unread.insert(path, why)),
            }
        }
        Ok(scan)
    }

    /// Lists what is to be read below a folder.
    fn walk(
        &mut self,
        walk: &mut Walk<'_>,
        folder: &Path,
        depth: usize,
    ) -> std::result::Result<(), (PathBuf, io::Error)> {
        let real = walk.root.join(folder);
        let failed = |source| (real.clone(), source);
        let entries = match fs::read_dir(&real) {
            Ok(entries) => entries,
            // Somebody else's folder holds nothing that this user's run would load.
            Err(error) if depth > 0 && error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(());
            }
            Err(error) => return Err(failed(error)),
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let kind: FileType = entry.file_type().map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let path = folder.join(&name);
            let Some(text) = path.to_str().map(str::to_owned) else {
                continue;
            };
            let beyond = match kind.is_symlink() {
                true => walk.beyond(&entry.path()),
                false => None,
            };
            // From here on it is what its link leads to.
            let kind = beyond
                .as_ref()
                .map_or(kind, |(_, metadata)| metadata.file_type());
            if kind.is_dir() && beyond.is_some_and(|(target, _)| !walk.enter(target)) {
                continue;
            }
            if kind.is_symlink() {
                let is_folder = || entry.path().is_dir();
                if let Ok(target) = fs::read_link(entry.path())
                    && let Some(target) = target.to_str()
                    && (is_library(&name) || is_folder())
                {
                    self.links.insert(text, target.to_owned());
                }
            } else if kind.is_dir() {
                if name.ends_with(".dist-info") {
                    self.metadata.push(text);
                } else if depth < MAX_DEPTH && name != "__pycache__" {
                    self.walk(walk, &path, depth + 1)?;
                }
            } else if kind.is_file() {
                if is_library(&name) || is_interpreter(&text) {
                    let size = fs::metadata(entry.path()).map_err(failed)?.len();
                    walk.files.push((text, size));
                } else if let Some(site) = text.strip_suffix("torch/version.py") {
                    self.torch = version(&entry.path()).map(|version| (version, site.to_owned()));
                }
            }
        }
        Ok(())
    }
}

/// What a walk through a tree knows.
struct Walk<'a> {
    root: &'a Path,
    /// Folders outside that were entered, each once; absent where none may be.
    outside: Option<BTreeSet<PathBuf>>,
    files: Vec<(String, u64)>,
}

impl Walk<'_> {
    /// Where a link leads, if that is out of the tree and may be looked at.
    fn beyond(&self, link: &Path) -> Option<(PathBuf, fs::Metadata)> {
        self.outside.as_ref()?;
        let target = link.canonicalize().ok()?;
        if target.starts_with(self.root) {
            return None;
        }
        let metadata = target.metadata().ok()?;
        Some((target, metadata))
    }

    /// Whether a folder outside is looked into: not a second time, nor where this tree lies in it.
    fn enter(&mut self, target: PathBuf) -> bool {
        let holds_root = self.root.starts_with(&target);
        let entered = self
            .outside
            .as_mut()
            .is_some_and(|known| known.len() < MAX_OUTSIDE_FOLDERS && known.insert(target));
        entered && !holds_root
    }
}

/// The name of a tree of the store: `wheel-…`.
fn key(root: &Path, store: &Store) -> Option<String> {
    let inside = root.strip_prefix(store.root().join("items")).ok()?;
    let parts: Option<Vec<&str>> = inside.iter().map(|part| part.to_str()).collect();
    Some(format!("{}-{FORMAT}", parts?.join("-")))
}

fn load(folder: &Path) -> Option<TreeScan> {
    serde_json::from_slice(&fs::read(folder.join(FILE)).ok()?).ok()
}

/// `libx.so`, `libx.so.1`, `x.cpython-313-x86_64-linux-gnu.so`.
pub(super) fn is_library(name: &str) -> bool {
    name.ends_with(".so") || name.contains(".so.")
}

/// `usr/bin/python3.13`.
fn is_interpreter(path: &str) -> bool {
    let name = path
        .rsplit_once('/')
        .filter(|(folder, _)| folder.ends_with("bin"));
    name.is_some_and(|(_, name)| name.starts_with("python"))
}

fn version(path: &Path) -> Option<String> {
    let is_small = path
        .metadata()
        .is_ok_and(|meta| meta.len() <= MAX_VERSION_FILE_BYTES);
    is_small.then(|| fs::read_to_string(path).ok()).flatten()
}

/// An open file.
pub(super) struct OpenedFile<'a> {
    file: &'a File,
    size: u64,
}

impl<'a> OpenedFile<'a> {
    pub(super) fn new(file: &'a File) -> io::Result<Self> {
        let size = file.metadata()?.len();
        Ok(Self { file, size })
    }
}

impl ByteSource for OpenedFile<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }
}

/// What one file is.
pub(super) enum ScannedFile {
    Library(Box<ElfLibrary>),
    /// The loader refuses it.
    Refused {
        is_short: bool,
    },
    /// A part of it is missing; the loader is taken to refuse it.
    CutOff(String),
    Failed(String),
}

/// Reads files, each of its size and under its name, on every core; those that [`library`] passes over
/// are left out.
pub(super) fn read_libraries(mut files: Vec<(PathBuf, u64, String)>) -> Vec<(String, ScannedFile)> {
    // The largest first, so that no core waits for another at the end.
    files.sort_by_key(|(_, size, _)| std::cmp::Reverse(*size));
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = || {
        while let Some((path, size, name)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let read = library(path, *size);
            if let (Ok(mut found), Some(read)) = (found.lock(), read) {
                found.push((name.clone(), read));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(files.len()) {
            scope.spawn(work);
        }
    });
    found.into_inner().unwrap_or_default()
}

/// Reads one library; `None` for what ld.so would not load, and for what cannot be read.
pub(crate) fn read_library(path: &Path) -> Option<ElfLibrary> {
    let file = File::open(path).ok()?;
    match binary::read(&OpenedFile::new(&file).ok()?).ok()? {
        ParsedBinary::Library(library) => Some(*library),
        ParsedBinary::Archive(_) | ParsedBinary::NotABinary => None,
    }
}

/// Reads one file; `None` for what no program of this machine loads: 32-bit libraries, archives.
fn library(path: &Path, size: u64) -> Option<ScannedFile> {
    const ELF_HEADER: u64 = 64;
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return Some(ScannedFile::Failed(error.to_string())),
    };
    Some(match binary::read(&OpenedFile { file: &file, size }) {
        Ok(ParsedBinary::Library(library)) => ScannedFile::Library(library),
        Ok(ParsedBinary::NotABinary) => ScannedFile::Refused {
            is_short: size < ELF_HEADER,
        },
        // As on a full disk. Whatever the loader makes of it, it must come anew.
        Err(error @ BinaryError::Outside { .. }) => ScannedFile::CutOff(error.to_string()),
        Ok(ParsedBinary::Archive(_)) | Err(BinaryError::OtherForm { .. }) => return None,
        Err(error) => ScannedFile::Failed(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_tree_is_read_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let build = |folder: &Path| -> io::Result<()> {
            let site = folder.join("lib/python3.13/site-packages");
            for name in ["torch", "torch-2.15.0.dist-info", "torch/__pycache__"] {
                fs::create_dir_all(site.join(name))?;
            }
            fs::write(site.join("torch/version.py"), "__version__ = '2.15.0'\n")?;
            fs::write(
                site.join("torch/broken.so"),
                "not a library, but long enough to hold the whole header of an ELF file",
            )?;
            fs::write(site.join("torch/short.so.1"), "")?;
            let whole = fs::read("/proc/self/exe")?;
            fs::write(site.join("torch/cut_off.so"), &whole[..whole.len() / 2])?;
            fs::write(site.join("torch/__pycache__/x.so"), "")?;
            fs::copy("/proc/self/exe", site.join("torch/good.so"))?;
            symlink("good.so", site.join("torch/link.so.2"))?;
            symlink("nowhere", site.join("torch/nothing"))?;
            symlink("lib", folder.join("lib64"))
        };
        let root = store.build_tree("wheel", "a", build).unwrap();
        let scan = TreeScan::load_or_read(&root, Some(&store)).unwrap();
        const SITE: &str = "lib/python3.13/site-packages/";
        let path = |name: &str| format!("{SITE}{name}");
        assert_eq!(
            scan.libraries.keys().collect::<Vec<_>>(),
            [&path("torch/good.so")]
        );
        assert!(!scan.libraries[&path("torch/good.so")].needed.is_empty());
        let refused = [
            (path("torch/broken.so"), false),
            (path("torch/cut_off.so"), true),
            (path("torch/short.so.1"), true),
        ];
        assert_eq!(scan.refused, refused.into());
        assert_eq!(
            scan.unread.keys().collect::<Vec<_>>(),
            [&path("torch/cut_off.so")]
        );
        let links = [
            (path("torch/link.so.2"), "good.so".to_owned()),
            ("lib64".to_owned(), "lib".to_owned()),
        ];
        assert_eq!(scan.links, links.into());
        assert_eq!(scan.metadata, [path("torch-2.15.0.dist-info")]);
        assert_eq!(
            scan.torch,
            Some(("__version__ = '2.15.0'\n".to_owned(), SITE.to_owned()))
        );
        // A second time it is not read again, and a spoilt note is made anew.
        let kept = store.find_tree(KIND, &key(&root, &store).unwrap()).unwrap();
        assert_eq!(load(&kept).unwrap(), scan);
        fs::write(kept.join(FILE), "{").unwrap();
        assert_eq!(TreeScan::load_or_read(&root, Some(&store)).unwrap(), scan);
        assert!(load(&store.find_tree(KIND, &key(&root, &store).unwrap()).unwrap()).is_some());
        assert!(TreeScan::load_or_read(&dir.path().join("nothing"), None).is_err());
    }

    #[test]
    fn links_out_of_a_folder_are_what_they_lead_to() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        let site = dir.path().join("venv/lib/python3.13/site-packages");
        for folder in [
            cache.join("torch/lib"),
            cache.join("torch-2.8.0.dist-info"),
            site.clone(),
        ] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::copy("/proc/self/exe", cache.join("torch/lib/good.so")).unwrap();
        // A folder that leads back to what holds it.
        symlink(dir.path(), cache.join("torch/back")).unwrap();
        for name in ["torch", "torch-2.8.0.dist-info"] {
            symlink(cache.join(name), site.join(name)).unwrap();
        }
        symlink(cache.join("torch/lib/good.so"), site.join("single.so")).unwrap();
        let venv = dir.path().join("venv").canonicalize().unwrap();
        let scan = TreeScan::load_or_read(&venv, None).unwrap();
        const SITE: &str = "lib/python3.13/site-packages/";
        let found: Vec<&String> = scan.libraries.keys().collect();
        assert_eq!(
            found,
            [
                &format!("{SITE}single.so"),
                &format!("{SITE}torch/lib/good.so")
            ]
        );
        assert_eq!(scan.metadata, [format!("{SITE}torch-2.8.0.dist-info")]);
        // An image may not.
        let image = TreeScan::read(&venv, false).unwrap();
        assert!(image.libraries.is_empty() && image.metadata.is_empty());
    }

    #[test]
    fn what_is_kept_is_as_before() {
        let one = |value: &str| BTreeMap::from([("lib/a.so".to_owned(), value.to_owned())]);
        let scan = TreeScan {
            libraries: [("lib/a.so".to_owned(), ElfLibrary::default())].into(),
            refused: [("lib/b.so".to_owned(), true)].into(),
            unread: one("it is cut off"),
            links: one("b.so"),
            metadata: vec!["site-packages/torch-2.15.0.dist-info".to_owned()],
            torch: Some((
                "__version__ = '2.15.0'".to_owned(),
                "site-packages/torch".to_owned(),
            )),
        };
        crate::golden::goldens().assert_values("scan.json", &[&scan]);
        let text = crate::golden::goldens().read_text("scan.json");
        assert_eq!(serde_json::from_str::<TreeScan>(&text).unwrap(), scan);
    }
}
