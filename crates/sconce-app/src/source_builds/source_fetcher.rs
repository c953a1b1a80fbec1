//! Sources in the store: archives as they are, commits as checkouts. Git runs on the host, where the
//! user's logins and other addresses (`insteadOf`) are; nothing of a repository is executed there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sconce_base::secrets;
use sconce_resolve::python::source_package::{SourceOrigin, SourcePackage};
use sconce_schema::Sha256;
use sconce_store::{TreeBuildError, TreeBuildOptions};
use sha2::Digest as _;

use super::{ContainedBuilder, SourceBuildError};
use crate::failure::{AppError, Failure, Result};
use crate::file_action::FileAction;
use crate::git::Repository;

/// The kind of the store's items that hold sources.
const KIND: &str = "source";
/// No archive is larger.
const MAX_ARCHIVE_BYTES: u64 = 1 << 30;
/// What is in such an item.
const ARCHIVE: &str = "archive";
const CHECKOUT: &str = "checkout";
/// What takes a version from the repository's tags and history.
const VERSION_TOOLS: [&str; 7] = [
    "setuptools_scm",
    "setuptools-scm",
    "hatch-vcs",
    "versioneer",
    "versioningit",
    "dunamai",
    "pbr",
];
/// What every call of git has: no protocol that is a program, no hooks, no waiting for ever.
const GIT_SETTINGS: [&str; 10] = [
    "-c",
    "protocol.ext.allow=never",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "http.lowSpeedLimit=1000",
    "-c",
    "http.lowSpeedTime=60",
];

impl ContainedBuilder<'_> {
    /// The archive or the checkout, fetched where the store does not have it.
    pub(super) fn fetch_source(&self, origin: &SourceOrigin) -> Result<PathBuf> {
        let (key, name) = match origin {
            SourceOrigin::Archive { sha256, .. } => (sha256.to_string(), ARCHIVE),
            SourceOrigin::Git { url, commit, .. } => {
                let digest = Sha256(sha2::Sha256::digest(url).into()).to_string();
                (format!("{commit}-{}", &digest[..12]), CHECKOUT)
            }
        };
        let (store, progress) = (self.store, self.progress);
        if let Some(tree) = store.find_tree(KIND, &key) {
            return Ok(tree.join(name));
        }
        if self.context.offline {
            let missing = vec![origin.url().to_owned()];
            return Err(AppError::Offline { missing }.into());
        }
        let url = secrets::mask_text(origin.url());
        progress.advance(&url, 0);
        let making = TreeBuildOptions {
            name: KIND,
            work: &format!("fetches {url}"),
            progress,
            accept: &|_| true,
        };
        let made = store.build_tree_with(KIND, &key, making, |folder| match origin {
            SourceOrigin::Archive { url, sha256, .. } => {
                self.fetch_archive(url, *sha256, &folder.join(ARCHIVE))
            }
            SourceOrigin::Git { url, commit, .. } => {
                self.check_out(url, commit, &folder.join(CHECKOUT))
            }
        });
        progress.done(&url);
        let tree = made.map_err(|error| match error {
            TreeBuildError::Store(error) => Failure::from(error),
            TreeBuildError::Build(failure) => failure,
        })?;
        Ok(tree.join(name))
    }

    /// Whether a build of these sources asks git for their version.
    pub(super) fn asks_git(&self, package: &SourcePackage) -> Result<bool> {
        match package.origin {
            SourceOrigin::Archive { .. } => Ok(false),
            SourceOrigin::Git { .. } => {
                let root = self.fetch_source(&package.origin)?;
                let folder = package.origin.subdirectory().unwrap_or(".");
                Ok(takes_version_from_git(&root.join(folder)))
            }
        }
    }

    /// When the commit was made, seconds since 1970: a checkout has files of the day that it was fetched.
    pub(super) fn commit_time(&self, package: &SourcePackage) -> Option<i64> {
        match package.origin {
            SourceOrigin::Archive { .. } => None,
            SourceOrigin::Git { .. } => {
                let checkout = self.fetch_source(&package.origin).ok()?;
                Repository::open(&checkout)?.head_time()
            }
        }
    }

    fn fetch_archive(&self, url: &str, expected: Sha256, file: &Path) -> Result<()> {
        let bytes = self.fetcher.get(url, MAX_ARCHIVE_BYTES)?;
        let found = Sha256(sha2::Sha256::digest(&bytes).into());
        if found != expected {
            let url = secrets::mask_text(url);
            return Err(SourceBuildError::OtherBytes {
                url,
                found,
                expected,
            }
            .into());
        }
        std::fs::write(file, bytes).map_err(|source| {
            AppError::File {
                action: FileAction::Write,
                path: file.to_owned(),
                source,
            }
            .into()
        })
    }

    fn check_out(&self, url: &str, commit: &str, folder: &Path) -> Result<()> {
        let git = Git::find(self, url, commit)?;
        let at = folder.as_os_str();
        git.run(&["init".as_ref(), "--quiet".as_ref(), at])?;
        let within = |words: &[&str]| {
            let words = words.iter().map(OsStr::new);
            let words: Vec<&OsStr> = [OsStr::new("-C"), at].into_iter().chain(words).collect();
            git.run(&words)
        };
        within(&["remote", "add", "origin", url])?;
        // A server may refuse a commit by its name.
        let one = within(&["fetch", "--quiet", "--depth=1", "origin", commit]);
        if one.is_err() {
            within(&["fetch", "--quiet", "--tags", "origin"])?;
        }
        within(&["checkout", "--quiet", "--detach", commit])?;
        if one.is_ok() && takes_version_from_git(folder) {
            within(&[
                "fetch",
                "--quiet",
                "--unshallow",
                "--tags",
                "origin",
                commit,
            ])?;
        }
        if folder.join(".gitmodules").is_file() {
            within(&["submodule", "--quiet", "update", "--init", "--recursive"])?;
        }
        Ok(())
    }
}

/// Whether a project's files name a tool that asks git for its version.
fn takes_version_from_git(folder: &Path) -> bool {
    ["pyproject.toml", "setup.py", "setup.cfg"]
        .iter()
        .filter_map(|name| crate::input::read_text(&folder.join(name)).ok())
        .any(|text| VERSION_TOOLS.iter().any(|tool| text.contains(tool)))
}

/// git, for one commit.
struct Git<'a> {
    program: PathBuf,
    builder: &'a ContainedBuilder<'a>,
    url: &'a str,
    commit: &'a str,
}

impl<'a> Git<'a> {
    fn find(builder: &'a ContainedBuilder<'a>, url: &'a str, commit: &'a str) -> Result<Self> {
        let program = builder.context.env.find_program("git");
        let program = program.ok_or_else(|| SourceBuildError::NoGit {
            url: secrets::mask_text(url),
        })?;
        Ok(Self {
            program,
            builder,
            url,
            commit,
        })
    }

    fn run(&self, words: &[&OsStr]) -> Result<()> {
        let output = Command::new(&self.program)
            .args(GIT_SETTINGS)
            .args(words)
            .env_clear()
            .envs(self.builder.context.env.iter())
            .env_remove("GIT_DIR")
            .env_remove("GIT_WORK_TREE")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_LFS_SKIP_SMUDGE", "1")
            .stdin(Stdio::null())
            .output();
        let failed = |said: String| SourceBuildError::Git {
            url: secrets::mask_text(self.url),
            commit: self.commit.to_owned(),
            said: secrets::mask_text(&said),
        };
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(failed(said.trim_end().to_owned()).into())
            }
            Err(error) => Err(failed(error.to_string()).into()),
        }
    }
}
