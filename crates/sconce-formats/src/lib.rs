//! Formats of others that more than one stage reads, as bytes and text alone: names of wheels, names of projects,
//! what a `pyproject.toml` says of its project.
#![forbid(unsafe_code)]

mod names;
pub mod pyproject;
pub mod tags;

pub use names::normalize_project_name;
