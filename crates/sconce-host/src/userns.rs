//! Whether the caller can make a user namespace, and what stands in the way.

use sconce_schema::Hint;

use crate::roots::Roots;
use crate::small_files;

/// Bit of `CAP_SYS_ADMIN` in a capability set (capabilities(7)).
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// Whether user namespaces can be used, as far as files tell; a filter of system calls (a
/// container engine's) is only met when it is tried.
pub type UserNamespaces = Result<(), UsernsObstacle>;

/// What forbids user namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UsernsObstacle {
    /// `/proc/self/ns/user` does not exist.
    #[error("this kernel was built without user namespaces")]
    NotBuilt,
    /// `user.max_user_namespaces` is 0, for root too.
    #[error("user namespaces are switched off (sysctl user.max_user_namespaces is 0)")]
    MaxIsZero,
    /// `kernel.unprivileged_userns_clone` is 0 (Debian's and Arch's patch).
    #[error(
        "plain users may not make user namespaces (sysctl kernel.unprivileged_userns_clone is 0)"
    )]
    Sysctl,
    /// `kernel.apparmor_restrict_unprivileged_userns` is 1 (Ubuntu 23.10 and later) and no
    /// AppArmor profile covers this program.
    #[error(
        "AppArmor keeps plain users from using user namespaces \
         (sysctl kernel.apparmor_restrict_unprivileged_userns is 1)"
    )]
    AppArmor,
}

impl Hint for UsernsObstacle {
    fn hint(&self) -> Option<String> {
        let setting = match self {
            Self::NotBuilt => return Some("run as root, or use another kernel".to_owned()),
            Self::MaxIsZero => "user.max_user_namespaces=15000",
            Self::Sysctl => "kernel.unprivileged_userns_clone=1",
            Self::AppArmor => {
                return Some(
                    "run as root, or let the administrator add an AppArmor profile with \
                     `userns,` for the sconce program, or run `sudo sysctl \
                     kernel.apparmor_restrict_unprivileged_userns=0`"
                        .to_owned(),
                );
            }
        };
        Some(format!("run `sudo sysctl {setting}`, or run as root"))
    }

    fn exit_code(&self) -> u8 {
        sconce_schema::exit::RUN
    }
}

/// Looks, in this order, at: `/proc/self/ns/user`; `user.max_user_namespaces`; for a caller
/// without CAP_SYS_ADMIN `kernel.unprivileged_userns_clone`, then
/// `kernel.apparmor_restrict_unprivileged_userns` together with the caller's own AppArmor label.
pub(crate) fn check_available(roots: &Roots) -> UserNamespaces {
    let proc = &roots.proc;
    // The entry is a link to nowhere that a file system knows.
    if proc.join("self/ns/user").symlink_metadata().is_err() {
        return Err(UsernsObstacle::NotBuilt);
    }
    let sysctl = |name: &str| small_files::read_number(&proc.join("sys").join(name));
    if sysctl("user/max_user_namespaces") == Some(0) {
        return Err(UsernsObstacle::MaxIsZero);
    }
    let status = small_files::read_text(&proc.join("self/status")).unwrap_or_default();
    if privileged(&status) {
        return Ok(());
    }
    if sysctl("kernel/unprivileged_userns_clone") == Some(0) {
        return Err(UsernsObstacle::Sysctl);
    }
    let label = small_files::read_line(&proc.join("self/attr/current"));
    if sysctl("kernel/apparmor_restrict_unprivileged_userns") == Some(1)
        && label.is_none_or(|label| label == "unconfined")
    {
        return Err(UsernsObstacle::AppArmor);
    }
    Ok(())
}

fn privileged(status: &str) -> bool {
    small_files::find_field(status, "CapEff")
        .and_then(|hex| u64::from_str_radix(hex, 16).ok())
        .is_some_and(|set| set & CAP_SYS_ADMIN != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_barrier_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::from_dir(folder.path());
        let write = |name: &str, text: &str| {
            let path = roots.proc.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(check_available(&roots), Err(UsernsObstacle::NotBuilt));
        write("self/ns/user", "");
        write("self/status", "CapEff:\t0000000000000000\n");
        assert_eq!(check_available(&roots), Ok(()));
        write("sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
        assert_eq!(check_available(&roots), Err(UsernsObstacle::AppArmor));
        write("self/attr/current", "sconce (unconfined)\n");
        assert_eq!(check_available(&roots), Ok(()));
        write("self/attr/current", "unconfined\n");
        write("sys/kernel/unprivileged_userns_clone", "0\n");
        assert_eq!(check_available(&roots), Err(UsernsObstacle::Sysctl));
        write("self/status", "CapEff:\t000001ffffffffff\n");
        assert_eq!(
            check_available(&roots),
            Ok(()),
            "root is not bound by these"
        );
        write("sys/user/max_user_namespaces", "0\n");
        assert_eq!(check_available(&roots), Err(UsernsObstacle::MaxIsZero));
        assert!(UsernsObstacle::MaxIsZero.hint().unwrap().contains("sysctl"));
    }
}
