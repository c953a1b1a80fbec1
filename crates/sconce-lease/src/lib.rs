//! Leases: who has which card of this machine, until when, and who waits for one.
//!
//! ```text
//!  ask ──▶ settle ──▶ decide ──▶ events ──append──▶ log ──fold──▶ State ──▶ overview
//!          (time, cards, dead processes)    one writer, flock
//! ```
//!
//! [`State`], [`Policy`] and what is [`Seen`] of the machine go in, [`Event`]s and an [`Answer`]
//! come out ([`decide`]); nothing of that touches a clock or a disk. [`Database`] keeps the events
//! in a file, [`service`] answers several users on a socket and knows them by what the kernel says
//! of the other end.

mod bounds;
mod cautions;
mod clock;
mod database;
mod decide;
mod error;
#[cfg(test)]
mod golden;
mod handles;
mod idle;
mod log;
mod numbers;
mod peer;
mod people;
mod plan;
mod policy;
pub mod service;
mod state;
mod subordinate;
mod types;
mod why;
mod windows;
mod world;

pub use clock::Clock;
pub use database::{Database, Decided};
pub use decide::{decide, overview, settle};
pub use error::{LeaseError, Refusal};
pub use handles::Handles;
pub use idle::{Outsider, Reading, Standing, idle, idle_events, keep, outsiders};
pub use people::{People, is_group, is_user, person};
pub use plan::Planned;
pub use policy::{Limits, Policy, PolicyError};
pub use state::{State, decayed};
pub use types::{
    Answer, Ask, CardFacts, Decision, End, Event, GivenUp, Lease, Millis, Overview, Person,
    Process, Seen, Shown, Take, Waiting, WaitingShown, Wanted,
};
pub use why::Why;
pub use windows::Window;
pub use world::{ThisMachine, World};
