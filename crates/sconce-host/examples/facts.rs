//! Prints the facts of this machine as JSON, and how long reading them took.
//!
//! `facts` asks neither NVML nor CUDA; `facts whole` asks both in a child, which is this program
//! with `answer nvml` or `answer cuda`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example prints"
)]

use std::ffi::OsString;
use std::time::{Duration, Instant};

use sconce_host::facts::driver_query::{DriverQuery, QueryProcess, run_query};
use sconce_host::facts::{self, FactsOptions, NvmlSource};
use sconce_host::{NvmlLibrary, Roots};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<_> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let mut ask = FactsOptions {
        variables: std::env::vars().collect(),
        store: Some(std::env::temp_dir()),
        open_nodes: true,
        ..FactsOptions::default()
    };
    match words[..] {
        ["answer", "nvml"] => {
            println!("{}", run_query(&DriverQuery::Nvml(NvmlLibrary::Machine)));
            return Ok(());
        }
        ["answer", "cuda"] => {
            println!("{}", run_query(&DriverQuery::system_cuda()));
            return Ok(());
        }
        ["whole"] => {
            let child = |question: &str| QueryProcess {
                program: "/proc/self/exe".into(),
                name: None,
                input: Vec::new(),
                arguments: vec!["answer".into(), question.into()],
                limit: Duration::from_secs(20),
            };
            ask.nvml = NvmlSource::Child(child("nvml"));
            ask.cuda_init = Some(child("cuda"));
        }
        _ => {}
    }
    let start = Instant::now();
    let facts = facts::read(&Roots::default(), &ask);
    let took = start.elapsed();
    println!("{}", serde_json::to_string_pretty(&facts)?);
    eprintln!("{:.1} ms", took.as_secs_f64() * 1000.0);
    Ok(())
}
