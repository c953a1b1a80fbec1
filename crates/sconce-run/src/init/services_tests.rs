use super::*;
use sconce_schema::service::{HealthCheck, HealthTest};

/// Processes count up from 100; what was done is written down.
#[derive(Default)]
struct Noted {
    next: i32,
    done: Vec<String>,
    refuses: bool,
    cannot_execute: bool,
}

impl Noted {
    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.done)
    }

    fn pid(&mut self) -> Option<Pid> {
        self.next += 1;
        Pid::from_raw(99 + self.next)
    }
}

impl ServiceActions for Noted {
    fn start(&mut self, service: usize) -> Option<StartOutcome> {
        self.done.push(format!("start {service}"));
        let pid = (!self.refuses).then(|| self.pid())??;
        Some(match self.cannot_execute {
            true => StartOutcome::Ending(pid),
            false => StartOutcome::Executed(pid),
        })
    }

    fn check(&mut self, service: usize) -> Option<Pid> {
        self.done.push(format!("check {service}"));
        self.pid()
    }

    fn signal(&mut self, leader: Pid, signal: i32) {
        self.done.push(format!("signal {leader} {signal}"));
    }

    fn end_group(&mut self, _leader: Pid) {}

    fn tell(&mut self, change: ServiceChange) {
        let why = change.why.map(|why| format!(": {why}")).unwrap_or_default();
        self.done
            .push(format!("{} {:?}{why}", change.service, change.state));
    }
}

const RESTARTS: RestartBackoff = RestartBackoff {
    first_ms: 1_000,
    most_ms: 4_000,
    reset_ms: 60_000,
    tries: 5,
};

fn planned(name: &str, after: &[&str]) -> InitService {
    InitService {
        name: name.to_owned(),
        after: after.iter().map(|&name| name.to_owned()).collect(),
        restart: RestartPolicy::OnFailure,
        ..InitService::default()
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn pid(number: i32) -> Pid {
    Pid::from_raw(number).unwrap()
}

#[test]
fn one_that_dies_at_its_start_is_tried_again_ever_later_and_then_given_up() {
    let (mut hands, mut now) = (Noted::default(), Instant::now());
    let mut services = ServiceSupervisor::new(vec![planned("web", &[])], RESTARTS, now);
    for (number, delay) in [(0, 1), (1, 2), (2, 4), (3, 4)] {
        services.advance(now, &mut hands);
        assert_eq!(hands.take(), ["start 0", "0 Running"]);
        assert!(services.handle_exit(pid(100 + number), ExitStatus::Code(1), now, &mut hands));
        assert_eq!(hands.take(), ["0 Restarting"]);
        assert_eq!(services.next_deadline(), Some(now + seconds(delay)));
        services.advance(now + seconds(delay) - Duration::from_millis(1), &mut hands);
        assert_eq!(hands.take(), Vec::<String>::new());
        now += seconds(delay);
    }
    services.advance(now, &mut hands);
    services.handle_exit(pid(104), ExitStatus::Signal(11), now, &mut hands);
    assert_eq!(
        hands.take()[2..],
        ["0 Failed: it ended 5 times soon after its start"]
    );
    assert!(services.are_over() && services.any_failed());
    // A person may try once more.
    services.restart_service(0, &mut hands);
    services.advance(now, &mut hands);
    assert_eq!(hands.take(), ["0 Waiting", "start 0", "0 Running"]);
}

#[test]
fn one_that_ran_for_long_begins_anew_and_a_missing_program_is_not_tried_again() {
    let (mut hands, mut now) = (Noted::default(), Instant::now());
    let mut services = ServiceSupervisor::new(vec![planned("web", &[])], RESTARTS, now);
    for number in 0..10 {
        services.advance(now, &mut hands);
        now += seconds(61);
        services.handle_exit(pid(100 + number), ExitStatus::Code(1), now, &mut hands);
        assert_eq!(services.next_deadline(), Some(now + seconds(1)));
        now += seconds(1);
    }
    services.advance(now, &mut hands);
    hands.take();
    services.handle_exit(pid(110), ExitStatus::Code(127), now, &mut hands);
    assert_eq!(hands.take(), ["0 Failed"]);
}

#[test]
fn a_missing_program_never_counts_as_running() {
    let (mut hands, now) = (Noted::default(), Instant::now());
    hands.cannot_execute = true;
    let plans = vec![planned("web", &[]), planned("follower", &["web"])];
    let mut services = ServiceSupervisor::new(plans, RESTARTS, now);
    services.advance(now, &mut hands);
    assert_eq!(hands.take(), ["start 0", "0 Starting"]);
    services.handle_exit(pid(100), ExitStatus::Code(127), now, &mut hands);
    services.advance(now, &mut hands);
    assert_eq!(hands.take(), ["0 Failed", "1 Failed: it waits for web"]);
}

#[test]
fn policies_say_what_comes_after_an_end() {
    use ServiceState::{Ended, Failed, Restarting};
    for (restart, exit, state) in [
        (RestartPolicy::Always, 0, Restarting),
        (RestartPolicy::Always, 1, Restarting),
        (RestartPolicy::OnFailure, 0, Ended),
        (RestartPolicy::OnFailure, 1, Restarting),
        (RestartPolicy::Never, 0, Ended),
        (RestartPolicy::Never, 1, Failed),
    ] {
        let (mut hands, now) = (Noted::default(), Instant::now());
        let plan = InitService {
            restart,
            ..planned("a", &[])
        };
        let mut services = ServiceSupervisor::new(vec![plan], RESTARTS, now);
        services.advance(now, &mut hands);
        services.handle_exit(pid(100), ExitStatus::Code(exit), now, &mut hands);
        assert_eq!(services.all[0].state, state, "{restart:?} {exit}");
    }
}

#[test]
fn others_wait_until_it_is_healthy_and_are_stopped_before_it() {
    let (mut hands, mut now) = (Noted::default(), Instant::now());
    let mut database = planned("database", &[]);
    database.health = Some(HealthCheck::new(HealthTest::Tcp(1)));
    database.grace = seconds(3);
    let plans = vec![planned("web", &["database"]), database];
    let mut services = ServiceSupervisor::new(plans, RESTARTS, now);
    services.advance(now, &mut hands);
    assert_eq!(hands.take(), ["start 1", "1 Starting", "check 1"]);
    services.handle_exit(pid(101), ExitStatus::Code(1), now, &mut hands);
    assert_eq!(services.next_deadline(), Some(now + STARTUP_CHECK_INTERVAL));
    now += STARTUP_CHECK_INTERVAL;
    services.advance(now, &mut hands);
    services.handle_exit(pid(102), ExitStatus::Code(0), now, &mut hands);
    services.advance(now, &mut hands);
    assert_eq!(
        hands.take(),
        ["check 1", "1 Healthy", "start 0", "0 Running"]
    );
    services.stop_all(None);
    services.advance(now, &mut hands);
    assert_eq!(hands.take(), ["signal 103 15", "0 Stopping"]);
    services.handle_exit(pid(103), ExitStatus::Signal(15), now, &mut hands);
    services.advance(now, &mut hands);
    assert_eq!(hands.take(), ["0 Ended", "signal 100 15", "1 Stopping"]);
    // It does not heed the signal.
    assert_eq!(services.next_deadline(), Some(now + seconds(3)));
    services.advance(now + seconds(3), &mut hands);
    assert_eq!(
        hands.take(),
        [
            "signal 100 9",
            "1 Stopping: it did not end within its grace and was killed"
        ]
    );
    services.handle_exit(pid(100), ExitStatus::Signal(9), now, &mut hands);
    assert!(services.are_over() && !services.any_failed());
}

#[test]
fn one_that_waits_for_what_failed_fails() {
    let (mut hands, now) = (Noted::default(), Instant::now());
    let mut first = planned("first", &[]);
    first.restart = RestartPolicy::Never;
    let plans = vec![first, planned("second", &["first"])];
    let mut services = ServiceSupervisor::new(plans, RESTARTS, now);
    hands.refuses = true;
    services.advance(now, &mut hands);
    assert_eq!(
        hands.take(),
        [
            "start 0",
            "0 Failed: the kernel refused a new process",
            "1 Failed: it waits for first"
        ]
    );
}

#[test]
fn a_check_that_hangs_is_ended_and_counts_after_the_start_period() {
    let (mut hands, mut now) = (Noted::default(), Instant::now());
    let mut plan = planned("web", &[]);
    plan.health = Some(HealthCheck {
        interval_ms: 1_000,
        timeout_ms: 2_000,
        retries: 2,
        start_period_ms: 0,
        restart: false,
        check: HealthTest::Tcp(1),
    });
    let mut services = ServiceSupervisor::new(vec![plan], RESTARTS, now);
    services.advance(now, &mut hands);
    hands.take();
    for number in [101, 102] {
        now += seconds(2);
        services.advance(now, &mut hands);
        assert_eq!(hands.take(), [format!("signal {number} 9")]);
        services.handle_exit(pid(number), ExitStatus::Signal(9), now, &mut hands);
        now += STARTUP_CHECK_INTERVAL;
        services.advance(now, &mut hands);
        let told = hands.take();
        assert_eq!(told.last().map(String::as_str), Some("check 0"));
        assert_eq!(told.len(), if number == 102 { 2 } else { 1 }, "{told:?}");
    }
    assert_eq!(services.all[0].state, ServiceState::Unhealthy);
    services.handle_exit(pid(103), ExitStatus::Code(0), now, &mut hands);
    assert_eq!(hands.take(), ["0 Healthy"]);
    services.restart_service(0, &mut hands);
    services.advance(now, &mut hands);
    services.handle_exit(pid(100), ExitStatus::Code(0), now, &mut hands);
    services.advance(now, &mut hands);
    assert_eq!(
        hands.take(),
        [
            "signal 100 15",
            "0 Stopping",
            "0 Waiting",
            "start 0",
            "0 Starting",
            "check 0"
        ]
    );
}

/// A service that is checked each second, and started again when two checks fail.
fn checked(start_period_ms: u64) -> InitService {
    InitService {
        health: Some(HealthCheck {
            interval_ms: 1_000,
            timeout_ms: 2_000,
            retries: 2,
            start_period_ms,
            restart: true,
            check: HealthTest::Tcp(1),
        }),
        grace: seconds(3),
        ..planned("web", &[])
    }
}

/// Has the next check end so, when it is due.
fn next_check(services: &mut ServiceSupervisor, hands: &mut Noted, now: &mut Instant, code: u8) {
    *now = services.next_deadline().unwrap_or(*now).max(*now);
    services.advance(*now, hands);
    let (check, _) = services.all[0].checking.expect("a check is due");
    services.handle_exit(check, ExitStatus::Code(code), *now, hands);
    services.advance(*now, hands);
}

#[test]
fn one_that_hangs_is_stopped_and_started_again_where_that_is_asked_for() {
    let (mut hands, mut now) = (Noted::default(), Instant::now());
    let mut services = ServiceSupervisor::new(vec![checked(0)], RESTARTS, now);
    for code in [0, 1, 0, 1, 1] {
        next_check(&mut services, &mut hands, &mut now, code);
    }
    let told: Vec<String> = (hands.take().into_iter())
        .filter(|it| it != "check 0")
        .collect();
    let failed = "0 Unhealthy: 2 checks of its health failed";
    assert_eq!(
        told,
        [
            "start 0",
            "0 Starting",
            "0 Healthy",
            failed,
            "signal 100 15",
            "0 Stopping"
        ]
    );
    // It hangs: nothing heeds the signal.
    now += seconds(3);
    services.advance(now, &mut hands);
    assert_eq!(hands.take()[0], "signal 100 9");
    // It counts as failed, whatever its exit code, and waits like one.
    services.handle_exit(pid(100), ExitStatus::Code(0), now, &mut hands);
    assert_eq!(hands.take(), ["0 Restarting"]);
    assert_eq!(services.next_deadline(), Some(now + seconds(1)));
    now += seconds(1);
    services.advance(now, &mut hands);
    assert_eq!(hands.take(), ["start 0", "0 Starting", "check 0"]);
}

#[test]
fn one_that_hung_is_not_started_again_once_the_run_is_stopped() {
    let (mut hands, mut now) = (Noted::default(), Instant::now());
    let mut services = ServiceSupervisor::new(vec![checked(0)], RESTARTS, now);
    for code in [0, 1, 1] {
        next_check(&mut services, &mut hands, &mut now, code);
    }
    services.stop_all(None);
    services.handle_exit(pid(100), ExitStatus::Signal(15), now, &mut hands);
    services.advance(now, &mut hands);
    assert!(services.are_over() && !services.any_failed());
}

#[test]
fn one_that_never_comes_up_is_given_up_however_long_its_start_may_take() {
    let (mut hands, mut now) = (Noted::default(), Instant::now());
    // Longer than what makes a restart begin anew.
    let mut services = ServiceSupervisor::new(vec![checked(90_000)], RESTARTS, now);
    for _ in 0..RESTARTS.tries {
        services.advance(now, &mut hands);
        now += seconds(91);
        for _ in 0..2 {
            next_check(&mut services, &mut hands, &mut now, 1);
        }
        let process = services.all[0].process.expect("it runs");
        services.handle_exit(process, ExitStatus::Signal(15), now, &mut hands);
        now = services.next_deadline().unwrap_or(now);
    }
    let last = hands.take().pop();
    let why = "0 Failed: it was started 5 times and never healthy";
    assert_eq!(last.as_deref(), Some(why));
    assert!(services.are_over() && services.any_failed());
}

#[test]
fn an_order_that_cannot_be_kept_is_found() {
    let list = |names: &[&str]| -> Vec<String> { names.iter().map(|&n| n.to_owned()).collect() };
    let (none, a, b, c) = (list(&[]), list(&["a"]), list(&["b"]), list(&["nobody"]));
    assert_eq!(out_of_order(&[("b", &a), ("a", &none)]), None);
    assert_eq!(out_of_order(&[("a", &b), ("b", &a)]), Some("a".to_owned()));
    assert_eq!(out_of_order(&[("a", &a)]), Some("a".to_owned()));
    assert_eq!(
        out_of_order(&[("a", &none), ("b", &c)]),
        Some("b".to_owned())
    );
}
