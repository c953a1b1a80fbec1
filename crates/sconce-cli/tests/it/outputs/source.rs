//! Nothing that a user names is written by any other way than the one that knows how.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What makes, replaces, truncates or appends to a file, or makes a folder.
const WRITES: [&str; 18] = [
    "File::create",
    "fs::write(",
    "fs::rename(",
    "fs::copy(",
    "fs::hard_link(",
    ".create(true)",
    ".create_new(true)",
    ".truncate(true)",
    ".write(true)",
    ".append(true)",
    "OFlags::CREATE",
    "OFlags::TRUNC",
    "OFlags::TMPFILE",
    ".persist(",
    "tempfile::",
    "create_dir",
    "DirBuilder",
    "mkdirat(",
];

/// Where files are written that no user names, and why there.
const ALLOWED: [(&str, &str); 26] = [
    ("sconce-app/src/job/job_dir.rs", "the folder of a job"),
    (
        "sconce-app/src/job/job_dir/files.rs",
        "the directory of a job",
    ),
    (
        "sconce-app/src/job/job_dir/outcome.rs",
        "the directory of a job",
    ),
    (
        "sconce-app/src/job/local_store.rs",
        "the store on a node's own disk",
    ),
    (
        "sconce-app/src/job/site_image.rs",
        "an OCI bundle in the folder of a job",
    ),
    (
        "sconce-app/src/job/answers.rs",
        "what schedulers said, in the folder of jobs",
    ),
    (
        "sconce-app/src/job/program.rs",
        "this program, in the store",
    ),
    (
        "sconce-app/src/accounting.rs",
        "a socket and files in the folder of a run",
    ),
    (
        "sconce-app/src/environment_builder/editable.rs",
        "a wheel in the folder of runs, on its way to the store",
    ),
    (
        "sconce-cli/src/commands/fit/server.rs",
        "tasks in the folder of a trial",
    ),
    (
        "sconce-cli/src/commands/fit/trial_process.rs",
        "tasks in the folder of a trial",
    ),
    (
        "sconce-cli/src/commands/fit/trial.rs",
        "the folder of a trial, and /dev/null",
    ),
    (
        "sconce-cli/src/commands/lease/serve.rs",
        "the folders of the lease service",
    ),
    (
        "sconce-app/src/detach.rs",
        "the log of a run in the background",
    ),
    ("sconce-app/src/inspect/scan.rs", "an item of the store"),
    (
        "sconce-app/src/kernel_cache.rs",
        "the folder of kept kernels",
    ),
    (
        "sconce-app/src/project_version.rs",
        "where a commit stands, in a folder of the store",
    ),
    ("sconce-app/src/run_temp_dir.rs", "the folder of a run"),
    (
        "sconce-app/src/probe.rs",
        "the probe in the folder of a run",
    ),
    (
        "sconce-app/src/services/files.rs",
        "files of services in the folder of a run, and their host keys",
    ),
    (
        "sconce-app/src/source_builds/build_container.rs",
        "what a build is given, in a folder of runs, and its log in a folder of the user's state",
    ),
    (
        "sconce-app/src/source_builds/mod.rs",
        "a wheel on its way into the store",
    ),
    (
        "sconce-app/src/source_builds/prebuilt.rs",
        "a wheel on its way into the store",
    ),
    (
        "sconce-app/src/source_builds/source_fetcher.rs",
        "sources on their way into the store",
    ),
    (
        "sconce-app/src/virtual_gpu.rs",
        "the library of a virtual card in the folder of a run",
    ),
    (
        "sconce-host/src/cdi.rs",
        "the driver's parameters, masked, in the folder of a run",
    ),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && !is_test(&path) {
            found.push(path);
        }
    }
}

/// Whether the whole file is a test.
fn is_test(path: &Path) -> bool {
    path.file_stem()
        .is_some_and(|stem| stem == "tests" || stem.to_string_lossy().ends_with("_tests"))
}

/// A source without its tests, which are its last part.
fn program(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text)
}

#[test]
fn only_one_place_writes_what_users_name() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for folder in [
        "sconce-app/src",
        "sconce-cli/src",
        "sconce-report/src",
        "sconce-memory/src",
        "sconce-host/src/cdi",
        "sconce-image/src/squashfs",
    ] {
        sources(&crates.join(folder), &mut files);
    }
    for file in [
        "sconce-host/src/cdi.rs",
        "sconce-image/src/docker_archive.rs",
        "sconce-image/src/layout.rs",
    ] {
        files.push(crates.join(file));
    }
    let mut found = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let name = file
            .strip_prefix(crates)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let lines = program(&text).lines().map(str::trim);
        let code = lines.filter(|line| !line.starts_with("//"));
        if code
            .into_iter()
            .any(|line| WRITES.iter().any(|write| line.contains(write)))
        {
            found.insert(name);
        }
    }
    let allowed: BTreeSet<String> = ALLOWED.iter().map(|(file, _)| (*file).to_owned()).collect();
    let others: Vec<&String> = found.difference(&allowed).collect();
    let gone: Vec<&String> = allowed.difference(&found).collect();
    assert!(
        others.is_empty() && gone.is_empty(),
        "{others:#?} write files: what a user names goes through `outputs`, what nobody names stands in ALLOWED\n\
         and {gone:#?} stand there, which write none"
    );
}
