//! From values of a spec to a lock.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::SystemTime;

use sconce_base::input;
use sconce_fetch::redact_url;
use sconce_schema::lock::{
    Deb, FORMAT, FORMAT_WITHOUT_STAGES, Lock, LockTarget, LockedStage, Wheel,
};
use sconce_schema::spec::{BuiltinService, StageRequirements};
use sconce_schema::{Bytes, Progress, Sha256};
use sconce_store::Store;
use tracing::{debug, info};

use crate::debian::index::DebianIndex;
use crate::debian::openpgp::{Verifier, find_verifier};
use crate::debian::sources::{self, AptFile, MirrorOverride, MirrorPair, SignedBy};
use crate::debian::{ArchiveReader, Suite, base_packages, pythons, solve, version};
use crate::python::IndexSettings;
use crate::python::compile::{Requirements, UvCompile};
use crate::python::uv::{self, UvSource};
use crate::python::versions::name_versions;
use crate::{DocumentSource, ResolveError, compiler, services, stages};
use sconce_formats::tags::{CpuArchitecture, WheelTarget};

/// Where the package debian-archive-keyring puts its keyring, newest name first.
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.pgp",
    "/usr/share/keyrings/debian-archive-keyring.gpg",
];

/// What resolving waits for, as it is shown.
const LISTS: &str = "Debian's package lists";
const PACKAGES: &str = "Python packages";

/// What is to be locked: the spec's values, flags already merged into them.
#[derive(Debug, Clone)]
pub struct LockInput {
    /// `debian/trixie`.
    pub release: String,
    /// Debian's name of the architecture: `amd64`, `arm64`.
    pub architecture: String,
    /// Python's major and minor version; absent: the release's own.
    pub python: Option<String>,
    /// Python packages.
    pub requirements: Requirements,
    /// The spec's folder: relative paths in requirements are below it.
    pub folder: PathBuf,
    /// Debian packages besides the base set, as `apt-get install` takes them.
    pub system_packages: Vec<String>,
    /// Services whose packages are wanted, too.
    pub services: Vec<BuiltinService>,
    /// Whether a compiler is wanted; absent: where something compiles when a script runs.
    pub compiler: Option<bool>,
    /// What stages have beside these.
    pub more: Vec<StageRequirements>,
    /// The last day whose uploads to Python indexes count, `2021-03-25`; absent: all count.
    pub as_of: Option<String>,
    /// Python indexes that the spec or a flag names.
    pub index: IndexSettings,
    /// Debian archives that the spec, the configuration or a flag names.
    pub mirror: MirrorOverride,
    /// The lock that is there, whose versions are kept where they still satisfy.
    pub previous: Option<Lock>,
    /// Take the newest of everything.
    pub upgrade: bool,
    /// Digest of the inputs, for [`Lock::inputs`].
    pub inputs: Sha256,
}

/// What the machine offers for it.
pub struct LockContext<'a> {
    /// What archives are read through.
    pub documents: &'a dyn DocumentSource,
    /// Where uv is kept.
    pub store: &'a Store,
    /// apt's sources: `/etc/apt/sources.list`, `/etc/apt/sources.list.d/*` and, for cloud images,
    /// `/etc/apt/mirrors/*`.
    pub apt_files: Vec<AptFile>,
    /// OpenPGP keys that may sign the archive; absent: those that the apt source names, else
    /// those of the package debian-archive-keyring.
    pub keyring: Option<Vec<u8>>,
    /// The folders of PATH, where `gpgv` or `sqv` is looked for.
    pub path_folders: Vec<PathBuf>,
    /// The whole environment, for uv and pip.
    pub environment: BTreeMap<OsString, OsString>,
    /// Where uv comes from.
    pub uv: UvSource,
    /// The indexes that the machine's pip uses; they count when neither the spec nor uv's own
    /// variables name any. Leave them empty when uv has a configuration file of its own.
    pub pip_index: IndexSettings,
    /// The time.
    pub now: SystemTime,
}

/// What resolving Python packages needs to know of the release.
struct Interpreter {
    /// `3.13`
    version: String,
    /// `3.13.5-2+deb13u5`
    full: String,
    /// `2.41-12+deb13u1`
    glibc: String,
}

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
    let input = &services::with_service_packages(input);
    let codename = codename(&input.release)?;
    let machine = CpuArchitecture::from_debian(&input.architecture).ok_or_else(|| {
        ResolveError::Architecture {
            architecture: input.architecture.clone(),
        }
    })?;
    let previous = input.previous.as_ref().filter(|previous| {
        let same = previous.target.release == input.release
            && previous.target.architecture == input.architecture;
        same && !input.upgrade
    });
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
    std::thread::scope(|scope| {
        // The interpreter is known as soon as the indexes are read. Until then this thread sees
        // to uv, afterwards Debian's packages are resolved beside it.
        let (send, receive) = mpsc::channel::<(String, WheelTarget)>();
        let wheels = scope.spawn(move || -> Result<Wheels, ResolveError> {
            let stages = input
                .more
                .iter()
                .any(|more| more.devel || !more.python.is_empty());
            if input.requirements.is_empty() && !stages {
                return Ok(Wheels::default());
            }
            let uv = uv::find_or_fetch(&env.uv, env.store, &env.environment, progress)?;
            progress.stage("resolve", None);
            progress.advance(LISTS, 0);
            let received = receive.recv();
            progress.done(LISTS);
            let Ok((python, target)) = received else {
                // The other thread failed and says why.
                return Ok(Wheels::default());
            };
            let compile = UvCompile {
                uv: &uv,
                folder: &input.folder,
                cache: &env.store.root().join("cache").join("uv"),
                environment: &env.environment,
                index: &input.index,
                pip_index: &env.pip_index,
                python: &python,
                target,
                keep: previous.map_or(&[], |lock| &lock.wheels),
                as_of: input.as_of.as_deref(),
            };
            progress.advance(PACKAGES, 0);
            let mut wheels = compile.resolve_wheels(&input.requirements)?;
            add_sizes(&mut wheels, env.documents);
            let mut of_stages = Vec::new();
            for more in &input.more {
                let requirements = &input.requirements;
                let mut further = stages::further_wheels(
                    more,
                    requirements,
                    &wheels,
                    previous,
                    &compile,
                    progress,
                )?;
                add_sizes(&mut further, env.documents);
                of_stages.push(further);
            }
            progress.done(PACKAGES);
            Ok(Wheels {
                environment: wheels,
                of_stages,
            })
        });
        let debian = resolve_debian(input, env, codename, machine, previous, progress, send);
        let wheels = wheels
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let Debian {
            debs,
            of_stages,
            compiler,
            python,
            security,
        } = debian?;
        let Wheels {
            environment: wheels,
            of_stages: further,
        } = wheels?;
        let further = further.into_iter().chain(std::iter::repeat(Vec::new()));
        let stages = input.more.iter().zip(of_stages).zip(further);
        let compiler = compiler::select_compiler(compiler, input.compiler, &wheels, progress)?;
        let mut stages: Vec<LockedStage> = stages
            .map(|((more, debs), wheels)| LockedStage {
                name: more.name.clone(),
                wheels,
                debs,
            })
            .filter(|stage| !stage.wheels.is_empty() || !stage.debs.is_empty())
            .chain(compiler)
            .collect();
        stages.sort_by(|a, b| a.name.cmp(&b.name));
        let deb = |name: String| {
            debs.iter()
                .find(|deb| deb.name == name)
                .map(|deb| deb.version.clone())
                .unwrap_or_default()
        };
        let versions = name_versions(
            &wheels,
            &deb(format!("python{python}")),
            &deb("libc6".to_owned()),
        );
        let lock = Lock {
            version: match stages.is_empty() {
                true => FORMAT_WITHOUT_STAGES,
                false => FORMAT,
            },
            inputs: input.inputs,
            target: LockTarget {
                release: input.release.clone(),
                architecture: input.architecture.clone(),
                python,
            },
            versions,
            wheels,
            debs,
            stages,
        };
        let (wheels, debs, stages) = (lock.wheels.len(), lock.debs.len(), lock.stages.len());
        info!(wheels, debs, stages, "resolved");
        Ok(ResolvedLock { lock, security })
    })
}

/// What resolving Python's packages gives.
#[derive(Default)]
struct Wheels {
    environment: Vec<Wheel>,
    /// What each of [`LockInput::more`] has beside it; empty where none needs any.
    of_stages: Vec<Vec<Wheel>>,
}

/// What resolving Debian's packages gives.
struct Debian {
    debs: Vec<Deb>,
    /// What each of [`LockInput::more`] has beside them.
    of_stages: Vec<Vec<Deb>>,
    /// What a compiler has beside them, where one may be wanted: that is known with the wheels.
    compiler: Option<Result<Vec<Deb>, ResolveError>>,
    /// `3.13`
    python: String,
    /// As [`ResolvedLock::security`].
    security: Option<BTreeMap<String, String>>,
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

fn codename(release: &str) -> Result<&str, ResolveError> {
    release
        .strip_prefix("debian/")
        .filter(|name| sconce_schema::spec::RELEASES.contains(name))
        .ok_or_else(|| ResolveError::Release {
            release: release.to_owned(),
        })
}

fn resolve_debian(
    input: &LockInput,
    env: &LockContext<'_>,
    codename: &str,
    machine: CpuArchitecture,
    previous: Option<&Lock>,
    progress: &dyn Progress,
    send: mpsc::Sender<(String, WheelTarget)>,
) -> Result<Debian, ResolveError> {
    let mirrors = sources::select_mirrors(&env.apt_files, &input.mirror)?;
    let (main, security) = (
        redact_url(&mirrors.main),
        redact_url(mirrors.security.base_uri()),
    );
    info!(codename, main, security, "Debian's archives");
    let keyring = keyring(env, &mirrors)?;
    let verifier: Box<dyn Verifier> = find_verifier(&env.path_folders)?;
    let archive = ArchiveReader {
        documents: env.documents,
        verifier: verifier.as_ref(),
        keyring: &keyring,
        now: env.now,
        progress,
    };
    let suites = archive.fetch_suites(&mirrors, codename, &input.architecture)?;
    let index = read_index(&suites, &input.architecture)?;
    let interpreter = interpreter(&index, input)?;
    let target = WheelTarget {
        python_minor: minor(&interpreter.version, &input.release, "python3")?,
        glibc_minor: minor(
            version::upstream_version(&interpreter.glibc),
            &input.release,
            "libc6",
        )?,
        machine,
    };
    debug!(
        ?target,
        python = interpreter.full,
        glibc = interpreter.glibc,
        "the interpreter"
    );
    // Nobody receives when no Python packages are wanted, or when uv could not be had.
    let _ = send.send((
        version::upstream_version(&interpreter.full).to_owned(),
        target,
    ));
    let mut requests = input.system_packages.clone();
    requests.extend(
        base_packages(&interpreter.version)
            .into_iter()
            .map(|package| package.name),
    );
    let keep = previous.map_or_else(BTreeMap::new, |lock| {
        lock.debs
            .iter()
            .map(|deb| (deb.name.clone(), deb.version.clone()))
            .collect()
    });
    let debs = debs(&index, &suites, &requests, &keep, &input.release)?;
    let mut of_stages = Vec::new();
    for more in &input.more {
        let asked = stages::system_requests(more, &interpreter.version);
        let mut further = Vec::new();
        if !asked.is_empty() {
            let keep = stages::versions_to_keep(&debs, &more.name, previous);
            let requests = [&requests[..], &asked].concat();
            let all = self::debs(&index, &suites, &requests, &keep, &input.release)?;
            further = stages::further_debs(&debs, all);
        }
        of_stages.push(further);
    }
    let may_compile = match input.compiler {
        None => !input.requirements.is_empty(),
        Some(wanted) => wanted,
    };
    let compiler = may_compile.then(|| {
        let keep = compiler::versions_to_keep(&debs, previous);
        let requests = [
            &requests[..],
            &compiler::package_requests(&interpreter.version),
        ]
        .concat();
        let all = self::debs(&index, &suites, &requests, &keep, &input.release)?;
        compiler::additional_packages(&debs, all)
    });
    let all: Vec<&Deb> = (debs.iter())
        .chain(compiler.iter().flatten().flatten())
        .collect();
    let security = newest_secure(&index, &suites, &format!("{codename}-security"), &all);
    Ok(Debian {
        debs,
        of_stages,
        compiler,
        python: interpreter.version,
        security,
    })
}

/// The packages that `requests` need, as a lock has them.
fn debs(
    index: &DebianIndex<'_>,
    suites: &[Suite],
    requests: &[String],
    keep: &BTreeMap<String, String>,
    release: &str,
) -> Result<Vec<Deb>, ResolveError> {
    let packages = solve::solve_dependencies(index, requests, keep)?;
    let mut debs = Vec::with_capacity(packages.len());
    for number in packages {
        let package = index.package(number);
        debs.push(Deb {
            name: package.name.to_owned(),
            version: package.version.to_owned(),
            source: (package.source != package.name).then(|| package.source.to_owned()),
            source_version: (package.source_version != package.version)
                .then(|| package.source_version.to_owned()),
            architecture: package.architecture.to_owned(),
            url: format!(
                "{}/{}",
                sconce_base::text::without_credentials(&suites[package.suite].base),
                package.path
            ),
            size: package.size,
            sha256: package
                .sha256
                .parse()
                .map_err(|_| ResolveError::Incomplete {
                    release: release.to_owned(),
                    package: "sha256",
                })?,
        });
    }
    Ok(debs)
}

/// See [`ResolvedLock::security`].
fn newest_secure(
    index: &DebianIndex<'_>,
    suites: &[Suite],
    suite: &str,
    debs: &[&Deb],
) -> Option<BTreeMap<String, String>> {
    let suite = suites.iter().position(|one| one.name == suite)?;
    let newest = |name: &str| {
        let all = index.versions_of(name).iter();
        all.map(|number| index.package(*number))
            .filter(|package| package.suite == suite)
            .map(|package| package.version)
            .max_by(|a, b| version::compare(a, b))
    };
    let found = debs
        .iter()
        .filter_map(|deb| Some((deb.name.clone(), newest(&deb.name)?.to_owned())));
    Some(found.collect())
}

fn read_index<'a>(
    suites: &'a [Suite],
    architecture: &str,
) -> Result<DebianIndex<'a>, ResolveError> {
    let mut index = DebianIndex::default();
    for (number, suite) in suites.iter().enumerate() {
        index
            .add_suite(number, &suite.packages, architecture)
            .map_err(|source| ResolveError::Index {
                suite: suite.name.clone(),
                source,
            })?;
    }
    Ok(index)
}

fn interpreter(index: &DebianIndex<'_>, input: &LockInput) -> Result<Interpreter, ResolveError> {
    let missing = |package| ResolveError::Incomplete {
        release: input.release.clone(),
        package,
    };
    let default = pythons::default_version(index);
    let version = input
        .python
        .clone()
        .or(default)
        .ok_or_else(|| missing("python3"))?;
    let newest = |name: &str| {
        index
            .find_newest(name)
            .map(|number| index.package(number).version.to_owned())
    };
    let full = newest(&format!("python{version}")).ok_or_else(|| ResolveError::Python {
        release: input.release.clone(),
        wanted: version.clone(),
        has: pythons::list_python_versions(index),
    })?;
    let glibc = newest("libc6").ok_or_else(|| missing("libc6"))?;
    Ok(Interpreter {
        version,
        full,
        glibc,
    })
}

/// The second number of a version.
fn minor(version: &str, release: &str, package: &'static str) -> Result<u32, ResolveError> {
    version
        .split('.')
        .nth(1)
        .and_then(|minor| minor.parse().ok())
        .ok_or_else(|| ResolveError::Incomplete {
            release: release.to_owned(),
            package,
        })
}

/// More than any keyring has: Debian's has less than 100 KiB.
const MAX_KEYRING_BYTES: Bytes = Bytes::from_mib(64);

fn keyring(env: &LockContext<'_>, mirrors: &MirrorPair) -> Result<Vec<u8>, ResolveError> {
    let path = match (&env.keyring, &mirrors.signed_by) {
        (Some(keyring), _) => return Ok(keyring.clone()),
        (None, Some(SignedBy::Key(key))) => return Ok(key.clone().into_bytes()),
        (None, Some(SignedBy::File(path))) => path.as_path(),
        (None, None) => KEYRINGS
            .iter()
            .map(Path::new)
            .find(|path| path.is_file())
            .ok_or(ResolveError::NoKeyring)?,
    };
    input::read_regular(path, MAX_KEYRING_BYTES).map_err(|source| ResolveError::Keyring {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
#[path = "lock_tests.rs"]
mod tests;
