//! The written types of Sconce and their units.
//!
//! Every file that one stage writes and another reads is declared here, so that stages meet
//! through values and never through each other's code. Nothing in this crate touches a disk, a
//! network, the environment or a clock.
#![forbid(unsafe_code)]

pub mod duration;
pub mod environment_layers;
pub mod event;
pub mod exit;
pub mod facts;
pub mod finding;
pub mod hint;
pub mod job;
pub mod lock;
pub mod network;
pub mod number_set;
pub mod progress;
pub mod request;
pub mod runtime;
pub mod service;
pub mod spec;
pub mod tag;
pub mod training;
pub mod units;

pub use environment_layers::EnvironmentLayers;
pub use facts::HostFacts;
pub use finding::Finding;
pub use hint::Hint;
pub use job::JobRequest;
pub use lock::Lock;
pub use number_set::NumberSet;
pub use progress::{MakerProcess, NoProgress, Progress, WaitCause};
pub use request::RunRequest;
pub use runtime::Runtime;
pub use service::RunService;
pub use spec::Spec;

pub use units::{
    Bytes, ComputeCapability, CudaVersion, DriverVersion, LockedMemory, Millicores, Sha256,
};
