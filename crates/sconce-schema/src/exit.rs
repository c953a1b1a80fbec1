//! The exit codes of the `sconce` program. They are a promise: scripts rely on them.
//!
//! `run`, `shell` and everything else that starts a command pass the command's own code through;
//! Sconce's own failures use the codes that shells and container engines already reserve for
//! this, so that 125 always means "Sconce failed", whatever the command would have returned.

/// Everything that was asked for was done.
pub const OK: u8 = 0;
/// `lock --check`, `outdated`, `audit` or a comparable question was answered "no".
pub const NO: u8 = 1;
/// The command line was wrong (clap's own code).
pub const USAGE: u8 = 2;
/// The spec, the lock or another input file is wrong.
pub const BAD_INPUT: u8 = 3;
/// The packages asked for do not resolve (no such package, no solution, no wheel for the target).
pub const NO_SOLUTION: u8 = 4;
/// The network, an index or a mirror failed, or `--offline` was asked and something is missing.
pub const FETCH: u8 = 5;
/// Bytes were not what the lock says (hash, size, archive structure). Nothing of them was kept.
pub const VERIFY: u8 = 6;
/// The store cannot be used: disk full, no permission, written by a newer Sconce.
pub const STORE: u8 = 7;
/// `--strict` and this machine cannot enforce a limit that was asked for.
pub const UNENFORCED: u8 = 8;
/// A step of `[build]` failed. Nothing of it was kept.
pub const STEP: u8 = 9;
/// `fit` or `check`: it cannot be known from what was seen. Neither yes nor no.
pub const NOT_JUDGED: u8 = 10;
/// A node of a job cannot run it, and another may: a driver that is too old, a card that is not there.
pub const NODE: u8 = 11;
/// A bug in Sconce.
pub const BUG: u8 = 70;
/// The container could not be set up.
pub const RUN: u8 = 125;
/// The command was found but could not be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command does not exist in the environment.
pub const NOT_FOUND: u8 = 127;

/// The code for a command that was ended by `signal`: 128 + its number, as shells do.
#[must_use]
pub fn code_for_signal(signal: i32) -> u8 {
    u8::try_from(signal.saturating_add(128)).unwrap_or(255)
}
