//! The wiring of `--ranks`: what a command is told of a world whose other ranks are not there, and what
//! `sconce fit` says then. A real PyTorch in it is in scripts/test.d/ranks.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, with a helper that clippy does not know as such"
)]

use std::process::Command;

use insta::assert_snapshot;

/// Exit code, standard output and standard error.
fn sconce(words: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_sconce"))
        .args(words)
        .env("NO_COLOR", "1")
        .env("HOME", folder.path())
        .env("XDG_CONFIG_HOME", folder.path().join("config"))
        .env("XDG_DATA_HOME", folder.path().join("data"))
        .env("XDG_STATE_HOME", folder.path().join("state"))
        .env_remove("SCONCE_STORE")
        .output()
        .unwrap();
    format!(
        "exit code {}\n{}{}",
        done.status.code().unwrap(),
        String::from_utf8(done.stdout).unwrap(),
        String::from_utf8(done.stderr).unwrap()
    )
}

#[test]
fn a_command_is_told_what_torchrun_would_tell() {
    let show = r#"for name in RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_WORLD_SIZE MASTER_ADDR SCONCE_RANKS; do eval echo $name \$$name; done
        test "$MASTER_PORT" -gt 0; wc -l <"$SCONCE_VGPU"; ls "${PYTHONPATH%%:*}/sconce_probe/ranks.py" | grep -o 'ranks.*'"#;
    let run = ["run", "--quiet", "--host", "--virtual-gpu", "h100"];
    let said = sconce(&[&run[..], &["--ranks", "64", "--", "sh", "-c", show]].concat());
    assert_snapshot!(said, @r"
    exit code 0
    RANK 0
    LOCAL_RANK 0
    WORLD_SIZE 64
    LOCAL_WORLD_SIZE 8
    GROUP_WORLD_SIZE 8
    MASTER_ADDR 127.0.0.1
    SCONCE_RANKS 64
    8
    ranks.py
    ");
    // What is set by a flag stays, and several cards are the machine's.
    let several = ["--virtual-gpu", "h100", "--ranks", "64", "-e", "RANK=7"];
    let show = "echo $RANK $LOCAL_WORLD_SIZE $GROUP_WORLD_SIZE";
    let said = sconce(&[&run[..], &several, &["--", "sh", "-c", show]].concat());
    assert_eq!(said, "exit code 0\n7 2 32\n");
}

#[test]
fn what_makes_no_world_is_refused() {
    let run = ["run", "--quiet", "--host"];
    let refused = |words: &[&str]| sconce(&[&run[..], words].concat());
    assert_snapshot!(refused(&["--ranks", "64", "--", "true"]), @r"
    exit code 2
    error: ranks that are not there need cards that are not there
    hint: name one: --virtual-gpu h100
    ");
    assert_snapshot!(refused(&["--virtual-gpu", "h100", "--ranks", "64", "--", "torchrun", "train.py"]), @r"
    exit code 2
    error: torchrun starts ranks itself, and --ranks takes its place
    hint: name the script itself: --ranks 64 -- python train.py
    ");
    for ranks in ["1", "1025", "x"] {
        let said = refused(&["--virtual-gpu", "h100", "--ranks", ranks, "--", "true"]);
        assert!(
            said.starts_with("exit code 2\nerror: invalid value"),
            "{said}"
        );
    }
}

#[test]
fn a_forecast_of_one_rank_names_what_nccl_may_take() {
    let communicators = 3;
    let nccl = communicators * (2_u64 << 30);
    let outside = nccl + (775 << 20);
    let seen = format!(
        r#"{{"format":1,"torch":"2.15.0","cuda":null,"python":"3.12.1","ended":"steps","wanted-steps":3,"steps":[{{"optimizer":0,"begin-us":1,"end-us":2}}],"optimizers":1,"used-cuda":true,"error":null,"devices":[{{"name":"A","total-bytes":1,"outside-bytes":{outside},"communicators":{communicators},"nccl-bytes":{nccl},"stats":{{"allocated_bytes.all.peak":1024,"reserved_bytes.all.peak":2097152,"num_alloc_retries":0,"num_ooms":0}}}}],"holds":[],"pairs":1}}"#
    );
    let script = format!(r#"mkdir "$SCONCE_FIT/7"; echo '{seen}' >"$SCONCE_FIT/7/fit.json""#);
    let fit = ["fit", "--host", "--gpu", "h100", "--ranks", "512"];
    let said = sconce(&[&fit[..], &["--", "sh", "-c", &script]].concat());
    assert_snapshot!(said, @r"
    exit code 0
    1 step with torch 2.15.0 as rank 0 of 512

    CARD                MEMORY    ALLOCATED  RESERVED  ON CARD  FITS
    NVIDIA H100 80 GiB  79.1 GiB  1 KiB      2 MiB     6.8 GiB  yes, 72.4 GiB left

      On card: reserved, and a CUDA context of 775 MiB, the most that is reported of any card, and 6 GiB for NCCL's own buffers: 3 communicators, modelled, 1.5 GiB to 6 GiB in all

    How sure
      One rank of 512: the others send what this one sends. Ranks that hold other parts, as in pipelines, take more or less. When memory that two streams use is free again is a model of time. Single ranks were sent to, or all to all: NCCL's buffers for that are not in the figures, 3 GiB are reported for 8 H100.
      A CUDA context takes 250 to 775 MiB, and grows as kernels are loaded.
      No two steps were compared: whether later ones take more was not seen (`--steps 3` or more tells).
      Later steps are taken to be like the one that was watched: batches, sequences or a model that grow after them are not in the figures.
      Kernels do nothing and values are zeros: what the script decides by values, zeros decided.
    virtual GPU: the NVIDIA H100 was sold with 64 GiB and 80 GiB and 94 GiB and 96 GiB; this is the one with 80 GiB
    fit: trying NVIDIA H100 80 GiB
    ");
}
