//! The compiler of bytecode, executed by this machine's own Python in place of an environment's (where
//! there is none, that is skipped by name), and who may go on with whose work.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, helpers that clippy does not know as such included"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use sconce_image::bytecode::{self, BytecodeJob, SCRIPT};
use sconce_schema::environment_layers::LayerTree;
use sconce_schema::{EnvironmentLayers, Lock, NoProgress, Sha256};
use sconce_store::Store;

fn python(arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new(sconce_testkit::find_program("python3")?);
    let output = command.args(["-I", "-S", "-B", "-c"]).args(arguments);
    Some(output.output().unwrap()).filter(|output| output.status.success())
}

/// What the files below `folder` hold, by name.
fn files(root: &Path, folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(root, &path, found);
        } else {
            let name = path.strip_prefix(root).unwrap().to_owned();
            found.insert(name, fs::read(&path).unwrap());
        }
    }
}

#[test]
fn what_does_not_compile_is_passed_over_and_what_is_there_is_kept() {
    let Some(output) = python(&["import sys; print(sys.implementation.cache_tag)"]) else {
        return;
    };
    let tag = String::from_utf8(output.stdout).unwrap();
    let pyc = |name: &str| PathBuf::from(format!("p/__pycache__/{name}.{}.pyc", tag.trim()));
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::create_dir_all(source.join("p")).unwrap();
    for (name, text) in [
        ("a.py", "x = ('a', 'not interned: ö', 1.5)\n"),
        ("b.py", "from .a import x\nclass B:\n    x = x\n"),
        ("broken.py", "def (:\n"),
        ("null.py", "x = 1\0\n"),
        ("data.txt", "x = 1\n"),
    ] {
        fs::write(source.join("p").join(name), text).unwrap();
    }
    std::os::unix::fs::symlink("/nowhere/at/all", source.join("p/link.py")).unwrap();
    let compiled = |into: &str| {
        let into = folder.path().join(into);
        fs::create_dir_all(&into).unwrap();
        let (source, output) = (source.to_str().unwrap(), into.to_str().unwrap());
        python(&[SCRIPT, source, output]).unwrap();
        let mut found = BTreeMap::new();
        files(&into, &into, &mut found);
        found
    };
    let whole = compiled("whole");
    let names: Vec<_> = whole.keys().cloned().collect();
    assert_eq!(names, [pyc("a"), pyc("b")]);

    // One that was killed goes on where it was, and comes out the same.
    let begun = folder.path().join("begun").join(pyc("a"));
    fs::create_dir_all(begun.parent().unwrap()).unwrap();
    fs::write(&begun, &whole[&pyc("a")]).unwrap();
    let before = fs::metadata(&begun).unwrap().modified().unwrap();
    assert_eq!(compiled("begun"), whole);
    assert_eq!(fs::metadata(&begun).unwrap().modified().unwrap(), before);
}

/// A store with one tree of sources.
struct Shelf {
    _folder: tempfile::TempDir,
    store: Store,
    manifest: EnvironmentLayers,
}

impl Shelf {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let path = store
            .build_tree("wheel", "six", |tree| fs::write(tree.join("six.py"), ""))
            .unwrap();
        let name = "six 1".to_owned();
        Self {
            _folder: folder,
            store,
            manifest: EnvironmentLayers {
                layers: vec![LayerTree { name, path }],
                env: BTreeMap::new(),
            },
        }
    }

    /// The work on the tree, as an environment of `lock` would do it; `None` where it is done.
    fn job(&self, lock: &Lock) -> Option<BytecodeJob> {
        let mut jobs = bytecode::list_missing(&self.manifest, lock, &self.store);
        assert!(jobs.len() <= 1);
        jobs.pop()
    }
}

/// All of the interpreter's packages and one more. The digest of `changed` is another one.
fn lock(changed: &str) -> Lock {
    let mut text = format!(
        "version = 2\ninputs = \"{0}\"\n[target]\nrelease = \"debian/trixie\"\narchitecture = \"amd64\"\n\
         python = \"3.13\"\n[versions]\npython = \"3.13.5-2\"\nglibc = \"2.41-12\"\n",
        "0".repeat(64)
    );
    for (number, name) in ["git"].iter().chain(&INTERPRETER).enumerate() {
        let first = if *name == changed { "f" } else { "0" };
        let digest = format!("{first}{number}").repeat(32);
        text += &format!(
            "[[deb]]\nname = \"{name}\"\nversion = \"1\"\narchitecture = \"amd64\"\n\
             url = \"file:///{name}.deb\"\nsize = 1\nsha256 = \"{digest}\"\n"
        );
    }
    Lock::parse(&text).unwrap()
}

const INTERPRETER: [&str; 6] = [
    "libc6",
    "libexpat1",
    "libpython3.13-minimal",
    "libpython3.13-stdlib",
    "python3.13-minimal",
    "zlib1g",
];

#[test]
fn bytecode_is_shared_by_those_with_one_interpreter_alone() {
    let shelf = Shelf::new();
    let store = &shelf.store;
    let job = shelf.job(&lock("")).unwrap();
    let work = job.try_start(store).unwrap().unwrap();
    fs::write(work.output_dir().join("six.pyc"), "").unwrap();
    work.finish(store).unwrap();
    assert_eq!(shelf.job(&lock("")), None);
    assert_eq!(shelf.job(&lock("git")), None);
    for package in INTERPRETER {
        assert!(shelf.job(&lock(package)).is_some(), "{package}");
    }
    // What the lock says of versions has no say, either way.
    let mut other = lock("");
    other.versions.python = "3.13.5-3".to_owned();
    assert_eq!(shelf.job(&other), None);
    // Where something is missing that the interpreter is known to need, every package counts.
    let mut odd = lock("");
    odd.debs.retain(|deb| deb.name != "zlib1g");
    let job = shelf.job(&odd).unwrap();
    odd.debs[0].sha256 = Sha256([7; 32]);
    assert_ne!(shelf.job(&odd).unwrap(), job);
}

#[test]
fn unfinished_work_is_continued_by_the_same_interpreter_alone() {
    let shelf = Shelf::new();
    let store = &shelf.store;
    let hostile = shelf.job(&lock("libpython3.13-minimal")).unwrap();
    let work = hostile.try_start(store).unwrap().unwrap();
    let made = |name: &str| fs::write(work.output_dir().join(name), "hostile").unwrap();
    fs::create_dir(work.output_dir().join("p")).unwrap();
    made("six.pyc");
    made("p/half.pyc.0011223344556677");
    drop(work);
    let honest = shelf.job(&lock("")).unwrap();
    let work = honest.try_start(store).unwrap().unwrap();
    assert_eq!(fs::read_dir(work.output_dir()).unwrap().count(), 0);
    // Its own is continued, but for what it had half written.
    let work = hostile.try_start(store).unwrap().unwrap();
    assert!(work.output_dir().join("six.pyc").exists());
    assert_eq!(
        fs::read_dir(work.output_dir().join("p")).unwrap().count(),
        0
    );
    // What a compiler that is being killed leaves meanwhile gets into no tree.
    fs::write(work.output_dir().join("p/late.pyc.00"), "").unwrap();
    work.finish(store).unwrap();
    let [_, six] = &layers(&shelf, "libpython3.13-minimal")[..] else {
        panic!("its bytecode is not there")
    };
    let mut found = BTreeMap::new();
    files(six, six, &mut found);
    assert_eq!(
        found.into_keys().collect::<Vec<_>>(),
        [Path::new("six.pyc")]
    );
}

/// The trees of an environment, with the bytecode that is there.
fn layers(shelf: &Shelf, changed: &str) -> Vec<PathBuf> {
    let mut manifest = shelf.manifest.clone();
    bytecode::add_layers(&mut manifest, &lock(changed), &shelf.store);
    manifest.layers.into_iter().map(|it| it.path).collect()
}

#[test]
fn of_many_at_once_each_comes_to_an_end() {
    let shelf = Shelf::new();
    let (store, job) = (&shelf.store, shelf.job(&lock("")).unwrap());
    // As beside a run: in no hurry.
    let slow = job.try_start(store).unwrap().unwrap();
    assert!(job.try_start(store).unwrap().is_none());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // Whoever does not find it done does it, one after the other.
                if let Some(work) = job.begin_beside(store, &NoProgress).unwrap() {
                    assert!(!job.is_done(store));
                    fs::write(work.output_dir().join("six.pyc"), "").unwrap();
                    work.finish(store).unwrap();
                }
                assert!(job.is_done(store));
            });
        }
    });
    slow.finish(store).unwrap();
    assert_eq!(layers(&shelf, "").len(), 2);
    let left = fs::read_dir(store.root().join("partial")).unwrap();
    assert_eq!(left.count(), 0);
}

/// A build that does the work beside a run is stopped, and the work beside the run is done: another build
/// has nothing to wait for.
#[test]
fn a_build_that_was_stopped_holds_no_other_up() {
    let shelf = Shelf::new();
    let (store, job) = (&shelf.store, shelf.job(&lock("")).unwrap());
    let slow = job.try_start(store).unwrap().unwrap();
    let stopped = job.begin_beside(store, &NoProgress).unwrap().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let (other, same) = (store.clone(), job.clone());
    std::thread::spawn(move || {
        tell.send(same.begin_beside(&other, &NoProgress).unwrap().is_none())
    });
    assert!(
        told.recv_timeout(Duration::from_millis(300)).is_err(),
        "it is not done yet"
    );
    fs::write(slow.output_dir().join("six.pyc"), "").unwrap();
    slow.finish(store).unwrap();
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true));
    drop(stopped);
}

/// Work that was stopped, and that another process has done from the beginning since.
#[test]
fn leftovers_of_done_work_are_cleared_and_others_stay() {
    let shelf = Shelf::new();
    let lock = lock("");
    let (store, job) = (&shelf.store, shelf.job(&lock).unwrap());
    let manifest = &shelf.manifest;
    let stopped = job.try_start(store).unwrap().unwrap();
    let other = job.begin_beside(store, &NoProgress).unwrap().unwrap();
    drop(stopped);
    let left = || fs::read_dir(store.root().join("partial")).unwrap().count();
    bytecode::clear_leftovers(manifest, &lock, store).unwrap();
    assert_eq!(left(), 2, "nothing is done yet");
    fs::write(other.output_dir().join("six.pyc"), "").unwrap();
    other.finish(store).unwrap();
    assert_eq!(left(), 1);
    bytecode::clear_leftovers(manifest, &lock, store).unwrap();
    assert_eq!(left(), 0);
}

#[test]
fn bytecode_that_left_the_store_is_missed_in_an_environment() {
    let shelf = Shelf::new();
    let (mine, other) = (lock("git"), lock("libc6"));
    let missed = |manifest: &EnvironmentLayers| bytecode::find_uncompiled(manifest, &mine);
    assert_eq!(missed(&shelf.manifest).as_deref(), Some("six 1"));

    let work = shelf.job(&mine).unwrap().try_start(&shelf.store).unwrap();
    work.unwrap().finish(&shelf.store).unwrap();
    // It is in the store, and not in an environment that was loaded before.
    assert_eq!(missed(&shelf.manifest).as_deref(), Some("six 1"));
    let mut loaded = shelf.manifest.clone();
    bytecode::add_layers(&mut loaded, &mine, &shelf.store);
    assert_eq!(missed(&loaded), None);
    // That of another interpreter is another one.
    assert!(bytecode::find_uncompiled(&loaded, &other).is_some());
}
