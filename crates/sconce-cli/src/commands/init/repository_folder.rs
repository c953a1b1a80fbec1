//! Where the spec of a repository goes when a person stands in a folder below.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::import_candidates;

/// The nearest folder with a file of packages, from `folder` up to the root of its repository; `folder` itself where
/// none has one. Above it only what its owner put there counts, as for a spec that is there.
pub(super) fn find_repository_folder(folder: &Path) -> PathBuf {
    let here = || folder.to_owned();
    let Ok(start) = folder.canonicalize() else {
        return here();
    };
    let Some(root) = start.ancestors().find(|above| above.join(".git").exists()) else {
        return here();
    };
    let owner = |path: &Path| path.metadata().map(|about| (about.uid(), about.dev())).ok();
    let own = owner(&start);
    if owner(&root.join(".git")) != own {
        return here();
    }
    let mut named = folder.to_owned();
    for above in start.ancestors() {
        if owner(above) != own {
            break;
        }
        if import_candidates::has_candidates(above) {
            return named;
        }
        if above == root {
            break;
        }
        named = match named == Path::new(".") {
            true => PathBuf::from(".."),
            false => named.join(".."),
        };
    }
    here()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_folder_with_packages_within_the_repository_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("net/a/b")).unwrap();
        let below = root.join("net/a/b");
        std::fs::write(root.join("requirements.txt"), "six\n").unwrap();
        assert_eq!(find_repository_folder(&below), below);
        std::fs::create_dir(root.join("net/.git")).unwrap();
        assert_eq!(find_repository_folder(&below), below);
        std::fs::write(root.join("net/requirements.txt"), "six\n").unwrap();
        assert_eq!(find_repository_folder(&below), below.join("../.."));
        std::fs::write(root.join("net/a/b/setup.py"), "").unwrap();
        assert_eq!(find_repository_folder(&below), below);
    }
}
