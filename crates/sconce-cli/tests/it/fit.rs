//! The wiring of `sconce fit`: what the built program prints, and how it ends. A shell writes what the
//! probe would; `scripts/test.d/fit` does it with the real one, and PyTorch.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, with a helper that clippy does not know as such"
)]

use std::process::Command;

use insta::assert_snapshot;

/// What the probe would write where the allocator had as much at most.
fn seen(ended: &str, reserved_bytes: u64, failed_requests: u64, error: &str) -> String {
    let step = r#"{"optimizer":0,"begin-us":1,"end-us":2}"#;
    format!(
        r#"{{"format":1,"torch":"2.15.0+cu132","cuda":"13.2","python":"3.12.1","ended":"{ended}","wanted-steps":3,"steps":[{step},{step},{step}],"optimizers":1,"used-cuda":true,"error":{error},"devices":[{{"name":"A","total-bytes":1,"outside-bytes":1,"stats":{{"allocated_bytes.all.peak":{reserved_bytes},"reserved_bytes.all.peak":{reserved_bytes},"num_alloc_retries":0,"num_ooms":{failed_requests}}}}}],"holds":[],"dnn-plans":1}}"#
    )
}

/// Exit code, standard output and standard error of `sconce fit --host` of a shell's script.
fn fit(words: &[&str], script: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_sconce"))
        .arg("fit")
        .args(words)
        .args(["--host", "--", "sh", "-c", script])
        .env("NO_COLOR", "1")
        .env("HOME", folder.path())
        .env("XDG_CONFIG_HOME", folder.path().join("config"))
        .env("XDG_DATA_HOME", folder.path().join("data"))
        .env("XDG_STATE_HOME", folder.path().join("state"))
        .env_remove("SCONCE_STORE")
        .output()
        .unwrap();
    // The record of a trial is nobody's.
    assert!(!folder.path().join("state/sconce/runs").exists());
    format!(
        "exit code {}\n-- standard output\n{}-- standard error\n{}",
        done.status.code().unwrap(),
        String::from_utf8(done.stdout).unwrap(),
        String::from_utf8(done.stderr).unwrap()
    )
}

#[test]
fn cards_are_tried_one_after_the_other() {
    let fits = seen("steps", 10 << 30, 0, "null");
    let error = r#"{"type":"OutOfMemoryError","message":"","out-of-memory":true}"#;
    let fails = seen("exit", 6 << 30, 1, error);
    // As a card of 8 GB would end it.
    let script = format!(
        r#"mkdir "$SCONCE_FIT/7"
        case $(grep -o 'memory_bytes=[0-9]*' "$SCONCE_VGPU") in
        memory_bytes=[0-9]???????????*|memory_bytes=[1-9]??????????) echo '{fits}' ;;
        *) echo '{fails}' ;;
        esac >"$SCONCE_FIT/7/fit.json"
        echo "what the script says: $SCONCE_FIT_STEPS steps, ${{PYTHONPATH##*/}}""#
    );
    let cards = ["--gpu", "4090", "--gpu", "RTX 3070", "--no-plans"];
    let said = fit(&cards, &script);
    assert_snapshot!(said, @r"
    exit code 1
    -- standard output
    3 steps with torch 2.15.0+cu132, CUDA 13.2

    CARD              MEMORY    ALLOCATED  RESERVED  ON CARD   FITS
    GeForce RTX 4090  23.5 GiB  10 GiB     10 GiB    10.8 GiB  yes, 12.8 GiB left
    GeForce RTX 3070  7.8 GiB   10 GiB     10 GiB    10.8 GiB  no, 3.0 GiB short

      On card: reserved, and a CUDA context of 775 MiB, the most that is reported of any card

    How sure
      Workspaces of cuDNN (none) are what the environment's own cuDNN answered for this card without one. With `cudnn.benchmark` the plan with the most is taken for the fastest.
      A CUDA context takes 250 to 775 MiB, and grows as kernels are loaded.
      Later steps are taken to be like the 3 that were watched: batches, sequences or a model that grow after them are not in the figures.
      Kernels do nothing and values are zeros: what the script decides by values, zeros decided.
    -- standard error
    fit: trying GeForce RTX 4090
    what the script says: 3 steps, python
    fit: trying GeForce RTX 3070
    fit: GeForce RTX 3070 ran out of memory: trying how much it takes
    ");
}

/// One that keeps something of each step.
#[test]
fn memory_that_grows_is_not_known() {
    let step = |mib: u64| {
        let bytes = mib << 20;
        format!(
            r#"{{"optimizer":0,"begin-us":1,"end-us":2,"devices":[{{"allocated-bytes":{bytes},"allocated-peak-bytes":{bytes}}}]}}"#
        )
    };
    let plain = r#"{"optimizer":0,"begin-us":1,"end-us":2}"#;
    let steps = [plain, plain, plain].join(",");
    let grows = [step(900), step(1006), step(1012), step(1018), step(1024)].join(",");
    let seen = seen("steps", 1 << 30, 0, "null").replace(&steps, &grows);
    let script = format!(r#"mkdir "$SCONCE_FIT/7"; echo '{seen}' >"$SCONCE_FIT/7/fit.json""#);
    let said = fit(&["--gpu", "RTX 3070", "--no-plans"], &script);
    assert!(said.starts_with("exit code 10\n"), "{said}");
    let expected = "GeForce RTX 3070: not known beyond the 5 steps that were watched: each has 6 MiB more than the one \
                    before, and if that goes on the card is full after about ";
    assert!(said.contains(expected), "{said}");
}

/// One that reads a value for its size, and takes as much as is selected.
#[test]
fn what_hangs_on_values_is_not_known() {
    let read = r#","reads":[{"file":"/w/train.py","line":7,"use":"size","times":3,"by":null,"code":"h = h[mask]","operation":"nonzero"}]}"#;
    let with = |gib: u64| {
        let seen = seen("steps", gib << 30, 0, "null");
        seen.strip_suffix('}').unwrap().to_owned() + read
    };
    let error = r#"{"type":"OutOfMemoryError","message":"","out-of-memory":true}"#;
    let fails = seen("exit", 6 << 30, 1, error);
    let script = |all: &str, half: &str| {
        format!(
            r#"mkdir "$SCONCE_FIT/7"
            case $SCONCE_FIT_VALUES in
            all*) echo '{all}' ;;
            half*) echo '{half}' ;;
            *) echo '{}' ;;
            esac >"$SCONCE_FIT/7/fit.json""#,
            with(1)
        )
    };
    let words = ["--gpu", "RTX 3070", "--no-plans"];
    assert_snapshot!(fit(&words, &script(&fails, &with(4))), @r"
    exit code 10
    -- standard output
    3 steps with torch 2.15.0+cu132, CUDA 13.2

    CARD              MEMORY   ALLOCATED  RESERVED  ON CARD  FITS
    GeForce RTX 3070  7.8 GiB  1 GiB      1 GiB     1.8 GiB  not known

      On card: reserved, and a CUDA context of 775 MiB, the most that is reported of any card

    Why it is not known
      GeForce RTX 3070: not known, as it depends on values of the card (none: fits, 1 GiB reserved; all selected: does not fit; half: fits, 4 GiB reserved):
        train.py:7 has a size or an index from values of the card, which are 0 here: h = h[mask]

    How sure
      Workspaces of cuDNN (none) are what the environment's own cuDNN answered for this card without one. With `cudnn.benchmark` the plan with the most is taken for the fastest.
      A CUDA context takes 250 to 775 MiB, and grows as kernels are loaded.
      Later steps are taken to be like the 3 that were watched: batches, sequences or a model that grow after them are not in the figures.
      Kernels do nothing and values are zeros: what the script decides by values, zeros decided.
        train.py:7 has a size or an index from values of the card, which are 0 here: h = h[mask]
    -- standard error
    fit: trying GeForce RTX 3070
    fit: values of the card are read: trying others than zeros
    ");
    // What fits with everything fits; the figures are those of the most.
    let said = fit(&words, &script(&with(5), &with(3)));
    assert!(said.starts_with("exit code 0\n"), "{said}");
    assert!(said.contains("5.8 GiB  yes, 2.0 GiB left"), "{said}");
    assert!(said.contains("with those that take the most"), "{said}");
    // What fits with nothing fits with nothing.
    let said = fit(&words, &script(&with(1), &with(1)));
    assert!(said.starts_with("exit code 0\n"), "{said}");
    assert!(said.contains("trying others than zeros"), "{said}");
}

#[test]
fn plans_are_run_where_it_does_not_fit() {
    let fails = seen(
        "exit",
        6 << 30,
        1,
        r#"{"type":"OutOfMemoryError","message":"","out-of-memory":true}"#,
    );
    let with = |gib: u64, seconds: u64| {
        let work = format!(r#","work":[["single",{seconds}000000000000,0,20]]}}"#);
        let seen = seen("steps", gib << 30, 0, "null");
        seen.strip_suffix('}').unwrap().to_owned() + &work
    };
    let not = seen("steps", 10 << 30, 0, "null").replace(
        r#""dnn-plans":1"#,
        r#""plan":{"plan":"fused","notes":{},"problems":[["fused","there is none"]]}"#,
    );
    let (plain, bf16, away, both) = (with(10, 4), with(8, 2), with(6, 9), with(5, 7));
    let script = format!(
        r#"mkdir "$SCONCE_FIT/7"
        case $SCONCE_PLAN in
        fused) echo '{not}' ;;
        bf16) echo '{bf16}' ;;
        offload) echo '{away}' ;;
        bf16+offload) echo '{both}' ;;
        *) case $(grep -o 'memory_bytes=[0-9]*' "$SCONCE_VGPU") in
           memory_bytes=[0-9]???????????*) echo '{plain}' ;;
           *) echo '{fails}' ;;
           esac ;;
        esac >"$SCONCE_FIT/7/fit.json""#
    );
    let said = fit(&["--gpu", "RTX 3070"], &script);
    assert!(said.starts_with("exit code 1\n"), "{said}");
    let run = "  GeForce RTX 3070: sconce run --host --plan bf16+offload -- sh -c";
    assert!(said.contains(run), "{said}");
    let plans = said
        .lines()
        .skip_while(|line| !line.starts_with("Plans for"));
    let plans = plans.take_while(|line| !line.starts_with("How sure"));
    let plans: Vec<&str> = plans.filter(|line| !line.starts_with(run)).collect();
    assert_snapshot!(plans.join("\n"), @r#"
    Plans for the GeForce RTX 3070

    PLAN          RESERVED  ON CARD   SAVED   STEP     FITS
    as it is      10 GiB    10.8 GiB  –       3941 ms  no
    bf16+offload  5 GiB     5.8 GiB   +5 GiB  6897 ms  yes
    offload       6 GiB     6.8 GiB   +4 GiB  8867 ms  yes
    bf16          8 GiB     8.8 GiB   +2 GiB  1970 ms  no
    checkpoint    10 GiB    10.8 GiB  –       3941 ms  no
    foreach-off   10 GiB    10.8 GiB  –       3941 ms  no
    expandable    10 GiB    10.8 GiB  –       3941 ms  no
    fused         –         –         –       –        –

        bf16: with torch.autocast("cuda", dtype=torch.bfloat16): around forward pass and loss
        offload: with torch.autograd.graph.save_on_cpu(pin_memory=True): around the forward pass
      Not applied: fused: there is none
      Each plan was run on the virtual GeForce RTX 3070. STEP is an estimate: what the step's products and bytes take at least at the card's rates; it is for comparing.
    "#);
}

#[test]
fn a_plan_has_a_name() {
    let said = fit(&["--gpu", "t4", "--plan", "bf16+checkpoin"], "exit 4");
    assert_snapshot!(said, @r"
    exit code 2
    -- standard output
    -- standard error
    error: invalid value 'bf16+checkpoin' for '--plan <PLAN>': no plan is called `checkpoin`; did you mean checkpoint? plans are bf16, fp16, checkpoint, foreach-off, fused, 8-bit, expandable, offload, ddp, zero1, zero2, zero3, with + between them

    For more information, try '--help'.
    ");
}

#[test]
fn what_says_nothing_of_training_is_an_error() {
    let said = fit(&["--gpu", "4090", "-q"], "exit 4");
    assert_snapshot!(said, @r"
    exit code 3
    -- standard output
    -- standard error
    error: the command ended with 4, and no process of it had imported torch
    hint: it must start Python without -I and -E, which hide the probe, and import torch
    ");
    let mark = r#": >"$SCONCE_FIT/torch"; "#;
    let said = fit(&["--gpu", "4090", "-q"], &format!("{mark} exit 7"));
    assert_snapshot!(said, @r"
    exit code 3
    -- standard output
    -- standard error
    error: the command ended with 7 before its steps were taken, and not by Python's own exit
    hint: it called `os._exit`, or a process that it started was killed
    ");
    let said = fit(&["--gpu", "4090", "-q"], &format!("{mark} kill -SEGV $$"));
    assert_snapshot!(said, @r"
    exit code 3
    -- standard output
    -- standard error
    error: the command ended with 139: it, or what it started, was ended by a segmentation fault (SIGSEGV) before its steps were taken
    hint: `python -X faulthandler` prints the line at which it was
    ");
    let said = fit(&["--gpu", "4090", "-q"], &format!("{mark} kill -KILL $$"));
    assert!(
        said.contains("was killed (SIGKILL) before its steps were taken"),
        "{said}"
    );
    assert!(said.contains("hint: the kernel"), "{said}");
    let other = r#"{"type":"ValueError","message":"","out-of-memory":false}"#;
    let seen = seen("exit", 1 << 30, 0, other);
    let script =
        format!(r#"mkdir "$SCONCE_FIT/7"; echo '{seen}' >"$SCONCE_FIT/7/fit.json"; exit 1"#);
    let said = fit(&["--gpu", "4090", "-q"], &script);
    assert_snapshot!(said, @r"
    exit code 3
    -- standard output
    -- standard error
    error: the command failed by itself after 3 optimizer steps, with ValueError
    ");
}
