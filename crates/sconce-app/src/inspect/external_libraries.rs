//! What a process of a folder's packages loads from outside of the folder: by `LD_LIBRARY_PATH`, by
//! `LD_PRELOAD`, and from the system that the folder lies on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use sconce_compat::library::ElfLibrary;
use sconce_compat::loader::LibraryTree;

use super::scan::{self, ScannedFile, TreeScan};

/// More folders than any `LD_LIBRARY_PATH` has.
const MAX_FOLDERS: usize = 256;
/// More libraries than any system has.
const MAX_LIBRARIES: usize = 1 << 16;

/// Libraries that lie outside of a folder and may be loaded, by absolute paths.
#[derive(Debug, Default)]
pub(super) struct ExternalLibraries {
    /// By their path without links.
    libraries: BTreeMap<String, ElfLibrary>,
    /// Files that the loader refuses; whether they are too short.
    refused: BTreeMap<String, bool>,
    /// Paths that lead elsewhere, and to where in the end.
    links: BTreeMap<String, String>,
    /// The system's own libraries: name and path.
    own: Vec<(String, String)>,
}

impl ExternalLibraries {
    /// Of a folder without links in its path, and what was read of it; `own` tells where the
    /// system's library of a name lies. What cannot be read is passed over, as the loader does.
    pub(super) fn read_for_dir(
        root: &Path,
        inside: &TreeScan,
        variables: &BTreeMap<String, String>,
        own: &dyn Fn(&str) -> Option<PathBuf>,
    ) -> Self {
        let mut outside = Self::default();
        let variable = |name: &str| variables.get(name).map_or("", String::as_str);
        let mut files = BTreeSet::new();
        let entries = variable("LD_LIBRARY_PATH").split([':', ';']);
        for folder in entries.filter_map(absolute).take(MAX_FOLDERS) {
            outside.folder(&folder, &mut files);
        }
        let mut names: BTreeSet<String> = BTreeSet::new();
        for entry in variable("LD_PRELOAD").split([' ', ':']) {
            match absolute(entry) {
                Some(path) => outside.file(&path, &mut files),
                None => drop(names.insert(entry.to_owned())),
            }
        }
        // A folder with a C library is a whole system, and this machine's own is not its.
        let is_system = |path: &String| path.ends_with("/libc.so.6");
        let inner = inside.libraries.values();
        names.extend(inner.flat_map(|library| library.needed.iter().cloned()));
        let mut asked = BTreeSet::new();
        loop {
            names.extend(outside.read(&mut files, root));
            if inside.libraries.keys().any(is_system) {
                return outside;
            }
            for name in std::mem::take(&mut names) {
                if name.is_empty() || name.contains('/') || !asked.insert(name.clone()) {
                    continue;
                }
                if let Some(path) = own(&name)
                    && let Some(text) = text(&path)
                {
                    outside.file(&path, &mut files);
                    outside.own.push((name, text));
                }
            }
            if files.is_empty() {
                return outside;
            }
        }
    }

    /// Lays all of it into a tree.
    pub(super) fn lay_into<'a>(&'a self, tree: &mut LibraryTree<'a>) {
        for (path, library) in &self.libraries {
            tree.add_library(path, library);
        }
        for (path, is_short) in &self.refused {
            tree.add_refused_file(path, *is_short);
        }
        for (path, target) in &self.links {
            tree.add_link(path, target);
        }
        for (name, path) in &self.own {
            tree.add_cache_entry(name, path);
        }
    }

    /// Lists the libraries of a folder, not of those in it.
    fn folder(&mut self, folder: &Path, files: &mut BTreeSet<PathBuf>) {
        let Ok(entries) = fs::read_dir(folder) else {
            return;
        };
        for entry in entries.flatten() {
            let is_library = entry.file_name().to_str().is_some_and(scan::is_library);
            if is_library {
                self.file(&folder.join(entry.file_name()), files);
            }
        }
    }

    fn file(&mut self, path: &Path, files: &mut BTreeSet<PathBuf>) {
        let Ok(real) = path.canonicalize() else {
            return;
        };
        if real != path
            && let Some((from, to)) = text(path).zip(text(&real))
        {
            self.links.insert(from, to);
        }
        if files.len() + self.libraries.len() < MAX_LIBRARIES {
            files.insert(real);
        }
    }

    /// Reads what is not of the folder and was not read before; the names that it needs.
    fn read(&mut self, files: &mut BTreeSet<PathBuf>, root: &Path) -> Vec<String> {
        let mut new = Vec::new();
        for path in std::mem::take(files) {
            let size = path.metadata().ok().filter(fs::Metadata::is_file);
            let Some((name, size)) = text(&path).zip(size) else {
                continue;
            };
            let known = self.libraries.contains_key(&name) || self.refused.contains_key(&name);
            if !known && !path.starts_with(root) {
                new.push((path, size.len(), name));
            }
        }
        let mut names = Vec::new();
        for (path, read) in scan::read_libraries(new) {
            match read {
                ScannedFile::Library(library) => {
                    names.extend(library.needed.iter().cloned());
                    self.libraries.insert(path, *library);
                }
                ScannedFile::Refused { is_short } => drop(self.refused.insert(path, is_short)),
                ScannedFile::CutOff(_) => drop(self.refused.insert(path, true)),
                ScannedFile::Failed(_) => {}
            }
        }
        names
    }
}

/// An absolute path without `.`, `..` and doubled slashes, as a tree has its paths.
fn absolute(entry: &str) -> Option<PathBuf> {
    let path = Path::new(entry);
    if !path.is_absolute() || entry.contains('$') {
        return None;
    }
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    Some(plain)
}

fn text(path: &Path) -> Option<String> {
    path.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// `machine/env`, `machine/opt` and `machine/usr/lib64`, and this program as every library.
    fn machine() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["env", "opt/deeper", "usr/lib64"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        let library = |path: &str| {
            fs::copy("/proc/self/exe", root.join(path)).unwrap();
        };
        library("env/in.so");
        library("opt/liba.so.1.2");
        library("opt/deeper/libno.so");
        library("usr/lib64/libpre.so");
        library("usr/lib64/libc.so.6");
        library("usr/lib64/libunasked.so.1");
        fs::write(root.join("opt/libshort.so"), "").unwrap();
        fs::write(root.join("opt/README"), "").unwrap();
        symlink("liba.so.1.2", root.join("opt/liba.so.1")).unwrap();
        symlink("../env/in.so", root.join("opt/libin.so")).unwrap();
        symlink("nowhere", root.join("opt/libgone.so")).unwrap();
        (folder, root)
    }

    fn of(root: &Path, path: &str, preload: &str) -> ExternalLibraries {
        let variables = [("LD_LIBRARY_PATH", path), ("LD_PRELOAD", preload)];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let env = root.join("env");
        let inside = TreeScan::load_or_read(&env, None).unwrap();
        ExternalLibraries::read_for_dir(&env, &inside, &variables.into(), &own(root))
    }

    fn own(root: &Path) -> impl Fn(&str) -> Option<PathBuf> {
        let folder = root.join("usr/lib64");
        move |name| Some(folder.join(name)).filter(|path| path.exists())
    }

    #[test]
    fn the_folders_of_the_variable_are_read_and_not_what_lies_deeper() {
        let (_folder, root) = machine();
        let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let path = format!("{}//./deeper/../::relative:$ORIGIN:/no/such", at("opt"));
        let outside = of(&root, &path, "");
        let found: Vec<_> = outside.libraries.keys().cloned().collect();
        assert!(found.contains(&at("opt/liba.so.1.2")), "{found:?}");
        assert!(!found.contains(&at("opt/deeper/libno.so")), "{found:?}");
        assert!(!found.contains(&at("env/in.so")), "of the folder itself");
        assert_eq!(outside.refused, [(at("opt/libshort.so"), true)].into());
        assert_eq!(outside.links[&at("opt/liba.so.1")], at("opt/liba.so.1.2"));
        assert_eq!(outside.links[&at("opt/libin.so")], at("env/in.so"));
    }

    #[test]
    fn of_the_system_only_what_is_needed_is_read() {
        let (_folder, root) = machine();
        let outside = of(&root, "", "libpre.so");
        let names: Vec<_> = outside.own.iter().map(|(name, _)| name.as_str()).collect();
        assert!(names.contains(&"libpre.so"), "{names:?}");
        // This program needs it.
        assert!(names.contains(&"libc.so.6"), "{names:?}");
        assert!(!names.contains(&"libunasked.so.1"), "{names:?}");
        let none = TreeScan::default();
        let env = root.join("env");
        let variables = BTreeMap::new();
        let own = own(&root);
        assert!(
            ExternalLibraries::read_for_dir(&env, &none, &variables, &own)
                .own
                .is_empty()
        );
        let mut system = TreeScan::load_or_read(&env, None).unwrap();
        let library = system.libraries["in.so"].clone();
        system.libraries.insert("lib/libc.so.6".into(), library);
        assert!(
            ExternalLibraries::read_for_dir(&env, &system, &variables, &own)
                .own
                .is_empty()
        );
    }

    #[test]
    fn a_preloaded_path_is_read() {
        let (_folder, root) = machine();
        let path = root.join("usr/lib64/libunasked.so.1");
        let path = path.to_str().unwrap();
        let outside = of(&root, "", path);
        assert!(outside.libraries.contains_key(path));
    }
}
