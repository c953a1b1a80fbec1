//! Registries: images pushed and pulled by the OCI distribution specification, version 1.1.
//!
//! Everything that a registry says is hostile: sizes are bounded, digests are checked, addresses
//! are followed only where [`RegistrySettings`] allow it, and a login goes to no other origin than the
//! registry it is for and the token server that this registry names.
//!
//! A pull may ask mirrors first. What comes from a mirror by digest is the same as from the
//! registry or it is refused; which digest a *tag* has, a mirror is believed to know, as every
//! engine with mirrors does. Who does not want that names the digest.
#![forbid(unsafe_code)]

mod auth;
mod blob;
mod challenge;
mod client;
mod error;
#[cfg(test)]
mod golden;
mod helper;
mod logins;
mod pool;
mod pull;
mod push;
mod reference;
mod referrers;
pub mod sign;
mod upload;
mod wire;

use std::io::Write;
use std::path::Path;

use sconce_fetch::FetchConfig;
use sconce_schema::Progress;

pub use challenge::{Challenge, parse_challenges};
pub use client::ManifestDocument;
use client::RegistryClient;
pub use error::RegistryError;
pub use helper::{CredentialHelpers, HelperError, HelperPrograms};
pub use logins::{Login, LoginSources, LoginsError};
pub use pull::{PulledImage, ResolvedManifest};
pub use push::{BlobCount, PushArtifact, PushSummary};
pub use reference::{Reference, ReferenceError};
pub use referrers::{AttachedArtifact, ReferrerListing};
pub use upload::{Blob, BlobSource};

use sconce_oci::{Descriptor, Digest, Platform};

/// A registry's stand-in for pulls, as `registries.conf` has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// The registry that it stands for, `HOST[:PORT]`.
    pub of: String,
    /// Its address, `https://HOST[:PORT][/PREFIX]`; the repository's path follows the prefix.
    pub base: String,
}

/// How registries are asked.
#[derive(Debug, Clone)]
pub struct RegistrySettings {
    /// Retries, pauses, time limits, certificates, proxies. Its `credentials` are not used here.
    pub fetch: FetchConfig,
    /// Where logins come from.
    pub logins: LoginSources,
    /// Registries and mirrors, `HOST[:PORT]`, that may be asked without TLS. Hosts of this machine
    /// always may. TLS is tried first with all of them.
    pub insecure: Vec<String>,
    /// Asked first on pulls, in this order.
    pub mirrors: Vec<Mirror>,
    /// How many blobs are under way at once.
    pub parallel: usize,
    /// Up to this size in bytes, a blob is first sent in one request.
    pub whole_bytes: u64,
    /// The size in bytes of the pieces that it is sent in otherwise, and after a break.
    pub piece_bytes: u64,
}

impl Default for RegistrySettings {
    fn default() -> Self {
        Self {
            fetch: FetchConfig::default(),
            logins: LoginSources::empty(),
            insecure: Vec::new(),
            mirrors: Vec::new(),
            parallel: 4,
            whole_bytes: u64::MAX,
            piece_bytes: 32 << 20,
        }
    }
}

/// Pushes to and pulls from registries. One for a whole command: connections, tokens and answers of
/// credential helpers are kept.
#[derive(Debug)]
pub struct Registry {
    client: RegistryClient,
}

impl Registry {
    /// A client with these settings.
    ///
    /// # Errors
    /// [`RegistryError::Setup`] and [`RegistryError::Setting`].
    pub fn new(settings: RegistrySettings) -> Result<Self, RegistryError> {
        Ok(Self {
            client: RegistryClient::new(settings)?,
        })
    }

    /// Pushes images, and an index of them where one is given, and then gives what was pushed last
    /// the reference's tag (`latest` where it has neither tag nor digest).
    ///
    /// Blobs go first, then configurations, then manifests by digest, then the tag, so that whoever
    /// pulls in between finds the old image or the new one, whole. What the registry has is not
    /// sent; what it has in one of the repositories `mount_from` is mounted.
    ///
    /// # Errors
    /// [`RegistryError`]. What got there stays and is skipped the next time.
    pub fn push_images(
        &self,
        to: &Reference,
        images: &[PushArtifact],
        index: Option<&ManifestDocument>,
        mount_from: &[String],
        progress: &dyn Progress,
    ) -> Result<PushSummary, RegistryError> {
        push::push_images(&self.client, to, images, index, mount_from, progress)
    }

    /// Pushes an artifact by digest whose manifest has a `subject` in the same repository, and sees
    /// to it that [`Registry::list_referrers`] lists it.
    ///
    /// A registry without the referrers interface is given the list under the tag
    /// `sha256-DIGEST`, as the specification has it. Two who do this at the same moment can lose
    /// one of the entries; the artifact itself is never lost.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn attach_artifact(
        &self,
        to: &Reference,
        artifact: &PushArtifact,
        progress: &dyn Progress,
    ) -> Result<AttachedArtifact, RegistryError> {
        referrers::attach_artifact(&self.client, to, artifact, progress)
    }

    /// What refers to the manifest `subject` of a repository: signatures, bills of materials.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn list_referrers(
        &self,
        of: &Reference,
        subject: Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, RegistryError> {
        referrers::list_referrers(&self.client, of, subject, artifact_type)
    }

    /// The digest that the reference has now; `None` when the registry does not have it.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn resolve_digest(&self, of: &Reference) -> Result<Option<Digest>, RegistryError> {
        let place = self.client.resolve_endpoint(of)?;
        self.client
            .request_manifest_digest(&place, &of.tag_or_digest())
    }

    /// Finds the manifest of the reference for a platform, through an index where there is one.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn resolve_manifest(
        &self,
        from: &Reference,
        platform: &Platform,
        progress: &dyn Progress,
    ) -> Result<ResolvedManifest, RegistryError> {
        pull::resolve_manifest(&self.client, from, platform, progress)
    }

    /// Brings an image for a platform: configuration and layers become files in `folder`, called by
    /// the 64 digits of their digest, as in an image layout's `blobs/sha256`. What lies there
    /// already is checked and kept. A file is there whole and right, or not at all. A layer that the
    /// caller `has` is not fetched and gets no file.
    ///
    /// # Errors
    /// [`RegistryError`]. The files that were complete stay.
    pub fn pull_image(
        &self,
        from: &Reference,
        platform: &Platform,
        folder: &Path,
        has: &dyn Fn(&Digest) -> bool,
        progress: &dyn Progress,
    ) -> Result<PulledImage, RegistryError> {
        pull::pull_image(&self.client, from, platform, folder, has, progress)
    }

    /// Brings one blob of a repository into `sink`, in order, without gaps. Only when this returns
    /// is known that it was the right one: after an error, what `sink` got must be thrown away.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn fetch_blob(
        &self,
        from: &Reference,
        what: &Descriptor,
        sink: &mut dyn Write,
        progress: &dyn Progress,
    ) -> Result<(), RegistryError> {
        let sources = self.client.list_pull_endpoints(from, progress)?;
        blob::into_sink(&self.client, &sources, what, sink, progress)
    }

    /// A manifest or index of a repository by its digest, checked.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub fn fetch_document(
        &self,
        from: &Reference,
        digest: Digest,
        progress: &dyn Progress,
    ) -> Result<ManifestDocument, RegistryError> {
        let sources = self.client.list_pull_endpoints(from, progress)?;
        pull::fetch_document(&self.client, &sources, &digest.to_string(), progress)
    }
}
