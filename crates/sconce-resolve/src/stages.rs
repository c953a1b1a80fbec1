//! What stages of a build have beside the environment: resolved after it, with its versions kept.

use std::collections::BTreeMap;

use sconce_schema::Progress;
use sconce_schema::lock::{Deb, Lock, LockedStage, Wheel};
use sconce_schema::spec::StageRequirements;

use crate::ResolveError;
use crate::compiler::COMPILERS;
use crate::python::compile::{Requirements, UvCompile};
use crate::python::compile_error::CompileError;

/// What `pip wheel --no-build-isolation` needs for most projects.
const BUILDERS: [&str; 3] = ["pip", "setuptools", "wheel"];
/// The wheel that names the versions of all parts of one CUDA release. torch needs it since CUDA 13;
/// before, every part lies in a folder of its own, which is no toolkit that builds.
const TOOLKIT: &str = "cuda-toolkit";
/// The headers that torch's own headers for CUDA include. They have versions of their own.
const TEMPLATES: &str = "nvidia-cuda-cccl";

/// The Debian packages of a stage, for an interpreter `3.13` of the release; a standalone one has its headers in itself.
pub(crate) fn system_requests(more: &StageRequirements, python: Option<&str>) -> Vec<String> {
    let mut requests = more.system.clone();
    if more.devel {
        // `build-essential` would bring Perl and the tools that make Debian packages, too.
        requests.extend(COMPILERS.map(str::to_owned));
        requests.push("make".to_owned());
        requests.extend(python.map(|python| format!("python{python}-dev")));
    }
    requests
}

/// What of `all` is not in `base`.
pub(crate) fn further_debs(base: &[Deb], all: Vec<Deb>) -> Vec<Deb> {
    all.into_iter().filter(|deb| !base.contains(deb)).collect()
}

/// The versions of Debian packages to keep in a stage: the environment's, then those that the stage
/// had before.
pub(crate) fn versions_to_keep(
    base: &[Deb],
    name: &str,
    previous: Option<&Lock>,
) -> BTreeMap<String, String> {
    let before = of_previous(name, previous).map_or(&[][..], |stage| &stage.debs);
    let version = |deb: &Deb| (deb.name.clone(), deb.version.clone());
    before.iter().chain(base).map(version).collect()
}

fn of_previous<'l>(name: &str, previous: Option<&'l Lock>) -> Option<&'l LockedStage> {
    previous?.stages.iter().find(|stage| stage.name == name)
}

/// The wheels that a stage has beside `base`.
///
/// # Errors
/// They do not resolve, or not with the versions that `base` has.
pub(crate) fn further_wheels(
    more: &StageRequirements,
    requirements: &Requirements,
    base: &[Wheel],
    previous: Option<&Lock>,
    compile: &UvCompile<'_>,
    progress: &dyn Progress,
) -> Result<Vec<Wheel>, ResolveError> {
    if more.python.is_empty() && !more.devel {
        return Ok(Vec::new());
    }
    let before = of_previous(&more.name, previous).map_or(&[][..], |stage| &stage.wheels);
    let keep = [base, before].concat();
    let compile = UvCompile {
        keep: &keep,
        ..*compile
    };
    let with = |packages: &[String]| {
        let mut all = requirements.clone();
        all.packages.extend_from_slice(packages);
        compile.resolve_wheels(&all)
    };
    let mut packages = more.python.clone();
    if more.devel {
        packages.extend(BUILDERS.map(str::to_owned));
    }
    let nvcc = base
        .iter()
        .find(|wheel| more.devel && wheel.name == TOOLKIT);
    let nvcc = nvcc.map(|wheel| {
        let exact = format!("{TOOLKIT}[nvcc]=={}", wheel.version);
        [exact, TEMPLATES.to_owned()]
    });
    let wheels = match &nvcc {
        Some(nvcc) => match with(&[&packages[..], nvcc].concat()) {
            Err(CompileError::NoSolution { .. }) => {
                let wheels = with(&packages)?;
                progress.note("nvcc cannot be had from this index; it is locked without");
                wheels
            }
            other => other?,
        },
        None => with(&packages)?,
    };
    beside(&more.name, base, wheels)
}

/// What of `all` is not in `base`, all of which has to be in `all`.
fn beside(stage: &str, base: &[Wheel], all: Vec<Wheel>) -> Result<Vec<Wheel>, ResolveError> {
    for wheel in base {
        let same = |other: &&Wheel| other.sha256 == wheel.sha256;
        if !all.iter().any(|other| same(&other)) {
            let other = all.iter().find(|other| other.name == wheel.name);
            return Err(ResolveError::Stage {
                stage: stage.to_owned(),
                package: wheel.name.clone(),
                version: wheel.version.clone(),
                other: other.map(|other| other.version.clone()),
            });
        }
    }
    let known = |wheel: &Wheel| base.iter().any(|other| other.sha256 == wheel.sha256);
    Ok(all.into_iter().filter(|wheel| !known(wheel)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::{Hint as _, Sha256, exit};

    fn wheel(name: &str, version: &str) -> Wheel {
        Wheel {
            name: name.to_owned(),
            version: version.to_owned(),
            file: format!("{name}-{version}-py3-none-any.whl"),
            url: "file:///x".to_owned(),
            size: None,
            sha256: crate::documents::compute_sha256(format!("{name} {version}").as_bytes()),
            build: None,
        }
    }

    #[test]
    fn a_stage_has_the_environments_wheels_and_more() {
        let base = [wheel("numpy", "2.0"), wheel("torch", "2.15.0")];
        let all = vec![base[0].clone(), wheel("setuptools", "80"), base[1].clone()];
        let more = beside("builder", &base, all).unwrap();
        assert_eq!(more, [wheel("setuptools", "80")]);

        let other = vec![wheel("numpy", "1.26"), base[1].clone()];
        let error = beside("builder", &base, other).unwrap_err();
        assert_eq!(
            error.to_string(),
            "stage `builder` cannot have numpy 2.0 as the environment has; it would have 1.26"
        );
        assert_eq!(error.exit_code(), exit::NO_SOLUTION);
        assert!(error.hint().is_some());
    }

    #[test]
    fn what_the_environment_has_counts_before_what_a_stage_had() {
        let deb = |name: &str, version: &str| Deb {
            name: name.to_owned(),
            version: version.to_owned(),
            source: None,
            source_version: None,
            architecture: "amd64".to_owned(),
            url: "file:///x".to_owned(),
            size: 1,
            sha256: Sha256([0; 32]),
        };
        let digest = Sha256([0; 32]);
        let text = format!(
            "version = 3\ninputs = \"{digest}\"\n[target]\nrelease = \"debian/trixie\"\n\
             architecture = \"amd64\"\npython = \"3.13\"\n[versions]\npython = \"3.13.5-2\"\n\
             glibc = \"2.40\"\n"
        );
        let mut previous = Lock::parse(&text).unwrap();
        previous.stages = vec![LockedStage {
            name: "builder".to_owned(),
            wheels: Vec::new(),
            debs: vec![deb("gcc", "14.1"), deb("libc6", "2.40")],
        }];
        assert_eq!(Lock::parse(&previous.to_text()).unwrap(), previous);
        let keep = versions_to_keep(&[deb("libc6", "2.41")], "builder", Some(&previous));
        assert_eq!(keep["libc6"], "2.41");
        assert_eq!(keep["gcc"], "14.1");
        assert_eq!(versions_to_keep(&[], "other", Some(&previous)).len(), 0);
    }

    #[test]
    fn compilers_are_for_devel_alone() {
        let more = |devel| StageRequirements {
            name: "a".to_owned(),
            devel,
            system: vec!["git".to_owned()],
            python: Vec::new(),
        };
        assert_eq!(system_requests(&more(false), Some("3.13")), ["git"]);
        let requests = system_requests(&more(true), Some("3.13"));
        assert!(
            requests.contains(&"python3.13-dev".to_owned()) && requests.contains(&"g++".to_owned())
        );
    }
}
