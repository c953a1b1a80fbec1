//! Images from a registry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use sconce_schema::Progress;
use tracing::info;

use super::blob::into_folder;
use super::client::{Endpoint, ManifestDocument, RegistryClient};
use super::error::{RegistryError, printable_text};
use super::pool::{TransferMeter, run_parallel};
use super::push::BlobCount;
use super::reference::Reference;
use sconce_oci as oci;
use sconce_oci::{
    Descriptor, Digest, ImageIndex, ImageManifest, MAX_DOCUMENT_BYTES, Platform, media,
};

/// An index may hold indexes, this deep.
const MAX_INDEX_DEPTH: usize = 3;
/// The most layers that an image may have. Engines stop at 128 or so.
const MAX_LAYERS: usize = 1024;

/// A manifest that a reference led to.
#[derive(Debug, Clone)]
pub struct ResolvedManifest {
    /// The digest that the reference itself has: of the index, or of the manifest.
    pub digest: Digest,
    /// The index, where there is one.
    pub index: Option<ManifestDocument>,
    /// The manifest as it came.
    pub document: ManifestDocument,
    /// The manifest as it reads.
    pub manifest: ImageManifest,
}

/// An image whose blobs are here.
#[derive(Debug, Clone)]
pub struct PulledImage {
    /// Its manifest, and how it was found.
    pub resolved: ResolvedManifest,
    /// Its configuration.
    pub image: oci::ImageConfiguration,
    /// The file of its configuration.
    pub config: PathBuf,
    /// The files of its layers, lowest first; one can be there twice. Those that the caller has are
    /// not there.
    pub layers: Vec<PathBuf>,
    /// Blobs that were fetched.
    pub fetched: BlobCount,
    /// Blobs that were here and right, the caller's own among them.
    pub kept: BlobCount,
}

pub(super) fn resolve_manifest(
    client: &RegistryClient,
    from: &Reference,
    platform: &Platform,
    progress: &dyn Progress,
) -> Result<ResolvedManifest, RegistryError> {
    let sources = client.list_pull_endpoints(from, progress)?;
    find(client, &sources, from, platform, progress)
}

fn find(
    client: &RegistryClient,
    sources: &[Endpoint],
    from: &Reference,
    platform: &Platform,
    progress: &dyn Progress,
) -> Result<ResolvedManifest, RegistryError> {
    let mut found = fetch_document(client, sources, &from.tag_or_digest(), progress)?;
    let digest = found.digest();
    let mut index = None;
    for _ in 0..=MAX_INDEX_DEPTH {
        let unusable = |source| RegistryError::Document {
            url: format!("{}@{}", from.with_digest(digest), found.digest()),
            source,
        };
        if !is_index(&found.media_type) {
            let manifest = ImageManifest::from_json(&found.bytes).map_err(unusable)?;
            return Ok(ResolvedManifest {
                digest,
                index,
                document: found,
                manifest,
            });
        }
        let list = ImageIndex::from_json(&found.bytes).map_err(unusable)?;
        let chosen = choose(&list, platform).ok_or_else(|| RegistryError::Platform {
            reference: from.to_string(),
            wanted: named(platform),
            offered: offered(&list),
        })?;
        let inner = fetch_document(client, sources, &chosen.digest.to_string(), progress)?;
        if inner.bytes.len() as u64 != chosen.size {
            return Err(RegistryError::Size {
                url: from.with_digest(chosen.digest).to_string(),
                wanted: chosen.size,
                found: inner.bytes.len() as u64,
            });
        }
        index.get_or_insert(found);
        found = inner;
    }
    Err(RegistryError::Kind {
        url: from.to_string(),
        kind: "an index within an index within an index".to_owned(),
    })
}

/// A document by digest or tag, from the first source that has it.
pub(super) fn fetch_document(
    client: &RegistryClient,
    sources: &[Endpoint],
    wanted: &str,
    progress: &dyn Progress,
) -> Result<ManifestDocument, RegistryError> {
    let mut last = None;
    for place in sources {
        match client.fetch_manifest(place, wanted) {
            Ok(document) => return Ok(document),
            Err(e) => {
                if let Some(earlier) = last.replace(e) {
                    progress.note(&format!("{earlier}; the next source was asked"));
                }
            }
        }
    }
    Err(last.unwrap_or_else(|| RegistryError::NotFound {
        url: printable_text(wanted, 200),
        said: None,
    }))
}

pub(super) fn pull_image(
    client: &RegistryClient,
    from: &Reference,
    platform: &Platform,
    folder: &Path,
    has: &dyn Fn(&Digest) -> bool,
    progress: &dyn Progress,
) -> Result<PulledImage, RegistryError> {
    let sources = client.list_pull_endpoints(from, progress)?;
    let resolved = find(client, &sources, from, platform, progress)?;
    let ImageManifest { config, layers, .. } = &resolved.manifest;
    let incomplete = |why: &str| RegistryError::Incomplete {
        reference: from.to_string(),
        why: why.to_owned(),
    };
    if layers.len() > MAX_LAYERS {
        return Err(incomplete("it has more than 1024 layers"));
    }
    if config.size > MAX_DOCUMENT_BYTES as u64 {
        return Err(RegistryError::TooLarge {
            url: from.with_digest(config.digest).to_string(),
            limit: MAX_DOCUMENT_BYTES as u64,
        });
    }
    // The same layer twice is one blob; a size of its own each would be two.
    let mut wanted: BTreeMap<Digest, &Descriptor> = BTreeMap::new();
    for layer in layers {
        if wanted
            .insert(layer.digest, layer)
            .is_some_and(|other| other.size != layer.size)
        {
            return Err(incomplete("one of its layers has two sizes"));
        }
    }
    let (own, blobs): (Vec<&Descriptor>, Vec<&Descriptor>) =
        wanted.into_values().partition(|layer| has(&layer.digest));
    let sizes = blobs.iter().map(|layer| layer.size);
    let total = sizes.chain([config.size]).reduce(u64::saturating_add);
    let digest = resolved.digest;
    info!(%digest, layers = layers.len(), there = own.len(), "pulls the image");
    progress.stage("pull", total);

    let stop = AtomicBool::new(false);
    let bring = |what: &Descriptor| {
        let mut meter = TransferMeter::new(progress, &stop, what.digest.to_string());
        into_folder(client, &sources, what, folder, &mut meter)
    };
    let file = |what: &Descriptor| folder.join(what.digest.to_hex());
    // First: whether this is an image for this machine decides about the rest.
    let config_was_fetched = bring(config)?;
    let text = std::fs::read(file(config)).map_err(|source| RegistryError::Disk {
        path: file(config),
        source,
    })?;
    let image =
        oci::ImageConfiguration::from_json(&text).map_err(|source| RegistryError::Document {
            url: from.with_digest(config.digest).to_string(),
            source,
        })?;
    let there = Platform {
        architecture: image.architecture.clone(),
        os: image.os.clone(),
        variant: None,
    };
    if !fits(&there, platform) {
        return Err(RegistryError::Platform {
            reference: from.to_string(),
            wanted: named(platform),
            offered: named(&there),
        });
    }
    if image.rootfs.diff_ids.len() != layers.len() {
        return Err(incomplete(
            "its configuration names another number of layers",
        ));
    }

    let went = run_parallel(&blobs, client.settings.parallel, &stop, |what| bring(what))?;
    let (mut fetched, mut kept) = (BlobCount::default(), BlobCount::default());
    let all = blobs
        .into_iter()
        .zip(went)
        .chain([(config, config_was_fetched)]);
    for (what, was_fetched) in all {
        let tally = if was_fetched { &mut fetched } else { &mut kept };
        tally.add_blob(what.size);
    }
    for what in &own {
        kept.add_blob(what.size);
    }
    Ok(PulledImage {
        config: file(config),
        layers: layers.iter().map(file).collect(),
        image,
        resolved,
        fetched,
        kept,
    })
}

fn is_index(media_type: &str) -> bool {
    media_type == media::INDEX || media_type == media::DOCKER_LIST
}

/// The first manifest of an index for a machine; one of exactly its variant before others.
fn choose<'a>(index: &'a ImageIndex, wanted: &Platform) -> Option<&'a Descriptor> {
    let of = |d: &Descriptor| d.platform.clone();
    let fitting = |d: &&Descriptor| match &d.platform {
        Some(platform) => fits(platform, wanted),
        // An index within an index need not say what it is for.
        None => is_index(&d.media_type),
    };
    let mut exact = index.manifests.iter().filter(fitting);
    exact
        .find(|d| of(d).is_some_and(|p| variant(&p) == variant(wanted)))
        .or_else(|| index.manifests.iter().find(fitting))
}

/// Whether what is for `own` runs on `wanted`.
fn fits(own: &Platform, wanted: &Platform) -> bool {
    let variants = match (variant(own), variant(wanted)) {
        (Some(own), Some(wanted)) => own == wanted,
        _ => true,
    };
    own.os == wanted.os && own.architecture == wanted.architecture && variants
}

/// The variant, without those that go without saying.
fn variant(platform: &Platform) -> Option<&str> {
    match (platform.architecture.as_str(), platform.variant.as_deref()) {
        ("arm64", Some("v8")) | ("amd64", Some("v1")) => None,
        (_, variant) => variant.filter(|variant| !variant.is_empty()),
    }
}

fn named(platform: &Platform) -> String {
    let mut text = format!("{}/{}", platform.os, platform.architecture);
    if let Some(variant) = &platform.variant {
        text = format!("{text}/{variant}");
    }
    printable_text(&text, 60)
}

fn offered(index: &ImageIndex) -> String {
    let platforms = index.manifests.iter().filter_map(|d| d.platform.as_ref());
    // Attestations are listed as manifests for no machine.
    let mut names: Vec<String> = platforms
        .filter(|platform| platform.os != "unknown")
        .map(named)
        .collect();
    names.dedup();
    let more = names.len().saturating_sub(10);
    names.truncate(10);
    match (names.is_empty(), more) {
        (true, _) => "no machine that it names".to_owned(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_owned);
        Platform {
            os: parts.next().unwrap(),
            architecture: parts.next().unwrap(),
            variant: parts.next(),
        }
    }

    fn index(platforms: &[&str]) -> ImageIndex {
        ImageIndex::new(
            platforms
                .iter()
                .enumerate()
                .map(|(number, text)| {
                    let mut one = Descriptor::for_bytes(media::MANIFEST, &[number as u8]);
                    one.platform = (!text.is_empty()).then(|| platform(text));
                    one
                })
                .collect(),
        )
    }

    #[test]
    fn a_platform_is_chosen() {
        for (offered, wanted, number) in [
            (
                &["linux/arm64/v8", "linux/amd64"][..],
                "linux/amd64",
                Some(1),
            ),
            (&["linux/amd64/v3", "linux/amd64"], "linux/amd64", Some(1)),
            (&["linux/amd64/v3"], "linux/amd64", Some(0)),
            (&["linux/amd64/v1"], "linux/amd64", Some(0)),
            (&["linux/arm/v6", "linux/arm/v7"], "linux/arm/v7", Some(1)),
            (&["linux/arm/v6"], "linux/arm/v7", None),
            (&["linux/arm64"], "linux/arm64/v8", Some(0)),
            (
                &["windows/amd64", "unknown/unknown", ""],
                "linux/amd64",
                None,
            ),
            (&[], "linux/amd64", None),
        ] {
            let index = index(offered);
            let chosen = choose(&index, &platform(wanted)).map(|d| d.digest);
            let want = number.map(|n: usize| index.manifests[n].digest);
            assert_eq!(chosen, want, "{offered:?} for {wanted}");
        }
    }

    #[test]
    fn what_is_offered_is_told_short() {
        assert_eq!(
            offered(&index(&[
                "linux/arm64/v8",
                "unknown/unknown",
                "windows/amd64"
            ])),
            "linux/arm64/v8, windows/amd64"
        );
        assert_eq!(offered(&index(&[""])), "no machine that it names");
        let many: Vec<String> = (0..50).map(|n| format!("os{n}/\u{1b}[31m")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let text = offered(&index(&many));
        assert!(
            text.ends_with("and 40 more") && !text.contains('\u{1b}'),
            "{text}"
        );
    }
}
