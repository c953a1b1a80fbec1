//! Content digests (image specification, "Digests").

use std::fmt;
use std::str::FromStr;

use sconce_schema::Sha256;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Digest as _;

/// A digest, `sha256:` and 64 lower-case hexadecimal digits. No other algorithm is in use for
/// images, so no other is taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub Sha256);

/// A text that is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a digest: `sha256:` and 64 lower-case hexadecimal digits")]
pub struct DigestError {
    text: String,
}

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn hash_bytes(bytes: &[u8]) -> Self {
        Self(Sha256(sha2::Sha256::digest(bytes).into()))
    }

    /// The first twelve digits, as people tell blobs apart.
    #[must_use]
    pub fn to_short_hex(&self) -> String {
        self.to_hex()[..12].to_owned()
    }

    /// The 64 digits alone, as a blob is called in an image layout.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.to_string()
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let lower = |digits: &&str| {
            digits
                .bytes()
                .all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
        };
        let digits = text.strip_prefix("sha256:").filter(lower);
        let digest = digits.and_then(|digits| digits.parse().ok());
        digest.map(Self).ok_or_else(|| DigestError {
            text: text.chars().take(100).collect(),
        })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_algorithm_in_one_spelling() {
        let empty = Digest::hash_bytes(b"");
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(empty.to_string(), text);
        assert_eq!(text.parse(), Ok(empty));
        for wrong in [
            "",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "sha256:sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "sha256:E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
            "sha512:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "sha256:../../etc/passwd",
        ] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
