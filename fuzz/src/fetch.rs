//! What servers and indexes write into URLs and headers.

#[path = "../../crates/sconce-fetch/src/range.rs"]
mod range;
#[path = "../../crates/sconce-fetch/src/url.rs"]
#[cfg_attr(not(test), expect(dead_code, reason = "addresses are only read here"))]
mod url_parts;

use sconce_base::text::redact_url_credentials;
use sconce_base::text::without_credentials;
use ureq::http::Uri;

use crate::bytes::text;

pub(crate) fn url(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let shown = url_parts::redact_url(text);
    assert_eq!(shown, sconce_fetch::redact_url(text));
    assert!(!shown.contains(['?', '#']), "{shown}");
    assert_eq!(url_parts::split_user(&shown).1, None, "{shown}");
    let plain = without_credentials(text);
    assert_eq!(without_credentials(&plain), plain);
    assert_eq!(url_parts::split_user(&plain).1, None, "{plain}");
    // In a longer text these end an address; no address has them.
    let is_alone = !text.contains(|c: char| c.is_whitespace() || "\"`<>".contains(c));
    let clean = redact_url_credentials(text);
    assert_eq!(redact_url_credentials(&clean), clean);
    if is_alone {
        assert_eq!(url_parts::split_user(&clean).1, None, "{text}");
    }
    if let Some(path) = url_parts::file_path(text) {
        assert!(path.is_absolute());
    }
}

pub(crate) fn url_seeds() -> Vec<Vec<u8>> {
    [
        "https://me:p%40ss@example.org:8443/a/b?q=1#f",
        "file:///a%20b/c.whl",
        "file://localhost/a",
        "see `https://u:p@example.org/x` and b://c@d, e",
        "https://[::1]:80/a@b",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// Two lines: the address that was asked, and a header of the answer.
pub(crate) fn headers(data: &[u8]) {
    let Some((base, header)) = text(data).and_then(|text| text.split_once('\n')) else {
        return;
    };
    if let Some(range) = range::content_range(header) {
        assert!(range.first <= range.last);
        assert!(range.total.is_none_or(|total| range.last < total));
    }
    let _ = range::retry_after(header);
    let Ok(base) = base.parse::<Uri>() else {
        return;
    };
    let Some(joined) = url_parts::join_url(&base, header) else {
        return;
    };
    let scheme = base.scheme_str().unwrap_or_default();
    assert!(
        joined.starts_with("http://")
            || joined.starts_with("https://")
            || joined.starts_with(scheme),
        "{joined}"
    );
    // Only a location that names a host leads to another one.
    if let (Some(authority), Ok(to)) = (base.authority(), joined.parse::<Uri>())
        && !header.starts_with("http://")
        && !header.starts_with("https://")
        && !header.starts_with("//")
    {
        assert_eq!(to.authority(), Some(authority), "{joined}");
    }
}

pub(crate) fn header_seeds() -> Vec<Vec<u8>> {
    [
        "https://example.org:8443/a/b/c?q=1\n../x?u=..",
        "https://example.org/a\n//else.example.org/x",
        "http://example.org\n/x",
        "http://example.org/a/b\n?z#f",
        "http://example.org/a/b\nhttps://else.example.org/y",
        "http://example.org/\nbytes 5-9/10",
        "http://example.org/\nbytes 0-0/*",
        "http://example.org/\n 7 ",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
