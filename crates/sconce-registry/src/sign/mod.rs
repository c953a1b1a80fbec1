//! Signing images, in the form of cosign: keys, claims and manifests that cosign, skopeo and podman
//! read, and theirs read here.
//!
//! Documents are values; whoever calls fetches and pushes them. To sign: [`Claim::new`], [`sign`],
//! [`attach`] with the manifest that lies under [`tag`] already. To verify: fetch the manifest under
//! [`tag`], [`attached`], fetch each [`UnverifiedSignature::layer`], [`verify`].

mod attachment;
mod claim;
mod key;
mod keyfile;
mod pem;
mod secretbox;
#[cfg(test)]
mod tests;

pub use attachment::{
    AttachmentError, MOST_SIGNATURES, PAYLOAD, Signature, SignatureAttachment, SignatureRejection,
    UnverifiedSignature, VerificationFailure, attach, attached, sign, tag, verify,
};
pub use claim::{Claim, ClaimError, LARGEST_PAYLOAD};
pub use key::{KeyError, KeyTexts, PublicKey, SigningKey};
pub use keyfile::{KeyFile, MOST_MEMORY};
pub use pem::{LARGEST_PEM, PemError};
