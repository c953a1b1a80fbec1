//! Runs one request given as JSON: `contained REQUEST.json STATE-FOLDER EVENTS-FILE [--strict]
//! [--end-when=FILE] [--keep=FOLDER] [--shared=FOLDER] [--control=FOLDER [--log-command]] [--way-out=NAME] [--runtime=NAME [--program=FILE]]`.
//! Events go to their file as lines of JSON, an error and its hint to standard error.

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use sconce_base::Env;
use sconce_host::{HostProfile, Roots, SampleScope, Sampler};
use sconce_run::{
    ContainerEngine, ControlOptions, Executor, Native, RestartBackoff, RunError, RunObserver,
    RunOptions, WAYS_OUT, init_main, is_init, run,
};
use sconce_schema::event::{ExitStatus, OomKill, ServiceEvent, UnenforcedLimit};
use sconce_schema::{Hint, RunRequest};
use serde::Deserialize;
use serde_json::json;

struct Lines {
    file: std::fs::File,
    sampler: Option<Sampler>,
    /// A file that, when it is there, ends the run.
    end_when: Option<PathBuf>,
    shared: Option<OwnedFd>,
}

impl Lines {
    fn line(&mut self, value: &serde_json::Value) {
        writeln!(self.file, "{value}").expect("the events file can be written");
    }
}

impl RunObserver for Lines {
    fn unenforced(&mut self, what: &[UnenforcedLimit]) {
        self.line(&json!({ "unenforced": what }));
    }

    fn shared(&mut self, folder: OwnedFd) {
        self.shared = Some(folder);
    }

    fn way_out(&mut self, name: &str) {
        self.line(&json!({ "way-out": name }));
    }

    fn started(&mut self, target: &SampleScope) {
        self.line(&json!({
            "started": { "pid": target.root_pid, "init": target.reaper, "cgroups": format!("{:?}", target.cgroups), "shm": target.shm }
        }));
        self.sampler = Some(Sampler::new(&Roots::default(), target.clone(), None));
    }

    fn service(&mut self, what: &ServiceEvent) {
        self.line(&json!({ "service": what }));
    }

    fn tick(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            let sample = sampler.sample();
            self.line(&json!({ "sample": sample }));
        }
    }

    fn must_end(&self) -> bool {
        self.end_when.as_ref().is_some_and(|file| file.exists())
    }

    fn ended(&mut self, exit: ExitStatus, out_of_memory: Option<OomKill>) {
        let last = self.sampler.as_mut().map(Sampler::sample);
        if let Some(folder) = &self.shared {
            let folder = format!("/proc/self/fd/{}", folder.as_raw_fd());
            let names = std::fs::read_dir(folder).expect("the folder is still there");
            let names = names.map(|entry| entry.expect("a name").file_name().into_string());
            let names: Vec<_> = names.map(|name| name.expect("text")).collect();
            self.line(&json!({ "shared": names }));
        }
        self.line(
            &json!({ "ended": { "exit": exit, "out-of-memory": out_of_memory, "last": last } }),
        );
    }
}

fn option<'a>(args: &'a [OsString], name: &str) -> Option<&'a str> {
    args.iter().find_map(|arg| arg.to_str()?.strip_prefix(name))
}

#[expect(clippy::print_stderr, reason = "a program, not the library")]
fn main() -> ExitCode {
    let mut args = std::env::args_os();
    if is_init(&args.next().unwrap_or_default()) {
        return init_main(args).into();
    }
    let args: Vec<OsString> = args.collect();
    let [request, state, events, rest @ ..] = args.as_slice() else {
        eprintln!("usage: contained REQUEST.json STATE-FOLDER EVENTS-FILE [--strict]");
        return ExitCode::from(2);
    };
    let request = std::fs::read_to_string(request).expect("the request can be read");
    let text: serde_json::Value = serde_json::from_str(&request).expect("the request is JSON");
    let mut request = RunRequest::deserialize(&text).expect("the request is one");
    for (edits, written) in request
        .edits
        .iter_mut()
        .zip(text["edits"].as_array().into_iter().flatten())
    {
        edits.links = Vec::deserialize(&written["links"]).unwrap_or_default();
    }
    let environment = Env::of_process();
    let host = HostProfile::read(&Roots::default());
    let engine = option(rest, "--runtime=").map(|name| {
        let program = option(rest, "--program=").map_or_else(|| found(name), PathBuf::from);
        ContainerEngine::from_program(name.parse().expect("a runtime"), program)
    });
    let engine = match engine.transpose() {
        Ok(engine) => engine,
        Err(error) => return failed(&error),
    };
    let options = RunOptions {
        program: std::env::current_exe().expect("this program has a name"),
        state_dir: PathBuf::from(state),
        keep: option(rest, "--keep=").map(PathBuf::from),
        shared: option(rest, "--shared=").map(PathBuf::from),
        sample_every: Duration::from_millis(100),
        grace: Duration::from_millis(300),
        strict: rest.contains(&"--strict".into()),
        host: &host,
        // All that are here, or the one that is named.
        ways_out: WAYS_OUT
            .iter()
            .filter(|name| option(rest, "--way-out=").is_none_or(|only| only == **name))
            .map(|name| PathBuf::from("/usr/bin").join(name))
            .filter(|path| path.exists())
            .collect(),
        environment: Some(&environment),
        control: option(rest, "--control=").map(|folder| ControlOptions {
            folder: folder.into(),
            log_command: rest.contains(&"--log-command".into()),
            // As patient as a test.
            restarts: RestartBackoff {
                first_ms: 10,
                most_ms: 40,
                ..RestartBackoff::default()
            },
        }),
        in_job: false,
        survives_lost_output: false,
        waiting: None,
    };
    let mut lines = Lines {
        // Two runs of one name write to one file; neither may cut off the other's lines.
        file: std::fs::File::options()
            .append(true)
            .create(true)
            .open(events)
            .expect("the events file can be made"),
        sampler: None,
        end_when: option(rest, "--end-when=").map(PathBuf::from),
        shared: None,
    };
    let executor: &dyn Executor = match &engine {
        Some(engine) => engine,
        None => &Native,
    };
    match run(&request, executor, &options, &mut lines) {
        Ok(outcome) => {
            lines.line(&json!({ "used": outcome.used, "asked-to-end": outcome.asked_to_end }));
            let last = String::from_utf8_lossy(&outcome.last_output);
            lines.line(&json!({ "last-output": last }));
            assert_eq!(outcome.left_behind, Vec::<PathBuf>::new());
            outcome.exit.exit_code().into()
        }
        Err(error) => failed(&error),
    }
}

/// Where an engine is.
fn found(name: &str) -> PathBuf {
    let folders = ["/usr/sbin", "/usr/bin"].map(PathBuf::from);
    let mut files = folders.into_iter().map(|folder| folder.join(name));
    files.find(|file| file.exists()).expect("it is installed")
}

#[expect(clippy::print_stderr, reason = "a program, not the library")]
fn failed(error: &RunError) -> ExitCode {
    eprintln!("error: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        eprintln!("  because: {source}");
        cause = source.source();
    }
    if let Some(hint) = error.hint() {
        eprintln!("hint: {hint}");
    }
    error.exit_code().into()
}
