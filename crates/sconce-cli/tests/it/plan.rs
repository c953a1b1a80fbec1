//! The wiring of `sconce run --plan`: what a command is given, and what the record says. What plans do is
//! tried with a real PyTorch in scripts/test.d/plans.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, with a helper that clippy does not know as such"
)]

use std::path::Path;
use std::process::{Command, Output};

fn sconce(home: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sconce"))
        .args(words)
        .env("NO_COLOR", "1")
        .env("XDG_DATA_HOME", home)
        .env("XDG_STATE_HOME", home)
        .env("PYTHONPATH", "/of/the/caller")
        .output()
        .unwrap()
}

#[test]
fn a_run_is_given_its_plan_and_the_record_has_it() {
    let home = tempfile::tempdir().unwrap();
    let show = r#"echo "$SCONCE_PLAN ${PYTHONPATH#*:} $SCONCE_FIT"; ls "${PYTHONPATH%%:*}""#;
    let run = [
        "run",
        "--host",
        "--plan",
        "checkpoint=2+bf16",
        "--",
        "sh",
        "-c",
        show,
    ];
    let output = sconce(home.path(), &run);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        said,
        "bf16+checkpoint=2 /of/the/caller \n__pycache__\nsconce_probe\nsitecustomize.py\n"
    );
    let report = String::from_utf8(output.stderr).unwrap();
    assert!(report.contains("bf16+checkpoint=2"), "{report}");
    let report = sconce(home.path(), &["report", "--json"]);
    let report = String::from_utf8(report.stdout).unwrap();
    assert!(
        report.contains(r#""plan": "bf16+checkpoint=2""#),
        "{report}"
    );
    // Nothing of it stays.
    let left = home.path().join("sconce/scratch").read_dir().unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    let of_it = |name: &&std::ffi::OsString| name.to_string_lossy().starts_with("probe");
    assert_eq!(left.iter().find(of_it), None);
}

#[test]
fn a_plan_that_needs_lines_says_them() {
    let home = tempfile::tempdir().unwrap();
    let output = sconce(
        home.path(),
        &["run", "--host", "--plan", "fp16", "--", "true"],
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("the plan fp16 cannot be applied from outside"),
        "{said}"
    );
    assert!(said.contains("torch.amp.GradScaler"), "{said}");
}

#[test]
fn a_plan_of_ranks_wants_ranks() {
    let home = tempfile::tempdir().unwrap();
    let refused = |words: &[&str]| {
        let output = sconce(home.path(), words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        said
    };
    // What real ranks divide is saved in another way, which the program must say.
    let said = refused(&["run", "--host", "--plan", "zero3", "--", "true"]);
    assert!(said.contains("fully_shard(block)"), "{said}");
    let said = refused(&[
        "fit",
        "--host",
        "--gpu",
        "h100",
        "--plan",
        "bf16+zero1",
        "--",
        "true",
    ]);
    assert!(said.contains("zero1 divides a model among ranks"), "{said}");
    assert!(said.contains("--ranks 64"), "{said}");
    let words = ["--virtual-gpu", "h100", "--ranks", "64", "--plan", "zero3"];
    let show = ["--", "sh", "-c", "echo $SCONCE_PLAN"];
    let output = sconce(
        home.path(),
        &[&["run", "-q", "--host"][..], &words, &show].concat(),
    );
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "zero3\n");
}
