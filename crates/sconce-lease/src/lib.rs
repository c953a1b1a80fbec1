//! Leases: who has which card of this machine, until when, and who waits for one.
//!
//! ```text
//!  ask ──▶ settle ──▶ decide ──▶ events ──append──▶ log ──fold──▶ State ──▶ overview
//!          (time, cards, dead processes)    one writer, flock
//! ```
//!
//! [`LeaseState`], [`Policy`] and what is [`SystemObservation`] of the machine go in, [`LeaseEvent`]s and an [`LeaseResponse`]
//! come out ([`decide`]); nothing of that touches a clock or a disk. [`Database`] keeps the events
//! in a file, [`service`] answers several users on a socket and knows them by what the kernel says
//! of the other end.

mod accounts;
mod clock;
mod database;
mod decide;
mod error;
#[cfg(test)]
mod golden;
mod handles;
mod idle;
mod log;
mod maintenance;
mod numbers;
mod peer;
mod policy;
mod policy_warnings;
mod quotas;
mod schedule;
pub mod service;
mod state;
mod subordinate_ids;
mod system;
mod types;
mod wait_reason;

pub use accounts::{AccountCache, is_group, is_user, user_by_uid};
pub use clock::ClockReading;
pub use database::{Database, WrittenDecision};
pub use decide::{advance_time, build_overview, decide_request};
pub use error::{LeaseError, LeaseRefusal};
pub use handles::Handles;
pub use idle::{
    IdleState, UnleasedProcess, UtilizationSample, classify_idle_state, idle_events,
    list_unleased_processes, push_sample,
};
pub use maintenance::MaintenanceWindow;
pub use policy::{LeaseLimits, Policy, PolicyError};
pub use schedule::ScheduledRequest;
pub use state::{LeaseState, decayed_amount};
pub use system::{LeaseSystem, LocalSystem};
pub use types::{
    AbandonedRequest, AcquireRequest, Decision, GpuSelection, Lease, LeaseEnd, LeaseEvent,
    LeaseGpu, LeaseRequest, LeaseResponse, LeaseSummary, LeaseUser, Millis, Overview, ProcessRef,
    QueueEntry, QueuedRequest, SystemObservation,
};
pub use wait_reason::WaitReason;
