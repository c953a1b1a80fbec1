//! No output takes the place of what its verb reads.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::home::Home;
use super::rows::{self, rows};

const SPEC: &str = "[python]\nrequirements = \"needed.txt\"\n[build]\nfiles = [\"train.py\"]\n";
const OF_SPEC: [&str; 4] = [
    "proj/sconce.toml",
    "proj/sconce.lock",
    "proj/needed.txt",
    "proj/train.py",
];
const OF_LAYOUT: [&str; 3] = ["lay/index.json", "lay/oci-layout", "lay/blobs/sha256/new"];
const SNAPSHOT: [&str; 1] = ["own.pickle"];

/// An output and an input of a verb: the calls, `{}` in place of the output, and the files that each reads.
type Case = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static [&'static str])],
);

/// `RECORD` is the run's.
const CASES: [Case; 19] = [
    (
        "build --docker-archive",
        "build SPEC",
        &[
            ("--offline build proj --docker-archive {}", &OF_SPEC),
            (
                "--offline build proj/sconce.toml --docker-archive {}",
                &OF_SPEC,
            ),
        ],
    ),
    (
        "build --docker-archive",
        "build --sign",
        &[(
            "--offline build proj --push h.example/a:1 --sign own.key --docker-archive {}",
            &["own.key"],
        )],
    ),
    // A name that ends in .tar is an archive's.
    (
        "build --oci",
        "build SPEC",
        &[("--offline build tar.toml --oci {}", &["needed.tar"])],
    ),
    (
        "build --oci",
        "build --sign",
        &[(
            "--offline build proj --push h.example/a:1 --sign key.tar --oci {}",
            &["key.tar"],
        )],
    ),
    (
        "build --squashfs",
        "build SPEC",
        &[("--offline build proj --squashfs {}", &OF_SPEC)],
    ),
    // Squashfs files are not pushed, and the key is for what is.
    ("build --squashfs", "build --sign", &[]),
    (
        "doctor --facts",
        "doctor SUBJECT",
        &[
            ("doctor proj --facts {}", &OF_SPEC),
            ("doctor own.lock --facts {}", &["own.lock"]),
            ("doctor lay --facts {}", &OF_LAYOUT),
            ("doctor image.tar --facts {}", &["image.tar"]),
        ],
    ),
    (
        "doctor --bundle",
        "doctor SUBJECT",
        &[
            ("doctor proj/sconce.toml --bundle {}", &OF_SPEC),
            ("doctor oci:lay:1 --bundle {}", &OF_LAYOUT),
        ],
    ),
    (
        "export FILE",
        "export RUN",
        &[
            ("export last --to csv {}", &["RECORD"]),
            ("export last --to parquet {}", &["RECORD"]),
            ("export last --to json {}", &["RECORD"]),
            ("export last --to perfetto {}", &["RECORD"]),
        ],
    ),
    (
        "fit --html",
        "fit SPEC",
        &[("fit proj --gpu 4090 --html {} -- touch began", &OF_SPEC)],
    ),
    (
        "fit --snapshot",
        "fit SPEC",
        &[("fit proj --gpu 4090 --snapshot {} -- touch began", &OF_SPEC)],
    ),
    (
        "memory diff --html",
        "memory diff AFTER",
        &[("memory diff other.pickle own.pickle --html {}", &SNAPSHOT)],
    ),
    (
        "memory diff --html",
        "memory diff BEFORE",
        &[("memory diff own.pickle other.pickle --html {}", &SNAPSHOT)],
    ),
    (
        "memory report --html",
        "memory report SNAPSHOT",
        &[("memory report own.pickle --html {}", &SNAPSHOT)],
    ),
    (
        "memory what-if --html",
        "memory what-if SNAPSHOT",
        &[(
            "memory what-if own.pickle --conf expandable_segments:True --html {}",
            &SNAPSHOT,
        )],
    ),
    (
        "report --html",
        "report RUN",
        &[("report --html {}", &["RECORD"])],
    ),
    (
        "run --json",
        "run SPEC",
        &[
            ("run proj --json {} -- touch began", &OF_SPEC),
            ("run proj --detach --json {} -- touch began", &OF_SPEC),
            ("run oci:lay --json {} -- touch began", &OF_LAYOUT),
            (
                "run docker-archive:image.tar --json {} -- touch began",
                &["image.tar"],
            ),
        ],
    ),
    // One argument is both.
    ("lock SPEC", "lock SPEC", &[]),
    ("init SOURCE", "init SOURCE", &[]),
];

fn words(text: &str, path: &str) -> Vec<String> {
    let words = text.split(' ');
    words.map(|word| word.replace("{}", path)).collect()
}

pub(super) fn find_record(folder: &Path) -> Option<PathBuf> {
    fs::read_dir(folder).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => find_record(&path),
            false => path.ends_with("events.jsonl").then_some(path),
        }
    })
}

/// All that a verb could read.
fn sources() -> Home {
    let home = Home::new();
    fs::copy(home.path("snapshot.pickle"), home.path("own.pickle")).unwrap();
    for folder in ["proj", "lay/blobs/sha256"] {
        fs::create_dir_all(home.path(folder)).unwrap();
    }
    for (name, text) in [
        ("proj/sconce.toml", SPEC),
        ("proj/needed.txt", "numpy"),
        ("proj/train.py", "pass"),
        ("tar.toml", "[python]\nrequirements = \"needed.tar\"\n"),
        ("needed.tar", "numpy"),
        ("own.key", "key"),
        ("own.lock", "format = 1"),
        ("key.tar", "key"),
        ("lay/index.json", "{}"),
        ("lay/oci-layout", "{}"),
        ("image.tar", ""),
    ] {
        fs::write(home.path(name), text).unwrap();
    }
    // As gzip begins.
    fs::write(home.path("image.tar"), b"\x1f\x8b").unwrap();
    home
}

#[test]
fn every_output_beside_an_input_is_tried() {
    let verb = |argument: &str| argument.rsplit_once(' ').unwrap().0.to_owned();
    let mut pairs: BTreeSet<(String, String)> = ["lock SPEC", "init SOURCE"]
        .map(|both| (both.to_owned(), both.to_owned()))
        .into();
    for row in rows() {
        let of_verb = rows::inputs()
            .into_iter()
            .filter(|input| verb(input) == verb(&row.argument));
        pairs.extend(of_verb.map(|input| (row.argument.clone(), input)));
    }
    let tried = CASES.map(|(output, input, _)| (output.to_owned(), input.to_owned()));
    assert_eq!(pairs, tried.into());
}

#[test]
fn what_a_verb_reads_is_not_written() {
    let home = sources();
    let record = find_record(home.folder()).unwrap();
    let record = record
        .strip_prefix(home.folder())
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    for (output, _, calls) in CASES {
        for (call, files) in calls {
            for file in *files {
                let file = if *file == "RECORD" { &record } else { *file };
                let before = fs::read(home.path(file)).ok();
                // A link of the same ending, which is what tells an archive.
                let end = Path::new(file)
                    .extension()
                    .map_or("link", |end| end.to_str().unwrap());
                let link = format!("link.{end}");
                symlink(file, home.path(&link)).unwrap();
                let whole = home.path(file).to_str().unwrap().to_owned();
                let around = format!("lay/../{file}");
                for path in [file, &link, &whole, &around] {
                    let done = home.sconce(&words(call, path));
                    assert_eq!(done.code, 2, "{output}: {call} {path}: {done:?}");
                    assert!(
                        done.err.contains("what this reads")
                            && done.err.contains("hint: name another"),
                        "{call} {path}: {done:?}"
                    );
                    assert!(!home.path("began").exists());
                    assert_eq!(fs::read(home.path(file)).ok(), before, "{call} {path}");
                }
                fs::remove_file(home.path(&link)).unwrap();
            }
        }
    }
    // Nor by a descriptor.
    for (file, call) in [
        ("proj/sconce.toml", "doctor proj --facts /dev/fd/3"),
        ("proj/sconce.toml", "doctor proj --bundle - >&3"),
        ("own.pickle", "memory report own.pickle --html /dev/fd/3"),
        (record.as_str(), "export last --to csv - >&3"),
        (record.as_str(), "report --html /proc/self/fd/3"),
    ] {
        let before = fs::read(home.path(file)).unwrap();
        let done = home.shell(&format!("exec 3>>{file}; exec \"$sconce\" {call}"));
        assert!(
            done.code == 2 && done.err.contains("what this reads"),
            "{call}: {done:?}"
        );
        assert_eq!(fs::read(home.path(file)).unwrap(), before);
    }
    // The folder of a record has no place for anything else.
    let folder = Path::new(&record).parent().unwrap().to_str().unwrap();
    for call in [
        format!("export last --to tensorboard {folder}"),
        format!("export last --to tensorboard {folder}/new"),
        format!("export last --to csv {folder}/new"),
    ] {
        let done = home.sconce(&words(&call, ""));
        assert!(
            done.code == 2 && done.err.contains("what this reads"),
            "{call}: {done:?}"
        );
        assert_eq!(
            fs::read_dir(home.path(folder))
                .unwrap()
                .filter(|entry| { entry.as_ref().unwrap().file_name() == "new" })
                .count(),
            0
        );
    }
}

#[test]
fn what_lies_beside_the_inputs_is_written() {
    let home = sources();
    for call in [
        "doctor proj/sconce.toml --facts proj/facts.json",
        "doctor lay --facts lay/facts.json",
        "report --html proj/report.html",
        "export last --to tensorboard .",
        "run --host -q --json report.json -- true",
        "memory report own.pickle --html proj/page.html",
    ] {
        let done = home.sconce(&words(call, ""));
        assert!(!done.err.contains("what this reads"), "{call}: {done:?}");
    }
    let page = fs::read_to_string(home.path("proj/report.html")).unwrap();
    assert!(page.contains("<html"), "{page}");
}

/// By a link that leads there.
#[test]
fn a_lock_and_a_spec_do_not_replace_what_they_are_made_of() {
    let home = sources();
    for (link, target) in [
        ("proj/sconce.lock", "sconce.toml"),
        ("proj/sconce.lock", "needed.txt"),
        ("sconce.toml", "requirements.txt"),
    ] {
        fs::write(home.path("requirements.txt"), "numpy==2.0.0\n").unwrap();
        symlink(target, home.path(link)).unwrap();
        let before = fs::read(home.path(link)).unwrap();
        for call in match link {
            "sconce.toml" => ["init --force", "init requirements.txt --force"],
            _ => ["--offline lock proj", "--offline build proj"],
        } {
            let done = home.sconce(&words(call, ""));
            assert_ne!(done.code, 0, "{call}: {done:?}");
            assert_eq!(
                fs::read(home.path(link)).unwrap(),
                before,
                "{call}: {done:?}"
            );
            if link == "sconce.toml" {
                assert!(
                    done.code == 2 && done.err.contains("what this reads"),
                    "{call}: {done:?}"
                );
            }
        }
        fs::remove_file(home.path(link)).unwrap();
    }
}
