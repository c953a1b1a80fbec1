//! What a job is, before anybody has it: the spec and what its caller says become a request, and its environment is made,
//! or fetched for whoever makes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sconce_image::find_missing_packages;
use sconce_schema::job::{self, JobRequest, PreparationRequest, preparation_token};
use sconce_schema::lock::Lock;
use sconce_schema::request::Mount;
use sconce_schema::spec::{JobContainment, LaunchMode, TargetSpec};
use sconce_schema::{Bytes, Runtime, Sha256, duration};
use sconce_submit::StepContainer;
use sha2::Digest as _;

use super::containment::{ContainedJob, choose_containment};
use super::environment::{EnvironmentForm, JobEnvironment};
use super::job_dir::JobDir;
use super::layout::LayoutWishes;
use super::site_image::{find_site_image, list_machine_mounts, write_bundle};
use super::submit::{JobOptions, SubmissionError, find_target};
use super::sweep::describe_unused;
use super::wishes::JobWishes;
use crate::command_context::CommandContext;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::environment_builder::debian_architecture;
use crate::failure::{AppError, Result};
use crate::input;
use crate::offline::list_unfetched;
use crate::project::Project;
use crate::protected_dirs;
use crate::reporter::AppEvent;
use crate::run_id::{new_id, unix_ms};
use crate::run_options::{ResolvedRunOptions, RunOverrides};

/// How long nodes wait for each other where nobody says otherwise.
const DEFAULT_MEETING_TIMEOUT: Duration = Duration::from_secs(120);

/// The variable for the store.
pub(super) const STORE: &str = "SCONCE_STORE";
/// Variables that say where Sconce's folders are.
const DIRECTORY_VARIABLES: [&str; 5] = [
    "HOME",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
];

/// A job whose directory can be written.
pub(super) struct PreparedJob {
    /// What is handed over.
    pub(super) request: JobRequest,
    /// Values of the caller's variables that its run is given by name.
    pub(super) variables: BTreeMap<String, String>,
    /// What the script needs and is not there yet, of a dry run.
    pub(super) lacks: Option<&'static str>,
    /// The target of the job that makes its environment, where one does.
    pub(super) preparing: Option<TargetSpec>,
    /// The environment in the form that the site's container takes.
    site_image: Option<PathBuf>,
    /// What of the machine is in the site's container.
    mounts: Vec<Mount>,
    spec_text: String,
    lock_text: String,
}

impl PreparedJob {
    /// Locks the project and brings its environment; for a dry run, takes the lock that is there.
    ///
    /// # Errors
    /// It cannot be locked or brought, or cannot be a job.
    pub(super) fn new(
        opened: &CommandContext,
        overrides: &RunOverrides,
        command: &[String],
        job: &JobOptions,
        target: &TargetSpec,
        context: &AppContext,
    ) -> Result<Self> {
        let (project, places) = (&opened.project, &opened.places);
        let here = crate::run::current_folder()?;
        let run = &project.spec.run;
        let options = ResolvedRunOptions::merge(
            run,
            &project.folder,
            overrides,
            &here,
            command,
            &context.env,
        )?;
        if options.runtime != Runtime::Sconce {
            return Err(SubmissionError::OtherRuntime(options.runtime).into());
        }
        protected_dirs::validate_mounts(&options.mounts, Some(&project.folder), places)?;
        let containment = choose_containment(job, target)?;
        let contained = ContainedJob {
            containment,
            project,
            options: &options,
            env: &context.env,
        };
        let wishes = JobWishes::new(
            run,
            overrides,
            &here,
            &options.workdir,
            command,
            &context.env,
        )?;
        let launch = job.launch.or(target.launch);
        contained.validate_site(launch.unwrap_or(LaunchMode::Node))?;
        let form = EnvironmentForm {
            containment,
            local_store: target.local_store.as_deref(),
        };
        let preparing = find_preparing(job, target, project, places)?;
        let bringing = EnvironmentBringing {
            opened,
            contained: &contained,
            form,
            preparing: preparing.as_ref(),
            context,
        };
        let brought = match job.dry_run {
            true => bringing.find(overrides)?,
            false => bringing.bring(overrides)?,
        };
        let lock = brought.lock;
        contained.validate(lock.as_ref())?;
        let chosen = LayoutWishes {
            job,
            target,
            spec_gpus: run.gpus.as_ref(),
            options: &options,
            containment,
            lock: lock.as_ref(),
            folder: &project.folder,
        }
        .choose()?;
        if let Some(remark) = &chosen.remark {
            context.report(&AppEvent::JobRemark(remark));
        }
        let array = job.array.read()?;
        if let Some(remark) =
            (array.as_ref()).and_then(|array| describe_unused(array, &options.command))
        {
            context.report(&AppEvent::JobRemark(&remark));
        }
        if let Some(gaps) = contained.describe_gaps() {
            context.report(&AppEvent::JobRemark(&gaps));
        }
        let lock_text = match &lock {
            Some(_) => {
                let path = project.lock_file();
                input::read_text(&path).map_err(AppError::unreadable(&path))?
            }
            None => String::new(),
        };
        let path = &project.file;
        let mounts = list_machine_mounts(
            &options.mounts,
            &[
                places.store.as_path(),
                &places.scratch,
                &places.state,
                &places.config_folder,
                &project.folder,
            ],
        );
        let token = new_id(&project.name, &places.jobs);
        let preparing = preparing.filter(|_| brought.is_prepared_later);
        let preparation = preparing.as_ref().map(|(name, _)| PreparationRequest {
            target: name.clone(),
            token: preparation_token(&token),
            local_store: target.local_store.clone(),
            mounts: match containment {
                JobContainment::Slurm => mounts.clone(),
                _ => Vec::new(),
            },
        });
        Ok(Self {
            request: JobRequest {
                format: job::FORMAT,
                token,
                name: project.name.clone(),
                spec: project.file.clone(),
                run: wishes.run,
                directories: own_directories(places, context),
                lock: Sha256(sha2::Sha256::digest(lock_text.as_bytes()).into()),
                architecture: debian_architecture().to_owned(),
                layout: chosen.layout,
                starts_own_ranks: chosen.starts_own_ranks,
                array,
                containment,
                strict: overrides.strict,
                engine: target.engine,
                meet_within_ms: meeting_timeout(target),
                local_store: brought.environment.local_store,
                preparation,
                host_plugins: target.host_plugins,
                unix_ms: unix_ms(),
            },
            variables: wishes.variables,
            lacks: brought.lacks,
            preparing: preparing.map(|(_, target)| target),
            site_image: brought.environment.site_image,
            mounts,
            spec_text: input::read_text(path).map_err(AppError::unreadable(path))?,
            lock_text,
        })
    }

    /// CPUs of each process that the scheduler starts, where that is known.
    pub(super) fn cpus_per_task(&self, target: &TargetSpec) -> Option<u32> {
        let cpus = self.request.run.cpus.map(|cpus| cpus.0.div_ceil(1000));
        let cpus = cpus.or(target.cpus_per_node)?;
        Some((cpus / self.request.layout.tasks_per_node()).max(1))
    }

    /// Makes the job's directory.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self, dir: &JobDir) -> Result<()> {
        let (spec, lock) = (self.spec_text.as_bytes(), self.lock_text.as_bytes());
        dir.create(&self.request, spec, lock)?;
        if !self.variables.is_empty() {
            dir.write_variables(&self.variables)?;
        }
        if let (JobContainment::Slurm, Some(tree)) = (self.request.containment, &self.site_image) {
            write_bundle(dir, tree, &self.mounts)?;
        }
        Ok(())
    }

    /// The container that the scheduler is to start, where it starts one; `bundle` and `squashfs` are the job's.
    pub(super) fn step_container<'a>(
        &'a self,
        bundle: &'a Path,
        squashfs: &'a Path,
    ) -> Option<StepContainer<'a>> {
        let image = match &self.request.preparation {
            Some(_) => Some(squashfs),
            None => self.site_image.as_deref(),
        };
        match self.request.containment {
            JobContainment::Slurm => Some(StepContainer::Bundle(bundle)),
            JobContainment::Pyxis => Some(StepContainer::Squashfs {
                image: image.unwrap_or(Path::new("/missing/image.sqsh")),
                mounts: &self.mounts,
            }),
            JobContainment::Sconce | JobContainment::Apptainer | JobContainment::None => None,
        }
    }
}

/// The target on whose nodes the environment is made, with its name: what the caller says, or else the job's own target.
///
/// # Errors
/// There is none of this name, it is the job's own, or another scheduler's.
fn find_preparing(
    job: &JobOptions,
    target: &TargetSpec,
    project: &Project,
    places: &SconceDirs,
) -> Result<Option<(String, TargetSpec)>> {
    let Some(name) = job.prepare_on.as_ref().or(target.prepare_on.as_ref()) else {
        return Ok(None);
    };
    let own = job.target.clone();
    if *name == own {
        return Err(SubmissionError::PreparesOnItself { target: own }.into());
    }
    let preparing = find_target(name, project, places)?;
    if preparing.engine != target.engine {
        return Err(SubmissionError::PreparesElsewhere {
            target: own,
            other: name.clone(),
            engine: preparing.engine.name(),
        }
        .into());
    }
    Ok(Some((name.clone(), preparing)))
}

/// How a job's environment comes to where nodes find it.
struct EnvironmentBringing<'a> {
    opened: &'a CommandContext,
    contained: &'a ContainedJob<'a>,
    form: EnvironmentForm<'a>,
    /// The target on whose nodes it is made; absent where that is done here.
    preparing: Option<&'a (String, TargetSpec)>,
    context: &'a AppContext,
}

/// What is known of a job's environment when the job is handed over.
struct BroughtEnvironment {
    /// Its lock; a dry run makes none.
    lock: Option<Lock>,
    /// What is there of it.
    environment: JobEnvironment,
    /// Whether a job of its own makes it.
    is_prepared_later: bool,
    /// What is not there that the script needs.
    lacks: Option<&'static str>,
}

impl EnvironmentBringing<'_> {
    /// Locks the project, and makes its environment or fetches what it is made of.
    fn bring(&self, overrides: &RunOverrides) -> Result<BroughtEnvironment> {
        let (opened, context) = (self.opened, self.context);
        let builder = opened.environment_builder(overrides.sources.clone(), context);
        let locked = match self.preparing {
            Some(_) => builder.ensure_lock_file()?,
            None => builder.ensure_lock()?,
        };
        self.contained.validate(Some(&locked))?;
        let lock = builder.with_editable_projects(&locked)?;
        let mut brought = BroughtEnvironment {
            lock: Some(locked),
            environment: JobEnvironment::default(),
            is_prepared_later: false,
            lacks: None,
        };
        match self.preparing {
            None => brought.environment = self.form.make(&builder, &lock, context)?,
            Some((name, _)) => match self.form.find(&builder, &lock)? {
                Some(environment) => {
                    let remark = format!("the environment is there: nothing is prepared on {name}");
                    context.report(&AppEvent::JobRemark(&remark));
                    brought.environment = environment;
                }
                None => {
                    let (count, bytes) = builder.fetch_packages(&lock)?;
                    let fetched = match count {
                        0 => "every file is there".to_owned(),
                        1 => format!("1 file was fetched ({})", Bytes(bytes)),
                        _ => format!("{count} files were fetched ({})", Bytes(bytes)),
                    };
                    let remark = format!("{fetched}; the environment is made of them on {name}");
                    context.report(&AppEvent::JobRemark(&remark));
                    brought.is_prepared_later = true;
                }
            },
        }
        opened.progress.finish();
        Ok(brought)
    }

    /// As [`Self::bring`], with the lock that is there, where nothing is fetched and made.
    fn find(&self, overrides: &RunOverrides) -> Result<BroughtEnvironment> {
        let opened = self.opened;
        let lock = opened.project.load_lock()?;
        let lock = lock.filter(|lock| lock.inputs == opened.project.inputs);
        let mut brought = BroughtEnvironment {
            environment: JobEnvironment::default(),
            is_prepared_later: self.preparing.is_some(),
            lacks: match lock {
                Some(_) => None,
                None => Some("lock of this spec"),
            },
            lock,
        };
        let Some(lock) = &brought.lock else {
            return Ok(brought);
        };
        let containment = self.form.containment;
        if self.preparing.is_none() {
            let image = find_site_image(containment, lock, &opened.store);
            if image.is_none() && !containment.is_own() {
                brought.lacks = Some("environment in the form that its nodes take");
            }
            brought.environment.site_image = image;
            return Ok(brought);
        }
        let builder = opened.environment_builder(overrides.sources.clone(), self.context);
        match self.form.find(&builder, lock)? {
            Some(environment) => {
                brought.environment = environment;
                brought.is_prepared_later = false;
            }
            None => {
                let missing = find_missing_packages(lock, &opened.store);
                if !list_unfetched(&missing).is_empty() {
                    brought.lacks = Some("file of every package");
                }
            }
        }
        Ok(brought)
    }
}

/// Where Sconce's folders are for whoever hands a job over.
fn own_directories(places: &SconceDirs, context: &AppContext) -> BTreeMap<String, String> {
    let named = DIRECTORY_VARIABLES.into_iter();
    let named = named.filter_map(|name| Some((name.to_owned(), context.env.var(name)?.to_owned())));
    let store = places.store.to_string_lossy().into_owned();
    named.chain([(STORE.to_owned(), store)]).collect()
}

fn meeting_timeout(target: &TargetSpec) -> u64 {
    let said = target.meet_within.as_deref();
    said.and_then(|text| duration::parse_milliseconds(text).ok())
        .unwrap_or_else(|| u64::try_from(DEFAULT_MEETING_TIMEOUT.as_millis()).unwrap_or(u64::MAX))
}
