//! What the sampler itself costs: starts a process with WORKERS forked workers that each fill
//! MIB of memory, samples the tree SAMPLES times at HZ, and prints the sampler's CPU time as a
//! share of one core, and its memory.
//!
//! `cargo run --release -p sconce-host --example sampler_cost -- [WORKERS MIB SAMPLES HZ]`
//!
//! With `--pid PID SECONDS` it samples a tree that is there, once a second, and makes the text of each
//! sample: what `bench/account/sampler` watches.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::error::Error;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sconce_host::{Roots, SampleScope, Sampler};

const TREE: &str = "
import os, sys, threading, time
workers, mib = int(sys.argv[1]), int(sys.argv[2])
for _ in range(workers):
    if os.fork() == 0:
        block = bytearray(b'x') * (mib << 20)
        for _ in range(8):
            threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        time.sleep(3600)
time.sleep(3600)
";

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, pid, seconds] = words.as_slice()
        && flag == "--pid"
    {
        return watch(pid.parse()?, seconds.parse()?);
    }
    let arguments: Vec<u64> = std::env::args()
        .skip(1)
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    let at = |index: usize, default| arguments.get(index).copied().unwrap_or(default);
    let (workers, mib, samples, hz) = (at(0, 8), at(1, 500), at(2, 60), at(3, 1));
    let mut tree = Command::new("setsid")
        .args(["python3", "-c", TREE])
        .args([workers.to_string(), mib.to_string()])
        .stdin(Stdio::null())
        .spawn()?;
    let target = SampleScope {
        root_pid: Some(tree.id()),
        shm: Some("/dev/shm".into()),
        ..SampleScope::default()
    };
    let mut sampler = Sampler::new(&Roots::default(), target, None);
    std::thread::sleep(Duration::from_secs(10));

    let (began, cpu) = (Instant::now(), own_cpu_us()?);
    let mut with_pss = 0;
    let mut last = sampler.sample();
    for index in 1..=samples {
        let due = began + Duration::from_secs(1) * u32::try_from(index)? / u32::try_from(hz)?;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        last = sampler.sample();
        with_pss += u32::from(last.pss.is_some());
    }
    let (wall, used) = (began.elapsed(), own_cpu_us()? - cpu);
    let status = std::fs::read_to_string("/proc/self/status")?;
    let memory = status
        .lines()
        .filter(|line| ["VmHWM", "RssAnon"].iter().any(|key| line.starts_with(key)));
    println!("tree: {last:?}");
    println!("{samples} samples in {wall:.1?}, {with_pss} of them with PSS");
    println!(
        "CPU: {:.1} ms, {:.3} % of one core",
        used as f64 / 1e3,
        used as f64 / wall.as_micros() as f64 * 100.0
    );
    memory.for_each(|line| println!("{line}"));

    // The workers are of the tree's session, as the leader's children.
    let _ = Command::new("pkill")
        .args(["-KILL", "-s", &tree.id().to_string()])
        .status();
    let _ = tree.wait();
    Ok(())
}

/// CPU time of this process, from the scheduler's own account (ns).
fn own_cpu_us() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let ns: u64 = text.split(' ').next().ok_or("no schedstat")?.parse()?;
    Ok(ns / 1000)
}

/// Samples the tree of `pid` once a second.
fn watch(pid: u32, seconds: u64) -> Result<(), Box<dyn Error>> {
    let target = SampleScope {
        root_pid: Some(pid),
        shm: Some("/dev/shm".into()),
        ..SampleScope::default()
    };
    let mut sampler = Sampler::new(&Roots::default(), target, None);
    for _ in 0..seconds {
        println!("{}", serde_json::to_string(&sampler.sample())?);
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}
