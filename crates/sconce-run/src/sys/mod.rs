//! The kernel calls that neither the standard library nor rustix have, each with a safe face or
//! with what its caller must promise.

pub(crate) mod bpf;
pub(crate) mod clone;
pub(crate) mod exec;
pub(crate) mod follow;
pub(crate) mod landlock;
pub(crate) mod mount;
pub(crate) mod numa;
pub(crate) mod pipes;
pub(crate) mod priority;
pub(crate) mod seccomp;
pub(crate) mod signals;
pub(crate) mod socket;
pub(crate) mod usage;
