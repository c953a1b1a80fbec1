//! From init to the command: the last fork, and everything that is given up on the way.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Mode, OFlags, Uid};
use rustix::process::Pid;
use rustix::thread::CapabilitySet;

use crate::capabilities;
use crate::plan::{Credentials, Plan};
use crate::protocol::{self, Failure, Report, errno};
use crate::seccomp;
use crate::sys::clone::{self, Cloned};
use crate::sys::{exec, signals};

/// Where a program is looked for when the environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How the command joins its cgroups.
#[derive(Debug)]
pub(super) struct Join {
    /// v1 `tasks` files.
    pub(super) tasks: Vec<OwnedFd>,
    /// v2 folder.
    pub(super) folder: Option<OwnedFd>,
}

/// Starts the command as a child of init.
pub(super) fn start(
    plan: &Plan,
    control: &OwnedFd,
    terminal: Option<BorrowedFd<'_>>,
    join: Join,
) -> Result<Pid, Failure> {
    let folder = join.folder.as_ref().map(AsFd::as_fd);
    // SAFETY: init has one thread, so that its child may do anything.
    #[expect(unsafe_code, reason = "clone")]
    let mut cloned = unsafe { clone::fork(0, folder) };
    // Container engines answer clone3 with ENOSYS; then the child moves itself, which is slower.
    let late = folder.filter(|_| {
        cloned
            .as_ref()
            .is_err_and(|e| e.raw_os_error() == Some(libc::ENOSYS))
    });
    if late.is_some() {
        #[expect(unsafe_code, reason = "clone")]
        {
            // SAFETY: as above.
            cloned = unsafe { clone::fork(0, None) };
        }
    }
    match cloned.map_err(Failure::step("start the command"))? {
        Cloned::Parent { pid, .. } => Pid::from_raw(pid).ok_or_else(|| Failure::Step {
            doing: "start the command".to_owned(),
            errno: libc::ESRCH,
        }),
        Cloned::Child => {
            let failure = match become_command(plan, control, terminal, &join, late) {
                Ok(never) => match never {},
                Err(failure) => failure,
            };
            let _ = protocol::send(control, &Report::Failed(failure), &[]);
            clone::exit_now(sconce_schema::exit::RUN)
        }
    }
}

fn become_command(
    plan: &Plan,
    control: &OwnedFd,
    terminal: Option<BorrowedFd<'_>>,
    join: &Join,
    late: Option<BorrowedFd<'_>>,
) -> Result<std::convert::Infallible, Failure> {
    enter_cgroups(join, late).map_err(Failure::step("join the cgroup"))?;
    if plan.container.is_some() || terminal.is_some() {
        // Without the caller's terminal as its own, the command cannot type into it (TIOCSTI).
        rustix::process::setsid().map_err(Failure::step("begin a session"))?;
    }
    if let Some(terminal) = terminal {
        crate::pty::adopt(terminal).map_err(Failure::step("take the terminal"))?;
    }
    if let Some(container) = &plan.container {
        give_up(&container.credentials).map_err(Failure::step("become the run's user"))?;
        rustix::process::umask(Mode::from_raw_mode(0o022));
    }
    rustix::process::chdir(&plan.workdir).map_err(|error| Failure::Workdir {
        path: plan.workdir.clone(),
        errno: errno(error),
    })?;
    let program = Program::new(plan).map_err(Failure::step("read the command"))?;
    signals::reset_for_command();
    protocol::send(control, &Report::Executing, &[]).map_err(Failure::step("report"))?;
    exec::close_on_exec_from(3).map_err(Failure::step("close descriptors"))?;
    if plan.container.is_some() {
        rustix::thread::set_no_new_privs(true).map_err(Failure::step("set no_new_privs"))?;
        crate::sys::seccomp::install(&seccomp::filter())
            .map_err(Failure::step("filter system calls"))?;
    }
    Err(program.execute())
}

fn enter_cgroups(join: &Join, late: Option<BorrowedFd<'_>>) -> rustix::io::Result<()> {
    // 0 is the writer itself.
    for tasks in &join.tasks {
        rustix::io::write(tasks, b"0")?;
    }
    if let Some(folder) = late {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let procs = rustix::fs::openat(folder, c"cgroup.procs", flags, Mode::empty())?;
        rustix::io::write(&procs, b"0")?;
    }
    Ok(())
}

/// Changes to the run's user, and drops every capability that it does not keep.
fn give_up(to: &Credentials) -> rustix::io::Result<()> {
    let kept = CapabilitySet::from_bits_retain(to.capabilities);
    capabilities::bound(kept)?;
    if to.change {
        let (uid, gid) = (Uid::from_raw(to.uid), Gid::from_raw(to.gid));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    capabilities::reduce(kept)
}

/// A command, ready to be executed.
struct Program {
    name: OsString,
    argv: Vec<CString>,
    envp: Vec<CString>,
    path: OsString,
}

impl Program {
    fn new(plan: &Plan) -> io::Result<Self> {
        let strings = |list: &[OsString]| {
            list.iter()
                .map(|text| Ok(CString::new(text.as_bytes())?))
                .collect::<io::Result<Vec<_>>>()
        };
        let path = plan
            .env
            .iter()
            .find_map(|v| v.as_bytes().strip_prefix(b"PATH="));
        Ok(Self {
            name: plan.command.first().cloned().unwrap_or_default(),
            argv: strings(&plan.command)?,
            envp: strings(&plan.env)?,
            path: path.map_or_else(
                || DEFAULT_PATH.into(),
                |path| OsStr::from_bytes(path).to_owned(),
            ),
        })
    }

    /// Executes it as execvp does; returns only what kept it from that.
    fn execute(&self) -> Failure {
        if self.name.as_bytes().contains(&b'/') {
            let path = PathBuf::from(&self.name);
            return match self.try_at(&path) {
                libc::ENOENT if path.symlink_metadata().is_err() => self.not_found(None),
                libc::ENOTDIR => self.not_found(None),
                errno => Failure::NotExecutable { path, errno },
            };
        }
        let mut refused = None;
        for folder in self.path.as_bytes().split(|byte| *byte == b':') {
            // An empty entry is the working directory.
            let folder = if folder.is_empty() { b"." } else { folder };
            let path = Path::new(OsStr::from_bytes(folder)).join(&self.name);
            match self.try_at(&path) {
                libc::ENOENT if path.symlink_metadata().is_err() => {}
                libc::ENOTDIR => {}
                // Another folder may have one that can be executed.
                errno => refused = refused.or(Some(Failure::NotExecutable { path, errno })),
            }
        }
        let searched = self.path.to_string_lossy().into_owned();
        refused.unwrap_or_else(|| self.not_found(Some(searched)))
    }

    fn not_found(&self, searched: Option<String>) -> Failure {
        Failure::NotFound {
            command: self.name.to_string_lossy().into_owned(),
            searched,
        }
    }

    fn try_at(&self, path: &Path) -> i32 {
        let Ok(program) = CString::new(path.as_os_str().as_bytes()) else {
            return libc::EINVAL;
        };
        let (argv, envp) = (exec::pointers(&self.argv), exec::pointers(&self.envp));
        // SAFETY: both were made by `exec::pointers` from strings that this value holds.
        #[expect(unsafe_code, reason = "exec takes arrays of C strings")]
        let error = unsafe { exec::execve(&program, &argv, &envp) };
        errno(error)
    }
}
