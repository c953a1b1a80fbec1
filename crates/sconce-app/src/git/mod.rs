//! A git repository, read as files: its commit, its tags and how they lie to each other, and which files it tracks.
//!
//! A project's repository is input from outside. git itself would follow its configuration, which names programs
//! (`core.fsmonitor`, filters, `include.path`) and is refused where another user owns it; here none of it is read, so
//! nothing of it can run, and a machine needs no git. Loose objects, packs, packed references, worktrees, shallow
//! clones and alternates are known (gitrepository-layout(5), gitformat-pack(5), gitformat-index(5)); a repository of
//! `extensions.refStorage = reftable` is not, and counts as none.

mod describe;
mod ignore;
mod index;
mod objects;
mod refs;

use std::path::{Path, PathBuf};

use sconce_base::input::read_regular;
use sconce_schema::Bytes;

pub(crate) use self::describe::{Described, describe};
pub(crate) use self::index::tracked_files;
pub(crate) use self::refs::Tag;

/// No file of one line is longer.
const MAX_LINE_FILE: Bytes = Bytes::from_kib(64);
/// No list of references is longer.
const MAX_LIST_FILE: Bytes = Bytes::from_mib(64);

/// What names an object: 20 bytes of SHA-1, or 32 of SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectId {
    bytes: [u8; 32],
    length: u8,
}

impl ObjectId {
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if !matches!(bytes.len(), 20 | 32) {
            return None;
        }
        let mut all = [0; 32];
        all[..bytes.len()].copy_from_slice(bytes);
        let length = u8::try_from(bytes.len()).ok()?;
        Some(Self { bytes: all, length })
    }

    /// 40 or 64 hexadecimal digits.
    fn parse(text: &str) -> Option<Self> {
        if !text.is_ascii() || !text.len().is_multiple_of(2) || text.len() > 64 {
            return None;
        }
        let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).ok();
        let is_hex = text.bytes().all(|b| b.is_ascii_hexdigit());
        let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
        Self::from_bytes(&bytes.filter(|_| is_hex)?)
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// As it is written.
    pub(crate) fn to_hex(self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for byte in self.as_bytes() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

/// Where a repository lies.
#[derive(Debug, Clone)]
pub(crate) struct Repository {
    /// What belongs to this working tree: HEAD, the index.
    git_dir: PathBuf,
    /// What all working trees share: objects, references.
    common_dir: PathBuf,
    /// The working tree.
    pub(crate) work_tree: PathBuf,
}

impl Repository {
    /// The repository whose working tree a folder is. A `.git` may be a file that says where it is, in a worktree and
    /// in a submodule.
    pub(crate) fn open(folder: &Path) -> Option<Self> {
        let dot_git = folder.join(".git");
        let git_dir = match dot_git.is_dir() {
            true => dot_git,
            false => {
                let text = read_text(&dot_git, MAX_LINE_FILE)?;
                folder.join(text.strip_prefix("gitdir:")?.trim())
            }
        };
        let common_dir = match read_text(&git_dir.join("commondir"), MAX_LINE_FILE) {
            Some(text) => git_dir.join(text.trim()),
            None => git_dir.clone(),
        };
        let is_one = git_dir.join("HEAD").is_file() && common_dir.join("objects").is_dir();
        is_one.then(|| Self {
            git_dir,
            common_dir,
            work_tree: folder.to_owned(),
        })
    }

    /// When the commit that is checked out was committed, seconds since 1970.
    pub(crate) fn head_time(&self) -> Option<i64> {
        let commit = objects::ObjectDatabase::open(self).read_commit(self.head()?)?;
        Some(commit.time)
    }

    /// The repository that a folder lies in.
    pub(crate) fn find(folder: &Path) -> Option<Self> {
        folder.ancestors().find_map(Self::open)
    }
}

fn read_text(path: &Path, limit: Bytes) -> Option<String> {
    String::from_utf8(read_regular(path, limit).ok()?).ok()
}

#[cfg(test)]
mod tests;
