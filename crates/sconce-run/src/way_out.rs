//! The way out of a network of one's own: slirp4netns, a program that is a TCP/IP stack in user space.
//! It needs no root and changes nothing of the machine's own network: no bridge, no firewall rule.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sconce_schema::event::Unenforced;

/// The helper.
const NAME: &str = "slirp4netns";

/// Where slirp4netns answers questions for names, by the machine's own resolvers (slirp4netns(1)).
pub(crate) const RESOLVER: &str = "10.0.2.3";

/// How long it may take to set an interface up.
const READY_WITHIN: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// A running helper; ends when this is dropped. Its standard input is a pipe on which nothing is
/// ever written: it also ends when the other end of that is gone, should this process be killed.
#[derive(Debug)]
pub(crate) struct WayOut(Child);

impl WayOut {
    /// Starts it for the network in which the process `first` is, and waits until it is there.
    ///
    /// # Errors
    /// What is to be told of a helper that does not work here.
    pub(crate) fn start(program: &Path, first: u32) -> Result<Self, Unenforced> {
        let mut command = Command::new(program);
        command
            .args(["--configure", "--mtu=65520", "--disable-host-loopback"])
            .args(["--enable-sandbox", "--enable-seccomp"])
            .args(["--exit-fd=0", "--ready-fd=1"])
            .arg(first.to_string())
            .arg("tap0")
            .env_clear()
            // A Ctrl-C is for the command, which may want the network while it ends.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut helper = Self(command.spawn().map_err(|error| fails(program, &error))?);
        match helper.is_ready() {
            true => Ok(helper),
            false => Err(fails(program, &"it set no interface up")),
        }
    }

    fn is_ready(&mut self) -> bool {
        let Some(mut ready) = self.0.stdout.take() else {
            return false;
        };
        let mut fds = [PollFd::new(&ready, PollFlags::IN)];
        let in_time = poll(&mut fds, Some(&READY_WITHIN)).is_ok_and(|count| count > 0);
        let mut word = [0_u8; 1];
        in_time && ready.read(&mut word).is_ok_and(|read| read == 1) && word == *b"1"
    }
}

impl Drop for WayOut {
    fn drop(&mut self) {
        // It keeps nothing that would have to be put away.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn fails(program: &Path, error: &dyn std::fmt::Display) -> Unenforced {
    Unenforced {
        what: "network".to_owned(),
        why: format!(
            "{} does not work here ({error}), and without it the run's own network leads nowhere",
            program.display()
        ),
        hint: Some("it needs /dev/net/tun; or use `--network host`".to_owned()),
    }
}

/// That there is no helper.
pub(crate) fn absent() -> Unenforced {
    Unenforced {
        what: "network".to_owned(),
        why: format!("{NAME} is not installed, and without it the run's own network leads nowhere"),
        hint: Some(format!(
            "install the package {NAME}, or use `--network host`"
        )),
    }
}
