//! `sconce doctor`.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use insta::assert_snapshot;
use serde_json::Value;

use super::home::{Home, codes, has_driver, with_site};

#[test]
fn doctor_says_that_there_is_no_driver() {
    if has_driver() {
        sconce_testkit::report_skip("own-driver", "this machine has a driver of its own");
        return;
    }
    let home = Home::new();
    let done = home.sconce(&["doctor"]);
    let mut lines = done.out.lines();
    let verdict = lines.next().unwrap();
    assert!(
        verdict.starts_with("PyTorch on a card will not run here: "),
        "{verdict}"
    );
    assert_eq!((done.code, done.err.as_str()), (1, ""));
    assert_eq!(lines.next(), Some(""));
    assert!(done.out.contains(" [no-driver]\n"), "{}", done.out);
    for line in [
        "system ",
        "processor ",
        "memory ",
        "/dev/shm ",
        "cgroup ",
        "store ",
    ] {
        assert!(
            done.out.contains(&format!("\n{line}")),
            "{line} in {}",
            done.out
        );
    }
    assert!(done.out.contains("\ndriver      none\n"), "{}", done.out);
    assert!(done.out.contains("\ncards       none\n"), "{}", done.out);

    let json = home.sconce(&["doctor", "--json"]);
    let said = json.json();
    assert_eq!((json.code, &said["verdict"]), (1, &verdict.into()));
    assert_eq!(codes(&said), ["no-driver"]);
    assert_eq!(said["facts"]["version"], 1);
    assert!(said["facts"]["memory"].as_u64() > Some(0));
    let flags = said["facts"]["processor"]["flags"].as_array().unwrap();
    assert!(!flags.is_empty(), "{said}");

    // An environment that it is asked about is judged with it.
    with_site(&home);
    let done = home.sconce(&["doctor", "venv", "--json"]);
    let said = done.json();
    assert_eq!(done.code, 1);
    assert_eq!(codes(&said), ["no-driver", "torchvision-mismatch"]);
    // The types of these are held elsewhere, and what they say is of this machine.
    let mut own = said.clone();
    for key in ["facts", "installed"] {
        own[key] = serde_json::Value::Null;
    }
    own["findings"] = serde_json::json!([]);
    crate::json::assert_shape("doctor.txt", &own);
    let verdict = said["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("venv will not run here: "), "{verdict}");
}

#[test]
fn doctor_knows_machines_by_what_nvidias_libraries_say() {
    let machines: [(&str, i32, &str, &[&str]); 5] = [
        ("h100x8", 0, "PyTorch on a card should run here", &[]),
        (
            "mig",
            0,
            "PyTorch on a card should run here",
            &["mig-one-instance"],
        ),
        (
            "fallen",
            0,
            "PyTorch on a card should run here",
            &[
                "card-lost",
                "card-lost",
                "exclusive-mode",
                "remap-pending",
                "ecc-errors",
                "throttled",
                "persistence-off",
            ],
        ),
        (
            "mismatch",
            1,
            "PyTorch on a card will not run here: the driver's library does not belong to the loaded \
             kernel module",
            &["driver-mismatch"],
        ),
        ("rtx3070", 0, "PyTorch on a card should run here", &[]),
    ];
    for (machine, code, verdict, expected) in machines {
        let Some(home) = Home::playing(machine) else {
            return;
        };
        let done = home.sconce(&["doctor", "--json"]);
        let said = done.json();
        assert_eq!((done.code, done.err.as_str()), (code, ""), "{machine}");
        assert_eq!(codes(&said), expected, "{machine}");
        let first = said["verdict"].as_str().unwrap();
        assert!(first.starts_with(verdict), "{machine}: {first}");
    }
}

#[test]
fn doctor_shows_the_cards() {
    let Some(home) = Home::playing("fallen") else {
        return;
    };
    let done = home.sconce(&["doctor"]);
    let of_cards = ["driver ", "card ", "cuda "];
    let lines = done
        .out
        .lines()
        .filter(|line| of_cards.iter().any(|name| line.starts_with(name)));
    assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r"
    driver      550.90.07, for CUDA up to 12.4
    card        0: NVIDIA A100-SXM4-40GB, capability 8.0, 0 B of 40 GiB used, ECC on, GPU-11111111-aaaa-bbbb-cccc-000000000000
    card        1: NVIDIA GPU, lost: GPU is lost
    card        2: NVIDIA A100-SXM4-40GB, lost: GPU requires reset
    cuda        cuInit succeeds, 3 devices
    ");
    let home = Home::playing("rtx3070").unwrap();
    let done = home.sconce(&["doctor"]);
    assert!(
        done.out
            .contains("\ncuda        cuInit succeeds, 1 device\n"),
        "{}",
        done.out
    );
}

#[test]
fn a_bundle_tells_no_secrets() {
    let mut home = Home::new();
    let path = home.folder.path().to_str().unwrap().to_owned();
    home.set("HF_TOKEN", "hf-secret");
    home.set("CUDA_API_KEY", "key-secret");
    home.set("NCCL_AUTH_TOKEN", "nccl-secret");
    home.set("TORCH_CUDA_ARCH_LIST", "9.0");
    home.set("TORCH_HOME", &format!("{path}/models"));
    home.set(
        "CUDA_HOME",
        "https://ada:word-secret@cache.example.org/cuda",
    );
    with_site(&home);
    let done = home.sconce(&["doctor", "venv", "--bundle", "report.txt"]);
    assert_eq!(done.err, "written: report.txt\n");
    let text = home.read("report.txt");
    for secret in ["secret", path.as_str()] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert!(!text.contains(&*home.folder.path().canonicalize().unwrap().to_string_lossy()));
    assert!(text.starts_with(&format!("sconce {}\n", env!("CARGO_PKG_VERSION"))));
    for told in [
        "judged      venv: torch 2.15.0, torchvision 0.15.2",
        "CUDA_API_KEY=(masked)",
        "TORCH_CUDA_ARCH_LIST=9.0",
        "[torchvision-mismatch]",
        "store       ~/.local/share/sconce",
        "\"name\": \"HOST\"",
        "\"processor\": {",
        "\"tools\": {",
    ] {
        assert!(text.contains(told), "{told} in {text}");
    }
    // Facts for `check --facts` are the user's own and keep the name.
    home.sconce(&["doctor", "--facts", "facts.json"]);
    let facts: Value = serde_json::from_str(&home.read("facts.json")).unwrap();
    assert_ne!(facts["name"], "HOST");
    // What cannot be written is an error.
    let done = home.sconce(&["doctor", "--bundle", "no/report.txt"]);
    assert_eq!(done.code, 7, "{}", done.text());
}

#[test]
fn nothing_is_mended_without_a_terminal() {
    let Some(home) = Home::playing("fallen") else {
        return;
    };
    // What would be run leaves a trace.
    let trap = home.project().join("bin");
    for program in ["systemctl", "sudo", "nvidia-smi", "sh"] {
        let script = format!("#!/bin/sh\n/bin/touch {}/ran\n", home.project().display());
        home.write(&format!("bin/{program}"), &script);
        let path = trap.join(program);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, mode).unwrap();
    }
    let mut command = home.command(&["doctor", "--fix"]);
    command.env("PATH", &trap).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"y\ny\ny\ny\n")
        .unwrap();
    let done = home.done(child);
    assert_eq!(done.code, 0);
    let said = done.err;
    assert!(said.contains("enable --now nvidia-persistenced"), "{said}");
    assert!(
        said.contains("not run: there is no terminal to ask on"),
        "{said}"
    );
    // Neither what stops work nor what a reset would lose is offered.
    assert!(
        !said.contains("reboot") && !said.contains("gpu-reset"),
        "{said}"
    );
    assert!(!home.project().join("ran").exists());
}
