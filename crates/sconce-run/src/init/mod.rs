//! The first process of a run: it mounts what the plan says, starts the command and the services,
//! watches these, reaps, passes signals on, and ends when the command has ended, with everything
//! that is left.
//!
//! In a container it is process 1, whose end the kernel makes the end of all. Without one it is
//! the reaper of the run's orphans and ends them one by one. Either way it watches the supervisor:
//! when that is gone, so is the run.

mod command;
mod delegated;
mod devices;
mod first_process;
mod health_test;
mod init_loop;
mod mount_points;
mod overlay;
mod rootfs;
mod services;
mod shutdown;
mod upper_dir;

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{DumpableBehavior, Signal};
use rustix::thread::CapabilitySet;
use sconce_schema::exit;

pub(crate) use rootfs::MOUNT_PROC;
pub(crate) use services::out_of_order;

use self::init_loop::{InitLoop, ProcessStarter};
use crate::capabilities;
use crate::init_config::InitConfig;
use crate::protocol::{self, InitFailure, InitReport, SupervisorRequest};
use crate::sys::{signals, socket, usage};

/// Runs as init. `args` are the program's, without the first. Gives the exit code.
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> u8 {
    let mut numbers = args.filter_map(|arg| arg.to_str()?.parse::<RawFd>().ok());
    let (Some(plan), Some(control), None) = (numbers.next(), numbers.next(), numbers.next()) else {
        return exit::USAGE;
    };
    let (Some(plan), Some(control)) = (inherited(plan), inherited(control)) else {
        return exit::USAGE;
    };
    match run(plan, &control) {
        Ok(()) => exit::OK,
        Err(failure) => {
            let _ = protocol::send_value(&control, &InitReport::Failed(failure), &[]);
            exit::RUN
        }
    }
}

/// Takes over a descriptor that the plan names, and keeps it from the command.
fn inherited(number: RawFd) -> Option<OwnedFd> {
    if number <= 2 {
        return None;
    }
    // SAFETY: this process was executed a moment ago with this descriptor handed over to it;
    // nothing else in it knows the number. A wrong number fails in the next call.
    #[expect(unsafe_code, reason = "a descriptor arrives as a number")]
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    match rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC) {
        Ok(()) => Some(fd),
        Err(_) => {
            // Not open: closing it as well would be wrong.
            std::mem::forget(fd);
            None
        }
    }
}

fn run(plan: OwnedFd, control: &OwnedFd) -> Result<(), InitFailure> {
    // Same user as the command, in a user namespace: keep it out of this memory.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(InitFailure::at_step("hide init's memory"))?;
    let children = signals::children_ended().map_err(InitFailure::at_step("watch for children"))?;
    let plan = read_plan(plan)?;
    let sockets = plan.sockets.and_then(inherited);
    // Init too: the command inherits it.
    let mut notices = plan.place.apply_to_process();
    let mut shared = None;
    let terminal = match &plan.container {
        Some(container) => {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
                .map_err(InitFailure::at_step("follow the supervisor"))?;
            // Open until everything is mounted, and no longer.
            let owners: Vec<_> = container
                .owners
                .iter()
                .filter_map(|fd| inherited(*fd))
                .collect();
            shared = match &container.held {
                None => rootfs::enter_root(container, &owners, &mut notices)?,
                Some(engine) => {
                    delegated::prepare_root(&plan, container, engine, &owners, &mut notices)?
                }
            };
            drop(owners);
            // An engine's own terminal is the caller's; the command's is the engine's to make.
            let owner = Some(&container.credentials).filter(|_| container.held.is_none());
            crate::pty::open_if(plan.terminal, owner)?
        }
        None => {
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
                .map_err(InitFailure::at_step("become the reaper of orphans"))?;
            crate::pty::open_if(plan.terminal, None)?
        }
    };
    let mut handed: Vec<_> = terminal.iter().map(|t| t.master.as_fd()).collect();
    handed.extend(shared.iter().map(AsFd::as_fd));
    let gone = InitFailure::at_step::<std::io::Error>("speak to the supervisor");
    protocol::send_value(control, &InitReport::Prepared(notices), &handed).map_err(gone)?;
    drop(shared);
    let Some(join) = await_go(control)? else {
        return Ok(());
    };
    let output = plan.output.and_then(inherited);
    let starter = ProcessStarter {
        outputs: init_loop::inherit_service_outputs(&plan),
        plan: &plan,
        control,
        join,
    };
    if output.is_some() || plan.command.is_empty() {
        // Whoever started Sconce may wait until nobody has its terminal or pipe open any more.
        command::let_go().map_err(InitFailure::at_step("let the caller's streams go"))?;
    }
    if let Some((fd, both)) = plan.relayed
        && let Some(relayed) = inherited(fd)
    {
        // What init starts without a stream of its own has init's.
        let taken = rustix::stdio::dup2_stderr(&relayed);
        let taken = taken.and_then(|()| match both {
            true => rustix::stdio::dup2_stdout(&relayed),
            false => Ok(()),
        });
        taken.map_err(InitFailure::at_step("take the relayed streams"))?;
    }
    let slave = terminal.as_ref().map(|t| t.slave.as_fd());
    let running = InitLoop::start_command(&starter, slave, output.as_ref().map(AsFd::as_fd))?;
    drop((terminal, output));
    let reach = match plan.container {
        Some(_) => {
            capabilities::drop_all_except(still_needed(&plan))
                .map_err(InitFailure::at_step("drop init's capabilities"))?;
            shutdown::KillScope::Namespace
        }
        None => shutdown::KillScope::Children,
    };
    let mut exit = running.until_the_end(&children, sockets, reach);
    let engine = plan.container.as_ref().and_then(|c| c.held.as_ref());
    if let (Some(engine), Some(ended)) = (engine, exit) {
        delegated::has_begun(engine, ended)?;
        exit = Some(delegated::command_end(engine, ended));
    }
    if let Some(exit) = exit {
        let _ = protocol::send_value(
            control,
            &InitReport::Exited(exit, usage::of_children()),
            &[],
        );
    }
    Ok(())
}

/// What init goes on with once the command has begun: to signal and to reap; and where it may have
/// to start something later, what it takes to make a process of the run's user.
fn still_needed(plan: &InitConfig) -> CapabilitySet {
    let starts_more = plan.controlled || !plan.services.is_empty();
    match starts_more {
        false => CapabilitySet::KILL,
        true => capabilities::ROOT_INSIDE
            .union(CapabilitySet::SETPCAP)
            .union(CapabilitySet::SYS_RESOURCE),
    }
}

fn read_plan(plan: OwnedFd) -> Result<InitConfig, InitFailure> {
    let mut text = Vec::new();
    File::from(plan)
        .read_to_end(&mut text)
        .map_err(InitFailure::at_step("read the plan"))?;
    serde_json::from_slice(&text)
        .map_err(|error| InitFailure::at_step("read the plan")(std::io::Error::from(error)))
}

/// Waits for the word to start; `None` when the supervisor is gone or wants no start.
fn await_go(control: &OwnedFd) -> Result<Option<command::InheritedCgroupJoin>, InitFailure> {
    let Ok(Some((SupervisorRequest::Go { tasks, folder }, message))) =
        protocol::receive_value(control)
    else {
        return Ok(None);
    };
    let mut fds = message.fds;
    if fds.len() != tasks + usize::from(folder) {
        return Err(InitFailure::Step {
            doing: "receive the cgroups".to_owned(),
            errno: libc::EPROTO,
        });
    }
    let folder = if folder { fds.pop() } else { None };
    Ok(Some(command::InheritedCgroupJoin { tasks: fds, folder }))
}

/// Answers one request for a socket of this network. False when nobody asks any more.
fn serve_socket(sockets: &OwnedFd) -> bool {
    let Ok(Some(_)) = socket::receive_message(sockets) else {
        return false;
    };
    let made = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    );
    match made {
        Ok(made) => socket::send_message(sockets, b"s", &[made.as_fd()]).is_ok(),
        Err(_) => socket::send_message(sockets, b"-", &[]).is_ok(),
    }
}
