//! Holding a run: recorded while it goes on, reported when it has ended.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sconce_base::Env;
use sconce_base::output::OutputDestination;
use sconce_compat::explain::LogEnvironment;
use sconce_host::{GpuMonitor, HostProfile, facts};
use sconce_report::{RunReport, json};
use sconce_run::{ControlOptions, Executor, RestartBackoff, RunError, RunOptions, RunOutcome};
use sconce_schema::Hint;
use sconce_schema::request::RunRoot;

use super::node_part::NodePartEnd;
use super::plan::RunPlan;
use super::project_source::ProjectSource;
use super::run_failure;
use crate::accounting::ProbeDirectory;
use crate::context::AppContext;
use crate::detach;
use crate::dirs::SconceDirs;
use crate::failure::{AppError, Failure, Result};
use crate::node_network::{NetworkWatch, SocketsChosen};
use crate::reporter::AppEvent;
use crate::run_recorder::Recorder;
use crate::worker::current_exe;

/// How long after a first Ctrl-C a second one kills.
const GRACE: Duration = Duration::from_secs(10);

/// What holding a run needs beside the run itself.
pub(super) struct RunSession<'a> {
    pub(super) places: &'a SconceDirs,
    pub(super) host: &'a HostProfile,
    /// By what a failure is explained.
    pub(super) log_environment: LogEnvironment,
    /// The project that the command is of.
    pub(super) project: Option<ProjectSource>,
    pub(super) strict: bool,
    pub(super) executor: &'a dyn Executor,
    /// Readings a second, at least 1.
    pub(super) sample_hz: u32,
    /// Whether it is a node's part of a scheduler's job.
    pub(super) in_job: bool,
    /// What a node's part of a job tells of its end; absent where it is none.
    pub(super) node_end: Option<Arc<Mutex<NodePartEnd>>>,
    /// Reads which network NCCL takes, of a node's part of a job.
    pub(super) watch: Option<NetworkWatch>,
    /// The variables that a run without a container has beside its own.
    pub(super) environment: Option<&'a Env>,
    /// Where the report goes.
    pub(super) json: Option<OutputDestination>,
    pub(super) context: &'a AppContext,
}

impl RunSession<'_> {
    pub(super) fn run(
        mut self,
        plan: RunPlan,
        gpus: Option<Box<dyn GpuMonitor>>,
        idle_work: Option<Box<dyn FnOnce() + '_>>,
    ) -> Result<u8> {
        let (request, account) = (&plan.request, plan.account);
        let options = RunOptions {
            program: current_exe()?,
            state_dir: self.places.scratch.clone(),
            keep: None,
            shared: match &account {
                Some(ProbeDirectory::InMemory(inside)) => Some(inside.clone()),
                Some(ProbeDirectory::Folder(_)) | None => None,
            },
            sample_every: Duration::from_secs(1) / self.sample_hz.max(1),
            grace: GRACE,
            strict: self.strict,
            host: self.host,
            ways_out: crate::limits::ways_out(request.network, &self.context.env),
            environment: self.environment,
            control: Some(ControlOptions {
                folder: self.places.runs.join(&request.id),
                log_command: self.context.holds_run(),
                restarts: RestartBackoff::default(),
            }),
            in_job: self.in_job,
            // A full disk of one node's log is no reason to end a job of days.
            survives_lost_output: self.node_end.is_some(),
            waiting: self.context.holds_run().then(detach::caller_pid).flatten(),
        };
        let mut recorder = Recorder::new(
            &self.places.runs,
            plan.started,
            self.context,
            gpus,
            account,
            idle_work,
        );
        recorder.network = self.watch.take();
        recorder.open = (request.services.iter())
            .map(|service| {
                (
                    service.name.clone(),
                    crate::services::redacted_links(service),
                )
            })
            .collect();
        if self.context.holds_run() {
            let folder = self.places.runs.join(&request.id);
            let id = request.id.clone();
            recorder.begun = Some(Box::new(move || {
                crate::detach::release_caller(&folder, &id)
            }));
        } else {
            // Into a terminal, and not into the log of a run in the background: a token may be in one.
            let services = request.services.iter();
            let links = services.map(|it| (it.name.clone(), it.links.clone()));
            recorder.links = links.collect();
            if request.command.is_empty() {
                let folder = self.places.runs.join(&request.id);
                let names: Vec<String> =
                    request.services.iter().map(|it| it.name.clone()).collect();
                let context = self.context;
                // A thread that was there before would get the signals that are to end the run.
                let begin = move || {
                    context.report(&AppEvent::OnlyServicesRun {
                        directory: &folder,
                        services: &names,
                    });
                };
                recorder.begun = Some(Box::new(begin));
            }
        }
        let outcome = sconce_run::run(request, self.executor, &options, &mut recorder);
        self.context.report(&AppEvent::ProcessesEnded);
        let outcome = outcome.map_err(|error| {
            recorder.record_start_failure(error.exit_code());
            match request.root {
                RunRoot::Image(_) => Failure::from(StartError(error)),
                RunRoot::Host => error.into(),
            }
        })?;
        if let Some(limit) = outcome.out_of_memory.and_then(|killed| killed.limit)
            && !recorder.has_begun()
        {
            return Err(AppError::TooLittleMemory { limit }.into());
        }
        if let Some(end) = &self.node_end {
            *end.lock().unwrap_or_else(PoisonError::into_inner) = NodePartEnd {
                asked_to_end: outcome.asked_to_end,
                out_of_memory: outcome.out_of_memory,
                lost_output: outcome.lost_output,
            };
        }
        let json = self.json.take();
        self.tell(json, &outcome, &recorder)?;
        if let Some(slow) = recorder.slow_network.take() {
            return Err(SocketsChosen(slow).into());
        }
        Ok(outcome.exit.exit_code())
    }

    /// The report, and whatever went wrong beside the command.
    fn tell(
        &self,
        json: Option<OutputDestination>,
        outcome: &RunOutcome,
        recorder: &Recorder<'_>,
    ) -> Result<()> {
        for path in &outcome.left_behind {
            self.context.report(&AppEvent::LeftBehind(path));
        }
        if let Some(error) = &recorder.lost {
            self.context.report(&AppEvent::RecordIncomplete(error));
        }
        let Some(path) = recorder.path() else {
            return Ok(());
        };
        if self.context.quiet && json.is_none() {
            return Ok(());
        }
        let report = RunReport::from_record(sconce_record::open_record(&path)?);
        self.context.report(&AppEvent::RunEnded(&report));
        let facts = facts::without_nvml(self.host);
        let environment = || {
            let mut environment = self.log_environment.clone();
            let project = self.project.as_ref();
            environment.project = project.map(|project| project.read(&environment.packages));
            environment
        };
        let explained = run_failure::explain_failure(outcome, facts.as_ref(), environment);
        if let Some(explained) = explained {
            self.context.report(&AppEvent::RunExplained(&explained));
        }
        if let Some(output) = json {
            output.write(json::render_report(&report).as_bytes())?;
        }
        Ok(())
    }
}
/// Why a command did not start in an environment.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct StartError(RunError);

impl Hint for StartError {
    fn hint(&self) -> Option<String> {
        let RunError::NotFound { command, .. } = &self.0 else {
            return self.0.hint();
        };
        let package = sconce_formats::debian_package_of_program(command)?;
        Some(format!(
            "Debian's package {package} has it: name it in `[system] packages`, and lock again"
        ))
    }

    fn exit_code(&self) -> u8 {
        self.0.exit_code()
    }
}
