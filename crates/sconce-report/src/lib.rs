//! Records to reports for people and programs.
//!
//! A record is folded once into one view model, [`Report`]; each way to show it is a folder of
//! its own and a function of the model: [`terminal`] for people, [`json`] for programs. They
//! give text; the program prints it.
//!
//! A figure that was not measured stays `None` to the end: it is shown as `–` or as "not
//! measured", or as `null`, never as 0.
#![forbid(unsafe_code)]

mod fold;
mod hints;
pub mod json;
mod model;
pub mod terminal;
mod timeline;
mod words;

pub use model::{At, Card, Cpu, Disk, End, Energy, Memory, Report, RunRow, Tasks};
pub use timeline::Timeline;
