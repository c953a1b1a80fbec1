//! What every stage needs beside the written types: files that users name, names that nobody else takes, text that
//! may be shown, secrets that may not.
//!
//! [`output`] writes the files that users name, [`direct`] large files past the page cache, [`secrets`] masks what
//! must not be written down, [`text`] takes the teeth out of foreign text, [`tree`] removes and reads what somebody
//! else may change meanwhile.
#![forbid(unsafe_code)]

pub mod direct;
mod env;
mod names;
pub mod output;
pub mod secrets;
pub mod text;
pub mod tree;

pub use env::Env;
pub use names::random_name;
