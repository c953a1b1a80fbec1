//! `sconce lease serve`: the leases of a machine with several users.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sconce_host::{GpuMonitor as _, NvmlMonitor, Roots};
use sconce_lease::service::{self, ConnectionQuotas, LeaseServiceOptions, Peer};
use sconce_lease::{
    AccountCache, Database, Handles, LeaseError, LeaseGpu, LeaseRequest, LeaseResponse, LeaseState,
    LocalSystem, Millis, Policy, UtilizationSample, idle_events, is_group, is_user, push_sample,
};
use sconce_schema::exit;

use crate::error::CliError;
use crate::failure::render_failure;
use crate::output;
use sconce_app::context::AppContext;
use sconce_app::failure::{AppError, Result};
use sconce_app::file_action::FileAction;
use sconce_app::lease_client::{self, FOLDER, POLICY, SOCKET, read_policy};

/// Time between two readings of the cards, at most and at least, milliseconds.
const READ_EVERY_MS: Millis = 15_000;
const READ_NO_OFTENER_MS: Millis = 1_000;
/// Time until names that nobody had are asked for again.
const NAME_RETRY_INTERVAL: Duration = Duration::from_secs(300);
/// User ids that belong to users (subuid(5)).
const SUBORDINATES: &str = "/etc/subuid";

struct Service {
    database: Mutex<Database>,
    policy: Mutex<Policy>,
    cards: Mutex<Vec<LeaseGpu>>,
    people: AccountCache,
    handles: Handles,
    /// Why the policy that stands in the file now is not the one that holds.
    refused: Mutex<Option<String>>,
    /// What its owner most likely did not mean.
    cautions: Mutex<Vec<String>>,
}

/// What the watching keeps from reading to reading.
struct LeaseWatchState {
    /// Loaded once: it stays for as long as the program does.
    nvml: Option<NvmlMonitor>,
    readings: BTreeMap<u64, Vec<UtilizationSample>>,
    /// The policy and the number of cards that were looked at for cautions, and when.
    looked_at: Option<(Policy, u32, Instant)>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    fn world(&self) -> LocalSystem {
        LocalSystem {
            roots: Roots::default(),
            cards: lock(&self.cards).clone(),
            handles: self.handles.clone(),
        }
    }

    /// Time until the next reading: a lease that ends after a minute without use is looked at
    /// oftener than every quarter of one.
    fn read_after(&self) -> Duration {
        let soonest = lock(&self.policy).soonest_idle_ms();
        let ms = soonest.map_or(READ_EVERY_MS, |idle| idle / 4);
        Duration::from_millis(ms.clamp(READ_NO_OFTENER_MS, READ_EVERY_MS))
    }

    /// Reads what the owner wrote.
    fn heed(&self) -> Result<()> {
        // Without the file nobody has ids but their own.
        let text = sconce_app::input::read_text(Path::new(SUBORDINATES)).unwrap_or_default();
        self.people.set_subordinates(&text);
        *lock(&self.policy) = read_policy(Path::new(POLICY))?;
        Ok(())
    }

    /// As [`Self::heed`] while it serves: the rules before hold until the new ones can be followed,
    /// which is said once and stands in the list.
    fn heed_again(&self) {
        let wrong = self.heed().err();
        let why = wrong.as_ref().map(sconce_app::failure::Failure::message);
        let mut refused = lock(&self.refused);
        if *refused != why
            && let Some(wrong) = wrong
        {
            output::print_message(&render_failure(
                &wrong,
                &crate::style::OutputStyle::for_stderr(),
            ));
        }
        *refused = why;
    }

    /// Says what the owner most likely did not mean. Asks the name service, which may take long:
    /// nobody waits for it.
    fn caution(&self, watched: &mut LeaseWatchState) {
        let policy = lock(&self.policy).clone();
        let cards = u32::try_from(lock(&self.cards).len()).unwrap_or(u32::MAX);
        let known = watched.looked_at.as_ref().is_some_and(|(before, n, at)| {
            let settled = lock(&self.cautions).is_empty() || at.elapsed() < NAME_RETRY_INTERVAL;
            *before == policy && *n == cards && settled
        });
        if known {
            return;
        }
        let found = policy.list_warnings(cards, &is_user, &is_group);
        watched.looked_at = Some((policy, cards, Instant::now()));
        let before = std::mem::replace(&mut *lock(&self.cautions), found.clone());
        for caution in found.iter().filter(|caution| !before.contains(caution)) {
            output::print_message(&format!("warning: {POLICY}: {caution}"));
        }
    }

    /// What is to be told of the policy: that it is refused to everybody, the rest to its owner.
    fn remarks(&self, uid: u32) -> Vec<String> {
        let refused = lock(&self.refused).clone();
        let refused =
            refused.map(|why| format!("the rules before hold, the new are refused: {why}"));
        let cautions = match uid {
            0 => lock(&self.cautions).clone(),
            _ => Vec::new(),
        };
        let cautions = cautions.into_iter().map(|it| format!("{POLICY}: {it}"));
        refused.into_iter().chain(cautions).collect()
    }

    fn answer(&self, peer: &Peer, ask: &LeaseRequest) -> Result<LeaseResponse, LeaseError> {
        let policy = lock(&self.policy).clone();
        let person = match self.people.authorize_request(peer.uid, &policy, ask) {
            Ok(person) => person,
            Err(refusal) => return Ok(LeaseResponse::Refused(refusal)),
        };
        let world = self.world();
        let process = peer.find_process(&world);
        let decided =
            lock(&self.database).write_decision(&policy, &world, &person, process, ask)?;
        // The next one is answered while the disk writes.
        let mut answer = decided.sync_to_disk()?;
        if let LeaseResponse::Overview(overview) = &mut answer {
            overview.remarks.extend(self.remarks(peer.uid));
        }
        Ok(answer)
    }

    /// Reads the cards, and ends what is idle.
    fn watch(&self, watched: &mut LeaseWatchState) -> Result<(), LeaseError> {
        let LeaseWatchState { nvml, readings, .. } = watched;
        let host = lease_client::machine_with(nvml);
        let loaded = nvml
            .as_ref()
            .map(|nvml| nvml as &dyn sconce_host::GpuMonitor);
        *lock(&self.cards) = lease_client::list_lease_gpus(&host, loaded);
        let (world, policy) = (self.world(), lock(&self.policy).clone());
        let samples: BTreeMap<String, Option<u32>> = world
            .cards
            .iter()
            .map(|card| {
                let sample = nvml.as_ref().map(|nvml| nvml.sample(card.index));
                let percent = sample.and_then(|sample| sample.utilisation_percent);
                (card.key.clone(), percent)
            })
            .collect();
        lock(&self.database).record_events(&policy, &world, |state: &LeaseState| {
            readings.retain(|id, _| state.leases.iter().any(|lease| lease.id == *id));
            for lease in &state.leases {
                let reading = reading(state.now_ms, &lease.cards, &samples);
                push_sample(readings.entry(lease.id).or_default(), reading);
            }
            idle_events(state, &policy, readings)
        })?;
        Ok(())
    }
}

fn reading(
    at_ms: Millis,
    cards: &[String],
    samples: &BTreeMap<String, Option<u32>>,
) -> UtilizationSample {
    let percent = |key: &String| samples.get(key).copied().flatten();
    UtilizationSample {
        at_ms,
        utilisation_percent: cards.iter().map(percent).collect(),
    }
}

pub(super) fn serve_leases(context: &AppContext) -> Result<u8> {
    if !rustix::process::geteuid().is_root() {
        return Err(CliError::NotRoot.into());
    }
    let service = Service {
        database: Mutex::new(Database::new(FOLDER)),
        policy: Mutex::default(),
        cards: Mutex::default(),
        people: AccountCache::default(),
        handles: Handles::default(),
        refused: Mutex::default(),
        cautions: Mutex::default(),
    };
    service.heed()?;
    // Everybody must see that leases were set up, with the service down as well.
    if let Some(above) = Path::new(FOLDER).parent() {
        folder(above, 0o755)?;
    }
    folder(Path::new(FOLDER), 0o700)?;
    let listener = listen(Path::new(SOCKET))?;
    let mut watched = LeaseWatchState {
        nvml: None,
        readings: BTreeMap::new(),
        looked_at: None,
    };
    let host = lease_client::machine_with(&mut watched.nvml);
    let loaded = watched.nvml.as_ref();
    let cards = lease_client::list_lease_gpus(
        &host,
        loaded.map(|nvml| nvml as &dyn sconce_host::GpuMonitor),
    );
    if !context.quiet {
        let many = if cards.len() == 1 { "card" } else { "cards" };
        output::print_message(&format!("leases of {} {many}, at {SOCKET}", cards.len()));
    }
    *lock(&service.cards) = cards;
    let serving = LeaseServiceOptions {
        bounds: ConnectionQuotas::default(),
        identify: &service::identify_peer,
        charged: &|uid| service.people.charged_uid(uid),
        answer: &|peer, ask| service.answer(peer, ask),
        stop: &|| false,
    };
    let (serves, ended) = channel::<()>();
    std::thread::scope(|scope| {
        let service = &service;
        scope.spawn(move || {
            service.caution(&mut watched);
            // To the end of the answering, which is the service's.
            while ended.recv_timeout(service.read_after()) == Err(RecvTimeoutError::Timeout) {
                service.heed_again();
                if let Err(error) = service.watch(&mut watched) {
                    output::print_message(&sconce_app::failure::with_causes(&error));
                }
                service.caution(&mut watched);
            }
        });
        let served = service::serve(&listener, &serving);
        drop(serves);
        served
    })
    .map_err(|source| AppError::File {
        action: FileAction::ListenOn,
        path: SOCKET.into(),
        source,
    })?;
    Ok(exit::OK)
}

fn folder(path: &Path, mode: u32) -> Result<()> {
    let set = || {
        // One that systemd made may be on what this service cannot write.
        let now = std::fs::metadata(path)?.permissions().mode();
        match now & 0o7777 == mode {
            true => Ok(()),
            false => std::fs::set_permissions(path, Permissions::from_mode(mode)),
        }
    };
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .and_then(|()| set());
    Ok(made.map_err(|source| AppError::File {
        action: FileAction::Create,
        path: path.to_owned(),
        source,
    })?)
}

/// A socket that everybody may connect to, in a folder in which only root may make one. One that a
/// killed service left behind is replaced; one that answers is not.
fn listen(socket: &Path) -> Result<UnixListener> {
    if let Some(parent) = socket.parent() {
        folder(parent, 0o755)?;
    }
    let failed = |source| AppError::File {
        action: FileAction::ListenOn,
        path: socket.to_owned(),
        source,
    };
    if std::os::unix::net::UnixStream::connect(socket).is_ok() {
        return Err(failed(std::io::ErrorKind::AddrInUse.into()).into());
    }
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket).map_err(failed)?;
    let open = std::fs::set_permissions(socket, Permissions::from_mode(0o666));
    open.map_err(failed)?;
    Ok(listener)
}
