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
    // One that was handed over since waits for the next question, or says itself that it has begun.
    add_job(&home, "later-1", json!({"target": "lab", "id": "8"}), None);
    let done = home.sconce(&["ps"]);
    let said = "later-1 waiting: its scheduler has not been asked for it yet";
    assert!(done.out.contains(said), "{}", done.out);
    let task = "../.local/state/sconce/jobs/later-1/tasks/0.json";
    home.write(task, &json!({"node": "n1"}).to_string());
    let done = home.sconce(&["ps"]);
    assert!(done.out.contains("slurm 8: running"), "{}", done.out);
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

/// A job beside `demo-1` that was handed over by the same user.
fn add_job(home: &Home, token: &str, submitted: Value, array: Option<&str>) {
    let jobs = home.folder.path().join(".local/state/sconce/jobs");
    let mut job: Value =
        serde_json::from_slice(&fs::read(jobs.join("demo-1/job.json")).unwrap()).unwrap();
    job["token"] = json!(token);
    let dir = jobs.join(token);
    let mut parts = vec![dir.clone()];
    if let Some(indices) = array {
        let indices: Vec<u32> = indices.split(',').map(|one| one.parse().unwrap()).collect();
        parts = (indices.iter())
            .map(|index| dir.join("array").join(index.to_string()))
            .collect();
        job["array"] = json!({ "indices": indices });
    }
    for part in parts {
        fs::create_dir_all(part.join("tasks")).unwrap();
        fs::create_dir_all(part.join("logs")).unwrap();
    }
    fs::write(dir.join("job.json"), job.to_string()).unwrap();
    fs::write(dir.join("submitted.json"), submitted.to_string()).unwrap();
}

fn count_calls(home: &Home, file: &str) -> usize {
    let calls = fs::read_to_string(home.folder.path().join("bin").join(file));
    calls.map_or(0, |calls| calls.lines().count())
}

/// Adds a program beside squeue, which keeps how often it was called in `NAME.calls`.
fn play_beside(home: &Home, name: &str, script: &str) {
    let bin = home.folder.path().join("bin");
    let path = bin.join(name);
    let text = format!(
        "#!/bin/sh\necho >>{}/{name}.calls\n{script}\n",
        bin.display()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A row of squeue.
fn row(id: &str, state: &str, reason: &str, comment: &str) -> String {
    let fields = [id, state, reason, "n1", "0", "N/A", "N/A", "0", comment];
    format!("{}\\036\\n", fields.join("\\037"))
}

const AWAY: &str = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1";

#[test]
fn a_question_without_an_answer_counts_as_one() {
    let mut home = with_job(&[]);
    add_job(
        &home,
        "sweep-1",
        json!({"target": "lab", "id": "8"}),
        Some("0,1"),
    );
    add_job(
        &home,
        "sweep-2",
        json!({"target": "lab", "id": "9"}),
        Some("0,1"),
    );
    play_squeue(&mut home, AWAY);
    for _ in 0..2 {
        let done = home.sconce(&["ps"]);
        assert!(done.err.contains("cannot be reached"), "{}", done.err);
        assert!(done.out.contains("sweep-2"), "{}", done.out);
    }
    assert_eq!(count_calls(&home, "calls"), 1);
}

#[test]
fn a_job_that_never_got_an_answer_is_looked_for_with_all_others_at_once() {
    let mut home = with_job(&[]);
    for token in ["lost-1", "lost-2", "found-1"] {
        add_job(&home, token, json!({"target": "lab"}), None);
    }
    let rows = row("7", "RUNNING", "None", "sconce:demo-1")
        + &row("12", "PENDING", "Priority", "sconce:found-1");
    play_squeue(&mut home, &format!("printf '{rows}'"));
    play_beside(&home, "sacct", "exit 0");
    for _ in 0..2 {
        let done = home.sconce(&["ps", "--all"]);
        for line in [
            "lost-1 not known: its scheduler gave no answer",
            "slurm 12: waiting",
        ] {
            assert!(done.out.contains(line), "{}{}", done.out, done.err);
        }
    }
    assert_eq!(
        (
            count_calls(&home, "calls"),
            count_calls(&home, "sacct.calls")
        ),
        (1, 0)
    );
    // One that is handed over again meanwhile is there.
    let submitted = json!({"target": "lab", "id": "13"}).to_string();
    home.write(
        "../.local/state/sconce/jobs/lost-1/submitted.json",
        &submitted,
    );
    let done = home.sconce(&["ps"]);
    assert!(done.out.contains("slurm 13: waiting"), "{}", done.out);
}

#[test]
fn what_has_ended_is_never_asked_for_again() {
    let mut home = with_job(&[]);
    home.write(
        "../.config/sconce/config.toml",
        "scheduler-interval = \"0.001s\"\n",
    );
    play_squeue(
        &mut home,
        &format!("printf '{}'", row("7", "CANCELLED", "None", "")),
    );
    for _ in 0..3 {
        let done = home.sconce(&["wait", "demo-1"]);
        assert!(done.err.contains("job demo-1: cancelled"), "{}", done.err);
    }
    assert_eq!(count_calls(&home, "calls"), 1);
}

#[test]
fn an_accounting_that_does_not_answer_is_none_and_is_said() {
    let mut home = with_job(&[]);
    home.write(
        "../.config/sconce/config.toml",
        "scheduler-interval = \"0.001s\"\n",
    );
    play_squeue(&mut home, "exit 0");
    play_beside(
        &home,
        "sacct",
        "echo 'sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:db:6819: Connection refused' >&2; exit 1",
    );
    for _ in 0..2 {
        let done = home.sconce(&["wait", "demo-1"]);
        assert_eq!(done.code, 3, "{}", done.err);
        for part in ["Slurm's accounting", "Connection refused"] {
            assert!(done.err.contains(part), "{}", done.err);
        }
    }
    assert_eq!(count_calls(&home, "sacct.calls"), 1);
    // Of another, one task says how it ended, and the node of the other one could not.
    add_job(&home, "demo-2", json!({"target": "lab", "id": "8"}), None);
    let dir = home.folder.path().join(".local/state/sconce/jobs/demo-2");
    let task = json!({"node": "n1", "exit": 9, "ended-unix-ms": 1});
    fs::write(dir.join("tasks/1.json"), task.to_string()).unwrap();
    let done = home.sconce(&["wait", "demo-2"]);
    assert!(
        done.code == 9 && done.err.contains("job demo-2: failed"),
        "{}",
        done.err
    );
}

#[test]
fn a_job_is_known_by_what_its_scheduler_calls_it() {
    let home = with_job(&[0, 0]);
    add_job(
        &home,
        "sweep-1",
        json!({"target": "lab", "id": "33"}),
        Some("0,1"),
    );
    let element = ".local/state/sconce/jobs/sweep-1/array/1/";
    home.write(&format!("../{element}logs/task-0.log"), "of one\n");
    assert_eq!(home.sconce(&["logs", "7", "--task", "1"]).out, "of 1\n");
    assert_eq!(home.sconce(&["logs", "33_1"]).out, "of one\n");
    let done = home.sconce(&["logs", "33_4"]);
    assert!(done.code == 3 && done.err.contains("0, 1"), "{}", done.err);
    assert_eq!(home.sconce(&["wait", "7"]).code, 0);
}

#[test]
fn a_task_that_a_job_does_not_have_is_an_error_that_names_those_that_are() {
    let home = with_job(&[0, 0]);
    for (flag, known) in [
        ("--task", "no task 99: it has 0, 1"),
        ("--rank", "no rank 99: it has 0 to 1"),
    ] {
        let done = home.sconce(&["logs", "demo-1", flag, "99"]);
        assert!(
            done.code == 3 && done.err.contains(known),
            "{} {}",
            done.code,
            done.err
        );
    }
    assert_eq!(
        home.sconce(&["logs", "demo-1", "--rank", "1"]).out,
        "of 1\n"
    );
}

#[test]
fn several_jobs_are_waited_for() {
    let home = with_job(&[0, 0]);
    add_job(&home, "demo-2", json!({"target": "lab", "id": "8"}), None);
    for (task, exit) in [(0, 9), (1, 0)] {
        let value = json!({"node": "n1", "exit": exit, "ended-unix-ms": task});
        let path = format!("../.local/state/sconce/jobs/demo-2/tasks/{task}.json");
        home.write(&path, &value.to_string());
    }
    let done = home.sconce(&["wait", "demo-1", "demo-2"]);
    assert!(
        done.code == 9 && done.err.contains("job demo-2: failed"),
        "{}",
        done.err
    );
    assert_eq!(home.sconce(&["wait", "demo-1", "demo-1"]).code, 0);
}

#[test]
fn without_a_name_the_job_of_this_directory_is_meant_and_said() {
    let home = with_job(&[0, 9]);
    let dir = home.folder.path().join(".local/state/sconce/jobs/demo-1");
    let mut job: Value = serde_json::from_slice(&fs::read(dir.join("job.json")).unwrap()).unwrap();
    job["spec"] = json!(home.project().canonicalize().unwrap().join("sconce.toml"));
    fs::write(dir.join("job.json"), job.to_string()).unwrap();
    let done = home.sconce(&["wait"]);
    assert!(
        done.code == 9 && done.err.contains("job demo-1: failed"),
        "{}",
        done.err
    );
    let done = home.sconce(&["logs"]);
    assert!(
        done.out.contains("of 1") && done.err.contains("job demo-1"),
        "{}",
        done.err
    );
    // And from below its directory.
    home.write("sconce.toml", "");
    home.write("deep/file", "");
    let below = home.project().join("deep");
    let done = home.done(home.command(&["logs"]).current_dir(below).spawn().unwrap());
    assert!(
        done.out.contains("of 1") && done.err.contains("job demo-1"),
        "{}",
        done.err
    );
}

#[test]
fn a_job_comes_after_others_of_the_same_scheduler() {
    let mut home = with_job(&[]);
    add_job(&home, "other-1", json!({"target": "cpu", "id": "8"}), None);
    play_squeue(&mut home, "exit 1");
    let known = json!({"unix-ms": 9_999_999_999_999_u64, "jobs": {}});
    home.write(
        "../.local/state/sconce/jobs/answers.json",
        &known.to_string(),
    );
    home.write("sconce.toml", TARGETS);
    let dry_run = |after: &[&str]| {
        let words = [
            &["submit", "--to", "lab", "--dry-run"],
            after,
            &["--", "true"],
        ]
        .concat();
        home.sconce(&words)
    };
    let rows = row("7", "RUNNING", "None", "") + &row("8", "PENDING", "Priority", "");
    play_beside(&home, "squeue", &format!("printf '{rows}'"));
    let after = [
        "--after",
        "demo-1",
        "--after",
        "afterany:8",
        "--after",
        "afternotok:other-1",
    ];
    let done = dry_run(&after);
    let line = "#SBATCH --dependency=afterany:8,afternotok:8,afterok:7\n";
    assert!(done.out.contains(line), "{}{}", done.out, done.err);
    let done = dry_run(&["--after", "maybe:8"]);
    assert!(
        done.code == 2 && done.err.contains("afternotok"),
        "{}",
        done.err
    );
    // One that has failed.
    for (task, exit) in [(0, 9), (1, 0)] {
        let value = json!({"node": "n1", "exit": exit, "ended-unix-ms": task});
        let path = format!("../.local/state/sconce/jobs/other-1/tasks/{task}.json");
        home.write(&path, &value.to_string());
    }
    let done = dry_run(&["--after", "other-1"]);
    let said = "job other-1 has ended already (failed, exit code 9)";
    assert!(done.code == 3 && done.err.contains(said), "{}", done.err);
    for kind in ["afterany", "afternotok"] {
        let done = dry_run(&["--after", &format!("{kind}:other-1")]);
        assert!(
            done.code == 0 && !done.out.contains("--dependency"),
            "{}{}",
            done.out,
            done.err
        );
    }
}

#[test]
fn a_job_that_slurm_gave_up_says_why() {
    let mut home = with_job(&[]);
    let row = row("7", "CANCELLED", "DependencyNeverSatisfied", "");
    play_squeue(&mut home, &format!("printf '{row}'"));
    let done = home.sconce(&["ps", "--all"]);
    let said = "demo-1 cancelled: the job that it waits for ended in a way";
    assert!(done.out.contains(said), "{}{}", done.out, done.err);
}

#[test]
fn a_node_whose_sconce_was_killed_is_named() {
    let mut home = with_job(&[143]);
    let dir = home.folder.path().join(".local/state/sconce/jobs/demo-1");
    let ended = json!({"node": "n2", "exit": 143, "asked-to-end": true, "ended-unix-ms": 1});
    fs::write(dir.join("tasks/0.json"), ended.to_string()).unwrap();
    fs::write(dir.join("tasks/1.json"), json!({"node": "n10"}).to_string()).unwrap();
    let log =
        "srun: error: n10: task 1: Killed\nsrun: error: n2: task 0: Exited with exit code 143\n";
    fs::write(dir.join("logs/scheduler.log"), log).unwrap();
    let row = row("7", "FAILED", "NonZeroExitCode", "");
    play_squeue(&mut home, &format!("printf '{row}'"));
    let done = home.sconce(&["wait", "demo-1"]);
    assert!(
        done.code == 137 && done.err.contains("on node n10"),
        "{} {}",
        done.code,
        done.err
    );
}

#[test]
fn stopping_a_job_needs_no_accounting() {
    let mut home = with_job(&[]);
    add_job(&home, "lost-1", json!({"target": "lab"}), None);
    home.write(
        "../.config/sconce/config.toml",
        "scheduler-interval = \"0.001s\"\n",
    );
    let rows = row("7", "RUNNING", "None", "") + &row("12", "CANCELLED", "None", "sconce:lost-1");
    play_squeue(&mut home, &format!("printf '{rows}'"));
    play_beside(
        &home,
        "sacct",
        "echo 'sacct: error: Connection refused' >&2; exit 1",
    );
    play_beside(&home, "scancel", "echo \"$@\" >>$0.words");
    let done = home.sconce(&["stop", "lost-1"]);
    assert!(
        done.code == 0 && done.err.contains("job lost-1: cancelled"),
        "{}",
        done.err
    );
    let words = fs::read_to_string(home.folder.path().join("bin/scancel.words")).unwrap();
    assert_eq!((&*words, count_calls(&home, "sacct.calls")), ("12\n", 0));
}
