//! NVIDIA's faults in the kernel log.

use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use sconce_schema::facts::Xid;

use crate::nvidia::{address_text, bus_address};
use crate::roots::Roots;

/// The kernel keeps a megabyte at most where nobody asked for more.
const MAX_LOG_BYTES: usize = 8 << 20;
const MAX_RECORDS: usize = 100_000;
/// The newest are kept.
const MAX_XIDS: usize = 256;
/// A record that says more is cut.
const MAX_TEXT_CHARS: usize = 500;

/// The faults in /dev/kmsg, oldest first; `None` where it cannot be read, which is so for a plain
/// user where `kernel.dmesg_restrict` is set, and in most containers.
pub(super) fn read_xids(roots: &Roots) -> Option<Vec<Xid>> {
    Some(parse(&log(&roots.dev.join("kmsg"))?))
}

/// What the log holds now; it never waits. A recorded log is a file with the same lines.
fn log(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = std::fs::File::from(open(path, flags, Mode::empty()).ok()?);
    let mut bytes = Vec::new();
    // A record is given whole or not at all; 8 KiB is the kernel's own limit.
    let mut record = vec![0; 16 << 10];
    for _ in 0..MAX_RECORDS {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(length) => bytes.extend_from_slice(&record[..length]),
            // The oldest record was overwritten meanwhile; the next read gives the one after it.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(_) => return None,
        }
        if bytes.len() >= MAX_LOG_BYTES {
            break;
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Faults in lines of /dev/kmsg (`6,1234,5678901,-;text`, the kernel's
/// `Documentation/ABI/testing/dev-kmsg`), of dmesg (`[ 5.678901] text`) or of a journal.
fn parse(text: &str) -> Vec<Xid> {
    // A line that begins with a blank tells more of the record above.
    let records = text.lines().filter(|line| !line.starts_with(' '));
    let mut xids: Vec<Xid> = records.filter_map(of_line).collect();
    let older = xids.len().saturating_sub(MAX_XIDS);
    xids.drain(..older);
    xids
}

fn of_line(line: &str) -> Option<Xid> {
    let at = line.find("NVRM: ")?;
    let (before, text) = line.split_at(at);
    let (bus_id, code) = numbered(text).or_else(|| off_the_bus(text))?;
    let shown: String = text
        .chars()
        .filter(|c| !sconce_base::text::is_unprintable(*c))
        .take(MAX_TEXT_CHARS)
        .collect();
    Some(Xid {
        code,
        bus_id,
        since_boot_s: since_boot(before),
        text: shown.trim_end().to_owned(),
    })
}

/// `NVRM: Xid (PCI:0000:3b:00): 79, pid=…`; drivers before 340 wrote `NVRM: Xid (0000:3b:00): 79`.
fn numbered(text: &str) -> Option<(Option<String>, u32)> {
    let rest = text.strip_prefix("NVRM: Xid (")?;
    let (place, rest) = rest.split_once("): ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((
        address(place.strip_prefix("PCI:").unwrap_or(place)),
        digits.parse().ok()?,
    ))
}

/// A card that was already gone when its driver looked for it is told in three lines of one
/// record, without a number: `NVRM: The NVIDIA GPU 0000:b3:00.0`, … `fallen off the bus and is not
/// responding to commands.` (NVIDIA/NVSentinel issue 155). It is what Xid 79 says.
fn off_the_bus(text: &str) -> Option<(Option<String>, u32)> {
    let rest = text.strip_prefix("NVRM: The NVIDIA GPU ")?;
    let gone = rest.contains("fallen off the bus");
    let place = rest
        .split(|c: char| c.is_whitespace() || c == '\\')
        .next()?;
    gone.then(|| (address(place), 79))
}

/// `0000:3b:00.0`: the log leaves the function out, which is 0 for a card.
fn address(place: &str) -> Option<String> {
    let whole = match place.contains('.') {
        true => place.to_owned(),
        false => format!("{place}.0"),
    };
    bus_address(&whole).map(address_text)
}

/// Microseconds in the third place of /dev/kmsg, seconds in brackets of dmesg.
fn since_boot(before: &str) -> Option<u64> {
    if let Some(head) = before.strip_suffix(';') {
        return Some(head.split(',').nth(2)?.parse::<u64>().ok()? / 1_000_000);
    }
    let inner = before.trim().strip_prefix('[')?.strip_suffix(']')?;
    inner.trim().split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn told(text: &str) -> Vec<(u32, Option<String>, Option<u64>)> {
        let tell = |xid: Xid| (xid.code, xid.bus_id, xid.since_boot_s);
        parse(text).into_iter().map(tell).collect()
    }

    #[test]
    fn lines_of_public_threads() {
        let bus = |text: &str| Some(text.to_owned());
        for (line, expected) in [
            // leptonai/gpud and NVIDIA/NVSentinel issue 155.
            (
                "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus",
                (79, bus("0000:44:00.0"), None),
            ),
            (
                "[ 1399.140323] NVRM: Xid (PCI:0000:01:00): 32, Channel ID 00000009 intr 00800000",
                (32, bus("0000:01:00.0"), Some(1399)),
            ),
            (
                "4,1290,5678901234,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
                (79, bus("0000:3b:00.0"), Some(5678)),
            ),
            (
                "2026-09-14T20:30:27-0400 host kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=0, GPU has fallen off the bus.",
                (79, bus("0000:01:00.0"), None),
            ),
            (
                "NVRM: Xid (0000:03:00): 31, Ch 00000010, engmask 00000101, intr 10000000",
                (31, bus("0000:03:00.0"), None),
            ),
            (
                "3,99,1843308145,-;NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has\\x0aNVRM: fallen off the bus and is not responding to commands.",
                (79, bus("0000:b3:00.0"), Some(1843)),
            ),
            ("NVRM: Xid (odd): 13, x", (13, None, None)),
        ] {
            assert_eq!(told(line), [expected], "{line}");
        }
    }

    #[test]
    fn what_is_no_fault_of_a_card() {
        for line in [
            "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 11001, Fatal, ingress invalid command",
            "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01",
            "NVRM: GPU at PCI:0000:01:00: GPU-34d7319c-5b19-1e75-186d-c187099e4fe5",
            "NVRM: The NVIDIA GPU 0000:b3:00.0 is not supported",
            "NVRM: Xid (PCI:0000:01:00): x",
            "NVRM: Xid (PCI:0000:01:00",
            " SUBSYSTEM=pci NVRM: Xid (PCI:0000:01:00): 79, x",
            "",
        ] {
            assert_eq!(told(line), [], "{line}");
        }
    }

    #[test]
    fn the_newest_are_kept_and_cut() {
        let mut text = "NVRM: Xid (PCI:0000:01:00): 13, old\n".repeat(MAX_XIDS);
        text += &format!(
            "NVRM: Xid (PCI:0000:01:00): 48, {}\u{1b}[31m\n",
            "x".repeat(9000)
        );
        let found = parse(&text);
        assert_eq!(found.len(), MAX_XIDS);
        let last = &found[MAX_XIDS - 1];
        assert_eq!((last.code, last.text.len()), (48, MAX_TEXT_CHARS));
        assert!(!last.text.contains('\u{1b}'));
    }

    #[test]
    fn a_log_that_is_a_file_and_one_that_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::from_dir(folder.path());
        assert_eq!(read_xids(&roots), None);
        std::fs::create_dir(&roots.dev).unwrap();
        std::fs::write(roots.dev.join("kmsg"), "6,1,2,-;hello\n").unwrap();
        assert_eq!(read_xids(&roots), Some(vec![]));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(NVRM: |Xid \\(|PCI:|0000:|3b:|\\): |[0-9,;.\\[\\] é\n]){0,30}") {
            let _ = parse(&text);
        }
    }
}
