//! Which Python one of pyenv's shims starts: a script on the `PATH` that chooses among installed ones.
//!
//! The rules are those of `pyenv help version-name`: `PYENV_VERSION`, then a `.python-version` in the
//! working folder or above it, then `version` beside the shims. Each names one or several versions.

use std::path::{Path, PathBuf};

use super::installed::{list_dir_names, read_small_file};

/// What chooses.
#[derive(Debug, Default)]
pub(super) struct PyenvSelector {
    /// `PYENV_VERSION`.
    pub(super) variable: Option<String>,
    /// The working folder.
    pub(super) folder: Option<PathBuf>,
}

impl PyenvSelector {
    /// The interpreter that the shim at `path` starts; none where it is no shim, or where it starts
    /// one of the `PATH` (`system`) or none.
    pub(super) fn resolve_shim(&self, path: &Path) -> Option<PathBuf> {
        let (shims, name) = (path.parent()?, path.file_name()?);
        let root = shims.parent()?;
        let versions = root.join("versions");
        if !shims.ends_with("shims") || !versions.is_dir() {
            return None;
        }
        let chosen = self.chosen(root)?;
        let installed = list_dir_names(&versions);
        let named = chosen.split([':', '\n']).map(|line| {
            let line = line.split('#').next().unwrap_or_default().trim();
            line.strip_prefix("python-").unwrap_or(line)
        });
        let folder = |name: &str| match installed.iter().any(|one| one == name) {
            true => Some(name.to_owned()),
            false => newest(&installed, name),
        };
        let program = |version: String| versions.join(version).join("bin").join(name);
        let mut programs = named.filter_map(folder).map(program);
        programs.find(|program| program.is_file())
    }

    fn chosen(&self, root: &Path) -> Option<String> {
        let above = self.folder.iter().flat_map(|folder| folder.ancestors());
        let mut files = above.map(|folder| folder.join(".python-version"));
        let variable = self.variable.clone();
        variable
            .or_else(|| files.find_map(|file| read_small_file(&file)))
            .or_else(|| read_small_file(&root.join("version")))
    }
}

/// `3.11` is the newest of 3.11.
fn newest(installed: &[String], wanted: &str) -> Option<String> {
    let patch = |name: &&String| -> Option<u32> {
        name.strip_prefix(wanted)?.strip_prefix('.')?.parse().ok()
    };
    let among = installed.iter().filter(|name| patch(name).is_some());
    among.max_by_key(patch).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_shim_leads_to_the_python_that_it_starts() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for version in ["3.9.18", "3.11.7", "3.11.12", "work"] {
            let bin = root.join("pyenv/versions").join(version).join("bin");
            fs::create_dir_all(&bin).unwrap();
            fs::write(bin.join("python3"), "").unwrap();
        }
        let shim = root.join("pyenv/shims/python3");
        fs::create_dir_all(shim.parent().unwrap()).unwrap();
        fs::write(&shim, "").unwrap();
        let project = root.join("project/src");
        fs::create_dir_all(&project).unwrap();
        let behind = |variable: Option<&str>, shim: &Path| {
            let chooser = PyenvSelector {
                variable: variable.map(str::to_owned),
                folder: Some(project.clone()),
            };
            let found = chooser.resolve_shim(shim)?;
            Some(found.strip_prefix(root).unwrap().to_str()?.to_owned())
        };
        let version = |version: &str| Some(format!("pyenv/versions/{version}/bin/python3"));
        // Nothing chooses yet.
        assert_eq!(behind(None, &shim), None);
        fs::write(root.join("pyenv/version"), "3.9.18\n").unwrap();
        assert_eq!(behind(None, &shim), version("3.9.18"));
        fs::write(root.join("project/.python-version"), "# ours\nwork\n").unwrap();
        assert_eq!(behind(None, &shim), version("work"));
        for (variable, wanted) in [
            ("3.11.7", version("3.11.7")),
            ("3.11", version("3.11.12")),
            ("python-3.9", version("3.9.18")),
            ("3.12:3.11.7", version("3.11.7")),
            ("system", None),
            ("../../project", None),
        ] {
            assert_eq!(behind(Some(variable), &shim), wanted, "{variable}");
        }
        // Not a shim.
        assert_eq!(behind(Some("3.11"), &root.join("bin/python3")), None);
    }
}
