//! One environment to build in, and runs in it: a look at sources, and a build.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sconce_base::input;
use sconce_formats::tags::WheelName;
use sconce_host::{HostProfile, Roots};
use sconce_image::{assemble_environment, find_missing_packages};
use sconce_run::RunObserver;
use sconce_schema::request::{Mount, RunLimits, RunRequest, RunRoot};
use sconce_schema::{Bytes, EnvironmentLayers, Lock, NoProgress, exit};
use sconce_store::ItemGuard;
use serde::Deserialize;

use super::build_plan::{BuildPlan, SourceFacts};
use super::{ContainedBuilder, SourceBuildError};
use crate::enclosing_job::EnclosingJob;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::internal_run::{InternalRun, internal_run_request};
use crate::item_guards::{acquire_root_guards, with_item_guards};
use crate::offline;

/// What runs inside.
const SCRIPT: &str = include_str!("build_source.py");
/// Where that, sources and results are inside.
const SCRIPT_FILE: &str = "/build_source.py";
const SOURCE: &str = "/source";
const OUTPUT: &str = "/output";
/// What builds are told, so that the same sources give the same bytes, and none asks an index.
const VARIABLES: [(&str, &str); 10] = [
    ("SOURCE_DATE_EPOCH", "315532800"),
    ("PYTHONHASHSEED", "0"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    ("LC_ALL", "C.UTF-8"),
    ("TZ", "UTC"),
    ("HOME", "/tmp"),
    ("PIP_NO_INDEX", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("PATH", "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin"),
    ("VIRTUAL_ENV", "/opt/venv"),
];
const PLAN: &str = "SCONCE_BUILD";
/// Processes and threads of one build, and its open files.
const MAX_PROCESSES: u64 = 2048;
/// What a build may say of itself.
const MAX_FACTS_BYTES: Bytes = Bytes::from_mib(8);
/// How much of a log is looked at for what matters.
const MAX_LOG_BYTES: u64 = 4 << 20;
/// What [`SCRIPT`] exits with where a build takes too long.
const TIMED_OUT: u8 = 124;
/// Lines of a log that an error shows.
const SHOWN_LINES: usize = 12;

/// The environment of `lock`, which is Sconce's own: no bytecode is made for it, and only what is fetched
/// is told.
fn assemble_packages(builder: &ContainedBuilder<'_>, lock: &Lock) -> Result<EnvironmentLayers> {
    let missing = find_missing_packages(lock, builder.store);
    if builder.context.offline {
        offline::check_is_there(&missing)?;
    }
    let progress = match missing.is_empty() {
        true => &NoProgress,
        false => builder.progress,
    };
    let (store, fetcher) = (builder.store, builder.fetcher);
    Ok(assemble_environment(lock, store, fetcher, progress)?)
}

/// An environment that builds run over.
pub(super) struct BuildContainer<'a> {
    builder: &'a ContainedBuilder<'a>,
    lock: Lock,
    root: EnvironmentLayers,
    _stays: Vec<ItemGuard>,
}

/// How a build ended.
pub(super) enum BuildOutcome {
    /// With this wheel.
    Wheel(BuiltFile),
    /// It wants these requirements.
    Lacks(Vec<String>),
    /// Its setup lacks this module.
    Module(String, SourceBuildError),
    /// It failed.
    Failed(SourceBuildError),
}

/// A file that goes with its folder.
pub(super) struct BuiltFile {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl BuiltFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BuildResult {
    requires: Vec<String>,
    module: Option<String>,
    wheel: Vec<String>,
    /// Folders that were put into a wheel without any module.
    added: Vec<String>,
}

struct SilentObserver;
impl RunObserver for SilentObserver {}

impl<'a> BuildContainer<'a> {
    /// The environment of `lock`, fetched where the store does not have it.
    pub(super) fn prepare(builder: &'a ContainedBuilder<'a>, lock: &Lock) -> Result<Self> {
        let bring = || assemble_packages(builder, lock);
        let (root, stays) = with_item_guards(bring, |layers| &layers.layers)?;
        Ok(Self {
            builder,
            lock: lock.clone(),
            root,
            _stays: stays,
        })
    }

    /// Looks at sources.
    pub(super) fn inspect(&self, source: &Path, folder: &str) -> Result<SourceFacts> {
        let output = self.builder.temp_folder()?;
        let python = self.lock.python_program();
        let words = [&python, "-I", "-B", SCRIPT_FILE, "inspect"];
        let ended = self.execute(&words, source, output.path(), folder, BTreeMap::new())?;
        let facts = input::read_regular(&output.path().join("facts.json"), MAX_FACTS_BYTES);
        let facts = facts
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        match facts.filter(|_| ended == exit::OK) {
            Some(facts) => Ok(facts),
            None => Err(SourceBuildError::Unreadable.into()),
        }
    }

    /// Builds a wheel. `label` names the log.
    pub(super) fn build(
        &self,
        source: &Path,
        folder: &str,
        plan: &BuildPlan,
        label: &str,
    ) -> Result<BuildOutcome> {
        let output = self.builder.temp_folder()?;
        let progress = self.builder.progress;
        progress.stage("build", None);
        progress.advance(label, 0);
        let text = serde_json::to_string(plan).unwrap_or_default();
        let mut variables = plan.env.clone();
        variables.insert(PLAN.to_owned(), text);
        let words = ["/opt/venv/bin/python", "-B", SCRIPT_FILE, "build"];
        let ended = self.execute(&words, source, output.path(), folder, variables)?;
        progress.done(label);
        let log = self.keep_log(output.path(), label)?;
        if ended == TIMED_OUT {
            let minutes = plan.seconds / 60;
            return Ok(BuildOutcome::Failed(SourceBuildError::TooLong {
                minutes,
                log,
            }));
        }
        let result = input::read_regular(&output.path().join("result.json"), MAX_FACTS_BYTES);
        let result = result
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let result: BuildResult = result.unwrap_or_default();
        if !result.requires.is_empty() {
            return Ok(BuildOutcome::Lacks(result.requires));
        }
        let text = read_log(&log);
        let module = result.module.or_else(|| missing_module(&text));
        let failed = || SourceBuildError::Failed {
            excerpt: excerpt(&text),
            log: log.clone(),
            module: (module.as_deref()).map(|name| sconce_base::text::to_printable(name, 80)),
            newer_python: None,
        };
        if let Some(module) = &module {
            return Ok(BuildOutcome::Module(module.clone(), failed()));
        }
        let name = match result.wheel.as_slice() {
            [name] if WheelName::parse(name).is_some() && !name.contains('/') => name,
            [] if lacks_processes(&text) => {
                let limit = MAX_PROCESSES;
                let error = SourceBuildError::TooManyProcesses { limit, log };
                return Ok(BuildOutcome::Failed(error));
            }
            [] => return Ok(BuildOutcome::Failed(failed())),
            names => {
                let count = names.len();
                return Ok(BuildOutcome::Failed(SourceBuildError::NotOneWheel {
                    count,
                }));
            }
        };
        if !result.added.is_empty() {
            let folders = result.added.iter().take(SHOWN_LINES);
            let folders: Vec<String> = folders
                .map(|name| sconce_base::text::to_printable(name, 100))
                .collect();
            progress.note(&format!(
                "{label}: its setup names no module; those in {} are taken, as `pip install -e` finds them",
                folders.join(", ")
            ));
        }
        let path = output.path().join("wheel").join(name);
        // What the build left may be anything; a link would be read where it leads.
        input::open_regular(&path)
            .and_then(|_| path.symlink_metadata())
            .ok()
            .filter(std::fs::Metadata::is_file)
            .ok_or(SourceBuildError::NotOneWheel { count: 0 })?;
        Ok(BuildOutcome::Wheel(BuiltFile {
            path,
            _folder: output,
        }))
    }

    fn execute(
        &self,
        words: &[&str],
        source: &Path,
        output: &Path,
        folder: &str,
        further: BTreeMap<String, String>,
    ) -> Result<u8> {
        let bind = |from: &Path, target: &str, read_only| Mount {
            source: from.to_owned(),
            target: target.into(),
            read_only,
        };
        let script = self.builder.temp_folder()?;
        let script_file = script.path().join("build_source.py");
        std::fs::write(&script_file, SCRIPT).map_err(|source| AppError::File {
            action: FileAction::Write,
            path: script_file.clone(),
            source,
        })?;
        let places = [SOURCE, OUTPUT, folder];
        let command = words.iter().chain(&places).map(ToString::to_string);
        let variables = VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut env: BTreeMap<String, String> = self.root.env.clone();
        env.extend(further);
        env.extend(variables);
        let memory = HostProfile::read(&Roots::default()).memory;
        let request = RunRequest {
            env,
            limits: RunLimits {
                pids: Some(MAX_PROCESSES),
                // A compiler that takes all of it would take other people's programs with it.
                memory: memory.map(|bytes| Bytes(bytes.0 / 4 * 3)),
                ..RunLimits::default()
            },
            ..internal_run_request(
                RunRoot::Image(self.root.clone()),
                "build-source",
                command.collect(),
                vec![
                    bind(&script_file, SCRIPT_FILE, true),
                    bind(source, SOURCE, true),
                    bind(output, OUTPUT, false),
                ],
            )
        };
        let _stays = acquire_root_guards(&request.root)?;
        let internal = InternalRun {
            scratch: &self.builder.places.scratch,
            keep: None,
            in_job: EnclosingJob::find(&self.builder.context.env).is_some(),
            sample_every: Duration::from_secs(3600),
            grace: Duration::ZERO,
        };
        Ok(internal.execute(&request, &mut SilentObserver)?.exit_code())
    }

    /// Puts a build's log where it stays.
    fn keep_log(&self, output: &Path, label: &str) -> Result<PathBuf> {
        let folder = self.builder.places.state.join("builds");
        let log = folder.join(format!("{label}.log"));
        let failed = |source| AppError::File {
            action: FileAction::Write,
            path: log.clone(),
            source,
        };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let limit = Bytes::from_mib(64);
        let bytes = input::read_regular(&output.join("log"), limit).unwrap_or_default();
        std::fs::write(&log, bytes).map_err(failed)?;
        Ok(log)
    }
}

fn read_log(log: &Path) -> String {
    let bytes = input::read_regular(log, Bytes(MAX_LOG_BYTES)).unwrap_or_default();
    sconce_base::text::tame(String::from_utf8_lossy(&bytes).into_owned())
}

/// The module that a process of the build did not find.
fn missing_module(log: &str) -> Option<String> {
    let (_, rest) = log.rsplit_once("ModuleNotFoundError: No module named '")?;
    let (name, _) = rest.split_once('\'')?;
    Some(name.to_owned())
}

/// Whether a build ended because it got no further process (fork(2), `EAGAIN`), which its limit refuses.
fn lacks_processes(log: &str) -> bool {
    if log.lines().any(is_compiler_error) {
        return false;
    }
    let of_shells = [
        "fork: Resource temporarily",
        "fork: retry: Resource temporarily",
    ];
    let of_python = log.contains("BlockingIOError: [Errno 11]") && log.contains("fork")
        || log.contains("RuntimeError: can't start new thread");
    of_python || of_shells.iter().any(|sign| log.contains(sign))
}

/// What matters of a log: the first error of a compiler, else its last lines.
fn excerpt(log: &str) -> String {
    // Carets below a traceback's line say nothing where that line is cut.
    let is_said = |line: &&str| !line.chars().all(|c| matches!(c, ' ' | '^' | '~'));
    let lines: Vec<&str> = log.lines().filter(is_said).collect();
    let first = lines.iter().position(|line| is_compiler_error(line));
    let from = first.unwrap_or(lines.len().saturating_sub(SHOWN_LINES));
    let shown = lines[from..].iter().take(SHOWN_LINES);
    let shown = shown.map(|line| sconce_base::text::to_printable(line, 200));
    shown.collect::<Vec<String>>().join("\n")
}

/// Whether a line is an error of gcc or clang (`x.c:3:10: error: …`, `cc1: fatal error: …`), nvcc
/// (`x.cu(3): error: …`), rustc (`error[E0425]: …`), CMake, meson or pkg-config.
fn is_compiler_error(line: &str) -> bool {
    let has_place = || {
        let number = line.split(':').nth(1).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    };
    line.contains("fatal error:")
        || line.contains("): error")
        || line.starts_with("error[E")
        || line.starts_with("CMake Error")
        || line.contains("was not found in the pkg-config search path")
        || (has_place() && (line.contains(" error: ") || line.contains(" ERROR: ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_compilers_are_known() {
        for line in [
            "x.c:3:10: error: unknown type name",
            "cc1: fatal error: pycocotools/_mask.c: No such file or directory",
            "ops.cu(12): error: identifier is undefined",
            "error[E0425]: cannot find value",
            "../meson.build:33:0: ERROR: Program 'swig' not found",
            "CMake Error at CMakeLists.txt:3 (find_package):",
            "Package libavformat was not found in the pkg-config search path.",
        ] {
            assert!(is_compiler_error(line), "{line}");
        }
        for line in [
            "SystemExit: error: Command '['x86_64-linux-gnu-gcc'",
            "error: command 'gcc' failed with exit code 1",
            "x.c:46:7: warning: this clause does not guard",
        ] {
            assert!(!is_compiler_error(line), "{line}");
        }
    }

    #[test]
    fn a_compilers_error_comes_first() {
        let mut log = "running build_ext\nx.c: In function 'f':\n".to_owned();
        log += "x.c:3:10: fatal error: Python.h: No such file or directory\n    3 | #include\n";
        for number in 0..300 {
            log += &format!("line {number} of a traceback\n");
        }
        assert!(excerpt(&log).starts_with("x.c:3:10: fatal error: Python.h"));
        assert_eq!(excerpt(&log).lines().count(), SHOWN_LINES);
        let plain = "a\n   ~~^\nb\nTypeError: of setup.py\n";
        assert_eq!(excerpt(plain), "a\nb\nTypeError: of setup.py");
        assert_eq!(excerpt(""), "");
    }

    #[test]
    fn a_build_that_forks_until_its_limit_is_known_by_its_log() {
        // Of CPython 3.13, of bash 5.2 and of a pool of threads.
        for log in [
            "running egg_info\nTraceback (most recent call last):\n  File \"/source/setup.py\", line 5, in <module>\n    os.fork()\n    ~~~~~~~^^\nBlockingIOError: [Errno 11] Resource temporarily unavailable\n",
            "Traceback (most recent call last):\n  File \"/usr/lib/python3.13/subprocess.py\", line 1882, in _execute_child\n    self.pid = _fork_exec(\nBlockingIOError: [Errno 11] Resource temporarily unavailable\n",
            "./configure: fork: retry: Resource temporarily unavailable\n./configure: fork: Resource temporarily unavailable\n",
            "    _start_new_thread(self._bootstrap, ())\nRuntimeError: can't start new thread\n",
        ] {
            assert!(lacks_processes(log), "{log}");
        }
        for log in [
            "BlockingIOError: [Errno 11] write could not complete without blocking\n",
            "x.c:3:10: error: unknown type\nfork: Resource temporarily unavailable\n",
            "TypeError: of setup.py",
        ] {
            assert!(!lacks_processes(log), "{log}");
        }
    }

    #[test]
    fn a_module_that_a_process_lacks_is_read_of_the_log() {
        let log = "Traceback\nModuleNotFoundError: No module named 'numpy'\nerror: failed";
        assert_eq!(missing_module(log).as_deref(), Some("numpy"));
        assert_eq!(missing_module("all is well"), None);
    }
}
