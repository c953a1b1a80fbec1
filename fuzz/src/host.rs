//! What the kernel and the driver write about a machine and its processes. A container's own
//! names stand in it, and files may be cut off or of another kernel.

#[path = "../../crates/sconce-host/src/sampler/parse.rs"]
mod parse;

use std::path::Path;

use sconce_host::cdi::{self, CdiPrecedence};
use sconce_host::nccl::NcclLog;
use sconce_host::training::{ProbeRing, SIZE};
use sconce_host::{HostProfile, Roots, RunCgroups, SampleScope, Sampler, V1Directories};
use sconce_schema::spec::GpuRequest;

use crate::bytes::{fixture, joined, parts};
use crate::scratch::{Pen, put};

/// The files that say what a machine is.
const MACHINE: [&str; 15] = [
    "proc/self/mountinfo",
    "proc/self/cgroup",
    "proc/self/status",
    "proc/meminfo",
    "proc/cpuinfo",
    "proc/filesystems",
    "proc/driver/nvidia/version",
    "proc/driver/nvidia/params",
    "proc/driver/nvidia/gpus/0000:17:00.0/information",
    "proc/driver/nvidia/gpus/0000:65:00.0/information",
    "proc/sys/kernel/random/boot_id",
    "proc/sys/kernel/hostname",
    "sys/fs/cgroup/user.slice/user-1000.slice/cpu.max",
    "sys/fs/cgroup/user.slice/user-1000.slice/session-4.scope/cgroup.controllers",
    "proc/sys/user/max_user_namespaces",
];

pub(crate) fn machine(data: &[u8]) {
    let pen = Pen::new();
    for (name, part) in MACHINE.iter().zip(parts::<15>(data)) {
        if !part.is_empty() {
            put(&pen.tree.join(name), part);
        }
    }
    put(&pen.tree.join("proc/self/ns/user"), b"");
    let roots = Roots::from_dir(&pen.tree);
    let facts = HostProfile::read(&roots);
    let _ = (
        facts.usable_cpus(),
        facts.summary(),
        sconce_host::boot_id(&roots),
    );
    if let Some(nvidia) = &facts.nvidia {
        let _ = nvidia.driver_version();
        for card in &nvidia.cards {
            let _ = card.summary();
        }
        for wanted in [GpuRequest::All, GpuRequest::Count(1)] {
            let Ok(cards) = sconce_host::select_gpus(&nvidia.cards, &wanted) else {
                continue;
            };
            let _ = sconce_host::visible_devices(&cards);
            let _ = sconce_host::edits_for(&facts, &cards, &roots, &pen.tree);
        }
        if let Ok(file) = cdi::build_spec(&facts, &[], cdi::NVIDIA, &roots) {
            assert!(file.is_object());
        }
    }
    pen.assert_closed();
}

pub(crate) fn machine_seeds() -> Vec<Vec<u8>> {
    let recorded = Path::new("crates/sconce-host/tests/machines/two-cards");
    let files: Vec<Vec<u8>> = MACHINE[..14]
        .iter()
        .map(|name| fixture(&recorded.join(name).to_string_lossy()))
        .collect();
    let two: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    let v1 = b"30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
    vec![
        joined(&two),
        joined(&[v1, b"4:memory:/jobs/a\n3:cpu,cpuacct:/\n"]),
    ]
}

/// CDI files, in each of the two forms and in both folders: anybody's tool writes them.
pub(crate) fn cdi_files(data: &[u8]) {
    let pen = Pen::new();
    let names = [
        "etc/cdi/a.json",
        "etc/cdi/b.yaml",
        "run/cdi/c.json",
        "run/cdi/d.yaml",
    ];
    for (name, part) in names.iter().zip(parts::<4>(data)) {
        if !part.is_empty() {
            put(&pen.tree.join(name), part);
        }
    }
    let roots = Roots::from_dir(&pen.tree);
    let files = cdi::read_files(&roots, None);
    for file in &files {
        let troubles = cdi::check_file(file, None, &roots);
        // What cannot be used is said.
        assert!(troubles.len() <= 64);
        assert_eq!(
            file.read_error().is_some() || !file.rejection_reasons().is_empty(),
            troubles.iter().any(|one| {
                matches!(
                    one.kind,
                    cdi::CdiProblemKind::Unreadable | cdi::CdiProblemKind::Invalid
                )
            })
        );
    }
    let offered = cdi::list_devices(&files);
    for one in &offered {
        assert!(
            one.name.is_ascii() && !one.name.contains(char::is_whitespace),
            "{}",
            one.name
        );
        if one.standing == CdiPrecedence::Taken {
            let twice = |other: &&cdi::CdiDevice| {
                other.name == one.name && other.standing == CdiPrecedence::Taken
            };
            assert_eq!(offered.iter().filter(twice).count(), 1);
        }
    }
    pen.assert_closed();
}

pub(crate) fn cdi_seeds() -> Vec<Vec<u8>> {
    let json = br#"{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[{"name":"0","containerEdits":{
        "deviceNodes":[{"path":"/dev/nvidia0","hostPath":"/dev/null","major":195,"minor":0}]}}],
        "containerEdits":{"env":["A=b"],"mounts":[{"hostPath":"/usr/lib/libcuda.so.580.65.06",
        "containerPath":"/x","options":["ro"]}],"hooks":[{"hookName":"createContainer","path":"/bin/x"}]}}"#;
    let yaml = b"---\ncdiVersion: 0.6.0\nkind: a.com/b.c\nannotations: {a: b}\ndevices:\n- name: \"0:1\"\n  containerEdits:\n    additionalGids: [44]\n    deviceNodes:\n    - path: /dev/nvidia0\n";
    vec![
        joined(&[json, yaml, json, yaml]),
        joined(&[b"{", b"a: &a [x]\nb: *a\n"]),
    ]
}

/// The files of a process and of its cgroup, in either version.
const PROCESS: [&str; 3] = ["proc/100/stat", "proc/100/io", "proc/100/smaps_rollup"];
const V2: [&str; 8] = [
    "cgroup.procs",
    "cpu.stat",
    "memory.current",
    "memory.peak",
    "memory.stat",
    "memory.events",
    "pids.events",
    "io.stat",
];
const V1: [&str; 9] = [
    "cgroup.procs",
    "cpuacct.usage",
    "cpu.stat",
    "memory.usage_in_bytes",
    "memory.max_usage_in_bytes",
    "memory.stat",
    "memory.oom_control",
    "pids.events",
    "blkio.throttle.io_service_bytes",
];

/// Two readings of a run, between which every figure may change in any way.
pub(crate) fn sampler(data: &[u8]) {
    read_once(data);
    let [kind, first, second] = thirds(data);
    let pen = Pen::new();
    let folder = pen.tree.join("sys/fs/cgroup/run");
    let own = || Some(folder.clone());
    let (cgroups, names): (RunCgroups, &[&str]) = match kind.first().map(|byte| byte % 3) {
        Some(0) => (RunCgroups::V2(folder.clone()), &V2),
        Some(1) => (
            RunCgroups::V1(V1Directories {
                pids: own(),
                memory: own(),
                cpu: own(),
                cpuacct: own(),
                blkio: own(),
            }),
            &V1,
        ),
        _ => (RunCgroups::None, &[]),
    };
    let write = |data: &[u8]| {
        let mut all = parts::<12>(data).into_iter();
        for (name, part) in PROCESS.iter().zip(all.by_ref()) {
            put(&pen.tree.join(name), part);
        }
        for (name, part) in names.iter().zip(all) {
            put(&folder.join(name), part);
        }
    };
    write(first);
    let target = SampleScope {
        root_pid: Some(100),
        cgroups,
        shm: Some(pen.tree.clone()),
        ..SampleScope::default()
    };
    let mut sampler = Sampler::new(&Roots::from_dir(&pen.tree), target, None);
    for part in [first, second, first] {
        write(part);
        let sample = sampler.sample();
        let line = serde_json::to_string(&sample).expect("a sample is plain data");
        assert_eq!(serde_json::from_str(&line).ok(), Some(sample));
        let _ = sampler.memory_limit_hits();
    }
}

/// One byte, and the rest in two readings.
fn thirds(data: &[u8]) -> [&[u8]; 3] {
    let (kind, rest) = data.split_at(data.len().min(1));
    const BETWEEN: &[u8] = b"\xff==\xff";
    match rest.windows(BETWEEN.len()).position(|w| w == BETWEEN) {
        Some(at) => [kind, &rest[..at], &rest[at + BETWEEN.len()..]],
        None => [kind, rest, rest],
    }
}

/// The parsers by themselves.
fn read_once(data: &[u8]) {
    let _ = (parse::Stat::parse(data), parse::first_number(data));
    let _ = (
        parse::flat_keyed_value(data, "usage_usec"),
        parse::number_field(data, "Pss"),
    );
    let _ = parse::all_numbers(data).count();
    let _ = (
        parse::innermost_pid(data),
        parse::pressure_total_us(data, "some"),
    );
    let _ = (parse::cpus_busy_ticks(data), parse::network_bytes(data));
    for device in parse::io_stat(data).chain(parse::blkio_service_bytes(data)) {
        assert!(device.device.len() <= data.len());
        let _ = (device.read, device.written);
    }
}

pub(crate) fn sampler_seeds() -> Vec<Vec<u8>> {
    let stat = b"100 (a) b) S 1 100 100 0 -1 4194304 100 0 0 0 7 3 1 1 20 0 2 0 500 1000000 300 \
        18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
    let process: [&[u8]; 3] = [
        stat,
        b"rchar: 1\nwchar: 1\nread_bytes: 67198976\nwrite_bytes: 67133440\n",
        b"55d7-7ffd ---p 00000000 00:00 0    [rollup]\nRss:  1736 kB\nPss:   442 kB\n",
    ];
    let captured = |version: &str, names: &[&str]| -> Vec<Vec<u8>> {
        let mut files: Vec<Vec<u8>> = names
            .iter()
            .map(|name| {
                fixture(&format!(
                    "crates/sconce-host/tests/captured/{version}/{name}"
                ))
            })
            .collect();
        files[0] = b"100\n".to_vec();
        files
    };
    let seed = |kind: u8, files: Vec<Vec<u8>>| {
        let all: Vec<&[u8]> = process
            .into_iter()
            .chain(files.iter().map(Vec::as_slice))
            .collect();
        let one = joined(&all);
        [&[kind][..], &one, b"\xff==\xff", &one].concat()
    };
    vec![
        seed(0, captured("v2", &V2)),
        seed(1, captured("v1", &V1)),
        seed(2, Vec::new()),
    ]
}

/// The file of a training process, which can write anything there.
pub(crate) fn training(data: &[u8]) {
    // Most of the file is rarely of interest: what is not given is as a fresh one.
    let mut bytes = vec![0; SIZE];
    let given = data.len().min(SIZE);
    bytes[..given].copy_from_slice(&data[..given]);
    if let Some(ring) = ProbeRing::from_bytes(&bytes) {
        if let Some(told) = ring.training_sample() {
            assert_eq!(told.phases.sum_us(), told.wall_us);
            let first = ProbeRing::oldest_intact_step(told.steps);
            for number in [first, told.steps] {
                let _ = ring.read_step(number, told.wall_us);
            }
        }
        let _ = ring.inner_pid();
    }
}

pub(crate) fn training_seeds() -> Vec<Vec<u8>> {
    let mut bytes = vec![0; 4096 + 72];
    bytes[..8].copy_from_slice(b"SCONCEAC");
    for (at, number) in [(8, 2_u32), (12, 2048), (16, 7)] {
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
    for (at, number) in [(40, 2_u64), (1024, 1), (4096, 1)] {
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    vec![bytes]
}

/// A log of NCCL's, however it is cut into reads.
pub(crate) fn nccl(data: &[u8]) {
    let network = |chunk: usize| {
        let mut log = NcclLog::default();
        data.chunks(chunk).for_each(|part| log.add(part));
        log.network(1)
    };
    let whole = network(data.len().max(1));
    assert_eq!(whole, network(7));
    if let Some(network) = whole {
        let unprintable = network.label().chars().find(|c| c.is_control());
        assert_eq!(unprintable, None, "{network:?}");
    }
}

pub(crate) fn nccl_seeds() -> Vec<Vec<u8>> {
    let logs = "crates/sconce-host/tests/captured/nccl";
    ["ib-2.14", "socket-2.18", "efa-2.21", "roce-2.30"]
        .map(|name| fixture(&format!("{logs}/{name}.log")))
        .to_vec()
}
