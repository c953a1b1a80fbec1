//! Reads the edges between packages that a Cargo.toml declares.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// What a dependency is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    Normal,
    Build,
    /// For tests alone.
    Dev,
}

/// Another package of ours that a manifest names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dependency {
    pub(crate) package: String,
    pub(crate) purpose: Purpose,
}

const SECTIONS: [(&str, Purpose); 3] = [
    ("dependencies", Purpose::Normal),
    ("build-dependencies", Purpose::Build),
    ("dev-dependencies", Purpose::Dev),
];

/// Lists our packages that a manifest depends on, on every platform and under whatever name. `workspace` is the
/// manifest in which those with `workspace = true` are described.
pub(crate) fn dependencies(
    manifest: &toml::Table,
    workspace: &toml::Table,
) -> BTreeSet<Dependency> {
    let platforms = manifest.get("target").and_then(toml::Value::as_table);
    let platforms = platforms.into_iter().flat_map(|targets| targets.values());
    let tables = platforms.filter_map(toml::Value::as_table);
    let mut found = BTreeSet::new();
    for table in tables.chain([manifest]) {
        for (section, purpose) in SECTIONS {
            let section = table.get(section).and_then(toml::Value::as_table);
            for (name, described) in section.into_iter().flatten() {
                let package = package_name(name, described, workspace);
                if package.starts_with("sconce-") {
                    found.insert(Dependency { package, purpose });
                }
            }
        }
    }
    found
}

/// Returns the name of the package behind a dependency, which can have another name in the manifest.
fn package_name(name: &str, described: &toml::Value, workspace: &toml::Table) -> String {
    let shared = workspace
        .get("workspace")
        .and_then(|table| table.get("dependencies")?.get(name));
    let renamed = [Some(described), shared]
        .into_iter()
        .flatten()
        .find_map(|table| table.get("package")?.as_str());
    renamed.unwrap_or(name).to_owned()
}

/// Lists the files that a manifest names as the beginning of a library, a program, a test or a build script.
pub(crate) fn source_paths(manifest: &toml::Table) -> Vec<PathBuf> {
    let build = manifest
        .get("package")
        .and_then(|package| package.get("build"));
    let mut paths: Vec<&toml::Value> = build.into_iter().collect();
    paths.extend(manifest.get("lib").and_then(|lib| lib.get("path")));
    for kind in ["bin", "test", "bench", "example"] {
        let targets = manifest.get(kind).and_then(toml::Value::as_array);
        let targets = targets.into_iter().flatten();
        paths.extend(targets.filter_map(|target| target.get("path")));
    }
    paths
        .iter()
        .filter_map(|path| path.as_str())
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> BTreeSet<Dependency> {
        let workspace = "[workspace.dependencies]\nrunner = { package = 'sconce-run', path = 'x' }";
        dependencies(
            &toml::from_str(text).unwrap(),
            &toml::from_str(workspace).unwrap(),
        )
    }

    fn one(package: &str, purpose: Purpose) -> BTreeSet<Dependency> {
        let package = package.to_owned();
        BTreeSet::from([Dependency { package, purpose }])
    }

    #[test]
    fn dependencies_of_every_purpose_are_read() {
        let text = "[dev-dependencies]\nsconce-run = { workspace = true }\nserde = '1'";
        assert_eq!(read(text), one("sconce-run", Purpose::Dev));
        let text = "[build-dependencies.sconce-vgpu]\npath = '../sconce-vgpu'";
        assert_eq!(read(text), one("sconce-vgpu", Purpose::Build));
    }

    #[test]
    fn dependencies_of_one_platform_are_read() {
        let text = "[target.'cfg(unix)'.dependencies]\nsconce-host = { workspace = true }";
        assert_eq!(read(text), one("sconce-host", Purpose::Normal));
        let text =
            "[target.x86_64-unknown-linux-gnu.dev-dependencies]\nsconce-host.workspace = true";
        assert_eq!(read(text), one("sconce-host", Purpose::Dev));
    }

    #[test]
    fn renamed_dependencies_are_read_by_their_package() {
        let text = "[dependencies]\nhost = { package = 'sconce-host', path = '../sconce-host' }";
        assert_eq!(read(text), one("sconce-host", Purpose::Normal));
        let text = "[dependencies]\nrunner = { workspace = true }";
        assert_eq!(read(text), one("sconce-run", Purpose::Normal));
    }

    #[test]
    fn sources_that_a_manifest_names_are_read() {
        let text = "[package]\nbuild = '../b.rs'\n[lib]\npath = 'l.rs'\n[[bin]]\npath = 'm.rs'\n[[test]]\nname = 't'";
        let paths = source_paths(&toml::from_str(text).unwrap());
        assert_eq!(paths, ["../b.rs", "l.rs", "m.rs"].map(PathBuf::from));
    }
}
