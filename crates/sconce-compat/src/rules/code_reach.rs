//! What of a library's device code a card can run.

use sconce_schema::{ComputeCapability, CudaVersion, HostFacts};

use super::user_driver;
use crate::library::{CodeKind, CodeReach, CodeTarget, GpuCode};
use crate::tables;

/// Cards that sit on one chip with their CPU: machine code of another minor is not theirs (CUDA C++
/// programming guide, "Binary compatibility"), before CUDA 13.2 made them one with servers.
const INTEGRATED: [ComputeCapability; 4] = [
    ComputeCapability::new(5, 3),
    ComputeCapability::new(6, 2),
    ComputeCapability::new(7, 2),
    ComputeCapability::new(8, 7),
];
const ONE_WITH_SERVERS: CudaVersion = CudaVersion::new(13, 2);

/// What of a library's device code a card can run, in containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunnableCode {
    /// All.
    pub containers: u32,
    /// Those with machine code for the card.
    pub machine_code: u32,
    /// Those without it that have PTX, which the driver compiles at their first use.
    pub compiled: u32,
    /// Those without it whose PTX is too new for the driver.
    pub too_new: u32,
    /// The CUDA that a driver must serve to compile all PTX that is needed.
    pub needs: Option<CudaVersion>,
}

impl RunnableCode {
    /// Containers that run.
    #[must_use]
    pub fn runnable_count(self) -> u32 {
        self.machine_code.saturating_add(self.compiled)
    }
}

/// What of a library's device code a card can run. `driver` is the newest CUDA that the driver
/// serves, absent where that is not known; `built` is the CUDA that the library was built with.
#[must_use]
pub fn runnable_code(
    code: &GpuCode,
    card: ComputeCapability,
    driver: Option<CudaVersion>,
    built: Option<CudaVersion>,
) -> RunnableCode {
    let own_only = INTEGRATED.contains(&card) && built.is_none_or(|cuda| cuda < ONE_WITH_SERVERS);
    let runs = |target: &&CodeTarget| {
        target.code == CodeKind::Sass
            && target.can_run_on(card)
            && (!own_only || target.capability == card || target.reach == CodeReach::Family)
    };
    let mut reached = RunnableCode::default();
    for kind in &code.coverage {
        let count = kind.containers;
        reached.containers = reached.containers.saturating_add(count);
        if kind.targets.iter().any(|target| runs(&target)) {
            reached.machine_code = reached.machine_code.saturating_add(count);
            continue;
        }
        let ptx = kind.targets.iter().filter(|target| target.can_run_on(card));
        let cudas = ptx.filter_map(|target| match target.code {
            CodeKind::Ptx { major, minor } => tables::ptx_cuda(major, minor),
            CodeKind::Sass => None,
        });
        let Some(needs) = cudas.min() else {
            continue;
        };
        reached.needs = reached.needs.max(Some(needs));
        match driver.is_some_and(|driver| driver < needs) {
            true => reached.too_new = reached.too_new.saturating_add(count),
            false => reached.compiled = reached.compiled.saturating_add(count),
        }
    }
    reached
}

/// The newest CUDA that the machine's driver serves.
pub(crate) fn driver_cuda(host: &HostFacts) -> Option<CudaVersion> {
    let said = host.driver.as_ref().and_then(|driver| driver.cuda);
    // A forward-compatibility library serves what it was made for, whatever the kernel module is.
    user_driver(host).and_then(tables::driver_cuda).max(said)
}
