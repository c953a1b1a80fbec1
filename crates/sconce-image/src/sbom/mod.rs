//! What is in an image, as other programs read it: SPDX 2.3 and CycloneDX 1.6, both in JSON.
//!
//! A document is a function of the lock, of what packages say of themselves, of a time that the
//! caller gives, and of this program's version; there is no clock and no chance in it. It names
//! packages by package URL and SHA-256, never by address: an address may be a private mirror's.

mod cyclonedx;
mod license;
pub(crate) mod purl;
mod read;
mod spdx;

use std::borrow::Cow;
use std::collections::BTreeMap;

use sconce_schema::{Lock, Sha256};
use sha2::Digest as _;

use crate::build::format_rfc3339;
use sconce_oci::Digest;

pub use cyclonedx::render_document as cyclonedx;
pub use license::License;
pub use purl::PurlType;
pub use read::{MAX_PACKAGES, MAX_SBOM_BYTES, SbomError, SbomPackage, packages_of_lock, parse};
pub use spdx::render_document as spdx;

/// The version of this program, which documents name as their tool.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a document is about.
#[derive(Debug, Clone, Copy)]
pub struct SbomSubject<'a> {
    /// The image's name, without registry and tag; the spec's.
    pub name: &'a str,
    /// The image manifest's digest. Absent in a document that lies in the image itself.
    pub manifest: Option<Digest>,
    /// What the image is made of.
    pub lock: &'a Lock,
    /// What is known of packages beyond the lock, by the digest of their wheel or deb. May be
    /// empty, and may hold others.
    pub facts: &'a BTreeMap<Sha256, PackageMetadata>,
    /// When it was made, in seconds since 1970; 0 where builds are to be reproducible.
    pub created_s: i64,
}

/// What a package says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageMetadata {
    /// Its licence.
    pub license: Option<License>,
    /// Who brings it: a person's or an organisation's name.
    pub supplier: Option<String>,
}

/// One package, as both documents need it.
#[derive(Debug)]
struct Component<'a> {
    /// Unique in the document: letters, digits, `.` and `-`.
    id: String,
    name: &'a str,
    version: &'a str,
    /// The wheel's file name.
    file: Option<&'a str>,
    purl: String,
    sha256: Sha256,
    size_bytes: Option<u64>,
    supplier: Option<Cow<'a, str>>,
    license: Option<&'a License>,
}

impl SbomSubject<'_> {
    /// Wheels, then Debian packages, each in the lock's order, then a standalone Python; what stands there twice is once here.
    fn components(&self) -> Vec<Component<'_>> {
        let wheels = self.lock.wheels.iter().map(|wheel| Component {
            id: identifier("wheel", &wheel.name, &wheel.sha256),
            name: &wheel.name,
            version: &wheel.version,
            file: Some(&wheel.file),
            purl: purl::for_wheel(wheel),
            sha256: wheel.sha256,
            size_bytes: wheel.size,
            supplier: None,
            license: None,
        });
        let debs = self.lock.all_debs().map(|deb| Component {
            id: identifier("deb", &deb.name, &deb.sha256),
            name: &deb.name,
            version: &deb.version,
            file: None,
            purl: purl::for_deb(deb, &self.lock.target),
            sha256: deb.sha256,
            size_bytes: Some(deb.size),
            // The resolver takes them from the distribution's signed indexes alone.
            supplier: Some(Cow::Borrowed("Debian")),
            license: None,
        });
        let python = self.lock.interpreter.iter().map(|python| Component {
            id: identifier("python", purl::PYTHON, &python.sha256),
            name: purl::PYTHON,
            version: &python.version,
            file: Some(&python.file),
            purl: purl::for_python(python),
            sha256: python.sha256,
            size_bytes: python.size,
            supplier: None,
            license: None,
        });
        let mut seen = std::collections::BTreeSet::new();
        let mut all: Vec<_> = wheels.chain(debs).chain(python).collect();
        all.retain(|component| seen.insert(component.id.clone()));
        for component in &mut all {
            let Some(facts) = self.facts.get(&component.sha256) else {
                continue;
            };
            component.license = facts.license.as_ref();
            if let Some(supplier) = facts.supplier.as_deref().and_then(one_line) {
                component.supplier = Some(Cow::Owned(supplier));
            }
        }
        all
    }
}

fn identifier(kind: &str, name: &str, sha256: &Sha256) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    let name: String = name.chars().map(plain).collect();
    format!("{kind}-{name}-{:.16}", sha256.to_string())
}

/// `text` without what may not be shown and too much of it; `None` if nothing is left.
fn one_line(text: &str) -> Option<String> {
    let spaced = |c: char| {
        if sconce_base::text::is_unprintable(c) {
            ' '
        } else {
            c
        }
    };
    let text: String = text.trim().chars().take(200).map(spaced).collect();
    (!text.trim().is_empty()).then_some(text)
}

/// A name for `document` that only its content decides: the first 128 bits of its SHA-256 after a
/// prefix of ours, as a UUID of version 8 (RFC 9562, section 5.8 and appendix B.2).
fn name_of(document: &[u8]) -> String {
    let mut hasher = sha2::Sha256::new();
    hasher.update(b"sconce sbom\0");
    hasher.update(document);
    let hash: [u8; 32] = hasher.finalize().into();
    let mut id = [0_u8; 16];
    id.copy_from_slice(&hash[..16]);
    id[6] = id[6] & 0x0f | 0x80;
    id[8] = id[8] & 0x3f | 0x80;
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "urn:uuid:{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

/// RFC 3339 in UTC, within what the formats can say: the years 1970 to 9999.
fn utc(seconds_since_1970: i64) -> String {
    const MAX_UNIX_S: i64 = 253_402_300_799;
    format_rfc3339(seconds_since_1970.clamp(0, MAX_UNIX_S))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A lock by hand: a local version, an epoch, a name with plus signs, a name twice.
    pub(crate) fn fixture_lock() -> Lock {
        Lock::parse(include_str!("testdata/lock.toml")).unwrap()
    }

    pub(crate) fn fixture_metadata(lock: &Lock) -> BTreeMap<Sha256, PackageMetadata> {
        let fact = |license: License, supplier: Option<&str>| PackageMetadata {
            license: Some(license),
            supplier: supplier.map(str::to_owned),
        };
        let expression = License::Expression("MIT AND LicenseRef-Own".to_owned());
        let text = License::Text("NVIDIA Proprietary Software\n\nMore of it.".to_owned());
        BTreeMap::from([
            (lock.wheels[1].sha256, fact(expression, None)),
            (
                lock.wheels[0].sha256,
                fact(text, Some("NVIDIA\nCorporation")),
            ),
        ])
    }

    #[test]
    fn times_stay_within_the_formats() {
        for (seconds, text) in [
            (i64::MIN, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn names_come_from_content() {
        let name = name_of(b"");
        assert_eq!(
            name.len(),
            "urn:uuid:00000000-0000-8000-8000-000000000000".len()
        );
        assert_eq!(&name[23..24], "8", "{name}: the version");
        assert!("89ab".contains(&name[28..29]), "{name}: the variant");
        assert_eq!(name, name_of(b""));
        assert_ne!(name, name_of(b"x"));
    }

    #[test]
    fn what_stands_twice_is_named_once() {
        let mut lock = fixture_lock();
        lock.wheels.push(lock.wheels[0].clone());
        let subject = SbomSubject {
            name: "n",
            manifest: None,
            lock: &lock,
            facts: &BTreeMap::new(),
            created_s: 0,
        };
        let ids: Vec<_> = subject.components().into_iter().map(|c| c.id).collect();
        assert_eq!(ids.len(), lock.wheels.len() - 1 + lock.debs.len());
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
        assert!(ids.iter().all(|id| id.chars().all(plain)), "{ids:?}");
    }
}
