//! Pages about runs, and the server that shows them.
//!
//! [`view`] is the page of runs, served or in one file; [`html`] is what every page is made of; [`server`] answers
//! browsers and Prometheus; [`otlp`] sends metrics to a collector. Nothing here prints or reads arguments.
#![forbid(unsafe_code)]

#[cfg(test)]
mod golden;
pub mod html;
pub mod otlp;
pub mod server;
pub mod view;
