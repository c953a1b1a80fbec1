//! What every stage needs beside the written types: files that users name, names that nobody else takes, text that
//! may be shown, secrets that may not.
//!
//! [`input`] reads the files that users name, [`output`] writes them, [`direct_io`] large files past the page cache,
//! [`locks`] tells file systems without locks from locks that others have, [`secrets`] masks what must not be written
//! down, [`text`] takes the teeth out of foreign text, [`tree`] removes and reads what somebody else may change
//! meanwhile, [`words`] splits a line as a shell does, and quotes for one.
#![forbid(unsafe_code)]

pub mod direct_io;
mod env;
pub mod input;
pub mod locks;
pub mod output;
pub mod secrets;
pub mod text;
pub mod tree;
mod unique_names;
pub mod words;

pub use env::Env;
pub use unique_names::random_name;
