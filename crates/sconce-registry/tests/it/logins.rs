//! Who gets a login, and who does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sconce_registry::{
    Login, LoginSources, PulledImage, Registry, RegistryError, RegistrySettings,
};
use sconce_schema::{Hint as _, NoProgress};

use super::made::{all_words, amd64, bytes, image, reference, settings, stock};
use super::model::{Fault, Model, answer};
use super::server::{Conn, Request, Server, fields};

const PASSWORD: &str = "hunter22";
/// `me:hunter22`
const BASIC: &str = "Basic bWU6aHVudGVyMjI=";

fn login() -> Login {
    Login::Basic {
        user: "me".to_owned(),
        password: PASSWORD.to_owned(),
    }
}

fn registry_with(host: &str, login: Login) -> Registry {
    Registry::new(RegistrySettings {
        logins: LoginSources::empty().with_login(host, login),
        ..settings()
    })
    .unwrap()
}

fn pull(registry: &Registry, model: &Model) -> Result<PulledImage, RegistryError> {
    let folder = tempfile::tempdir().unwrap();
    let from = reference(&model.host(), "team/image:t");
    registry.pull_image(&from, &amd64(), folder.path(), &|_| false, &NoProgress)
}

/// A registry that wants `Bearer good` or what `takes` says, and sends to a token server.
fn guarded(
    realm: &str,
    takes: impl Fn(&str) -> bool + Send + Sync + 'static,
    fault: impl Fn(&Request) -> Option<Fault> + Send + Sync + 'static,
) -> Model {
    let challenge = format!(
        "401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"{realm}\",service=\"the, registry\",\
         scope=\"repository:team/image:pull\""
    );
    let model = Model::with(move |request, _| match request.header("authorization") {
        Some(text) if takes(text) => fault(request),
        _ => answer(&challenge, r#"{"errors":[{"code":"UNAUTHORIZED"}]}"#),
    });
    stock(
        &model,
        "team/image",
        "t",
        &image(&[100, 200, 300, 400, 500]),
    );
    model
}

fn tokens(handler: impl Fn(&Request, &mut Conn) + Send + Sync + 'static) -> Server {
    Server::start(handler)
}

#[test]
fn a_token_is_asked_for_once_a_scope() {
    let server = tokens(|request, conn| {
        assert_eq!(request.query("service").as_deref(), Some("the, registry"));
        let good = request.header("authorization") == Some(BASIC);
        match good {
            true => conn.answer("200 OK", br#"{"token":"good","expires_in":300}"#),
            false => conn.answer("401 Unauthorized", b"{}"),
        }
    });
    let model = guarded(
        &server.url("/token"),
        |text| text == "Bearer good",
        |_| None,
    );
    let registry = registry_with(&model.host(), login());
    pull(&registry, &model).unwrap();
    let asked = server.requests();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].fields("scope"), ["repository:team/image:pull"]);
    // The registry itself never saw the password.
    let seen = model.server.requests();
    assert!(
        seen.iter()
            .all(|request| request.header("authorization") != Some(BASIC))
    );

    // A push wants more, also of the repository it mounts from.
    let to = reference(&model.host(), "team/image:u");
    let from = ["base/cuda".to_owned()];
    registry
        .push_images(&to, &[image(&[7000])], None, &from, &NoProgress)
        .unwrap();
    let scopes: Vec<_> = server
        .requests()
        .iter()
        .map(|r| r.fields("scope"))
        .collect();
    let push = "repository:team/image:pull,push".to_owned();
    assert!(scopes.contains(&vec![push.clone()]), "{scopes:?}");
    let mount = vec![push, "repository:base/cuda:pull".to_owned()];
    assert!(scopes.contains(&mount), "{scopes:?}");
    assert!(scopes.len() <= 4, "{scopes:?}");
}

#[test]
fn a_token_that_no_longer_serves_is_renewed() {
    let count = Arc::new(AtomicUsize::new(0));
    let given = Arc::clone(&count);
    let server = tokens(move |_, conn| {
        let number = given.fetch_add(1, Ordering::Relaxed);
        let body = format!(r#"{{"access_token":"t{number}","expires_in":3600}}"#);
        conn.answer("200 OK", body.as_bytes());
    });
    // The first token serves for one request.
    let used = AtomicUsize::new(0);
    let model = guarded(
        &server.url("/token"),
        move |text| match text {
            "Bearer t0" => used.fetch_add(1, Ordering::Relaxed) == 0,
            text => text == "Bearer t1",
        },
        |_| None,
    );
    pull(&registry_with(&model.host(), login()), &model).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 2);

    // One that never serves is not renewed for ever.
    let model = guarded(&server.url("/token"), |_| false, |_| None);
    let error = pull(&registry_with(&model.host(), login()), &model).unwrap_err();
    assert!(
        matches!(
            error,
            RegistryError::Refused {
                status: 401,
                login: true,
                ..
            }
        ),
        "{error}"
    );
    assert!(model.server.requests().len() <= 3);
}

#[test]
fn an_identity_token_is_exchanged_by_post() {
    let server = tokens(|request, conn| {
        let body = String::from_utf8(conn.body(usize::MAX)).unwrap();
        let field = |name| fields(&body, name).join("|");
        let good = request.method == "POST"
            && request.header("authorization").is_none()
            && !request.target.contains(PASSWORD)
            && field("grant_type") == "refresh_token"
            && field("refresh_token") == PASSWORD
            && field("service") == "the, registry"
            && field("client_id") == "sconce"
            && field("scope") == "repository:team/image:pull";
        match good {
            true => conn.answer("200 OK", br#"{"access_token":"good"}"#),
            false => conn.answer("400 Bad Request", br#"{"error":"invalid_grant"}"#),
        }
    });
    let model = guarded(
        &server.url("/token"),
        |text| text == "Bearer good",
        |_| None,
    );
    let identity = Login::Identity {
        token: PASSWORD.to_owned(),
    };
    pull(&registry_with(&model.host(), identity), &model).unwrap();
}

#[test]
fn token_servers_that_lie() {
    let long = format!(r#"{{"token":"{}"}}"#, "x".repeat(100_000));
    for body in [
        "",
        "[]",
        "<html>",
        r#"{"token":""}"#,
        r#"{"token":"a\r\nX-Evil: b"}"#,
        r#"{"token":{"a":1}}"#,
        &long,
    ] {
        let body = body.to_owned();
        let server = tokens(move |_, conn| conn.answer("200 OK", body.as_bytes()));
        let model = guarded(&server.url("/token"), |_| true, |_| None);
        let error = pull(&registry_with(&model.host(), login()), &model).unwrap_err();
        assert!(matches!(error, RegistryError::Token { .. }), "{error}");
    }
    let endless = tokens(|_, conn| {
        conn.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while conn.raw(b"1000\r\n") && conn.raw(&[b' '; 0x1000]) && conn.raw(b"\r\n") {}
    });
    let model = guarded(&endless.url("/token"), |_| true, |_| None);
    let error = pull(&registry_with(&model.host(), login()), &model).unwrap_err();
    assert!(matches!(error, RegistryError::TooLarge { .. }), "{error}");
}

#[test]
fn a_login_follows_no_token_server_elsewhere() {
    let other = Server::start(|_, conn| conn.answer("200 OK", br#"{"token":"good"}"#));
    let away = other.url("/token");
    let server = tokens(move |_, conn| {
        conn.answer(&format!("307 Temporary Redirect\r\nLocation: {away}"), b"");
    });
    for login in [
        login(),
        Login::Identity {
            token: PASSWORD.to_owned(),
        },
    ] {
        let model = guarded(&server.url("/token"), |_| false, |_| None);
        let error = pull(&registry_with(&model.host(), login), &model).unwrap_err();
        assert!(matches!(error, RegistryError::Redirect { .. }), "{error}");
    }
    assert!(other.requests().is_empty());

    for realm in [
        "http://auth.example.org/token",
        "https://me:pass@127.0.0.1:1/token",
        "file:///etc/passwd",
        "token",
        "http://",
    ] {
        let model = guarded(realm, |_| false, |_| None);
        let error = pull(&registry_with(&model.host(), login()), &model).unwrap_err();
        assert!(
            matches!(
                error,
                RegistryError::Plain { .. } | RegistryError::Protocol { .. }
            ),
            "{realm}: {error}"
        );
    }
}

#[test]
fn a_redirect_to_another_host_gets_no_login() {
    let image = image(&[5000]);
    let storage = Model::good();
    stock(&storage, "a", "t", &image);
    let layer = image.layers[0].descriptor.digest.to_string();
    let away = storage.server.url(&format!("/v2/a/blobs/{layer}"));
    let model = Model::with(move |request, _| match request.header("authorization") {
        Some(BASIC) if request.path().ends_with(&layer) => {
            answer(&format!("302 Found\r\nLocation: {away}"), "")
        }
        Some(BASIC) => None,
        _ => answer(
            "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"",
            "",
        ),
    });
    stock(&model, "team/image", "t", &image);
    pull(&registry_with(&model.host(), login()), &model).unwrap();
    let seen = storage.server.requests();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].header("authorization"), None);

    // Nor does a storage that asks for one.
    let greedy = Server::start(|_, conn| {
        conn.answer(
            "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"",
            b"",
        );
    });
    let away = greedy.url("/x");
    let layer = image.layers[0].descriptor.digest.to_string();
    let model = Model::with(move |request, _| match request.header("authorization") {
        Some(_) if request.path().ends_with(&layer) => {
            answer(&format!("302 Found\r\nLocation: {away}"), "")
        }
        Some(BASIC) => None,
        _ => answer(
            "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"",
            "",
        ),
    });
    stock(&model, "team/image", "t", &image);
    let error = pull(&registry_with(&model.host(), login()), &model).unwrap_err();
    assert!(matches!(error, RegistryError::Refused { .. }), "{error}");
    let seen = greedy.requests();
    assert!(
        seen.iter()
            .all(|request| request.header("authorization").is_none())
    );
}

#[test]
fn a_mirror_gets_its_own_login_and_no_other() {
    let model = Model::good();
    let image = image(&[10]);
    stock(&model, "team/image", "t", &image);
    let mirror = Model::with(|_, _| {
        answer(
            "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"",
            "",
        )
    });
    let registry = Registry::new(RegistrySettings {
        logins: LoginSources::empty().with_login(&model.host(), login()),
        mirrors: vec![sconce_registry::Mirror {
            of: model.host(),
            base: mirror.server.url(""),
        }],
        ..settings()
    })
    .unwrap();
    pull(&registry, &model).unwrap();
    let seen = mirror.server.requests();
    assert!(!seen.is_empty());
    assert!(
        seen.iter()
            .all(|request| request.header("authorization").is_none())
    );
}

#[test]
fn errors_hold_no_secret() {
    // Registries that say back what they were told.
    let echo = |request: &Request| {
        let text = request.header("authorization").unwrap_or_default();
        let body =
            format!(r#"{{"errors":[{{"code":"DENIED {PASSWORD}","message":"you sent {text}"}}]}}"#);
        answer("403 Forbidden", body)
    };
    let basic = Model::with(move |request, _| match request.header("authorization") {
        Some(_) => echo(request),
        None => answer(
            "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"",
            "",
        ),
    });
    let server = tokens(|_, conn| conn.answer("200 OK", br#"{"token":"tokentext"}"#));
    let bearer = guarded(&server.url("/token"), |_| true, echo);
    let refusing = tokens(|request, conn| {
        let text = request.header("authorization").unwrap_or_default();
        let body = format!(r#"{{"error":"{text}","error_description":"{PASSWORD}"}}"#);
        conn.answer("403 Forbidden", body.as_bytes());
    });
    let refused = guarded(&refusing.url("/token?secret=hunter22"), |_| false, |_| None);
    for model in [&basic, &bearer, &refused] {
        let error = pull(&registry_with(&model.host(), login()), model).unwrap_err();
        assert!(matches!(error, RegistryError::Refused { .. }), "{error}");
        let words = format!("{} {:?}", all_words(&error), error.hint());
        for secret in [PASSWORD, "bWU6aHVudGVyMjI=", "tokentext"] {
            assert!(!words.contains(secret), "{words}");
        }
    }
}

#[test]
fn who_has_no_login_is_told_so() {
    let model = Model::with(|_, _| {
        answer(
            "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"",
            "",
        )
    });
    let registry = Registry::new(settings()).unwrap();
    let error = pull(&registry, &model).unwrap_err();
    assert!(
        matches!(error, RegistryError::Refused { login: false, .. }),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("docker login"), "{error}");

    struct Gone;
    impl sconce_registry::CredentialHelpers for Gone {
        fn get(&self, name: &str, _: &str) -> Result<Option<String>, sconce_registry::HelperError> {
            Err(sconce_registry::HelperError::Missing {
                name: name.to_owned(),
            })
        }
    }
    let registry = Registry::new(RegistrySettings {
        logins: LoginSources::empty()
            .with_file(r#"{"credsStore": "desktop"}"#)
            .unwrap()
            .with_helpers(Arc::new(Gone)),
        ..settings()
    })
    .unwrap();
    let error = pull(&registry, &model).unwrap_err();
    assert!(
        error.hint().unwrap().contains("docker-credential-desktop"),
        "{error}"
    );
    // What anybody may have needs no helper.
    let open = Model::good();
    stock(&open, "team/image", "t", &image(&[10]));
    pull(&registry, &open).unwrap();
}

#[test]
fn an_upload_renews_its_token_too() {
    // Tokens serve for three requests each.
    let given = AtomicUsize::new(0);
    let server = tokens(move |_, conn| {
        let number = given.fetch_add(1, Ordering::Relaxed);
        conn.answer("200 OK", format!(r#"{{"token":"t{number}"}}"#).as_bytes());
    });
    let used = std::sync::Mutex::new(std::collections::BTreeMap::<String, usize>::new());
    let model = guarded(
        &server.url("/token"),
        move |text| {
            let mut used = used.lock().unwrap();
            let count = used.entry(text.to_owned()).or_default();
            *count += 1;
            *count <= 3
        },
        |_| None,
    );
    let image = image(&[400_000]);
    let settings = RegistrySettings {
        logins: LoginSources::empty().with_login(&model.host(), login()),
        whole_bytes: 0,
        piece_bytes: 50_000,
        parallel: 1,
        ..settings()
    };
    let to = reference(&model.host(), "team/image:u");
    let registry = Registry::new(settings).unwrap();
    let images = std::slice::from_ref(&image);
    registry
        .push_images(&to, images, None, &[], &NoProgress)
        .unwrap();
    assert!(model.has_blob("team/image", bytes(&image.layers[0])));
}
