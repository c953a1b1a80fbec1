//! From init to the command: the last fork, and everything that is given up on the way.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::process::Pid;
use rustix::thread::CapabilitySet;

use crate::capabilities;
use crate::init_config::Credentials;
use crate::protocol::{self, InitFailure, InitReport, ProcessKey, errno};
use crate::rlimits::ProcessLimits;
use crate::seccomp;
use crate::sys::clone::{self, CloneResult};
use crate::sys::{exec, signals};

/// Where a program is looked for when the environment has no `PATH`.
pub(super) const DEFAULT_PATH: &str =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How the command joins its cgroups.
#[derive(Debug)]
pub(super) struct InheritedCgroupJoin {
    /// v1 `tasks` files.
    pub(super) tasks: Vec<OwnedFd>,
    /// v2 folder.
    pub(super) folder: Option<OwnedFd>,
}

/// Standard input, output and error of a process.
#[derive(Debug, Clone, Copy)]
pub(super) enum StdioSetup<'a> {
    /// Init's own.
    Inherited,
    /// This terminal, which becomes that of its session.
    Terminal(BorrowedFd<'a>),
    /// Nothing comes in, and both outputs go here.
    Output(BorrowedFd<'a>),
    /// These.
    Three(&'a [OwnedFd; 3]),
    /// Nothing comes in and nothing goes out.
    Nothing,
}

/// What a process is to become.
#[derive(Debug, Clone, Copy)]
pub(super) enum ProcessTask<'a> {
    /// A program with its arguments.
    Program(&'a [OsString]),
    /// A check of a TCP port that Sconce makes itself.
    Port(u16),
    /// The same of an HTTP server's answer.
    Http(u16, &'a str),
}

/// To whom it is told that it is about to begin, or cannot.
#[derive(Debug, Clone, Copy)]
pub(super) enum StartNotification {
    /// It is the run's command.
    Command,
    /// It is something else.
    Other(ProcessKey),
    /// Its exit code says enough.
    Nobody,
}

/// One process that is to be started.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessSpec<'a> {
    pub(super) what: ProcessTask<'a>,
    /// `NAME=value`, complete.
    pub(super) env: &'a [OsString],
    pub(super) workdir: &'a Path,
    /// Absent without a container.
    pub(super) credentials: Option<&'a Credentials>,
    pub(super) own: &'a ProcessLimits,
    pub(super) streams: StdioSetup<'a>,
    /// Without the caller's terminal as its own, it cannot type into it (TIOCSTI).
    pub(super) new_session: bool,
    pub(super) told: StartNotification,
    /// Gets a byte when it cannot become what it should, and is closed when it has.
    pub(super) fails: Option<BorrowedFd<'a>>,
}

impl InheritedCgroupJoin {
    /// Closes what it holds, in a child that is about to become something else.
    fn close(&self) {
        for fd in self.tasks.iter().chain(&self.folder) {
            // SAFETY: a forked child has descriptors of its own, and this one ends by `exec` or
            // `_exit`: nothing uses these or drops them again.
            #[expect(unsafe_code, reason = "init keeps its own for what it starts later")]
            unsafe {
                rustix::io::close(fd.as_raw_fd());
            }
        }
    }
}

/// Starts a process as a child of init.
pub(super) fn start_process(
    job: &ProcessSpec<'_>,
    control: &OwnedFd,
    join: &InheritedCgroupJoin,
) -> Result<Pid, InitFailure> {
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
    match cloned.map_err(InitFailure::at_step("start the command"))? {
        CloneResult::Parent { pid, .. } => Pid::from_raw(pid).ok_or_else(|| InitFailure::Step {
            doing: "start the command".to_owned(),
            errno: libc::ESRCH,
        }),
        CloneResult::Child => {
            let failure = match become_it(job, control, join, late) {
                Ok(never) => match never {},
                Err(failure) => failure,
            };
            let code = match &failure {
                InitFailure::NotFound { .. } => sconce_schema::exit::NOT_FOUND,
                InitFailure::NotExecutable { .. } => sconce_schema::exit::NOT_EXECUTABLE,
                _ => sconce_schema::exit::RUN,
            };
            let report = match job.told {
                StartNotification::Command => Some(InitReport::Failed(failure)),
                StartNotification::Other(which) => Some(InitReport::CannotStart(which, failure)),
                StartNotification::Nobody => None,
            };
            if let Some(report) = report {
                let _ = protocol::send_value(control, &report, &[]);
            }
            if let Some(fails) = job.fails {
                let _ = rustix::io::write(fails, b"!");
            }
            clone::exit_now(code)
        }
    }
}

fn become_it(
    job: &ProcessSpec<'_>,
    control: &OwnedFd,
    join: &InheritedCgroupJoin,
    late: Option<BorrowedFd<'_>>,
) -> Result<std::convert::Infallible, InitFailure> {
    enter_cgroups(join, late).map_err(InitFailure::at_step("join the cgroup"))?;
    // A cgroup's folder is a folder of the machine: `..` of it would lead out (CVE-2024-21626).
    join.close();
    if job.new_session {
        rustix::process::setsid().map_err(InitFailure::at_step("begin a session"))?;
    }
    take(job.streams).map_err(InitFailure::at_step("take the streams"))?;
    // As long as there are the capabilities to raise a limit.
    job.own
        .apply_to_process()
        .map_err(InitFailure::at_step("set the command's own limits"))?;
    if let Some(credentials) = job.credentials {
        give_up(credentials).map_err(InitFailure::at_step("become the run's user"))?;
        rustix::process::umask(Mode::from_raw_mode(0o022));
    }
    let sealed = job.credentials.is_some();
    let command = match job.what {
        ProcessTask::Program(command) => command,
        ProcessTask::Port(port) => {
            clone::exit_now(u8::from(!super::health_test::is_port_open(port)))
        }
        ProcessTask::Http(port, path) => {
            clone::exit_now(u8::from(!super::health_test::is_http_ok(port, path)))
        }
    };
    enter_folder(job.workdir, sealed).map_err(|error| InitFailure::Workdir {
        path: job.workdir.to_owned(),
        errno: errno(error),
    })?;
    let program =
        Program::new(command, job.env).map_err(InitFailure::at_step("read the command"))?;
    signals::reset_for_command();
    if let StartNotification::Command = job.told {
        protocol::send_value(control, &InitReport::Executing, &[])
            .map_err(InitFailure::at_step("report"))?;
    }
    exec::close_on_exec_from(3).map_err(InitFailure::at_step("close descriptors"))?;
    if sealed {
        rustix::thread::set_no_new_privs(true).map_err(InitFailure::at_step("set no_new_privs"))?;
        // Kernels before 6.12 cannot; docs/security.md says so.
        let _ = crate::sys::landlock::keep_to_own_sockets();
        crate::sys::seccomp::install_filter(&seccomp::build_filter())
            .map_err(InitFailure::at_step("filter system calls"))?;
    }
    Err(program.execute())
}

/// Enters the working directory. In a container never through /proc/…/fd and its like, which lead to
/// what is open and not to what is mounted (CVE-2024-21626).
fn enter_folder(path: &Path, contained: bool) -> rustix::io::Result<()> {
    if !contained {
        return rustix::process::chdir(path);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_MAGICLINKS;
    let folder = rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)?;
    rustix::process::fchdir(&folder)
}

fn take(streams: StdioSetup<'_>) -> rustix::io::Result<()> {
    use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
    match streams {
        StdioSetup::Inherited => Ok(()),
        StdioSetup::Terminal(terminal) => crate::pty::set_controlling_terminal(terminal),
        StdioSetup::Three([input, output, error]) => {
            dup2_stdin(input)?;
            dup2_stdout(output)?;
            dup2_stderr(error)
        }
        StdioSetup::Output(output) => {
            dup2_stdin(nothing()?)?;
            dup2_stdout(output)?;
            dup2_stderr(output)
        }
        StdioSetup::Nothing => let_go(),
    }
}

fn nothing() -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Puts nothing in the place of this process's standard input, output and error.
pub(super) fn let_go() -> rustix::io::Result<()> {
    let nothing = nothing()?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)
}

fn enter_cgroups(
    join: &InheritedCgroupJoin,
    late: Option<BorrowedFd<'_>>,
) -> rustix::io::Result<()> {
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
    capabilities::restrict_bounding_set(kept)?;
    if to.change {
        let (uid, gid) = (Uid::from_raw(to.uid), Gid::from_raw(to.gid));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    capabilities::drop_all_except(kept)
}

/// A command, ready to be executed.
struct Program {
    name: OsString,
    argv: Vec<CString>,
    envp: Vec<CString>,
    path: OsString,
}

impl Program {
    fn new(command: &[OsString], env: &[OsString]) -> io::Result<Self> {
        let strings = |list: &[OsString]| {
            list.iter()
                .map(|text| Ok(CString::new(text.as_bytes())?))
                .collect::<io::Result<Vec<_>>>()
        };
        let path = env.iter().find_map(|v| v.as_bytes().strip_prefix(b"PATH="));
        Ok(Self {
            name: command.first().cloned().unwrap_or_default(),
            argv: strings(command)?,
            envp: strings(env)?,
            path: path.map_or_else(
                || DEFAULT_PATH.into(),
                |path| OsStr::from_bytes(path).to_owned(),
            ),
        })
    }

    /// Executes it as execvp does; returns only what kept it from that.
    fn execute(&self) -> InitFailure {
        if self.name.as_bytes().contains(&b'/') {
            let path = PathBuf::from(&self.name);
            return match self.try_at(&path) {
                libc::ENOENT if path.symlink_metadata().is_err() => self.not_found(None),
                libc::ENOTDIR => self.not_found(None),
                errno => InitFailure::NotExecutable { path, errno },
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
                errno => refused = refused.or(Some(InitFailure::NotExecutable { path, errno })),
            }
        }
        let searched = self.path.to_string_lossy().into_owned();
        refused.unwrap_or_else(|| self.not_found(Some(searched)))
    }

    fn not_found(&self, searched: Option<String>) -> InitFailure {
        InitFailure::NotFound {
            command: self.name.to_string_lossy().into_owned(),
            searched,
        }
    }

    fn try_at(&self, path: &Path) -> i32 {
        let Ok(program) = CString::new(path.as_os_str().as_bytes()) else {
            return libc::EINVAL;
        };
        let (argv, envp) = (
            exec::null_terminated_pointers(&self.argv),
            exec::null_terminated_pointers(&self.envp),
        );
        // SAFETY: both were made by `exec::null_terminated_pointers` from strings that this value holds.
        #[expect(unsafe_code, reason = "exec takes arrays of C strings")]
        let error = unsafe { exec::execve(&program, &argv, &envp) };
        errno(error)
    }
}
