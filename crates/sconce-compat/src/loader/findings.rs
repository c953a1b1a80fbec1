//! A Python process that imports torch and everything else, to findings.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use sconce_schema::finding::{self, Certainty, Finding, FixAction, Severity};

use super::load_results::{
    LibraryIndex, LoadAttempt, LoadPoint, LoadResults, describe_origin, strip_dir_prefix,
};
use super::missing_libraries::{MissingLibraryContext, SystemPackage, uses_torch};
use super::process::LoaderProcess;
use super::torch::{self, TorchVersion};
use super::tree::{LibraryTree, file_name, parent_dir};
use super::{cudnn, duplicates, mismatch, missing_libraries};

/// Files named in one finding.
const MAX_NAMED_FILES: usize = 12;
const VARIABLE: &str = "LD_LIBRARY_PATH";

/// What is to be judged.
#[derive(Debug, Clone)]
pub struct LoaderInput<'e, 'a> {
    /// Its libraries.
    pub tree: &'e LibraryTree<'a>,
    /// The folders of its Python packages, in the order of `sys.path`.
    pub site_packages: Vec<String>,
    /// The version of its torch; none: the newest that is known of.
    pub torch: Option<TorchVersion>,
    /// Versions of its Python packages by normalised name, for mends; empty: not known.
    pub versions: BTreeMap<String, String>,
    /// Debian packages by the libraries that they have, as an archive says; the few that every archive
    /// has are known without it.
    pub system_packages: BTreeMap<String, SystemPackage>,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct LoaderReport {
    /// What is wrong, the heaviest first.
    pub findings: Vec<Finding>,
    /// What `import torch` loads, in order.
    pub torch: Vec<LibraryResolution>,
    /// Libraries that are missing and of which it is not known which package brings them.
    pub unknown_libraries: BTreeSet<String>,
    /// Extension modules that were opened.
    pub modules: usize,
}

/// A library that was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryResolution {
    /// The file.
    pub path: String,
    /// The file that it was first loaded for; none: it was opened by its path.
    pub needed_by: Option<String>,
    /// What led to it, for people.
    pub how: String,
}

/// Simulates a Python process: the program, `import torch`, what torch and cuDNN open later, every
/// other extension module on its own, and says what fails.
#[must_use]
pub fn check_imports(environment: &LoaderInput<'_, '_>) -> LoaderReport {
    let tree = environment.tree;
    // Objects have paths without links, so folders must too.
    let resolved = environment
        .site_packages
        .iter()
        .filter_map(|site| tree.resolve(site));
    let site_packages: Vec<String> = resolved.collect();
    let index = LibraryIndex::from_tree(tree);
    let mut gathered = LoadResults::default();
    let (fresh, started) = LoaderProcess::start(tree);
    let program = tree.program.as_deref().unwrap_or("the program");
    let opening = LoadAttempt {
        stage: LoadPoint::Start,
        path: program,
        error_kind: "python: error while loading shared libraries",
    };
    gathered.add_result(&fresh, &started, opening);

    let mut judgement = LoaderReport::default();
    let mut process = fresh.clone();
    let version = environment.torch.unwrap_or((u32::MAX, 0));
    let import = torch::simulate_import(&mut process, &environment.site_packages, version);
    let import = import.unwrap_or_default();
    for step in &import.steps {
        let opening = LoadAttempt {
            stage: LoadPoint::Torch,
            path: &step.path,
            error_kind: step.error_kind,
        };
        gathered.add_result(&process, &step.opened, opening);
    }
    judgement.torch = resolutions(&process, fresh.objects().len());
    let known = MissingLibraryContext {
        tree,
        index: &index,
        site_packages: &site_packages,
        cuda_major: torch::cuda_major(tree, &site_packages),
        preload_error: import.preload_error.as_deref(),
        versions: &environment.versions,
        system_packages: &environment.system_packages,
    };
    let after_torch = process.clone();
    let lazy = cudnn::check_sublibraries(&mut process, &mut gathered, &known);
    open_linalg(&mut process, &mut gathered);
    let mut opened: HashSet<String> = gathered.loaded.iter().map(|one| one.real.clone()).collect();

    let mut alone = fresh;
    let mut with_torch = after_torch;
    for (path, _) in tree
        .libraries()
        .filter(|(path, _)| is_module(path, &site_packages))
    {
        if opened.contains(path) {
            continue;
        }
        judgement.modules += 1;
        open_module(path, &mut alone, &mut with_torch, &mut gathered);
    }
    opened.extend(gathered.loaded.iter().map(|one| one.real.clone()));
    open_rest(&mut process, &mut gathered, &site_packages, &opened);

    let mut findings = missing_libraries::check_missing_libraries(&gathered.missing, &known);
    findings.extend(preloads(&gathered));
    findings.extend(lazy);
    findings.extend(mismatch::check_missing_versions(&gathered.versions, &known));
    findings.extend(mismatch::check_undefined_symbols(
        &gathered.symbols,
        &gathered.loaded,
        &known,
    ));
    findings.extend(duplicates::check_duplicates(&gathered.loaded, &known));
    findings.extend(relative(&gathered));
    judgement.unknown_libraries = missing_libraries::list_unknown(&gathered.missing, &known);
    finding::sort_by_severity(&mut findings);
    judgement.findings = findings;
    judgement
}

/// An extension module: Python imports it, or a package opens it as one. Names in `lib` are left to
/// those that need them: a package may ship one for every CUDA and open one of them.
fn is_module(path: &str, site_packages: &[String]) -> bool {
    let Some(inner) = site_packages
        .iter()
        .find_map(|site| strip_dir_prefix(path, site))
    else {
        return false;
    };
    let name = file_name(path);
    let tagged = name.contains(".cpython-") || name.ends_with(".abi3.so");
    let foreign = ["torch/", "nvidia/"]
        .iter()
        .any(|own| inner.starts_with(own));
    let vendored = parent_dir(inner).ends_with(".libs");
    name.ends_with(".so") && !foreign && !vendored && (tagged || !name.starts_with("lib"))
}

/// Opens a module after torch if it is linked to torch or CUDA, or else in a fresh process, and
/// there only takes as missing what an import of torch before does not bring either.
fn open_module(
    path: &str,
    alone: &mut LoaderProcess<'_, '_>,
    with_torch: &mut LoaderProcess<'_, '_>,
    gathered: &mut LoadResults,
) {
    let opening = LoadAttempt {
        stage: LoadPoint::Module,
        path,
        error_kind: "ImportError",
    };
    if !uses_torch(path, alone.tree) {
        let opened = alone.open(path, None, false);
        let whole = opened.missing.is_empty();
        if whole {
            gathered.add_result(alone, &opened, opening);
        }
        alone.unload_new_objects(&opened);
        if whole {
            return;
        }
    }
    let opened = with_torch.open(path, None, false);
    gathered.add_result(with_torch, &opened, opening);
    with_torch.unload_new_objects(&opened);
}

/// Torch opens its part for linear algebra by name, from libtorch_cuda.
fn open_linalg(process: &mut LoaderProcess<'_, '_>, gathered: &mut LoadResults) {
    let name = "libtorch_cuda_linalg.so";
    let Some(caller) = process.find_object("libtorch_cuda.so") else {
        return;
    };
    let opened = process.open(name, Some(caller), false);
    // Older builds have it within libtorch_cuda.
    if opened.root.is_some() {
        let opening = LoadAttempt {
            stage: LoadPoint::Later("torch.linalg"),
            path: name,
            error_kind: "RuntimeError: Error in dlopen",
        };
        gathered.add_result(process, &opened, opening);
    }
    if !opened.missing.is_empty() {
        process.unload_new_objects(&opened);
    }
}

/// What no one has opened so far: only what is missing there is of interest.
fn open_rest(
    process: &mut LoaderProcess<'_, '_>,
    gathered: &mut LoadResults,
    site_packages: &[String],
    opened: &HashSet<String>,
) {
    let tree = process.tree;
    let mine = |path: &str| {
        site_packages
            .iter()
            .any(|site| strip_dir_prefix(path, site).is_some())
    };
    for (path, _) in tree
        .libraries()
        .filter(|(path, _)| mine(path) && !opened.contains(*path))
    {
        let came = process.open(path, None, false);
        let needed_here = |missing: &super::UnresolvedLibrary| missing.needed_by == came.root;
        for missing in came.missing.iter().filter(|missing| needed_here(missing)) {
            let opening = LoadAttempt {
                stage: LoadPoint::Optional,
                path,
                error_kind: "OSError",
            };
            gathered.add_missing(missing.clone(), opening);
        }
        process.unload_new_objects(&came);
    }
}

fn resolutions(process: &LoaderProcess<'_, '_>, from: usize) -> Vec<LibraryResolution> {
    let objects = process.objects();
    let loaded = objects.iter().skip(from);
    loaded
        .map(|object| LibraryResolution {
            path: object.real.clone(),
            needed_by: object.loader.map(|loader| objects[loader].real.clone()),
            how: describe_origin(objects, &object.found),
        })
        .collect()
}

/// `LD_PRELOAD` names what is not there: the loader says so and goes on.
fn preloads(gathered: &LoadResults) -> Vec<Finding> {
    let preloads = gathered
        .missing
        .iter()
        .filter(|missing| missing.is_preload());
    preloads
        .map(|missing| {
            let name = &missing.name;
            let what = format!("LD_PRELOAD names {name}, which the loader does not find");
            let text = format!(
                "ERROR: ld.so: object '{name}' from LD_PRELOAD cannot be preloaded (cannot open \
                 shared object file): ignored."
            );
            Finding::new(
                "preload-not-found",
                Severity::Warns,
                Certainty::Certain,
                what,
            )
            .with_subject(name)
            .would_say(text)
            .with_evidence("LD_PRELOAD", None, name)
            .with_fix(
                "Take it out of LD_PRELOAD.",
                Some(FixAction::Variable {
                    name: "LD_PRELOAD".to_owned(),
                    value: None,
                }),
            )
        })
        .collect()
}

/// Search paths that mean whatever folder the run starts in.
fn relative(gathered: &LoadResults) -> Vec<Finding> {
    let code = "search-in-working-directory";
    let mut findings = Vec::new();
    let is_variable = |source: &str| source == VARIABLE;
    let entries = gathered.relative.iter();
    let (variable, libraries): (Vec<_>, Vec<_>) =
        entries.partition(|(source, _)| is_variable(source));
    if let Some((_, entry)) = variable.first() {
        let what = "LD_LIBRARY_PATH has an entry that means the working directory: a library that \
                    lies there is taken, which was not judged";
        let finding = Finding::new(code, Severity::Warns, Certainty::Certain, what)
            .with_subject(VARIABLE)
            .with_evidence(VARIABLE, None, shown(entry))
            .with_fix(
                "Take the empty or relative entry out of LD_LIBRARY_PATH.",
                None,
            );
        findings.push(finding);
    }
    if !libraries.is_empty() {
        let what = format!(
            "{} in the working directory for what {}, which was not judged",
            match libraries.len() {
                1 => "1 library also looks".to_owned(),
                several => format!("{several} libraries also look"),
            },
            match libraries.len() {
                1 => "it needs",
                _ => "they need",
            },
        );
        let mut finding = Finding::new(code, Severity::Notes, Certainty::Certain, what);
        for (source, entry) in libraries.iter().take(MAX_NAMED_FILES) {
            finding = finding.with_evidence(source.as_str(), None, shown(entry));
        }
        findings.push(finding);
    }
    findings
}

fn shown(entry: &str) -> String {
    match entry {
        "" => "an empty entry".to_owned(),
        entry => entry.to_owned(),
    }
}
