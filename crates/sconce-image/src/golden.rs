//! What an image leaves in the store and in files, byte for byte, in `tests/golden`.
//!
//! Held elsewhere: the documents themselves by sconce-oci, signatures by sconce-registry, the bytes of layers in
//! `layer/archive.rs`, squashfs in `squashfs/tests.rs`. What is only read (logins, other tools'
//! lists of packages and archives) is tried with real texts where it is read.

use sconce_oci::Digest;
use sconce_store::Store;
use sconce_testkit::golden_files::Goldens;
use sconce_testkit::golden_files::HeldBy::{self, Golden};

use crate::layer::{Compression, LayerBlob};
use crate::local_image::{self, LayerContents};
use crate::provenance::{LOCAL_BUILDER, ProvenanceInput, render_statement};
use crate::sbom::{self, SbomSubject};

const CONTENTS: HeldBy = Golden("contents.json");
const LAYER: HeldBy = Golden("layer.jsonl");
const DOCKER: HeldBy = Golden("docker-archive.txt");
const PROVENANCE: HeldBy = Golden("provenance.json");
const CYCLONEDX: HeldBy = Golden("cyclonedx.json");
const SPDX: HeldBy = Golden("spdx.json");

const TYPES: &[(&str, HeldBy)] = &[
    ("docker_archive::Entry", DOCKER),
    ("layer/mod::LayerBlob", LAYER),
    ("layer/packed::Compression", LAYER),
    ("local_image::LayerContents", CONTENTS),
    ("provenance::Statement", PROVENANCE),
    ("provenance::Resource", PROVENANCE),
    ("provenance::Sums", PROVENANCE),
    ("provenance::Predicate", PROVENANCE),
    ("provenance::Definition", PROVENANCE),
    ("provenance::Parameters", PROVENANCE),
    ("provenance::Parameter", PROVENANCE),
    ("provenance::Details", PROVENANCE),
    ("provenance::Builder", PROVENANCE),
    ("provenance::Program", PROVENANCE),
    ("sbom/cyclonedx::Document", CYCLONEDX),
    ("sbom/cyclonedx::Metadata", CYCLONEDX),
    ("sbom/cyclonedx::Tools", CYCLONEDX),
    ("sbom/cyclonedx::Tool", CYCLONEDX),
    ("sbom/cyclonedx::Component", CYCLONEDX),
    ("sbom/cyclonedx::NamedLicense", CYCLONEDX),
    ("sbom/cyclonedx::Hash", CYCLONEDX),
    ("sbom/cyclonedx::Choice", CYCLONEDX),
    ("sbom/cyclonedx::Text", CYCLONEDX),
    ("sbom/cyclonedx::Property", CYCLONEDX),
    ("sbom/cyclonedx::Dependency", CYCLONEDX),
    ("sbom/spdx::Document", SPDX),
    ("sbom/spdx::CreationInfo", SPDX),
    ("sbom/spdx::Package", SPDX),
    ("sbom/spdx::Checksum", SPDX),
    ("sbom/spdx::ExternalRef", SPDX),
    ("sbom/spdx::Relationship", SPDX),
    ("sbom/spdx::ExtractedLicense", SPDX),
];

fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).into()
}

const LAYER_BYTES: &[u8] = b"layer";

#[test]
fn record_of_a_layer_is_as_before() {
    let all = [Compression::Zstd, Compression::Gzip, Compression::None];
    let layers = all.map(|compression| LayerBlob {
        digest: Digest::hash_bytes(b"blob"),
        size_bytes: 4,
        diff_id: Digest::hash_bytes(LAYER_BYTES),
        unpacked_bytes: 5,
        entries: 6,
        compression,
    });
    let lines = layers
        .iter()
        .map(|layer| serde_json::to_string(layer).unwrap() + "\n");
    goldens().assert_same("layer.jsonl", lines.collect::<String>());
    let text = goldens().read_text("layer.jsonl");
    let read: Vec<LayerBlob> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(read, layers);
}

/// An image in the store that a test fills.
fn kept(store: &Store) -> local_image::LocalImage {
    store
        .put_blob(LAYER_BYTES, &Digest::hash_bytes(LAYER_BYTES).0)
        .unwrap();
    let contents = vec![LayerContents {
        layer: "base".to_owned(),
        packages: vec![("libc6".to_owned(), "2.41-12".to_owned())],
        unpacked_bytes: Some(LAYER_BYTES.len() as u64),
    }];
    local_image::LocalImage::store_image(
        store,
        goldens().read_text("manifest.json").into_bytes(),
        goldens().read_text("config.json").into_bytes(),
        contents,
    )
    .unwrap()
}

#[test]
fn files_of_an_image_in_the_store_are_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let image = kept(&store);
    image.assign_name(&store, "team/digits:1").unwrap();
    let tree = store.find_tree("image", &image.digest.to_hex()).unwrap();
    for name in ["manifest.json", "config.json", "contents.json"] {
        goldens().assert_same(name, std::fs::read(tree.join(name)).unwrap());
    }
    let mut names = String::new();
    for entry in std::fs::read_dir(store.root().join("images")).unwrap() {
        let entry = entry.unwrap();
        let text = std::fs::read_to_string(entry.path()).unwrap();
        names += &format!("{} {text}", entry.file_name().to_string_lossy());
    }
    goldens().assert_same("name.txt", names);
    assert_eq!(
        local_image::LocalImage::find(&store, "team/digits:1").unwrap(),
        image
    );
}

/// Names, headers and texts of a tar archive.
fn listing(archive: &[u8]) -> String {
    use std::io::Read as _;
    let mut listing = String::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        let (path, header) = (entry.path().unwrap(), entry.header());
        listing += &format!(
            "{} {:?} mode {:o} {}:{} time {}\n{text}\n",
            path.display(),
            header.entry_type(),
            header.mode().unwrap(),
            header.uid().unwrap(),
            header.gid().unwrap(),
            header.mtime().unwrap(),
        );
    }
    listing
}

#[test]
fn archive_for_docker_is_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let mut out = Vec::new();
    let to = (&mut out, std::path::Path::new("-"));
    let names = texts(["team/digits:1"]);
    crate::docker_archive::send_archive(
        &kept(&store),
        &names,
        &store,
        to,
        &sconce_schema::NoProgress,
    )
    .unwrap();
    goldens().assert_same("docker-archive.txt", listing(&out));
}

/// Without this program's version, and the name that depends on it.
fn unversioned(document: Vec<u8>) -> String {
    let mut text = String::from_utf8(document).unwrap();
    if let Some(at) = text.find("urn:uuid:") {
        text.replace_range(at..at + "urn:uuid:".len() + 36, "urn:uuid:UUID");
    }
    text.replace(env!("CARGO_PKG_VERSION"), "VERSION")
}

#[test]
fn lists_of_packages_are_as_before() {
    let lock = sbom::tests::fixture_lock();
    let facts = sbom::tests::fixture_metadata(&lock);
    let subject = SbomSubject {
        name: "digits",
        manifest: Some(Digest::hash_bytes(b"manifest")),
        lock: &lock,
        facts: &facts,
        created_s: 0,
    };
    for (name, document) in [
        ("cyclonedx.json", sbom::cyclonedx(&subject)),
        ("spdx.json", sbom::spdx(&subject)),
    ] {
        goldens().assert_same(name, unversioned(document));
        let packages = sbom::parse(goldens().read_text(name).as_bytes()).unwrap();
        assert_eq!(
            packages.len(),
            lock.wheels.len() + lock.debs.len(),
            "{name}"
        );
    }
}

#[test]
fn provenance_is_as_before() {
    let lock = sbom::tests::fixture_lock();
    let build = ProvenanceInput {
        image: "digits",
        manifest: Digest::hash_bytes(b"manifest"),
        spec: Some(Digest::hash_bytes(b"spec").0),
        lock_file: Digest::hash_bytes(b"lock").0,
        lock: &lock,
        builder: LOCAL_BUILDER,
    };
    goldens().assert_same("provenance.json", unversioned(render_statement(&build)));
}
