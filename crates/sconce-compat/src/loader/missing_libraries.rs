//! Findings about libraries that are not found.

use std::collections::{BTreeMap, BTreeSet};

use sconce_schema::finding::{Certainty, Finding, FixAction, Severity};

use super::load_results::{LibraryIndex, LoadPoint, MissingLibraryUse, package_of_path};
use super::merge;
use super::names;
use super::process::UnresolvedReason;
use super::tree::{DRIVER_NAMES, LibraryTree, file_name, parent_dir};

/// Files named in one finding.
const MAX_NAMED_FILES: usize = 12;
/// What torchvision says when its first operator is asked for.
pub(super) const VISION_ERROR: &str = "RuntimeError: operator torchvision::nms does not exist";

/// A Debian package that has a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemPackage {
    /// Its name.
    pub name: String,
    /// What is to be said of the choice: others that have it too, a folder that the loader does not know.
    pub remark: Option<String>,
}

/// What is known of the environment as a whole.
pub(super) struct MissingLibraryContext<'k> {
    pub(super) tree: &'k LibraryTree<'k>,
    pub(super) index: &'k LibraryIndex<'k>,
    pub(super) site_packages: &'k [String],
    /// The CUDA that torch is built for.
    pub(super) cuda_major: Option<u32>,
    /// How torch's own search for CUDA's wheels ended the import.
    pub(super) preload_error: Option<&'k str>,
    /// Versions of the Python packages by normalised name; empty: not known.
    pub(super) versions: &'k BTreeMap<String, String>,
    /// What an archive says of libraries that are not in the table.
    pub(super) system_packages: &'k BTreeMap<String, SystemPackage>,
}

impl MissingLibraryContext<'_> {
    /// A package as it is installed, `nvidia-cublas==13.4.1.3`; without a version where none are
    /// known. None: there is no such package, and the name is only that of a folder, such as `cv2`.
    pub(super) fn installed_requirement(&self, package: &str) -> Option<String> {
        if self.versions.is_empty() {
            return Some(package.to_owned());
        }
        let name = package.to_lowercase().replace(['_', '.'], "-");
        let version = self.versions.get(&name)?;
        Some(format!("{name}=={version}"))
    }

    /// Installs a Python package again as it is.
    pub(super) fn reinstall_action(&self, package: &str) -> Option<FixAction> {
        let package = self.installed_requirement(package)?;
        Some(pip_install_action(&format!(
            "--force-reinstall --no-deps {package}"
        )))
    }

    /// Builds a Python package against the torch that is here.
    pub(super) fn rebuild_action(&self, package: &str) -> Option<FixAction> {
        let installed = self.installed_requirement(package)?;
        let name = installed.split("==").next()?;
        let flags = "--force-reinstall --no-deps --no-cache-dir --no-build-isolation";
        Some(pip_install_action(&format!(
            "{flags} --no-binary {name} {name}"
        )))
    }
}

/// One finding for each cause: libraries that one command brings back are one. One for all that nothing
/// here opens.
pub(super) fn check_missing_libraries(
    missing: &[MissingLibraryUse],
    known: &MissingLibraryContext<'_>,
) -> Vec<Finding> {
    let (by_name, optional) = group_by_name(missing, known);
    let findings = by_name
        .into_iter()
        .map(|(name, needers)| missing_one(name, &needers, known))
        .collect();
    let mut findings = merge::of_one_mend(findings);
    findings.extend(missing_optional(&optional));
    findings
}

/// Names of libraries, each with all that need it.
type UsesByName<'m> = Vec<(&'m str, Vec<&'m MissingLibraryUse>)>;

/// What is missing, in the order of loading, so that what a run would name comes first; and what only
/// some features open.
fn group_by_name<'m>(
    missing: &'m [MissingLibraryUse],
    known: &MissingLibraryContext<'_>,
) -> (UsesByName<'m>, Vec<&'m MissingLibraryUse>) {
    let mut by_name: UsesByName<'m> = Vec::new();
    let mut optional: Vec<&MissingLibraryUse> = Vec::new();
    for one in missing.iter().filter(|one| !one.is_preload()) {
        let name = one.name.as_str();
        if one.stage == LoadPoint::Optional || opened_otherwise(one, known) {
            optional.push(one);
        } else if let Some((_, all)) = by_name.iter_mut().find(|(other, _)| *other == name) {
            all.push(one);
        } else {
            by_name.push((name, vec![one]));
        }
    }
    (by_name, optional)
}

/// Libraries that a system may have, and of which nothing here knows the package.
pub(super) fn list_unknown(
    missing: &[MissingLibraryUse],
    known: &MissingLibraryContext<'_>,
) -> BTreeSet<String> {
    let (by_name, _) = group_by_name(missing, known);
    let is_unknown = |name: &str, first: &MissingLibraryUse| {
        first.absent == UnresolvedReason::NotFound
            && known.index.paths(name).is_empty()
            && !DRIVER_NAMES.contains(&name)
            && !names::is_cuda(name)
            && !names::is_torch(name)
            && !names::is_vendored(name)
            && names::debian_package(name).is_none()
    };
    let unknown = by_name
        .into_iter()
        .filter(|(name, all)| is_unknown(name, all[0]));
    unknown.map(|(name, _)| name.to_owned()).collect()
}

/// Whether a module does without what it lacks when it is opened: its own package ships the library
/// and opens it first by its path, as torchaudio does; or it is one of several of which the package
/// takes the one that can be loaded, `_torio_ffmpeg4.so` to `_torio_ffmpeg6.so`.
fn opened_otherwise(one: &MissingLibraryUse, known: &MissingLibraryContext<'_>) -> bool {
    let needer = one.needer.as_deref().unwrap_or(&one.root);
    if one.stage != LoadPoint::Module || one.absent != UnresolvedReason::NotFound {
        return false;
    }
    let own = package_of_path(needer, known.site_packages);
    let mut copies = known.index.paths(&one.name).iter();
    let is_own = |path: &&str| {
        package_of_path(path, known.site_packages) == own
            && wrong_machine(path, known.tree).is_none()
    };
    own.is_some() && (copies.any(is_own) || is_one_of_several(needer, known.tree))
}

/// Whether files beside it have its name with another number at the end.
fn is_one_of_several(path: &str, tree: &LibraryTree<'_>) -> bool {
    let unnumbered = |path: &str| {
        let (before, after) = file_name(path).split_once('.')?;
        let bare = before.trim_end_matches(|c: char| c.is_ascii_digit());
        (bare != before).then(|| (bare.to_owned(), after.to_owned()))
    };
    let Some(own) = unnumbered(path) else {
        return false;
    };
    let mut beside = tree.files(parent_dir(path)).filter(|other| *other != path);
    beside.any(|other| unnumbered(other).as_ref() == Some(&own))
}

fn missing_one(
    name: &str,
    all: &[&MissingLibraryUse],
    known: &MissingLibraryContext<'_>,
) -> Finding {
    let mut all = all.to_vec();
    all.sort_by_key(|one| one.stage);
    let first = all[0];
    if let UnresolvedReason::Refused { path, text } = &first.absent {
        return refused(path, text, first, known);
    }
    let (weight, certainty) = weigh(&all, known);
    let mut needers: Vec<&str> = Vec::new();
    for needer in all.iter().filter_map(|one| one.needer.as_deref()) {
        if !needers.contains(&needer) {
            needers.push(needer);
        }
    }
    let by = match needers.as_slice() {
        [] => first.root.clone(),
        [one] => (*one).to_owned(),
        [one, rest @ ..] => format!("{one} (and {} more)", rest.len()),
    };
    let wrong_major = wrong_major(name, first, known);
    let cpu_torch = names::is_torch(name) && !known.index.paths("libtorch_cpu.so").is_empty();
    let (code, what) = if DRIVER_NAMES.contains(&name) {
        let what = format!("{by} needs {name}, which comes with NVIDIA's driver and is not there");
        ("driver-library-not-found", what)
    } else if let Some((needs, has)) = wrong_major {
        let what = format!(
            "{by} is built for CUDA {needs}: it needs {name}, and torch here has CUDA {has}"
        );
        ("cuda-major-mismatch", what)
    } else if cpu_torch && matches!(name, "libtorch_cuda.so" | "libc10_cuda.so") {
        let what = format!("{by} needs {name}, and the torch here is built without CUDA");
        ("torch-without-cuda", what)
    } else {
        (
            "library-not-found",
            format!("{by} needs {name}, which the loader does not find"),
        )
    };
    let subject = match wrong_major {
        Some(_) => first
            .needer
            .as_deref()
            .and_then(|needer| package_of_path(needer, known.site_packages)),
        None => None,
    };
    let mut finding =
        Finding::new(code, weight, certainty, what).with_subject(subject.unwrap_or(name));
    for needer in needers.iter().take(MAX_NAMED_FILES) {
        finding = finding.with_evidence(*needer, Some("DT_NEEDED"), name);
    }
    for like in known.index.with_stem(names::library_stem(name)) {
        for path in known.index.paths(like).iter().take(MAX_NAMED_FILES) {
            if like == name {
                let value = match wrong_machine(path, known.tree) {
                    Some(machine) => {
                        format!("lies here, for another processor (e_machine {machine})")
                    }
                    None => "lies here, where the loader does not look for it".to_owned(),
                };
                finding = finding.with_evidence(*path, None, value);
            } else if names::is_cuda(name) && file_name(path) == like {
                finding = finding.with_evidence(*path, Some("DT_SONAME"), like);
            }
        }
    }
    // Torch then looks for all of CUDA's wheels itself, and names the first that is not there, which
    // need not be this one.
    let text = match known.preload_error {
        Some(error) if first.root.ends_with("/libtorch_global_deps.so") => {
            finding = finding.with_evidence("torch/__init__.py", Some("_load_global_deps"), error);
            error
        }
        // It passes over a library that it cannot open.
        _ if is_vision(&first.root, known) => VISION_ERROR,
        _ => &first.error_text,
    };
    mends(
        finding.would_say(text),
        code,
        name,
        first,
        wrong_major,
        known,
    )
}

fn weigh(all: &[&MissingLibraryUse], known: &MissingLibraryContext<'_>) -> (Severity, Certainty) {
    let with_torch = |one: &&MissingLibraryUse| {
        let needer = one.needer.as_deref().unwrap_or(&one.root);
        uses_torch(needer, known.tree)
    };
    match all[0].stage {
        LoadPoint::Start | LoadPoint::Torch => (Severity::Fails, Certainty::Certain),
        LoadPoint::Later(_) => (Severity::Warns, Certainty::Likely),
        LoadPoint::Module if all.iter().any(with_torch) => (Severity::Fails, Certainty::Likely),
        LoadPoint::Module | LoadPoint::Optional => (Severity::Warns, Certainty::Likely),
    }
}

/// Whether a library is linked to torch or CUDA.
pub(super) fn uses_torch(path: &str, tree: &LibraryTree<'_>) -> bool {
    let Some(super::tree::TreeEntry::Library(library)) = tree.entry_at(path) else {
        return false;
    };
    let mut needed = library.needed.iter();
    needed.any(|name| names::is_torch(name) || names::is_cuda(name))
}

/// The CUDA that a module is built for and the one that is here, where they differ.
fn wrong_major(
    name: &str,
    first: &MissingLibraryUse,
    known: &MissingLibraryContext<'_>,
) -> Option<(u32, u32)> {
    let needs = names::cuda_major(name)?;
    let has = known.cuda_major?;
    let needer = first.needer.as_deref()?;
    let package = package_of_path(needer, known.site_packages);
    (needs != has && !matches!(package, Some("torch" | "nvidia"))).then_some((needs, has))
}

/// The library of torchvision's operators, which it opens without a word when that fails.
pub(super) fn is_vision(path: &str, known: &MissingLibraryContext<'_>) -> bool {
    package_of_path(path, known.site_packages) == Some("torchvision")
        && file_name(path).starts_with("_C")
}

fn wrong_machine(path: &str, tree: &LibraryTree<'_>) -> Option<u16> {
    match tree.entry_at(path) {
        Some(super::tree::TreeEntry::Library(library)) if library.machine != tree.machine => {
            Some(library.machine)
        }
        _ => None,
    }
}

fn mends(
    finding: Finding,
    code: &str,
    name: &str,
    first: &MissingLibraryUse,
    wrong_major: Option<(u32, u32)>,
    known: &MissingLibraryContext<'_>,
) -> Finding {
    let needer = first.needer.as_deref().unwrap_or(&first.root);
    let package = package_of_path(needer, known.site_packages);
    match code {
        "driver-library-not-found" => {
            return finding.with_fix(
                "Run it with a card, so that the driver's libraries are there.",
                None,
            );
        }
        "torch-without-cuda" => {
            return finding.with_fix(
                "Install the build of torch with CUDA.",
                known.reinstall_action("torch"),
            );
        }
        _ => {}
    }
    if let Some((_, has)) = wrong_major {
        let package = package.unwrap_or("the package");
        return finding
            .with_fix(
                format!("Install a build of {package} for CUDA {has} and this torch."),
                None,
            )
            .with_fix(
                format!("Build {package} here, with the compiler of CUDA {has}."),
                known.rebuild_action(package),
            );
    }
    let cuda = names::cuda_major(name).or(known.cuda_major);
    let wheel = cuda.and_then(|major| names::cuda_wheel(name, major));
    let elsewhere = known.index.paths(name).iter();
    // Another package's copy for itself, such as Triton's of CUPTI, is not for torch.
    let is_private = |path: &str| {
        let whose = self::package_of_path(path, known.site_packages);
        wheel.is_some() && whose.is_some_and(|whose| whose != "nvidia" && Some(whose) != package)
    };
    let mut elsewhere = elsewhere.filter(|path| {
        let fits = file_name(path) == name && wrong_machine(path, known.tree).is_none();
        fits && !is_private(path)
    });
    if let Some(path) = elsewhere.next() {
        let finding = match wheel.as_deref().or(package) {
            Some(package) => finding.with_fix(
                format!("Install {package} again."),
                known.reinstall_action(package),
            ),
            None => finding.with_fix(format!("Install what ships {needer} again."), None),
        };
        return finding.with_fix(
            format!("Let the loader look in the folder of {name} too."),
            Some(FixAction::Variable {
                name: "LD_LIBRARY_PATH".to_owned(),
                value: Some(parent_dir(path).to_owned()),
            }),
        );
    }
    if let Some(wheel) = wheel {
        if let Some(again) = known.reinstall_action(&wheel) {
            let what = format!("Install {wheel} again: it ships {name}.");
            return finding.with_fix(what, Some(again));
        }
        // What torch pins is not known here, and the newest may be of another CUDA.
        let value = format!("[\"{wheel}\"]");
        let torch = known.installed_requirement("torch");
        return finding
            .with_fix(
                format!("Install what torch asks for: {wheel} ships {name}."),
                torch.map(|torch| pip_install_action(&torch)),
            )
            .with_fix(
                format!("Add {wheel} to the packages, in the version that torch asks for."),
                Some(spec("python.packages", value)),
            );
    }
    if let Some(found) = known.system_packages.get(name) {
        let debian = &found.name;
        let remark = found.remark.iter().map(|text| format!(" ({text})"));
        let remark: String = remark.collect();
        return finding
            .with_fix(
                format!("Add {debian} to the system's packages: it ships {name}{remark}."),
                Some(spec("system.packages", format!("[\"{debian}\"]"))),
            )
            .with_fix(
                "Lock it again.",
                Some(FixAction::Command {
                    line: "sconce lock".to_owned(),
                    root: false,
                    safe: false,
                }),
            );
    }
    if let Some(debian) = names::debian_package(name) {
        return finding
            .with_fix(
                format!("Add {debian} to the system's packages: it ships {name}."),
                Some(spec("system.packages", format!("[\"{debian}\"]"))),
            )
            .with_fix(
                format!("Install {debian}."),
                Some(FixAction::Command {
                    line: format!("apt-get install {debian}"),
                    root: true,
                    safe: false,
                }),
            );
    }
    match package {
        Some(package) => finding.with_fix(
            format!("Install {package} again: a part of it is missing."),
            known.reinstall_action(package),
        ),
        None => finding,
    }
}

fn refused(
    path: &str,
    text: &str,
    first: &MissingLibraryUse,
    known: &MissingLibraryContext<'_>,
) -> Finding {
    let (weight, certainty) = weigh(&[first], known);
    let what = format!("{path} is not a library ({text}), and the loader looks no further");
    let mut finding = Finding::new("library-unreadable", weight, certainty, what)
        .with_subject(path)
        .would_say(&first.error_text);
    if let Some(needer) = &first.needer {
        finding = finding.with_evidence(needer, Some("DT_NEEDED"), &first.name);
    }
    let finding = finding.with_evidence(path, Some("ELF header"), text);
    let wheel = known
        .cuda_major
        .and_then(|major| names::cuda_wheel(&first.name, major));
    let package = package_of_path(path, known.site_packages).map(str::to_owned);
    match wheel.or(package) {
        Some(package) => finding.with_fix(
            format!("Install {package} again."),
            known.reinstall_action(&package),
        ),
        None => finding,
    }
}

fn missing_optional(optional: &[&MissingLibraryUse]) -> Option<Finding> {
    let mut lines: Vec<(&str, &str)> = optional
        .iter()
        .filter(|one| !DRIVER_NAMES.contains(&one.name.as_str()))
        .map(|one| {
            (
                one.needer.as_deref().unwrap_or(&one.root),
                one.name.as_str(),
            )
        })
        .collect();
    lines.sort_unstable();
    lines.dedup();
    if lines.is_empty() {
        return None;
    }
    let mut files: Vec<_> = lines.iter().map(|(needer, _)| needer).collect();
    files.dedup();
    let what = format!(
        "{} libraries that are not there; only some features open them",
        match files.len() {
            1 => "1 library needs".to_owned(),
            several => format!("{several} libraries need"),
        }
    );
    let code = "optional-library-not-found";
    let mut finding = Finding::new(code, Severity::Notes, Certainty::Possible, what);
    for (needer, name) in lines.iter().take(MAX_NAMED_FILES) {
        finding = finding.with_evidence(*needer, Some("DT_NEEDED"), *name);
    }
    Some(finding)
}

pub(super) fn pip_install_action(arguments: &str) -> FixAction {
    FixAction::Command {
        line: format!("python -m pip install {arguments}"),
        root: false,
        safe: false,
    }
}

fn spec(key: &str, value: String) -> FixAction {
    FixAction::Spec {
        key: key.to_owned(),
        value,
    }
}
