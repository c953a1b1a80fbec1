//! What pulling makes of registries.

use std::fs;
use std::path::Path;

use sconce_oci::{Digest, media};
use sconce_registry::{
    BlobCount, Mirror, PulledImage, PushArtifact, Registry, RegistryError, RegistrySettings,
};
use sconce_schema::{Hint as _, NoProgress, exit};

use super::made::{
    amd64, bytes, hex, image, image_for, index, noise, reference, registry, settings, stock,
};
use super::model::{Fault, Model, answer};
use super::server::{Request, Server};

fn pull(model: &Model, folder: &Path) -> Result<PulledImage, RegistryError> {
    let from = reference(&model.host(), "a:t");
    registry().pull_image(&from, &amd64(), folder, &|_| false, &NoProgress)
}

fn is_layer(request: &Request, image: &PushArtifact) -> bool {
    let digest = image.layers[0].descriptor.digest.to_string();
    request.path().ends_with(&digest)
}

/// A model that holds an image, with faults at its only layer.
fn faulty(
    image: &PushArtifact,
    fault: impl Fn(&Request, usize) -> Option<Fault> + Send + Sync + 'static,
) -> Model {
    let own = image.clone();
    let model = Model::with(move |request, before| match is_layer(request, &own) {
        true => fault(request, before),
        false => None,
    });
    stock(&model, "a", "t", image);
    model
}

#[test]
fn an_image_arrives_whole_and_is_kept() {
    let image = image(&[500_000, 0, 3]);
    let model = Model::good();
    stock(&model, "a", "t", &image);
    let folder = tempfile::tempdir().unwrap();
    let pulled = pull(&model, folder.path()).unwrap();
    assert_eq!(pulled.resolved.digest, image.manifest.digest());
    assert_eq!(pulled.resolved.document, image.manifest);
    assert!(pulled.resolved.index.is_none());
    assert_eq!(pulled.layers.len(), 3);
    for (path, layer) in pulled.layers.iter().zip(&image.layers) {
        assert_eq!(fs::read(path).unwrap(), bytes(layer));
    }
    assert_eq!(fs::read(&pulled.config).unwrap(), bytes(&image.config));
    assert_eq!(
        (pulled.fetched.blobs, pulled.kept),
        (4, BlobCount::default())
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);

    // What is there and right is not fetched again; what is there and wrong is.
    fs::write(&pulled.layers[0], noise(500_000, 5)).unwrap();
    let again = pull(&model, folder.path()).unwrap();
    assert_eq!((again.fetched.blobs, again.kept.blobs), (1, 3));
    assert_eq!(fs::read(&again.layers[0]).unwrap(), bytes(&image.layers[0]));
}

#[test]
fn an_index_leads_to_the_platform() {
    let model = Model::good();
    let (one, other) = (image(&[10]), image_for("arm64", &[20]));
    let list = index(&[("arm64", &other), ("amd64", &one)]);
    stock(&model, "a", "one", &one);
    stock(&model, "a", "other", &other);
    model.put_manifest("t", media::INDEX, &list.bytes);
    let folder = tempfile::tempdir().unwrap();
    let pulled = pull(&model, folder.path()).unwrap();
    assert_eq!(pulled.resolved.digest, list.digest());
    assert_eq!(pulled.resolved.document.digest(), one.manifest.digest());
    assert_eq!(pulled.resolved.index, Some(list));

    let riscv = sconce_oci::Platform {
        architecture: "riscv64".to_owned(),
        ..amd64()
    };
    for tag in ["t", "one"] {
        let from = reference(&model.host(), &format!("a:{tag}"));
        let error = registry()
            .pull_image(&from, &riscv, folder.path(), &|_| false, &NoProgress)
            .unwrap_err();
        assert!(
            matches!(&error, RegistryError::Platform { offered, .. } if offered.contains("linux/amd64")),
            "{error}"
        );
        assert_eq!(error.exit_code(), exit::NO_SOLUTION);
    }
}

#[test]
fn an_index_that_lies_about_sizes_or_nests_for_ever() {
    let one = image(&[10]);
    let model = Model::good();
    stock(&model, "a", "one", &one);
    let mut list = sconce_oci::ImageIndex::from_json(&index(&[("amd64", &one)]).bytes).unwrap();
    list.manifests[0].size += 1;
    model.put_manifest("t", media::INDEX, &sconce_oci::to_json(&list));
    let folder = tempfile::tempdir().unwrap();
    let error = pull(&model, folder.path()).unwrap_err();
    assert!(matches!(error, RegistryError::Size { .. }), "{error}");

    let mut inner = index(&[("amd64", &one)]);
    for _ in 0..8 {
        let mut entry = sconce_oci::Descriptor::for_bytes(media::INDEX, &inner.bytes);
        entry.platform = Some(amd64());
        let outer = sconce_oci::ImageIndex::new(vec![entry]);
        model.put_manifest("x", media::INDEX, &inner.bytes);
        inner.bytes = sconce_oci::to_json(&outer);
    }
    model.put_manifest("t", media::INDEX, &inner.bytes);
    let error = pull(&model, folder.path()).unwrap_err();
    assert!(matches!(error, RegistryError::Kind { .. }), "{error}");
}

#[test]
fn a_download_that_breaks_goes_on() {
    let image = image(&[2_000_000]);
    let model = faulty(&image, |_, before| match before {
        0 => Some(Fault::CutAnswer(450_000)),
        1 => answer("503 Service Unavailable", ""),
        2 => Some(Fault::CutAnswer(400_000)),
        _ => None,
    });
    let folder = tempfile::tempdir().unwrap();
    let pulled = pull(&model, folder.path()).unwrap();
    assert_eq!(
        fs::read(&pulled.layers[0]).unwrap(),
        bytes(&image.layers[0])
    );
    let requests = model.server.requests();
    let ranges: Vec<_> = requests
        .iter()
        .filter(|request| is_layer(request, &image))
        .map(|request| request.header("range"))
        .collect();
    assert_eq!(
        ranges,
        [
            None,
            Some("bytes=450000-"),
            Some("bytes=450000-"),
            Some("bytes=850000-")
        ]
    );
}

#[test]
fn a_registry_without_ranges_is_read_again_from_the_beginning() {
    let image = image(&[900_000]);
    let whole = bytes(&image.layers[0]).to_vec();
    let model = faulty(&image, move |_, before| match before {
        0 => Some(Fault::CutAnswer(500_000)),
        _ => answer("200 OK", &whole),
    });
    let folder = tempfile::tempdir().unwrap();
    pull(&model, folder.path()).unwrap();
}

#[test]
fn wrong_bytes_are_not_kept() {
    let image = image(&[1000]);
    let other = noise(1000, 99);
    for (fault, code) in [
        (answer("200 OK", &other), exit::VERIFY),
        (answer("200 OK", &other[..999]), exit::VERIFY),
        (answer("200 OK", noise(1001, 1)), exit::VERIFY),
        (
            answer(
                "206 Partial Content\r\nContent-Range: bytes 0-999/1000",
                &other,
            ),
            exit::FETCH,
        ),
        (answer("204 No Content", ""), exit::FETCH),
        (answer("404 Not Found", ""), exit::FETCH),
    ] {
        let fault = std::sync::Mutex::new(fault);
        let model = faulty(&image, move |_, _| fault.lock().unwrap().take());
        let folder = tempfile::tempdir().unwrap();
        let error = pull(&model, folder.path()).unwrap_err();
        assert_eq!(error.exit_code(), code, "{error}");
        // The configuration alone is there.
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{error}: {left:?}");
    }
}

#[test]
fn wrong_ranges_are_refused() {
    for said in [
        "bytes 0-999/1000",
        "bytes 501-999/1000",
        "nonsense",
        "bytes 500-999/2000",
    ] {
        let image = image(&[1000]);
        let model = faulty(&image, move |request, _| match request.header("range") {
            None => Some(Fault::CutAnswer(500)),
            Some(_) => {
                let head = format!("206 Partial Content\r\nContent-Range: {said}");
                answer(&head, noise(500, 1))
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let error = pull(&model, folder.path()).unwrap_err();
        assert!(
            matches!(error, RegistryError::Protocol { .. }),
            "{said}: {error}"
        );
    }
}

#[test]
fn a_connection_that_never_gets_further_is_given_up() {
    let image = image(&[1000]);
    let model = faulty(&image, |_, _| Some(Fault::CutAnswer(0)));
    let folder = tempfile::tempdir().unwrap();
    let error = pull(&model, folder.path()).unwrap_err();
    assert!(
        matches!(
            error,
            RegistryError::BrokeOff {
                at: 0,
                total: 1000,
                tries: 5,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_manifest_without_end_is_not_read() {
    let endless = Server::start(|request, conn| {
        if request.target == "/v2/" {
            return conn.answer("200 OK", b"");
        }
        conn.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while conn.raw(b"1000\r\n") && conn.raw(&[b' '; 0x1000]) && conn.raw(b"\r\n") {}
    });
    let told = Server::start(|_, conn| conn.answer_some("200 OK", usize::MAX / 4, b"{}"));
    for server in [&endless, &told] {
        let from = reference(&server.host(), "a:t");
        let folder = tempfile::tempdir().unwrap();
        let error = registry()
            .pull_image(&from, &amd64(), folder.path(), &|_| false, &NoProgress)
            .unwrap_err();
        assert!(matches!(error, RegistryError::TooLarge { .. }), "{error}");
    }
}

#[test]
fn manifests_are_what_they_are_called() {
    let image = image(&[10]);
    let manifest = image.manifest.bytes.clone();
    let digest = image.manifest.digest();
    let folder = tempfile::tempdir().unwrap();
    let lying = format!(
        "200 OK\r\nContent-Type: {}\r\nDocker-Content-Digest: {digest}",
        media::MANIFEST
    );
    let mut other = manifest.clone();
    other.push(b' ');
    for (head, body, wanted) in [
        // By digest and by tag: other bytes than the digest says.
        (lying.clone(), other.clone(), format!("a@{digest}")),
        (lying, other, "a:t".to_owned()),
        // One thing in the header and another within.
        (
            format!("200 OK\r\nContent-Type: {}", media::INDEX),
            manifest.clone(),
            "a:t".to_owned(),
        ),
        (
            "200 OK\r\nContent-Type: text/html".to_owned(),
            manifest.clone(),
            "a:t".to_owned(),
        ),
        (
            format!("200 OK\r\nContent-Type: {}", media::MANIFEST),
            b"{".to_vec(),
            "a:t".to_owned(),
        ),
    ] {
        let model = Model::with(
            move |request, _| match request.path().contains("/manifests/") {
                true => answer(&head, &body),
                false => None,
            },
        );
        let from = reference(&model.host(), &wanted);
        let error = registry()
            .pull_image(&from, &amd64(), folder.path(), &|_| false, &NoProgress)
            .unwrap_err();
        assert!(
            matches!(
                error,
                RegistryError::Digest { .. } | RegistryError::Kind { .. }
            ),
            "{error}"
        );
    }
}

#[test]
fn an_image_that_does_not_hang_together() {
    let whole = image(&[10, 20]);
    // Its configuration knows of two layers.
    let fewer = super::made::put_together(whole.config.clone(), whole.layers[..1].to_vec());
    let mut manifest = sconce_oci::ImageManifest::from_json(&whole.manifest.bytes).unwrap();
    manifest.layers[1] = manifest.layers[0].clone();
    manifest.layers[1].size = 5;
    let mut two_sizes = whole.clone();
    two_sizes.manifest.bytes = sconce_oci::to_json(&manifest);
    manifest.layers = vec![manifest.layers[0].clone(); 2000];
    let mut many = whole.clone();
    many.manifest.bytes = sconce_oci::to_json(&manifest);
    for image in [fewer, two_sizes, many] {
        let model = Model::good();
        stock(&model, "a", "t", &image);
        let folder = tempfile::tempdir().unwrap();
        let error = pull(&model, folder.path()).unwrap_err();
        assert!(matches!(error, RegistryError::Incomplete { .. }), "{error}");
    }
}

#[test]
fn redirects_are_followed_within_bounds() {
    let image = image(&[5000]);
    let storage = Model::good();
    stock(&storage, "a", "t", &image);
    let away = storage.server.url(&format!(
        "/v2/a/blobs/{}?signature=secret",
        image.layers[0].descriptor.digest
    ));
    let model = faulty(&image, move |_, _| {
        answer(&format!("307 Temporary Redirect\r\nLocation: {away}"), "")
    });
    let folder = tempfile::tempdir().unwrap();
    pull(&model, folder.path()).unwrap();
    assert_eq!(storage.server.requests().len(), 1);

    for location in [
        "",
        "http://registry.example.org/x",
        "file:///etc/passwd",
        "/v2/a/loop",
    ] {
        let model = Model::with(move |request, _| {
            match request.path().contains("/manifests/") || request.path().ends_with("loop") {
                true => answer(&format!("302 Found\r\nLocation: {location}"), ""),
                false => None,
            }
        });
        let error = pull(&model, folder.path()).unwrap_err();
        assert!(
            matches!(
                error,
                RegistryError::Redirect { .. } | RegistryError::Plain { .. }
            ),
            "{location}: {error}"
        );
        assert!(model.server.requests().len() < 15);
    }
}

fn with_mirrors(model: &Model, mirrors: &[&Model]) -> Registry {
    let mirrors = mirrors.iter().map(|mirror| Mirror {
        of: model.host(),
        base: mirror.server.url("/cache/x/"),
    });
    Registry::new(RegistrySettings {
        mirrors: mirrors.collect(),
        ..settings()
    })
    .unwrap()
}

#[test]
fn mirrors_are_asked_first_and_not_believed() {
    let image = image(&[300_000, 20]);
    let model = Model::good();
    stock(&model, "a", "t", &image);
    // One fails, one has other bytes, one breaks off for good.
    let dead = Model::with(|_, _| answer("404 Not Found", ""));
    let wrong_bytes = Model::with({
        let image = image.clone();
        move |request, _| {
            is_layer(request, &image).then(|| Fault::Answer("200 OK".to_owned(), noise(300_000, 3)))
        }
    });
    stock(&wrong_bytes, "cache/x/a", "t", &image);
    let broken = Model::with({
        let image = image.clone();
        move |request, before| {
            let first = is_layer(request, &image) && before == 0;
            match (first, is_layer(request, &image)) {
                (true, _) => Some(Fault::CutAnswer(100_000)),
                (false, true) => answer("500 Oh", ""),
                _ => None,
            }
        }
    });
    stock(&broken, "cache/x/a", "t", &image);
    let folder = tempfile::tempdir().unwrap();
    let from = reference(&model.host(), "a:t");
    let registry = with_mirrors(&model, &[&dead, &wrong_bytes, &broken]);
    let pulled = registry
        .pull_image(&from, &amd64(), folder.path(), &|_| false, &NoProgress)
        .unwrap();
    assert_eq!(
        fs::read(&pulled.layers[0]).unwrap(),
        bytes(&image.layers[0])
    );
    // The registry itself was asked for the rest of that layer alone.
    let asked = model.server.requests();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].header("range"), Some("bytes=100000-"));

    // A sink cannot take back what it got.
    let mut sink = Vec::new();
    let registry = with_mirrors(&model, &[&wrong_bytes]);
    let layer = &image.layers[0].descriptor;
    let error = registry
        .fetch_blob(&from, layer, &mut sink, &NoProgress)
        .unwrap_err();
    assert!(matches!(error, RegistryError::Digest { .. }), "{error}");
}

#[test]
fn mirrors_serve_when_the_registry_is_gone() {
    let image = image(&[1000]);
    let mirror = Model::good();
    stock(&mirror, "cache/x/a", "t", &image);
    let model = Model::good();
    let registry = with_mirrors(&model, &[&mirror]);
    let from = reference(&model.host(), "a:t");
    drop(model);
    let folder = tempfile::tempdir().unwrap();
    registry
        .pull_image(&from, &amd64(), folder.path(), &|_| false, &NoProgress)
        .unwrap();
}

#[test]
fn a_blob_goes_into_a_sink_and_a_tag_is_looked_up() {
    let image = image(&[100_000]);
    let model = faulty(&image, |_, before| {
        (before == 0).then_some(Fault::CutAnswer(30_000))
    });
    let from = reference(&model.host(), "a:t");
    let mut sink = Vec::new();
    registry()
        .fetch_blob(&from, &image.layers[0].descriptor, &mut sink, &NoProgress)
        .unwrap();
    assert_eq!(hex(&sink), hex(bytes(&image.layers[0])));
    let digest = image.manifest.digest();
    assert_eq!(registry().resolve_digest(&from).unwrap(), Some(digest));
    let none = reference(&model.host(), "a:none");
    assert_eq!(registry().resolve_digest(&none).unwrap(), None);
    let document = registry()
        .fetch_document(&from, digest, &NoProgress)
        .unwrap();
    assert_eq!(document, image.manifest);
    let error = registry()
        .fetch_document(&from, Digest::hash_bytes(b"x"), &NoProgress)
        .unwrap_err();
    assert!(matches!(error, RegistryError::NotFound { .. }), "{error}");
    assert!(error.hint().is_some());
}

#[test]
fn a_folder_that_cannot_be_written_is_told() {
    let image = image(&[10]);
    let model = Model::good();
    stock(&model, "a", "t", &image);
    let folder = tempfile::tempdir().unwrap();
    let error = pull(&model, &folder.path().join("none")).unwrap_err();
    assert!(matches!(error, RegistryError::Disk { .. }), "{error}");
    assert_eq!(error.exit_code(), exit::STORE);
}
