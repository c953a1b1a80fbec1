//! Spec to lock: Python packages through uv, Debian packages from the signed apt indexes.
#![forbid(unsafe_code)]

pub mod audit;
mod build_failure;
mod compiler;
pub mod debian;
mod debian_packages;
mod direct_limits;
mod documents;
pub mod ecosystem;
mod error;
#[cfg(test)]
mod golden;
mod hidden_sources;
mod http_cache;
mod late_rounds;
pub mod library_packages;
mod lock;
mod lock_input;
#[cfg(test)]
mod lock_testing;
pub mod outdated;
mod project_builds;
pub mod python;
mod python_search;
mod services;
mod source_builds;
mod source_names;
mod stages;
mod system_needs;

pub use build_failure::BuildFailure;
pub use documents::{DocumentSource, LatestDocument, StoreDocuments};
pub use error::ResolveError;
pub use lock::{ResolvedLock, resolve, resolve_lock};
pub use lock_input::{LockContext, LockInput};
pub use project_builds::ProjectBuild;
pub use source_builds::{BuildSetting, BuiltWheel, ResolveRequirements, SourceBuilder};
