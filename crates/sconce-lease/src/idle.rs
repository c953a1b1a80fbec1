//! Whether a lease's cards are used, and by whom.

use std::collections::BTreeMap;

use sconce_schema::Bytes;
use sconce_schema::event::GpuSample;
use serde::{Deserialize, Serialize};

use super::types::{LeaseEvent, LeaseSummary, Millis};
use super::{LeaseState, Policy};

/// The cards of one lease at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UtilizationSample {
    /// When, in the time of the leases.
    pub at_ms: Millis,
    /// Share of time in which a kernel ran, of each card, 0 to 100; absent where the card did not
    /// tell.
    pub utilisation_percent: Vec<Option<u32>>,
}

impl UtilizationSample {
    /// Memory that is held is no use: a notebook that was left open holds it for days. A card that
    /// does not tell counts as used, since nobody's lease is ended on a guess.
    fn is_used(&self) -> bool {
        self.utilisation_percent.is_empty()
            || self
                .utilisation_percent
                .iter()
                .any(|percent| percent.is_none_or(|percent| percent > 0))
    }
}

/// Adds a reading, and forgets those that [`classify_idle_state`] will not ask for: of a time without use the
/// first and the last say all.
pub fn push_sample(readings: &mut Vec<UtilizationSample>, reading: UtilizationSample) {
    if reading.is_used() {
        readings.clear();
    } else if let [.., before, last] = &readings[..]
        && !before.is_used()
        && !last.is_used()
    {
        readings.pop();
    }
    readings.push(reading);
}

/// What is to be done with a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleState {
    /// A card was used at the last reading, or there is none.
    Used,
    /// None was used since then, which is not long.
    Idle {
        /// The first reading of those without use.
        since_ms: Millis,
    },
    /// Long enough that the holder is to be warned.
    Warn {
        /// See above.
        since_ms: Millis,
    },
    /// Warned, and the grace is over: to be taken back.
    Return {
        /// See above.
        since_ms: Millis,
    },
}

/// Judges a lease by its readings, oldest first: unused for `limit_ms`, its holder is warned;
/// unused for `grace_ms` after the warning, it ends.
#[must_use]
pub fn classify_idle_state(
    readings: &[UtilizationSample],
    warned_ms: Option<Millis>,
    limit_ms: Millis,
    grace_ms: Millis,
) -> IdleState {
    let first = readings.iter().rposition(UtilizationSample::is_used);
    let first = first.map_or(0, |used| used + 1);
    let (Some(since), Some(last)) = (readings.get(first), readings.last()) else {
        return IdleState::Used;
    };
    let since_ms = since.at_ms;
    let unused = last.at_ms.saturating_sub(since_ms);
    match warned_ms.filter(|&warned| warned >= since_ms) {
        _ if unused < limit_ms => IdleState::Idle { since_ms },
        None => IdleState::Warn { since_ms },
        Some(warned) if last.at_ms.saturating_sub(warned) >= grace_ms => {
            IdleState::Return { since_ms }
        }
        Some(_) => IdleState::Idle { since_ms },
    }
}

/// What follows for the leases from their readings, by number: events of idleness, warnings and
/// ends, as the policy has them.
#[must_use]
pub fn idle_events(
    state: &LeaseState,
    policy: &Policy,
    readings: &BTreeMap<u64, Vec<UtilizationSample>>,
) -> Vec<LeaseEvent> {
    let mut events = Vec::new();
    for lease in &state.leases {
        let limits = policy.limits_for(&lease.person);
        let (Some(limit), Some(readings)) = (limits.idle_ms, readings.get(&lease.id)) else {
            continue;
        };
        let id = lease.id;
        let since = |since_ms: Option<Millis>| LeaseEvent::Idle { id, since_ms };
        match classify_idle_state(readings, lease.warned_ms, limit, policy.idle_grace_ms) {
            IdleState::Used if lease.idle_since_ms.is_some() => events.push(since(None)),
            IdleState::Used => {}
            IdleState::Idle { since_ms } => {
                // Short rests between two epochs are nobody's business.
                let unused = state.now_ms.saturating_sub(since_ms);
                let long = unused >= limit / 2;
                match lease.idle_since_ms {
                    Some(told) if told != since_ms => events.push(since(None)),
                    None if long => events.push(since(Some(since_ms))),
                    _ => {}
                }
            }
            IdleState::Warn { since_ms } => {
                events.push(since(Some(since_ms)));
                events.push(LeaseEvent::Warned {
                    id,
                    at_ms: state.now_ms,
                });
            }
            IdleState::Return { .. } => events.push(LeaseEvent::Ended {
                id,
                at_ms: state.now_ms,
                why: super::LeaseEnd::Idle,
                half_life_ms: policy.half_life_ms,
            }),
        }
    }
    events
}

/// A process on a card that its owner does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnleasedProcess {
    /// Index of the card.
    pub card: u32,
    /// Process id.
    pub pid: u32,
    /// Its owner.
    pub uid: u32,
    /// Its name, as the kernel has it.
    pub command: String,
    /// Memory of the card that it holds.
    pub memory: Bytes,
    /// The lease that it is in the way of.
    pub lease: Option<u64>,
}

/// The processes on cards that are neither their owner's by a lease nor started by a lease's
/// process. `keys` are the cards by index, `who` tells of a process its owner and name, and
/// `parents` the processes that it comes from.
#[must_use]
pub fn list_unleased_processes(
    samples: &[GpuSample],
    leases: &[LeaseSummary],
    keys: &BTreeMap<u32, String>,
    who: &dyn Fn(u32) -> Option<(u32, String)>,
    parents: &dyn Fn(u32) -> Vec<u32>,
) -> Vec<UnleasedProcess> {
    let mut found = Vec::new();
    for sample in samples {
        let key = keys.get(&sample.index);
        let lease = leases
            .iter()
            .find(|lease| key.is_some_and(|key| lease.cards.contains(key)));
        for (&pid, &memory) in &sample.memory_by_pid {
            // It ended between the two readings.
            let Some((uid, command)) = who(pid) else {
                continue;
            };
            let belongs = lease.is_some_and(|lease| {
                let started = |holder| pid == holder || parents(pid).contains(&holder);
                lease.uid == uid || lease.pid.is_some_and(started)
            });
            if !belongs {
                found.push(UnleasedProcess {
                    card: sample.index,
                    pid,
                    uid,
                    command,
                    memory,
                    lease: lease.map(|lease| lease.id),
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: Millis = 60_000;

    fn readings(percents: &[&[Option<u32>]]) -> Vec<UtilizationSample> {
        let reading = |(at, cards): (usize, &&[Option<u32>])| UtilizationSample {
            at_ms: at as Millis * MINUTE,
            utilisation_percent: cards.to_vec(),
        };
        percents.iter().enumerate().map(reading).collect()
    }

    fn judge(percents: &[&[Option<u32>]], warned: Option<Millis>) -> IdleState {
        classify_idle_state(
            &readings(percents),
            warned.map(|m| m * MINUTE),
            3 * MINUTE,
            2 * MINUTE,
        )
    }

    #[test]
    fn a_forgotten_notebook_is_warned_then_ended() {
        let (busy, rests): (&[Option<u32>], &[Option<u32>]) = (&[Some(90)], &[Some(0)]);
        let since_ms = MINUTE;
        let mut seen = vec![busy, rests, rests, rests];
        assert_eq!(judge(&seen, None), IdleState::Idle { since_ms });
        seen.push(rests);
        assert_eq!(judge(&seen, None), IdleState::Warn { since_ms });
        assert_eq!(judge(&seen, Some(4)), IdleState::Idle { since_ms });
        seen.extend([rests, rests]);
        assert_eq!(judge(&seen, Some(4)), IdleState::Return { since_ms });
        seen.push(busy);
        assert_eq!(judge(&seen, Some(4)), IdleState::Used);
        // A warning of an earlier rest counts for nothing.
        seen.extend([rests; 4]);
        assert_eq!(
            judge(&seen, Some(4)),
            IdleState::Warn {
                since_ms: 8 * MINUTE
            }
        );
    }

    proptest! {
        #[test]
        fn what_is_kept_says_the_same(
            used in proptest::collection::vec(any::<bool>(), 0..40),
            warned in proptest::option::of(0..40_u64),
        ) {
            let (busy, rests): (&[Option<u32>], &[Option<u32>]) = (&[Some(9)], &[Some(0)]);
            let all: Vec<_> = used.iter().map(|used| if *used { busy } else { rests }).collect();
            let mut kept = Vec::new();
            for reading in readings(&all) {
                push_sample(&mut kept, reading);
            }
            prop_assert!(kept.len() <= 3);
            let warned_ms = warned.map(|warned| warned * MINUTE);
            let said = classify_idle_state(&kept, warned_ms, 3 * MINUTE, 2 * MINUTE);
            prop_assert_eq!(said, judge(&all, warned));
        }
    }

    #[test]
    fn one_card_in_use_is_enough_and_a_silent_card_is_in_use() {
        let one: &[Option<u32>] = &[Some(0), Some(1)];
        let silent: &[Option<u32>] = &[Some(0), None];
        assert_eq!(judge(&[one; 9], None), IdleState::Used);
        assert_eq!(judge(&[silent; 9], None), IdleState::Used);
        let none: &[Option<u32>] = &[];
        assert_eq!(judge(&[none; 9], None), IdleState::Used);
        assert_eq!(judge(&[], None), IdleState::Used);
    }

    #[test]
    fn processes_of_others_are_found() {
        let lease = LeaseSummary {
            id: 7,
            uid: 1001,
            user: "anna".to_owned(),
            cards: vec!["a".to_owned()],
            lost: Vec::new(),
            since_s: 0,
            until_s: None,
            pid: Some(50),
            idle_s: None,
            warned: false,
        };
        let memory = Bytes::from_gib(1);
        let sample = |index, pids: &[u32]| GpuSample {
            index,
            memory_by_pid: pids.iter().map(|&pid| (pid, memory)).collect(),
            ..GpuSample::default()
        };
        // 60: anna's own; 61: another uid in anna's container; 62: bo's; 63: gone by now.
        let samples = [sample(0, &[60, 61, 62, 63]), sample(1, &[60])];
        let keys = [(0, "a".to_owned()), (1, "b".to_owned())].into();
        let who = |pid: u32| match pid {
            60 => Some((1001, "python".to_owned())),
            61 | 62 => Some((1000, "python".to_owned())),
            _ => None,
        };
        let parents = |pid: u32| if pid == 61 { vec![55, 50, 1] } else { vec![1] };
        let found = list_unleased_processes(&samples, &[lease], &keys, &who, &parents);
        let found: Vec<_> = found.iter().map(|o| (o.card, o.pid, o.lease)).collect();
        assert_eq!(found, [(0, 62, Some(7)), (1, 60, None)]);
    }
}
