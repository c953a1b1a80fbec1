//! Wheels to trees: downloaded, verified, unpacked and written in one pass.
//!
//! No byte is handled twice: while a wheel arrives it is hashed, inflated and written, and what
//! was written becomes visible only when the SHA-256 of all of it and the archive's directory,
//! which comes last, both agree.

mod error;
mod input;
mod install;
mod layout;
mod partial_wheel;
mod record;
mod script;
mod stream;
mod tree;
mod zip;

pub use error::{WheelError, ZipError};
pub use install::InstallOptions;
pub use partial_wheel::SlowThreshold;
pub use stream::WheelLimits;

/// The kind of wheels' trees among the store's items.
pub const KIND: &str = "wheel";
