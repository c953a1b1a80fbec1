//! A project's folder as a whole: what stands in no file of packages, or beside it. Text in, a spec out; the
//! folder is behind [`ProjectFolder`], and nothing of it is run.

mod choice;
mod chosen_extras;
mod machine;
mod missing_files;
mod notebook;
mod own_imports;
mod own_wishes;
mod programs;
mod programs_below;
mod removed_from_python;
mod removed_modules;
mod version_wishes;

use std::collections::BTreeSet;
use std::rc::Rc;

use self::own_imports::OwnImport;
use self::programs::ModuleNeed;
use self::removed_from_python::PythonBound;
use super::dockerfile::add_debian_package;
use super::draft::Draft;
use super::note::{ImportNote, NoteKind};
use super::project_table::{
    extra_names, is_package_text, project_name, refuses_package_text, script_modules,
};
use super::readme::{self, InstallLines};
use super::requirement::{self, Requirement, note_isolation};
use super::{ImportFormat, ImportedSpec, PackageOrigin, UnprovidedModule, is_lock_format};
use crate::project_files::setup;
use crate::project_files::static_project::StaticProject;

/// A file or a folder of a project.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FolderEntry {
    /// Without the folders above.
    pub name: String,
    /// It is a folder and no link.
    pub is_dir: bool,
}

/// The folder of a project. Paths are relative to it and have no `..`.
pub trait ProjectFolder {
    /// The name of the folder itself.
    fn name(&self) -> &str;
    /// The text of a file; `None` for one that is not there, leaves the folder, is too large or no text.
    fn read_text(&self, path: &str) -> Option<String>;
    /// What lies in a folder, `""` for the project's own, sorted by name and bounded.
    fn list(&self, path: &str) -> Rc<[FolderEntry]>;
    /// The first bytes of a file.
    fn read_start(&self, path: &str) -> Vec<u8>;
}

/// A spec of a folder, and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct SurveyedSpec {
    /// The file that most of it is from, for messages.
    pub source: String,
    /// What was understood.
    pub imported: ImportedSpec,
}

/// The source of a spec that no file of packages and no README says anything for.
const IMPORTS: &str = "the imports of its programs";
/// The same where there are none.
const NO_CODE: &str = "a folder that names no packages";

/// READMEs, in the order in which they are looked for.
const README_FILES: [&str; 6] = [
    "README.md",
    "README.rst",
    "readme.md",
    "Readme.md",
    "README",
    "README.txt",
];

/// Completes what the file `base` of the folder said by what the others say, or begins with them where there is
/// no such file. `None` where there is neither code nor anything that names packages.
#[must_use]
pub fn survey_folder(
    base: Option<(ImportFormat, SurveyedSpec)>,
    folder: &dyn ProjectFolder,
) -> Option<SurveyedSpec> {
    let project = ProjectFacts::read(folder);
    let readme = README_FILES
        .iter()
        .find_map(|name| Some((*name, folder.read_text(name)?)));
    let (page, installs) = find_installs(readme.as_ref(), &project, folder);
    let had_base = base.is_some();
    let mut survey = FolderSurvey::new(base, project, folder);
    if let Some((name, text)) = &readme {
        survey.read_wishes(name, text);
    }
    survey.choose_source(&page, &installs);
    survey.add_project(&page, &installs);
    survey.provide_extras();
    survey.add_readme(&page, &installs);
    survey.note_python(&page, &installs);
    survey.add_cog();
    survey.add_notebooks();
    survey.add_imports();
    let code = survey.read_own_code();
    survey.add_machine();
    survey.add_version_wishes(&code);
    survey.note_missing_files();
    let python = &survey.spec().python;
    let empty = python.packages.is_empty()
        && python.editable.is_empty()
        && python.requirements.is_none()
        && survey.spec().system.packages.is_empty();
    let is_bare = empty && !survey.has_code && survey.imported.notes.is_empty();
    if survey.source.is_empty() {
        let source = if survey.has_code { IMPORTS } else { NO_CODE };
        survey.source = source.to_owned();
    }
    (had_base || !is_bare).then_some(SurveyedSpec {
        source: survey.source,
        imported: survey.imported,
    })
}

/// Pages about installing that nothing leads to.
const INSTALL_PAGES: [&str; 8] = [
    "INSTALL.md",
    "INSTALL.rst",
    "INSTALL",
    "docs/INSTALL.md",
    "docs/install.md",
    "docs/installation.md",
    "docs/get_started.md",
    "docs/source/installation.rst",
];

/// What the README's commands install, or where it has none, those of the page that it leads to; with the name of
/// that file.
fn find_installs(
    readme: Option<&(&str, String)>,
    project: &ProjectFacts,
    folder: &dyn ProjectFolder,
) -> (String, InstallLines) {
    /// Pages that are looked into.
    const MAX_PAGES: usize = 10;
    let own = &project.names;
    let (name, text) = readme.map_or(("README.md", ""), |(name, text)| (*name, text));
    let installs = readme::read_install_lines(&readme::find_blocks(name, text), own);
    if installs.has_no_packages() {
        let linked = readme::find_install_pages(text, own).into_iter();
        let usual = INSTALL_PAGES.iter().map(|name| (*name).to_owned());
        for page in linked.chain(usual).take(MAX_PAGES) {
            let blocks = folder
                .read_text(&page)
                .map(|text| readme::find_blocks(&page, &text));
            let found = readme::read_install_page(&blocks.unwrap_or_default(), own);
            if !found.has_no_packages() {
                return (page, found);
            }
        }
    }
    (name.to_owned(), installs)
}

/// What the folder says of the project as a package.
#[derive(Debug, Default)]
struct ProjectFacts {
    /// What it goes by, normalised: on the index, as a repository, as a folder.
    names: BTreeSet<String>,
    /// It says that it is one.
    is_package: bool,
    /// It says no such thing, and tools make it one where somebody installs it (PEP 517, "Source trees").
    is_installable: bool,
    extras: BTreeSet<String>,
    /// Modules that console scripts begin in.
    scripts: Vec<String>,
}

impl ProjectFacts {
    fn read(folder: &dyn ProjectFolder) -> Self {
        let mut facts = Self::default();
        let mut names = vec![folder.name().to_owned()];
        let beside = |path: &str| folder.read_text(path);
        let pyproject = folder.read_text("pyproject.toml");
        if let Some(text) = &pyproject {
            facts.is_package = is_package_text(text);
            facts.is_installable = project_name(text).is_some() && !refuses_package_text(text);
            names.extend(project_name(text));
            facts.extras.extend(extra_names(text));
            facts.scripts.extend(script_modules(text));
        }
        let setup = setup::read_facts(&beside);
        if let Some(setup) = setup {
            let refused = pyproject.as_deref().is_some_and(refuses_package_text);
            facts.is_package |= !refused && folder.read_text("setup.py").is_some();
            names.extend(setup.name);
            facts.extras.extend(setup.extras);
            facts.scripts.extend(setup.scripts);
        }
        names.extend(origin_repository(folder));
        names.extend(own_packages(folder));
        let names = names.iter();
        let names = names.filter_map(|name| sconce_formats::normalize_project_name(name));
        facts.names = names.collect();
        facts
    }
}

/// Folders in which the own packages are looked for.
const MAX_OWN_FOLDERS: usize = 200;

/// The packages that lie at the top or in `src`.
fn own_packages(folder: &dyn ProjectFolder) -> Vec<String> {
    let mut packages = Vec::new();
    for below in ["", "src/"] {
        let entries = folder.list(below.trim_end_matches('/'));
        for entry in entries
            .iter()
            .filter(|entry| entry.is_dir)
            .take(MAX_OWN_FOLDERS)
        {
            let inside = folder.list(&format!("{below}{}", entry.name));
            if inside.iter().any(|file| file.name == "__init__.py") {
                packages.push(entry.name.clone());
            }
        }
    }
    packages
}

/// How the repository is called that the folder was cloned from (git-config(1), `remote.origin.url`).
fn origin_repository(folder: &dyn ProjectFolder) -> Option<String> {
    let text = folder.read_text(".git/config")?;
    let mut remote = false;
    for line in text.lines().take(1000).map(str::trim) {
        if line.starts_with('[') {
            remote = line == "[remote \"origin\"]";
        } else if remote
            && let Some((key, value)) = line.split_once('=')
            && key.trim() == "url"
        {
            let last = value
                .trim()
                .trim_end_matches('/')
                .rsplit(['/', ':'])
                .next()?;
            return Some(last.trim_end_matches(".git").to_owned());
        }
    }
    None
}

/// A spec in the making.
struct FolderSurvey<'a> {
    folder: &'a dyn ProjectFolder,
    project: ProjectFacts,
    /// The format of the source, where it is one.
    format: Option<ImportFormat>,
    source: String,
    imported: ImportedSpec,
    /// Some file of packages names what is needed.
    declared: bool,
    /// What the README names anywhere, for the versions of what the code imports.
    wishes: Vec<(String, Requirement)>,
    /// Programs that the README runs.
    readme_programs: Vec<String>,
    /// It has programs or modules.
    has_code: bool,
    /// The Python that is too new for what the code imports.
    python_bound: Option<PythonBound>,
}

impl<'a> FolderSurvey<'a> {
    fn new(
        base: Option<(ImportFormat, SurveyedSpec)>,
        project: ProjectFacts,
        folder: &'a dyn ProjectFolder,
    ) -> Self {
        let (format, source, imported) = match base {
            Some((format, base)) => (Some(format), base.source, base.imported),
            None => (None, String::new(), Draft::default().finish()),
        };
        let declared = !imported.provided.is_empty();
        let offers = imported.offers.iter().map(|(line, one)| match line {
            Some(line) => (format!("{source}:{line}"), one.clone()),
            None => (source.clone(), one.clone()),
        });
        let wishes = offers.collect();
        Self {
            folder,
            project,
            format,
            source,
            imported,
            declared,
            wishes,
            readme_programs: Vec::new(),
            has_code: false,
            python_bound: None,
        }
    }

    /// Commands anywhere in the README, and versions that its text names.
    fn read_wishes(&mut self, readme: &str, text: &str) {
        let blocks = readme::find_blocks(readme, text);
        let installs = readme::read_scripts(&blocks, &self.project.names);
        self.readme_programs = readme::find_programs(&blocks);
        let pins = readme::find_pins(text);
        let all = pins
            .into_iter()
            .chain(installs.packages)
            .chain(installs.conda_packages);
        let all = all.chain(installs.offers);
        let wishes = all.map(|(line, one)| (format!("{readme}:{line}"), one));
        self.wishes.extend(wishes);
    }

    fn spec(&self) -> &sconce_schema::Spec {
        &self.imported.spec
    }

    fn note(&mut self, kind: NoteKind, what: &str, why: &str) {
        /// As many as a file of packages has.
        const MAX_NOTES: usize = 400;
        if self.imported.notes.len() < MAX_NOTES {
            let note = ImportNote::new(kind, None, what, why.to_owned());
            self.imported.notes.push(note);
        }
    }

    /// Whether the project is required already, or comes with one that is.
    fn has_project(&self, name: &str) -> bool {
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut open: Vec<&str> = self.imported.provided.iter().map(String::as_str).collect();
        while let Some(project) = open.pop() {
            if seen.insert(project) {
                for brought in sconce_formats::brought_projects(project) {
                    open.push(brought);
                }
            }
        }
        seen.contains(name)
    }

    /// A requirement that another file than the source asks for.
    fn add_package(&mut self, one: &Requirement, place: String) {
        /// No project needs more that nobody wrote down.
        const MAX_PACKAGES: usize = 300;
        note_isolation(one, &mut self.imported.spec);
        let known = self.imported.provided.contains(&one.name);
        if known || self.project.names.contains(&one.name) {
            return;
        }
        let packages = &mut self.imported.spec.python.packages;
        if self.imported.origins.len() >= MAX_PACKAGES {
            return;
        }
        packages.push(one.text.clone());
        self.imported.provided.insert(one.name.clone());
        self.imported.origins.push(PackageOrigin {
            package: one.text.clone(),
            place,
            removed: None,
        });
        if self.source.is_empty() {
            let file = self.imported.origins[0].place.split([':', ' ']).next();
            self.source = match file {
                Some(file) if !file.ends_with(".py") => file.to_owned(),
                _ => IMPORTS.to_owned(),
            };
        }
    }

    fn add_system_package(&mut self, name: &str, place: &str) {
        let mut draft = Draft::default();
        add_debian_package(&mut draft, name, 1);
        for package in draft.spec.system.packages {
            let packages = &mut self.imported.spec.system.packages;
            if !packages.contains(&package) {
                packages.push(package.clone());
                self.note(NoteKind::Decided, &package, &format!("as {place} has it"));
            }
        }
    }

    /// The project itself, with the extras that the README installs it with.
    fn add_project(&mut self, readme: &str, installs: &InstallLines) {
        let is_installed = installs.project.is_some() && self.project.is_installable;
        if !self.project.is_package && !is_installed {
            return;
        }
        let editable = &mut self.imported.spec.python.editable;
        let own = |folder: &String| folder == "." || folder.starts_with(".[");
        if !editable.iter().any(own) && !self.requirements_have_project() {
            self.imported.spec.python.editable.insert(0, ".".to_owned());
            // What it requires comes with it.
            let beside = |path: &str| self.folder.read_text(path);
            let setup = setup::read_facts(&beside).map(|facts| facts.requires);
            let pyproject = self.folder.read_text("pyproject.toml").and_then(|text| {
                crate::project_files::pyproject::convert("pyproject.toml", &text, &beside).ok()
            });
            let names = setup.into_iter().flatten().map(|one| one.name);
            self.imported.provided.extend(names);
            self.imported
                .provided
                .extend(pyproject.into_iter().flat_map(|imported| imported.provided));
            if self.imported.spec.name.is_none() {
                self.imported.spec.name = self.project_name();
            }
        }
        // In a lock the versions of an extra would be missing.
        if let Some((line, extras)) = &installs.project
            && self.format != Some(ImportFormat::UvLock)
            && self.imported.spec.python.editable.iter().any(own)
        {
            self.choose_extras(
                extras,
                &format!("{readme}:{line} installs the project with"),
            );
        }
    }

    /// What the chosen extras of the project bring.
    fn provide_extras(&mut self) {
        let extras = self.spec().python.extras.clone();
        let beside = |path: &str| self.folder.read_text(path);
        let project = match extras.is_empty() {
            true => None,
            false => StaticProject::read(self.folder.name(), &beside),
        };
        let texts = project.map(|project| project.requirements_of_extras(&extras));
        let texts = texts.into_iter().flatten();
        let names = texts.filter_map(|text| Some(requirement::parse(&text).ok()?.name));
        let names: Vec<String> = names.collect();
        self.imported.provided.extend(names);
    }

    fn project_name(&self) -> Option<String> {
        let text = self.folder.read_text("pyproject.toml");
        let name = text.and_then(|text| project_name(&text)).or_else(|| {
            let beside = |path: &str| self.folder.read_text(path);
            setup::read_facts(&beside)?.name
        });
        let mut draft = Draft::default();
        draft.set_name(&name?);
        draft.spec.name
    }

    /// Whether the requirements file that is referred to installs the project itself.
    fn requirements_have_project(&self) -> bool {
        let Some(path) = &self.spec().python.requirements else {
            return false;
        };
        let beside = |path: &str| self.folder.read_text(path);
        let Some(text) = beside(path) else {
            return false;
        };
        let scan =
            crate::project_files::requirements::RequirementsScan::scan_file(path, &text, &beside);
        scan.projects.iter().any(|(_, folder)| {
            let path = folder.split('[').next().unwrap_or_default().trim();
            matches!(path.trim_end_matches('/'), "." | "")
        })
    }

    /// What the README's commands install beside.
    fn add_readme(&mut self, readme: &str, installs: &InstallLines) {
        for (line, name) in &installs.system {
            self.add_system_package(name, &format!("{readme}:{line}"));
        }
        if let Some(line) = installs.builds_extension {
            self.imported.spec.system.compiler = Some(true);
            let why = format!(
                "{readme}:{line} builds an extension where it lies: run that once, by `sconce run -- sh -c '…'`"
            );
            self.note(NoteKind::Decided, "a compiler", &why);
        }
        // A lock has all packages that it needs, and a README of it other ways to get there.
        if self.format == Some(ImportFormat::UvLock) {
            return;
        }
        let all = installs.packages.iter().chain(&installs.conda_packages);
        for (line, one) in all {
            self.add_package(one, format!("{readme}:{line}"));
        }
        for (line, text, why) in &installs.skipped {
            let one = requirement::parse(text);
            if one.is_ok_and(|one| self.imported.provided.contains(&one.name)) {
                continue;
            }
            self.note(NoteKind::LeftOut, &format!("{readme}:{line}: {text}"), why);
        }
    }

    /// What notebooks install, where nothing else says what there is to install.
    fn add_notebooks(&mut self) {
        if self.declared || !self.imported.origins.is_empty() {
            return;
        }
        let here = self.folder.list("");
        let notebooks = here
            .iter()
            .filter(|entry| !entry.is_dir && entry.name.ends_with(".ipynb"));
        for entry in notebooks.take(20) {
            let Some(text) = self.folder.read_text(&entry.name) else {
                continue;
            };
            let blocks = notebook::read_install_cells(&text);
            let installs = readme::read_scripts(&blocks, &self.project.names);
            for (cell, path, _) in &installs.files {
                self.add_notebook_file(path, &format!("{} cell {cell}", entry.name));
            }
            let all = installs.packages.iter().chain(&installs.conda_packages);
            for (cell, one) in all {
                self.add_package(one, format!("{} cell {cell}", entry.name));
            }
            for (cell, name) in &installs.system {
                self.add_system_package(name, &format!("{} cell {cell}", entry.name));
            }
        }
    }

    /// What the programs import and nothing brings.
    fn add_imports(&mut self) {
        // Its versions are all there; what is imported beside them is not this project's default.
        if self.format.is_some_and(is_lock_format) {
            return;
        }
        let programs = programs::find_needs(
            self.folder,
            &self.project.scripts,
            &self.readme_programs,
            self.is_declared_package(),
            !(self.declared && self.is_declared_package()),
        );
        self.note_programs(&programs);
        if !programs.has_code && self.source.is_empty() {
            self.note_projects_below();
        }
        self.has_code = programs.has_code;
        self.read_own_wishes(&programs.needs);
        self.add_block_of_command();
        let mut unknown: Vec<ModuleNeed> = Vec::new();
        for need in programs.needs {
            let Some(mut providers) = sconce_formats::find_providers(&need.module) else {
                let top = need.module.split('.').next().unwrap_or_default();
                // The author named it.
                let named = sconce_formats::normalize_project_name(top);
                if let Some((place, one)) = named.and_then(|name| self.find_wish(&name)) {
                    self.accept_offer(&one);
                    self.add_package(&one, place);
                } else if !self.is_alike(top) && !self.add_block(&need.file) && unknown.len() < 30 {
                    unknown.push(need);
                }
                continue;
            };
            let named = |project: &str| project.split('<').next().map(str::to_owned);
            let mut all = providers.clone().filter_map(named);
            if all.any(|project| self.has_project(&project)) {
                continue;
            }
            let wish = providers
                .clone()
                .filter_map(named)
                .find_map(|name| self.find_wish(&name));
            if let Some((place, one)) = wish {
                self.add_package(&one, place);
            } else if let Some(first) = providers.next()
                && let Ok(one) = requirement::parse(first)
            {
                self.add_package(&one, need.place());
            }
        }
        for need in unknown {
            let module = need.module.split('.').next().unwrap_or_default();
            let module = module.to_owned();
            self.note(
                NoteKind::LeftOut,
                &format!("{module} ({})", need.place()),
                "imported, and nothing says what brings it: add that to `[python] packages`",
            );
            let name = sconce_formats::normalize_project_name(&module);
            self.imported.unprovided.push(UnprovidedModule {
                is_declared: name.is_some_and(|name| self.imported.unknown.contains(&name)),
                is_required: !need.in_function,
                module,
                file: need.file,
            });
        }
    }

    /// A package that leaves torch to its reader leaves torchvision and torchaudio to him, too: where it
    /// needs them is not where it is first imported.
    fn add_torch_family(&mut self, imports: &[OwnImport]) {
        let is_left = |origin: &PackageOrigin| origin.package.starts_with("torch");
        if !self.is_declared_package() || !self.imported.origins.iter().any(is_left) {
            return;
        }
        for family in ["torchvision", "torchaudio"] {
            let of_family =
                |one: &&OwnImport| one.statement.module.split('.').next() == Some(family);
            if let Some(one) = imports.iter().find(of_family)
                && let Ok(package) = requirement::parse(family)
            {
                let place = format!("{}:{}", one.file, one.statement.line);
                self.add_package(&package, place);
            }
        }
    }

    /// What the README names of a project, the first with a version before the first.
    fn find_wish(&self, name: &str) -> Option<(String, Requirement)> {
        let of = || self.wishes.iter().filter(|(_, one)| one.name == name);
        of().find(|(_, one)| one.versioned)
            .or_else(|| of().next())
            .cloned()
    }

    /// Takes back that a package was left out whose sources are taken now.
    fn accept_offer(&mut self, taken: &Requirement) {
        let mut offers = self.imported.offers.iter();
        if let Some((line, _)) = offers.find(|(_, offer)| offer == taken) {
            let line = *line;
            let is_of_it = |note: &ImportNote| {
                note.outcome == NoteKind::LeftOut
                    && note.line == line
                    && note.why.contains(&taken.text)
            };
            self.imported.notes.retain(|note| !is_of_it(note));
        }
    }

    /// A package that says what it requires, so that what its code imports elsewhere is optional.
    fn is_declared_package(&self) -> bool {
        let own = |folder: &String| folder == "." || folder.starts_with(".[");
        self.spec().python.editable.iter().any(own) && !self.imported.provided.is_empty()
    }

    /// Whether a project that is required is called as the module is, but for what such names begin and end
    /// with: `taming` and `taming-transformers`, `rtree` and `python-rtree`, `st_keyup` and `streamlit-keyup`.
    fn is_alike(&self, module: &str) -> bool {
        let bare = |name: &str| -> String {
            let letters = name.chars().filter(char::is_ascii_alphanumeric);
            letters.collect::<String>().to_ascii_lowercase()
        };
        let module_name = module;
        let module = bare(module);
        !module.is_empty()
            && self.imported.provided.iter().any(|project| {
                let is_same_words = has_alike_words(project, module_name);
                let project = bare(project);
                project.starts_with(&module) || project.ends_with(&module) || is_same_words
            })
    }
}

/// Whether two names have as many words, one of them in both and the others cut short in one.
fn has_alike_words(left: &str, right: &str) -> bool {
    let words = |name: &str| -> Vec<String> {
        let lower = name.to_ascii_lowercase();
        lower.split(['-', '_', '.']).map(str::to_owned).collect()
    };
    let (left, right) = (words(left), words(right));
    let mut pairs = left.iter().zip(&right);
    left.len() == right.len()
        && left
            .iter()
            .zip(&right)
            .any(|(one, other)| one == other && one.len() > 3)
        && pairs.all(|(one, other)| {
            !one.is_empty()
                && !other.is_empty()
                && (one.starts_with(other) || other.starts_with(one))
        })
}

#[cfg(test)]
mod tests;
