//! What a lock is made from: the spec's values, and what they are resolved with.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

use sconce_schema::Sha256;
use sconce_schema::lock::Lock;
use sconce_schema::spec::{BuiltinService, StageRequirements};
use sconce_store::Store;

use crate::DocumentSource;
use crate::debian::sources::{AptFile, MirrorOverride};
use crate::project_builds::ProjectBuild;
use crate::python::IndexSettings;
use crate::python::build_settings::BuildSettings;
use crate::python::compile::Requirements;
use crate::python::uv::UvSource;
use crate::source_builds::SourceBuilder;

/// What is to be locked: the spec's values, flags already merged into them.
#[derive(Debug, Clone)]
pub struct LockInput {
    /// `debian/trixie`.
    pub release: String,
    /// Whether that was only the default: a Python of another release may change it.
    pub is_release_open: bool,
    /// Debian's name of the architecture: `amd64`, `arm64`.
    pub architecture: String,
    /// Python's major and minor version; absent: the release's own, or the next lower one that all
    /// packages have wheels for.
    pub python: Option<String>,
    /// The Pythons that the spec allows where it names no single one: `<3.11`.
    pub python_bound: Option<String>,
    /// Python packages.
    pub requirements: Requirements,
    /// Folders of projects whose bounds on Python count, besides those of `requirements`.
    pub project_folders: Vec<PathBuf>,
    /// Their normalised names.
    pub project_names: Vec<String>,
    /// How those are built for an image.
    pub project_builds: Vec<ProjectBuild>,
    /// The spec's folder: relative paths in requirements are below it.
    pub folder: PathBuf,
    /// Debian packages besides the base set, as `apt-get install` takes them.
    pub system_packages: Vec<String>,
    /// Services whose packages are wanted, too.
    pub services: Vec<BuiltinService>,
    /// Whether a compiler is wanted; absent: where something compiles when a script runs.
    pub compiler: Option<bool>,
    /// What stages have beside these.
    pub more: Vec<StageRequirements>,
    /// The last day whose uploads to Python indexes count, `2021-03-25`; absent: all count.
    pub as_of: Option<String>,
    /// What the project says of the builds of single packages.
    pub build_settings: BuildSettings,
    /// Python indexes that the spec or a flag names.
    pub index: IndexSettings,
    /// Debian archives that the spec, the configuration or a flag names.
    pub mirror: MirrorOverride,
    /// The lock that is there, whose versions are kept where they still satisfy.
    pub previous: Option<Lock>,
    /// Take the newest of everything.
    pub upgrade: bool,
    /// Digest of the inputs, for [`Lock::inputs`].
    pub inputs: Sha256,
}

/// What the machine offers for it.
pub struct LockContext<'a> {
    /// What archives are read through.
    pub documents: &'a dyn DocumentSource,
    /// Where uv is kept.
    pub store: &'a Store,
    /// apt's sources: `/etc/apt/sources.list`, `/etc/apt/sources.list.d/*` and, for cloud images,
    /// `/etc/apt/mirrors/*`.
    pub apt_files: Vec<AptFile>,
    /// OpenPGP keys that may sign the archive; absent: those that the apt source names, else
    /// those of the package debian-archive-keyring.
    pub keyring: Option<Vec<u8>>,
    /// The folders of PATH, where `gpgv` or `sqv` is looked for.
    pub path_folders: Vec<PathBuf>,
    /// The whole environment, for uv and pip.
    pub environment: BTreeMap<OsString, OsString>,
    /// Where uv comes from.
    pub uv: UvSource,
    /// A table of standalone Pythons that the configuration names: a file, or an address.
    pub python_downloads: Option<String>,
    /// The indexes that the machine's pip uses; they count when neither the spec nor uv's own
    /// variables name any. Leave them empty when uv has a configuration file of its own.
    pub pip_index: IndexSettings,
    /// What builds packages that have sources alone; absent: none is built.
    pub source_builder: Option<&'a dyn SourceBuilder>,
    /// The time.
    pub now: SystemTime,
}

/// The lock that is there, where its versions are to be kept: of Debian packages in the same release.
pub(crate) fn previous_lock<'l>(input: &'l LockInput, release: &str) -> Option<&'l Lock> {
    input.previous.as_ref().filter(|previous| {
        let target = &previous.target;
        let same = target.release == release && target.architecture == input.architecture;
        same && !input.upgrade
    })
}
