//! Keeping out of the way of a run.
//!
//! The lowest priority is not enough: since Linux 6.12 a thread that wakes up on another CPU may
//! wait up to a timer tick for the one that is running there, whatever its priority, and programs
//! that meet at a barrier a thousand times a second (OpenMP) then run at half their speed. So the
//! work is stopped now and then, for a look at what the rest of the machine does without it, and
//! goes on only while a whole core is left over.

use rustix::process::{Pid, Signal, kill_process};
use sconce_host::SampleScope;
use sconce_run::RunObserver;

/// Looks' lengths of work between two looks.
const WORK_INTERVALS: u32 = 4;
/// A core counts as left over when this much of it is.
const MIN_SPARE_CORES: f64 = 0.8;

/// Stops and continues one process.
#[derive(Debug, Default)]
pub(super) struct IdleThrottle {
    process: Option<Pid>,
    /// Lengths of work left until the next look; 0 while a look goes on.
    work: u32,
    /// What the machine had done when the present look began.
    before: Option<Usage>,
}

impl IdleThrottle {
    fn send(&self, signal: Signal) {
        if let Some(process) = self.process {
            // It may have ended.
            let _ = kill_process(process, signal);
        }
    }

    fn look(&mut self) {
        self.before = read();
        self.work = 0;
    }
}

impl RunObserver for IdleThrottle {
    fn started(&mut self, target: &SampleScope) {
        let pid = target.root_pid.and_then(|pid| i32::try_from(pid).ok());
        self.process = pid.and_then(Pid::from_raw);
        self.send(Signal::STOP);
        self.look();
    }

    fn tick(&mut self) {
        if self.work > 1 {
            self.work -= 1;
            return;
        }
        if self.work == 1 {
            self.send(Signal::STOP);
            self.look();
            return;
        }
        // Where the machine tells nothing, the priority has to do.
        let left = self.before.zip(read()).map(|(then, now)| now.left(then));
        if left.is_none_or(|left| left >= MIN_SPARE_CORES) {
            self.send(Signal::CONT);
            self.work = WORK_INTERVALS;
        } else {
            self.look();
        }
    }
}

/// What all processors together did since the machine started, in the kernel's clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Usage {
    processors: u32,
    /// At no priority, waiting for a disk, or nothing at all.
    spare: u64,
    all: u64,
}

impl Usage {
    /// Processors that were left over since `then`.
    fn left(self, then: Self) -> f64 {
        let all = self.all.saturating_sub(then.all).max(1);
        let spare = self.spare.saturating_sub(then.spare);
        f64::from(self.processors) * spare as f64 / all as f64
    }
}

fn read() -> Option<Usage> {
    parse(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// Reads /proc/stat (proc_stat(5)): the first line has user, nice, system, idle, iowait, irq,
/// softirq and steal time of all processors, then comes a line for each.
fn parse(text: &str) -> Option<Usage> {
    let mut lines = text.lines();
    let mut times = [0; 8];
    let mut words = lines.next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    for time in &mut times {
        *time = words.next()?.parse().ok()?;
    }
    let [_, nice, _, idle, iowait, ..] = times;
    let processors = lines.take_while(|line| line.starts_with("cpu")).count();
    Some(Usage {
        processors: u32::try_from(processors).ok()?,
        spare: nice + idle + iowait,
        all: times.iter().sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From a machine with two processors, cut after the lines that are read.
    const STAT: &str = "cpu  104733 8521 36722 2455341 4118 0 1342 870 0 0\n\
                        cpu0 52365 4361 18347 1227658 2086 0 740 431 0 0\n\
                        cpu1 52368 4160 18375 1227683 2032 0 602 439 0 0\n\
                        intr 29316270 0 9\n";

    #[test]
    fn usage_is_read() {
        let usage = parse(STAT).unwrap();
        assert_eq!(usage.processors, 2);
        assert_eq!(usage.spare, 8521 + 2_455_341 + 4118);
        assert_eq!(usage.all, 2_611_647);
        for broken in [
            "",
            "cpu",
            "cpu  1 2 3",
            "cpux 1 2 3 4 5 6 7 8",
            "cpu  1 2 3 4 5 6 7 x",
        ] {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn what_is_left_over_is_counted_in_processors() {
        let usage = |spare, all| Usage {
            processors: 2,
            spare,
            all,
        };
        assert_eq!(usage(50, 100).left(usage(0, 0)), 1.0);
        assert_eq!(usage(100, 100).left(usage(100, 50)), 0.0);
        // Clocks of the kernel can step back; nothing may be made of it.
        assert_eq!(usage(0, 0).left(usage(100, 50)), 0.0);
    }
}
