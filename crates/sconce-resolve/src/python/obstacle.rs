//! What of uv's text says that another Python may do.

use super::compile_error::{CompileError, NoSolution};
use super::uv_text::{
    all_quoted_after, own_requirements_of, pin_before, project_of, requirements_of,
};

/// Why packages do not resolve for one Python, where they may for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PythonObstacle {
    /// A package has no wheels for it.
    NoWheels {
        /// What is asked for, `torch==1.13.1`.
        pin: String,
        /// The minor versions of Python that a pinned version has wheels for, lowest first; empty where
        /// that is not said.
        minors: Vec<u32>,
    },
    /// A package wants a newer one.
    TooOld {
        /// The package, `ipython==8.30.0`.
        pin: String,
    },
    /// A package wants an older one.
    TooNew {
        /// The package.
        pin: String,
    },
}

impl PythonObstacle {
    /// What an error says; `None` where it has nothing to do with Python's version.
    pub(crate) fn of_error(error: &CompileError) -> Option<Self> {
        match error {
            CompileError::NoSolution { kind, stderr } => Self::of_text(*kind, stderr),
            _ => None,
        }
    }

    fn of_text(kind: NoSolution, text: &str) -> Option<Self> {
        // `does not satisfy Python>=3.10 and ipython==8.30.0 depends on Python>=3.10`
        if let Some((_, rest)) = text.split_once("does not satisfy Python")
            && kind == NoSolution::Conflict
        {
            let bound = rest.split_whitespace().next().unwrap_or_default();
            let pin = rest.split_whitespace().nth(2).unwrap_or("a package");
            let pin = pin.trim_end_matches(',').to_owned();
            let is_upper = !bound.starts_with(">=") && !bound.starts_with('>');
            return Some(match is_upper {
                true => Self::TooNew { pin },
                false => Self::TooOld { pin },
            });
        }
        // Wheels of one Python are there for another machine alone; an older one may have them for this.
        let is_of_machine = kind == NoSolution::OtherPlatforms && !names_windows_alone(text);
        if !is_of_machine && !matches!(kind, NoSolution::OtherPythons | NoSolution::SourcesOnly) {
            return None;
        }
        let found = pin_before(text, "has no usable wheels")
            .or_else(|| pin_before(text, "has no wheels with a matching Python"))
            .or_else(|| pin_before(text, "has no wheels with a matching platform"))
            .or_else(|| all_quoted_after(text, "only found wheels for `").pop())
            .or_else(|| all_quoted_after(text, "Wheels are required for `").pop());
        let found = found.unwrap_or_else(|| "a package".to_owned());
        let asked = requirements_of(text);
        let is_asked = asked.is_empty() || asked.contains(&found);
        let pin = match is_asked {
            true => found,
            false => find_asked(text, &asked, &found),
        };
        // Of a range, and of a version that nobody asked for, other versions may have other tags.
        let minors = match is_asked && pin.contains("==") && kind == NoSolution::OtherPythons {
            true => minors_of_tags(text),
            false => Vec::new(),
        };
        Some(Self::NoWheels { pin, minors })
    }

    /// The package that it is about.
    pub(crate) fn pin(&self) -> &str {
        match self {
            Self::NoWheels { pin, .. } | Self::TooOld { pin } | Self::TooNew { pin } => pin,
        }
    }
}

/// What is `asked` for that comes down to `found`, which nobody asked for: a version that uv names may be the last of
/// those that it tried.
fn find_asked(text: &str, asked: &[String], found: &str) -> String {
    let project = project_of(found);
    let mut of_project = asked.iter().filter(|one| project_of(one) == project);
    if let Some(one) = of_project.find(|one| one.contains(['=', '<', '>'])) {
        return one.clone();
    }
    match own_requirements_of(text).as_slice() {
        [one, other] => format!("{one} with {other}"),
        _ => project.unwrap_or_else(|| found.to_owned()),
    }
}

/// `… with the following Python ABI tags: `cp37m`, `cp38`, `cp311``
fn minors_of_tags(text: &str) -> Vec<u32> {
    let Some((_, rest)) = text.split_once("with the following Python ABI tag") else {
        return Vec::new();
    };
    let line = rest.lines().next().unwrap_or_default();
    let quoted = line.split('`').skip(1).step_by(2);
    let minor = |tag: &str| {
        let minor = tag.strip_prefix("cp3")?.trim_end_matches('m');
        minor.parse().ok()
    };
    let mut minors: Vec<u32> = quoted.filter_map(minor).collect();
    minors.sort_unstable();
    minors
}

/// Whether the platforms that wheels are there for are all of Windows, whatever the Python:
/// `… on the following platforms: `win32`, `win_amd64``. Where none is named, it is not known.
fn names_windows_alone(text: &str) -> bool {
    let lists = text.split("on the following platform").skip(1);
    let platforms = lists.flat_map(|list| {
        let line = list.lines().next().unwrap_or_default();
        line.split('`').skip(1).step_by(2)
    });
    let mut platforms = platforms.peekable();
    platforms.peek().is_some() && platforms.all(|platform| platform.starts_with("win"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What uv 0.13.8 wrote, and what is read of it.
    #[test]
    fn texts_of_uv_say_which_python_may_do() {
        let wheels = |pin: &str, minors: &[u32]| {
            Some(PythonObstacle::NoWheels {
                pin: pin.to_owned(),
                minors: minors.to_vec(),
            })
        };
        for (kind, text, expected) in [
            (
                NoSolution::OtherPythons,
                "error: No solution found when resolving dependencies\n  cause: Because torch==1.13.1 has no wheels with a matching Python ABI tag (e.g., `cp313`) and you require torch==1.13.1, we can conclude that your requirements are unsatisfiable.\n\nhint: You require CPython 3.13 (`cp313`), but we only found wheels for `torch` (v1.13.1) with the following Python ABI tags: `cp37m`, `cp38`, `cp39`, `cp310`, `cp311`",
                wheels("torch==1.13.1", &[7, 8, 9, 10, 11]),
            ),
            (
                NoSolution::OtherPythons,
                "  cause: Because torch>=1.9.0,<=1.9.1 has no wheels with a matching Python ABI tag (e.g., `cp313`) and only the following versions of torch are available:\n\nhint: You require CPython 3.13 (`cp313`), but we only found wheels for `torch` (v1.9.1) with the following Python ABI tags: `cp36m`, `cp39`",
                wheels("torch>=1.9.0,<=1.9.1", &[]),
            ),
            (
                NoSolution::SourcesOnly,
                "  cause: Because numpy==1.21.0 has no usable wheels and you require numpy==1.21.0, we can conclude that your requirements are unsatisfiable.\n\nhint: Wheels are required for `numpy` because building",
                wheels("numpy==1.21.0", &[]),
            ),
            (
                NoSolution::SourcesOnly,
                "  cause: Because all of:\n             numpy<=1.9.3\n          have no usable wheels and only\n\nhint: Wheels are required for `numpy` because building",
                wheels("numpy", &[]),
            ),
            (
                NoSolution::OtherPlatforms,
                "  cause: Because torch>=1.5.0,<=1.10.1 has no wheels with a matching Python ABI tag (e.g., `cp310`) and only the following versions of torch are available:\n             torch<=1.10.1\n             torch==1.10.2\n         And because torch==1.10.2 has no wheels with a matching platform tag (e.g., `manylinux_2_40_x86_64`) and dpr depends on torch>=1.5.0, we can conclude that your requirements are unsatisfiable.\n\nhint: Wheels are available for `torch` (v1.10.2) on the following platform: `manylinux2014_aarch64`\n\nhint: You require CPython 3.10 (`cp310`), but we only found wheels for `torch` (v1.10.1) with the following Python ABI tags: `cp36m`, `cp39`",
                wheels("torch>=1.5.0", &[]),
            ),
            (
                NoSolution::OtherPlatforms,
                "  cause: Because torch==1.10.2 has no wheels with a matching platform tag (e.g., `manylinux_2_40_x86_64`) and you require torch==1.10.2, we can\n\nhint: Wheels are available for `torch` (v1.10.2) on the following platform: `manylinux2014_aarch64`",
                wheels("torch==1.10.2", &[]),
            ),
            (
                NoSolution::OtherPythons,
                "  cause: Because torchvision==0.1.6 has no usable wheels and only the following versions of torchvision are available:\n             torchvision==0.1.6\n             torchvision>=0.1.7\n         we can conclude that torchvision<0.1.7 cannot be used.\n         And because you require torch<2 and torchvision, we can conclude that your requirements are unsatisfiable.\n\nhint: You require CPython 3.11 (`cp311`), but we only found wheels for `torchvision` (v0.10.1) with the following Python ABI tags: `cp38`, `cp39`",
                wheels("torch<2 with torchvision", &[]),
            ),
            (
                NoSolution::SourcesOnly,
                "  cause: Because all of:\n             numpy<=1.9.3\n             numpy>=1.10\n          have no usable wheels and you require numpy<1.24, we can conclude that\n\nhint: Wheels are required for `numpy` because building",
                wheels("numpy<1.24", &[]),
            ),
            (
                NoSolution::OtherPlatforms,
                "  cause: Because triton-windows>=3.2.0.post11 has no wheels with a matching platform tag (e.g., `manylinux_2_40_x86_64`) and you require triton-windows, we can\n\nhint: Wheels are available for `triton-windows` (v3.2.0.post11) on the following platform: `win_amd64`",
                None,
            ),
            (
                NoSolution::Conflict,
                "  cause: Because the requested Python version (>=3.8.18) does not satisfy Python>=3.10 and ipython==8.30.0 depends on Python>=3.10, we can conclude that ipython==8.30.0 cannot be used.",
                Some(PythonObstacle::TooOld {
                    pin: "ipython==8.30.0".to_owned(),
                }),
            ),
            (
                NoSolution::Conflict,
                "  cause: Because the requested Python version (>=3.13.5) does not satisfy Python<3.12 and a==1 depends on Python<3.12, we can",
                Some(PythonObstacle::TooNew {
                    pin: "a==1".to_owned(),
                }),
            ),
            (
                NoSolution::Conflict,
                "  cause: Because there is no version of tensorrt==10.0.0 and you require",
                None,
            ),
            (
                NoSolution::NoSuchProject,
                "  cause: Because x was not found in the package registry",
                None,
            ),
        ] {
            assert_eq!(PythonObstacle::of_text(kind, text), expected, "{text}");
        }
    }
}
