//! Lines of `pip freeze` that name nothing that an index has.

use sconce_formats::normalize_project_name;

/// What such a line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FrozenLine {
    /// A package that conda built on its own machines: its name, with the version where the path has it.
    OfConda(String),
    /// A package that no index has: Debian's and Ubuntu's pip named itself so.
    Nothing,
}

pub(super) const OF_CONDA: &str =
    "conda built it, in a folder that is nowhere else: the package of that name is taken";
pub(super) const NOTHING: &str = "no package: pip of Debian and Ubuntu wrote it by mistake";

/// Takes a line apart; `None` for every other.
pub(super) fn read_frozen_line(text: &str) -> Option<FrozenLine> {
    let text = text.trim();
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
    Some(FrozenLine::OfConda(match version {
        Some(version) => format!("{name}=={version}"),
        None => name.to_owned(),
    }))
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
            ("x @ file:///C:/x-20240101/src", "x"),
        ] {
            let found = read_frozen_line(line);
            assert_eq!(
                found,
                Some(FrozenLine::OfConda(expected.to_owned())),
                "{line}"
            );
        }
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
