//! Lines at the end of a file, each with one write, whatever the disk does.

use std::io::{self, Write};

/// Appends lines. A line that could not be written whole never spoils the next one.
#[derive(Debug)]
pub(crate) struct AppendFile<W> {
    out: W,
    /// The file ends in the middle of a line.
    torn: bool,
    /// Bytes written so far.
    size: u64,
    buffer: Vec<u8>,
}

impl<W: Write> AppendFile<W> {
    pub(crate) fn new(out: W) -> Self {
        Self {
            out,
            torn: false,
            size: 0,
            buffer: Vec::new(),
        }
    }

    /// Where it goes.
    pub(crate) fn get_ref(&self) -> &W {
        &self.out
    }

    /// Bytes written so far.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.size
    }

    /// Writes `line` and a newline in one call of the kernel, so that a kill leaves the line
    /// whole or absent, and other readers never see two writers mixed. After a short write (a
    /// disk that fills up) the next line begins with a newline: the torn one stays by itself.
    pub(crate) fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        self.buffer.clear();
        if self.torn {
            self.buffer.push(b'\n');
        }
        self.buffer.extend_from_slice(line);
        self.buffer.push(b'\n');
        let written = loop {
            match self.out.write(&self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.size += written as u64;
        if written == self.buffer.len() {
            self.torn = false;
            return Ok(());
        }
        self.torn |= written > 0;
        Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!("only {written} of {} bytes fitted", self.buffer.len()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A disk that takes, for each write, at most the next number of bytes; then everything.
    struct Disk {
        takes: VecDeque<io::Result<usize>>,
        held: Vec<u8>,
        calls: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.calls += 1;
            let takes = self.takes.pop_front().unwrap_or(Ok(usize::MAX))?;
            let takes = takes.min(bytes.len());
            self.held.extend_from_slice(&bytes[..takes]);
            Ok(takes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn append(takes: impl IntoIterator<Item = io::Result<usize>>) -> AppendFile<Disk> {
        AppendFile::new(Disk {
            takes: takes.into_iter().collect(),
            held: Vec::new(),
            calls: 0,
        })
    }

    #[test]
    fn one_write_a_line() {
        let mut log = append([Err(io::ErrorKind::Interrupted.into())]);
        log.write_line(b"one").unwrap();
        log.write_line(b"two").unwrap();
        assert_eq!(log.out.held, b"one\ntwo\n");
        assert_eq!(log.out.calls, 3);
    }

    #[test]
    fn a_torn_line_stays_by_itself() {
        let full = || Err(io::ErrorKind::StorageFull.into());
        let mut log = append([Ok(4), Ok(2), full(), full(), Ok(0), Ok(1)]);
        log.write_line(b"one").unwrap();
        for _ in 0..5 {
            let error = log.write_line(b"lost").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        log.write_line(b"two").unwrap();
        // `lo` was torn; then a lone newline was written; then there was room again.
        assert_eq!(log.out.held, b"one\nlo\n\ntwo\n");
    }
}
