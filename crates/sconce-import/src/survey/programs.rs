//! What a project's programs import: those that a person starts, and the project's own modules that they import
//! in turn.

use std::collections::{BTreeSet, VecDeque};

use super::super::project_table::is_for_developers;
use super::super::python::{ImportStatement, MAX_SOURCE_BYTES, find_imports};
use super::{ProjectFolder, notebook};

/// Files that are read.
pub(super) const MAX_FILES: usize = 800;
/// Their bytes, all together.
pub(super) const MAX_BYTES: usize = 24 << 20;
/// Needs that are told.
const MAX_NEEDS: usize = 500;

/// A module of another project, and where it is imported first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModuleNeed {
    /// With its points: `google.protobuf`.
    pub(super) module: String,
    pub(super) file: String,
    pub(super) line: usize,
    /// It is imported when a function is called, and not when the file is loaded.
    pub(super) in_function: bool,
}

impl ModuleNeed {
    /// `train.py:3`, `demo.ipynb cell 2`.
    pub(super) fn place(&self) -> String {
        let sign = if self.file.ends_with(NOTEBOOK) {
            " cell "
        } else {
            ":"
        };
        format!("{}{sign}{}", self.file, self.line)
    }
}

/// What was read, and what is needed.
#[derive(Debug, Default)]
pub(super) struct ProgramNeeds {
    pub(super) needs: Vec<ModuleNeed>,
    /// There is code of the project's.
    pub(super) has_code: bool,
    /// Programs below the first level that were read, as nothing above them is started.
    pub(super) below: Vec<String>,
    /// Programs by their names that were not read.
    pub(super) unread: Vec<String>,
}

/// How a notebook's file ends.
pub(super) const NOTEBOOK: &str = ".ipynb";
/// Folders of programs beside those of the project's own folder.
const PROGRAM_FOLDERS: [&str; 3] = ["scripts", "tools", "bin"];
/// Files that set the project up, or that other tools run.
const NO_PROGRAMS: [&str; 9] = [
    "setup.py",
    "conftest.py",
    "noxfile.py",
    "hubconf.py",
    "versioneer.py",
    "fabfile.py",
    "dodo.py",
    "conf.py",
    "cog_predict.py",
];
/// How programs that a person starts are called, the usual ones first.
const PROGRAM_NAMES: [&str; 9] = [
    "train", "main", "run", "finetune", "eval", "infer", "predict", "sample", "generate",
];
/// Which files of a folder are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChosenFiles {
    /// Its programs, and all of them where none says that it is one.
    All,
    Programs,
}

/// Whether a file is called as programs are that a person starts.
pub(super) fn is_program_name(name: &str) -> bool {
    PROGRAM_NAMES.iter().any(|begin| name.starts_with(begin))
}

/// Folders that are no part of the project as it is used.
const NO_PACKAGES: [&str; 12] = [
    "example",
    "examples",
    "demo",
    "demos",
    "notebooks",
    "tutorial",
    "tutorials",
    "third_party",
    "node_modules",
    "site-packages",
    "venv",
    "env",
];

/// The modules that are needed, in the order in which they are met. Of a package that declares what it requires
/// only what importing it needs counts: the rest is for those who ask for it. `with_tools` reads the programs in
/// `scripts` and its kind and those that the README runs, too, which of such a package are those of who works on it.
pub(super) fn find_needs(
    folder: &dyn ProjectFolder,
    scripts: &[String],
    of_readme: &[String],
    declared: bool,
    with_tools: bool,
) -> ProgramNeeds {
    let mut reader = ProgramReader {
        folder,
        declared,
        queue: VecDeque::new(),
        seen: BTreeSet::new(),
        bytes: 0,
        needs: Vec::new(),
        told: BTreeSet::new(),
        own: BTreeSet::new(),
        modules: None,
    };
    let below = reader.queue_programs(scripts, of_readme, with_tools);
    while let Some((path, root)) = reader.queue.pop_front() {
        reader.read_program(&path, &root);
        if reader.needs.len() >= MAX_NEEDS {
            break;
        }
    }
    let unread = match with_tools && below.is_empty() {
        true => reader.find_unread(),
        false => Vec::new(),
    };
    ProgramNeeds {
        has_code: !reader.seen.is_empty(),
        needs: reader.needs,
        below,
        unread,
    }
}

pub(super) struct ProgramReader<'a> {
    pub(super) folder: &'a dyn ProjectFolder,
    declared: bool,
    /// Files, with the folder from which they import: that of the program that is started.
    queue: VecDeque<(String, String)>,
    pub(super) seen: BTreeSet<String>,
    bytes: usize,
    needs: Vec<ModuleNeed>,
    told: BTreeSet<String>,
    /// Modules that lie elsewhere in the project.
    own: BTreeSet<String>,
    /// The names of all modules and folders of the project, once they were asked for.
    pub(super) modules: Option<BTreeSet<String>>,
}

pub(super) fn join(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_owned(),
        folder => format!("{folder}/{name}"),
    }
}

/// Folders of tests, examples and other people's code.
pub(super) fn is_aside(name: &str) -> bool {
    NO_PACKAGES.contains(&name) || is_for_developers(name) || name.starts_with(['.', '_'])
}

pub(super) fn is_program(name: &str) -> bool {
    let stem = name.strip_suffix(".py");
    stem.is_some_and(|stem| {
        !NO_PROGRAMS.contains(&name)
            && !stem.starts_with("test_")
            && !stem.ends_with("_test")
            && !is_for_developers(stem)
    })
}

/// Whether a folder says itself what it needs.
pub(super) fn is_project(folder: &dyn ProjectFolder, path: &str) -> bool {
    let is_such = |name: &str| {
        let requirements = name.starts_with("requirements") && name.ends_with(".txt");
        requirements || matches!(name, "setup.py" | "pyproject.toml" | "environment.yml")
    };
    let entries = folder.list(path);
    entries
        .iter()
        .any(|entry| !entry.is_dir && is_such(&entry.name))
}

impl ProgramReader<'_> {
    /// Gives those that lie below the first level and are no part of a package.
    fn queue_programs(
        &mut self,
        scripts: &[String],
        of_readme: &[String],
        with_tools: bool,
    ) -> Vec<String> {
        let mut started = self.queue_folder("", ChosenFiles::All);
        for folder in PROGRAM_FOLDERS.into_iter().filter(|_| with_tools) {
            started |= self.queue_folder(folder, ChosenFiles::All);
        }
        for path in of_readme.iter().filter(|_| with_tools) {
            started |= self.queue_program_of_readme(path);
        }
        let programs = !self.queue.is_empty();
        for source in ["", "src"] {
            let entries = self.folder.list(source);
            for entry in entries.iter().filter(|entry| entry.is_dir).take(300) {
                let skipped = is_aside(&entry.name)
                    || PROGRAM_FOLDERS.contains(&entry.name.as_str())
                    || self.declared && is_project(self.folder, &join(source, &entry.name));
                // Of loose programs the packages are read that they import.
                if !skipped && (self.declared || !programs || !source.is_empty()) {
                    self.queue_package(&join(source, &entry.name), source, !programs);
                }
            }
        }
        for module in scripts.iter().take(100) {
            let path = module.replace('.', "/");
            for source in ["", "src"] {
                self.queue_file(&join(source, &format!("{path}.py")), source);
            }
        }
        if self.queue.is_empty() {
            let below = self.queue_below(ChosenFiles::All);
            if self.queue.is_empty() {
                self.queue_notebooks();
            }
            return below;
        }
        match started || self.declared {
            true => Vec::new(),
            false => self.queue_below(ChosenFiles::Programs),
        }
    }

    /// What importing the package needs; where `whole` and it imports nothing itself, all its modules.
    fn queue_package(&mut self, path: &str, root: &str, whole: bool) {
        let start = join(path, "__init__.py");
        if !self.queue_file(&start, root) {
            return;
        }
        self.queue_file(&join(path, "__main__.py"), root);
        if whole && !self.declared {
            self.queue_modules(path, root, 0);
            return;
        }
        let text = self.folder.read_text(&start).unwrap_or_default();
        if whole && text.len() < MAX_SOURCE_BYTES && find_imports(&text).is_empty() {
            for entry in self.folder.list(path).iter() {
                if !entry.is_dir && is_program(&entry.name) {
                    self.queue_file(&join(path, &entry.name), root);
                }
            }
        }
    }

    /// The programs of a folder: those that say that they are some, or else all its files. Says whether there are
    /// some.
    pub(super) fn queue_folder(&mut self, folder: &str, chosen: ChosenFiles) -> bool {
        let entries = self.folder.list(folder);
        let files = entries
            .iter()
            .filter(|entry| !entry.is_dir && is_program(&entry.name));
        let files: Vec<&str> = files.map(|entry| entry.name.as_str()).take(300).collect();
        let rank = |name: &str| {
            PROGRAM_NAMES
                .iter()
                .position(|begin| name.starts_with(begin))
        };
        let begins = |name: &&&str| is_program_name(name);
        let guarded = |name: &&&str| {
            let text = self.folder.read_text(&join(folder, name));
            text.is_some_and(|text| text.contains("__main__"))
        };
        let mut programs: Vec<&str> = files.iter().filter(begins).copied().collect();
        programs.sort_by_key(|name| rank(name));
        programs.extend(files.iter().filter(|name| !begins(name)).filter(guarded));
        let has_programs = !programs.is_empty();
        let taken = match (has_programs, chosen) {
            (false, ChosenFiles::All) => files,
            _ => programs,
        };
        let paths: Vec<String> = taken.iter().map(|name| join(folder, name)).collect();
        for path in paths {
            self.queue_file(&path, folder);
        }
        has_programs
    }

    /// A file, where it is there and not yet read; says whether it is there.
    pub(super) fn queue_file(&mut self, path: &str, root: &str) -> bool {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let there = self.seen.contains(path) || self.has_file(folder, name);
        if there && self.seen.len() < MAX_FILES && self.seen.insert(path.to_owned()) {
            self.queue.push_back((path.to_owned(), root.to_owned()));
        }
        there
    }

    fn has_file(&self, folder: &str, name: &str) -> bool {
        let entries = self.folder.list(folder);
        let at = entries.binary_search_by(|entry| entry.name.as_str().cmp(name));
        at.is_ok_and(|at| !entries[at].is_dir)
    }

    fn read_program(&mut self, path: &str, root: &str) {
        let Some(text) = self.folder.read_text(path) else {
            return;
        };
        self.bytes += text.len();
        if text.len() > MAX_SOURCE_BYTES || self.bytes > MAX_BYTES {
            return;
        }
        let statements = match path.ends_with(NOTEBOOK) {
            true => notebook::read_imports(&text),
            false => find_imports(&text),
        };
        for statement in statements {
            if statement.in_function && self.declared {
                continue;
            }
            self.read_statement(&statement, path, root);
        }
    }

    fn read_statement(&mut self, statement: &ImportStatement, path: &str, root: &str) {
        let package = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        if statement.level > 0 {
            let mut base = package;
            for _ in 1..statement.level {
                base = base.rsplit_once('/').map_or("", |(above, _)| above);
            }
            let module = statement.module.replace('.', "/");
            let target = match module.as_str() {
                "" => base.to_owned(),
                module => join(base, module),
            };
            self.queue_module(&target, &statement.names, root);
            return;
        }
        let top = statement.module.split('.').next().unwrap_or_default();
        if sconce_formats::is_standard_module(top) || top.is_empty() {
            return;
        }
        let inner = statement.module.replace('.', "/");
        for base in [root, "", "src", package] {
            let (whole, first) = (join(base, &inner), join(base, top));
            // A package, or a module; a folder without __init__.py yields to an installed package unless it
            // has the very module.
            let own =
                self.has_file(base, &format!("{top}.py")) || self.has_file(&first, "__init__.py");
            let (above, last) = whole.rsplit_once('/').unwrap_or(("", &whole));
            let there = || {
                self.has_file(above, &format!("{last}.py")) || self.has_file(&whole, "__init__.py")
            };
            let named = || {
                let mut names = statement.names.iter();
                names.any(|name| self.has_file(&whole, &format!("{name}.py")))
            };
            if own || there() || named() {
                let mut packages = first;
                for part in inner.split('/').skip(1) {
                    self.queue_file(&join(&packages, "__init__.py"), root);
                    packages = join(&packages, part);
                }
                self.queue_module(&whole, &statement.names, root);
                return;
            }
        }
        if sconce_formats::find_providers(&statement.module).is_none() {
            let known = self.told.contains(top) || self.own.contains(top);
            if known || self.is_own_elsewhere(top) {
                self.own.insert(top.to_owned());
                return;
            }
        }
        let module = longest_known(statement);
        let key = sconce_formats::find_providers(&module).map_or(top.to_owned(), |mut all| {
            all.next().unwrap_or_default().to_owned()
        });
        if self.told.insert(key) && self.needs.len() < MAX_NEEDS {
            self.needs.push(ModuleNeed {
                module,
                file: path.to_owned(),
                line: statement.line,
                in_function: statement.in_function,
            });
        }
    }

    /// A module of the project, and those that are imported from it.
    fn queue_module(&mut self, target: &str, names: &[String], root: &str) {
        if target.is_empty() {
            return;
        }
        let is_file = self.queue_file(&format!("{target}.py"), root);
        if !is_file {
            self.queue_file(&join(target, "__init__.py"), root);
            for name in names.iter().take(100) {
                let inner = join(target, name);
                if !self.queue_file(&format!("{inner}.py"), root) {
                    self.queue_file(&join(&inner, "__init__.py"), root);
                }
            }
        }
    }

    /// Whether a folder or a module of that name lies somewhere in the project, as for programs that extend
    /// `sys.path`.
    fn is_own_elsewhere(&mut self, top: &str) -> bool {
        let file = format!("{top}.py");
        let has = |folder: &str| {
            self.has_file(folder, &file) || {
                let inner = join(folder, top);
                !self.folder.list(&inner).is_empty()
            }
        };
        let entries = self.folder.list("");
        let mut below = entries
            .iter()
            .filter(|entry| entry.is_dir && !entry.name.starts_with('.'))
            .take(200);
        has("") || below.any(|entry| has(&entry.name)) || self.has_module_below(top)
    }
}

/// `from google import protobuf` is `google.protobuf`.
fn longest_known(statement: &ImportStatement) -> String {
    let known = |module: &String| sconce_formats::find_providers(module).is_some();
    if known(&statement.module) {
        return statement.module.clone();
    }
    let longer = statement
        .names
        .iter()
        .map(|name| format!("{}.{name}", statement.module));
    longer
        .into_iter()
        .find(known)
        .unwrap_or_else(|| statement.module.clone())
}
