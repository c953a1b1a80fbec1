//! The way to a folder: who may rename what lies on it decides where it leads.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Links that are followed on one way; the kernel follows 40 (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The folders that are passed on the way to `path`, without links: in each of them a name is looked up, of a link
/// or of a folder, also of such as are yet to be made. `path` is absolute.
pub(super) fn list_passed_folders(path: &Path) -> Vec<PathBuf> {
    let mut names = split(path);
    let mut here = PathBuf::from("/");
    let (mut passed, mut links) = (Vec::new(), 0);
    while let Some(name) = names.pop_front() {
        if name == ".." {
            here.pop();
            continue;
        }
        if !passed.contains(&here) {
            passed.push(here.clone());
        }
        let next = here.join(name);
        match next.read_link() {
            Ok(target) if links < MAX_LINKS => {
                links += 1;
                if target.is_absolute() {
                    here = PathBuf::from("/");
                }
                let mut through = split(&target);
                through.append(&mut names);
                names = through;
            }
            _ => here = next,
        }
    }
    passed
}

fn split(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_folder_on_the_way_is_named_once() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        for name in ["home/share", "big/deep", "other"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        symlink("../../big/./deep/../hop", at("home/share/sconce")).unwrap();
        symlink(at("other"), at("big/hop")).unwrap();
        symlink("circle", at("circle")).unwrap();
        let below = |path: &str| -> Vec<String> {
            let passed = list_passed_folders(&at(path));
            let inside = passed
                .iter()
                .filter_map(|path| path.strip_prefix(&root).ok());
            inside.map(|path| path.display().to_string()).collect()
        };
        assert_eq!(
            below("home/share/sconce/items"),
            ["", "home", "home/share", "big", "other"]
        );
        // What is not there yet.
        assert_eq!(below("home/new/sconce"), ["", "home", "home/new"]);
        assert!(below("circle/x").len() <= 2);
    }
}
