//! Spec to lock: Python packages through uv, Debian packages from the signed apt indexes.
#![forbid(unsafe_code)]

mod compiler;
pub mod debian;
mod documents;
mod error;
#[cfg(test)]
mod golden;
mod kept;
mod lock;
pub mod python;
mod services;
mod stages;
pub mod upkeep;

pub use documents::{DocumentSource, LatestDocument, StoreDocuments};
pub use error::ResolveError;
pub use lock::{LockContext, LockInput, ResolvedLock, resolve, resolve_lock};
