//! What a run may not write, and no output replaces: the folders that it and other runs are made of, and that say
//! what they did.

mod mounts;
mod ways;

use std::path::{Path, PathBuf};

use sconce_image::project;
use sconce_schema::request::Mount;

use mounts::{Location, MountTable};

use crate::dirs::SconceDirs;
use crate::failure::{AppError, Result};
use crate::folder_conflict::{
    OwnFolderConflict, OwnFolderRelation, ProtectedDirectory, WritableSource,
};

/// Sconce's own folders on this machine.
struct OwnFolders {
    /// Each without links.
    folders: Vec<(ProtectedDirectory, PathBuf)>,
    /// A folder that is passed on the way to one of them, and that one.
    ways: Vec<(PathBuf, (ProtectedDirectory, PathBuf))>,
    table: MountTable,
}

impl OwnFolders {
    fn find(places: &SconceDirs) -> Self {
        let mut roots = vec![
            (ProtectedDirectory::Store, places.store.clone()),
            (ProtectedDirectory::State, places.state.clone()),
            (ProtectedDirectory::Config, places.config_folder.clone()),
        ];
        if places.kernels.most.0 > 0 {
            roots.push((ProtectedDirectory::Kernels, places.kernels.root.clone()));
        }
        // What is large in them may be a link to another disk, and the configuration one to where all of a
        // user's are kept.
        let items = (ProtectedDirectory::Store, places.store.join("items"));
        let with_links = roots.iter().chain([&items]);
        let links =
            with_links.flat_map(|(own, folder)| list_links(folder).map(|link| (*own, link)));
        let links: Vec<_> = links.collect();
        let (mut folders, mut ways) = (Vec::new(), Vec::new());
        for (own, path) in roots.into_iter().chain(links) {
            let folder = whole(&path);
            let passed = ways::list_passed_folders(&path).into_iter();
            ways.extend(passed.map(|passed| (passed, (own, folder.clone()))));
            folders.push((own, folder));
        }
        Self {
            folders,
            ways,
            table: MountTable::read(),
        }
    }

    /// What has to do with `source`, which has no links: the nearest first.
    fn find_conflict(&self, source: &Path) -> Option<OwnFolderConflict> {
        let tree = self.table.locate_tree(source);
        let found = self.folders.iter().filter_map(|(own, folder)| {
            Some(OwnFolderConflict {
                own: *own,
                folder: folder.clone(),
                relation: self.relate(source, &tree, folder)?,
            })
        });
        // Of the store itself before its parts.
        found.min_by_key(|conflict| conflict.relation as u8)
    }

    /// By whatever path: bind mounts show a folder in several places, and come along with one above them.
    fn relate(&self, source: &Path, tree: &[Location], folder: &Path) -> Option<OwnFolderRelation> {
        let there = self.table.locate(folder);
        let there = there.as_ref();
        // The first is the source itself, if the kernel says where that is.
        let own = tree.first().filter(|_| self.table.locate(source).is_some());
        let of_own = |is: fn(&Location, &Location) -> bool| {
            own.zip(there).is_some_and(|(own, there)| is(own, there))
        };
        let of_tree = |is: fn(&Location, &Location) -> bool| {
            there.is_some_and(|there| tree.iter().any(|one| is(one, there)))
        };
        if source == folder || of_own(|own, there| own == there) {
            return Some(OwnFolderRelation::Same);
        }
        if source.starts_with(folder) || of_own(Location::lies_in) {
            return Some(OwnFolderRelation::Inside);
        }
        if folder.starts_with(source) || of_tree(|one, there| there.lies_in(one)) {
            return Some(OwnFolderRelation::Contains);
        }
        of_tree(Location::lies_in).then_some(OwnFolderRelation::ContainsPart)
    }

    /// Whether `source`, which has no links, shows a folder that is passed on the way to one of Sconce's: what
    /// lies in that can be put aside, and something else in its place.
    fn find_way(&self, source: &Path) -> Option<OwnFolderConflict> {
        let tree = self.table.locate_tree(source);
        let shows = |passed: &Path| {
            let there = self.table.locate(passed);
            let by_mount = there.is_some_and(|there| tree.iter().any(|one| there.lies_in(one)));
            by_mount || passed.starts_with(source)
        };
        let (_, (own, folder)) = self.ways.iter().find(|(passed, _)| shows(passed))?;
        Some(OwnFolderConflict {
            own: *own,
            folder: folder.clone(),
            relation: OwnFolderRelation::OnTheWay,
        })
    }
}

/// Refuses mounts through which a run could write to Sconce's own folders, or put others in their place: those that
/// one of these is in, those that lie in one, and those on the way to one. `project` is the folder that is mounted
/// because it is the project's.
///
/// # Errors
/// [`AppError::OwnFolder`].
pub fn validate_mounts(
    mounts: &[Mount],
    project: Option<&Path>,
    places: &SconceDirs,
) -> Result<()> {
    let project = project.map(whole);
    let own = OwnFolders::find(places);
    for mount in mounts.iter().filter(|mount| !mount.read_only) {
        let source = whole(&mount.source);
        let conflict = own.find_conflict(&source);
        if let Some(conflict) = conflict.or_else(|| own.find_way(&source)) {
            let mounted = match project.as_ref() == Some(&source) {
                true => WritableSource::Project(source),
                false if source.is_dir() => WritableSource::Folder(source),
                false => WritableSource::File(source),
            };
            return Err(AppError::OwnFolder { mounted, conflict }.into());
        }
    }
    Ok(())
}

/// Refuses files for an image among which one of Sconce's own folders would be: the store would be packed into
/// itself, more of it each time. `names` lie in `folder`.
///
/// # Errors
/// [`AppError::PackedOwnFolder`].
pub fn validate_packed_files(names: &[String], folder: &Path, places: &SconceDirs) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let own = OwnFolders::find(places);
    for name in names {
        let path = folder.join(name);
        // A link is taken as a link.
        if path.is_symlink() {
            continue;
        }
        let path = whole(&path);
        let is_packed = |conflict: &OwnFolderConflict| match conflict.folder.strip_prefix(&path) {
            Ok(below) => !below.iter().any(project::is_left_out),
            Err(_) => true,
        };
        if let Some(conflict) = own.find_conflict(&path).filter(is_packed) {
            let name = name.clone();
            return Err(AppError::PackedOwnFolder { name, conflict }.into());
        }
    }
    Ok(())
}

/// Returns which of Sconce's own folders a file or folder would be written into, or in the place of. `path` has no
/// links.
pub fn find_conflict(path: &Path, places: &SconceDirs) -> Option<OwnFolderConflict> {
    OwnFolders::find(places).find_conflict(path)
}

/// The links that lie in a folder.
fn list_links(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    links.map(|entry| entry.path())
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
    use crate::dirs::Config;
    use crate::kernel_cache::KernelCache;
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
                jobs: self.at("state/jobs"),
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

    /// `~/.local/share/sconce` is a link to another disk, and so may be any folder above it.
    #[test]
    fn a_run_puts_nothing_in_the_place_of_sconces_own_folders() {
        let home = Home(tempfile::tempdir().unwrap());
        for folder in [
            "big/sconce/items",
            "user/share",
            "user/work",
            "hop",
            "dots/config",
            "state/runs",
        ] {
            std::fs::create_dir_all(home.at(folder)).unwrap();
        }
        // user/share/sconce -> hop/next -> big/sconce
        symlink("../../hop/next", home.at("user/share/sconce")).unwrap();
        symlink(home.at("big/sconce"), home.at("hop/next")).unwrap();
        // All of a user's configuration is kept in one place.
        std::fs::write(home.at("dots/config/sconce.toml"), "").unwrap();
        std::fs::create_dir(home.at("config")).unwrap();
        symlink(
            home.at("dots/config/sconce.toml"),
            home.at("config/config.toml"),
        )
        .unwrap();
        let refused = |source| home.refused("user/share/sconce", source, false);
        let store = home.at("big/sconce").display().to_string();
        for (source, what) in [
            (
                "user/share",
                format!("is on the way to the store ({store})"),
            ),
            ("user", format!("is on the way to the store ({store})")),
            ("hop", format!("is on the way to the store ({store})")),
            ("big", format!("has the store ({store}) in it")),
            ("big/sconce/items", format!("lies in the store ({store})")),
            ("user/share/sconce", "is the store: a run".to_owned()),
            ("dots", "configuration".to_owned()),
            (
                "state/runs",
                "lies in the folder of the records of runs".to_owned(),
            ),
        ] {
            let said = refused(source).unwrap_or_default();
            assert!(said.contains(&what), "{source}: {said}");
            assert_eq!(home.refused("user/share/sconce", source, true), None);
        }
        // What lies beside a link, and below a folder that has one.
        assert_eq!(refused("user/work"), None);
        // A file is one.
        std::fs::write(home.at("big/sconce/version"), "1").unwrap();
        let said = refused("big/sconce/version").unwrap();
        assert!(said.starts_with("the mounted file "), "{said}");
    }

    #[test]
    fn an_image_has_none_of_sconces_own_folders_in_it() {
        let home = Home(tempfile::tempdir().unwrap());
        let project = home.at("project");
        std::fs::create_dir_all(project.join("data/store/items")).unwrap();
        std::fs::create_dir_all(project.join("src/.venv")).unwrap();
        symlink("data", project.join("link")).unwrap();
        let packed = |store, name: &str| {
            let done = validate_packed_files(&[name.to_owned()], &project, &home.places(store));
            done.err().map(|failure| failure.message())
        };
        let store = "project/data/store";
        for name in [".", "data", "./data/store", "data/store/items"] {
            let said = packed(store, name).unwrap_or_default();
            assert!(
                said.contains("the store") && said.starts_with(&format!("`{name}`")),
                "{said}"
            );
        }
        for name in ["src", "train.py", "link"] {
            assert_eq!(packed(store, name), None, "{name}");
        }
        assert_eq!(packed("elsewhere", "."), None);
        // What is not packed.
        assert_eq!(packed("project/src/.venv/store", "."), None);
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
