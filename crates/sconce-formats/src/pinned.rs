//! What another tool's lock says of a package.

/// A package in one version, with the files that it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedPackage {
    /// The project, normalised.
    pub name: String,
    /// The version or the address, as a requirement (PEP 508), with a marker where it is not for
    /// every Python.
    pub requirement: String,
    /// Its files, for whatever platform; empty where the lock tells no SHA-256.
    pub files: Vec<PinnedFile>,
}

/// A file by its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedFile {
    /// The file's name, where it is known.
    pub name: Option<String>,
    /// In lower-case hexadecimal digits.
    pub sha256: String,
}

impl PinnedFile {
    /// A file by its digest as locks write it, `sha256:…`; `None` for a digest of another kind.
    #[must_use]
    pub fn from_digest(name: Option<String>, digest: &str) -> Option<Self> {
        let hex = digest.strip_prefix("sha256:")?.to_ascii_lowercase();
        let is_digest = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        is_digest.then_some(Self { name, sha256: hex })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_sha256_counts() {
        let hex = "0123456789ABCDEF".repeat(4);
        let file = PinnedFile::from_digest(None, &format!("sha256:{hex}")).unwrap();
        assert_eq!(file.sha256, hex.to_ascii_lowercase());
        for digest in ["", "sha256:", "sha256:ab", "md5:0123", &hex] {
            assert_eq!(PinnedFile::from_digest(None, digest), None, "{digest}");
        }
    }
}
