//! An environment, from wherever it is, to findings on a machine.

mod external_libraries;
mod library_packages;
mod pip;
pub mod precheck;
mod scan;

pub(crate) use self::scan::read_library;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use sconce_compat::explain::{CompilerState, LogEnvironment};
use sconce_compat::library::GpuCode;
use sconce_compat::loader::{
    self, BASE_NAMES, DRIVER_NAMES, LibraryTree, LoaderReport, SystemPackage,
};
use sconce_compat::matrix::{self, MatrixRow};
use sconce_compat::rules::{self, CheckInput, EnvironmentVersions};
use sconce_compat::{binary, correlate, tables};
use sconce_host::Roots;
use sconce_host::facts::LibrarySearch;
use sconce_image::slim::DeviceCodeFilter;
use sconce_resolve::debian::contents::LibraryPackages;
use sconce_schema::finding::{self, Certainty, Finding, Severity};
use sconce_schema::lock::LockTarget;
use sconce_schema::spec::GpuRequest;
use sconce_schema::{ComputeCapability, EnvironmentLayers, HostFacts, Lock};
use sconce_store::Store;

use self::external_libraries::ExternalLibraries;
use self::scan::TreeScan;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;

/// An environment that can be judged.
pub struct InspectedEnvironment {
    /// For people.
    pub name: String,
    environment: EnvironmentVersions,
    /// Trees, lowest first, and where each lies.
    trees: Vec<(String, TreeScan)>,
    /// What a folder's process loads from elsewhere.
    outside: ExternalLibraries,
    /// Variables of a run.
    variables: BTreeMap<String, String>,
    /// It is a folder that pip installs into, not a spec's.
    is_folder: bool,
    /// Whether somebody has seen that its Python packages go together: a lock's resolver did. Of installed
    /// ones only names, versions and libraries are read.
    pub is_resolved: bool,
    /// Packages of the lock that are not here: the tables stand for their bytes.
    pub absent: Vec<String>,
    /// Its run is refused where there is no card, as the spec asks for some.
    pub needs_cards: bool,
    /// Whether it has what torch.compile compiles with, and why not.
    compiler: Option<CompilerState>,
    /// What it was locked for; absent for what no lock stands for.
    locked_for: Option<LockTarget>,
    /// Names of Debian packages that are locked.
    debs: BTreeSet<String>,
    /// Debian packages by libraries that it lacks.
    system_packages: BTreeMap<String, SystemPackage>,
}

impl InspectedEnvironment {
    /// A lock's environment: what of it is in the store by its bytes, the rest by the tables.
    pub fn from_lock(name: &str, lock: &Lock, store: &Store) -> Result<Self> {
        let here = sconce_image::so_far(lock, store);
        let wheels = here.iter().flat_map(|here| &here.layers);
        let names: Vec<&str> = wheels.map(|layer| layer.name.as_str()).collect();
        let all = lock
            .wheels
            .iter()
            .map(|wheel| format!("{} {}", wheel.name, wheel.version));
        let absent = all.filter(|name| !names.contains(&name.as_str())).collect();
        let mut judged = match here {
            Some(manifest) => Self::of_trees(name, &manifest, store)?,
            None => Self::empty(name),
        };
        judged.environment = EnvironmentVersions::from_lock(lock);
        judged.is_resolved = true;
        judged.absent = absent;
        judged.locked_for = Some(lock.target.clone());
        judged.debs = lock.all_debs().map(|deb| deb.name.clone()).collect();
        if !lock.compiler_debs().is_empty() {
            judged.compiler = Some(CompilerState::Locked);
        }
        Ok(judged)
    }

    /// Unpacked trees of any image.
    pub fn of_trees(name: &str, manifest: &EnvironmentLayers, store: &Store) -> Result<Self> {
        let mut judged = Self::empty(name);
        for layer in &manifest.layers {
            let scan = TreeScan::load_or_read(&layer.path, Some(store))?;
            judged.trees.push(("/".to_owned(), scan));
        }
        judged.variables.clone_from(&manifest.env);
        judged.environment = judged.installed();
        Ok(judged)
    }

    /// A folder of installed packages on this machine, such as `.venv` or its `site-packages`.
    pub fn from_dir(folder: &Path, variables: BTreeMap<String, String>) -> Result<Self> {
        let real = folder.canonicalize().map_err(|source| AppError::File {
            action: FileAction::Read,
            path: folder.to_owned(),
            source,
        })?;
        let mut judged = Self::empty(&folder.display().to_string());
        if is_system(&real) {
            judged
                .trees
                .push(("/".to_owned(), TreeScan::read_system(&real)?));
            judged.environment = judged.installed();
            return Ok(judged);
        }
        let scan = TreeScan::load_or_read(&real, None)?;
        let roots = Roots::default();
        let system = LibrarySearch::new(&roots, None);
        judged.outside = ExternalLibraries::read_for_dir(&real, &scan, &variables, &|name| {
            system.find_system_library(name)
        });
        judged.is_folder = true;
        judged.trees.push((format!("{}/", real.display()), scan));
        judged.variables = variables;
        judged.environment = judged.installed();
        Ok(judged)
    }

    fn empty(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            environment: EnvironmentVersions::default(),
            trees: Vec::new(),
            outside: ExternalLibraries::default(),
            variables: BTreeMap::new(),
            is_folder: false,
            is_resolved: false,
            absent: Vec::new(),
            needs_cards: false,
            compiler: None,
            locked_for: None,
            debs: BTreeSet::new(),
            system_packages: BTreeMap::new(),
        }
    }

    /// Libraries that a locked environment lacks, and of which only an archive can tell which package
    /// brings them; and what the lock is for. `None` where there are none.
    pub fn unknown_libraries(&self, host: &HostFacts) -> Option<(&LockTarget, BTreeSet<String>)> {
        let target = self.locked_for.as_ref()?;
        let names = self.judge_loading(host).unknown_libraries;
        (!names.is_empty()).then_some((target, names))
    }

    /// With what an archive says of such libraries.
    pub fn with_library_packages(mut self, found: &BTreeMap<String, LibraryPackages>) -> Self {
        let is_locked = |name: &str| self.debs.contains(name);
        let packages = found.iter().filter_map(|(library, packages)| {
            let package = library_packages::choose_package(packages, &is_locked)?;
            Some((library.clone(), package))
        });
        self.system_packages = packages.collect();
        self
    }

    /// Debian packages that bring libraries which it lacks, each with the finding that says so.
    pub fn lacking_system_packages(&self, host: &HostFacts) -> Vec<(String, Finding)> {
        let findings = self.judge_loading(host).findings.into_iter();
        let named = findings.filter_map(|finding| {
            let package = library_packages::package_of(&finding)?.to_owned();
            Some((package, finding))
        });
        named.collect()
    }

    /// Whether there is anything to judge.
    pub fn is_empty(&self) -> bool {
        self.environment.packages.is_empty()
            && self.trees.iter().all(|(_, scan)| scan.libraries.is_empty())
    }

    /// In a few words: its packages that matter for CUDA, and their versions.
    pub fn format_summary(&self) -> String {
        let telling = ["torch", "torchvision", "torchaudio", "triton"];
        let packages = &self.environment.packages;
        let first = telling
            .iter()
            .filter_map(|name| packages.get_key_value(*name));
        let nvidias = packages
            .iter()
            .filter(|(name, _)| name.starts_with("nvidia-"));
        let told = first.chain(nvidias);
        let told: Vec<String> = told
            .map(|(name, package)| format!("{name} {}", package.version))
            .collect();
        format!("{}: {}", self.name, told.join(", "))
    }

    /// What the explanation of a log asks about a locked environment whose spec has this
    /// `[system] compiler`. No file of the environment is read.
    pub fn log_environment(lock: &Lock, compiler: Option<bool>) -> LogEnvironment {
        let mut judged = Self::empty("");
        judged.environment = EnvironmentVersions::from_lock(lock);
        let has_compiler = !lock.compiler_debs().is_empty();
        judged.compiler = has_compiler.then_some(CompilerState::Locked);
        judged.with_compiler_request(compiler).for_logs()
    }

    /// What the explanation of a log asks about it.
    pub fn for_logs(&self) -> LogEnvironment {
        let packages = self.environment.packages.iter();
        LogEnvironment {
            torch_cuda: self.environment.torch_cuda(),
            cpu_torch: self.environment.torch_backend() == Some(rules::TorchBackend::Cpu),
            packages: packages
                .map(|(name, package)| (name.clone(), package.version.clone()))
                .collect(),
            compiler: self.compiler,
            project: None,
        }
    }

    /// Says why a locked environment has no compiler: `wanted` is its spec's `[system] compiler`.
    pub fn with_compiler_request(mut self, wanted: Option<bool>) -> Self {
        // As a new lock decides it.
        let has_compiling_package = || {
            let torch = self.environment.version("torch");
            let major = torch.and_then(|torch| torch.split('.').next()?.parse::<u32>().ok());
            let mut names = self.environment.packages.keys();
            major.is_some_and(|major| major >= 2)
                || names.any(|name| {
                    name == "triton" || name.starts_with("triton-") || name == "pytorch-triton"
                })
        };
        self.compiler = Some(match (self.compiler, wanted) {
            (Some(CompilerState::Locked), _) => CompilerState::Locked,
            (_, Some(false)) => CompilerState::Excluded,
            (_, None) if !has_compiling_package() => CompilerState::NotRequested,
            (_, Some(true) | None) => CompilerState::NotLocked,
        });
        self
    }

    /// Sets variables of the run over the image's own.
    pub fn with_variables(mut self, variables: &BTreeMap<String, String>) -> Self {
        let variables = variables
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        self.variables.extend(variables);
        self
    }

    /// What its run asks for.
    pub fn with_cards(mut self, wanted: Option<&GpuRequest>) -> Self {
        self.needs_cards = match wanted {
            None | Some(GpuRequest::All) => false,
            Some(GpuRequest::Count(count)) => *count > 0,
            Some(GpuRequest::Listed(cards)) => !cards.is_empty(),
        };
        self
    }

    /// What is installed, by the names of metadata folders.
    fn installed(&self) -> EnvironmentVersions {
        let sites = self.sites();
        let folders = self.metadata();
        let named = folders.filter_map(|(site, name)| {
            let name = name.strip_suffix(".dist-info")?;
            // What a package keeps for itself is not installed.
            let is_own = sites.contains(&site);
            is_own.then(|| name.rsplit_once('-')).flatten()
        });
        let mut environment = EnvironmentVersions::from_packages(named);
        let version = self
            .trees
            .iter()
            .rev()
            .find_map(|(_, scan)| scan.torch.as_ref());
        environment.torch_build =
            version.and_then(|(text, _)| rules::TorchBackend::of_version_py(text));
        environment.python = sites.iter().find_map(|site| {
            let at = site.find("/python")? + "/python".len();
            let version = site[at..].split('/').next()?;
            version.contains('.').then(|| version.to_owned())
        });
        environment
    }

    /// Folders with metadata of Python packages, as the run sees them, and the metadata's name.
    fn metadata(&self) -> impl Iterator<Item = (String, &str)> {
        let folders = self
            .trees
            .iter()
            .flat_map(|(at, scan)| scan.metadata.iter().map(move |folder| (at, folder)));
        folders.map(|(at, folder)| {
            let (above, name) = folder.rsplit_once('/').unwrap_or(("", folder));
            let site = format!("{at}{above}");
            (site.trim_end_matches('/').to_owned(), name)
        })
    }

    /// Folders of Python packages, as the run sees them: what lies below another is what a package
    /// keeps for itself, such as `setuptools/_vendor`.
    fn sites(&self) -> Vec<String> {
        let mut sites: Vec<String> = Vec::new();
        for (site, _) in self.metadata() {
            if !sites.contains(&site) {
                sites.push(site);
            }
        }
        let all = sites.clone();
        let is_below = |site: &str, other: &str| {
            let rest = site.strip_prefix(other);
            !other.is_empty() && rest.is_some_and(|rest| rest.starts_with('/'))
        };
        sites.retain(|site| !all.iter().any(|other| is_below(site, other)));
        sites
    }

    /// Device code by file.
    fn device_code(&self) -> Vec<(&str, &GpuCode)> {
        let libraries = self.trees.iter().flat_map(|(_, scan)| &scan.libraries);
        let with_code = libraries.filter(|(_, library)| !library.gpu.coverage.is_empty());
        with_code
            .map(|(path, library)| (path.as_str(), &library.gpu))
            .collect()
    }

    /// What the environment would meet on a machine, and what is wrong with the machine itself; the
    /// heaviest first.
    pub fn check_host(&self, host: &HostFacts) -> Vec<Finding> {
        let case = CheckInput {
            host,
            environment: Some(&self.environment),
            files: &self.device_code(),
        };
        let mut findings = rules::check_all(&case);
        findings.extend(self.judge_loading(host).findings);
        findings.extend(self.unread(&findings));
        correlate::merge_explained_findings(&mut findings);
        finding::sort_by_severity(&mut findings);
        if self.is_folder {
            for finding in &mut findings {
                pip::rewrite_fixes(finding, &self.environment);
            }
        }
        findings
    }

    /// Whether torch is among its packages.
    pub fn has_torch(&self) -> bool {
        self.environment.version("torch").is_some()
    }

    /// The environment on several machines.
    pub fn matrix_row(&self, hosts: &[HostFacts]) -> MatrixRow {
        matrix::environment_row(&self.name, &self.environment, &self.device_code(), hosts)
    }

    /// What the loader would not find, or find twice.
    fn judge_loading(&self, host: &HostFacts) -> LoaderReport {
        let nothing = |scan: &TreeScan| scan.libraries.is_empty() && scan.refused.is_empty();
        if self.trees.iter().all(|(_, scan)| nothing(scan)) {
            return LoaderReport::default();
        }
        let machine = self
            .trees
            .iter()
            .flat_map(|(_, scan)| scan.libraries.values())
            .map(|library| library.machine);
        let mut tree = LibraryTree::new(most_common(machine));
        for (at, scan) in &self.trees {
            for (path, library) in &scan.libraries {
                tree.add_library(&format!("{at}{path}"), library);
            }
            for (path, is_short) in &scan.refused {
                tree.add_refused_file(&format!("{at}{path}"), *is_short);
            }
            for (path, target) in &scan.links {
                tree.add_link(&format!("{at}{path}"), target);
            }
        }
        self.outside.lay_into(&mut tree);
        let variable = |name: &str| self.variables.get(name).cloned().unwrap_or_default();
        tree.library_path = variable("LD_LIBRARY_PATH");
        tree.preload = variable("LD_PRELOAD");
        // Those of the system that a folder of packages is run on.
        let has_system = self.trees.iter().any(|(_, scan)| {
            scan.libraries
                .keys()
                .any(|path| path.ends_with("/libc.so.6"))
        });
        if !has_system {
            BASE_NAMES
                .iter()
                .for_each(|name| tree.add_provided_name(name));
        }
        if host.driver.is_some() || !host.cards.is_empty() {
            DRIVER_NAMES
                .iter()
                .for_each(|name| tree.add_provided_name(name));
        }
        let packages = self.environment.packages.iter();
        loader::check_imports(&loader::LoaderInput {
            tree: &tree,
            site_packages: self.sites(),
            torch: self.environment.torch_release().map(|torch| torch.release),
            versions: packages
                .map(|(name, package)| (name.clone(), package.version.clone()))
                .collect(),
            system_packages: self.system_packages.clone(),
        })
    }

    /// Files that could not be read are not judged, which is said; but not of those that the loader
    /// is said to refuse.
    fn unread(&self, found: &[Finding]) -> Vec<Finding> {
        fn file_name(path: &str) -> &str {
            path.rsplit('/').next().unwrap_or(path)
        }
        let refused = found.iter().filter(|one| one.code == "library-unreadable");
        let refused = refused.flat_map(|one| &one.evidence);
        let refused: BTreeSet<&str> = refused.map(|one| file_name(&one.source)).collect();
        let unread: Vec<(&String, &String)> = self
            .trees
            .iter()
            .flat_map(|(_, scan)| &scan.unread)
            .filter(|(path, _)| !refused.contains(file_name(path)))
            .collect();
        if unread.is_empty() {
            return Vec::new();
        }
        let what = match unread.len() {
            1 => "1 library could not be read and is not judged".to_owned(),
            count => format!("{count} libraries could not be read and are not judged"),
        };
        let mut found = Finding::new("not-read", Severity::Warns, Certainty::Certain, what);
        for (path, why) in unread {
            found = found.with_evidence(path, None, why);
        }
        vec![found]
    }
}

/// The compute capabilities of the cards of a spec, which names them, or says the capability.
///
/// # Errors
/// A card that is not known.
pub fn resolve_capabilities(cards: &[String]) -> Result<Vec<ComputeCapability>> {
    let capability = |card: &String| match card.parse::<ComputeCapability>() {
        Ok(capability) => Ok(capability),
        Err(_) => Ok(tables::resolve_gpu_name(card)?.card.capability),
    };
    let known: Result<BTreeSet<ComputeCapability>> = cards.iter().map(capability).collect();
    Ok(known?.into_iter().collect())
}

/// Which device code a slim image for these cards leaves out. `None` where there are none.
pub fn device_code(cards: &[ComputeCapability]) -> Option<DeviceCodeFilter> {
    // A file that cannot be read here fails where it is packed.
    let unneeded = |file: &File, cards: &[ComputeCapability]| {
        let bytes = scan::OpenedFile::new(file).ok();
        let found = bytes.and_then(|bytes| binary::list_unused_code(&bytes, cards).ok());
        found.unwrap_or_default()
    };
    (!cards.is_empty()).then(|| DeviceCodeFilter {
        cards: cards.to_vec(),
        unneeded,
    })
}

/// Whether a folder is a whole system's root, as umoci, enroot or a chroot have it: its programs find
/// their libraries in there, and not on this machine.
fn is_system(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).is_dir();
    folder.parent().is_some() && has("etc") && has("usr/bin") && has("usr/lib")
}

/// The machine of most libraries: an image may hold some for others.
fn most_common(machines: impl Iterator<Item = u16>) -> u16 {
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    for machine in machines {
        *counts.entry(machine).or_default() += 1;
    }
    counts
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .map_or(62, |(machine, _)| machine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_s_root_is_judged_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let site = "opt/venv/lib/python3.13/site-packages/numpy-2.5.5.dist-info";
        for name in ["etc", "usr/bin", "usr/lib", site] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let judged = InspectedEnvironment::from_dir(folder.path(), BTreeMap::new()).unwrap();
        assert_eq!(judged.sites(), ["/opt/venv/lib/python3.13/site-packages"]);
        assert_eq!(judged.environment.python.as_deref(), Some("3.13"));
        // This machine's own root is this machine's.
        assert!(!is_system(Path::new("/")));
    }

    #[test]
    fn a_lock_without_a_compiler_has_a_reason() {
        let state = |packages: &[(&str, &str)], locked, wanted| {
            let mut judged = InspectedEnvironment::empty("a");
            let packages = packages.iter().copied();
            judged.environment = EnvironmentVersions::from_packages(packages);
            judged.compiler = locked;
            judged
                .with_compiler_request(wanted)
                .for_logs()
                .compiler
                .unwrap()
        };
        let (old, new) = ([("torch", "1.13.1")], [("torch", "2.15.0+cpu")]);
        let triton = [("triton-nightly", "3.9.0")];
        let (unknown, locked) = (None, CompilerState::Locked);
        for compiling in [&new, &triton] {
            let is = |wanted| state(compiling, unknown, wanted);
            assert_eq!(is(Some(false)), CompilerState::Excluded);
            assert_eq!(is(Some(true)), CompilerState::NotLocked);
            assert_eq!(is(None), CompilerState::NotLocked);
        }
        assert_eq!(state(&old, unknown, None), CompilerState::NotRequested);
        assert_eq!(state(&old, unknown, Some(false)), CompilerState::Excluded);
        assert_eq!(state(&[], unknown, Some(true)), CompilerState::NotLocked);
        // The run that failed had the lock's.
        assert_eq!(state(&new, Some(locked), Some(false)), locked);
    }

    #[test]
    fn what_a_package_keeps_for_itself_is_not_installed() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "setuptools-84.2.1.dist-info",
            "setuptools/_vendor/wheel-0.45.1.dist-info",
            "torch-2.15.0.dist-info",
        ] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let judged = InspectedEnvironment::from_dir(folder.path(), BTreeMap::new()).unwrap();
        let real = folder.path().canonicalize().unwrap();
        assert_eq!(judged.sites(), [real.to_str().unwrap()]);
        let names: Vec<&String> = judged.environment.packages.keys().collect();
        assert_eq!(names, ["setuptools", "torch"]);
    }
}
