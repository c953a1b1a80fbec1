//! Whole reports, from records to text.
//!
//! `digits`, `out-of-memory` and `throttled` are records of real runs of `examples/digits` (two
//! cores; the folder and the machine's name are changed). `cards-made-by-hand` was not recorded
//! on cards.

use std::path::{Path, PathBuf};

use insta::assert_snapshot;
use proptest::prelude::*;
use sconce_record::{RecordError, RecordReader, RunEntry, RunListing, RunState};
use sconce_report::terminal::{self, TerminalStyle};
use sconce_report::{RunEnd, RunReport, json};
use sconce_schema::event::{RecordEvent, RecordLine};

const DIGITS: &str = include_str!("../records/digits.jsonl");
const OUT_OF_MEMORY: &str = include_str!("../records/out-of-memory.jsonl");
const THROTTLED: &str = include_str!("../records/throttled.jsonl");
const CARDS: &str = include_str!("../records/cards-made-by-hand.jsonl");

const WIDE: TerminalStyle = TerminalStyle {
    color: false,
    width: 100,
};

fn report(text: &str) -> RunReport {
    let record = RecordReader::new(text.as_bytes(), Path::new("events.jsonl"));
    RunReport::from_record(record.expect("it begins as a record"))
}

/// The first `lines` lines, as a kill would leave them.
fn beginning(text: &str, lines: usize) -> String {
    text.split_inclusive('\n').take(lines).collect()
}

fn shown(text: &str, style: TerminalStyle) -> String {
    let text = terminal::render_report(&report(text), style);
    let longest = text.lines().map(|line| line.chars().count()).max();
    assert!(
        style.color || longest <= Some(usize::from(style.width.max(40))),
        "{text}"
    );
    text
}

#[test]
fn a_run_on_two_cores() {
    assert_snapshot!(shown(DIGITS, WIDE));
}

#[test]
fn a_run_in_a_narrow_terminal() {
    let narrow = TerminalStyle {
        color: false,
        width: 60,
    };
    assert_snapshot!(shown(DIGITS, narrow));
}

#[test]
fn a_run_in_colour() {
    let colour = TerminalStyle {
        color: true,
        width: 100,
    };
    assert_snapshot!(shown(OUT_OF_MEMORY, colour).replace('\u{1b}', "\\e"));
    assert_snapshot!(shown(CARDS, colour).replace('\u{1b}', "\\e"));
    assert_snapshot!(terminal::render_run_list(&listing(), colour).replace('\u{1b}', "\\e"));
}

#[test]
fn a_run_that_the_kernel_killed() {
    assert_snapshot!(shown(OUT_OF_MEMORY, WIDE));
}

#[test]
fn a_run_that_its_limit_held_back() {
    assert_snapshot!(shown(THROTTLED, WIDE));
}

#[test]
fn a_run_with_cards() {
    assert_snapshot!(shown(CARDS, WIDE));
}

#[test]
fn a_run_that_was_interrupted() {
    assert_snapshot!(shown(&beginning(CARDS, 12), WIDE));
}

#[test]
fn a_run_that_goes_on() {
    let record = RecordReader::new(DIGITS.as_bytes(), Path::new("events.jsonl"));
    let mut record = record.unwrap();
    record.running = true;
    let ended = RunReport::from_record(record);
    assert_eq!(
        ended.end,
        RunEnd::Exited(0),
        "the last line counts more than the lock"
    );

    let text = beginning(DIGITS, 4);
    let mut record = RecordReader::new(text.as_bytes(), Path::new("events.jsonl")).unwrap();
    record.running = true;
    let text = terminal::render_report(&RunReport::from_record(record), WIDE);
    assert!(text.contains("still running"), "{text}");
    assert!(text.contains("so far"), "{text}");
}

#[test]
fn a_run_too_short_for_an_average() {
    let end = r#"{"t_us":4000,"event":"ended","exit":{"code":0},"last":{"cpu-us":11000},"largest-process":7340032}"#;
    let text = format!("{}{end}\n", beginning(DIGITS, 1));
    assert_eq!(report(&text).cpu.mean_cores, None);
    let shown = shown(&text, WIDE);
    assert!(shown.contains("11 ms of CPU time\n"), "{shown}");
    assert!(
        shown.contains("memory        7 MiB in its largest process"),
        "{shown}"
    );
}

#[test]
fn a_run_of_which_nothing_was_measured() {
    let started = r#"{"t_us":0,"event":"started","format":1,"id":"run-20261121-0034-7f3a","unix-ms":1795221240000,"command":["sh","-c","exit 3 # \u001b[2J"],"folder":"/home/ada","mode":"host","sconce-pid":1,"limits":{"memory":536870912,"cpus":0.5},"host":{"hostname":"sun","kernel":"6.12.48","cpus":1,"memory":2147483648},"gpus":[{"index":0,"uuid":"GPU-1","name":"Tesla V100"}]}"#;
    let rest = r#"{"t_us":4,"event":"unenforced","what":"memory","why":"this user may not make cgroups","hint":"ask for a user session of systemd"}
{"t_us":5,"event":"unenforced","what":"cpus","why":"this user may not make cgroups"}
not an event
{"t_us":90000,"event":"ended","exit":{"code":3},"last":{}}"#;
    let text = format!("{started}\n{rest}\n");
    assert_snapshot!(shown(&text, WIDE));
    // Nothing that was not measured is a number, here or in JSON.
    assert_snapshot!(json::render_report(&report(&text)));
}

#[test]
fn a_report_as_json() {
    assert_snapshot!(json::render_report(&report(CARDS)));
}

#[test]
fn what_set_the_container_up_is_named() {
    let runtime = |record: &str| {
        let report: serde_json::Value =
            serde_json::from_str(&json::render_report(&report(record))).unwrap();
        report["run"]["runtime"].clone()
    };
    let of =
        |name: &str, version: Option<&str>| serde_json::json!({"name": name, "version": version});
    assert_eq!(runtime(DIGITS), of("sconce", None));
    let host = DIGITS.replacen(r#""mode":"container""#, r#""mode":"host""#, 1);
    assert_eq!(runtime(&host), of("host", None));
    for (name, version) in [
        ("runc", "1.1.12"),
        ("crun", "1.8.1"),
        ("podman", "4.3.1"),
        ("docker", "20.10.24"),
    ] {
        let by =
            format!(r#""runtime":{{"name":"{name}","version":"{version}"}},"mode":"container""#);
        let record = DIGITS.replacen(r#""mode":"container""#, &by, 1);
        assert_eq!(runtime(&record), of(name, Some(version)));
        let text = shown(&record, WIDE);
        assert!(text.contains(&format!("by {name} {version}")), "{text}");
    }
}

#[test]
fn kills_in_words() {
    let ended = |end: &str| {
        let text = format!("{}{end}\n", beginning(OUT_OF_MEMORY, 3));
        let text = terminal::render_report(
            &report(&text),
            TerminalStyle {
                color: false,
                width: 300,
            },
        );
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("ended"));
        line.map(|line| line.trim().to_owned()).unwrap()
    };
    for (exit, out_of_memory, words) in [
        (r#"{"signal":15}"#, "", "asked to end (SIGTERM)"),
        (r#"{"signal":9}"#, "", "killed (SIGKILL)"),
        (r#"{"signal":64}"#, "", "ended (signal 64)"),
        (r#"{"code":137}"#, "", "exit code 137 (128 + SIGKILL)"),
        (r#"{"code":1}"#, "", "exit code 1"),
        (
            r#"{"signal":9}"#,
            r#","out-of-memory":{"limit":536870912,"kills":1}"#,
            "killed by the kernel: out of memory, the run's own limit of 512 MiB was hit (1 process killed)",
        ),
        (
            r#"{"code":1}"#,
            r#","out-of-memory":{"limit":536870912,"kills":2}"#,
            "exit code 1 after the kernel killed 2 processes: out of memory, the run's own limit of 512 MiB was hit",
        ),
        (
            r#"{"signal":9}"#,
            r#","out-of-memory":{"kills":1}"#,
            "killed by the kernel: out of memory, not by the run's own limit (1 process killed)",
        ),
    ] {
        let line =
            format!(r#"{{"t_us":9,"event":"ended","exit":{exit},"last":{{}}{out_of_memory}}}"#);
        assert_eq!(ended(&line), words);
    }
}

#[test]
fn a_signal_that_no_kernel_has() {
    for signal in [i32::MAX, i32::MIN, -1] {
        let ended =
            format!(r#"{{"t_us":9,"event":"ended","exit":{{"signal":{signal}}},"last":{{}}}}"#);
        let report = report(&format!("{}{ended}\n", beginning(DIGITS, 3)));
        let value: serde_json::Value = serde_json::from_str(&json::render_report(&report)).unwrap();
        assert_eq!(value["end"]["signal"], signal);
    }
}

/// A listing of the records above, as if they were files.
fn listing() -> RunListing {
    let entry = |text: &str| {
        let record =
            RecordReader::new(text.as_bytes(), Path::new("events.jsonl")).expect("a record");
        let started = record.started.clone();
        let last = record.last().and_then(Result::ok);
        let state = match &last {
            Some(line) if matches!(line.event, RecordEvent::Ended(_)) => RunState::Ended,
            _ => RunState::Interrupted,
        };
        RunEntry {
            path: PathBuf::from("events.jsonl"),
            started,
            state,
            last,
        }
    };
    RunListing {
        runs: vec![
            entry(CARDS),
            entry(&beginning(THROTTLED, 1)),
            entry(&beginning(DIGITS, 6)),
            entry(OUT_OF_MEMORY),
        ],
        unreadable: vec![RecordError::Newer {
            path: PathBuf::from("runs/later/events.jsonl"),
            found: 7,
        }],
    }
}

#[test]
fn a_list_of_runs() {
    assert_snapshot!(terminal::render_run_list(&listing(), WIDE));
    assert_snapshot!(json::render_run_list(&listing()));
    let none = terminal::render_run_list(&RunListing::default(), WIDE);
    assert_eq!(none, "No run has been recorded.\n");
    let fits = |columns: u16| {
        let style = TerminalStyle {
            color: false,
            width: columns,
        };
        let text = terminal::render_run_list(&listing(), style);
        let rows: Vec<String> = text.lines().take(5).map(ToOwned::to_owned).collect();
        let widest = rows.iter().map(|row| row.chars().count()).max();
        assert!(widest <= Some(usize::from(columns)), "{text}");
        rows.join("\n")
    };
    let narrow = fits(80);
    assert!(narrow.contains("resnet50-20261121-0900-b0a7") && narrow.contains("COMMAND"));
    assert!(!narrow.contains("BEGAN") && narrow.contains("exit 0"));
    let piped = fits(u16::MAX);
    assert!(piped.contains("BEGAN") && !piped.contains('…'), "{piped}");
}

#[test]
fn hints_name_the_option() {
    let hints = |text: &str| report(text).hints().join("\n");
    assert_eq!(hints(DIGITS), "");
    assert!(shown(OUT_OF_MEMORY, WIDE).contains("--memory 1GiB"));
    assert!(shown(THROTTLED, WIDE).contains("--cpus"));
    let full = DIGITS.replace(r#""shm":1073741824"#, r#""shm":1048576"#);
    assert!(hints(&full).contains("--shm-size"));
    let refused = DIGITS.replace(r#""pids-refused":0"#, r#""pids-refused":3"#);
    assert!(hints(&refused).contains("--pids"));
    let absent = DIGITS.replace(r#""exit":{"code":0}"#, r#""exit":{"code":127}"#);
    assert!(hints(&absent).contains("`python`"));
    let hostile = absent.replacen(r#""python""#, r#""\u001b[2Jpy\r""#, 1);
    let told = hints(&hostile);
    assert!(
        told.contains("[2Jpy") && !told.contains(char::is_control),
        "{told:?}"
    );
}

/// Numbers as a hostile or a broken record has them.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        0_u64..10_000_000,
        any::<u64>()
    ]
}

/// A line of a record with some fields in it.
fn line() -> impl Strategy<Value = String> {
    let field = (
        prop::sample::select(vec![
            "cpu-us",
            "throttled-us",
            "memory",
            "memory-peak",
            "cache",
            "pss",
            "rss",
            "read-bytes",
            "write-bytes",
            "shm",
            "oom-kills",
            "pids-refused",
        ]),
        number(),
    );
    let card = (0_u32..4, number(), number(), any::<u32>(), "\\PC{0,9}").prop_map(
        |(index, bytes, energy, watts, reason)| {
            let reason = serde_json::to_string(&reason).expect("a text");
            format!(
                r#"{{"index":{index},"memory-used":{bytes},"memory-by-pid":{{"7":{bytes},"8":{bytes}}},"energy-mj":{energy},"power-mw":{watts},"utilisation-percent":{watts},"throttle":[{reason}]}}"#
            )
        },
    );
    let fields = prop::collection::btree_map(field.0, field.1, 0..12);
    (number(), fields, prop::collection::vec(card, 0..3), any::<bool>(), any::<i32>()).prop_map(
        |(t_us, fields, cards, ends, signal)| {
            let mut sample: Vec<String> = (fields.iter())
                .map(|(name, value)| format!(r#""{name}":{value}"#))
                .collect();
            sample.push(format!(r#""gpus":[{}]"#, cards.join(",")));
            let sample = sample.join(",");
            if ends {
                format!(r#"{{"t_us":{t_us},"event":"ended","exit":{{"signal":{signal}}},"last":{{{sample}}}}}"#)
            } else {
                format!(r#"{{"t_us":{t_us},"event":"sample",{sample}}}"#)
            }
        },
    )
}

proptest! {
    #[test]
    fn every_generated_line_is_an_event(line in line()) {
        prop_assert!(serde_json::from_str::<RecordLine>(&line).is_ok(), "{}", line);
    }

    #[test]
    fn no_record_panics(
        lines in prop::collection::vec(line(), 0..30),
        width: u16,
        color: bool,
        first in prop::sample::select(vec![DIGITS, CARDS]),
    ) {
        let text = format!("{}{}\n", beginning(first, 1), lines.join("\n"));
        let report = report(&text);
        let style = TerminalStyle { color, width };
        let shown = terminal::render_report(&report, style);
        prop_assert!(shown.ends_with('\n'));
        if !color {
            let steers = |c: char| c.is_control() && c != '\n';
            prop_assert!(!shown.contains(steers), "{:?}", shown);
        }
        let value: serde_json::Value = serde_json::from_str(&json::render_report(&report)).expect("JSON");
        prop_assert_eq!(&value["format"], 1);
    }
}

/// A run of services alone has no command: what it ran, how that went and why it ended are its services'.
#[test]
fn a_run_of_services_alone() {
    let text = r#"{"t_us":0,"event":"started","format":2,"id":"demo-1","name":"demo","unix-ms":1795338000000,"command":[],"folder":"/home/ada/demo","mode":"container","sconce-pid":1,"limits":{},"host":{"hostname":"sun","kernel":"6.12","cpus":2,"memory":1073741824},"gpus":[]}
{"t_us":10000,"event":"service","name":"web","state":"starting","starts":1}
{"t_us":20000,"event":"service","name":"bad","state":"running","starts":1}
{"t_us":400000,"event":"service","name":"web","state":"healthy","starts":1,"open":["http://127.0.0.1:8888/lab"]}
{"t_us":500000,"event":"service","name":"bad","state":"restarting","starts":4,"exit":{"code":3},"again-ms":8000}
{"t_us":9000000,"event":"service","name":"bad","state":"failed","starts":5,"exit":{"code":3},"why":"it ended 5 times soon after its start"}
{"t_us":9500000,"event":"service","name":"web","state":"ended","starts":1,"exit":{"signal":15}}
{"t_us":9600000,"event":"ended","exit":{"code":1},"last":{}}
"#;
    assert_snapshot!(shown(text, WIDE));
    let value: serde_json::Value =
        serde_json::from_str(&json::render_report(&report(text))).unwrap();
    assert_eq!(value["services"][1]["starts"], 5);
    assert_eq!(value["services"][1]["last_exit"]["exit_code"], 3);
    assert_eq!(value["services"][0]["open"][0], "http://127.0.0.1:8888/lab");
    // While it goes on there is no end yet, and what there is, is told.
    let running = beginning(text, 5);
    let told = shown(&running, WIDE);
    assert!(told.contains("bad · restarting"), "{told}");
    assert!(told.contains("started again 3 times"), "{told}");
}
