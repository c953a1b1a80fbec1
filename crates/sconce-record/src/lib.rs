//! The append-only log of each run.
//!
//! A run has a folder of its own, `runs/<id>/`, with a file, [`FILE`]: one JSON object a line
//! ([`sconce_schema::event::RecordLine`]), the first one [`RunStarted`](sconce_schema::event::RunStarted). When it
//! has grown it is compressed into a part, `events-0001.jsonl.zst`, and begun anew; readers read the
//! parts and the file as one. Everything that is ever said about a run is a function of them.
//!
//! While a run goes on, its [`RecordWriter`] holds an exclusive lock on the file (`flock`), which the
//! kernel drops when the program ends in whatever way. So a run is *running* when the lock is
//! held, *ended* when its last line says so, and *interrupted* otherwise; no process id that may
//! have been given to somebody else is ever trusted.
#![forbid(unsafe_code)]

mod append;
mod error;
mod fast_parser;
mod id;
mod preallocation;
mod process_names;
mod read;
mod runs;
mod segments;
mod write;

pub use error::RecordError;
pub use id::{UtcMinute, new_id};
pub use read::{DamageKind, DamagedLine, RecordReader, open_record};
pub use runs::{
    RunEntry, RunListing, RunState, list_runs, prune_runs, read_run_entry, resolve_run,
};
pub use write::RecordWriter;

/// The log's file name inside a run's folder.
pub const FILE: &str = "events.jsonl";
