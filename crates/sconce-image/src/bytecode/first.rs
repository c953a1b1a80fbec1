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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::MetadataExt as _;

    /// Trees `a`, `b`, … in `folder`, lowest first.
    fn manifest(folder: &Path, names: &[&str]) -> ImageManifest {
        let layer = |name: &&str| Layer {
            name: (*name).to_owned(),
            path: folder.join(name),
        };
        ImageManifest {
            layers: names.iter().map(layer).collect(),
            env: BTreeMap::new(),
        }
    }

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn job(folder: &Path, layer: usize, name: &str) -> Job {
        Job {
            source: folder.join(name),
            output: folder.join(format!("{name}.out")),
            layer,
            key: name.to_owned(),
        }
    }

    #[test]
    fn what_a_command_executes_is_read_off_its_arguments() {
        let none = manifest(Path::new("/"), &[]);
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            Code::of(&words, &none)
        };
        let text = |text: &str| Some(Code::Text(text.into()));
        let module = |name: &str| Some(Code::Module(name.into()));
        let file = |path: &str| Some(Code::File(path.into()));
        for (words, code) in [
            (vec!["python", "-c", "import a", "b"], text("import a")),
            (vec!["python3.13", "-uc", "-1"], text("-1")),
            (vec!["/usr/bin/python3", "-cpass"], text("pass")),
            (vec!["python", "-m", "a.b", "-c", "x"], module("a.b")),
            (vec!["python", "-Bsm", "a"], module("a")),
            (vec!["python", "train.py", "-m", "a"], file("train.py")),
            (
                vec![
                    "python", "-u", "-X", "dev", "-Wignore", "-W", "error", "t.py",
                ],
                file("t.py"),
            ),
            (vec!["python", "-ü", "t.py"], file("t.py")),
            // Optimised, interactive, wrong, or no Python.
            (vec!["python", "-O", "t.py"], None),
            (vec!["python", "-"], None),
            (vec!["python"], None),
            (vec!["python", "-c"], None),
            (vec!["python", "-X"], None),
            (vec!["python", "--version"], None),
            (vec!["pythonic", "t.py"], None),
            (vec!["bash", "-c", "python t.py"], None),
            (vec!["/"], None),
            (vec![""], None),
            (vec![], None),
        ] {
            assert_eq!(of(&words), code, "{words:?}");
        }
    }

    #[test]
    fn a_script_of_the_environment_is_found_in_the_highest_tree() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = manifest(folder.path(), &["a", "b", "c"]);
        let tool = PathBuf::from("opt/venv/bin/tool");
        for tree in ["a", "b"] {
            write(&folder.path().join(tree).join(&tool), "#!python");
        }
        write(&folder.path().join("a/opt/venv/escape"), "");
        let of = |word: &str| Code::of(&[word.to_owned()], &manifest);
        assert_eq!(of("tool"), Some(Code::Script(1, tool.clone())));
        assert_eq!(of("/opt/venv/bin/tool"), Some(Code::Script(1, tool)));
        for other in [
            "",
            "..",
            "./tool",
            "/opt/venv/bin",
            "/opt/venv/bin/../escape",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn only_files_of_wheels_trees_are_extension_modules() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = manifest(folder.path(), &["a", "b"]);
        write(&folder.path().join("a/x.so"), "");
        write(&folder.path().join("b/d/x.so"), "");
        std::os::unix::fs::symlink("d/x.so", folder.path().join("b/link.so")).unwrap();
        let found = |line: &str| extension(line, &manifest);
        assert_eq!(found("1\td/x.so"), Some(folder.path().join("b/d/x.so")));
        for line in [
            "0\tx.so",
            "1\tlink.so",
            "1\td",
            "1\t",
            "1\t../a/x.so",
            "1\t/etc/passwd",
            "2\tx.so",
            "-1\tx.so",
            "99999999999999999999\tx.so",
            "1 d/x.so",
            "",
        ] {
            assert_eq!(found(line), None, "{line}");
        }
    }

    #[test]
    fn what_is_there_is_laid_over_the_trees() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = manifest(folder.path(), &["a", "b", "c bytecode"]);
        let jobs = [job(folder.path(), 0, "a"), job(folder.path(), 1, "b")];
        let pyc = |tree: &str, path: &str| folder.path().join(format!("{tree}.out")).join(path);
        write(&pyc("a", "p/__pycache__/one.cpython-313.pyc"), "one");
        // Under way when its process was killed.
        write(&pyc("a", "p/__pycache__/two.cpython-313.pyc.0a1b"), "tw");
        // Both have the file, and the higher one's is what is imported.
        write(&pyc("a", "p/__pycache__/both.cpython-313.pyc"), "low");
        write(&pyc("b", "p/__pycache__/both.cpython-313.pyc"), "high");
        write(&folder.path().join("b/p/both.py"), "");
        // The higher one's is not compiled yet.
        write(&pyc("a", "p/__pycache__/late.cpython-313.pyc"), "low");
        write(&folder.path().join("b/p/late.py"), "");
        write(&pyc("b", "q/r/__pycache__/three.cpython-313.pyc"), "three");

        let into = folder.path().join("into");
        fs::create_dir(&into).unwrap();
        assert_eq!(lay(&jobs, &manifest, &into).unwrap(), 3);
        let text = |path: &str| fs::read_to_string(into.join(path)).ok();
        let has = |path: &str| text(&format!("{path}.cpython-313.pyc"));
        assert_eq!(has("p/__pycache__/one").as_deref(), Some("one"));
        assert_eq!(has("p/__pycache__/both").as_deref(), Some("high"));
        assert_eq!(has("q/r/__pycache__/three").as_deref(), Some("three"));
        assert_eq!(has("p/__pycache__/late"), None);
        assert_eq!(fs::read_dir(into.join("p/__pycache__")).unwrap().count(), 2);
        assert_eq!(
            fs::metadata(into.join("q/r")).unwrap().mode() & 0o777,
            0o755
        );
    }

    #[test]
    fn trees_without_bytecode_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = manifest(folder.path(), &["a"]);
        let into = folder.path().join("into");
        fs::create_dir(&into).unwrap();
        let jobs = [job(folder.path(), 0, "a")];
        assert_eq!(lay(&jobs, &manifest, &into).unwrap(), 0);
        assert_eq!(fs::read_dir(&into).unwrap().count(), 0);
    }

    #[test]
    fn bytecode_that_is_done_is_only_read() {
        let folder = Path::new("/store");
        let names = ["debian", "torch 2", "numpy 1", "torch 2 bytecode"];
        let manifest = manifest(folder, &names);
        let (places, trees) = places(&[job(folder, 0, "debian")], &manifest);
        assert_eq!(trees, 3);
        let shown = |place: &Place| (place.target.clone(), place.writable);
        let shown: Vec<_> = places.iter().map(shown).collect();
        let expected = [
            ("trees/0/source", false),
            ("trees/0/bytecode", true),
            ("trees/1/source", false),
            ("trees/1/bytecode", false),
            ("trees/2/source", false),
        ];
        assert_eq!(shown, expected.map(|(target, w)| (target.to_owned(), w)));
        assert_eq!(places[3].source, folder.join("torch 2 bytecode"));
    }
}
