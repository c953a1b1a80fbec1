//! Slurm's programs as shell scripts, for what a real cluster does once a year: answers that never come, a controller
//! that is away, garbage, answers without an end.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use sconce_base::Env;
use sconce_schema::{Hint as _, exit};
use sconce_submit::{
    JobDependency, JobState, RejectionCause, Scheduler as _, SchedulerJobId, SlurmScheduler,
    SlurmSettings, SubmitError,
};

const TOKEN: &str = "0123456789abcdef";

/// A folder of programs, each of which notes its calls.
struct FakeSlurm {
    folder: tempfile::TempDir,
}

impl FakeSlurm {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Adds a program of lines of shell, in which `$D` is the folder.
    fn add_script(&self, name: &str, body: &str) {
        let folder = self.folder.path().display();
        let text = format!(
            "#!/bin/sh\nPATH=/usr/bin:/bin\nD='{folder}'\necho \"$*\" >>\"$D/{name}.calls\"\n{body}\n"
        );
        // Renamed into place: a shell may still read the one before.
        let new = self.path(&format!("{name}.new"));
        let written = fs::write(&new, text)
            .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(0o755)))
            .and_then(|()| fs::rename(&new, self.path(name)));
        written.expect("a program");
    }

    /// Makes a squeue that shows the rows in the file `queue`.
    fn queue(&self, rows: &[&str]) {
        fs::write(self.path("queue"), rows.concat()).expect("the queue");
        self.add_script("squeue", "cat \"$D/queue\"");
    }

    fn calls(&self, name: &str) -> usize {
        let calls = fs::read_to_string(self.path(&format!("{name}.calls")));
        calls.map_or(0, |calls| calls.lines().count())
    }

    fn scheduler(&self, timeout: Duration) -> SlurmScheduler {
        // Nothing else: a real Slurm may be on this machine.
        SlurmScheduler::new(SlurmSettings {
            env: Env::from_variables([("PATH", self.folder.path())]),
            user_id: 1000,
            command_timeout: timeout,
        })
    }

    /// Long enough for a busy machine.
    fn patient(&self) -> SlurmScheduler {
        self.scheduler(Duration::from_secs(60))
    }
}

/// A row of squeue.
fn row(id: u64, state: &str, nodes: &str, comment: &str) -> String {
    let fields = [
        &id.to_string(),
        state,
        "None",
        nodes,
        "0",
        "N/A",
        "N/A",
        "0",
        comment,
    ];
    format!("{}\u{1e}\n", fields.join("\u{1f}"))
}

fn id(text: &str) -> SchedulerJobId {
    SchedulerJobId::parse(text).expect("an id")
}

const NO_ACCOUNTING: &str = "echo 'Slurm accounting storage is disabled' >&2; exit 1";

#[test]
fn an_answer_gives_the_id_and_the_script_is_read() {
    let slurm = FakeSlurm::new();
    slurm.add_script(
        "sbatch",
        "cat >\"$D/script\"; echo 'Welcome!'; echo '17;cluster'",
    );
    let script = format!("#!/bin/sh\n{}\n", "# long\n".repeat(40_000));
    assert_eq!(
        slurm.patient().submit(&script, TOKEN, &[]).unwrap(),
        id("17")
    );
    assert_eq!(fs::read_to_string(slurm.path("script")).unwrap(), script);
    assert_eq!(slurm.calls("squeue"), 0);
}

#[test]
fn a_job_waits_for_those_that_are_named_when_it_is_handed_over() {
    let slurm = FakeSlurm::new();
    slurm.add_script("sbatch", "echo \"$@\" >\"$D/words\"; echo 18");
    let after = ["17", "afterany:15", "16"].map(|one| JobDependency::parse(one).unwrap());
    let taken = slurm.patient().submit("#!/bin/sh\n", TOKEN, &after);
    assert_eq!(taken.unwrap(), id("18"));
    assert_eq!(
        fs::read_to_string(slurm.path("words")).unwrap(),
        "--parsable --dependency=afterany:15,afterok:17:16 --kill-on-invalid-dep=yes\n"
    );
}

#[test]
fn a_job_that_was_taken_without_an_answer_is_found_and_not_handed_over_twice() {
    let slurm = FakeSlurm::new();
    slurm.queue(&[
        &row(16, "RUNNING", "n1", "sconce:another"),
        &row(17, "PENDING", "", &format!("sconce:{TOKEN}")),
    ]);
    slurm.add_script("sbatch", "exec sleep 1000");
    let found = slurm
        .scheduler(Duration::from_secs(2))
        .submit("#!/bin/sh\n", TOKEN, &[]);
    assert_eq!(found.unwrap(), id("17"));
    assert_eq!(slurm.calls("sbatch"), 1);

    // The same where the connection broke, where sbatch was killed, and where its answer is none.
    for body in [
        "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1",
        "kill -KILL $$",
        "echo 'Submitted, thank you'",
    ] {
        slurm.add_script("sbatch", body);
        assert_eq!(
            slurm.patient().submit("#!/bin/sh\n", TOKEN, &[]).unwrap(),
            id("17")
        );
    }
    assert_eq!(slurm.calls("sbatch"), 4);
}

#[test]
fn a_job_that_was_not_taken_is_handed_over_again_by_the_second_try_alone() {
    let slurm = FakeSlurm::new();
    slurm.queue(&[]);
    slurm.add_script("sacct", NO_ACCOUNTING);
    slurm.add_script("sbatch", "exec sleep 1000");
    let scheduler = slurm.scheduler(Duration::from_secs(2));
    let error = scheduler.submit("#!/bin/sh\n", TOKEN, &[]).unwrap_err();
    assert!(matches!(error, SubmitError::Unanswered { .. }), "{error:?}");
    assert_eq!(error.exit_code(), exit::FETCH);
    assert_eq!(slurm.calls("sbatch"), 1);

    slurm.add_script("sbatch", "echo 18");
    let again = slurm
        .patient()
        .submit_unless_found("#!/bin/sh\n", TOKEN, &[]);
    assert_eq!(again.unwrap(), id("18"));
    assert_eq!(slurm.calls("sbatch"), 2);

    slurm.queue(&[&row(18, "RUNNING", "n1", &format!("sconce:{TOKEN}"))]);
    let third = slurm
        .patient()
        .submit_unless_found("#!/bin/sh\n", TOKEN, &[]);
    assert_eq!(third.unwrap(), id("18"));
    assert_eq!(slurm.calls("sbatch"), 2);
}

#[test]
fn a_second_try_that_cannot_look_hands_nothing_over() {
    let slurm = FakeSlurm::new();
    slurm.add_script("sbatch", "echo 19");
    for body in [
        "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
        "echo 'Maintenance until Friday'",
        "exit 1",
    ] {
        slurm.add_script("squeue", body);
        let tried = slurm
            .patient()
            .submit_unless_found("#!/bin/sh\n", TOKEN, &[]);
        assert!(tried.is_err(), "{tried:?}");
    }
    assert_eq!(slurm.calls("sbatch"), 0);
}

#[test]
fn a_controller_that_is_away_and_back_is_told_so() {
    let slurm = FakeSlurm::new();
    let away = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1";
    slurm.add_script("squeue", away);
    let error = slurm.patient().states(&[id("5")]).unwrap_err();
    assert!(
        matches!(error, SubmitError::Unreachable { .. }),
        "{error:?}"
    );
    assert_eq!(error.exit_code(), exit::FETCH);

    slurm.queue(&[&row(5, "RUNNING", "n[1-2]", "")]);
    let states = slurm.patient().states(&[id("5")]).unwrap();
    assert_eq!(states[0].state, JobState::Running);
    assert_eq!(states[0].nodes.as_deref(), Some("n[1-2]"));
}

#[test]
fn states_come_in_their_order_by_one_call_each() {
    let slurm = FakeSlurm::new();
    slurm.queue(&[&row(5, "RUNNING", "n1", ""), &row(6, "PENDING", "", "")]);
    slurm.add_script(
        "sacct",
        "printf '4\\037TIMEOUT\\037n1\\0370:0\\0371\\0372\\037\\n'",
    );
    let asked = ["6", "3", "4", "5", "3"].map(id);
    let states = slurm.patient().states(&asked).unwrap();
    let seen: Vec<_> = states
        .iter()
        .map(|one| (one.id.as_str(), one.state.name()))
        .collect();
    assert_eq!(
        seen,
        [
            ("6", "waiting"),
            ("3", "forgotten"),
            ("4", "timed out"),
            ("5", "running"),
            ("3", "forgotten")
        ]
    );
    assert_eq!((slurm.calls("squeue"), slurm.calls("sacct")), (1, 1));
    assert!(slurm.patient().states(&[]).unwrap().is_empty());
    assert_eq!(slurm.calls("squeue"), 1);

    slurm.add_script("sacct", NO_ACCOUNTING);
    let states = slurm.patient().states(&[id("4")]).unwrap();
    assert_eq!(states[0].state, JobState::Forgotten);
}

#[test]
fn a_token_is_found_in_the_accounting_and_not_in_what_was_refused() {
    let slurm = FakeSlurm::new();
    let comment = format!("sconce:{TOKEN}");
    slurm.queue(&[&row(7, "FAILED", "", &comment)]);
    assert_eq!(slurm.patient().find(TOKEN).unwrap(), None);
    slurm.add_script(
        "sacct",
        &format!("printf '9\\037COMPLETED\\037n1\\0370:0\\0371\\0372\\037{comment}\\n'"),
    );
    assert_eq!(slurm.patient().find(TOKEN).unwrap(), Some(id("9")));
    slurm.add_script(
        "sacct",
        "echo 'sacct: error: Problem talking to the database' >&2; exit 1",
    );
    assert!(slurm.patient().find(TOKEN).is_err());
    assert!(slurm.patient().find("a b").is_err());
}

#[test]
fn an_answer_without_an_end_is_bounded() {
    let slurm = FakeSlurm::new();
    slurm.add_script("squeue", "exec yes");
    let error = slurm.patient().states(&[id("1")]).unwrap_err();
    assert!(
        matches!(error, SubmitError::TooMuchOutput { .. }),
        "{error:?}"
    );
}

#[test]
fn what_slurm_refuses_is_the_callers_to_mend() {
    let slurm = FakeSlurm::new();
    slurm.add_script(
        "sbatch",
        "echo 'sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified' >&2; exit 1",
    );
    let error = slurm
        .patient()
        .submit("#!/bin/sh\n", TOKEN, &[])
        .unwrap_err();
    let cause = match &error {
        SubmitError::Rejected { cause, .. } => *cause,
        other => panic!("{other:?}"),
    };
    assert_eq!(cause, RejectionCause::Account);
    assert_eq!(error.exit_code(), exit::BAD_INPUT);
    assert!(error.hint().unwrap().contains("account"));
    assert_eq!(slurm.calls("squeue"), 0, "it is known that there is none");
}

#[test]
fn cancelling_what_has_ended_is_no_error_and_what_is_others_is_one() {
    let slurm = FakeSlurm::new();
    slurm.add_script("scancel", "exit 0");
    slurm.patient().cancel(&id("5")).unwrap();
    slurm.add_script(
        "scancel",
        "echo 'scancel: error: Kill job error on job id 5: Invalid job id specified' >&2; exit 1",
    );
    slurm.patient().cancel(&id("5")).unwrap();
    slurm.add_script(
        "scancel",
        "echo 'scancel: error: Kill job error on job id 32: Access/permission denied' >&2; exit 1",
    );
    assert!(slurm.patient().cancel(&id("32")).is_err());
}

#[test]
fn a_machine_without_slurm_is_told_which_program_is_missing() {
    let slurm = FakeSlurm::new();
    let scheduler = SlurmScheduler::new(SlurmSettings {
        env: Env::from_variables([("PATH", slurm.folder.path())]),
        user_id: 1000,
        command_timeout: Duration::from_secs(60),
    });
    let error = scheduler.submit("#!/bin/sh\n", TOKEN, &[]).unwrap_err();
    assert_eq!(error.to_string(), "sbatch is not in PATH");
    assert_eq!(error.exit_code(), exit::RUN);
}
