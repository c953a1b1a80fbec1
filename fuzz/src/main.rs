//! The targets under libFuzzer: one program, the target named by `--target=NAME`, no argument
//! lists them. `scripts/fuzz` builds and runs it.
//!
//! `--seeds=FOLDER` writes the target's seeds there before libFuzzer reads its corpus.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use sconce_fuzz::{TARGETS, Target};

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
