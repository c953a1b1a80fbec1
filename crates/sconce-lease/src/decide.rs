//! What is done with a request. Pure: what is known goes in, events and an answer come out.

use super::plan::{length, order, plan};
use super::types::{
    Answer, Ask, Decision, End, Event, Lease, Millis, Overview, Person, Process, Seen, Shown, Take,
    Waiting, WaitingShown, Wanted,
};
use super::{Limits, Policy, Refusal, State, Window};

/// Version of [`Overview`].
const FORMAT: u32 = 1;

/// A state that notes what happens to it.
struct Noted<'a> {
    state: &'a mut State,
    events: Vec<Event>,
}

impl Noted<'_> {
    fn now(&mut self, event: Event) {
        self.state.apply(&event);
        self.events.push(event);
    }

    fn end(&mut self, id: u64, at_ms: Millis, why: End, policy: &Policy) {
        self.now(Event::Ended {
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
        for planned in plan(self.state, policy, true) {
            if planned.start_ms != Some(self.state.now_ms) {
                continue;
            }
            let Some(waiting) = self.state.waiting.iter().find(|w| w.id == planned.id) else {
                continue;
            };
            let limits = policy.limits(&waiting.person);
            let mut length = length(waiting.take.for_ms, &limits);
            if let (None, Some(week)) = (waiting.take.for_ms, limits.week_ms) {
                // Without an end of its own it lasts as long as the hours do.
                let cards = u64::from(waiting.take.wanted.count()).max(1);
                let left = week.saturating_sub(self.state.week_of(&waiting.person)) / cards;
                if left == 0 {
                    // What was given a moment ago takes all of them: it waits on, and its cards are others'.
                    again = true;
                    continue;
                }
                length = Some(length.map_or(left, |length| length.min(left)));
            }
            let until_ms = length.map(|length| self.state.now_ms.saturating_add(length));
            self.now(Event::Granted {
                id: planned.id,
                cards: planned.cards,
                until_ms,
            });
        }
        if again {
            self.grant(policy);
        }
    }

    /// What the passing of time does; see [`settle`].
    fn settle(&mut self, policy: &Policy, seen: &Seen) {
        let (passed, reboot) = match &self.state.clock {
            Some(before) => (seen.clock.since(before).0, seen.clock.boot != before.boot),
            None => (0, false),
        };
        let now_ms = self.state.now_ms.saturating_add(passed);
        self.now(Event::Time {
            now_ms,
            clock: seen.clock.clone(),
        });
        if self.state.cards != seen.cards {
            self.now(Event::Cards(seen.cards.clone()));
        }
        let gone = |id: u64, process: Option<&Process>| match process {
            Some(process) if process.boot != seen.clock.boot => Some(End::Reboot),
            Some(_) if seen.gone.contains(&id) => Some(End::ProcessEnded),
            _ => None,
        };
        let ended: Vec<(u64, Millis, End)> =
            self.state
                .leases
                .iter()
                .filter_map(
                    |lease| match lease.until_ms.filter(|&until| until <= now_ms) {
                        Some(until) => Some((lease.id, until, End::Over)),
                        None => gone(lease.id, lease.process.as_ref())
                            .map(|why| (lease.id, now_ms, why)),
                    },
                )
                .collect();
        for (id, at_ms, why) in ended {
            // How long the machine was off is known; when the process ended is not. It is not
            // charged for the time off.
            let at_ms = match (why, reboot) {
                (End::Reboot, true) => now_ms.saturating_sub(passed),
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
            self.now(Event::Left { id, by: None });
        }
        self.grant(policy);
    }
}

/// Lets time pass: leases that are over end, those of dead processes too, cards that are gone are
/// noted, and whoever can have cards now gets them. Where nothing happened but time, there is no
/// event.
#[must_use]
pub fn settle(state: &mut State, policy: &Policy, seen: &Seen) -> Vec<Event> {
    let mut noted = Noted {
        state,
        events: Vec::new(),
    };
    noted.settle(policy, seen);
    without_mere_time(noted.events)
}

fn without_mere_time(events: Vec<Event>) -> Vec<Event> {
    let mere = |event: &Event| matches!(event, Event::Time { .. });
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
pub fn decide(
    state: &mut State,
    policy: &Policy,
    seen: &Seen,
    person: &Person,
    process: Option<&Process>,
    ask: &Ask,
) -> Decision {
    let mut noted = Noted {
        state,
        events: Vec::new(),
    };
    noted.settle(policy, seen);
    let answer = match ask {
        Ask::Take(take) => noted.take(policy, person, process, take),
        Ask::Extend { id, by_ms } => noted.extend(policy, person, *id, *by_ms),
        Ask::Return { id } => noted.give_back(policy, person, *id),
        Ask::Look => Ok(Answer::Overview(overview(noted.state, policy))),
    };
    Decision {
        events: without_mere_time(noted.events),
        answer: answer.unwrap_or_else(Answer::Refused),
    }
}

impl Noted<'_> {
    fn take(
        &mut self,
        policy: &Policy,
        person: &Person,
        process: Option<&Process>,
        take: &Take,
    ) -> Result<Answer, Refusal> {
        let limits = policy.limits(person);
        self.possible(&limits, person, take)?;
        let waiting = Waiting {
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
        self.now(Event::Queued(waiting));
        self.grant(policy);
        if let Some(lease) = self.state.leases.iter().find(|lease| lease.id == id) {
            return Ok(Answer::Granted(lease.clone()));
        }
        let shown = shown_queue(self.state, policy);
        let shown = shown.into_iter().find(|shown| shown.id == id);
        let room = own < limits.queue as usize;
        match shown {
            Some(shown) if take.wait && room => Ok(Answer::Queued(shown)),
            shown => {
                *self.state = before;
                self.events.truncate(events);
                if take.wait {
                    return Err(Refusal::QueueFull {
                        user: person.name.clone(),
                        waiting: u32::try_from(own).unwrap_or(u32::MAX),
                        limit: limits.queue,
                    });
                }
                let (start_s, why) = shown.map_or((None, None), |it| (it.start_s, it.why));
                Err(Refusal::Busy { start_s, why })
            }
        }
    }

    /// Whether the request could be served on an empty machine.
    fn possible(&self, limits: &Limits, person: &Person, take: &Take) -> Result<(), Refusal> {
        let wanted = take.wanted.count();
        if wanted == 0 {
            return Err(Refusal::NoCards);
        }
        match &take.wanted {
            Wanted::Any { memory, .. } => {
                let serves = |has| memory.is_none_or(|wish| has >= Some(wish));
                let there = self.state.cards.iter().filter(|card| serves(card.memory));
                let there = u32::try_from(there.count()).unwrap_or(u32::MAX);
                if there < wanted {
                    let memory = *memory;
                    return Err(Refusal::TooFew {
                        wanted,
                        there,
                        memory,
                    });
                }
            }
            Wanted::These(keys) => {
                let known = |key: &String| self.state.cards.iter().any(|card| card.key == *key);
                let twice = |at: usize| keys[..at].contains(&keys[at]);
                let wrong = (0..keys.len()).find(|&at| !known(&keys[at]) || twice(at));
                if let Some(at) = wrong {
                    return Err(Refusal::NoSuchCard(keys[at].clone()));
                }
            }
        }
        if let Some(limit) = limits.cards.filter(|&limit| wanted > limit) {
            let user = person.name.clone();
            return Err(Refusal::TooMany {
                wanted,
                user,
                limit,
            });
        }
        if let (Some(wish), Some(limit)) = (take.for_ms, limits.longest_ms)
            && wish > limit
        {
            return Err(Refusal::TooLong {
                wanted_s: wish / 1000,
                limit_s: limit / 1000,
            });
        }
        let needs = length(take.for_ms, limits).unwrap_or(0);
        self.week(limits, person, needs.saturating_mul(u64::from(wanted)))
    }

    fn week(&self, limits: &Limits, person: &Person, needs: u64) -> Result<(), Refusal> {
        let Some(limit) = limits.week_ms else {
            return Ok(());
        };
        let left = limit.saturating_sub(self.state.week_of(person));
        if needs > left || left == 0 {
            return Err(Refusal::WeekOver {
                user: person.name.clone(),
                needs_s: needs / 1000,
                left_s: left / 1000,
                limit_s: limit / 1000,
            });
        }
        Ok(())
    }

    /// The lease, if it is the person's or the person is the machine's owner.
    fn own(&self, person: &Person, id: u64) -> Result<&Lease, Refusal> {
        let lease = self.state.leases.iter().find(|lease| lease.id == id);
        let lease = lease.ok_or(Refusal::NoLease { id })?;
        if person.uid != 0 && person.uid != lease.person.uid {
            let user = lease.person.name.clone();
            return Err(Refusal::NotYours { id, user });
        }
        Ok(lease)
    }

    fn extend(
        &mut self,
        policy: &Policy,
        person: &Person,
        id: u64,
        by_ms: Millis,
    ) -> Result<Answer, Refusal> {
        let lease = self.own(person, id)?;
        let until = lease.until_ms.ok_or(Refusal::NoEnd { id })?;
        let (holder, since) = (lease.person.clone(), lease.since_ms);
        let cards = lease.cards.len() as u64;
        let limits = policy.limits(&holder);
        let until_ms = until.saturating_add(by_ms);
        if let Some(limit) = limits.longest_ms.filter(|&limit| until_ms - since > limit) {
            return Err(Refusal::TooLong {
                wanted_s: (until_ms - since) / 1000,
                limit_s: limit / 1000,
            });
        }
        self.week(&limits, &holder, by_ms.saturating_mul(cards))?;
        // Nobody who waits may start later for it.
        let mut longer = self.state.clone();
        longer.apply(&Event::Extended { id, until_ms });
        let after = plan(&longer, policy, false);
        let delayed = plan(self.state, policy, false).into_iter().find(|before| {
            let after = after.iter().find(|after| after.id == before.id);
            let start = |start: Option<Millis>| start.unwrap_or(Millis::MAX);
            start(after.and_then(|after| after.start_ms)) > start(before.start_ms)
        });
        if let Some(delayed) = delayed {
            let who = self.state.waiting.iter().find(|w| w.id == delayed.id);
            let user = who.map_or_else(String::new, |who| who.person.name.clone());
            return Err(Refusal::Awaited { user });
        }
        // Nor may it reach into a maintenance window.
        let windows = policy.maintenance.iter();
        let start = |w: &Window| self.state.moment(w.from_s.saturating_mul(1000));
        let reached = windows.filter(|w| until <= start(w) && start(w) < until_ms);
        if let Some(window) = reached.min_by_key(|window| window.from_s) {
            let left_s = start(window).saturating_sub(until) / 1000;
            let why = window.why.clone();
            return Err(Refusal::Maintenance { left_s, why });
        }
        self.now(Event::Extended { id, until_ms });
        self.own(person, id).cloned().map(Answer::Extended)
    }

    fn give_back(&mut self, policy: &Policy, person: &Person, id: u64) -> Result<Answer, Refusal> {
        if let Some(waiting) = self.state.waiting.iter().find(|w| w.id == id) {
            if person.uid != 0 && person.uid != waiting.person.uid {
                let user = waiting.person.name.clone();
                return Err(Refusal::NotYours { id, user });
            }
            let by = Some(person.name.clone());
            self.now(Event::Left { id, by });
        } else {
            self.own(person, id)?;
            let now = self.state.now_ms;
            self.end(id, now, End::Returned, policy);
        }
        self.grant(policy);
        Ok(Answer::Returned(id))
    }
}

fn shown_queue(state: &State, policy: &Policy) -> Vec<WaitingShown> {
    let planned = plan(state, policy, false);
    let shown = |(place, waiting): (usize, &Waiting)| {
        let planned = planned.iter().find(|planned| planned.id == waiting.id);
        let start_ms = planned.and_then(|planned| planned.start_ms);
        let length = length(waiting.take.for_ms, &policy.limits(&waiting.person));
        WaitingShown {
            id: waiting.id,
            uid: waiting.person.uid,
            user: waiting.person.name.clone(),
            cards: waiting.take.wanted.count(),
            for_s: length.map(|ms| ms / 1000),
            place: u32::try_from(place + 1).unwrap_or(u32::MAX),
            start_s: start_ms.map(|ms| state.wall_ms(ms) / 1000),
            asked_s: state.wall_ms(waiting.asked_ms) / 1000,
            why: planned.and_then(|planned| planned.why.clone()),
        }
    };
    order(state, policy)
        .into_iter()
        .enumerate()
        .map(shown)
        .collect()
}

/// Who has what and who waits, for everybody to see.
#[must_use]
pub fn overview(state: &State, policy: &Policy) -> Overview {
    let lost = |key: &String| state.cards.iter().all(|card| card.key != *key);
    let shown = |lease: &Lease| Shown {
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
            End::Reboot => "ended with the machine's restart: its process is gone",
            End::Idle => "was taken back: nobody used its cards",
            End::Returned | End::Over | End::ProcessEnded => continue,
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
