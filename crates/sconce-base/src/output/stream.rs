//! Writing to a descriptor that somebody made non-blocking.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// A writer that waits where a pipe is full, though its descriptor is non-blocking: whoever shares standard output
/// may have made it so for everybody (fcntl(2), `O_NONBLOCK` is one of the open file).
#[derive(Debug)]
pub struct BlockingWriter<W>(W);

impl<W: Write + AsFd> BlockingWriter<W> {
    /// Wraps a writer.
    pub const fn new(writer: W) -> Self {
        Self(writer)
    }

    /// The writer.
    pub const fn get_ref(&self) -> &W {
        &self.0
    }

    fn retry<T>(&mut self, mut write: impl FnMut(&mut W) -> io::Result<T>) -> io::Result<T> {
        loop {
            match write(&mut self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_until_writable(&self.0)?;
                }
                written => return written,
            }
        }
    }
}

impl<W: Write + AsFd> Write for BlockingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry(|writer| writer.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.retry(Write::flush)
    }
}

fn wait_until_writable(to: &impl AsFd) -> io::Result<()> {
    match poll(&mut [PollFd::new(to, PollFlags::OUT)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufWriter, Read as _};
    use std::thread;
    use std::time::Duration;

    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    use super::*;

    #[test]
    fn a_full_pipe_that_does_not_block_is_waited_for() {
        let (mut reader, writer) = io::pipe().unwrap();
        let flags = fcntl_getfl(&writer).unwrap();
        fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
        let bytes: Vec<u8> = (0..1_000_000).map(|n| (n % 251) as u8).collect();
        let reader = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            let mut read = Vec::new();
            reader.read_to_end(&mut read).unwrap();
            read
        });
        let mut out = BufWriter::new(BlockingWriter::new(writer));
        for piece in bytes.chunks(1 << 12) {
            out.write_all(piece).unwrap();
        }
        out.flush().unwrap();
        drop(out);
        assert!(reader.join().unwrap() == bytes);
    }

    #[test]
    fn a_pipe_without_a_reader_is_an_error() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut out = BlockingWriter::new(writer);
        let error = out.write_all(&[0; 100]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
