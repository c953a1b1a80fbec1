//! The wheel of a project of the spec, built from its folder for an image as sources of others are: in a container, with
//! what the lock says that it is built with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sconce_formats::scm_version::{ScmSettings, VersionTool};
use sconce_resolve::BuiltWheel;
use sconce_resolve::python::source_package::{SourceOrigin, SourcePackage};
use sconce_schema::Sha256;
use sconce_schema::lock::{BUILD, Lock};
use sha2::Digest as _;

use super::build_container::{BuildContainer, BuildOutcome};
use super::build_plan::{BuildPlan, SourceFacts};
use super::{ContainedBuilder, KIND, SourceBuildError, build_key, single_file};
use crate::failure::Result;
use crate::project_version::CommitVersion;

/// What is built.
pub(crate) struct OwnProject<'a> {
    /// Normalised project name.
    pub(crate) name: String,
    /// A folder with its files, and with nothing else.
    pub(crate) source: &'a Path,
    /// What names those files' bytes.
    pub(crate) digest: String,
    /// How its repository tells its version, where that is said, and the version.
    pub(crate) scm: Option<(&'a ScmSettings, Option<CommitVersion>)>,
    /// Whether something is compiled.
    pub(crate) compiles: bool,
}

impl OwnProject<'_> {
    /// How it is built. The build has no repository, and is told the version; where setuptools_scm is asked which files
    /// are tracked, these files count as a commit's archive, of which all are.
    fn plan(&self) -> BuildPlan {
        let names = ["pyproject.toml", "setup.py", "setup.cfg"].into_iter();
        let read = |name: &str| crate::input::read_text(&self.source.join(name)).ok();
        let facts = SourceFacts {
            native: self.compiles,
            files: names.map(|name| (name.to_owned(), read(name))).collect(),
            ..SourceFacts::default()
        };
        let mut plan = BuildPlan::read(&facts);
        let Some((settings, Some(found))) = &self.scm else {
            return plan;
        };
        let version = found.version.as_str();
        let of = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        plan.env = match settings.tool {
            VersionTool::SetuptoolsScm => BTreeMap::from(
                [
                    ("SETUPTOOLS_SCM_PRETEND_VERSION", version),
                    ("PDM_BUILD_SCM_VERSION", version),
                ]
                .map(of),
            ),
            VersionTool::Dunamai => {
                BTreeMap::from([("POETRY_DYNAMIC_VERSIONING_BYPASS", version)].map(of))
            }
            VersionTool::Versioningit | VersionTool::Versioneer => BTreeMap::new(),
        };
        let file = match (settings.tool, &found.commit) {
            (VersionTool::SetuptoolsScm, Some(commit)) => {
                Some((".git_archival.txt", format!("node: {commit}\n")))
            }
            (VersionTool::Versioningit, _) => Some((
                "PKG-INFO",
                format!(
                    "Metadata-Version: 2.1\nName: {}\nVersion: {version}\n",
                    self.name
                ),
            )),
            _ => None,
        };
        plan.write = file
            .into_iter()
            .map(|(name, text)| (name.to_owned(), text))
            .collect();
        plan
    }
}

impl ContainedBuilder<'_> {
    /// The wheel of a project, which is in the store then. `None` where it was never built and `runs` is false.
    ///
    /// # Errors
    /// [`SourceBuildError`] where it cannot be built.
    pub(crate) fn build_own_project(
        &self,
        project: &OwnProject<'_>,
        lock: &Lock,
        runs: bool,
    ) -> Result<Option<BuiltWheel>> {
        let requires = lock.project_build(&project.name).unwrap_or_default();
        let mut base = Lock {
            wheels: requires.to_vec(),
            ..lock.clone()
        };
        if !project.compiles {
            base.stages.clear();
        }
        let base = base.for_stage(BUILD);
        let plan = project.plan();
        let told = serde_json::to_string(&plan).unwrap_or_default();
        let sources = ["own".to_owned(), project.digest.clone(), told];
        let key = build_key(&sources, &base, &BTreeMap::new());
        let kept = (self.store.find_tree(KIND, &key)).and_then(|tree| single_file(&tree));
        let file = match kept {
            Some(file) => file,
            None if !runs => return Ok(None),
            None => {
                self.progress.note(&format!(
                    "{} is built from its files, which runs its code, in a container without network",
                    project.name
                ));
                self.build_files(project, &base, &plan, &key)?
            }
        };
        let package = SourcePackage {
            name: project.name.clone(),
            is_name_guessed: false,
            version: None,
            origin: SourceOrigin::Archive {
                url: String::new(),
                sha256: Sha256(sha2::Sha256::digest(&project.digest).into()),
                subdirectory: None,
                uploaded: None,
            },
        };
        self.install_wheel(&package, &file, lock).map(Some)
    }

    fn build_files(
        &self,
        project: &OwnProject<'_>,
        lock: &Lock,
        plan: &BuildPlan,
        key: &str,
    ) -> Result<PathBuf> {
        let container = BuildContainer::prepare(self, lock)?;
        match container.build(project.source, ".", plan, &project.name)? {
            BuildOutcome::Wheel(file) => self.keep_wheel(key, file.path()),
            BuildOutcome::Lacks(packages) => Err(SourceBuildError::Lacks { packages }.into()),
            BuildOutcome::Module(_, error) | BuildOutcome::Failed(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_told_the_version_of_the_commit() {
        let dir = tempfile::tempdir().unwrap();
        let text = "[build-system]\nrequires = ['hatchling']\nbuild-backend = 'hatchling.build'\n";
        std::fs::write(dir.path().join("pyproject.toml"), text).unwrap();
        let plan = |tool| {
            let settings = ScmSettings::new(tool);
            let found = CommitVersion {
                version: "1.2".to_owned(),
                commit: Some("ab12".to_owned()),
            };
            OwnProject {
                name: "net".to_owned(),
                source: dir.path(),
                digest: String::new(),
                scm: Some((&settings, Some(found))),
                compiles: false,
            }
            .plan()
        };
        let scm = plan(VersionTool::SetuptoolsScm);
        assert_eq!(scm.backend, "hatchling.build");
        assert_eq!(scm.env["SETUPTOOLS_SCM_PRETEND_VERSION"], "1.2");
        assert_eq!(scm.write[".git_archival.txt"], "node: ab12\n");
        let own = plan(VersionTool::Versioningit);
        assert!(own.env.is_empty() && own.write["PKG-INFO"].contains("Version: 1.2\n"));
    }
}
