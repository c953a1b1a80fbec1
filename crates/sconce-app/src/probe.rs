//! The probe: what Sconce brings into a Python program from outside, by a folder ahead on PYTHONPATH.
//!
//! Its modules are an item of the store under the digest of their names and bytes, made once and held as
//! long as a run has them.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sconce_memory::forecast::training_plan::{TrainingPlan, TrainingPlans};
use sconce_memory::forecast::values::SubstituteValues;
use sconce_schema::Sha256;
use sconce_schema::request::{Mount, RunRequest, RunRoot};
use sconce_store::{ItemGuard, Store, StoreError, TreeBuildError};
use sha2::Digest as _;

use crate::accounting::{AccountingOptions, ProbeDirectory};
use crate::dirs::SconceDirs;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::ranks::RankWorld;
use crate::run_temp_dir::RunTempDir;

/// Where a container sees the probe.
const CONTAINER_DIR: &str = "/run/sconce/python";
/// Where a container sees the folder that the probe writes to.
const SEEN_INSIDE: &str = "/run/sconce/fit";
/// The same for what it accounts.
const ACCOUNT_INSIDE: &str = "/run/sconce/account";

/// The variable that names plans.
const PLAN: &str = "SCONCE_PLAN";
/// The kind of the modules' item in the store.
const KIND: &str = "probe";
/// The modules' folder in it.
const PYTHON: &str = "python";
/// Where Python keeps the bytecode of a folder's modules.
const BYTECODE: &str = "__pycache__";

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
    "sconce_probe/live_objects.py"
    "sconce_probe/work.py"
    "sconce_probe/values.py"
    "sconce_probe/substitute_values.py"
    "sconce_probe/remaining_code.py"
    "sconce_probe/evaluation.py"
    "sconce_probe/executed.py"
    "sconce_probe/program.py"
    "sconce_probe/unreached.py"
    "sconce_probe/ranks.py"
    "sconce_probe/fork_server.py"
    "sconce_probe/account/__init__.py"
    "sconce_probe/account/cells.py"
    "sconce_probe/account/clock.py"
    "sconce_probe/account/hooks.py"
    "sconce_probe/account/frame_hooks.py"
    "sconce_probe/account/leak_detection.py"
    "sconce_probe/account/memory.py"
    "sconce_probe/account/object_names.py"
    "sconce_probe/account/gpu_timing.py"
    "sconce_probe/account/oom.py"
    "sconce_probe/account/operations.py"
    "sconce_probe/account/ring.py"
    "sconce_probe/account/batch_facts.py"
    "sconce_probe/account/sharded.py"
    "sconce_probe/plans/__init__.py"
    "sconce_probe/plans/training.py"
    "sconce_probe/plans/blocks.py"
    "sconce_probe/plans/optimizers.py"
    "sconce_probe/plans/offload.py"
    "sconce_probe/plans/sharding.py"
    "sconce_probe/plans/sharded_ddp.py"
};

/// What the probe is to watch.
#[derive(Debug)]
pub struct ProbeOptions {
    /// Where it writes to: any user must be able to.
    pub seen: PathBuf,
    /// Optimizer steps until the end.
    pub steps: u32,
    /// Seconds until the end.
    pub seconds: u32,
    /// Whether the allocator's history is recorded.
    pub history: bool,
    /// Whether the work of one more step is counted.
    pub work: bool,
    /// What it is told in the place of zeros.
    pub answers: SubstituteValues,
    /// Whether nothing is run, and trials are forked from what was imported.
    pub serve: bool,
}

/// The probe, for as long as this is.
#[derive(Debug)]
pub struct Probe {
    /// The modules' folder in the store.
    modules: PathBuf,
    _stays: Vec<ItemGuard>,
    watch: Option<ProbeOptions>,
    plans: TrainingPlans,
    world: Option<RankWorld>,
    /// What it accounts, where it does.
    account: Option<Account>,
}

/// What is accounted, and where that is told.
#[derive(Debug)]
struct Account {
    asked: AccountingOptions,
    /// Where runs keep what is theirs alone.
    scratch: PathBuf,
    /// The folder of a run that has none in memory.
    folder: Option<RunTempDir>,
}

impl Probe {
    /// One that accounts, applies plans, or makes a world of ranks. `None` where there is none of it to do.
    ///
    /// # Errors
    /// A plan that cannot be applied from outside; a store that cannot be written.
    pub fn of_flags(
        account: Option<AccountingOptions>,
        plans: Option<&TrainingPlans>,
        world: Option<RankWorld>,
        places: &SconceDirs,
    ) -> Result<Option<Self>> {
        let plans = plans.cloned().unwrap_or_default();
        if account.is_none() && plans.is_empty() && world.is_none() {
            return Ok(None);
        }
        // Ranks that are not there save nothing that others would have to read.
        let may = |plan: &TrainingPlan| plan.is_of_ranks() && world.is_some();
        let needs_lines = plans.iter().find(|plan| !plan.from_outside() && !may(plan));
        if let Some(plan) = needs_lines {
            return Err(AppError::PlanNeedsLines {
                plan: plan.to_string(),
                lines: plan.code_lines(),
            }
            .into());
        }
        let mut probe = Self::prepare(None, plans, world, places)?;
        probe.account = account.map(|asked| Account {
            asked,
            scratch: places.scratch.clone(),
            folder: None,
        });
        Ok(Some(probe))
    }

    /// One that watches, applies plans, makes a world of ranks, or all of it.
    ///
    /// # Errors
    /// A store that cannot be written.
    pub fn prepare(
        watch: Option<ProbeOptions>,
        plans: TrainingPlans,
        world: Option<RankWorld>,
        places: &SconceDirs,
    ) -> Result<Self> {
        let (modules, stays) = modules(&store_of_modules(places)?)?;
        Ok(Self {
            modules,
            _stays: stays,
            watch,
            plans,
            world,
            account: None,
        })
    }

    /// Brings it into the run. `outer` tells a variable that the command inherits.
    /// With `in_memory`, what it accounts goes through a file system that the run makes for it.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn apply_to(
        &mut self,
        request: &mut RunRequest,
        in_memory: bool,
        outer: impl Fn(&str) -> Option<String>,
    ) -> Result<()> {
        let at = seen_as(request, &self.modules, CONTAINER_DIR, true);
        let behind = request.env.get("PYTHONPATH").cloned();
        let behind = behind.or_else(|| outer("PYTHONPATH"));
        let path = match behind.filter(|path| !path.is_empty()) {
            Some(behind) => format!("{at}:{behind}"),
            None => at,
        };
        if let Some(world) = &self.world {
            world.apply_to(request);
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
            told.extend(of_trial(
                &self.plans,
                watch.history,
                watch.work,
                &watch.answers,
            ));
        } else if !self.plans.is_empty() {
            told.push((PLAN, self.plans.to_string()));
        }
        if let Some(account) = &mut self.account {
            let seen = match in_memory {
                true => ACCOUNT_INSIDE.to_owned(),
                false => {
                    let folder = account.folder_of(&request.id)?;
                    seen_as(request, &folder, ACCOUNT_INSIDE, false)
                }
            };
            told.push(("SCONCE_ACCOUNT", seen));
            if account.asked.flops {
                told.push(("SCONCE_ACCOUNT_FLOPS", "1".to_owned()));
            }
            if account.asked.kept {
                told.push(("SCONCE_ACCOUNT_KEPT", "1".to_owned()));
            }
        }
        let told = told.into_iter();
        request
            .env
            .extend(told.map(|(name, value)| (name.to_owned(), value)));
        Ok(())
    }

    /// Where what is accounted is told, once it was given to the run.
    pub fn accounting_location(&self) -> Option<ProbeDirectory> {
        let account = self.account.as_ref()?;
        Some(match &account.folder {
            Some(folder) => ProbeDirectory::Folder(crate::accounting::accounting_dir(folder)),
            None => ProbeDirectory::InMemory(PathBuf::from(ACCOUNT_INSIDE)),
        })
    }

    /// The plans, for the record.
    pub fn plans(&self) -> Option<String> {
        (!self.plans.is_empty()).then(|| self.plans.to_string())
    }
}

impl Account {
    /// A folder on the disk, for a run that has none in memory.
    fn folder_of(&mut self, id: &str) -> Result<PathBuf> {
        let private = RunTempDir::create(&self.scratch.join(format!("{id}.account.private")))?;
        let folder = crate::accounting::accounting_dir(&private);
        crate::accounting::open_to_all(&folder).map_err(|source| AppError::File {
            action: FileAction::Write,
            path: folder.clone(),
            source,
        })?;
        self.folder = Some(private);
        Ok(folder)
    }
}

/// The modules' folder in the store; it stays as long as what comes with it.
fn modules(store: &Store) -> Result<(PathBuf, Vec<ItemGuard>)> {
    let held = |folder: PathBuf| {
        let stays = sconce_store::acquire_item_guards([folder.as_path()].into_iter());
        stays.map(|stays| (folder, stays))
    };
    match held(made(store)?) {
        // Another process removed it as unused just before.
        Err(StoreError::Gone { .. }) => Ok(held(made(store)?)?),
        there => Ok(there?),
    }
}

/// The store, or where that may not be written and has no modules of this version, one beside the records.
fn store_of_modules(places: &SconceDirs) -> Result<Store> {
    let store = Store::open(&places.store)?;
    let has_modules = || store.find_tree(KIND, &digest(FILES).to_string()).is_some();
    match store.is_writable() || has_modules() {
        true => Ok(store),
        false => Ok(Store::open(&places.state.join("store"))?),
    }
}

/// The modules, made if they are not there, for runs of other processes.
///
/// # Errors
/// A store that cannot be written.
pub(crate) fn ensure_modules(store: &Store) -> Result<PathBuf> {
    made(store)
}

/// The modules' folder, made if it is not there.
fn made(store: &Store) -> Result<PathBuf> {
    let key = digest(FILES).to_string();
    let item = store.build_tree(KIND, &key, |folder| write(&folder.join(PYTHON)));
    match item {
        Ok(item) => Ok(item.join(PYTHON)),
        Err(TreeBuildError::Store(error)) => Err(error.into()),
        Err(TreeBuildError::Build(source)) => Err(AppError::File {
            action: FileAction::Write,
            path: store.root().to_owned(),
            source,
        }
        .into()),
    }
}

/// Writes the modules. Whatever the caller's file mode mask is: the run's user may be another.
fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir(folder)?;
    let closed = |folder: &Path| {
        // A file where Python would make a folder: it reads and writes no bytecode here, whoever it is
        // and whatever it may write. Only this keeps root's Python, on the host, from adding to the item.
        let path = folder.join(BYTECODE);
        fs::write(&path, "")?;
        fs::set_permissions(&path, Permissions::from_mode(0o444))
    };
    closed(folder)?;
    for (name, text) in FILES {
        let path = folder.join(name);
        let above = path.parent().unwrap_or(folder);
        if !above.exists() {
            fs::create_dir_all(above)?;
            closed(above)?;
        }
        fs::set_permissions(above, Permissions::from_mode(0o755))?;
        fs::write(&path, text)?;
        fs::set_permissions(&path, Permissions::from_mode(0o644))?;
    }
    Ok(())
}

/// SHA-256 over the names and bytes, each with its length before it.
fn digest(files: &[(&str, &str)]) -> Sha256 {
    let mut hash = sha2::Sha256::new();
    for text in files.iter().flat_map(|(name, text)| [name, text]) {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    Sha256(hash.finalize().into())
}

/// The variables in which one trial of a command differs from another.
pub fn of_trial(
    plans: &TrainingPlans,
    history: bool,
    work: bool,
    answers: &SubstituteValues,
) -> Vec<(&'static str, String)> {
    let number = |yes: bool| u8::from(yes).to_string();
    let mut told = vec![
        ("SCONCE_FIT_HISTORY", number(history)),
        ("SCONCE_FIT_WORK", number(work)),
    ];
    if !plans.is_empty() {
        told.push((PLAN, plans.to_string()));
    }
    if !answers.are_zeros() {
        let (values, pinned) = answers.to_env_values();
        told.extend([("SCONCE_FIT_VALUES", values), ("SCONCE_FIT_PINNED", pinned)]);
    }
    told
}

/// The path under which the command sees a folder of the host's; a container is given it.
pub(crate) fn seen_as(
    request: &mut RunRequest,
    folder: &Path,
    inside: &str,
    read_only: bool,
) -> String {
    match request.root {
        RunRoot::Host => folder.display().to_string(),
        RunRoot::Image(_) => {
            request.mounts.push(Mount {
                source: folder.to_owned(),
                target: PathBuf::from(inside),
                read_only,
            });
            inside.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("store")).unwrap();
        (folder, store)
    }

    fn entries(folder: &Path, found: &mut BTreeSet<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                entries(&path, found);
            }
            found.insert(path);
        }
    }

    #[test]
    fn the_modules_are_made_once_and_stay_while_they_are_in_use() {
        let (_folder, store) = store();
        let (first, held) = modules(&store).ok().unwrap();
        let inode = |path: &Path| {
            std::os::unix::fs::MetadataExt::ino(&path.join("sitecustomize.py").metadata().unwrap())
        };
        let made = inode(&first);
        let (second, other) = modules(&store).ok().unwrap();
        assert_eq!((&first, made), (&second, inode(&second)));
        drop(other);
        let prune = || store.prune(std::time::Duration::ZERO, &|_, _| false, false);
        assert_eq!(prune().unwrap().held, 1);
        assert!(first.join("sconce_probe/account/ring.py").exists());
        drop(held);
        assert_eq!(prune().unwrap().held, 0);
        assert!(!first.exists());
        assert!(modules(&store).ok().unwrap().0.exists());
    }

    #[test]
    fn another_byte_or_name_is_another_item() {
        let one = digest(&[("a", "bc")]);
        for other in [&[("ab", "c")][..], &[("a", "bd")], &[("a", "bc"), ("", "")]] {
            assert_ne!(one, digest(other));
        }
    }

    /// As the user of this test, root above all, which no mode keeps from writing.
    #[test]
    fn python_adds_nothing_to_the_item() {
        let (_folder, store) = store();
        let (modules, _held) = modules(&store).ok().unwrap();
        let mut before = BTreeSet::new();
        entries(&modules, &mut before);
        let code = "import sconce_probe.imports, sconce_probe.account.clock, sys; print(sys.dont_write_bytecode)";
        let done = std::process::Command::new("python3")
            .args(["-c", code])
            .env("PYTHONPATH", &modules)
            .env_remove("PYTHONDONTWRITEBYTECODE")
            .output();
        let done = done.unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(
            (done.stdout.as_slice(), said.as_str()),
            (&b"False\n"[..], "")
        );
        let mut after = BTreeSet::new();
        entries(&modules, &mut after);
        assert_eq!(before, after);
    }
}
