//! What a run may not write: the folders that it and other runs are made of, and that say what they did.

mod mounts;

use std::fmt;
use std::path::{Path, PathBuf};

use sconce_schema::request::Mount;

use mounts::MountTable;

use crate::failure::{CliError, Result};
use crate::places::SconceDirs;

/// One of Sconce's own folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtectedDirectory {
    Store,
    State,
    Config,
    Kernels,
}

impl fmt::Display for ProtectedDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Store => "the store",
            Self::State => "the records of runs",
            Self::Config => "Sconce's configuration",
            Self::Kernels => "the kernels that runs compiled",
        })
    }
}

impl ProtectedDirectory {
    /// What a run that writes there could do.
    pub(crate) fn write_risk(self) -> &'static str {
        match self {
            Self::Store => "change what it and other runs are made of",
            Self::State => "change what is recorded of it and of other runs",
            Self::Config => "change where Sconce has its packages from",
            Self::Kernels => "change what other projects' runs execute",
        }
    }

    /// How the folder is put elsewhere.
    pub(crate) fn relocation_hint(self) -> &'static str {
        match self {
            Self::Store => {
                "keep the store elsewhere, with `store = \"FOLDER\"` in config.toml or --store FOLDER"
            }
            Self::State => "set XDG_STATE_HOME to a folder elsewhere",
            Self::Config => "set XDG_CONFIG_HOME to a folder elsewhere",
            Self::Kernels => {
                "mount only the folder in it that the run needs, or set XDG_CACHE_HOME to a folder elsewhere"
            }
        }
    }
}

/// Refuses mounts through which a run could write to Sconce's own folders: those that one of these is in,
/// and those that lie in one. `project` is the folder that is mounted because it is the project's.
///
/// # Errors
/// [`CliError::OwnFolder`].
pub(crate) fn validate_mounts(
    mounts: &[Mount],
    project: Option<&Path>,
    places: &SconceDirs,
) -> Result<()> {
    let project = project.map(whole);
    // Its large folders may be links to another disk.
    let store =
        ["", "items", "scratch"].map(|name| (ProtectedDirectory::Store, places.store.join(name)));
    let others = [
        (ProtectedDirectory::State, places.state.clone()),
        (ProtectedDirectory::Config, places.config_folder.clone()),
    ];
    let kernels = &places.kernels;
    let kernels = (kernels.most.0 > 0).then(|| (ProtectedDirectory::Kernels, kernels.root.clone()));
    let own: Vec<(ProtectedDirectory, PathBuf)> = (store.into_iter().chain(others).chain(kernels))
        .map(|(own, folder)| (own, whole(&folder)))
        .collect();
    let table = MountTable::read();
    for mount in mounts.iter().filter(|mount| !mount.read_only) {
        let source = whole(&mount.source);
        // By whatever path: bind mounts show a folder in several places, and come along with one above them.
        let tree = table.locate_tree(&source);
        let reached = |folder: &Path| {
            let same = table.locate(folder);
            let mounted = same.is_some_and(|folder| tree.iter().any(|one| one.overlaps(&folder)));
            mounted || folder.starts_with(&source) || source.starts_with(folder)
        };
        if let Some((own, folder)) = own.iter().find(|(_, folder)| reached(folder)) {
            return Err(CliError::OwnFolder {
                is_project: project.as_ref() == Some(&source),
                own: *own,
                folder: folder.clone(),
                path: source,
            }
            .into());
        }
    }
    Ok(())
}

/// A path without links, as far as it exists; the rest may yet be made there.
fn whole(path: &Path) -> PathBuf {
    let mut above = path.ancestors();
    let found = above.find_map(|there| Some((there, there.canonicalize().ok()?)));
    let Some((there, whole)) = found else {
        return path.to_owned();
    };
    match path.strip_prefix(there) {
        Ok(rest) if !rest.as_os_str().is_empty() => whole.join(rest),
        _ => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::KernelCache;
    use crate::places::Config;
    use std::os::unix::fs::symlink;

    struct Home(tempfile::TempDir);

    impl Home {
        fn at(&self, name: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(name)
        }

        fn places(&self, store: &str) -> SconceDirs {
            SconceDirs {
                store: self.at(store),
                runs: self.at("state/runs"),
                leases: self.at("state/leases"),
                host_keys: self.at("state/host-keys"),
                scratch: self.at(store).join("scratch"),
                state: self.at("state"),
                config_folder: self.at("config"),
                kernels: KernelCache {
                    root: self.at("cache/kernels"),
                    most: sconce_schema::Bytes(1 << 30),
                },
                config: Config::default(),
            }
        }

        /// What is refused of one mount.
        fn refused(&self, store: &str, source: &str, read_only: bool) -> Option<String> {
            let mount = Mount {
                source: self.at(source),
                target: "/workspace".into(),
                read_only,
            };
            let project = self.at("project");
            let refused = validate_mounts(&[mount], Some(&project), &self.places(store));
            refused.err().map(|failure| failure.message())
        }
    }

    #[test]
    fn a_run_writes_to_none_of_sconces_own_folders() {
        let home = Home(tempfile::tempdir().unwrap());
        for folder in ["project/inner", "store/items/x", "elsewhere", "links"] {
            std::fs::create_dir_all(home.at(folder)).unwrap();
        }
        symlink(home.at("project/data"), home.at("links/store")).unwrap();
        symlink(home.at(""), home.at("links/home")).unwrap();
        let refused = |store, source| home.refused(store, source, false);
        assert_eq!(refused("store", "project"), None);
        assert_eq!(refused("store", "elsewhere"), None);
        for (store, source, what) in [
            // All is in it: a project in the home, or `-v ~:/home`.
            ("store", "", "the store"),
            ("store", "links/home", "the store"),
            // The store is in the project, there or not yet, by another name too.
            ("project/data", "project", "the store"),
            ("project/not/yet", "project", "the store"),
            ("project", "project", "the store"),
            // The other way round.
            ("store", "store/items/x", "the store"),
            ("elsewhere", "state/runs", "the records"),
            ("elsewhere", "config", "configuration"),
            ("elsewhere", "cache", "the kernels"),
        ] {
            let said = refused(store, source).unwrap_or_default();
            assert!(said.contains(what), "{store} {source}: {said}");
            assert_eq!(home.refused(store, source, true), None, "{store} {source}");
        }
        std::fs::create_dir(home.at("project/data")).unwrap();
        let said = refused("links/store", "project").unwrap();
        assert!(said.contains("the project's folder"), "{said}");
        // Where no kernels are kept, their folder is any other.
        let mut places = home.places("elsewhere");
        places.kernels.most = sconce_schema::Bytes(0);
        let mount = Mount {
            source: home.at("cache"),
            target: "/workspace".into(),
            read_only: false,
        };
        assert!(validate_mounts(&[mount], None, &places).is_ok());
        // One of its folders is a link to a larger disk, which the project is on.
        std::fs::remove_dir_all(home.at("store/items")).unwrap();
        symlink(home.at("project/inner"), home.at("store/items")).unwrap();
        assert!(refused("store", "project").is_some());
    }
}
