//! What the spec's own projects are built with where an image has them: resolved with the environment, so that the same
//! lock gives the same wheel. Nothing is built for it.

use sconce_formats::normalize_project_name;
use sconce_schema::Progress;
use sconce_schema::lock::{Lock, LockedStage, PROJECT_BUILD, Wheel};
use tracing::info;

use crate::python::compile::{Requirements, UvCompile, project_of};

/// How a project is built.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectBuild {
    /// Normalised project name.
    pub name: String,
    /// What it is built with (PEP 508).
    pub requires: Vec<String>,
    /// Modules that its setup imports: of the environment's packages, those of these names are built with, too.
    pub imports: Vec<String>,
    /// Whether a compiler is wanted.
    pub compiles: bool,
}

/// Resolves them.
pub(crate) struct ProjectBuilds<'a> {
    /// The environment's packages, whose versions go before others.
    pub(crate) installed: &'a [Wheel],
    /// The lock whose versions are kept.
    pub(crate) previous: Option<&'a Lock>,
    pub(crate) compile: &'a UvCompile<'a>,
    pub(crate) progress: &'a dyn Progress,
}

impl ProjectBuilds<'_> {
    /// A stage for each project. One whose requirements do not resolve has none, which is said: a run does without.
    pub(crate) fn resolve_all(&self, builds: &[ProjectBuild]) -> Vec<LockedStage> {
        let resolve = |build: &ProjectBuild| {
            let wheels = self.resolve(build);
            wheels.map(|wheels| LockedStage {
                name: format!("{PROJECT_BUILD}{}", build.name),
                wheels,
                debs: Vec::new(),
            })
        };
        builds.iter().filter_map(resolve).collect()
    }

    fn resolve(&self, build: &ProjectBuild) -> Option<Vec<Wheel>> {
        let packages = build_requirements(build, self.installed);
        if packages.is_empty() {
            return Some(Vec::new());
        }
        let of_index = self.installed.iter().filter(|wheel| wheel.build.is_none());
        let before = self
            .previous
            .and_then(|lock| lock.project_build(&build.name));
        let keep: Vec<Wheel> = of_index
            .chain(before.unwrap_or_default())
            .cloned()
            .collect();
        let compile = UvCompile {
            sources: &[],
            keep: &keep,
            ..*self.compile
        };
        info!(
            project = build.name,
            ?packages,
            "resolves what a project is built with"
        );
        let requirements = Requirements {
            packages,
            ..Requirements::default()
        };
        match compile.resolve_wheels(&requirements) {
            Ok(wheels) => Some(wheels),
            Err(error) => {
                let (name, error) = (&build.name, error.to_string());
                let first = error.lines().next().unwrap_or_default();
                self.progress.note(&format!(
                    "what {name} is built with does not resolve, so an image cannot have it built: {first}"
                ));
                None
            }
        }
    }
}

/// What a project asks for, and what its setup imports of the environment, in the environment's version.
fn build_requirements(build: &ProjectBuild, installed: &[Wheel]) -> Vec<String> {
    let mut packages = build.requires.clone();
    for module in &build.imports {
        let top = module.split('.').next().unwrap_or_default();
        let name = normalize_project_name(top);
        let wheel = installed
            .iter()
            .find(|wheel| Some(&wheel.name) == name.as_ref());
        let is_asked = packages.iter().any(|package| project_of(package) == name);
        if let Some(wheel) = wheel.filter(|_| !is_asked) {
            packages.push(format!("{}=={}", wheel.name, wheel.version));
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::Sha256;

    #[test]
    fn a_setup_is_built_with_what_it_imports_of_the_environment() {
        let torch = Wheel {
            name: "torch".to_owned(),
            version: "2.5.1".to_owned(),
            file: String::new(),
            url: String::new(),
            size: None,
            sha256: Sha256([0; 32]),
            build: None,
        };
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let build = ProjectBuild {
            name: "a".to_owned(),
            requires: names(&["setuptools>=64"]),
            imports: names(&["os", "torch.utils.cpp_extension", "torch", "numpy"]),
            compiles: true,
        };
        let with = build_requirements(&build, std::slice::from_ref(&torch));
        assert_eq!(with, ["setuptools>=64", "torch==2.5.1"]);
        let asked = ProjectBuild {
            requires: names(&["torch>=2"]),
            ..build
        };
        assert_eq!(build_requirements(&asked, &[torch]), ["torch>=2"]);
    }
}
