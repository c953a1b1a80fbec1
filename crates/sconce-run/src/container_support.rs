//! Whether this machine lets Sconce make a container at all, found out before anything is brought for a run.

use std::io;
use std::path::Path;

use sconce_host::{HostProfile, UsernsObstacle};

use crate::{launch, prepare};

/// What keeps Sconce from making containers here.
#[derive(Debug, thiserror::Error)]
pub enum ContainerObstacle {
    /// The kernel cannot seal mounts (mount_setattr(2), since Linux 5.12).
    #[error("Linux {release} is too old for its containers: 5.12 or newer is needed")]
    Kernel {
        /// Its release.
        release: String,
    },
    /// A plain user's container needs user namespaces.
    #[error(transparent)]
    UserNamespaces(UsernsObstacle),
    /// The settings allow namespaces, and yet the kernel refused, as by a filter of system calls.
    #[error("the kernel refused the namespaces of a container: {0}")]
    Refused(io::Error),
}

/// Looks at the kernel's release and settings, and then makes the namespaces of a container once, for a process that
/// ends at once. `program` is this program.
///
/// # Errors
/// What is in the way.
pub fn check_container_support(
    host: &HostProfile,
    program: &Path,
) -> Result<(), ContainerObstacle> {
    if let Some(release) = host.kernel.as_deref().filter(|text| is_too_old(text)) {
        let release = release.to_owned();
        return Err(ContainerObstacle::Kernel { release });
    }
    let is_root = prepare::is_machine_root();
    if let (Err(obstacle), false) = (host.user_namespaces, is_root) {
        return Err(ContainerObstacle::UserNamespaces(obstacle));
    }
    let user = (!is_root).then_some((1000, 1000));
    launch::try_namespaces(program, user).map_err(ContainerObstacle::Refused)
}

/// Whether a release such as `5.10.0-28-amd64` is of a kernel before 5.12. One that is no release is left to the trial.
fn is_too_old(release: &str) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) < (5, 12),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use sconce_host::Roots;

    use super::*;

    #[test]
    fn kernels_before_5_12_are_too_old() {
        for (release, too_old) in [
            ("5.10.0-28-amd64", true),
            ("5.11.22", true),
            ("4.18.0-553.el8_10.x86_64", true),
            ("3.10.0-1160", true),
            ("5.12.0", false),
            ("5.15.0-1-generic", false),
            ("6.1.0", false),
            ("", false),
            ("next", false),
        ] {
            assert_eq!(is_too_old(release), too_old, "{release}");
        }
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let program = std::env::current_exe().unwrap();
        let host = HostProfile::read(&Roots::default());
        // Where these tests run, containers are made.
        check_container_support(&host, &program).unwrap();
        let old = HostProfile {
            kernel: Some("5.10.0-28-amd64".to_owned()),
            ..host.clone()
        };
        let why = check_container_support(&old, &program).unwrap_err();
        assert!(why.to_string().contains("5.10.0-28-amd64"), "{why}");
        // What no setting tells is met when it is tried.
        let missing = check_container_support(&host, Path::new("/no/such/program"));
        assert!(matches!(missing, Err(ContainerObstacle::Refused(_))));
    }
}
