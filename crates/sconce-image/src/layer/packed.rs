//! A tar archive on its way into a blob: hashed, compressed, hashed again and written, in one pass.

use std::io::{self, Write};
use std::path::Path;
use std::str::FromStr;

use flate2::write::GzEncoder;
use sconce_base::direct_io::DirectWriter;
use sconce_schema::Sha256;
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use sconce_oci::{Digest, media};

/// zstd's level: 3 is the lowest that makes the default torch image smaller than its wheels by more
/// than a tenth; 2 takes two thirds of the time and makes it 90 MB larger.
const ZSTD_LEVEL: i32 = 3;
/// A window of 8 MiB, as a power of two: the most that every decoder must take (RFC 8878, section
/// 3.1.1.1.2). CUDA's libraries hold much the same code for several cards, further apart than the
/// level's own 2 MiB: cuSOLVER's layer is 6 % smaller.
const ZSTD_WINDOW_LOG: u32 = 23;
/// Archives of this size and more keep the level's own window: there the larger one costs a tenth
/// more time for half a percent.
const ZSTD_LARGE_BYTES: u64 = 512 << 20;

/// How the layers of an image are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// RFC 8878. Read by containerd, podman, skopeo, and Docker Engine 23 and later.
    #[default]
    Zstd,
    /// RFC 1952. Read by everything.
    Gzip,
    /// Not at all.
    None,
}

impl Compression {
    /// As it is written on the command line and in keys.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::None => "none",
        }
    }

    /// The media type of such a layer.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Zstd => media::LAYER_ZSTD,
            Self::Gzip => media::LAYER_GZIP,
            Self::None => media::LAYER,
        }
    }
}

impl FromStr for Compression {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Zstd, Self::Gzip, Self::None]
            .into_iter()
            .find(|compression| compression.as_str() == text)
            .ok_or("`zstd`, `gzip` or `none`")
    }
}

/// What a finished blob is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackedBlob {
    /// Digest of the blob.
    pub(crate) digest: Digest,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// Digest of the archive before compression.
    pub(crate) diff_id: Digest,
    /// The archive's size in bytes.
    pub(crate) unpacked: u64,
}

/// Bytes that the encoder gets at a time: what deflate writes depends on how its input is cut, and
/// a disk may give a file in pieces of any size.
const CHUNK_BYTES: usize = 256 << 10;

/// A writer that takes a tar archive.
pub(crate) struct LayerPacker {
    hashed: CountingWriter<Encoder>,
    piece: Vec<u8>,
}

enum Encoder {
    Zstd(zstd::stream::write::Encoder<'static, CountingWriter<DirectWriter>>),
    Gzip(GzEncoder<CountingWriter<DirectWriter>>),
    None(CountingWriter<DirectWriter>),
}

/// Hashes and counts what goes through it.
struct CountingWriter<W> {
    inner: W,
    hash: sha2::Sha256,
    bytes: u64,
}

impl<W> CountingWriter<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            hash: sha2::Sha256::new(),
            bytes: 0,
        }
    }

    fn digest(self) -> (W, Digest, u64) {
        let digest = Digest(Sha256(self.hash.finalize().into()));
        (self.inner, digest, self.bytes)
    }
}

impl LayerPacker {
    /// Writes into a new file. `expected` is the size of what will come, in bytes, and decides how
    /// it is compressed.
    pub(crate) fn new(path: &Path, compression: Compression, expected: u64) -> io::Result<Self> {
        let mut file = DirectWriter::new();
        file.start_file(path.to_owned(), None);
        let out = CountingWriter::new(file);
        let encoder = match compression {
            // One thread and a fixed level: the same archive is the same bytes on any number of
            // cores. The digest covers what zstd's own checksum would.
            Compression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
                if expected < ZSTD_LARGE_BYTES {
                    encoder.window_log(ZSTD_WINDOW_LOG)?;
                }
                Encoder::Zstd(encoder)
            }
            // No name, no time, no operating system in the header.
            Compression::Gzip => Encoder::Gzip(GzEncoder::new(out, flate2::Compression::new(6))),
            Compression::None => Encoder::None(out),
        };
        Ok(Self {
            hashed: CountingWriter::new(encoder),
            piece: Vec::with_capacity(CHUNK_BYTES),
        })
    }

    /// Completes the blob.
    pub(crate) fn finish_blob(mut self) -> io::Result<PackedBlob> {
        self.hashed.write_all(&self.piece)?;
        let (encoder, diff_id, unpacked) = self.hashed.digest();
        let out = match encoder {
            Encoder::Zstd(encoder) => encoder.finish()?,
            Encoder::Gzip(encoder) => encoder.finish()?,
            Encoder::None(out) => out,
        };
        let (mut file, digest, size) = out.digest();
        file.finish_file()?;
        Ok(PackedBlob {
            digest,
            size,
            diff_id,
            unpacked,
        })
    }
}

impl Write for LayerPacker {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(CHUNK_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..n]);
        if self.piece.len() == CHUNK_BYTES {
            self.hashed.write_all(&self.piece)?;
            self.piece.clear();
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> Write for CountingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.hash.update(&bytes[..n]);
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Write for Encoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Zstd(encoder) => encoder.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::None(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn a_blob_is_what_its_digests_say() {
        let data: Vec<u8> = (0..300_000_u32)
            .flat_map(|n| (n / 7).to_le_bytes())
            .collect();
        for compression in [Compression::Zstd, Compression::Gzip, Compression::None] {
            let mut seen = Vec::new();
            for pieces in [1 << 20, 777] {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("blob");
                let mut packer = LayerPacker::new(&path, compression, 1 << 20).unwrap();
                for piece in data.chunks(pieces) {
                    packer.write_all(piece).unwrap();
                }
                let sealed = packer.finish_blob().unwrap();
                let blob = std::fs::read(&path).unwrap();
                assert_eq!(sealed.digest, Digest::hash_bytes(&blob));
                assert_eq!(sealed.size, blob.len() as u64);
                assert_eq!(sealed.diff_id, Digest::hash_bytes(&data));
                assert_eq!(sealed.unpacked, data.len() as u64);
                let mut back = Vec::new();
                match compression {
                    Compression::Zstd => back = zstd::stream::decode_all(&blob[..]).unwrap(),
                    Compression::Gzip => {
                        assert_eq!(blob[4..10], [0, 0, 0, 0, 0, 255]);
                        let mut reader = flate2::read::GzDecoder::new(&blob[..]);
                        reader.read_to_end(&mut back).unwrap();
                    }
                    Compression::None => back = blob,
                }
                assert!(back == data);
                seen.push(sealed);
            }
            // However the bytes came in, the blob is the same.
            assert_eq!(seen[0], seen[1], "{compression:?}");
        }
    }
}
