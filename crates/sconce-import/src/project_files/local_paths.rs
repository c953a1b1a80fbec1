//! Requirements by a path of this machine: `name @ file:./libs/name`, `name @ file:///home/me/project/libs/name`.

use std::cell::RefCell;

use sconce_formats::normalize_project_name;

use crate::project_files::static_project::StaticProject;
use crate::{SiblingFiles, inside};

pub(crate) const HERE: &str =
    "its folder of this project is taken: the whole path is another one elsewhere";

/// What stands for the project's own folder: hatch's field, and variables of PDM and of a shell.
const PROJECT_ROOT: [&str; 4] = [
    "{root:uri}/",
    "file:///${PROJECT_ROOT}/",
    "file://${PROJECT_ROOT}/",
    "file://${PWD}/",
];
/// Folders above one that are looked through.
const MAX_DEPTH: usize = 24;
/// Requirements of a project that are told.
const MAX_BROUGHT: usize = 1000;

/// A requirement by a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LocalPath {
    /// Normalised project name.
    pub(crate) name: String,
    /// Relative to the file that names it, with extras: `libs/name[gpu]`.
    pub(crate) path: String,
    /// It was a whole path, which is one of this folder in another place.
    pub(crate) is_moved: bool,
}

/// Reads a requirement. `None` for one without a path, and for a whole path that is none of the folder's.
pub(crate) fn read_local_path(text: &str, beside: SiblingFiles<'_>) -> Option<LocalPath> {
    let (name, rest) = text.split_once('@')?;
    let (bare, extras) = match name.trim().find('[') {
        Some(at) => name.trim().split_at(at),
        None => (name.trim(), ""),
    };
    let project = normalize_project_name(bare.trim())?;
    let address = rest.split_whitespace().next()?;
    let address = address.split(['#', '?', '\0']).next()?;
    let relative = PROJECT_ROOT
        .iter()
        .find_map(|root| address.strip_prefix(root))
        .or_else(|| {
            let path = address.strip_prefix("file:").unwrap_or(address);
            let is_path = path.len() < address.len() || path.starts_with("./");
            (is_path && !path.starts_with('/')).then_some(path)
        });
    let (path, is_moved) = match relative {
        Some(path) => (inside(path)?, false),
        None => {
            let path = address.strip_prefix("file://")?;
            (find_folder(path, &project, beside)?, true)
        }
    };
    Some(LocalPath {
        path: format!("{path}{extras}"),
        name: project,
        is_moved,
    })
}

/// The folder of the project's own that a whole path ends in, if the project of that name is there: who wrote the
/// path had this repository elsewhere.
fn find_folder(path: &str, project: &str, beside: SiblingFiles<'_>) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let from = parts.len().saturating_sub(MAX_DEPTH);
    (from..=parts.len()).find_map(|at| {
        let folder = match parts[at..].join("/").as_str() {
            "" => ".".to_owned(),
            folder => inside(folder)?,
        };
        let name = read_project(&folder, beside)?.metadata.name;
        (normalize_project_name(&name).as_deref() == Some(project)).then_some(folder)
    })
}

/// What a folder's own files say. Each is read once: a setup.py may read a file of requirements that names the folder
/// again, and so on.
fn read_project(folder: &str, beside: SiblingFiles<'_>) -> Option<StaticProject> {
    let unread = RefCell::new(vec!["pyproject.toml", "setup.py", "setup.cfg"]);
    let below = |name: &str| {
        let at = unread.borrow().iter().position(|one| *one == name)?;
        let name = unread.borrow_mut().swap_remove(at);
        match folder {
            "." => beside(name),
            folder => beside(&format!("{folder}/{name}")),
        }
    };
    StaticProject::read("", &below)
}

/// The projects that a folder or a file brings, `./libs/mine[gpu]`, `w/six-1.0-py3-none-any.whl`: itself, and what it
/// requires.
pub(crate) fn find_brought(text: &str, beside: SiblingFiles<'_>) -> Vec<String> {
    let path = text.split(['[', ';', ' ']).next().unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default();
    if let Some(stem) = archive_stem(file) {
        let name = stem.split('-').next().and_then(normalize_project_name);
        return name.into_iter().collect();
    }
    let folder = match path.trim_end_matches('/') {
        "." | "" => Some(".".to_owned()),
        path => inside(path),
    };
    let Some(project) = folder.and_then(|folder| read_project(&folder, beside)) else {
        return Vec::new();
    };
    let requires = project.metadata.dependencies.iter();
    let requires = requires.filter_map(|text| Some(crate::requirement::parse(text).ok()?.name));
    let own = normalize_project_name(&project.metadata.name);
    own.into_iter().chain(requires).take(MAX_BROUGHT).collect()
}

/// A wheel or a source archive below the folder, by a path without a name: `./w/six-1.0-py3-none-any.whl`.
pub(crate) fn is_file_below(text: &str) -> bool {
    let path = text.split([' ', ';']).next().unwrap_or_default();
    archive_stem(path).is_some() && inside(path).is_some()
}

fn archive_stem(file: &str) -> Option<&str> {
    [".whl", ".tar.gz", ".zip"]
        .into_iter()
        .find_map(|end| file.strip_suffix(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIX: &str = "[project]\nname = 'Six'\ndependencies = ['idna>=3']\n";

    fn beside(path: &str) -> Option<String> {
        let is_six = ["libs/six/pyproject.toml", "work/pyproject.toml"].contains(&path);
        match path {
            "setup.py" => Some("setup(name='mine', install_requires=['numpy'])".to_owned()),
            _ => is_six.then(|| SIX.to_owned()),
        }
    }

    #[test]
    fn paths_of_the_folder_are_found() {
        for (text, name, path, is_moved) in [
            ("dep @ file:./libs/dep", "dep", "libs/dep", false),
            ("My_Dep[a] @ ./libs/dep ; x", "my-dep", "libs/dep[a]", false),
            ("six @ {root:uri}/libs/six", "six", "libs/six", false),
            ("six @ file:///${PROJECT_ROOT}/six", "six", "six", false),
            (
                "six @ file:///home/me/here/libs/six",
                "six",
                "libs/six",
                true,
            ),
            ("mine @ file:///home/me/here", "mine", ".", true),
        ] {
            let expected = LocalPath {
                name: name.to_owned(),
                path: path.to_owned(),
                is_moved,
            };
            assert_eq!(read_local_path(text, &beside), Some(expected), "{text}");
        }
        for text in [
            "numpy @ file:///croot/numpy_1/work",
            "six @ file:../six",
            "six @ https://example.org/six-1.tar.gz",
            "six @ git+https://example.org/six",
            "six",
            "git@example.org:a/six",
        ] {
            assert_eq!(read_local_path(text, &beside), None, "{text}");
        }
    }

    #[test]
    fn a_project_that_names_itself_in_circles_ends() {
        let beside = |path: &str| {
            match path {
            "setup.py" => Some(
                "\"\"\"\n-e .\na @ file:///x/y\n\"\"\"\nsetup(name='a', install_requires=open('setup.py').readlines())"
                    .to_owned(),
            ),
            "r.txt" => Some("-e .\na @ file:///x/y/z\n-e a\n".to_owned()),
            "a/setup.py" => Some("setup(install_requires=open('../r.txt').readlines())".to_owned()),
            _ => None,
        }
        };
        assert_eq!(find_brought(".", &beside)[0], "a");
        let local = read_local_path("a @ file:///x/y", &beside).unwrap();
        assert_eq!(local.path, ".");
    }

    #[test]
    fn what_a_folder_brings_is_what_it_names() {
        for (text, expected) in [
            ("./libs/six[gpu]", vec!["six", "idna"]),
            (".", vec!["mine", "numpy"]),
            ("w/My_Lib-1.0-py3-none-any.whl", vec!["my-lib"]),
            ("./w/my_lib.tar.gz", vec!["my-lib"]),
            ("../out", vec![]),
            ("gone", vec![]),
        ] {
            assert_eq!(find_brought(text, &beside), expected, "{text}");
        }
    }
}
