//! The bytecode that a command is about to import.
//!
//! An import of torch compiles 1,080 modules, one after the other, where no bytecode is there. So
//! before a Python command whose trees lack theirs, a few processes compile what it imports when it
//! starts, into the folders where the trees' own bytecode is collected; and what is in those is
//! laid over the trees for this run. Whoever compiles a file makes the same bytes, so it matters
//! to nothing but time how much of that is done, by whom, and in which order.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use sconce_schema::manifest::{ImageManifest, Layer, VENV};

use super::Job;

/// The program that compiles, for the environment's own interpreter:
/// `python -I -S -B -c SCRIPT ROOT TREES SITE KIND WHAT`, as its second part says.
pub const SCRIPT: &str = concat!(include_str!("pyc.py"), include_str!("first.py"));

/// What a command has the interpreter execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Code {
    /// `python -c TEXT`.
    Text(String),
    /// `python -m NAME`.
    Module(String),
    /// `python FILE`, as the command names it.
    File(PathBuf),
    /// A script that a package of the environment brings (`torchrun`): the layer it is in, and its
    /// path there.
    Script(usize, PathBuf),
}

impl Code {
    /// What `command` executes; `None` where that is no Python, or cannot be told.
    #[must_use]
    pub fn of(command: &[String], manifest: &ImageManifest) -> Option<Self> {
        let (program, arguments) = command.split_first()?;
        if is_python(Path::new(program).file_name()?.to_str()?) {
            return of_python(arguments);
        }
        let bin = Path::new(VENV).join("bin");
        let path = match program.contains('/') {
            true => PathBuf::from(program),
            false => bin.join(program),
        };
        let path = path.strip_prefix("/").ok()?.to_owned();
        if !path.starts_with(bin.strip_prefix("/").ok()?) || !is_plain(&path) {
            return None;
        }
        let has = |at: &usize| is_file(&manifest.layers[*at].path.join(&path));
        let layer = (0..manifest.layers.len()).rev().find(has)?;
        Some(Self::Script(layer, path))
    }
}

/// Whether `name` is an interpreter's: `python`, `python3`, `python3.13`.
fn is_python(name: &str) -> bool {
    name.strip_prefix("python")
        .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

/// What an interpreter with these arguments executes (python(1)).
fn of_python(arguments: &[String]) -> Option<Code> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let Some(flags) = argument.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            return (argument != "-").then(|| Code::File(argument.into()));
        };
        if flags.starts_with('-') {
            // `--version`, `--help`, `--check-hash-based-pycs MODE`: nothing to be fast for.
            return None;
        }
        for (at, flag) in flags.char_indices() {
            let rest = &flags[at + flag.len_utf8()..];
            let mut value = || match rest {
                "" => arguments.next().cloned(),
                rest => Some(rest.to_owned()),
            };
            match flag {
                'c' => return value().map(Code::Text),
                'm' => return value().map(Code::Module),
                'W' | 'X' => {
                    value()?;
                    break;
                }
                // Optimised code has bytecode of its own.
                'O' | 'h' | 'V' | '?' => return None,
                _ => {}
            }
        }
    }
    None
}

fn is_plain(path: &Path) -> bool {
    path.components()
        .all(|part| matches!(part, Component::Normal(_)))
}

fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_file())
}

/// Reads a line that [`SCRIPT`] prints: the file of an extension module in one of `manifest`'s
/// trees. `None` for anything else, as the line was made from what packages hold, and for the
/// system tree, whose files are small and in memory.
#[must_use]
pub fn extension(line: &str, manifest: &ImageManifest) -> Option<PathBuf> {
    let (tree, path) = line.split_once('\t')?;
    let at = tree.parse::<usize>().ok().filter(|at| *at > 0)?;
    let tree = manifest.layers.get(at)?;
    let path = Path::new(path);
    let file = tree.path.join(path);
    (is_plain(path) && is_file(&file)).then_some(file)
}

/// A folder as [`SCRIPT`] wants to see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Where it is.
    pub source: PathBuf,
    /// Its path below ROOT.
    pub target: String,
    /// Whether it is written to.
    pub writable: bool,
}

/// The trees of `manifest` and their bytecode, which `jobs` make where it is missing, as
/// [`SCRIPT`] wants to see them, and how many trees they are.
#[must_use]
pub fn places(jobs: &[Job], manifest: &ImageManifest) -> (Vec<Place>, usize) {
    let is_bytecode = super::is_bytecode;
    let trees = manifest.layers.iter().take_while(|l| !is_bytecode(l));
    let mut places = Vec::new();
    let mut count = 0;
    for (at, tree) in trees.enumerate() {
        count = at + 1;
        places.push(Place {
            source: tree.path.clone(),
            target: format!("trees/{at}/source"),
            writable: false,
        });
        let job = jobs.iter().find(|job| job.layer == at);
        let finished = || {
            let name = super::layer_name(tree);
            manifest.layers.iter().find(|layer| layer.name == name)
        };
        let bytecode = job.map(|job| &job.output);
        let bytecode = bytecode.or_else(|| finished().map(|layer| &layer.path));
        places.extend(bytecode.map(|source| Place {
            source: source.clone(),
            target: format!("trees/{at}/bytecode"),
            writable: job.is_some(),
        }));
    }
    (places, count)
}

/// The layer that [`lay`] has filled.
#[must_use]
pub fn layer(path: PathBuf) -> Layer {
    Layer {
        name: format!("first imports{}", super::LAYER),
        path,
    }
}

/// Lays what the jobs have so far into the empty folder `into`, as one layer over the trees: files
/// there are the jobs' own (hard links), and stay what they are while the jobs go on. Gives their
/// number.
///
/// # Errors
/// A folder or a link that cannot be made.
pub fn lay(jobs: &[Job], manifest: &ImageManifest, into: &Path) -> io::Result<usize> {
    let mut laid = 0;
    for job in jobs {
        // A later tree covers an earlier one's source, whose bytecode must not be taken for its.
        let later = manifest.layers.get(job.layer + 1..).unwrap_or_default();
        let covering: Vec<&Path> = later
            .iter()
            .filter(|layer| !super::is_bytecode(layer))
            .map(|layer| layer.path.as_path())
            .collect();
        laid += lay_folder(&job.output, Path::new(""), &covering, into)?;
    }
    Ok(laid)
}

/// As [`lay`], the folder `at` of one job's output. `covering` are trees that have this folder.
fn lay_folder(output: &Path, at: &Path, covering: &[&Path], into: &Path) -> io::Result<usize> {
    let entries = match fs::read_dir(output.join(at)) {
        Ok(entries) => entries,
        // The compiler has made nothing of this tree, or is done with it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut laid = 0;
    let mut is_made = false;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let path = at.join(&name);
        if entry.file_type()?.is_dir() {
            let there: Vec<&Path> = match name == "__pycache__" {
                true => covering.to_vec(),
                false => covering
                    .iter()
                    .copied()
                    .filter(|tree| tree.join(&path).is_dir())
                    .collect(),
            };
            laid += lay_folder(output, &path, &there, into)?;
            continue;
        }
        let Some(source) = source_of(&path) else {
            continue;
        };
        if covering.iter().any(|tree| tree.join(&source).exists()) {
            continue;
        }
        let target = into.join(&path);
        if !is_made {
            make_folders(into, at)?;
            is_made = true;
        }
        match fs::hard_link(output.join(&path), &target) {
            Ok(()) => laid += 1,
            // It is done, and a layer of its own the next time; or of two trees, which both have it.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(laid)
}

/// Makes `at` and the folders above it, below `into`. Those of the highest layer give the merged
/// ones their mode, whatever the umask.
fn make_folders(into: &Path, at: &Path) -> io::Result<()> {
    let mut folder = into.to_owned();
    for part in at.components() {
        folder.push(part);
        match fs::create_dir(&folder) {
            Ok(()) => fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The source of the bytecode file `path` (PEP 3147); `None` for what is not whole yet.
fn source_of(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?.strip_suffix(".pyc")?;
    let (module, _tag) = name.rsplit_once('.')?;
    let folder = path.parent()?.parent()?;
    Some(folder.join(format!("{module}.py")))
}
