//! What the store writes beside the bytes that it is given, as a listing in `tests/golden`: stores
//! outlive the Sconce that made them, and an older one may use the same folder at the same time.
//!
//! Held elsewhere: what an installed wheel has more than its archive (RECORD, INSTALLER) in
//! `tests/it/wheels.rs`. Nothing here goes through serde.

use std::fs;
use std::path::Path;

use sconce_schema::{NoProgress, Sha256};
use sconce_testkit::golden_files::Goldens;

use crate::{OnBusy, Store};

fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

/// Paths below `folder`, and the texts of files.
fn list(folder: &Path, prefix: &str, listing: &mut String) {
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    for path in paths {
        let name = format!("{prefix}{}", path.file_name().unwrap().to_string_lossy());
        if path.is_dir() {
            *listing += &format!("{name}/\n");
            list(&path, &format!("{name}/"), listing);
        } else {
            let text = fs::read_to_string(&path).unwrap();
            *listing += &format!("{name} {text:?}\n");
        }
    }
}

fn digest(bytes: &[u8]) -> Sha256 {
    use sha2::Digest as _;
    Sha256(sha2::Sha256::digest(bytes).into())
}

#[test]
fn layout_of_the_store_is_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    let store = Store::open_in_boot(&root, Some("one boot\n".to_owned())).unwrap();
    store.put_blob(b"synced", &digest(b"synced")).unwrap();
    store.sync().unwrap();
    store.put_blob(b"blob", &digest(b"blob")).unwrap();
    let build = |tree: &Path| fs::write(tree.join("file"), "text");
    store.build_tree("wheel", "six-1.17", build).unwrap();
    let work = store.open_partial_work("bytecode", "six", "compiles six", OnBusy::Leave);
    fs::write(work.unwrap().unwrap().content_dir().join("a"), "half").unwrap();
    drop(
        store
            .partial_folder("wheel-six", "fetches six", &NoProgress)
            .unwrap(),
    );
    let mut listing = String::new();
    list(&root, "", &mut listing);
    goldens().assert_same("store.txt", listing);

    // What stands in a listing is a store: another process of that boot goes on with all of it.
    let store = Store::open_in_boot(&root, Some("one boot\n".to_owned())).unwrap();
    assert!(store.find_tree("wheel", "six-1.17").is_some());
    let work = store.open_partial_work("bytecode", "six", "compiles six", OnBusy::Leave);
    let content = work.unwrap().unwrap().content_dir();
    assert_eq!(fs::read_to_string(content.join("a")).unwrap(), "half");
    // One of another boot trusts what was synced alone.
    let store = Store::open_in_boot(&root, Some("two\n".to_owned())).unwrap();
    assert!(
        store.find_blob(&digest(b"synced")).is_some()
            && store.find_blob(&digest(b"blob")).is_none()
    );
    assert!(store.find_tree("wheel", "six-1.17").is_none());
}

#[test]
fn note_in_a_lock_is_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let _held = store
        .acquire_exclusive("wheel", "six", "installs six", &NoProgress)
        .unwrap();
    let text = fs::read_to_string(store.root().join("locks/wheel~six")).unwrap();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    assert_eq!(lines[0], std::process::id().to_string());
    assert_eq!(
        lines[1],
        rustix::system::uname().nodename().to_string_lossy()
    );
    assert!(lines[2].parse::<u64>().unwrap() > 1_763_894_537);
    lines.splice(..3, ["PROCESS", "MACHINE", "SECONDS"].map(str::to_owned));
    goldens().assert_same("lock.txt", lines.join("\n") + "\n");
}
