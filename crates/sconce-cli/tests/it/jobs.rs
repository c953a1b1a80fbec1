//! Jobs of a scheduler that a script plays; a real one is in `scripts/test.d/slurm`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::judging::home::Home;

const TARGETS: &str =
    "[target.lab]\nengine = \"slurm\"\npartition = \"gpu\"\nsbatch = [\"--mail-type=END\"]\n";

/// A home with a job that was handed over as number 7, of which so many tasks have ended with these codes.
fn with_job(exits: &[u8]) -> Home {
    let home = Home::new();
    let dir = home.folder.path().join(".local/state/sconce/jobs/demo-1");
    for folder in ["tasks", "logs"] {
        fs::create_dir_all(dir.join(folder)).unwrap();
    }
    let write = |name: &str, value: Value| fs::write(dir.join(name), value.to_string()).unwrap();
    write(
        "job.json",
        json!({
            "format": 1, "token": "demo-1", "name": "demo", "spec": "/p/sconce.toml", "directories": {},
            "run": {"command": ["train"]}, "lock": "0".repeat(64), "architecture": "amd64",
            "layout": {"nodes": 2, "gpus-per-node": 4, "launch": "node"}, "engine": "slurm",
            "meet-within-ms": 1000, "unix-ms": 1_790_000_000_000_u64
        }),
    );
    write("submitted.json", json!({"target": "lab", "id": "7"}));
    for (task, exit) in exits.iter().enumerate() {
        let value = json!({"node": format!("n{task}"), "exit": exit, "ended-unix-ms": task});
        write(&format!("tasks/{task}.json"), value);
        fs::write(
            dir.join(format!("logs/task-{task}.log")),
            format!("of {task}\n"),
        )
        .unwrap();
    }
    home
}

/// Lets a script be squeue, and keeps how often it was called.
fn play_squeue(home: &mut Home, script: &str) {
    let bin = home.folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let path = bin.join("squeue");
    fs::write(
        &path,
        format!("#!/bin/sh\necho >>{}/calls\n{script}\n", bin.display()),
    )
    .unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.display());
    home.set("PATH", &path);
}

#[test]
fn a_dry_run_prints_the_script_and_hands_nothing_over() {
    let home = Home::new();
    home.write("sconce.toml", &format!("name = \"demo\"\n{TARGETS}"));
    let words = ["submit", "--to", "lab", "-N", "2", "--dry-run", "-e", "A=1"];
    let done = home.sconce(&[&words[..], &["--", "true"]].concat());
    assert_eq!(done.code, 0, "{}", done.err);
    for line in [
        "#SBATCH --nodes=2",
        "#SBATCH --partition=gpu",
        "#SBATCH --mail-type=END",
    ] {
        assert!(
            done.out.lines().any(|one| one == line),
            "{line}\n{}",
            done.out
        );
    }
    assert!(
        done.err.contains("no lock of this spec yet"),
        "{}",
        done.err
    );
    let done = home.sconce(&[&words[..], &["--json", "--", "true"]].concat());
    let value: Value = serde_json::from_str(&done.out).unwrap();
    crate::json::assert_shape("submit.txt", &value);
}

#[test]
fn a_dry_run_with_a_preparation_prints_one_script_that_hands_both_over() {
    let home = Home::new();
    let targets = format!("{TARGETS}[target.cpu]\nengine = \"slurm\"\npartition = \"cpu\"\n");
    home.write("sconce.toml", &targets);
    let words = ["submit", "--to", "lab", "--prepare-on", "cpu", "--dry-run"];
    let done = home.sconce(&[&words[..], &["--", "true"]].concat());
    assert_eq!(done.code, 0, "{}", done.err);
    let (preparation, job) = done.out.split_once("\nEND_OF_PREPARATION\n").unwrap();
    assert!(
        preparation.contains("#SBATCH --partition=cpu\n"),
        "{preparation}"
    );
    assert!(preparation.contains(" node --prepare "), "{preparation}");
    assert!(job.contains("#SBATCH --partition=gpu\n"), "{job}");
    assert!(
        job.contains("--dependency=afterok:${preparation%%;*}"),
        "{job}"
    );
    let done = home.sconce(&[&words[..], &["--json", "--", "true"]].concat());
    let value: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(value["preparation"]["target"], "cpu");
    let script = value["preparation"]["script"].as_str().unwrap();
    assert!(
        script.starts_with("#!/bin/sh\n") && !script.contains("END_OF"),
        "{script}"
    );
    for (name, said) in [("none", "no target `none`"), ("", "no target ``")] {
        let words = ["submit", "--to", "lab", "--prepare-on", name, "--", "true"];
        let done = home.sconce(&words);
        assert!(done.code == 3 && done.err.contains(said), "{}", done.err);
    }
    let contradicts = targets.replace("--mail-type=END", "--dependency=afterok:1");
    home.write("sconce.toml", &contradicts);
    let done = home.sconce(&[&words[..], &["--", "true"]].concat());
    assert!(
        done.code == 3 && done.err.contains("--dependency"),
        "{}",
        done.err
    );
}

#[test]
fn a_job_whose_environment_could_not_be_made_says_so_by_its_own_files() {
    let mut home = with_job(&[]);
    play_squeue(&mut home, "exit 1");
    let dir = home.folder.path().join(".local/state/sconce/jobs/demo-1");
    let mut job: Value = serde_json::from_slice(&fs::read(dir.join("job.json")).unwrap()).unwrap();
    job["preparation"] = json!({"target": "cpu", "token": "demo-1.prepare"});
    fs::write(dir.join("job.json"), job.to_string()).unwrap();
    let submitted = json!({"target": "lab", "id": "7", "preparation": "6"});
    fs::write(dir.join("submitted.json"), submitted.to_string()).unwrap();
    for folder in ["tasks", "logs"] {
        fs::create_dir_all(dir.join("preparation").join(folder)).unwrap();
    }
    let task =
        json!({"node": "n1", "exit": 6, "ended-unix-ms": 1, "fault": {"why": "a file is damaged"}});
    fs::write(dir.join("preparation/tasks/0.json"), task.to_string()).unwrap();
    fs::write(dir.join("preparation/logs/task-0.log"), "assemble\n").unwrap();
    let why = "its environment was not made on cpu (slurm 6 failed): a file is damaged";
    let done = home.sconce(&["wait", "demo-1"]);
    assert!(done.code == 6 && done.err.contains(why), "{}", done.err);
    let done = home.sconce(&["ps", "--all"]);
    assert!(
        done.out.contains(&format!("demo-1 failed: {why}")),
        "{}",
        done.out
    );
    let done = home.sconce(&["report", "demo-1"]);
    assert!(
        done.code == 3 && done.err.contains(&format!("{why} (exit code 6)")),
        "{}",
        done.err
    );
    for words in [&["logs", "demo-1"][..], &["logs", "demo-1", "preparation"]] {
        assert_eq!(home.sconce(words).out, "assemble\n", "{words:?}");
    }
    fs::write(dir.join("logs/task-0.log"), "begun\n").unwrap();
    assert_eq!(home.sconce(&["logs", "demo-1"]).out, "begun\n");
    let done = home.sconce(&["logs", "demo-1", "other"]);
    assert!(
        done.code == 3 && done.err.contains("no log `other`"),
        "{}",
        done.err
    );
    assert!(
        !home.folder.path().join("bin/calls").exists(),
        "squeue was asked"
    );
}

#[test]
fn what_cannot_be_a_job_is_said_before_anything_is_brought() {
    let home = Home::new();
    home.write(
        "sconce.toml",
        &format!("{TARGETS}[run]\nruntime = \"docker\"\n"),
    );
    for (words, code, said) in [
        (&["--to", "lb", "--", "a"][..], 3, "there are: lab"),
        (&["--to", "lab", "--", "a"], 3, "and not by docker"),
        (&["--", "a"], 2, "--to"),
        (
            &["--to", "lab", "--launch", "mpi", "--", "a"],
            2,
            "`torchrun`",
        ),
        (
            &["--to", "lab", "--time", "0s", "--", "a"],
            2,
            "no time at all",
        ),
        (
            &["--to", "lab", "--time", "4:00h", "--", "a"],
            2,
            "4:00:00 or 2-00:00:00",
        ),
        (
            &["--to", "lab", "--mail-type=END", "--", "a"],
            2,
            "`--mail-type` as an item of its `sbatch`",
        ),
    ] {
        let done = home.sconce(&[&["submit"], words].concat());
        assert!(
            done.code == code && done.err.contains(said),
            "{words:?} {} {}",
            done.code,
            done.err
        );
    }
    // What stands behind `--` is the command: no tip brings a flag there.
    let done = home.sconce(&["submit", "--to", "lab", "--tim", "4h", "--", "a"]);
    assert!(!done.err.contains("use '-- "), "{}", done.err);
    home.write(
        "sconce.toml",
        &TARGETS.replace("--mail-type=END", "--nodes=4"),
    );
    let done = home.sconce(&["submit", "--to", "lab", "--dry-run", "--", "a"]);
    assert!(
        done.code == 3 && done.err.contains("--nodes=4"),
        "{}",
        done.err
    );
    let done = home.sconce(&["node", "/no/such/job"]);
    assert_eq!(done.code, 3, "{}", done.err);
}

#[test]
fn flags_of_one_submission_count_before_the_target() {
    let home = Home::new();
    home.write(
        "sconce.toml",
        "[target.lab]\nengine = \"slurm\"\npartition = \"gpu\"\ntime = \"4:00:00\"\n",
    );
    let words = ["submit", "--to", "lab", "--dry-run"];
    let done = home.sconce(&[&words[..], &["--", "a"]].concat());
    assert!(
        done.out.contains("#SBATCH --time=04:00:00\n"),
        "{}",
        done.out
    );
    let flags =
        "-p long -A vision --qos high -C a100 -x n[1-2] --nodelist n3 -J mine --mem 4096 -t 2-0";
    let flags: Vec<&str> = flags.split(' ').collect();
    let done = home.sconce(&[&words[..], &flags, &["--", "a"]].concat());
    for line in [
        "--job-name=mine",
        "--partition=long",
        "--account=vision",
        "--qos=high",
        "--constraint=a100",
        "\"--exclude=n[1-2]\"",
        "--nodelist=n3",
        "--mem=4096M",
        "--time=2-00:00:00",
    ] {
        assert!(
            done.out.contains(&format!("#SBATCH {line}\n")),
            "{line}: {}",
            done.out
        );
    }
    assert!(!done.out.contains("--partition=gpu"), "{}", done.out);
}

#[test]
fn a_job_that_has_ended_says_so_by_its_own_files() {
    let mut home = with_job(&[0, 9]);
    play_squeue(&mut home, "exit 1");
    let done = home.sconce(&["wait", "demo-1"]);
    assert!(
        done.code == 9 && done.err.contains("job demo-1: failed"),
        "{}",
        done.err
    );
    let done = home.sconce(&["logs", "demo"]);
    assert_eq!(done.out, "task-0 | of 0\ntask-1 | of 1\n", "{}", done.err);
    let done = home.sconce(&["logs", "demo", "--task", "1"]);
    assert_eq!(done.out, "of 1\n", "{}", done.err);
    let done = home.sconce(&["ps", "--all", "--json"]);
    let value: Value = serde_json::from_str(&done.out).unwrap();
    let job = &value["jobs"][0];
    assert_eq!(
        (
            job["id"].as_str(),
            job["state"].as_str(),
            job["exit_code"].as_u64()
        ),
        (Some("demo-1"), Some("failed"), Some(9))
    );
    assert!(
        !home.folder.path().join("bin/calls").exists(),
        "squeue was asked"
    );
}

#[test]
fn a_scheduler_is_asked_once_in_a_while_by_all_verbs_together() {
    let mut home = with_job(&[]);
    play_squeue(&mut home, "exit 0");
    for _ in 0..3 {
        let done = home.sconce(&["ps", "--all"]);
        assert!(
            done.code == 0 && done.out.contains("demo-1"),
            "{}{}",
            done.out,
            done.err
        );
    }
    let calls = fs::read_to_string(home.folder.path().join("bin/calls")).unwrap();
    assert_eq!(calls.lines().count(), 1);
}

#[test]
fn a_scheduler_that_is_away_is_said() {
    let mut home = with_job(&[]);
    play_squeue(
        &mut home,
        "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
    );
    let done = home.sconce(&["ps"]);
    assert!(done.err.contains("cannot be reached"), "{}", done.err);
    let shown = "demo-1 not known: its scheduler does not answer";
    assert!(
        done.code == 0 && done.out.contains(shown),
        "{} {}",
        done.code,
        done.out
    );
}
