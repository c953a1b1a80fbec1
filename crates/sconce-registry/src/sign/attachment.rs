//! Where signatures lie: beside the image, in a manifest of their own that its tag finds, one layer
//! a signature (cosign's signature specification, "Storage").

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sconce_schema::{Hint, exit};

use super::claim::{Claim, ClaimError, MAX_PAYLOAD_BYTES};
use super::{KeyError, PublicKey, SigningKey};
use sconce_oci as oci;
use sconce_oci::{
    Descriptor, Digest, DocumentError, ImageConfiguration, ImageManifest, RootFs, media,
};

/// Media type of a payload.
pub const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The layer's annotation that holds its signature.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// The most signatures that are looked at, as cosign does.
pub const MAX_SIGNATURES: usize = 1000;

/// A claim and its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The signed bytes.
    pub payload: Vec<u8>,
    /// The signature in DER.
    pub der: Vec<u8>,
}

/// What is to be pushed: first `config` and `payload` as blobs, then `manifest` under `tag`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureAttachment {
    /// [`signature_tag`] of the image.
    pub tag: String,
    /// The manifest, of media type [`media::MANIFEST`].
    pub manifest: Vec<u8>,
    /// Its configuration.
    pub config: Vec<u8>,
    /// The layer that is new.
    pub payload: Vec<u8>,
}

/// A signature of an image as its manifest names it: not yet verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnverifiedSignature {
    /// The layer that holds the payload: [`MAX_PAYLOAD_BYTES`] bytes at most.
    pub layer: Descriptor,
    /// The signature in base64.
    signature: String,
}

/// Why a signature manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AttachmentError {
    /// Not a manifest.
    #[error("the image's signatures cannot be read")]
    Document(#[from] DocumentError),
    /// More than [`MAX_SIGNATURES`].
    #[error("the image has {count} signatures; {MAX_SIGNATURES} are the most")]
    TooMany {
        /// How many.
        count: usize,
    },
}

impl Hint for AttachmentError {
    fn hint(&self) -> Option<String> {
        let mend = "remove the tag `sha256-….sig` of this image from the repository and sign again";
        Some(mend.to_owned())
    }

    fn exit_code(&self) -> u8 {
        exit::VERIFY
    }
}

/// Why one signature does not count.
#[derive(Debug, thiserror::Error)]
pub enum SignatureRejection {
    /// The payload is not the one that the manifest names.
    #[error("its text is not the one that its digest names")]
    Payload,
    /// Not base64.
    #[error("it is malformed")]
    Malformed,
    /// By none of the keys.
    #[error("it is by another key, or its text was changed")]
    Key,
    /// Signed, but not a claim about an image.
    #[error("it is no statement about an image")]
    Claim(#[from] ClaimError),
    /// Signed, for other bytes.
    #[error("it is for the manifest {signed}")]
    Digest {
        /// What was signed.
        signed: Digest,
    },
    /// Signed, under another name.
    #[error("it is for the image `{signed}`")]
    Reference {
        /// What was signed, or as much as fits a line.
        signed: String,
    },
}

/// No signature of an image counts.
#[derive(Debug, thiserror::Error)]
#[error("{reference} has no signature by {}", if *.keys == 1 { "the key that was asked for" } else { "any of the keys that were asked for" })]
pub struct VerificationFailure {
    /// The image.
    pub reference: String,
    /// How many keys would have done.
    pub keys: usize,
    /// Why each signature does not count, in their order; empty if there is none.
    pub refusals: Vec<SignatureRejection>,
}

impl Hint for VerificationFailure {
    fn hint(&self) -> Option<String> {
        let Some(first) = self.refusals.first() else {
            return Some("nobody has signed this image; ask who built it".to_owned());
        };
        let count = self.refusals.len();
        let all = match count {
            1 => "its one signature does not count".to_owned(),
            _ => format!("none of its {count} signatures counts; the first"),
        };
        Some(format!("{all}: {first}"))
    }

    fn exit_code(&self) -> u8 {
        exit::VERIFY
    }
}

/// The tag that finds an image's signatures in its repository.
#[must_use]
pub fn signature_tag(image: &Digest) -> String {
    format!("sha256-{}.sig", image.to_hex())
}

/// Signs a claim.
///
/// # Errors
/// [`KeyError::Random`].
pub fn sign_claim(key: &SigningKey, claim: &Claim) -> Result<Signature, KeyError> {
    let payload = claim.to_payload();
    let der = key.sign(&payload)?;
    Ok(Signature { payload, der })
}

/// The documents that attach `signature` to `image`. `present` is the manifest that lies under
/// [`signature_tag`] already; its signatures stay.
///
/// # Errors
/// [`AttachmentError`] if `present` cannot be used.
pub fn attach_signature(
    image: &Digest,
    present: Option<&[u8]>,
    signature: &Signature,
) -> Result<SignatureAttachment, AttachmentError> {
    let present = present.map(ImageManifest::from_json).transpose()?;
    let mut layer = Descriptor::for_bytes(PAYLOAD, &signature.payload);
    let encoded = STANDARD.encode(&signature.der);
    layer.annotations = Some([(SIGNATURE.to_owned(), encoded)].into());
    let mut layers = present
        .as_ref()
        .map(|m| m.layers.clone())
        .unwrap_or_default();
    layers.push(layer);
    if layers.len() > MAX_SIGNATURES {
        let count = layers.len();
        return Err(AttachmentError::TooMany { count });
    }
    // What cosign writes: an image of no machine, whose layers are as they are.
    let config = oci::to_json(&ImageConfiguration {
        created: None,
        architecture: String::new(),
        os: String::new(),
        config: Some(oci::ExecutionDefaults::default()),
        rootfs: RootFs {
            kind: "layers".to_owned(),
            diff_ids: layers.iter().map(|layer| layer.digest).collect(),
        },
        history: None,
    });
    let mut manifest = ImageManifest::new(Descriptor::for_bytes(media::CONFIG, &config), layers);
    manifest.annotations = present.and_then(|manifest| manifest.annotations);
    Ok(SignatureAttachment {
        tag: signature_tag(image),
        manifest: oci::to_json(&manifest),
        config,
        payload: signature.payload.clone(),
    })
}

/// The signatures that a signature manifest names. Layers of other kinds, layers without a signature
/// and payloads above [`MAX_PAYLOAD_BYTES`] are passed over: they cannot count.
///
/// # Errors
/// [`AttachmentError`].
pub fn parse_signatures(manifest: &[u8]) -> Result<Vec<UnverifiedSignature>, AttachmentError> {
    let layers = ImageManifest::from_json(manifest)?.layers;
    if layers.len() > MAX_SIGNATURES {
        let count = layers.len();
        return Err(AttachmentError::TooMany { count });
    }
    let found = layers.into_iter().filter_map(|layer| {
        let signature = layer.annotations.as_ref()?.get(SIGNATURE)?.clone();
        let fits = layer.media_type == PAYLOAD && layer.size <= MAX_PAYLOAD_BYTES as u64;
        fits.then_some(UnverifiedSignature { layer, signature })
    });
    Ok(found.collect())
}

impl UnverifiedSignature {
    /// What this signature says of the image `digest` under the name `reference`, if one of `keys`
    /// made it. `payload` are the bytes of [`UnverifiedSignature::layer`].
    ///
    /// # Errors
    /// [`SignatureRejection`].
    pub fn verify_payload(
        &self,
        payload: &[u8],
        keys: &[PublicKey],
        digest: &Digest,
        reference: &str,
    ) -> Result<Claim, SignatureRejection> {
        if payload.len() as u64 != self.layer.size
            || Digest::hash_bytes(payload) != self.layer.digest
        {
            return Err(SignatureRejection::Payload);
        }
        let der = STANDARD
            .decode(&self.signature)
            .map_err(|_| SignatureRejection::Malformed)?;
        // Nothing of the payload is read before somebody who is trusted vouches for it.
        if !keys.iter().any(|key| key.verify(payload, &der)) {
            return Err(SignatureRejection::Key);
        }
        let claim = Claim::parse(payload)?;
        if claim.digest != *digest {
            return Err(SignatureRejection::Digest {
                signed: claim.digest,
            });
        }
        if !claim.is_about(reference) {
            let printable = claim
                .reference
                .chars()
                .filter(|c| !sconce_base::text::is_unprintable(*c));
            return Err(SignatureRejection::Reference {
                signed: printable.take(200).collect(),
            });
        }
        Ok(claim)
    }
}

/// Looks for a signature of the image `digest` under the name `reference` by one of `keys`; one is
/// enough. Each signature comes with the bytes of its layer.
///
/// # Errors
/// [`VerificationFailure`] with the reason for each signature, also when there is none.
pub fn verify_any_signature<'a>(
    signatures: impl IntoIterator<Item = (&'a UnverifiedSignature, &'a [u8])>,
    keys: &[PublicKey],
    digest: &Digest,
    reference: &str,
) -> Result<Claim, VerificationFailure> {
    let mut refusals = Vec::new();
    for (signature, payload) in signatures {
        match signature.verify_payload(payload, keys, digest, reference) {
            Ok(claim) => return Ok(claim),
            Err(refusal) => refusals.push(refusal),
        }
    }
    Err(VerificationFailure {
        reference: reference.to_owned(),
        keys: keys.len(),
        refusals,
    })
}
