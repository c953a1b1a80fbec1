//! The append-only log of each run.
