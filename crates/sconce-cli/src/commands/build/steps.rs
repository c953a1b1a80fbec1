//! The steps of a build: lines for a shell, each run over everything that lies below it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sconce_image::changes::{Step, StepError};
use sconce_image::plan::Plan;
use sconce_run::{Native, RunOptions, Watcher};
use sconce_schema::event::{Exit, Unenforced};
use sconce_schema::manifest::Layer;
use sconce_schema::request::{Mount, Network, Root, RunRequest, User};
use sconce_schema::spec::{CopySpec, WORKSPACE};
use sconce_schema::{Hint, ImageManifest, exit};
use sconce_store::Held;

use crate::commands::opened::Opened;
use crate::commands::run::{chore, program, stay};
use crate::failure::{Failure, Result};
use crate::output;
use crate::style::Style;

/// What every step sees, so that what it writes depends on nothing else. Variables that programs
/// follow: <https://reproducible-builds.org/specs/source-date-epoch/>, and Python's
/// "Environment variables". With the first, bytecode that a step makes is checked by content, and
/// holds for files whose times are fixed afterwards; with the last, none is made by chance.
const VARIABLES: [(&str, &str); 6] = [
    ("SOURCE_DATE_EPOCH", "315532800"),
    ("PYTHONHASHSEED", "0"),
    ("LC_ALL", "C.UTF-8"),
    ("TZ", "UTC"),
    ("HOME", "/root"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
];

/// Where a stage's files are collected, and where they are then found in the image: below /tmp,
/// of which nothing is kept.
const COLLECTED: &str = "/.copied";
const PLACED_FROM: &str = "/tmp/copied";
/// Collects what `$1` names. Without separators its wildcards count, and its spaces do not.
const COLLECT: &str = r#"exec </dev/null >&2; IFS=; mkdir /.copied; cp -a -- $1 /.copied/"#;
/// Puts them in the folder `$1/`, or one of them at `$1`.
const PLACE: &str = r#"exec </dev/null >&2; shopt -s dotglob nullglob
set -- "$1" /tmp/copied/*
to=$1; shift
case $to in
*/) mkdir -p -- "$to" ;;
*)
  [ $# = 1 ] || { echo "$# files cannot have the name $to; for a folder of that name write $to/"; exit 1; }
  mkdir -p -- "$(dirname -- "$to")"
  exec cp -aT -- "$1" "$to" ;;
esac
[ $# = 0 ] || exec cp -a -- "$@" "$to""#;

/// How long after a first Ctrl-C a second one kills.
const GRACE: Duration = Duration::from_secs(10);

/// A step that did not end well.
#[derive(Debug, thiserror::Error)]
#[error("the step `{line}` {}", how(.exit))]
struct Failed {
    line: String,
    exit: Exit,
    network: bool,
}

fn how(exit: &Exit) -> String {
    match exit {
        Exit::Code(code) => format!("ended with exit code {code}"),
        Exit::Signal(signal) => format!("was ended by signal {signal}"),
    }
}

impl Hint for Failed {
    fn hint(&self) -> Option<String> {
        let network = match self.network {
            true => "",
            false => " Steps have no network unless `network = true` stands beside `run`.",
        };
        Some(format!("nothing of it was kept.{network}"))
    }

    fn exit_code(&self) -> u8 {
        exit::STEP
    }
}

/// An environment on which steps are run, and the layers that they add to it.
pub(super) struct Stack<'a> {
    opened: &'a Opened,
    /// Every tree so far, lowest first.
    pub(super) environment: ImageManifest,
    /// Has the trees that it began with stay in the store.
    _stays: Vec<Held>,
    /// Whether steps that were never run are run now; else they are layers without a tree, and so
    /// is everything above them.
    run: bool,
    known: bool,
    /// ` in stage NAME`, for people.
    of: String,
}

impl<'a> Stack<'a> {
    /// An environment and what has it stay. `stage` is the name of the stage; absent for the image itself.
    pub(super) fn new(
        opened: &'a Opened,
        (environment, stays): (ImageManifest, Vec<Held>),
        stage: Option<&str>,
        run: bool,
    ) -> Self {
        Self {
            opened,
            environment,
            _stays: stays,
            run,
            known: true,
            of: stage.map_or_else(String::new, |name| format!(" in stage {name}")),
        }
    }

    /// One of which nothing is known yet: its packages are not there, and nothing is to be fetched.
    pub(super) fn unknown(opened: &'a Opened, stage: &str) -> Self {
        let environment = ImageManifest {
            layers: Vec::new(),
            env: BTreeMap::new(),
        };
        Self {
            known: false,
            ..Self::new(opened, (environment, Vec::new()), Some(stage), false)
        }
    }

    /// Lays a tree on top; `None` where it has not been made.
    pub(super) fn push(&mut self, name: &str, tree: Option<PathBuf>, plan: &mut Plan) {
        self.known &= tree.is_some();
        self.environment
            .layers
            .extend(tree.clone().map(|path| Layer {
                name: name.to_owned(),
                path,
            }));
        plan.push(name, tree);
    }

    /// Lays the project's files on top.
    pub(super) fn files(&mut self, names: &[String], plan: &mut Plan) -> Result<()> {
        if !names.is_empty() {
            let folder = &self.opened.project.folder;
            let tree = sconce_image::project::tree(folder, names, &self.opened.store)?;
            self.push("project files", Some(tree), plan);
        }
        Ok(())
    }

    /// Runs the lines that were not run before.
    pub(super) fn steps(&mut self, lines: &[String], network: bool, plan: &mut Plan) -> Result<()> {
        for (number, line) in lines.iter().enumerate() {
            let tree = match self.known {
                true => self.step(line, network, (number + 1, lines.len()))?,
                false => None,
            };
            self.push(&format!("run: {}", first_line(line)), tree, plan);
        }
        Ok(())
    }

    fn step(&self, line: &str, network: bool, place: (usize, usize)) -> Result<Option<PathBuf>> {
        let mut words = vec!["run", line];
        words.extend(network.then_some("network"));
        let (number, of) = place;
        // What the command prints is not the build's data, and nobody answers its questions.
        let script = format!("exec </dev/null >&2; {line}");
        let request = RunRequest {
            workdir: PathBuf::from(WORKSPACE),
            network: if network {
                Network::Host
            } else {
                Network::None
            },
            ..self.request(&["bash", "-eu", "-o", "pipefail", "-c", &script])
        };
        let told = format!("step {number} of {of}{}", self.of);
        self.changes(&words, &request, (&told, line))
    }

    /// Lays what stages made on top. `stages` has the environments that they ended with.
    pub(super) fn copy(
        &mut self,
        copies: &[CopySpec],
        stages: &BTreeMap<String, Stack<'a>>,
        plan: &mut Plan,
    ) -> Result<()> {
        for copy in copies {
            let stage = stages.get(&copy.stage).filter(|stage| stage.known);
            let tree = match stage.filter(|_| self.known) {
                Some(stage) => self.copied(copy, stage)?,
                None => None,
            };
            self.push(&format!("copy: {copy}"), tree, plan);
        }
        Ok(())
    }

    /// Collects the files in the stage, and then puts them where they belong in this environment:
    /// so wildcards, links and the modes of folders are those of the right side each.
    fn copied(&self, copy: &CopySpec, stage: &Stack<'_>) -> Result<Option<PathBuf>> {
        let line = copy.to_string();
        let told = format!("copy{}", self.of);
        let collect = stage.request(&["bash", "-eu", "-c", COLLECT, "copy", &copy.source]);
        let words = ["collect", &copy.source];
        let Some(collected) = stage.changes(&words, &collect, (&told, &line))? else {
            return Ok(None);
        };
        let name = collected.parent().and_then(Path::file_name);
        let name = name.unwrap_or_default().to_string_lossy().into_owned();
        let place = RunRequest {
            mounts: vec![Mount {
                source: collected.join(COLLECTED.trim_start_matches('/')),
                target: PLACED_FROM.into(),
                read_only: true,
            }],
            ..self.request(&["bash", "-eu", "-c", PLACE, "copy", &copy.target])
        };
        self.changes(&["place", &name, &copy.target], &place, ("", &line))
    }

    /// What a request changes, found or made now; `None` where it was never made and is not to be.
    /// `told` says it to a person: which, nothing where it was said, and the line.
    fn changes(
        &self,
        words: &[&str],
        request: &RunRequest,
        told: (&str, &str),
    ) -> Result<Option<PathBuf>> {
        let variables = VARIABLES.iter().flat_map(|(name, value)| [*name, *value]);
        let words: Vec<&str> = words.iter().copied().chain(variables).collect();
        let step = Step::new(&self.environment, &words);
        let store = &self.opened.store;
        let found = step.found(store);
        if found.is_some() || !self.run {
            return Ok(found);
        }
        self.opened.progress.finish();
        let (which, line) = told;
        if !which.is_empty() {
            output::say(&format!("{} {line}", Style::for_stderr().dim(which)));
        }
        let run = |upper: &Path| match self.contained(request, upper)? {
            Exit::Code(exit::OK) => Ok(()),
            exit => Err(Failure::from(Failed {
                line: line.to_owned(),
                exit,
                network: request.network == Network::Host,
            })),
        };
        let tree = step.changes(
            &self.environment,
            store,
            &sconce_run::is_machinery,
            &self.opened.progress,
            run,
        );
        Ok(Some(tree.map_err(|error| match error {
            StepError::Step(failure) => failure,
            StepError::Changes(error) => error.into(),
        })?))
    }

    /// A command as root over the environment.
    fn request(&self, command: &[&str]) -> RunRequest {
        let command = command.iter().map(ToString::to_string).collect();
        let variables = VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut env: BTreeMap<String, String> = self.environment.env.clone();
        env.extend(variables);
        RunRequest {
            env,
            user: User::Root,
            ..chore(
                Root::Image(self.environment.clone()),
                "build",
                command,
                Vec::new(),
            )
        }
    }

    /// Runs a request, and leaves what it changed in the empty folder `upper`.
    fn contained(&self, request: &RunRequest, upper: &Path) -> Result<Exit> {
        let host = sconce_host::Machine::read(&sconce_host::Roots::default());
        let options = RunOptions {
            program: program()?,
            state_dir: self.opened.places.scratch.clone(),
            shared: None,
            keep: Some(upper.to_owned()),
            sample_every: Duration::from_secs(3600),
            grace: GRACE,
            strict: false,
            host: &host,
            ways_out: Vec::new(),
            environment: None,
            control: None,
            waiting: None,
        };
        let _stays = stay(&request.root)?;
        Ok(sconce_run::run(request, &Native, &options, &mut Unwatched)?.exit)
    }
}

/// A step is nobody's experiment: it is not recorded.
struct Unwatched;

impl Watcher for Unwatched {
    fn unenforced(&mut self, what: &[Unenforced]) {
        for one in what {
            output::say(&format!("{}: {}", one.what, one.why));
        }
    }
}

/// The first line of a step, as a layer is named by it.
fn first_line(text: &str) -> &str {
    const MOST: usize = 60;
    let line = text.trim().lines().next().unwrap_or_default();
    let end = line
        .char_indices()
        .nth(MOST)
        .map_or(line.len(), |(at, _)| at);
    &line[..end]
}
