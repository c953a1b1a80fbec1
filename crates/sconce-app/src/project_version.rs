//! The version of a project that its repository tells: of its commit and its tags, read and never computed by code
//! of the project.

use std::path::{Path, PathBuf};

use sconce_base::input::read_regular;
use sconce_formats::scm_version::ScmSettings;
use sconce_schema::{Bytes, Sha256};
use sha2::Digest as _;
use tracing::debug;

use crate::editable_projects::EditableProject;
use crate::git::{self, Described, Repository, Tag};

/// What archives of a repository have in its place.
const ARCHIVAL: &str = ".git_archival.txt";
const PKG_INFO: &str = "PKG-INFO";
const MAX_FILE_BYTES: Bytes = Bytes::from_mib(1);
/// A history of so many commits is followed once, and what came out is kept.
const MIN_KEPT_COMMITS: usize = 20;

/// A project's commit, and its version by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitVersion {
    /// As the project's build backend would have it.
    pub version: String,
    /// The commit, in hexadecimal digits; absent where files of an archive told the version.
    pub commit: Option<String>,
}

/// The version of a project that its repository tells; `None` where that is not how it has its version, or where there
/// is none to be read. `cache` is a folder in which what takes long is kept.
#[must_use]
pub fn version_of_commit(project: &EditableProject, cache: &Path) -> Option<CommitVersion> {
    let settings = project.scm.as_ref()?;
    let found = find_repository(settings, &project.folder)
        .and_then(|repository| of_repository(settings, &repository, cache));
    let found = found.or_else(|| {
        of_archive(settings, &project.folder)
            .or_else(|| settings.fallback.clone())
            .map(|version| CommitVersion {
                version,
                commit: None,
            })
    });
    debug!(
        project = project.metadata.name,
        ?found,
        "the version that the repository tells"
    );
    found
}

/// The repository that counts: that of the folder which the settings name, or of any above where they say so.
fn find_repository(settings: &ScmSettings, folder: &Path) -> Option<Repository> {
    let root = folder.join(&settings.root).canonicalize().ok()?;
    match settings.searches_parents {
        true => Repository::find(&root),
        false => Repository::open(&root),
    }
}

fn of_repository(
    settings: &ScmSettings,
    repository: &Repository,
    cache: &Path,
) -> Option<CommitVersion> {
    let head = repository.head()?;
    let mut tags = repository.tags();
    tags.retain(|tag| settings.version_of_tag(&tag.name).is_some());
    let commit = head.to_hex();
    let kept = cache.join(cache_key(repository, &commit, &tags));
    let described = match read_kept(&kept, &tags) {
        Some(described) => described,
        None => {
            let described = git::describe(repository, head, &tags)?;
            if described.seen >= MIN_KEPT_COMMITS {
                keep(&kept, &described, &tags);
            }
            described
        }
    };
    let tag = described.tag.and_then(|number| tags.get(number));
    let tag = tag.and_then(|tag| settings.version_of_tag(&tag.name));
    let version = settings.version_of_commit(tag.as_deref(), described.distance, &commit);
    Some(CommitVersion {
        version,
        commit: Some(commit),
    })
}

/// All that decides where a commit stands: itself, the tags, and where history is cut off.
fn cache_key(repository: &Repository, commit: &str, tags: &[Tag]) -> String {
    let mut hash = sha2::Sha256::new();
    hash.update(format!("1\n{commit}\n"));
    for tag in tags {
        hash.update(format!("{tag:?}\n"));
    }
    hash.update(format!("{:?}", repository.shallow()));
    Sha256(hash.finalize().into()).to_string()
}

/// What was kept: the distance, and the tag's name where there is one.
fn read_kept(kept: &Path, tags: &[Tag]) -> Option<Described> {
    let text = String::from_utf8(read_regular(kept, MAX_FILE_BYTES).ok()?).ok()?;
    let (distance, name) = text.split_once('\n')?;
    let tag = match name {
        "" => None,
        name => Some(tags.iter().position(|tag| tag.name == name)?),
    };
    Some(Described {
        tag,
        distance: distance.parse().ok()?,
        seen: 0,
    })
}

/// Keeps it, where the folder can be written to: without it, the next start takes as long.
fn keep(kept: &Path, described: &Described, tags: &[Tag]) {
    let name = described
        .tag
        .map_or("", |number| tags[number].name.as_str());
    let text = format!("{}\n{name}", described.distance);
    let write = || {
        let folder = kept.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let file: PathBuf = tempfile::NamedTempFile::new_in(folder)?
            .into_temp_path()
            .keep()?;
        std::fs::write(&file, &text)?;
        std::fs::rename(&file, kept)
    };
    if let Err(error) = write() {
        debug!(%error, "where a commit stands is not kept");
    }
}

/// The version that the files of an archive tell.
fn of_archive(settings: &ScmSettings, folder: &Path) -> Option<String> {
    let read = |name: &str| {
        let bytes = read_regular(&folder.join(name), MAX_FILE_BYTES).ok()?;
        String::from_utf8(bytes).ok()
    };
    let told = |text: &str, field: &str| {
        let mut fields = text.lines().take_while(|line| !line.is_empty());
        let value = fields.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        // A template is filled in by `git archive` alone.
        Some(value.trim().to_owned()).filter(|value| !value.is_empty() && !value.contains('$'))
    };
    let archival = read(ARCHIVAL).and_then(|text| {
        let commit = told(&text, "node").unwrap_or_default();
        let described = told(&text, "describe-name").and_then(|name| {
            let (tag, distance) = split_described(&name);
            Some((settings.version_of_tag(tag)?, distance))
        });
        let (tag, distance) = described.or_else(|| {
            let names = told(&text, "ref-names")?;
            let mut tags = names
                .split(", ")
                .filter_map(|name| name.strip_prefix("tag: "));
            Some((tags.find_map(|tag| settings.version_of_tag(tag))?, 0))
        })?;
        Some(settings.version_of_commit(Some(&tag), distance, &commit))
    });
    archival.or_else(|| told(&read(PKG_INFO)?, "Version"))
}

/// `v1.2-3-gab12` as `v1.2` and 3.
fn split_described(name: &str) -> (&str, u64) {
    let split = || {
        let (rest, node) = name.rsplit_once("-g")?;
        let (tag, distance) = rest.rsplit_once('-')?;
        let is_node = node.bytes().all(|b| b.is_ascii_hexdigit());
        Some((tag, distance.parse().ok().filter(|_| is_node)?))
    };
    split().unwrap_or((name, 0))
}

#[cfg(test)]
mod tests;
