//! The steps of a build: lines for a shell, each run over everything that lies below it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sconce_image::diff::{BuildStep, StepError};
use sconce_image::layer_plan::LayerPlan;
use sconce_run::RunObserver;
use sconce_schema::environment_layers::LayerTree;
use sconce_schema::event::{ExitStatus, UnenforcedLimit};
use sconce_schema::request::{ContainerUser, Mount, NetworkMode, RunRequest, RunRoot};
use sconce_schema::spec::{BuildSpec, CopySpec, WORKSPACE};
use sconce_schema::{EnvironmentLayers, Hint, exit};
use sconce_store::ItemGuard;

use super::projects::ProjectLayers;
use crate::command_context::CommandContext;
use crate::failure::{Failure, Result};
use crate::internal_run::{InternalRun, internal_run_request};
use crate::item_guards::acquire_root_guards;
use crate::reporter::{AppEvent, Reporter};

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
struct StepFailure {
    line: String,
    exit: ExitStatus,
    network: bool,
}

fn how(exit: &ExitStatus) -> String {
    match exit {
        ExitStatus::Code(code) => format!("ended with exit code {code}"),
        ExitStatus::Signal(signal) => format!("was ended by signal {signal}"),
    }
}

impl Hint for StepFailure {
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
pub struct LayerStack<'a> {
    opened: &'a CommandContext,
    /// Every tree so far, lowest first.
    pub environment: EnvironmentLayers,
    /// Has the trees that it began with stay in the store.
    _stays: Vec<ItemGuard>,
    /// Whether steps that were never run are run now; else they are layers without a tree, and so
    /// is everything above them.
    run: bool,
    known: bool,
    /// ` in stage NAME`, for people.
    of: String,
}

impl<'a> LayerStack<'a> {
    /// An environment and what has it stay. `stage` is the name of the stage; absent for the image itself.
    pub fn new(
        opened: &'a CommandContext,
        (environment, stays): (EnvironmentLayers, Vec<ItemGuard>),
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

    /// One of which nothing is known yet: its packages are not there, and nothing is to be fetched. `stage` as for
    /// [`LayerStack::new`].
    pub fn for_unfetched_packages(opened: &'a CommandContext, stage: Option<&str>) -> Self {
        let environment = EnvironmentLayers {
            layers: Vec::new(),
            env: BTreeMap::new(),
        };
        Self {
            known: false,
            ..Self::new(opened, (environment, Vec::new()), stage, false)
        }
    }

    /// Lays a tree on top; `None` where it has not been made.
    pub fn push(&mut self, name: &str, tree: Option<PathBuf>, plan: &mut LayerPlan) {
        self.known &= tree.is_some();
        self.environment
            .layers
            .extend(tree.clone().map(|path| LayerTree {
                name: name.to_owned(),
                path,
            }));
        plan.push(name, tree);
    }

    /// Lays the spec's own projects on top.
    pub fn push_projects(&mut self, projects: &ProjectLayers, plan: &mut LayerPlan) {
        for (name, tree) in &projects.layers {
            self.push(name, tree.clone(), plan);
        }
    }

    /// Lays on top what `[build]` adds to the packages: the project's files, what is copied from stages (`built`),
    /// and what steps change.
    pub fn push_own_layers(
        &mut self,
        build: &BuildSpec,
        built: &BTreeMap<String, LayerStack<'a>>,
        plan: &mut LayerPlan,
    ) -> Result<()> {
        self.push_project_files(&build.files, plan)?;
        self.copy_from_stages(&build.copy, built, plan)?;
        self.run_build_steps(&build.run, build.network.unwrap_or(false), plan)
    }

    /// Lays the project's files on top.
    pub fn push_project_files(&mut self, names: &[String], plan: &mut LayerPlan) -> Result<()> {
        if !names.is_empty() {
            let folder = &self.opened.project.folder;
            let tree = sconce_image::project::build_file_tree(folder, names, &self.opened.store)?;
            self.push("project files", Some(tree), plan);
        }
        Ok(())
    }

    /// Runs the lines that were not run before.
    pub fn run_build_steps(
        &mut self,
        lines: &[String],
        network: bool,
        plan: &mut LayerPlan,
    ) -> Result<()> {
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
                NetworkMode::Host
            } else {
                NetworkMode::None
            },
            ..self.request(&["bash", "-eu", "-o", "pipefail", "-c", &script])
        };
        let told = format!("step {number} of {of}{}", self.of);
        self.changes(&words, &request, (&told, line))
    }

    /// Lays what stages made on top. `stages` has the environments that they ended with.
    pub fn copy_from_stages(
        &mut self,
        copies: &[CopySpec],
        stages: &BTreeMap<String, LayerStack<'a>>,
        plan: &mut LayerPlan,
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
    fn copied(&self, copy: &CopySpec, stage: &LayerStack<'_>) -> Result<Option<PathBuf>> {
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
        let step = BuildStep::new(&self.environment, &words);
        let store = &self.opened.store;
        let found = step.find_tree(store);
        if found.is_some() || !self.run {
            return Ok(found);
        }
        self.opened.progress.finish();
        let (which, line) = told;
        if !which.is_empty() {
            self.opened
                .reporter
                .report(&AppEvent::BuildStep { kind: which, line });
        }
        let run = |upper: &Path| match self.contained(request, upper)? {
            ExitStatus::Code(exit::OK) => Ok(()),
            exit => Err(Failure::from(StepFailure {
                line: line.to_owned(),
                exit,
                network: request.network == NetworkMode::Host,
            })),
        };
        let tree = step.ensure_tree(
            &self.environment,
            store,
            &sconce_run::is_machinery,
            &*self.opened.progress,
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
            user: ContainerUser::Root,
            ..internal_run_request(
                RunRoot::Image(self.environment.clone()),
                "build",
                command,
                Vec::new(),
            )
        }
    }

    /// Runs a request, and leaves what it changed in the empty folder `upper`.
    fn contained(&self, request: &RunRequest, upper: &Path) -> Result<ExitStatus> {
        let _stays = acquire_root_guards(&request.root)?;
        let internal = InternalRun {
            scratch: &self.opened.places.scratch,
            keep: Some(upper.to_owned()),
            in_job: self.opened.in_job,
            sample_every: Duration::from_secs(3600),
            grace: GRACE,
        };
        internal.execute(request, &mut StepObserver(self.opened.reporter.as_ref()))
    }
}

/// A step is nobody's experiment: it is not recorded.
struct StepObserver<'a>(&'a dyn Reporter);

impl RunObserver for StepObserver<'_> {
    fn unenforced(&mut self, what: &[UnenforcedLimit]) {
        for one in what {
            self.0.report(&AppEvent::BuildStepLimit(one));
        }
    }
}

/// The first line of a step, as a layer is named by it.
fn first_line(text: &str) -> &str {
    const MAX_NAME_CHARS: usize = 60;
    let line = text.trim().lines().next().unwrap_or_default();
    let end = line
        .char_indices()
        .nth(MAX_NAME_CHARS)
        .map_or(line.len(), |(at, _)| at);
    &line[..end]
}
