//! How a path that a run could write, an output would replace or an image would hold lies to Sconce's own folders.

use std::fmt;
use std::path::PathBuf;

/// One of Sconce's own folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectedDirectory {
    /// The store.
    Store,
    /// Records, leases and host keys.
    State,
    /// The user's configuration.
    Config,
    /// Compiled kernels.
    Kernels,
}

impl fmt::Display for ProtectedDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Store => "the store",
            Self::State => "the folder of the records of runs",
            Self::Config => "the folder of Sconce's configuration",
            Self::Kernels => "the folder of the kernels that runs compiled",
        })
    }
}

impl ProtectedDirectory {
    /// What a run that writes there could do.
    pub fn write_risk(self) -> &'static str {
        match self {
            Self::Store => "change what it and other runs are made of",
            Self::State => "change what is recorded of it and of other runs",
            Self::Config => "change where Sconce has its packages from",
            Self::Kernels => "change what other projects' runs execute",
        }
    }

    /// What an image that has it would do.
    pub fn packing_risk(self) -> &'static str {
        match self {
            Self::Store => "have in it what it is made of, and more of it each time",
            Self::State => "have in it what was recorded of runs",
            Self::Config => "have in it how this machine is set up",
            Self::Kernels => "have in it what runs compiled",
        }
    }

    /// How the folder is put elsewhere.
    pub fn relocation_hint(self) -> &'static str {
        match self {
            Self::Store => {
                "keep the store elsewhere, with `store = \"FOLDER\"` in config.toml or --store FOLDER"
            }
            Self::State => "set XDG_STATE_HOME to a folder elsewhere",
            Self::Config => "set XDG_CONFIG_HOME to a folder elsewhere",
            Self::Kernels => {
                "mount only the folder in it that the run needs, or set XDG_CACHE_HOME to a folder elsewhere"
            }
        }
    }
}

/// How a path that a run could write, or an image would hold, lies to one of Sconce's own folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnFolderRelation {
    /// It is the directory itself.
    Same,
    /// The path lies in the folder.
    Inside,
    /// The folder lies in the path.
    Contains,
    /// Something of the folder shows below the path, by a bind mount.
    ContainsPart,
    /// A name is looked up in the path, or below it, on the way to the folder: that of a link, or of what another
    /// file system is mounted over.
    OnTheWay,
}

/// What a path has to do with one of Sconce's own folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnFolderConflict {
    /// Which of Sconce's directories.
    pub own: ProtectedDirectory,
    /// Where that is.
    pub folder: PathBuf,
    /// How the two lie to each other.
    pub relation: OwnFolderRelation,
}

impl fmt::Display for OwnFolderConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (own, folder) = (self.own, self.folder.display());
        match self.relation {
            OwnFolderRelation::Same => write!(f, "is {own}"),
            OwnFolderRelation::Inside => write!(f, "lies in {own} ({folder})"),
            OwnFolderRelation::Contains => write!(f, "has {own} ({folder}) in it"),
            OwnFolderRelation::ContainsPart => write!(f, "has a part of {own} ({folder}) in it"),
            OwnFolderRelation::OnTheWay => write!(f, "is on the way to {own} ({folder})"),
        }
    }
}

/// What is mounted writable.
#[derive(Debug)]
pub enum WritableSource {
    /// Because it is the project's.
    Project(PathBuf),
    /// A directory that is mounted.
    Folder(PathBuf),
    /// A file that is mounted.
    File(PathBuf),
}

impl fmt::Display for WritableSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Project(path) => write!(f, "the project's folder {}", path.display()),
            Self::Folder(path) => write!(f, "the mounted folder {}", path.display()),
            Self::File(path) => write!(f, "the mounted file {}", path.display()),
        }
    }
}
