//! A run in a container, of whatever image: its cards, its variables, its record.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use sconce_base::output::OutputDestination;
use sconce_compat::explain::LogEnvironment;
use sconce_host::HostProfile;
use sconce_run::Executor;
use sconce_schema::event::{Containment, RunStarted};
use sconce_schema::lock::LockedVersions;
use sconce_schema::request::{RunRequest, RunRoot};
use sconce_schema::spec::ServicesSpec;
use sconce_schema::{EnvironmentLayers, Lock};

use super::gpu_assignment::{self, GpuAssignment};
use super::leased_gpus::LeasedGpus;
use super::node_part::NodeWorld;
use super::nvml::NvmlLoad;
use super::plan::{NetworkInputs, RunAdditions, RunPlan};
use super::project_source::ProjectSource;
use super::run_session::RunSession;
use super::site_containment::SiteContainment;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::enclosing_job::EnclosingJob;
use crate::failure::Result;
use crate::kernel_cache::KernelCacheGuard;
use crate::node_network::NetworkWatch;
use crate::probe::Probe;
use crate::reporter::AppEvent;
use crate::run_options::{ResolvedRunOptions, RunOverrides};
use crate::run_temp_dir;
use crate::services::{self, ServiceInputs};
use crate::virtual_gpu::VirtualGpus;

/// All that is decided before the cards are chosen.
pub(super) struct ContainedRun {
    pub(super) id: String,
    /// The environment's name.
    pub(super) name: String,
    /// Where it was started from: the spec's folder, or the caller's.
    pub(super) folder: PathBuf,
    pub(super) image: EnvironmentLayers,
    /// Has the trees of the image stay in the store.
    pub(super) stays: Vec<sconce_store::ItemGuard>,
    /// `HOME`, unless the options have another.
    pub(super) home: String,
    pub(super) options: ResolvedRunOptions,
    pub(super) versions: Option<LockedVersions>,
    /// By what a failure is explained.
    pub(super) log_environment: LogEnvironment,
    pub(super) project: Option<ProjectSource>,
    pub(super) host: HostProfile,
    pub(super) nvml: NvmlLoad,
    pub(super) virtual_gpus: Option<VirtualGpus>,
    pub(super) probe: Option<Probe>,
    /// Whose kernels it compiles, where they are kept.
    pub(super) kernels: Option<KernelCacheGuard>,
    /// The services that run beside the command, or instead of one, and the lock of their packages.
    pub(super) beside: Option<(ServicesSpec, Lock)>,
    /// What holds it.
    pub(super) executor: Box<dyn Executor>,
    /// What it has instead of a container of Sconce's.
    pub(super) site: Option<SiteContainment>,
    /// Of a node's part of a job.
    pub(super) node: Option<NodeWorld>,
}

/// How the program was called.
pub(super) struct CommandInvocation<'a> {
    pub(super) places: &'a SconceDirs,
    pub(super) overrides: &'a RunOverrides,
    pub(super) json: Option<OutputDestination>,
    pub(super) context: &'a AppContext,
}

impl ContainedRun {
    /// Runs it to its end and reports it.
    pub(super) fn run(
        mut self,
        called: CommandInvocation<'_>,
        idle_work: Box<dyn FnOnce() + '_>,
    ) -> Result<u8> {
        let gpus = self.nvml.finish_loading(&mut self.host);
        let scratch = &called.places.scratch;
        // A run that makes no folder there itself still takes away what others left.
        run_temp_dir::remove_stale_dirs(scratch);
        let reached = gpus.as_deref();
        // A job's cards are its scheduler's to give, and a node's part has chosen its own.
        let enclosing = match self.node {
            Some(_) => None,
            None => EnclosingJob::find(&called.context.env),
        };
        let in_job = self.node.is_some() || enclosing.is_some();
        let leased = match in_job {
            true => None,
            false => LeasedGpus::acquire(&self.host, reached, &self.options.gpus, &called)?,
        };
        if let Some(job) = enclosing {
            let there = gpu_assignment::list_gpus(&self.host);
            let env = &called.context.env;
            self.options.gpus = job.choose_gpus(there, &self.options.gpus, env)?;
        }
        let wanted = leased
            .as_ref()
            .map_or(&self.options.gpus, LeasedGpus::gpu_request);
        let cards = GpuAssignment::select_gpus(
            &self.host,
            wanted,
            self.options.asks_for_gpus,
            self.options.limits.cpus,
            scratch,
            called.context,
        )?;
        let mut env = self.image.env.clone();
        if self.site.as_ref().is_none_or(SiteContainment::has_own_home) {
            env.insert("HOME".to_owned(), self.home);
        }
        // The terminal is the caller's.
        for name in ["TERM", "NO_COLOR"] {
            let value = called.context.env.var(name);
            env.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        }
        env.extend(self.options.env);
        let is_node_part = self.node.is_some();
        let mut watch = None;
        let mut edits = cards.edits;
        let (command, address, node_end) = match self.node {
            Some(node) => {
                env.extend(node.env);
                edits.push(node.edits);
                watch = Some(NetworkWatch::new(node.network));
                (node.command, node.address, Some(node.end))
            }
            None => (self.options.command, None, None),
        };
        let glibc = self
            .versions
            .as_ref()
            .map(|versions| versions.glibc.clone());
        let request = RunRequest {
            id: self.id,
            command,
            root: RunRoot::Image(self.image),
            workdir: self.options.workdir,
            env,
            limits: self.options.limits,
            mounts: self.options.mounts,
            network: self.options.network,
            address,
            ports: self.options.ports,
            near: cards.near.filter(|_| self.options.place),
            user: self.options.user,
            edits,
            // A run in the background has none.
            terminal: !called.context.holds_run()
                && !is_node_part
                && std::io::stdin().is_terminal()
                && std::io::stdout().is_terminal(),
            services: Vec::new(),
        };
        let private = services::private_folder(called.places, &request.id);
        let tell_wait = |path: &std::path::Path| called.context.report(&AppEvent::FifoWait(path));
        let say = |remark: &str| called.context.report(&AppEvent::JobRemark(remark));
        let site = self.site.as_ref();
        let additions = RunAdditions {
            site,
            virtual_gpus: self.virtual_gpus.as_ref(),
            probe: self.probe.as_mut(),
            kernels: self.kernels.as_ref(),
            network: watch.as_mut().map(|watch| NetworkInputs {
                watch,
                glibc: glibc.as_deref(),
                scratch,
                say: &say,
            }),
            services: (self.beside.as_ref()).map(|(services, lock)| ServiceInputs {
                services,
                lock,
                name: &self.name,
                folder: &self.folder,
                home: called.context.env.home_dir(),
                host_keys: &called.places.host_keys,
                private: &private,
                tell_wait: &tell_wait,
            }),
            inherited: None,
            shares_memory: self.executor.shares_memory() && site.is_none(),
        };
        let start = |common| RunStarted {
            name: Some(self.name.clone()),
            folder: self.folder.clone(),
            mode: site.map_or(Containment::Container, SiteContainment::mode),
            containment: site.map(SiteContainment::kind),
            versions: self.versions,
            runtime: self.executor.summary(),
            ..common
        };
        let plan = RunPlan::complete(request, additions, &self.host, cards.given, start)?;
        for note in &plan.service_notes {
            called.context.report(&AppEvent::ServiceNote(note));
        }
        let held = RunSession {
            places: called.places,
            host: &self.host,
            log_environment: self.log_environment,
            project: self.project,
            strict: called.overrides.strict,
            executor: self.executor.as_ref(),
            sample_hz: self.options.sample_hz,
            in_job,
            node_end,
            watch,
            environment: None,
            json: called.json,
            context: called.context,
        };
        let done = held.run(plan, gpus, Some(idle_work));
        drop(cards.files);
        drop(leased);
        drop(self.kernels);
        drop(self.stays);
        done
    }
}
