//! One store, many processes and machines: who waits for whom, and what nobody takes away.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, SystemTime};

use sconce_schema::{NoProgress, Progress, WaitCause};
use sconce_store::{OnBusy, Store, StoreError, TreeBuildOptions};

/// After this long, something hangs.
const HANGS: Duration = Duration::from_secs(60);

fn store(folder: &Path) -> Store {
    Store::open(folder).unwrap()
}

/// The same store as another machine sees it.
fn machine(folder: &Path, boot: &str) -> Store {
    Store::open_in_boot(folder, Some(boot.to_owned())).unwrap()
}

fn make(store: &Store, key: &str, text: &str) -> PathBuf {
    let built = store.build_tree("wheel", key, |tree| fs::write(tree.join("a"), text));
    built.unwrap()
}

fn text(tree: &Path) -> String {
    fs::read_to_string(tree.join("a")).unwrap()
}

fn hold(tree: &Path) -> impl Drop + use<> {
    struct Stays(Vec<sconce_store::ItemGuard>);
    impl Drop for Stays {
        fn drop(&mut self) {
            self.0.clear();
        }
    }
    Stays(sconce_store::acquire_item_guards(std::iter::once(tree)).unwrap())
}

/// What `work` gives, unless it waits for something that the caller has.
fn without_waiting<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(work()));
    told.recv_timeout(HANGS).expect("it waits for a run")
}

/// Keeps what it is told of waits.
#[derive(Default)]
struct Waits(Mutex<Vec<Option<WaitCause>>>);

impl Progress for Waits {
    fn stage(&self, _: &str, _: Option<u64>) {}
    fn advance(&self, _: &str, _: u64) {}
    fn done(&self, _: &str) {}
    fn note(&self, _: &str) {}
    fn waits(&self, _: &str, wait: Option<&WaitCause>) {
        self.0.lock().unwrap().push(wait.cloned());
    }
}

/// Twelve first runs of one spec: each makes the item or finds it made, and then has it stay. None
/// lets go before all have it.
#[test]
fn who_installs_waits_for_no_run() {
    const RUNS: usize = 12;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let made = without_waiting(move || {
        let (all_hold, made) = (Barrier::new(RUNS), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..RUNS {
                scope.spawn(|| {
                    let store = store(&path);
                    let built = store.build_tree("wheel", "six", |tree| {
                        made.fetch_add(1, Ordering::Relaxed);
                        // Long enough for the others to queue.
                        thread::sleep(Duration::from_millis(100));
                        fs::write(tree.join("a"), "six")
                    });
                    let _stays = hold(&built.unwrap());
                    all_hold.wait();
                });
            }
        });
        made.into_inner()
    });
    assert_eq!(made, 1);
}

/// A run holds the item already, and another one makes it anew at the moment, as far as it knows.
#[test]
fn a_good_item_in_use_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let first = store(folder.path());
    let tree = make(&first, "six", "six");
    let stays = [hold(&tree), hold(&tree), hold(&tree)];
    let path = folder.path().to_owned();
    let again = without_waiting(move || {
        thread::scope(|scope| {
            let makers: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| text(&make(&store(&path), "six", "another"))))
                .collect();
            makers
                .into_iter()
                .map(|one| one.join().unwrap())
                .collect::<Vec<_>>()
        })
    });
    assert_eq!(again, ["six"; 4]);
    drop(stays);
}

#[test]
fn what_another_machine_runs_is_taken_and_never_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (machine(folder.path(), "one"), machine(folder.path(), "two"));
    let tree = make(&one, "six", "of one");
    let stays = hold(&tree);
    let second = two.clone();
    let taken = without_waiting(move || {
        assert!(second.find_tree("wheel", "six").is_some());
        make(&second, "six", "of two")
    });
    assert_eq!((taken == tree, text(&tree)), (true, "of one".to_owned()));
    // Both have it stay; then the first one's run ends.
    let second_stays = hold(&taken);
    drop(stays);
    drop(one);
    assert_eq!(two.find_tree("wheel", "six"), Some(taken));
    drop((second_stays, two));
    // Nobody uses it any more, and nobody vouches for its bytes.
    let two = machine(folder.path(), "two");
    assert_eq!(two.find_tree("wheel", "six"), None);
    assert_eq!(text(&make(&two, "six", "of two")), "of two");
}

#[test]
fn nothing_removes_what_another_machine_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (machine(folder.path(), "one"), machine(folder.path(), "two"));
    let tree = make(&one, "six", "of one");
    let long_ago = SystemTime::now() - Duration::from_secs(400 * 24 * 3600);
    let used = fs::File::open(tree.with_file_name("boot")).unwrap();
    used.set_modified(long_ago).unwrap();
    let stays = hold(&tree);
    let pruned = two.prune(Duration::ZERO, &|_, _| false, false).unwrap();
    assert_eq!((pruned.kinds.len(), pruned.held), (0, 1));
    assert!(!two.remove_item("wheel", "six").unwrap());
    machine(folder.path(), "three");
    let refuse = TreeBuildOptions {
        name: "six",
        work: "makes it anew",
        progress: &NoProgress,
        accept: &|tree| text(tree) == "of two",
    };
    // It goes on only when the run has ended.
    let (begun, has_begun) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        begun.send(()).unwrap();
        let build = |tree: &Path| fs::write(tree.join("a"), "of two");
        tell.send(two.build_tree_with("wheel", "six", refuse, build).unwrap())
    });
    has_begun.recv().unwrap();
    let early = told.recv_timeout(Duration::from_millis(300));
    assert_eq!((early.ok(), text(&tree)), (None, "of one".to_owned()));
    drop(stays);
    assert_eq!(text(&told.recv_timeout(HANGS).unwrap()), "of two");
}

/// Two machines that make and hold the same few items over and over: whoever holds one has it whole.
#[test]
fn two_machines_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    without_waiting(move || {
        thread::scope(|scope| {
            for (number, boot) in ["one", "two", "one", "two", "three"].iter().enumerate() {
                let path = &path;
                scope.spawn(move || {
                    let store = machine(path, boot);
                    for round in 0..40 {
                        let key = format!("key-{}", (number + round) % 3);
                        let tree = make(&store, &key, &key);
                        match sconce_store::acquire_item_guards(std::iter::once(&*tree)) {
                            Ok(_stays) => (0..3).for_each(|_| assert_eq!(text(&tree), key)),
                            // Between the two it was made anew: a run would ask for it again.
                            Err(e) => assert!(matches!(e, StoreError::Gone { .. }), "{e}"),
                        }
                        if round % 7 == number {
                            store.remove_item("wheel", &key).unwrap();
                            store.prune(Duration::ZERO, &|_, _| false, false).unwrap();
                        }
                        store.sync().unwrap();
                        store.measure_usage().unwrap();
                    }
                });
            }
        });
    });
    let left = store(folder.path());
    assert_eq!(fs::read_dir(left.root().join("tmp")).unwrap().count(), 0);
}

#[test]
fn a_wait_names_who_is_waited_for_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let waits = Waits::default();
    let (begun, may_end) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let making = TreeBuildOptions {
                name: "six",
                work: "installs six",
                progress: &NoProgress,
                accept: &|_| true,
            };
            let build = |tree: &Path| {
                begun.wait();
                may_end.wait();
                fs::write(tree.join("a"), "six")
            };
            store
                .build_tree_with("wheel", "six", making, build)
                .unwrap();
        });
        scope.spawn(|| {
            begun.wait();
            let making = TreeBuildOptions {
                name: "six",
                work: "wants six too",
                progress: &waits,
                accept: &|_| true,
            };
            let build = |_: &Path| Err(std::io::Error::other("it is made once"));
            store
                .build_tree_with("wheel", "six", making, build)
                .unwrap();
        });
        while waits.0.lock().unwrap().is_empty() {
            thread::sleep(Duration::from_millis(5));
        }
        may_end.wait();
    });
    let told = waits.0.into_inner().unwrap();
    let [Some(WaitCause::Maker(maker)), None] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(maker.pid, std::process::id());
    assert_eq!(maker.work, "installs six");
    let said = WaitCause::Maker(maker.clone()).to_string();
    assert!(said.ends_with(", which installs six"), "{said}");
}

/// Who makes a tree apart may be stopped; others make it meanwhile, or wait for each other.
#[test]
fn a_tree_that_is_made_apart_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let making = TreeBuildOptions {
        name: "six",
        work: "installs six",
        progress: &NoProgress,
        accept: &|_| true,
    };
    let left = || fs::read_dir(store.root().join("tmp")).unwrap().count();
    let (begun, may_end) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let build = |tree: &Path| {
                begun.wait();
                may_end.wait();
                fs::write(tree.join("a"), "slow")
            };
            store
                .build_tree_apart("wheel", "six", making, build)
                .unwrap()
        });
        begun.wait();
        let other = store.clone();
        let tree = without_waiting(move || make(&other, "six", "quick"));
        // What is there is not made again.
        let never = |_: &Path| Err(std::io::Error::other("it is there"));
        let found = store.build_tree_apart("wheel", "six", making, never);
        assert_eq!(found.unwrap(), tree);
        // Opening the store removes nothing of who lives.
        Store::open(store.root()).unwrap();
        assert_eq!(left(), 1);
        may_end.wait();
        assert_eq!(slow.join().unwrap(), tree);
        assert_eq!(text(&tree), "quick");
    });
    assert_eq!(left(), 0);
    let build = |tree: &Path| fs::write(tree.join("a"), "apart");
    let tree = store
        .build_tree_apart("wheel", "seven", making, build)
        .unwrap();
    assert_eq!((text(&tree), left()), ("apart".to_owned(), 0));
    // As a killed process leaves it.
    fs::create_dir_all(store.root().join("tmp/wheel-apart~six/content/a")).unwrap();
    Store::open(store.root()).unwrap();
    assert_eq!(left(), 0);
}

/// One process has the work and was stopped; what it is for comes from elsewhere.
#[test]
fn unfinished_work_is_waited_for_until_it_is_not_needed() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let take = |store: &Store, taken: OnBusy<'_>| {
        store
            .open_partial_work("demo", "six", "compiles six", taken)
            .unwrap()
    };
    let stopped = take(&store, OnBusy::Leave).unwrap();
    let waits = std::sync::Arc::new(Waits::default());
    let (waiting, progress) = (store.clone(), waits.clone());
    let waiter = thread::spawn(move || {
        let taken = OnBusy::Wait {
            is_done: &|| waiting.find_tree("wheel", "six").is_some(),
            progress: &*progress,
        };
        take(&waiting, taken).is_none()
    });
    while waits.0.lock().unwrap().is_empty() {
        assert!(!waiter.is_finished(), "it does not wait");
        thread::sleep(Duration::from_millis(5));
    }
    make(&store, "six", "six");
    assert!(without_waiting(move || waiter.join().unwrap()));
    let told = waits.0.lock().unwrap();
    let [Some(WaitCause::Maker(maker)), None] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(maker.work, "compiles six");
    drop(stopped);
}

/// The locks of a store that was made readable to others are its owner's alone.
#[test]
fn nobody_else_can_hold_a_lock() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let locks = folder.path().join("locks");
    fs::create_dir(&locks).unwrap();
    fs::set_permissions(&locks, fs::Permissions::from_mode(0o755)).unwrap();
    let store = store(folder.path());
    make(&store, "six", "six");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&locks), 0o700);
    for lock in fs::read_dir(&locks).unwrap() {
        assert_eq!(mode(&lock.unwrap().path()), 0o600);
    }
}

#[test]
fn many_open_a_new_store_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| store(&root));
        }
    });
    let mut names: Vec<_> = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["items", "locks", "partial", "tmp", "version"]);
}
