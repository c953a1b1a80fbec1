//! The log's bytes. Each line is a CRC-32 in eight digits, a blank, and JSON: the state in the
//! first, the events of one decision in every other. A line counts when all of it is there, so a
//! decision is written down whole or not at all.

use std::fs::File;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::LeaseState;
use super::types::LeaseEvent;

/// Version of the log.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct First<S> {
    format: u32,
    /// Higher than that of every log before it. Near the line's start: see [`LogHeader`].
    #[serde(default)]
    generation: u64,
    state: S,
}

/// A log's first bytes: its sum and its generation, which tell it from every other log, whatever
/// file of that number it lies in.
pub(super) const HEAD: usize = 64;

/// See [`HEAD`]; a shorter log has zeros at the end.
pub(super) type LogHeader = [u8; HEAD];

/// The head of a log that begins with `bytes`.
pub(super) fn log_header(bytes: &[u8]) -> LogHeader {
    let mut head = [0; HEAD];
    let length = bytes.len().min(HEAD);
    head[..length].copy_from_slice(&bytes[..length]);
    head
}

/// What is wrong with a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LogCorruption {
    /// A line (from 1) with others after it is not what was written.
    Damaged(usize),
    /// The version of a newer Sconce.
    Newer(u32),
}

fn line(json: &[u8]) -> Vec<u8> {
    let mut line = format!("{:08x} ", crc32fast::hash(json)).into_bytes();
    line.extend_from_slice(json);
    line.push(b'\n');
    line
}

/// A log's first line.
pub(super) fn first_line(state: &LeaseState, generation: u64) -> Vec<u8> {
    let first = First {
        format: FORMAT,
        generation,
        state,
    };
    line(&serde_json::to_vec(&first).unwrap_or_default())
}

/// The line of one decision.
pub(super) fn decision_line(events: &[LeaseEvent]) -> Vec<u8> {
    line(&serde_json::to_vec(events).unwrap_or_default())
}

/// The JSON of a line without its end, if that is what was written.
fn content(line: &[u8]) -> Option<&[u8]> {
    let (sum, json) = line.split_at_checked(9)?;
    let sum = std::str::from_utf8(sum).ok()?.strip_suffix(' ')?;
    let sum = u32::from_str_radix(sum, 16).ok()?;
    (crc32fast::hash(json) == sum).then_some(json)
}

/// Reads lines into `state`; where that is absent, the first line is a state. Gives how many bytes
/// count: what follows was cut off while it was written, and is nothing.
pub(super) fn replay_lines(
    bytes: &[u8],
    state: &mut Option<LeaseState>,
) -> Result<usize, LogCorruption> {
    let mut counted = 0;
    let mut number = 0;
    while let Some(length) = bytes[counted..].iter().position(|&byte| byte == b'\n') {
        number += 1;
        let Some(json) = content(&bytes[counted..counted + length]) else {
            break;
        };
        match state {
            None => *state = Some(read_first(json, number)?),
            Some(state) => {
                let events: Vec<LeaseEvent> =
                    serde_json::from_slice(json).map_err(|_| LogCorruption::Damaged(number))?;
                events.iter().for_each(|event| state.apply(event));
            }
        }
        counted += length + 1;
    }
    let rest = &bytes[counted..];
    let lives = |line: &[u8]| content(line).is_some();
    let after = rest.split(|&byte| byte == b'\n').skip(1).any(lives);
    if after || (state.is_none() && !bytes.is_empty()) {
        return Err(LogCorruption::Damaged(number.max(1)));
    }
    Ok(counted)
}

fn read_first(json: &[u8], number: usize) -> Result<LeaseState, LogCorruption> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let damaged = |_| LogCorruption::Damaged(number);
    let version: Version = serde_json::from_slice(json).map_err(damaged)?;
    if version.format > FORMAT {
        return Err(LogCorruption::Newer(version.format));
    }
    let first: First<LeaseState> = serde_json::from_slice(json).map_err(damaged)?;
    Ok(first.state)
}

/// A file that can be cut.
pub(super) trait TruncatableFile: Write {
    /// Cuts the file.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl TruncatableFile for File {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

/// Adds a line to a file of that length. What could not be written whole is taken away again; if
/// that fails as well, the next reader does not count it.
pub(super) fn append(file: &mut impl TruncatableFile, length: u64, line: &[u8]) -> io::Result<()> {
    file.write_all(line).inspect_err(|_| {
        let _ = file.cut(length);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClockReading, LeaseEnd};
    use proptest::prelude::*;

    /// A disk with so much room.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
        cuts: bool,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fits = bytes.len().min(self.room - self.bytes.len());
            if fits == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.bytes.extend_from_slice(&bytes[..fits]);
            Ok(fits)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl TruncatableFile for Disk {
        fn cut(&mut self, length: u64) -> io::Result<()> {
            if !self.cuts {
                return Err(io::ErrorKind::Other.into());
            }
            self.bytes.truncate(usize::try_from(length).expect("small"));
            Ok(())
        }
    }

    fn time(now_ms: u64) -> LeaseEvent {
        LeaseEvent::Time {
            now_ms,
            clock: ClockReading {
                wall_ms: now_ms,
                boot: "b".to_owned(),
                boot_ms: now_ms,
            },
        }
    }

    fn log() -> (Vec<u8>, Vec<u8>) {
        let mut log = first_line(&LeaseState::default(), 1);
        log.extend(decision_line(&[time(1)]));
        let last = decision_line(&[
            time(2),
            LeaseEvent::Ended {
                id: 1,
                at_ms: 2,
                why: LeaseEnd::Over,
                half_life_ms: 3,
            },
        ]);
        (log, last)
    }

    fn now(bytes: &[u8]) -> Result<(u64, usize), LogCorruption> {
        let mut state = None;
        let counted = replay_lines(bytes, &mut state)?;
        Ok((state.map_or(0, |state| state.now_ms), counted))
    }

    #[test]
    fn a_writer_killed_at_any_byte_wrote_all_or_nothing() {
        let (log, last) = log();
        for cut in 0..last.len() {
            let bytes = [&log[..], &last[..cut]].concat();
            assert_eq!(now(&bytes), Ok((1, log.len())), "{cut} bytes");
        }
        let whole = [&log[..], &last[..]].concat();
        assert_eq!(now(&whole), Ok((2, whole.len())));
    }

    #[test]
    fn a_disk_that_fills_at_any_byte_keeps_what_was_there() {
        let (log, last) = log();
        for (room, cuts) in (0..last.len()).flat_map(|room| [(room, true), (room, false)]) {
            let mut disk = Disk {
                bytes: log.clone(),
                room: log.len() + room,
                cuts,
            };
            let error = append(&mut disk, log.len() as u64, &last).expect_err("it is full");
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            assert_eq!(now(&disk.bytes), Ok((1, log.len())));
            assert!(!cuts || disk.bytes == log);
        }
    }

    #[test]
    fn damage_in_the_middle_is_told() {
        let (mut log, last) = log();
        log[12] ^= 1;
        let bytes = [log, last].concat();
        assert_eq!(now(&bytes), Err(LogCorruption::Damaged(1)));
        let newer = line(br#"{"format":9,"state":{"unknown":1}}"#);
        assert_eq!(now(&newer), Err(LogCorruption::Newer(9)));
        assert_eq!(now(b""), Ok((0, 0)));
        assert_eq!(now(b"anything"), Err(LogCorruption::Damaged(1)));
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = now(&bytes);
            let _ = now(&line(&bytes));
        }

        #[test]
        fn one_changed_byte_never_changes_a_decision(at in any::<prop::sample::Index>(), with in 1_u8..) {
            let (log, last) = log();
            let mut bytes = [log, last].concat();
            let at = at.index(bytes.len());
            bytes[at] ^= with;
            if let Ok((now, _)) = now(&bytes) {
                prop_assert!(now <= 2);
            }
        }
    }
}
