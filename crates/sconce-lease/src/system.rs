//! What leases need to know of the machine.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use sconce_host::{Roots, boot_id};

use super::types::{LeaseGpu, ProcessRef, SystemObservation};
use super::{ClockReading, Handles, LeaseState};

/// A machine: this one, or one that a test plays.
pub trait LeaseSystem {
    /// The clocks; absent where they cannot be read.
    fn clock(&self) -> Option<ClockReading>;
    /// The cards that answer.
    fn cards(&self) -> Vec<LeaseGpu>;
    /// Whether a process of this boot still lives.
    fn is_alive(&self, process: &ProcessRef) -> bool;
    /// The process with that number; absent where there is none.
    fn process(&self, pid: u32) -> Option<ProcessRef>;

    /// What there is to be seen before a decision; absent without clocks.
    fn see(&self, state: &LeaseState) -> Option<SystemObservation> {
        let clock = self.clock()?;
        let leases = state.leases.iter().map(|lease| (lease.id, &lease.process));
        let waiting = state.waiting.iter().map(|w| (w.id, &w.process));
        let gone = leases
            .chain(waiting)
            .filter(|(_, process)| {
                let process = process.as_ref().filter(|p| p.boot == clock.boot);
                process.is_some_and(|process| !self.is_alive(process))
            })
            .map(|(id, _)| id)
            .collect();
        Some(SystemObservation {
            cards: self.cards(),
            clock,
            gone,
        })
    }
}

/// This machine, with cards that somebody has looked for.
#[derive(Debug, Clone)]
pub struct LocalSystem {
    /// Where it is read.
    pub roots: Roots,
    /// Its cards.
    pub cards: Vec<LeaseGpu>,
    /// Of processes that were looked at; a service keeps them from request to request.
    pub handles: Handles,
}

impl LocalSystem {
    fn start_ticks(&self, pid: u32) -> io::Result<Option<u64>> {
        let path = self.roots.proc.join(pid.to_string()).join("stat");
        let mut line = [0; STAT_LINE_BYTES];
        let length = File::open(path)?.read(&mut line)?;
        // A process may give itself a name that is no text.
        Ok(start_ticks(&String::from_utf8_lossy(&line[..length])))
    }
}

/// Bytes of a line of proc_pid_stat(5), the kernel's file that is read most: of each holder and of
/// each who waits, for each who asks. Up to field 22 there are fewer, and one read has them all.
const STAT_LINE_BYTES: usize = 1024;

/// Field 22 of proc_pid_stat(5), and `None` for a process that is dead and only not yet waited for.
/// The name in field 2 may hold anything, spaces and brackets included.
fn start_ticks(stat: &str) -> Option<u64> {
    let rest = stat.get(stat.rfind(')')? + 1..)?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then_some(())?;
    fields.nth(18)?.parse().ok()
}

impl LeaseSystem for LocalSystem {
    fn clock(&self) -> Option<ClockReading> {
        let boot = clock_gettime(ClockId::Boottime);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        let seconds = u64::try_from(boot.tv_sec).ok()?;
        let nanoseconds = u64::try_from(boot.tv_nsec).ok()?;
        Some(ClockReading {
            // Before 1970 there was no machine with a card.
            wall_ms: wall.map_or(0, |wall| {
                u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)
            }),
            boot: boot_id(&self.roots)?,
            boot_ms: seconds * 1000 + nanoseconds / 1_000_000,
        })
    }

    fn cards(&self) -> Vec<LeaseGpu> {
        self.cards.clone()
    }

    fn is_alive(&self, process: &ProcessRef) -> bool {
        if let Some(alive) = self.handles.is_alive(process) {
            return alive;
        }
        let is_it = |ticks: Option<u64>| ticks == Some(process.start_ticks);
        match self.start_ticks(process.pid) {
            Ok(ticks) if is_it(ticks) => {
                // A recorded machine's numbers are other processes' here.
                if self.roots.proc == Path::new("/proc") {
                    let still = || self.start_ticks(process.pid).is_ok_and(is_it);
                    self.handles.insert_if_alive(process, still);
                }
                true
            }
            Ok(_) => false,
            // What may not be looked at is there.
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    fn process(&self, pid: u32) -> Option<ProcessRef> {
        Some(ProcessRef {
            pid,
            start_ticks: self.start_ticks(pid).ok()??,
            boot: boot_id(&self.roots)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_its_line() {
        let line = |name: &str, state: &str| {
            format!("7 ({name}) {state} 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4711 9 9")
        };
        assert_eq!(start_ticks(&line("python", "S")), Some(4711));
        assert_eq!(start_ticks(&line("x) R 1 (", "R")), Some(4711));
        assert_eq!(start_ticks(&line("python", "Z")), None);
        let cut = line("python", "S").replace(" 4711 9 9", "");
        assert_eq!(start_ticks(&cut), None);
        assert_eq!(start_ticks(""), None);
        assert_eq!(start_ticks("7 (a"), None);
    }

    #[test]
    fn a_name_that_is_no_text_hides_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let machine = LocalSystem {
            roots: Roots::from_dir(folder.path()),
            cards: Vec::new(),
            handles: Handles::default(),
        };
        let stat = machine.roots.proc.join("7/stat");
        std::fs::create_dir_all(machine.roots.proc.join("7")).expect("a folder");
        let line = |state: &str| {
            let mut line = b"7 (\xff\xfe) ".to_vec();
            line.extend(format!("{state} 1 7 7 0 -1 1 1 0 0 0 0 0 0 0 20 0 1 0 4711").bytes());
            line
        };
        std::fs::write(&stat, line("S")).expect("a file");
        assert_eq!(machine.start_ticks(7).ok(), Some(Some(4711)));
        std::fs::write(&stat, line("Z")).expect("a file");
        assert_eq!(machine.start_ticks(7).ok(), Some(None));
    }

    #[test]
    fn this_process_lives() {
        let machine = LocalSystem {
            roots: Roots::default(),
            cards: Vec::new(),
            handles: Handles::default(),
        };
        let own = machine.process(std::process::id()).expect("it is here");
        assert!(machine.is_alive(&own));
        let other = ProcessRef {
            start_ticks: own.start_ticks + 1,
            ..own
        };
        assert!(!machine.is_alive(&other), "another had its number");
    }

    #[test]
    fn a_process_that_ends_is_seen_to_by_its_handle() {
        let machine = LocalSystem {
            roots: Roots::default(),
            cards: Vec::new(),
            handles: Handles::default(),
        };
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("a child");
        let process = machine.process(child.id()).expect("it is here");
        assert!(machine.is_alive(&process));
        assert_eq!(machine.handles.is_alive(&process), Some(true), "kept");
        child.kill().expect("it ends");
        child.wait().expect("it ended");
        assert_eq!(machine.handles.is_alive(&process), Some(false));
        assert_eq!(machine.handles.is_alive(&process), None, "and forgotten");
        assert!(!machine.is_alive(&process));
    }
}
