//! Why uv could not resolve, told apart by its text.

use std::path::{Path, PathBuf};

use sconce_schema::{Hint, exit};

use super::local_sources::PyprojectFileError;
use super::pylock::PylockError;
use super::uv_text;

/// Why packages do not resolve, as far as uv's text tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSolution {
    /// A project that the index does not have.
    NoSuchProject,
    /// Wheels are there, for other platforms only.
    OtherPlatforms,
    /// Wheels are there, for other versions of Python only.
    OtherPythons,
    /// There are source distributions only.
    SourcesOnly,
    /// `as-of` leaves nothing of a package, or the index does not say when its files were uploaded.
    NothingThen,
    /// Anything else: requirements that exclude each other, versions that are not there.
    Conflict,
}

/// Why there is no set of wheels.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// A requirement that is none.
    #[error("`{text}` in `[python] packages` is not a requirement: {why}")]
    Requirement {
        /// The text.
        text: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The packages do not resolve.
    #[error(
        "the Python packages do not resolve; uv says:\n{}",
        uv_text::without_flags(stderr)
    )]
    NoSolution {
        /// Why, where uv's text tells it.
        kind: NoSolution,
        /// What uv wrote, whole, without credentials.
        stderr: String,
    },
    /// An index of torch's builds has more than it is asked for, and no other index has that.
    #[error(
        "of the indexes that are named, only one of torch's builds has {}, and it serves torch, what is built beside it \
         and NVIDIA's libraries; uv says:\n{stderr}", packages.join(", ")
    )]
    OnlyOnTorchIndex {
        /// Their names.
        packages: Vec<String>,
        /// What uv wrote, without credentials.
        stderr: String,
    },
    /// A `pyproject.toml` that tells nothing.
    #[error(transparent)]
    Pyproject(#[from] PyprojectFileError),
    /// Something would have to be built to know what it needs.
    #[error(
        "the Python packages need something to be built first; uv says:\n{}",
        uv_text::without_flags(stderr)
    )]
    NeedsBuild {
        /// What uv wrote.
        stderr: String,
    },
    /// An index or a file could not be fetched.
    #[error("uv could not read from an index; it says:\n{stderr}")]
    Fetch {
        /// What uv wrote.
        stderr: String,
    },
    /// A repository or an archive does not have a folder that is named.
    #[error(
        "what is to be built does not have the folder that its address names; uv says:\n{}",
        uv_text::without_flags(stderr)
    )]
    NoSubdirectory {
        /// What uv wrote.
        stderr: String,
    },
    /// A repository could not be fetched.
    #[error(
        "git cannot fetch a repository that is needed; uv says:\n{}",
        uv_text::without_flags(stderr)
    )]
    Git {
        /// What uv wrote.
        stderr: String,
    },
    /// Something that uv needs was never fetched.
    #[error("uv has not seen all that it needs and fetching is off; it says:\n{stderr}")]
    Offline {
        /// What uv wrote.
        stderr: String,
    },
    /// An index wants a login, or another one.
    #[error("an index refused uv; it says:\n{stderr}")]
    Refused {
        /// What uv wrote.
        stderr: String,
    },
    /// The disk of uv's cache is full.
    #[error("uv cannot write to {}; it says:\n{stderr}", cache.display())]
    DiskFull {
        /// Its cache.
        cache: PathBuf,
        /// What uv wrote.
        stderr: String,
    },
    /// The folder of temporary files cannot be used.
    #[error("cannot keep temporary files in {}", path.display())]
    Scratch {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// uv needs some Python on the machine, of any version.
    #[error("uv finds no Python on this machine; it says:\n{stderr}")]
    NoPython {
        /// What uv wrote.
        stderr: String,
    },
    /// uv failed in another way.
    #[error("uv failed; it says:\n{stderr}")]
    Failed {
        /// What uv wrote.
        stderr: String,
    },
    /// uv could not be run.
    #[error("cannot run {}", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// What uv wrote cannot be used.
    #[error("what uv resolved cannot be locked")]
    Pylock(#[from] PylockError),
}

impl Hint for CompileError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Requirement { .. } => "write for example `torch==2.15.0` or `numpy>=2`",
            Self::NoSolution { kind, stderr } => match kind {
                NoSolution::NoSuchProject => {
                    "check the name's spelling, or add the index that has it with `[python] extra-index`"
                }
                NoSolution::OtherPlatforms => {
                    "ask for a version that has wheels for Linux on this architecture and glibc"
                }
                NoSolution::OtherPythons if has_old_tags_alone(stderr) => {
                    "Sconce has Python 3.8 and newer, which this version has no wheels for: take a newer version of it"
                }
                NoSolution::OtherPythons => {
                    "ask for another version of the package, or of Python with `[python] version`"
                }
                NoSolution::SourcesOnly => {
                    "ask for a version that has wheels for this Python; a package that has none for any is built from \
                     its sources where `[python] build-sources` is not false"
                }
                NoSolution::NothingThen => {
                    "take a later `as-of`, or none: that day the package was not there yet, or its index does not say \
                     when files were uploaded"
                }
                NoSolution::Conflict => "loosen the versions that are named above",
            },
            Self::OnlyOnTorchIndex { packages, .. } => {
                let name = packages.first().map_or("NAME", String::as_str);
                return Some(format!(
                    "where it is meant, write the address of its wheel: `{name} @ https://….whl`"
                ));
            }
            Self::NeedsBuild { stderr } if !names_folder(stderr) => {
                "it has sources alone, which `[python] build-sources = false` refuses: leave that out, or name a \
                 wheel of it, `NAME @ https://….whl`"
            }
            Self::NeedsBuild { .. } => {
                "name its dependencies in `[python] packages`, or in `[project] dependencies` without `dynamic`"
            }
            Self::Pyproject(_) => "mend it; uv cannot read it either",
            Self::Fetch { .. } => {
                "check the network, the proxy and the index; what is in the store is kept"
            }
            Self::NoSubdirectory { .. } => "correct `#subdirectory=…` in its address",
            Self::Git { .. } => {
                "check the repository's address, the network and this user's login: git runs as it does in a terminal"
            }
            Self::Offline { .. } => "run it once without `--offline`",
            Self::Refused { .. } => {
                "give a login for its host in ~/.netrc, or in the index's address \
                 (https://USER:PASSWORD@HOST/…); or check that this user may read it"
            }
            Self::DiskFull { .. } => "make room on its disk, or give another store folder",
            Self::Scratch { .. } => "make room there, or set TMPDIR to another folder",
            Self::NoPython { .. } => {
                "install any Python (on Debian and Ubuntu: `apt-get install python3-minimal`); its version does not matter"
            }
            Self::Pylock(e) => return e.hint(),
            Self::Failed { .. } | Self::Run { .. } => return None,
        };
        Some(text.to_owned())
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::NoSolution { .. } | Self::OnlyOnTorchIndex { .. } | Self::NeedsBuild { .. } => {
                exit::NO_SOLUTION
            }
            Self::Fetch { .. } | Self::Git { .. } | Self::Offline { .. } | Self::Refused { .. } => {
                exit::FETCH
            }
            Self::DiskFull { .. } | Self::Scratch { .. } => exit::STORE,
            Self::Requirement { .. }
            | Self::Pyproject(_)
            | Self::NoSubdirectory { .. }
            | Self::NoPython { .. }
            | Self::Failed { .. }
            | Self::Run { .. } => exit::BAD_INPUT,
            Self::Pylock(e) => e.exit_code(),
        }
    }
}

impl CompileError {
    /// Whether uv says that there are pre-releases that would count.
    pub(crate) fn speaks_of_prereleases(&self) -> bool {
        matches!(self, Self::NoSolution { stderr, .. } if stderr.contains("re-release"))
    }
}

impl CompileError {
    /// What may have to be built, as far as uv's text names it: `gym==0.23.1`, `clip`. The likeliest is first.
    pub(crate) fn unbuilt_packages(&self) -> Vec<UnbuiltPackage> {
        match self {
            Self::NoSolution { kind, stderr } => unbuilt_of_index(*kind, stderr),
            Self::NeedsBuild { stderr } if names_folder(stderr) => Vec::new(),
            Self::NeedsBuild { stderr } => {
                let phrase = "Building source distributions for `";
                let named = uv_text::all_quoted_after(stderr, phrase);
                let name = named.first().and_then(|name| uv_text::project_of(name));
                Vec::from_iter(name.map(|name| UnbuiltPackage { name, pin: None }))
            }
            _ => Vec::new(),
        }
    }
}

impl CompileError {
    /// What has no sources, though they were to be taken.
    pub(crate) fn package_without_sources(&self) -> Option<String> {
        let Self::NoSolution { stderr, .. } = self else {
            return None;
        };
        let pin = uv_text::pin_before(stderr, "has no source distribution")?;
        uv_text::project_of(&pin)
    }
}

fn unbuilt_of_index(kind: NoSolution, stderr: &str) -> Vec<UnbuiltPackage> {
    let mut pins = uv_text::projects_without_wheels(stderr);
    if matches!(kind, NoSolution::SourcesOnly | NoSolution::OtherPlatforms) {
        let phrases = ["has no usable wheels", "has no wheels with a matching"];
        let mut phrases = phrases.iter();
        pins.extend(phrases.find_map(|phrase| uv_text::pin_before(stderr, phrase)));
        // Of several ranges of versions, uv's text names the project alone here.
        let asked = uv_text::requirements_of(stderr);
        let named = uv_text::all_quoted_after(stderr, "Wheels are required for `");
        pins.extend(named.into_iter().map(|name| {
            let project = uv_text::project_of(&name);
            let mut asked = asked.iter();
            let of_project = asked.find(|one| uv_text::project_of(one) == project);
            of_project.cloned().unwrap_or(name)
        }));
    }
    let unbuilt = pins.into_iter().filter_map(|pin| {
        Some(UnbuiltPackage {
            name: uv_text::project_of(&pin)?,
            pin: Some(pin),
        })
    });
    let mut packages: Vec<UnbuiltPackage> = Vec::new();
    for package in unbuilt {
        if !packages.contains(&package) {
            packages.push(package);
        }
    }
    packages
}

/// Whether what uv would have built is a folder of this machine, `x @ file:///home/me/x`. Its sources have
/// no digest; it is installed from where it lies instead.
fn names_folder(stderr: &str) -> bool {
    let archives = [".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip"];
    let path = stderr
        .split_once(" @ file://")
        .and_then(|(_, rest)| rest.split_once('`'));
    path.is_some_and(|(path, _)| {
        !archives.iter().any(|end| path.ends_with(end)) || Path::new(path).is_dir()
    })
}

/// A package that uv found no wheel of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnbuiltPackage {
    /// Normalised project name.
    pub(crate) name: String,
    /// What was asked for, `gym==0.23.1`; absent where an address was, which has nothing but sources.
    pub(crate) pin: Option<String>,
}

/// Whether uv names wheels for Pythons before 3.8 alone: "the following Python ABI tags: `cp27m`, `cp37m`".
fn has_old_tags_alone(stderr: &str) -> bool {
    let Some((_, list)) = stderr.split_once("Python ABI tags: ") else {
        return false;
    };
    let line = list.lines().next().unwrap_or_default();
    let mut tags = line.split('`').filter_map(|text| text.strip_prefix("cp"));
    let is_old = |tag: &str| {
        let digits = tag.trim_end_matches(|c: char| !c.is_ascii_digit());
        matches!(digits.split_at_checked(1), Some((major, minor))
            if major == "2" || minor.parse::<u32>().is_ok_and(|minor| minor < 8))
    };
    tags.clone().next().is_some() && tags.all(is_old)
}

/// What kind of failure uv's text speaks of. The phrases are those of uv 0.13; with another uv a
/// failure may come out as a more general kind, with the same text.
pub(super) fn classify(stderr: String) -> CompileError {
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| stderr.contains(phrase));
    // An index that could not be asked is named in a hint below a text that says the project is
    // not there.
    if says(&["the network was disabled"]) {
        return CompileError::Offline { stderr };
    }
    if says(&[
        "lack of valid authentication credentials",
        "returned a 403 Forbidden error",
    ]) {
        return CompileError::Refused { stderr };
    }
    if says(&["No solution found"]) {
        let kind = if says(&[
            "was not found in the package registry",
            "was not found in the provided package locations",
        ]) {
            NoSolution::NoSuchProject
        } else if says(&["with a matching platform tag"]) {
            NoSolution::OtherPlatforms
        } else if says(&["with a matching Python"]) {
            NoSolution::OtherPythons
        } else if says(&["no usable wheels"]) {
            NoSolution::SourcesOnly
        } else if says(&["by `exclude-newer`"]) {
            NoSolution::NothingThen
        } else {
            NoSolution::Conflict
        };
        return CompileError::NoSolution { kind, stderr };
    }
    if says(&[
        "Building source distributions is disabled",
        "Building source distributions for `",
    ]) {
        CompileError::NeedsBuild { stderr }
    } else if says(&[
        "No interpreter found",
        "No Python interpreter",
        "Could not find a Python",
    ]) {
        CompileError::NoPython { stderr }
    } else if says(&["Git operation failed", "failed to clone", "failed to fetch"]) {
        CompileError::Git { stderr }
    } else if says(&["` has no subdirectory `"]) {
        CompileError::NoSubdirectory { stderr }
    } else if says(&[
        "Request failed",
        "Failed to fetch",
        "Failed to download",
        "network was disabled",
        "Network connectivity is disabled",
    ]) {
        CompileError::Fetch { stderr }
    } else {
        CompileError::Failed { stderr }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What uv 0.13.8 wrote, hosts changed.
    const UV_MESSAGES: [(&str, NoSolution); 6] = [
        (
            "error: No solution found when resolving dependencies\n  cause: Because nosuchpackage was not found in the package registry and you require nosuchpackage, we can conclude that your requirements are unsatisfiable.",
            NoSolution::NoSuchProject,
        ),
        (
            "error: No solution found when resolving dependencies\n  cause: Because torch==1.2.0 has no wheels with a matching Python ABI tag (e.g., `cp313`) and you require torch==1.2.0, we can conclude that your requirements are unsatisfiable.",
            NoSolution::OtherPythons,
        ),
        (
            "error: No solution found when resolving dependencies\n  cause: Because pyspark==3.5.0 has no usable wheels and you require pyspark==3.5.0, we can conclude that your requirements are unsatisfiable.\n\nhint: Wheels are required for `pyspark` because building from source is disabled for all packages (i.e., with `--no-build`)",
            NoSolution::SourcesOnly,
        ),
        (
            "error: No solution found when resolving dependencies\n  cause: Because triton-windows>=3.2.0.post11 has no wheels with a matching platform tag (e.g., `manylinux_2_40_x86_64`) and you require triton-windows, we can conclude that your requirements are unsatisfiable.",
            NoSolution::OtherPlatforms,
        ),
        (
            "error: No solution found when resolving dependencies\n  cause: Because there is no version of tensorrt==10.0.0 and you require tensorrt==10.0.0, we can conclude that your requirements are unsatisfiable.",
            NoSolution::Conflict,
        ),
        (
            "error: No solution found when resolving dependencies\n  cause: Because there are no versions of iniconfig and you require iniconfig, we can conclude that your requirements are unsatisfiable.\n\nhint: `iniconfig` was filtered by `exclude-newer` to only include packages uploaded before 2024-01-01T23:59:59Z. The latest version satisfying the requirement is v2.0.0. Consider using `exclude-newer-package` to override the cutoff for this package.",
            NoSolution::NothingThen,
        ),
    ];

    #[test]
    fn failures_are_told_apart() {
        for (said, expected) in UV_MESSAGES {
            let error = classify(said.to_owned());
            assert!(
                matches!(&error, CompileError::NoSolution { kind, .. } if *kind == expected),
                "{error}"
            );
            assert!(error.to_string().contains(&uv_text::without_flags(said)));
            assert_eq!(error.exit_code(), exit::NO_SOLUTION);
        }
        for (said, code) in [
            (
                "error: Building source distributions is disabled",
                exit::NO_SOLUTION,
            ),
            (
                "error: Failed to download and build `x @ git+https://example.org/x`\n  cause: Building source distributions for `x` is disabled",
                exit::NO_SOLUTION,
            ),
            (
                "error: Request failed after 3 retries in 6.4s\n  cause: Failed to fetch: http://127.0.0.1:1/simple/pyspark/",
                exit::FETCH,
            ),
            (
                "error: No solution found when resolving dependencies\n  cause: Because mypkg was not found in the package registry and you require mypkg, we can conclude that your requirements are unsatisfiable.\n\nhint: An index URL (http://localhost:8799/simple) could not be queried due to a lack of valid authentication credentials (401 Unauthorized)",
                exit::FETCH,
            ),
            (
                "error: No solution found when resolving dependencies\n  cause: Because six was not found in the cache and you require six, we can conclude that your requirements are unsatisfiable.\n\nhint: Packages were unavailable because the network was disabled. When the network is disabled, registry packages may only be read from the cache.",
                exit::FETCH,
            ),
            (
                "error: No solution found when resolving dependencies\n  cause: Because six was not found in the package registry and you require six, we can conclude that your requirements are unsatisfiable.\n\nhint: An index (http://127.0.0.1:8931/403/simple) returned a 403 Forbidden error. Check that the index URL is correct and the credentials are valid.",
                exit::FETCH,
            ),
            (
                "error: Failed to download and build `x @ git+https://example.org/x#subdirectory=y`\n  cause: The source distribution `git+https://example.org/x#subdirectory=y` has no subdirectory `y`",
                exit::BAD_INPUT,
            ),
            (
                "error: Git operation failed\n  cause: failed to clone into: c2/git-v1/db/332af4028b2840dc",
                exit::FETCH,
            ),
            (
                "error: No interpreter found for Python 3.13 in virtual environments, managed installations, or search path",
                exit::BAD_INPUT,
            ),
            (
                "error: Couldn't parse requirement in `-` at position 0",
                exit::BAD_INPUT,
            ),
        ] {
            assert_eq!(classify(said.to_owned()).exit_code(), code, "{said}");
        }
    }

    #[test]
    fn a_folder_is_not_built() {
        let error = |path: &str| {
            classify(format!(
                "error: Failed to build `x @ file://{path}`\n  cause: Building source distributions for `x` is disabled"
            ))
        };
        assert_eq!(error("/home/me/x").unbuilt_packages(), []);
        let archive = error("/no-such-folder/x-1.tar.gz").unbuilt_packages();
        assert_eq!(archive[0].name, "x");
    }

    #[test]
    fn what_has_sources_alone_is_found_behind_ranges() {
        let pins = |text: &str| -> Vec<String> {
            let error = classify(format!("error: No solution found\n  cause: {text}"));
            let packages = error.unbuilt_packages();
            packages.into_iter().filter_map(|one| one.pin).collect()
        };
        let hint = |name| format!("\n\nhint: Wheels are required for `{name}` because building");
        let text = "Because all versions of urwid-readline have no usable wheels and all of:\n  pudb>=2024.1.1,<=2025.1.1\n  pudb>=2025.1.3\n depend on urwid-readline, we can conclude that all of: x cannot be used.\n And because all of:\n pudb>=2022.1.3,<=2024.1\n pudb==2025.1.2\n have no usable wheels and you require pudb>=2022.1.3, we can conclude that";
        assert_eq!(
            pins(&format!("{text}{}{}", hint("pudb"), hint("urwid-readline"))),
            ["urwid-readline", "pudb>=2022.1.3"]
        );
        let text = "Because all of:\n gym<=0.9\n gym==0.19\n have no usable wheels and you require gym<0.20, we can conclude that";
        assert_eq!(pins(&format!("{text}{}", hint("gym"))), ["gym<0.20"]);
        let text = "Because all versions of a have no usable wheels and b has no wheels with a matching Python ABI tag (e.g., `cp313`)";
        assert_eq!(pins(&format!("{text}{}", hint("c"))), ["a"]);
    }
}
