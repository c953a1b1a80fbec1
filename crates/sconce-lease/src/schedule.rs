//! Who gets which cards when, as far as is known now.
//!
//! Requests are placed one after the other in the queue's order, each at the first moment at which
//! enough cards that serve it are free for all of its time, given everything placed before it. So a
//! short request may start before an earlier one, but only where that one is not delayed (backfill
//! with a reservation for each). What is placed at the present moment can be given.

use std::collections::BTreeMap;

use super::policy::LeaseLimits;
use super::types::{GpuSelection, LeaseGpu, Millis, QueuedRequest};
use super::{LeaseState, MaintenanceWindow, Policy, WaitReason};

/// The end of what has none.
const NEVER: Millis = Millis::MAX;

/// Where a request was placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledRequest {
    /// The request.
    pub id: u64,
    /// When it starts; absent where that hangs on a lease without an end, on cards that are not
    /// there, or on a limit that leaves none.
    pub start_ms: Option<Millis>,
    /// [`LeaseGpu::key`] of the cards that it would get.
    pub cards: Vec<String>,
    /// What keeps it from starting now; absent where it does, or where that was not asked.
    pub why: Option<WaitReason>,
}

struct GpuCalendar<'a> {
    facts: &'a LeaseGpu,
    taken: Vec<Span<'a>>,
}

/// A time in which a card is not free.
#[derive(Clone, Copy)]
struct Span<'a> {
    from: Millis,
    until: Millis,
    by: SpanOwner<'a>,
}

#[derive(Clone, Copy)]
enum SpanOwner<'a> {
    Lease,
    Window(&'a MaintenanceWindow),
    /// Placed before, of that user.
    Request(&'a str),
}

impl Span<'_> {
    fn meets(&self, from: Millis, until: Millis) -> bool {
        self.from < until && from < self.until
    }
}

impl GpuCalendar<'_> {
    fn is_free(&self, from: Millis, until: Millis) -> bool {
        self.taken.iter().all(|span| !span.meets(from, until))
    }
}

/// The requests in the order in which they are served: whoever waited longer than the policy's
/// patience, by arrival; then by priority, by decayed use, by arrival.
pub(super) fn requests_in_order<'a>(
    state: &'a LeaseState,
    policy: &Policy,
) -> Vec<&'a QueuedRequest> {
    let mut keyed: Vec<_> = state
        .waiting
        .iter()
        .map(|waiting| {
            let waited = state.now_ms.saturating_sub(waiting.asked_ms);
            let key = if waited >= policy.patience_ms {
                (0, 0, 0, waiting.id)
            } else {
                let priority = policy.limits_for(&waiting.person).priority;
                let used = state.use_of(waiting.person.uid, policy);
                (1, -i64::from(priority), used, waiting.id)
            };
            (key, waiting)
        })
        .collect();
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, waiting)| waiting).collect()
}

/// For how long a request may hold its cards.
pub(super) fn lease_duration(for_ms: Option<Millis>, limits: &LeaseLimits) -> Option<Millis> {
    match (for_ms, limits.longest_ms) {
        (Some(wish), Some(longest)) => Some(wish.min(longest)),
        (wish, longest) => wish.or(longest),
    }
}

/// Places every request, in the queue's order; with `now_alone`, only until nothing is free now, and
/// without [`ScheduledRequest::why`].
pub(super) fn schedule_requests(
    state: &LeaseState,
    policy: &Policy,
    now_alone: bool,
) -> Vec<ScheduledRequest> {
    let now = state.now_ms;
    let mut cards: Vec<GpuCalendar<'_>> = state
        .cards
        .iter()
        .map(|facts| GpuCalendar {
            facts,
            taken: Vec::new(),
        })
        .collect();
    // The smallest card that serves is given first, so that large ones stay for who needs them.
    cards.sort_by_key(|card| (card.facts.memory, card.facts.index));
    let mut own: BTreeMap<u32, Vec<UserSpan>> = BTreeMap::new();
    for lease in &state.leases {
        let span = Span {
            from: lease.since_ms.min(now),
            until: lease.until_ms.unwrap_or(NEVER),
            by: SpanOwner::Lease,
        };
        for card in &mut cards {
            if lease.cards.contains(&card.facts.key) {
                card.taken.push(span);
            }
        }
        let count = u32::try_from(lease.cards.len()).unwrap_or(u32::MAX);
        own.entry(lease.person.uid)
            .or_default()
            .push((span.from, span.until, count));
    }
    for window in &policy.maintenance {
        let span = Span {
            from: state.lease_time_of(window.from_s.saturating_mul(1000)),
            until: state.lease_time_of(window.until_s.saturating_mul(1000)),
            by: SpanOwner::Window(window),
        };
        if span.until > now {
            cards.iter_mut().for_each(|card| card.taken.push(span));
        }
    }
    let mut planned = Vec::with_capacity(state.waiting.len());
    for waiting in requests_in_order(state, policy) {
        if now_alone && !cards.iter().any(|card| card.is_free(now, now + 1)) {
            break;
        }
        let limits = policy.limits_for(&waiting.person);
        let own = own.entry(waiting.person.uid).or_default();
        let length = lease_duration(waiting.take.for_ms, &limits).unwrap_or(NEVER);
        let asked = PlacementRequest {
            waiting,
            length,
            limits: &limits,
            now,
        };
        let spent = limits.week_ms.filter(|&week| asked.is_spent(state, week));
        let found = match spent {
            Some(_) => None,
            None => asked.place(&cards, own),
        };
        let now_at_once = found.as_ref().is_some_and(|(start, _)| *start == now);
        let why = (!now_alone && !now_at_once).then(|| match spent {
            Some(week) => WaitReason::Hours {
                user: waiting.person.name.clone(),
                limit_s: week / 1000,
            },
            None => asked.why(state, &cards, own),
        });
        let (start_ms, chosen) = match found {
            Some((start, chosen)) => {
                let until = start.saturating_add(length);
                for &at in &chosen {
                    cards[at].taken.push(Span {
                        from: start,
                        until,
                        by: SpanOwner::Request(&waiting.person.name),
                    });
                }
                own.push((start, until, waiting.take.wanted.gpu_count()));
                (Some(start), chosen)
            }
            None => (None, Vec::new()),
        };
        planned.push(ScheduledRequest {
            id: waiting.id,
            start_ms,
            cards: chosen
                .iter()
                .map(|&at| cards[at].facts.key.clone())
                .collect(),
            why,
        });
    }
    planned
}

/// A request, and what holds for it.
struct PlacementRequest<'a> {
    waiting: &'a QueuedRequest,
    length: Millis,
    limits: &'a LeaseLimits,
    now: Millis,
}

/// From, until, how many: cards of one user.
type UserSpan = (Millis, Millis, u32);

impl PlacementRequest<'_> {
    /// Whether it would last as long as its user's hours of the week do, and none are left: each moment
    /// of theirs that is a week ago gives some back. One with a length of its own has put its hours by.
    fn is_spent(&self, state: &LeaseState, week: Millis) -> bool {
        let cards = u64::from(self.waiting.take.wanted.gpu_count()).max(1);
        let left = week.saturating_sub(state.week_of(&self.waiting.person));
        self.waiting.take.for_ms.is_none() && left / cards == 0
    }

    fn serves(&self, facts: &LeaseGpu) -> bool {
        match &self.waiting.take.wanted {
            GpuSelection::Any { memory, .. } => match (memory, facts.memory) {
                (None, _) => true,
                (Some(wish), Some(has)) => has >= *wish,
                (Some(_), None) => false,
            },
            GpuSelection::These(keys) => keys.contains(&facts.key),
        }
    }

    /// The first moment at which the request can have all of its time, and the cards.
    fn place(&self, cards: &[GpuCalendar<'_>], own: &[UserSpan]) -> Option<(Millis, Vec<usize>)> {
        let count = self.waiting.take.wanted.gpu_count();
        let able: Vec<usize> = (0..cards.len())
            .filter(|&at| self.serves(cards[at].facts))
            .collect();
        if able.len() < count as usize {
            return None;
        }
        // Something can only become possible when something ends.
        let ends = able.iter().flat_map(|&at| &cards[at].taken);
        let mut moments: Vec<Millis> = std::iter::once(self.now)
            .chain(ends.map(|span| span.until))
            .chain(own.iter().map(|span| span.1))
            .filter(|&moment| moment >= self.now && moment != NEVER)
            .collect();
        moments.sort_unstable();
        moments.dedup();
        moments.into_iter().find_map(|start| {
            let until = start.saturating_add(self.length);
            let free: Vec<usize> = able
                .iter()
                .copied()
                .filter(|&at| cards[at].is_free(start, until))
                .take(count as usize)
                .collect();
            let enough = free.len() == count as usize;
            let may = enough && within(self.limits.cards, count, start, until, own);
            may.then_some((start, free))
        })
    }

    /// Why that is not now.
    fn why(&self, state: &LeaseState, cards: &[GpuCalendar<'_>], own: &[UserSpan]) -> WaitReason {
        let (person, wanted) = (&self.waiting.person, self.waiting.take.wanted.gpu_count());
        let until = self.now.saturating_add(self.length);
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        if let Some(limit) = self.limits.cards
            && !within(Some(limit), wanted, self.now, until, own)
        {
            let leases = state.leases.iter().filter(|l| l.person.uid == person.uid);
            let held = number(leases.map(|lease| lease.cards.len()).sum());
            let all: u32 = own.iter().map(|span| span.2).fold(0, u32::saturating_add);
            return WaitReason::Limit {
                user: person.name.clone(),
                held,
                asked: all.saturating_sub(held),
                limit,
            };
        }
        let able = || cards.iter().filter(|card| self.serves(card.facts));
        let there = number(able().count());
        if there < wanted {
            return WaitReason::Missing { there, wanted };
        }
        // What is in the way of each card, in the order in which reasons are told.
        let now = self.now;
        let held = |card: &&GpuCalendar<'_>| {
            let mut leases = card
                .taken
                .iter()
                .filter(|s| matches!(s.by, SpanOwner::Lease));
            leases.any(|span| span.meets(now, now + 1))
        };
        let free = number(able().filter(|card| !held(card)).count());
        if free < wanted {
            return WaitReason::Held {
                free,
                there,
                wanted,
            };
        }
        let mut in_the_way = able().flat_map(|card| &card.taken);
        let window = in_the_way.clone().find_map(|span| match span.by {
            SpanOwner::Window(window) if span.meets(now, until) => Some((window, span.from <= now)),
            _ => None,
        });
        if let Some((window, begun)) = window {
            let why = window.why.clone();
            return WaitReason::Maintenance { begun, why };
        }
        let before = in_the_way.find_map(|span| match span.by {
            SpanOwner::Request(user) if span.meets(now, until) => Some(user.to_owned()),
            _ => None,
        });
        match before {
            Some(user) => WaitReason::Before { user },
            None => WaitReason::Held {
                free,
                there,
                wanted,
            },
        }
    }
}

/// Whether `count` cards more from `start` to `until` keep a user within their cards at once.
fn within(limit: Option<u32>, count: u32, start: Millis, until: Millis, own: &[UserSpan]) -> bool {
    let Some(limit) = limit else { return true };
    // The sum is largest where one of them begins.
    let begins = own.iter().map(|span| span.0);
    std::iter::once(start)
        .chain(begins.filter(|&begin| start < begin && begin < until))
        .all(|moment| {
            let held: u64 = own
                .iter()
                .filter(|span| span.0 <= moment && moment < span.1)
                .map(|span| u64::from(span.2))
                .sum();
            held + u64::from(count) <= u64::from(limit)
        })
}
