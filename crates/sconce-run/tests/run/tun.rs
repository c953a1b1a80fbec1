//! A /dev/net/tun that the tests choose, whatever the machine's is: in a mount namespace of its own, which only
//! root can make over it.

use std::process::Command;

use sconce_schema::RunRequest;

use crate::bench::{Bench, Done, NOBODY_IN_PARTICULAR, Who};

/// Shell scripts that lay something over /dev/net: a node as udev would leave it,
pub(crate) const OPEN_TUN: &str =
    "mount -t tmpfs none /dev/net && mknod -m 666 /dev/net/tun c 10 200";
/// as the kernel makes it,
pub(crate) const CLOSED_TUN: &str =
    "mount -t tmpfs none /dev/net && mknod -m 600 /dev/net/tun c 10 200";
/// or none.
pub(crate) const NO_TUN: &str = "mount -t tmpfs none /dev/net";

impl Bench {
    /// Runs to the end with this helper as the only way out.
    pub(crate) fn run_by(&self, helper: &str, request: &RunRequest) -> Done {
        let output = self.command_by(helper, request).output();
        self.done(request, &output.unwrap())
    }

    /// [`Bench::command`], with this helper as the only way out and, where root starts the tests, with an open
    /// /dev/net/tun of its own. The command's process is that of `contained`.
    pub(crate) fn command_by(&self, helper: &str, request: &RunRequest) -> Command {
        let is_helper = sconce_run::WAYS_OUT.contains(&helper);
        let command = is_helper
            .then(|| self.command_after(request, OPEN_TUN))
            .flatten();
        let mut command = command.unwrap_or_else(|| self.command(request, false));
        command.arg(format!("--way-out={helper}"));
        command
    }

    /// [`Bench::command`], after root has run a script in a mount namespace of its own; `None` where root does
    /// not start the tests.
    pub(crate) fn command_after(&self, request: &RunRequest, script: &str) -> Option<Command> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let inner = self.command(request, false);
        let mut outer = Command::new(self.folder.path().join("base/bin/busybox"));
        let then = match self.who {
            Who::Root => "exec \"$@\"".to_owned(),
            // busybox has nothing that takes a number for a user.
            Who::Plain => format!(
                "exec /usr/bin/setpriv --reuid {NOBODY_IN_PARTICULAR} --regid {NOBODY_IN_PARTICULAR} \
                 --clear-groups \"$@\""
            ),
        };
        outer
            .args(["unshare", "-m", "sh", "-e", "-c"])
            .arg(format!("{script}\n{then}"))
            .arg("sh")
            .arg(inner.get_program())
            .args(inner.get_args());
        Some(outer)
    }

    /// Whether helpers can be had here: as the user who starts the tests, or by a node of the tests' own.
    pub(crate) fn has_tun(&self) -> Result<(), String> {
        if !rustix::process::geteuid().is_root() {
            let opened = std::fs::File::options()
                .read(true)
                .write(true)
                .open("/dev/net/tun");
            return opened
                .map(drop)
                .map_err(|error| format!("/dev/net/tun: {error}"));
        }
        let script = format!("{OPEN_TUN} && : <>/dev/net/tun");
        let tried = Command::new(self.folder.path().join("base/bin/busybox"))
            .args(["unshare", "-m", "sh", "-e", "-c", &script])
            .output()
            .unwrap();
        match tried.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&tried.stderr).into_owned()),
        }
    }
}
