//! What the events add up to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::types::{
    AbandonedRequest, Lease, LeaseEnd, LeaseEvent, LeaseGpu, LeaseUser, Millis, QueuedRequest,
};
use super::{ClockReading, Policy};

/// A quarter of a day: use that counts for hours a week is kept in blocks of this.
const BLOCK_MS: Millis = 6 * 3600 * 1000;
const WEEK_BLOCKS: u64 = 28;
/// Leases that ended, kept to be told of.
const MAX_ENDED_LEASES: usize = 8;
/// Places that were given up, kept so that who waited is told: one user's whole queue.
const MAX_ABANDONED_REQUESTS: usize = 64;

/// Who holds what, who waits, and who used how much.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseState {
    /// Now, in the time of the leases.
    pub now_ms: Millis,
    /// The clocks at that time; absent before the first event.
    pub clock: Option<ClockReading>,
    /// The last reboot over which the wall clock went back.
    pub lost_clock_ms: Option<Millis>,
    /// The number that the next request gets.
    pub next: u64,
    /// The cards that were seen last.
    pub cards: Vec<LeaseGpu>,
    /// What is held, by number.
    pub leases: Vec<Lease>,
    /// Who waits, by number.
    pub waiting: Vec<QueuedRequest>,
    /// What each user used, by user id.
    pub used: BTreeMap<u32, UserUsage>,
    /// The last leases that ended, newest last, with when and why.
    pub last: Vec<(Lease, Millis, LeaseEnd)>,
    /// The last places in the queue that somebody gave up, newest last.
    #[serde(default)]
    pub given_up: Vec<AbandonedRequest>,
}

/// What one user used in leases that are over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserUsage {
    /// Card milliseconds, of which half is forgotten in each half-life; as of `at_ms`.
    pub decayed: u64,
    /// See `decayed`.
    pub at_ms: Millis,
    /// Card milliseconds in each quarter of a day, by its number.
    pub blocks: BTreeMap<u64, u64>,
}

/// What is left of `amount` after `passed_ms`.
#[must_use]
pub fn decayed_amount(amount: u64, passed_ms: Millis, half_life_ms: Millis) -> u64 {
    let halves = passed_ms as f64 / half_life_ms.max(1) as f64;
    (amount as f64 * (-halves).exp2()).round() as u64
}

/// What `cards` held for `held_ms`, until now, count for: the integral of what is left of each
/// moment.
fn weight(cards: usize, held_ms: Millis, half_life_ms: Millis) -> u64 {
    let tau = half_life_ms.max(1) as f64 / std::f64::consts::LN_2;
    (cards as f64 * tau * -(-(held_ms as f64) / tau).exp_m1()).round() as u64
}

impl LeaseState {
    /// One event more.
    pub fn apply(&mut self, event: &LeaseEvent) {
        match event {
            LeaseEvent::Time { now_ms, clock } => {
                if self
                    .clock
                    .as_ref()
                    .is_some_and(|old| clock.elapsed_since(old).1)
                {
                    self.lost_clock_ms = Some(*now_ms);
                }
                self.now_ms = *now_ms;
                self.clock = Some(clock.clone());
            }
            LeaseEvent::Cards(cards) => self.cards.clone_from(cards),
            LeaseEvent::Queued(waiting) => {
                self.next = self.next.max(waiting.id + 1);
                self.waiting.push(waiting.clone());
            }
            LeaseEvent::Left { id, by } => {
                self.waiting.retain(|waiting| waiting.id != *id);
                if let Some(by) = by.clone() {
                    self.given_up.push(AbandonedRequest { id: *id, by });
                    let over = self.given_up.len().saturating_sub(MAX_ABANDONED_REQUESTS);
                    self.given_up.drain(..over);
                }
            }
            LeaseEvent::Granted {
                id,
                cards,
                until_ms,
            } => {
                let Some(at) = self.waiting.iter().position(|waiting| waiting.id == *id) else {
                    return;
                };
                let QueuedRequest {
                    person,
                    take,
                    process,
                    ..
                } = self.waiting.remove(at);
                self.leases.push(Lease {
                    id: *id,
                    person,
                    cards: cards.clone(),
                    since_ms: self.now_ms,
                    until_ms: *until_ms,
                    process: process.filter(|_| take.while_alive),
                    idle_since_ms: None,
                    warned_ms: None,
                });
            }
            LeaseEvent::Extended { id, until_ms } => {
                if let Some(lease) = self.lease_mut(*id) {
                    lease.until_ms = Some(*until_ms);
                }
            }
            LeaseEvent::Ended {
                id,
                at_ms,
                why,
                half_life_ms,
            } => self.end(*id, *at_ms, *why, *half_life_ms),
            LeaseEvent::Idle { id, since_ms } => {
                if let Some(lease) = self.lease_mut(*id) {
                    lease.idle_since_ms = *since_ms;
                    if since_ms.is_none() {
                        lease.warned_ms = None;
                    }
                }
            }
            LeaseEvent::Warned { id, at_ms } => {
                if let Some(lease) = self.lease_mut(*id) {
                    lease.warned_ms = Some(*at_ms);
                }
            }
        }
    }

    fn lease_mut(&mut self, id: u64) -> Option<&mut Lease> {
        self.leases.iter_mut().find(|lease| lease.id == id)
    }

    fn end(&mut self, id: u64, at_ms: Millis, why: LeaseEnd, half_life_ms: Millis) {
        let Some(at) = self.leases.iter().position(|lease| lease.id == id) else {
            return;
        };
        let lease = self.leases.remove(at);
        let used = self.used.entry(lease.person.uid).or_default();
        // Two leases may end in another order than they are noted in.
        let as_of = used.at_ms.max(at_ms);
        let left = decayed_amount(used.decayed, as_of - used.at_ms, half_life_ms);
        let held = at_ms.saturating_sub(lease.since_ms);
        let own = weight(lease.cards.len(), held, half_life_ms);
        used.decayed = left.saturating_add(decayed_amount(own, as_of - at_ms, half_life_ms));
        used.at_ms = as_of;
        for (block, ms) in blocks(lease.since_ms, at_ms) {
            *used.blocks.entry(block).or_default() += ms * lease.cards.len() as u64;
        }
        let first = self.first_block();
        for used in self.used.values_mut() {
            used.blocks.retain(|block, _| *block >= first);
        }
        // Who used nothing for long is nobody to remember.
        self.used
            .retain(|_, used| used.decayed > 0 || !used.blocks.is_empty());
        self.last.push((lease, at_ms, why));
        if self.last.len() > MAX_ENDED_LEASES {
            self.last.remove(0);
        }
    }

    /// What a user used, running leases included, as the queue's order counts it: card
    /// milliseconds, decayed until now.
    #[must_use]
    pub fn use_of(&self, uid: u32, policy: &Policy) -> u64 {
        let half = policy.half_life_ms;
        let past = self.used.get(&uid).map_or(0, |used| {
            decayed_amount(used.decayed, self.now_ms.saturating_sub(used.at_ms), half)
        });
        let running = self.leases.iter().filter(|lease| lease.person.uid == uid);
        running.fold(past, |sum, lease| {
            let held = self.now_ms.saturating_sub(lease.since_ms);
            sum.saturating_add(weight(lease.cards.len(), held, half))
        })
    }

    /// The oldest block of the last seven days; the very first one where the leases are younger.
    fn first_block(&self) -> u64 {
        (self.now_ms / BLOCK_MS + 1).saturating_sub(WEEK_BLOCKS)
    }

    /// Card milliseconds that a user had in the last seven days, in whole quarters of a day, with
    /// what their running leases and requests may still take.
    #[must_use]
    pub fn week_of(&self, person: &LeaseUser) -> u64 {
        let past: u64 = self.used.get(&person.uid).map_or(0, |used| {
            used.blocks
                .range(self.first_block()..)
                .map(|(_, ms)| ms)
                .sum()
        });
        let running = self.leases.iter().filter(|l| l.person.uid == person.uid);
        let running = running.map(|lease| {
            let until = lease.until_ms.unwrap_or(self.now_ms).max(self.now_ms);
            (until - lease.since_ms.min(until)).saturating_mul(lease.cards.len() as u64)
        });
        let asked = self.waiting.iter().filter(|w| w.person.uid == person.uid);
        let asked = asked.map(|waiting| {
            let cards = u64::from(waiting.take.wanted.gpu_count());
            waiting.take.for_ms.unwrap_or(0).saturating_mul(cards)
        });
        running.chain(asked).fold(past, u64::saturating_add)
    }

    /// The wall clock's time of a moment, milliseconds since 1970.
    #[must_use]
    pub fn wall_ms(&self, moment: Millis) -> u64 {
        let wall = self.clock.as_ref().map_or(0, |clock| clock.wall_ms);
        match moment.checked_sub(self.now_ms) {
            Some(ahead) => wall.saturating_add(ahead),
            None => wall.saturating_sub(self.now_ms - moment),
        }
    }

    /// The moment of a time on the wall clock; what is past is 0 at least.
    #[must_use]
    pub fn lease_time_of(&self, wall_ms: u64) -> Millis {
        let wall = self.clock.as_ref().map_or(0, |clock| clock.wall_ms);
        match wall_ms.checked_sub(wall) {
            Some(ahead) => self.now_ms.saturating_add(ahead),
            None => self.now_ms.saturating_sub(wall - wall_ms),
        }
    }
}

/// The parts of `from..until` in each block.
fn blocks(from: Millis, until: Millis) -> impl Iterator<Item = (u64, u64)> {
    // A lease of years would be years of blocks; a week of them is all that is kept.
    let from = from.max(until.saturating_sub((WEEK_BLOCKS + 1) * BLOCK_MS));
    (from / BLOCK_MS..=until / BLOCK_MS).filter_map(move |block| {
        let start = from.max(block * BLOCK_MS);
        let end = until.min((block + 1) * BLOCK_MS);
        (end > start).then(|| (block, end - start))
    })
}
