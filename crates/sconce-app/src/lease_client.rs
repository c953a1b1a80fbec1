//! Where this machine's leases are, and how they are asked.
//!
//! The service's socket, where there is one; else the machine's folder, for root; else the user's
//! own folder, which is one user's and needs no wall.

use std::mem::{Discriminant, discriminant};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sconce_host::{HostProfile, NvmlMonitor, Roots};
use sconce_lease::{
    Database, Handles, LeaseError, LeaseGpu, LeaseRefusal, LeaseRequest, LeaseResponse, LeaseUser,
    LocalSystem, Overview, Policy, QueueEntry, WaitReason, service, user_by_uid,
};

use crate::failure::{AppError, Result};
use crate::file_action::FileAction;

/// Of the service: only root can make it.
pub const SOCKET: &str = "/run/sconce/lease.sock";
/// Of the service: only root can read it.
pub const FOLDER: &str = "/var/lib/sconce/leases";
/// The owner's rules.
pub const POLICY: &str = "/etc/sconce/policy.toml";
/// Time between two looks of whoever waits.
const LEASE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// For so long whoever waits bears a service that does not answer: its place is kept as long as
/// the command lives, and an update of the service is no reason to lose it.
const SERVICE_DOWN_TIMEOUT: Duration = Duration::from_secs(600);

/// A way to the leases.
pub enum LeaseClient {
    /// The service.
    Served(PathBuf),
    /// Files, of root or of one user.
    Own(Box<LocalLeases>),
}

/// Files that this process writes itself.
pub struct LocalLeases {
    database: Database,
    policy: Policy,
    world: LocalSystem,
    person: LeaseUser,
}

impl LeaseClient {
    /// The leases that hold on this machine; `own` is the user's folder for them. Nothing is made.
    pub fn open(own: &Path, cards: Vec<LeaseGpu>) -> Result<Self> {
        if Path::new(SOCKET).exists() {
            return Ok(Self::Served(SOCKET.into()));
        }
        let root = rustix::process::geteuid().is_root();
        let folder = match Path::new(FOLDER).is_dir() {
            true if root => Path::new(FOLDER),
            // The owner set leases up, and their service is down: nobody passes by them.
            true => return Ok(Self::Served(SOCKET.into())),
            false => own,
        };
        Ok(Self::Own(Box::new(LocalLeases {
            database: Database::new(folder),
            policy: read_policy(Path::new(POLICY))?,
            world: LocalSystem {
                roots: Roots::default(),
                cards,
                handles: Handles::default(),
            },
            person: user_by_uid(rustix::process::geteuid().as_raw()),
        })))
    }

    /// Whether leases are in use here: by the owner's wish, or because the user took one.
    pub fn is_in_use(own: &Path) -> bool {
        Path::new(SOCKET).exists() || Path::new(FOLDER).is_dir() || own.join("leases.log").exists()
    }

    /// Sends a request, and returns the answer.
    pub fn send_request(&mut self, ask: &LeaseRequest) -> Result<LeaseResponse, LeaseError> {
        match self {
            Self::Served(socket) => service::send_request(socket, ask),
            Self::Own(own) => {
                let pid = std::process::id();
                own.database
                    .apply_request(&own.policy, &own.world, &own.person, pid, ask)
            }
        }
    }

    /// Asks who has which GPU, and who waits.
    pub fn query_overview(&mut self) -> Result<Overview> {
        overview_of(self.send_request(&LeaseRequest::Look)?)
    }

    /// Waits until the request is served; `told` hears of each change of its place, start or reason.
    /// Whoever ends meanwhile loses the place.
    pub fn wait(&mut self, id: u64, told: &mut dyn FnMut(&QueueEntry)) -> Result<Overview> {
        let mut last = None;
        let mut answered = Instant::now();
        loop {
            let overview = match self.send_request(&LeaseRequest::Look) {
                Err(LeaseError::Service { .. }) if answered.elapsed() < SERVICE_DOWN_TIMEOUT => {
                    std::thread::sleep(LEASE_POLL_INTERVAL);
                    continue;
                }
                answer => overview_of(answer?)?,
            };
            answered = Instant::now();
            if overview.leases.iter().any(|lease| lease.id == id) {
                return Ok(overview);
            }
            let Some(own) = overview.queue.iter().find(|waiting| waiting.id == id) else {
                let mut given_up = overview.given_up.into_iter();
                let by = given_up.find(|gone| gone.id == id).map(|gone| gone.by);
                return Err(LeaseRefusal::GivenUp { by }.into());
            };
            // The start moves by a second with each look where it hangs on nothing.
            let why: Option<Discriminant<WaitReason>> = own.why.as_ref().map(discriminant);
            let now = (own.place, own.start_s.map(|start| start / 60), why);
            if last != Some(now) {
                told(own);
                last = Some(now);
            }
            std::thread::sleep(LEASE_POLL_INTERVAL);
        }
    }
}

fn overview_of(answer: LeaseResponse) -> Result<Overview> {
    match answer {
        LeaseResponse::Overview(overview) => Ok(overview),
        LeaseResponse::Refused(refusal) => Err(refusal.into()),
        other => Err(unexpected_response(&other).into()),
    }
}

/// An answer to another question.
pub fn unexpected_response(answer: &LeaseResponse) -> LeaseRefusal {
    LeaseRefusal::Unreadable(format!("{answer:?} is no answer to that"))
}

/// The policy in a file; without the file, none.
pub fn read_policy(path: &Path) -> Result<Policy> {
    match crate::input::read_text(path) {
        Ok(text) => Policy::parse(&text).map_err(|source| {
            AppError::Policy {
                path: path.to_owned(),
                source,
            }
            .into()
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Policy::default()),
        Err(source) => Err(AppError::File {
            action: FileAction::Read,
            path: path.to_owned(),
            source,
        }
        .into()),
    }
}

/// The cards of a machine as leases know them: those that NVML can reach, where it could be loaded.
/// NVML leaves out what fell off the bus; the kernel's list does not.
pub fn list_lease_gpus(
    host: &HostProfile,
    nvml: Option<&dyn sconce_host::GpuMonitor>,
) -> Vec<LeaseGpu> {
    let reached = nvml.map(sconce_host::GpuMonitor::cards);
    let cards = host.nvidia.iter().flat_map(|nvidia| &nvidia.cards);
    cards
        .filter(|card| {
            let there = |other: &sconce_host::NvmlGpu| card.uuid.as_ref() == Some(&other.uuid);
            let none = card.uuid.is_none() || reached.as_ref().is_none_or(Vec::is_empty);
            none || reached.iter().flatten().any(there)
        })
        .map(|card| LeaseGpu {
            key: gpu_key(card),
            index: card.index,
            name: card.name.clone(),
            memory: card.memory,
        })
        .collect()
}

/// What stays the same of a card.
pub fn gpu_key(card: &sconce_host::GpuDevice) -> String {
    let uuid = || card.uuid.clone();
    let index = || format!("card {}", card.index);
    card.bus_id.clone().or_else(uuid).unwrap_or_else(index)
}

/// This machine with its cards, and NVML where it loads.
pub fn read_host_profile() -> (HostProfile, Option<NvmlMonitor>) {
    let mut nvml = None;
    let host = machine_with(&mut nvml);
    (host, nvml)
}

/// As [`read_host_profile`], with NVML loaded where it is not yet.
pub fn machine_with(nvml: &mut Option<NvmlMonitor>) -> HostProfile {
    let mut host = HostProfile::read(&Roots::default());
    if let Some(nvidia) = host.nvidia.as_mut().filter(|n| !n.cards.is_empty()) {
        if nvml.is_none() {
            *nvml = NvmlMonitor::load();
        }
        if let Some(nvml) = nvml {
            nvidia.fill_from_nvml(nvml);
        }
    }
    host
}
