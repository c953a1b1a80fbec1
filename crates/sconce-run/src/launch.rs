//! From the supervisor to the first process of a run: the clone, and the little that its child
//! does before it executes Sconce again as init.
//!
//! The child of a program with threads can do almost nothing safely, so it does no more than
//! plain system calls on buffers made beforehand, and then becomes a fresh program. In a
//! container that program is executed through a private, read-only mount of itself: what a
//! container can reach through `/proc/1/exe` cannot be written, not even by root (the overwrite of
//! CVE-2019-5736).

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::FdFlags;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use crate::capabilities;
use crate::sys::{clone, exec, mount, socket};

/// How init finds out what it is, as `argv[0]`.
pub(crate) const INIT: &str = "sconce-init";

/// The first process.
#[derive(Debug)]
pub(crate) struct FirstProcess {
    /// As the caller's /proc counts.
    pub(crate) pid: i32,
    /// Readable when it has ended.
    pub(crate) pidfd: OwnedFd,
}

/// Namespaces of a container.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Namespaces {
    /// Make a user namespace, in which the caller has this uid and gid.
    pub(crate) user: Option<(u32, u32)>,
    pub(crate) network: bool,
}

/// Starts init.
///
/// `plan` and `control` are handed to it, and `inherited` with their present numbers; every other
/// descriptor is closed.
///
/// # Errors
/// The kernel's refusal to clone. What fails in the child is reported on `control`.
pub(crate) fn spawn_init(
    program: &Path,
    namespaces: Option<Namespaces>,
    plan: BorrowedFd<'_>,
    control: BorrowedFd<'_>,
    inherited: &[BorrowedFd<'_>],
) -> io::Result<FirstProcess> {
    let program = CString::new(program.as_os_str().as_bytes())?;
    let argv = [
        CString::new(INIT)?,
        CString::new(plan.as_raw_fd().to_string())?,
        CString::new(control.as_raw_fd().to_string())?,
    ];
    let child = Child {
        program: &program,
        argv: &exec::null_terminated_pointers(&argv),
        maps: namespaces.and_then(|n| n.user).map(Maps::new),
        sealed: namespaces.is_some(),
        plan,
        control,
        inherited,
    };
    let flags = namespaces.map_or(0, |n| namespace_flags(n.user.is_some(), n.network));
    // SAFETY: the child only runs `Child::become_init`, which makes plain system calls on memory
    // that exists already and then executes or exits.
    #[expect(unsafe_code, reason = "clone in a program that may have threads")]
    match unsafe { clone::fork(flags, None) }? {
        clone::CloneResult::Parent { pid, pidfd } => Ok(FirstProcess { pid, pidfd }),
        clone::CloneResult::Child => child.become_init(),
    }
}

/// The contents of the files that map ids in a new user namespace.
struct Maps {
    uid: Vec<u8>,
    gid: Vec<u8>,
}

impl Maps {
    fn new((uid, gid): (u32, u32)) -> Self {
        let (outer_uid, outer_gid) = (rustix::process::geteuid(), rustix::process::getegid());
        Self {
            uid: format!("{uid} {} 1", outer_uid.as_raw()).into_bytes(),
            gid: format!("{gid} {} 1", outer_gid.as_raw()).into_bytes(),
        }
    }

    /// The child may write its own maps, of its own ids alone, once it gave up setgroups
    /// (user_namespaces(7)).
    fn write(&self) -> rustix::io::Result<()> {
        for (file, text) in [
            (c"/proc/self/setgroups", b"deny".as_slice()),
            (c"/proc/self/gid_map", &self.gid),
            (c"/proc/self/uid_map", &self.uid),
        ] {
            let file = rustix::fs::open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::io::write(&file, text)?;
        }
        Ok(())
    }
}

struct Child<'a> {
    program: &'a CStr,
    argv: &'a [*const libc::c_char],
    maps: Option<Maps>,
    sealed: bool,
    plan: BorrowedFd<'a>,
    control: BorrowedFd<'a>,
    inherited: &'a [BorrowedFd<'a>],
}

impl Child<'_> {
    /// Runs in the child of a program that may have threads: no allocation, no lock, no panic.
    fn become_init(&self) -> ! {
        let (doing, error) = match self.try_to() {
            Ok(never) => match never {},
            Err(failed) => failed,
        };
        // `Report::Failed`, written without an allocation.
        let mut text = [0_u8; 256];
        let mut rest = &mut text[..];
        let _ = io::Write::write_fmt(
            &mut rest,
            format_args!(
                r#"{{"failed":{{"step":{{"doing":"{doing}","errno":{}}}}}}}"#,
                error.raw_os_error()
            ),
        );
        let unused = rest.len();
        let _ = socket::send_message(self.control, &text[..text.len() - unused], &[]);
        clone::exit_now(sconce_schema::exit::RUN)
    }

    fn try_to(&self) -> Result<std::convert::Infallible, (&'static str, rustix::io::Errno)> {
        if let Some(maps) = &self.maps {
            maps.write().map_err(|e| (MAP_IDS, e))?;
            // Without uid 0 an exec would take the new namespace's capabilities away.
            capabilities::keep_across_exec().map_err(|e| ("keep capabilities", e))?;
        }
        let program = if self.sealed {
            seal(self.program)?
        } else {
            rustix::fs::open(self.program, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .map_err(|e| ("open sconce", e))?
        };
        exec::close_on_exec_from(3).map_err(|e| ("close descriptors", number(&e)))?;
        for fd in [&self.plan, &self.control]
            .into_iter()
            .chain(self.inherited)
        {
            rustix::io::fcntl_setfd(fd, FdFlags::empty())
                .map_err(|e| ("hand descriptors over", e))?;
        }
        // SAFETY: `argv` was made by `exec::null_terminated_pointers` from strings that live in the parent's
        // frame, of which this process has a copy; the environment is empty.
        #[expect(unsafe_code, reason = "exec takes arrays of C strings")]
        let error = unsafe { exec::execveat(program.as_fd(), self.argv, &[std::ptr::null()]) };
        Err(("execute sconce as init", number(&error)))
    }
}

/// A read-only mount of the program, of its own. Plain system calls alone.
fn seal(program: &CStr) -> Result<OwnedFd, (&'static str, rustix::io::Errno)> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(CWD, program, flags).map_err(|e| ("clone the mount of sconce", e))?;
    let closed = mount::RDONLY | mount::NOSUID | mount::NODEV;
    mount::set_attributes(&tree, c"", false, closed, None)
        .map_err(|e| ("seal the mount of sconce", number(&e)))?;
    Ok(tree)
}

/// Makes the namespaces of a container for a process that ends at once, and seals `program` in them. A filter of
/// system calls and AppArmor's rules are met here alone.
///
/// # Errors
/// The kernel's refusal.
pub(crate) fn try_namespaces(program: &Path, user: Option<(u32, u32)>) -> io::Result<()> {
    let program = CString::new(program.as_os_str().as_bytes())?;
    let maps = user.map(Maps::new);
    let try_all = || {
        if let Some(maps) = &maps {
            maps.write()?;
        }
        seal(&program).map_err(|(_, error)| error)
    };
    // SAFETY: the child makes plain system calls on memory that exists already, and exits.
    #[expect(unsafe_code, reason = "clone in a program that may have threads")]
    let child = match unsafe { clone::fork(namespace_flags(user.is_some(), false), None) }? {
        clone::CloneResult::Child => clone::exit_now(match try_all() {
            Ok(_) => 0,
            Err(error) => u8::try_from(error.raw_os_error()).unwrap_or(u8::MAX),
        }),
        clone::CloneResult::Parent { pidfd, .. } => pidfd,
    };
    let ended = waitid(WaitId::PidFd(child.as_fd()), WaitIdOptions::EXITED)?;
    match ended.and_then(|status| status.exit_status()) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        // A filter that kills.
        None => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

fn namespace_flags(user: bool, network: bool) -> libc::c_int {
    let always = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    let user = if user { libc::CLONE_NEWUSER } else { 0 };
    let network = if network { libc::CLONE_NEWNET } else { 0 };
    always | user | network
}

/// The step that AppArmor's restriction of user namespaces lets fail.
pub(crate) const MAP_IDS: &str = "map the user's ids";

fn number(error: &io::Error) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::INVAL)
}

/// Whether a program that was started with this `argv[0]` is to be init.
pub(crate) fn is_init(argv0: &OsStr) -> bool {
    argv0 == INIT
}
