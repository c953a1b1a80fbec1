//! A folder to unpack into, in memory, and what must not change beside it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const KEPT: &str = "nobody writes here";

/// Removes what the targets of this process wrote. `scripts/fuzz` does so by the folder's name, as
/// libFuzzer ends its process itself.
pub fn remove_scratch() {
    let _ = fs::remove_dir_all(folder());
}

/// The process's own folder.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let folder = base.join(format!("sconce-fuzz-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder can be made");
        folder
    })
}

/// An empty folder `tree` with a neighbour `outside` that holds one file.
pub(crate) struct Pen {
    /// Where to unpack.
    pub(crate) tree: PathBuf,
    /// The file that nobody may reach.
    pub(crate) outside: PathBuf,
}

impl Pen {
    /// Made anew.
    pub(crate) fn new() -> Self {
        let pen = Self {
            tree: folder().join("tree"),
            outside: folder().join("outside/file"),
        };
        let _ = fs::remove_dir_all(&pen.tree);
        fs::create_dir(&pen.tree).expect("a folder can be made");
        if !pen.outside.exists() {
            fs::create_dir(folder().join("outside")).expect("a folder can be made");
            fs::write(&pen.outside, KEPT).expect("a file can be written");
            fs::set_permissions(&pen.outside, fs::Permissions::from_mode(0o600))
                .expect("a mode can be set");
        }
        pen
    }

    /// That nothing but `tree` was written.
    pub(crate) fn assert_closed(&self) {
        assert_eq!(names(folder()), ["outside", "tree"], "beside the tree");
        assert_eq!(names(&folder().join("outside")), ["file"]);
        let meta = self.outside.symlink_metadata().expect("the file is there");
        assert!(meta.is_file(), "the file outside was replaced");
        assert_eq!(meta.permissions().mode() & 0o7777, 0o600);
        assert_eq!(fs::read(&self.outside).expect("it reads"), KEPT.as_bytes());
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(meta.nlink(), 1, "the file outside got another name");
    }
}

/// The names in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| {
            let name = entry.expect("an entry reads").file_name();
            name.to_string_lossy().into_owned()
        })
        .collect();
    names.sort();
    names
}

/// Every file, folder and link below `folder`, with what lstat says.
pub(crate) fn walk(folder: &Path, tell: &mut dyn FnMut(&Path, &fs::Metadata)) {
    for entry in fs::read_dir(folder).expect("the folder reads") {
        let path = entry.expect("an entry reads").path();
        let meta = path.symlink_metadata().expect("it is there");
        tell(&path, &meta);
        if meta.is_dir() {
            walk(&path, tell);
        }
    }
}

/// Writes a file and what is missing above it.
pub(crate) fn put(path: &Path, bytes: &[u8]) {
    if fs::write(path, bytes).is_err() {
        let folder = path.parent().expect("a file has a folder");
        fs::create_dir_all(folder).expect("folders can be made");
        fs::write(path, bytes).expect("a file can be written");
    }
}
