//! Items in one file: what comes out is what went in, once, whole and verified, or nothing.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;

use proptest::prelude::*;
use sconce_schema::{Bytes, Hint as _, NoProgress, Sha256, exit};
use sconce_store::item_pack::{ItemPack, PackError, PackedItem, UnpackOutcome};
use sconce_store::{Store, StoreError};
use sha2::Digest as _;

/// A store with two items, and their pack.
struct Packed {
    _dir: tempfile::TempDir,
    store: Store,
    pack: ItemPack,
}

fn names(items: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = items.iter();
    owned
        .map(|(kind, key)| ((*kind).to_owned(), (*key).to_owned()))
        .collect()
}

fn fill(tree: &Path) -> std::io::Result<()> {
    let long = "n".repeat(120);
    fs::create_dir_all(tree.join("bin"))?;
    fs::create_dir(tree.join("empty"))?;
    fs::write(tree.join("bin/tool"), "#!/bin/sh\n")?;
    fs::set_permissions(tree.join("bin/tool"), fs::Permissions::from_mode(0o755))?;
    fs::hard_link(tree.join("bin/tool"), tree.join("bin/same"))?;
    symlink("tool", tree.join("bin/link"))?;
    symlink(format!("../{long}/"), tree.join("bin/long-link"))?;
    symlink("/usr/bin/", tree.join("outside"))?;
    fs::create_dir(tree.join(&long))?;
    fs::write(tree.join(&long).join(&long), [7; 100_000])?;
    fs::write(tree.join(OsStr::from_bytes(b"\xff\xfe")), "")?;
    fs::hard_link(tree.join(&long).join(&long), tree.join("z-large"))?;
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::File::open(tree.join("bin/tool"))?.set_modified(then)
}

fn packed() -> Packed {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("store")).unwrap();
    store.build_tree("system", "bookworm", fill).unwrap();
    let build = |tree: &Path| fs::write(tree.join("six.py"), "six");
    store.build_tree("wheel", "six-1.17", build).unwrap();
    let items = names(&[("wheel", "six-1.17"), ("system", "bookworm")]);
    let pack = store.pack_items(&items, &NoProgress).unwrap();
    Packed {
        _dir: dir,
        store,
        pack,
    }
}

fn node() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("store")).unwrap();
    (dir, store)
}

fn count(store: &Store, dir: &str) -> usize {
    fs::read_dir(store.root().join(dir)).unwrap().count()
}

/// All that a tree says, but for owners, and times of directories and links.
fn listing(tree: &Path) -> Vec<(PathBuf, u32, u64, Vec<u8>, i64)> {
    let mut found = Vec::new();
    let mut left = vec![tree.to_owned()];
    while let Some(path) = left.pop() {
        let meta = path.symlink_metadata().unwrap();
        let name = path.strip_prefix(tree).unwrap().to_owned();
        let (bytes, time) = if meta.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|one| one.unwrap().path()));
            (Vec::new(), 0)
        } else if meta.is_symlink() {
            (
                fs::read_link(&path)
                    .unwrap()
                    .as_os_str()
                    .as_bytes()
                    .to_vec(),
                0,
            )
        } else {
            (fs::read(&path).unwrap(), meta.mtime())
        };
        let links = if meta.is_dir() { 1 } else { meta.nlink() };
        found.push((name, meta.mode(), links, bytes, time));
    }
    found.sort();
    found
}

#[test]
fn what_comes_out_is_what_went_in() {
    let Packed { _dir, store, pack } = packed();
    let (_dir, node) = node();
    let unpacked = node.unpack_items(&pack, &NoProgress).unwrap();
    assert_eq!(unpacked, UnpackOutcome::Unpacked(Bytes(pack.size_bytes)));
    for (kind, key) in [("system", "bookworm"), ("wheel", "six-1.17")] {
        let (there, here) = (store.find_tree(kind, key), node.find_tree(kind, key));
        assert_eq!(listing(&there.unwrap()), listing(&here.unwrap()));
    }
    assert_eq!(count(&node, "tmp"), 0);
    // What is there is not read again.
    fs::remove_file(&pack.file).unwrap();
    let again = node.unpack_items(&pack, &NoProgress).unwrap();
    assert_eq!(again, UnpackOutcome::AlreadyThere);
}

#[test]
fn a_pack_is_written_once_and_has_the_same_bytes_whoever_writes_it() {
    let Packed { _dir, store, pack } = packed();
    let items = names(&[("system", "bookworm"), ("wheel", "six-1.17")]);
    let before = pack.file.metadata().unwrap();
    let bytes = fs::read(&pack.file).unwrap();
    assert_eq!(Sha256(sha2::Sha256::digest(&bytes).into()), pack.sha256);
    assert_eq!(store.pack_items(&items, &NoProgress).unwrap(), pack);
    assert_eq!(store.find_packed_items(&items).as_ref(), Some(&pack));
    assert_eq!(store.find_packed_items(&items[1..]), None);
    assert_eq!(pack.file.metadata().unwrap().ino(), before.ino());
    let pruned = |days: u64| {
        let unused = std::time::Duration::from_secs(days * 24 * 3600);
        store.prune(unused, &|_, _| true, false).unwrap().kinds
    };
    assert!(pruned(1).is_empty());
    assert_eq!(store.measure_usage().unwrap().kinds["packed"].0, 2);
    // What says what is in it is damaged: it counts as none.
    let json = pack.file.with_extension("").with_extension("json");
    for text in ["", "{", "{\"file\":\"/etc/passwd\"}"] {
        fs::write(&json, text).unwrap();
        assert_eq!(store.pack_items(&items, &NoProgress).unwrap(), pack);
    }
    fs::write(&pack.file, b"short").unwrap();
    assert_eq!(store.pack_items(&items, &NoProgress).unwrap(), pack);
    assert_eq!(fs::read(&pack.file).unwrap(), bytes);
    // Another one for other items.
    let one = store.pack_items(&items[..1], &NoProgress).unwrap();
    assert_ne!(one.file, pack.file);
    assert_eq!(pruned(0)["packed"].0, 4);
    assert!(!pack.file.exists());
}

#[test]
fn tasks_of_one_machine_unpack_once() {
    let Packed { _dir, pack, .. } = packed();
    let (_dir, node) = node();
    let at_once = Barrier::new(4);
    let outcomes = thread::scope(|scope| {
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let store = Store::open(node.root()).unwrap();
                    at_once.wait();
                    store.unpack_items(&pack, &NoProgress).unwrap()
                })
            })
            .collect();
        tasks
            .into_iter()
            .map(|one| one.join().unwrap())
            .collect::<Vec<_>>()
    });
    let read = outcomes
        .iter()
        .filter(|one| **one != UnpackOutcome::AlreadyThere);
    assert_eq!(read.count(), 1);
}

#[test]
fn what_is_there_of_another_environment_stays_as_it_is() {
    let Packed { _dir, pack, .. } = packed();
    let (_dir, node) = node();
    let build = |tree: &Path| fs::write(tree.join("six.py"), "as it was here");
    let six = node.build_tree("wheel", "six-1.17", build).unwrap();
    let before = six.metadata().unwrap().ino();
    node.unpack_items(&pack, &NoProgress).unwrap();
    assert_eq!(six.metadata().unwrap().ino(), before);
    assert!(node.find_tree("system", "bookworm").is_some());
}

#[test]
fn what_a_killed_process_left_is_no_item_and_goes() {
    let Packed { _dir, pack, .. } = packed();
    let (_dir, node) = node();
    let left = format!("tmp/packed~{}/system~bookworm/content/bin", pack.sha256);
    fs::create_dir_all(node.root().join(&left)).unwrap();
    let node = Store::open(node.root()).unwrap();
    assert_eq!(
        (count(&node, "tmp"), node.find_tree("system", "bookworm")),
        (0, None)
    );
    fs::create_dir_all(node.root().join(&left)).unwrap();
    node.unpack_items(&pack, &NoProgress).unwrap();
    assert!(
        node.find_tree("system", "bookworm")
            .unwrap()
            .join("bin/tool")
            .is_file()
    );
}

fn refused(pack: &ItemPack) -> PackError {
    let (_dir, node) = node();
    let error = node.unpack_items(pack, &NoProgress).unwrap_err();
    assert_eq!(count(&node, "tmp"), 0);
    assert!(
        pack.items
            .iter()
            .all(|item| node.find_tree(&item.kind, &item.key).is_none())
    );
    assert!(!format!("{error}").is_empty());
    error
}

#[test]
fn other_bytes_are_told_by_their_digest() {
    let Packed { _dir, pack, .. } = packed();
    let bytes = fs::read(&pack.file).unwrap();
    for change in [
        |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2),
        |bytes: &mut Vec<u8>| bytes.push(0),
        |bytes: &mut Vec<u8>| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        },
        |bytes: &mut Vec<u8>| bytes.clear(),
    ] {
        let mut changed = bytes.clone();
        change(&mut changed);
        fs::write(&pack.file, changed).unwrap();
        let error = refused(&pack);
        let is_told = matches!(
            error,
            PackError::Store(StoreError::Hash { .. } | StoreError::Size { .. })
        );
        assert!(is_told, "{error:?}");
        assert_eq!(error.exit_code(), exit::VERIFY);
        assert!(error.hint().unwrap().contains("submit the job again"));
    }
    fs::remove_file(&pack.file).unwrap();
    let error = refused(&pack);
    assert!(
        matches!(error, PackError::Store(StoreError::Disk { .. })),
        "{error:?}"
    );
}

#[test]
fn a_full_disk_is_named_with_what_is_needed_and_free() {
    let Packed { _dir, mut pack, .. } = packed();
    pack.items[0].disk_bytes = 1 << 60;
    let error = refused(&pack);
    let PackError::NoSpace { need, have, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(need.0 > 1 << 60 && have.0 < need.0);
    assert_eq!(error.exit_code(), exit::STORE);
    assert!(error.hint().unwrap().contains("local-store"));
}

/// Name, link, kind, bytes.
type HostileEntry<'a> = (&'a [u8], &'a [u8], tar::EntryType, &'a [u8]);

/// A pack of these entries.
fn hostile(dir: &Path, entries: &[HostileEntry<'_>]) -> ItemPack {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, link, kind, bytes) in entries {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link);
        header.set_entry_type(*kind);
        header.set_mode(0o4755);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    pack_of(dir, &builder.into_inner().unwrap())
}

fn pack_of(dir: &Path, tar: &[u8]) -> ItemPack {
    let bytes = zstd::encode_all(tar, 1).unwrap();
    let file = dir.join("hostile.tar.zst");
    fs::write(&file, &bytes).unwrap();
    ItemPack {
        file,
        sha256: Sha256(sha2::Sha256::digest(&bytes).into()),
        size_bytes: bytes.len() as u64,
        items: vec![PackedItem {
            kind: "wheel".into(),
            key: "six".into(),
            disk_bytes: 1 << 20,
        }],
    }
}

#[test]
fn archives_that_reach_elsewhere_are_refused() {
    use tar::EntryType::{Block, Directory, Fifo, Link, Regular, Symlink};
    let dir = tempfile::tempdir().unwrap();
    let good: HostileEntry<'_> = (b"wheel/six/content", b"", Directory, b"");
    for bad in [
        (&b"../x"[..], &b""[..], Regular, &b"x"[..]),
        (b"/wheel/six/content/a", b"", Regular, b"x"),
        (b"wheel/six/boot", b"", Regular, b"x"),
        (b"wheel/six/content/../../../a", b"", Regular, b"x"),
        (b"wheel/seven/content/a", b"", Regular, b"x"),
        (b"wheel/six", b"", Directory, b""),
        (b"wheel/six/content/a", b"/etc/passwd", Link, b""),
        (b"wheel/six/content/a", b"wheel/seven/content/b", Link, b""),
        (
            b"wheel/six/content/a",
            b"wheel/six/content/../../b",
            Link,
            b"",
        ),
        (b"wheel/six/content/a", b"", Fifo, b""),
        (b"wheel/six/content/a", b"", Block, b""),
        (b"wheel/six/content/a", b"", Symlink, b""),
        (b"\xff/six/content/a", b"", Regular, b""),
        (b"wheel/six/content/large", b"", Regular, &[0; 2 << 20]),
    ] {
        let error = refused(&hostile(dir.path(), &[good, bad]));
        assert!(
            matches!(error, PackError::Archive { .. }),
            "{bad:?}: {error:?}"
        );
        assert_eq!(error.exit_code(), exit::VERIFY);
    }
    // A link that leads out of the tree is kept as text, and nothing is written through it.
    let out = (&b"wheel/six/content/out"[..], &b"/"[..], Symlink, &b""[..]);
    let through = (
        &b"wheel/six/content/out/x"[..],
        &b""[..],
        Regular,
        &b"x"[..],
    );
    let (_dir, node) = node();
    let pack = hostile(dir.path(), &[good, out, through]);
    let _ = node.unpack_items(&pack, &NoProgress);
    assert!(!Path::new("/x").exists());
    // An item that is not in it, and set-user-id bits, which no item has.
    let error = refused(&hostile(dir.path(), &[]));
    assert!(
        format!("{error}").contains("wheel six is not in it"),
        "{error}"
    );
    let file = (&b"wheel/six/content/a"[..], &b""[..], Regular, &b"x"[..]);
    let pack = hostile(dir.path(), &[good, file]);
    let (_dir, node) = self::node();
    node.unpack_items(&pack, &NoProgress).unwrap();
    let tree = node.find_tree("wheel", "six").unwrap();
    let mode = tree.join("a").metadata().unwrap().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn an_item_that_has_left_the_store_is_named() {
    let Packed { _dir, store, .. } = packed();
    let items = names(&[("wheel", "seven")]);
    let error = store.pack_items(&items, &NoProgress).unwrap_err();
    assert!(format!("{error}").contains("wheel seven"), "{error}");
    let special =
        |tree: &Path| std::os::unix::net::UnixListener::bind(tree.join("socket")).map(drop);
    store.build_tree("wheel", "socket", special).unwrap();
    let items = names(&[("wheel", "socket")]);
    let error = store.pack_items(&items, &NoProgress).unwrap_err();
    assert!(matches!(error, PackError::SpecialFile { .. }), "{error:?}");
    assert_eq!(
        fs::read_dir(store.root().join("packed")).unwrap().count(),
        2
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_bytes_panic_or_leave_anything(tar in prop::collection::vec(any::<u8>(), 0..2048)) {
        let dir = tempfile::tempdir().unwrap();
        refused(&pack_of(dir.path(), &tar));
    }
}
