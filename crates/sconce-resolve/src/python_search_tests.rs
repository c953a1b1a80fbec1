use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, OnceLock};

use sconce_schema::Hint as _;
use sconce_schema::{NoProgress, WaitCause, exit};
use sconce_store::Store;

use super::*;
use crate::documents::memory::MemoryDocuments;
use crate::python::compile_error::NoSolution;
use crate::python::local_sources::UvProject;
use crate::python::python_bounds::read_bounds;
use crate::python::uv::UvSource;

#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Progress for Notes {
    fn stage(&self, _: &str, _: Option<u64>) {}
    fn advance(&self, _: &str, _: u64) {}
    fn done(&self, _: &str) {}
    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
    fn waits(&self, _: &str, _: Option<&WaitCause>) {}
}

fn no_wheels(pin: &str, tags: &[u32]) -> CompileError {
    let mut stderr =
        format!("Because {pin} has no wheels with a matching Python ABI tag (e.g., `cp313`)\n");
    if !tags.is_empty() {
        stderr += "but we only found wheels with the following Python ABI tags:";
        for tag in tags {
            let _ = write!(stderr, " `cp3{tag}`");
        }
    }
    CompileError::NoSolution {
        kind: NoSolution::OtherPythons,
        stderr,
    }
}

fn conflict(stderr: &str) -> CompileError {
    CompileError::NoSolution {
        kind: NoSolution::Conflict,
        stderr: stderr.to_owned(),
    }
}

fn too_old(pin: &str) -> CompileError {
    conflict(&format!(
        "the requested Python version (>=3.8) does not satisfy Python>=3.10 and {pin} depends on"
    ))
}

/// What is found, asked for, and noted, for a project's bound and what resolves.
fn find(
    bound: Option<&str>,
    table: &str,
    change: impl FnOnce(&mut PythonSearch<'_>),
    resolves: impl Fn(u32) -> Result<(), CompileError>,
) -> (Result<CandidatePython, ResolveError>, Vec<u32>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("store")).unwrap();
    let pyproject = folder.path().join("pyproject.toml");
    if let Some(bound) = bound {
        std::fs::write(
            &pyproject,
            format!("[project]\nrequires-python = \"{bound}\""),
        )
        .unwrap();
    }
    let project = match bound {
        Some(_) => UvProject::read(&pyproject).unwrap(),
        None => UvProject::without_file(&pyproject),
    };
    let file = folder.path().join("pythons.json");
    std::fs::write(&file, table).unwrap();
    let table = DownloadTable {
        keep: None,
        named: file.to_str(),
        machine: CpuArchitecture::X86_64,
        documents: &MemoryDocuments::with_test_archive(),
        store: &store,
        source: &UvSource::default(),
        environment: &BTreeMap::new(),
        progress: &NoProgress,
        table: OnceLock::new(),
    };
    let mut search = PythonSearch {
        is_open: true,
        is_release_open: true,
        kept: None,
        bounds: read_bounds(&[project.for_uv(&[])], &[]),
        table: &table,
        can_fetch: &|_| true,
    };
    change(&mut search);
    let first = CandidatePython {
        minor: 13,
        full: "3.13.5".to_owned(),
        release: "debian/trixie".to_owned(),
        glibc_minor: 41,
        standalone: None,
    };
    let notes = Notes::default();
    let mut asked = Vec::new();
    let found = search.find(&first, &notes, |python| {
        asked.push(python.minor);
        resolves(python.minor)
    });
    (
        found.map(|found| found.0),
        asked,
        notes.0.into_inner().unwrap(),
    )
}

/// A table of 3.8 to 3.15, each with the patch 7.
fn table() -> String {
    let entry = |minor: u32| {
        let file =
            format!("cpython-3.{minor}.7+20260101-x86_64-unknown-linux-gnu-install_only.tar.gz");
        let entry = serde_json::json!({
            "name": "cpython", "arch": "x86_64", "os": "linux", "libc": "gnu", "major": 3,
            "minor": minor, "patch": 7, "sha256": "0".repeat(64),
            "url": format!("https://host.example/{file}"),
        });
        (format!("cpython-{minor}"), entry)
    };
    let entries: serde_json::Map<_, _> = (8..=15).map(entry).collect();
    serde_json::Value::Object(entries).to_string()
}

/// A lock that is written anew keeps its Python as it keeps its versions.
#[test]
fn the_python_of_the_lock_before_stays_while_it_can() {
    let kept = |minor| move |search: &mut PythonSearch<'_>| search.kept = Some(minor);
    let (found, asked, notes) = find(None, &table(), kept(11), |_| Ok(()));
    assert_eq!((found.unwrap().minor, asked, notes), (11, vec![11], vec![]));
    let newer = |minor| match minor {
        11 => Err(no_wheels("a==2", &[])),
        _ => Ok(()),
    };
    let (found, asked, _) = find(None, &table(), kept(11), newer);
    assert_eq!((found.unwrap().minor, asked), (13, vec![11, 13]));
    let (found, asked, _) = find(Some(">=3.12"), &table(), kept(11), |_| Ok(()));
    assert_eq!((found.unwrap().minor, asked), (13, vec![13]));
}

#[test]
fn the_releases_own_is_taken_without_a_word() {
    let (found, asked, notes) = find(None, "", |_| {}, |_| Ok(()));
    let found = found.unwrap();
    assert_eq!((found.minor, found.standalone), (13, None));
    assert_eq!((asked, notes), (vec![13], vec![]));
}

#[test]
fn the_next_lower_one_is_taken_and_the_pin_named() {
    let numpy = |minor| match minor {
        9 => Ok(()),
        _ => Err(no_wheels("numpy==1.21.0", &[])),
    };
    let (found, asked, notes) = find(None, &table(), |_| {}, numpy);
    let found = found.unwrap();
    assert_eq!(found.standalone.unwrap().version, "3.9.7");
    assert_eq!(asked, [13, 12, 11, 10, 9]);
    assert_eq!(
        notes,
        ["Python 3.9.7, standalone: numpy==1.21.0 has no wheels for 3.13, 3.12, 3.11 or 3.10"]
    );
}

#[test]
fn a_python_that_cannot_be_fetched_yields_to_one_that_is_here() {
    let below_13 = |minor| match minor {
        13 => Err(no_wheels("numpy==1.26.4", &[])),
        _ => Ok(()),
    };
    let out_of_reach = |search: &mut PythonSearch<'_>| search.can_fetch = &|_| false;
    let (found, asked, notes) = find(None, &table(), out_of_reach, below_13);
    assert_eq!((found.unwrap().minor, asked), (11, vec![13, 12, 11]));
    assert_eq!(
        notes,
        [
            "Python 3.12.7, standalone would do as well, and cannot be fetched from here",
            "Python 3.11 of debian/bookworm: numpy==1.26.4 has no wheels for 3.13"
        ]
    );
    // Where only such ones resolve, the first of them stays.
    let below_11 = |minor| match minor {
        11.. => Err(no_wheels("a==1", &[])),
        _ => Ok(()),
    };
    let (found, asked, notes) = find(None, &table(), out_of_reach, below_11);
    assert_eq!(found.unwrap().standalone.unwrap().version, "3.10.7");
    assert_eq!((asked, notes.len()), (vec![13, 12, 11, 10], 1));
}

#[test]
fn the_one_of_the_lock_is_kept_wherever_it_is_found_now() {
    let kept = StandalonePython {
        version: "3.9.1".to_owned(),
        release: "20250101".to_owned(),
        file: "x.tar.gz".to_owned(),
        url: "https://host.example/x.tar.gz".to_owned(),
        size: None,
        sha256: sconce_schema::Sha256([0; 32]),
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pythons.json");
    let store = Store::open(&folder.path().join("store")).unwrap();
    let newest = |minor, kept: &StandalonePython| {
        let table = DownloadTable {
            keep: Some(kept),
            named: file.to_str(),
            machine: CpuArchitecture::X86_64,
            documents: &MemoryDocuments::with_test_archive(),
            store: &store,
            source: &UvSource::default(),
            environment: &BTreeMap::new(),
            progress: &NoProgress,
            table: OnceLock::new(),
        };
        table.newest(minor)
    };
    // Without a table from where it was.
    assert_eq!(newest(9, &kept).unwrap(), Some(kept.clone()));
    assert!(newest(10, &kept).is_err());
    // The same bytes under another address.
    let text = table().replace(&"0".repeat(64), &"1".repeat(64));
    let text = text.replacen(&"1".repeat(64), &"0".repeat(64), 1);
    std::fs::write(&file, text).unwrap();
    let found = newest(9, &kept).unwrap().unwrap();
    let zeros = |python: &StandalonePython| python.sha256 == kept.sha256;
    assert!(zeros(&found) && found.url != kept.url, "{found:?}");
    // A table that is named and does not have it.
    let other = StandalonePython {
        sha256: sconce_schema::Sha256([7; 32]),
        ..kept.clone()
    };
    assert_eq!(newest(9, &other).unwrap().unwrap().version, "3.9.7");
}

#[test]
fn tags_that_uv_names_are_gone_to_at_once() {
    let torch = |minor| match minor {
        8..=11 => Ok(()),
        _ => Err(no_wheels("torch==1.13.1", &[7, 8, 9, 10, 11])),
    };
    let (found, asked, notes) = find(None, "", |_| {}, torch);
    let found = found.unwrap();
    assert_eq!(
        (
            &*found.release,
            found.glibc_minor,
            &*found.full,
            found.standalone
        ),
        ("debian/bookworm", 36, "3.11.2", None),
        "no table is needed for what Debian has"
    );
    assert_eq!(asked, [13, 11]);
    assert_eq!(
        notes,
        ["Python 3.11 of debian/bookworm: torch==1.13.1 has no wheels for 3.13 or 3.12"]
    );
    // Where the spec names the release, it stays.
    let (found, ..) = find(
        None,
        &table(),
        |search| search.is_release_open = false,
        torch,
    );
    let found = found.unwrap();
    assert_eq!((&*found.release, &*found.full), ("debian/trixie", "3.11.7"));
}

#[test]
fn each_pin_is_named_with_what_it_rules_out() {
    let (found, _, notes) = find(
        None,
        &table(),
        |_| {},
        |minor| match minor {
            12 | 13 => Err(no_wheels("a==1", &[])),
            11 => Err(conflict("does not satisfy Python<3.11 and b==2 depends on")),
            _ => Ok(()),
        },
    );
    assert_eq!(found.unwrap().minor, 10);
    assert_eq!(
        notes,
        [
            "Python 3.10.7, standalone: a==1 has no wheels for 3.13 or 3.12; b==2 wants an older one than 3.11"
        ]
    );
}

#[test]
fn what_projects_say_is_not_asked_for() {
    let (found, asked, notes) = find(Some(">=3.8,<3.11"), &table(), |_| {}, |_| Ok(()));
    assert_eq!((found.unwrap().minor, asked), (10, vec![10]));
    assert_eq!(
        notes,
        ["Python 3.10.7, standalone: pyproject.toml asks for >=3.8,<3.11"]
    );
    let (found, asked, _) = find(Some(">=3.14"), &table(), |_| {}, |_| Ok(()));
    assert_eq!((found.unwrap().minor, asked), (14, vec![14]));
    let (found, asked, _) = find(Some("<3.8"), &table(), |_| {}, |_| Ok(()));
    let error = found.unwrap_err();
    assert_eq!(
        error.to_string(),
        "pyproject.toml asks for <3.8, and environments have Python 3.8 to 3.15"
    );
    assert_eq!((error.exit_code(), asked.len()), (exit::NO_SOLUTION, 0));
}

#[test]
fn a_table_without_what_projects_ask_for_is_said() {
    let entries: serde_json::Value = serde_json::from_str(&table()).unwrap();
    let older = ["cpython-8", "cpython-12"].map(|name| (name.to_owned(), entries[name].clone()));
    let older = serde_json::Value::Object(older.into_iter().collect()).to_string();
    for bound in [">=3.14", "==3.10.*"] {
        let (found, asked, _) = find(Some(bound), &older, |_| {}, |_| Ok(()));
        let error = found.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "pyproject.toml asks for {bound}: debian/trixie has Python 3.13, and no standalone one is \
                 known but 3.8, 3.12"
            )
        );
        assert_eq!((error.exit_code(), asked.len()), (exit::NO_SOLUTION, 0));
        assert!(error.hint().unwrap().contains("python-downloads"));
    }
}

#[test]
fn a_newer_one_is_taken_where_packages_want_it() {
    let (found, asked, _) = find(
        None,
        &table(),
        |_| {},
        |minor| match minor {
            15 => Ok(()),
            14 => Err(no_wheels("a==1", &[15])),
            _ => Err(too_old("a==1")),
        },
    );
    assert_eq!((found.unwrap().minor, asked), (15, vec![13, 14, 15]));
}

#[test]
fn the_error_is_of_the_attempt_that_got_furthest() {
    // Sources alone for every Python, once torch is out of the way.
    let (found, asked, _) = find(
        None,
        &table(),
        |_| {},
        |minor| {
            Err(match minor {
                12..=13 => no_wheels("torch==1.13.1", &[8, 9, 10, 11]),
                8 => too_old("c==1"),
                _ => no_wheels("promise==2.3", &[]),
            })
        },
    );
    let error = found.unwrap_err();
    assert_eq!(asked, [13, 11, 10, 9, 8]);
    let ResolveError::NoPython { best, source, .. } = &error else {
        panic!("{error}");
    };
    assert!(source.to_string().contains("promise==2.3"));
    assert_eq!(
        (best.as_str(), error.exit_code()),
        ("3.11", exit::NO_SOLUTION)
    );
    assert!(
        error
            .to_string()
            .contains("Python 3.13, 3.11, 3.10, 3.9 or 3.8 (torch==1.13.1 has no wheels for 3.13 or 3.12); for 3.11")
    );
    assert!(error.hint().is_some());
}

#[test]
fn what_has_nothing_to_do_with_python_ends_it() {
    let (found, asked, _) = find(None, &table(), |_| {}, |_| Err(conflict("a==1 and a==2")));
    assert!(matches!(found, Err(ResolveError::Compile(_))));
    assert_eq!(asked, [13]);
    let offline = |_| {
        Err(CompileError::Offline {
            stderr: String::new(),
        })
    };
    let (found, asked, _) = find(None, &table(), |_| {}, offline);
    assert_eq!(
        (found.unwrap_err().exit_code(), asked),
        (exit::FETCH, vec![13])
    );
}

#[test]
fn a_python_that_is_asked_for_is_the_only_one() {
    let (found, asked, _) = find(
        Some("<3.11"),
        &table(),
        |search| search.is_open = false,
        |_| Err(no_wheels("a==1", &[9])),
    );
    assert!(matches!(found, Err(ResolveError::Compile(_))));
    assert_eq!(asked, [13]);
}

#[test]
fn without_a_table_debians_are_tried() {
    let (found, asked, notes) = find(
        None,
        "<html>",
        |_| {},
        |minor| match minor {
            11 => Ok(()),
            _ => Err(no_wheels("a==1", &[])),
        },
    );
    assert_eq!((found.unwrap().minor, asked), (11, vec![13, 11]));
    assert_eq!(
        notes,
        ["Python 3.11 of debian/bookworm: a==1 has no wheels for 3.13"]
    );
    let (found, asked, notes) = find(None, "<html>", |_| {}, |_| Err(no_wheels("a==1", &[])));
    assert!(found.unwrap_err().to_string().contains("3.13 or 3.11"));
    assert_eq!(asked, [13, 11]);
    assert!(
        notes[0].contains("is not a table of standalone Pythons"),
        "{notes:?}"
    );
}
