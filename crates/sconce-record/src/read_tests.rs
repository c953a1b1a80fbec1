use super::*;
use proptest::prelude::*;
use sconce_schema::event::Sample;

/// A first line, as it is written.
const STARTED: &str = r#"{"t_us":0,"event":"started","format":1,"id":"digits-20261121-0034-7f3a","name":"digits","unix-ms":1795221240000,"command":["python","train.py"],"folder":"/home/ada/digits","mode":"container","sconce-pid":4123,"limits":{"cpus":2.0,"memory":4294967296},"host":{"hostname":"sun","kernel":"6.12.48","cpus":8,"memory":33554432000},"gpus":[]}"#;

fn open(text: &[u8]) -> Result<RecordReader<&[u8]>, RecordError> {
    RecordReader::new(text, Path::new("events.jsonl"))
}

#[test]
fn an_older_record_is_shown_without_secrets() {
    let older = STARTED.replace(r#""train.py"]"#, r#""train.py","--token","s3same"]"#);
    let text = format!("{older}\n");
    let record = open(text.as_bytes()).unwrap();
    let told = ["python", "train.py", "--token", "(masked)"];
    assert_eq!(record.started.command, told);
}

#[test]
fn what_was_written_is_read() {
    let text = format!(
        "{STARTED}\n{}\n{}\n{}\n",
        r#"{"t_us":5,"event":"unenforced","what":"memory","why":"no cgroup may be made"}"#,
        r#"{"t_us":1000000,"event":"sample","cpu-us":990000,"memory":4096}"#,
        r#"{"t_us":1500000,"event":"ended","exit":{"code":0},"last":{}}"#,
    );
    let record = open(text.as_bytes()).unwrap();
    assert_eq!(record.started.id, "digits-20261121-0034-7f3a");
    let lines: Vec<RecordLine> = record.map(Result::unwrap).collect();
    let times: Vec<u64> = lines.iter().map(|line| line.t_us).collect();
    assert_eq!(times, [5, 1_000_000, 1_500_000]);
    let RecordEvent::Sample(sample) = &lines[1].event else {
        panic!("{lines:?}");
    };
    assert_eq!(sample.cpu_us, Some(990_000));
    assert_eq!(sample.rss, None);
    assert!(matches!(lines[2].event, RecordEvent::Ended(_)));
}

#[test]
fn processes_are_told_to_those_who_look_at_them() {
    let text = format!(
        "{STARTED}\n{}\n{}\n{}\n",
        r#"{"t_us":1,"event":"sample","by-process":[{"pid":7,"name":"python","cpu-us":1}]}"#,
        r#"{"t_us":2,"event":"sample","by-process":[{"pid":7,"cpu-us":2}],"rss":5}"#,
        // As no writer writes it.
        r#"{"t_us":3, "event":"sample","by-process":[{"pid":7,"cpu-us":3}],"rss":5}"#,
    );
    let record = || open(text.as_bytes()).unwrap();
    let samples = |lines: Vec<Result<RecordLine, DamagedLine>>| -> Vec<Box<Sample>> {
        (lines.into_iter())
            .map(|line| match line.unwrap().event {
                RecordEvent::Sample(sample) => sample,
                other => panic!("{other:?}"),
            })
            .collect()
    };
    for with in [record().collect(), record().into_lines()] {
        let told: Vec<_> = (samples(with).into_iter())
            .map(|mut sample| sample.by_process.remove(0))
            .map(|process| (process.name, process.cpu_us))
            .collect();
        assert_eq!(told, [1, 2, 3].map(|us| ("python".to_owned(), us)));
    }
    let without = || record().without_processes();
    for without in [without().collect(), without().into_lines()] {
        let told: Vec<_> = (samples(without).into_iter())
            .map(|sample| (sample.by_process.len(), sample.rss.map(|rss| rss.0)))
            .collect();
        assert_eq!(told, [(0, None), (0, Some(5)), (0, Some(5))]);
    }
}

proptest! {
    /// What lies in memory as a whole is read in another way than a file, and says the same.
    #[test]
    fn lines_in_place_are_the_same_lines(
        pieces in proptest::collection::vec(
            proptest::sample::select(vec![
                r#"{"t_us":1,"event":"sample","cpu-us":17,"by-process":[{"pid":7}]}"#,
                r#"{"t_us":1,"event":"sample","by-process":[{"pid":-7}]}"#,
                r#"{"t_us":1,"event":"sample","by-process":[],"by-process":[]}"#,
                r#"{"t_us":1, "event":"sample"}"#,
                r#"{"t_us":2,"event":"unenforced","what":"memory","why":"no cgroup"}"#,
                r#"{"t_us":0,"event":"started","format":2,"id":"a","unix-ms":1,"command":[],"folder":"/","mode":"host","sconce-pid":1,"limits":{},"host":{"hostname":"","kernel":"","cpus":1,"memory":1},"gpus":[]}"#,
                "\n", "\r\n", " ", "{", "x", "\u{0}",
            ]),
            0..12,
        ),
        without: bool,
    ) {
        let text = format!("{STARTED}\n{}", pieces.concat().replace("}{", "}\n{"));
        let record = || match open(text.as_bytes()).unwrap() {
            record if without => record.without_processes(),
            record => record,
        };
        prop_assert_eq!(record().into_lines(), record().collect::<Vec<_>>());
    }
}

#[test]
fn a_torn_last_line_is_not_there() {
    let whole = format!(
        "{STARTED}\n{}",
        r#"{"t_us":1,"event":"sample","cpu-us":17}"#
    );
    for end in 0..=whole.len() {
        let Ok(record) = open(&whole.as_bytes()[..end]) else {
            assert!(end < STARTED.len(), "the first line is whole");
            continue;
        };
        let lines: Vec<_> = record.map(Result::unwrap).collect();
        assert_eq!(lines.len(), usize::from(end == whole.len()), "at {end}");
    }
}

#[test]
fn damage_is_named_and_the_rest_is_read() {
    let sample = r#"{"t_us":1,"event":"sample"}"#;
    let long = "x".repeat(MAX_LINE_BYTES + 1);
    let text = format!(
        "{STARTED}\n\n{sample}\n{{\"t_us\":\n{STARTED}\n{long}\n{}\n{sample}\n",
        r#"{"t_us":-1,"event":"sample"}"#
    );
    let (good, bad): (Vec<_>, Vec<_>) = open(text.as_bytes()).unwrap().partition(Result::is_ok);
    assert_eq!(good.len(), 2);
    let bad: Vec<String> = bad
        .into_iter()
        .map(|damage| damage.unwrap_err().to_string())
        .collect();
    assert_eq!(
        bad,
        [
            "line 4: not an event: EOF while parsing a value, at column 0",
            "line 5: a second `started`",
            "line 6: longer than 1048576 bytes",
            "line 7: not an event: invalid value: integer `-1`, expected u64, at column 10",
        ]
    );
}

#[test]
fn damages_beyond_a_bound_are_counted_and_no_text_of_them_is_long() {
    let sample = r#"{"t_us":1,"event":"sample"}"#;
    let bad = format!("{{\"t_us\":1,\"event\":\"{}\"}}\n", "x".repeat(1000));
    let text = format!("{STARTED}\n{}{sample}\n", bad.repeat(3000));
    let (good, bad): (Vec<_>, Vec<_>) = open(text.as_bytes()).unwrap().partition(Result::is_ok);
    assert_eq!(good.len(), 1);
    let bad: Vec<DamagedLine> = bad.into_iter().map(Result::unwrap_err).collect();
    assert_eq!(bad.len() as u64, MAX_DAMAGES + 1);
    assert_eq!(bad.iter().map(DamagedLine::count).sum::<u64>(), 3000);
    assert!(bad.iter().all(|damage| damage.to_string().len() < 400));
    let last = bad.last().unwrap().to_string();
    assert_eq!(last, "1976 more lines that cannot be read");
}

#[test]
fn what_has_no_end_is_read_so_far() {
    let mut record = open(format!("{STARTED}\n").as_bytes())
        .map(|_| ())
        .and_then(|()| {
            let endless = std::io::Cursor::new(format!("{STARTED}\n{{\"t_us\":1"))
                .chain(std::io::repeat(0))
                .take(1 << 40);
            RecordReader::new(BufReader::new(endless), Path::new("events.jsonl"))
        });
    let record = record.as_mut().unwrap();
    // As if most of it had been read: four gibibytes take seconds.
    record.lines.left = 3 << 20;
    let damages: Vec<String> = record.map(|line| line.unwrap_err().to_string()).collect();
    assert_eq!(
        damages,
        [
            "line 2: longer than 1048576 bytes",
            "line 2: cannot be read: larger than 4294967296 bytes"
        ]
    );
}

#[test]
fn what_is_no_record_is_refused() {
    let newer = STARTED.replace("\"format\":1", "\"format\":3,\"new-thing\":{}");
    let newer = open(newer.as_bytes()).err().unwrap();
    assert!(
        matches!(newer, RecordError::Newer { found: 3, .. }),
        "{newer}"
    );
    // As a store that a newer Sconce wrote (docs/exit-codes.md).
    let code = sconce_schema::Hint::exit_code(&newer);
    assert_eq!(code, sconce_schema::exit::STORE);
    for text in [
        "",
        "\n\n",
        "{}",
        "hello\n",
        r#"{"t_us":1,"event":"sample"}"#,
    ] {
        let error = open(text.as_bytes()).unwrap_err();
        assert!(matches!(error, RecordError::NotARecord { .. }), "{error}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(mut bytes: Vec<u8>, at in 0_usize..2_000) {
        let _ = open(&bytes).map(Iterator::count);
        // The same bytes in the middle of a good record.
        let mut text = format!("{STARTED}\n{STARTED}\n").into_bytes();
        let at = at.min(text.len());
        let rest = text.split_off(at);
        text.append(&mut bytes);
        text.extend(rest);
        let _ = open(&text).map(Iterator::count);
    }
}

/// The lines of a text after its first, by `serde_json` alone; of damaged ones their numbers.
fn by_serde(text: &[u8]) -> Vec<Result<RecordLine, u64>> {
    let mut told = Vec::new();
    for (at, line) in text.split_inclusive(|b| *b == b'\n').enumerate().skip(1) {
        match serde_json::from_slice::<RecordLine>(line) {
            _ if line.trim_ascii().is_empty() => {}
            Ok(line) if !matches!(line.event, RecordEvent::Started(_)) => told.push(Ok(line)),
            Err(_) if !line.ends_with(b"\n") => {}
            _ => told.push(Err(at as u64 + 1)),
        }
    }
    told
}

/// A writer that was killed at any byte, and a disk that changed one.
#[test]
fn a_record_cut_or_changed_at_each_byte_says_what_serde_says() {
    let real = include_str!("../../sconce-report/tests/records/digits.jsonl");
    let trained = r#"{"t_us":9,"event":"sample","by-process":[{"pid":7,"cpu-us":1}],"gpus":[{"memory-by-pid":{"7":1}}],"training":[{"pid":7,"recent":[[1,2,3,4,null]]}]}"#;
    let ends: Vec<usize> = real.match_indices('\n').map(|(at, _)| at + 1).collect();
    let (first, whole) = (ends[0], format!("{}{trained}\n", &real[..ends[2]]));
    let text = whole.as_bytes();
    let same = |text: &[u8], what: &str| {
        let told = |lines: Vec<Result<RecordLine, DamagedLine>>| -> Vec<Result<RecordLine, u64>> {
            (lines.into_iter())
                .map(|line| line.map_err(|damage| damage.line))
                .collect()
        };
        let mut expected = by_serde(text);
        // Names that a line leaves out are put back.
        let mut names = ProcessNames::default();
        for line in expected.iter_mut().flatten() {
            if let RecordEvent::Sample(sample) = &mut line.event {
                names.restore_omitted_details(sample);
            }
        }
        assert_eq!(told(open(text).unwrap().into_lines()), expected, "{what}");
        assert_eq!(told(open(text).unwrap().collect()), expected, "{what}");
    };
    for end in first..=text.len() {
        same(&text[..end], &format!("cut at {end}"));
    }
    for at in first..text.len() {
        let mut changed = text.to_vec();
        changed[at] ^= 1 << (at % 7);
        same(&changed, &format!("changed at {at}"));
    }
}
