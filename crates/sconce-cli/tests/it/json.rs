//! What verbs print with `--json`, against golden files; `src/golden.rs` has the list of all verbs.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::BTreeSet;
use std::fs::File;
use std::time::{Duration, SystemTime};

use sconce_image::local_image::{LayerContents, LocalImage};
use sconce_oci::{Descriptor, Digest, ImageManifest, media};
use sconce_store::Store;
use sconce_testkit::golden_files::Goldens;
use serde_json::Value;

use crate::judging::home::{Home, with_site};

/// Compares a text with a golden file.
pub(crate) fn assert_same(name: &str, text: &str) {
    Goldens::new(env!("CARGO_MANIFEST_DIR")).assert_same(name, text);
}

/// Compares the keys of a value and the kinds of what they hold, where that itself is of the machine
/// or the hour.
pub(crate) fn assert_shape(name: &str, value: &Value) {
    let mut lines = BTreeSet::new();
    add_shape("", value, &mut lines);
    let lines: Vec<_> = lines.into_iter().collect();
    assert_same(name, &(lines.join("\n") + "\n"));
}

fn add_shape(path: &str, value: &Value, lines: &mut BTreeSet<String>) {
    let kind = match value {
        Value::Object(map) => {
            for (key, value) in map {
                add_shape(&format!("{path}.{key}"), value, lines);
            }
            return;
        }
        Value::Array(list) => {
            for value in list {
                add_shape(&format!("{path}[]"), value, lines);
            }
            "list"
        }
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "number",
        Value::String(_) => "text",
    };
    lines.insert(format!("{path} {kind}"));
}

const STORE: &str = ".local/share/sconce";
const UNNEEDED: &[u8] = b"nobody needs it";

/// A store of the home's user with an image of one layer, and a blob that nothing needs.
fn with_image(home: &Home) {
    let root = home.folder.path().join(STORE);
    let store = Store::open(&root).unwrap();
    for blob in [&b"layer"[..], UNNEEDED] {
        store.put_blob(blob, &Digest::hash_bytes(blob).0).unwrap();
    }
    let config = b"{}".to_vec();
    let layer = Descriptor::for_bytes(media::LAYER, b"layer");
    let manifest = ImageManifest::new(Descriptor::for_bytes(media::CONFIG, &config), vec![layer]);
    let contents = LayerContents {
        layer: "base".to_owned(),
        packages: Vec::new(),
        unpacked_bytes: None,
    };
    let image = LocalImage::store_image(
        &store,
        sconce_oci::to_json(&manifest),
        config,
        vec![contents],
    )
    .unwrap();
    image.assign_name(&store, "team/base:1").unwrap();
    image.assign_name(&store, "other:1").unwrap();
}

#[test]
fn images_and_what_is_pruned_are_as_before() {
    let home = Home::new();
    with_image(&home);
    let done = home.sconce(&["images", "--json"]);
    assert_eq!(done.code, 0, "{}", done.text());
    assert_same("images.json", &done.out);
    let unneeded = Digest::hash_bytes(UNNEEDED).to_hex();
    let item = home
        .folder
        .path()
        .join(STORE)
        .join("items/blob")
        .join(unneeded);
    let month = Duration::from_secs(31 * 24 * 3600);
    for entry in std::fs::read_dir(&item).unwrap() {
        let file = File::open(entry.unwrap().path()).unwrap();
        file.set_modified(SystemTime::now() - month).unwrap();
    }
    let done = home.sconce(&["prune", "--dry-run", "--json"]);
    assert_eq!(done.code, 0, "{}", done.text());
    assert_shape("prune.txt", &done.json());
}

/// A lock with a wheel of this version, and one more package of this name.
fn lock(version: &str, deb: &str) -> String {
    let digest = "0".repeat(64);
    format!(
        r#"version = 1
inputs = "{digest}"
[target]
release = "debian/trixie"
architecture = "amd64"
python = "3.13"
[versions]
python = "3.13.5"
glibc = "2.41"
[[wheel]]
name = "torch"
version = "{version}"
file = "torch-{version}-cp313-cp313-manylinux_2_28_x86_64.whl"
url = "https://example.org/torch-{version}-cp313-cp313-manylinux_2_28_x86_64.whl"
size = 10
sha256 = "{digest}"
[[deb]]
name = "{deb}"
version = "1"
architecture = "amd64"
url = "https://example.org/{deb}.deb"
size = 20
sha256 = "{digest}"
"#
    )
}

#[test]
fn difference_of_locks_is_as_before() {
    let home = Home::new();
    home.write("before.lock", &lock("2.7.0", "gone"));
    home.write("after.lock", &lock("2.8.0", "new"));
    let done = home.sconce(&["diff", "before.lock", "after.lock", "--json"]);
    assert_eq!(done.code, 1, "{}", done.text());
    assert_same("diff.json", &done.out);
}

#[test]
fn check_of_one_machine_has_the_keys_that_it_had() {
    let home = Home::new();
    with_site(&home);
    let mut said = home
        .sconce(&["check", "venv", "--gpu", "V100", "--json"])
        .json();
    // What they have is `sconce-schema`'s.
    said["findings"] = Value::Array(Vec::new());
    assert_shape("check.txt", &said);
}
