//! What disks and kills do to a record.

use sconce_schema::Hint;
use sconce_schema::event::{Containment, HostSummary, ProcessSample, RecordLine, Sample};
use sconce_schema::request::RunLimits;

use super::*;
use crate::read::open_record;

fn started() -> RunStarted {
    RunStarted {
        format: sconce_schema::event::FORMAT,
        id: "a".to_owned(),
        name: None,
        unix_ms: 1,
        command: Vec::new(),
        folder: PathBuf::from("/"),
        mode: Containment::Host,
        sconce_pid: 1,
        limits: RunLimits::default(),
        versions: None,
        plan: None,
        near: None,
        network: None,
        way_out: None,
        runtime: None,
        containment: None,
        node_network: None,
        host: HostSummary::default(),
        gpus: Vec::new(),
    }
}

#[test]
fn secrets_of_a_command_line_are_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        "env",
        "HF_TOKEN=s3same",
        "train.py",
        "--db-password",
        "s3same",
        "x://me:s3same@h",
    ];
    let mut begun = started();
    begun.command = words.map(str::to_owned).into();
    let mut writer = RecordWriter::create(dir.path(), &begun).unwrap();
    let oom = GpuOutOfMemory {
        message: Some("at https://me:s3same@h/".to_owned()),
        ..GpuOutOfMemory::default()
    };
    writer
        .write_event(1, &RecordEvent::CardOutOfMemory(Box::new(oom)))
        .unwrap();
    let text = fs::read_to_string(writer.path()).unwrap();
    assert!(
        !text.contains("s3same") && text.matches("(masked)").count() == 4,
        "{text}"
    );
    assert!(
        text.contains(r#"["env","HF_TOKEN=(masked)","train.py","--db-password","(masked)""#),
        "{text}"
    );
}

fn sample(n: u64) -> RecordEvent {
    let process = ProcessSample {
        pid: 7,
        parent: 1,
        name: "python".to_owned(),
        cpu_us: n,
        ..ProcessSample::default()
    };
    RecordEvent::Sample(Box::new(Sample {
        cpu_us: Some(n),
        by_process: vec![process],
        ..Sample::default()
    }))
}

/// Everything in the record, and what is damaged.
fn all(folder: &Path) -> (Vec<RecordLine>, Vec<String>) {
    let (good, bad): (Vec<_>, Vec<_>) = open_record(folder).unwrap().partition(Result::is_ok);
    let bad = bad
        .into_iter()
        .map(|damage| damage.unwrap_err().to_string());
    (
        good.into_iter().map(Result::unwrap).collect(),
        bad.collect(),
    )
}

/// A record of `lines` samples in which a file is closed when it holds `close_at` bytes.
fn written(dir: &Path, lines: u64, close_at: u64) -> RecordWriter {
    let mut writer = RecordWriter::create(dir, &started()).unwrap();
    for n in 0..lines {
        writer.close_at = close_at;
        writer.write_event(n, &sample(n)).unwrap();
    }
    writer
}

fn expected(lines: u64) -> Vec<RecordLine> {
    let line = |n| RecordLine {
        t_us: n,
        event: sample(n),
    };
    (0..lines).map(line).collect()
}

#[test]
fn a_full_disk_is_an_error_once() {
    let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
    let mut writer = RecordWriter {
        log: AppendFile::new(full),
        path: PathBuf::from("/dev/full"),
        started: Box::new(started()),
        part: 1,
        close_at: segments::ROTATE_AT_BYTES,
        names: ProcessNames::default(),
        room: ReservedTail::default(),
        lost: 0,
    };
    let sample = RecordEvent::Sample(Box::default());
    let error = writer.write_event(1, &sample).unwrap_err();
    assert_eq!(error.to_string(), "cannot write /dev/full");
    assert!(error.hint().unwrap().contains("the run itself goes on"));
    writer.write_event(2, &sample).unwrap();
    writer.write_event(3, &sample).unwrap();
    assert_eq!(writer.lost_event_count(), 3);
}

#[test]
fn parts_and_the_file_are_read_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let writer = written(dir.path(), 40, 900);
    let folder = dir.path().join("a");
    assert!(writer.part > 3, "{}", writer.part);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), writer.part as usize);
    assert_eq!(all(&folder), (expected(40), vec![]));
    assert!(open_record(&folder).unwrap().running);
    let listed = crate::list_runs(dir.path()).unwrap().runs.remove(0);
    assert_eq!(listed.last.unwrap().t_us, 39);
    drop(writer);
    assert!(!open_record(&folder).unwrap().running);
}

#[test]
fn a_kill_at_each_step_of_the_change_over_leaves_every_line_once() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("a");
    let writer = written(dir.path(), 20, 600);
    let (whole, parts_before) = (expected(20), writer.part);
    assert!(parts_before > 1);
    let hidden = folder.join(format!(".{}", segments::file_name(writer.part)));

    // Killed in the middle of making the part: each beginning of it.
    segments::compress(&writer.path, &hidden).unwrap();
    let bytes = fs::read(&hidden).unwrap();
    for end in 0..bytes.len() {
        fs::write(&hidden, &bytes[..end]).unwrap();
        assert_eq!(all(&folder), (whole.clone(), vec![]), "at {end}");
    }
    // The part has its name, the file is still the old one.
    writer.keep_part().unwrap();
    assert!(!hidden.exists());
    assert_eq!(all(&folder), (whole.clone(), vec![]));
    // The new file is half made.
    let next = folder.join(format!(".{FILE}"));
    fs::write(&next, "{\"t_us\":0,\"eve").unwrap();
    assert_eq!(all(&folder), (whole.clone(), vec![]));
    // The one that is killed and the one that goes on: the same lines.
    let mut writer = writer;
    writer.close(20, &sample(20)).unwrap();
    assert_eq!(writer.part, parts_before + 1);
    assert_eq!(all(&folder), (expected(21), vec![]));
    assert!(!next.exists());
}

#[test]
fn a_part_that_cannot_be_made_loses_no_line() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = written(dir.path(), 3, u64::MAX);
    let folder = dir.path().join("a");
    // Its name is taken by a folder.
    fs::create_dir(folder.join(segments::file_name(1))).unwrap();
    fs::write(folder.join(segments::file_name(1)).join("x"), "").unwrap();
    writer.close_at = 1;
    writer.write_event(3, &sample(3)).unwrap();
    assert_eq!((writer.part, writer.lost_event_count()), (1, 0));
    assert!(
        writer.close_at > segments::ROTATE_AT_BYTES / 2,
        "not at each line"
    );
    assert_eq!(all(&folder), (expected(4), vec![]));
}

#[test]
fn a_part_cut_at_each_byte_is_named_and_the_rest_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let writer = written(dir.path(), 12, 600);
    let folder = dir.path().join("a");
    let part = folder.join(segments::file_name(1));
    let whole = fs::read(&part).unwrap();
    let after: Vec<RecordLine> = {
        fs::remove_file(&part).unwrap();
        let (lines, damage) = all(&folder);
        assert_eq!(damage, ["part 1: missing"]);
        lines
    };
    assert!(!after.is_empty() && after.len() < 12);
    for end in 0..whole.len() {
        fs::write(&part, &whole[..end]).unwrap();
        let (lines, damage) = all(&folder);
        assert_eq!(damage.len(), 1, "at {end}: {damage:?}");
        assert!(damage[0].starts_with("part 1"), "{damage:?}");
        assert!(lines.ends_with(&after), "at {end}");
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(&part, &bytes).unwrap();
        let (lines, damage) = all(&folder);
        assert!(lines.ends_with(&after), "at {at}");
        assert!(damage.len() <= 12, "at {at}");
    }
    drop(writer);
}

#[test]
fn hostile_parts_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let writer = written(dir.path(), 12, 600);
    let folder = dir.path().join("a");
    let part = folder.join(segments::file_name(1));
    let first = serde_json::to_string(&RecordLine {
        t_us: 0,
        event: RecordEvent::Started(Box::new(started())),
    })
    .unwrap();
    let with = |text: &[u8]| {
        fs::write(&part, zstd::encode_all(text, 1).unwrap()).unwrap();
        all(&folder).1
    };
    // A gigabyte of nothing in some kilobytes.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    io::Write::write_all(&mut encoder, format!("{first}\n").as_bytes()).unwrap();
    for _ in 0..1024 {
        io::Write::write_all(&mut encoder, &vec![b'\n'; 1 << 20]).unwrap();
    }
    fs::write(&part, encoder.finish().unwrap()).unwrap();
    assert_eq!(all(&folder).1, ["part 1: larger than any part of a record"]);
    let other = first.replace("\"id\":\"a\"", "\"id\":\"b\"");
    let found = with(format!("{other}\n").as_bytes());
    assert_eq!(found, ["part 1: cannot be read: it is of the run `b`"]);
    let found = with(format!("{first}\n{{}}\n").as_bytes());
    assert_eq!(
        found,
        ["part 1, line 2: not an event: missing field `t_us`, at column 2"]
    );
    assert_eq!(with(b"").len(), 1);
    // A file that says it is the four-billionth part.
    let text = fs::read_to_string(&writer.path).unwrap();
    let number = format!("\"part\":{}", writer.part);
    assert!(text.contains(&number));
    fs::write(&writer.path, text.replace(&number, "\"part\":4294967295")).unwrap();
    let found = all(&folder).1;
    let last = found.last().unwrap();
    assert!(last.ends_with(" to 4294967294: missing"), "{found:?}");
}

/// Only the blocks that lines fill stay with a record that has ended; those of one that goes on reach further.
#[test]
fn room_for_the_end_is_kept_and_given_back() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let mut writer = written(dir.path(), 3, u64::MAX);
    let blocks = |writer: &RecordWriter| writer.path().metadata().unwrap().blocks() * 512;
    let (size, during) = (writer.path().metadata().unwrap().len(), blocks(&writer));
    assert!(
        during >= size + crate::preallocation::RESERVED_BYTES,
        "{during}"
    );
    let ended = sconce_schema::event::RunEnded {
        exit: sconce_schema::event::ExitStatus::Code(0),
        last: Box::default(),
        out_of_memory: None,
        largest_process: None,
        lost: None,
    };
    writer.write_event(4, &RecordEvent::Ended(ended)).unwrap();
    assert!(blocks(&writer) < crate::preallocation::RESERVED_BYTES);
    let (lines, damaged) = all(&dir.path().join("a"));
    assert!(damaged.is_empty() && lines.len() == 4);
}
