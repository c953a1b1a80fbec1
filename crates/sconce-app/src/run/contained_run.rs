//! A run in a container, of whatever image: its cards, its variables, its record.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use sconce_base::output::OutputDestination;
use sconce_host::HostProfile;
use sconce_run::Executor;
use sconce_schema::event::{Containment, RunStarted};
use sconce_schema::lock::LockedVersions;
use sconce_schema::request::{RunRequest, RunRoot};
use sconce_schema::spec::ServicesSpec;
use sconce_schema::{EnvironmentLayers, Lock};

use super::gpu_assignment::GpuAssignment;
use super::leased_gpus::LeasedGpus;
use super::nvml::NvmlLoad;
use super::request::common_start_event;
use super::run_session::RunSession;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::failure::Result;
use crate::kernel_cache::KernelCacheGuard;
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
    /// `HOME`, unless the wish has another.
    pub(super) home: String,
    pub(super) wish: ResolvedRunOptions,
    pub(super) versions: Option<LockedVersions>,
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
        let leased = LeasedGpus::acquire(&self.host, reached, &self.wish.gpus, &called)?;
        let wanted = leased
            .as_ref()
            .map_or(&self.wish.gpus, LeasedGpus::gpu_request);
        let cards = GpuAssignment::select_gpus(
            &self.host,
            wanted,
            self.wish.asks_for_gpus,
            self.wish.limits.cpus,
            scratch,
            called.context,
        )?;
        let mut env = self.image.env.clone();
        env.insert("HOME".to_owned(), self.home);
        // The terminal is the caller's.
        for name in ["TERM", "NO_COLOR"] {
            let value = called.context.env.var(name);
            env.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        }
        env.extend(self.wish.env);
        let mut request = RunRequest {
            id: self.id,
            command: self.wish.command,
            root: RunRoot::Image(self.image),
            workdir: self.wish.workdir,
            env,
            limits: self.wish.limits,
            mounts: self.wish.mounts,
            network: self.wish.network,
            ports: self.wish.ports,
            near: cards.near.filter(|_| self.wish.place),
            user: self.wish.user,
            edits: cards.edits,
            // A run in the background has none.
            terminal: !called.context.holds_run()
                && std::io::stdin().is_terminal()
                && std::io::stdout().is_terminal(),
            services: Vec::new(),
        };
        let mut given = cards.given;
        if let Some(gpus) = &self.virtual_gpus {
            gpus.apply_to(&mut request, |_| None);
            given.extend(gpus.gpu_summaries());
        }
        if let Some(probe) = &mut self.probe {
            probe.apply_to(&mut request, self.executor.shares_memory(), |_| None)?;
        }
        if let Some(kernels) = &self.kernels {
            kernels.apply_to(&mut request);
        }
        let home = called.context.env.home_dir();
        let laid = match &self.beside {
            Some((services, lock)) => {
                let private = services::private_folder(called.places, &request.id);
                let given = ServiceInputs {
                    services,
                    lock,
                    name: &self.name,
                    folder: &self.folder,
                    home,
                    host_keys: &called.places.host_keys,
                    private: &private,
                    tell_wait: &|path| called.context.report(&AppEvent::FifoWait(path)),
                };
                Some(given.apply_to(&mut request)?)
            }
            None => None,
        };
        for note in laid.iter().flat_map(|laid| &laid.notes) {
            called.context.report(&AppEvent::ServiceNote(note));
        }
        let started = RunStarted {
            name: Some(self.name),
            folder: self.folder,
            mode: Containment::Container,
            versions: self.versions,
            runtime: self.executor.summary(),
            plan: self.probe.as_ref().and_then(Probe::plans),
            gpus: given,
            ..common_start_event(&request, &self.host)
        };
        let held = RunSession {
            places: called.places,
            host: &self.host,
            strict: called.overrides.strict,
            executor: self.executor.as_ref(),
            sample_hz: self.wish.sample_hz,
            json: called.json,
            context: called.context,
        };
        let account = self.probe.as_ref().and_then(Probe::accounting_location);
        let done = held.run(&request, started, gpus, account, Some(idle_work));
        drop(cards.files);
        drop(leased);
        drop(self.kernels);
        drop(laid);
        drop(self.stays);
        done
    }
}
