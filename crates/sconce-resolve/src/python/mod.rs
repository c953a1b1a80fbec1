//! Python packages: resolved by uv, locked as one wheel each.

pub mod compile;
mod index_settings;
pub mod pylock;
pub mod uv;
pub mod versions;

pub use index_settings::IndexSettings;

/// Whether a program's text says that a disk is full (`ENOSPC`, as the C library and Rust say it).
fn says_disk_full(text: &str) -> bool {
    text.contains("No space left on device")
}
