//! From a plan to an image: layers, configuration, manifest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sconce_base::output::OutputDestination;
use sconce_schema::spec::{Removal, WORKSPACE};
use sconce_schema::{ComputeCapability, EnvironmentLayers, Hint, Lock, Progress, exit};
use sconce_store::{Store, StoreError};

use crate::assemble::AssembleError;
use crate::layer::{
    self, Compression, LayerBlob, LayerError, LayerJob, TreeSource, TreeSubset, is_below,
};
use crate::layer_plan::{LayerContent, LayerPlan, PlannedLayer};
use crate::local_image::{self, LOCK_LABEL, LayerContents, LocalError, LocalImage};
use crate::slim::{self, RemovedFile, SlimFilter, SlimRules};
use crate::squashfs::launch::{self, LaunchError};
use crate::squashfs::{self, SquashfsError, SquashfsSummary};
use crate::system::PLAIN_ID;
use crate::{bytecode, compiler};
use sconce_oci as oci;
use sconce_oci::{Descriptor, Digest, ExecutionDefaults, History, ImageManifest, RootFs, media};

/// What an image is made of, beside its lock.
#[derive(Debug, Clone, Default)]
pub struct ImageOptions {
    /// Name of the environment, for the labels.
    pub name: String,
    /// How layers are compressed.
    pub compression: Compression,
    /// Variables beside those that the lock gives.
    pub env: BTreeMap<String, String>,
    /// What is run when nothing else is said.
    pub command: Vec<String>,
    /// The working directory; [`WORKSPACE`] where it is absent.
    pub workdir: Option<String>,
    /// What size it is made in, for the labels; absent for the usual one.
    pub variant: Option<&'static str>,
    /// The only cards that it has device code for, for the labels; every one where there is none.
    pub cards: Vec<ComputeCapability>,
    /// Seconds since 1970 that the image says it was made at. A clock would make another image of
    /// the same lock, so it is 0 unless somebody asks (`SOURCE_DATE_EPOCH`).
    pub created: i64,
}

/// Why an image could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A layer.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The environment.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The list of local images.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// A squashfs file.
    #[error(transparent)]
    Squashfs(#[from] SquashfsError),
    /// What is run in it.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A layer of the plan whose files have not been made.
    #[error("the files of the layer `{layer}` have not been made")]
    Absent {
        /// Its name.
        layer: String,
    },
    /// Bytecode that the plan asks for is not there.
    #[error("the bytecode of {what} is not there")]
    Bytecode {
        /// The package.
        what: String,
    },
}

impl Hint for BuildError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Layer(error) => error.hint(),
            Self::Assemble(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Local(error) => error.hint(),
            Self::Squashfs(error) => error.hint(),
            Self::Launch(error) => error.hint(),
            Self::Bytecode { .. } => {
                Some("build without it: `[build] bytecode = false`".to_owned())
            }
            Self::Absent { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Layer(error) => error.exit_code(),
            Self::Assemble(error) => error.exit_code(),
            Self::Store(error) => error.exit_code(),
            Self::Local(error) => error.exit_code(),
            Self::Squashfs(error) => error.exit_code(),
            Self::Launch(error) => error.exit_code(),
            Self::Bytecode { .. } => exit::STORE,
            Self::Absent { .. } => exit::BUG,
        }
    }
}

/// Where the parts of an environment lie in the store.
struct Trees<'a> {
    system: &'a Path,
    /// As the lock's wheels.
    wheels: Vec<&'a Path>,
    /// Bytecode: of the system, and as the lock's wheels. Empty for a tree without sources.
    system_bytecode: Option<PathBuf>,
    bytecode: Vec<Option<PathBuf>>,
    /// A standalone Python, and its bytecode.
    python: Option<(&'a Path, Option<PathBuf>)>,
    compiler: Option<PathBuf>,
}

impl<'a> Trees<'a> {
    /// `environment` is what [`crate::load_environment`] gives for `lock`.
    fn of(lock: &Lock, environment: &'a EnvironmentLayers, store: &Store) -> Option<Self> {
        let mut layers = environment.layers.iter().map(|layer| layer.path.as_path());
        let system = layers.next()?;
        let wheels: Vec<&Path> = layers.by_ref().take(lock.wheels.len()).collect();
        if wheels.len() != lock.wheels.len() {
            return None;
        }
        let of = |tree: &Path| bytecode::of_tree(tree, lock, store);
        let python = match lock.interpreter {
            Some(_) => Some(layers.next()?),
            None => None,
        };
        Some(Self {
            system,
            system_bytecode: of(system),
            bytecode: wheels.iter().map(|tree| of(tree)).collect(),
            wheels,
            python: python.map(|tree| (tree, of(tree))),
            compiler: compiler::find_tree(lock, store),
        })
    }
}

/// The interpreter's part of the system tree: what its packages ship, the frame of the virtual
/// environment, and the loader's cache, which names its library.
fn interpreter(path: &Path) -> bool {
    let named = |part: &std::ffi::OsStr| {
        ["python3", "libpython3", "pydoc3", "pygettext3", "pdb3"]
            .iter()
            .any(|name| part.as_encoded_bytes().starts_with(name.as_bytes()))
    };
    path.iter().any(named) || is_below(path, "opt") || is_below(path, "etc/ld.so.cache")
}

fn system(path: &Path) -> bool {
    !interpreter(path)
}

/// A part of the system tree: its name, and what it has.
type SystemPart = (&'static str, fn(&Path) -> bool);

/// A tree, or a part of it, as an image has it: a slim one leaves some of it out. `sources` is the
/// tree that has the sources of the package.
fn tree<'a>(
    root: &'a Path,
    part: Option<SystemPart>,
    sources: Option<&'a Path>,
    slim: Option<&'a SlimRules>,
) -> TreeSource<'a> {
    let mut tree = TreeSource::from_root(root);
    if let Some((name, has)) = part {
        name.clone_into(&mut tree.part.name);
        tree.part.has = Box::new(move |path, _| has(path));
    }
    let Some(rules) = slim else {
        return tree;
    };
    let filter = SlimFilter::new(rules, sources.unwrap_or(root), sources.is_some());
    let has = tree.part.has;
    tree.part = TreeSubset {
        name: format!("{} {}", tree.part.name, rules.key_label()),
        has: Box::new(move |path, is_folder| {
            has(path, is_folder) && filter.removal_for(path, is_folder).is_none()
        }),
        shrinks: Some(rules),
    };
    tree
}

/// What is to be made for one layer of a plan.
fn job<'a>(
    planned: &'a PlannedLayer,
    lock: &Lock,
    trees: &'a Trees<'a>,
    slim: Option<&'a SlimRules>,
) -> Result<LayerJob<'a>, BuildError> {
    let sources = |wheels: &[usize]| -> Vec<TreeSource<'a>> {
        let one = |&at: &usize| tree(trees.wheels[at], None, None, slim);
        wheels.iter().map(one).collect()
    };
    let bytecode = |made: &'a Option<PathBuf>, sources: &'a Path, what: &str| match made {
        Some(made) => Ok(tree(made, None, Some(sources), slim)),
        None => Err(BuildError::Bytecode {
            what: what.to_owned(),
        }),
    };
    let compiled = |wheels: &[usize]| -> Result<Vec<TreeSource<'a>>, BuildError> {
        let one = |&at: &usize| {
            let name = &lock.wheels[at].name;
            bytecode(&trees.bytecode[at], trees.wheels[at], name)
        };
        wheels.iter().map(one).collect()
    };
    let absent = || BuildError::Absent {
        layer: planned.name.clone(),
    };
    let parts = match &planned.content {
        LayerContent::System => vec![tree(trees.system, Some(("system", system)), None, slim)],
        LayerContent::Interpreter { bytecode: wanted } => {
            let part: SystemPart = ("interpreter", interpreter);
            let mut parts = vec![tree(trees.system, Some(part), None, slim)];
            if *wanted {
                let made = &trees.system_bytecode;
                parts.push(bytecode(made, trees.system, &planned.name)?);
            }
            if let Some((sources, made)) = &trees.python {
                parts.push(tree(sources, None, None, slim));
                if *wanted {
                    parts.push(bytecode(made, sources, &planned.name)?);
                }
            }
            parts
        }
        LayerContent::Wheels(wheels) => sources(wheels),
        LayerContent::Bytecode(wheels) => compiled(wheels)?,
        LayerContent::WheelsAndBytecode(wheels) => {
            let mut all = sources(wheels);
            all.extend(compiled(wheels)?);
            all
        }
        LayerContent::Compiler => match &trees.compiler {
            Some(tree) => vec![TreeSource::from_root(tree)],
            None => return Err(absent()),
        },
        LayerContent::Tree(Some(tree)) => vec![TreeSource::from_root(tree)],
        LayerContent::Tree(None) => return Err(absent()),
    };
    Ok(LayerJob {
        name: planned.name.clone(),
        trees: parts,
    })
}

/// What `rules` leave out of the packages of `environment`, which is ready for `lock`, in the
/// order of the trees and sorted by path in each.
///
/// # Errors
/// A tree cannot be read.
pub fn list_removed_files(
    lock: &Lock,
    environment: &EnvironmentLayers,
    rules: &SlimRules,
    store: &Store,
) -> Result<Vec<RemovedFile>, BuildError> {
    let gone = || AssembleError::Gone {
        what: lock.target.release.clone(),
    };
    let trees = Trees::of(lock, environment, store).ok_or_else(gone)?;
    let packages = std::iter::once((trees.system, &trees.system_bytecode));
    let packages = packages.chain(trees.wheels.iter().copied().zip(&trees.bytecode));
    let packages = packages.chain(trees.python.iter().map(|(tree, made)| (*tree, made)));
    let mut taken = Vec::new();
    for (sources, bytecode) in packages {
        for (root, is_bytecode) in [(Some(sources), false), (bytecode.as_deref(), true)] {
            let Some(root) = root else { continue };
            let begin = taken.len();
            let filter = SlimFilter::new(rules, sources, is_bytecode);
            slim::collect_removed_files(root, &filter, &mut taken).map_err(|source| {
                LayerError::Archive {
                    layer: "slim".to_owned(),
                    source: source.into(),
                }
            })?;
            taken[begin..].sort_by(|a, b| a.path.cmp(&b.path));
        }
    }
    Ok(taken)
}

/// What an image of `lock` has less for being made without the compiler that `whole` has: every file
/// of it. Nothing where the store does not have it.
///
/// # Errors
/// The tree cannot be read.
pub fn removed_compiler(
    whole: &Lock,
    lock: &Lock,
    store: &Store,
) -> Result<Vec<RemovedFile>, BuildError> {
    let mut taken = Vec::new();
    let left_out = lock.compiler_debs().is_empty();
    if let Some(root) = compiler::find_tree(whole, store).filter(|_| left_out) {
        slim::list_all(&root, Removal::Compiler, &mut taken).map_err(|source| {
            LayerError::Archive {
                layer: "slim".to_owned(),
                source: source.into(),
            }
        })?;
        taken.sort_by(|a, b| a.path.cmp(&b.path));
    }
    Ok(taken)
}

/// The layers of `plan` that are in the store already, as the plan's layers.
#[must_use]
pub fn find_stored_layers(
    plan: &LayerPlan,
    lock: &Lock,
    environment: &EnvironmentLayers,
    compression: Compression,
    store: &Store,
) -> Vec<Option<LayerBlob>> {
    let none = || vec![None; plan.layers.len()];
    let Some(trees) = Trees::of(lock, environment, store) else {
        return none();
    };
    let slim = plan.slim.as_ref();
    let found = |planned| {
        job(planned, lock, &trees, slim)
            .ok()?
            .find_blob(compression, store)
    };
    plan.layers.iter().map(found).collect()
}

/// Makes the image of `lock`, whose `environment` is ready in the store, and keeps it among the
/// local images. What is there already is not made again.
///
/// # Errors
/// [`BuildError`]; layers that were made stay.
pub fn build_image(
    plan: &LayerPlan,
    lock: &Lock,
    environment: &EnvironmentLayers,
    options: &ImageOptions,
    store: &Store,
    progress: &dyn Progress,
) -> Result<LocalImage, BuildError> {
    let gone = || AssembleError::Gone {
        what: lock.target.release.clone(),
    };
    let trees = Trees::of(lock, environment, store).ok_or_else(gone)?;
    let jobs = plan
        .layers
        .iter()
        .map(|planned| job(planned, lock, &trees, plan.slim.as_ref()))
        .collect::<Result<Vec<_>, _>>()?;
    let layers = layer::make_all(&jobs, options.compression, store, progress)?;

    let digest = local_image::keep_lock(lock, store)?;
    let config = config(plan, lock, digest, environment, &layers, options);
    let config = oci::to_json(&config);
    let mut manifest = ImageManifest::new(
        Descriptor::for_bytes(media::CONFIG, &config),
        layers.iter().map(LayerBlob::descriptor).collect(),
    );
    manifest.annotations = Some(annotations(lock, digest, options));
    let contents = plan.layers.iter().zip(&layers);
    let contents = contents.map(|(planned, layer)| LayerContents {
        layer: planned.name.clone(),
        packages: planned.packages.clone(),
        unpacked_bytes: Some(layer.unpacked_bytes),
    });
    Ok(LocalImage::store_image(
        store,
        oci::to_json(&manifest),
        config,
        contents.collect(),
    )?)
}

/// Writes the environment of `lock`, which is ready in the store, into one squashfs file: what the
/// image of the same plan holds, and the small files that tell enroot and apptainer its variables
/// and its command.
///
/// # Errors
/// [`BuildError`]; a regular file that was there before is as it was then.
pub fn write_squashfs(
    plan: &LayerPlan,
    lock: &Lock,
    environment: &EnvironmentLayers,
    options: &ImageOptions,
    output: OutputDestination,
    store: &Store,
    progress: &dyn Progress,
) -> Result<SquashfsSummary, BuildError> {
    let gone = || AssembleError::Gone {
        what: lock.target.release.clone(),
    };
    let trees = Trees::of(lock, environment, store).ok_or_else(gone)?;
    let jobs = plan
        .layers
        .iter()
        .map(|planned| job(planned, lock, &trees, None));
    let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
    // The parts of a tree that went to several layers come together again.
    let mut sources: Vec<squashfs::SquashfsTree<'_>> = Vec::new();
    for job in &jobs {
        for tree in &job.trees {
            if sources.iter().all(|source| source.root != tree.root) {
                sources.push(squashfs::SquashfsTree {
                    name: &job.name,
                    root: tree.root,
                });
            }
        }
    }
    let digest = local_image::keep_lock(lock, store)?;
    let config = config(plan, lock, digest, environment, &[], options).config;
    let made = launch::render_files(&config.unwrap_or_default())?;
    let compression = options.compression;
    Ok(squashfs::write(
        &sources,
        &made,
        compression,
        output,
        progress,
    )?)
}

/// How the image is run, and what each layer is.
fn config(
    plan: &LayerPlan,
    lock: &Lock,
    digest: Digest,
    environment: &EnvironmentLayers,
    layers: &[LayerBlob],
    options: &ImageOptions,
) -> oci::ImageConfiguration {
    let mut env = environment.env.clone();
    env.extend(requirements(lock));
    env.extend(options.env.clone());
    let created = format_rfc3339(options.created);
    let history = plan.layers.iter().map(|planned| History {
        created: Some(created.clone()),
        created_by: Some(format!("sconce build: {}", planned.name)),
        ..History::default()
    });
    oci::ImageConfiguration {
        created: Some(created.clone()),
        architecture: lock.target.architecture.clone(),
        os: "linux".to_owned(),
        config: Some(ExecutionDefaults {
            user: Some(format!("{PLAIN_ID}:{PLAIN_ID}")),
            env: Some(
                env.iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect(),
            ),
            cmd: (!options.command.is_empty()).then(|| options.command.clone()),
            working_dir: Some(
                options
                    .workdir
                    .clone()
                    .unwrap_or_else(|| WORKSPACE.to_owned()),
            ),
            labels: Some(annotations(lock, digest, options)),
            ..ExecutionDefaults::default()
        }),
        rootfs: RootFs {
            kind: "layers".to_owned(),
            diff_ids: layers.iter().map(|layer| layer.diff_id).collect(),
        },
        history: Some(history.collect()),
    }
}

/// What NVIDIA's container toolkit reads. The driver need only be of the same major version as
/// the image's CUDA (minor version compatibility, CUDA 11 and later). Which cards it gets is not
/// the image's to say: `NVIDIA_VISIBLE_DEVICES` stays unset.
fn requirements(lock: &Lock) -> Vec<(String, String)> {
    let Some(cuda) = lock.versions.cuda else {
        return Vec::new();
    };
    vec![
        (
            "NVIDIA_REQUIRE_CUDA".to_owned(),
            format!("cuda>={}.0", cuda.major),
        ),
        (
            "NVIDIA_DRIVER_CAPABILITIES".to_owned(),
            "compute,utility".to_owned(),
        ),
    ]
}

/// The OCI annotations that say what an image is, and the versions that matter.
fn annotations(lock: &Lock, digest: Digest, options: &ImageOptions) -> BTreeMap<String, String> {
    let versions = &lock.versions;
    let named = [
        ("org.opencontainers.image.title", Some(options.name.clone())),
        (
            "org.opencontainers.image.created",
            Some(format_rfc3339(options.created)),
        ),
        ("org.opencontainers.image.version", versions.torch.clone()),
        (LOCK_LABEL, Some(digest.to_string())),
        ("dev.sconce.variant", options.variant.map(str::to_owned)),
        (
            "dev.sconce.cards",
            (!options.cards.is_empty()).then(|| {
                let cards: Vec<String> = options.cards.iter().map(ToString::to_string).collect();
                cards.join(" ")
            }),
        ),
        ("dev.sconce.python", Some(versions.python.clone())),
        ("dev.sconce.glibc", Some(versions.glibc.clone())),
        ("dev.sconce.torch", versions.torch.clone()),
        ("dev.sconce.cuda", versions.cuda.map(|v| v.to_string())),
        ("dev.sconce.cudnn", versions.cudnn.clone()),
        ("dev.sconce.nccl", versions.nccl.clone()),
        ("dev.sconce.triton", versions.triton.clone()),
        (
            "dev.sconce.lowest-driver",
            versions.lowest_driver.map(|v| v.to_string()),
        ),
    ];
    let there = |(name, value): (&str, Option<String>)| Some((name.to_owned(), value?));
    named.into_iter().filter_map(there).collect()
}

/// A point in time as RFC 3339 writes it, in UTC. Civil dates from days by the usual arithmetic
/// of 400-year eras.
#[must_use]
pub fn format_rfc3339(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 0000-03-01, so that a leap day ends a year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(format_rfc3339(seconds), text);
        }
    }

    #[test]
    fn the_system_is_parted_in_two() {
        for path in [
            "usr/bin/python3.13",
            "usr/lib/python3.13/os.py",
            "usr/lib/x86_64-linux-gnu/libpython3.13.so.1.0",
            "usr/share/doc/libpython3.13-stdlib/copyright",
            "var/lib/dpkg/status.d/python3.13-minimal",
            "opt/venv/pyvenv.cfg",
            "etc/ld.so.cache",
        ] {
            assert!(interpreter(Path::new(path)), "{path}");
            assert!(!system(Path::new(path)), "{path}");
        }
        for path in [
            "usr/bin/bash",
            "etc/passwd",
            "var/lib/dpkg/status.d/bash",
            "optional",
        ] {
            assert!(system(Path::new(path)), "{path}");
        }
    }
}
