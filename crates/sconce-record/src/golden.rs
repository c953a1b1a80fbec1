//! A record as it lies on the disk: what is written, as bytes that a rename or a move must not change, and
//! what older programs wrote.
//!
//! Each line's fields are held by sconce-schema's `tests/golden/record.jsonl`, from which these are made. Held
//! elsewhere: names of runs by `src/id.rs`, the reader without serde by `src/quick_tests.rs`, changing over
//! to the next part by `src/write_tests.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use sconce_schema::event::{RecordEvent, RecordLine, RunStarted};
use sconce_testkit::golden_files::{Goldens, HeldBy, UPDATE};

use crate::{FILE, RecordWriter, open_record};

const TYPES: &[(&str, HeldBy)] = &[("write::Line", HeldBy::Golden("parts/events.jsonl"))];

fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compressed parts, and the file that comes after them.
const PARTS: [&str; 3] = ["events-0001.jsonl.zst", "events-0002.jsonl.zst", FILE];

fn golden_parts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/parts")
}

/// A line of each kind, with every figure; a second sample has the processes of the first.
fn full_lines() -> (RunStarted, Vec<RecordLine>) {
    let path = "../sconce-schema/tests/golden/record.jsonl";
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut lines: Vec<RecordLine> = lines.collect();
    let RecordEvent::Started(started) = lines.remove(0).event else {
        panic!("a record begins with `started`");
    };
    let is_sample = |line: &RecordLine| matches!(line.event, RecordEvent::Sample(_));
    let sample = lines.iter().position(is_sample).unwrap();
    lines.insert(sample, lines[sample].clone());
    (*started, lines)
}

fn read_all(path: &Path) -> (RunStarted, Vec<RecordLine>) {
    let record = open_record(path).unwrap();
    (record.started.clone(), record.map(Result::unwrap).collect())
}

fn unpacked(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let text = match path.extension().is_some_and(|end| end == "zst") {
        true => zstd::decode_all(&bytes[..]).unwrap(),
        false => bytes,
    };
    String::from_utf8(text).unwrap()
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}

#[test]
fn full_record_is_written_as_before_and_read_back() {
    let scratch = tempfile::tempdir().unwrap();
    let (started, lines) = full_lines();
    let mut writer = RecordWriter::create(scratch.path(), &started).unwrap();
    for line in &lines {
        writer.write_event(line.t_us, &line.event).unwrap();
    }
    let path = writer.path().to_owned();
    assert_eq!(path, scratch.path().join("brave-otter-7/events.jsonl"));
    goldens().assert_same("events.jsonl", fs::read(&path).unwrap());
    assert_eq!(read_all(&path), (started, lines));
}

/// Compressed bytes are those of one version of a library: what is in them is compared.
#[test]
fn record_in_parts_is_written_as_before_and_an_older_one_is_read() {
    let scratch = tempfile::tempdir().unwrap();
    let (started, lines) = full_lines();
    let mut writer = RecordWriter::create(scratch.path(), &started).unwrap();
    for (at, line) in lines.iter().enumerate() {
        // The second sample begins a part, and so does what follows the setup.
        if matches!(line.event, RecordEvent::CardOutOfMemory(_)) || at == 2 {
            writer.close_at = 1;
        }
        writer.write_event(line.t_us, &line.event).unwrap();
    }
    let dir = scratch.path().join(&started.id);
    if std::env::var_os(UPDATE).is_some() {
        fs::create_dir_all(golden_parts()).unwrap();
        for name in PARTS {
            fs::copy(dir.join(name), golden_parts().join(name)).unwrap();
        }
    }
    for name in PARTS {
        assert_eq!(
            unpacked(&dir.join(name)),
            unpacked(&golden_parts().join(name)),
            "{name}"
        );
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), PARTS.len());
    assert_eq!(read_all(&golden_parts()), (started, lines));
}
