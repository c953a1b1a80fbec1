//! The tar archive in a layer's blob.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use sconce_oci::{Digest, media};
use sconce_schema::Sha256;
use sha2::Digest as _;

/// Window of a zstd frame that is taken, as a power of two: 128 MiB, what `zstd --long` writes.
const MAX_WINDOW_LOG: u32 = 27;

/// A blob's bytes, hashed as they are read.
pub(crate) struct HashedBlob {
    file: File,
    hash: sha2::Sha256,
}

impl HashedBlob {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: File::open(path)?,
            hash: sha2::Sha256::new(),
        })
    }

    /// Reads what a decoder left, and gives the digest of the whole blob.
    pub(crate) fn finish_digest(mut self) -> io::Result<Digest> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(Digest(Sha256(self.hash.finalize().into())))
    }
}

impl Read for HashedBlob {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.hash.update(&buffer[..n]);
        Ok(n)
    }
}

/// Reads the archive in a blob of this media type.
///
/// # Errors
/// The blob cannot be read, or the media type is none that a layer has.
pub(crate) fn decompress<'a>(
    blob: impl Read + Send + 'a,
    media_type: &str,
) -> io::Result<Box<dyn Read + Send + 'a>> {
    let file = BufReader::with_capacity(1 << 20, blob);
    Ok(match media_type {
        media::LAYER_ZSTD => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(file)?;
            decoder.window_log_max(MAX_WINDOW_LOG)?;
            Box::new(decoder)
        }
        media::LAYER_GZIP | media::DOCKER_LAYER_GZIP => Box::new(MultiGzDecoder::new(file)),
        media::LAYER | media::DOCKER_LAYER => Box::new(file),
        _ => return Err(io::ErrorKind::Unsupported.into()),
    })
}
