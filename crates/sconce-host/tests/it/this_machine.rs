//! The machine that the tests run on: its real /proc and, where they may be written, its cgroups.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sconce_host::{
    Cgroups, HostProfile, NvmlMonitor, Roots, RunCgroups, SampleScope, Sampler, V1Directories,
    boot_id,
};
use sconce_schema::Bytes;
use sconce_schema::event::Sample;

/// A shell that says `ready` when `script` has come that far and then waits for its stdin to end.
struct Script(Child);

impl Script {
    fn start(script: &str) -> Self {
        // A session of its own, by which orphans are known.
        let child = Command::new("setsid")
            .args(["sh", "-c", &format!("{script}\necho ready; read end")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut started = Self(child);
        let mut lines = BufReader::new(started.0.stdout.take().unwrap()).lines();
        let ready = lines.any(|line| line.unwrap() == "ready");
        assert!(ready, "the script ended early");
        started
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn sampler(target: SampleScope) -> Sampler {
    Sampler::new(&Roots::default(), target, None)
}

/// The first sample in which no process is left: what was killed takes a moment to end.
fn after_the_end(sampler: &mut Sampler) -> Sample {
    for _ in 0..1000 {
        let sample = sampler.sample();
        if sample.processes == Some(0) {
            return sample;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the processes did not end: {:?}", sampler.sample());
}

#[test]
fn facts_of_this_machine() {
    let roots = Roots::default();
    let facts = HostProfile::read(&roots);
    assert_eq!(
        facts.cpus.map(|cpus| cpus as usize >= 1),
        Some(true),
        "at least the CPU that runs this"
    );
    assert!(facts.memory > facts.memory_available);
    assert!(facts.kernel.is_some() && facts.hostname.is_some());
    assert_eq!(boot_id(&roots).map(|id| id.len()), Some(36));
    if let Some(cgroups) = &facts.cgroups {
        for hierarchy in &cgroups.hierarchies {
            assert!(hierarchy.mount.is_dir(), "{hierarchy:?}");
        }
    }
}

#[test]
fn absent_nvml_is_fine() {
    let driver = HostProfile::read(&Roots::default()).nvidia;
    let library = NvmlMonitor::load();
    assert!(driver.is_some() || library.is_none());
}

#[test]
fn a_tree_without_a_cgroup() {
    // A child, an orphan, and some time burnt.
    let script = "sleep 60 & kid=$!; orphan=$(sleep 60 >/dev/null & echo $!); \
                  i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; \
                  trap 'kill $kid $orphan' EXIT";
    let run = Script::start(script);
    let mut sampler = sampler(SampleScope {
        root_pid: Some(run.0.id()),
        shm: Some("/dev/shm".into()),
        ..SampleScope::default()
    });
    let first = sampler.sample();
    assert_eq!(first.processes, Some(3), "{first:?}");
    assert!(first.threads >= first.processes);
    // How much cannot be said: before kernel 6.2 the counters of small processes lag behind.
    assert!(first.rss > Some(Bytes(0)), "{first:?}");
    assert!(first.pss > Some(Bytes::from_kib(100)), "{first:?}");
    assert!(first.cpu_us > Some(0), "{first:?}");
    assert_eq!(first.memory, None);
    assert_eq!(first.oom_kills, None);
    drop(run);
    let last = after_the_end(&mut sampler);
    assert_eq!(last.rss, Some(Bytes(0)));
    assert!(last.cpu_us >= first.cpu_us, "{last:?}");
    assert_eq!(last.pss, None);
}

#[test]
fn shm_that_is_no_tmpfs_is_not_shm() {
    let target = |path: &Path| SampleScope {
        shm: Some(path.to_owned()),
        ..SampleScope::default()
    };
    assert_eq!(sampler(target(Path::new("/proc"))).sample().shm, None);
    assert_eq!(sampler(target(Path::new("/nowhere"))).sample().shm, None);
}

/// Cgroups of this machine made for one test and removed after it.
struct Made {
    cgroups: RunCgroups,
    folders: Vec<PathBuf>,
}

impl Made {
    /// `None` where the caller may make none: then the recorded texts are all that is tested.
    fn new(name: &str) -> Option<Self> {
        let made = Self::of_this_machine(name);
        if made.is_none() {
            sconce_testkit::report_skip("cgroup", "no cgroup can be made here");
        }
        made
    }

    fn of_this_machine(name: &str) -> Option<Self> {
        let all = HostProfile::read(&Roots::default()).cgroups?;
        let name = format!("sconce-test-{name}-{}", std::process::id());
        match all.find_hierarchy("memory")?.v2 {
            true => Self::v2(&all, &name),
            false => Self::v1(&all, &name),
        }
    }

    fn v1(all: &Cgroups, name: &str) -> Option<Self> {
        let mut folders = Vec::new();
        let mut make = |controller: &str| {
            let hierarchy = all.find_hierarchy(controller).filter(|h| h.delegated)?;
            let folder = hierarchy.own.as_ref()?.join(name);
            if !folder.is_dir() {
                std::fs::create_dir(&folder).ok()?;
                folders.push(folder.clone());
            }
            Some(folder)
        };
        let v1 = V1Directories {
            pids: make("pids"),
            memory: make("memory"),
            cpu: make("cpu"),
            cpuacct: make("cpuacct"),
            blkio: make("blkio"),
        };
        let whole = [&v1.pids, &v1.memory, &v1.cpu, &v1.cpuacct, &v1.blkio]
            .iter()
            .all(|folder| folder.is_some());
        let made = Self {
            cgroups: RunCgroups::V1(v1),
            folders,
        };
        whole.then_some(made)
    }

    /// Below the root cgroup, the only one that may hand on controllers while it has processes.
    fn v2(all: &Cgroups, name: &str) -> Option<Self> {
        let mount = &all.v2_hierarchy()?.mount;
        let wanted = "+cpu +io +memory +pids";
        std::fs::write(mount.join("cgroup.subtree_control"), wanted).ok()?;
        let folder = mount.join(name);
        std::fs::create_dir(&folder).ok()?;
        Some(Self {
            cgroups: RunCgroups::V2(folder.clone()),
            folders: vec![folder],
        })
    }

    /// Shell commands that put the shell into the cgroups.
    fn enter(&self) -> String {
        let lines = self
            .folders
            .iter()
            .map(|folder| format!("echo $$ > '{}/cgroup.procs';", folder.display()));
        lines.collect()
    }

    /// Sets a limit by its name in either version.
    fn set(&self, [v1, v2]: [(&str, &str); 2]) {
        let (file, value) = match self.cgroups {
            RunCgroups::V2(_) => v2,
            _ => v1,
        };
        let mut paths = self.folders.iter().map(|folder| folder.join(file));
        let path = paths.find(|path| path.exists());
        std::fs::write(path.unwrap(), value).unwrap();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for folder in &self.folders {
            // The last process may still be on its way out.
            for _ in 0..100 {
                if std::fs::remove_dir(folder).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
}

#[test]
fn a_cgroup_of_this_machine() {
    let Some(made) = Made::new("figures") else {
        return;
    };
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = scratch.path().join("data");
    let run = Script::start(&format!(
        "{} sleep 60 & trap \"kill $!\" EXIT; \
         dd if=/dev/zero of='{}' bs=1M count=8 conv=fsync 2>/dev/null",
        made.enter(),
        file.display()
    ));
    let mut sampler = sampler(SampleScope {
        cgroups: made.cgroups.clone(),
        ..SampleScope::default()
    });
    let sample = sampler.sample();
    assert_eq!(sample.processes, Some(2), "{sample:?}");
    assert!(sample.cpu_us > Some(0), "{sample:?}");
    assert_eq!(sample.throttled_us, Some(0));
    // A folder in memory has no file cache and no device.
    let on_disk = rustix::fs::major(scratch.path().metadata().unwrap().dev()) != 0;
    let written = if on_disk { 8 << 20 } else { 0 };
    // Half: the kernel may have taken pages back already.
    assert!(sample.cache >= Some(Bytes(written / 2)), "{sample:?}");
    assert!(sample.memory >= sample.cache && sample.memory_peak >= sample.memory);
    assert!(sample.write_bytes >= Some(written), "{sample:?}");
    assert_eq!((sample.oom_kills, sample.pids_refused), (Some(0), Some(0)));
    drop(run);
    let last = after_the_end(&mut sampler);
    assert!(last.cpu_us >= sample.cpu_us && last.cpu_us.is_some());
}

/// v1 keeps the list of one open `cgroup.procs` for a second after its last reading.
#[test]
fn new_processes_are_seen_at_every_rate() {
    let Some(made) = Made::new("again") else {
        return;
    };
    let mut sampler = sampler(SampleScope {
        cgroups: made.cgroups.clone(),
        ..SampleScope::default()
    });
    let mut runs = Vec::new();
    for count in 1..4 {
        runs.push(Script::start(&made.enter()));
        let sample = sampler.sample();
        assert_eq!(sample.processes, Some(count), "{sample:?}");
    }
    drop(runs);
}

#[test]
fn kills_throttling_and_refused_forks_are_counted() {
    let Some(made) = Made::new("limits") else {
        return;
    };
    let limit = "33554432";
    made.set([("memory.limit_in_bytes", limit), ("memory.max", limit)]);
    made.set([("cpu.cfs_quota_us", "10000"), ("cpu.max", "10000 100000")]);
    // `tail` keeps all of an endless line. The shell is spared as it is small.
    let run = Script::start(&format!(
        "{} tail /dev/zero 2>/dev/null; true",
        made.enter()
    ));
    let mut sampler = sampler(SampleScope {
        cgroups: made.cgroups.clone(),
        ..SampleScope::default()
    });
    let sample: Sample = sampler.sample();
    assert_eq!(sample.oom_kills, Some(1), "{sample:?}");
    assert!(sampler.memory_limit_hits() > Some(0));
    assert!(sample.throttled_us > Some(0), "{sample:?}");
    assert!(
        sample.memory_peak >= Some(Bytes::from_mib(31)),
        "{sample:?}"
    );
    drop(run);

    made.set([("pids.max", "2"), ("pids.max", "2")]);
    let run = Script::start(&format!(
        "{} (sh -c 'sleep 0 & true' 2>/dev/null) || true",
        made.enter()
    ));
    let sample = sampler.sample();
    assert!(sample.pids_refused > Some(0), "{sample:?}");
    drop(run);
}
