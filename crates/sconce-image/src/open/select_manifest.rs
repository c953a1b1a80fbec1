//! Which manifest of an index is meant.

use super::{OpenError, unsupported};
use sconce_oci::{Descriptor, ImageIndex, Platform, media};

/// How deep an index may lie in others.
pub const MAX_INDEX_DEPTH: u32 = 4;

/// Follows `descriptor` through indexes to the manifest for `platform`. `get` gives the verified
/// bytes of an index. Where an index says nothing of machines, it must have one manifest only.
///
/// # Errors
/// [`OpenError::Platform`], [`OpenError::TooDeep`], [`OpenError::Unsupported`],
/// [`OpenError::Document`], and what `get` says.
pub fn select_manifest(
    descriptor: &Descriptor,
    platform: &Platform,
    get: &dyn Fn(&Descriptor) -> Result<Vec<u8>, OpenError>,
) -> Result<Descriptor, OpenError> {
    let mut found = descriptor.clone();
    for _ in 0..=MAX_INDEX_DEPTH {
        match found.media_type.as_str() {
            media::MANIFEST | media::DOCKER_MANIFEST => return Ok(found),
            media::INDEX | media::DOCKER_LIST => {}
            other => return Err(unsupported("manifest", other)),
        }
        let index = ImageIndex::from_json(&get(&found)?).map_err(|source| OpenError::Document {
            what: "the index".to_owned(),
            source,
        })?;
        found = fitting(&index.manifests, platform)?.clone();
    }
    Err(OpenError::TooDeep)
}

/// The first manifest for `platform`.
fn fitting<'a>(
    manifests: &'a [Descriptor],
    platform: &Platform,
) -> Result<&'a Descriptor, OpenError> {
    // Signatures and attestations stand among images, for a machine that nobody has.
    let real = |d: &&Descriptor| {
        d.artifact_type.is_none() && d.platform.as_ref().is_none_or(|p| p.os != "unknown")
    };
    let images: Vec<&Descriptor> = manifests.iter().filter(real).collect();
    let fits = |d: &&&Descriptor| {
        let same = |p: &Platform| p.os == platform.os && p.architecture == platform.architecture;
        d.platform.as_ref().is_some_and(same)
    };
    if let Some(found) = images.iter().find(fits) {
        return Ok(found);
    }
    match images.as_slice() {
        [only] if only.platform.is_none() => Ok(only),
        _ => {
            let there: Vec<Platform> = images.iter().filter_map(|d| d.platform.clone()).collect();
            Err(OpenError::for_others(platform, &there))
        }
    }
}
