//! Images of registries that come into the store.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

// The registry in memory that the registry client is tested against.
#[path = "../../../sconce-registry/tests/it/made.rs"]
#[expect(dead_code, reason = "the registry's own tests use all of it")]
mod made;
#[path = "../../../sconce-registry/tests/it/model.rs"]
#[expect(dead_code, reason = "the registry's own tests use all of it")]
mod model;
#[path = "../../../sconce-registry/tests/it/server.rs"]
#[expect(dead_code, reason = "the registry's own tests use all of it")]
mod server;

use std::collections::BTreeMap;
use std::fs;

use sconce_image::publish;
use sconce_schema::{Hint as _, NoProgress};
use sconce_store::Store;

use made::{amd64, image, reference, registry, stock};
use model::Model;

#[test]
fn a_layer_of_the_store_is_not_fetched() {
    let (first, second) = (image(&[50_000, 7]), image(&[50_000, 7, 900]));
    let model = Model::good();
    stock(&model, "a", "t", &first);
    stock(&model, "a", "u", &second);
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let pull = |tag: &str| {
        let from = reference(&model.host(), &format!("a:{tag}"));
        publish::pull(&registry(), &from, &amd64(), &store, &NoProgress).unwrap()
    };
    assert_eq!(pull("t").digest, first.manifest.digest());
    let before = model.server.requests().len();
    assert_eq!(pull("u").digest, second.manifest.digest());
    let requests = model.server.requests();
    let blobs = requests[before..]
        .iter()
        .filter(|r| r.path().contains("/blobs/"));
    let fetched: Vec<_> = blobs.map(|r| r.path().to_owned()).collect();
    let wanted = [&second.config, &second.layers[2]].map(|blob| blob.descriptor.digest);
    assert_eq!(fetched.len(), 2, "{fetched:?}");
    for (path, digest) in fetched.iter().zip(wanted) {
        assert!(path.ends_with(&digest.to_string()), "{path}");
    }
    assert_eq!(
        fs::read_dir(store.root().join("partial")).unwrap().count(),
        0
    );
}

#[test]
fn a_damaged_layer_is_named_and_not_pushed() {
    let image = image(&[50_000]);
    let model = Model::good();
    stock(&model, "a", "t", &image);
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let from = reference(&model.host(), "a:t");
    let pull = || publish::pull(&registry(), &from, &amd64(), &store, &NoProgress).unwrap();
    let digest = image.layers[0].descriptor.digest.0;
    for damage in [vec![7; 50_000], Vec::new()] {
        let local = pull();
        let path = store.find_blob(&digest).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, damage).unwrap();
        let other = Model::good();
        let to = reference(&other.host(), "b:t");
        let facts = BTreeMap::new();
        let pushed = publish::push(&registry(), &local, &to, &[], &facts, &store, &NoProgress);
        let error = pushed.unwrap_err();
        assert!(
            error.to_string().contains("in the store is damaged"),
            "{error}"
        );
        assert!(!error.hint().unwrap().contains("mirror"));
        assert_eq!((error.exit_code(), store.find_blob(&digest)), (6, None));
    }
    // It comes again.
    pull();
    assert!(store.find_blob(&digest).is_some());
}
