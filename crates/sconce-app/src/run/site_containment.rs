//! A job's run that Sconce makes no container for: what it has instead, and what of its request that changes.
//!
//! With Slurm's `--container` and with pyxis this program is in the container already: the environment lies where it
//! always does. Apptainer is started with the command. Where nothing holds the run, its Python and packages are a tree
//! of the store's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sconce_base::Env;
use sconce_image::flat_tree::{FlatTreePart, ensure_flat_tree};
use sconce_schema::environment_layers::VENV;
use sconce_schema::event::Containment;
use sconce_schema::request::{ContainerUser, Mount, NetworkMode, RunRequest, RunRoot};
use sconce_schema::spec::JobContainment;
use sconce_schema::{EnvironmentLayers, Hint, Progress, exit};
use sconce_store::{ItemGuard, Store};

use crate::apptainer;
use crate::failure::Result;

/// What of a node's variables a run has where no container has its own: who and where its user is, how the network is
/// reached, and which cards the scheduler gave. Whatever else is there may be of another Python: `PYTHONPATH`, conda's,
/// `LD_LIBRARY_PATH`.
const NODE_VARIABLES: [&str; 20] = [
    "CUDA_VISIBLE_DEVICES",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANGUAGE",
    "LOGNAME",
    "NO_COLOR",
    "NO_PROXY",
    "ROCR_VISIBLE_DEVICES",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_RUNTIME_DIR",
    "ZE_AFFINITY_MASK",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// Where programs are that nobody's `PATH` names.
pub(crate) const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// Where an image keeps what the run's own tree has.
const MOVED_PREFIXES: [&str; 2] = [VENV, "/opt/python"];

/// This program was to be in a container of the site's, and is in none, or in another.
#[derive(Debug, thiserror::Error)]
#[error(
    "`containment = \"{0}\"`, and the node has started the job in no container of its environment"
)]
struct OutsideContainer(&'static str);

impl Hint for OutsideContainer {
    fn hint(&self) -> Option<String> {
        Some(
            "a node without oci.conf, or without the plugin, runs a job in no container and does not say so: ask whoever \
             runs the cluster, or take another `containment`"
                .to_owned(),
        )
    }

    fn exit_code(&self) -> u8 {
        exit::NODE
    }
}

/// Finds the program on `PATH` or, where a scheduler that starts no login left that out, where systems have theirs.
fn find_apptainer(env: &Env) -> Result<PathBuf, apptainer::MissingProgram> {
    let usual = || {
        let mut files = std::env::split_paths(SYSTEM_PATH).map(|dir| dir.join(apptainer::PROGRAM));
        files.find(|file| file.is_file())
    };
    let found = env.find_program(apptainer::PROGRAM);
    found.or_else(usual).ok_or(apptainer::MissingProgram)
}

/// Whether `root` is one of the environment `image`. Nobody has a virtual environment there, and with the same words,
/// by chance.
fn is_root_of(image: &EnvironmentLayers, root: &Path) -> bool {
    let read = |root: &Path| std::fs::read(root.join(&VENV[1..]).join("pyvenv.cfg")).ok();
    let system = image.layers.first().and_then(|layer| read(&layer.path));
    system.is_some() && system == read(root)
}

/// Which part of an environment is laid out as one tree for `kind`; `None` where none is.
pub(crate) fn flat_tree_part(kind: JobContainment) -> Option<FlatTreePart> {
    match kind {
        JobContainment::Sconce | JobContainment::Pyxis => None,
        JobContainment::None => Some(FlatTreePart::Python),
        JobContainment::Apptainer | JobContainment::Slurm => Some(FlatTreePart::Root),
    }
}

/// What a run has instead of a container of Sconce's.
#[derive(Debug)]
pub(crate) struct SiteContainment {
    kind: JobContainment,
    /// The environment as one tree, where something is started from it.
    tree: Option<PathBuf>,
    /// The site's program that starts the command, and the `PATH` by which that finds its own.
    program: Option<PathBuf>,
    path: String,
    /// The variables of the node.
    node: BTreeMap<String, String>,
    _guards: Vec<ItemGuard>,
}

impl SiteContainment {
    /// Makes ready what `kind` needs of `image`; `None` where Sconce makes the container.
    ///
    /// # Errors
    /// The tree cannot be made, or the site's program is not here.
    pub(crate) fn prepare(
        kind: JobContainment,
        image: &EnvironmentLayers,
        store: &Store,
        progress: &dyn Progress,
        env: &Env,
    ) -> Result<Option<Self>> {
        if kind.is_own() {
            return Ok(None);
        }
        let is_inside = matches!(kind, JobContainment::Slurm | JobContainment::Pyxis);
        if is_inside && !is_root_of(image, Path::new("/")) {
            return Err(OutsideContainer(kind.name()).into());
        }
        let program = match kind {
            JobContainment::Apptainer => Some(find_apptainer(env)?),
            _ => None,
        };
        let tree = flat_tree_part(kind)
            .filter(|_| !is_inside)
            .map(|part| ensure_flat_tree(image, part, store, progress))
            .transpose()?;
        let guards = sconce_store::acquire_item_guards(tree.iter().map(PathBuf::as_path))?;
        let node = NODE_VARIABLES.iter();
        let node = node.filter_map(|name| Some(((*name).to_owned(), env.var(name)?.to_owned())));
        Ok(Some(Self {
            kind,
            tree,
            program,
            path: env.var("PATH").unwrap_or(SYSTEM_PATH).to_owned(),
            node: node.collect(),
            _guards: guards,
        }))
    }

    pub(crate) fn kind(&self) -> JobContainment {
        self.kind
    }

    /// How a record says it.
    pub(crate) fn mode(&self) -> Containment {
        match self.kind {
            JobContainment::None => Containment::Host,
            _ => Containment::Container,
        }
    }

    /// Whether the run has a home of its own, and not its user's.
    pub(crate) fn has_own_home(&self) -> bool {
        self.mode() == Containment::Container
    }

    /// Makes the request one without a container where the run begins in this program's own surroundings. It comes before
    /// whatever asks how the run sees files.
    pub(crate) fn apply_to(&self, request: &mut RunRequest) {
        let mounts = match self.kind {
            JobContainment::Sconce | JobContainment::Apptainer => return,
            _ => drop_container(request).0,
        };
        if let Some(tree) = &self.tree {
            move_to_tree(request, tree, &mounts);
        }
        self.add_node_variables(request);
    }

    /// Has the site's program start the command, when all else is said of the request.
    pub(crate) fn wrap_command(&self, request: &mut RunRequest) {
        let (Some(program), Some(tree)) = (&self.program, &self.tree) else {
            return;
        };
        let (mounts, has_gpus) = drop_container(request);
        let container = apptainer::Container {
            program,
            image: tree,
            mounts: &mounts,
            workdir: &request.workdir,
            home: request.env.get("HOME").map(String::as_str),
            has_gpus,
        };
        request.command = container.command(&request.command);
        request.env = apptainer::variables(&request.env);
        request.workdir = PathBuf::from("/");
        self.add_node_variables(request);
        request.env.insert("PATH".to_owned(), self.path.clone());
    }

    /// What the request says counts.
    fn add_node_variables(&self, request: &mut RunRequest) {
        for (name, value) in &self.node {
            let entry = request.env.entry(name.clone());
            entry.or_insert_with(|| value.clone());
        }
    }
}

/// Takes from a request what only a container has: to the supervisor, the command becomes a program of this machine.
/// Returns the mounts, and whether there are cards of NVIDIA's.
fn drop_container(request: &mut RunRequest) -> (Vec<Mount>, bool) {
    let edits = std::mem::take(&mut request.edits);
    let mut nodes = edits.iter().flat_map(|edits| &edits.device_nodes);
    let has_gpus = nodes.any(|node| node.path.starts_with("/dev/nvidia"));
    request.root = RunRoot::Host;
    request.network = NetworkMode::Host;
    request.user = ContainerUser::Plain;
    request.address = None;
    request.ports.clear();
    (std::mem::take(&mut request.mounts), has_gpus)
}

/// Has the command begin with the Python and the packages of `tree`, where the mounts' sources are.
fn move_to_tree(request: &mut RunRequest, tree: &Path, mounts: &[Mount]) {
    request.workdir = outside_of(&request.workdir, mounts);
    let env = &mut request.env;
    for (name, value) in env.iter_mut() {
        *value = moved_value(name, value, tree);
    }
    let mut paths = editable_paths(tree, mounts);
    paths.extend(env.remove("PYTHONPATH"));
    if !paths.is_empty() {
        env.insert("PYTHONPATH".to_owned(), paths.join(":"));
    }
    let mut set = |name: &str, value: String| {
        env.entry(name.to_owned()).or_insert(value);
    };
    // Neither packages of the user's home, nor files in the store's tree.
    set("PYTHONNOUSERSITE", "1".to_owned());
    // Where the lock has no pip, the node's own comes after on PATH: it would install for the node's Python.
    set("PIP_REQUIRE_VIRTUALENV", "1".to_owned());
    set("PIP_CONFIG_FILE", "/dev/null".to_owned());
    set("PYTHONDONTWRITEBYTECODE", "1".to_owned());
    let bundle = tree.join("etc/ssl/cert.pem");
    if bundle.is_file() {
        set("SSL_CERT_FILE", bundle.to_string_lossy().into_owned());
    }
}

/// A variable's value in which the image's paths are those of `tree`. Other values are the user's own words.
fn moved_value(name: &str, value: &str, tree: &Path) -> String {
    if !matches!(name, "PATH" | "VIRTUAL_ENV") {
        return value.to_owned();
    }
    let moved = value.split(':').map(|path| {
        let is_moved = |prefix: &&str| Path::new(path).starts_with(prefix);
        match MOVED_PREFIXES.iter().any(is_moved) {
            true => format!("{}{path}", tree.display()),
            false => path.to_owned(),
        }
    });
    moved.collect::<Vec<_>>().join(":")
}

/// What a path inside is on the machine: that of the mount which it lies in, the last that fits.
pub(crate) fn outside_of(path: &Path, mounts: &[Mount]) -> PathBuf {
    let fitting = mounts
        .iter()
        .rev()
        .find_map(|mount| Some((mount, path.strip_prefix(&mount.target).ok()?)));
    match fitting {
        Some((mount, below)) if below.as_os_str().is_empty() => mount.source.clone(),
        Some((mount, below)) => mount.source.join(below),
        None => path.to_owned(),
    }
}

/// Where the modules of projects lie that are imported from their own folders: their wheels name the path inside.
fn editable_paths(tree: &Path, mounts: &[Mount]) -> Vec<String> {
    let list = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let sites =
        list(tree.join(&VENV[1..]).join("lib")).map(|version| version.path().join("site-packages"));
    let mut files: Vec<PathBuf> = sites
        .flat_map(list)
        .filter(|file| {
            let name = file.file_name();
            let name = name.to_string_lossy();
            name.starts_with("__editable__.") && name.ends_with(".pth")
        })
        .map(|file| file.path())
        .collect();
    files.sort();
    let texts = files
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok());
    let roots = texts.filter_map(|text| {
        let root = Path::new(text.lines().next()?).to_owned();
        let outside = outside_of(&root, mounts);
        (outside != root).then(|| outside.to_string_lossy().into_owned())
    });
    roots.collect()
}

#[cfg(test)]
#[path = "site_containment_tests.rs"]
mod tests;
