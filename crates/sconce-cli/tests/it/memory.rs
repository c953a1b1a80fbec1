//! The wiring of `sconce memory`: what the built program prints, and how it ends.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, with a helper that clippy does not know as such"
)]

use std::io::Write as _;
use std::process::{Command, Stdio};

use insta::assert_snapshot;

const PROGRAM: &str = r#"{"op":"alloc","id":1,"bytes":1048576}
{"op":"alloc","id":2,"bytes":31457280}
{"op":"alloc","id":3,"bytes":41943040}
{"op":"free","id":2}
"#;

/// Exit code, standard output and standard error of `sconce memory simulate -`.
fn simulate(program: &str, words: &[&str]) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sconce"))
        .args(["memory", "simulate", "-"])
        .args(words)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // It may end before it has read all.
    let _ = input.write_all(program.as_bytes());
    drop(input);
    let done = child.wait_with_output().unwrap();
    format!(
        "exit code {}\n-- standard output\n{}-- standard error\n{}",
        done.status.code().unwrap(),
        String::from_utf8(done.stdout).unwrap(),
        String::from_utf8(done.stderr).unwrap()
    )
}

#[test]
fn a_program_is_simulated() {
    assert_snapshot!(simulate(PROGRAM, &["--capacity", "64MiB"]), @r"
    exit code 0
    -- standard output
    PyTorch 2.15 on 64 MiB, default settings
    4 lines, 3 requests, 1 out of memory

                    PEAK    NOW     LARGE POOL  SMALL POOL
    requested       31 MiB  1 MiB   0 B         1 MiB
    allocated       31 MiB  1 MiB   0 B         1 MiB
    active          31 MiB  1 MiB   0 B         1 MiB
    reserved        32 MiB  32 MiB  30 MiB      2 MiB
    inactive split  1 MiB   1 MiB   0 B         1 MiB

    2 calls for memory of the card, 0 to give it back, 1 retries after emptying the cache
    line 3: CUDA out of memory. Tried to allocate 40.00 MiB. GPU 0 has a total capacity of 64.00 MiB of which 32.00 MiB is free. Of the allocated memory 31.00 MiB is allocated by PyTorch, and 1024.00 KiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.
    -- standard error
    ");
}

#[test]
fn answers_are_json_lines() {
    let words = [
        "--capacity",
        "64MiB",
        "--conf",
        "expandable_segments:True",
        "--json",
    ];
    let said = simulate(PROGRAM, &words);
    let (answers, stats) = said.split_once("{\"stats\":").unwrap();
    assert_snapshot!(answers, @r#"
    exit code 0
    -- standard output
    {"line":1,"address":17592186044416}
    {"line":2,"address":17592261541888}
    {"line":3,"error":{"kind":"out_of_memory","requested":41943040,"rounded":41943040,"tried_to_allocate":41943040,"total":67108864,"free":23068672,"allocated":32505856,"reserved":44040192,"reserved_unallocated":11534336,"in_private_pools":0,"message":"CUDA out of memory. Tried to allocate 40.00 MiB. GPU 0 has a total capacity of 64.00 MiB of which 22.00 MiB is free. Of the allocated memory 31.00 MiB is allocated by PyTorch, and 11.00 MiB is reserved by PyTorch but unallocated."}}
    {"line":4}
    "#);
    assert!(
        stats.contains("\"reserved_bytes.all.current\":44040192"),
        "{stats}"
    );
    assert!(stats.ends_with("-- standard error\n"), "{stats}");
}

#[test]
fn what_is_wrong_is_said() {
    let wrong = "{\"op\":\"free\",\"id\":1}\n";
    assert_snapshot!(simulate(wrong, &[]), @r"
    exit code 3
    -- standard output
    -- standard error
    error: line 1: there is no block 1
    hint: `alloc` gives a block its number, `free` ends it
    ");
    let words = ["--torch", "2.8", "--conf", "large_segment_size_mb:40"];
    assert_snapshot!(simulate(PROGRAM, &words), @r"
    exit code 3
    -- standard output
    -- standard error
    error: Unrecognized CachingAllocator option: large_segment_size_mb
    hint: another release of PyTorch may know it: name yours with --torch
    ");
    assert_snapshot!(simulate(PROGRAM, &["--conf", "backend:cudaMallocAsync"]), @r"
    exit code 3
    -- standard output
    -- standard error
    error: `backend:cudaMallocAsync` is an allocator of CUDA's own, which is not simulated
    hint: leave `backend` out of --conf
    ");
    let refused = simulate(PROGRAM, &["--torch", "1.13"]);
    assert!(refused.starts_with("exit code 2"), "{refused}");
    assert!(refused.contains("2.6 to 2.15"), "{refused}");
    let long = "x".repeat(70_000);
    assert!(simulate(&long, &[]).contains("line 1: longer than 65536 bytes"));
}
