//! What is no stream, and what replaces nothing.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::fcntl_setpipe_size;

use super::home::{Home, is_root};
use super::node;
use super::rows::{Kind, rows};

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Before a lock is made, a package fetched or an image built: there is no network, and no lock.
#[test]
fn images_say_first_where_they_cannot_go() {
    let home = Home::new();
    fs::write(
        home.path("sconce.toml"),
        "[python]\npackages = [\"torch\"]\n",
    )
    .unwrap();
    node(&home.path("fifo"), FileType::Fifo, 0);
    fs::write(home.path("file"), "kept").unwrap();
    fs::create_dir(home.path("other")).unwrap();
    fs::write(home.path("other/file"), "kept").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(home.path("socket")).unwrap();
    for (flags, code, said) in [
        ("--squashfs -", 2, "needs a regular file"),
        ("--squashfs /dev/stdout", 2, "needs a regular file"),
        ("--squashfs fifo", 2, "needs a regular file"),
        ("--squashfs other", 7, "Is a directory"),
        ("--oci -", 2, "needs a folder"),
        ("--oci /dev/stdout", 2, "needs a folder"),
        ("--oci fifo", 2, "needs a folder"),
        ("--oci file", 2, "needs a folder"),
        ("--oci other", 3, "is no image layout"),
        ("--oci none/a.tar", 7, "No such file"),
        ("--docker-archive socket", 7, "a socket"),
        ("--docker-archive none/a", 7, "No such file"),
        ("--docker-archive other", 7, "Is a directory"),
        (
            "--docker-archive - --json",
            2,
            "standard output takes one thing",
        ),
        ("--docker-archive /dev/fd/9", 2, "descriptor 9 is not open"),
    ] {
        let done = home.sconce(&words(&format!("--offline build {flags}")));
        assert_eq!(done.code, code, "{flags}: {done:?}");
        assert!(
            done.err.contains(said) && done.err.contains("hint: "),
            "{flags}: {done:?}"
        );
        assert!(done.out.is_empty() && !home.path("-").exists());
    }
    assert_eq!(fs::read(home.path("file")).unwrap(), b"kept");
    // Every output of the table that is no stream, or an image's, was tried.
    for row in rows().iter().filter(|row| row.kind == Kind::Seekable) {
        assert_eq!(row.argument, "build --squashfs");
    }
}

#[test]
fn a_private_key_replaces_nothing() {
    let home = Home::new();
    let done = home.sconce(&words("keygen a"));
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(home.path("a.key").metadata().unwrap().mode() & 0o777, 0o600);
    let key = fs::read(home.path("a.key")).unwrap();
    // What no two files can be called by.
    fs::create_dir(home.path("folder")).unwrap();
    node(&home.path("pipe"), FileType::Fifo, 0);
    for name in [
        "-",
        "/dev/stdout",
        "/dev/null",
        "/dev/fd/9",
        "/proc/self/fd/1",
        "pipe",
        ".",
        "..",
        "folder/",
        "folder/.",
        "folder/..",
        "./",
    ] {
        let done = home.sconce(&words(&format!("keygen {name}")));
        assert_eq!(done.code, 2, "{name}: {done:?}");
        assert!(
            done.err.contains("two files") && done.err.contains("hint: "),
            "{done:?}"
        );
    }
    for name in [
        "-.key",
        "...key",
        "folder/.key",
        "/dev/stdout.key",
        "pipe.key",
    ] {
        assert!(!home.path(name).exists(), "{name}");
    }
    for name in ["./-", "folder"] {
        let done = home.sconce(&words(&format!("keygen {name}")));
        assert_eq!(done.code, 0, "{name}: {done:?}");
    }
    fs::write(home.path("b.pub"), "kept").unwrap();
    symlink("nothing", home.path("c.key")).unwrap();
    node(&home.path("d.key"), FileType::Fifo, 0);
    for name in ["a", "b", "c", "d"] {
        let done = home.sconce(&words(&format!("keygen {name}")));
        assert_eq!(done.code, 7, "{name}: {done:?}");
        assert!(
            done.err.contains("already") && done.err.contains("hint: "),
            "{done:?}"
        );
    }
    assert!(!home.path("b.key").exists() && !home.path("c.pub").exists());
    assert!(!home.path("nothing").exists() && !home.path("d.pub").exists());
    assert_eq!(fs::read(home.path("a.key")).unwrap(), key);
}

#[test]
fn a_spec_and_a_lock_are_files_as_others() {
    let home = Home::new();
    for name in ["real.toml", "lock"] {
        fs::write(home.path(name), "").unwrap();
        fs::set_permissions(home.path(name), fs::Permissions::from_mode(0o640)).unwrap();
    }
    symlink("real.toml", home.path("sconce.toml")).unwrap();
    let done = home.sconce(&words("init -q --force --name one"));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        fs::read_to_string(home.path("real.toml"))
            .unwrap()
            .contains("one")
    );
    assert_eq!(
        home.path("real.toml").metadata().unwrap().mode() & 0o777,
        0o640
    );
    assert!(
        home.path("sconce.toml")
            .symlink_metadata()
            .unwrap()
            .is_symlink()
    );
    // A lock that could not be written is not made first.
    fs::create_dir(home.path("sconce.lock")).unwrap();
    let done = home.sconce(&words("--offline lock"));
    assert!(done.err.contains("sconce.lock"), "{done:?}");
}

#[test]
fn one_thing_goes_to_standard_output() {
    let home = Home::new();
    for line in [
        "doctor --facts - --bundle -",
        "doctor --facts - --json",
        "memory report snapshot.pickle --html - --json",
        "memory diff snapshot.pickle other.pickle --html /dev/stdout --json",
        "memory what-if snapshot.pickle --html - --json",
    ] {
        let done = home.sconce(&words(line));
        assert_eq!(done.code, 2, "{line}: {done:?}");
        assert!(
            done.out.is_empty() && done.err.contains("hint: name a file"),
            "{done:?}"
        );
    }
    // What the verb itself says is beside it.
    let done = home.sconce(&words("doctor --facts -"));
    let facts: Result<serde_json::Value, _> = serde_json::from_str(&done.out);
    assert!(facts.is_ok() && done.err.len() > 100, "{done:?}");
}

/// Of a name that anyone may have chosen.
#[test]
fn what_a_terminal_would_obey_is_not_printed_of_a_name() {
    let home = Home::new();
    let name = "a\u{1b}[31mb";
    for line in [
        "report --html",
        "export last --to csv",
        "doctor --facts",
        "keygen",
    ] {
        let mut words = words(line);
        words.push(name.to_owned());
        let done = home.sconce(&words);
        assert!([0, 1].contains(&done.code), "{line}: {done:?}");
        assert!(
            !done.err.contains('\u{1b}') && done.err.contains("a\u{fffd}[31mb"),
            "{line}: {done:?}"
        );
    }
    assert!(home.path(name).exists());
}

#[test]
fn a_pipe_that_does_not_block_gets_everything() {
    let home = Home::new();
    for line in ["export -q last --to json -", "report --json", "run --help"] {
        let plain = home.sconce(&words(line));
        let (mut reader, writer) = std::io::pipe().unwrap();
        let flags = fcntl_getfl(&writer).unwrap();
        fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
        // As small as a pipe can be.
        fcntl_setpipe_size(&writer, 4096).unwrap();
        let reader = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            text
        });
        let done = home.sconce_to(&words(line), writer.into());
        assert_eq!(done.code, 0, "{line}: {done:?}");
        assert_eq!(reader.join().unwrap(), plain.out, "{line}");
    }
}

/// It is the log's by the time the report is written.
#[test]
fn a_run_in_the_background_reports_to_no_descriptor_that_it_lets_go() {
    let home = Home::new();
    for name in ["/dev/stderr", "/dev/fd/2", "/proc/self/fd/2", "/dev/stdout"] {
        let line = format!("run --detach --host --json {name} -- touch began");
        let done = home.sconce(&words(&line));
        assert_eq!(done.code, 2, "{name}: {done:?}");
        assert!(done.err.contains("hint: name a file"), "{done:?}");
        assert!(!home.path("began").exists());
    }
}

#[test]
fn no_output_takes_the_place_of_another() {
    let home = Home::new();
    fs::copy(home.path("snapshot.pickle"), home.path("own.pickle")).unwrap();
    symlink("own.pickle", home.path("link")).unwrap();
    fs::write(home.path("there"), "kept").unwrap();
    fs::write(
        home.path("sconce.toml"),
        "[python]\npackages = [\"torch\"]\n",
    )
    .unwrap();
    fs::create_dir_all(home.path("layout/blobs")).unwrap();
    fs::write(home.path("layout/index.json"), "kept").unwrap();
    symlink("layout/index.json", home.path("index")).unwrap();
    let before = fs::read(home.path("own.pickle")).unwrap();
    for (line, said) in [
        ("doctor --facts new --bundle new", "two outputs"),
        ("doctor --facts there --bundle ./there", "two outputs"),
        (
            "fit --gpu 4090 --html new --snapshot new -- true",
            "two outputs",
        ),
        (
            "--offline build --oci a.tar --docker-archive a.tar",
            "two outputs",
        ),
        (
            "--offline build --oci layout --docker-archive layout/index.json",
            "folder of another output",
        ),
        (
            "--offline build --oci layout --docker-archive index",
            "folder of another output",
        ),
        (
            "--offline build --oci layout --docker-archive layout/new.tar",
            "folder of another output",
        ),
        (
            "--offline build --oci new --docker-archive new",
            "folder of another output",
        ),
        (
            "--offline build --oci new/inner --docker-archive ./new",
            "folder of another output",
        ),
    ] {
        let done = home.sconce(&words(line));
        assert_eq!(done.code, 2, "{line}: {done:?}");
        assert!(
            done.err.contains(said) && done.err.contains("hint: name"),
            "{done:?}"
        );
    }
    // Nor by a descriptor.
    for (script, said) in [
        (
            r#"exec 3>>there; exec "$sconce" doctor --facts there --bundle /dev/fd/3"#,
            "two outputs",
        ),
        (
            r#"exec 3>>own.pickle; exec "$sconce" memory report own.pickle --html /dev/fd/3"#,
            "what this reads",
        ),
    ] {
        let done = home.shell(script);
        assert!(done.code == 2 && done.err.contains(said), "{done:?}");
    }
    assert_eq!(fs::read(home.path("layout/index.json")).unwrap(), b"kept");
    assert_eq!(fs::read(home.path("own.pickle")).unwrap(), before);
    assert_eq!(fs::read(home.path("there")).unwrap(), b"kept");
    // Nor by another name of a folder above one that is not there yet.
    fs::create_dir(home.path("one")).unwrap();
    fs::create_dir(home.path("two")).unwrap();
    symlink("one/linked", home.path("dangling")).unwrap();
    let done = home.sconce(&words(
        "--offline build --oci dangling/lay --docker-archive one/linked",
    ));
    assert!(
        done.code == 2 && done.err.contains("folder of another output"),
        "{done:?}"
    );
    if is_root("a bind mount") {
        for line in [
            "--oci one/new --docker-archive two/new",
            "--oci one/new/lay --docker-archive two/new",
        ] {
            let done = home.in_own_mounts(&format!(
                "mount --bind one two; exec \"$sconce\" --offline build {line}"
            ));
            if done.err.contains("unshare failed") || done.err.contains("mount: ") {
                sconce_testkit::report_skip("own-mounts", done.err);
                break;
            }
            assert!(
                done.code == 2 && done.err.contains("folder of another output"),
                "{line}: {done:?}"
            );
        }
    }
    // Devices lose nothing.
    let done = home.sconce(&words("doctor --facts /dev/null --bundle /dev/null"));
    assert!([0, 1].contains(&done.code), "{done:?}");
    assert!(!home.path("new").exists() && !home.path("a.tar").exists());
}

#[test]
fn the_hint_for_a_missing_folder_is_one_that_helps() {
    let home = Home::new();
    symlink("nowhere", home.path("dangling")).unwrap();
    for (file, hint) in [
        ("none/file", "make the folder first: mkdir -p none"),
        (
            "dangling/file",
            "the link dangling leads to nowhere, which is not there: make that",
        ),
        (
            "dangling/inner/file",
            "the link dangling leads to nowhere, which is not there: make that",
        ),
    ] {
        let done = home.sconce(&words(&format!("doctor --facts {file}")));
        assert_eq!(done.code, 7, "{file}: {done:?}");
        assert!(done.err.contains(hint), "{file}: {done:?}");
    }
}
