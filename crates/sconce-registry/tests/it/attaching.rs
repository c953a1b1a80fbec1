//! Artifacts that refer to images.

use std::sync::{Arc, Mutex};

use sconce_oci as oci;
use sconce_oci::{Descriptor, Digest, ImageIndex, ImageManifest, media};
use sconce_registry::{ManifestDocument, PushArtifact, ReferrerListing, RegistryError};
use sconce_schema::NoProgress;

use super::made::{blob, image, reference, registry, stock};
use super::model::{Model, answer};

/// An artifact of a kind, about an image.
fn artifact(about: &PushArtifact, kind: &str, text: &str) -> PushArtifact {
    let config = blob(media::EMPTY, b"{}".to_vec());
    let layer = blob("text/plain", text.as_bytes().to_vec());
    let mut manifest =
        ImageManifest::new(config.descriptor.clone(), vec![layer.descriptor.clone()]);
    manifest.artifact_type = Some(kind.to_owned());
    manifest.subject = Some(Descriptor::for_bytes(
        media::MANIFEST,
        &about.manifest.bytes,
    ));
    PushArtifact {
        layers: vec![layer],
        config,
        manifest: ManifestDocument {
            media_type: media::MANIFEST.to_owned(),
            bytes: oci::to_json(&manifest),
        },
    }
}

#[test]
fn a_registry_without_the_interface_gets_a_tag() {
    let model = Model::good();
    let image = image(&[10]);
    stock(&model, "a", "t", &image);
    let to = reference(&model.host(), "a:t");
    let subject = image.manifest.digest();
    let list = |kind| registry().list_referrers(&to, subject, kind).unwrap();
    assert_eq!(list(None), []);
    let (sbom, signature) = (
        artifact(&image, "x/sbom", "1"),
        artifact(&image, "x/sig", "2"),
    );
    for one in [&sbom, &signature, &sbom] {
        let attached = registry().attach_artifact(&to, one, &NoProgress).unwrap();
        assert_eq!(attached.listing, ReferrerListing::Tag);
        assert_eq!(attached.pushed.digest, one.manifest.digest());
    }
    let digests: Vec<_> = list(None).iter().map(|one| one.digest).collect();
    assert_eq!(
        digests,
        [sbom.manifest.digest(), signature.manifest.digest()]
    );
    let found = list(Some("x/sig"));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].artifact_type.as_deref(), Some("x/sig"));
    assert!(
        model
            .manifest(&format!("sha256-{}", subject.to_hex()))
            .is_some()
    );
    // The image's own tag is where it was.
    assert_eq!(model.manifest("t").unwrap(), image.manifest.bytes);

    let no_subject = registry().attach_artifact(&to, &image, &NoProgress);
    assert!(matches!(no_subject, Err(RegistryError::Incomplete { .. })));
}

#[test]
fn a_registry_with_the_interface_is_asked() {
    let image = image(&[10]);
    let subject = image.manifest.digest();
    let listed: Arc<Mutex<Vec<Descriptor>>> = Arc::default();
    let shared = Arc::clone(&listed);
    let model = Model::with(move |request, _| {
        let path = request.path();
        if path.contains("/referrers/") {
            let all = shared.lock().unwrap();
            // One a page.
            let page: usize = request.query("n").map_or(0, |n| n.parse().unwrap());
            let index = ImageIndex::new(all.iter().skip(page).take(1).cloned().collect());
            let link = format!("Link: <{path}?n={}>; rel=\"next\"", page + 1);
            let more = if page + 1 < all.len() {
                link
            } else {
                "X: y".to_owned()
            };
            let head = format!("200 OK\r\nContent-Type: {}\r\n{more}", media::INDEX);
            return answer(&head, oci::to_json(&index));
        }
        let put = request.method == "PUT" && path.contains("/manifests/");
        put.then(|| answer(&format!("201 Created\r\nOCI-Subject: {subject}"), ""))
            .flatten()
    });
    stock(&model, "a", "t", &image);
    let to = reference(&model.host(), "a:t");
    for number in 0..3 {
        let one = artifact(&image, "x/sbom", &number.to_string());
        let attached = registry().attach_artifact(&to, &one, &NoProgress).unwrap();
        assert_eq!(attached.listing, ReferrerListing::Registry);
        let entry = Descriptor::for_bytes(media::MANIFEST, &one.manifest.bytes);
        listed.lock().unwrap().push(entry);
    }
    let found = registry().list_referrers(&to, subject, None).unwrap();
    assert_eq!(found, *listed.lock().unwrap());
}

#[test]
fn lists_that_mislead() {
    let subject = Digest::hash_bytes(b"x");
    let index = |count: u8| {
        let entries = (0..count).map(|n| Descriptor::for_bytes(media::MANIFEST, &[n]));
        oci::to_json(&ImageIndex::new(entries.collect()))
    };
    // A list that never ends, and one that goes on elsewhere.
    let away = Model::good();
    let elsewhere = away.server.url("/v2/a/referrers/x");
    for (link, most) in [("?n=1", 40), (elsewhere.as_str(), 1)] {
        let head = format!(
            "200 OK\r\nContent-Type: {}\r\nLink: <{link}>; rel=\"next\"",
            media::INDEX
        );
        let model = Model::with(move |_, _| answer(&head, index(3)));
        let to = reference(&model.host(), "a:t");
        assert!(registry().list_referrers(&to, subject, None).is_ok());
        assert!(model.server.requests().len() <= most);
    }
    assert!(away.server.requests().is_empty());
    // A page for people under every address is no list.
    let model = Model::with(|request, _| {
        let list = request.path().contains("/referrers/");
        list.then(|| answer("200 OK\r\nContent-Type: text/html", "<html>"))
            .flatten()
    });
    let to = reference(&model.host(), "a:t");
    assert_eq!(registry().list_referrers(&to, subject, None).unwrap(), []);
}
