//! What `bench/lease/trace` runs: a made-up week of a lab's machine, through the queue and through
//! first-come-first-served.
//!
//! The jobs have the shape of public GPU cluster traces (Philly, Helios): log-normal durations of
//! which most are short and a few are days, four of five on one card, arrivals by the hour of the
//! day, a few users with most of the jobs. What people say of a job's length is up to three times
//! too long. None of the traces' own records are used.

use std::collections::BTreeMap;
use std::error::Error;

use sconce_lease::{
    AcquireRequest, ClockReading, GpuSelection, LeaseEvent, LeaseGpu, LeaseRequest, LeaseResponse,
    LeaseState, LeaseUser, Policy, SystemObservation, decide_request,
};

const MINUTE: u64 = 60_000;
const CARDS: u32 = 8;
const DAYS: u64 = 28;
const USERS: u64 = 20;

/// xorshift64*.
struct Dice(u64);

impl Dice {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Box and Muller's.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().max(1e-300).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

struct Job {
    at: u64,
    user: u32,
    cards: u32,
    minutes: u64,
    said: u64,
}

fn jobs(dice: &mut Dice, an_hour: f64) -> Vec<Job> {
    let mut jobs = Vec::new();
    for minute in 0..DAYS * 1440 {
        let hour = minute / 60 % 24;
        let busy = if (9..21).contains(&hour) { 1.6 } else { 0.4 };
        if dice.unit() >= an_hour * busy / 60.0 {
            continue;
        }
        // Median of half an hour, mean of about three.
        let minutes = (30.0 * (1.9 * dice.normal()).exp()).clamp(1.0, 2880.0) as u64;
        let cards = match dice.unit() {
            x if x < 0.80 => 1,
            x if x < 0.90 => 2,
            x if x < 0.97 => 4,
            _ => 8,
        };
        let user = (USERS as f64 * dice.unit().powi(3)) as u32;
        let said = (minutes as f64 * (1.0 + 2.0 * dice.unit())) as u64;
        jobs.push(Job {
            at: minute,
            user,
            cards,
            minutes,
            said: said.clamp(minutes, 2880),
        });
    }
    jobs
}

/// Cards, length and wait of a job; minutes.
type Wait = (u32, u64, u64);

/// Waits by job, and the share of card minutes in use until the last arrival.
struct Outcome {
    waits: Vec<Wait>,
    used: f64,
}

fn share(jobs: &[Job], starts: &BTreeMap<usize, u64>) -> Outcome {
    let end = DAYS * 1440;
    let used: u64 = starts
        .iter()
        .map(|(at, &start)| {
            let until = (start + jobs[*at].minutes).min(end);
            until.saturating_sub(start) * u64::from(jobs[*at].cards)
        })
        .sum();
    Outcome {
        waits: starts
            .iter()
            .map(|(at, start)| {
                let job = &jobs[*at];
                (job.cards, job.minutes, start - job.at)
            })
            .collect(),
        used: used as f64 / (end * u64::from(CARDS)) as f64,
    }
}

/// Strictly in order: who is first and does not fit keeps everybody waiting.
fn first_come(jobs: &[Job]) -> Outcome {
    let mut free_at = vec![0_u64; CARDS as usize];
    let mut last = 0;
    let mut starts = BTreeMap::new();
    for (at, job) in jobs.iter().enumerate() {
        free_at.sort_unstable();
        let start = last.max(job.at).max(free_at[job.cards as usize - 1]);
        for free in &mut free_at[..job.cards as usize] {
            *free = start + job.minutes;
        }
        last = start;
        starts.insert(at, start);
    }
    share(jobs, &starts)
}

fn queue(jobs: &[Job]) -> Outcome {
    let policy = Policy::default();
    let card = |index: u32| LeaseGpu {
        key: index.to_string(),
        index,
        name: None,
        memory: None,
    };
    let cards: Vec<LeaseGpu> = (0..CARDS).map(card).collect();
    let mut state = LeaseState::default();
    let mut ids: BTreeMap<u64, usize> = BTreeMap::new();
    let mut starts = BTreeMap::new();
    let mut ends: BTreeMap<(u64, u64), ()> = BTreeMap::new();
    let mut next = 0;
    while next < jobs.len() || !ends.is_empty() {
        let arrival = jobs.get(next).map(|job| job.at);
        let end = ends.keys().next().copied();
        let is_end = end.is_some_and(|(at, _)| arrival.is_none_or(|arrival| at <= arrival));
        let (minute, uid, ask) = if let Some((at, id)) = end.filter(|_| is_end) {
            ends.remove(&(at, id));
            (at, 0, LeaseRequest::Return { id })
        } else {
            let job = &jobs[next];
            let take = AcquireRequest {
                wanted: GpuSelection::Any {
                    cards: job.cards,
                    memory: None,
                },
                for_ms: Some(job.said * MINUTE),
                while_alive: false,
                wait: true,
            };
            ids.insert(state.next, next);
            next += 1;
            (job.at, 1 + job.user, LeaseRequest::Take(take))
        };
        let seen = SystemObservation {
            clock: ClockReading {
                wall_ms: minute * MINUTE,
                boot: String::new(),
                boot_ms: minute * MINUTE,
            },
            cards: cards.clone(),
            gone: Vec::new(),
        };
        let person = LeaseUser {
            uid,
            name: String::new(),
            groups: Vec::new(),
        };
        let decision = decide_request(&mut state, &policy, &seen, &person, None, &ask);
        assert!(!matches!(decision.answer, LeaseResponse::Refused(_)) || is_end);
        for event in &decision.events {
            if let LeaseEvent::Granted { id, .. } = event {
                starts.insert(ids[id], minute);
                ends.insert((minute + jobs[ids[id]].minutes, *id), ());
            }
        }
    }
    share(jobs, &starts)
}

fn line(name: &str, result: &Outcome) -> String {
    let of = |keep: &dyn Fn(&Wait) -> bool| {
        let mut waits: Vec<u64> = result
            .waits
            .iter()
            .filter(|w| keep(w))
            .map(|w| w.2)
            .collect();
        waits.sort_unstable();
        let mean = waits.iter().sum::<u64>() as f64 / waits.len().max(1) as f64;
        let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize];
        format!("{:>7.0} {:>7} {:>7}", mean, at(0.5), at(0.95))
    };
    format!(
        "{name:<24} {:.1} %   {}   {}   {}",
        100.0 * result.used,
        of(&|_| true),
        of(&|wait| wait.1 <= 60),
        of(&|wait| wait.0 >= 4)
    )
}

#[expect(clippy::print_stdout, reason = "it is a benchmark")]
fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "waits in minutes: mean, median, 95 % of all; of jobs up to an hour; of 4 and 8 cards"
    );
    for an_hour in [1.5, 2.0] {
        let jobs = jobs(&mut Dice(20_261_122), an_hour);
        println!(
            "{} jobs in {DAYS} days, {USERS} users, {CARDS} cards",
            jobs.len()
        );
        println!("{}", line("first come, first served", &first_come(&jobs)));
        println!("{}", line("this queue", &queue(&jobs)));
    }
    Ok(())
}
