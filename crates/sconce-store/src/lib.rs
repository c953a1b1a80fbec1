//! URL and SHA-256 to verified bytes and trees: downloads, unpacking, content addressing, locks.
//!
//! Nothing that this crate hands out was trusted before its SHA-256 was found to be the lock's.
//! [`Fetcher`](sconce_fetch::Fetcher) brings bytes, [`Store`] keeps them, [`deb`] unpacks Debian packages,
//! [`rooted`] keeps what is unpacked inside its folder.
#![forbid(unsafe_code)]

mod blob;
pub mod deb;
mod error;
mod file_system;
#[cfg(test)]
mod golden;
mod item;
mod lock;
mod prune;
pub mod rooted;
mod store;
mod turn;
mod unfinished;
pub mod wheel;

pub use error::{StoreError, TreeBuildError};
pub use lock::ItemGuard;
pub use prune::{PruneSummary, acquire_item_guards};
pub use store::{Store, StoreUsage, SyncSummary, TreeBuildOptions};
pub use unfinished::{OnBusy, PartialWork};
