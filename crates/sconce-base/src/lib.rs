//! What every stage needs beside the written types: files that users name, names that nobody else takes, text that
//! may be shown, secrets that may not.
//!
//! [`input`] reads the files that users name, [`output`] writes them, [`direct`] large files past the page cache,
//! [`secrets`] masks what must not be written down, [`text`] takes the teeth out of foreign text, [`tree`] removes and
//! reads what somebody else may change meanwhile.
#![forbid(unsafe_code)]

pub mod direct;
mod env;
pub mod input;
mod names;
pub mod output;
pub mod secrets;
pub mod text;
pub mod tree;

pub use env::Env;
pub use names::random_name;
