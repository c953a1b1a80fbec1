//! The figures that the kernel keeps for a run's cgroup.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sconce_schema::Bytes;
use sconce_schema::event::Sample;

use super::RunCgroups;
use super::kept::KeptFile;
use super::parse::{self, DeviceIo};
use crate::roots::Roots;

/// The open files of a run's cgroups, and how to read them.
#[derive(Debug)]
pub(super) struct CgroupFiles {
    v2: bool,
    procs: KeptFile,
    /// v2 `cpu.stat`; v1 `cpuacct.usage`.
    cpu: KeptFile,
    /// `cpu.stat` of either version.
    throttled: KeptFile,
    memory: KeptFile,
    peak: KeptFile,
    memory_stat: KeptFile,
    /// v2 `memory.events`; v1 `memory.oom_control`.
    oom: KeptFile,
    /// v2 `memory.events`; v1 `memory.failcnt`.
    limit_hits: KeptFile,
    pids: KeptFile,
    io: KeptFile,
    devices: Devices,
    buffer: Vec<u8>,
    pid_buffer: Vec<u32>,
}

impl CgroupFiles {
    pub(super) fn open(cgroups: &RunCgroups, roots: &Roots) -> Self {
        let open = |folder: Option<&PathBuf>, name: &str| match folder {
            Some(folder) => KeptFile::open(&folder.join(name)),
            None => KeptFile::absent(),
        };
        let v2 = matches!(cgroups, RunCgroups::V2(_));
        let v1 = match cgroups {
            RunCgroups::V1(folders) => folders.clone(),
            _ => super::V1Folders::default(),
        };
        let unified = match cgroups {
            RunCgroups::V2(folder) => Some(folder),
            _ => None,
        };
        // The folder and name of each figure in the version at hand.
        let pick = |v1_folder: &Option<PathBuf>, v1_name: &str, v2_name: &str| match v2 {
            true => open(unified, v2_name),
            false => open(v1_folder.as_ref(), v1_name),
        };
        let any_v1 = [&v1.pids, &v1.memory, &v1.cpuacct, &v1.cpu, &v1.blkio]
            .into_iter()
            .find_map(Option::clone);
        Self {
            v2,
            procs: pick(&any_v1, "cgroup.procs", "cgroup.procs"),
            cpu: pick(&v1.cpuacct, "cpuacct.usage", "cpu.stat"),
            throttled: pick(&v1.cpu, "cpu.stat", "cpu.stat"),
            memory: pick(&v1.memory, "memory.usage_in_bytes", "memory.current"),
            peak: pick(&v1.memory, "memory.max_usage_in_bytes", "memory.peak"),
            memory_stat: pick(&v1.memory, "memory.stat", "memory.stat"),
            oom: pick(&v1.memory, "memory.oom_control", "memory.events"),
            limit_hits: pick(&v1.memory, "memory.failcnt", "memory.events"),
            pids: pick(&v1.pids, "pids.events", "pids.events"),
            io: pick(&v1.blkio, "blkio.throttle.io_service_bytes", "io.stat"),
            devices: Devices::new(roots.sys.join("dev/block")),
            buffer: Vec::new(),
            pid_buffer: Vec::new(),
        }
    }

    /// Whether the cgroup's I/O figures are complete, so that processes need not be asked.
    pub(super) fn counts_all_io(&self) -> bool {
        self.v2 && self.io.is_open()
    }

    /// The processes in the cgroup; `None` where there is none, or it is gone.
    pub(super) fn processes(&mut self) -> Option<&[u32]> {
        let text = self.procs.read(&mut self.buffer)?;
        self.pid_buffer.clear();
        // A process of a pid namespace that cannot be seen from here is listed as 0.
        self.pid_buffer
            .extend(parse::numbers(text).filter(|&pid| pid != 0));
        // v1 may list one twice and in any order (cgroups(7)).
        self.pid_buffer.sort_unstable();
        self.pid_buffer.dedup();
        Some(&self.pid_buffer)
    }

    /// Puts the cgroup's figures into `sample`; what the cgroup does not tell stays as it is.
    pub(super) fn read_into(&mut self, sample: &mut Sample) {
        let buffer = &mut self.buffer;
        if let Some(text) = self.cpu.read(buffer) {
            let used = match self.v2 {
                true => parse::keyed(text, "usage_usec"),
                false => parse::number(text).map(|ns| ns / 1000),
            };
            sample.cpu_us = used.or(sample.cpu_us);
        }
        sample.throttled_us = self.throttled.read(buffer).and_then(|text| match self.v2 {
            true => parse::keyed(text, "throttled_usec"),
            false => parse::keyed(text, "throttled_time").map(|ns| ns / 1000),
        });
        sample.memory = self.memory.read(buffer).and_then(parse::number).map(Bytes);
        sample.memory_peak = self.peak.read(buffer).and_then(parse::number).map(Bytes);
        let names = match self.v2 {
            true => ["active_file", "inactive_file"],
            false => ["total_active_file", "total_inactive_file"],
        };
        sample.cache = self.memory_stat.read(buffer).and_then(|text| {
            let [active, inactive] = names.map(|name| parse::keyed(text, name));
            active?.checked_add(inactive?).map(Bytes)
        });
        sample.oom_kills = self
            .oom
            .read(buffer)
            .and_then(|text| parse::keyed(text, "oom_kill"));
        sample.pids_refused = self
            .pids
            .read(buffer)
            .and_then(|text| parse::keyed(text, "max"));
        if let Some(text) = self.io.read(buffer) {
            let (read, written) = match self.v2 {
                true => self.devices.sum(parse::io_stat(text)),
                false => self.devices.sum(parse::blkio(text)),
            };
            // On v1 both this and the processes' own figures are lower bounds.
            sample.read_bytes = sample.read_bytes.max(Some(read));
            sample.write_bytes = sample.write_bytes.max(Some(written));
        }
    }

    pub(super) fn memory_limit_hits(&mut self) -> Option<u64> {
        let text = self.limit_hits.read(&mut self.buffer)?;
        match self.v2 {
            true => parse::keyed(text, "oom"),
            false => parse::number(text),
        }
    }
}

/// Block devices. A device made of others (device mapper, md) counts what they count once more,
/// so only devices that stand on no other are summed.
#[derive(Debug)]
struct Devices {
    folder: PathBuf,
    stacked: BTreeMap<Vec<u8>, bool>,
}

impl Devices {
    fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            stacked: BTreeMap::new(),
        }
    }

    fn sum<'a>(&mut self, devices: impl Iterator<Item = DeviceIo<'a>>) -> (u64, u64) {
        let mut sums = (0_u64, 0_u64);
        for io in devices {
            if !self.is_stacked(io.device) {
                sums.0 = sums.0.saturating_add(io.read);
                sums.1 = sums.1.saturating_add(io.written);
            }
        }
        sums
    }

    /// Whether `/sys/dev/block/M:N/slaves` has an entry.
    fn is_stacked(&mut self, device: &[u8]) -> bool {
        if let Some(&known) = self.stacked.get(device) {
            return known;
        }
        let found = std::str::from_utf8(device)
            .ok()
            .and_then(|name| {
                Path::new(&self.folder)
                    .join(name)
                    .join("slaves")
                    .read_dir()
                    .ok()
            })
            .is_some_and(|mut slaves| slaves.next().is_some());
        self.stacked.insert(device.to_vec(), found);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::V1Folders;

    fn captured(version: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/captured")
            .join(version)
    }

    #[test]
    fn v2() {
        let mut files = CgroupFiles::open(&RunCgroups::V2(captured("v2")), &Roots::default());
        assert_eq!(files.processes(), Some(&[118, 121, 122][..]));
        assert!(files.counts_all_io());
        let mut sample = Sample {
            cpu_us: Some(1),
            ..Sample::default()
        };
        files.read_into(&mut sample);
        let expected = Sample {
            cpu_us: Some(1_170_643),
            throttled_us: Some(4_391_222),
            memory: Some(Bytes(557_056)),
            memory_peak: Some(Bytes(33_554_432)),
            cache: Some(Bytes(4_194_304 + 8192)),
            oom_kills: Some(1),
            pids_refused: Some(1),
            read_bytes: Some(4_587_520),
            write_bytes: Some(4_194_304),
            ..Sample::default()
        };
        assert_eq!(sample, expected);
        assert_eq!(files.memory_limit_hits(), Some(1));
    }

    #[test]
    fn v1() {
        let folder = Some(captured("v1"));
        let folders = V1Folders {
            pids: folder.clone(),
            memory: folder.clone(),
            cpu: folder.clone(),
            cpuacct: folder.clone(),
            blkio: folder,
        };
        let mut files = CgroupFiles::open(&RunCgroups::V1(folders), &Roots::default());
        assert_eq!(files.processes(), Some(&[17, 18][..]));
        assert!(!files.counts_all_io());
        let mut sample = Sample {
            read_bytes: Some(5),
            ..Sample::default()
        };
        files.read_into(&mut sample);
        let expected = Sample {
            cpu_us: Some(27_637),
            throttled_us: Some(1_500),
            memory: Some(Bytes(67_350_528)),
            memory_peak: Some(Bytes(73_719_808)),
            cache: Some(Bytes(67_117_056 + 86_016)),
            oom_kills: Some(0),
            pids_refused: Some(0),
            read_bytes: Some(5),
            write_bytes: Some(0),
            ..Sample::default()
        };
        assert_eq!(sample, expected);
        assert_eq!(files.memory_limit_hits(), Some(12));
    }

    #[test]
    fn a_run_without_cgroups_keeps_its_figures() {
        let mut files = CgroupFiles::open(&RunCgroups::None, &Roots::default());
        assert_eq!(files.processes(), None);
        let before = Sample {
            cpu_us: Some(7),
            read_bytes: Some(8),
            ..Sample::default()
        };
        let mut sample = before.clone();
        files.read_into(&mut sample);
        assert_eq!(sample, before);
        assert_eq!(files.memory_limit_hits(), None);
    }

    #[test]
    fn a_stacked_device_is_not_counted_twice() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("253:0/slaves/sda")).unwrap();
        std::fs::create_dir_all(folder.path().join("8:0/slaves")).unwrap();
        let mut devices = Devices::new(folder.path().to_owned());
        let io = |device| DeviceIo {
            device,
            read: 10,
            written: 1,
        };
        let sums = devices.sum([io(b"253:0"), io(b"8:0"), io(b"9:9")].into_iter());
        assert_eq!(sums, (20, 2));
    }
}
