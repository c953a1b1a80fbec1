//! URL and SHA-256 to verified bytes and trees: downloads, unpacking, content addressing, locks.
//!
//! Nothing that this crate hands out was trusted before its SHA-256 was found to be the lock's.
//! [`fetch::Fetcher`] brings bytes, [`Store`] keeps them, [`deb`] unpacks Debian packages,
//! [`rooted`] keeps what is unpacked inside its folder.
#![forbid(unsafe_code)]

mod blob;
pub mod deb;
pub mod direct;
mod error;
pub mod fetch;
mod item;
mod prune;
pub mod rooted;
mod store;
pub mod wheel;

pub use error::{BuildError, StoreError};
pub use item::{Held, remove as remove_tree};
pub use prune::{Pruned, hold};
pub use store::{Store, Synced, Usage};
