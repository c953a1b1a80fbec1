//! Which project of the Python package index a module is of. Kept by hand: a name that is not here is never
//! taken for a project's, since a project of that name can be anybody's.

mod dependencies;
mod modules;
mod standard_library;

use dependencies::BRINGS;
use modules::MODULES;
use standard_library::STANDARD;

/// The projects that have a module, the usual one first: any of them will do where it is required already.
/// Of a dotted name, the longest part that is known counts.
#[must_use]
pub fn find_providers(module: &str) -> Option<impl Iterator<Item = &'static str> + Clone + use<>> {
    let mut name = module;
    loop {
        if let Ok(at) = MODULES.binary_search_by(|(known, _)| (*known).cmp(name)) {
            return Some(MODULES[at].1.split(' '));
        }
        name = name.rsplit_once('.')?.0;
    }
}

/// Whether a project is a well-known one, so that a name which conda has too means the same.
#[must_use]
pub fn is_known_project(name: &str) -> bool {
    let mut rows = MODULES.iter();
    rows.any(|(_, projects)| projects.split(' ').any(|project| project == name))
}

/// The modules that a project has, as far as they are known to be called otherwise than the project.
pub fn known_modules(project: &str) -> impl Iterator<Item = &'static str> {
    let rows = MODULES.iter().filter(move |(_, projects)| {
        let mut names = projects
            .split(' ')
            .filter_map(|name| name.split('<').next());
        names.any(|name| name == project)
    });
    rows.map(|(module, _)| *module)
}

/// What well-known projects require themselves, so that a spec need not name it again.
pub fn brought_projects(project: &str) -> impl Iterator<Item = &'static str> + use<> {
    let found = BRINGS.binary_search_by(|(known, _)| (*known).cmp(project));
    let brought = found.map_or("", |at| BRINGS[at].1);
    brought.split(' ').filter(|name| !name.is_empty())
}

/// Whether a module comes with Python, of any version from 3.8 to 3.15.
#[must_use]
pub fn is_standard_module(name: &str) -> bool {
    name.starts_with("_") || STANDARD.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normalize_project_name;

    #[test]
    fn tables_are_sorted_and_have_no_row_twice() {
        let sorted = |names: Vec<&str>| {
            for pair in names.windows(2) {
                assert!(pair[0] < pair[1], "{} comes before {}", pair[1], pair[0]);
            }
        };
        sorted(MODULES.iter().map(|(name, _)| *name).collect());
        sorted(BRINGS.iter().map(|(name, _)| *name).collect());
        sorted(STANDARD.to_vec());
        assert!(MODULES.len() >= 300, "{}", MODULES.len());
    }

    #[test]
    fn projects_are_named_as_the_index_has_them() {
        let lists = MODULES.iter().chain(BRINGS);
        for (row, projects) in lists {
            for project in projects.split(' ') {
                // The versions that still have a module stand behind some.
                let name = project.split('<').next().unwrap();
                assert_eq!(normalize_project_name(name).as_deref(), Some(name), "{row}");
            }
            assert!(!is_standard_module(row), "{row}");
        }
    }

    #[test]
    fn a_module_is_found_by_its_longest_name() {
        let first = |module| find_providers(module).and_then(|mut all| all.next());
        for (module, project) in [
            ("cv2", Some("opencv-python-headless")),
            ("sklearn.metrics", Some("scikit-learn")),
            ("google.protobuf.text_format", Some("protobuf")),
            ("google.cloud.storage", Some("google-cloud-storage")),
            ("google.auth", None),
            ("torchh", None),
            ("clip", None),
            ("", None),
        ] {
            assert_eq!(first(module), project, "{module}");
        }
        let modules: Vec<_> = known_modules("opencv-python").collect();
        assert_eq!(modules, ["cv2"]);
        assert!(brought_projects("torchvision").any(|name| name == "pillow"));
        assert!(is_standard_module("os") && is_standard_module("_thread"));
        assert!(!is_standard_module("numpy"));
    }
}
