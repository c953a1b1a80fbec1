//! Whether a helper may make an interface: what stands between this user and /dev/net/tun.
//!
//! A helper opens it as the user who started the run, in a user namespace too: that maps the user's own id
//! alone, so that no right over root's file is in it. Nor can a plain user make another node
//! (mknod(2): `EPERM`). udev gives the node the mode 0666 (`50-udev-default.rules`); the kernel's devtmpfs alone
//! makes it 0600. The mode gives nothing away: making an interface needs `CAP_NET_ADMIN` in its network
//! (the kernel's `Documentation/networking/tuntap.rst`).

use std::fs::{Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Where it is.
pub(crate) const TUN: &str = "/dev/net/tun";

/// What opening it says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TunAccess {
    Opens,
    /// There is none.
    Missing,
    /// Its mode keeps this user out.
    Closed {
        mode: u32,
        owner: u32,
    },
    /// The kernel has no driver behind it.
    NoDriver,
    /// Something other than its mode keeps it closed: a container's list of devices.
    Refused,
    Other(String),
}

impl TunAccess {
    pub(crate) fn detect(path: &Path) -> Self {
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(_) => Self::Opens,
            Err(error) => Self::of(&error, path.metadata().ok().as_ref()),
        }
    }

    /// The errors of open(2).
    fn of(error: &io::Error, metadata: Option<&Metadata>) -> Self {
        match (rustix::io::Errno::from_io_error(error), metadata) {
            (Some(rustix::io::Errno::NOENT), _) => Self::Missing,
            (Some(rustix::io::Errno::ACCESS), Some(found)) => Self::Closed {
                mode: found.mode() & 0o7777,
                owner: found.uid(),
            },
            (Some(rustix::io::Errno::NODEV | rustix::io::Errno::NXIO), _) => Self::NoDriver,
            (Some(rustix::io::Errno::PERM), _) => Self::Refused,
            _ => Self::Other(error.to_string()),
        }
    }

    /// What keeps a helper from it, and how that is mended; `None` where nothing does.
    pub(crate) fn problem_and_fix(&self) -> Option<(String, String)> {
        let (why, mend) = match self {
            Self::Opens => return None,
            Self::Missing => (
                format!("there is no {TUN}"),
                "have root load the kernel's module, `modprobe tun`, and open it to users where no \
                 udev does, `chmod 0666 /dev/net/tun`; give a container `--device /dev/net/tun`"
                    .to_owned(),
            ),
            Self::Closed { mode, owner } => (
                format!(
                    "{TUN} has the mode {mode:04o} and belongs to user {owner}, so that this user \
                     may not open it"
                ),
                "have root open it to users, as udev does where it runs: `chmod 0666 /dev/net/tun` \
                 (until the machine's next start; for longer by udev, or at each start)"
                    .to_owned(),
            ),
            Self::NoDriver => (
                format!("the kernel has no driver for {TUN}"),
                "have root load its module: `modprobe tun`".to_owned(),
            ),
            Self::Refused => (
                format!("{TUN} may not be opened in this container, whatever its mode"),
                "start the container with `--device /dev/net/tun`".to_owned(),
            ),
            Self::Other(error) => (
                format!("{TUN} cannot be opened: {error}"),
                "see why root cannot open it either".to_owned(),
            ),
        };
        Some((why, mend))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_mend() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tun");
        assert_eq!(TunAccess::detect(&file), TunAccess::Missing);
        std::fs::write(&file, "").unwrap();
        assert_eq!(TunAccess::detect(&file), TunAccess::Opens);
        assert_eq!(TunAccess::Opens.problem_and_fix(), None);
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let found = file.metadata().unwrap();
        let error = |number| io::Error::from_raw_os_error(number);
        let closed = TunAccess::of(&error(libc::EACCES), Some(&found));
        let owner = found.uid();
        assert_eq!(closed, TunAccess::Closed { mode: 0o600, owner });
        let cases = [
            (
                TunAccess::Missing,
                "there is no /dev/net/tun",
                "`modprobe tun`",
            ),
            (closed, "has the mode 0600", "`chmod 0666 /dev/net/tun`"),
            (
                TunAccess::of(&error(libc::ENODEV), Some(&found)),
                "no driver",
                "`modprobe tun`",
            ),
            (
                TunAccess::of(&error(libc::ENXIO), Some(&found)),
                "no driver",
                "`modprobe tun`",
            ),
            (
                TunAccess::of(&error(libc::EPERM), Some(&found)),
                "container",
                "`--device /dev/net/tun`",
            ),
            (
                TunAccess::of(&error(libc::EIO), Some(&found)),
                "cannot be opened",
                "root",
            ),
        ];
        for (tun, cause, mend) in cases {
            let (why, hint) = tun.problem_and_fix().unwrap();
            assert!(why.contains(cause) && hint.contains(mend), "{why}; {hint}");
        }
        // A device behind which there is nothing.
        assert!(matches!(
            TunAccess::detect(Path::new("/proc/self/mem/tun")),
            TunAccess::Other(_)
        ));
    }
}
