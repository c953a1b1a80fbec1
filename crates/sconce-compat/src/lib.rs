//! Will it run? An environment's own bytes and a machine's facts to findings.
//!
//! Nothing here touches a disk or a machine: bytes, locks and facts come in, findings go out. So an
//! environment can be judged for a card that is nowhere near.
#![forbid(unsafe_code)]

pub mod binary;
pub mod correlate;
pub mod explain;
pub mod library;
pub mod loader;
pub mod matrix;
pub mod rules;
pub mod tables;
