//! What the fetcher needs to know about URLs beyond what the HTTP client parses.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use ureq::http::Uri;

/// `url` as it may be shown: without user, password, query and fragment, all of which can carry
/// secrets.
#[must_use]
pub fn redact_url(url: &str) -> String {
    let (plain, _) = split_user(url);
    let end = plain.find(['?', '#']).unwrap_or(plain.len());
    plain[..end].to_owned()
}

/// Splits `user:password@` off a URL. The parts are percent-decoded.
pub(super) fn split_user(url: &str) -> (String, Option<(String, String)>) {
    let Some(start) = url.find("://").map(|at| at + 3) else {
        return (url.to_owned(), None);
    };
    let end = url[start..]
        .find(['/', '?', '#'])
        .map_or(url.len(), |at| start + at);
    let Some(at) = url[start..end].rfind('@').map(|at| start + at) else {
        return (url.to_owned(), None);
    };
    let (user, password) = url[start..at]
        .split_once(':')
        .unwrap_or((&url[start..at], ""));
    let text = |part: &str| String::from_utf8_lossy(&percent_decode(part)).into_owned();
    (
        format!("{}{}", &url[..start], &url[at + 1..]),
        Some((text(user), text(password))),
    )
}

/// The address of a local file, absolute (RFC 8089).
#[must_use]
pub fn file_url(path: &Path) -> String {
    let mut url = "file://".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~+".contains(byte) {
            url.push(char::from(*byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}

/// The local path of a `file:` URL; `None` for other schemes and for another machine's files.
pub fn file_path(url: &str) -> Option<PathBuf> {
    let rest = url.strip_prefix("file:")?;
    let path = match rest.strip_prefix("//") {
        Some(after) => after.strip_prefix("localhost").unwrap_or(after),
        None => rest,
    };
    path.starts_with('/')
        .then(|| PathBuf::from(OsString::from_vec(percent_decode(path))))
}

fn percent_decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |i: usize| bytes.get(i).and_then(|b| (*b as char).to_digit(16));
        match (bytes[at], hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, _, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

/// Where a redirect leads: `location` as seen from `base` (RFC 3986, section 5, as far as servers
/// use it: absolute, without scheme, without host, and relative to the folder).
#[must_use]
pub fn join_url(base: &Uri, location: &str) -> Option<String> {
    let location = location.split('#').next()?;
    if location.starts_with("http://") || location.starts_with("https://") {
        return Some(location.to_owned());
    }
    let scheme = base.scheme_str()?;
    if location.starts_with("//") {
        return Some(format!("{scheme}:{location}"));
    }
    let authority = base.authority()?.as_str();
    if location.starts_with('/') {
        return Some(format!("{scheme}://{authority}{location}"));
    }
    let colon = location.find(':').unwrap_or(location.len());
    if location[..colon].find(['/', '?']).is_none() && colon < location.len() {
        return None; // another scheme
    }
    let path = base.path();
    if location.is_empty() || location.starts_with('?') {
        return Some(format!("{scheme}://{authority}{path}{location}"));
    }
    let mut folder: Vec<&str> = path.split('/').collect();
    folder.pop();
    let (relative, query) = location.split_at(location.find('?').unwrap_or(location.len()));
    for part in relative.split('/') {
        match part {
            "." => {}
            ".." if folder.len() > 1 => {
                folder.pop();
            }
            ".." => {}
            part => folder.push(part),
        }
    }
    Some(format!("{scheme}://{authority}{}{query}", folder.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_file_is_read_back() {
        for path in ["/a/b c", "/tmp/100%/ü#?.whl"] {
            assert_eq!(file_path(&file_url(Path::new(path))), Some(path.into()));
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(
            redact_url("https://me:pass@deb.example.org/a/b?sig=1#x"),
            "https://deb.example.org/a/b"
        );
        assert_eq!(
            redact_url("https://example.org/a@b"),
            "https://example.org/a@b"
        );
        assert_eq!(
            split_user("https://m%40e:p%2Fw@example.org/x"),
            (
                "https://example.org/x".to_owned(),
                Some(("m@e".to_owned(), "p/w".to_owned()))
            )
        );
        assert_eq!(redact_url("not a url"), "not a url");
    }

    #[test]
    fn file_urls_are_local_paths() {
        for (url, path) in [
            ("file:///a/b%20c", Some("/a/b c")),
            ("file://localhost/a", Some("/a")),
            ("file:/a", Some("/a")),
            ("file://other.example.org/a", None),
            ("https://example.org/a", None),
            ("file:a", None),
        ] {
            assert_eq!(file_path(url), path.map(PathBuf::from), "{url}");
        }
    }

    #[test]
    fn redirects_join() {
        let base: Uri = "https://example.org:8443/a/b/c?q=1".parse().unwrap();
        for (location, joined) in [
            (
                "http://else.example.org/x",
                Some("http://else.example.org/x"),
            ),
            ("//else.example.org/x", Some("https://else.example.org/x")),
            ("/x?y", Some("https://example.org:8443/x?y")),
            ("x", Some("https://example.org:8443/a/b/x")),
            ("../x?u=..", Some("https://example.org:8443/a/x?u=..")),
            ("../../../../x", Some("https://example.org:8443/x")),
            ("?z", Some("https://example.org:8443/a/b/c?z")),
            ("ftp://example.org/", None),
            ("file:/etc/passwd", None),
        ] {
            assert_eq!(join_url(&base, location).as_deref(), joined, "{location}");
        }
    }
}
