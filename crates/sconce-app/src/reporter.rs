//! What happens while a verb works, as typed events: the verb tells, the program shows.

use std::path::Path;

use sconce_compat::explain::Explanation;
use sconce_compat::tables::HardwareMatch;
use sconce_lease::QueueEntry;
use sconce_record::RecordError;
use sconce_report::RunReport;
use sconce_schema::Finding;
use sconce_schema::event::{ServiceEvent, UnenforcedLimit};
use sconce_schema::progress::{NoProgress, Progress};

use crate::failure::Failure;

/// Something that a person may want to know while a verb works.
#[derive(Debug)]
pub enum AppEvent<'a> {
    /// Limits that this machine cannot enforce.
    LimitsNotEnforced(&'a [UnenforcedLimit]),
    /// No record of this run can be written.
    RunNotRecorded(&'a RecordError),
    /// Some of the record could not be written.
    RecordIncomplete(&'a RecordError),
    /// Something that the run made could not be removed.
    LeftBehind(&'a Path),
    /// A service of the run changed its state.
    Service(&'a ServiceEvent),
    /// Where a service that is there now is opened.
    ServiceLink {
        /// The service's name.
        service: &'a str,
        /// A URL or a command.
        link: &'a str,
    },
    /// What preparing the services found worth saying.
    ServiceNote(&'a str),
    /// The run has begun, and has nothing but services: what they write may be shown.
    OnlyServicesRun {
        /// The run's directory.
        directory: &'a Path,
        /// The services' names.
        services: &'a [String],
    },
    /// What is worth saying of a job, and is no error.
    JobRemark(&'a str),
    /// The run's processes have ended, and write nothing more.
    ProcessesEnded,
    /// The run has ended, and this is its report.
    RunEnded(&'a RunReport),
    /// The run has failed, and what its command wrote last says why.
    RunExplained(&'a Explanation),
    /// All GPUs are asked for, and there is none.
    NoGpu,
    /// A lease of GPUs is waited for.
    LeaseQueued(&'a QueueEntry),
    /// The GPUs of the run's lease are not used, and will be taken back.
    LeaseUnused,
    /// The run's lease is over, so the run is ended.
    LeaseEnded,
    /// The directory of compiled kernels cannot be opened, so the run compiles into its own.
    KernelsNotKept(&'a Failure),
    /// What of the environment will fail on the machines that were looked at.
    WillFail(&'a [Finding]),
    /// Which size was taken of a GPU that was sold with several.
    VirtualGpuSize(&'a HardwareMatch),
    /// An output was written to a file.
    OutputWritten(&'a Path),
    /// A FIFO is waited for until somebody writes to it.
    FifoWait(&'a Path),
    /// What of an image's configuration is not followed.
    ImageNote(&'a str),
    /// Ports of an image that nothing publishes.
    UnpublishedPorts(&'a [String]),
    /// Keys of the user's configuration that this program does not know.
    UnknownConfigKeys {
        /// The file.
        path: &'a Path,
        /// The keys, `registry-mirrors.0.port`.
        keys: &'a [String],
    },
    /// A run in the background ends with the caller's login.
    EndsWithLogin(&'a str),
    /// A step of a build begins.
    BuildStep {
        /// What it belongs to: `run`, `copy`, with the stage's name.
        kind: &'a str,
        /// Its line.
        line: &'a str,
    },
    /// A limit of a build step is not enforced.
    BuildStepLimit(&'a UnenforcedLimit),
}

impl AppEvent<'_> {
    /// Whether it is said even where only errors are wanted: something is lost, or a run is ended from outside.
    pub fn is_essential(&self) -> bool {
        match self {
            Self::RunNotRecorded(_)
            | Self::RecordIncomplete(_)
            | Self::LeftBehind(_)
            | Self::LeaseUnused
            | Self::LeaseEnded
            | Self::FifoWait(_)
            | Self::OnlyServicesRun { .. }
            | Self::ProcessesEnded
            | Self::BuildStep { .. }
            | Self::BuildStepLimit(_) => true,
            Self::LimitsNotEnforced(_)
            | Self::Service(_)
            | Self::ServiceLink { .. }
            | Self::ServiceNote(_)
            | Self::JobRemark(_)
            | Self::RunEnded(_)
            | Self::RunExplained(_)
            | Self::NoGpu
            | Self::LeaseQueued(_)
            | Self::KernelsNotKept(_)
            | Self::WillFail(_)
            | Self::VirtualGpuSize(_)
            | Self::OutputWritten(_)
            | Self::ImageNote(_)
            | Self::UnpublishedPorts(_)
            | Self::UnknownConfigKeys { .. }
            | Self::EndsWithLogin(_) => false,
        }
    }
}

/// Hears of events. It may be called from several threads.
pub trait Reporter: Send + Sync {
    /// Shows `event`, or keeps it, or does nothing.
    fn report(&self, event: &AppEvent<'_>);

    /// Returns what shows the stages of a verb's work.
    fn start_progress(&self) -> Box<dyn Progress> {
        Box::new(NoProgress)
    }
}

/// Shows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoReporter;

impl Reporter for NoReporter {
    fn report(&self, _: &AppEvent<'_>) {}
}
