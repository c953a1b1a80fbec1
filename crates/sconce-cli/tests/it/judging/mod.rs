//! The wiring of `check`, `doctor` and `explain`: the built program on small environments made
//! here, on cards by name, on saved facts, and on machines that stand-ins for NVIDIA's libraries play.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, with helpers that clippy does not know as such"
)]

mod check;
mod doctor;
mod explain;
pub(crate) mod home;
