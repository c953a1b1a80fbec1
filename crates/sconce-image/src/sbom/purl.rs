//! Package URLs (the purl specification, "Rules for each purl component" and "Known types").

use std::fmt::Write as _;

use sconce_schema::lock::{Deb, LockTarget, StandalonePython, Wheel};

use sconce_oci::Digest;

/// Which world a package is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PurlType {
    /// A Python package: purl type `pypi`.
    Python,
    /// A Debian package: purl type `deb`.
    Debian,
    /// Another purl type, as it is written.
    Other(String),
}

impl PurlType {
    /// The purl type.
    #[must_use]
    pub fn purl_type(&self) -> &str {
        match self {
            Self::Python => "pypi",
            Self::Debian => "deb",
            Self::Other(name) => name,
        }
    }
}

/// A wheel's. The type's rule on names (lower case, `_` is `-`) is kept for any lock.
pub(crate) fn for_wheel(wheel: &Wheel) -> String {
    let name = wheel.name.to_ascii_lowercase().replace('_', "-");
    format!("pkg:pypi/{}@{}", encoded(&name), encoded(&wheel.version))
}

/// A Debian package's. The release's name stands for the whole target, `debian/trixie`.
pub(crate) fn for_deb(deb: &Deb, target: &LockTarget) -> String {
    let (distribution, release) = target.release.split_once('/').unwrap_or(("debian", ""));
    let mut purl = format!(
        "pkg:deb/{}/{}@{}?arch={}",
        encoded(&distribution.to_ascii_lowercase()),
        encoded(&deb.name.to_ascii_lowercase()),
        encoded(&deb.version),
        encoded(&deb.architecture)
    );
    if !release.is_empty() {
        let _ = write!(purl, "&distro={}", encoded(release));
    }
    purl
}

/// A standalone Python's, as scanners name an interpreter that no package manager brought.
pub(crate) fn for_python(python: &StandalonePython) -> String {
    format!("pkg:generic/{PYTHON}@{}", encoded(&python.version))
}

/// The name of a standalone Python among packages.
pub(crate) const PYTHON: &str = "python";

/// An image's.
pub(crate) fn for_image(name: &str, manifest: &Digest) -> String {
    let name = name.to_ascii_lowercase();
    format!(
        "pkg:oci/{}@{}",
        encoded(&name),
        encoded(&manifest.to_string())
    )
}

/// Percent-encoded: all but letters, digits and `.-_~:`, which the specification leaves as they are.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'~' | b':' => {
                out.push(char::from(byte));
            }
            other => {
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
    out
}

/// Reads a package URL's type, name and version; qualifiers and subpath are passed over. `None` for
/// what is no package URL. Other programs write them more freely, so reading is lenient.
pub(crate) fn parse(purl: &str) -> Option<(PurlType, String, Option<String>)> {
    let rest = purl.strip_prefix("pkg:")?.trim_start_matches('/');
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (kind, path) = rest.split_once('/')?;
    let (path, version) = match path.rsplit_once('@') {
        // In a version a slash is encoded: this is a scope such as `@x/y`.
        Some((_, name)) if name.contains('/') => (path, None),
        Some((path, "")) => (path, None),
        Some((path, version)) => (path, Some(decoded(version)?)),
        None => (path, None),
    };
    let path = path.trim_matches('/');
    let kind = match kind.to_ascii_lowercase().as_str() {
        "" => return None,
        "pypi" => PurlType::Python,
        "deb" => PurlType::Debian,
        other => PurlType::Other(other.to_owned()),
    };
    let name = match kind {
        // The namespace of a Debian package is the distribution; everywhere else it is a part of
        // what people call the package.
        PurlType::Debian => path.rsplit('/').next().unwrap_or_default(),
        _ => path,
    };
    let name = decoded(name).filter(|name| !name.is_empty())?;
    Some((kind, name, version))
}

fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            out.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::Sha256;

    fn a_wheel(name: &str, version: &str) -> Wheel {
        Wheel {
            name: name.to_owned(),
            version: version.to_owned(),
            file: String::new(),
            url: String::new(),
            size: None,
            sha256: Sha256([0; 32]),
            build: None,
        }
    }

    #[test]
    fn versions_are_encoded() {
        for (name, version, purl) in [
            ("torch", "2.8.0+cu126", "pkg:pypi/torch@2.8.0%2Bcu126"),
            ("Typing_Extensions", "4.1", "pkg:pypi/typing-extensions@4.1"),
            ("a", "1!2.0", "pkg:pypi/a@1%212.0"),
            (
                "a/../b?c#d",
                "1 ü",
                "pkg:pypi/a%2F..%2Fb%3Fc%23d@1%20%C3%BC",
            ),
        ] {
            assert_eq!(for_wheel(&a_wheel(name, version)), purl);
        }
        let target = LockTarget {
            release: "debian/trixie".to_owned(),
            architecture: "amd64".to_owned(),
            python: "3.13".to_owned(),
        };
        let package = Deb {
            name: "libstdc++6".to_owned(),
            version: "1:14.2.0-19~deb13u1+b1".to_owned(),
            architecture: "amd64".to_owned(),
            source: None,
            source_version: None,
            url: String::new(),
            size: 1,
            sha256: Sha256([0; 32]),
        };
        let purl = for_deb(&package, &target);
        let expected =
            "pkg:deb/debian/libstdc%2B%2B6@1:14.2.0-19~deb13u1%2Bb1?arch=amd64&distro=trixie";
        assert_eq!(purl, expected);
        let read = (PurlType::Debian, package.name, Some(package.version));
        assert_eq!(parse(&purl), Some(read));
    }

    #[test]
    fn what_others_write_is_read() {
        let python = |name: &str, version: Option<&str>| {
            Some((
                PurlType::Python,
                name.to_owned(),
                version.map(str::to_owned),
            ))
        };
        assert_eq!(parse("pkg:pypi/a@1%2Bb?x=y@z#s"), python("a", Some("1+b")));
        assert_eq!(parse("pkg://pypi/a"), python("a", None));
        assert_eq!(parse("pkg:pypi/a@"), python("a", None));
        let scoped = |version: Option<&str>| {
            let kind = PurlType::Other("npm".to_owned());
            Some((kind, "@x/y".to_owned(), version.map(str::to_owned)))
        };
        assert_eq!(parse("pkg:npm/%40x/y@1"), scoped(Some("1")));
        assert_eq!(parse("pkg:npm/@x/y"), scoped(None));
        for wrong in [
            "",
            "pkg:",
            "pkg:pypi",
            "pkg:pypi/",
            "pkg:/a",
            "pkg:pypi/%",
            "pkg:pypi/%ff",
            "a",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
