//! From a project to an environment that is ready: its lock, made if it has none, and its trees.

mod editable;
mod missing_modules;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::SystemTime;

use sconce_fetch::Fetcher;
use sconce_formats::normalize_project_name;
use sconce_formats::tags::CpuArchitecture;
use sconce_image::bytecode::interpreter;
use sconce_image::{AssembleError, Priority, assemble_environment, find_missing_packages};
use sconce_resolve::debian::sources::MirrorOverride;
use sconce_resolve::python::IndexSettings;
use sconce_resolve::python::compile::{Requirements, project_of, versioned_project};
use sconce_resolve::python::download_table::{MIRROR_VARIABLE, TABLE_VARIABLE};
use sconce_resolve::python::uv::UvSource;
use sconce_resolve::{LockContext, LockInput, ResolvedLock, SourceBuilder, StoreDocuments};
use sconce_schema::{EnvironmentLayers, Lock, Progress};
use sconce_store::{ItemGuard, Store};
use tracing::info;

use crate::background::Background;
use crate::context::AppContext;
use crate::debian_sources;
use crate::dirs::SconceDirs;
use crate::failure::{AppError, Result};
use crate::foreign_lock;
use crate::item_guards::with_item_guards;
use crate::missing_libraries::LibraryAdvisor;
use crate::network::{self, AddressError};
use crate::offline;
use crate::outputs;
use crate::project::Project;
use crate::requirement_lines::{RequirementLine, parse_requirement};
use crate::source_builds::{ContainedBuilder, lacks_built_wheels};
use crate::sources::{LockUse, LockUseError, PackageSources};

/// What every verb that needs an environment works with.
pub struct EnvironmentBuilder<'a> {
    /// What is locked and assembled.
    pub project: &'a Project,
    /// The directories to work in.
    pub places: &'a SconceDirs,
    /// Where it is assembled.
    pub store: &'a Store,
    /// Where packages come from.
    pub sources: PackageSources,
    /// How the program was started.
    pub context: &'a AppContext,
    /// Shows the stages of the work.
    pub progress: &'a dyn Progress,
}

impl EnvironmentBuilder<'_> {
    /// The project's lock, made now if there is none or if the spec has changed since, where that may be. Its wheels that
    /// are built from sources are in the store.
    pub fn ensure_lock(&self) -> Result<Lock> {
        self.with_built_wheels(self.ensure_lock_file()?)
    }

    /// As [`Self::ensure_lock`], with nothing built that a lock which is there names.
    pub fn ensure_lock_file(&self) -> Result<Lock> {
        let path = self.project.lock_file();
        let present = self.project.load_lock()?;
        match (present, self.sources.lock_use) {
            (Some(lock), LockUse::Update | LockUse::Locked)
                if lock.inputs == self.project.inputs =>
            {
                info!(file = %path.display(), "the lock is what the spec says");
                Ok(lock)
            }
            (Some(lock), LockUse::Frozen) => Ok(lock),
            (Some(_), LockUse::Locked) => Err(LockUseError::Stale { path }.into()),
            (None, LockUse::Locked) => {
                let flag = "--locked";
                Err(LockUseError::Missing { path, flag }.into())
            }
            (None, LockUse::Frozen) => {
                let flag = "--frozen";
                Err(LockUseError::Missing { path, flag }.into())
            }
            (previous, LockUse::Update) => {
                if previous.is_some() {
                    self.progress
                        .note("the spec has changed since it was locked; locking again");
                }
                self.lock_anew(previous, false)
            }
        }
    }

    /// Resolves the spec and writes its lock. Versions of `previous` are kept where they still
    /// fit, unless `upgrade`.
    pub fn lock_anew(&self, previous: Option<Lock>, upgrade: bool) -> Result<Lock> {
        let output = outputs::find_in_project(&self.project.lock_file(), &self.project.folder)?;
        let lock = self.resolve(previous, upgrade)?.lock;
        output.write(lock.to_text().as_bytes())?;
        self.note_unknown_metadata();
        // What was fetched for the lock before is judged now, the rest once it is there.
        self.library_advisor().note_lacking(&lock);
        Ok(lock)
    }

    /// What `lock --upgrade` would write now. Nothing is written.
    pub fn resolve_newest(&self) -> Result<ResolvedLock> {
        self.resolve(None, true)
    }

    /// `lock`, whose wheels that are built from sources are in the store.
    fn with_built_wheels(&self, lock: Lock) -> Result<Lock> {
        if !lacks_built_wheels(&lock, self.store) {
            return Ok(lock);
        }
        let fetcher = self.fetcher()?;
        let exact = self.sources.lock_use == LockUse::Locked;
        self.contained_builder(&fetcher)
            .with_built_wheels(&lock, exact)
    }

    pub(crate) fn contained_builder<'a>(&'a self, fetcher: &'a Fetcher) -> ContainedBuilder<'a> {
        ContainedBuilder {
            store: self.store,
            places: self.places,
            context: self.context,
            fetcher,
            progress: self.progress,
        }
    }

    /// What the spec wants of Python's packages.
    fn requirements(&self) -> Result<Requirements> {
        let (project, python) = (self.project, &self.project.spec.python);
        let lines = &project.requirement_lines;
        let own = python.packages.iter().map(|text| parse_requirement(text));
        let mut requirements = Requirements {
            file: (python.requirements.as_ref()).map(|name| project.folder.join(name)),
            pyprojects: project.pyprojects()?,
            extras: python.extras.clone(),
            groups: python.groups.clone(),
            ..Requirements::default()
        };
        if python.lock.is_some() {
            keep_known_names(&mut requirements);
        }
        for requirement in own {
            match requirement {
                RequirementLine::Kept(text) => requirements.packages.push(text),
                RequirementLine::Unnamed(source) => requirements.unnamed.push(source),
            }
        }
        if requirements.file.is_some() && !lines.is_plain {
            let mut text = String::new();
            for line in &lines.lines {
                match line {
                    RequirementLine::Kept(line) => text = text + line + "\n",
                    RequirementLine::Unnamed(source) => requirements.unnamed.push(source.clone()),
                }
            }
            requirements.file_text = Some(text);
        }
        Ok(requirements)
    }

    fn resolve(&self, previous: Option<Lock>, upgrade: bool) -> Result<ResolvedLock> {
        info!(
            has_previous = previous.is_some(),
            upgrade, "resolves the spec"
        );
        let (spec, config) = (&self.project.spec, &self.places.config);
        self.check_addresses()?;
        let index = IndexSettings {
            index_url: first([&self.sources.index, &spec.python.index, &config.index]),
            extra_index_urls: first_list([
                &self.sources.extra_index,
                &spec.python.extra_index,
                &config.extra_index,
            ]),
            ..IndexSettings::default()
        };
        let machine = CpuArchitecture::from_debian(debian_architecture());
        let machine = machine.unwrap_or(CpuArchitecture::X86_64);
        let (folder, progress) = (&self.project.folder, self.progress);
        let pinned = foreign_lock::read_pinned(folder, &spec.python, machine, progress)?;
        if let Some(disagreement) = pinned.as_ref().and_then(|lock| lock.disagreement.as_ref()) {
            progress.note(disagreement);
        }
        let pinned = pinned.map(|lock| lock.packages).unwrap_or_default();
        let options = foreign_lock::read_options(folder, &spec.python, progress)?;
        let names: BTreeSet<String> = pinned.iter().map(|package| package.name.clone()).collect();
        self.note_replaced_pins(&names);
        let input = LockInput {
            release: spec.system.release.clone(),
            is_release_open: !self.project.is_release_given,
            architecture: debian_architecture().to_owned(),
            python: spec.exact_python().map(str::to_owned),
            python_bound: spec.python_bound().map(str::to_owned),
            requirements: Requirements {
                pinned,
                hashed: options.hashed,
                compares_indexes: options.has_extra_index,
                ..self.requirements()?
            },
            project_folders: (self.project.editable.iter())
                .map(|project| project.folder.clone())
                .collect(),
            project_names: (self.project.editable.iter())
                .filter_map(|project| normalize_project_name(&project.metadata.name))
                .collect(),
            project_builds: (self.project.editable.iter())
                .filter_map(editable::project_build)
                .collect(),
            folder: self.project.folder.clone(),
            system_packages: spec.system.packages.clone(),
            services: spec.services.builtin_services(),
            compiler: spec.system.compiler,
            more: spec.stage_requirements(),
            as_of: spec.python.as_of.clone(),
            build_settings: self.project.build_settings.clone(),
            index,
            mirror: MirrorOverride {
                main: first([&self.sources.mirror, &spec.system.mirror, &config.mirror]),
                security: first([&None, &spec.system.security_mirror, &config.security_mirror]),
            },
            previous,
            upgrade,
            inputs: self.project.inputs,
        };
        let fetcher = self.fetcher()?;
        let keyring = debian_sources::read_keyring(config)?;
        let env = &self.context.env;
        let python = ["python3", "python"]
            .iter()
            .find_map(|name| env.find_program(name));
        let pip = python.map(|python| vec![python.into(), "-m".into(), "pip".into()]);
        let builds = spec.python.build_sources.unwrap_or(true);
        let builder = self.contained_builder(&fetcher);
        let lock_env = LockContext {
            documents: &StoreDocuments {
                fetcher: &fetcher,
                store: self.store,
            },
            store: self.store,
            apt_files: debian_sources::apt_files(),
            keyring,
            path_folders: env.search_path(),
            environment: env
                .iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .chain(
                    self.context
                        .offline
                        .then(|| ("UV_OFFLINE".into(), "1".into())),
                )
                .collect(),
            uv: UvSource {
                path_uv: env.find_program("uv"),
                pip,
                offline: self.context.offline,
            },
            python_downloads: config.python_downloads.clone(),
            pip_index: match crate::pip::uv_is_configured(env) {
                true => IndexSettings::default(),
                false => crate::pip::read_index_settings(env),
            },
            source_builder: builds.then_some(&builder as &dyn SourceBuilder),
            now: SystemTime::now(),
        };
        let resolved = sconce_resolve::resolve(&input, &lock_env, self.progress)
            .inspect_err(|_| self.note_missing_modules())?;
        self.check_modules(&resolved.lock)?;
        self.note_unpinned(&names, &resolved.lock);
        Ok(resolved)
    }

    /// Says which packages of the other tool's lock the spec names in another version.
    fn note_replaced_pins(&self, pinned: &BTreeSet<String>) {
        let python = &self.project.spec.python;
        let replaced = python.packages.iter().filter(|requirement| {
            versioned_project(requirement).is_some_and(|name| pinned.contains(&name))
        });
        let replaced: Vec<&str> = replaced.map(String::as_str).collect();
        if let (Some(lock), false) = (&python.lock, replaced.is_empty()) {
            let replaced = foreign_lock::list(&replaced);
            let note =
                format!("{replaced} of `[python] packages` in the place of what {lock} says");
            self.progress.note(&note);
        }
    }

    /// Says which packages the other tool's lock does not have, though they are needed.
    fn note_unpinned(&self, pinned: &BTreeSet<String>, lock: &Lock) {
        let Some(name) = &self.project.spec.python.lock else {
            return;
        };
        let asked = self.project.spec.python.packages.iter();
        let asked: BTreeSet<String> = asked.filter_map(|text| project_of(text)).collect();
        let others = lock.wheels.iter();
        let others = others.filter(|w| !pinned.contains(&w.name) && !asked.contains(&w.name));
        let others: Vec<&str> = others.map(|wheel| wheel.name.as_str()).collect();
        if !others.is_empty() {
            let others = foreign_lock::list(&others);
            let note =
                format!("{name} does not have all that is needed; resolved beside it: {others}");
            self.progress.note(&note);
        }
    }

    /// Every address that is named anywhere, for the logins that it may carry.
    fn addresses(&self) -> Vec<String> {
        let env = &self.context.env;
        let (spec, config) = (&self.project.spec, &self.places.config);
        let pip = crate::pip::read_index_settings(env);
        let one = [
            &self.sources.index,
            &self.sources.mirror,
            &spec.python.index,
            &spec.system.mirror,
            &spec.system.security_mirror,
            &config.index,
            &config.mirror,
            &config.security_mirror,
            &pip.index_url,
            &config.python_downloads,
        ];
        let several = [
            &self.sources.extra_index,
            &spec.python.extra_index,
            &config.extra_index,
            &pip.extra_index_urls,
        ];
        let variables = network::uv_indexes(env).into_iter().map(|(_, value)| value);
        let pythons = [TABLE_VARIABLE, MIRROR_VARIABLE].into_iter();
        let variables =
            variables.chain(pythons.filter_map(|name| env.var(name)).map(str::to_owned));
        one.into_iter()
            .flatten()
            .chain(several.into_iter().flatten())
            .cloned()
            .chain(variables)
            .collect()
    }

    /// Whether the settings that count are addresses: uv takes any text for an index, and then
    /// says that no package is there.
    fn check_addresses(&self) -> Result<()> {
        let env = &self.context.env;
        let (spec, config) = (&self.project.spec, &self.places.config);
        let mirror = [
            ("`--mirror`", &self.sources.mirror),
            ("`[system] mirror`", &spec.system.mirror),
            ("`mirror` in config.toml", &config.mirror),
        ];
        let security = [
            ("`[system] security-mirror`", &spec.system.security_mirror),
            ("`security-mirror` in config.toml", &config.security_mirror),
        ];
        let index = [
            ("`--index`", &self.sources.index),
            ("`[python] index`", &spec.python.index),
            ("`index` in config.toml", &config.index),
        ];
        let extra = [
            ("`--extra-index`", &self.sources.extra_index),
            ("`[python] extra-index`", &spec.python.extra_index),
            ("`extra-index` in config.toml", &config.extra_index),
        ];
        let mut indexes: Vec<(&'static str, String)> = set(index).into_iter().collect();
        if let Some((setting, list)) = extra.into_iter().find(|(_, list)| !list.is_empty()) {
            indexes.extend(list.iter().map(|value| (setting, value.clone())));
        }
        if indexes.is_empty() {
            indexes = network::uv_indexes(env);
        }
        if indexes.is_empty() && !crate::pip::uv_is_configured(env) {
            let pip = crate::pip::read_index_settings(env);
            let extra = pip.extra_index_urls.into_iter();
            let main = pip.index_url.filter(|value| !value.is_empty());
            indexes.extend(main.map(|value| ("pip's `index-url`", value)));
            indexes.extend(extra.map(|value| ("pip's `extra-index-url`", value)));
        }
        // uv takes a folder that is laid out like an index, too.
        let folder = &self.project.folder;
        indexes.retain(|(_, value)| value.is_empty() || !folder.join(value).is_dir());
        let mirrors = set(mirror).into_iter().chain(set(security));
        match mirrors
            .chain(indexes)
            .find(|(_, value)| !network::is_address(value))
        {
            Some((setting, value)) => Err(AddressError { setting, value }.into()),
            None => Ok(()),
        }
    }

    /// As [`Self::assemble_environment`]; its trees stay in the store as long as what comes with it is held.
    pub fn assemble_with_guards(
        &self,
        lock: &Lock,
        background: &mut Background,
    ) -> Result<(EnvironmentLayers, Vec<ItemGuard>)> {
        with_item_guards(
            || self.assemble_environment(lock, background),
            |image| &image.layers,
        )
    }

    /// The environment that `lock` describes, fetching what the store does not have.
    pub fn assemble_environment(
        &self,
        lock: &Lock,
        background: &mut Background,
    ) -> Result<EnvironmentLayers> {
        let missing = find_missing_packages(lock, self.store);
        // An environment that is there needs no fetcher: certificates alone take milliseconds.
        if missing.is_empty() {
            match sconce_image::load_environment(lock, self.store) {
                // It has just been removed: it is to be brought as if it had not been there.
                Err(AssembleError::Gone { .. }) => {}
                ready => return Ok(ready?),
            }
        }
        if self.context.offline {
            offline::check_is_there(&missing)?;
        }
        let fetcher = self.fetcher()?;
        background.start(self.project, self.store);
        let manifest = assemble_environment(lock, self.store, &fetcher, self.progress)?;
        self.library_advisor().note_lacking(lock);
        self.progress.finish();
        Ok(manifest)
    }

    /// Whether the environment that `lock` describes is in the store.
    pub fn has_environment(&self, lock: &Lock) -> bool {
        find_missing_packages(lock, self.store).is_empty()
    }

    /// Fetches every file that the environment of `lock` is made of, and makes nothing of them: that may be done without a
    /// network then. Gives how many files there were, and their bytes as far as the lock knows sizes.
    ///
    /// # Errors
    /// One of them cannot be fetched, or has other bytes than the lock says.
    pub fn fetch_packages(&self, lock: &Lock) -> Result<(usize, u64)> {
        if self.context.offline {
            offline::check_is_there(&find_missing_packages(lock, self.store))?;
        }
        let fetcher = self.fetcher()?;
        let fetched = sconce_image::fetch_packages(lock, self.store, &fetcher, self.progress)?;
        let builder = self.contained_builder(&fetcher);
        let of_builds = builder.fetch_build_inputs(lock)?;
        self.progress.finish();
        Ok((fetched.0 + of_builds.0, fetched.1 + of_builds.1))
    }

    /// What compiles for `lock`, alone ([`interpreter`](sconce_image::bytecode::interpreter)). Its packages are in the store, unless they
    /// were pruned since the environment was made. Lowest first.
    pub fn ensure_interpreter(&self, lock: &Lock, priority: Priority) -> Result<Vec<PathBuf>> {
        let (store, progress) = (self.store, self.progress);
        let missing = interpreter::list_missing_files(lock, store);
        if interpreter::find_trees(lock, store).is_some() || missing.is_empty() {
            return Ok(interpreter::ensure_trees(
                lock, store, None, priority, progress,
            )?);
        }
        if self.context.offline {
            return Err(AppError::Offline { missing }.into());
        }
        let fetcher = self.fetcher()?;
        let fetcher = Some(&fetcher);
        Ok(interpreter::ensure_trees(
            lock, store, fetcher, priority, progress,
        )?)
    }

    /// What asks for the Debian packages of libraries that an environment lacks.
    pub fn library_advisor(&self) -> LibraryAdvisor<'_> {
        LibraryAdvisor {
            places: self.places,
            store: self.store,
            context: self.context,
            system: Some(&self.project.spec.system),
            mirror: self.sources.mirror.as_deref(),
            progress: self.progress,
        }
    }

    /// What fetches from the addresses that are named anywhere.
    pub(crate) fn fetcher(&self) -> Result<Fetcher> {
        network::build_fetcher(self.context, &self.addresses())
    }
}

fn first<const N: usize>(values: [&Option<String>; N]) -> Option<String> {
    values.into_iter().flatten().next().cloned()
}

/// The first setting that is there, with its name.
fn set<const N: usize>(
    settings: [(&'static str, &Option<String>); N],
) -> Option<(&'static str, String)> {
    let mut settings = settings.into_iter();
    settings.find_map(|(name, value)| Some((name, value.clone()?)))
}

fn first_list<const N: usize>(values: [&Vec<String>; N]) -> Vec<String> {
    values
        .into_iter()
        .find(|list| !list.is_empty())
        .cloned()
        .unwrap_or_default()
}

/// Debian's name of the architecture that this program was built for.
pub fn debian_architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    }
}

/// A lock has its extras and groups resolved. uv is asked for those alone that a `pyproject.toml` has, too: it refuses
/// others, and what the lock lacks of them is resolved beside it.
fn keep_known_names(requirements: &mut Requirements) {
    let pyprojects = &requirements.pyprojects;
    let has_extra = |name: &String| pyprojects.iter().any(|project| project.has_extra(name));
    requirements.extras.retain(has_extra);
    let first = pyprojects.first();
    let has_group = |name: &String| first.is_some_and(|project| project.has_group(name));
    requirements.groups.retain(has_group);
}
