//! An environment, from wherever it is, to findings on a machine.

pub(crate) mod quick;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use sconce_compat::library::GpuCode;
use sconce_compat::loader::{self, BASE_NAMES, DRIVER_NAMES, Tree};
use sconce_compat::matrix::{self, Row};
use sconce_compat::rules::{self, Case, Environment};
use sconce_compat::{binary, tables};
use sconce_image::slim::DeviceCode;
use sconce_schema::finding::{self, Action, Certainty, Finding, Weight};
use sconce_schema::{ComputeCapability, HostFacts, ImageManifest, Lock};
use sconce_store::Store;

use self::scan::Scan;
use crate::failure::{CliError, Result};

/// An environment that can be judged.
pub(crate) struct Judged {
    /// For people.
    pub(crate) name: String,
    environment: Environment,
    /// Trees, lowest first, and where each lies.
    trees: Vec<(String, Scan)>,
    /// Folders of LD_LIBRARY_PATH that are not of the environment: their libraries go before its own.
    search: Vec<(String, Scan)>,
    /// Variables of a run.
    variables: BTreeMap<String, String>,
    /// It is a folder that pip installs into, not a spec's.
    is_folder: bool,
    /// Packages of the lock that are not here: the tables stand for their bytes.
    pub(crate) absent: Vec<String>,
}

impl Judged {
    /// A lock's environment: what of it is in the store by its bytes, the rest by the tables.
    pub(crate) fn locked(name: &str, lock: &Lock, store: &Store) -> Result<Self> {
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
        judged.environment = Environment::locked(lock);
        judged.absent = absent;
        Ok(judged)
    }

    /// Unpacked trees of any image.
    pub(crate) fn of_trees(name: &str, manifest: &ImageManifest, store: &Store) -> Result<Self> {
        let mut judged = Self::empty(name);
        for layer in &manifest.layers {
            let scan = Scan::of(&layer.path, Some(store))?;
            judged.trees.push(("/".to_owned(), scan));
        }
        judged.variables.clone_from(&manifest.env);
        judged.environment = judged.installed();
        Ok(judged)
    }

    /// A folder of installed packages on this machine, such as `.venv` or its `site-packages`.
    pub(crate) fn folder(folder: &Path, variables: BTreeMap<String, String>) -> Result<Self> {
        let real = folder.canonicalize().map_err(|source| CliError::File {
            action: "read",
            path: folder.to_owned(),
            source,
        })?;
        let mut judged = Self::empty(&folder.display().to_string());
        let scan = Scan::of(&real, None)?;
        judged.is_folder = true;
        let path = variables.get("LD_LIBRARY_PATH").map_or("", String::as_str);
        judged.search = searched(path, &real, &scan);
        judged.trees.push((format!("{}/", real.display()), scan));
        judged.variables = variables;
        judged.environment = judged.installed();
        Ok(judged)
    }

    fn empty(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            environment: Environment::default(),
            trees: Vec::new(),
            search: Vec::new(),
            variables: BTreeMap::new(),
            is_folder: false,
            absent: Vec::new(),
        }
    }

    /// Whether there is anything to judge.
    pub(crate) fn is_empty(&self) -> bool {
        self.environment.packages.is_empty()
            && self.trees.iter().all(|(_, scan)| scan.libraries.is_empty())
    }

    /// In a few words: its packages that matter for CUDA, and their versions.
    pub(crate) fn described(&self) -> String {
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

    /// What the explanation of a log asks about it.
    pub(crate) fn for_logs(&self) -> sconce_compat::explain::Environment {
        let packages = self.environment.packages.iter();
        sconce_compat::explain::Environment {
            torch_cuda: self.environment.cuda(),
            cpu_torch: self.environment.build() == Some(rules::Build::Cpu),
            packages: packages
                .map(|(name, package)| (name.clone(), package.version.clone()))
                .collect(),
        }
    }

    /// Sets variables of the run over the image's own.
    pub(crate) fn with_variables(mut self, variables: &BTreeMap<String, String>) -> Self {
        let variables = variables
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        self.variables.extend(variables);
        self
    }

    /// What is installed, by the names of metadata folders.
    fn installed(&self) -> Environment {
        let folders = self.trees.iter().flat_map(|(_, scan)| &scan.metadata);
        let named = folders.filter_map(|folder| {
            let name = folder.rsplit('/').next()?.strip_suffix(".dist-info")?;
            name.rsplit_once('-')
        });
        let mut environment = Environment::installed(named);
        let version = self
            .trees
            .iter()
            .rev()
            .find_map(|(_, scan)| scan.torch.as_ref());
        environment.torch_build = version.and_then(|(text, _)| rules::Build::of_version_py(text));
        environment.python = self.sites().iter().find_map(|site| {
            let at = site.find("/python")? + "/python".len();
            let version = site[at..].split('/').next()?;
            version.contains('.').then(|| version.to_owned())
        });
        environment
    }

    /// Folders of Python packages, as the run sees them.
    fn sites(&self) -> Vec<String> {
        let mut sites = Vec::new();
        for (at, scan) in &self.trees {
            for folder in &scan.metadata {
                let above = folder.rsplit_once('/').map_or("", |(above, _)| above);
                let site = format!("{at}{above}");
                let site = site.trim_end_matches('/').to_owned();
                if !sites.contains(&site) {
                    sites.push(site);
                }
            }
        }
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
    pub(crate) fn findings(&self, host: &HostFacts) -> Vec<Finding> {
        let case = Case {
            host,
            environment: Some(&self.environment),
            files: &self.device_code(),
        };
        let mut findings = rules::judge(&case);
        findings.extend(self.loading(host));
        findings.extend(self.unread());
        finding::sort(&mut findings);
        if self.is_folder {
            for finding in &mut findings {
                with_pip(finding, &self.environment);
            }
        }
        findings
    }

    /// Whether torch is among its packages.
    pub(crate) fn has_torch(&self) -> bool {
        self.environment.version("torch").is_some()
    }

    /// The environment on several machines.
    pub(crate) fn row(&self, hosts: &[HostFacts]) -> Row {
        matrix::environment(&self.name, &self.environment, &self.device_code(), hosts)
    }

    /// What the loader would not find, or find twice.
    fn loading(&self, host: &HostFacts) -> Vec<Finding> {
        if self.trees.iter().all(|(_, scan)| scan.libraries.is_empty()) {
            return Vec::new();
        }
        let machine = self
            .trees
            .iter()
            .flat_map(|(_, scan)| scan.libraries.values())
            .map(|library| library.machine);
        let mut tree = Tree::new(most_common(machine));
        for (at, scan) in self.trees.iter().chain(&self.search) {
            for (path, library) in &scan.libraries {
                tree.library(&format!("{at}{path}"), library);
            }
            for (path, is_short) in &scan.refused {
                tree.refused(&format!("{at}{path}"), *is_short);
            }
            for (path, target) in &scan.links {
                tree.link(&format!("{at}{path}"), target);
            }
        }
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
            BASE_NAMES.iter().for_each(|name| tree.provide(name));
        }
        if host.driver.is_some() || !host.cards.is_empty() {
            DRIVER_NAMES.iter().for_each(|name| tree.provide(name));
        }
        let judgement = loader::judge(&loader::Environment {
            tree: &tree,
            site_packages: self.sites(),
            torch: self.environment.torch().map(|torch| torch.release),
        });
        judgement.findings
    }

    /// Files that could not be read are not judged, which is said.
    fn unread(&self) -> Vec<Finding> {
        let unread: Vec<(&String, &String)> = self
            .trees
            .iter()
            .flat_map(|(_, scan)| &scan.unread)
            .collect();
        if unread.is_empty() {
            return Vec::new();
        }
        let what = format!(
            "{} libraries could not be read and are not judged",
            unread.len()
        );
        let mut found = Finding::new("not-read", Weight::Warns, Certainty::Certain, what);
        for (path, why) in unread {
            found = found.seen(path, None, why);
        }
        vec![found]
    }
}

/// The compute capabilities of the cards of a spec, which names them, or says the capability.
///
/// # Errors
/// A card that is not known.
pub(crate) fn capabilities(cards: &[String]) -> Result<Vec<ComputeCapability>> {
    let capability = |card: &String| match card.parse::<ComputeCapability>() {
        Ok(capability) => Ok(capability),
        Err(_) => Ok(tables::card(card)?.card.capability),
    };
    let known: Result<BTreeSet<ComputeCapability>> = cards.iter().map(capability).collect();
    Ok(known?.into_iter().collect())
}

/// What LD_LIBRARY_PATH has outside a folder of the libraries that the folder's own ask for, or that it
/// has itself: some are asked for by name while they run (dlopen).
fn searched(path: &str, folder: &Path, scan: &Scan) -> Vec<(String, Scan)> {
    const MOST_FOLDERS: usize = 64;
    let needed = scan.libraries.values().flat_map(|library| &library.needed);
    let own = scan.libraries.keys().chain(scan.links.keys());
    let own = own.map(|path| path.rsplit('/').next().unwrap_or(path));
    let needed: BTreeSet<&str> = needed
        .map(String::as_str)
        .filter(|name| !name.contains('/'))
        .chain(own)
        .collect();
    let outside = |entry: &&str| entry.starts_with('/') && !Path::new(entry).starts_with(folder);
    let entries = path.split([':', ';']).filter(outside);
    let scans = entries.take(MOST_FOLDERS).map(|entry| {
        let found = Scan::named(Path::new(entry), needed.iter().copied());
        (format!("{}/", entry.trim_end_matches('/')), found)
    });
    scans.collect()
}

/// Mends of a folder are pip's: what a spec would say is a command, unless a better one stands there
/// already, and what is installed again stays at its version.
fn with_pip(finding: &mut Finding, environment: &Environment) {
    const PIP: &str = "python -m pip install ";
    let is_pip = |action: &Option<Action>| match action {
        Some(Action::Command { line, .. }) => line.starts_with(PIP),
        _ => false,
    };
    if finding.mends.iter().any(|mend| is_pip(&mend.action)) {
        let of_spec = |action: &Option<Action>| match action {
            Some(Action::Spec { key, .. }) => key == "python.packages",
            _ => false,
        };
        finding.mends.retain(|mend| !of_spec(&mend.action));
    }
    for mend in &mut finding.mends {
        match &mut mend.action {
            Some(Action::Command { line, .. }) if line.starts_with(PIP) => {
                *line = pinned(line, environment);
            }
            Some(Action::Spec { key, value }) if key == "python.packages" => {
                let Some(wanted) = requirements(value) else {
                    continue;
                };
                mend.action = Some(Action::Command {
                    line: format!("{PIP}{wanted}"),
                    root: false,
                    safe: false,
                });
            }
            _ => {}
        }
    }
}

/// Requirements of a spec as words of a shell. `None` for what is not plainly that, and for builds of
/// other indexes than the default one, which would have to be named.
fn requirements(value: &str) -> Option<String> {
    let wanted: Vec<String> = serde_json::from_str(value).ok()?;
    let plain = |one: &String| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-=<>~*,".contains(c);
        one.starts_with(|c: char| c.is_ascii_alphanumeric()) && one.chars().all(fits)
    };
    if wanted.is_empty() || !wanted.iter().all(plain) {
        return None;
    }
    let word = |one: &String| match one.contains(['<', '>', '*', '~']) {
        true => format!("'{one}'"),
        false => one.clone(),
    };
    Some(wanted.iter().map(word).collect::<Vec<_>>().join(" "))
}

/// The line with the versions that are installed: of torch always, of others where they are installed
/// again as they are.
fn pinned(line: &str, environment: &Environment) -> String {
    let as_is = line.contains(" --no-deps ");
    let words: Vec<&str> = line.split(' ').collect();
    let pin = |(at, word): (usize, &&str)| {
        let is_last = at + 1 == words.len();
        // A local version is not the default index's.
        let version = environment
            .version(word)
            .filter(|version| !version.contains('+'));
        match version.filter(|_| *word == "torch" || (as_is && is_last)) {
            Some(version) => format!("{word}=={version}"),
            None => (*word).to_owned(),
        }
    };
    words
        .iter()
        .enumerate()
        .map(pin)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Which device code a slim image for these cards leaves out. `None` where there are none.
pub(crate) fn device_code(cards: &[ComputeCapability]) -> Option<DeviceCode> {
    // A file that cannot be read here fails where it is packed.
    let unneeded = |file: &File, cards: &[ComputeCapability]| {
        let bytes = scan::Open::of(file).ok();
        let found = bytes.and_then(|bytes| binary::superfluous(&bytes, cards).ok());
        found.unwrap_or_default()
    };
    (!cards.is_empty()).then(|| DeviceCode {
        cards: cards.to_vec(),
        unneeded,
    })
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

    fn mended(actions: &[Action]) -> Vec<String> {
        let packages = [("torch", "2.8.0"), ("nvidia-cudnn-cu12", "9.10.2.21")];
        let mut finding = Finding::new("x", Weight::Fails, Certainty::Certain, "x");
        for action in actions {
            finding = finding.mend("x", Some(action.clone()));
        }
        with_pip(&mut finding, &Environment::installed(packages));
        let said = finding.mends.iter().map(|mend| match &mend.action {
            Some(Action::Command { line, .. }) => line.clone(),
            other => format!("{other:?}"),
        });
        said.collect()
    }

    fn spec(key: &str, value: &str) -> Action {
        Action::Spec {
            key: key.to_owned(),
            value: value.to_owned(),
        }
    }

    fn command(line: &str) -> Action {
        Action::Command {
            line: line.to_owned(),
            root: false,
            safe: false,
        }
    }

    #[test]
    fn a_folder_is_mended_with_pip() {
        for (value, line) in [
            ("[\"torch==2.8.0\"]", "python -m pip install torch==2.8.0"),
            (
                "[\"torchvision==0.23.*\", \"six\"]",
                "python -m pip install 'torchvision==0.23.*' six",
            ),
        ] {
            assert_eq!(mended(&[spec("python.packages", value)]), [line]);
        }
        for (key, value) in [
            ("python.packages", "[\"torch==2.8.0+cu126\"]"),
            ("python.packages", "[\"a; touch x\"]"),
            ("python.packages", "[\"a'b\"]"),
            ("python.packages", "[\"--pre\"]"),
            ("python.packages", "[]"),
            ("python.packages", "torch"),
            ("system.packages", "[\"libgl1\"]"),
        ] {
            let said = mended(&[spec(key, value)]);
            assert!(said[0].starts_with("Some(Spec"), "{said:?}");
        }
    }

    #[test]
    fn what_is_installed_again_stays_at_its_version() {
        let again = "python -m pip install --force-reinstall --no-deps nvidia-cudnn-cu12";
        let spec = spec("python.packages", "[\"nvidia-cudnn-cu12\"]");
        // One way is enough.
        assert_eq!(
            mended(&[command(again), spec]),
            [format!("{again}==9.10.2.21")]
        );
        for (line, typed) in [
            (
                "python -m pip install --force-reinstall torch torchvision",
                "python -m pip install --force-reinstall torch==2.8.0 torchvision",
            ),
            (
                "python -m pip install --no-deps --no-binary apex apex",
                "python -m pip install --no-deps --no-binary apex apex",
            ),
            ("modprobe torch", "modprobe torch"),
        ] {
            assert_eq!(mended(&[command(line)]), [typed]);
        }
    }

    #[test]
    fn libraries_before_a_folders_own_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let (venv, other) = (dir.path().join("venv"), dir.path().join("other"));
        for folder in [&venv, &other] {
            std::fs::create_dir(folder).unwrap();
        }
        // The test itself is a program that needs the C library.
        std::fs::copy("/proc/self/exe", venv.join("a.so")).unwrap();
        std::fs::copy("/proc/self/exe", other.join("libc.so.6")).unwrap();
        std::fs::copy("/proc/self/exe", other.join("unasked.so")).unwrap();
        let path = format!("relative:/nowhere:{}/:", other.display());
        let variables = [("LD_LIBRARY_PATH".to_owned(), path)].into();
        let judged = Judged::folder(&venv, variables).unwrap();
        let found = judged
            .search
            .iter()
            .filter(|(_, scan)| !scan.libraries.is_empty());
        let found: Vec<(&str, Vec<&String>)> = found
            .map(|(at, scan)| (at.as_str(), scan.libraries.keys().collect()))
            .collect();
        let at = format!("{}/", other.display());
        assert_eq!(found, [(at.as_str(), vec![&"libc.so.6".to_owned()])]);
    }
}
