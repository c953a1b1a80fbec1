//! Keeping an environment up: what newer exists than a lock holds, and what is known against it.

mod aliases;
pub mod audit;
pub mod changes;
pub mod database;
mod judge;
pub mod osv;
#[cfg(test)]
mod testing;
pub mod versions;

pub use audit::{AuditReport, LockAuditor};
pub use changes::{LockChanges, diff_locks};
