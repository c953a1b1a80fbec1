//! Python packages: resolved by uv, locked as one wheel each.

pub mod build_settings;
pub mod compile;
pub mod compile_error;
pub mod direct_path;
pub mod download_table;
pub mod downloads;
mod index_settings;
pub(crate) mod late_limits;
mod lenient_metadata;
pub mod local_sources;
pub(crate) mod obstacle;
mod poetry_sources;
pub mod prebuilt;
pub mod pylock;
pub(crate) mod python_bounds;
pub mod source_package;
pub mod torch_indexes;
pub mod uv;
mod uv_settings;
mod uv_text;
pub mod versions;

pub use index_settings::IndexSettings;

/// Whether a program's text says that a disk is full (`ENOSPC`, as the C library and Rust say it).
fn says_disk_full(text: &str) -> bool {
    text.contains("No space left on device")
}
