//! Making the environment of a job by a job of its own, on one node without cards: machines that people log in to end
//! long work.
//!
//! `submit` locks and fetches, which takes little but time and needs the network that nodes often lack. Everything else,
//! unpacking, building sources, compiling bytecode, packing, happens here, from files in the store.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use sconce_image::find_missing_packages;
use sconce_schema::job::{FORMAT, JobRequest, PreparationRequest, PreparedEnvironment};
use sconce_schema::spec::JobContainment;
use sconce_schema::{Hint, exit};

use super::allocation::Allocation;
use super::claim::claim_job;
use super::environment::EnvironmentForm;
use super::fault::JobFault;
use super::job_dir::JobDir;
use super::node::{as_submitted, check_architecture, read_job_lock};
use super::site_image::write_bundle;
use super::task_run::TaskRun;
use crate::command_context::CommandContext;
use crate::context::AppContext;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::offline::list_unfetched;
use crate::project::Project;
use crate::reporter::AppEvent;
use crate::run_id::unix_ms;
use crate::sources::{LockUse, PackageSources};

/// Why a job's environment is not made.
#[derive(Debug, thiserror::Error)]
pub(super) enum PreparationError {
    /// Whoever submitted the job made it.
    #[error("job {0} has no preparation: its environment was there when it was submitted")]
    NotAsked(String),
    /// What was fetched has left the store since.
    #[error("the store lacks {} files that were fetched when the job was submitted: {}", missing.len(), missing.join(", "))]
    NotFetched {
        /// The files.
        missing: Vec<String>,
    },
}

impl Hint for PreparationError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotAsked(_) => "start its other script".to_owned(),
            Self::NotFetched { .. } => "submit it again, which fetches them".to_owned(),
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::NotAsked(_) => exit::BAD_INPUT,
            Self::NotFetched { .. } => exit::FETCH,
        }
    }
}

/// Makes the environment of the job in `dir`, as the one task of a job before it.
///
/// # Errors
/// Whatever keeps it from being made. The job's directory says so too.
pub fn prepare_job(dir: &Path, context: &AppContext) -> Result<u8> {
    let whole = JobDir::at(dir);
    let job = whole.read_job()?;
    let context = &AppContext {
        offline: true,
        ..as_submitted(&job, context)
    };
    let not_asked = || PreparationError::NotAsked(job.token.clone());
    let request = job.preparation.as_ref().ok_or_else(not_asked)?;
    let host_name = rustix::system::uname();
    let allocation = Allocation::from_env(&context.env, &host_name.nodename().to_string_lossy())?;
    let dir = whole.preparation();
    claim_job(&dir, &job, &allocation.scheduler_id, context)?;
    dir.note_start_by_hand(&allocation.scheduler_id)?;
    let mut task = TaskRun {
        node: allocation.node_of(0).to_owned(),
        run: None,
        scheduler_job: None,
        asked_to_end: false,
        exit: None,
        ended_unix_ms: None,
        fault: None,
    };
    dir.write_task(0, &task)?;
    let began = Instant::now();
    let made = make_environment(&whole, &job, request, &task.node, context);
    task.exit = Some(
        made.as_ref()
            .map_or_else(|failure| failure.exit_code(), |()| exit::OK),
    );
    let fault = |failure| JobFault::of_failure(&task.node, failure);
    task.fault = made.as_ref().err().map(fault);
    task.ended_unix_ms = Some(unix_ms());
    dir.write_task(0, &task)?;
    made.map(|()| {
        let (node, seconds) = (&task.node, began.elapsed().as_secs_f64());
        let remark = format!("node {node}: the environment was made in {seconds:.1} s");
        context.report(&AppEvent::JobRemark(&remark));
        exit::OK
    })
}

fn make_environment(
    dir: &JobDir,
    job: &JobRequest,
    request: &PreparationRequest,
    node: &str,
    context: &AppContext,
) -> Result<()> {
    let lock = read_job_lock(dir, job)?;
    check_architecture(job, node)?;
    let project = Project::open_copy(&dir.spec(), &job.spec, &dir.lock())?;
    let opened = CommandContext::open(project, context)?;
    let missing = list_unfetched(&find_missing_packages(&lock, &opened.store));
    if !missing.is_empty() {
        return Err(PreparationError::NotFetched { missing }.into());
    }
    let sources = PackageSources {
        lock_use: LockUse::Frozen,
        ..PackageSources::default()
    };
    let builder = opened.environment_builder(sources, context);
    let lock = builder.with_editable_projects(&builder.ensure_lock()?)?;
    let form = EnvironmentForm {
        containment: job.containment,
        local_store: request.local_store.as_deref(),
    };
    let environment = form.make_with_bytecode(&builder, &lock, context)?;
    opened.progress.finish();
    if let Some(image) = &environment.site_image {
        write_container(dir, job.containment, image, request)?;
    }
    dir.write_prepared(&PreparedEnvironment {
        format: FORMAT,
        local_store: environment.local_store,
    })
}

/// Writes what the scheduler starts a container by, where it starts one; `image` is the environment's.
///
/// # Errors
/// The disk's, and a mount that has no place in it.
fn write_container(
    dir: &JobDir,
    containment: JobContainment,
    image: &Path,
    request: &PreparationRequest,
) -> Result<()> {
    match containment {
        JobContainment::Slurm => {
            // Of an earlier start of this one.
            let _ = fs::remove_dir_all(dir.bundle());
            write_bundle(dir, image, &request.mounts)
        }
        JobContainment::Pyxis => {
            let link = dir.squashfs();
            let _ = fs::remove_file(&link);
            Ok(symlink(image, &link).map_err(|source| AppError::File {
                action: FileAction::Create,
                path: link,
                source,
            })?)
        }
        JobContainment::Sconce | JobContainment::Apptainer | JobContainment::None => Ok(()),
    }
}
