//! Time on the virtual machine: what is done when, for events that are asked and streams that wait.
//!
//! Nothing here takes real time. The host has a clock that each call moves on by a little, and every
//! stream has the time at which what was queued on it is done. So memory that another stream uses is
//! free again when the model says that the stream has come that far, neither at once nor never.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

use crate::abi::Handle;

/// What one launch costs the host, in ns: Python, dispatch and driver together.
const LAUNCH_NS: u64 = 5_000;
/// What asking or waiting costs the host, in ns.
const ASK_NS: u64 = 500;
/// The shortest that anything takes on a card, in ns.
pub const MIN_DURATION_NS: u64 = 2_000;

thread_local! {
    /// What this thread has spent on asking since it last queued anything, in ns.
    static QUERY_TIME_NS: Cell<u64> = const { Cell::new(0) };
}

thread_local! {
    /// This thread has queued something: it is one of the program's, and not one that watches.
    static HAS_QUEUED_WORK: Cell<bool> = const { Cell::new(false) };
}

/// How often a thread that watches is told that an event is not done which the program did not wait for.
/// NCCL's groups ask ten times a second.
const MAX_PENDING_ANSWERS: u32 = 20;

fn asked_again() -> u64 {
    QUERY_TIME_NS.set(QUERY_TIME_NS.get() + ASK_NS);
    QUERY_TIME_NS.get()
}

/// What is known of time; all of it in ns since the process began.
#[derive(Debug, Default)]
pub struct Clock {
    now: u64,
    done: HashMap<Handle, u64>,
    events: HashMap<Handle, u64>,
    /// Where events are done when that is said: by stream, those that are not, oldest first.
    held: Option<HashMap<Handle, VecDeque<Handle>>>,
    /// The latest that the program has waited for.
    waited: u64,
    /// How often threads that watch asked for an event.
    watched: HashMap<Handle, u32>,
}

/// When an event is done that is held.
const NEVER: u64 = u64::MAX;

impl Clock {
    /// Queues work of `duration` on a stream.
    pub fn queue_work(&mut self, stream: Handle, duration: u64) {
        QUERY_TIME_NS.set(0);
        HAS_QUEUED_WORK.set(true);
        self.now += LAUNCH_NS;
        let done = self.done.entry(stream).or_default();
        *done = (*done).max(self.now) + duration.max(MIN_DURATION_NS);
    }

    fn stream(&self, stream: Handle) -> u64 {
        self.done.get(&stream).copied().unwrap_or(0)
    }

    /// The event is done when what is on the stream now is.
    pub fn record_event(&mut self, event: Handle, stream: Handle) {
        HAS_QUEUED_WORK.set(true);
        self.now += ASK_NS;
        self.forget_event(event);
        let time = match &mut self.held {
            Some(held) => {
                held.entry(stream).or_default().push_back(event);
                NEVER
            }
            None => self.stream(stream).max(self.now),
        };
        self.events.insert(event, time);
    }

    /// From now on events are done when [`Clock::complete_events`] says so, or at the time of the model.
    pub fn set_manual_completion(&mut self, held: bool) {
        self.complete_all();
        self.held = held.then(HashMap::new);
    }

    /// The oldest events of a stream that are held are done.
    pub fn complete_events(&mut self, stream: Handle, count: usize) {
        let Some(of_stream) = self.held.as_mut().and_then(|held| held.get_mut(&stream)) else {
            return;
        };
        for event in of_stream.drain(..count.min(of_stream.len())) {
            self.events.insert(event, self.now);
        }
    }

    fn complete_all(&mut self) {
        let streams: Vec<Handle> = self
            .held
            .iter()
            .flatten()
            .map(|(stream, _)| *stream)
            .collect();
        for stream in streams {
            self.complete_events(stream, usize::MAX);
        }
    }

    /// The stream goes on when the event is done.
    pub fn stream_wait_event(&mut self, stream: Handle, event: Handle) {
        let time = Some(self.event_completion_time(event))
            .filter(|time| *time != NEVER)
            .unwrap_or(0);
        let done = self.done.entry(stream).or_default();
        *done = (*done).max(time);
    }

    /// When an event is done; one that was never recorded is.
    pub fn event_completion_time(&self, event: Handle) -> u64 {
        self.events.get(&event).copied().unwrap_or(0)
    }

    /// Asks, as the thread that calls. Time goes on for one that asks again and again; not for the
    /// others.
    ///
    /// A thread that watches in the background, as those of NCCL's groups do, asks in real time. What it
    /// finds done it gives free, so that runs would not repeat: to it is done what the program has waited
    /// for, or what it asks for again and again.
    pub fn is_done(&mut self, event: Handle) -> bool {
        let time = self.event_completion_time(event);
        if time == NEVER {
            return false;
        }
        if HAS_QUEUED_WORK.get() || time <= self.waited {
            return time <= self.now + asked_again();
        }
        let asked = self.watched.entry(event).or_default();
        *asked += 1;
        *asked > MAX_PENDING_ANSWERS
    }

    pub fn is_idle(&self, stream: Handle) -> bool {
        self.stream(stream) <= self.now + asked_again()
    }

    /// The host waits for an event.
    pub fn await_event(&mut self, event: Handle) {
        if self.event_completion_time(event) == NEVER {
            // All that is before it on its stream is done too.
            let held = self.held.iter().flatten();
            let before = held.filter_map(|(stream, events)| {
                let at = events.iter().position(|held| *held == event)?;
                Some((*stream, at + 1))
            });
            for (stream, count) in before.collect::<Vec<_>>() {
                self.complete_events(stream, count);
            }
        }
        self.wait_until(self.event_completion_time(event));
    }

    /// The host waits for a stream.
    pub fn await_stream(&mut self, stream: Handle) {
        self.complete_events(stream, usize::MAX);
        self.wait_until(self.stream(stream));
    }

    /// The host waits for all.
    pub fn await_all(&mut self) {
        self.complete_all();
        let last = self.done.values().copied().max().unwrap_or(0);
        self.wait_until(last);
    }

    fn wait_until(&mut self, time: u64) {
        self.waited = self.waited.max(time);
        self.now = self.now.max(time) + ASK_NS;
    }

    pub fn forget_event(&mut self, event: Handle) {
        for events in self.held.iter_mut().flat_map(HashMap::values_mut) {
            events.retain(|held| *held != event);
        }
        self.events.remove(&event);
        self.watched.remove(&event);
    }

    pub fn forget_stream(&mut self, stream: Handle) {
        self.done.remove(&stream);
    }

    pub fn now(&self) -> u64 {
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_done_when_its_stream_has_come_that_far() {
        let mut clock = Clock::default();
        clock.queue_work(1, 50_000);
        clock.record_event(7, 1);
        clock.queue_work(1, 1_000_000);
        assert!(!clock.is_done(7));
        clock.await_event(7);
        assert!(clock.is_done(7));
        assert!(!clock.is_idle(1));
        // Another stream that waits is not done before, whatever it does.
        clock.record_event(8, 1);
        clock.stream_wait_event(2, 8);
        clock.queue_work(2, 1);
        assert!(clock.stream(2) > clock.event_completion_time(8));
        clock.await_all();
        assert!(clock.is_idle(1) && clock.is_idle(2) && clock.is_done(99));
    }

    #[test]
    fn a_thread_that_watches_finds_done_what_the_program_waited_for() {
        let mut clock = Clock::default();
        clock.queue_work(1, 10);
        clock.record_event(7, 1);
        clock.queue_work(2, 10);
        clock.record_event(8, 2);
        // The program is far behind both.
        for _ in 0..100 {
            clock.queue_work(3, 10);
        }
        let watch = |event, clock: &mut Clock| {
            let asked = std::thread::scope(|scope| {
                scope.spawn(|| clock.is_done(event)).join().unwrap_or(false)
            });
            (asked, clock.now())
        };
        let now = clock.now();
        assert_eq!(watch(7, &mut clock), (false, now));
        clock.await_event(7);
        assert!(watch(7, &mut clock).0 && !watch(8, &mut clock).0);
        assert!(clock.is_done(8));
        let asked = (0..=MAX_PENDING_ANSWERS).any(|_| watch(8, &mut clock).0);
        assert!(asked, "never done, a group would wait at its end");
    }

    #[test]
    fn events_that_are_held_are_done_when_that_is_said() {
        let mut clock = Clock::default();
        clock.set_manual_completion(true);
        for event in 1..=4 {
            clock.record_event(event, 9);
        }
        assert!(!clock.is_done(1));
        clock.complete_events(9, 1);
        assert!(clock.is_done(1) && !clock.is_done(2));
        clock.await_event(3);
        assert!(clock.is_done(2) && clock.is_done(3) && !clock.is_done(4));
        clock.await_all();
        assert!(clock.is_done(4));
    }
}
