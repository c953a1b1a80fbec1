//! Reads the workspace's own sources, for the tests that hold them to the architecture.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

pub(crate) mod test_code;
pub(crate) mod tokens;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use test_code::TestModule;
use tokens::Token;

/// A package of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Its directory, from the workspace's.
    pub(crate) dir: PathBuf,
    pub(crate) manifest: toml::Table,
}

/// A source file without its tests.
#[derive(Debug)]
pub(crate) struct ShippedFile {
    /// From the `src` directory of its package.
    pub(crate) path: PathBuf,
    pub(crate) tokens: Vec<Token>,
}

/// Returns the workspace's directory.
pub(crate) fn workspace_dir() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.and_then(Path::parent).unwrap().to_owned()
}

/// Reads a manifest, by its path from the workspace's directory.
pub(crate) fn read_manifest(path: &Path) -> toml::Table {
    let text = fs::read_to_string(workspace_dir().join(path));
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Lists the packages of the workspace by name: those in `crates`, and the fuzz targets.
pub(crate) fn packages() -> Vec<Package> {
    let entries = fs::read_dir(workspace_dir().join("crates")).unwrap();
    let dirs = entries.map(|entry| Path::new("crates").join(entry.unwrap().file_name()));
    let mut packages: Vec<Package> = dirs
        .chain([PathBuf::from("fuzz")])
        .map(|dir| {
            let manifest = read_manifest(&dir.join("Cargo.toml"));
            let name = manifest["package"]["name"].as_str().unwrap().to_owned();
            Package {
                name,
                dir,
                manifest,
            }
        })
        .collect();
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(packages.len() > 10, "the packages are not read");
    packages
}

/// Reads every Rust file below a directory, both by their paths from the workspace's directory.
pub(crate) fn rust_files(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut left = vec![workspace_dir().join(dir)];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(workspace_dir()).unwrap();
                found.push((path.to_owned(), text));
            }
        }
    }
    found.sort();
    found
}

/// Reads the files below `src` of a package without what only tests compile.
pub(crate) fn shipped_files(package: &Package) -> Vec<ShippedFile> {
    let src = package.dir.join("src");
    let mut files = Vec::new();
    let mut of_tests = BTreeSet::new();
    for (path, text) in rust_files(&src) {
        let path = path.strip_prefix(&src).unwrap().to_owned();
        let Some(shipped) = test_code::leave_out(&tokens::tokenize(&text)) else {
            of_tests.insert(path);
            continue;
        };
        let modules = shipped.test_modules.iter();
        of_tests.extend(modules.flat_map(|module| module_files(&path, module)));
        let tokens = shipped.tokens;
        files.push(ShippedFile { path, tokens });
    }
    files.retain(|file| !of_tests.iter().any(|test| file.path.starts_with(test)));
    files
}

/// Names the files, and the directory, in which a module of tests can be that `parent` declares.
fn module_files(parent: &Path, module: &TestModule) -> Vec<PathBuf> {
    let dir = parent.parent().unwrap_or(Path::new(""));
    if let Some(path) = &module.path {
        return vec![normalize(&dir.join(path))];
    }
    let stem = parent.file_stem().unwrap_or_default();
    let dir = match ["lib", "main", "mod"].iter().any(|root| stem == *root) {
        true => dir.to_owned(),
        false => dir.join(stem),
    };
    let file = format!("{}.rs", module.name);
    vec![dir.join(file), dir.join(&module.name)]
}

/// Resolves `.` and `..` of a relative path by its text alone.
pub(crate) fn normalize(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(plain.components().next_back(), Some(Component::Normal(_))) =>
            {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn test_modules_are_found_beside_their_parent() {
    let module = |path: Option<&str>| TestModule {
        name: "tests".to_owned(),
        path: path.map(str::to_owned),
    };
    let files = |parent: &str, path| module_files(Path::new(parent), &module(path));
    assert_eq!(files("a/mod.rs", None)[0], Path::new("a/tests.rs"));
    assert_eq!(files("a.rs", None)[1], Path::new("a/tests"));
    assert_eq!(
        files("a/b.rs", Some("b_tests.rs")),
        [Path::new("a/b_tests.rs")]
    );
}

#[test]
fn paths_are_normalized_by_their_text() {
    let normal = |path: &str| normalize(Path::new(path));
    assert_eq!(normal("a/b/../../c/./d"), Path::new("c/d"));
    assert_eq!(normal("../../a"), Path::new("../../a"));
}

#[test]
fn files_of_tests_are_not_shipped() {
    let packages = packages();
    let cli = packages
        .iter()
        .find(|one| one.name == "sconce-cli")
        .unwrap();
    let files = shipped_files(cli);
    let find = |path: &str| files.iter().find(|file| file.path == Path::new(path));
    assert!(
        find("help_text.rs").is_none(),
        "`#[cfg(test)] mod help_text;` is not shipped"
    );
    let root = find("lib.rs").unwrap();
    let has = |word: &str| root.tokens.iter().any(|token| token.is_word(word));
    assert!(has("args") && !has("help_text"));
}
