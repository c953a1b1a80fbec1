//! Findings about versions and symbols that are not in what was loaded.

use std::collections::{BTreeMap, BTreeSet};

use sconce_schema::finding::{Certainty, Finding, FixAction, Severity};

use super::load_results::{
    LoadPoint, LoadedLibraryUse, MissingVersionUse, UndefinedSymbolsUse, package_of_path,
};
use super::missing_libraries::{
    MissingLibraryContext, VISION_ERROR, is_vision, pip_install_action, uses_torch,
};
use super::names;
use super::process::LookupOrigin;
use super::symbols::other_string_abi;
use super::tree::TreeEntry;
use crate::library::symbol_hash;

const MAX_NAMED_FILES: usize = 12;

/// One finding for each library that lacks versions.
pub(super) fn check_missing_versions(
    misses: &[MissingVersionUse],
    known: &MissingLibraryContext<'_>,
) -> Vec<Finding> {
    let mut by_provider: BTreeMap<&str, Vec<&MissingVersionUse>> = BTreeMap::new();
    for miss in misses {
        by_provider.entry(&miss.provider).or_default().push(miss);
    }
    by_provider
        .into_values()
        .map(|all| lacking(all, known))
        .collect()
}

fn lacking(mut all: Vec<&MissingVersionUse>, known: &MissingLibraryContext<'_>) -> Finding {
    all.sort_by(|a, b| (a.stage, &a.needer).cmp(&(b.stage, &b.needer)));
    let first = all[0];
    let versions = all.iter().map(|miss| miss.version.as_str());
    let highest = versions
        .max_by_key(|version| numbers(version))
        .unwrap_or_default();
    let defined = match known.tree.entry_at(&first.provider) {
        Some(TreeEntry::Library(library)) => {
            let prefix = highest.split('_').next().unwrap_or_default();
            let same = library.defines_versions.iter();
            let same = same.filter(|version| version.split('_').next() == Some(prefix));
            same.max_by_key(|version| numbers(version)).cloned()
        }
        _ => None,
    };
    let code = match first.provider_name.as_str() {
        "libc.so.6" | "libm.so.6" | "libpthread.so.0" | "libdl.so.2" => "glibc-too-old",
        "libstdc++.so.6" => "libstdcxx-too-old",
        _ => "library-version-not-found",
    };
    let has = match &defined {
        Some(defined) => format!(" ends at {defined}"),
        None => " does not have it".to_owned(),
    };
    let what = format!(
        "{} needs {highest}, and {}{has}",
        first.needer, first.provider
    );
    let (weight, certainty) = weigh(
        first.stage,
        all.iter().any(|miss| uses_torch(&miss.needer, known.tree)),
    );
    let mut finding = Finding::new(code, weight, certainty, what)
        .with_subject(&first.provider_name)
        .would_say(&first.error_text);
    for miss in all.iter().take(MAX_NAMED_FILES) {
        finding = finding.with_evidence(&miss.needer, Some(".gnu.version_r"), &miss.version);
    }
    if let Some(defined) = defined {
        finding = finding.with_evidence(&first.provider, Some(".gnu.version_d"), defined);
    }
    let package = package_of_path(&first.needer, known.site_packages);
    match (code, package) {
        ("glibc-too-old", Some(package)) => finding
            .with_fix("Use a newer release of the system.", newer_system(highest))
            .with_fix(
                format!("Use an older build of {package}, for an older glibc."),
                None,
            ),
        ("glibc-too-old", None) => {
            finding.with_fix("Use a newer release of the system.", newer_system(highest))
        }
        // Conda and some wheels bring their own, which is then in the system's place.
        ("libstdcxx-too-old", _) if !first.provider.starts_with("/usr/lib/") => finding.with_fix(
            "Update libstdc++ there, or let the system's be loaded.",
            None,
        ),
        ("libstdcxx-too-old", _) => {
            finding.with_fix("Use a newer release of the system.", newer_system(highest))
        }
        _ => finding.with_fix(
            format!(
                "Let {} be loaded from where its needer expects it.",
                first.provider_name
            ),
            None,
        ),
    }
}

/// Debian 13 has glibc 2.41 and GLIBCXX_3.4.33.
fn newer_system(version: &str) -> Option<FixAction> {
    let newest: &[u32] = if version.starts_with("GLIBC_") {
        &[2, 41]
    } else {
        &[3, 4, 33]
    };
    (numbers(version).as_slice() <= newest).then(|| FixAction::Spec {
        key: "system.release".to_owned(),
        value: "\"debian/trixie\"".to_owned(),
    })
}

/// The numbers of a version's name, to order `GLIBC_2.9` before `GLIBC_2.38`.
fn numbers(version: &str) -> Vec<u32> {
    let parts = version.split(|c: char| !c.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

fn weigh(stage: LoadPoint, with_torch: bool) -> (Severity, Certainty) {
    match stage {
        LoadPoint::Start | LoadPoint::Torch => (Severity::Fails, Certainty::Certain),
        LoadPoint::Module if with_torch => (Severity::Fails, Certainty::Likely),
        LoadPoint::Later(_) | LoadPoint::Module => (Severity::Warns, Certainty::Likely),
        LoadPoint::Optional => (Severity::Notes, Certainty::Possible),
    }
}

/// One finding for each package whose libraries are built for another torch, and one for each library
/// that lacks symbols of CUDA.
pub(super) fn check_undefined_symbols(
    all: &[UndefinedSymbolsUse],
    loaded: &[LoadedLibraryUse],
    known: &MissingLibraryContext<'_>,
) -> Vec<Finding> {
    let mut by_needer: BTreeMap<&str, &UndefinedSymbolsUse> = BTreeMap::new();
    for one in all {
        by_needer.entry(&one.needer).or_insert(one);
    }
    let mut by_package: BTreeMap<&str, Vec<TorchSymbolsUse<'_>>> = BTreeMap::new();
    let mut of_cuda = Vec::new();
    for one in by_needer.into_values() {
        let is_cuda = |symbol: &&String| names::library_of(symbol).is_some();
        let (cuda, torch): (Vec<_>, Vec<_>) = one.symbols.iter().partition(is_cuda);
        if let Some(first) = cuda.first() {
            of_cuda.push(cuda_symbol(first, cuda.len(), one, loaded, known));
        }
        if !torch.is_empty() {
            let package = package_of_path(&one.needer, known.site_packages);
            let of_package = by_package
                .entry(package.unwrap_or(&one.needer))
                .or_default();
            of_package.push(TorchSymbolsUse { of: one, torch });
        }
    }
    let of_torch = by_package
        .into_iter()
        .filter_map(|(subject, all)| torch_symbols(subject, all, known));
    of_torch.chain(of_cuda).collect()
}

/// A library and the symbols of torch that it does not get.
struct TorchSymbolsUse<'s> {
    of: &'s UndefinedSymbolsUse,
    torch: Vec<&'s String>,
}

/// Of a package, or of the one library that is in none.
fn torch_symbols(
    subject: &str,
    mut all: Vec<TorchSymbolsUse<'_>>,
    known: &MissingLibraryContext<'_>,
) -> Option<Finding> {
    // What Python comes to first; of torchvision that is its operators.
    all.sort_by_key(|one| (one.of.stage, !is_vision(&one.of.needer, known)));
    let (one, symbols) = all.first().map(|first| (first.of, &first.torch))?;
    let symbol = symbols.first()?.as_str();
    let names: BTreeSet<&String> = all
        .iter()
        .flat_map(|one| one.torch.iter().copied())
        .collect();
    let count = names.len();
    let package = package_of_path(&one.needer, known.site_packages);
    let (who, are, they) = match all.len() {
        1 => (one.needer.clone(), "is", "it needs"),
        several => (
            format!("{} (and {} more)", one.needer, several - 1),
            "are",
            "they need",
        ),
    };
    let what = match package {
        Some("torch") => format!(
            "{who} and torch's other libraries are of different builds: {count} of their symbols are \
             nowhere"
        ),
        _ => format!(
            "{who} {are} built for another torch: {count} of the symbols that {they} are not in the \
             torch here"
        ),
    };
    let (weight, certainty) = weigh(one.stage, true);
    let mut finding = Finding::new("torch-abi-mismatch", weight, certainty, what)
        .with_subject(subject)
        .would_say(undefined(symbol, one, None))
        .with_evidence(&one.needer, Some(".dynsym, undefined"), symbol);
    for other in all.iter().skip(1).take(MAX_NAMED_FILES) {
        let first = other.torch.first().map_or("", |symbol| symbol.as_str());
        finding = finding.with_evidence(&other.of.needer, Some(".dynsym, undefined"), first);
    }
    if is_vision(&one.needer, known) {
        finding = finding.would_say(VISION_ERROR);
    }
    let defines = |symbol: &str| {
        let hash = symbol_hash(symbol.as_bytes());
        let mut libraries = known.tree.libraries();
        libraries.find(|(_, library)| library.defined.binary_search(&hash).is_ok())
    };
    if let Some((path, _)) = defines(symbol) {
        let value = "defines it, and is not among what the library is linked to";
        finding = finding.with_evidence(path, Some(".dynsym"), value);
    }
    let other = names.iter().filter_map(|symbol| other_string_abi(symbol));
    for other in other.take(MAX_NAMED_FILES) {
        if let Some((path, _)) = defines(&other) {
            let value = format!("defines {other}: the same with the other ABI of std::string");
            finding = finding.with_evidence(path, Some(".dynsym"), value);
            break;
        }
    }
    Some(match package {
        Some("torch") => finding.with_fix("Install torch again.", known.reinstall_action("torch")),
        Some(package @ ("torchvision" | "torchaudio")) => finding.with_fix(
            format!("Install the {package} that goes with this torch."),
            known
                .installed_requirement("torch")
                .map(|torch| pip_install_action(&format!("--upgrade {torch} {package}"))),
        ),
        Some(package) => finding
            .with_fix(
                format!("Install a build of {package} for this torch."),
                None,
            )
            .with_fix(
                format!("Build {package} here."),
                known.rebuild_action(package),
            ),
        None => finding,
    })
}

fn cuda_symbol(
    symbol: &str,
    count: usize,
    one: &UndefinedSymbolsUse,
    loaded: &[LoadedLibraryUse],
    known: &MissingLibraryContext<'_>,
) -> Finding {
    let stem = names::library_of(symbol).unwrap_or_default();
    let got = one
        .got
        .iter()
        .find(|(name, _)| names::library_stem(name) == stem);
    let name = got.map_or(stem, |(name, _)| name.as_str());
    let file = got.and_then(|(_, file)| file.as_deref());
    let source = file.and_then(|file| loaded.iter().find(|one| one.real == file));
    let what = match file {
        Some(file) => format!(
            "{} got {file} for {name}, which lacks {symbol}{}",
            one.needer,
            match count {
                1 => String::new(),
                several => format!(" and {} more", several - 1),
            }
        ),
        None => format!("{} needs {symbol}, and is not linked to {stem}", one.needer),
    };
    let version = match known.tree.entry_at(&one.needer) {
        Some(TreeEntry::Library(library)) => {
            let needs = library.needs_versions.iter().find(|needs| needs.of == name);
            needs
                .and_then(|needs| needs.versions.first())
                .map(String::as_str)
        }
        _ => None,
    };
    let (weight, certainty) = weigh(one.stage, true);
    let mut finding = Finding::new("cuda-symbol-undefined", weight, certainty, what)
        .with_subject(name)
        .would_say(undefined(symbol, one, version))
        .with_evidence(&one.needer, Some(".dynsym, undefined"), symbol);
    if let (Some(file), Some(source)) = (file, source) {
        finding = finding.with_evidence(file, None, &source.how);
    }
    if let Some(mend) = source.and_then(|source| fix_for_origin(&source.found)) {
        let (what, action) = mend;
        return finding.with_fix(what, action);
    }
    let major = names::cuda_major(name).or(known.cuda_major);
    match major.and_then(|major| names::cuda_wheel(name, major)) {
        Some(wheel) => finding.with_fix(
            format!("Install the version of {wheel} that torch asks for."),
            Some(pip_install_action(&format!("--upgrade --no-deps {wheel}"))),
        ),
        None => finding,
    }
}

/// The loader's and Python's words for an undefined symbol. The loader names the first that it comes
/// to, in the order of the relocations, and here it is the first of the alphabet.
fn undefined(symbol: &str, one: &UndefinedSymbolsUse, version: Option<&str>) -> String {
    let version = version.map_or(String::new(), |version| format!(", version {version}"));
    let kind = match one.error_kind.as_str() {
        "" => String::new(),
        kind => format!("{kind}: "),
    };
    format!("{kind}{}: undefined symbol: {symbol}{version}", one.printed)
}

/// How to keep the loader from a library that it found like this.
pub(super) fn fix_for_origin(found: &LookupOrigin) -> Option<(String, Option<FixAction>)> {
    let unset = |name: &str| FixAction::Variable {
        name: name.to_owned(),
        value: None,
    };
    match found {
        LookupOrigin::LibraryPath { directory } => Some((
            format!("Take {directory} out of LD_LIBRARY_PATH."),
            Some(unset("LD_LIBRARY_PATH")),
        )),
        LookupOrigin::Preload => Some((
            "Take it out of LD_PRELOAD.".to_owned(),
            Some(unset("LD_PRELOAD")),
        )),
        LookupOrigin::Cache | LookupOrigin::Default { .. } => {
            Some(("Remove the system's copy.".to_owned(), None))
        }
        _ => None,
    }
}
