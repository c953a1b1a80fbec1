//! The environment as others' containers take it: a directory for apptainer, an OCI bundle for Slurm, a squashfs file
//! for pyxis.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use rustix::process::{getegid, geteuid};
use sconce_base::output::OutputForm;
use sconce_image::build::{ImageOptions, write_squashfs};
use sconce_image::flat_tree::{ensure_flat_tree, environment_key, find_flat_tree};
use sconce_image::layer::Compression;
use sconce_image::layer_plan::{DEFAULT_LAYERS, LayerPlan, LayerPlanOptions};
use sconce_schema::lock::Lock;
use sconce_schema::request::Mount;
use sconce_schema::spec::JobContainment;
use sconce_schema::{EnvironmentLayers, Hint, Progress, exit};
use sconce_store::{Store, TreeBuildError, TreeBuildOptions};
use serde_json::{Value, json};

use super::job_dir::JobDir;
use crate::build;
use crate::environment_builder::EnvironmentBuilder;
use crate::failure::{AppError, Failure, Result};
use crate::file_action::FileAction;
use crate::outputs;
use crate::run::site_containment::{SYSTEM_PATH, flat_tree_part};

/// Kind of squashfs files in the store.
const SQUASHFS_KIND: &str = "squashfs";
/// The file in such an item; enroot knows it by its end.
const SQUASHFS_NAME: &str = "image.sqsh";
/// What of a root is not the environment's: what the kernel shows, what runs write, and where machines keep data.
const MACHINE_DIRECTORIES: [&str; 13] = [
    "dev",
    "home",
    "lost+found",
    "media",
    "mnt",
    "proc",
    "root",
    "run",
    "srv",
    "sys",
    "tmp",
    "workspace",
    "var",
];
/// Files of a node by which names are looked up.
const NAME_FILES: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];

/// A path of the machine that a bundle has no place for.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be in the container, whose own {} is read-only", path.display(), above.display())]
struct CoveredPath {
    path: PathBuf,
    above: PathBuf,
}

impl Hint for CoveredPath {
    fn hint(&self) -> Option<String> {
        Some("keep the store, the project and what is mounted in a directory of data, such as /home or /data; or take another `containment`".to_owned())
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// Makes the environment of `lock` ready for `containment`, and returns where it is; `None` where nodes take it from
/// the store as it is.
///
/// # Errors
/// Its bytecode cannot be compiled, or it cannot be written.
pub(super) fn ensure_site_image(
    containment: JobContainment,
    builder: &EnvironmentBuilder<'_>,
    lock: &Lock,
    environment: &EnvironmentLayers,
) -> Result<Option<PathBuf>> {
    if containment.is_own() {
        return Ok(None);
    }
    // Nobody could write bytecode into it later.
    let environment = build::with_bytecode(builder, lock, environment)?;
    let (store, progress) = (builder.store, builder.progress);
    let image = match flat_tree_part(containment) {
        Some(part) => ensure_flat_tree(&environment, part, store, progress)?,
        None => ensure_squashfs(&builder.project.name, lock, &environment, store, progress)?,
    };
    Ok(Some(image))
}

/// As [`ensure_site_image`], where nothing is made: `None` too where it is not there.
pub(super) fn find_site_image(
    containment: JobContainment,
    lock: &Lock,
    store: &Store,
) -> Option<PathBuf> {
    let environment = sconce_image::load_environment(lock, store).ok()?;
    match flat_tree_part(containment) {
        Some(part) => find_flat_tree(&environment, part, store),
        None => {
            let tree = store.find_tree(SQUASHFS_KIND, &environment_key(&environment, store))?;
            Some(tree.join(SQUASHFS_NAME))
        }
    }
}

fn ensure_squashfs(
    name: &str,
    lock: &Lock,
    environment: &EnvironmentLayers,
    store: &Store,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    let options = ImageOptions {
        name: name.to_owned(),
        compression: Compression::default(),
        env: BTreeMap::new(),
        command: Vec::new(),
        workdir: None,
        variant: None,
        cards: Vec::new(),
        created: 0,
    };
    let plan = LayerPlan::for_lock(
        lock,
        LayerPlanOptions {
            most_layers: DEFAULT_LAYERS,
            bytecode: true,
        },
    );
    let making = TreeBuildOptions {
        name: SQUASHFS_KIND,
        work: "writes the environment as one squashfs file",
        progress,
        accept: &|_| true,
    };
    let write = |root: &Path| {
        let output = outputs::find(&root.join(SQUASHFS_NAME), OutputForm::Seekable)?;
        write_squashfs(&plan, lock, environment, &options, output, store, progress)?;
        Ok::<(), Failure>(())
    };
    let key = environment_key(environment, store);
    let built = store.build_tree_with(SQUASHFS_KIND, &key, making, write);
    match built {
        Ok(tree) => Ok(tree.join(SQUASHFS_NAME)),
        Err(TreeBuildError::Store(error)) => Err(error.into()),
        Err(TreeBuildError::Build(failure)) => Err(failure),
    }
}

/// What of the machine a container of the scheduler's has, for the command and for Sconce, which is in it too: all by
/// its own path but what the run mounts elsewhere.
pub(super) fn list_machine_mounts(run: &[Mount], own: &[&Path]) -> Vec<Mount> {
    let mut mounts = run.to_vec();
    for path in own.iter().filter(|path| path.is_dir()) {
        let is_there = |mount: &Mount| {
            mount.source == mount.target && !mount.read_only && path.starts_with(&mount.target)
        };
        if !mounts.iter().any(is_there) {
            mounts.push(Mount {
                source: (*path).to_owned(),
                target: (*path).to_owned(),
                read_only: false,
            });
        }
    }
    mounts
}

/// Writes the OCI bundle of a job, whose environment is the directory `tree`.
///
/// # Errors
/// The disk's, and a mount that has no place in it.
pub(super) fn write_bundle(dir: &JobDir, tree: &Path, mounts: &[Mount]) -> Result<()> {
    let (user, group) = (geteuid(), getegid());
    OciBundle {
        tree,
        mounts,
        env: &BTreeMap::from([("PATH".to_owned(), SYSTEM_PATH.to_owned())]),
        user: (user.as_raw(), group.as_raw()),
    }
    .write(&dir.bundle())
}

/// An OCI bundle (runtime-spec, bundle.md), whose root is made of the directories of an environment's tree.
struct OciBundle<'a> {
    /// The tree. Nothing is written into it.
    tree: &'a Path,
    mounts: &'a [Mount],
    /// The environment's variables; the scheduler adds its own.
    env: &'a BTreeMap<String, String>,
    /// Whose files it writes: root inside is this user.
    user: (u32, u32),
}

impl OciBundle<'_> {
    /// Writes it into the directory `to`, which is made.
    ///
    /// # Errors
    /// The disk's, and a mount that has no place in it.
    fn write(&self, to: &Path) -> Result<()> {
        let failed = |source| AppError::File {
            action: FileAction::Write,
            path: to.to_owned(),
            source,
        };
        let rootfs = to.join("rootfs");
        let own = self.make_root(&rootfs).map_err(failed)?;
        for mount in self.mounts {
            self.make_mount_point(&rootfs, &own, mount)?;
        }
        let config = self.config(&rootfs, &own).to_string();
        Ok(fs::write(to.join("config.json"), config).map_err(failed)?)
    }

    /// Makes the root, and returns the directories in it that are the environment's.
    fn make_root(&self, rootfs: &Path) -> io::Result<BTreeSet<PathBuf>> {
        fs::create_dir_all(rootfs)?;
        let mut own = BTreeSet::new();
        for entry in fs::read_dir(self.tree)? {
            let entry = entry?;
            let (name, kind) = (entry.file_name(), entry.file_type()?);
            let place = rootfs.join(&name);
            let is_machines = MACHINE_DIRECTORIES.iter().any(|one| name == *one);
            if kind.is_symlink() {
                symlink(fs::read_link(entry.path())?, place)?;
            } else if kind.is_dir() {
                fs::create_dir(place)?;
                if !is_machines {
                    own.insert(PathBuf::from(name));
                }
            }
        }
        // Where the run is at home, and what programs expect below /var.
        for path in [
            "home/sconce",
            "root",
            "var/tmp",
            "var/log",
            "run",
            "workspace",
        ] {
            fs::create_dir_all(rootfs.join(path))?;
        }
        Ok(own)
    }

    /// The runtime would make it, and could not in what is read-only.
    fn make_mount_point(
        &self,
        rootfs: &Path,
        own: &BTreeSet<PathBuf>,
        mount: &Mount,
    ) -> Result<()> {
        let inside: PathBuf = (mount.target.components())
            .filter(|part| matches!(part, Component::Normal(_)))
            .collect();
        let first = inside.components().next();
        let above = first.map(|first| PathBuf::from(first.as_os_str()));
        if let Some(above) = above.filter(|above| own.contains(above)) {
            return match self.tree.join(&inside).exists() {
                true => Ok(()),
                false => Err(CoveredPath {
                    path: mount.target.clone(),
                    above: Path::new("/").join(above),
                }
                .into()),
            };
        }
        let place = rootfs.join(inside);
        let made = match mount.source.is_dir() {
            true => fs::create_dir_all(&place),
            false => {
                let above = place.parent().unwrap_or(rootfs);
                fs::create_dir_all(above).and_then(|()| fs::write(&place, ""))
            }
        };
        Ok(made.map_err(|source| AppError::File {
            action: FileAction::Create,
            path: place,
            source,
        })?)
    }

    /// The configuration (runtime-spec, config.md). Slurm replaces `process.args` and adds variables.
    fn config(&self, rootfs: &Path, own: &BTreeSet<PathBuf>) -> Value {
        let bind = |source: &Path, target: &Path, options: &[&str]| json!({"destination": target, "type": "bind", "source": source, "options": options});
        // A /proc of its own would need a namespace of processes, in which Slurm's tasks could not be told apart.
        let mut mounts: Vec<Value> = ["/proc", "/sys", "/dev", "/tmp"]
            .map(|path| bind(Path::new(path), Path::new(path), &["rbind", "rw"]))
            .to_vec();
        let trees = own.iter();
        mounts.extend(trees.map(|name| {
            let target = Path::new("/").join(name);
            bind(
                &self.tree.join(name),
                &target,
                &["rbind", "ro", "nosuid", "nodev"],
            )
        }));
        let names = NAME_FILES.iter().map(Path::new);
        let names = names.filter(|path| path.exists());
        mounts.extend(names.map(|path| bind(path, path, &["bind", "ro"])));
        mounts.extend(self.mounts.iter().map(|mount| {
            let access = if mount.read_only { "ro" } else { "rw" };
            bind(
                &mount.source,
                &mount.target,
                &["rbind", access, "nosuid", "nodev"],
            )
        }));
        let env = self.env.iter();
        let env: Vec<String> = env.map(|(name, value)| format!("{name}={value}")).collect();
        let (uid, gid) = self.user;
        let map = |id: u32| json!([{"containerID": 0, "hostID": id, "size": 1}]);
        json!({
            "ociVersion": "1.0.2",
            "root": {"path": rootfs, "readonly": false},
            "process": {
                "terminal": false,
                "user": {"uid": 0, "gid": 0},
                "args": ["/bin/true"],
                "env": env,
                "cwd": "/",
                "noNewPrivileges": true,
            },
            "mounts": mounts,
            "linux": {
                "namespaces": [{"type": "user"}, {"type": "mount"}],
                "uidMappings": map(uid),
                "gidMappings": map(gid),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(source: &Path, target: &str) -> Mount {
        Mount {
            source: source.to_owned(),
            target: target.into(),
            read_only: false,
        }
    }

    fn write(folder: &Path, mounts: &[Mount]) -> Result<Value> {
        let tree = folder.join("tree");
        for path in ["usr/bin", "etc", "home/sconce", "tmp", "opt/venv"] {
            fs::create_dir_all(tree.join(path)).unwrap();
        }
        let _ = symlink("usr/bin", tree.join("bin"));
        let env = BTreeMap::from([("PATH".to_owned(), "/opt/venv/bin".to_owned())]);
        let bundle = OciBundle {
            tree: &tree,
            mounts,
            env: &env,
            user: (1234, 100),
        };
        let to = folder.join(sconce_base::random_name());
        bundle.write(&to)?;
        assert!(to.join("rootfs/bin").is_symlink() && to.join("rootfs/home/sconce").is_dir());
        assert_eq!(fs::read_dir(to.join("rootfs/usr")).unwrap().count(), 0);
        Ok(serde_json::from_slice(&fs::read(to.join("config.json")).unwrap()).unwrap())
    }

    #[test]
    fn a_bundle_has_the_tree_read_only_and_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let config = write(folder.path(), &[mount(folder.path(), "/data")]).unwrap();
        let mounts = config["mounts"].as_array().unwrap();
        let at = |target: &str| mounts.iter().find(|one| one["destination"] == target);
        let usr = at("/usr").unwrap();
        assert_eq!(
            usr["source"],
            folder.path().join("tree/usr").to_str().unwrap()
        );
        assert!(usr["options"].as_array().unwrap().contains(&json!("ro")));
        assert!(at("/home").is_none() && at("/data").is_some());
        assert_eq!(config["linux"]["uidMappings"][0]["hostID"], 1234);
        assert_eq!(config["process"]["env"], json!(["PATH=/opt/venv/bin"]));
    }

    #[test]
    fn what_would_lie_in_the_environments_own_directories_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for target in ["/usr/share/data", "/opt/store", "/usr/../opt/store"] {
            let refused = write(folder.path(), &[mount(folder.path(), target)]);
            assert!(refused.is_err(), "{target}");
        }
        for target in ["/opt/venv", "/home/ada/x", "/data/x", "/tmp/x"] {
            write(folder.path(), &[mount(folder.path(), target)]).unwrap();
        }
    }

    #[test]
    fn what_lies_in_another_mount_is_mounted_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("home/store");
        fs::create_dir_all(&store).unwrap();
        let home = folder.path().join("home");
        let mounts = [mount(&home, home.to_str().unwrap())];
        assert_eq!(list_machine_mounts(&mounts, &[&store]), mounts);
        let elsewhere = list_machine_mounts(&mounts, &[folder.path(), Path::new("/no/such")]);
        assert_eq!(elsewhere.len(), 2);
    }
}
