//! What refers to a manifest: signatures, bills of materials (distribution specification,
//! "Listing Referrers" and "Referrers Tag Schema").

use std::collections::BTreeSet;

use sconce_schema::Progress;
use ureq::http::{Method, Uri};

use super::client::{
    Endpoint, ManifestDocument, RegistryClient, RegistryRequest, resolve_location,
};
use super::error::RegistryError;
use super::push::{PushArtifact, PushSummary, push_blobs, push_manifest};
use super::reference::Reference;
use super::wire::Origin;
use sconce_oci as oci;
use sconce_oci::{Descriptor, Digest, ImageIndex, ImageManifest, MAX_DOCUMENT_BYTES, media};

/// The most pages of a list that are read.
const MAX_PAGES: usize = 32;
/// The most entries that are taken.
const MAX_REFERRERS: usize = 10_000;

/// How a registry was made to list an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferrerListing {
    /// The registry does so itself.
    Registry,
    /// It stands in the index with the tag `sha256-DIGEST`.
    Tag,
}

/// What attaching an artifact came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachedArtifact {
    /// The artifact as it was pushed.
    pub pushed: PushSummary,
    /// How it is found.
    pub listing: ReferrerListing,
}

pub(super) fn attach_artifact(
    client: &RegistryClient,
    to: &Reference,
    artifact: &PushArtifact,
    progress: &dyn Progress,
) -> Result<AttachedArtifact, RegistryError> {
    let incomplete = |why: &str| RegistryError::Incomplete {
        reference: to.to_string(),
        why: why.to_owned(),
    };
    let bytes = &artifact.manifest.bytes;
    let manifest = ImageManifest::from_json(bytes).map_err(|e| incomplete(&e.to_string()))?;
    let subject = manifest
        .subject
        .as_ref()
        .ok_or_else(|| incomplete("the artifact has no subject"))?
        .digest;
    let given: BTreeSet<Digest> = artifact
        .layers
        .iter()
        .chain([&artifact.config])
        .map(|blob| blob.descriptor.digest)
        .collect();
    let named = manifest.layers.iter().chain([&manifest.config]);
    if named.map(|one| one.digest).any(|one| !given.contains(&one)) {
        return Err(incomplete("a blob of the artifact is not given"));
    }
    let place = client.resolve_endpoint(to)?;
    let images = std::slice::from_ref(artifact);
    let mut pushed = push_blobs(client, &place, images, &[], progress)?;
    pushed.digest = artifact.manifest.digest();
    let name = pushed.digest.to_string();
    let heeded = push_manifest(client, &place, &artifact.manifest, &name)?;
    if heeded == Some(subject) {
        return Ok(AttachedArtifact {
            pushed,
            listing: ReferrerListing::Registry,
        });
    }
    let mut entry = Descriptor::for_bytes(&artifact.manifest.media_type, bytes);
    // "Referrers Tag Schema": the kind of the artifact, or of its configuration.
    entry.artifact_type = manifest.artifact_type.or(Some(manifest.config.media_type));
    entry.annotations = manifest.annotations;
    let mut index = tagged(client, &place, subject)?.unwrap_or_else(|| ImageIndex::new(Vec::new()));
    if index.manifests.iter().all(|one| one.digest != entry.digest) {
        index.manifests.push(entry);
        let document = ManifestDocument {
            media_type: media::INDEX.to_owned(),
            bytes: oci::to_json(&index),
        };
        push_manifest(client, &place, &document, &tag(subject))?;
    }
    Ok(AttachedArtifact {
        pushed,
        listing: ReferrerListing::Tag,
    })
}

pub(super) fn list_referrers(
    client: &RegistryClient,
    of: &Reference,
    subject: Digest,
    artifact_type: Option<&str>,
) -> Result<Vec<Descriptor>, RegistryError> {
    let place = client.resolve_endpoint(of)?;
    let all = match asked(client, &place, subject)? {
        Some(all) => all,
        None => tagged(client, &place, subject)?.map_or_else(Vec::new, |index| index.manifests),
    };
    // A registry may filter, and need not.
    let wanted = |one: &Descriptor| match artifact_type {
        None => true,
        some => one.artifact_type.as_deref() == some,
    };
    Ok(all.into_iter().filter(wanted).take(MAX_REFERRERS).collect())
}

/// The registry's own list; `None` when it keeps none.
fn asked(
    client: &RegistryClient,
    place: &Endpoint,
    subject: Digest,
) -> Result<Option<Vec<Descriptor>>, RegistryError> {
    let mut url = place.resource_url(&format!("referrers/{subject}"));
    let own = url.parse().ok().and_then(|uri: Uri| Origin::from_uri(&uri));
    let mut all = Vec::new();
    for page in 0..MAX_PAGES {
        let ask = RegistryRequest::new(Method::GET, &url, place.pull_scopes())
            .with_header("accept", media::INDEX);
        let came = client.request_document(place, &ask, MAX_DOCUMENT_BYTES as u64);
        let (about, bytes) = match came {
            Ok(came) => came,
            Err(RegistryError::NotFound { .. }) if page == 0 => return Ok(None),
            Err(RegistryError::Status {
                status: 400 | 405 | 501,
                ..
            }) if page == 0 => return Ok(None),
            Err(e) => return Err(e),
        };
        let kind = about.kind.unwrap_or_default();
        let index = match ImageIndex::from_json(&bytes) {
            Ok(index) if kind.trim().starts_with(media::INDEX) => index,
            // A page for people, as some servers have under every address.
            _ if page == 0 => return Ok(None),
            Ok(_) => {
                return Err(RegistryError::Kind {
                    url: about.url,
                    kind: super::error::printable_text(&kind, 200),
                });
            }
            Err(source) => {
                return Err(RegistryError::Document {
                    url: about.url,
                    source,
                });
            }
        };
        all.extend(index.manifests);
        if all.len() > MAX_REFERRERS {
            break;
        }
        let Some(next) = about.link.as_deref().and_then(next_link) else {
            break;
        };
        let from: Option<Uri> = url.parse().ok();
        let next = from.and_then(|from| resolve_location(&from, Some(next)));
        let next_origin = |text: &String| {
            text.parse()
                .ok()
                .and_then(|uri: Uri| Origin::from_uri(&uri))
        };
        match next.filter(|next| next_origin(next) == own) {
            Some(next) => url = next,
            None => break,
        }
    }
    Ok(Some(all))
}

/// The list under the tag that stands in for the interface.
fn tagged(
    client: &RegistryClient,
    place: &Endpoint,
    subject: Digest,
) -> Result<Option<ImageIndex>, RegistryError> {
    let tag = tag(subject);
    let document = match client.fetch_manifest(place, &tag) {
        Ok(document) => document,
        Err(RegistryError::NotFound { .. }) => return Ok(None),
        Err(e) => return Err(e),
    };
    let index =
        ImageIndex::from_json(&document.bytes).map_err(|source| RegistryError::Document {
            url: place.resource_url(&format!("manifests/{tag}")),
            source,
        })?;
    Ok(Some(index))
}

fn tag(subject: Digest) -> String {
    format!("sha256-{}", subject.to_hex())
}

/// The target of `<…>; rel="next"` (RFC 8288).
fn next_link(header: &str) -> Option<&str> {
    let (target, parameters) = header.trim().strip_prefix('<')?.split_once('>')?;
    let is_next = |one: &str| matches!(one.trim(), "rel=\"next\"" | "rel=next");
    parameters.split(';').any(is_next).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_read() {
        for (header, want) in [
            (
                "</v2/a/referrers/x?n=1>; rel=\"next\"",
                Some("/v2/a/referrers/x?n=1"),
            ),
            ("<?n=1>;rel=next", Some("?n=1")),
            ("</x>; rel=\"prev\"", None),
            ("/x; rel=\"next\"", None),
            ("<x", None),
            ("", None),
        ] {
            assert_eq!(next_link(header), want, "{header}");
        }
    }
}
