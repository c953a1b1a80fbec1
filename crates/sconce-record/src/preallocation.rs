//! Room on the disk that is kept for a record's end: however full the disk is, how a run ended has its line.
//!
//! The file's blocks are asked for before they are needed (fallocate(2), `FALLOC_FL_KEEP_SIZE`), and a line
//! that would reach into the last of them is one that the disk does not take. A file system that knows no such
//! thing keeps no room, and is written as far as it goes.

use std::fs::File;
use std::io;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// Kept behind the last line, bytes: more than a reading of 16 cards.
pub(crate) const RESERVED_BYTES: u64 = 64 << 10;
/// What is asked for at a time beside that, so that most lines ask for nothing.
const GROWTH_STEP_BYTES: u64 = 192 << 10;

/// How far a file's blocks reach.
#[derive(Debug, Default)]
pub(crate) struct ReservedTail {
    until: u64,
    /// The file system cannot say.
    unknown: bool,
}

impl ReservedTail {
    /// Sees to it that a file of `size` bytes has [`RESERVED_BYTES`] behind it.
    ///
    /// # Errors
    /// That the disk, or the user's share of it, is full.
    pub(crate) fn reserve_space(&mut self, file: &File, size: u64) -> io::Result<()> {
        self.keep_by(size, |from, length| {
            fallocate(file, FallocateFlags::KEEP_SIZE, from, length)
        })
    }

    fn keep_by(
        &mut self,
        size: u64,
        mut ask: impl FnMut(u64, u64) -> rustix::io::Result<()>,
    ) -> io::Result<()> {
        let needed = size + RESERVED_BYTES;
        if self.unknown || needed <= self.until {
            return Ok(());
        }
        // Where there is not much, just what is needed.
        for until in [needed + GROWTH_STEP_BYTES, needed] {
            match ask(self.until, until - self.until) {
                Ok(()) => {
                    self.until = until;
                    return Ok(());
                }
                Err(Errno::NOSPC | Errno::DQUOT) => {}
                Err(_) => {
                    self.unknown = true;
                    return Ok(());
                }
            }
        }
        Err(io::ErrorKind::StorageFull.into())
    }

    /// Gives back what a finished file of `size` bytes does not need.
    pub(crate) fn give_back(&mut self, file: &File, size: u64) {
        if !self.unknown && self.until > size {
            let _ = file.set_len(size);
        }
        self.until = size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_asked_for_in_steps_and_then_for_what_is_needed() {
        let mut room = ReservedTail::default();
        let mut asked = Vec::new();
        let mut left = RESERVED_BYTES + GROWTH_STEP_BYTES + 100;
        let mut keep = |size| {
            room.keep_by(size, |from, length| {
                asked.push((from, length));
                left = left.checked_sub(length).ok_or(Errno::NOSPC)?;
                Ok(())
            })
        };
        for size in [0, 1, GROWTH_STEP_BYTES, GROWTH_STEP_BYTES + 100] {
            keep(size).unwrap();
        }
        let full = keep(GROWTH_STEP_BYTES + 101).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        let (all, end) = (
            RESERVED_BYTES + GROWTH_STEP_BYTES,
            RESERVED_BYTES + GROWTH_STEP_BYTES + 100,
        );
        assert_eq!(
            asked,
            [
                (0, all),
                (all, GROWTH_STEP_BYTES + 100),
                (all, 100),
                (end, GROWTH_STEP_BYTES + 1),
                (end, 1)
            ]
        );
    }

    #[test]
    fn a_file_system_without_it_is_no_full_one() {
        let mut room = ReservedTail::default();
        for size in [0, 1 << 30] {
            room.keep_by(size, |_, _| Err(Errno::OPNOTSUPP)).unwrap();
        }
    }
}
