//! The store itself: versions, trust, several users at once, full disks.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use sconce_schema::{Hint as _, NoProgress, exit};
use sconce_store::{OnBusy, Store, StoreError, TreeBuildError};

use crate::archive::{demo_with, entry, locked, sha256};
use crate::fetching::{fetcher, noise};
use crate::server::Server;

#[test]
fn a_newer_store_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("version"), "2\n").unwrap();
    let e = Store::open(folder.path()).unwrap_err();
    assert!(
        matches!(
            e,
            StoreError::Newer {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{e:?}"
    );
    assert_eq!(e.exit_code(), exit::STORE);
    let names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["version"]);
    fs::write(folder.path().join("version"), "a diary").unwrap();
    let e = Store::open(folder.path()).unwrap_err();
    assert!(matches!(e, StoreError::Version { .. }), "{e:?}");
}

#[test]
fn a_store_is_its_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("a/b/store");
    let store = Store::open(&root).unwrap();
    for path in ["a", "a/b", "a/b/store", "a/b/store/items"] {
        let mode = fs::metadata(folder.path().join(path))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700, "{path}");
    }
    assert!(store.root().is_absolute());
    assert_eq!(fs::read_to_string(root.join("version")).unwrap(), "1\n");
    Store::open(&root).unwrap();
}

#[test]
fn blobs_are_found_by_their_digest() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let bytes = noise(700_000);
    let digest = sha256(&bytes);
    let server = Server::file(bytes.clone());
    assert_eq!(store.find_blob(&digest), None);
    let size = Some(bytes.len() as u64);
    let path = store
        .fetch_blob(&fetcher(), &server.url("x.deb"), &digest, size, &NoProgress)
        .unwrap();
    assert!(fs::read(&path).unwrap() == bytes);
    assert_eq!(store.find_blob(&digest), Some(path.clone()));
    store
        .fetch_blob(&fetcher(), &server.url("x.deb"), &digest, None, &NoProgress)
        .unwrap();
    assert_eq!(server.requests().len(), 1);
    assert_eq!(store.put_blob(&bytes, &digest).unwrap(), path);
    let usage = store.measure_usage().unwrap();
    assert_eq!(usage.kinds["blob"].0, 1);
    assert!(usage.kinds["blob"].1.0 >= 700_000);
}

#[test]
fn blobs_with_other_bytes_are_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let digest = sha256(b"expected");
    let server = Server::file(b"received".to_vec());
    let fetch = |size| {
        store
            .fetch_blob(&fetcher(), &server.url("x"), &digest, size, &NoProgress)
            .unwrap_err()
    };
    assert!(matches!(fetch(None), StoreError::Hash { .. }));
    assert!(matches!(fetch(Some(8)), StoreError::Hash { .. }));
    assert!(matches!(
        fetch(Some(9)),
        StoreError::Size {
            expected: 9,
            found: 8,
            ..
        }
    ));
    let e = store.put_blob(b"received", &digest).unwrap_err();
    assert!(matches!(e, StoreError::Hash { .. }));
    assert_eq!(store.find_blob(&digest), None);
    assert!(store.measure_usage().unwrap().kinds.is_empty());
    assert_eq!(fs::read_dir(store.root().join("tmp")).unwrap().count(), 0);
}

#[test]
fn trees_are_built_once_by_whoever_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let built = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let store = Store::open(folder.path()).unwrap();
                let path = store
                    .build_tree("system", "key-1", |dir| {
                        built.fetch_add(1, Ordering::Relaxed);
                        fs::write(dir.join("a"), b"a")
                    })
                    .unwrap();
                assert_eq!(fs::read(path.join("a")).unwrap(), b"a");
                assert_eq!(store.find_tree("system", "key-1"), Some(path));
            });
        }
    });
    assert_eq!(built.into_inner(), 1);
}

#[test]
fn a_failed_build_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let e = store
        .build_tree("system", "x", |dir| {
            fs::create_dir(dir.join("locked")).unwrap();
            fs::write(dir.join("locked/a"), b"a").unwrap();
            fs::set_permissions(dir.join("locked"), fs::Permissions::from_mode(0o500)).unwrap();
            Err("no")
        })
        .unwrap_err();
    assert!(matches!(e, TreeBuildError::Build("no")));
    assert_eq!(store.find_tree("system", "x"), None);
    assert_eq!(fs::read_dir(store.root().join("tmp")).unwrap().count(), 0);
    store
        .build_tree("system", "x", |_| Ok::<_, String>(()))
        .unwrap();
}

#[test]
fn names_cannot_lead_out_of_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    for key in ["", "..", ".x", "a/b", "a~b", "a b", &"x".repeat(200)] {
        let e = store
            .build_tree("kind", key, |_| Ok::<_, String>(()))
            .unwrap_err();
        assert!(
            matches!(e, TreeBuildError::Store(StoreError::Name { .. })),
            "{key}"
        );
        assert_eq!(store.find_tree("kind", key), None);
    }
}

/// Makes the item look as if another boot had written it.
fn another_boot(store: &Store) {
    fs::write(store.root().join("items/system/x/boot"), "0").unwrap();
}

#[test]
fn what_the_disk_did_not_confirm_does_not_outlive_the_boot() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let build = |text: &'static str| {
        store
            .build_tree("system", "x", |dir| fs::write(dir.join("a"), text))
            .unwrap()
    };
    build("one");
    another_boot(&store);
    assert_eq!(store.find_tree("system", "x"), None);
    assert_eq!(
        store.sync().unwrap().items,
        0,
        "syncing does not make it good"
    );
    assert_eq!(store.find_tree("system", "x"), None);
    let path = build("two");
    assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "two");

    assert_eq!(store.sync().unwrap().items, 1);
    assert_eq!(store.sync().unwrap().items, 0);
    another_boot(&store);
    assert_eq!(store.find_tree("system", "x"), Some(path));
}

#[test]
fn work_of_the_dead_is_removed_and_work_of_the_living_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let left = folder.path().join("tmp/wheel~dead");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("x"), b"x").unwrap();
    store
        .build_tree("system", "alive", |dir| {
            fs::write(dir.join("a"), b"a")?;
            Store::open(folder.path()).unwrap();
            assert!(dir.join("a").exists());
            Ok::<_, std::io::Error>(())
        })
        .unwrap();
    assert!(!left.exists());
}

#[test]
fn two_threads_want_the_same_wheel() {
    let bytes = demo_with(vec![entry("demo/large.bin", &noise(2_000_000))]);
    let server = Server::file(bytes.clone());
    let folder = tempfile::tempdir().unwrap();
    let wheels = [locked(&server.url("demo.whl"), &bytes)];
    let trees: Vec<_> = std::thread::scope(|scope| {
        let work: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let store = Store::open(folder.path()).unwrap();
                    store
                        .ensure_wheels(&fetcher(), &wheels, "3.13", &NoProgress)
                        .unwrap()
                })
            })
            .collect();
        work.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(trees.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(server.requests().len(), 1);
}

/// A file system of 4 MiB; `None`, with the reason printed, where none can be mounted.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = rustix::mount::mount(
            "tmpfs",
            folder.path(),
            "tmpfs",
            rustix::mount::MountFlags::empty(),
            Some(c"size=4m"),
        );
        match mounted {
            Ok(()) => Some(Self(folder)),
            Err(e) => {
                let why = format!("a small disk cannot be mounted here ({e})");
                sconce_testkit::report_skip("tmpfs", why);
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn a_full_disk_is_said_and_leaves_nothing() {
    let Some(disk) = SmallDisk::mount() else {
        return;
    };
    let store = Store::open(disk.0.path()).unwrap();
    let files = [
        entry("demo/large.bin", &noise(9_000_000)),
        entry("demo/zeros.bin", &vec![0; 9_000_000]),
    ];
    for file in files {
        let bytes = demo_with(vec![file]);
        let server = Server::file(bytes.clone());
        let wheel = locked(&server.url("demo.whl"), &bytes);
        let e = store
            .ensure_wheels(&fetcher(), &[wheel], "3.13", &NoProgress)
            .unwrap_err();
        assert_eq!(e.exit_code(), exit::STORE, "{e:?}");
        assert!(e.hint().unwrap().contains("the disk is full"), "{e:?}");
    }
    let bytes = noise(5_000_000);
    let server = Server::file(bytes.clone());
    let e = store
        .fetch_blob(
            &fetcher(),
            &server.url("x"),
            &sha256(&bytes),
            None,
            &NoProgress,
        )
        .unwrap_err();
    assert_eq!(e.exit_code(), exit::STORE, "{e:?}");
    assert!(e.hint().unwrap().contains("the disk is full"), "{e:?}");
    assert_eq!(fs::read_dir(store.root().join("tmp")).unwrap().count(), 0);
    // And with room again it works, on a file system without direct writes.
    let bytes = demo_with(vec![entry("demo/large.bin", &noise(2_000_000))]);
    let server = Server::file(bytes.clone());
    let wheel = locked(&server.url("demo.whl"), &bytes);
    let trees = store
        .ensure_wheels(&fetcher(), &[wheel], "3.13", &NoProgress)
        .unwrap();
    let large = trees[0].join("opt/venv/lib/python3.13/site-packages/demo/large.bin");
    assert!(fs::read(large).unwrap() == noise(2_000_000));
}

#[test]
fn a_blob_is_read_verified_or_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let bytes = noise(3 << 20);
    let digest = sha256(&bytes);
    let read = |bytes: &[u8], size: usize| {
        let told = AtomicUsize::new(0);
        let tell = |n: u64| {
            told.fetch_add(n as usize, Ordering::Relaxed);
        };
        let done = store.read_blob("it", &mut { bytes }, &digest, size as u64, &tell);
        done.map(|path| (fs::read(path).unwrap(), told.into_inner()))
    };
    let cut = &bytes[..bytes.len() - 1];
    for (wrong, size) in [
        (cut, bytes.len()),
        (cut, cut.len()),
        (&bytes[..], cut.len()),
    ] {
        let e = read(wrong, size).unwrap_err();
        assert_eq!(e.exit_code(), exit::VERIFY, "{e:?}");
        assert_eq!(store.find_blob(&digest), None);
    }
    assert_eq!(
        read(&bytes, bytes.len()).unwrap(),
        (bytes.clone(), bytes.len())
    );
    // What is there is not read again.
    assert_eq!(read(b"", 0).unwrap(), (bytes.clone(), 0));
    let mut file = store.unnamed_file().unwrap();
    std::io::Write::write_all(&mut file, b"gone when it is closed").unwrap();
    assert_eq!(fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);
}

#[test]
fn what_nobody_uses_leaves_and_what_a_run_holds_stays() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let tree = |key: &str| {
        let build = |folder: &std::path::Path| fs::write(folder.join("file"), [7; 9000]);
        store.build_tree("demo", key, build).unwrap()
    };
    let days = |days: u64| Duration::from_secs(days * 24 * 3600);
    let used = |tree: &std::path::Path, ago: u64| {
        let file = fs::File::open(tree.with_file_name("boot")).unwrap();
        file.set_modified(SystemTime::now() - days(ago)).unwrap();
    };
    let keys = ["fresh", "old", "named", "running", "again"];
    let [fresh, old, named, running, again] = keys.map(tree);
    for tree in [&old, &named, &running, &again] {
        used(tree, 40);
    }
    // Asked for again, it counts as used.
    assert_eq!(store.find_tree("demo", "again").as_ref(), Some(&again));
    let held = sconce_store::acquire_item_guards(
        [running.join("file"), "/usr".into()].iter().map(|p| &**p),
    );
    let held = held.unwrap();
    assert_eq!(held.len(), 1);
    let keep = |kind: &str, key: &str| (kind, key) == ("demo", "named");
    let would = store.prune(days(30), &keep, true).unwrap();
    assert_eq!((would.kinds["demo"].0, would.held), (1, 1));
    assert!(would.total_bytes().0 >= 9000 && old.exists());
    assert_eq!(store.prune(days(30), &keep, false).unwrap(), would);
    assert_eq!(store.find_tree("demo", "old"), None);
    for tree in [&fresh, &named, &running, &again] {
        assert!(tree.join("file").is_file(), "{tree:?}");
    }
    drop(held);
    assert_eq!(
        store.prune(days(30), &keep, false).unwrap().kinds["demo"].0,
        1
    );
    assert_eq!(store.find_tree("demo", "running"), None);
    // A run that comes too late is told.
    let late = sconce_store::acquire_item_guards(std::iter::once(&*running)).unwrap_err();
    assert!(matches!(late, StoreError::Gone { .. }), "{late}");
    // A clock that was set back removes nothing.
    let file = fs::File::open(fresh.with_file_name("boot")).unwrap();
    file.set_modified(SystemTime::now() + days(400)).unwrap();
    assert_eq!(
        store
            .prune(days(0), &|_, key| key != "fresh", false)
            .unwrap()
            .kinds
            .len(),
        0
    );
}

#[test]
fn unfinished_work_is_continued_by_one_at_a_time_and_in_one_boot() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let take = || {
        let taken = store.open_partial_work("demo", "key", "makes it", OnBusy::Leave);
        taken.unwrap()
    };
    let partial = folder.path().join("partial/demo~key");
    let first = take().unwrap();
    fs::write(first.content_dir().join("a"), "a").unwrap();
    assert!(take().is_none());
    drop(first);
    let second = take().unwrap();
    assert!(second.content_dir().join("a").exists());
    drop(second);
    // After a power loss nothing tells whether the bytes of a file are its bytes.
    fs::write(partial.join("boot"), "another").unwrap();
    let third = take().unwrap();
    assert_eq!(fs::read_dir(third.content_dir()).unwrap().count(), 0);
    drop(third);
    // Nor what it is, of an older Sconce.
    fs::remove_file(partial.join("boot")).unwrap();
    fs::write(partial.join("content/a"), "a").unwrap();
    let fourth = take().unwrap();
    assert_eq!(fs::read_dir(fourth.content_dir()).unwrap().count(), 0);
    fs::write(fourth.content_dir().join("b"), "b").unwrap();
    let tree = fourth.publish(&store, "demo", "done").unwrap();
    assert!(tree.join("b").exists() && !partial.exists());
    // Whoever comes second keeps nothing.
    let late = take().unwrap();
    fs::write(late.content_dir().join("c"), "c").unwrap();
    assert_eq!(late.publish(&store, "demo", "done").unwrap(), tree);
    assert!(!tree.join("c").exists() && !partial.exists());
}

#[test]
fn unfinished_work_that_nobody_goes_on_with_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let take = |key| {
        store
            .open_partial_work("demo", key, "makes it", OnBusy::Leave)
            .unwrap()
            .unwrap()
    };
    let at = |name: &str| folder.path().join("partial").join(name);
    let age = |path: PathBuf| {
        let week = Duration::from_secs(8 * 24 * 3600);
        let file = fs::File::open(path).unwrap();
        file.set_modified(SystemTime::now() - week).unwrap();
    };
    drop((take("fresh"), take("old")));
    // As an older Sconce left it.
    fs::create_dir_all(at("demo~older/p")).unwrap();
    let held = take("held");
    age(at("demo~old/boot"));
    age(at("demo~held/boot"));
    age(at("demo~older"));
    Store::open(folder.path()).unwrap();
    assert!(at("demo~fresh").exists() && at("demo~held").exists());
    assert!(!at("demo~old").exists() && !at("demo~older").exists());
    drop(held);
    Store::open(folder.path()).unwrap();
    assert!(!at("demo~held").exists());
    // What a pull of an image left, with which another one goes on now.
    let pull = || {
        store
            .partial_folder("pull-0123", "pulls it", &NoProgress)
            .unwrap()
    };
    let (path, pulling) = pull();
    fs::write(path.join("layer"), "half").unwrap();
    age(path.clone());
    Store::open(folder.path()).unwrap();
    assert!(path.join("layer").exists());
    drop(pulling);
    Store::open(folder.path()).unwrap();
    assert!(!path.exists());
}
