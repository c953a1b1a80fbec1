//! The figures that the kernel keeps for a run's cgroup.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use sconce_schema::Bytes;
use sconce_schema::event::{Pressure, Sample};

use super::RunCgroups;
use super::parse::{self, DeviceIo};
use super::reread_file::{RereadFile, read_whole};
use crate::roots::Roots;

/// The open files of a run's cgroups, and how to read them.
#[derive(Debug)]
pub(super) struct CgroupFiles {
    v2: bool,
    procs: Procs,
    /// v2 `cpu.stat`; v1 `cpuacct.usage`.
    cpu: RereadFile,
    /// `cpu.stat` of either version.
    throttled: RereadFile,
    memory: RereadFile,
    peak: RereadFile,
    memory_stat: RereadFile,
    /// v2 `memory.events`; v1 `memory.oom_control`.
    oom: RereadFile,
    /// v2 `memory.events`; v1 `memory.failcnt`.
    limit_hits: RereadFile,
    pids: RereadFile,
    io: RereadFile,
    /// v2 `memory.swap.current`; v1 has it in `memory.stat`.
    swap: RereadFile,
    /// v2 alone: v1's hierarchies have none, and the machine's own pressure is not the run's.
    pressure: [RereadFile; 3],
    devices: Devices,
    buffer: Vec<u8>,
    pid_buffer: Vec<u32>,
}

/// The list of processes. What is open of v1 has one list for as long as it is read again within a
/// second of the last time (`CGROUP_PIDLIST_DESTROY_DELAY` of the kernel's cgroup-v1.c), so that new
/// processes would never be seen: there it is opened each time.
#[derive(Debug)]
enum Procs {
    Kept(RereadFile),
    Anew(PathBuf),
}

impl CgroupFiles {
    pub(super) fn open(cgroups: &RunCgroups, roots: &Roots) -> Self {
        let open = |folder: Option<&PathBuf>, name: &str| match folder {
            Some(folder) => RereadFile::open(&folder.join(name)),
            None => RereadFile::without_file(),
        };
        let v2 = matches!(cgroups, RunCgroups::V2(_));
        let v1 = match cgroups {
            RunCgroups::V1(folders) => folders.clone(),
            _ => super::V1Directories::default(),
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
            procs: match &any_v1 {
                Some(folder) => Procs::Anew(folder.join("cgroup.procs")),
                None => Procs::Kept(open(unified, "cgroup.procs")),
            },
            cpu: pick(&v1.cpuacct, "cpuacct.usage", "cpu.stat"),
            throttled: pick(&v1.cpu, "cpu.stat", "cpu.stat"),
            memory: pick(&v1.memory, "memory.usage_in_bytes", "memory.current"),
            peak: pick(&v1.memory, "memory.max_usage_in_bytes", "memory.peak"),
            memory_stat: pick(&v1.memory, "memory.stat", "memory.stat"),
            oom: pick(&v1.memory, "memory.oom_control", "memory.events"),
            limit_hits: pick(&v1.memory, "memory.failcnt", "memory.events"),
            pids: pick(&v1.pids, "pids.events", "pids.events"),
            io: pick(&v1.blkio, "blkio.throttle.io_service_bytes", "io.stat"),
            swap: open(unified, "memory.swap.current"),
            pressure: ["cpu.pressure", "memory.pressure", "io.pressure"]
                .map(|name| open(unified, name)),
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
    pub(super) fn read_pids(&mut self) -> Option<&[u32]> {
        let text = match &self.procs {
            Procs::Kept(file) => file.read(&mut self.buffer)?,
            Procs::Anew(path) => read_whole(&File::open(path).ok()?, &mut self.buffer)?,
        };
        self.pid_buffer.clear();
        // A process of a pid namespace that cannot be seen from here is listed as 0.
        self.pid_buffer
            .extend(parse::all_numbers(text).filter(|&pid| pid != 0));
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
                true => parse::flat_keyed_value(text, "usage_usec"),
                false => parse::first_number(text).map(|ns| ns / 1000),
            };
            sample.cpu_us = used.or(sample.cpu_us);
        }
        sample.throttled_us = self.throttled.read(buffer).and_then(|text| match self.v2 {
            true => parse::flat_keyed_value(text, "throttled_usec"),
            false => parse::flat_keyed_value(text, "throttled_time").map(|ns| ns / 1000),
        });
        sample.memory = self
            .memory
            .read(buffer)
            .and_then(parse::first_number)
            .map(Bytes);
        sample.memory_peak = self
            .peak
            .read(buffer)
            .and_then(parse::first_number)
            .map(Bytes);
        let names = match self.v2 {
            true => ["active_file", "inactive_file"],
            false => ["total_active_file", "total_inactive_file"],
        };
        if let Some(text) = self.memory_stat.read(buffer) {
            let [active, inactive] = names.map(|name| parse::flat_keyed_value(text, name));
            let cache = active.zip(inactive).and_then(|(a, i)| a.checked_add(i));
            sample.cache = cache.map(Bytes);
            // A kernel that does not account swap has no such line.
            sample.swap = parse::flat_keyed_value(text, "total_swap").map(Bytes);
        }
        if let Some(text) = self.swap.read(buffer) {
            sample.swap = parse::first_number(text).map(Bytes);
        }
        sample.pressure = pressure(&self.pressure, buffer);
        sample.oom_kills = self
            .oom
            .read(buffer)
            .and_then(|text| parse::flat_keyed_value(text, "oom_kill"));
        sample.pids_refused = self
            .pids
            .read(buffer)
            .and_then(|text| parse::flat_keyed_value(text, "max"));
        if let Some(text) = self.io.read(buffer) {
            let (read, written) = match self.v2 {
                true => self.devices.sum(parse::io_stat(text)),
                false => self.devices.sum(parse::blkio_service_bytes(text)),
            };
            // On v1 both this and the processes' own figures are lower bounds.
            sample.read_bytes = sample.read_bytes.max(Some(read));
            sample.write_bytes = sample.write_bytes.max(Some(written));
        }
    }

    pub(super) fn memory_limit_hits(&mut self) -> Option<u64> {
        let text = self.limit_hits.read(&mut self.buffer)?;
        match self.v2 {
            true => parse::flat_keyed_value(text, "oom"),
            false => parse::first_number(text),
        }
    }
}

/// Absent where no file of it can be read (a v1 cgroup, a kernel without PSI).
fn pressure(files: &[RereadFile; 3], buffer: &mut Vec<u8>) -> Option<Pressure> {
    let mut read = |file: &RereadFile| {
        let text = file.read(buffer)?;
        Some((
            parse::pressure_total_us(text, "some"),
            parse::pressure_total_us(text, "full"),
        ))
    };
    let [cpu, memory, io] = files.each_ref().map(&mut read);
    if cpu.is_none() && memory.is_none() && io.is_none() {
        return None;
    }
    let (memory, io) = (memory.unwrap_or_default(), io.unwrap_or_default());
    Some(Pressure {
        cpu_some_us: cpu.and_then(|(some, _)| some),
        memory_some_us: memory.0,
        memory_full_us: memory.1,
        io_some_us: io.0,
        io_full_us: io.1,
    })
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
    use crate::sampler::V1Directories;

    fn captured(version: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/captured")
            .join(version)
    }

    #[test]
    fn v2() {
        let mut files = CgroupFiles::open(&RunCgroups::V2(captured("v2")), &Roots::default());
        assert_eq!(files.read_pids(), Some(&[118, 121, 122][..]));
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
        let folders = V1Directories {
            pids: folder.clone(),
            memory: folder.clone(),
            cpu: folder.clone(),
            cpuacct: folder.clone(),
            blkio: folder,
        };
        let mut files = CgroupFiles::open(&RunCgroups::V1(folders), &Roots::default());
        assert_eq!(files.read_pids(), Some(&[17, 18][..]));
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
            swap: Some(Bytes(0)),
            read_bytes: Some(5),
            write_bytes: Some(0),
            ..Sample::default()
        };
        assert_eq!(sample, expected);
        assert_eq!(files.memory_limit_hits(), Some(12));
    }

    #[test]
    fn pressure_and_swap_of_v2() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let line = |kind: &str, total: u64| {
            format!("{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n")
        };
        write("cpu.pressure", &(line("some", 5) + &line("full", 4)));
        write("memory.pressure", &(line("some", 3) + &line("full", 2)));
        write("memory.swap.current", "4096\n");
        let v2 = RunCgroups::V2(folder.path().to_owned());
        let mut sample = Sample::default();
        CgroupFiles::open(&v2, &Roots::default()).read_into(&mut sample);
        let expected = Pressure {
            cpu_some_us: Some(5),
            memory_some_us: Some(3),
            memory_full_us: Some(2),
            ..Pressure::default()
        };
        assert_eq!(sample.pressure, Some(expected));
        assert_eq!(sample.swap, Some(Bytes(4096)));
    }

    #[test]
    fn a_run_without_cgroups_keeps_its_figures() {
        let mut files = CgroupFiles::open(&RunCgroups::None, &Roots::default());
        assert_eq!(files.read_pids(), None);
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
