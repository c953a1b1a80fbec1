//! The cards of a run.

use std::path::Path;

use sconce_host::{GpuDevice, HostProfile, Roots};
use sconce_schema::Millicores;
use sconce_schema::event::GpuSummary;
use sconce_schema::request::{ContainerEdits, NumaPlacement};
use sconce_schema::spec::GpuRequest;
use tracing::info;

use crate::context::AppContext;
use crate::failure::Result;
use crate::limits;
use crate::reporter::AppEvent;
use crate::run_temp_dir::RunTempDir;

/// The cards that a run gets, and what the container needs for them.
pub(super) struct GpuAssignment {
    pub(super) edits: Vec<ContainerEdits>,
    pub(super) given: Vec<GpuSummary>,
    /// What of the machine is next to them.
    pub(super) near: Option<NumaPlacement>,
    /// Holds files that the edits name.
    pub(super) files: Option<RunTempDir>,
}

/// Whether `host` has the cards that `wanted` names, before anything is fetched for them.
pub(super) fn validate_gpu_request(host: &HostProfile, wanted: &GpuRequest) -> Result<()> {
    sconce_host::select_gpus(list_gpus(host), wanted)?;
    Ok(())
}

/// The cards of a machine.
pub(super) fn list_gpus(host: &HostProfile) -> &[GpuDevice] {
    host.nvidia.as_ref().map_or(&[][..], |nvidia| &nvidia.cards)
}

impl GpuAssignment {
    /// Those of `host` that `wanted` names, for a run of so many `cpus`; with `asked`, somebody asked
    /// for them, and is told where there are none. Files that their edits need are made below `scratch`.
    pub(super) fn select_gpus(
        host: &HostProfile,
        wanted: &GpuRequest,
        asked: bool,
        cpus: Option<Millicores>,
        scratch: &Path,
        context: &AppContext,
    ) -> Result<Self> {
        let chosen = sconce_host::select_gpus(list_gpus(host), wanted)?;
        let indices: Vec<u32> = chosen.iter().map(|card| card.index).collect();
        info!(?wanted, ?indices, there = list_gpus(host).len(), "cards");
        if chosen.is_empty() {
            if asked && *wanted == GpuRequest::All {
                context.report(&AppEvent::NoGpu);
            }
            return Ok(Self {
                edits: Vec::new(),
                given: Vec::new(),
                near: None,
                files: None,
            });
        }
        let folder = format!("{}.private", sconce_base::random_name());
        let files = RunTempDir::create(&scratch.join("edits").join(folder))?;
        let edits = sconce_host::edits_for(host, &chosen, &Roots::default(), files.path())?;
        Ok(Self {
            near: limits::place_near_gpus(&chosen, host, cpus),
            edits,
            given: chosen.into_iter().map(GpuDevice::summary).collect(),
            files: Some(files),
        })
    }
}
