//! Signing images, in the form of cosign: keys, claims and manifests that cosign, skopeo and podman
//! read, and theirs read here.
//!
//! Documents are values; whoever calls fetches and pushes them. To sign: [`Claim::new`], [`sign_claim`],
//! [`attach_signature`] with the manifest that lies under [`signature_tag`] already. To verify: fetch the manifest under
//! [`signature_tag`], [`parse_signatures`], fetch each [`UnverifiedSignature::layer`], [`verify_any_signature`].

mod attachment;
mod claim;
mod key;
mod keyfile;
mod pem;
mod secretbox;
#[cfg(test)]
mod tests;

pub use attachment::{
    AttachmentError, MAX_SIGNATURES, PAYLOAD, Signature, SignatureAttachment, SignatureRejection,
    UnverifiedSignature, VerificationFailure, attach_signature, parse_signatures, sign_claim,
    signature_tag, verify_any_signature,
};
pub use claim::{Claim, ClaimError, MAX_PAYLOAD_BYTES};
pub use key::{KeyError, KeyTexts, PublicKey, SigningKey};
pub use keyfile::{KeyFile, MAX_MEMORY_BYTES};
pub use pem::{MAX_PEM_BYTES, PemError};
