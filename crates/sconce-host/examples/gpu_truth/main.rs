//! What `scripts/gpu-truth` asks of this crate about the cards of a machine.
//!
//! ```text
//! gpu_truth facts                 the driver, the cards and their edits, as JSON
//! gpu_truth compare               facts against nvidia-smi's list on standard input
//! gpu_truth edits FOLDER          whether everything that the edits name exists (FOLDER: scratch)
//! gpu_truth nodes GPUS FOLDER     the device nodes that a run with these cards is to see
//! gpu_truth record EVENTS READINGS FROM TO
//!                                 a record against nvidia-smi's readings between two moments
//!                                 (ms since 1970), and whether it makes sense by itself
//! ```
//!
//! A verdict is a line `ok`, `FAILED` or `left out`, a tab, what was looked at, a tab, what was
//! seen; a figure is `figure`, a tab, its name, a tab, its value.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

mod facts;
mod record;

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["facts"] => println!("{:#}", facts::as_json()),
        ["compare"] => facts::compare(&std::io::read_to_string(std::io::stdin())?),
        ["edits", folder] => facts::edits_exist(Path::new(folder))?,
        ["nodes", gpus, folder] => facts::nodes(gpus, Path::new(folder))?,
        ["record", events, readings, from, to] => record::compare(
            &std::fs::read_to_string(events)?,
            &std::fs::read_to_string(readings)?,
            from.parse()?..to.parse()?,
        )?,
        _ => return Err("facts | compare | edits | nodes | record; see its source".into()),
    }
    Ok(())
}

/// One verdict.
fn tell(ok: bool, what: &str, seen: &str) {
    let verdict = if ok { "ok" } else { "FAILED" };
    println!("{verdict}\t{what}\t{seen}");
}

/// What this machine cannot show.
fn leave_out(what: &str, why: &str) {
    println!("left out\t{what}\t{why}");
}

/// A figure.
fn figure(name: &str, value: f64) {
    println!("figure\t{name}\t{value}");
}
