//! One store of several machines, with locks that all of them see and with none: nobody waits for what is there, and
//! nobody removes what another one makes or has made.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use sconce_schema::{Hint as _, exit};
use sconce_store::{Machine, OnBusy, Store, StoreError};

fn open(root: &Path, boot: &str, lacks_locks: bool) -> Store {
    let machine = Machine {
        boot: Some(boot.to_owned()),
        is_shared: true,
        lacks_locks,
        ..Machine::default()
    };
    Store::open_as(root, machine).unwrap()
}

fn make(store: &Store, key: &str, text: &str) -> PathBuf {
    let built = store.build_tree("wheel", key, |tree| fs::write(tree.join("a"), text));
    built.unwrap()
}

fn count(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

/// Sets a path's time back by `days`.
fn age(path: &Path, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
    fs::File::open(path).unwrap().set_modified(then).unwrap();
}

/// Sixteen machines that make the same eight items at once; whose each becomes, it stays that one.
fn sixteen_machines(lacks_locks: bool) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let root = &dir.path().join("store");
    let (at_once, made) = (Barrier::new(16), AtomicUsize::new(0));
    let seen: Vec<BTreeSet<(usize, u64)>> = thread::scope(|scope| {
        let machines: Vec<_> = (0..16)
            .map(|number| {
                let (at_once, made) = (&at_once, &made);
                scope.spawn(move || {
                    let boot = format!("boot-{number}");
                    at_once.wait();
                    let mut seen = BTreeSet::new();
                    for round in 0..4 {
                        let store = open(root, &boot, lacks_locks);
                        for item in 0..8 {
                            let build = |tree: &Path| {
                                made.fetch_add(1, Ordering::Relaxed);
                                thread::sleep(Duration::from_millis(5));
                                fs::write(tree.join("a"), format!("{item}"))
                            };
                            let key = format!("item-{item}");
                            let tree = match round {
                                0 => store.build_tree("wheel", &key, build).unwrap(),
                                _ => store.find_tree("wheel", &key).unwrap(),
                            };
                            assert_eq!(
                                fs::read_to_string(tree.join("a")).unwrap(),
                                format!("{item}")
                            );
                            seen.insert((item, tree.metadata().unwrap().ino()));
                        }
                    }
                    seen
                })
            })
            .collect();
        machines
            .into_iter()
            .map(|one| one.join().unwrap())
            .collect()
    });
    assert!(
        seen.iter().all(|one| one == &seen[0] && one.len() == 8),
        "{seen:?}"
    );
    assert_eq!(count(&root.join("tmp")), 0);
    made.into_inner()
}

#[test]
fn sixteen_machines_make_each_item_once() {
    assert_eq!(sixteen_machines(false), 8);
}

#[test]
fn sixteen_machines_without_locks_keep_the_first_of_each() {
    assert!(sixteen_machines(true) >= 8);
}

#[test]
fn a_live_maker_elsewhere_is_neither_waited_for_nor_removed_where_no_lock_tells_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let (begun, may_end) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let store = open(root, "one", true);
            let build = |tree: &Path| {
                begun.wait();
                may_end.wait();
                fs::write(tree.join("a"), "slow")
            };
            store.build_tree("wheel", "six", build).unwrap()
        });
        begun.wait();
        let other = open(root, "two", true);
        let work = |store: &Store| {
            let work = store.open_partial_work("bytecode", "six", "compiles", OnBusy::Leave);
            work.unwrap().unwrap()
        };
        let (unfinished, beside) = (work(&other), work(&open(root, "one", true)));
        assert_ne!(unfinished.content_dir(), beside.content_dir());
        let tree = make(&other, "six", "quick");
        let before = tree.metadata().unwrap().ino();
        assert_eq!(count(&root.join("tmp")), 1);
        may_end.wait();
        assert_eq!(slow.join().unwrap(), tree);
        assert_eq!(tree.metadata().unwrap().ino(), before);
        assert!(unfinished.content_dir().is_dir());
        unfinished.give_up().unwrap();
        beside.give_up().unwrap();
    });
    assert_eq!(
        (count(&root.join("tmp")), count(&root.join("partial"))),
        (0, 0)
    );
}

#[test]
fn without_locks_what_makes_room_stays_for_whoever_has_it_open_and_nothing_is_pruned() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), "one", true);
    let tree = make(&store, "six", "as it was");
    let used = fs::File::open(tree.join("a")).unwrap();
    assert!(store.remove_item("wheel", "six").unwrap());
    assert_eq!(store.find_tree("wheel", "six"), None);
    let again = make(&open(dir.path(), "two", true), "six", "anew");
    assert_eq!(fs::read_to_string(again.join("a")).unwrap(), "anew");
    assert_eq!(std::io::read_to_string(used).unwrap(), "as it was");
    let pruned = store.prune(Duration::ZERO, &|_, _| false, false);
    let error = pruned.unwrap_err();
    assert!(matches!(error, StoreError::NoLocks { .. }), "{error:?}");
    assert_eq!(error.exit_code(), exit::STORE);
    assert!(error.hint().is_some());
    // A week later nobody has it any more.
    let aside = fs::read_dir(dir.path().join("tmp"))
        .unwrap()
        .next()
        .unwrap();
    age(&aside.unwrap().path(), 8);
    open(dir.path(), "two", true);
    assert_eq!(count(&dir.path().join("tmp")), 0);
}

/// A machine that went down may leave a lock that nobody gives back.
#[test]
fn a_maker_on_another_machine_is_not_waited_for_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine {
        boot: Some("two".to_owned()),
        is_shared: true,
        max_wait: Some(Duration::from_millis(300)),
        ..Machine::default()
    };
    let store = Store::open_as(dir.path(), machine).unwrap();
    let path = dir.path().join("locks/wheel~six");
    let lock = fs::File::create(&path).unwrap();
    lock.lock().unwrap();
    fs::write(
        &path,
        "17\na-machine-that-went-down\n1790000000\ninstalls six\n",
    )
    .unwrap();
    let half = dir.path().join("tmp/wheel~six/content");
    fs::create_dir_all(&half).unwrap();
    let tree = make(&store, "six", "beside");
    assert_eq!(fs::read_to_string(tree.join("a")).unwrap(), "beside");
    // What the other one makes is not touched.
    assert!(half.is_dir());
    assert_eq!(count(&dir.path().join("tmp")), 1);
}

/// The server's own disk beside its clients: it does not know of them before one of them says so.
#[test]
fn items_of_the_machine_that_shares_its_disk_are_taken_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let server = || Store::open_in_boot(dir.path(), Some("server".to_owned())).unwrap();
    let tree = make(&server(), "six", "of the server");
    let before = tree.metadata().unwrap().ino();
    assert!(!tree.with_file_name("synced").exists());
    let client = open(dir.path(), "client", false);
    assert_eq!(client.find_tree("wheel", "six"), Some(tree.clone()));
    assert_eq!(make(&client, "six", "of the client"), tree);
    assert_eq!(tree.metadata().unwrap().ino(), before);
    let tree = make(&server(), "seven", "of the server");
    assert!(tree.with_file_name("synced").exists());
    // Its clients see none of its locks.
    let pruned = server().prune(Duration::ZERO, &|_, _| false, false);
    assert!(
        matches!(pruned, Err(StoreError::OwnDisk { .. })),
        "{pruned:?}"
    );
    // A boot of the server's own that is over vouches for nothing there.
    let next = Store::open_in_boot(dir.path(), Some("next boot".to_owned())).unwrap();
    assert_eq!(next.find_tree("wheel", "six"), None);
    assert!(next.find_tree("wheel", "seven").is_some());
}

#[test]
fn what_is_there_is_used_and_guarded_without_a_file_that_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let tree = make(&open(dir.path(), "one", false), "six", "six");
    let listing = || {
        let mut files = Vec::new();
        let mut left = vec![dir.path().to_owned()];
        while let Some(path) = left.pop() {
            let meta = path.symlink_metadata().unwrap();
            files.push((
                path.clone(),
                meta.ino(),
                meta.mode(),
                meta.ctime(),
                meta.ctime_nsec(),
            ));
            if meta.is_dir() {
                left.extend(fs::read_dir(&path).unwrap().map(|one| one.unwrap().path()));
            }
        }
        files.sort();
        files
    };
    let before = listing();
    let store = open(dir.path(), "two", false);
    let found = store.find_tree("wheel", "six").unwrap();
    assert_eq!(make(&store, "six", "another"), found);
    let guards = sconce_store::acquire_item_guards(std::iter::once(&*found)).unwrap();
    assert_eq!((found == tree, guards.len()), (true, 1));
    store.sync().unwrap();
    assert_eq!(listing(), before);
    // It stays for as long as it is held.
    let pruned = store.prune(Duration::ZERO, &|_, _| false, false).unwrap();
    assert_eq!(pruned.held, 1);
}
