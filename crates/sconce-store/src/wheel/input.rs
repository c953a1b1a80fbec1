//! The wheel's bytes in order: counted, hashed, and looked at before they are taken.

use sha2::Digest as _;

/// Enough for the longest thing that must be seen whole: a directory entry with the longest name,
/// extra fields and comment, and a good size for reading from a socket.
const BUFFER: usize = 256 << 10;

/// Gives the next bytes; 0 is the end.
pub(super) trait ByteStream {
    /// Why it cannot.
    type Error;
    /// Reads some bytes.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Self::Error>;
}

/// A buffer over a [`ByteStream`].
pub(super) struct BufferedInput<S> {
    source: S,
    hash: Option<sha2::Sha256>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the file of the byte at `start`.
    offset: u64,
    ended: bool,
}

impl<S: ByteStream> BufferedInput<S> {
    /// Hashes what it reads.
    pub(super) fn new_hashing(source: S) -> Self {
        Self {
            hash: Some(sha2::Sha256::new()),
            ..Self::new_without_hash(source)
        }
    }

    /// Does not hash: the bytes are verified already.
    pub(super) fn new_without_hash(source: S) -> Self {
        Self {
            source,
            hash: None,
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            offset: 0,
            ended: false,
        }
    }

    /// Offset in the file of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes at hand: at least `need` of them unless the file ends before.
    pub(super) fn peek(&mut self, need: usize) -> Result<&[u8], S::Error> {
        debug_assert!(need <= BUFFER);
        while self.end - self.start < need && !self.ended {
            if self.buffer.len() - self.start < need || self.start == self.end {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            let n = self.source.read(&mut self.buffer[self.end..])?;
            if let Some(hash) = &mut self.hash {
                hash.update(&self.buffer[self.end..self.end + n]);
            }
            self.end += n;
            self.ended = n == 0;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Takes `n` of the bytes that [`BufferedInput::peek`] showed.
    pub(super) fn consume(&mut self, n: usize) {
        debug_assert!(n <= self.end - self.start);
        self.start += n;
        self.offset += n as u64;
    }

    /// Reads on to the end, at most `most` bytes, and gives the whole file's size and hash state;
    /// `None` when it is longer.
    pub(super) fn drain_to_end(
        mut self,
        most: u64,
    ) -> Result<Option<(u64, sha2::Sha256)>, S::Error> {
        loop {
            let n = self.peek(1)?.len();
            if n == 0 {
                return Ok(Some((self.offset, self.hash.unwrap_or_default())));
            }
            self.consume(n);
            if self.offset > most {
                return Ok(None);
            }
        }
    }
}
