//! What people write as images, what registries write as challenges, and the files of logins.

use sconce_registry::{Challenge, LoginSources, Reference, parse_challenges};
use ureq::http::Uri;

use crate::bytes::text;

pub(crate) fn reference(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(read) = Reference::parse(text, Some("registry.example.org")) else {
        return;
    };
    let again = Reference::parse(&read.to_string(), None);
    assert_eq!(again.as_ref(), Ok(&read), "it reads the same: {read}");
    // Nothing in it gets out of its place in an address.
    let url = format!(
        "https://{}/v2/{}/manifests/{}",
        read.host(),
        read.path(),
        read.tag_or_digest()
    );
    let uri: Uri = url.parse().expect("a reference makes an address");
    let authority = uri.authority().expect("with a host").as_str();
    assert_eq!(authority, read.host());
    assert_eq!(uri.path(), &url["https://".len() + authority.len()..]);
    assert!(
        uri.query().is_none() && !uri.path().contains("/../"),
        "{url}"
    );
}

pub(crate) fn reference_seeds() -> Vec<Vec<u8>> {
    [
        "registry.example.org:5000/team/im_a-ge.x:v1.0",
        "localhost/a@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "[2001:db8::1]:443/a--b/c__d:latest",
        "team/image",
        "Example.ORG/a:T",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(crate) fn challenge(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let read = parse_challenges(text);
    assert!(read.len() <= 16);
    for one in &read {
        assert!(!one.scheme.is_empty() && !one.scheme.contains(|c: char| c.is_ascii_uppercase()));
        assert!(one.parameters.len() <= 16);
    }
    let written = written(&read);
    if written.len() < 16 << 10 {
        assert_eq!(parse_challenges(&written), read, "{written}");
    }
}

/// The challenges as a careful server writes them.
fn written(all: &[Challenge]) -> String {
    let one = |challenge: &Challenge| {
        let parameters = challenge.parameters.iter().map(|(name, value)| {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            format!("{name}=\"{value}\"")
        });
        let parameters: Vec<String> = parameters.collect();
        format!("{} {}", challenge.scheme, parameters.join(","))
    };
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

pub(crate) fn challenge_seeds() -> Vec<Vec<u8>> {
    [
        "Bearer realm=\"https://auth.example.org/token\",service=\"r\",scope=\"repository:a/b:pull,push\"",
        "Basic realm=\"a, \\\"b\\\" c\", Bearer realm=https://x/t , error=\"insufficient_scope\"",
        "Negotiate abc==, Basic",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(crate) fn logins(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Err(error) = LoginSources::empty().with_file(text) {
        assert!(error.to_string().len() < 200);
    }
}

pub(crate) fn login_seeds() -> Vec<Vec<u8>> {
    [
        r#"{"auths":{"registry.example.org":{"auth":"bWU6cGFzcw=="},"https://a.example.org/v1/":{"identitytoken":"t"}}}"#,
        r#"{"credsStore":"x","credHelpers":{"a.example.org":"y"},"auths":{"a.example.org/b":{"username":"u","password":"p"}}}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
