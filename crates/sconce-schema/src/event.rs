//! The events of a run. A run's record is a file of them, one JSON object a line, append-only;
//! every report is a function of that file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::lock::LockedVersions;
use crate::network::{NcclNetwork, NodeNetwork};
use crate::request::{NetworkMode, NumaPlacement, RunLimits};
use crate::runtime::RuntimeSummary;
use crate::spec::JobContainment;
use crate::training::{GpuOutOfMemory, TrainingSample, TrainingSetup};
use crate::units::Bytes;

/// The format that this program writes, named in [`RunStarted`].
pub const FORMAT: u32 = 2;

/// One line of a record: an object that begins with `t_us` and `event`, in this order.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecordLine {
    /// Microseconds since the run began, on the monotonic clock.
    pub t_us: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: RecordEvent,
}

/// Written by hand because serde reads a flattened, tagged enum by way of a copy of everything in it,
/// and a day's record is a gigabyte of lines.
impl<'de> Deserialize<'de> for RecordLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(field_identifier)]
        enum Key {
            #[serde(rename = "t_us")]
            Time,
            #[serde(rename = "event")]
            Event,
        }

        /// The tags of [`Event`].
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum Tag {
            Started,
            Unenforced,
            Sample,
            Setup,
            CardOutOfMemory,
            Service,
            Ended,
        }

        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = RecordLine;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object that begins with `t_us` and `event`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RecordLine, A::Error> {
                let Some(Key::Time) = map.next_key()? else {
                    return Err(de::Error::missing_field("t_us"));
                };
                let t_us = map.next_value()?;
                let Some(Key::Event) = map.next_key()? else {
                    return Err(de::Error::missing_field("event"));
                };
                let tag = map.next_value()?;
                let rest = MapAccessDeserializer::new(map);
                let event = match tag {
                    Tag::Started => RecordEvent::Started(Deserialize::deserialize(rest)?),
                    Tag::Unenforced => RecordEvent::Unenforced(Deserialize::deserialize(rest)?),
                    Tag::Sample => RecordEvent::Sample(Deserialize::deserialize(rest)?),
                    Tag::Setup => RecordEvent::Setup(Deserialize::deserialize(rest)?),
                    Tag::CardOutOfMemory => {
                        RecordEvent::CardOutOfMemory(Deserialize::deserialize(rest)?)
                    }
                    Tag::Service => RecordEvent::Service(Deserialize::deserialize(rest)?),
                    Tag::Ended => RecordEvent::Ended(Deserialize::deserialize(rest)?),
                };
                Ok(RecordLine { t_us, event })
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum RecordEvent {
    /// Always the first line.
    Started(Box<RunStarted>),
    /// A limit or a wish that this machine cannot honour.
    Unenforced(UnenforcedLimit),
    /// One reading of everything.
    Sample(Box<Sample>),
    /// What a training process is made of.
    Setup(Box<TrainingSetup>),
    /// A card's memory ran out.
    CardOutOfMemory(Box<GpuOutOfMemory>),
    /// A service has changed.
    Service(Box<ServiceEvent>),
    /// The last line of a run that ended while Sconce watched.
    Ended(RunEnded),
}

/// What became of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ServiceEvent {
    /// Its name.
    pub name: String,
    /// What it is now.
    pub state: ServiceState,
    /// How often it was started so far.
    pub starts: u32,
    /// How its process ended, where that is what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<ExitStatus>,
    /// Why, where there is more to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Time until it is started again, where it is, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_ms: Option<u64>,
    /// Where it is reached, told when it is there; without a token or a password.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<String>,
}

/// What a service is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceState {
    /// For others to become healthy.
    Waiting,
    /// It runs, and its first check has not succeeded yet.
    Starting,
    /// It runs, and nothing checks its health.
    Running,
    /// It runs, and its last check succeeded.
    Healthy,
    /// It runs, and too many checks failed one after the other.
    Unhealthy,
    /// It ended, and will be started again.
    Restarting,
    /// It was asked to end.
    Stopping,
    /// It ended and stays so, as it was to.
    Ended,
    /// It ended or could not begin, and is not tried again.
    Failed,
}

impl ServiceState {
    /// The word for people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
            Self::Restarting => "restarting",
            Self::Stopping => "stopping",
            Self::Ended => "ended",
            Self::Failed => "failed",
        }
    }
}

/// How a run began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RunStarted {
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
    pub mode: Containment,
    /// Process id of the `sconce` that watches, in the host's numbering.
    pub sconce_pid: u32,
    /// What it may use.
    pub limits: RunLimits,
    /// Where on the machine it was placed, next to its cards; absent where it was left to the
    /// kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<NumaPlacement>,
    /// What it sees of the network; absent in records of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkMode>,
    /// What gives a network of its own a way out: `pasta` or `slirp4netns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way_out: Option<String>,
    /// The program that set the container up; absent where that was Sconce itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeSummary>,
    /// What held it on a job's node in Sconce's place; absent where that was Sconce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containment: Option<JobContainment>,
    /// By what a job's node reaches the others; absent where the run is no part of a job of several nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_network: Option<NodeNetwork>,
    /// Versions of the lock; absent with `--host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<LockedVersions>,
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
pub enum Containment {
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
    /// Which boot of the machine it was (the kernel's `random/boot_id`); absent in records of
    /// before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
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
pub struct UnenforcedLimit {
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
    /// Pressure stall information of the run's cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
    /// Swap that the run holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<Bytes>,
    /// Time in which each of the machine's CPUs was busy with anything, µs, by CPU number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpus_busy_us: Vec<u64>,
    /// Bytes that the run's network namespace received, loopback left out; absent where the run is on
    /// the machine's own network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// Bytes that it sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_bytes: Option<u64>,
    /// The processes that use the most, 32 at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_process: Vec<ProcessSample>,
    /// Each card.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuSample>,
    /// Each process that trains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub training: Vec<TrainingSample>,
    /// Processes that train beyond those that can be listened to at one time, and are not told yet; in
    /// the last reading, those that never were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training_left_out: Option<u32>,
    /// The network that NCCL chose in a process: what is new since the last reading.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nccl: Vec<NcclNetwork>,
}

/// Time in which tasks waited for a resource, µs since the run began (the kernel's
/// Documentation/accounting/psi.rst).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
#[expect(
    missing_docs,
    reason = "each field is a resource and the kernel's own word"
)]
pub struct Pressure {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_some_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_some_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_full_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_some_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_full_us: Option<u64>,
}

/// One process of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ProcessSample {
    /// In the host's numbering.
    pub pid: u32,
    /// In the run's own numbering, where that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner_pid: Option<u32>,
    /// Its parent, in the host's numbering.
    #[serde(skip_serializing_if = "is_zero")]
    pub parent: u32,
    /// The kernel's name of it (`comm`). In a record's file it stands, with the parent, the inner number
    /// and the role, where the process is first told of and where one of them changed; readers put it
    /// back.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it is for: `main`, `worker` (of a loader), `rank`; absent where that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// CPU time since it began, µs.
    pub cpu_us: u64,
    /// Resident set.
    pub rss: Bytes,
    /// Threads.
    pub threads: u32,
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
    /// Share of the last sampling period in which memory was read or written, 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_utilisation_percent: Option<u32>,
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
    /// Clock of the memory, MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<u32>,
    /// Bytes a second over PCIe to the card: since the last reading, or, where the driver has no counter of
    /// them, in some 20 ms of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_received_bytes_per_s: Option<u64>,
    /// Bytes a second over PCIe from the card, as above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_sent_bytes_per_s: Option<u64>,
    /// Bytes received over all NVLinks since the run began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlink_received_bytes: Option<u64>,
    /// Bytes sent over all NVLinks since the run began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlink_sent_bytes: Option<u64>,
    /// Xid errors that the driver told since the last reading.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub xids: Vec<u64>,
    /// The parts of a card that is split (MIG).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<GpuInstance>,
    /// Why the clocks are held down, in NVML's words in kebab-case; `gpu-idle` is not listed. Empty
    /// where nothing holds them down, absent where the driver does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttle: Option<Vec<String>>,
}

/// One part of a split card.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct GpuInstance {
    /// `MIG-…`.
    pub uuid: String,
    /// Memory in use by everyone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used: Option<Bytes>,
    /// All of its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Reads process ids that are keys. JSON's keys are texts, and serde does not turn them into
/// numbers inside a tagged enum such as [`RecordEvent`].
fn read_pids<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<u32, Bytes>, D::Error> {
    BTreeMap::<String, Bytes>::deserialize(d)?
        .into_iter()
        .map(|(pid, bytes)| Ok((pid.parse().map_err(de::Error::custom)?, bytes)))
        .collect()
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RunEnded {
    /// How the command ended.
    pub exit: ExitStatus,
    /// The last reading, taken when every process was gone where the kernel still tells it.
    pub last: Box<Sample>,
    /// Set when the kernel killed a process of the run for the run's own memory limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_memory: Option<OomKill>,
    /// The largest resident set that any one process of the run had, bytes. Known for the
    /// shortest run too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_process: Option<Bytes>,
    /// What the disk did not take; absent where it took all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<WriteLoss>,
}

/// What could not be written of a run, because the disk was full or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct WriteLoss {
    /// Lines of the record.
    pub lines: u64,
    /// Bytes of the run's logs; each log says where.
    pub log_bytes: u64,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitStatus {
    /// It returned this code.
    Code(u8),
    /// This signal ended it.
    Signal(i32),
}

impl ExitStatus {
    /// The exit code that Sconce passes on: the command's own, or 128 + the signal.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => crate::exit::code_for_signal(signal),
        }
    }
}

/// A kill by the memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct OomKill {
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
            memory_by_pid: BTreeMap::from([(4_123, Bytes::from_mib(512))]),
            ..GpuSample::default()
        };
        let line = RecordLine {
            t_us: 1_000_000,
            event: RecordEvent::Sample(Box::new(Sample {
                gpus: vec![card],
                ..Sample::default()
            })),
        };
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<RecordLine>(&text).unwrap(), line);
        let wrong = text.replace("4123", "-1");
        assert!(serde_json::from_str::<RecordLine>(&wrong).is_err());
    }

    #[test]
    fn every_event_is_read_as_it_was_written() {
        let started = r#"{"format":2,"id":"a","unix-ms":1,"command":[],"folder":"/","mode":"host",
            "sconce-pid":1,"limits":{},"host":{"hostname":"","kernel":"","cpus":1,"memory":1},"gpus":[]}"#;
        let events = [
            RecordEvent::Started(serde_json::from_str(started).unwrap()),
            RecordEvent::Unenforced(UnenforcedLimit {
                what: "cpus".to_owned(),
                why: "no cgroup".to_owned(),
                hint: None,
            }),
            RecordEvent::Sample(Box::default()),
            RecordEvent::Setup(Box::default()),
            RecordEvent::CardOutOfMemory(Box::default()),
            RecordEvent::Ended(RunEnded {
                exit: ExitStatus::Code(1),
                last: Box::default(),
                out_of_memory: None,
                largest_process: None,
                lost: Some(WriteLoss {
                    lines: 1,
                    log_bytes: 2,
                }),
            }),
        ];
        for (t_us, event) in (0..).zip(events) {
            let line = RecordLine { t_us, event };
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(serde_json::from_str::<RecordLine>(&text).unwrap(), line);
        }
        for wrong in [
            "{}",
            r#"{"t_us":1}"#,
            r#"{"event":"sample","t_us":1}"#,
            r#"{"t_us":1,"x":1,"event":"sample"}"#,
            r#"{"t_us":1,"event":"other"}"#,
            "[1]",
        ] {
            assert!(
                serde_json::from_str::<RecordLine>(wrong).is_err(),
                "{wrong}"
            );
        }
    }
}
