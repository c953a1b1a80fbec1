//! Every parser that reads bytes from outside, under libFuzzer: one program, the target named by
//! `--target=NAME`. `scripts/fuzz` builds and runs it.
//!
//! A target takes any bytes. It must not panic, overflow, hang or eat memory, and where there is
//! more that must hold (a round trip, an order, no path that leaves its folder) it says so with
//! an assertion.
//!
//! `--seeds=FOLDER` writes the target's seeds there before libFuzzer reads its corpus.
#![no_main]

mod adopt;
mod binary;
mod bytes;
mod deb;
mod debian;
mod explain;
mod fetch;
mod host;
mod image;
mod layer;
mod memory;
mod osv;
mod python;
mod record;
mod registry;
mod schema;
mod scratch;
mod settings;
mod sign;
mod solve;
mod targets;
mod wheel;
mod zip;

use std::path::Path;
use std::sync::OnceLock;

use targets::{TARGETS, Target};

static CHOSEN: OnceLock<&Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: choose(),
    |data: &[u8]| {
        if let Some(target) = CHOSEN.get() {
            (target.run)(data);
        }
    }
);

/// Reads the arguments that libFuzzer leaves to us: those that begin with two dashes.
fn choose() {
    let argument = |name: &str| {
        std::env::args().find_map(|argument| Some(argument.strip_prefix(name)?.to_owned()))
    };
    let known = || TARGETS.map(|target| target.name).join("\n");
    let Some(name) = argument("--target=") else {
        println!("{}", known());
        std::process::exit(0);
    };
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        panic!("there is no target `{name}`; there are:\n{}", known());
    };
    CHOSEN.get_or_init(|| target);
    if let Some(folder) = argument("--seeds=") {
        for (number, seed) in (target.seeds)().into_iter().enumerate() {
            let path = Path::new(&folder).join(format!("seed-{number}"));
            std::fs::write(path, seed).expect("a seed can be written");
        }
    }
}
