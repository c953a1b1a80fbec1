//! The supervisor: from a request to the end of its last process, whatever holds it.
//!
//! check → prepare → say what does not hold → start → watch → end. What each means for a container is the
//! [executor](crate::executor)'s; here is what is the same for all of them: signals, callers of the control
//! socket, samples, logs, the run's own folder.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sconce_schema::Runtime;
use sconce_schema::event::UnenforcedLimit;
use sconce_schema::request::{RunRequest, RunRoot};
use tracing::{debug, info};

use crate::control_server::ControlServer;
use crate::error::RunError;
use crate::executor::{Execution, Executor, Job, RunEnd, RunEvent};
use crate::logs::LogWriters;
use crate::protocol::{ProcessKey, SupervisorRequest};
use crate::scratch::{self, ScratchDirectory};
use crate::sys::signals::{Catcher, ReceivedSignal};
use crate::{RunObserver, RunOptions, RunOutcome, cgroup, prepare};

/// Runs a request to its end.
pub(crate) fn run(
    request: &RunRequest,
    executor: &dyn Executor,
    options: &RunOptions<'_>,
    watcher: &mut dyn RunObserver,
) -> Result<RunOutcome, RunError> {
    prepare::validate_request(request, options.host)?;
    executor.check(request, options)?;
    let runtime = runtime_of(executor);
    let is_contained = matches!(request.root, RunRoot::Image(_));
    let is_root = prepare::is_machine_root();
    info!(id = request.id, engine = %runtime, contained = is_contained, is_root, "a run begins");
    debug!(
        limits = serde_json::to_string(&request.limits).ok(),
        "limits asked for"
    );
    scratch::remove_stale_runs(&options.state_dir, &cgroup::KernelCgroupFs);
    let mut scratch = create_scratch(request, options)?;
    let done = run_in_scratch(request, executor, options, watcher, &mut scratch);
    let done =
        done.and_then(|outcome| keep_layer(options, &scratch, is_contained).map(|()| outcome));
    let removed = scratch.remove();
    let mut outcome = done?;
    outcome
        .left_behind
        .extend(removed.err().map(|(path, _)| path));
    Ok(outcome)
}

fn runtime_of(executor: &dyn Executor) -> Runtime {
    executor
        .summary()
        .map_or(Runtime::Sconce, |summary| summary.name)
}

/// Moves the writable layer to where it is wanted.
fn keep_layer(
    options: &RunOptions<'_>,
    scratch: &ScratchDirectory,
    is_contained: bool,
) -> Result<(), RunError> {
    let Some(folder) = options.keep.as_ref().filter(|_| is_contained) else {
        return Ok(());
    };
    // A folder may be renamed over an empty one, rename(2).
    std::fs::rename(scratch.folder.join("upper"), folder).map_err(|source| RunError::State {
        path: folder.clone(),
        source,
    })
}

fn create_scratch(
    request: &RunRequest,
    options: &RunOptions<'_>,
) -> Result<ScratchDirectory, RunError> {
    ScratchDirectory::create(&options.state_dir, &request.id).map_err(|(path, source)| {
        if source.kind() == std::io::ErrorKind::WouldBlock {
            RunError::Running(request.id.clone())
        } else {
            RunError::State { path, source }
        }
    })
}

fn run_in_scratch(
    request: &RunRequest,
    executor: &dyn Executor,
    options: &RunOptions<'_>,
    watcher: &mut dyn RunObserver,
    scratch: &mut ScratchDirectory,
) -> Result<RunOutcome, RunError> {
    // Before anything is started that a signal could leave behind.
    let signals = Catcher::new().map_err(RunError::at_step("catch signals"))?;
    let mut logs = LogWriters::default();
    let mut execution = executor.prepare(Job {
        request,
        options,
        scratch,
        logs: &mut logs,
    })?;
    let engine = executor.summary().map(|summary| summary.name);
    let mut supervisor = Supervisor {
        execution: execution.as_mut(),
        options,
        signals,
        desk: ControlServer::new(request, engine),
        logs,
        asked_to_end: None,
        is_stopping: false,
        next_sample: None,
    };
    let ended = supervisor.run(watcher);
    // The last reading needs the cgroup; removing it needs every process gone.
    if let Ok(end) = &ended {
        if let Some(used) = end.used {
            watcher.used(used);
        }
        watcher.logs_lost(supervisor.logs.lost_bytes());
        watcher.ended(end.exit, end.out_of_memory);
    }
    let left_behind = supervisor.execution.end(ended.is_err());
    // Nobody has the pipes open any more.
    supervisor.logs.finish();
    let asked_to_end = supervisor.asked_to_end.is_some();
    let RunEnd {
        exit,
        out_of_memory,
        used,
        last_output,
        lost_output,
    } = ended?;
    Ok(RunOutcome {
        exit,
        asked_to_end,
        out_of_memory,
        used,
        last_output,
        lost_output,
        left_behind,
    })
}

/// A run while it lives.
struct Supervisor<'a> {
    execution: &'a mut dyn Execution,
    options: &'a RunOptions<'a>,
    signals: Catcher,
    desk: ControlServer,
    logs: LogWriters,
    /// When a signal first asked it to end.
    asked_to_end: Option<Instant>,
    /// Its watcher has ended it.
    is_stopping: bool,
    /// Absent until it has started.
    next_sample: Option<Instant>,
}

impl Supervisor<'_> {
    fn run(&mut self, watcher: &mut dyn RunObserver) -> Result<RunEnd, RunError> {
        let unenforced = self.execution.wait_until_prepared(watcher)?;
        self.tell_unenforced(&unenforced, watcher)?;
        for event in self.execution.start()? {
            if let Some(end) = self.handle_event(event, watcher) {
                return Ok(end);
            }
        }
        self.watch(watcher)
    }

    /// Says what does not hold, which ends a strict run.
    fn tell_unenforced(
        &self,
        all: &[UnenforcedLimit],
        watcher: &mut dyn RunObserver,
    ) -> Result<(), RunError> {
        if all.is_empty() {
            return Ok(());
        }
        for one in all {
            info!(what = one.what, why = one.why, "not enforced");
        }
        watcher.unenforced(all);
        match self.options.strict {
            true => Err(RunError::Unenforced(all.to_vec())),
            false => Ok(()),
        }
    }

    /// Until the command has ended: passes on what it is asked, and has samples taken.
    fn watch(&mut self, watcher: &mut dyn RunObserver) -> Result<RunEnd, RunError> {
        loop {
            let ready = self.wait();
            for (caller, is_ready) in self.desk.caller_ids().into_iter().zip(ready.callers) {
                match caller {
                    _ if !is_ready => {}
                    None => self.desk.accept_caller(),
                    Some(number) => self.desk.handle_request(number, self.execution),
                }
            }
            while let Some(caught) = self.signals.next() {
                self.pass_signal(caught);
            }
            let now = Instant::now();
            if self.execution.deadline().is_some_and(|at| at <= now) {
                self.execution.pass_deadline();
            }
            if ready.execution {
                for event in self.execution.read_events()? {
                    if let Some(end) = self.handle_event(event, watcher) {
                        return Ok(end);
                    }
                }
            }
            if let Some(due) = self.next_sample.filter(|due| *due <= Instant::now()) {
                watcher.tick();
                if watcher.must_end() && !self.is_stopping {
                    info!("its watcher ends it");
                    let stop = SupervisorRequest::Stop {
                        grace: Some(self.options.grace),
                    };
                    self.is_stopping = self.execution.deliver(&stop, &[]).is_ok();
                }
                // A slow reading shifts the next ones; it is not caught up with.
                self.next_sample = Some((due + self.options.sample_every).max(Instant::now()));
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&self) -> Ready {
        let due = [self.next_sample, self.execution.deadline()];
        let due = due.into_iter().flatten().min();
        let timeout = due.map(|due| timespec(due.saturating_duration_since(Instant::now())));
        let input = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds: Vec<_> = self.desk.poll_fds().collect();
        let callers = fds.len();
        fds.push(input(self.signals.fd()));
        fds.extend(self.execution.event_fd().map(input));
        // An interruption is a signal, which is read by the caller.
        let _ = poll(&mut fds, timeout.as_ref());
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        Ready {
            callers: ready.by_ref().take(callers).collect(),
            // After the one of signals.
            execution: ready.nth(1).unwrap_or(false),
        }
    }

    /// Tells the watcher and the callers what happened; gives the end if it is that.
    fn handle_event(&mut self, event: RunEvent, watcher: &mut dyn RunObserver) -> Option<RunEnd> {
        match event {
            RunEvent::Started(target) => {
                watcher.started(&target);
                self.open();
                self.next_sample = Some(Instant::now() + self.options.sample_every);
            }
            RunEvent::Detached => watcher.goes_on(),
            RunEvent::NotEnforced(what) => watcher.unenforced(&[what]),
            RunEvent::ServiceChanged(change) => {
                if let Some(event) = self.desk.apply_service_change(change) {
                    watcher.service(&event);
                }
            }
            RunEvent::CannotStart(ProcessKey::Service(service), why) => {
                self.desk.cannot_start_service(service, why);
            }
            RunEvent::CannotStart(ProcessKey::Command(number), why) => {
                self.desk.cannot_start(number, why);
            }
            RunEvent::CommandStarted(number, terminal) => {
                self.desk.report_exec_started(number, &terminal)
            }
            RunEvent::CommandEnded(number, exit) => self.desk.report_exec_ended(number, exit),
            RunEvent::Ended(end) => return Some(end),
        }
        None
    }

    /// From now on it is spoken to, and what it writes is kept. Where that cannot be, the run goes
    /// on without.
    fn open(&mut self) {
        if let Some(control) = &self.options.control {
            let _ = self.desk.start_listening(&control.folder);
            let _ = self.logs.start_writing(&control.folder);
        }
    }

    /// The command gets the signal; one that asks it to end a second time, when the grace is over,
    /// ends everything.
    fn pass_signal(&mut self, caught: ReceivedSignal) {
        if caught.signal == libc::SIGWINCH {
            self.execution.copy_terminal_size();
            return;
        }
        let asks_to_end = matches!(caught.signal, libc::SIGINT | libc::SIGTERM);
        let grace_is_over =
            (self.asked_to_end).is_some_and(|asked| asked.elapsed() >= self.options.grace);
        if asks_to_end {
            self.asked_to_end.get_or_insert_with(Instant::now);
        }
        let order = if asks_to_end && grace_is_over {
            SupervisorRequest::Kill
        } else if caught.by_terminal && self.execution.is_in_foreground() {
            // The terminal has sent it to the command as well.
            return;
        } else {
            SupervisorRequest::Signal(caught.signal)
        };
        debug!(signal = caught.signal, "passes a signal on");
        let _ = self.execution.deliver(&order, &[]);
    }
}

/// What can be read without waiting.
struct Ready {
    /// Of what [`ControlServer::poll_fds`] gives, in its order.
    callers: Vec<bool>,
    execution: bool,
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
