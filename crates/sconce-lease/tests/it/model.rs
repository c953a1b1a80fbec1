//! The leases once more, slowly and obviously: a calendar of minutes for each card, looked through
//! minute by minute. It knows nothing of events, logs or intervals.

use std::collections::BTreeMap;

/// Minutes of a calendar; every program is shorter.
const DAYS_END: u64 = 400;
/// User ids are below this.
const USERS: usize = 8;
/// Half of the use is forgotten in so many minutes.
pub(crate) const HALF_LIFE: f64 = 60.0;

/// What holds for a user of the model.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rule {
    pub(crate) cards: Option<u32>,
    pub(crate) longest: Option<u64>,
    pub(crate) priority: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Held {
    pub(crate) id: u64,
    pub(crate) uid: u32,
    pub(crate) cards: Vec<usize>,
    pub(crate) since: u64,
    pub(crate) until: Option<u64>,
    pub(crate) pid: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wish {
    pub(crate) id: u64,
    pub(crate) uid: u32,
    pub(crate) count: u32,
    pub(crate) large: bool,
    pub(crate) minutes: Option<u64>,
    pub(crate) asked: u64,
    pub(crate) pid: u32,
    pub(crate) while_alive: bool,
}

/// A start, and the cards.
pub(crate) type ConnectionSlot = (u64, Vec<usize>);

#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) now: u64,
    pub(crate) next: u64,
    /// Whether each card is there; the first half is large.
    pub(crate) there: Vec<bool>,
    pub(crate) held: Vec<Held>,
    pub(crate) queue: Vec<Wish>,
    /// User, cards, from, until of what is over.
    pub(crate) past: Vec<(u32, usize, u64, u64)>,
    pub(crate) rules: BTreeMap<u32, Rule>,
    pub(crate) patience: u64,
    pub(crate) closed: Option<(u64, u64)>,
}

impl Model {
    fn rule(&self, uid: u32) -> Rule {
        self.rules.get(&uid).copied().unwrap_or_default()
    }

    /// Every minute that a card was held counts, the older the less.
    pub(crate) fn used(&self, uid: u32) -> f64 {
        let running = self.held.iter();
        let running = running.map(|held| (held.uid, held.cards.len(), held.since, self.now));
        let spans = self.past.iter().copied().chain(running);
        let of_user = spans.filter(|span| span.0 == uid);
        let left = |minutes: u64| (-(minutes as f64) / HALF_LIFE).exp2();
        let tau = HALF_LIFE / std::f64::consts::LN_2;
        of_user
            .map(|(_, cards, from, until)| {
                cards as f64 * tau * (left(self.now - until) - left(self.now - from))
            })
            .sum()
    }

    /// The queue as it is served; `used` breaks ties as the real one counts.
    pub(crate) fn order(&self, used: &dyn Fn(u32) -> u64) -> Vec<Wish> {
        let (mut patient, mut rest) = (Vec::new(), Vec::new());
        for wish in &self.queue {
            if self.now - wish.asked >= self.patience {
                patient.push(wish.clone());
            } else {
                rest.push(wish.clone());
            }
        }
        patient.sort_by_key(|wish| wish.id);
        rest.sort_by_key(|wish| wish.id);
        rest.sort_by_key(|wish| used(wish.uid));
        rest.sort_by_key(|wish| -self.rule(wish.uid).priority);
        patient.extend(rest);
        patient
    }

    pub(crate) fn minutes(&self, wish: &Wish) -> Option<u64> {
        match (wish.minutes, self.rule(wish.uid).longest) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Start and cards of each request, in the order of [`Model::order`].
    pub(crate) fn plan(&self, order: &[Wish]) -> Vec<(u64, Option<ConnectionSlot>)> {
        if order.is_empty() {
            return Vec::new();
        }
        let count = self.there.len();
        let end = DAYS_END;
        // Whether a card is taken in a minute, and how many cards a user has then.
        let mut calendar = vec![false; end as usize * count];
        let mut own = vec![0_u32; end as usize * USERS];
        let book = |calendar: &mut [bool],
                    own: &mut [u32],
                    uid: u32,
                    cards: &[usize],
                    from: u64,
                    until: u64| {
            for minute in from..until.min(end) {
                for &card in cards {
                    calendar[minute as usize * count + card] = true;
                }
                own[minute as usize * USERS + uid as usize] += cards.len() as u32;
            }
        };
        for held in &self.held {
            book(
                &mut calendar,
                &mut own,
                held.uid,
                &held.cards,
                self.now,
                held.until.unwrap_or(end),
            );
        }
        if let Some((from, until)) = self.closed {
            calendar[from as usize * count..until as usize * count].fill(true);
        }
        let mut plan = Vec::new();
        for wish in order {
            let cap = self.rule(wish.uid).cards.unwrap_or(u32::MAX);
            let mut found = None;
            for start in self.now..end {
                let until = self.minutes(wish).map_or(end, |minutes| start + minutes);
                if until > end {
                    break;
                }
                // Small cards first.
                let by_size = (count / 2..count).chain(0..count / 2);
                let free: Vec<usize> = by_size
                    .filter(|&card| self.there[card] && (!wish.large || card < count / 2))
                    .filter(|&card| (start..until).all(|at| !calendar[at as usize * count + card]))
                    .take(wish.count as usize)
                    .collect();
                let mut minutes = start..until;
                let within = |at: u64| {
                    own[at as usize * USERS + wish.uid as usize].saturating_add(wish.count) <= cap
                };
                if free.len() == wish.count as usize && minutes.all(within) {
                    found = Some((start, free, until));
                    break;
                }
            }
            if let Some((start, cards, until)) = &found {
                book(&mut calendar, &mut own, wish.uid, cards, *start, *until);
            }
            plan.push((wish.id, found.map(|(start, cards, _)| (start, cards))));
        }
        plan
    }

    /// Ends what is over, and gives what can be given.
    pub(crate) fn settle(&mut self, dead: &[u32], used: &dyn Fn(u32) -> u64) {
        let now = self.now;
        let over = |held: &Held| held.until.is_some_and(|until| until <= now);
        let died = |held: &Held| held.pid.is_some_and(|pid| dead.contains(&pid));
        let (gone, stay): (Vec<_>, Vec<_>) = self
            .held
            .drain(..)
            .partition(|held| over(held) || died(held));
        self.held = stay;
        for held in gone {
            let until = held.until.filter(|&until| until <= now).unwrap_or(now);
            self.past
                .push((held.uid, held.cards.len(), held.since, until));
        }
        self.queue.retain(|wish| !dead.contains(&wish.pid));
        self.give(used);
    }

    pub(crate) fn give(&mut self, used: &dyn Fn(u32) -> u64) {
        let order = self.order(used);
        for (id, place) in self.plan(&order) {
            let Some((start, cards)) = place.filter(|place| place.0 == self.now) else {
                continue;
            };
            let at = self.queue.iter().position(|wish| wish.id == id).unwrap();
            let wish = self.queue.remove(at);
            self.held.push(Held {
                id,
                uid: wish.uid,
                cards,
                since: start,
                until: self.minutes(&wish).map(|minutes| start + minutes),
                pid: wish.while_alive.then_some(wish.pid),
            });
        }
    }
}
