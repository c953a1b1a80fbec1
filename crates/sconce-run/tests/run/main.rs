//! Real runs of a small root file system, as root and as a plain user. What this machine cannot
//! show is said and left out.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, with helpers that clippy does not know as such"
)]

/// By what the tests of this program are run; `runtimes` has those that are run by others too.
const RUNTIMES: &[sconce_schema::Runtime] = &[sconce_schema::Runtime::Sconce];

mod bench;
mod death;
mod ends;
mod engines;
mod exits;
mod inodes;
mod kept;
mod limits;
mod mounts;
mod network;
mod refusals;
mod runtimes;
mod services;
mod terminal;
mod tun;
mod walls;
