//! Lines of `pip freeze` and of `conda list --export` that name nothing that an index has.

use sconce_formats::{is_known_project, normalize_project_name};

use super::conda_names::{self, CondaMapping, find_mapping};

/// What such a line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrozenLine {
    /// A package that conda built on its own machines: its name, with the version where the path has it.
    OfConda(String),
    /// A package of that kind that lay in a folder of a person's, and that an index surely has.
    OfFolder(String),
    /// A project in a folder of another machine, which an index need not have.
    Elsewhere,
    /// A package that no index has: Debian's and Ubuntu's pip named itself so.
    Nothing,
    /// A package under conda's name and with conda's version: what it is on the index.
    OfCondaList(String),
    /// A package whose sources alone are to be had: the requirement by their address.
    Sources(String),
    /// A part of conda's that nothing else needs.
    Unneeded,
    /// A package of conda that is not known elsewhere, with what to do.
    UnknownOfConda(&'static str),
    /// The interpreter, in this version.
    Python(String),
}

pub(super) const OF_CONDA: &str =
    "conda built it, in a folder that is nowhere else: the package of that name is taken";
pub(super) const OF_FOLDER: &str =
    "a folder of another machine: the well-known package of that name is taken";
pub(super) const ELSEWHERE: &str = "a folder of another machine, and what an index has under that name may be another \
     project: put it into this folder and name it in `[python] editable`";
pub(super) const NOTHING: &str = "no package: pip of Debian and Ubuntu wrote it by mistake";

pub(super) const OF_CONDA_LIST: &str = "as conda lists it: what it is on the index is taken";
pub(super) const NOT_NEEDED: &str =
    "a part of conda's that wheels bring, or that every environment has";

/// A line of `conda list --export`, `name=version=build`, or one with a name that only conda has.
fn read_conda_line(text: &str) -> Option<FrozenLine> {
    let is_plain = |part: &str| {
        let known = |b: u8| b.is_ascii_alphanumeric() || b"._-+!*".contains(&b);
        !part.is_empty() && part.len() < 100 && part.bytes().all(known)
    };
    let (name, version) = match text.split_once("==") {
        Some((name @ ("python" | "pytorch" | "cudatoolkit"), version)) => (name, version),
        Some(_) => return None,
        None => {
            let mut parts = text.splitn(3, '=');
            let (name, version, build) = (parts.next()?, parts.next()?, parts.next()?);
            if !is_plain(build) {
                return None;
            }
            if build.starts_with("pypi") && is_plain(name) && is_plain(version) {
                return Some(FrozenLine::OfCondaList(format!("{name}=={version}")));
            }
            (name, version)
        }
    };
    if !is_plain(name) || !is_plain(version) {
        return None;
    }
    if name == "python" {
        return Some(FrozenLine::Python(version.to_owned()));
    }
    Some(match find_mapping(&name.to_ascii_lowercase()) {
        Some(CondaMapping::Python(project)) => {
            FrozenLine::OfCondaList(format!("{project}=={version}"))
        }
        Some(CondaMapping::CudaWheels(&[project])) => {
            FrozenLine::OfCondaList(format!("{project}-cu12=={version}"))
        }
        Some(CondaMapping::Sources(source)) => {
            FrozenLine::Sources(source.requirement(Some(version)))
        }
        Some(CondaMapping::CondaAlone) => FrozenLine::UnknownOfConda(conda_names::ALONE),
        Some(_) => FrozenLine::Unneeded,
        None => FrozenLine::UnknownOfConda(conda_names::UNKNOWN),
    })
}

/// Takes a line apart; `None` for every other.
pub(super) fn read_frozen_line(text: &str) -> Option<FrozenLine> {
    let text = text.trim();
    if let Some(line) = read_conda_line(text) {
        return Some(line);
    }
    if let Some((name, "0.0.0")) = text.split_once("==")
        && normalize_project_name(name).as_deref() == Some("pkg-resources")
    {
        return Some(FrozenLine::Nothing);
    }
    let (name, address) = text.split_once('@')?;
    let project = name.split('[').next().unwrap_or_default().trim();
    let project = normalize_project_name(project)?;
    let path = address.trim().strip_prefix("file://")?;
    let path = path.split(['#', '?']).next().unwrap_or_default();
    // Its own wheels are files that a person can have.
    if path.ends_with(".whl") || path.len() > 2000 {
        return None;
    }
    let version = path
        .split('/')
        .rev()
        .find_map(|part| find_version(part, &project));
    let name = name.trim();
    let requirement = match version {
        Some(version) => format!("{name}=={version}"),
        None => name.to_owned(),
    };
    Some(match is_of_conda(path) {
        true => FrozenLine::OfConda(requirement),
        false if is_known_project(&project) => FrozenLine::OfFolder(requirement),
        false => FrozenLine::Elsewhere,
    })
}

/// Whether a folder is one that conda builds in: its machines have few, and their names have not changed in years.
fn is_of_conda(path: &str) -> bool {
    let parts = [
        "conda",
        "croot",
        "feedstock",
        "/tmp/build/",
        "/bld/",
        "/ci/",
        "/ci_",
        "/abs_",
        "/concourse/",
        "/builder/",
        "/ktietz/",
    ];
    parts.iter().any(|part| path.contains(part)) || path.ends_with("/work")
}

/// The version in `numpy-1.26.4`; what conda numbers its folders with is none.
fn find_version(part: &str, project: &str) -> Option<String> {
    let part = [".tar.gz", ".zip"]
        .iter()
        .find_map(|end| part.strip_suffix(end))
        .unwrap_or(part);
    let (name, version) = part.rsplit_once('-')?;
    let plain =
        |part: &str| (1..=6).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    let is_version = (2..=4).contains(&version.split('.').count()) && version.split('.').all(plain);
    let is_same = normalize_project_name(name).as_deref() == Some(project);
    (is_version && is_same).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_conda_lists_is_what_it_is_on_the_index() {
        let of_list = |text: &str| FrozenLine::OfCondaList(text.to_owned());
        for (line, expected) in [
            (
                "pytorch=1.9.0=py3.8_cuda11.1_cudnn8.0.5_0",
                of_list("torch==1.9.0"),
            ),
            ("numpy=1.21.2=py38h20f2e39_0", of_list("numpy==1.21.2")),
            ("timm=0.4.12=pypi_0", of_list("timm==0.4.12")),
            ("_libgcc_mutex=0.1=main", FrozenLine::Unneeded),
            ("cudatoolkit=11.1.74=h6bb024c_0", FrozenLine::Unneeded),
            (
                "nobody-knows-it=1=0",
                FrozenLine::UnknownOfConda(conda_names::UNKNOWN),
            ),
            (
                "psi4=1.9=py310_0",
                FrozenLine::UnknownOfConda(conda_names::ALONE),
            ),
            ("cudf=25.2.2=cuda12_py311_0", of_list("cudf-cu12==25.2.2")),
            (
                "python=3.8.12=h12debd9_0",
                FrozenLine::Python("3.8.12".to_owned()),
            ),
            ("python==3.8.12", FrozenLine::Python("3.8.12".to_owned())),
            ("pytorch==1.9.0", of_list("torch==1.9.0")),
        ] {
            assert_eq!(read_frozen_line(line), Some(expected), "{line}");
        }
        for line in [
            "numpy==1.26",
            "a=b",
            "a===1.0",
            "x=1=$(id)",
            "pytorch-lightning==1.9",
        ] {
            assert_eq!(read_frozen_line(line), None, "{line}");
        }
    }

    #[test]
    fn folders_of_conda_are_names() {
        for (line, expected) in [
            (
                "numpy @ file:///croot/numpy_and_numpy_base_1668593735768/work",
                "numpy",
            ),
            (
                "Pillow @ file:///tmp/build/80754af9/pillow_1625655817137/work",
                "Pillow",
            ),
            ("x[y] @ file:///croot/x-1.2.3/src", "x[y]==1.2.3"),
            ("x @ file:///croot/x-1.2.tar.gz#sha256=ab", "x==1.2"),
            ("x @ file:///croot/y-1.2.3/src", "x"),
            ("x @ file:///C:/ci/x-20240101/src", "x"),
            ("x @ file:///opt/conda/conda-bld/x_1/work", "x"),
        ] {
            let found = read_frozen_line(line);
            assert_eq!(
                found,
                Some(FrozenLine::OfConda(expected.to_owned())),
                "{line}"
            );
        }
        for line in [
            "mine @ file:///C:/Users/me/mine",
            "mine @ file:///home/me/mine-1.0",
        ] {
            assert_eq!(
                read_frozen_line(line),
                Some(FrozenLine::Elsewhere),
                "{line}"
            );
        }
        assert_eq!(
            read_frozen_line("numpy @ file:///home/me/numpy"),
            Some(FrozenLine::OfFolder("numpy".to_owned()))
        );
        for line in ["pkg-resources==0.0.0", "pkg_resources==0.0.0"] {
            assert_eq!(read_frozen_line(line), Some(FrozenLine::Nothing));
        }
        for line in [
            "numpy==1.26",
            "x @ https://a.example.org/x-1.0.tar.gz",
            "x @ file:///home/me/x-1.0-py3-none-any.whl",
            "pkg-resources==1.0",
            "@ file:///x",
            "",
        ] {
            assert_eq!(read_frozen_line(line), None, "{line}");
        }
    }
}
