//! A spec on disk: finding it, reading it, and what in it decides the lock.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sconce_base::input::UnusableInput;
use sconce_resolve::python::build_settings::BuildSettings;
use sconce_resolve::python::compile_error::CompileError;
use sconce_resolve::python::local_sources::{PyprojectForUv, UvProject};
use sconce_schema::Sha256;
use sconce_schema::lock::Lock;
use sconce_schema::spec::{FILE_NAME, Python, Spec};
use sha2::Digest;

use crate::editable_projects::{self, EditableProject, EditableProjects, PYPROJECT};
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::requirement_lines::RequirementLines;
use crate::script::{self, Script};
use crate::{foreign_lock, input};

/// A spec, where it lies and what it reads beside itself.
#[derive(Debug)]
pub struct Project {
    /// The spec.
    pub spec: Spec,
    /// The spec's file, absolute.
    pub file: PathBuf,
    /// The spec's folder, absolute and without links.
    pub folder: PathBuf,
    /// The spec's own name, or its folder's.
    pub name: String,
    /// The projects that are installed from where they lie: those of `[python] editable` first, in its order.
    pub editable: Vec<EditableProject>,
    /// What the file of `[python] requirements` says.
    pub requirement_lines: RequirementLines,
    /// What is said of the builds of single packages.
    pub build_settings: BuildSettings,
    /// Digest of all that decides the lock.
    pub inputs: Sha256,
    /// Whether the spec names the Debian release, and does not leave it to the default.
    pub is_release_given: bool,
    /// The program that carries the spec, where that is no file of its own.
    pub script: Option<Script>,
    /// The lock that counts in place of the one beside the spec.
    lock_copy: Option<PathBuf>,
}

impl Project {
    /// Opens `path`, a spec file or the folder of one. For `.`, a spec of a folder above counts where
    /// this one has none.
    pub fn open(path: &Path) -> Result<Self> {
        let file = spec_file(path);
        let text = match input::read_text(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(AppError::NoSpec { path: file }.into());
            }
            // `/dev/null` would be an empty spec, and have its lock in /dev.
            Err(error) if is_no_file(&error) => {
                return Err(AppError::NoSpecFile { path: file }.into());
            }
            other => other.map_err(AppError::unreadable(&file))?,
        };
        Self::from_text(&text, file)
    }

    /// Opens `copy` as if it lay at `original`, with the lock at `lock`: what a job was handed over with, whatever
    /// has become of both since.
    pub fn open_copy(copy: &Path, original: &Path, lock: &Path) -> Result<Self> {
        let text = input::read_text(copy).map_err(AppError::unreadable(copy))?;
        Ok(Self {
            lock_copy: Some(lock.to_owned()),
            ..Self::from_text(&text, original.to_owned())?
        })
    }

    fn from_text(text: &str, file: PathBuf) -> Result<Self> {
        let script = match script::is_script(&file) {
            true => Some(Script::parse(&file, text)?),
            false => None,
        };
        let spec = match &script {
            Some(script) => script.spec.clone(),
            None => Spec::parse(text).map_err(|source| AppError::Spec {
                path: file.clone(),
                source,
            })?,
        };
        let folder = file
            .parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let folder = folder.canonicalize().map_err(|source| AppError::File {
            action: FileAction::Open,
            path: folder.to_owned(),
            source,
        })?;
        let name = spec.name.clone().unwrap_or_else(|| match &script {
            Some(_) => folder_name(&file.with_extension("")),
            None => folder_name(&folder),
        });
        let requirement_lines = match &spec.python.requirements {
            Some(name) => RequirementLines::read(&folder.join(name), &folder)?,
            None => RequirementLines::default(),
        };
        let editable = find_projects(&spec.python, script.as_ref(), &requirement_lines, &folder)?;
        let build_settings =
            read_build_settings(&spec.python, script.as_ref(), &requirement_lines, &folder);
        let inputs = inputs(
            &spec,
            script.as_ref(),
            &folder,
            &requirement_lines,
            &editable,
            &build_settings,
        )?;
        let file = folder.join(file.file_name().unwrap_or_default());
        Ok(Self {
            spec,
            file,
            folder,
            name,
            editable,
            requirement_lines,
            build_settings,
            inputs,
            is_release_given: match &script {
                Some(script) => script.is_release_given,
                None => Spec::names_release(text),
            },
            script,
            lock_copy: None,
        })
    }

    /// What uv is given of the projects whose dependencies are meant, that of `[python] pyproject` first.
    ///
    /// # Errors
    /// Its pyproject.toml cannot be read.
    pub(crate) fn pyprojects(&self) -> Result<Vec<PyprojectForUv>> {
        let mut pyprojects = Vec::new();
        pyprojects.extend(self.script.iter().map(|script| script.project.for_uv(&[])));
        if let Some(name) = &self.spec.python.pyproject {
            let own = UvProject::read(&self.folder.join(name)).map_err(CompileError::from)?;
            pyprojects.push(own.for_uv(&[]));
        }
        for project in &self.editable {
            let given = project.uv.for_uv(&project.extras);
            if pyprojects.iter().all(|known| known.path() != given.path()) {
                pyprojects.push(given);
            }
        }
        Ok(pyprojects)
    }

    /// Where its lock is: `sconce.lock` beside `sconce.toml`, `other.lock` beside `other.toml`.
    pub fn lock_file(&self) -> PathBuf {
        let copy = self.lock_copy.clone();
        copy.unwrap_or_else(|| self.file.with_extension("lock"))
    }

    /// Its lock, if it has one, for who writes a new one in any case: an empty file is none.
    pub fn load_lock_to_replace(&self) -> Result<Option<Lock>> {
        let path = self.lock_file();
        match path.metadata() {
            Ok(meta) if meta.is_file() && meta.len() == 0 => Ok(None),
            _ => self.load_lock(),
        }
    }

    /// Its lock, if it has one.
    pub fn load_lock(&self) -> Result<Option<Lock>> {
        let path = self.lock_file();
        match path.try_exists() {
            Ok(false) => Ok(None),
            _ => read_lock(&path).map(Some),
        }
    }
}

/// The file that `path`, a spec or the folder of one, stands for. It need not be there.
pub fn spec_file(path: &Path) -> PathBuf {
    match path.is_dir() {
        true if path == Path::new(".") => {
            find_spec_above(path).unwrap_or_else(|| path.join(FILE_NAME))
        }
        true => path.join(FILE_NAME),
        false => path.to_owned(),
    }
}

/// The spec of this folder or of the nearest one above that has one. Above this folder, only what its
/// owner put there counts: in a folder that others may write to, such as /tmp, a spec of theirs would
/// say what is run and which folder it may change.
pub(crate) fn find_spec_above(folder: &Path) -> Option<PathBuf> {
    let start = folder.canonicalize().ok()?;
    let (owner, disk) = start.metadata().map(|m| (m.uid(), m.dev())).ok()?;
    // Not a link either: a stranger's may lead to a spec of the owner's that is for another folder.
    let own = |file: &Path| {
        let meta = file.symlink_metadata();
        meta.is_ok_and(|meta| meta.is_file() && meta.uid() == owner && meta.dev() == disk)
    };
    if folder.join(FILE_NAME).symlink_metadata().is_ok() {
        return None;
    }
    let above = start.ancestors().skip(1);
    above
        .map(|folder| folder.join(FILE_NAME))
        .find(|file| own(file))
}

/// A spec's file, and the files that it names one by one.
pub fn source_files(file: &Path, spec: &Spec) -> Vec<PathBuf> {
    let python = [
        &spec.python.requirements,
        &spec.python.pyproject,
        &spec.python.lock,
    ];
    let of_stages = spec.stages.values().flat_map(|stage| &stage.files);
    let names = python.into_iter().flatten();
    let names = names.chain(&spec.build.files).chain(of_stages);
    let paths = names.map(|name| file.with_file_name(name));
    let projects = spec.python.editable.iter();
    let projects = projects.map(|entry| editable_projects::split_extras(entry).0);
    let of_projects = projects.flat_map(|path| {
        let folder = file.with_file_name(path);
        [PYPROJECT, "setup.py", "setup.cfg"].map(|name| folder.join(name))
    });
    let paths = paths.chain(of_projects);
    let mut files = vec![file.to_owned()];
    // Of a folder in which images are built, not all is for the image.
    files.extend(paths.filter(|path| !path.is_dir()));
    files
}

/// The lock in a file.
pub fn read_lock(path: &Path) -> Result<Lock> {
    let text = input::read_text(path).map_err(AppError::unreadable(path))?;
    if text.trim().is_empty() {
        return Err(AppError::EmptyLock {
            path: path.to_owned(),
        }
        .into());
    }
    Lock::parse(&text).map_err(|source| {
        AppError::Lock {
            path: path.to_owned(),
            source,
        }
        .into()
    })
}

/// Whether a file could not be read because it is a device, a FIFO or a folder.
fn is_no_file(error: &std::io::Error) -> bool {
    let is_other = matches!(UnusableInput::of(error), Some(UnusableInput::NotRegular(_)));
    is_other || error.kind() == std::io::ErrorKind::IsADirectory
}

/// Whether a path is a lock's by its name.
pub fn is_lock(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "lock") && !path.is_dir()
}

fn read_beside(folder: &Path, name: &str) -> Result<Vec<u8>> {
    let path = folder.join(name);
    Ok(input::read_bytes(&path).map_err(AppError::unreadable(&path))?)
}

/// The projects that a spec names, its requirements file, and these themselves.
fn find_projects(
    python: &Python,
    script: Option<&Script>,
    lines: &RequirementLines,
    folder: &Path,
) -> Result<Vec<EditableProject>> {
    let mut projects = EditableProjects::new(folder);
    if let Some(script) = script {
        projects.add_needed_by(&script.project, &[], &[])?;
    }
    if let Some(name) = &python.pyproject {
        let own = UvProject::read(&folder.join(name)).map_err(CompileError::from)?;
        projects.add_needed_by(&own, &python.extras, &python.groups)?;
    }
    let is_own_first = python.pyproject.is_none();
    for (number, entry) in python.editable.iter().chain(&lines.editable).enumerate() {
        let groups = match number == 0 && is_own_first {
            true => &python.groups[..],
            false => &[],
        };
        projects.add(entry, &python.extras, groups)?;
    }
    Ok(projects.into_inner())
}

fn inputs(
    spec: &Spec,
    script: Option<&Script>,
    folder: &Path,
    lines: &RequirementLines,
    editable: &[EditableProject],
    build_settings: &BuildSettings,
) -> Result<Sha256> {
    let mut hasher = sha2::Sha256::new();
    hasher.update(spec.lock_inputs());
    if let Some(script) = script {
        hasher.update([0]);
        hasher.update(&script.metadata);
    }
    for name in [&spec.python.requirements, &spec.python.pyproject]
        .into_iter()
        .flatten()
    {
        hasher.update([0]);
        hasher.update(read_beside(folder, name)?);
    }
    let of_projects = editable.iter().flat_map(|project| &project.files);
    for file in of_projects.chain(&lines.included) {
        hasher.update([0]);
        hasher.update(input::read_bytes(file).map_err(AppError::unreadable(file))?);
    }
    if let Some(name) = &spec.python.lock {
        for text in foreign_lock::read_texts(folder, name)? {
            hasher.update([0]);
            hasher.update(text);
        }
    }
    // They may stand in a uv.toml, or in a pyproject.toml that the spec does not name.
    if !build_settings.is_empty() {
        hasher.update([0]);
        hasher.update(serde_json::to_string(build_settings).unwrap_or_default());
    }
    Ok(Sha256(hasher.finalize().into()))
}

/// What uv's settings, the spec, and the requirements file say of builds. A program's block stands for
/// uv's settings, as it does for uv.
fn read_build_settings(
    python: &Python,
    script: Option<&Script>,
    lines: &RequirementLines,
    folder: &Path,
) -> BuildSettings {
    let mut settings = match script {
        Some(script) => script.build_settings.clone(),
        None => BuildSettings::read(folder),
    };
    let named = python.no_build_isolation.iter().chain(&lines.unisolated);
    settings.add_unisolated(named.map(String::as_str));
    if lines.is_unisolated {
        settings.set_all_unisolated();
    }
    settings
}

/// A folder's name as far as a name may have its characters.
pub fn folder_name(folder: &Path) -> String {
    let name = folder
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let fit = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '-'
        }
    };
    let name: String = name.unwrap_or_default().chars().map(fit).take(63).collect();
    let name = name.trim_start_matches(['.', '_', '-']).to_owned();
    if name.is_empty() {
        "run".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(files: &[(&str, &str)]) -> (tempfile::TempDir, Result<Project>) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let project = Project::open(dir.path());
        (dir, project)
    }

    #[test]
    fn the_inputs_follow_the_requirements_file() {
        let spec = (
            "sconce.toml",
            "name = \"a\"\n[python]\nrequirements = \"r.txt\"",
        );
        let inputs = |text| project(&[spec, ("r.txt", text)]).1.unwrap().inputs;
        assert_eq!(inputs("numpy"), inputs("numpy"));
        assert_ne!(inputs("numpy"), inputs("torch"));
        assert!(project(&[spec]).1.is_err());
    }

    #[test]
    fn the_inputs_follow_the_lock_of_another_tool() {
        let spec = ("sconce.toml", "[python]\nlock = \"poetry.lock\"");
        let inputs = |lock, wanted| {
            let files = [spec, ("poetry.lock", lock), ("pyproject.toml", wanted)];
            project(&files).1.unwrap().inputs
        };
        assert_eq!(inputs("a", "x"), inputs("a", "x"));
        assert_ne!(inputs("a", "x"), inputs("b", "x"));
        // What is wanted of this lock stands beside it.
        assert_ne!(inputs("a", "x"), inputs("a", "y"));
        assert!(project(&[spec]).1.is_err());
    }

    /// Locks that are committed have it: with another digest, each would count as stale.
    #[test]
    fn digest_of_inputs_is_as_in_older_locks() {
        let spec = ("sconce.toml", "[python]\nrequirements = \"r.txt\"");
        let inputs = project(&[spec, ("r.txt", "numpy")]).1.unwrap().inputs;
        // SHA-256 of `Spec::lock_inputs`, a zero byte and `numpy`.
        assert_eq!(
            inputs.to_string(),
            "bd961df1a365bf89abdcbd78b60ac5cd52d73a3d7bcf75da7e6e9eb6764b6cf9"
        );
    }

    #[test]
    fn the_inputs_follow_the_projects_that_are_installed() {
        let spec = ("sconce.toml", "[python]\neditable = [\"lib[x]\"]");
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("lib")).unwrap();
        std::fs::write(dir.path().join(spec.0), spec.1).unwrap();
        let inputs = |version: &str| {
            let text = format!("[project]\nname = \"a\"\nversion = \"{version}\"\n");
            std::fs::write(dir.path().join("lib/pyproject.toml"), text).unwrap();
            Project::open(dir.path()).unwrap().inputs
        };
        assert_eq!(inputs("1"), inputs("1"));
        assert_ne!(inputs("1"), inputs("2"));
    }

    #[test]
    fn a_spec_above_counts_where_its_owner_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        assert_eq!(find_spec_above(&deep), None);
        let spec = dir.path().canonicalize().unwrap().join(FILE_NAME);
        std::fs::write(&spec, "").unwrap();
        assert_eq!(find_spec_above(&deep), Some(spec.clone()));
        // A folder's own spec goes first, also one that cannot be read.
        std::os::unix::fs::symlink("nowhere", deep.join(FILE_NAME)).unwrap();
        assert_eq!(find_spec_above(&deep), None);
        std::os::unix::fs::symlink(&spec, dir.path().join("a").join(FILE_NAME)).unwrap();
        std::fs::remove_file(deep.join(FILE_NAME)).unwrap();
        assert_eq!(find_spec_above(&deep), Some(spec.clone()), "past a link");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&spec, Some(12_345), None).unwrap();
            assert_eq!(find_spec_above(&deep), None);
        }
    }

    #[test]
    fn a_missing_spec_is_named() {
        let text = project(&[]).1.unwrap_err().to_plain_text();
        assert!(
            text.contains("there is no spec at") && text.contains("sconce.toml"),
            "{text}"
        );
    }

    #[test]
    fn a_device_is_no_spec() {
        let text = Project::open(Path::new("/dev/null"))
            .unwrap_err()
            .to_plain_text();
        assert!(
            text.contains("/dev/null is no regular file") && text.contains("lies beside it"),
            "{text}"
        );
    }

    #[test]
    fn a_folder_gives_the_name() {
        assert_eq!(folder_name(Path::new("/a/My Project")), "My-Project");
        assert_eq!(folder_name(Path::new("/a/.hidden")), "hidden");
        assert_eq!(folder_name(Path::new("/")), "run");
    }
}
