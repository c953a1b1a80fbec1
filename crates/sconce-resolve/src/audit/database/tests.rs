//! Databases in every form, sound and hostile.

use super::*;
use proptest::prelude::*;
use rawzip::ZipArchiveWriter;
use std::io::{Cursor, Write as _};

const SMALL: DatabaseLimits = DatabaseLimits {
    entry_bytes: 200,
    bytes: 1000,
    entries: 5,
    depth: 3,
};

fn entry(id: &str, modified: &str) -> String {
    format!("{{\"id\":\"{id}\",\"modified\":\"{modified}\"}}")
}

fn zip(files: &[(&str, &str)], deflated: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut archive = ZipArchiveWriter::new(&mut out);
    for (name, text) in files {
        let method = match deflated {
            true => CompressionMethod::DEFLATE,
            false => CompressionMethod::STORE,
        };
        let (mut entry, config) = archive
            .new_file(name)
            .compression_method(method)
            .start()
            .unwrap();
        let descriptor = if deflated {
            let encoder =
                flate2::write::DeflateEncoder::new(&mut entry, flate2::Compression::fast());
            let mut writer = config.wrap(encoder);
            writer.write_all(text.as_bytes()).unwrap();
            let (encoder, descriptor) = writer.finish().unwrap();
            encoder.finish().unwrap();
            descriptor
        } else {
            let mut writer = config.wrap(&mut entry);
            writer.write_all(text.as_bytes()).unwrap();
            writer.finish().unwrap().1
        };
        entry.finish(descriptor).unwrap();
    }
    archive.finish().unwrap();
    out
}

/// The ids, joined by commas, and the newest change; or why not.
fn ids(
    read: impl FnOnce(&mut dyn FnMut(&OsvEntry)) -> Result<DatabaseSummary, ContentError>,
) -> Result<(String, Option<String>), ContentError> {
    let mut ids = Vec::new();
    let seen = read(&mut |entry| ids.push(entry.id.clone()))?;
    assert_eq!(seen.entries, ids.len() as u64);
    Ok((ids.join(","), seen.newest))
}

fn of_text(text: &str) -> Result<(String, Option<String>), ContentError> {
    ids(|each| read_json(text.as_bytes(), SMALL, each))
}

fn of_zip(bytes: &[u8]) -> Result<(String, Option<String>), ContentError> {
    ids(|each| read_archive(Cursor::new(bytes), SMALL, each))
}

#[test]
fn every_form_gives_the_same() {
    let one = entry("A", "2026-01-02T00:00:00Z");
    let two = entry("B", "2026-01-03T00:00:00.5Z");
    let wanted = ("A,B".to_owned(), Some("2026-01-03T00:00:00".to_owned()));
    for text in [
        format!(" \n[{one},\n{two}]\n"),
        format!("{one}\n{two}\n"),
        format!("{one}{two}"),
    ] {
        assert_eq!(of_text(&text).unwrap(), wanted, "{text}");
    }
    let files = [
        ("a.json", one.as_str()),
        ("README", "x"),
        ("b/b.json", two.as_str()),
    ];
    for deflated in [true, false] {
        assert_eq!(of_zip(&zip(&files, deflated)).unwrap(), wanted);
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("b")).unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    fs::write(dir.path().join("all.zip"), zip(&files, true)).unwrap();
    for path in [dir.path().to_owned(), dir.path().join("all.zip")] {
        let mut ids = Vec::new();
        let seen = super::read_database(&path, SMALL, &mut |e| ids.push(e.id.clone())).unwrap();
        assert_eq!((ids.join(","), seen.newest), wanted);
    }
}

#[test]
fn the_newest_change_is_a_time() {
    for (modified, wanted) in [
        ("2026-01-02T03:04:05Z", true),
        ("2026-01-02T03:04:05.000001Z", true),
        ("2026-01-02T03:04:05+02:00", false),
        ("yesterday, at some time Z", false),
        ("", false),
        ("ääääääääääZ", false),
    ] {
        assert_eq!(utc(modified).is_some(), wanted, "{modified}");
    }
}

#[test]
fn the_age_is_counted_in_days() {
    let age = |newest: &str| {
        let newest = Some(newest.to_owned());
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_795_040_263);
        DatabaseSummary { entries: 1, newest }.age_days(now)
    };
    assert_eq!(age("2026-11-18T00:00:00"), Some(0));
    assert_eq!(age("2026-11-08T23:59:59"), Some(10));
    assert_eq!(age("2027-01-01T00:00:00"), Some(0));
    assert_eq!(age("0000-00-00T00:00:00"), None);
}

#[test]
fn an_empty_database_is_no_database() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("empty.json");
    for text in ["", "[]", " \n"] {
        fs::write(&file, text).unwrap();
        let error = read_database(&file, SMALL, &mut |_| ()).unwrap_err();
        assert!(
            matches!(error, DatabaseError::Empty { .. }),
            "{text}: {error}"
        );
        assert_eq!(error.exit_code(), exit::BAD_INPUT);
    }
    let error = read_database(&dir.path().join("none"), SMALL, &mut |_| ()).unwrap_err();
    assert!(matches!(error, DatabaseError::Read { .. }) && error.hint().is_some());
}

#[test]
fn a_folder_without_end_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("a/b/c/d");
    fs::create_dir_all(&deep).unwrap();
    std::os::unix::fs::symlink(dir.path(), dir.path().join("a/again")).unwrap();
    let error = read_database(dir.path(), SMALL, &mut |_| ()).unwrap_err();
    assert!(
        matches!(error, DatabaseError::Deep { limit: 3, .. }),
        "{error}"
    );
}

#[test]
fn a_broken_entry_is_named() {
    let one = entry("A", "");
    let error = of_text(&format!("[{one},{{}}]")).unwrap_err();
    assert_eq!(error.to_string(), "entry 2 is not an OSV entry");
    assert!(of_text(&format!("[{one}")).is_err());
    assert!(of_text(&format!("[{one}] x")).is_err());
    assert!(of_text("true").is_err());
    let error = of_zip(&zip(&[("a\x1b[2J.json", "{}")], true)).unwrap_err();
    assert_eq!(error.to_string(), "`a [2J.json` is not an OSV entry");
}

#[test]
fn bombs_are_not_unpacked() {
    let bomb = format!("{{\"id\":\"A\",\"details\":\"{}\"}}", "x".repeat(100_000));
    assert!(matches!(
        of_zip(&zip(&[("a.json", &bomb)], true)).unwrap_err(),
        ContentError::TooLarge {
            what: "one entry",
            ..
        } | ContentError::Unpack { .. }
    ));
    for text in [bomb.clone(), format!("[{bomb}]"), "[".repeat(100_000)] {
        assert!(matches!(
            of_text(&text).unwrap_err(),
            ContentError::Entry { .. }
        ));
    }
    let spaces = format!("{{\"id\":\"A\"}}{}", " ".repeat(1000));
    assert!(of_text(&spaces).is_err());

    let one = entry("A", "");
    let many: Vec<_> = (0..6).map(|n| format!("{n}.json")).collect();
    let many: Vec<_> = many.iter().map(|n| (n.as_str(), one.as_str())).collect();
    assert!(matches!(
        of_zip(&zip(&many, true)).unwrap_err(),
        ContentError::TooMany { limit: 5 }
    ));
    assert!(matches!(
        of_text(&one.repeat(6)).unwrap_err(),
        ContentError::TooMany { limit: 5 }
    ));
    assert!(matches!(
        of_text(&format!("[{}{one}]", format!("{one},").repeat(5))).unwrap_err(),
        ContentError::TooMany { limit: 5 }
    ));
    let long = format!("{{\"id\":\"A\",\"details\":\"{}\"}}", "x".repeat(170));
    let long: Vec<_> = ["1.json", "2.json", "3.json", "4.json", "5.json", "6.json"]
        .map(|name| (name, long.as_str()))
        .to_vec();
    let wide = DatabaseLimits {
        entries: 100,
        ..SMALL
    };
    let error = read_archive(Cursor::new(zip(&long, true)), wide, &mut |_| ()).unwrap_err();
    let whole = "the whole archive";
    assert!(
        matches!(error, ContentError::TooLarge { what, .. } if what == whole),
        "{error}"
    );
}

#[test]
fn a_changed_archive_is_seen() {
    let bytes = zip(&[("a.json", &entry("A", "2026-01-02T03:04:05Z"))], false);
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x41;
        // It may still be an archive (a date changed, say); its entries may not be others.
        if let Ok((ids, _)) = of_zip(&changed) {
            assert!(ids == "A" || ids.is_empty(), "byte {at}: {ids}");
        }
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "(\\[|\\]|\\{|\\}|\"|id|:|,|affected|null|\\PC){0,40}") {
        let _ = of_text(&text);
        let _ = of_zip(text.as_bytes());
    }
}
