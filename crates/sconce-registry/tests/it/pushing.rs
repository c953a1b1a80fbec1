//! What pushing makes of registries.

use std::fs;
use std::sync::Mutex;

use sconce_oci::media;
use sconce_registry::{Blob, BlobCount, BlobSource, Registry, RegistryError, RegistrySettings};
use sconce_schema::{Hint as _, NoProgress, Progress, WaitCause};

use super::made::{bytes, image, image_for, index, noise, reference, registry, settings};
use super::model::{Fault, Model, answer};
use super::server::{Request, Server};

fn is_upload(request: &Request, method: &str) -> bool {
    request.method == method && request.path().contains("/blobs/uploads/")
}

#[test]
fn blobs_then_configurations_then_manifests_then_the_tag() {
    let model = Model::good();
    let (one, other) = (
        image(&[10_000, 0, 70_000]),
        image_for("arm64", &[10_000, 5]),
    );
    let list = index(&[("amd64", &one), ("arm64", &other)]);
    let to = reference(&model.host(), "team/image:v1");
    let images = [one.clone(), other.clone()];
    let pushed = registry()
        .push_images(&to, &images, Some(&list), &[], &NoProgress)
        .unwrap();
    assert_eq!(pushed.digest, list.digest());
    // The layer that both have is sent once.
    let sizes = 10_000 + 70_000 + 5 + one.config.descriptor.size + other.config.descriptor.size;
    let sent = BlobCount {
        blobs: 6,
        bytes: sizes,
    };
    assert_eq!(pushed.uploaded, sent);
    assert_eq!((pushed.mounted, pushed.skipped), Default::default());
    assert_eq!(model.manifest("v1").unwrap(), list.bytes);
    for blob in one.layers.iter().chain([&one.config, &other.config]) {
        assert!(model.has_blob("team/image", bytes(blob)));
    }

    let puts: Vec<String> = model
        .server
        .requests()
        .iter()
        .filter(|request| request.method == "PUT")
        .map(|request| match request.query("digest") {
            Some(digest) => digest,
            None => request.path().rsplit('/').next().unwrap().to_owned(),
        })
        .collect();
    let at = |name: String| puts.iter().position(|put| *put == name).unwrap();
    let config = at(one.config.descriptor.digest.to_string());
    for layer in one.layers.iter().chain(&other.layers) {
        assert!(at(layer.descriptor.digest.to_string()) < config);
    }
    assert!(config < at(one.manifest.digest().to_string()));
    assert!(at(one.manifest.digest().to_string()) < at(list.digest().to_string()));
    assert_eq!(puts.last().unwrap(), "v1");

    let again = registry()
        .push_images(&to, &images, Some(&list), &[], &NoProgress)
        .unwrap();
    assert_eq!(again.skipped, sent);
    assert_eq!(again.uploaded, BlobCount::default());
}

#[test]
fn an_upload_that_breaks_goes_on_where_the_registry_got_to() {
    // The whole in one request breaks, and then the first piece.
    let model = Model::with(|request, before| match request.method.as_str() {
        "PUT" if is_upload(request, "PUT") && before == 0 => Some(Fault::CutRequest(300_000)),
        "PATCH" if before == 0 => Some(Fault::CutRequest(450_000)),
        _ => None,
    });
    let image = image(&[2_000_000]);
    let settings = RegistrySettings {
        piece_bytes: 500_000,
        parallel: 1,
        ..settings()
    };
    let to = reference(&model.host(), "a:t");
    let pushed = Registry::new(settings)
        .unwrap()
        .push_images(&to, std::slice::from_ref(&image), None, &[], &NoProgress)
        .unwrap();
    assert_eq!(pushed.uploaded.blobs, 2);
    assert!(model.has_blob("a", bytes(&image.layers[0])));
    let requests = model.server.requests();
    let ranges: Vec<_> = requests
        .iter()
        .filter_map(|request| request.header("content-range"))
        .collect();
    let want = [
        "300000-799999",
        "750000-1249999",
        "1250000-1749999",
        "1750000-1999999",
    ];
    assert_eq!(ranges, want);
}

#[test]
fn a_file_goes_in_pieces_where_that_is_wanted() {
    let model = Model::good();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("layer");
    let mut image = image(&[100_000]);
    fs::write(&path, bytes(&image.layers[0])).unwrap();
    let content = bytes(&image.layers[0]).to_vec();
    image.layers[0].content = BlobSource::File(path);
    let settings = RegistrySettings {
        whole_bytes: 50_000,
        piece_bytes: 40_000,
        ..settings()
    };
    let to = reference(&model.host(), "a:t");
    let registry = Registry::new(settings).unwrap();
    registry
        .push_images(&to, &[image], None, &[], &NoProgress)
        .unwrap();
    assert!(model.has_blob("a", &content));
    let lines = model.server.lines();
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.starts_with("PATCH"))
            .count(),
        3
    );
}

#[test]
fn a_lost_session_is_begun_anew() {
    let model = Model::with(|request, before| match request.method.as_str() {
        "PUT" if is_upload(request, "PUT") && request.path().ends_with("/1") => {
            Some(Fault::CutRequest(1000))
        }
        "GET" if is_upload(request, "GET") && before == 0 => answer("404 Not Found", ""),
        _ => None,
    });
    let image = image(&[100_000]);
    let to = reference(&model.host(), "a:t");
    registry()
        .push_images(&to, std::slice::from_ref(&image), None, &[], &NoProgress)
        .unwrap();
    assert!(model.has_blob("a", bytes(&image.layers[0])));
}

#[test]
fn a_lost_answer_is_found_out() {
    let model = Model::with(|request, before| match request.method.as_str() {
        "PUT" if is_upload(request, "PUT") && before == 0 => Some(Fault::Silence),
        _ => None,
    });
    let image = image(&[100_000]);
    let to = reference(&model.host(), "a:t");
    registry()
        .push_images(&to, std::slice::from_ref(&image), None, &[], &NoProgress)
        .unwrap();
    assert!(model.has_blob("a", bytes(&image.layers[0])));
    let lines = model.server.lines();
    assert!(
        !lines.iter().any(|line| line.starts_with("PATCH")),
        "{lines:?}"
    );
}

#[test]
fn a_request_that_is_too_large_is_cut_into_pieces() {
    let model = Model::with(|request, _| {
        let length = request.header("content-length");
        let length: usize = length.map_or(0, |text| text.parse().unwrap());
        (length > 60_000).then(|| Fault::Answer("413 Content Too Large".to_owned(), Vec::new()))
    });
    let image = image(&[200_000]);
    let settings = RegistrySettings {
        piece_bytes: 50_000,
        ..settings()
    };
    let to = reference(&model.host(), "a:t");
    let registry = Registry::new(settings).unwrap();
    let images = std::slice::from_ref(&image);
    registry
        .push_images(&to, images, None, &[], &NoProgress)
        .unwrap();
    assert!(model.has_blob("a", bytes(&image.layers[0])));
}

#[test]
fn servers_that_fail_for_a_while_are_waited_for() {
    let model = Model::with(|request, before| match before {
        // A session that is begun anew has another path.
        _ if request.path().contains("/uploads/") && !request.path().ends_with("/1") => None,
        0 => answer("503 Service Unavailable", ""),
        1 => answer("429 Too Many Requests\r\nRetry-After: 86400", ""),
        _ => None,
    });
    let to = reference(&model.host(), "a:t");
    registry()
        .push_images(&to, &[image(&[1000])], None, &[], &NoProgress)
        .unwrap();
}

#[test]
fn servers_that_keep_failing_are_given_up() {
    for (status, is_many) in [("500 Internal Server Error", false), ("429 Too Many", true)] {
        let model = Model::with(
            move |request, _| match request.path().contains("/manifests/") {
                true => answer(
                    status,
                    r#"{"errors":[{"code":"BUSY","message":"\u001b[2J"}]}"#,
                ),
                false => None,
            },
        );
        let to = reference(&model.host(), "a:t");
        let error = registry()
            .push_images(&to, &[image(&[1000])], None, &[], &NoProgress)
            .unwrap_err();
        match &error {
            RegistryError::TooMany { tries: 5, .. } if is_many => {}
            RegistryError::Status { tries: 5, .. } if !is_many => {}
            other => panic!("{other:?}"),
        }
        assert!(error.to_string().contains("BUSY \\u{1b}[2J"), "{error}");
        assert!(error.hint().is_some());
        assert_eq!(error.exit_code(), sconce_schema::exit::FETCH);
    }
}

#[test]
fn blobs_are_mounted_where_they_are() {
    let model = Model::good();
    let image = image(&[1000, 2000]);
    model.put_blob("base/cuda", bytes(&image.layers[0]));
    let from = ["none/such".to_owned(), "base/cuda".to_owned()];
    let to = reference(&model.host(), "a:t");
    let images = std::slice::from_ref(&image);
    let pushed = registry()
        .push_images(&to, images, None, &from, &NoProgress)
        .unwrap();
    let mounted = BlobCount {
        blobs: 1,
        bytes: 1000,
    };
    assert_eq!(pushed.mounted, mounted);
    assert_eq!(pushed.uploaded.blobs, 2);
    assert!(model.has_blob("a", bytes(&image.layers[0])));

    // A registry that refuses to mount gets the bytes.
    for status in [
        "403 Forbidden",
        "401 Unauthorized",
        "405 Method Not Allowed",
    ] {
        let model =
            Model::with(move |request, _| request.query("mount").and_then(|_| answer(status, "")));
        let to = reference(&model.host(), "a:t");
        let pushed = registry()
            .push_images(&to, images, None, &from, &NoProgress)
            .unwrap();
        assert_eq!(pushed.mounted, BlobCount::default(), "{status}");
        assert_eq!(pushed.uploaded.blobs, 3, "{status}");
    }
    let wrong = ["../x".to_owned()];
    let error = registry().push_images(&to, images, None, &wrong, &NoProgress);
    assert!(matches!(error, Err(RegistryError::Setting { .. })));
}

#[test]
fn nothing_incomplete_is_pushed() {
    let model = Model::good();
    let to = reference(&model.host(), "a:t");
    let whole = image(&[1000, 2000]);
    let push = |images: &[_], to| registry().push_images(to, images, None, &[], &NoProgress);
    let mut missing = whole.clone();
    missing.layers.pop();
    let mut other_size = whole.clone();
    other_size.layers[0].descriptor.size += 1;
    let mut no_manifest = whole.clone();
    no_manifest.manifest.bytes = b"{}".to_vec();
    for image in [missing, other_size, no_manifest] {
        let error = push(&[image], &to).unwrap_err();
        assert!(matches!(error, RegistryError::Incomplete { .. }), "{error}");
        assert_eq!(error.exit_code(), sconce_schema::exit::BAD_INPUT);
    }
    let another = to.with_digest(whole.config.descriptor.digest);
    assert!(push(std::slice::from_ref(&whole), &another).is_err());
    assert!(push(&[], &to).is_err());
    assert!(push(&[whole.clone(), image_for("arm64", &[1])], &to).is_err());
    let list = index(&[("amd64", &whole)]);
    let error = registry().push_images(&to, &[], Some(&list), &[], &NoProgress);
    assert!(matches!(error, Err(RegistryError::Incomplete { .. })));
    assert!(model.server.requests().is_empty());
}

#[test]
fn sources_are_regular_files_of_the_right_size() {
    let model = Model::good();
    let to = reference(&model.host(), "a:t");
    let folder = tempfile::tempdir().unwrap();
    let push = |content: BlobSource, size: u64| {
        let mut image = image(&[1000]);
        image.layers[0].content = content;
        assert_eq!(image.layers[0].descriptor.size, size);
        registry()
            .push_images(&to, &[image], None, &[], &NoProgress)
            .unwrap_err()
    };
    let short = folder.path().join("short");
    fs::write(&short, noise(999, 1)).unwrap();
    let error = push(BlobSource::File(short), 1000);
    assert!(
        matches!(error, RegistryError::ChangedSource { .. }),
        "{error}"
    );
    let error = push(BlobSource::File(folder.path().to_owned()), 1000);
    assert!(matches!(error, RegistryError::Source { .. }), "{error}");
    let error = push(BlobSource::File(folder.path().join("none")), 1000);
    assert!(matches!(error, RegistryError::Source { .. }), "{error}");
    // Other bytes of the right size: the registry finds out, and soon enough.
    let error = push(BlobSource::Bytes(noise(1000, 7)), 1000);
    assert!(
        matches!(error, RegistryError::Status { status: 400, .. }),
        "{error}"
    );
}

#[test]
fn a_file_with_other_bytes_is_not_sent_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("layer");
    // In one request, and in pieces.
    for whole_bytes in [1 << 20, 50_000] {
        let model = Model::good();
        let mut image = image(&[100_000]);
        let mut other = bytes(&image.layers[0]).to_vec();
        other[7] ^= 1;
        fs::write(&path, &other).unwrap();
        image.layers[0].content = BlobSource::File(path.clone());
        let settings = RegistrySettings {
            whole_bytes,
            piece_bytes: 40_000,
            ..settings()
        };
        let to = reference(&model.host(), "a:t");
        let registry = Registry::new(settings).unwrap();
        let error = registry.push_images(&to, &[image], None, &[], &NoProgress);
        let error = error.unwrap_err();
        assert!(
            matches!(error, RegistryError::ChangedSource { .. }) && error.exit_code() == 6,
            "{error}"
        );
        assert!(!model.has_blob("a", &other));
        let lines = model.server.lines();
        assert!(lines.iter().all(|line| !line.contains("/manifests/")));
    }
}

#[test]
fn an_upload_elsewhere_gets_the_bytes_and_no_login() {
    let image = image(&[1000]);
    let elsewhere = Server::start(|_, conn| conn.answer("201 Created", b""));
    let away = elsewhere.url("/put?signed=x");
    let model = Model::with(move |request, _| {
        if request.header("authorization").is_none() {
            return answer(
                "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"r\"",
                "",
            );
        }
        let head = format!("202 Accepted\r\nLocation: {away}");
        is_upload(request, "POST").then(|| Fault::Answer(head, Vec::new()))
    });
    let login = sconce_registry::Login::Basic {
        user: "me".to_owned(),
        password: "hunter22".to_owned(),
    };
    let mut settings = settings();
    settings.logins = settings.logins.with_login(&model.host(), login);
    let to = reference(&model.host(), "a:t");
    let registry = Registry::new(settings).unwrap();
    registry
        .push_images(&to, &[image], None, &[], &NoProgress)
        .unwrap();
    let requests = elsewhere.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(request.header("authorization"), None);
        assert_eq!(request.query("signed").as_deref(), Some("x"));
        assert!(request.query("digest").is_some());
    }
}

#[test]
fn what_leads_away_from_this_machine_in_the_clear_is_not_followed() {
    for head in [
        "202 Accepted\r\nLocation: http://registry.example.org/up",
        "202 Accepted\r\nLocation: ftp://127.0.0.1/up",
        "202 Accepted",
        "200 OK",
        "307 Temporary Redirect\r\nLocation: /elsewhere",
    ] {
        let model = Model::with(move |request, _| match is_upload(request, "POST") {
            true => answer(head, ""),
            false => None,
        });
        let to = reference(&model.host(), "a:t");
        let error = registry()
            .push_images(&to, &[image(&[1000])], None, &[], &NoProgress)
            .unwrap_err();
        let expected = matches!(
            error,
            RegistryError::Plain { .. }
                | RegistryError::Protocol { .. }
                | RegistryError::Redirect { .. }
        );
        assert!(expected, "{head}: {error}");
    }
}

#[test]
fn a_registry_that_claims_other_bytes_is_not_believed() {
    for range in ["0-5", "0-99999999", "5-9", "nonsense"] {
        let model = Model::with(move |request, _| match request.method.as_str() {
            "PATCH" => answer(&format!("202 Accepted\r\nRange: {range}"), ""),
            _ => None,
        });
        let settings = RegistrySettings {
            whole_bytes: 0,
            ..settings()
        };
        let to = reference(&model.host(), "a:t");
        let registry = Registry::new(settings).unwrap();
        let error = registry.push_images(&to, &[image(&[1000])], None, &[], &NoProgress);
        assert!(error.is_err(), "{range}");
        assert!(model.server.requests().len() < 40, "{range}");
    }
}

/// What distribution 2.8 says of a manifest while another client pushes the same blobs.
const UNSETTLED: &str = r#"{"errors":[
    {"code":"DIGEST_INVALID","message":"provided digest did not match uploaded content"},
    {"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown to registry"}]}"#;

#[test]
fn a_manifest_whose_blobs_others_push_is_sent_again() {
    for (status, body) in [
        ("400 Bad Request", UNSETTLED),
        (
            "404 Not Found",
            r#"{"errors":[{"code":"BLOB_UNKNOWN","message":"no"}]}"#,
        ),
    ] {
        let model = Model::with(move |request, before| {
            let is_manifest = request.method == "PUT" && request.path().contains("/manifests/");
            match is_manifest && before < 2 {
                true => answer(status, body),
                false => None,
            }
        });
        let to = reference(&model.host(), "a:t");
        let image = image(&[1000]);
        let pushed =
            registry().push_images(&to, std::slice::from_ref(&image), None, &[], &NoProgress);
        assert_eq!(pushed.unwrap().digest, image.manifest.digest());
    }
}

#[test]
fn a_manifest_that_is_never_taken_is_given_up() {
    for (body, most) in [
        (UNSETTLED, 10),
        (
            r#"{"errors":[{"code":"MANIFEST_INVALID","message":"no"}]}"#,
            1,
        ),
    ] {
        let model = Model::with(move |request, _| {
            let is_manifest = request.method == "PUT" && request.path().contains("/manifests/");
            match is_manifest {
                true => answer("400 Bad Request", body),
                false => None,
            }
        });
        let to = reference(&model.host(), "a:t");
        let refused = registry().push_images(&to, &[image(&[1000])], None, &[], &NoProgress);
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, RegistryError::Status { status: 400, .. }),
            "{refused}"
        );
        let sent = model.server.lines();
        let sent = sent
            .iter()
            .filter(|line| line.contains("/manifests/"))
            .count();
        assert!((1..=most).contains(&sent), "{sent}");
    }
}

#[test]
fn one_refusal_stops_the_others() {
    let image = image(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
    let refused = image.layers[1].descriptor.digest.to_string();
    // HEAD has no body to give a reason in.
    let is_refused = move |request: &Request| {
        request.method == "POST" || (request.method == "PUT" && request.target.contains(&refused))
    };
    let model = Model::with(move |request, _| match is_refused(request) {
        true => answer(
            "403 Forbidden",
            r#"{"errors":[{"code":"DENIED","message":"no"}]}"#,
        ),
        false => None,
    });
    let to = reference(&model.host(), "a:t");
    let error = registry()
        .push_images(&to, &[image], None, &[], &NoProgress)
        .unwrap_err();
    assert!(
        matches!(&error, RegistryError::Refused { status: 403, said: Some(said), .. } if said == "DENIED no"),
        "{error}"
    );
    let lines = model.server.lines();
    assert!(!lines.iter().any(|line| line.contains("/manifests/")));
}

#[derive(Default)]
struct Watched(Mutex<(Option<u64>, u64, usize)>);

impl Progress for Watched {
    fn stage(&self, _: &str, total_bytes: Option<u64>) {
        self.0.lock().unwrap().0 = total_bytes;
    }
    fn advance(&self, _: &str, bytes: u64) {
        self.0.lock().unwrap().1 += bytes;
    }
    fn done(&self, _: &str) {
        self.0.lock().unwrap().2 += 1;
    }
    fn note(&self, _: &str) {}
    fn waits(&self, _: &str, _: Option<&WaitCause>) {}
}

#[test]
fn progress_counts_each_byte_once() {
    let model = Model::with(
        |request, before| match is_upload(request, "PUT") && before == 0 {
            true => Some(Fault::CutRequest(20_000)),
            false => None,
        },
    );
    let image = image(&[100_000, 200_000]);
    let watched = Watched::default();
    let to = reference(&model.host(), "a:t");
    registry()
        .push_images(&to, std::slice::from_ref(&image), None, &[], &watched)
        .unwrap();
    let total = 300_000 + image.config.descriptor.size;
    assert_eq!(*watched.0.lock().unwrap(), (Some(total), total, 3));
}

#[test]
fn offline_asks_nobody() {
    let model = Model::good();
    let mut settings = settings();
    settings.fetch.offline = true;
    let to = reference(&model.host(), "a:t");
    let registry = Registry::new(settings).unwrap();
    let error = registry.push_images(&to, &[image(&[1])], None, &[], &NoProgress);
    assert!(matches!(error, Err(RegistryError::Offline { .. })));
    assert!(model.server.requests().is_empty());
}

#[test]
fn an_empty_layer_is_a_layer() {
    let model = Model::good();
    let empty = Blob {
        descriptor: sconce_oci::Descriptor::for_bytes(media::LAYER, b""),
        content: BlobSource::Bytes(Vec::new()),
    };
    let image = super::made::put_together(image(&[]).config, vec![empty]);
    let to = reference(&model.host(), "a:t");
    registry()
        .push_images(&to, &[image], None, &[], &NoProgress)
        .unwrap();
    assert!(model.has_blob("a", b""));
}
