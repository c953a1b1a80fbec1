//! Why a spec cannot be locked.

use std::path::PathBuf;

use sconce_schema::{Hint, exit};

use crate::build_failure::BuildFailure;
use crate::debian::ArchiveError;
use crate::debian::index::IndexError;
use crate::debian::openpgp::SignatureError;
use crate::debian::solve::SolveError;
use crate::debian::sources::NoMirrorError;
use crate::python::build_settings::BuildSettingError;
use crate::python::compile_error::CompileError;
use crate::python::download_table::DownloadTableError;
use crate::python::uv::UvError;

/// Why a spec cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// A release that is not known.
    #[error("`{release}` is not a release that environments are made from")]
    Release {
        /// What was asked for.
        release: String,
    },
    /// An architecture that is not known.
    #[error("environments are not made for the architecture `{architecture}`")]
    Architecture {
        /// What was asked for.
        architecture: String,
    },
    /// Nobody has this Python.
    #[error(
        "{release} has no Python {wanted}, but {}, and no standalone one is known but {}",
        has.join(" and "), standalone.join(", ")
    )]
    Python {
        /// The release.
        release: String,
        /// The version that was asked for.
        wanted: String,
        /// The versions that it has.
        has: Vec<String>,
        /// The versions that there are for any release.
        standalone: Vec<String>,
    },
    /// A Python from before all that environments are made with.
    #[error(
        "Python {wanted} is too old: 3.8 is the oldest that there are standalone builds of, with a digest \
         to check them by"
    )]
    OldPython {
        /// The version that was asked for.
        wanted: String,
    },
    /// A project wants a Python that environments are not made with.
    #[error("{said}, and environments have Python 3.8 to 3.15")]
    PythonBound {
        /// The first file.
        file: String,
        /// What the files ask for.
        said: String,
    },
    /// A project wants a Python that nobody has, of those that there could be.
    #[error(
        "{said}: {release} has Python {has}, and no standalone one is known but {}",
        standalone.join(", ")
    )]
    UnknownPython {
        /// What the files ask for.
        said: String,
        /// The release.
        release: String,
        /// The version that it has.
        has: String,
        /// The versions that there are for any release.
        standalone: Vec<String>,
    },
    /// Packages resolve for no Python.
    #[error("the Python packages cannot be locked for Python {tried}{before}; for {best}")]
    NoPython {
        /// What was tried, `3.13, 3.12 or 3.11`.
        tried: String,
        /// Why not for those before the one that the source is of, ` (torch==1.13.1 has no wheels for 3.13)`.
        before: String,
        /// The one that the source is of.
        best: String,
        /// Why not for that.
        source: Box<CompileError>,
    },
    /// There is no table of standalone Pythons.
    #[error("no Python can be taken that Debian does not have")]
    Downloads(#[from] DownloadTableError),
    /// The release lacks a package that every environment needs.
    #[error("{release} has no usable package `{package}`")]
    Incomplete {
        /// The release.
        release: String,
        /// The package.
        package: &'static str,
    },
    /// There is no keyring to check the archive with.
    #[error("there is no keyring to check the signatures of Debian with")]
    NoKeyring,
    /// The keyring cannot be read.
    #[error("cannot read the keyring {}", path.display())]
    Keyring {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// No archive is known.
    #[error("no system packages can be resolved")]
    Mirror(#[from] NoMirrorError),
    /// No program checks signatures here.
    #[error("the archive cannot be trusted")]
    Signature(#[from] SignatureError),
    /// The archive cannot be used.
    #[error("the Debian archive cannot be used")]
    Archive(#[from] ArchiveError),
    /// An index is malformed.
    #[error("the index of {suite} is malformed")]
    Index {
        /// The suite.
        suite: String,
        /// What is wrong.
        source: IndexError,
    },
    /// System packages do not resolve.
    #[error("the system packages do not resolve")]
    Solve(#[from] SolveError),
    /// There is no uv.
    #[error("the Python packages cannot be resolved")]
    Uv(#[from] UvError),
    /// A stage's packages go together only with another version of one of the environment's.
    #[error(
        "stage `{stage}` cannot have {package} {version} as the environment has; {}",
        other.as_ref().map_or("it would not have it".to_owned(), |other| format!("it would have {other}"))
    )]
    Stage {
        /// The stage.
        stage: String,
        /// The package.
        package: String,
        /// The environment's version.
        version: String,
        /// The version that goes with the stage's packages.
        other: Option<String>,
    },
    /// A compiler goes only with another version of one of the environment's packages.
    #[error(
        "no compiler goes with {package} {version}, which the environment has; {}",
        other.as_ref().map_or("it would not be there".to_owned(), |other| format!("it would be {other}"))
    )]
    Compiler {
        /// The package.
        package: String,
        /// The environment's version.
        version: String,
        /// The version that goes with a compiler.
        other: Option<String>,
    },
    /// Python packages do not resolve.
    #[error("the Python packages cannot be locked")]
    Compile(#[from] CompileError),
    /// A package that has no wheel was not built.
    #[error("cannot build {package}")]
    Build {
        /// Name and version.
        package: String,
        /// Why.
        source: BuildFailure,
    },
    /// The settings for a package's build cannot be followed.
    #[error("cannot build {package}")]
    BuildSetting {
        /// Name and version.
        package: String,
        /// Why.
        source: BuildSettingError,
    },
    /// What is built needs other packages each time.
    #[error("{} never come to rest: whenever they are built, others are needed", packages.join(", "))]
    BuildCircle {
        /// Their names.
        packages: Vec<String>,
    },
    /// A package of others wants a file of this machine.
    #[error("{package} needs `{requirement}`, which is a file of this machine, or no address")]
    LocalRequirement {
        /// Name and version.
        package: String,
        /// What it says.
        requirement: String,
    },
}

impl Hint for ResolveError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Release { .. } => {
                let names = sconce_schema::spec::RELEASES.map(|name| format!("`debian/{name}`"));
                return Some(format!(
                    "write {} in `[system] release`",
                    names.join(" or ")
                ));
            }
            Self::Architecture { .. } => "amd64 and arm64 are supported",
            Self::Python { .. } => "change `[python] version`, or `[system] release`",
            Self::OldPython { .. } => {
                "take `[python] version = \"3.8\"` or newer, and versions of the packages that have wheels \
                 for it; what needs an older one runs in an image of others: `sconce run NAME:TAG`"
            }
            Self::PythonBound { .. } => {
                "change what it asks for, or name a Python with `[python] version`"
            }
            Self::UnknownPython { .. } => {
                "change what it asks for, or name a table that has such a Python: `python-downloads` in \
                 config.toml"
            }
            Self::NoPython { source, .. } => return source.hint(),
            Self::Downloads(e) => return e.hint(),
            Self::NoKeyring | Self::Keyring { .. } => {
                "install the package debian-archive-keyring (Debian and Ubuntu have it), or copy its \
                 /usr/share/keyrings/debian-archive-keyring.gpg from a machine that has it"
            }
            Self::Stage { .. } => {
                "what is built in a stage has to fit the environment: ask for other versions in its \
                 `python`, or in `[python] packages`"
            }
            Self::Compiler { .. } => {
                "take the newest versions of all packages: `sconce lock --upgrade`; or leave it out: \
                 `[system] compiler = false`"
            }
            Self::Incomplete { .. } | Self::Index { .. } => "use another mirror",
            Self::Mirror(e) => return e.hint(),
            Self::Signature(e) => return e.hint(),
            Self::Archive(e) => return e.hint(),
            Self::Solve(e) => return e.hint(),
            Self::Uv(e) => return e.hint(),
            Self::Compile(e) => return e.hint(),
            Self::Build { source, .. } => return source.hint(),
            Self::BuildSetting { source, .. } => return source.hint(),
            Self::BuildCircle { .. } => "name their versions in `[python] packages`",
            Self::LocalRequirement { .. } => {
                "take another version of it; what is really meant can be named in `[python] packages`"
            }
        };
        Some(text.to_owned())
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Release { .. }
            | Self::Architecture { .. }
            | Self::NoKeyring
            | Self::OldPython { .. }
            | Self::Keyring { .. } => exit::BAD_INPUT,
            Self::NoPython { source, .. } => source.exit_code(),
            Self::Downloads(e) => e.exit_code(),
            Self::PythonBound { .. }
            | Self::UnknownPython { .. }
            | Self::Python { .. }
            | Self::Incomplete { .. }
            | Self::Stage { .. }
            | Self::Compiler { .. } => exit::NO_SOLUTION,
            Self::Index { .. } => exit::VERIFY,
            Self::Mirror(e) => e.exit_code(),
            Self::Signature(e) => e.exit_code(),
            Self::Archive(e) => e.exit_code(),
            Self::Solve(e) => e.exit_code(),
            Self::Uv(e) => e.exit_code(),
            Self::Compile(e) => e.exit_code(),
            Self::Build { source, .. } => source.exit_code(),
            Self::BuildSetting { source, .. } => source.exit_code(),
            Self::BuildCircle { .. } => exit::NO_SOLUTION,
            Self::LocalRequirement { .. } => exit::VERIFY,
        }
    }
}
