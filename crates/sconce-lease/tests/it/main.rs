//! Leases: random programs against a slow, obvious model, and many users at one database.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod disk;
mod fair;
mod model;
mod programs;
mod reasons;
mod served;
mod tools;
