//! Every output of every verb, written to what a path can lead to. `table.txt` says which arguments are outputs;
//! `table_test` in the program holds it against the command line.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, with helpers that clippy does not know as such"
)]

mod during;
mod home;
mod inputs;
mod own_places;
mod refused;
mod rows;
mod signals;
mod source;

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown, lchown, symlink,
};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use home::{Home, is_root};
use rows::{Kind, rows};

/// A user of no account.
const STRANGER: u32 = 12_345;

fn node(path: &Path, kind: FileType, device: u64) {
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o666), device).unwrap();
}

/// The one file in TensorBoard's folder.
fn event_file(folder: &Path) -> PathBuf {
    let mut entries = fs::read_dir(folder).unwrap();
    let file = entries.next().unwrap().unwrap().path();
    assert!(entries.next().is_none(), "{}", folder.display());
    file
}

/// Runs `each` with every output that can be driven here, and what it begins with in a plain file.
fn with_rows(each: impl Fn(&Home, &rows::Row, &[u8])) {
    let home = Home::new();
    for row in rows().iter().filter(|row| row.words.is_some()) {
        let done = home.sconce(&row.to("plain"));
        assert!(row.is_done(done.code), "{}: {done:?}", row.argument);
        let plain = match row.kind {
            Kind::Events => event_file(&home.path("plain")),
            _ => home.path("plain"),
        };
        let start = fs::read(&plain).unwrap();
        assert!(start.len() > 20, "{}: {start:?}", row.argument);
        // What it begins with does not change from call to call.
        fs::remove_file(&plain).unwrap();
        let _ = fs::remove_dir(home.path("plain"));
        let _ = fs::remove_file(home.path("began"));
        each(&home, row, &start[..4]);
    }
}

#[test]
fn a_file_keeps_its_mode_and_owner() {
    with_rows(|home, row, start| {
        if row.kind == Kind::Events {
            return;
        }
        let path = home.path("there");
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let owner = is_root("a file of another owner").then_some(STRANGER);
        chown(&path, owner, owner).unwrap();
        let done = home.sconce(&row.to("there"));
        assert!(row.is_done(done.code), "{}: {done:?}", row.argument);
        let (text, meta) = (fs::read(&path).unwrap(), path.metadata().unwrap());
        assert!(text.starts_with(start), "{}", row.argument);
        assert_eq!(meta.mode() & 0o7777, 0o640, "{}", row.argument);
        assert!(owner.is_none_or(|owner| (meta.uid(), meta.gid()) == (owner, owner)));
        let left = fs::read_dir(home.folder()).unwrap();
        let hidden = left.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().starts_with(".sconce")
        });
        assert_eq!(hidden.count(), 0, "{}", row.argument);
        fs::remove_file(path).unwrap();
    });
}

#[test]
fn a_device_stays_one_and_a_full_one_is_an_error() {
    if !is_root("a device") {
        return;
    }
    with_rows(|home, row, _| {
        let (null, full) = (home.path("null"), home.path("full"));
        node(&null, FileType::CharacterDevice, makedev(1, 3));
        node(&full, FileType::CharacterDevice, makedev(1, 7));
        let done = home.sconce(&row.to("null"));
        assert!(row.is_done(done.code), "{}: {done:?}", row.argument);
        let done = home.sconce(&row.to("full"));
        assert_eq!(done.code, 7, "{}: {done:?}", row.argument);
        assert!(
            done.err.contains("cannot write full: No space left"),
            "{done:?}"
        );
        for path in [null, full] {
            assert!(path.metadata().unwrap().file_type().is_char_device());
            fs::remove_file(path).unwrap();
        }
    });
}

#[test]
fn a_fifo_is_streamed_to() {
    with_rows(|home, row, start| {
        let path = home.path("fifo");
        node(&path, FileType::Fifo, 0);
        // It waits for somebody to open it, but not for ever.
        let reader = Command::new("timeout")
            .args(["20", "cat", "fifo"])
            .current_dir(home.folder())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let done = home.sconce(&row.to("fifo"));
        let read = reader.wait_with_output().unwrap().stdout;
        assert!(row.is_done(done.code), "{}: {done:?}", row.argument);
        assert!(read.starts_with(start), "{}", row.argument);
        assert!(path.metadata().unwrap().file_type().is_fifo());
        fs::remove_file(path).unwrap();
    });
}

#[test]
fn standard_output_gets_nothing_else_and_keeps_what_it_has() {
    with_rows(|home, row, start| {
        for name in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"] {
            let link = home.path("link");
            symlink("/dev/stdout", &link).unwrap();
            let path = home.path("out");
            let mut out = File::create(&path).unwrap();
            out.write_all(b"before ").unwrap();
            let done = home.sconce_to(&row.to(name), Stdio::from(out.try_clone().unwrap()));
            fs::remove_file(link).unwrap();
            if row.beside_command {
                assert_eq!(done.code, 2, "{}: {done:?}", row.argument);
                assert!(done.err.contains("hint: name a file"), "{done:?}");
                continue;
            }
            out.write_all(b" after").unwrap();
            assert!(row.is_done(done.code), "{} {name}: {done:?}", row.argument);
            let text = fs::read(&path).unwrap();
            let begins = [&b"before "[..], start].concat();
            assert!(
                text.starts_with(&begins) && text.ends_with(b" after"),
                "{}",
                row.argument
            );
            if row.kind == Kind::Text && start.starts_with(b"{") {
                let text = String::from_utf8(text).unwrap();
                let text = &text["before ".len()..text.len() - " after".len()];
                let json: Result<serde_json::Value, _> = serde_json::from_str(text);
                assert!(json.is_ok(), "{}: {text}", row.argument);
            }
            assert!(!home.path("-").exists());
        }
        // Any other descriptor, which a shell opened.
        let script = format!(
            r#"exec 5>five && echo first >&5 && {} && echo last >&5"#,
            row.shell("/dev/fd/5")
        );
        let done = home.shell(&script);
        assert_eq!(done.code, 0, "{}: {done:?}", row.argument);
        let text = fs::read(home.path("five")).unwrap();
        let begins = [&b"first\n"[..], start].concat();
        assert!(
            text.starts_with(&begins) && text.ends_with(b"last\n"),
            "{}",
            row.argument
        );
        // One that nobody opened is not one of the program's own files.
        for number in 3..12 {
            let name = format!("/dev/fd/{number}");
            let done = home.sconce(&row.to(&name));
            assert!(
                [2, 7].contains(&done.code),
                "{} {name}: {done:?}",
                row.argument
            );
        }
    });
}

#[test]
fn a_strangers_link_and_file_are_refused() {
    if !is_root("a stranger's link") {
        return;
    }
    with_rows(|home, row, _| {
        let shared = home.path("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
        fs::write(home.path("target"), "before").unwrap();
        symlink(home.path("target"), shared.join("link")).unwrap();
        lchown(shared.join("link"), Some(STRANGER), Some(STRANGER)).unwrap();
        fs::write(shared.join("file"), "before").unwrap();
        chown(shared.join("file"), Some(STRANGER), Some(STRANGER)).unwrap();
        let theirs = shared.join("theirs");
        fs::create_dir(&theirs).unwrap();
        symlink(home.path("target"), theirs.join("link")).unwrap();
        lchown(theirs.join("link"), Some(STRANGER), Some(STRANGER)).unwrap();
        chown(&theirs, Some(STRANGER), Some(STRANGER)).unwrap();
        // From within, where no name of the path is the stranger's.
        let enter = "cd shared/theirs; ln -sf ../../snapshot.pickle ../../other.pickle .";
        for name in ["link", "./link", "/proc/self/cwd/link", "/dev/fd/9/link"] {
            let call = row.shell(name);
            let done = home.shell(&format!("{enter}; exec 9<.; {call}"));
            assert!(
                done.code != 0 && done.err.contains("12345"),
                "{} {name}: {done:?}",
                row.argument
            );
            assert_eq!(fs::read(home.path("target")).unwrap(), b"before");
        }
        for name in ["shared/link", "shared/file", "shared/theirs/link"] {
            let done = home.sconce(&row.to(name));
            assert_eq!(done.code, 7, "{} {name}: {done:?}", row.argument);
            assert!(
                done.err.contains("12345") && done.err.contains("hint: "),
                "{done:?}"
            );
            assert_eq!(fs::read(home.path(name)).unwrap(), b"before");
        }
        fs::remove_dir_all(shared).unwrap();
    });
}

#[test]
fn an_event_file_is_one_of_the_folder_alone() {
    let home = Home::new();
    let rows = rows();
    let row = rows.iter().find(|row| row.kind == Kind::Events).unwrap();
    let done = home.sconce(&row.to("board"));
    assert_eq!(done.code, 0, "{done:?}");
    let file = event_file(&home.path("board"));
    let first = fs::read(&file).unwrap();
    fs::write(&file, "before").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    let done = home.sconce(&row.to("board"));
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(event_file(&home.path("board")), file);
    assert_eq!(fs::read(&file).unwrap(), first);
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o640);
    if !is_root("a stranger's folder") {
        return;
    }
    // Where a stranger waits for it with a link, in a folder of that one's own.
    fs::write(home.path("target"), "before").unwrap();
    fs::remove_file(&file).unwrap();
    symlink(home.path("target"), &file).unwrap();
    lchown(&file, Some(STRANGER), Some(STRANGER)).unwrap();
    chown(home.path("board"), Some(STRANGER), Some(STRANGER)).unwrap();
    let done = home.sconce(&row.to("board"));
    assert_eq!(done.code, 7, "{done:?}");
    assert!(done.err.contains("12345"), "{done:?}");
    assert_eq!(fs::read(home.path("target")).unwrap(), b"before");
}

#[test]
fn a_file_that_is_a_mount_is_written_in_place() {
    if !is_root("a bind mount") {
        return;
    }
    with_rows(|home, row, start| {
        if row.kind == Kind::Events {
            return;
        }
        let script = format!(
            "touch on under && mount --bind under on && {} && cat on && umount on",
            row.shell("on")
        );
        let done = home.in_own_mounts(&script);
        if done.err.contains("unshare failed") || done.err.contains("mount: ") {
            sconce_testkit::report_skip("own-mounts", done.err);
            return;
        }
        assert_eq!(done.code, 0, "{}: {done:?}", row.argument);
        let under = fs::read(home.path("under")).unwrap();
        assert!(under.starts_with(start), "{}", row.argument);
        assert_eq!(fs::read(home.path("on")).unwrap(), b"");
        for name in ["on", "under"] {
            fs::remove_file(home.path(name)).unwrap();
        }
    });
}

#[test]
fn nothing_is_left_on_a_full_disk() {
    if !is_root("a file system of its own") {
        return;
    }
    with_rows(|home, row, _| {
        let script = format!(
            "mkdir full && mount -t tmpfs -o size=64k none full
             cat /dev/zero >full/zeros 2>/dev/null || true
             if {}; then echo written; fi
             ls -A full; umount full; rmdir full",
            row.shell("full/new")
        );
        let done = home.in_own_mounts(&script);
        if done.err.contains("unshare failed") || done.err.contains("mount: ") {
            sconce_testkit::report_skip("own-mounts", done.err);
            return;
        }
        assert_eq!(done.out, "zeros\n", "{}: {done:?}", row.argument);
        assert!(done.err.contains("No space left"), "{done:?}");
    });
}

#[test]
fn what_cannot_be_written_is_said_before_any_work() {
    with_rows(|home, row, _| {
        let socket = std::os::unix::net::UnixListener::bind(home.path("socket")).unwrap();
        fs::create_dir(home.path("folder")).unwrap();
        for (name, code) in [("socket", 7), ("folder", 7), ("none/file", 7)] {
            // TensorBoard's is a folder.
            if row.kind == Kind::Events && name != "socket" {
                continue;
            }
            let done = home.sconce(&row.to(name));
            assert_eq!(done.code, code, "{} {name}: {done:?}", row.argument);
            assert!(
                done.err.contains(name) && done.err.contains("hint: "),
                "{done:?}"
            );
            // Neither the command of a run nor a trial began.
            assert!(!home.path("began").exists(), "{} {name}", row.argument);
        }
        drop(socket);
        fs::remove_file(home.path("socket")).unwrap();
        fs::remove_dir(home.path("folder")).unwrap();
    });
}

#[test]
fn a_closed_pipe_is_the_readers_wish_for_text_alone() {
    with_rows(|home, row, _| {
        if row.beside_command {
            return;
        }
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = home.sconce_to(&row.to("-"), Stdio::from(writer));
        match row.kind {
            Kind::Text => assert!(row.is_done(done.code), "{}: {done:?}", row.argument),
            _ => {
                assert_eq!(done.code, 7, "{}: {done:?}", row.argument);
                assert!(done.err.contains("standard output"), "{done:?}");
            }
        }
    });
}
