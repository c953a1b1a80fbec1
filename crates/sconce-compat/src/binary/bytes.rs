//! A file's bytes by ranges, so that a library of a gigabyte is judged from some thousand of its
//! bytes.

use std::io;

use super::{BinaryError, MalformedPart};

/// A file, or what stands for one.
///
/// An open file serves with `FileExt::read_exact_at`, and `metadata().len()` kept beside it.
pub trait ByteSource {
    /// Size in bytes; must not change.
    fn size(&self) -> u64;

    /// Fills `into` with what begins at `offset`.
    ///
    /// # Errors
    /// When there are fewer bytes than that, or they cannot be read.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

impl ByteSource for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok();
        let bytes = from.and_then(|from| self.get(from..from.checked_add(into.len())?));
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl<T: ByteSource + ?Sized> ByteSource for &T {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, into)
    }
}

/// A range of a file as a file: an archive's member.
pub(super) struct FileSlice<'a> {
    bytes: &'a dyn ByteSource,
    start: u64,
    size: u64,
}

impl<'a> FileSlice<'a> {
    /// `None` where it does not lie inside.
    pub(super) fn new(bytes: &'a dyn ByteSource, start: u64, size: u64) -> Option<Self> {
        (start.checked_add(size)? <= bytes.size()).then_some(Self { bytes, start, size })
    }
}

impl ByteSource for FileSlice<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.bytes.read_at(self.start + offset, into)
    }
}

/// Looks at places of a file that mostly follow each other, and reads it by blocks.
pub(super) struct BlockReader<'a> {
    bytes: &'a dyn ByteSource,
    size: u64,
    start: u64,
    held: Vec<u8>,
    block: usize,
}

impl<'a> BlockReader<'a> {
    /// `block` is how many bytes are read at once.
    pub(super) fn new(bytes: &'a dyn ByteSource, block: usize) -> Self {
        Self {
            bytes,
            size: bytes.size(),
            start: 0,
            held: Vec::new(),
            block,
        }
    }

    /// What begins at `offset`: `most` bytes, or as many as there are.
    pub(super) fn up_to(&mut self, offset: u64, most: usize) -> Result<&[u8], BinaryError> {
        let left = self.size.saturating_sub(offset);
        let length = usize::try_from(left).map_or(most, |left| left.min(most));
        if length == 0 {
            return Ok(&[]);
        }
        let held = |start: u64, held: &[u8]| {
            let from = usize::try_from(offset.checked_sub(start)?).ok()?;
            (from.checked_add(length)? <= held.len()).then_some(from)
        };
        let from = match held(self.start, &self.held) {
            Some(from) => from,
            None => {
                let block = self.block.max(length);
                let block = usize::try_from(left).map_or(block, |left| left.min(block));
                self.held.resize(block, 0);
                self.start = offset;
                if let Err(source) = self.bytes.read_at(offset, &mut self.held) {
                    self.held.clear();
                    return Err(BinaryError::Read { offset, source });
                }
                0
            }
        };
        Ok(&self.held[from..from + length])
    }

    /// The `N` bytes at `offset`, which must be there.
    pub(super) fn read_array<const N: usize>(
        &mut self,
        offset: u64,
        part: MalformedPart,
    ) -> Result<&[u8; N], BinaryError> {
        let bytes = self.up_to(offset, N)?.first_chunk();
        bytes.ok_or(BinaryError::Outside { part })
    }
}

/// All bytes of a range, of which there may be `most`.
pub(super) fn read_range(
    bytes: &dyn ByteSource,
    offset: u64,
    size: u64,
    part: MalformedPart,
    most: u64,
) -> Result<Vec<u8>, BinaryError> {
    let end = offset.checked_add(size);
    if end.is_none_or(|end| end > bytes.size()) {
        return Err(BinaryError::Outside { part });
    }
    let too_large = BinaryError::TooLarge { part, size, most };
    let length = usize::try_from(size).ok().filter(|_| size <= most);
    let mut read = vec![0; length.ok_or(too_large)?];
    bytes
        .read_at(offset, &mut read)
        .map_err(|source| BinaryError::Read { offset, source })?;
    Ok(read)
}

/// The number at `at` of a record of a fixed size, which the caller knows to be long enough.
pub(super) fn u16_at<const N: usize>(record: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes([record[at], record[at + 1]])
}

/// As [`u16_at`].
pub(super) fn u32_at<const N: usize>(record: &[u8; N], at: usize) -> u32 {
    u32::from(u16_at(record, at)) | u32::from(u16_at(record, at + 2)) << 16
}

/// As [`u16_at`].
pub(super) fn u64_at<const N: usize>(record: &[u8; N], at: usize) -> u64 {
    u64::from(u32_at(record, at)) | u64::from(u32_at(record, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_gives_what_lies_there() {
        let bytes: Vec<u8> = (0..=255).collect();
        for block in [1, 3, 16, 1000] {
            let bytes = &bytes[..];
            let mut window = BlockReader::new(&bytes, block);
            for (offset, most) in [(0, 4), (2, 7), (250, 3), (250, 30), (0, 300), (9, 0)] {
                let end = (offset + most).min(256);
                let seen = window.up_to(offset as u64, most).unwrap();
                assert_eq!(seen, &bytes[offset..end], "{offset} {most} by {block}");
            }
            assert!(window.up_to(256, 4).unwrap().is_empty());
            assert!(window.up_to(u64::MAX, 4).unwrap().is_empty());
            assert_eq!(
                window.read_array::<2>(254, MalformedPart::Header).unwrap(),
                &[254, 255]
            );
            let past = window.read_array::<2>(255, MalformedPart::Header);
            assert!(matches!(past, Err(BinaryError::Outside { .. })));
        }
    }

    #[test]
    fn a_slice_ends_where_it_ends() {
        let bytes = &b"0123456789"[..];
        let slice = FileSlice::new(&bytes, 2, 5).unwrap();
        let read = |offset, length| {
            let mut into = vec![0; length];
            slice.read_at(offset, &mut into).map(|()| into).ok()
        };
        assert_eq!(read(1, 4).as_deref(), Some(&b"3456"[..]));
        assert_eq!((read(1, 5), read(u64::MAX, 1)), (None, None));
        assert!(FileSlice::new(&bytes, 6, 5).is_none());
        assert!(FileSlice::new(&bytes, u64::MAX, 5).is_none());
    }

    #[test]
    fn numbers_are_little_endian() {
        let record = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(u16_at(&record, 1), 0x0302);
        assert_eq!(u32_at(&record, 1), 0x0504_0302);
        assert_eq!(u64_at(&record, 1), 0x0908_0706_0504_0302);
    }
}
