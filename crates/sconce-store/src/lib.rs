//! URL and SHA-256 to verified bytes and trees: downloads, unpacking, content addressing, locks.
//!
//! Nothing that this crate hands out was trusted before its SHA-256 was found to be the lock's.
//! [`Fetcher`](sconce_fetch::Fetcher) brings bytes, [`Store`] keeps them, [`deb`] unpacks Debian packages,
//! [`standalone_python`] Pythons,
//! [`scoped_root`] keeps what is unpacked inside its folder.
#![forbid(unsafe_code)]

mod blob;
pub mod deb;
mod error;
mod file_system;
#[cfg(test)]
mod golden;
mod item;
mod item_access;
pub mod item_pack;
mod lock;
mod partial_work;
mod prune;
pub mod scoped_root;
pub mod standalone_python;
mod store;
mod tar_stream;
pub mod wheel;

pub use error::{StoreError, TreeBuildError};
pub use file_system::{is_local, is_local_disk, network_file_system};
pub use lock::ItemGuard;
pub use partial_work::{OnBusy, PartialWork};
pub use prune::{PruneSummary, acquire_item_guards, item_of_path};
#[doc(hidden)]
pub use store::Machine;
pub use store::{Store, StoreUsage, SyncSummary, TreeBuildOptions};
