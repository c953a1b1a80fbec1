//! Files outside of its own directory that a package compiles or includes: edges that no Cargo.toml declares.

use std::path::{Path, PathBuf};

use super::allowed::{ALLOWED, Means};
use crate::source::normalize;
use crate::source::tokens::{Token, after_group, starts_with, tokenize};

/// A file that a source names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedFile {
    pub(crate) means: Means,
    /// From the workspace's directory, `*` in place of what a macro puts there. `None`: the source does not say it
    /// where it can be read.
    pub(crate) path: Option<PathBuf>,
}

/// Lists the files outside of `package_dir` that a Rust file names by attributes and macros. Both paths are from
/// the workspace's directory. A `#[path]` inside of an inline module is taken as if it were outside.
pub(crate) fn outside_files(package_dir: &Path, file: &Path, source: &str) -> Vec<NamedFile> {
    // Most files name none, and are not worth the time.
    if !["include", "#[path", "cfg_attr"]
        .iter()
        .any(|word| source.contains(word))
    {
        return Vec::new();
    }
    let tokens = tokenize(source);
    let dir = file.parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let name = tokens[at].word().unwrap_or_default();
        let is_include = matches!(name, "include" | "include_str" | "include_bytes")
            && starts_with(&tokens, at + 1, &["!"]);
        if is_include && tokens.get(at + 2).is_some_and(Token::is_open) {
            let argument = &tokens[at + 3..after_group(&tokens, at + 2) - 1];
            let path = included_path(argument, dir, package_dir);
            if path != IncludedPath::BuildOutput {
                let path = path.into_path();
                found.push(NamedFile {
                    means: Means::Include,
                    path,
                });
            }
        } else if starts_with(&tokens, at, &["#", "[", "path", "="])
            || starts_with(&tokens, at, &["#", "[", "cfg_attr", "("])
        {
            let attribute = &tokens[at + 1..after_group(&tokens, at + 1)];
            found.extend(module_paths(attribute, dir));
        }
    }
    found.retain(|named| {
        named
            .path
            .as_ref()
            .is_none_or(|path| !path.starts_with(package_dir))
    });
    found
}

#[derive(Debug, PartialEq, Eq)]
enum IncludedPath {
    Known(PathBuf),
    /// Below `OUT_DIR`.
    BuildOutput,
    Unknown,
}

impl IncludedPath {
    fn into_path(self) -> Option<PathBuf> {
        match self {
            Self::Known(path) => Some(path),
            Self::BuildOutput | Self::Unknown => None,
        }
    }
}

/// Reads the argument of an include: a literal, or a `concat!` that begins with a literal or a variable of cargo.
fn included_path(argument: &[Token], dir: &Path, package_dir: &Path) -> IncludedPath {
    let pieces = match starts_with(argument, 0, &["concat", "!"]) {
        true => &argument[3..argument.len() - 1],
        false => argument,
    };
    let (from, pieces) = match (pieces.first(), pieces.get(3).and_then(Token::text)) {
        (Some(Token::Word(word)), Some(variable)) if word == "env" => match variable {
            "OUT_DIR" => return IncludedPath::BuildOutput,
            "CARGO_MANIFEST_DIR" => (package_dir, &pieces[5..]),
            _ => return IncludedPath::Unknown,
        },
        (Some(Token::Text(_)), _) => (dir, pieces),
        _ => return IncludedPath::Unknown,
    };
    let mut path = String::new();
    for piece in pieces {
        match piece {
            Token::Text(text) => path.push_str(text),
            Token::Sign('$') => path.push('*'),
            _ => {}
        }
    }
    let path = path.trim_start_matches(if from == dir { "" } else { "/" });
    IncludedPath::Known(normalize(&from.join(path)))
}

/// Reads every `path = "…"` of an attribute.
fn module_paths(attribute: &[Token], dir: &Path) -> Vec<NamedFile> {
    let named = attribute.windows(3).filter_map(|window| match window {
        [word, Token::Sign('='), Token::Text(path)] if word.is_word("path") => Some(path),
        _ => None,
    });
    named
        .map(|path| NamedFile {
            means: Means::ModulePath,
            path: Some(normalize(&dir.join(path))),
        })
        .collect()
}

/// Lists the files outside of `package_dir` that its build script names: strings that lead out of it, and those
/// with the name of another package in them, which is taken for its directory.
pub(crate) fn build_script_files(
    package_dir: &Path,
    source: &str,
    packages: &[(&str, &Path)],
) -> Vec<NamedFile> {
    let mut found = Vec::new();
    let tokens = tokenize(source);
    for text in tokens.iter().filter_map(Token::text) {
        let path = normalize(&package_dir.join(text));
        if text.starts_with("..") && !path.starts_with(package_dir) {
            found.push(path);
            continue;
        }
        let plain = text.replace('_', "-");
        let others = packages.iter().filter(|(_, dir)| *dir != package_dir);
        let named = others.filter(|(name, _)| plain.contains(name));
        found.extend(named.map(|(_, dir)| dir.to_path_buf()));
    }
    let named = |path| NamedFile {
        means: Means::BuildScript,
        path: Some(path),
    };
    found.into_iter().map(named).collect()
}

/// Returns the position of the row in [`ALLOWED`] that has a file.
pub(crate) fn allowing_row(package: &str, named: &NamedFile) -> Option<usize> {
    let path = named.path.as_ref()?;
    ALLOWED.iter().position(|row| {
        // A build script that names a package names no file of it.
        let is_of_it = path.starts_with(row.files)
            || (named.means == Means::BuildScript && Path::new(row.files).starts_with(path));
        row.package == package && row.means == named.means && is_of_it
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outside(source: &str) -> Vec<(Means, Option<String>)> {
        let package = Path::new("crates/sconce-run");
        let files = outside_files(package, &package.join("src/a/b.rs"), source);
        let text = |path: PathBuf| path.display().to_string();
        files
            .into_iter()
            .map(|named| (named.means, named.path.map(text)))
            .collect()
    }

    fn one(means: Means, path: &str) -> Vec<(Means, Option<String>)> {
        vec![(means, Some(path.to_owned()))]
    }

    #[test]
    fn module_path_that_leaves_the_package_is_seen() {
        let host = "crates/sconce-host/src/x.rs";
        let source = "#[path = \"../../../sconce-host/src/x.rs\"]\nmod x;";
        assert_eq!(outside(source), one(Means::ModulePath, host));
        let source = "#[cfg_attr(unix, path = \"../../../sconce-host/src/x.rs\")] mod x;";
        assert_eq!(outside(source), one(Means::ModulePath, host));
        assert_eq!(outside("#[path = \"../x.rs\"]\nmod x;"), []);
    }

    #[test]
    fn include_that_leaves_the_package_is_seen() {
        for name in ["include", "include_str", "include_bytes"] {
            let source = format!("fn f() {{ {name}!(\"../../../../docs/x.md\") }}");
            assert_eq!(outside(&source), one(Means::Include, "docs/x.md"));
        }
        let source = "include_str!(concat!(\"../../../../python/\", $name, \".py\"))";
        assert_eq!(outside(source), one(Means::Include, "python/*.py"));
        let source = "include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../x.txt\"))";
        assert_eq!(outside(source), one(Means::Include, "crates/x.txt"));
        assert_eq!(
            outside("include_str!(\"../x.txt\"); // include_str!(\"/x\")"),
            []
        );
        assert_eq!(
            outside("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/x.so\"))"),
            []
        );
    }

    #[test]
    fn include_of_an_unknown_file_is_seen() {
        assert_eq!(outside("include_str!($path)"), [(Means::Include, None)]);
        let unknown = NamedFile {
            means: Means::Include,
            path: None,
        };
        assert_eq!(allowing_row("sconce-cli", &unknown), None);
    }

    #[test]
    fn build_script_that_names_another_package_is_seen() {
        let packages = [
            ("sconce-run", Path::new("crates/sconce-run")),
            ("sconce-vgpu", Path::new("crates/sconce-vgpu")),
        ];
        let read = |source: &str| -> Vec<PathBuf> {
            let files = build_script_files(packages[0].1, source, &packages);
            files.into_iter().filter_map(|named| named.path).collect()
        };
        assert_eq!(
            read("f(\"../sconce-vgpu/src\")"),
            [Path::new("crates/sconce-vgpu/src")]
        );
        assert_eq!(
            read("f(\"..\").join(\"sconce-vgpu\")")[1],
            Path::new("crates/sconce-vgpu")
        );
        assert_eq!(
            read("f(\"--crate-name=sconce_vgpu\")"),
            [Path::new("crates/sconce-vgpu")]
        );
        assert!(read("f(\"src/x.c\"); f(\"sconce_run\")").is_empty());
    }

    #[test]
    fn file_without_a_row_is_not_allowed() {
        let named = |path: &str| NamedFile {
            means: Means::BuildScript,
            path: Some(PathBuf::from(path)),
        };
        assert!(allowing_row("sconce-app", &named("crates/sconce-vgpu/src/lib.rs")).is_some());
        assert!(allowing_row("sconce-app", &named("crates/sconce-run/src/lib.rs")).is_none());
        assert!(allowing_row("sconce-run", &named("crates/sconce-vgpu/src/lib.rs")).is_none());
    }
}
