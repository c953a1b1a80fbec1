//! Jobs: runs that a scheduler starts on nodes.
//!
//! [`submit`] hands over what was wished, in a folder that all nodes see ([`job_dir`]). On each node the scheduler
//! starts [`node`], which finds its place ([`allocation`]), meets the others ([`meeting`]) and makes a run of its own
//! of it ([`launch`]).

mod allocation;
mod containment;
mod gpus;
pub mod job_dir;
mod launch;
pub mod lookup;
mod meeting;
pub mod node;
mod program;
mod schedulers;
mod site_image;
pub mod submit;
mod wishes;
