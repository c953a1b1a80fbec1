//! Jobs: runs that a scheduler starts on nodes.
//!
//! [`submit`] hands over what was wished, in a folder that all nodes see ([`job_dir`]). On each node the scheduler
//! starts [`node`], which finds its place ([`allocation`]), meets the others ([`meeting`]), brings the environment to a
//! disk of its own where that helps ([`local_store`]) and makes a run of its own of it ([`launch`]). The environment is
//! made by whoever submits, or by a job of its own ([`preparation`]).

pub mod allocated_run;
mod allocation;
mod answers;
mod architectures;
mod claim;
mod containment;
pub mod dependencies;
pub mod enter;
mod environment;
mod fast_network;
mod fault;
mod hand_over;
pub mod job_dir;
mod job_report;
mod launch;
mod layout;
pub mod local_store;
pub mod lookup;
mod meeting;
pub mod node;
pub mod preparation;
mod prepare;
mod program;
pub mod query;
pub mod scheduler_overrides;
mod schedulers;
mod site_image;
pub mod submit;
pub mod sweep;
mod target_path;
mod task_run;
mod wishes;
