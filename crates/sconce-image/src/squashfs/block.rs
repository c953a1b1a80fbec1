//! Blocks of a squashfs file: each compressed for itself, or as it is where that is not longer.

use std::io;

use flate2::{Compress, FlushCompress, Status};

use crate::layer::Compression;

/// zstd's level. See `docs/decisions/019-squashfs.md` for what others cost and save.
const ZSTD_LEVEL: i32 = 3;
/// zlib's level.
const GZIP_LEVEL: u32 = 6;

/// Compresses one block after the other. What it makes of a block must not depend on the blocks
/// before it, since which those are is a matter of how many cores there are.
pub(super) struct BlockPacker {
    encoder: Encoder,
    packed: Vec<u8>,
}

enum Encoder {
    Zstd(zstd::bulk::Compressor<'static>),
    Gzip(Compress),
    None,
}

impl BlockPacker {
    /// # Errors
    /// zstd cannot get its memory.
    pub(super) fn new(compression: Compression) -> io::Result<Self> {
        let encoder = match compression {
            // Without a checksum, as the kernel does not look at it. The frame names the block's
            // size and needs no larger window, so that the kernel's own memory is enough.
            Compression::Zstd => Encoder::Zstd(zstd::bulk::Compressor::new(ZSTD_LEVEL)?),
            Compression::Gzip => {
                Encoder::Gzip(Compress::new(flate2::Compression::new(GZIP_LEVEL), true))
            }
            Compression::None => Encoder::None,
        };
        Ok(Self {
            encoder,
            packed: Vec::new(),
        })
    }

    /// Appends `block` to `out`; whether it was compressed.
    ///
    /// # Errors
    /// The compressor failed.
    pub(super) fn pack(&mut self, block: &[u8], out: &mut Vec<u8>) -> io::Result<bool> {
        self.packed.clear();
        let complete = match &mut self.encoder {
            Encoder::Zstd(zstd) => {
                self.packed
                    .reserve(zstd::zstd_safe::compress_bound(block.len()));
                zstd.compress_to_buffer(block, &mut self.packed)?;
                true
            }
            Encoder::Gzip(zlib) => {
                self.packed.reserve(block.len());
                zlib.reset();
                let status = zlib.compress_vec(block, &mut self.packed, FlushCompress::Finish);
                // Anything else: there was no room left, so it is not shorter.
                status.map_err(io::Error::other)? == Status::StreamEnd
            }
            Encoder::None => false,
        };
        let shorter = complete && self.packed.len() < block.len();
        out.extend_from_slice(if shorter { &self.packed } else { block });
        Ok(shorter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that look like a program's: repeated parts with small differences.
    fn blocks() -> Vec<Vec<u8>> {
        let mut seed = 1_u32;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 17;
            seed ^= seed << 5;
            seed
        };
        let mut block = |length: usize| {
            let words: Vec<[u8; 4]> = (0..64).map(|_| next().to_le_bytes()).collect();
            let mut bytes = Vec::new();
            while bytes.len() < length {
                bytes.extend_from_slice(&words[next() as usize % words.len()]);
                bytes.push((next() % 3) as u8);
            }
            bytes.truncate(length);
            bytes
        };
        [1, 100, 8192, 131_072, 262_144].map(&mut block).into()
    }

    #[test]
    fn a_block_does_not_depend_on_those_before_it() {
        for compression in [Compression::Zstd, Compression::Gzip, Compression::None] {
            let alone = |block: &Vec<u8>| {
                let mut out = Vec::new();
                let mut packer = BlockPacker::new(compression).unwrap();
                let packed = packer.pack(block, &mut out).unwrap();
                (packed, out)
            };
            let blocks = blocks();
            let mut used = BlockPacker::new(compression).unwrap();
            for _ in 0..2 {
                for block in blocks.iter().chain(blocks.iter().rev()) {
                    let mut out = Vec::new();
                    let packed = used.pack(block, &mut out).unwrap();
                    assert!(
                        (packed, out) == alone(block),
                        "{compression:?} {}",
                        block.len()
                    );
                }
            }
        }
    }

    #[test]
    fn what_does_not_shrink_stays_as_it_is() {
        for compression in [Compression::Zstd, Compression::Gzip, Compression::None] {
            let mut packer = BlockPacker::new(compression).unwrap();
            let mut out = b"before".to_vec();
            assert!(!packer.pack(b"abc", &mut out).unwrap());
            assert_eq!(out, b"beforeabc");
        }
    }
}
