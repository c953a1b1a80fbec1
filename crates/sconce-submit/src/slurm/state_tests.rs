use proptest::prelude::*;

use super::*;

/// What squeue of 22.05 wrote for [`squeue_args`], captured on a cluster of two nodes; the comment with a line end was
/// another job's of the same user.
const SQUEUE: &str = "2\u{1f}COMPLETED\u{1f}None\u{1f}n1\u{1f}0\u{1f}1795815403\u{1f}1795815403\u{1f}0\u{1f}sconce:xx\u{1e}\n\
    3\u{1f}COMPLETED\u{1f}None\u{1f}n2\u{1f}0\u{1f}1795815403\u{1f}1795815403\u{1f}0\u{1f}a|b\nc\u{1f}d\u{1e}\n\
    1\u{1f}FAILED\u{1f}NonZeroExitCode\u{1f}n1\u{1f}768\u{1f}1795815373\u{1f}1795815373\u{1f}0\u{1f}sconce:abc\u{1e}\n\
    23\u{1f}PENDING\u{1f}Priority\u{1f}\u{1f}0\u{1f}N/A\u{1f}N/A\u{1f}0\u{1f}(null)\u{1e}\n";

#[test]
fn rows_of_squeue_are_read() {
    let rows = parse_squeue(SQUEUE).unwrap();
    let seen: Vec<_> = rows
        .iter()
        .map(|row| (row.status.id.as_str(), &row.status.state, &*row.comment))
        .collect();
    assert_eq!(
        seen,
        [
            ("2", &JobState::Succeeded, "sconce:xx"),
            ("3", &JobState::Succeeded, "a|b c d"),
            ("1", &JobState::Failed, "sconce:abc"),
            ("23", &JobState::Waiting, "(null)"),
        ]
    );
    let failed = &rows[2].status;
    assert_eq!(failed.exit, Some(JobExit::Code(3)));
    assert_eq!(failed.nodes.as_deref(), Some("n1"));
    assert_eq!(failed.start_s, Some(1_795_815_373));
    assert_eq!(failed.reason.as_ref().unwrap().raw, "NonZeroExitCode");
    let waiting = &rows[3].status;
    assert_eq!((waiting.exit, waiting.start_s), (None, None));
    assert_eq!(waiting.nodes, None);
    let reason = waiting.reason.as_ref().unwrap();
    assert_eq!(reason.text, "other jobs are ahead of it");
    assert_eq!(parse_squeue("").unwrap(), []);
}

/// What squeue wrote for [`squeue_args`], captured on clusters of two nodes; a job that was killed, one over its memory
/// limit, and one that a node could not start (of another such cluster) are among them.
const SQUEUE_24_11: &str = "4_0\u{1f}COMPLETED\u{1f}None\u{1f}n2\u{1f}0:0\u{1f}1795847384\u{1f}1795847384\u{1f}0\u{1f}arr\u{1e}\n\
    2\u{1f}FAILED\u{1f}NonZeroExitCode\u{1f}n2\u{1f}3:0\u{1f}1795847384\u{1f}1795847384\u{1f}0\u{1f}two\u{1e}\n\
    3\u{1f}FAILED\u{1f}RaisedSignal:9(Killed)\u{1f}n2\u{1f}0:9\u{1f}1795847384\u{1f}1795847384\u{1f}0\u{1f}sig\u{1e}\n\
    6\u{1f}OUT_OF_MEMORY\u{1f}OutOfMemory\u{1f}n10\u{1f}0:125\u{1f}1795847384\u{1f}1795847384\u{1f}0\u{1f}oom\u{1e}\n\
    5\u{1f}PENDING\u{1f}BeginTime\u{1f}\u{1f}0:0\u{1f}1795848383\u{1f}NONE\u{1f}0\u{1f}(null)\u{1e}\n";
const SQUEUE_26_05: &str = "1\u{1f}COMPLETED\u{1f}None\u{1f}n[2,10]\u{1f}0:0\u{1f}1795847338\u{1f}1795847340\u{1f}0\u{1f}sconce:demo-20261128-0628-2fd300\u{1e}\n\
    2\u{1f}FAILED\u{1f}NonZeroExitCode\u{1f}n2\u{1f}3:0\u{1f}1795847341\u{1f}1795847341\u{1f}0\u{1f}two\u{1e}\n\
    3\u{1f}FAILED\u{1f}RaisedSignal:9(Killed)\u{1f}n2\u{1f}0:9\u{1f}1795847341\u{1f}1795847341\u{1f}0\u{1f}sig\u{1e}\n\
    7\u{1f}OUT_OF_MEMORY\u{1f}OutOfMemory\u{1f}n2\u{1f}0:125\u{1f}1795847344\u{1f}1795847344\u{1f}0\u{1f}oom\u{1e}\n\
    8\u{1f}RUNNING\u{1f}None\u{1f}n2\u{1f}0:0\u{1f}1795847344\u{1f}NONE\u{1f}0\u{1f}run\u{1e}\n\
    11\u{1f}PENDING\u{1f}user env retrieval failed requeued held\u{1f}\u{1f}0:0\u{1f}1795847261\u{1f}NONE\u{1f}1\u{1f}sconce:demo-20261128-0625-d72ec3\u{1e}\n";

#[test]
fn rows_of_newer_squeues_are_read() {
    let read = |text| {
        let rows = parse_squeue(text).unwrap();
        let seen = rows.into_iter().map(|row| {
            let id = row.status.id.as_str().to_owned();
            (id, row.status.state, row.status.exit)
        });
        seen.collect::<Vec<_>>()
    };
    let row = |id: &str, state, exit| (id.to_owned(), state, exit);
    let killed = Some(JobExit::Signal(9));
    let failed = Some(JobExit::Code(3));
    // Slurm's own number for it, which is no signal.
    let oom = Some(JobExit::Signal(125));
    assert_eq!(
        read(SQUEUE_24_11),
        [
            row("4_0", JobState::Succeeded, Some(JobExit::Code(0))),
            row("2", JobState::Failed, failed),
            row("3", JobState::Failed, killed),
            row("6", JobState::OutOfMemory, oom),
            row("5", JobState::Waiting, None),
        ]
    );
    assert_eq!(
        read(SQUEUE_26_05),
        [
            row("1", JobState::Succeeded, Some(JobExit::Code(0))),
            row("2", JobState::Failed, failed),
            row("3", JobState::Failed, killed),
            row("7", JobState::OutOfMemory, oom),
            row("8", JobState::Running, None),
            row("11", JobState::Waiting, None),
        ]
    );
    let rows = parse_squeue(SQUEUE_26_05).unwrap();
    let running = &rows[4].status;
    assert_eq!(
        (running.start_s, running.end_s),
        (Some(1_795_847_344), None)
    );
    let held = rows[5].status.reason.as_ref().unwrap();
    assert!(held.text.contains("`scontrol release`"), "{}", held.text);
}

#[test]
fn rows_of_sacct_are_read() {
    let row = |fields: [&str; 7]| format!("{}\n", fields.join("\u{1f}"));
    let text = row([
        "7",
        "CANCELLED by 1000",
        "n[1-2]",
        "0:15",
        "1795815403",
        "1795815500",
        "sconce:t",
    ]) + &row([
        "8",
        "OUT_OF_MEMORY",
        "n1",
        "0:125",
        "1795815403",
        "Unknown",
        "two",
    ]) + "lines\n"
        + &row(["9", "COMPLETED", "n1", "0:0", "1", "2", ""]);
    let rows = parse_sacct(&text).unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0].status.state, JobState::Cancelled);
    assert_eq!(rows[0].status.exit, Some(JobExit::Signal(15)));
    assert_eq!(rows[1].status.state, JobState::OutOfMemory);
    assert_eq!(rows[1].status.end_s, None);
    assert_eq!(rows[1].comment, "two lines");
    assert_eq!(rows[2].status.exit, Some(JobExit::Code(0)));
    assert!(parse_sacct("sacct: something new\n").is_err());
    assert_eq!(parse_sacct("\n").unwrap(), []);
}

#[test]
fn elements_of_an_array_are_rows() {
    let squeue =
        "4711_3\u{1f}RUNNING\u{1f}None\u{1f}n1\u{1f}0\u{1f}1\u{1f}2\u{1f}0\u{1f}sconce:x\u{1e}\n";
    let rows = parse_squeue(squeue).unwrap();
    assert_eq!(rows[0].status.id.as_str(), "4711_3");
    let ids = |id: &str| -> Vec<String> {
        let row = format!("{id}\u{1f}CANCELLED by 7\u{1f}\u{1f}0:0\u{1f}1\u{1f}2\u{1f}sconce:x\n");
        let rows = parse_sacct(&row).unwrap_or_default();
        rows.iter().map(|row| row.status.id.to_string()).collect()
    };
    assert_eq!(ids("4711_3"), ["4711_3"]);
    assert_eq!(ids("4711_[2-3,9%2]"), ["4711_2", "4711_3", "4711_9"]);
    assert_eq!(ids("4711_[5]"), ["4711_5"]);
    assert!(ids("4711_[0-4000000000]").is_empty());
}

#[test]
fn every_state_of_the_manual_has_its_word_long_and_compact() {
    for (words, state) in [
        (
            "PENDING PD REQUEUED RQ REQUEUE_HOLD RH REQUEUE_FED RF RESV_DEL_HOLD RD SPECIAL_EXIT SE",
            JobState::Waiting,
        ),
        ("CONFIGURING CF", JobState::Starting),
        ("RUNNING R RESIZING RS SIGNALING SI", JobState::Running),
        ("SUSPENDED S STOPPED ST", JobState::Suspended),
        ("COMPLETING CG STAGE_OUT SO", JobState::Ending),
        ("COMPLETED CD", JobState::Succeeded),
        ("FAILED F", JobState::Failed),
        ("CANCELLED CA CANCELLED+ REVOKED RV", JobState::Cancelled),
        ("TIMEOUT TO DEADLINE DL", JobState::TimedOut),
        ("OUT_OF_MEMORY OOM OUT_OF_ME+", JobState::OutOfMemory),
        ("NODE_FAIL NF BOOT_FAIL BF", JobState::NodeFailed),
        ("PREEMPTED PR", JobState::Preempted),
    ] {
        for word in words.split(' ') {
            assert_eq!(parse_state(word), state, "{word}");
        }
    }
    let unknown = parse_state("BRAND_NEW \u{1b}[31m");
    assert_eq!(unknown.name(), "BRAND_NEW  [31m");
    assert!(!unknown.is_final());
}

#[test]
fn a_code_0_that_no_script_gave_is_none() {
    let row = |state: &str, status: u32| {
        format!(
            "1\u{1f}{state}\u{1f}Resources\u{1f}n1\u{1f}{status}\u{1f}1\u{1f}2\u{1f}0\u{1f}\u{1e}\n"
        )
    };
    let read = |state, status| parse_squeue(&row(state, status)).unwrap().remove(0).status;
    assert_eq!(read("COMPLETED", 0).exit, Some(JobExit::Code(0)));
    assert_eq!(read("RUNNING", 0).exit, None);
    assert_eq!(read("CANCELLED", 0).exit, None);
    assert_eq!(read("CANCELLED", 15).exit, Some(JobExit::Signal(15)));
    assert_eq!(read("NODE_FAIL", 0).exit, None);
    assert_eq!(read("CANCELLED", 0).reason, None);
    assert!(read("PENDING", 0).reason.is_some());
}

#[test]
fn an_answer_that_is_none_is_no_empty_queue() {
    for text in [
        "slurm_load_jobs error: Unable to contact slurm controller",
        "1\u{1f}RUNNING\u{1e}\n",
        "-1\u{1f}RUNNING\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1f}\u{1e}\n",
        &SQUEUE[..SQUEUE.len() - 2],
        "<html>busy</html>\u{1e}",
    ] {
        assert!(parse_squeue(text).is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn mutated_text_is_read_or_refused(
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), any::<char>()), 0..6),
    ) {
        let mut text: Vec<char> = SQUEUE.chars().collect();
        for (at, c) in cuts {
            let at = at.index(text.len());
            text[at] = c;
        }
        let text: String = text.into_iter().collect();
        for rows in [parse_squeue(&text), parse_sacct(&text)].into_iter().flatten() {
            for row in rows {
                prop_assert!(!row.comment.contains(sconce_base::text::is_unprintable));
            }
        }
    }
}
