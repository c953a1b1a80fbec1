//! The lease of a run: taken by itself where leases are in use, for as long as the run lives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};
use sconce_host::{GpuDevice, HostProfile};
use sconce_lease::{
    AcquireRequest, GpuSelection, LeaseError, LeaseRefusal, LeaseRequest, LeaseResponse, Overview,
};
use sconce_schema::spec::{GpuId, GpuRequest};

use super::contained_run::CommandInvocation;
use crate::failure::Result;
use crate::lease_client::{self, LeaseClient, unexpected_response};
use crate::reporter::{AppEvent, Reporter};

/// Time between two looks at the lease of a run.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The shortest such time: a lease's end is told in whole seconds.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Time from the signal that ends a run whose lease is over to the one that kills it.
const GRACE: Duration = Duration::from_secs(30);

/// Cards that the run may have.
pub(super) struct LeasedGpus {
    cards: GpuRequest,
    /// The lease that is the run's own; absent where it uses one that its user holds.
    own: Option<Arc<OwnLease>>,
}

struct OwnLease {
    id: u64,
    desk: Mutex<LeaseClient>,
    ended: AtomicBool,
}

/// How cards are had.
#[derive(Debug, PartialEq, Eq)]
enum GpuGrant {
    /// By a lease that the user holds: indices of its cards.
    Held(Vec<u32>),
    /// By one for this run.
    Take(GpuSelection),
}

impl LeasedGpus {
    /// Takes the lease, and waits for it; `None` where no card is wanted or leases are not in use.
    pub(super) fn acquire(
        host: &HostProfile,
        nvml: Option<&dyn sconce_host::GpuMonitor>,
        wanted: &GpuRequest,
        called: &CommandInvocation<'_>,
    ) -> Result<Option<Self>> {
        let there = host.nvidia.as_ref().map_or(&[][..], |n| &n.cards);
        let folder = &called.places.leases;
        if there.is_empty() || *wanted == GpuRequest::Count(0) || !LeaseClient::is_in_use(folder) {
            return Ok(None);
        }
        let mut desk = LeaseClient::open(folder, lease_client::list_lease_gpus(host, nvml))?;
        let overview = desk.query_overview()?;
        let uid = rustix::process::geteuid().as_raw();
        let mut way = way(&overview, wanted, there, uid)?;
        tracing::info!(?way, "cards are leased");
        loop {
            let taken = match way {
                GpuGrant::Held(indices) => {
                    let cards = listed(indices);
                    return Ok(Some(Self { cards, own: None }));
                }
                GpuGrant::Take(taken) => taken,
            };
            let ask = LeaseRequest::Take(AcquireRequest {
                wanted: taken,
                for_ms: None,
                while_alive: true,
                wait: true,
            });
            let (id, keys) = match desk.send_request(&ask)? {
                LeaseResponse::Granted(lease) => (lease.id, lease.cards),
                LeaseResponse::Queued(place) => {
                    let id = place.id;
                    let overview = desk.wait(id, &mut |place| {
                        called.context.report(&AppEvent::LeaseQueued(place));
                    })?;
                    let found = overview.leases.into_iter().find(|lease| lease.id == id);
                    (id, found.map_or_else(Vec::new, |lease| lease.cards))
                }
                // Of all cards, as many as may be had.
                LeaseResponse::Refused(LeaseRefusal::TooMany { limit, .. })
                    if *wanted == GpuRequest::All && limit > 0 =>
                {
                    way = GpuGrant::Take(any(limit));
                    continue;
                }
                LeaseResponse::Refused(refusal) => return Err(refusal.into()),
                other => return Err(unexpected_response(&other).into()),
            };
            let indices = indices(&keys, there)?;
            let own = Arc::new(OwnLease {
                id,
                desk: Mutex::new(desk),
                ended: AtomicBool::new(false),
            });
            watch(&own, Arc::clone(&called.context.reporter));
            return Ok(Some(Self {
                cards: listed(indices),
                own: Some(own),
            }));
        }
    }

    pub(super) fn gpu_request(&self) -> &GpuRequest {
        &self.cards
    }
}

impl Drop for LeasedGpus {
    fn drop(&mut self) {
        if let Some(own) = &self.own {
            own.ended.store(true, Ordering::SeqCst);
            let mut desk = own.desk.lock().unwrap_or_else(PoisonError::into_inner);
            // Where that fails, it ends with this process.
            let _ = desk.send_request(&LeaseRequest::Return { id: own.id });
        }
    }
}

fn any(cards: u32) -> GpuSelection {
    GpuSelection::Any {
        cards,
        memory: None,
    }
}

/// The indices of cards by their keys. One that is not here is an error: the run would begin with fewer
/// cards than were asked for.
fn indices(keys: &[String], there: &[GpuDevice]) -> std::result::Result<Vec<u32>, LeaseError> {
    let index = |key: &String| {
        let card = there
            .iter()
            .find(|card| lease_client::gpu_key(card) == *key);
        card.map(|card| card.index)
            .ok_or_else(|| LeaseError::Unseen(key.clone()))
    };
    keys.iter().map(index).collect()
}

fn listed(indices: Vec<u32>) -> GpuRequest {
    GpuRequest::Listed(indices.into_iter().map(GpuId::Index).collect())
}

/// Whether the user's own leases of a time have what is wanted, or what is to be asked for.
fn way(
    overview: &Overview,
    wanted: &GpuRequest,
    there: &[GpuDevice],
    uid: u32,
) -> Result<GpuGrant> {
    let mine = |key: &String| {
        let mut timed = overview
            .leases
            .iter()
            .filter(|l| l.uid == uid && l.pid.is_none());
        timed.any(|lease| lease.cards.contains(key))
    };
    let own: Vec<u32> = there
        .iter()
        .filter(|card| mine(&lease_client::gpu_key(card)))
        .map(|card| card.index)
        .collect();
    Ok(match wanted {
        GpuRequest::All if !own.is_empty() => GpuGrant::Held(own),
        GpuRequest::All => {
            let taken = |card: &GpuDevice| {
                let key = lease_client::gpu_key(card);
                overview
                    .leases
                    .iter()
                    .any(|lease| lease.cards.contains(&key))
            };
            let free = there.iter().filter(|card| !taken(card)).count();
            GpuGrant::Take(any(u32::try_from(free.max(1)).unwrap_or(u32::MAX)))
        }
        &GpuRequest::Count(count) if own.len() >= count as usize => {
            GpuGrant::Held(own.into_iter().take(count as usize).collect())
        }
        &GpuRequest::Count(count) => GpuGrant::Take(any(count)),
        listed @ GpuRequest::Listed(_) => {
            let chosen = sconce_host::select_gpus(there, listed)?;
            if chosen.iter().all(|card| own.contains(&card.index)) {
                GpuGrant::Held(chosen.iter().map(|card| card.index).collect())
            } else {
                GpuGrant::Take(GpuSelection::These(
                    chosen.into_iter().map(lease_client::gpu_key).collect(),
                ))
            }
        }
    })
}

/// Ends the run when its lease is over: its cards are somebody else's then.
fn watch(own: &Arc<OwnLease>, reporter: Arc<dyn Reporter>) {
    let own = Arc::clone(own);
    std::thread::spawn(move || {
        let mut warned = false;
        let mut until_ms = None;
        loop {
            {
                let mut desk = own.desk.lock().unwrap_or_else(PoisonError::into_inner);
                if own.ended.load(Ordering::SeqCst) {
                    return;
                }
                let asked_ms = since_boot_ms();
                match desk.query_overview() {
                    Ok(overview) => {
                        let mut leases = overview.leases.iter();
                        let Some(lease) = leases.find(|lease| lease.id == own.id) else {
                            break;
                        };
                        if lease.warned && !warned {
                            reporter.report(&AppEvent::LeaseUnused);
                        }
                        // Whoever used them again may be warned again.
                        warned = lease.warned;
                        let left_s = |until: u64| until.saturating_sub(overview.now_s);
                        until_ms = lease.until_s.map(|until| asked_ms + 1000 * left_s(until));
                    }
                    // A service that is started anew is no reason to end a run; the end of the
                    // lease's time is one, whoever answers.
                    Err(_) if until_ms.is_some_and(|until| until + 1000 < since_boot_ms()) => break,
                    Err(_) => {}
                }
            }
            let left = until_ms.map(|until| until.saturating_sub(since_boot_ms()));
            std::thread::sleep(look_after(left));
        }
        reporter.report(&AppEvent::LeaseEnded);
        // As Ctrl-C: once to ask, once more to end.
        let _ = kill_process(getpid(), Signal::TERM);
        std::thread::sleep(GRACE);
        let _ = kill_process(getpid(), Signal::TERM);
    });
}

/// Time until the next look at a lease with so many milliseconds left: at its end, not some
/// seconds later, when its cards are another's already.
fn look_after(left_ms: Option<u64>) -> Duration {
    let left = left_ms.map_or(MAX_POLL_INTERVAL, Duration::from_millis);
    left.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

/// Milliseconds since boot, sleep included, as the time of the leases passes.
fn since_boot_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(now.tv_sec) * 1000 + part(now.tv_nsec) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_lease::LeaseSummary;

    fn card(index: u32) -> GpuDevice {
        GpuDevice {
            index,
            bus_id: Some(format!("0000:0{index}:00.0")),
            minor: Some(index),
            uuid: None,
            name: None,
            memory: None,
            node: None,
        }
    }

    #[test]
    fn a_lease_is_looked_at_when_it_ends() {
        let after = |left_ms| look_after(left_ms).as_millis();
        assert_eq!(after(None), 5_000);
        assert_eq!(after(Some(3_600_000)), 5_000);
        assert_eq!((after(Some(1_200)), after(Some(0))), (1_200, 250));
    }

    #[test]
    fn a_leased_card_that_is_not_here_is_an_error() {
        let there = [card(0), card(1)];
        let keys = [
            lease_client::gpu_key(&card(1)),
            lease_client::gpu_key(&card(0)),
        ];
        assert_eq!(indices(&keys, &there).unwrap(), [1, 0]);
        let missing = indices(
            &[lease_client::gpu_key(&card(0)), "0000:99:00.0".to_owned()],
            &there,
        );
        assert!(missing.unwrap_err().to_string().contains("0000:99:00.0"));
    }

    #[test]
    fn what_the_user_holds_is_used_first() {
        let there = [card(0), card(1), card(2)];
        let lease = |uid, index: u32, pid| LeaseSummary {
            id: u64::from(index),
            uid,
            user: String::new(),
            cards: vec![lease_client::gpu_key(&card(index))],
            lost: Vec::new(),
            since_s: 0,
            until_s: None,
            pid,
            idle_s: None,
            warned: false,
        };
        let overview = |leases| Overview {
            format: 1,
            now_s: 0,
            cards: Vec::new(),
            leases,
            queue: Vec::new(),
            remarks: Vec::new(),
            given_up: Vec::new(),
        };
        let held = overview(vec![lease(7, 1, None), lease(8, 2, None)]);
        let of = |overview: &Overview, wanted: &str| {
            way(overview, &wanted.parse().expect("cards"), &there, 7).ok()
        };
        assert_eq!(of(&held, "1"), Some(GpuGrant::Held(vec![1])));
        assert_eq!(of(&held, "all"), Some(GpuGrant::Held(vec![1])));
        assert_eq!(of(&held, "device=1"), Some(GpuGrant::Held(vec![1])));
        assert_eq!(of(&held, "2"), Some(GpuGrant::Take(any(2))));
        let first = GpuSelection::These(vec![lease_client::gpu_key(&card(0))]);
        assert_eq!(of(&held, "device=0"), Some(GpuGrant::Take(first)));
        assert_eq!(of(&held, "device=9"), None);
        // A lease that is another run's is that run's.
        let run = overview(vec![lease(7, 1, Some(99))]);
        assert_eq!(of(&run, "1"), Some(GpuGrant::Take(any(1))));
        assert_eq!(of(&run, "all"), Some(GpuGrant::Take(any(2))));
        assert_eq!(
            of(&overview(Vec::new()), "all"),
            Some(GpuGrant::Take(any(3)))
        );
    }
}
