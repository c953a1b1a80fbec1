//! Images made for the tests, and settings that do not make them wait.

use std::time::Duration;

use sconce_fetch::FetchConfig;
use sconce_oci as oci;
use sconce_oci::{Descriptor, Digest, ImageManifest, Platform, media};
use sconce_registry::{
    Blob, BlobSource, ManifestDocument, PushArtifact, Reference, Registry, RegistrySettings,
};

pub(crate) fn settings() -> RegistrySettings {
    RegistrySettings {
        fetch: FetchConfig {
            pause: Duration::from_millis(1),
            longest_pause: Duration::from_millis(5),
            idle_timeout: Duration::from_secs(10),
            ..FetchConfig::default()
        },
        ..RegistrySettings::default()
    }
}

pub(crate) fn registry() -> Registry {
    Registry::new(settings()).unwrap()
}

pub(crate) fn reference(host: &str, rest: &str) -> Reference {
    Reference::parse(&format!("{host}/{rest}"), None).unwrap()
}

pub(crate) fn amd64() -> Platform {
    Platform {
        architecture: "amd64".to_owned(),
        os: "linux".to_owned(),
        variant: None,
    }
}

/// Bytes that do not repeat with any small period.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

pub(crate) fn blob(media_type: &str, bytes: Vec<u8>) -> Blob {
    Blob {
        descriptor: Descriptor::for_bytes(media_type, &bytes),
        content: BlobSource::Bytes(bytes),
    }
}

pub(crate) fn bytes(blob: &Blob) -> &[u8] {
    match &blob.content {
        BlobSource::Bytes(bytes) => bytes,
        BlobSource::File(path) => panic!("{} is a file", path.display()),
    }
}

/// An image whose layers have these sizes.
pub(crate) fn image(sizes: &[usize]) -> PushArtifact {
    image_for("amd64", sizes)
}

pub(crate) fn image_for(architecture: &str, sizes: &[usize]) -> PushArtifact {
    let layers: Vec<Blob> = sizes
        .iter()
        .map(|size| blob(media::LAYER, noise(*size, *size as u64)))
        .collect();
    let config = oci::ImageConfiguration {
        created: None,
        architecture: architecture.to_owned(),
        os: "linux".to_owned(),
        config: None,
        rootfs: oci::RootFs {
            kind: "layers".to_owned(),
            diff_ids: layers.iter().map(|blob| blob.descriptor.digest).collect(),
        },
        history: None,
    };
    put_together(blob(media::CONFIG, oci::to_json(&config)), layers)
}

pub(crate) fn put_together(config: Blob, layers: Vec<Blob>) -> PushArtifact {
    let named = layers.iter().map(|blob| blob.descriptor.clone()).collect();
    let manifest = ImageManifest::new(config.descriptor.clone(), named);
    PushArtifact {
        layers,
        config,
        manifest: ManifestDocument {
            media_type: media::MANIFEST.to_owned(),
            bytes: oci::to_json(&manifest),
        },
    }
}

/// An index of images, by architecture.
pub(crate) fn index(images: &[(&str, &PushArtifact)]) -> ManifestDocument {
    let entries = images.iter().map(|(architecture, image)| {
        let mut entry = Descriptor::for_bytes(media::MANIFEST, &image.manifest.bytes);
        entry.platform = Some(Platform {
            architecture: (*architecture).to_owned(),
            ..amd64()
        });
        entry
    });
    ManifestDocument {
        media_type: media::INDEX.to_owned(),
        bytes: oci::to_json(&oci::ImageIndex::new(entries.collect())),
    }
}

/// Gives a model an image.
pub(crate) fn stock(
    model: &super::model::Model,
    repository: &str,
    tag: &str,
    image: &PushArtifact,
) {
    for one in image.layers.iter().chain([&image.config]) {
        model.put_blob(repository, bytes(one));
    }
    model.put_manifest(tag, &image.manifest.media_type, &image.manifest.bytes);
}

/// Everything an error says, its sources included.
pub(crate) fn all_words(error: &dyn std::error::Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut at = error.source();
    while let Some(source) = at {
        text = format!("{text} {source} {source:?}");
        at = source.source();
    }
    text
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    Digest::hash_bytes(bytes).to_hex()
}
