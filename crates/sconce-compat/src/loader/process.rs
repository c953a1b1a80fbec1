//! The loader at work in one process.

use std::collections::HashMap;

use super::tree::{LibraryTree, TreeEntry, parent_dir};
use crate::library::ElfLibrary;

/// A process as the loader sees it: what is loaded, in order.
#[derive(Debug, Clone)]
pub struct LoaderProcess<'t, 'a> {
    pub(super) tree: &'t LibraryTree<'a>,
    objects: Vec<LoadedObject<'a>>,
    /// Every name by which a loaded object answers; the first loaded keeps it.
    names: HashMap<String, usize>,
    library_path: Vec<String>,
    /// Directories already followed through links.
    followed: HashMap<String, Option<String>>,
    /// Search entries that mean the working directory, with where they stand.
    relative: Vec<(String, String)>,
}

/// A loaded library or program.
#[derive(Debug, Clone)]
pub struct LoadedObject<'a> {
    /// Its path as the loader puts it together and prints it, with `..` and links.
    pub path: String,
    /// The same without `..` and links.
    pub real: String,
    /// What it says of itself.
    pub library: &'a ElfLibrary,
    /// The object that it was first loaded for; for `dlopen`, the one that called.
    pub loader: Option<usize>,
    /// What led to it.
    pub found: LookupOrigin,
    /// What each of its `DT_NEEDED` came to, in order; none where nothing was found, or where it is
    /// provided from outside.
    pub needed: Vec<Option<usize>>,
    /// Whether its symbols serve everybody: it came with the program or by `RTLD_GLOBAL`.
    pub global: bool,
    /// Something that it needs is not there.
    pub incomplete: bool,
    rpath: Vec<String>,
    runpath: Vec<String>,
}

/// What led to a library. Directories are as the loader puts them together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupOrigin {
    /// It is the program.
    Program,
    /// It was asked for by its path.
    Path,
    /// `LD_PRELOAD` asks for it.
    Preload,
    /// `DT_RPATH` of an object: its own loader, or one further up.
    Rpath {
        /// The object whose `DT_RPATH` it is.
        object: usize,
        /// The directory.
        directory: String,
    },
    /// `LD_LIBRARY_PATH`.
    LibraryPath {
        /// The directory.
        directory: String,
    },
    /// `DT_RUNPATH` of the object that needs it.
    Runpath {
        /// The directory.
        directory: String,
    },
    /// `ld.so.cache`.
    Cache,
    /// A default directory.
    Default {
        /// The directory.
        directory: String,
    },
}

/// What one call of `dlopen`, or the start of the program, came to.
#[derive(Debug, Clone, Default)]
pub struct DlopenResult {
    /// The object that was asked for.
    pub root: Option<usize>,
    /// It and all that it needs, breadth first: the order of symbol search.
    pub scope: Vec<usize>,
    /// Objects from this one on were loaded by this call.
    pub first_new: usize,
    /// Objects from this one on were not yet.
    pub end: usize,
    /// What was not found, in the order in which the loader comes to it. The loader stops at the
    /// first; here it goes on.
    pub missing: Vec<UnresolvedLibrary>,
    /// Names that were given once something was missing, where the loader would have stopped.
    late: Vec<String>,
}

/// A library that was not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnresolvedLibrary {
    /// The name that was asked for.
    pub name: String,
    /// The object that needs it; none where it is the one that was to be opened.
    pub needed_by: Option<usize>,
    /// Why.
    pub absent: UnresolvedReason,
}

/// Why a library was not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnresolvedReason {
    /// There is none where the loader looks.
    NotFound,
    /// There is a file, and it is no library.
    Refused {
        /// The file.
        path: String,
        /// The loader's words.
        text: &'static str,
    },
}

enum Search<'a> {
    Hit(Hit<'a>),
    Refused { path: String, text: &'static str },
    Nothing,
}

struct Hit<'a> {
    path: String,
    real: String,
    library: &'a ElfLibrary,
}

impl<'t, 'a> LoaderProcess<'t, 'a> {
    /// Starts the tree's program with what `LD_PRELOAD` names. Where no program is known, the
    /// process is empty.
    #[must_use]
    pub fn start(tree: &'t LibraryTree<'a>) -> (Self, DlopenResult) {
        let mut process = Self {
            tree,
            objects: Vec::new(),
            names: HashMap::new(),
            library_path: Vec::new(),
            followed: HashMap::new(),
            relative: Vec::new(),
        };
        let mut opened = DlopenResult::default();
        let program = tree.program.as_ref();
        // `$ORIGIN` of the program is where the file is, of a library the path that led to it.
        let program = program.and_then(|path| tree.resolve(path));
        let origin = program.as_deref().map(parent_dir);
        // An empty variable is as none; an empty entry is the working directory.
        if !tree.library_path.is_empty() {
            let entries = tree.library_path.split([':', ';']);
            process.library_path = directories(
                tree,
                entries,
                origin,
                "LD_LIBRARY_PATH",
                &mut process.relative,
            );
        }
        if let Some(real) = program
            && let Some(TreeEntry::Library(library)) = tree.entry_at(&real)
        {
            let hit = Hit {
                path: real.clone(),
                real,
                library,
            };
            opened
                .scope
                .push(process.add(hit, None, LookupOrigin::Program));
            opened.root = Some(0);
        }
        let main = opened.root;
        for name in tree
            .preload
            .split([' ', ':'])
            .filter(|name| !name.is_empty())
        {
            match process.map(name, main, Some(LookupOrigin::Preload)) {
                Ok(Some(object)) if !opened.scope.contains(&object) => opened.scope.push(object),
                Ok(_) => {}
                Err(absent) => opened.missing.push(UnresolvedLibrary {
                    name: name.to_owned(),
                    needed_by: None,
                    absent,
                }),
            }
        }
        process.close_over(&mut opened);
        opened.end = process.objects.len();
        for &object in &opened.scope {
            process.objects[object].global = true;
        }
        (process, opened)
    }

    /// `dlopen` of a name or path, called by a loaded object (none: by one without search paths of
    /// its own), with `RTLD_NOW` and, if so asked, `RTLD_GLOBAL`.
    pub fn open(&mut self, name: &str, caller: Option<usize>, global: bool) -> DlopenResult {
        let mut opened = DlopenResult {
            first_new: self.objects.len(),
            ..DlopenResult::default()
        };
        match self.map(name, caller, None) {
            Ok(Some(root)) => {
                opened.root = Some(root);
                opened.scope.push(root);
                self.close_over(&mut opened);
            }
            Ok(None) => {}
            Err(absent) => opened.missing.push(UnresolvedLibrary {
                name: name.to_owned(),
                needed_by: None,
                absent,
            }),
        }
        opened.end = self.objects.len();
        if global {
            for &object in &opened.scope {
                self.objects[object].global = true;
            }
        }
        opened
    }

    /// Unloads what a call has loaded, the last one of those that are not yet forgotten, as the
    /// loader does when a `dlopen` fails.
    pub fn unload_new_objects(&mut self, opened: &DlopenResult) {
        self.objects.truncate(opened.first_new);
        self.names.retain(|_, object| *object < opened.first_new);
        for name in &opened.late {
            self.names.remove(name);
        }
    }

    /// What is loaded, in order.
    #[must_use]
    pub fn objects(&self) -> &[LoadedObject<'a>] {
        &self.objects
    }

    /// The loaded object that answers to a name.
    #[must_use]
    pub fn find_object(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Search entries that mean the working directory, which is not searched here: where each
    /// stands, and its text.
    #[must_use]
    pub fn relative_search_paths(&self) -> &[(String, String)] {
        &self.relative
    }

    /// Loads what the objects of a scope need, breadth first (glibc's `_dl_map_object_deps`).
    fn close_over(&mut self, opened: &mut DlopenResult) {
        let mut listed = vec![false; self.objects.len()];
        for &object in &opened.scope {
            listed[object] = true;
        }
        let mut at = 0;
        while let Some(&object) = opened.scope.get(at) {
            at += 1;
            if object >= opened.first_new {
                let library = self.objects[object].library;
                for name in &library.needed {
                    // Here tokens are put in before the name is looked for among what is loaded.
                    let origin = parent_dir(&self.objects[object].path);
                    let expanded = name
                        .contains(['$', '/'])
                        .then(|| self.tree.expand_tokens(name, Some(origin)));
                    let name = expanded.as_ref().and_then(Option::as_ref).unwrap_or(name);
                    let new_name = !opened.missing.is_empty() && self.find_object(name).is_none();
                    let came = self.map(name, Some(object), None);
                    if new_name && came.is_ok() {
                        opened.late.push(name.clone());
                    }
                    if let Err(absent) = &came {
                        opened.missing.push(UnresolvedLibrary {
                            name: name.clone(),
                            needed_by: Some(object),
                            absent: absent.clone(),
                        });
                        self.objects[object].incomplete = true;
                    }
                    self.objects[object].needed.push(came.ok().flatten());
                }
            }
            listed.resize(self.objects.len(), false);
            for &needed in self.objects[object].needed.iter().flatten() {
                if !std::mem::replace(&mut listed[needed], true) {
                    opened.scope.push(needed);
                }
            }
        }
    }

    /// Finds or loads one object (glibc's `_dl_map_object`). None: provided from outside.
    fn map(
        &mut self,
        name: &str,
        loader: Option<usize>,
        asked: Option<LookupOrigin>,
    ) -> Result<Option<usize>, UnresolvedReason> {
        if let Some(loaded) = self.find_object(name) {
            return Ok(Some(loaded));
        }
        let (search, found) = if name.contains('/') {
            let origin = loader.map(|loader| parent_dir(&self.objects[loader].path));
            let search = match self.tree.expand_tokens(name, origin) {
                Some(path) => at(self.tree, &path, self.tree.resolve(&path)),
                None => Search::Nothing,
            };
            (search, LookupOrigin::Path)
        } else {
            self.search(name, loader)
        };
        match search {
            Search::Hit(hit) => {
                let loaded = self
                    .objects
                    .iter()
                    .position(|object| object.real == hit.real);
                let object = match loaded {
                    Some(loaded) => loaded,
                    None => self.add(hit, loader, asked.unwrap_or(found)),
                };
                self.names.entry(name.to_owned()).or_insert(object);
                Ok(Some(object))
            }
            Search::Refused { path, text } => Err(UnresolvedReason::Refused { path, text }),
            Search::Nothing if self.tree.is_provided(name) => Ok(None),
            Search::Nothing => Err(UnresolvedReason::NotFound),
        }
    }

    fn search(&mut self, name: &str, loader: Option<usize>) -> (Search<'a>, LookupOrigin) {
        let Self {
            tree,
            objects,
            library_path,
            followed,
            ..
        } = self;
        let has_runpath = loader.is_some_and(|at| objects[at].library.runpath.is_some());
        if !has_runpath {
            let mut up = loader;
            let mut did_program = false;
            while let Some(object) = up {
                let place = probe(tree, followed, &objects[object].rpath, name);
                if let Some((search, directory)) = place {
                    return (search, LookupOrigin::Rpath { object, directory });
                }
                did_program |= object == 0;
                up = objects[object].loader;
            }
            let program = objects
                .first()
                .filter(|first| first.found == LookupOrigin::Program);
            if let Some(program) = program
                && !did_program
                && let Some((search, directory)) = probe(tree, followed, &program.rpath, name)
            {
                return (
                    search,
                    LookupOrigin::Rpath {
                        object: 0,
                        directory,
                    },
                );
            }
        }
        if let Some((search, directory)) = probe(tree, followed, library_path, name) {
            return (search, LookupOrigin::LibraryPath { directory });
        }
        if let Some(loader) = loader
            && let Some((search, directory)) = probe(tree, followed, &objects[loader].runpath, name)
        {
            return (search, LookupOrigin::Runpath { directory });
        }
        // Of the cache's lines for a name the loader takes the first that its processor can run,
        // and looks at no other if there is no such file.
        for path in tree.in_cache(name) {
            let real = tree.resolve(path);
            let entry = real.as_deref().and_then(|real| tree.entry_at(real));
            if matches!(entry, Some(TreeEntry::Library(library)) if library.machine != tree.machine)
            {
                continue;
            }
            match at(tree, path, real) {
                Search::Nothing => break,
                search => return (search, LookupOrigin::Cache),
            }
        }
        match probe(tree, followed, &tree.default_directories, name) {
            Some((search, directory)) => (search, LookupOrigin::Default { directory }),
            None => (Search::Nothing, LookupOrigin::Path),
        }
    }

    fn add(&mut self, hit: Hit<'a>, loader: Option<usize>, found: LookupOrigin) -> usize {
        let Hit {
            path,
            real,
            library,
        } = hit;
        let object = self.objects.len();
        let mut paths = |entries: &[String], what: &str| {
            // The loader ignores an empty path, and in a longer one an empty entry is the
            // working directory.
            if entries.iter().all(String::is_empty) && entries.len() <= 1 {
                return Vec::new();
            }
            let source = format!("{what} of {real}");
            let entries = entries.iter().map(String::as_str);
            directories(
                self.tree,
                entries,
                Some(parent_dir(&path)),
                &source,
                &mut self.relative,
            )
        };
        let (rpath, runpath) = match &library.runpath {
            Some(runpath) => (Vec::new(), paths(runpath, "DT_RUNPATH")),
            None => (paths(&library.rpath, "DT_RPATH"), Vec::new()),
        };
        for name in [Some(&path), library.soname.as_ref()].into_iter().flatten() {
            self.names.entry(name.clone()).or_insert(object);
        }
        self.objects.push(LoadedObject {
            path,
            real,
            library,
            loader,
            found,
            needed: Vec::new(),
            global: false,
            incomplete: false,
            rpath,
            runpath,
        });
        object
    }
}

/// The directories of a search path that can be searched; the others are noted.
fn directories<'e>(
    tree: &LibraryTree<'_>,
    entries: impl Iterator<Item = &'e str>,
    origin: Option<&str>,
    source: &str,
    relative: &mut Vec<(String, String)>,
) -> Vec<String> {
    let mut kept = Vec::new();
    for entry in entries {
        match tree.expand_tokens(entry, origin) {
            Some(directory) if directory.starts_with('/') => kept.push(directory),
            // A token without a value leaves nothing to search.
            Some(directory) if directory.is_empty() && !entry.is_empty() => {}
            None => {}
            Some(_) => relative.push((source.to_owned(), entry.to_owned())),
        }
    }
    kept
}

/// The first of these directories that has a file of this name which the loader would take or
/// stumble over (glibc's `open_path`).
fn probe<'a>(
    tree: &LibraryTree<'a>,
    followed: &mut HashMap<String, Option<String>>,
    directories: &[String],
    name: &str,
) -> Option<(Search<'a>, String)> {
    for directory in directories {
        for hwcaps in tree.hwcaps.iter().map(Some).chain([None]) {
            let directory = match hwcaps {
                Some(hwcaps) => &format!("{directory}/{hwcaps}"),
                None => directory,
            };
            if !followed.contains_key(directory) {
                followed.insert(directory.clone(), tree.resolve(directory));
            }
            let Some(Some(real)) = followed.get(directory) else {
                continue;
            };
            let real = format!("{}/{name}", real.trim_end_matches('/'));
            let real = match tree.entry_at(&real) {
                Some(TreeEntry::Link(_)) => tree.resolve(&real),
                Some(_) => Some(real),
                None => continue,
            };
            let path = format!("{}/{name}", directory.trim_end_matches('/'));
            match at(tree, &path, real) {
                Search::Nothing => {}
                search => return Some((search, directory.clone())),
            }
        }
    }
    None
}

/// What the loader makes of a file (glibc's `open_verify`).
fn at<'a>(tree: &LibraryTree<'a>, path: &str, real: Option<String>) -> Search<'a> {
    let Some(real) = real else {
        return Search::Nothing;
    };
    match tree.entry_at(&real) {
        Some(TreeEntry::Library(library)) if library.machine == tree.machine => Search::Hit(Hit {
            path: path.to_owned(),
            real,
            library,
        }),
        Some(TreeEntry::Refused(text)) => Search::Refused {
            path: path.to_owned(),
            text,
        },
        _ => Search::Nothing,
    }
}
