//! From values of a spec to a lock.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};

use sconce_fetch::redact_url;
use sconce_schema::Progress;
use sconce_schema::lock::{BUILD, Lock, LockTarget, LockedStage, LockedVersions, Wheel};
use sconce_schema::spec::StageRequirements;
use tracing::info;

use crate::debian_packages::{DebianPackages, resolve_debian};
use crate::direct_limits::{find_direct_limits, find_limits_of_sources};
use crate::hidden_sources::take_hidden_sources;
use crate::late_rounds::{describe_limits, list_reasons, meet_limits};
use crate::lock_input::{LockContext, LockInput, previous_lock};
use crate::project_builds::{ProjectBuild, ProjectBuilds};
use crate::python::compile::{Requirements, UvCompile};
use crate::python::download_table::{DownloadTable, MIRROR_VARIABLE};
use crate::python::downloads::{HIGHEST_MINOR, LOWEST_MINOR};
use crate::python::late_limits::{LateLimit, LimitKind, find_limits, find_older_release};
use crate::python::pylock::LockedPackages;
use crate::python::python_bounds::{PythonBound, read_bounds};
use crate::python::uv;
use crate::python::versions::name_versions;
use crate::python_search::{self, CandidatePython, PythonSearch};
use crate::source_builds::SourceBuilds;
use crate::source_names::SourceNames;
use crate::system_needs::{find_system_needs, note_system_needs};
use crate::{DocumentSource, ResolveError, compiler, services, stages};
use sconce_formats::tags::CpuArchitecture;

/// What resolving waits for, as it is shown.
const LISTS: &str = "Debian's package lists";
const PACKAGES: &str = "Python packages";
/// How often what was resolved may want something more ([`find_limits`]).
const MAX_LATE_ROUNDS: usize = 3;

/// A lock, and what is known of its packages only while the indexes are at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedLock {
    /// The lock.
    pub lock: Lock,
    /// The newest version that the security archive has of each of the lock's Debian packages,
    /// where it has one; `None` when no security archive was found.
    pub security: Option<BTreeMap<String, String>>,
}

/// As [`resolve`], the lock alone.
///
/// # Errors
/// Those of [`resolve`].
pub fn resolve_lock(
    input: &LockInput,
    env: &LockContext<'_>,
    progress: &dyn Progress,
) -> Result<Lock, ResolveError> {
    resolve(input, env, progress).map(|resolved| resolved.lock)
}

/// Resolves everything. Debian's and Python's packages are resolved at the same time.
///
/// # Errors
/// [`ResolveError`] of whichever failed; Debian's first.
pub fn resolve(
    input: &LockInput,
    env: &LockContext<'_>,
    progress: &dyn Progress,
) -> Result<ResolvedLock, ResolveError> {
    let input = &with_release_of_python(services::with_service_packages(input))?;
    let machine = CpuArchitecture::from_debian(&input.architecture).ok_or_else(|| {
        ResolveError::Architecture {
            architecture: input.architecture.clone(),
        }
    })?;
    let before = input
        .previous
        .as_ref()
        .filter(|previous| !input.upgrade && previous.target.architecture == input.architecture);
    let table = DownloadTable {
        keep: before.and_then(|previous| previous.interpreter.as_ref()),
        named: env.python_downloads.as_deref(),
        machine,
        documents: env.documents,
        store: env.store,
        source: &env.uv,
        environment: &env.environment,
        progress,
        table: OnceLock::new(),
    };
    let table = &table;
    match input
        .index
        .effective_settings(&env.pip_index, &env.environment)
    {
        Some(index) => info!(
            ?index,
            "Python indexes: of a flag, the spec, config.toml or pip"
        ),
        None => info!("Python indexes: of uv's own variables"),
    }
    if input.requirements.is_empty() {
        progress.stage("resolve", None);
    }
    let may_build = env.source_builder.is_some();
    let cache = env.store.root().join("cache").join("uv");
    std::thread::scope(|scope| {
        // The interpreter is known as soon as the indexes are read. Until then this thread sees
        // to uv, afterwards Debian's packages are resolved beside it.
        let (send, receive) = mpsc::channel::<CandidatePython>();
        let cache = &cache;
        let packages = scope.spawn(move || -> Result<Option<PythonPackages>, ResolveError> {
            if !resolves_packages(input) {
                return Ok(None);
            }
            let uv = uv::find_or_fetch(&env.uv, env.store, &env.environment, progress)?;
            progress.stage("resolve", None);
            progress.advance(LISTS, 0);
            let received = receive.recv();
            progress.done(LISTS);
            let Ok(first) = received else {
                // The other thread failed and says why.
                return Ok(None);
            };
            let mut bounds: Vec<PythonBound> = bound_of_spec(input)?.into_iter().collect();
            bounds.extend(read_bounds(
                &input.requirements.pyprojects,
                &input.project_folders,
            ));
            let mut search = PythonSearch {
                is_open: input.python.is_none(),
                is_release_open: input.is_release_open,
                kept: (input.previous.as_ref())
                    .filter(|_| !input.upgrade)
                    .and_then(|lock| lock.target.python.strip_prefix("3.")?.parse().ok()),
                bounds,
                table,
                can_fetch: &|python| env.documents.is_reachable(&python.url),
            };
            progress.advance(PACKAGES, 0);
            let names = SourceNames::default();
            let find = |search: &PythonSearch<'_>, requirements: &Requirements| {
                search.find(&first, progress, |python| {
                    let compile = uv_compile(input, env, (&uv, cache), python, machine);
                    names.resolve_packages(&compile, requirements, may_build)
                })
            };
            let mut requirements = input.requirements.clone();
            let (mut python, mut packages) = find(&search, &requirements)?;
            // What was found is not searched for, nor told, again.
            search.kept = Some(python.minor);
            let compile = uv_compile(input, env, (&uv, cache), &python, machine);
            if may_build
                && requirements.pinned.is_empty()
                && take_hidden_sources(&names, &compile, &requirements, &packages)
            {
                (python, packages) = find(&search, &requirements)?;
            }
            let mut refused: Vec<LateLimit> = Vec::new();
            let mut direct = Vec::new();
            if requirements.pinned.is_empty() && !requirements.is_empty() {
                let compile = uv_compile(input, env, (&uv, cache), &python, machine);
                let allows = |minor| search.is_open && search.allows(minor);
                direct = find_direct_limits(&names, &compile, &requirements, python.minor, &allows);
                let of_sources = find_limits_of_sources(&compile, &packages, python.minor, &allows);
                direct.extend(of_sources);
            }
            // What a repository has locked is what runs.
            for _ in 0..MAX_LATE_ROUNDS * usize::from(requirements.pinned.is_empty()) {
                let mut limits = find_limits(&packages, python.minor);
                limits.append(&mut direct);
                limits.retain(|limit| {
                    let is_met = match &limit.asks {
                        LimitKind::Package(text) => requirements.packages.contains(text),
                        LimitKind::Python(_) => !search.is_open,
                    };
                    !is_met && !refused.contains(limit)
                });
                if limits.is_empty() {
                    break;
                }
                let met = meet_limits(limits, |limits| {
                    let mut limited = requirements.clone();
                    let mut bounds = search.bounds.clone();
                    for limit in limits {
                        match &limit.asks {
                            LimitKind::Package(text) => limited.packages.push(text.clone()),
                            LimitKind::Python(text) => {
                                bounds.extend(PythonBound::with_reason(&limit.why, text));
                            }
                        }
                    }
                    let search = search.with_bounds(bounds);
                    let found = find(&search, &limited).ok()?;
                    // What cannot be fetched certainly does not run.
                    if !search.is_here(&found.0) && search.is_here(&python) {
                        return None;
                    }
                    Some((found, limited, search.bounds))
                });
                if !met.refused.is_empty() {
                    progress.note(&format!(
                        "this may not work, and nothing else resolves: {}",
                        list_reasons(&met.refused)
                    ));
                    refused.extend(met.refused);
                }
                let Some((taken, (found, limited, bounds))) = met.taken else {
                    break;
                };
                for note in describe_limits(&taken) {
                    progress.note(&note);
                }
                (python, packages) = found;
                (requirements, search.bounds) = (limited, bounds);
                search.kept = Some(python.minor);
            }
            if let Some((release, glibc_minor, why)) = find_older_release(&packages)
                && input.is_release_open
                && python.standalone.is_some()
                && python.glibc_minor > glibc_minor
            {
                progress.note(&format!("{release}, because of {why}"));
                python = CandidatePython {
                    release: release.to_owned(),
                    glibc_minor,
                    ..python
                };
                let compile = uv_compile(input, env, (&uv, cache), &python, machine);
                packages = names.resolve_packages(&compile, &requirements, may_build)?;
            }
            progress.done(PACKAGES);
            Ok(Some(PythonPackages {
                packages,
                requirements,
                names,
                uv,
                is_other: python != first,
                python,
            }))
        });
        let debian = resolve_debian(input, env, machine, table, progress, send, &[]);
        let packages = packages
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let debian = debian?;
        let packages = packages?;
        let (input, debian) = match &packages {
            None => (input.clone(), debian),
            Some(packages) => {
                let needs =
                    find_system_needs(&packages.packages, &input.project_names, &debian.debs);
                let input = match packages.is_other {
                    false => input.clone(),
                    true => LockInput {
                        python: Some(format!("3.{}", packages.python.minor)),
                        release: packages.python.release.clone(),
                        ..input.clone()
                    },
                };
                let debian = match packages.is_other || !needs.is_empty() {
                    false => debian,
                    true => {
                        let (send, _) = mpsc::channel();
                        resolve_debian(&input, env, machine, table, progress, send, &needs)?
                    }
                };
                note_system_needs(&needs, &debian.debs, progress);
                (input, debian)
            }
        };
        let input = &input;
        let previous = previous_lock(input, &input.release);
        let DebianPackages {
            debs,
            of_stages,
            compiler,
            python,
            interpreter,
            security,
        } = debian;
        let mut base = Lock {
            version: 0,
            inputs: input.inputs,
            target: LockTarget {
                release: input.release.clone(),
                architecture: input.architecture.clone(),
                python,
            },
            versions: LockedVersions::default(),
            wheels: Vec::new(),
            debs,
            stages: Vec::new(),
            interpreter,
        };
        let mut of_python = vec![Vec::new(); input.more.len()];
        let mut wheels = Vec::new();
        let mut of_projects = Vec::new();
        if let Some(packages) = packages {
            let compile = uv_compile(input, env, (&packages.uv, cache), &packages.python, machine);
            let builds = env.source_builder.map(|builder| SourceBuilds {
                builder,
                names: &packages.names,
                compile: &compile,
                requirements: &packages.requirements,
                settings: &input.build_settings,
                previous,
                progress,
            });
            wheels = match builds {
                Some(builds) if !packages.packages.sources.is_empty() => {
                    if builds.need_tools(&packages.packages, &base)? {
                        let debs = resolve_build_packages(input, env, machine, table, progress)?;
                        base.stages.extend(debs);
                    }
                    builds.build_all(packages.packages, &base)?
                }
                _ => packages.packages.wheels,
            };
            add_sizes(&mut wheels, env.documents);
            let sources = packages.names.metadata();
            let compile = UvCompile {
                sources: &sources,
                ..compile
            };
            let of_index = wheels.iter().filter(|wheel| wheel.build.is_none());
            let of_index: Vec<Wheel> = of_index.cloned().collect();
            for (more, further) in input.more.iter().zip(&mut of_python) {
                let requirements = &packages.names.with_names(&packages.requirements);
                *further = stages::further_wheels(
                    more,
                    requirements,
                    &of_index,
                    previous,
                    &compile,
                    progress,
                )?;
                add_sizes(further, env.documents);
            }
            let projects = ProjectBuilds {
                installed: &wheels,
                previous,
                compile: &compile,
                progress,
            };
            of_projects = projects.resolve_all(&input.project_builds);
            for stage in &mut of_projects {
                add_sizes(&mut stage.wheels, env.documents);
            }
            let compiles = |build: &ProjectBuild| build.compiles;
            if base.stages.is_empty() && input.project_builds.iter().any(compiles) {
                match resolve_build_packages(input, env, machine, table, progress) {
                    Ok(debs) => base.stages.extend(debs),
                    Err(error) => progress.note(&format!(
                        "what compiles a project for an image does not resolve: {error}"
                    )),
                }
            }
        }
        let stages = input.more.iter().zip(of_stages).zip(of_python);
        let compiler = compiler::select_compiler(compiler, input.compiler, &wheels, progress)?;
        let mut stages: Vec<LockedStage> = stages
            .map(|((more, debs), wheels)| LockedStage {
                name: more.name.clone(),
                wheels,
                debs,
            })
            .filter(|stage| !stage.wheels.is_empty() || !stage.debs.is_empty())
            .chain(compiler)
            .chain(std::mem::take(&mut base.stages))
            .chain(of_projects)
            .collect();
        stages.sort_by(|a, b| a.name.cmp(&b.name));
        let deb = |name: &str| {
            let mut debs = base.debs.iter();
            let found = debs.find(|deb| deb.name == name);
            found.map(|deb| deb.version.clone()).unwrap_or_default()
        };
        let full = match &base.interpreter {
            Some(standalone) => standalone.version.clone(),
            None => deb(&format!("python{}", base.target.python)),
        };
        let versions = name_versions(&wheels, &full, &deb("libc6"));
        let mut lock = Lock {
            versions,
            wheels,
            stages,
            ..base
        };
        if let Some(python) = &mut lock.interpreter {
            python.size = python.size.or_else(|| env.documents.size(&python.url));
            if python.size.is_none() {
                progress.note(&format!(
                    "Python {} is locked, but its address does not answer from here: {} \
                     ({MIRROR_VARIABLE} names a mirror when it is locked)",
                    python.version,
                    redact_url(&python.url)
                ));
            }
        }
        lock.version = lock.oldest_format();
        let (wheels, debs, stages) = (lock.wheels.len(), lock.debs.len(), lock.stages.len());
        info!(wheels, debs, stages, "resolved");
        Ok(ResolvedLock { lock, security })
    })
}

/// What resolving Python's packages gives.
struct PythonPackages {
    packages: LockedPackages,
    /// What was asked for, in the end.
    requirements: Requirements,
    /// Those that have sources alone.
    names: SourceNames,
    uv: PathBuf,
    /// What they are for.
    python: CandidatePython,
    /// Whether that is another one than was tried first.
    is_other: bool,
}

/// uv's call for a Python; uv with its cache.
fn uv_compile<'a>(
    input: &'a LockInput,
    env: &'a LockContext<'_>,
    (uv, cache): (&'a Path, &'a Path),
    python: &'a CandidatePython,
    machine: CpuArchitecture,
) -> UvCompile<'a> {
    UvCompile {
        takes_prereleases: true,
        uv,
        folder: &input.folder,
        cache,
        environment: &env.environment,
        index: &input.index,
        pip_index: &env.pip_index,
        python: &python.full,
        target: python.wheel_target(machine),
        keep: previous_lock(input, &python.release).map_or(&[], |lock| &lock.wheels),
        as_of: input.as_of.as_deref(),
        sources: &[],
    }
}

/// What compiles source packages, beside the environment's Debian packages.
fn resolve_build_packages(
    input: &LockInput,
    env: &LockContext<'_>,
    machine: CpuArchitecture,
    table: &DownloadTable<'_>,
    progress: &dyn Progress,
) -> Result<Option<LockedStage>, ResolveError> {
    let input = LockInput {
        more: vec![StageRequirements {
            name: BUILD.to_owned(),
            devel: true,
            system: vec!["git".to_owned(), "pkg-config".to_owned()],
            python: Vec::new(),
        }],
        compiler: Some(false),
        ..input.clone()
    };
    let (send, _) = mpsc::channel();
    let debian = resolve_debian(&input, env, machine, table, progress, send, &[])?;
    let debs = debian.of_stages.into_iter().next().unwrap_or_default();
    Ok((!debs.is_empty()).then(|| LockedStage {
        name: BUILD.to_owned(),
        wheels: Vec::new(),
        debs,
    }))
}

/// How many servers' answers are waited for at once.
const SIZE_CONNECTIONS: usize = 8;

/// Asks for the sizes that the index did not tell: a download is planned by them, largest first.
fn add_sizes(wheels: &mut [Wheel], documents: &dyn DocumentSource) {
    let missing: Mutex<Vec<&mut Wheel>> = Mutex::new(
        wheels
            .iter_mut()
            .filter(|wheel| wheel.size.is_none())
            .collect(),
    );
    let next = || missing.lock().unwrap_or_else(PoisonError::into_inner).pop();
    std::thread::scope(|scope| {
        for _ in 0..SIZE_CONNECTIONS {
            scope.spawn(|| {
                while let Some(wheel) = next() {
                    wheel.size = documents.size(&wheel.url);
                }
            });
        }
    });
}

/// What is to be locked, with the release that has the Python that is asked for, where no release is.
fn with_release_of_python(mut input: LockInput) -> Result<LockInput, ResolveError> {
    // Without packages nothing is searched for.
    if let Some(bound) = bound_of_spec(&input)?
        && input.python.is_none()
        && !resolves_packages(&input)
    {
        let own = python_search::python_of(&input.release).unwrap_or(HIGHEST_MINOR);
        let minor = python_search::nearest_allowed(own, &[bound])?;
        input.python = (minor != own).then(|| format!("3.{minor}"));
    }
    if let Some(wanted) = &input.python {
        let minor = wanted
            .strip_prefix("3.")
            .and_then(|minor| minor.parse().ok());
        if minor.is_some_and(|minor: u32| minor < LOWEST_MINOR) {
            return Err(ResolveError::OldPython {
                wanted: wanted.clone(),
            });
        }
        let release = minor.and_then(python_search::release_with);
        if let Some(release) = release.filter(|_| input.is_release_open) {
            release.clone_into(&mut input.release);
        }
    }
    Ok(input)
}

/// What `[python] version` allows, where it names no single one.
fn bound_of_spec(input: &LockInput) -> Result<Option<PythonBound>, ResolveError> {
    let Some(text) = &input.python_bound else {
        return Ok(None);
    };
    match PythonBound::of_spec(text) {
        Some(bound) => Ok(Some(bound)),
        None => Err(ResolveError::PythonBound {
            file: "sconce.toml".to_owned(),
            said: format!("`[python] version` cannot be `{text}`"),
        }),
    }
}

/// Whether some Python packages are wanted, by the environment or by a stage.
fn resolves_packages(input: &LockInput) -> bool {
    let of_stage = |more: &StageRequirements| more.devel || !more.python.is_empty();
    !input.requirements.is_empty() || input.more.iter().any(of_stage)
}

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;
