//! Installs the wheels of a lock into a store and tells how long it took:
//! `cargo run --release -p sconce-store --example install -- sconce.lock STORE [THREADS]`.
#![expect(
    clippy::print_stdout,
    reason = "a measuring program prints its figures"
)]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use sconce_fetch::{FetchConfig, Fetcher};
use sconce_schema::{Lock, NoProgress};
use sconce_store::Store;
use sconce_store::wheel::InstallOptions;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(lock), Some(root)) = (args.next(), args.next()) else {
        return Err("usage: install LOCK STORE [THREADS]".into());
    };
    let options = InstallOptions {
        threads: args.next().map(|n| n.parse()).transpose()?,
        ..InstallOptions::default()
    };
    let lock = Lock::parse(&std::fs::read_to_string(lock)?)?;
    let start = Instant::now();
    let store = Store::open(Path::new(&root))?;
    let fetcher = Fetcher::new(FetchConfig::default())?;
    let trees = store.ensure_wheels_with(
        &fetcher,
        &lock.wheels,
        &lock.target.python,
        &NoProgress,
        options,
    )?;
    let wall = start.elapsed();
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!(
        "{} trees in {:.2} s, {}",
        trees.len(),
        wall.as_secs_f64(),
        peak.unwrap_or("no VmHWM")
    );
    Ok(())
}
