//! What engines do each in its own way, in one place: a further engine is a row here.

use sconce_schema::Runtime;

/// How an engine is told what a container is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigForm {
    /// By a bundle of the OCI's runtime specification.
    Bundle,
    /// By podman's command line.
    PodmanArgs,
}

/// What of an engine differs from the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EngineTraits {
    /// The oldest version that the tests are run with, major and minor; what older ones do differently is not known.
    pub(super) oldest: (u32, u32),
    pub(super) form: ConfigForm,
    /// As uid 0 of a user namespace of one user it makes another one, in which the run's user has the uid that was
    /// asked for.
    pub(super) maps_users: bool,
    /// It works without a cgroup of its own where it need not hold devices, and then without seeing any.
    pub(super) works_without_cgroup: bool,
    /// It leaves /dev as it finds it; others fill it unless it is mounted again.
    pub(super) leaves_dev: bool,
    /// It is the parent of the command, not a helper of its own.
    pub(super) is_parent: bool,
    /// It mounts a file system over /sys itself, in a run's directory with a short name.
    pub(super) mounts_system: bool,
}

/// Returns the traits of an engine; `None` for what starts no command in a container that Sconce made.
pub(super) const fn engine_traits(runtime: Runtime) -> Option<EngineTraits> {
    let runc = EngineTraits {
        oldest: (1, 1),
        form: ConfigForm::Bundle,
        maps_users: false,
        works_without_cgroup: false,
        leaves_dev: false,
        is_parent: true,
        mounts_system: false,
    };
    match runtime {
        Runtime::Sconce | Runtime::Docker => None,
        Runtime::Runc => Some(runc),
        Runtime::Crun => Some(EngineTraits {
            oldest: (1, 8),
            maps_users: true,
            works_without_cgroup: true,
            leaves_dev: true,
            ..runc
        }),
        // conmon starts the command.
        Runtime::Podman => Some(EngineTraits {
            oldest: (4, 3),
            form: ConfigForm::PodmanArgs,
            is_parent: false,
            mounts_system: true,
            ..runc
        }),
    }
}
