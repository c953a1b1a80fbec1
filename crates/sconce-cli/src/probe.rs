//! The probe: what Sconce brings into a Python program from outside, by a folder ahead on PYTHONPATH.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sconce_memory::forecast::plan::{Plan, Plans};
use sconce_schema::request::{Mount, Root, RunRequest};

use crate::account::Asked;
use crate::failure::{CliError, Result};
use crate::private::Private;
use crate::ranks::World;

/// Where a container sees the probe.
const INSIDE: &str = "/run/sconce/python";
/// Where a container sees the folder that the probe writes to.
const SEEN_INSIDE: &str = "/run/sconce/fit";
/// The same for what it accounts.
const ACCOUNT_INSIDE: &str = "/run/sconce/account";

/// The variable that names plans.
const PLAN: &str = "SCONCE_PLAN";
/// The modules' folder in the probe's.
const PYTHON: &str = "python";

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../../python/", $name)))),*]
    };
}

/// The probe's files.
const FILES: &[(&str, &str)] = files! {
    "sitecustomize.py"
    "sconce_probe/__init__.py"
    "sconce_probe/imports.py"
    "sconce_probe/fit.py"
    "sconce_probe/holds.py"
    "sconce_probe/work.py"
    "sconce_probe/values.py"
    "sconce_probe/ranks.py"
    "sconce_probe/serve.py"
    "sconce_probe/account/__init__.py"
    "sconce_probe/account/cells.py"
    "sconce_probe/account/clock.py"
    "sconce_probe/account/hooks.py"
    "sconce_probe/account/in_place.py"
    "sconce_probe/account/kept.py"
    "sconce_probe/account/memory.py"
    "sconce_probe/account/named.py"
    "sconce_probe/account/on_card.py"
    "sconce_probe/account/oom.py"
    "sconce_probe/account/operations.py"
    "sconce_probe/account/ring.py"
    "sconce_probe/account/seen.py"
    "sconce_probe/account/sharded.py"
    "sconce_probe/plans/__init__.py"
    "sconce_probe/plans/training.py"
    "sconce_probe/plans/blocks.py"
    "sconce_probe/plans/optimizers.py"
    "sconce_probe/plans/offload.py"
    "sconce_probe/plans/sharding.py"
    "sconce_probe/plans/wrapped.py"
};

/// What the probe is to watch.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Where it writes to: any user must be able to.
    pub(crate) seen: PathBuf,
    /// Optimizer steps until the end.
    pub(crate) steps: u32,
    /// Seconds until the end.
    pub(crate) seconds: u32,
    /// Whether the allocator's history is recorded.
    pub(crate) history: bool,
    /// Whether the work of one more step is counted.
    pub(crate) work: bool,
    /// Whether nothing is run, and trials are forked from what was imported.
    pub(crate) serve: bool,
}

/// The probe in a folder of its own, for as long as this is.
#[derive(Debug)]
pub(crate) struct Probe {
    folder: Private,
    watch: Option<Watch>,
    plans: Plans,
    world: Option<World>,
    /// The folder for what it accounts, where it does.
    account: Option<PathBuf>,
    /// What is asked of it then.
    asked: Asked,
}

impl Probe {
    /// One that accounts, applies plans, or makes a world of ranks, in a folder below `scratch`. `None`
    /// where there is none of it to do.
    ///
    /// # Errors
    /// A plan that cannot be applied from outside; a folder that cannot be written.
    pub(crate) fn of_flags(
        account: Option<Asked>,
        plans: Option<&Plans>,
        world: Option<World>,
        scratch: &Path,
    ) -> Result<Option<Self>> {
        let plans = plans.cloned().unwrap_or_default();
        if account.is_none() && plans.is_empty() && world.is_none() {
            return Ok(None);
        }
        // Ranks that are not there save nothing that others would have to read.
        let may = |plan: &Plan| plan.is_of_ranks() && world.is_some();
        let needs_lines = plans.iter().find(|plan| !plan.from_outside() && !may(plan));
        if let Some(plan) = needs_lines {
            return Err(CliError::PlanNeedsLines {
                plan: plan.to_string(),
                lines: plan.lines(),
            }
            .into());
        }
        let mut probe = Self::prepare(None, plans, world, scratch)?;
        if let Some(asked) = account {
            probe.asked = asked;
            let made = crate::account::folder(probe.folder.path());
            probe.account = Some(made.map_err(|source| probe.failed(source))?);
        }
        Ok(Some(probe))
    }

    /// One that watches, applies plans, makes a world of ranks, or all of it.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub(crate) fn prepare(
        watch: Option<Watch>,
        plans: Plans,
        world: Option<World>,
        scratch: &Path,
    ) -> Result<Self> {
        // The run's user finds what is in it by mounts; nobody else has to.
        let folder = scratch.join(format!("probe-{}.private", std::process::id()));
        let made = Self {
            folder: Private::make(&folder)?,
            watch,
            plans,
            world,
            account: None,
            asked: Asked::default(),
        };
        made.write().map_err(|source| made.failed(source))?;
        Ok(made)
    }

    fn failed(&self, source: std::io::Error) -> CliError {
        CliError::File {
            action: "write",
            path: self.folder.path().to_owned(),
            source,
        }
    }

    fn write(&self) -> std::io::Result<()> {
        for (name, text) in FILES {
            let path = self.folder.path().join(PYTHON).join(name);
            let above = path.parent().unwrap_or(self.folder.path());
            fs::create_dir_all(above)?;
            fs::write(&path, text)?;
            // Whatever the caller's file mode mask is: nobody else comes as far as here, and the run's
            // user may be another.
            fs::set_permissions(above, Permissions::from_mode(0o755))?;
            fs::set_permissions(&path, Permissions::from_mode(0o644))?;
        }
        Ok(())
    }

    /// Brings it into the run. `outer` tells a variable that the command inherits.
    pub(crate) fn give(&self, request: &mut RunRequest, outer: impl Fn(&str) -> Option<String>) {
        let at = seen_as(request, &self.folder.path().join(PYTHON), INSIDE, true);
        let behind = request.env.get("PYTHONPATH").cloned();
        let behind = behind.or_else(|| outer("PYTHONPATH"));
        let path = match behind.filter(|path| !path.is_empty()) {
            Some(behind) => format!("{at}:{behind}"),
            None => at,
        };
        if let Some(world) = &self.world {
            world.give(request);
        }
        let mut told = vec![("PYTHONPATH", path)];
        if let Some(watch) = &self.watch {
            let seen = seen_as(request, &watch.seen, SEEN_INSIDE, false);
            told.extend([
                ("SCONCE_FIT", seen),
                ("SCONCE_FIT_STEPS", watch.steps.to_string()),
                ("SCONCE_FIT_SECONDS", watch.seconds.to_string()),
            ]);
            if watch.serve {
                told.push(("SCONCE_FIT_SERVE", "1".to_owned()));
            }
            told.extend(of_trial(&self.plans, watch.history, watch.work));
        } else if !self.plans.is_empty() {
            told.push((PLAN, self.plans.to_string()));
        }
        if let Some(folder) = &self.account {
            let seen = seen_as(request, folder, ACCOUNT_INSIDE, false);
            told.push(("SCONCE_ACCOUNT", seen));
            if self.asked.flops {
                told.push(("SCONCE_ACCOUNT_FLOPS", "1".to_owned()));
            }
            if self.asked.kept {
                told.push(("SCONCE_ACCOUNT_KEPT", "1".to_owned()));
            }
        }
        let told = told.into_iter();
        request
            .env
            .extend(told.map(|(name, value)| (name.to_owned(), value)));
    }

    /// The folder that is written to by what is accounted.
    pub(crate) fn account(&self) -> Option<PathBuf> {
        self.account.clone()
    }

    /// The plans, for the record.
    pub(crate) fn plans(&self) -> Option<String> {
        (!self.plans.is_empty()).then(|| self.plans.to_string())
    }
}

/// The variables in which one trial of a command differs from another.
pub(crate) fn of_trial(plans: &Plans, history: bool, work: bool) -> Vec<(&'static str, String)> {
    let number = |yes: bool| u8::from(yes).to_string();
    let mut told = vec![
        ("SCONCE_FIT_HISTORY", number(history)),
        ("SCONCE_FIT_WORK", number(work)),
    ];
    if !plans.is_empty() {
        told.push((PLAN, plans.to_string()));
    }
    told
}

/// The path under which the command sees a folder of the host's; a container is given it.
fn seen_as(request: &mut RunRequest, folder: &Path, inside: &str, read_only: bool) -> String {
    match request.root {
        Root::Host => folder.display().to_string(),
        Root::Image(_) => {
            request.mounts.push(Mount {
                source: folder.to_owned(),
                target: PathBuf::from(inside),
                read_only,
            });
            inside.to_owned()
        }
    }
}
