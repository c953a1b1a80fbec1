//! Environments on nodes' own disks: one file that each node reads once, in the place of tens of thousands of opens of a
//! store that all of them share.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::process::getuid;
use sconce_base::Env;
use sconce_image::bytecode;
use sconce_schema::job::LocalStoreRequest;
use sconce_schema::{EnvironmentLayers, Hint, Lock, exit};
use sconce_store::item_pack::{ItemPack, UnpackOutcome};
use sconce_store::{Store, is_local_disk, item_of_path, network_file_system};

use super::target_path::expand_variables;
use crate::build::compile_missing_bytecode;
use crate::context::AppContext;
use crate::environment_builder::EnvironmentBuilder;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::probe;
use crate::reporter::AppEvent;

/// What has nodes read the store itself, as `local-store`.
const OFF: &str = "off";
/// Where a node looks for a disk of its own where the target says nothing.
const USUAL_DIRECTORIES: [&str; 3] = ["$TMPDIR", "/var/tmp", "/tmp"];

/// Why a node has no store of its own where its target says.
#[derive(Debug, thiserror::Error)]
pub enum LocalStoreError {
    /// The target's directory has a variable that the node does not have.
    #[error("`local-store` of the target is {directory}, and ${name} is not set on node {node}")]
    UnsetVariable {
        /// As the target says it.
        directory: String,
        /// The variable.
        name: String,
        /// The node.
        node: String,
    },
    /// Variables do not make a path of it.
    #[error(
        "`local-store` of the target is {directory}, which on node {node} is {path:?} and no absolute path"
    )]
    NoPath {
        /// As the target says it.
        directory: String,
        /// What it becomes.
        path: String,
        /// The node.
        node: String,
    },
    /// Somebody else could write there.
    #[error("{} on node {node} is not a directory that this user alone can write to", path.display())]
    NotOwn {
        /// The directory.
        path: PathBuf,
        /// The node.
        node: String,
    },
}

impl Hint for LocalStoreError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::UnsetVariable { .. } | Self::NoPath { .. } => {
                "name a directory that every node has, or `off`".to_owned()
            }
            Self::NotOwn { path, .. } => {
                format!(
                    "name another directory, or have {} removed there",
                    path.display()
                )
            }
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::UnsetVariable { .. } | Self::NoPath { .. } => exit::BAD_INPUT,
            Self::NotOwn { .. } => exit::STORE,
        }
    }
}

/// Whether nodes unpack the environment: the target's `local-store` names a directory of theirs, or the store is on a file
/// system that comes over the network.
pub(super) fn wants_pack(directory: Option<&str>, store: &Store) -> bool {
    match directory {
        Some(directory) => directory != OFF,
        None => network_file_system(store.root()).is_some(),
    }
}

/// Packs an environment for nodes, where that helps ([`wants_pack`]); `directory` is the target's `local-store`.
pub(super) fn pack_environment(
    directory: Option<&str>,
    builder: &EnvironmentBuilder<'_>,
    lock: &Lock,
    environment: &EnvironmentLayers,
    context: &AppContext,
) -> Result<Option<LocalStoreRequest>> {
    let store = builder.store;
    if !wants_pack(directory, store) {
        return Ok(None);
    }
    match pack(builder, lock, environment) {
        Ok(environment) => Ok(Some(LocalStoreRequest {
            directory: directory.map(str::to_owned),
            environment,
        })),
        // Nobody asked for it.
        Err(failure) if directory.is_none() => {
            let (why, network) = (failure.message(), network_file_system(store.root()));
            let network = network.unwrap_or_default();
            let remark = format!("nodes read the store over {network}: {why}");
            context.report(&AppEvent::JobRemark(&remark));
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// The environment of `lock` as a pack, where all of it is there and was packed.
pub(super) fn find_packed_environment(
    directory: Option<&str>,
    store: &Store,
    lock: &Lock,
) -> Result<Option<LocalStoreRequest>> {
    let environment = sconce_image::load_environment(lock, store)?;
    if !bytecode::list_missing(&environment, lock, store).is_empty() {
        return Ok(None);
    }
    let pack = store.find_packed_items(&list_items(&environment, store)?);
    Ok(pack.map(|environment| LocalStoreRequest {
        directory: directory.map(str::to_owned),
        environment,
    }))
}

/// Packs exactly what runs stand on: the trees of the environment, its bytecode, which is made now where it is not there,
/// and what Sconce brings into Python programs.
fn pack(
    builder: &EnvironmentBuilder<'_>,
    lock: &Lock,
    environment: &EnvironmentLayers,
) -> Result<ItemPack> {
    let store = builder.store;
    if store.is_writable() {
        compile_missing_bytecode(builder, lock, environment)?;
    }
    let environment = sconce_image::load_environment(lock, store)?;
    let pack = store.pack_items(&list_items(&environment, store)?, builder.progress)?;
    builder.progress.finish();
    Ok(pack)
}

/// Kind and key of every item that a run of an environment stands on.
fn list_items(environment: &EnvironmentLayers, store: &Store) -> Result<Vec<(String, String)>> {
    let probe = probe::ensure_modules(store)?;
    let paths = environment.layers.iter().map(|layer| layer.path.as_path());
    let items = paths.chain([probe.as_path()]).filter_map(item_of_path);
    Ok(items.collect())
}

/// The store on a disk of this node, with the environment of a job in it; `None` where the job's own store is read
/// instead, which is said.
///
/// # Errors
/// The directory that the target names cannot be used; the pack is damaged.
pub(super) fn open_local_store(
    request: &LocalStoreRequest,
    node: &str,
    context: &AppContext,
) -> Result<Option<PathBuf>> {
    let remark = |text: &str| {
        context.report(&AppEvent::JobRemark(&format!("node {node}: {text}")));
    };
    let has_pack = || request.environment.file.exists();
    let gone = || {
        let file = request.environment.file.display();
        remark(&format!(
            "{file} is not there any more: the environment is read from the shared store"
        ));
    };
    if let Some(directory) = &request.directory {
        let dir = expand(directory, node, &context.env)?;
        return match unpack_to(&dir, request, node, context) {
            // `prune` has removed it while the job waited.
            Err(_) if !has_pack() => {
                gone();
                Ok(None)
            }
            unpacked => unpacked.map(Some),
        };
    }
    let usual = USUAL_DIRECTORIES.into_iter();
    let usual = usual.filter_map(|directory| expand(directory, node, &context.env).ok());
    let mut obstacles = Vec::new();
    for dir in usual.filter(|dir| is_local_disk(dir)) {
        match unpack_to(&dir, request, node, context) {
            Ok(store) => return Ok(Some(store)),
            Err(_) if !has_pack() => {
                gone();
                return Ok(None);
            }
            // Other bytes than were packed are no matter of the disk.
            Err(failure) if failure.exit_code() == exit::VERIFY => return Err(failure),
            Err(failure) => obstacles.push(failure.message()),
        }
    }
    let why = match obstacles.as_slice() {
        [] => "none of TMPDIR, /var/tmp and /tmp is on a disk of its own".to_owned(),
        obstacles => obstacles.join("; "),
    };
    remark(&format!(
        "the environment is read from the shared store: {why}"
    ));
    Ok(None)
}

/// Has the environment in a store below `dir`, which need not be there.
fn unpack_to(
    dir: &Path,
    request: &LocalStoreRequest,
    node: &str,
    context: &AppContext,
) -> Result<PathBuf> {
    let path = own_directory(dir, node)?;
    let remark = |text: String| {
        context.report(&AppEvent::JobRemark(&format!("node {node}: {text}")));
    };
    if let Some(network) = network_file_system(&path) {
        remark(format!(
            "{} is on {network}, which is no disk of its own",
            path.display()
        ));
    }
    let progress = context.start_progress();
    let began = Instant::now();
    let store = Store::open(&path)?;
    let outcome = store.unpack_items(&request.environment, &*progress);
    progress.finish();
    match outcome {
        Ok(UnpackOutcome::AlreadyThere) => {
            remark(format!("the environment is in {}", path.display()));
        }
        Ok(UnpackOutcome::Unpacked(bytes)) => {
            let seconds = began.elapsed().as_secs_f64();
            let path = path.display();
            remark(format!(
                "environment unpacked to {path} in {seconds:.1} s ({bytes} read)"
            ));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(path)
}

/// A directory of this user's alone in `dir`, where others may have theirs.
fn own_directory(dir: &Path, node: &str) -> Result<PathBuf> {
    let path = dir.join(format!("sconce-{}", getuid().as_raw()));
    let failed = |source| AppError::File {
        action: FileAction::Create,
        path: path.clone(),
        source,
    };
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(&path);
    made.map_err(failed)?;
    let meta = path.symlink_metadata().map_err(failed)?;
    if !meta.is_dir() || meta.uid() != getuid().as_raw() || meta.mode() & 0o022 != 0 {
        let node = node.to_owned();
        return Err(LocalStoreError::NotOwn { path, node }.into());
    }
    Ok(path)
}

/// Puts a node's variables into a target's directory: `$NAME` and `${NAME}`.
fn expand(directory: &str, node: &str, env: &Env) -> Result<PathBuf, LocalStoreError> {
    let value = |name: &str| {
        let value = env.var(name).or_else(|| match name {
            // Slurm tells whose job it is where no login does.
            "USER" => env.var("SLURM_JOB_USER"),
            _ => None,
        });
        value.map(str::to_owned)
    };
    let path = expand_variables(directory, value).map_err(|name| {
        let (directory, node) = (directory.to_owned(), node.to_owned());
        LocalStoreError::UnsetVariable {
            directory,
            name,
            node,
        }
    })?;
    match Path::new(&path).is_absolute() {
        true => Ok(path.into()),
        false => Err(LocalStoreError::NoPath {
            directory: directory.to_owned(),
            path,
            node: node.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn variables_of_the_node_stand_in_its_directory() {
        let env = Env::from_variables([
            ("USER", "ada"),
            ("SLURM_JOB_ID", "17"),
            ("EMPTY", ""),
            ("RELATIVE", "here"),
        ]);
        let expand = |text: &str| expand(text, "n2", &env).map_err(|error| error.to_string());
        for (text, path) in [
            ("/scratch/$USER", "/scratch/ada"),
            ("/scratch/${USER}x", "/scratch/adax"),
            ("/local/$SLURM_JOB_ID/$USER/", "/local/17/ada/"),
            ("/plain", "/plain"),
        ] {
            assert_eq!(expand(text), Ok(PathBuf::from(path)), "{text}");
        }
        for (text, said) in [
            ("/scratch/$NOBODY", "$NOBODY is not set on node n2"),
            ("/scratch/$EMPTY", "$EMPTY is not set"),
            ("/scratch/$", "$ is not set"),
            ("/scratch/${USER", "$ is not set"),
            ("$RELATIVE/x", "no absolute path"),
        ] {
            let error = expand(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        let of_slurm = Env::from_variables([("SLURM_JOB_USER", "bob")]);
        let dir = super::expand("/scratch/$USER", "n2", &of_slurm).unwrap();
        assert_eq!(dir, Path::new("/scratch/bob"));
    }

    #[test]
    fn what_others_can_write_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let own = own_directory(dir.path(), "n2").ok().unwrap();
        assert_eq!(own.metadata().unwrap().mode() & 0o777, 0o700);
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o777)).unwrap();
        let refused = own_directory(dir.path(), "n2").err().unwrap();
        assert!(
            refused.message().contains("this user alone"),
            "{}",
            refused.message()
        );
        std::fs::remove_dir(&own).unwrap();
        std::os::unix::fs::symlink(dir.path(), &own).unwrap();
        assert!(own_directory(dir.path(), "n2").is_err());
    }
}
