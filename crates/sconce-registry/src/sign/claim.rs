//! What a signature says: the "simple signing" payload, as cosign and containers/image write it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use sconce_oci as oci;
use sconce_oci::Digest;

/// The largest payload that is read, in bytes. Usual ones have some hundred.
pub const MAX_PAYLOAD_BYTES: usize = 64 << 10;
/// The longest reference that is signed.
const MAX_REFERENCE_BYTES: usize = 1024;
const KIND: &str = "cosign container image signature";

/// "This manifest is the image of this name."
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The image's name with its registry: `host/repository`, or `host/repository:tag`. cosign leaves
    /// the tag out; the policies of skopeo and podman ask for the tag unless they are told
    /// `matchRepository`.
    pub reference: String,
    /// The manifest's digest.
    pub digest: Digest,
    /// The program that signed, where it says so.
    pub creator: Option<String>,
    /// When, in seconds since 1970, where it says so. Nobody but the signer vouches for it.
    pub signed_s: Option<i64>,
}

/// Why a payload or a claim is none.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// More than [`MAX_PAYLOAD_BYTES`].
    #[error("the signed text has {bytes} bytes; {MAX_PAYLOAD_BYTES} are the most")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Not JSON, or other fields than the format has.
    #[error("the signed text is not what cosign writes")]
    Malformed(#[from] serde_json::Error),
    /// It is about something else than an image.
    #[error("the signed text is a `{found}`, not a `{KIND}`")]
    Kind {
        /// What it says, or as much as fits a line.
        found: String,
    },
    /// A name that cannot be signed.
    #[error("`{reference}` is no name of an image with its registry, such as host/repository:tag")]
    Reference {
        /// The name.
        reference: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    critical: Critical,
    // Present and null, where there is nothing: both are asked for by other readers.
    #[serde(default)]
    optional: Option<Value>,
}

// Unknown fields here must be refused: that is what "critical" means.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Critical {
    identity: Identity,
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    #[serde(rename = "docker-reference")]
    reference: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: Digest,
}

impl Claim {
    /// A claim for an image name with its registry. A digest behind the name (`@sha256:…`) is left
    /// out, as it is said by itself.
    ///
    /// # Errors
    /// [`ClaimError::Reference`] if the name has no registry or is malformed.
    pub fn new(reference: &str, digest: Digest) -> Result<Self, ClaimError> {
        let (repository, tag) = split(reference);
        let letters = |text: &str| {
            text.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-/:[]".contains(&b))
        };
        let parts = repository.split('/');
        let fine = repository.contains('/')
            && parts.clone().all(|part| !part.is_empty())
            && tag != Some("")
            && letters(reference.split('@').next().unwrap_or_default())
            && reference.len() <= MAX_REFERENCE_BYTES;
        if !fine {
            return Err(ClaimError::Reference {
                reference: reference.chars().take(200).collect(),
            });
        }
        let tag = tag.map(|tag| format!(":{tag}")).unwrap_or_default();
        Ok(Self {
            reference: format!("{repository}{tag}"),
            digest,
            creator: None,
            signed_s: None,
        })
    }

    /// The bytes to sign. The same claim gives the same bytes.
    #[must_use]
    pub fn to_payload(&self) -> Vec<u8> {
        let mut optional = serde_json::Map::new();
        if let Some(creator) = &self.creator {
            optional.insert("creator".to_owned(), creator.clone().into());
        }
        if let Some(signed_s) = self.signed_s {
            optional.insert("timestamp".to_owned(), signed_s.into());
        }
        oci::to_json(&Payload {
            critical: Critical {
                identity: Identity {
                    reference: self.reference.clone(),
                },
                image: Image {
                    digest: self.digest,
                },
                kind: KIND.to_owned(),
            },
            optional: (!optional.is_empty()).then_some(Value::Object(optional)),
        })
    }

    /// Reads signed bytes. They say nothing before their signature was verified.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn parse(payload: &[u8]) -> Result<Self, ClaimError> {
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(ClaimError::TooLarge {
                bytes: payload.len(),
            });
        }
        let Payload { critical, optional } = serde_json::from_slice(payload)?;
        if critical.kind != KIND {
            return Err(ClaimError::Kind {
                found: critical.kind.chars().take(60).collect(),
            });
        }
        let said = |name| optional.as_ref().and_then(|optional| optional.get(name));
        Ok(Self {
            reference: critical.identity.reference,
            digest: critical.image.digest,
            creator: said("creator").and_then(Value::as_str).map(str::to_owned),
            signed_s: said("timestamp").and_then(Value::as_i64),
        })
    }

    /// Whether the claim is about `reference`: the same repository, and the same tag where both name
    /// one. A claim without a tag (cosign's) is about every tag; a reference without a tag asks for
    /// none.
    #[must_use]
    pub fn is_about(&self, reference: &str) -> bool {
        let (repository, tag) = split(&self.reference);
        let (asked, asked_tag) = split(reference);
        let tags = tag.is_none() || asked_tag.is_none() || tag == asked_tag;
        repository == asked && tags
    }
}

/// Repository and tag of `host/repository:tag@digest`.
fn split(reference: &str) -> (&str, Option<&str>) {
    let name = reference.split('@').next().unwrap_or_default();
    match name.rsplit_once(':') {
        // A colon before a slash is a port's.
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag)),
        _ => (name, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest() -> Digest {
        Digest::hash_bytes(b"manifest")
    }

    #[test]
    fn what_is_written_is_read() {
        let mut claim = Claim::new("localhost:5000/a/b:1", digest()).unwrap();
        let plain = String::from_utf8(claim.to_payload()).unwrap();
        assert!(plain.ends_with(r#""optional":null}"#), "{plain}");
        assert_eq!(Claim::parse(plain.as_bytes()).unwrap(), claim);
        claim.creator = Some("sconce".to_owned());
        claim.signed_s = Some(1);
        assert_eq!(Claim::parse(&claim.to_payload()).unwrap(), claim);
    }

    #[test]
    fn names_to_sign() {
        let name = |text: &str| Claim::new(text, digest()).map(|claim| claim.reference);
        assert_eq!(
            name("h.example.org/a:1@sha256:00").unwrap(),
            "h.example.org/a:1"
        );
        assert_eq!(name("[::1]:5000/a").unwrap(), "[::1]:5000/a");
        let long = format!("h/{}", "a".repeat(MAX_REFERENCE_BYTES));
        for wrong in [
            "",
            "a",
            "a:1",
            "localhost:5000",
            "/a",
            "h/",
            "h/a:",
            "h//a",
            "h/a b",
            "h/a\n",
            "h/ä",
            &long,
        ] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn whom_a_claim_names() {
        let of = |text: &str| Claim::new(text, digest()).unwrap();
        let tagged = of("localhost:5000/a:1");
        let whole = of("localhost:5000/a");
        for (claim, asked, expected) in [
            (&tagged, "localhost:5000/a:1", true),
            (&tagged, "localhost:5000/a:2", false),
            (&tagged, "localhost:5000/a", true),
            (&tagged, "localhost:5000/a@sha256:00", true),
            (&tagged, "localhost:5001/a:1", false),
            (&tagged, "localhost:5000/b:1", false),
            (&tagged, "localhost:5000/a:1/b", false),
            (&whole, "localhost:5000/a:7", true),
            (&whole, "localhost:5000/a/b", false),
            (&whole, "", false),
        ] {
            assert_eq!(
                claim.is_about(asked),
                expected,
                "{} {asked}",
                claim.reference
            );
        }
    }

    #[test]
    fn hostile_payloads() {
        let good = String::from_utf8(Claim::new("h/a", digest()).unwrap().to_payload()).unwrap();
        let changed = |from: &str, to: &str| {
            assert!(good.contains(from));
            Claim::parse(good.replace(from, to).as_bytes())
        };
        assert!(matches!(
            changed("cosign container", "x"),
            Err(ClaimError::Kind { .. })
        ));
        for (from, to) in [
            ("\"type\"", "\"new\":1,\"type\""),
            ("\"type\"", "\"image\":{},\"type\""),
            ("\"optional\"", "\"more\":null,\"optional\""),
            ("sha256:", "sha512:"),
            ("\"h/a\"", "7"),
            ("null}", "null"),
            ("null}", "null}}"),
        ] {
            assert!(
                matches!(changed(from, to), Err(ClaimError::Malformed(_))),
                "{to}"
            );
        }
        for odd in [
            "7",
            "[]",
            "\"creator\"",
            r#"{"creator":7,"timestamp":0.5,"x":[]}"#,
        ] {
            let claim = changed("null", odd).unwrap();
            assert_eq!((claim.creator, claim.signed_s), (None, None), "{odd}");
        }
        let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
        assert!(matches!(
            changed("null", &deep),
            Err(ClaimError::Malformed(_))
        ));
        let large = vec![b' '; MAX_PAYLOAD_BYTES + 1];
        assert!(matches!(
            Claim::parse(&large),
            Err(ClaimError::TooLarge { .. })
        ));
    }
}
