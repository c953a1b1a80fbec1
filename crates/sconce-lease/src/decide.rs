//! What is done with a request. Pure: what is known goes in, events and an answer come out.

use super::schedule::{lease_duration, requests_in_order, schedule_requests};
use super::types::{
    AcquireRequest, Decision, GpuSelection, Lease, LeaseEnd, LeaseEvent, LeaseRequest,
    LeaseResponse, LeaseSummary, LeaseUser, Millis, Overview, ProcessRef, QueueEntry,
    QueuedRequest, SystemObservation,
};
use super::{LeaseLimits, LeaseRefusal, LeaseState, MaintenanceWindow, Policy};

/// Version of [`Overview`].
const FORMAT: u32 = 1;

/// A state that notes what happens to it.
struct RecordingState<'a> {
    state: &'a mut LeaseState,
    events: Vec<LeaseEvent>,
}

impl RecordingState<'_> {
    fn now(&mut self, event: LeaseEvent) {
        self.state.apply(&event);
        self.events.push(event);
    }

    fn end(&mut self, id: u64, at_ms: Millis, why: LeaseEnd, policy: &Policy) {
        self.now(LeaseEvent::Ended {
            id,
            at_ms,
            why,
            half_life_ms: policy.half_life_ms,
        });
    }

    /// Gives cards to whoever can have them now.
    fn grant(&mut self, policy: &Policy) {
        let mut again = false;
        // Granting changes neither the order nor what is free for the others: it was planned so.
        for planned in schedule_requests(self.state, policy, true) {
            if planned.start_ms != Some(self.state.now_ms) {
                continue;
            }
            let Some(waiting) = self.state.waiting.iter().find(|w| w.id == planned.id) else {
                continue;
            };
            let limits = policy.limits_for(&waiting.person);
            let mut length = lease_duration(waiting.take.for_ms, &limits);
            if let (None, Some(week)) = (waiting.take.for_ms, limits.week_ms) {
                // Without an end of its own it lasts as long as the hours do.
                let cards = u64::from(waiting.take.wanted.gpu_count()).max(1);
                let left = week.saturating_sub(self.state.week_of(&waiting.person)) / cards;
                if left == 0 {
                    // What was given a moment ago takes all of them: it waits on, and its cards are others'.
                    again = true;
                    continue;
                }
                length = Some(length.map_or(left, |length| length.min(left)));
            }
            let until_ms = length.map(|length| self.state.now_ms.saturating_add(length));
            self.now(LeaseEvent::Granted {
                id: planned.id,
                cards: planned.cards,
                until_ms,
            });
        }
        if again {
            self.grant(policy);
        }
    }

    /// What the passing of time does; see [`advance_time`].
    fn settle(&mut self, policy: &Policy, seen: &SystemObservation) {
        let (passed, reboot) = match &self.state.clock {
            Some(before) => (
                seen.clock.elapsed_since(before).0,
                seen.clock.boot != before.boot,
            ),
            None => (0, false),
        };
        let now_ms = self.state.now_ms.saturating_add(passed);
        self.now(LeaseEvent::Time {
            now_ms,
            clock: seen.clock.clone(),
        });
        if self.state.cards != seen.cards {
            self.now(LeaseEvent::Cards(seen.cards.clone()));
        }
        let gone = |id: u64, process: Option<&ProcessRef>| match process {
            Some(process) if process.boot != seen.clock.boot => Some(LeaseEnd::Reboot),
            Some(_) if seen.gone.contains(&id) => Some(LeaseEnd::ProcessEnded),
            _ => None,
        };
        let ended: Vec<(u64, Millis, LeaseEnd)> =
            self.state
                .leases
                .iter()
                .filter_map(
                    |lease| match lease.until_ms.filter(|&until| until <= now_ms) {
                        Some(until) => Some((lease.id, until, LeaseEnd::Over)),
                        None => gone(lease.id, lease.process.as_ref())
                            .map(|why| (lease.id, now_ms, why)),
                    },
                )
                .collect();
        for (id, at_ms, why) in ended {
            // How long the machine was off is known; when the process ended is not. It is not
            // charged for the time off.
            let at_ms = match (why, reboot) {
                (LeaseEnd::Reboot, true) => now_ms.saturating_sub(passed),
                _ => at_ms,
            };
            self.end(id, at_ms, why, policy);
        }
        let left: Vec<u64> = self
            .state
            .waiting
            .iter()
            .filter(|waiting| gone(waiting.id, waiting.process.as_ref()).is_some())
            .map(|waiting| waiting.id)
            .collect();
        for id in left {
            self.now(LeaseEvent::Left { id, by: None });
        }
        self.grant(policy);
    }
}

/// Lets time pass: leases that are over end, those of dead processes too, cards that are gone are
/// noted, and whoever can have cards now gets them. Where nothing happened but time, there is no
/// event.
#[must_use]
pub fn advance_time(
    state: &mut LeaseState,
    policy: &Policy,
    seen: &SystemObservation,
) -> Vec<LeaseEvent> {
    let mut noted = RecordingState {
        state,
        events: Vec::new(),
    };
    noted.settle(policy, seen);
    without_mere_time(noted.events)
}

fn without_mere_time(events: Vec<LeaseEvent>) -> Vec<LeaseEvent> {
    let mere = |event: &LeaseEvent| matches!(event, LeaseEvent::Time { .. });
    if events.iter().all(mere) {
        Vec::new()
    } else {
        events
    }
}

/// Lets time pass, then does what `person` asks. `state` becomes what it is afterwards.
///
/// A request is refused where it can never be served; where it can, it is given its cards, or put
/// in the queue, or, when nobody wants to wait, refused with the time at which it could start.
#[must_use]
pub fn decide_request(
    state: &mut LeaseState,
    policy: &Policy,
    seen: &SystemObservation,
    person: &LeaseUser,
    process: Option<&ProcessRef>,
    ask: &LeaseRequest,
) -> Decision {
    let mut noted = RecordingState {
        state,
        events: Vec::new(),
    };
    noted.settle(policy, seen);
    let answer = match ask {
        LeaseRequest::Take(take) => noted.take(policy, person, process, take),
        LeaseRequest::Extend { id, by_ms } => noted.extend(policy, person, *id, *by_ms),
        LeaseRequest::Return { id } => noted.give_back(policy, person, *id),
        LeaseRequest::Look => Ok(LeaseResponse::Overview(build_overview(noted.state, policy))),
    };
    Decision {
        events: without_mere_time(noted.events),
        answer: answer.unwrap_or_else(LeaseResponse::Refused),
    }
}

impl RecordingState<'_> {
    fn take(
        &mut self,
        policy: &Policy,
        person: &LeaseUser,
        process: Option<&ProcessRef>,
        take: &AcquireRequest,
    ) -> Result<LeaseResponse, LeaseRefusal> {
        let limits = policy.limits_for(person);
        self.possible(&limits, person, take)?;
        let waiting = QueuedRequest {
            id: self.state.next,
            person: person.clone(),
            take: take.clone(),
            asked_ms: self.state.now_ms,
            process: process.cloned(),
        };
        let id = waiting.id;
        let own = self.state.waiting.iter();
        let own = own.filter(|other| other.person.uid == person.uid).count();
        let (before, events) = (self.state.clone(), self.events.len());
        self.now(LeaseEvent::Queued(waiting));
        self.grant(policy);
        if let Some(lease) = self.state.leases.iter().find(|lease| lease.id == id) {
            return Ok(LeaseResponse::Granted(lease.clone()));
        }
        let shown = shown_queue(self.state, policy);
        let shown = shown.into_iter().find(|shown| shown.id == id);
        let room = own < limits.queue as usize;
        match shown {
            Some(shown) if take.wait && room => Ok(LeaseResponse::Queued(shown)),
            shown => {
                *self.state = before;
                self.events.truncate(events);
                if take.wait {
                    return Err(LeaseRefusal::QueueFull {
                        user: person.name.clone(),
                        waiting: u32::try_from(own).unwrap_or(u32::MAX),
                        limit: limits.queue,
                    });
                }
                let (start_s, why) = shown.map_or((None, None), |it| (it.start_s, it.why));
                Err(LeaseRefusal::Busy { start_s, why })
            }
        }
    }

    /// Whether the request could be served on an empty machine.
    fn possible(
        &self,
        limits: &LeaseLimits,
        person: &LeaseUser,
        take: &AcquireRequest,
    ) -> Result<(), LeaseRefusal> {
        let wanted = take.wanted.gpu_count();
        if wanted == 0 {
            return Err(LeaseRefusal::NoCards);
        }
        match &take.wanted {
            GpuSelection::Any { memory, .. } => {
                let serves = |has| memory.is_none_or(|wish| has >= Some(wish));
                let there = self.state.cards.iter().filter(|card| serves(card.memory));
                let there = u32::try_from(there.count()).unwrap_or(u32::MAX);
                if there < wanted {
                    let memory = *memory;
                    return Err(LeaseRefusal::TooFew {
                        wanted,
                        there,
                        memory,
                    });
                }
            }
            GpuSelection::These(keys) => {
                let known = |key: &String| self.state.cards.iter().any(|card| card.key == *key);
                let twice = |at: usize| keys[..at].contains(&keys[at]);
                let wrong = (0..keys.len()).find(|&at| !known(&keys[at]) || twice(at));
                if let Some(at) = wrong {
                    return Err(LeaseRefusal::NoSuchCard(keys[at].clone()));
                }
            }
        }
        if let Some(limit) = limits.cards.filter(|&limit| wanted > limit) {
            let user = person.name.clone();
            return Err(LeaseRefusal::TooMany {
                wanted,
                user,
                limit,
            });
        }
        if let (Some(wish), Some(limit)) = (take.for_ms, limits.longest_ms)
            && wish > limit
        {
            return Err(LeaseRefusal::TooLong {
                wanted_s: wish / 1000,
                limit_s: limit / 1000,
            });
        }
        let needs = lease_duration(take.for_ms, limits).unwrap_or(0);
        self.week(limits, person, needs.saturating_mul(u64::from(wanted)))
    }

    fn week(
        &self,
        limits: &LeaseLimits,
        person: &LeaseUser,
        needs: u64,
    ) -> Result<(), LeaseRefusal> {
        let Some(limit) = limits.week_ms else {
            return Ok(());
        };
        let left = limit.saturating_sub(self.state.week_of(person));
        if needs > left || left == 0 {
            return Err(LeaseRefusal::WeekOver {
                user: person.name.clone(),
                needs_s: needs / 1000,
                left_s: left / 1000,
                limit_s: limit / 1000,
            });
        }
        Ok(())
    }

    /// The lease, if it is the person's or the person is the machine's owner.
    fn own(&self, person: &LeaseUser, id: u64) -> Result<&Lease, LeaseRefusal> {
        let lease = self.state.leases.iter().find(|lease| lease.id == id);
        let lease = lease.ok_or(LeaseRefusal::NoLease { id })?;
        if person.uid != 0 && person.uid != lease.person.uid {
            let user = lease.person.name.clone();
            return Err(LeaseRefusal::NotYours { id, user });
        }
        Ok(lease)
    }

    fn extend(
        &mut self,
        policy: &Policy,
        person: &LeaseUser,
        id: u64,
        by_ms: Millis,
    ) -> Result<LeaseResponse, LeaseRefusal> {
        let lease = self.own(person, id)?;
        let until = lease.until_ms.ok_or(LeaseRefusal::NoEnd { id })?;
        let (holder, since) = (lease.person.clone(), lease.since_ms);
        let cards = lease.cards.len() as u64;
        let limits = policy.limits_for(&holder);
        let until_ms = until.saturating_add(by_ms);
        if let Some(limit) = limits.longest_ms.filter(|&limit| until_ms - since > limit) {
            return Err(LeaseRefusal::TooLong {
                wanted_s: (until_ms - since) / 1000,
                limit_s: limit / 1000,
            });
        }
        self.week(&limits, &holder, by_ms.saturating_mul(cards))?;
        // Nobody who waits may start later for it.
        let mut longer = self.state.clone();
        longer.apply(&LeaseEvent::Extended { id, until_ms });
        let after = schedule_requests(&longer, policy, false);
        let delayed = schedule_requests(self.state, policy, false)
            .into_iter()
            .find(|before| {
                let after = after.iter().find(|after| after.id == before.id);
                let start = |start: Option<Millis>| start.unwrap_or(Millis::MAX);
                start(after.and_then(|after| after.start_ms)) > start(before.start_ms)
            });
        if let Some(delayed) = delayed {
            let who = self.state.waiting.iter().find(|w| w.id == delayed.id);
            let user = who.map_or_else(String::new, |who| who.person.name.clone());
            return Err(LeaseRefusal::Awaited { user });
        }
        // Nor may it reach into a maintenance window.
        let windows = policy.maintenance.iter();
        let start = |w: &MaintenanceWindow| self.state.lease_time_of(w.from_s.saturating_mul(1000));
        let reached = windows.filter(|w| until <= start(w) && start(w) < until_ms);
        if let Some(window) = reached.min_by_key(|window| window.from_s) {
            let left_s = start(window).saturating_sub(until) / 1000;
            let why = window.why.clone();
            return Err(LeaseRefusal::Maintenance { left_s, why });
        }
        self.now(LeaseEvent::Extended { id, until_ms });
        self.own(person, id).cloned().map(LeaseResponse::Extended)
    }

    fn give_back(
        &mut self,
        policy: &Policy,
        person: &LeaseUser,
        id: u64,
    ) -> Result<LeaseResponse, LeaseRefusal> {
        if let Some(waiting) = self.state.waiting.iter().find(|w| w.id == id) {
            if person.uid != 0 && person.uid != waiting.person.uid {
                let user = waiting.person.name.clone();
                return Err(LeaseRefusal::NotYours { id, user });
            }
            let by = Some(person.name.clone());
            self.now(LeaseEvent::Left { id, by });
        } else {
            self.own(person, id)?;
            let now = self.state.now_ms;
            self.end(id, now, LeaseEnd::Returned, policy);
        }
        self.grant(policy);
        Ok(LeaseResponse::Returned(id))
    }
}

fn shown_queue(state: &LeaseState, policy: &Policy) -> Vec<QueueEntry> {
    let planned = schedule_requests(state, policy, false);
    let shown = |(place, waiting): (usize, &QueuedRequest)| {
        let planned = planned.iter().find(|planned| planned.id == waiting.id);
        let start_ms = planned.and_then(|planned| planned.start_ms);
        let length = lease_duration(waiting.take.for_ms, &policy.limits_for(&waiting.person));
        QueueEntry {
            id: waiting.id,
            uid: waiting.person.uid,
            user: waiting.person.name.clone(),
            cards: waiting.take.wanted.gpu_count(),
            for_s: length.map(|ms| ms / 1000),
            place: u32::try_from(place + 1).unwrap_or(u32::MAX),
            start_s: start_ms.map(|ms| state.wall_ms(ms) / 1000),
            asked_s: state.wall_ms(waiting.asked_ms) / 1000,
            why: planned.and_then(|planned| planned.why.clone()),
        }
    };
    requests_in_order(state, policy)
        .into_iter()
        .enumerate()
        .map(shown)
        .collect()
}

/// Who has what and who waits, for everybody to see.
#[must_use]
pub fn build_overview(state: &LeaseState, policy: &Policy) -> Overview {
    let lost = |key: &String| state.cards.iter().all(|card| card.key != *key);
    let shown = |lease: &Lease| LeaseSummary {
        id: lease.id,
        uid: lease.person.uid,
        user: lease.person.name.clone(),
        cards: lease.cards.clone(),
        lost: lease
            .cards
            .iter()
            .filter(|key| lost(key))
            .cloned()
            .collect(),
        since_s: state.wall_ms(lease.since_ms) / 1000,
        until_s: lease.until_ms.map(|until| state.wall_ms(until) / 1000),
        pid: lease.process.as_ref().map(|process| process.pid),
        idle_s: lease
            .idle_since_ms
            .map(|since| state.now_ms.saturating_sub(since) / 1000),
        warned: lease.warned_ms.is_some(),
    };
    let day_ago = state.now_ms.saturating_sub(24 * 3_600_000);
    let mut remarks = Vec::new();
    if state.lost_clock_ms.is_some_and(|at| at >= day_ago) {
        remarks.push(
            "the clock went back while the machine was off: that time is not counted".to_owned(),
        );
    }
    for (lease, at, why) in &state.last {
        let (id, user) = (lease.id, &lease.person.name);
        let why = match why {
            _ if *at < day_ago => continue,
            LeaseEnd::Reboot => "ended with the machine's restart: its process is gone",
            LeaseEnd::Idle => "was taken back: nobody used its cards",
            LeaseEnd::Returned | LeaseEnd::Over | LeaseEnd::ProcessEnded => continue,
        };
        remarks.push(format!("lease {id} of {user} {why}"));
    }
    let now_s = state.wall_ms(state.now_ms) / 1000;
    for window in policy.maintenance.iter().filter(|w| w.until_s > now_s) {
        let from = window.from_s.saturating_sub(now_s);
        let when = match from {
            0 => "now".to_owned(),
            1..3600 => format!("in {} min", from / 60),
            3600..172_800 => format!("in {} h", from / 3600),
            _ => format!("in {} days", from / 86_400),
        };
        let why = window.why.as_deref().unwrap_or("no reason given");
        remarks.push(format!("maintenance {when}: {why}"));
    }
    Overview {
        format: FORMAT,
        now_s,
        cards: state.cards.clone(),
        leases: state.leases.iter().map(shown).collect(),
        queue: shown_queue(state, policy),
        remarks,
        given_up: state.given_up.clone(),
    }
}
