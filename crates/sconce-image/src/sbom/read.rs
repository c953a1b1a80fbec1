//! Package lists, from locks and from the documents of any program.

use sconce_schema::{Hint, Lock, Sha256, exit};
use serde::Deserialize;

use super::cyclonedx::SIZE;
use super::purl::{self, PurlType};

/// The largest document that is read, in bytes.
pub const MAX_SBOM_BYTES: usize = 64 << 20;
/// The most packages that a document may hold.
pub const MAX_PACKAGES: usize = 200_000;

/// One package of an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SbomPackage {
    /// Which world it is of.
    pub kind: PurlType,
    /// Its name there.
    pub name: String,
    /// Its version, where the document says one.
    pub version: Option<String>,
    /// The size of its wheel or deb in bytes, where known.
    pub size_bytes: Option<u64>,
    /// The digest of its wheel or deb, where known.
    pub sha256: Option<Sha256>,
}

/// Why a package list cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SbomError {
    /// More than [`MAX_SBOM_BYTES`].
    #[error("the package list has {bytes} bytes; {MAX_SBOM_BYTES} are the most")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Not JSON, or fields of another shape.
    #[error("the package list is not what SPDX or CycloneDX describe")]
    Malformed(#[from] serde_json::Error),
    /// JSON, and neither of the two formats.
    #[error("the package list is neither SPDX 2 nor CycloneDX in JSON")]
    Unknown,
    /// More than [`MAX_PACKAGES`].
    #[error("the package list has {count} packages; {MAX_PACKAGES} are the most")]
    TooMany {
        /// How many.
        count: usize,
    },
}

impl Hint for SbomError {
    fn hint(&self) -> Option<String> {
        let readable = "SPDX 2.2, SPDX 2.3 and CycloneDX, in JSON, can be read";
        matches!(self, Self::Unknown | Self::Malformed(_)).then(|| readable.to_owned())
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// Both formats at once: their fields have different names.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Either {
    spdx_version: Option<String>,
    bom_format: Option<String>,
    #[serde(default)]
    packages: Vec<SpdxPackage>,
    #[serde(default)]
    components: Vec<Component>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpdxPackage {
    #[serde(default)]
    external_refs: Vec<Reference>,
    #[serde(default)]
    checksums: Vec<Checksum>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    reference_type: String,
    reference_locator: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Checksum {
    algorithm: String,
    checksum_value: String,
}

#[derive(Deserialize)]
struct Component {
    purl: Option<String>,
    #[serde(default)]
    hashes: Vec<Hash>,
    #[serde(default)]
    properties: Vec<Property>,
}

#[derive(Deserialize)]
struct Hash {
    alg: String,
    content: String,
}

#[derive(Deserialize)]
struct Property {
    #[serde(default)]
    name: String,
    #[serde(default)]
    value: String,
}

/// The packages of an SPDX 2 or CycloneDX document in JSON, of any program, sorted; twice the same
/// is once here. What has no package URL is passed over (files, operating systems), and so are
/// images, of which the document itself is one.
///
/// # Errors
/// [`SbomError`].
pub fn parse(bytes: &[u8]) -> Result<Vec<SbomPackage>, SbomError> {
    if bytes.len() > MAX_SBOM_BYTES {
        return Err(SbomError::TooLarge { bytes: bytes.len() });
    }
    let read: Either = serde_json::from_slice(bytes)?;
    let spdx = read
        .spdx_version
        .is_some_and(|version| version.starts_with("SPDX-2."));
    if !spdx && read.bom_format.as_deref() != Some("CycloneDX") {
        return Err(SbomError::Unknown);
    }
    let count = read.packages.len() + read.components.len();
    if count > MAX_PACKAGES {
        return Err(SbomError::TooMany { count });
    }
    let spdx = read.packages.iter().filter_map(of_spdx);
    let cyclonedx = read.components.iter().filter_map(of_cyclonedx);
    let image = PurlType::Other("oci".to_owned());
    Ok(sorted(
        spdx.chain(cyclonedx)
            .filter(|package| package.kind != image),
    ))
}

/// The packages of a lock, sorted.
#[must_use]
pub fn packages_of_lock(lock: &Lock) -> Vec<SbomPackage> {
    let wheels = lock.wheels.iter().map(|wheel| SbomPackage {
        kind: PurlType::Python,
        name: wheel.name.clone(),
        version: Some(wheel.version.clone()),
        size_bytes: wheel.size,
        sha256: Some(wheel.sha256),
    });
    let debs = lock.all_debs().map(|deb| SbomPackage {
        kind: PurlType::Debian,
        name: deb.name.clone(),
        version: Some(deb.version.clone()),
        size_bytes: Some(deb.size),
        sha256: Some(deb.sha256),
    });
    let python = lock.interpreter.iter().map(|python| SbomPackage {
        kind: PurlType::Other("generic".to_owned()),
        name: purl::PYTHON.to_owned(),
        version: Some(python.version.clone()),
        size_bytes: python.size,
        sha256: Some(python.sha256),
    });
    sorted(wheels.chain(debs).chain(python))
}

fn sorted(packages: impl Iterator<Item = SbomPackage>) -> Vec<SbomPackage> {
    let mut packages: Vec<_> = packages.collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn of_spdx(package: &SpdxPackage) -> Option<SbomPackage> {
    let purl = package
        .external_refs
        .iter()
        .find(|r| r.reference_type == "purl")?;
    let sha256 = package.checksums.iter().find(|c| c.algorithm == "SHA256");
    let sha256 = sha256.and_then(|sum| sum.checksum_value.parse().ok());
    found(&purl.reference_locator, sha256, None)
}

fn of_cyclonedx(component: &Component) -> Option<SbomPackage> {
    let sha256 = component.hashes.iter().find(|hash| hash.alg == "SHA-256");
    let sha256 = sha256.and_then(|hash| hash.content.parse().ok());
    let size = component.properties.iter().find(|p| p.name == SIZE);
    let size = size.and_then(|size| size.value.parse().ok());
    found(component.purl.as_deref()?, sha256, size)
}

fn found(purl: &str, sha256: Option<Sha256>, size_bytes: Option<u64>) -> Option<SbomPackage> {
    let (kind, name, version) = purl::parse(purl)?;
    Some(SbomPackage {
        kind,
        name,
        version,
        size_bytes,
        sha256,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fixture_lock, fixture_metadata};
    use super::super::{SbomSubject, cyclonedx, spdx};
    use super::*;

    #[test]
    fn both_documents_tell_what_the_lock_tells() {
        let lock = fixture_lock();
        let subject = SbomSubject {
            name: "digits",
            manifest: Some(sconce_oci::Digest::hash_bytes(b"manifest")),
            lock: &lock,
            facts: &fixture_metadata(&lock),
            created_s: 0,
        };
        let mut packages = packages_of_lock(&lock);
        assert_eq!(packages.len(), 4);
        assert_eq!(parse(&cyclonedx(&subject)).unwrap(), packages);
        for package in &mut packages {
            package.size_bytes = None;
        }
        assert_eq!(parse(&spdx(&subject)).unwrap(), packages);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        assert!(matches!(parse(b"{}"), Err(SbomError::Unknown)));
        assert!(matches!(
            parse(br#"{"spdxVersion":"SPDX-3.0"}"#),
            Err(SbomError::Unknown)
        ));
        assert!(matches!(parse(b"[]"), Err(SbomError::Malformed(_))));
        assert!(matches!(parse(b"\xff"), Err(SbomError::Malformed(_))));
        let deep = "[".repeat(100_000);
        let deep = format!(r#"{{"bomFormat":"CycloneDX","x":{deep}"#);
        assert!(matches!(
            parse(deep.as_bytes()),
            Err(SbomError::Malformed(_))
        ));
        let large = vec![b' '; MAX_SBOM_BYTES + 1];
        assert!(matches!(parse(&large), Err(SbomError::TooLarge { .. })));
        let many = format!(
            r#"{{"bomFormat":"CycloneDX","components":[{}{{}}]}}"#,
            "{},".repeat(MAX_PACKAGES)
        );
        assert!(matches!(
            parse(many.as_bytes()),
            Err(SbomError::TooMany { .. })
        ));
    }

    #[test]
    fn fields_that_nobody_can_read_are_missing() {
        let text = r#"{"bomFormat":"CycloneDX","components":[
            {"purl":"pkg:pypi/a@1","hashes":[{"alg":"SHA-256","content":"zz"}],
             "properties":[{"name":"sconce:size-bytes","value":"-1"}]},
            {"purl":"pkg:pypi/a@1"}, {"purl":"nothing"}, {"name":"a file"}]}"#;
        let read = parse(text.as_bytes()).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!((read[0].size_bytes, read[0].sha256), (None, None));
    }
}
