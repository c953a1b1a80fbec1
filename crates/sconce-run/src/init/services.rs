//! When services are started, checked, started again and stopped: decisions alone, on a clock that
//! the caller reads. What is done about them goes through [`ServiceActions`].

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use sconce_schema::event::{ExitStatus, ServiceState};
use sconce_schema::service::RestartPolicy;

use crate::init_config::{InitService, RestartBackoff};
use crate::protocol::ServiceChange;

/// Exit codes with which a shell, and the child that becomes a service, say that there is no such
/// program. Trying again brings none.
const NO_PROGRAM: [u8; 2] = [126, 127];

/// Time between checks of a service that has not been healthy yet.
const STARTUP_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// What decisions are carried out with.
pub(super) trait ServiceActions {
    /// Starts a service's process; `None` when the kernel refused.
    fn start(&mut self, service: usize) -> Option<StartOutcome>;
    /// Starts a check of its health, which ends with exit code 0 when it is healthy.
    fn check(&mut self, service: usize) -> Option<Pid>;
    /// Signals a process and every other one of its group.
    fn signal(&mut self, leader: Pid, signal: i32);
    /// Kills what is left of the group of a process that has ended.
    fn end_group(&mut self, leader: Pid);
    /// Says that a service has changed.
    fn tell(&mut self, change: ServiceChange);
}

/// What came of a start.
#[derive(Debug, Clone, Copy)]
pub(super) enum StartOutcome {
    /// The process is the service's program.
    Executed(Pid),
    /// The process could not become it, and is about to end.
    Ending(Pid),
}

/// What is wanted of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DesiredState {
    Up,
    Down,
    /// Down, and then up.
    Again,
}

#[derive(Debug)]
struct Entry {
    plan: InitService,
    /// The services that it waits for.
    after: Vec<usize>,
    state: ServiceState,
    wanted: DesiredState,
    process: Option<Pid>,
    /// When it was started last.
    since: Instant,
    starts: u32,
    /// How many times in a row it ended soon after its start.
    quick: u32,
    /// When it is started again.
    again: Option<Instant>,
    /// When it is killed.
    kill: Option<Instant>,
    /// The check under way, and when it has taken too long.
    checking: Option<(Pid, Instant)>,
    next_check: Option<Instant>,
    failed_checks: u32,
    /// Whether it has been healthy since its start.
    was_healthy: bool,
    /// Whether it is stopped because it counts as unhealthy.
    hung: bool,
}

impl Entry {
    fn is_over(&self) -> bool {
        matches!(self.state, ServiceState::Ended | ServiceState::Failed)
    }

    fn change(&self, exit: Option<ExitStatus>, why: Option<String>) -> ServiceChange {
        ServiceChange {
            service: 0,
            state: self.state,
            pid: self.process.map(|pid| pid.as_raw_nonzero().get()),
            starts: self.starts,
            exit,
            why,
            again_ms: None,
        }
    }
}

/// All services of a run.
#[derive(Debug)]
pub(super) struct ServiceSupervisor {
    all: Vec<Entry>,
    restarts: RestartBackoff,
    /// Instead of each one's own grace.
    grace: Option<Duration>,
}

impl ServiceSupervisor {
    /// None of them is started yet. `after` of each names others of them.
    pub(super) fn new(plans: Vec<InitService>, restarts: RestartBackoff, now: Instant) -> Self {
        let names: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
        let index = |name: &String| names.iter().position(|known| known == name);
        let entry = |plan: InitService| Entry {
            after: plan.after.iter().filter_map(index).collect(),
            plan,
            state: ServiceState::Waiting,
            wanted: DesiredState::Up,
            process: None,
            since: now,
            starts: 0,
            quick: 0,
            again: None,
            kill: None,
            checking: None,
            next_check: None,
            failed_checks: 0,
            was_healthy: false,
            hung: false,
        };
        Self {
            all: plans.into_iter().map(entry).collect(),
            restarts,
            grace: None,
        }
    }

    /// Whether none runs and none will.
    pub(super) fn are_over(&self) -> bool {
        self.all.iter().all(Entry::is_over)
    }

    /// Whether one of them ended for good although it should not have.
    pub(super) fn any_failed(&self) -> bool {
        (self.all.iter()).any(|entry| entry.state == ServiceState::Failed)
    }

    /// When [`ServiceSupervisor::advance`] has something to do next, where nothing else happens before.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let times = self.all.iter().flat_map(|entry| {
            let checking = entry.checking.map(|(_, until)| until);
            let next = entry.next_check.filter(|_| entry.checking.is_none());
            [entry.again, entry.kill, checking, next]
        });
        times.flatten().min()
    }

    /// Asks all to end, those that others wait for last.
    pub(super) fn stop_all(&mut self, grace: Option<Duration>) {
        self.grace = grace.or(self.grace);
        for entry in &mut self.all {
            entry.wanted = DesiredState::Down;
        }
    }

    /// Stops one and starts it again, also one that is over.
    pub(super) fn restart_service(&mut self, service: usize, hands: &mut impl ServiceActions) {
        let Some(entry) = self.all.get_mut(service) else {
            return;
        };
        entry.quick = 0;
        if entry.process.is_some() {
            entry.wanted = DesiredState::Again;
        } else if entry.wanted != DesiredState::Down {
            entry.state = ServiceState::Waiting;
            entry.again = None;
            tell(service, entry.change(None, None), hands);
        }
    }

    /// Does whatever it is time for.
    pub(super) fn advance(&mut self, now: Instant, hands: &mut impl ServiceActions) {
        // What one of them becomes may be what another one waits for.
        while (0..self.all.len()).any(|service| self.step(service, now, hands)) {}
    }

    /// Whether something was done.
    fn step(&mut self, service: usize, now: Instant, hands: &mut impl ServiceActions) -> bool {
        let entry = &self.all[service];
        if entry.process.is_none() {
            return !entry.is_over() && self.step_without_process(service, now, hands);
        }
        let followed = self.is_followed(service);
        let grace = self.grace;
        let entry = &mut self.all[service];
        let Some(process) = entry.process else {
            return false;
        };
        let is_to_end = entry.wanted != DesiredState::Up || entry.hung;
        if is_to_end && entry.state != ServiceState::Stopping {
            if entry.wanted == DesiredState::Down && followed {
                return false;
            }
            entry.state = ServiceState::Stopping;
            entry.next_check = None;
            entry.kill = Some(now + grace.unwrap_or(entry.plan.grace));
            hands.signal(process, entry.plan.stop_signal);
            if let Some((check, _)) = entry.checking {
                hands.signal(check, libc::SIGKILL);
            }
            tell(service, entry.change(None, None), hands);
            return true;
        }
        if entry.kill.is_some_and(|at| at <= now) {
            entry.kill = None;
            hands.signal(process, libc::SIGKILL);
            let why = "it did not end within its grace and was killed".to_owned();
            tell(service, entry.change(None, Some(why)), hands);
            return true;
        }
        match (entry.checking, entry.next_check) {
            (Some((check, until)), _) if until <= now => {
                // Its end is seen as a failed check; until then it is left alone.
                entry.checking = Some((check, now + entry.plan.check_timeout()));
                hands.signal(check, libc::SIGKILL);
                true
            }
            (None, Some(at)) if at <= now => {
                let until = now + entry.plan.check_timeout();
                entry.next_check = None;
                match hands.check(service) {
                    Some(check) => entry.checking = Some((check, until)),
                    None => self.checked(service, false, now, hands),
                }
                true
            }
            _ => false,
        }
    }

    fn step_without_process(
        &mut self,
        service: usize,
        now: Instant,
        hands: &mut impl ServiceActions,
    ) -> bool {
        let entry = &self.all[service];
        if entry.wanted == DesiredState::Down {
            self.over(service, ServiceState::Ended, None, None, hands);
            return true;
        }
        if let Some(at) = entry.again {
            if at > now {
                return false;
            }
        } else if let Some(lost) = (entry.after.iter()).find(|&&other| self.will_not_come(other)) {
            let why = format!("it waits for {}", self.all[*lost].plan.name);
            self.over(service, ServiceState::Failed, None, Some(why), hands);
            return true;
        } else if !entry.after.iter().all(|&other| self.is_ready(other)) {
            return false;
        }
        self.start(service, now, hands);
        true
    }

    fn start(&mut self, service: usize, now: Instant, hands: &mut impl ServiceActions) {
        let started = hands.start(service);
        let entry = &mut self.all[service];
        entry.again = None;
        entry.since = now;
        entry.starts += 1;
        entry.failed_checks = 0;
        entry.was_healthy = false;
        entry.hung = false;
        entry.checking = None;
        match started {
            None => {
                entry.process = None;
                let why = "the kernel refused a new process".to_owned();
                return self.ended(service, None, Some(why), now, hands);
            }
            Some(StartOutcome::Ending(pid)) => {
                entry.process = Some(pid);
                entry.state = ServiceState::Starting;
            }
            Some(StartOutcome::Executed(pid)) => {
                entry.process = Some(pid);
                entry.next_check = entry.plan.health.as_ref().map(|_| now);
                entry.state = match entry.plan.health {
                    Some(_) => ServiceState::Starting,
                    None => ServiceState::Running,
                };
            }
        }
        tell(service, entry.change(None, None), hands);
    }

    fn is_ready(&self, service: usize) -> bool {
        let state = self.all[service].state;
        matches!(
            state,
            ServiceState::Running | ServiceState::Healthy | ServiceState::Ended
        )
    }

    fn will_not_come(&self, service: usize) -> bool {
        self.all[service].state == ServiceState::Failed
    }

    /// Whether another one that waited for this one still runs.
    fn is_followed(&self, service: usize) -> bool {
        (self.all.iter()).any(|other| other.process.is_some() && other.after.contains(&service))
    }

    /// A process has ended. False when it was neither a service's nor a check's.
    pub(super) fn handle_exit(
        &mut self,
        pid: Pid,
        exit: ExitStatus,
        now: Instant,
        hands: &mut impl ServiceActions,
    ) -> bool {
        let is_check = |entry: &Entry| entry.checking.is_some_and(|(check, _)| check == pid);
        if let Some(service) = self.all.iter().position(is_check) {
            self.all[service].checking = None;
            self.checked(service, exit == ExitStatus::Code(0), now, hands);
            return true;
        }
        let is_process = |entry: &Entry| entry.process == Some(pid);
        let Some(service) = self.all.iter().position(is_process) else {
            return false;
        };
        self.all[service].process = None;
        // What it started may hold its port.
        hands.end_group(pid);
        self.ended(service, Some(exit), None, now, hands);
        true
    }

    fn checked(
        &mut self,
        service: usize,
        good: bool,
        now: Instant,
        hands: &mut impl ServiceActions,
    ) {
        let entry = &mut self.all[service];
        let Some(health) = &entry.plan.health else {
            return;
        };
        if entry.process.is_none() || entry.state == ServiceState::Stopping {
            return;
        }
        let interval = Duration::from_millis(health.interval_ms);
        let in_start = now < entry.since + Duration::from_millis(health.start_period_ms);
        let state = if good {
            entry.was_healthy = true;
            entry.failed_checks = 0;
            ServiceState::Healthy
        } else if in_start && !entry.was_healthy {
            entry.state
        } else {
            entry.failed_checks = entry.failed_checks.saturating_add(1);
            match entry.failed_checks >= health.retries.max(1) {
                true => ServiceState::Unhealthy,
                false => entry.state,
            }
        };
        entry.next_check = Some(
            now + match entry.was_healthy {
                true => interval,
                false => interval.min(STARTUP_CHECK_INTERVAL),
            },
        );
        if state != entry.state {
            entry.state = state;
            entry.hung = state == ServiceState::Unhealthy && health.restart;
            let why = (state == ServiceState::Unhealthy)
                .then(|| format!("{} checks of its health failed", entry.failed_checks));
            tell(service, entry.change(None, why), hands);
        }
    }

    /// Its process has ended, or could not be started.
    fn ended(
        &mut self,
        service: usize,
        exit: Option<ExitStatus>,
        why: Option<String>,
        now: Instant,
        hands: &mut impl ServiceActions,
    ) {
        let restarts = self.restarts;
        let entry = &mut self.all[service];
        entry.kill = None;
        entry.next_check = None;
        if let Some((check, _)) = entry.checking.take() {
            hands.signal(check, libc::SIGKILL);
        }
        // However it ends when it is asked to: it was not well.
        let good = exit == Some(ExitStatus::Code(0)) && !entry.hung;
        match entry.wanted {
            DesiredState::Down => return self.over(service, ServiceState::Ended, exit, why, hands),
            DesiredState::Again => {
                entry.wanted = DesiredState::Up;
                entry.state = ServiceState::Waiting;
                tell(service, entry.change(exit, why), hands);
                return;
            }
            DesiredState::Up => {}
        }
        let stays_down = match entry.plan.restart {
            RestartPolicy::Always => false,
            RestartPolicy::OnFailure => good,
            RestartPolicy::Never => true,
        };
        let no_program = matches!(exit, Some(ExitStatus::Code(code)) if NO_PROGRAM.contains(&code));
        if stays_down || no_program {
            let state = match good {
                true => ServiceState::Ended,
                false => ServiceState::Failed,
            };
            return self.over(service, state, exit, why, hands);
        }
        // One that never came up only ran on because its checks were not counted yet.
        let came_up = !entry.hung || entry.was_healthy;
        if came_up && now.saturating_duration_since(entry.since) >= restarts.reset_period() {
            entry.quick = 0;
        }
        entry.quick += 1;
        if entry.quick >= restarts.tries {
            let why = match entry.hung && !entry.was_healthy {
                true => format!("it was started {} times and never healthy", entry.quick),
                false => format!("it ended {} times soon after its start", entry.quick),
            };
            return self.over(service, ServiceState::Failed, exit, Some(why), hands);
        }
        let delay = restarts.delay_after(entry.quick);
        entry.again = Some(now + delay);
        entry.state = ServiceState::Restarting;
        let mut change = entry.change(exit, why);
        change.again_ms = u64::try_from(delay.as_millis()).ok();
        tell(service, change, hands);
    }

    fn over(
        &mut self,
        service: usize,
        state: ServiceState,
        exit: Option<ExitStatus>,
        why: Option<String>,
        hands: &mut impl ServiceActions,
    ) {
        let entry = &mut self.all[service];
        entry.state = state;
        entry.again = None;
        tell(service, entry.change(exit, why), hands);
    }
}

fn tell(service: usize, change: ServiceChange, hands: &mut impl ServiceActions) {
    hands.tell(ServiceChange { service, ..change });
}

/// Whether every name in `after` is a service, and none waits for itself by way of others; the
/// first one for which that does not hold.
pub(crate) fn out_of_order(services: &[(&str, &[String])]) -> Option<String> {
    let mut placed: BTreeSet<&str> = BTreeSet::new();
    loop {
        let before = placed.len();
        for (name, after) in services {
            if after.iter().all(|other| placed.contains(other.as_str())) {
                placed.insert(name);
            }
        }
        if placed.len() == before {
            let left = services.iter().find(|(name, _)| !placed.contains(name));
            return left.map(|(name, _)| (*name).to_owned());
        }
    }
}

#[cfg(test)]
#[path = "services_tests.rs"]
mod tests;
