//! Known ways out of containers, tried for real as root and as a plain user, each with what it stands
//! for. Where it can be, the same attempt is shown to work outside, so that a test that could not
//! notice anything does not pass. docs/security.md says what is behind each wall.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, with helpers that clippy does not know as such"
)]

use sconce_schema::Runtime;

/// Whoever starts the command, there is no way out. (podman starts runc, and takes its time.)
const RUNTIMES: &[Runtime] = &[Runtime::Sconce, Runtime::Runc, Runtime::Crun];

#[path = "../run/bench.rs"]
#[expect(
    dead_code,
    reason = "the other tests' bench, of which a part is needed"
)]
mod bench;
mod calls;
mod descriptors;
mod files;
mod mounts;
mod others;
mod tools;
