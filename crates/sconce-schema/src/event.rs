//! The events of a run. A run's record is a file of them, one JSON object a line, append-only;
//! every report is a function of that file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::lock::Versions;
use crate::request::Limits;
use crate::units::Bytes;

/// The format that this program writes, named in [`Started`].
pub const FORMAT: u32 = 1;

/// One line of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Microseconds since the run began, on the monotonic clock.
    pub t_us: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Always the first line.
    Started(Box<Started>),
    /// A limit or a wish that this machine cannot honour.
    Unenforced(Unenforced),
    /// One reading of everything.
    Sample(Box<Sample>),
    /// The last line of a run that ended while Sconce watched.
    Ended(Ended),
}

/// How a run began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Started {
    /// [`FORMAT`].
    pub format: u32,
    /// The run's name.
    pub id: String,
    /// The environment's name, from the spec; absent with `--host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Wall clock at the beginning, milliseconds since 1970 (UTC).
    pub unix_ms: u64,
    /// Program and arguments.
    pub command: Vec<String>,
    /// The spec's folder, or the working directory with `--host`.
    pub folder: PathBuf,
    /// `container` or `host`.
    pub mode: Mode,
    /// Process id of the `sconce` that watches, in the host's numbering.
    pub sconce_pid: u32,
    /// What it may use.
    pub limits: Limits,
    /// Versions of the lock; absent with `--host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
    /// Plans that were applied from outside, `+` between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The machine.
    pub host: HostSummary,
    /// Cards given to the run.
    pub gpus: Vec<GpuSummary>,
}

/// How a run is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// In a container.
    Container,
    /// On the machine itself.
    Host,
}

/// The machine that a run was on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct HostSummary {
    /// Host name.
    pub hostname: String,
    /// Kernel release.
    pub kernel: String,
    /// Logical CPUs that the caller may use.
    pub cpus: u32,
    /// The CPU's name, where the kernel tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// Main memory.
    pub memory: Bytes,
    /// Driver version, where there is a driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

/// One card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GpuSummary {
    /// Index as the driver counts.
    pub index: u32,
    /// `GPU-…`.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// Its memory, where NVML tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

/// Something asked for that cannot be enforced here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Unenforced {
    /// What was asked: `memory`, `cpus`, `pids`, `gpus`, …
    pub what: String,
    /// Why not, in one sentence.
    pub why: String,
    /// What would make it work, where something would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// One reading. Counters are cumulative since the run began; a figure that could not be read is
/// absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Sample {
    /// CPU time used by the whole process tree, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    /// Time in which the CPU limit held the run back, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_us: Option<u64>,
    /// Memory charged to the cgroup now, page cache included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// The highest [`Sample::memory`] so far, as the kernel saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak: Option<Bytes>,
    /// Of [`Sample::memory`], what the kernel could drop (file cache).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Bytes>,
    /// Proportional set size, summed over the tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pss: Option<Bytes>,
    /// Resident set sizes, summed over the tree (shared pages counted more than once).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss: Option<Bytes>,
    /// Processes now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Threads now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Bytes read from block devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    /// Bytes written to block devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_bytes: Option<u64>,
    /// Bytes used in /dev/shm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm: Option<Bytes>,
    /// Processes that the kernel killed because the cgroup's memory ran out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    /// Forks refused because of the pids limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_refused: Option<u64>,
    /// Each card.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuSample>,
}

/// One reading of one card.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct GpuSample {
    /// Index as the driver counts.
    pub index: u32,
    /// Share of the last sampling period in which a kernel ran, 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilisation_percent: Option<u32>,
    /// Memory in use by everyone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used: Option<Bytes>,
    /// Memory by process of this run, keyed by the host's process id.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "read_pids"
    )]
    pub memory_by_pid: BTreeMap<u32, Bytes>,
    /// Draw, milliwatts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mw: Option<u32>,
    /// Energy since the driver was loaded, millijoules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_mj: Option<u64>,
    /// Degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// Clock of the multiprocessors, MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<u32>,
    /// Why the clocks are held down, in NVML's words in kebab-case; `gpu-idle` is not listed. Empty
    /// where nothing holds them down, absent where the driver does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Vec<String>>,
}

/// Reads process ids that are keys. JSON's keys are texts, and serde does not turn them into
/// numbers inside a tagged enum such as [`Event`].
fn read_pids<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<u32, Bytes>, D::Error> {
    BTreeMap::<String, Bytes>::deserialize(d)?
        .into_iter()
        .map(|(pid, bytes)| Ok((pid.parse().map_err(de::Error::custom)?, bytes)))
        .collect()
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Ended {
    /// How the command ended.
    pub exit: Exit,
    /// The last reading, taken when every process was gone where the kernel still tells it.
    pub last: Box<Sample>,
    /// Set when the kernel killed a process of the run for the run's own memory limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_memory: Option<OutOfMemory>,
    /// The largest resident set that any one process of the run had, bytes. Known for the
    /// shortest run too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_process: Option<Bytes>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// It returned this code.
    Code(u8),
    /// This signal ended it.
    Signal(i32),
}

impl Exit {
    /// The exit code that Sconce passes on: the command's own, or 128 + the signal.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => crate::exit::signalled(signal),
        }
    }
}

/// A kill by the memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct OutOfMemory {
    /// The limit that was hit; absent when the limit is not Sconce's (a parent cgroup's).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Bytes>,
    /// How many processes were killed.
    pub kills: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_with_cards_survives_text() {
        let card = GpuSample {
            memory_by_pid: BTreeMap::from([(4_123, Bytes::mib(512))]),
            ..GpuSample::default()
        };
        let line = Line {
            t_us: 1_000_000,
            event: Event::Sample(Box::new(Sample {
                gpus: vec![card],
                ..Sample::default()
            })),
        };
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
        let wrong = text.replace("4123", "-1");
        assert!(serde_json::from_str::<Line>(&wrong).is_err());
    }
}
