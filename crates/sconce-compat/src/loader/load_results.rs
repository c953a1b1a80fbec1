//! What the loader came to in all that was opened, before it is judged.

use std::collections::{BTreeMap, HashMap};

use super::process::{
    DlopenResult, LoadedObject, LoaderProcess, LookupOrigin, UnresolvedLibrary, UnresolvedReason,
};
use super::torch::missing_text;
use super::tree::{LibraryTree, file_name};

/// When something is opened, the weightiest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LoadPoint {
    /// The program itself.
    Start,
    /// `import torch`.
    Torch,
    /// Torch or one of its libraries, when a run comes to it.
    Later(&'static str),
    /// Another extension module of a package.
    Module,
    /// Nothing that was opened here needs it.
    Optional,
}

/// One thing that was opened, and how it says that it failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadAttempt<'s> {
    pub(super) stage: LoadPoint,
    pub(super) path: &'s str,
    /// `ImportError`; empty for the loader's bare words.
    pub(super) error_kind: &'s str,
}

/// A library that is missing somewhere.
#[derive(Debug, Clone)]
pub(super) struct MissingLibraryUse {
    pub(super) name: String,
    pub(super) absent: UnresolvedReason,
    /// The file that needs it; none: it was asked for itself.
    pub(super) needer: Option<String>,
    pub(super) stage: LoadPoint,
    pub(super) root: String,
    pub(super) error_text: String,
}

impl MissingLibraryUse {
    /// Whether it is `LD_PRELOAD` that asks for it.
    pub(super) fn is_preload(&self) -> bool {
        self.stage == LoadPoint::Start && self.needer.is_none()
    }
}

/// A version that is missing somewhere.
#[derive(Debug, Clone)]
pub(super) struct MissingVersionUse {
    pub(super) needer: String,
    pub(super) provider: String,
    pub(super) provider_name: String,
    pub(super) version: String,
    pub(super) stage: LoadPoint,
    pub(super) error_text: String,
}

/// Symbols that are undefined somewhere.
#[derive(Debug, Clone)]
pub(super) struct UndefinedSymbolsUse {
    pub(super) needer: String,
    pub(super) symbols: Vec<String>,
    pub(super) stage: LoadPoint,
    pub(super) error_kind: String,
    /// The needer's path as the loader prints it.
    pub(super) printed: String,
    /// What each `DT_NEEDED` of it came to: name and file.
    pub(super) got: Vec<(String, Option<String>)>,
}

/// A library that was loaded somewhere.
#[derive(Debug, Clone)]
pub(super) struct LoadedLibraryUse {
    /// The file.
    pub(super) real: String,
    /// What it calls itself.
    pub(super) soname: String,
    /// The file that it was loaded for.
    pub(super) loader: Option<String>,
    pub(super) found: LookupOrigin,
    /// The same for people.
    pub(super) how: String,
    pub(super) root: String,
    pub(super) stage: LoadPoint,
}

/// All that was opened came to.
#[derive(Debug, Default)]
pub(super) struct LoadResults {
    pub(super) missing: Vec<MissingLibraryUse>,
    pub(super) versions: Vec<MissingVersionUse>,
    pub(super) symbols: Vec<UndefinedSymbolsUse>,
    pub(super) loaded: Vec<LoadedLibraryUse>,
    pub(super) relative: BTreeMap<String, String>,
}

impl LoadResults {
    /// Adds what one opening came to.
    pub(super) fn add_result(
        &mut self,
        process: &LoaderProcess<'_, '_>,
        opened: &DlopenResult,
        opening: LoadAttempt<'_>,
    ) {
        let LoadAttempt {
            stage,
            path,
            error_kind,
        } = opening;
        let objects = process.objects();
        let error = |text: String| match error_kind {
            "" => text,
            kind => format!("{kind}: {text}"),
        };
        let root = path.to_owned();
        for missing in &opened.missing {
            self.missing.push(MissingLibraryUse {
                name: missing.name.clone(),
                absent: missing.absent.clone(),
                needer: missing.needed_by.map(|needer| objects[needer].real.clone()),
                stage,
                root: root.clone(),
                error_text: error(missing_text(missing)),
            });
        }
        for miss in process.version_misses(opened) {
            let (needer, provider) = (&objects[miss.needer], &objects[miss.provider]);
            let text = format!(
                "{}: version `{}' not found (required by {})",
                provider.path, miss.version, needer.path
            );
            self.versions.push(MissingVersionUse {
                needer: needer.real.clone(),
                provider: provider.real.clone(),
                provider_name: file_name(&provider.path).to_owned(),
                version: miss.version,
                stage,
                error_text: error(text),
            });
        }
        for undefined in process.undefined_symbols(opened) {
            let needer = &objects[undefined.needer];
            let came = needer
                .needed
                .iter()
                .map(|at| at.map(|at| objects[at].real.clone()));
            self.symbols.push(UndefinedSymbolsUse {
                needer: needer.real.clone(),
                symbols: undefined.symbols,
                stage,
                error_kind: error_kind.to_owned(),
                printed: needer.path.clone(),
                got: needer.library.needed.iter().cloned().zip(came).collect(),
            });
        }
        for object in objects.iter().take(opened.end).skip(opened.first_new) {
            let own = file_name(&object.path);
            let soname = object.library.soname.as_deref();
            self.loaded.push(LoadedLibraryUse {
                real: object.real.clone(),
                soname: soname.unwrap_or(own).to_owned(),
                loader: object.loader.map(|loader| objects[loader].real.clone()),
                found: object.found.clone(),
                how: describe_origin(objects, &object.found),
                root: root.clone(),
                stage,
            });
        }
        for (source, entry) in process.relative_search_paths() {
            self.relative.insert(source.clone(), entry.clone());
        }
    }

    /// Adds that something was not found though nobody opened it here.
    pub(super) fn add_missing(&mut self, missing: UnresolvedLibrary, opening: LoadAttempt<'_>) {
        let error_text = format!("{}: {}", opening.error_kind, missing_text(&missing));
        self.missing.push(MissingLibraryUse {
            name: missing.name,
            absent: missing.absent,
            needer: Some(opening.path.to_owned()),
            stage: opening.stage,
            root: opening.path.to_owned(),
            error_text,
        });
    }
}

/// How a library was found, for people.
pub(super) fn describe_origin(objects: &[LoadedObject<'_>], found: &LookupOrigin) -> String {
    match found {
        LookupOrigin::Program => "the program".to_owned(),
        LookupOrigin::Path => "by its path".to_owned(),
        LookupOrigin::Preload => "LD_PRELOAD".to_owned(),
        LookupOrigin::Rpath { object, directory } => {
            format!("DT_RPATH of {}: {directory}", objects[*object].real)
        }
        LookupOrigin::LibraryPath { directory } => format!("LD_LIBRARY_PATH: {directory}"),
        LookupOrigin::Runpath { directory } => format!("DT_RUNPATH: {directory}"),
        LookupOrigin::Cache => "ld.so.cache".to_owned(),
        LookupOrigin::Default { directory } => format!("default directory {directory}"),
    }
}

/// Files by their name and by the name that they say is theirs.
pub(super) struct LibraryIndex<'t> {
    by_name: HashMap<&'t str, Vec<&'t str>>,
}

impl<'t> LibraryIndex<'t> {
    pub(super) fn from_tree(tree: &'t LibraryTree<'_>) -> Self {
        let mut by_name: HashMap<&str, Vec<&str>> = HashMap::new();
        for (path, library) in tree.libraries() {
            let file = file_name(path);
            by_name.entry(file).or_default().push(path);
            if let Some(soname) = library.soname.as_deref().filter(|soname| *soname != file) {
                by_name.entry(soname).or_default().push(path);
            }
        }
        Self { by_name }
    }

    /// Paths of the files of this name.
    pub(super) fn paths(&self, name: &str) -> &[&'t str] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// Names that begin like this, up to `.so`, in order.
    pub(super) fn with_stem(&self, stem: &str) -> Vec<&'t str> {
        let names = self.by_name.keys().copied();
        let mut names: Vec<_> = names
            .filter(|name| super::names::library_stem(name) == stem)
            .collect();
        names.sort_unstable();
        names
    }
}

/// What a path below a site-packages folder is of: `torchvision` for `torchvision.libs/libz.so` and
/// `torchvision/_C.so`.
pub(super) fn package_of_path<'p>(path: &'p str, site_packages: &[String]) -> Option<&'p str> {
    let inner = site_packages
        .iter()
        .find_map(|site| strip_dir_prefix(path, site))?;
    let first = inner.split('/').next().unwrap_or(inner);
    let first = first.strip_suffix(".libs").unwrap_or(first);
    Some(first.split('.').next().unwrap_or(first))
}

/// The rest of a path below a folder.
pub(super) fn strip_dir_prefix<'p>(path: &'p str, folder: &str) -> Option<&'p str> {
    path.strip_prefix(folder)?.strip_prefix('/')
}
