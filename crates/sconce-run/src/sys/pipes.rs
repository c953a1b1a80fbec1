//! What pipes tell of their other end.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::stdio::{stderr, stdout};

/// Whether standard output or error is a pipe that nobody reads any more.
pub(crate) fn is_output_unread() -> bool {
    [stdout(), stderr()].iter().any(has_no_reader)
}

fn has_no_reader(stream: &BorrowedFd<'_>) -> bool {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::new(stream, PollFlags::OUT)];
    let is_pipe = fstat(stream).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_fifo());
    is_pipe && poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().contains(PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use super::has_no_reader;
    use std::os::fd::AsFd;

    #[test]
    fn a_pipe_whose_reader_went_away_has_none() {
        let (reader, writer) = std::io::pipe().unwrap();
        assert!(!has_no_reader(&writer.as_fd()));
        drop(reader);
        assert!(has_no_reader(&writer.as_fd()));
        let file = tempfile::tempfile().unwrap();
        assert!(!has_no_reader(&file.as_fd()));
    }
}
