//! The compiler of an environment: what torch.compile, Triton and C++ extensions compile with when a
//! script runs. It is resolved after the environment, with its versions kept, and changes none of
//! them; `docs/decisions/059-compiler.md` has what was measured.

use std::collections::BTreeMap;

use sconce_schema::Progress;
use sconce_schema::lock::{COMPILER, Deb, Lock, LockedStage, Wheel};

use crate::{ResolveError, stages};

/// Compilers of C and C++ with what they compile against, and what runs them side by side:
/// `torch.utils.cpp_extension` wants ninja. The compiler of C alone would not do: inductor compiles
/// C++ for the processor, and Triton C.
pub(crate) const COMPILERS: [&str; 4] = ["g++", "gcc", "libc6-dev", "ninja-build"];

/// What those need by their control files, and nothing that is compiled with them: run-time libraries
/// of sanitizers, of Fortran and of transactional memory; the interpreter as a library, for programs
/// that embed it; what profiles and debugs; programs and headers of Sun RPC; what Python's headers
/// do not include. In the order of their names; those of a library end with its version.
const UNNEEDED: [&str; 25] = [
    "libasan",
    "libc-dev-bin",
    "libcc1-",
    "libcom-err",
    "libexpat1-dev",
    "libgprofng",
    "libgssapi-krb5-",
    "libhwasan",
    "libitm",
    "libk5crypto",
    "libkeyutils",
    "libkrb5-",
    "libkrb5support",
    "liblsan",
    "libnsl",
    "libnsl-dev",
    "libpython3.",
    "libquadmath",
    "libtirpc",
    "libtirpc-common",
    "libtirpc-dev",
    "libtsan",
    "libubsan",
    "rpcsvc-proto",
    "zlib1g-dev",
];

/// The Debian packages to ask for, for an interpreter `3.13` of the release; a standalone one has its
/// headers in itself.
pub(crate) fn package_requests(python: Option<&str>) -> Vec<String> {
    let mut requests = COMPILERS.map(str::to_owned).to_vec();
    requests.extend(python.map(|python| format!("libpython{python}-dev")));
    requests
}

/// Whether something among `wheels` compiles when a script runs: Triton, and torch from 2.0 on, which
/// has inductor.
fn compiles(wheels: &[Wheel]) -> bool {
    wheels.iter().any(|wheel| match wheel.name.as_str() {
        "torch" => {
            let major = wheel.version.split('.').next().unwrap_or_default();
            major.parse::<u32>().is_ok_and(|major| major >= 2)
        }
        name => name == "triton" || name.starts_with("triton-") || name == "pytorch-triton",
    })
}

/// What of `all` the compiler has beside the packages `base`.
///
/// # Errors
/// It would have another version of one of them.
pub(crate) fn additional_packages(base: &[Deb], all: Vec<Deb>) -> Result<Vec<Deb>, ResolveError> {
    let versions: BTreeMap<&str, &str> = all
        .iter()
        .map(|deb| (deb.name.as_str(), deb.version.as_str()))
        .collect();
    let moved = base
        .iter()
        .find(|deb| versions.get(deb.name.as_str()) != Some(&deb.version.as_str()));
    if let Some(deb) = moved {
        return Err(ResolveError::Compiler {
            package: deb.name.clone(),
            version: deb.version.clone(),
            other: versions
                .get(deb.name.as_str())
                .map(|version| (*version).to_owned()),
        });
    }
    let further = stages::further_debs(base, all);
    Ok(further.into_iter().filter(|deb| !unneeded(deb)).collect())
}

fn unneeded(deb: &Deb) -> bool {
    // Since trixie, names of libraries may end with `t64`.
    let name = deb.name.strip_suffix("t64").unwrap_or(&deb.name);
    UNNEEDED.iter().any(|stem| {
        let version = name.strip_prefix(stem);
        version.is_some_and(|version| version.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
    })
}

/// The compiler as a lock has it. `wanted` is what the spec says; where it says nothing, an
/// environment that compiles has one, as far as the archive has it.
///
/// # Errors
/// Those of resolving it, where it is asked for.
pub(crate) fn select_compiler(
    found: Option<Result<Vec<Deb>, ResolveError>>,
    wanted: Option<bool>,
    wheels: &[Wheel],
    progress: &dyn Progress,
) -> Result<Option<LockedStage>, ResolveError> {
    let wanted_or_not = wanted.unwrap_or_else(|| compiles(wheels));
    let debs = match found.filter(|_| wanted_or_not) {
        None => return Ok(None),
        Some(Ok(debs)) => debs,
        Some(Err(error)) if wanted == Some(true) => return Err(error),
        Some(Err(error)) => {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            progress.note(&format!(
                "locked without a compiler, which torch.compile, Triton and C++ extensions need: {}",
                why.unwrap_or_else(|| error.to_string())
            ));
            return Ok(None);
        }
    };
    Ok((!debs.is_empty()).then(|| LockedStage {
        name: COMPILER.to_owned(),
        wheels: Vec::new(),
        debs,
    }))
}

/// The versions to keep in a compiler: the environment's, then those that it had before.
pub(crate) fn versions_to_keep(base: &[Deb], previous: Option<&Lock>) -> BTreeMap<String, String> {
    stages::versions_to_keep(base, COMPILER, previous)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::{Hint as _, NoProgress, Sha256, exit};

    fn deb(name: &str, version: &str) -> Deb {
        Deb {
            name: name.to_owned(),
            version: version.to_owned(),
            source: None,
            source_version: None,
            architecture: "amd64".to_owned(),
            url: "file:///x".to_owned(),
            size: 1,
            sha256: crate::documents::compute_sha256(format!("{name} {version}").as_bytes()),
        }
    }

    fn wheel(name: &str, version: &str) -> Wheel {
        Wheel {
            name: name.to_owned(),
            version: version.to_owned(),
            file: format!("{name}-{version}-py3-none-any.whl"),
            url: "file:///x".to_owned(),
            size: None,
            sha256: Sha256([0; 32]),
            build: None,
        }
    }

    #[test]
    fn inductor_and_triton_compile() {
        for (name, version, does) in [
            ("torch", "2.15.0", true),
            ("torch", "2.0.0+cpu", true),
            ("torch", "10.1", true),
            ("torch", "1.13.1", false),
            ("torch", "nightly", false),
            ("triton", "3.9.0", true),
            ("pytorch-triton", "3.0.0", true),
            ("tritonclient", "2.50", false),
            ("torchvision", "0.30", false),
        ] {
            assert_eq!(
                compiles(&[wheel("six", "1"), wheel(name, version)]),
                does,
                "{name} {version}"
            );
        }
    }

    #[test]
    fn what_compiles_nothing_is_not_locked() {
        let names = [
            "g++",
            "libasan8",
            "libc6-dev",
            "libexpat1-dev",
            "libitm1",
            "libpython3.13",
            "libpython3.13-dev",
            "libtirpc3t64",
            "libnsl-dev",
            "libisl23",
            "libc-dev-bin",
            "libkrb5-3",
            "libcc1-0",
        ];
        let base = [deb("libc6", "2.41")];
        let all: Vec<Deb> = names
            .iter()
            .map(|name| deb(name, "1"))
            .chain(base.clone())
            .collect();
        let further = additional_packages(&base, all).unwrap();
        let further: Vec<&str> = further.iter().map(|deb| deb.name.as_str()).collect();
        assert_eq!(
            further,
            ["g++", "libc6-dev", "libpython3.13-dev", "libisl23"]
        );
    }

    #[test]
    fn a_compiler_moves_nothing_of_the_environment() {
        let base = [deb("libpython3.13-stdlib", "3.13.5-2")];
        let newer = vec![deb("g++", "1"), deb("libpython3.13-stdlib", "3.13.5-3")];
        let error = additional_packages(&base, newer).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no compiler goes with libpython3.13-stdlib 3.13.5-2, which the environment has; it would be 3.13.5-3"
        );
        assert_eq!(error.exit_code(), exit::NO_SOLUTION);
        assert!(error.hint().is_some());
    }

    #[test]
    fn it_is_there_where_something_compiles_or_it_is_asked_for() {
        let torch = [wheel("torch", "2.15.0")];
        let found = || Some(Ok(vec![deb("g++", "1")]));
        let failed = || {
            Some(Err(ResolveError::Compiler {
                package: "libc6".to_owned(),
                version: "1".to_owned(),
                other: None,
            }))
        };
        let choose =
            |found, wanted, wheels: &[Wheel]| select_compiler(found, wanted, wheels, &NoProgress);
        let stage = choose(found(), None, &torch).unwrap().unwrap();
        assert_eq!((stage.name.as_str(), stage.debs.len()), (COMPILER, 1));
        assert!(choose(found(), None, &[]).unwrap().is_none());
        assert!(choose(found(), Some(true), &[]).unwrap().is_some());
        assert!(choose(found(), Some(false), &torch).unwrap().is_none());
        assert!(choose(failed(), None, &torch).unwrap().is_none());
        assert!(choose(failed(), Some(true), &torch).is_err());
        // Where the spec names all of it, there is nothing beside.
        assert!(
            choose(Some(Ok(Vec::new())), None, &torch)
                .unwrap()
                .is_none()
        );
    }
}
