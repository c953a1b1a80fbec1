//! Where things are on this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access};
use sconce_base::Env;
use sconce_host::Roots;
use sconce_schema::spec::TargetSpec;
use sconce_schema::{Bytes, duration};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tracing::debug;

use crate::context::AppContext;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::kernel_cache::{self, KernelCache};
use crate::reporter::AppEvent;

/// Time between two questions to a scheduler.
const DEFAULT_SCHEDULER_INTERVAL: Duration = Duration::from_secs(30);

/// The folders that the program works in.
#[derive(Debug)]
pub struct SconceDirs {
    /// Downloaded and unpacked packages.
    pub store: PathBuf,
    /// Records of runs.
    pub runs: PathBuf,
    /// Jobs that were handed to schedulers, a folder for each.
    pub jobs: PathBuf,
    /// The user's own leases, where the machine's owner set none up.
    pub leases: PathBuf,
    /// The SSH host keys of environments, a folder for each.
    pub host_keys: PathBuf,
    /// Kernels that runs compiled.
    pub kernels: KernelCache,
    /// Scratch folders of runs under way, of this machine's alone where others see them. On the store's file system, so
    /// that an overlay can use it; beside the records where the store may not be written.
    pub scratch: PathBuf,
    /// The folder of records, leases and keys together.
    pub state: PathBuf,
    /// The folder of `config.toml`.
    pub config_folder: PathBuf,
    /// The user's configuration.
    pub config: Config,
}

/// `~/.config/sconce/config.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Config {
    /// Python package index, instead of uv's and pip's own settings.
    pub index: Option<String>,
    /// Python package indexes beside it.
    pub extra_index: Vec<String>,
    /// Debian mirror, instead of apt's own sources.
    pub mirror: Option<String>,
    /// Debian mirror of security updates.
    pub security_mirror: Option<String>,
    /// Debian's archive keyring.
    pub keyring: Option<PathBuf>,
    /// A table of standalone Pythons, a file or an address, in uv's format.
    pub python_downloads: Option<String>,
    /// Where the repositories of projects are that publish wheels with their releases.
    pub releases: Option<String>,
    /// Folder of the store.
    pub store: Option<PathBuf>,
    /// The registry of references that name none.
    pub registry: Option<String>,
    /// Registries that may be spoken to without TLS, `HOST:PORT`.
    pub insecure_registries: Vec<String>,
    /// What kernels that runs compiled may take on the disk; 0: none are kept.
    pub kernel_cache: Option<Bytes>,
    /// Time between two questions to a scheduler, such as `30s`.
    #[serde(deserialize_with = "deserialize_interval")]
    pub scheduler_interval: Option<Duration>,
    /// Where jobs may be handed over.
    #[serde(skip)]
    pub targets: BTreeMap<String, TargetSpec>,
    /// Registries that others are asked for first.
    pub registry_mirrors: Vec<RegistryMirror>,
    /// Keys that this program does not know: a newer one may have written them.
    #[serde(skip)]
    pub unknown_keys: Vec<String>,
}

/// `[[registry-mirrors]]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RegistryMirror {
    /// The registry, `HOST[:PORT]`.
    pub of: String,
    /// The mirror, `https://HOST[:PORT][/PREFIX]`.
    pub base: String,
}

impl SconceDirs {
    /// Finds the directories of this user, and reads the configuration.
    pub fn find(context: &AppContext) -> Result<Self> {
        let path = config_folder(&context.env)?.join("config.toml");
        let config = Config::read(&path)?;
        if !config.unknown_keys.is_empty() && !context.quiet {
            let keys = &config.unknown_keys;
            context.report(&AppEvent::UnknownConfigKeys { path: &path, keys });
        }
        Self::with_config(context.store.as_deref(), &context.env, config)
    }

    /// The same where the configuration may be broken, which counts as none then: for what needs no more of it than
    /// where the folders are.
    pub fn find_despite_config(store: Option<&Path>, env: &Env) -> Result<Self> {
        let path = config_folder(env)?.join("config.toml");
        let config = Config::read(&path).unwrap_or_else(|_| Config {
            store: read_store(&path),
            ..Config::default()
        });
        Self::with_config(store, env, config)
    }

    fn with_config(store: Option<&Path>, env: &Env, config: Config) -> Result<Self> {
        let config_folder = config_folder(env)?;
        let store = match store.or(config.store.as_deref()) {
            Some(store) => absolute(store),
            None => folder("XDG_DATA_HOME", ".local/share", env)?.join("sconce"),
        };
        let state = folder("XDG_STATE_HOME", ".local/state", env)?.join("sconce");
        // A home may be many machines', and each has cards of its own.
        let machine = sconce_host::machine_id(&Roots::default());
        let of_machine = |name: &str| match &machine {
            Some(machine) => format!("{name}-{machine}"),
            None => name.to_owned(),
        };
        let leases = of_machine("leases");
        // Which runs are over is told by locks, which others may not see.
        let scratch_above = if is_read_only(&store) { &state } else { &store };
        let scratch = match is_of_one_machine(scratch_above) {
            true => "scratch".to_owned(),
            false => of_machine("scratch"),
        };
        let (runs, leases) = (state.join("runs"), state.join(leases));
        let kernels = KernelCache {
            root: folder("XDG_CACHE_HOME", ".cache", env)?.join("sconce/kernels"),
            most: config
                .kernel_cache
                .unwrap_or(kernel_cache::DEFAULT_CACHE_SIZE),
        };
        let (config_shown, store_shown) = (config_folder.display(), store.display());
        debug!(store = %store_shown, state = %state.display(), config = %config_shown, "folders");
        Ok(Self {
            kernels,
            jobs: state.join("jobs"),
            host_keys: state.join("host-keys"),
            scratch: scratch_above.join(scratch),
            store,
            runs,
            leases,
            state,
            config_folder,
            config,
        })
    }
}

/// Whether one machine alone uses the file system of a directory, which need not be there yet.
fn is_of_one_machine(dir: &Path) -> bool {
    let there = dir.ancestors().find(|path| path.exists());
    there.is_none_or(sconce_store::is_local)
}

/// Whether a directory is there and this user cannot write to it, or nobody can.
pub(crate) fn is_read_only(dir: &Path) -> bool {
    dir.is_dir() && access(dir, Access::WRITE_OK | Access::EXEC_OK).is_err()
}

impl Config {
    /// Time between two questions to a scheduler.
    pub fn ask_interval(&self) -> Duration {
        self.scheduler_interval
            .unwrap_or(DEFAULT_SCHEDULER_INTERVAL)
    }

    fn parse(text: &str) -> Result<Self, toml::de::Error> {
        let mut unknown_keys = Vec::new();
        let mut table: toml::Table = text.parse()?;
        let mut targets = BTreeMap::new();
        if let Some(toml::Value::Table(tables)) = table.remove("target") {
            for (name, target) in tables {
                targets.insert(
                    name.clone(),
                    parse_target(&name, target, &mut unknown_keys)?,
                );
            }
        }
        let table = toml::Value::Table(table);
        let config: Self =
            serde_ignored::deserialize(table, |key| unknown_keys.push(key.to_string()))?;
        Ok(Self {
            unknown_keys,
            targets,
            ..config
        })
    }

    fn read(path: &Path) -> Result<Self> {
        match crate::input::read_text(path) {
            Ok(text) => Self::parse(&text).map_err(|source| {
                AppError::Config {
                    path: path.to_owned(),
                    source,
                }
                .into()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(AppError::File {
                action: FileAction::Read,
                path: path.to_owned(),
                source,
            }
            .into()),
        }
    }
}

fn deserialize_interval<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match duration::parse_milliseconds(&text) {
        Ok(0) => Err(D::Error::custom(format!("`{text}` is no time at all"))),
        Ok(ms) => Ok(Some(Duration::from_millis(ms))),
        Err(error) => Err(D::Error::custom(error)),
    }
}

/// A target, without keys that a newer program may have written.
fn parse_target(
    name: &str,
    mut target: toml::Value,
    unknown_keys: &mut Vec<String>,
) -> Result<TargetSpec, toml::de::Error> {
    if let Some(table) = target.as_table_mut() {
        table.retain(|key, _| {
            let is_known = TargetSpec::KEYS.contains(&key);
            if !is_known {
                unknown_keys.push(format!("target.{name}.{key}"));
            }
            is_known
        });
    }
    let target: TargetSpec = target.try_into()?;
    target.check(name).map_err(serde::de::Error::custom)?;
    Ok(target)
}

/// The store of a configuration of which nothing else may be right.
fn read_store(path: &Path) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct StoreKey {
        store: PathBuf,
    }
    let text = crate::input::read_text(path).ok()?;
    let key: StoreKey = toml::from_str(&text).ok()?;
    Some(key.store)
}

/// A folder of the XDG base directory specification: `variable`, or `fallback` in the home.
fn folder(variable: &'static str, fallback: &str, env: &Env) -> Result<PathBuf> {
    if let Some(path) = env.path_var(variable).filter(|path| path.is_absolute()) {
        return Ok(path);
    }
    env.home_dir()
        .map(|home| home.join(fallback))
        .ok_or_else(|| AppError::NoHome { variable }.into())
}

fn config_folder(env: &Env) -> Result<PathBuf> {
    Ok(folder("XDG_CONFIG_HOME", ".config", env)?.join("sconce"))
}

/// Where a user's own container engines look for CDI files.
pub fn own_cdi(env: &Env) -> Option<PathBuf> {
    Some(folder("XDG_CONFIG_HOME", ".config", env).ok()?.join("cdi"))
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
