//! A run's request, made whole. What a [`RunPlan`] holds is what will be executed: nothing after it changes it.

use std::path::Path;

use sconce_base::Env;
use sconce_host::HostProfile;
use sconce_schema::event::{GpuSummary, RunStarted};
use sconce_schema::request::RunRequest;

use super::request::common_start_event;
use super::site_containment::SiteContainment;
use crate::accounting::ProbeDirectory;
use crate::failure::Result;
use crate::kernel_cache::KernelCacheGuard;
use crate::node_network::NetworkWatch;
use crate::probe::Probe;
use crate::services::{PreparedServices, ServiceInputs};
use crate::virtual_gpu::VirtualGpus;

/// What a run is given beside what its options say, in the order in which it is added: each sees the variables of
/// those before it.
#[derive(Default)]
pub(super) struct RunAdditions<'a> {
    /// It says how the run sees files, and starts the command in the end.
    pub(super) site: Option<&'a SiteContainment>,
    /// Its library is loaded ahead of others.
    pub(super) virtual_gpus: Option<&'a VirtualGpus>,
    /// It is imported ahead of others, and told where to write.
    pub(super) probe: Option<&'a mut Probe>,
    /// They set variables that nobody has set.
    pub(super) kernels: Option<&'a KernelCacheGuard>,
    /// NCCL is told where to write, and by what it is to reach other nodes.
    pub(super) network: Option<NetworkInputs<'a>>,
    /// They are programs of the run, with its variables.
    pub(super) services: Option<ServiceInputs<'a>>,
    /// The variables that the run inherits where its request does not set them: those of the caller, where no
    /// container is around it.
    pub(super) inherited: Option<&'a Env>,
    /// Whether the run shares memory with whoever watches it.
    pub(super) shares_memory: bool,
}

/// What a node's part of a job needs to reach the others.
pub(super) struct NetworkInputs<'a> {
    pub(super) watch: &'a mut NetworkWatch,
    /// The version of the environment's C library, by which the node's plugins are judged.
    pub(super) glibc: Option<&'a str>,
    pub(super) scratch: &'a Path,
    /// Says what a person has to be told.
    pub(super) say: &'a dyn Fn(&str),
}

/// A run that only has to be started.
pub(super) struct RunPlan {
    pub(super) request: RunRequest,
    /// How its record begins.
    pub(super) started: RunStarted,
    /// Where the probe writes.
    pub(super) account: Option<ProbeDirectory>,
    /// What a person has to be told of its services.
    pub(super) service_notes: Vec<String>,
    /// Files of services, for as long as they run.
    _services: Option<PreparedServices>,
}

impl RunPlan {
    /// Completes a request that has all that the options, the image and the GPUs say. `started` makes the beginning
    /// of the record from the parts that every run has; the GPUs are those of `gpus` and the virtual ones.
    ///
    /// # Errors
    /// Of what writes files for the run: the probe's, and those of services.
    pub(super) fn complete(
        mut request: RunRequest,
        additions: RunAdditions<'_>,
        host: &HostProfile,
        mut gpus: Vec<GpuSummary>,
        started: impl FnOnce(RunStarted) -> RunStarted,
    ) -> Result<Self> {
        if let Some(site) = additions.site {
            site.apply_to(&mut request);
        }
        let variable = |name: &str| Some(additions.inherited?.var(name)?.to_owned());
        if let Some(virtual_gpus) = additions.virtual_gpus {
            virtual_gpus.apply_to(&mut request, variable);
            gpus.extend(virtual_gpus.gpu_summaries());
        }
        let (mut account, mut plan) = (None, None);
        if let Some(probe) = additions.probe {
            probe.apply_to(&mut request, additions.shares_memory, variable)?;
            (account, plan) = (probe.accounting_location(), probe.plans());
        }
        if let Some(kernels) = additions.kernels {
            kernels.apply_to(&mut request);
        }
        let mut node_network = None;
        if let Some(inputs) = additions.network {
            let said = inputs.watch.add_plugins(&mut request, inputs.glibc);
            let unheard = inputs.watch.listen(&mut request, inputs.scratch)?;
            let remarks = said.into_iter().chain(unheard);
            remarks.for_each(|remark| (inputs.say)(&remark));
            node_network = inputs.watch.node_network();
        }
        let services = match additions.services {
            Some(inputs) => Some(inputs.apply_to(&mut request)?),
            None => None,
        };
        let service_notes = services.as_ref().map(|services| services.notes.clone());
        let started = started(RunStarted {
            plan,
            gpus,
            node_network,
            ..common_start_event(&request, host)
        });
        // The record has the command that was asked for.
        if let Some(site) = additions.site {
            site.wrap_command(&mut request);
        }
        Ok(Self {
            request,
            started,
            account,
            service_notes: service_notes.unwrap_or_default(),
            _services: services,
        })
    }
}
