//! Bytes of a pickle, read in pieces. Nothing is made room for before its bytes are here.

use std::io::{ErrorKind, Read};

use super::PickleError;

/// How much is asked of the source at once, in bytes.
const CHUNK_BYTES: usize = 256 << 10;

pub(super) struct Input<R> {
    from: R,
    piece: Vec<u8>,
    at: usize,
    end: usize,
    /// Bytes before the piece.
    before: u64,
    /// What is longer than what is left of a piece.
    long: Vec<u8>,
}

impl<R: Read> Input<R> {
    pub(super) fn new(from: R) -> Self {
        Self {
            from,
            piece: vec![0; CHUNK_BYTES],
            at: 0,
            end: 0,
            before: 0,
            long: Vec::new(),
        }
    }

    /// Bytes that were taken.
    pub(super) fn offset(&self) -> u64 {
        self.before + self.at as u64
    }

    /// Gets the next piece; the present one must be used up.
    #[cold]
    fn refill(&mut self) -> Result<(), PickleError> {
        self.before += self.end as u64;
        (self.at, self.end) = (0, 0);
        loop {
            match self.from.read(&mut self.piece) {
                Ok(0) => {
                    return Err(PickleError::Truncated {
                        offset: self.before,
                    });
                }
                Ok(n) => {
                    self.end = n.min(CHUNK_BYTES);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(PickleError::Read {
                        offset: self.before,
                        source,
                    });
                }
            }
        }
    }

    pub(super) fn read_byte(&mut self) -> Result<u8, PickleError> {
        if self.at == self.end {
            self.refill()?;
        }
        let byte = self.piece[self.at];
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn read_array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let mut array = [0; N];
        if self.end - self.at >= N {
            array.copy_from_slice(&self.piece[self.at..self.at + N]);
            self.at += N;
        } else {
            for byte in &mut array {
                *byte = self.read_byte()?;
            }
        }
        Ok(array)
    }

    /// The next bytes, `len` of them, which the caller has limited.
    pub(super) fn read_bytes(&mut self, len: usize) -> Result<&[u8], PickleError> {
        if self.end - self.at >= len {
            let begin = self.at;
            self.at += len;
            return Ok(&self.piece[begin..self.at]);
        }
        self.long.clear();
        while self.long.len() < len {
            if self.at == self.end {
                self.refill()?;
            }
            let n = (len - self.long.len()).min(self.end - self.at);
            self.long
                .extend_from_slice(&self.piece[self.at..self.at + n]);
            self.at += n;
        }
        Ok(&self.long)
    }
}
