use super::*;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use sconce_schema::Bytes;
use sconce_schema::event::{GpuInstance, GpuSample, Pressure, ProcessSample, RecordEvent, Sample};
use sconce_schema::training::{
    CollectiveTimes, DataLoaderCounters, EvaluationCounters, GpuAllocatorCounters, PhaseTimes,
    TrainingSample, TrainingStep,
};

/// Records of real runs, and two by hand with cards and ranks.
const RECORDS: [&str; 5] = [
    include_str!("../../sconce-report/tests/records/cards-made-by-hand.jsonl"),
    include_str!("../../sconce-report/tests/records/digits.jsonl"),
    include_str!("../../sconce-report/tests/records/out-of-memory.jsonl"),
    include_str!("../../sconce-report/tests/records/ranks-made-by-hand.jsonl"),
    include_str!("../../sconce-report/tests/records/throttled.jsonl"),
];

/// The line that `text` is.
fn line(text: &[u8]) -> Option<RecordLine> {
    let (line, rest) = super::parse_line(text, ProcessDetail::Read)?;
    matches!(rest, b"" | b"\n").then_some(line)
}

fn by_serde(text: &[u8]) -> Option<RecordLine> {
    serde_json::from_slice(text).ok()
}

/// A reading that has everything that one can have.
fn full() -> Sample {
    let bytes = |gib: u64| Some(Bytes(gib << 30));
    let phases = PhaseTimes {
        data_us: 1,
        copy_us: 0,
        forward_us: u64::MAX / 2,
        backward_us: 12_345_678,
        optimizer_us: 123_456_789,
        other_us: 87_654_321,
    };
    Sample {
        cpu_us: Some(0),
        throttled_us: Some(9),
        memory: bytes(1),
        memory_peak: bytes(2),
        cache: bytes(3),
        pss: bytes(4),
        rss: bytes(5),
        processes: Some(u32::MAX),
        threads: Some(1),
        read_bytes: Some(9_999_999_999_999_999_999),
        write_bytes: Some(10_000_000),
        shm: bytes(0),
        oom_kills: Some(99_999_999),
        pids_refused: Some(100_000_000),
        pressure: Some(Pressure {
            cpu_some_us: Some(1),
            memory_some_us: Some(2),
            memory_full_us: None,
            io_some_us: Some(4),
            io_full_us: Some(5),
        }),
        swap: bytes(6),
        cpus_busy_us: vec![0, 10, 12_345_678],
        received_bytes: Some(1),
        sent_bytes: Some(2),
        by_process: vec![
            ProcessSample {
                pid: 7,
                inner_pid: Some(1),
                parent: 3,
                name: "pŷthon".to_owned(),
                role: Some("main".to_owned()),
                cpu_us: 5,
                rss: Bytes(6),
                threads: 7,
            },
            ProcessSample::default(),
        ],
        gpus: vec![GpuSample {
            index: 3,
            utilisation_percent: Some(100),
            memory_utilisation_percent: Some(0),
            memory_used: bytes(7),
            memory_by_pid: [(7, Bytes(8)), (4_000_000, Bytes(9))].into(),
            power_mw: Some(1),
            energy_mj: Some(2),
            temperature_c: Some(3),
            sm_clock_mhz: Some(4),
            memory_clock_mhz: Some(5),
            pcie_received_bytes_per_s: Some(6),
            pcie_sent_bytes_per_s: Some(7),
            nvlink_received_bytes: Some(8),
            nvlink_sent_bytes: Some(9),
            xids: vec![31, 79],
            instances: vec![GpuInstance {
                uuid: "MIG-1".to_owned(),
                memory_used: bytes(1),
                memory: None,
            }],
            throttle: Some(vec!["sw-power-cap".to_owned()]),
        }],
        training: vec![
            TrainingSample {
                pid: 7,
                rank: Some(1),
                group: Some(2),
                cell: Some(3),
                steps: 4,
                wall_us: 5,
                phases,
                on_card: Some(phases),
                on_card_steps: Some(6),
                samples: Some(7),
                tokens: Some(8),
                flops_per_step: Some(9),
                loader: Some(DataLoaderCounters {
                    batches: 1,
                    empty: Some(2),
                    ready: Some(3),
                }),
                evaluation: Some(EvaluationCounters {
                    batches: 1,
                    wall_us: 2,
                }),
                card_memory: Some(GpuAllocatorCounters {
                    device: 1,
                    allocated: Bytes(2),
                    ..GpuAllocatorCounters::default()
                }),
                exchange: Some(CollectiveTimes {
                    communication_us: Some(1),
                    ..CollectiveTimes::default()
                }),
                phase: Some("forward".to_owned()),
                recent: vec![
                    TrainingStep {
                        step: 1,
                        rss: bytes(1),
                        ..TrainingStep::default()
                    },
                    TrainingStep::default(),
                ],
                heap: vec![(1, Bytes(2)), (2, Bytes(3))],
            },
            TrainingSample::default(),
        ],
        training_left_out: Some(1),
        nccl: Vec::new(),
    }
}

/// Every line that a writer made, as this reader and as `serde_json` reads it.
#[test]
fn a_writers_readings_are_read_as_serde_reads_them() {
    let full = RecordLine {
        t_us: 1_000_000,
        event: RecordEvent::Sample(Box::new(full())),
    };
    let text = serde_json::to_string(&full).unwrap();
    assert_eq!(line(text.as_bytes()), Some(full));
    let (mut samples, mut others) = (0, 0);
    for text in RECORDS.iter().flat_map(|record| record.lines()) {
        let known = by_serde(text.as_bytes()).unwrap();
        let told = line(text.as_bytes());
        if matches!(known.event, RecordEvent::Sample(_)) {
            assert!(told.is_some(), "{text}");
            samples += 1;
        } else {
            others += 1;
        }
        assert!(told.is_none_or(|told| told == known), "{text}");
    }
    assert!(samples > 100 && others > 10, "{samples}, {others}");
}

#[test]
fn what_no_writer_writes_is_left_to_serde() {
    let sample = |rest: &str| format!(r#"{{"t_us":1,"event":"sample"{rest}}}"#);
    for (rest, ours) in [
        ("", true),
        (r#","cpu-us":0"#, true),
        (r#","cpu-us":null"#, true),
        (r#","cpu-us":00"#, false),
        (r#","cpu-us":01"#, false),
        (r#","cpu-us":0000000000"#, false),
        (r#","cpu-us":-1"#, false),
        (r#","cpu-us":1.0"#, false),
        (r#","cpu-us":12345678.0"#, false),
        (r#","cpu-us":1e3"#, false),
        (r#","cpu-us":"1""#, false),
        (r#","cpu-us":18446744073709551615"#, false),
        (r#","cpu-us":18446744073709551616"#, false),
        (r#","cpu-us":1234567:"#, false),
        (r#","cpu-us":1234567/"#, false),
        (r#","cpu-us":"#, false),
        (r#","cpu-us": 1"#, false),
        (r#","cpu-us":1,"cpu-us":2"#, false),
        (r#","cpu-us":1,"#, false),
        (r#","processes":4294967296"#, false),
        (r#","memory":"4GiB""#, true),
        (r#","memory":4,"cpu-us":5"#, true),
        (r#","not-known":1"#, false),
        (r#","cpus-busy-us":[]"#, true),
        (r#","cpus-busy-us":[1,]"#, false),
        (r#","cpus-busy-us":[,1]"#, false),
        (r#","cpus-busy-us":[1 ,2]"#, false),
        (r#","pressure":{}"#, true),
        (r#","pressure":{"io-full-us":1,"cpu-some-us":2}"#, true),
        (r#","pressure":{"io-full-us":1,"io-full-us":2}"#, false),
        (r#","pressure":{"io-full-us":1,}"#, false),
        (r#","pressure":{,"io-full-us":1}"#, false),
        (r#","pressure":[1,2,3,4,5]"#, true),
        (r#","pressure":[1,2,3,4,5,6]"#, false),
        (r#","training":[{"recent":[[1,2,3,4]]}]"#, true),
        (r#","training":[{"phase":"\u0041"}]"#, false),
        (r#","training":[{"phase":"a	b"}]"#, false),
        (r#","gpus":[{"memory-by-pid":{"1":2,"1":3}}]"#, true),
        (r#","gpus":[{"memory-by-pid":{"-1":2}}]"#, false),
    ] {
        let text = sample(rest);
        let told = line(text.as_bytes());
        assert_eq!(told.is_some(), ours, "{text}");
        assert!(
            told.is_none() || told == by_serde(text.as_bytes()),
            "{text}"
        );
    }
    let whole = sample("");
    for text in [
        format!(" {whole}"),
        format!("{whole} "),
        format!("{whole}\n\n"),
        format!("{whole}x"),
        whole[..whole.len() - 1].to_owned(),
        String::new(),
        "[".repeat(100_000),
        "{".repeat(100_000),
    ] {
        assert_eq!(line(text.as_bytes()), None);
    }
    let name = br#"{"t_us":1,"event":"sample","training":[{"phase":"?"}]}"#;
    let broken: Vec<u8> = (name.iter())
        .map(|b| if *b == b'?' { 0xff } else { *b })
        .collect();
    assert!(line(name).is_some() && line(&broken).is_none());
}

#[test]
fn processes_are_left_out_of_a_reading_alone() {
    for (rest, left_out) in [
        (r#""by-process":[]"#, true),
        (
            r#""by-process":[{"pid":7,"name":"a"},{"pid":8}],"rss":1"#,
            true,
        ),
        (r#""by-process":[{"pid":-7}]"#, false),
        (r#""by-process":[7]"#, false),
        (r#""by-process":{}"#, false),
        (r#""by-process":[],"by-process":[]"#, false),
        (r#""gpus":[{"memory-by-pid":{"by-process":[]}}]"#, false),
    ] {
        let text = format!(r#"{{"t_us":1,"event":"sample",{rest}}}"#);
        let told = super::parse_line(text.as_bytes(), ProcessDetail::LeaveOut);
        assert_eq!(told.is_some(), left_out, "{text}");
        if let Some((line, _)) = told {
            let RecordEvent::Sample(sample) = line.event else {
                panic!("{text}");
            };
            assert!(sample.by_process.is_empty());
            assert_eq!(sample.rss.is_some(), rest.contains("rss"));
        }
    }
}

/// What a record may become on its way, and what may be put into one.
static PIECES: [&str; 24] = [
    "",
    "0",
    "9",
    "-",
    ".",
    "e1",
    "12345678",
    "18446744073709551616",
    "\"",
    "\\",
    ",",
    ":",
    "{",
    "}",
    "[",
    "]",
    "null",
    " ",
    "\n",
    "\u{1}",
    "ŷ",
    "{}",
    "[]",
    "\"cpu-us\":1",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]
    #[test]
    fn whatever_it_reads_is_what_serde_reads(
        at in any::<Index>(),
        changes in proptest::collection::vec((any::<Index>(), 0_usize..4, select(&PIECES[..])), 1..4),
    ) {
        let mut lines: Vec<String> =
            RECORDS.iter().flat_map(|record| record.lines()).map(str::to_owned).collect();
        lines.push(serde_json::to_string(&RecordLine {
            t_us: 5,
            event: RecordEvent::Sample(Box::new(full())),
        }).unwrap());
        let mut text = at.get(&lines).clone().into_bytes();
        for (place, gone, piece) in changes {
            let from = place.index(text.len() + 1);
            let to = (from + gone).min(text.len());
            text.splice(from..to, piece.bytes());
        }
        let told = line(&text);
        let known = by_serde(&text);
        prop_assert!(told.is_none() || told == known, "{}", String::from_utf8_lossy(&text));
        // Processes that are left out have to be what they say too.
        let Some((told, b"" | b"\n")) = super::parse_line(&text, ProcessDetail::LeaveOut) else {
            return Ok(());
        };
        let mut known = known.unwrap();
        if let RecordEvent::Sample(sample) = &mut known.event {
            sample.by_process.clear();
        }
        prop_assert_eq!(told, known);
    }

    #[test]
    fn eight_digits_are_a_number(number in 0_u64..100_000_000, at in 0_usize..8, byte: u8) {
        let mut text: [u8; 8] = format!("{number:08}").into_bytes().try_into().unwrap();
        prop_assert_eq!(eight_digits(text), Some(number));
        text[at] = byte;
        let known = std::str::from_utf8(&text).ok().filter(|text| !text.contains('+'));
        prop_assert_eq!(eight_digits(text), known.and_then(|text| text.parse().ok()));
    }
}
