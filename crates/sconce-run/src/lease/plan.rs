//! Who gets which cards when, as far as is known now.
//!
//! Requests are placed one after the other in the queue's order, each at the first moment at which
//! enough cards that serve it are free for all of its time, given everything placed before it. So a
//! short request may start before an earlier one, but only where that one is not delayed (backfill
//! with a reservation for each). What is placed at the present moment can be given.

use std::collections::BTreeMap;

use super::policy::Limits;
use super::types::{CardFacts, Millis, Waiting, Wanted};
use super::{Policy, State};

/// The end of what has none.
const NEVER: Millis = Millis::MAX;

/// Where a request was placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The request.
    pub id: u64,
    /// When it starts; absent where that hangs on a lease without an end, on cards that are not
    /// there, or on a limit that leaves none.
    pub start_ms: Option<Millis>,
    /// [`CardFacts::key`] of the cards that it would get.
    pub cards: Vec<String>,
}

struct Card<'a> {
    facts: &'a CardFacts,
    /// Taken from, taken until.
    taken: Vec<(Millis, Millis)>,
}

impl Card<'_> {
    fn is_free(&self, from: Millis, until: Millis) -> bool {
        self.taken
            .iter()
            .all(|&(start, end)| end <= from || until <= start)
    }
}

/// The requests in the order in which they are served: whoever waited longer than the policy's
/// patience, by arrival; then by priority, by decayed use, by arrival.
pub(super) fn order<'a>(state: &'a State, policy: &Policy) -> Vec<&'a Waiting> {
    let mut keyed: Vec<_> = state
        .waiting
        .iter()
        .map(|waiting| {
            let waited = state.now_ms.saturating_sub(waiting.asked_ms);
            let key = if waited >= policy.patience_ms {
                (0, 0, 0, waiting.id)
            } else {
                let priority = policy.limits(&waiting.person).priority;
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
pub(super) fn length(for_ms: Option<Millis>, limits: &Limits) -> Option<Millis> {
    match (for_ms, limits.longest_ms) {
        (Some(wish), Some(longest)) => Some(wish.min(longest)),
        (wish, longest) => wish.or(longest),
    }
}

/// Places every request, in the queue's order; with `now_alone`, only until nothing is free now.
pub(super) fn plan(state: &State, policy: &Policy, now_alone: bool) -> Vec<Planned> {
    let now = state.now_ms;
    let mut cards: Vec<Card<'_>> = state
        .cards
        .iter()
        .map(|facts| Card {
            facts,
            taken: Vec::new(),
        })
        .collect();
    // The smallest card that serves is given first, so that large ones stay for who needs them.
    cards.sort_by_key(|card| (card.facts.memory, card.facts.index));
    let mut own: BTreeMap<u32, Vec<(Millis, Millis, u32)>> = BTreeMap::new();
    for lease in &state.leases {
        let span = (lease.since_ms.min(now), lease.until_ms.unwrap_or(NEVER));
        for card in &mut cards {
            if lease.cards.contains(&card.facts.key) {
                card.taken.push(span);
            }
        }
        let count = u32::try_from(lease.cards.len()).unwrap_or(u32::MAX);
        own.entry(lease.person.uid)
            .or_default()
            .push((span.0, span.1, count));
    }
    for window in &policy.maintenance {
        let span = (
            state.moment(window.from_s.saturating_mul(1000)),
            state.moment(window.until_s.saturating_mul(1000)),
        );
        if span.1 > now {
            cards.iter_mut().for_each(|card| card.taken.push(span));
        }
    }
    let mut planned = Vec::with_capacity(state.waiting.len());
    for waiting in order(state, policy) {
        if now_alone && !cards.iter().any(|card| card.is_free(now, now + 1)) {
            break;
        }
        let limits = policy.limits(&waiting.person);
        let own = own.entry(waiting.person.uid).or_default();
        let length = length(waiting.take.for_ms, &limits).unwrap_or(NEVER);
        let found = place(&waiting.take.wanted, length, &limits, now, &cards, own);
        let (start_ms, chosen) = match found {
            Some((start, chosen)) => {
                let until = start.saturating_add(length);
                for &at in &chosen {
                    cards[at].taken.push((start, until));
                }
                own.push((start, until, waiting.take.wanted.count()));
                (Some(start), chosen)
            }
            None => (None, Vec::new()),
        };
        planned.push(Planned {
            id: waiting.id,
            start_ms,
            cards: chosen
                .iter()
                .map(|&at| cards[at].facts.key.clone())
                .collect(),
        });
    }
    planned
}

/// The first moment at which the request can have all of its time, and the cards.
fn place(
    wanted: &Wanted,
    length: Millis,
    limits: &Limits,
    now: Millis,
    cards: &[Card<'_>],
    own: &[(Millis, Millis, u32)],
) -> Option<(Millis, Vec<usize>)> {
    let serves = |facts: &CardFacts| match wanted {
        Wanted::Any { memory, .. } => match (memory, facts.memory) {
            (None, _) => true,
            (Some(wish), Some(has)) => has >= *wish,
            (Some(_), None) => false,
        },
        Wanted::These(keys) => keys.contains(&facts.key),
    };
    let count = wanted.count();
    let able: Vec<usize> = (0..cards.len())
        .filter(|&at| serves(cards[at].facts))
        .collect();
    if able.len() < count as usize {
        return None;
    }
    // Something can only become possible when something ends.
    let ends = able.iter().flat_map(|&at| &cards[at].taken);
    let mut moments: Vec<Millis> = std::iter::once(now)
        .chain(ends.map(|span| span.1))
        .chain(own.iter().map(|span| span.1))
        .filter(|&moment| moment >= now && moment != NEVER)
        .collect();
    moments.sort_unstable();
    moments.dedup();
    moments.into_iter().find_map(|start| {
        let until = start.saturating_add(length);
        let free: Vec<usize> = able
            .iter()
            .copied()
            .filter(|&at| cards[at].is_free(start, until))
            .take(count as usize)
            .collect();
        let enough = free.len() == count as usize;
        (enough && within(limits.cards, count, start, until, own)).then_some((start, free))
    })
}

/// Whether `count` cards more from `start` to `until` keep a user within their cards at once.
fn within(
    limit: Option<u32>,
    count: u32,
    start: Millis,
    until: Millis,
    own: &[(Millis, Millis, u32)],
) -> bool {
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
