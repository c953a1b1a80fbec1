//! The wiring of `--virtual-gpu`: what a run sees of cards that are not there. A real PyTorch on them
//! is in scripts/test.d/virtual-gpu.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, with a helper that clippy does not know as such"
)]

use std::path::Path;
use std::process::{Command, Output};

use insta::assert_snapshot;

fn run(home: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sconce"))
        .args(["run", "--host"])
        .args(words)
        .env("NO_COLOR", "1")
        .env("XDG_DATA_HOME", home)
        .env("XDG_STATE_HOME", home)
        .env("LD_LIBRARY_PATH", "/of/the/caller")
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    format!(
        "exit code {}\n{}{}",
        output.status.code().unwrap(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn a_run_sees_cards_that_are_not_there() {
    let home = tempfile::tempdir().unwrap();
    let show = r#"cat "$SCONCE_VGPU"; cd "${LD_LIBRARY_PATH%%:*}" && ls; echo "${LD_LIBRARY_PATH#*:}"; test "$LD_PRELOAD" -ef libcuda.so.1"#;
    let words = ["--quiet", "--virtual-gpu", "RTX 3070", "--virtual-gpu"];
    let output = run(
        home.path(),
        &[&words[..], &["v100 32gb", "--", "sh", "-c", show]].concat(),
    );
    assert_snapshot!(said(&output), @r"
    exit code 0
    card	name=NVIDIA GeForce RTX 3070	capability=8.6	memory_bytes=8331984896	context_bytes=812646400	nccl_bytes=503316480	multiprocessors=46	l2_bytes=4194304	memory_rate=448000000000	matrix_rate=40600000000000
    card	name=NVIDIA Tesla V100	capability=7.0	memory_bytes=34079768576	context_bytes=812646400	nccl_bytes=2147483648	multiprocessors=80	l2_bytes=6291456	memory_rate=900000000000	matrix_rate=125000000000000
    cards
    libcuda.so.1
    libnvidia-ml.so.1
    libsconce_vgpu.so
    /of/the/caller
    ");
    // Nothing of it stays.
    let left = home.path().join("sconce/scratch/virtual-gpu");
    assert_eq!(left.read_dir().unwrap().count(), 0);
}

#[test]
fn the_record_says_that_a_card_was_virtual() {
    let home = tempfile::tempdir().unwrap();
    let output = run(home.path(), &["--virtual-gpu", "a100", "--", "true"]);
    let said = said(&output);
    for line in [
        "virtual GPU: the NVIDIA A100 was sold with 40 GiB and 80 GiB; this is the one with 40 GiB",
        "NVIDIA A100 (virtual)",
    ] {
        assert!(said.contains(line), "{said}");
    }
}

#[test]
fn a_card_that_is_not_known_is_named() {
    let home = tempfile::tempdir().unwrap();
    let refused = |words: &[&str]| said(&run(home.path(), &[words, &["--", "true"]].concat()));
    assert_snapshot!(refused(&["--virtual-gpu", "4090ti"]), @r"
    exit code 3
    error: no card is known as `4090ti`
    hint: did you mean GeForce RTX 4090, GeForce RTX 4060 Ti, GeForce RTX 4070 Ti?
    ");
    assert_snapshot!(refused(&["--virtual-gpu", "gtx 680"]), @r"
    exit code 3
    error: of `gtx 680` it is not known what it is made of and how much memory a program gets
    hint: name a card that is like it, such as `RTX 3070` or `A100 80GB`
    ");
    let both = refused(&["--virtual-gpu", "h100", "--gpus", "1"]);
    assert!(both.contains("cannot be used with"), "{both}");
}
