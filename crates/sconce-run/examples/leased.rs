//! Runs a command in a folder as its root, with some of the machine's cards: what
//! `scripts/gpu-truth` needs of a container where no package can be fetched.
//!
//! ```text
//! leased ROOT STATE EVENTS GPUS [--bind SOURCE:TARGET]... [--root] -- COMMAND...
//! ```
//!
//! `GPUS` is as in a spec (`0`, `all`, `device=0`); mounts are read-only. One JSON object a line
//! goes to `EVENTS`. The exit code is the command's.

use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use sconce_host::{HostProfile, NvmlMonitor, Roots, SampleScope, Sampler, edits_for, select_gpus};
use sconce_run::{Native, RunObserver, RunOptions, init_main, is_init, run};
use sconce_schema::Hint;
use sconce_schema::environment_layers::{EnvironmentLayers, LayerTree};
use sconce_schema::event::{ExitStatus, OomKill, UnenforcedLimit};
use sconce_schema::request::{ContainerUser, Mount, NetworkMode, RunRequest, RunRoot};
use sconce_schema::spec::GpuRequest;
use serde_json::{Value, json};

/// Writes what happens, with the cards in every reading.
struct Lines {
    file: std::fs::File,
    cards: Vec<u32>,
    nvml: bool,
    sampler: Option<Sampler>,
}

impl Lines {
    fn line(&mut self, value: &Value) {
        writeln!(self.file, "{value}").expect("the events file can be written");
    }
}

impl RunObserver for Lines {
    fn unenforced(&mut self, what: &[UnenforcedLimit]) {
        self.line(&json!({ "unenforced": what }));
    }

    fn started(&mut self, target: &SampleScope) {
        let target = SampleScope {
            gpus: self.cards.clone(),
            ..target.clone()
        };
        self.sampler = Some(Sampler::new(&Roots::default(), target, None));
    }

    fn tick(&mut self) {
        let Some(sampler) = &mut self.sampler else {
            return;
        };
        // As `sconce` does: off the way to the command's start.
        if !self.cards.is_empty()
            && !self.nvml
            && let Some(nvml) = NvmlMonitor::load()
        {
            self.nvml = true;
            sampler.set_gpus(Box::new(nvml));
        }
        let sample = sampler.sample();
        self.line(&json!({ "sample": sample }));
    }

    fn ended(&mut self, exit: ExitStatus, out_of_memory: Option<OomKill>) {
        self.line(&json!({ "ended": exit, "out-of-memory": out_of_memory }));
    }
}

/// What the command line asks for.
struct Asked {
    root: PathBuf,
    state: PathBuf,
    events: PathBuf,
    gpus: GpuRequest,
    mounts: Vec<Mount>,
    user: ContainerUser,
    command: Vec<String>,
}

fn asked(mut words: impl Iterator<Item = String>) -> Result<Asked, Box<dyn Error>> {
    let mut next = || words.next().ok_or("see the source for its arguments");
    let mut asked = Asked {
        root: next()?.into(),
        state: next()?.into(),
        events: next()?.into(),
        gpus: next()?.parse()?,
        mounts: Vec::new(),
        user: ContainerUser::Plain,
        command: Vec::new(),
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--root" => asked.user = ContainerUser::Root,
            "--bind" => {
                let mount = words.next().unwrap_or_default();
                let (source, target) = mount.split_once(':').ok_or("SOURCE:TARGET")?;
                asked.mounts.push(Mount {
                    source: source.into(),
                    target: target.into(),
                    read_only: true,
                });
            }
            "--" => {
                asked.command = words.collect();
                break;
            }
            other => return Err(format!("unknown: {other}").into()),
        }
    }
    Ok(asked)
}

fn leased(asked: Asked) -> Result<u8, Box<dyn Error>> {
    let host = HostProfile::read(&Roots::default());
    let cards = host.nvidia.as_ref().map_or(&[][..], |nvidia| &nvidia.cards);
    let chosen = select_gpus(cards, &asked.gpus)?;
    let id = format!("leased-{}", std::process::id());
    let scratch = asked.state.join(format!("{id}.edits"));
    std::fs::create_dir_all(&scratch)?;
    let root = RunRoot::Image(EnvironmentLayers {
        layers: vec![LayerTree {
            name: "root".to_owned(),
            path: asked.root,
        }],
        env: Default::default(),
    });
    let request = RunRequest {
        env: [("PATH", "/usr/bin:/bin"), ("HOME", "/home/sconce")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        mounts: asked.mounts,
        network: NetworkMode::Host,
        user: asked.user,
        edits: edits_for(&host, &chosen, &Roots::default(), &scratch)?,
        ..RunRequest::new(id, root, asked.command)
    };
    let options = RunOptions {
        program: std::env::current_exe()?,
        state_dir: asked.state,
        shared: None,
        keep: None,
        sample_every: Duration::from_millis(500),
        grace: Duration::from_secs(1),
        strict: false,
        host: &host,
        ways_out: Vec::new(),
        environment: None,
        control: None,
        in_job: false,
        survives_lost_output: false,
        waiting: None,
    };
    let mut lines = Lines {
        file: std::fs::File::create(asked.events)?,
        cards: chosen.iter().map(|card| card.index).collect(),
        nvml: false,
        sampler: None,
    };
    let done = run(&request, &Native, &options, &mut lines);
    std::fs::remove_dir_all(&scratch)?;
    let outcome = done.map_err(|error| match error.hint() {
        Some(hint) => format!("{} (hint: {hint})", with_causes(&error)),
        None => with_causes(&error),
    })?;
    match outcome.left_behind.as_slice() {
        [] => Ok(outcome.exit.exit_code()),
        left => Err(format!("left behind: {left:?}").into()),
    }
}

fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

#[expect(clippy::print_stderr, reason = "a program, not the library")]
fn main() -> ExitCode {
    let mut words = std::env::args_os();
    if is_init(&words.next().unwrap_or_default()) {
        return init_main(words).into();
    }
    let words = words.map(OsString::into_string).map_while(Result::ok);
    match asked(words).and_then(leased) {
        Ok(code) => code.into(),
        Err(error) => {
            eprintln!("leased: {}", with_causes(error.as_ref()));
            sconce_schema::exit::RUN.into()
        }
    }
}
