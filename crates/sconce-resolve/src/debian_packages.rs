//! Debian's part of a lock: the interpreter and the packages, from the archives that the machine's sources name.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;

use sconce_base::input;
use sconce_fetch::redact_url;
use sconce_formats::tags::CpuArchitecture;
use sconce_schema::lock::{Deb, StandalonePython};
use sconce_schema::{Bytes, Progress};
use tracing::{debug, info};

use crate::debian::index::DebianIndex;
use crate::debian::openpgp::{Verifier, find_verifier};
use crate::debian::sources::{self, MirrorPair, SignedBy};
use crate::debian::{ArchiveReader, Suite, base_packages, pythons, solve, version};
use crate::lock_input::{LockContext, LockInput, previous_lock};
use crate::python::download_table::DownloadTable;
use crate::python_search::CandidatePython;
use crate::system_needs::SystemNeed;
use crate::{ResolveError, compiler, stages};

/// Where the package debian-archive-keyring puts its keyring, newest name first.
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.pgp",
    "/usr/share/keyrings/debian-archive-keyring.gpg",
];

/// What resolving Debian's packages gives.
pub(crate) struct DebianPackages {
    pub(crate) debs: Vec<Deb>,
    /// What each of [`LockInput::more`] has beside them.
    pub(crate) of_stages: Vec<Vec<Deb>>,
    /// What a compiler has beside them, where one may be wanted: that is known with the wheels.
    pub(crate) compiler: Option<Result<Vec<Deb>, ResolveError>>,
    /// `3.13`
    pub(crate) python: String,
    /// Where that is none of the release's.
    pub(crate) interpreter: Option<StandalonePython>,
    /// As [`crate::ResolvedLock::security`].
    pub(crate) security: Option<BTreeMap<String, String>>,
}

/// What resolving Python packages needs to know of the release.
struct Interpreter {
    /// `3.13`
    version: String,
    /// `3.13.5-2+deb13u5`, `3.10.13`
    full: String,
    /// Where it is none of the release's.
    standalone: Option<StandalonePython>,
    /// `2.41-12+deb13u1`
    glibc: String,
}

/// `trixie` of `debian/trixie`.
pub(crate) fn codename(release: &str) -> Result<&str, ResolveError> {
    release
        .strip_prefix("debian/")
        .filter(|name| sconce_schema::spec::RELEASES.contains(name))
        .ok_or_else(|| ResolveError::Release {
            release: release.to_owned(),
        })
}

/// Reads Debian's archives and solves the dependencies of what the spec, its stages and a compiler ask for.
pub(crate) fn resolve_debian(
    input: &LockInput,
    env: &LockContext<'_>,
    machine: CpuArchitecture,
    table: &DownloadTable<'_>,
    progress: &dyn Progress,
    send: mpsc::Sender<CandidatePython>,
    needs: &[SystemNeed],
) -> Result<DebianPackages, ResolveError> {
    let (codename, previous) = (
        codename(&input.release)?,
        previous_lock(input, &input.release),
    );
    let mirrors = sources::select_mirrors(&env.apt_files, &input.mirror)?;
    let (main, security) = (
        redact_url(&mirrors.main),
        redact_url(mirrors.security.base_uri()),
    );
    info!(codename, main, security, "Debian's archives");
    let keyring = keyring(env.keyring.as_deref(), &mirrors)?;
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
    let interpreter = interpreter(&index, input, table)?;
    let candidate = CandidatePython {
        minor: minor(&interpreter.version, &input.release, "python3")?,
        full: version::upstream_version(&interpreter.full).to_owned(),
        release: input.release.clone(),
        glibc_minor: minor(
            version::upstream_version(&interpreter.glibc),
            &input.release,
            "libc6",
        )?,
        standalone: interpreter.standalone.clone(),
    };
    debug!(
        target = ?candidate.wheel_target(machine),
        python = interpreter.full,
        glibc = interpreter.glibc,
        "the interpreter"
    );
    // Nobody receives when no Python packages are wanted, or when uv could not be had.
    let _ = send.send(candidate);
    // A standalone one needs no packages of its own.
    let of_release = match interpreter.standalone {
        None => Some(interpreter.version.as_str()),
        Some(_) => None,
    };
    let mut requests = input.system_packages.clone();
    let has =
        |name: &&str| index.find_newest(name).is_some() || !index.providers_of(name).is_empty();
    let needed = needs.iter().map(|need| need.debian);
    requests.extend(needed.filter(has).map(str::to_owned));
    requests.extend(
        base_packages(of_release)
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
        let asked = stages::system_requests(more, of_release);
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
        let requests = [&requests[..], &compiler::package_requests(of_release)].concat();
        let all = self::debs(&index, &suites, &requests, &keep, &input.release)?;
        compiler::additional_packages(&debs, all)
    });
    let all: Vec<&Deb> = (debs.iter())
        .chain(compiler.iter().flatten().flatten())
        .collect();
    let security = newest_secure(&index, &suites, &format!("{codename}-security"), &all);
    Ok(DebianPackages {
        debs,
        of_stages,
        compiler,
        python: interpreter.version,
        interpreter: interpreter.standalone,
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

/// See [`crate::ResolvedLock::security`].
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

fn interpreter(
    index: &DebianIndex<'_>,
    input: &LockInput,
    table: &DownloadTable<'_>,
) -> Result<Interpreter, ResolveError> {
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
    let (full, standalone) = match newest(&format!("python{version}")) {
        Some(full) => (full, None),
        None => {
            let standalone = table.newest(minor(&version, &input.release, "python3")?)?;
            let standalone = standalone.ok_or_else(|| ResolveError::Python {
                release: input.release.clone(),
                wanted: version.clone(),
                has: pythons::list_python_versions(index),
                standalone: table.list_versions().unwrap_or_default(),
            })?;
            (standalone.version.clone(), Some(standalone))
        }
    };
    let glibc = newest("libc6").ok_or_else(|| missing("libc6"))?;
    Ok(Interpreter {
        version,
        full,
        standalone,
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

/// The keyring that the archives are signed with: the given one, the sources' own, else Debian's.
pub(crate) fn keyring(given: Option<&[u8]>, mirrors: &MirrorPair) -> Result<Vec<u8>, ResolveError> {
    let path = match (given, &mirrors.signed_by) {
        (Some(keyring), _) => return Ok(keyring.to_owned()),
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
