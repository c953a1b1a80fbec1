//! Locks what is named on the command line and prints the lock:
//! `cargo run --release --example lock -- STORE debian/trixie torch==2.15.0 torchvision`.
//! `--system NAME`, `--python 3.13`, `--architecture arm64`, `--previous FILE` and `--upgrade` may stand anywhere.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program, not a library"
)]

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use sconce_fetch::{FetchConfig, Fetcher};
use sconce_resolve::debian::sources::AptFile;
use sconce_resolve::python::IndexSettings;
use sconce_resolve::python::local_sources::UvProject;
use sconce_resolve::python::uv::UvSource;
use sconce_resolve::{LockContext, LockInput, StoreDocuments, resolve_lock};
use sconce_schema::{Hint, Lock, Progress, Sha256, WaitCause};
use sconce_store::Store;

struct Stderr(Instant);

impl Progress for Stderr {
    fn stage(&self, stage: &str, _: Option<u64>) {
        eprintln!("{:6.2} s  {stage}", self.0.elapsed().as_secs_f64());
    }
    fn advance(&self, _: &str, _: u64) {}
    fn done(&self, name: &str) {
        eprintln!("{:6.2} s  {name} done", self.0.elapsed().as_secs_f64());
    }
    fn note(&self, text: &str) {
        eprintln!("note: {text}");
    }
    fn waits(&self, name: &str, wait: Option<&WaitCause>) {
        if let Some(wait) = wait {
            eprintln!("{name}: {wait}");
        }
    }
}

fn apt_files() -> Vec<AptFile> {
    let folders = ["/etc/apt", "/etc/apt/sources.list.d", "/etc/apt/mirrors"];
    folders
        .iter()
        .flat_map(std::fs::read_dir)
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let text = std::fs::read_to_string(&path).ok()?;
            Some(AptFile { path, text })
        })
        .collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (mut plain, mut system, mut python, mut architecture, mut previous, mut upgrade) =
        (Vec::new(), Vec::new(), None, None, None, false);
    let (mut requirements, mut pyproject) = (None, None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--system" => system.extend(words.next()),
            "--python" => python = words.next(),
            "--architecture" => architecture = words.next(),
            "--previous" => previous = words.next(),
            "--requirements" => requirements = words.next().map(PathBuf::from),
            "--pyproject" => pyproject = words.next().map(PathBuf::from),
            "--upgrade" => upgrade = true,
            _ => plain.push(word),
        }
    }
    let [store, release, packages @ ..] = &plain[..] else {
        return Err("STORE RELEASE PACKAGE…".into());
    };
    let store = Store::open(Path::new(store))?;
    let fetcher = Fetcher::new(FetchConfig::default())?;
    let path_folders: Vec<PathBuf> =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    let input = LockInput {
        release: release.clone(),
        is_release_open: false,
        architecture: architecture.unwrap_or_else(|| "amd64".to_owned()),
        python,
        python_bound: None,
        requirements: sconce_resolve::python::compile::Requirements {
            packages: packages.to_vec(),
            file: requirements,
            pyprojects: match pyproject {
                Some(path) => vec![UvProject::read(&path)?.for_uv(&[])],
                None => Vec::new(),
            },
            ..Default::default()
        },
        project_folders: Vec::new(),
        project_names: Vec::new(),
        project_builds: Vec::new(),
        folder: std::env::current_dir()?,
        system_packages: system,
        services: Vec::new(),
        compiler: None,
        more: Vec::new(),
        as_of: None,
        build_settings: Default::default(),
        index: IndexSettings::default(),
        mirror: Default::default(),
        previous: previous
            .map(|path| {
                Lock::parse(&std::fs::read_to_string(path)?)
                    .map_err(Box::<dyn std::error::Error>::from)
            })
            .transpose()?,
        upgrade,
        inputs: Sha256([0; 32]),
    };
    let env = LockContext {
        documents: &StoreDocuments {
            fetcher: &fetcher,
            store: &store,
        },
        store: &store,
        apt_files: apt_files(),
        keyring: None,
        uv: UvSource {
            path_uv: path_folders
                .iter()
                .map(|f| f.join("uv"))
                .find(|p| p.is_file()),
            pip: Some(vec!["python3".into(), "-m".into(), "pip".into()]),
            offline: false,
        },
        path_folders,
        python_downloads: None,
        environment: std::env::vars_os().collect(),
        pip_index: IndexSettings::default(),
        source_builder: None,
        now: SystemTime::now(),
    };
    let progress = Stderr(Instant::now());
    match resolve_lock(&input, &env, &progress) {
        Ok(lock) => {
            print!("{}", lock.to_text());
            let size: u64 = lock.debs.iter().map(|deb| deb.size).sum();
            eprintln!(
                "{:6.2} s  {} wheels, {} debs of {} bytes",
                progress.0.elapsed().as_secs_f64(),
                lock.wheels.len(),
                lock.debs.len(),
                size
            );
            Ok(())
        }
        Err(error) => {
            eprintln!("error: {error}");
            let mut source = std::error::Error::source(&error);
            while let Some(error) = source {
                eprintln!("  caused by: {error}");
                source = error.source();
            }
            if let Some(hint) = error.hint() {
                eprintln!("hint: {hint}");
            }
            std::process::exit(error.exit_code().into());
        }
    }
}
