//! The tar archive in a layer's blob.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use sconce_oci::media;

/// Window of a zstd frame that is taken, as a power of two: 128 MiB, what `zstd --long` writes.
const LARGEST_WINDOW: u32 = 27;

/// Reads the archive in the blob `path` of this media type.
///
/// # Errors
/// The file cannot be read, or the media type is none that a layer has.
pub(crate) fn open_decompressed(path: &Path, media_type: &str) -> io::Result<Box<dyn Read + Send>> {
    let file = BufReader::with_capacity(1 << 20, File::open(path)?);
    Ok(match media_type {
        media::LAYER_ZSTD => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(file)?;
            decoder.window_log_max(LARGEST_WINDOW)?;
            Box::new(decoder)
        }
        media::LAYER_GZIP | media::DOCKER_LAYER_GZIP => Box::new(MultiGzDecoder::new(file)),
        media::LAYER | media::DOCKER_LAYER => Box::new(file),
        _ => return Err(io::ErrorKind::Unsupported.into()),
    })
}
