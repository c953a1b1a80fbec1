//! Small files that name a Python or Debian packages: `.python-version`, `runtime.txt`, `apt.txt`, cog.yaml.

use super::super::draft::Draft;
use super::super::release::BaseRelease;
use super::super::requirement;
use super::super::specifier::{evaluate_specifiers, parse_numbers};
use super::super::yaml::{self, YamlNode};
use super::super::{ImportFormat, import_spec};
use super::{FolderSurvey, NoteKind};
use crate::project_files::static_project::StaticProject;

/// Replicate's file of a model's environment (<https://cog.run/yaml/>).
const COG_FILE: &str = "cog.yaml";
/// Where pyenv and uv, and Heroku, name a project's Python.
const PYTHON_FILE: &str = ".python-version";
const PYTHON_FILES: [&str; 2] = [PYTHON_FILE, "runtime.txt"];
/// 3.8, the oldest that environments have.
const OLDEST_PYTHON: u32 = 8;
/// More values than any cog.yaml has.
const MAX_VALUES: usize = 10_000;

impl FolderSurvey<'_> {
    /// The first file that names one Python, unless the source does.
    pub(super) fn add_machine(&mut self) {
        // uv's own file names one of those that its lock is for; others are not asked beside that lock.
        let is_exact = |version: &str| version.starts_with(|c: char| c.is_ascii_digit());
        let version = self.spec().python.version.as_deref();
        if self.format == Some(ImportFormat::UvLock) {
            if !version.is_some_and(is_exact) {
                self.add_python_of(&[PYTHON_FILE]);
            }
        } else if version.is_none() {
            self.add_python();
            self.bound_python();
        } else if !version.is_some_and(is_exact) {
            self.add_python_of(&PYTHON_FILES);
        }
        if let Some(text) = self.folder.read_text("apt.txt") {
            for line in text.lines().take(500) {
                let line = line.split('#').next().unwrap_or_default();
                for name in line.split_whitespace() {
                    self.add_system_package(name, "apt.txt");
                }
            }
        }
    }

    /// The Python that the first of these files names; gives whether one does.
    fn add_python_of(&mut self, paths: &[&str]) -> bool {
        let named = paths.iter().find_map(|path| {
            let text = self.folder.read_text(path)?;
            Some((exact_version(&text)?, *path))
        });
        let Some((version, path)) = named else {
            return false;
        };
        match self.excluding_bound(&version) {
            None => self.take_python(&version, path),
            Some(bound) => {
                let why = format!("{path} has it, and the project is for {bound}: that counts");
                self.note(NoteKind::Decided, &format!("Python {version}"), &why);
            }
        }
        true
    }

    /// The Pythons that the project is for, where a version is none of them.
    fn excluding_bound(&self, version: &str) -> Option<String> {
        let mut numbers = parse_numbers(version)?;
        if numbers.len() < 3 {
            // The newest of its series.
            numbers.push(99);
        }
        let beside = |path: &str| self.folder.read_text(path);
        let project = StaticProject::read(self.folder.name(), &beside);
        let of_project = project.and_then(|project| project.metadata.requires_python);
        let bounds = of_project
            .into_iter()
            .chain(self.spec().python.version.clone());
        let mut excluding =
            bounds.filter(|bound| evaluate_specifiers(&numbers, bound) == Some(false));
        excluding.next()
    }

    /// What says that the project is for Pythons newer than this, 11 for 3.11; `None` where it may be run by it.
    pub(super) fn newer_python(&self, newest: u32) -> Option<String> {
        let own = self.spec().python.version.clone();
        let exact = own
            .as_deref()
            .filter(|version| version.starts_with(|c: char| c.is_ascii_digit()));
        if let Some(version) = exact {
            let minor = parse_numbers(version).and_then(|numbers| numbers.get(1).copied());
            return minor
                .filter(|minor| *minor > newest)
                .map(|_| format!("Python {version}"));
        }
        let mut series = (OLDEST_PYTHON..=newest).map(|minor| format!("3.{minor}"));
        let mut said = None;
        series
            .all(|version| {
                said = self.excluding_bound(&version);
                said.is_some()
            })
            .then(|| said.map(|bound| format!("Python {bound}")))?
    }

    fn add_python(&mut self) {
        if self.add_python_of(&PYTHON_FILES) {
            return;
        }
        // Those of other kinds of files: their own readers know how they name one.
        for (format, path) in [
            (ImportFormat::Pipfile, "Pipfile"),
            (ImportFormat::Conda, "environment.yml"),
            (ImportFormat::Conda, "environment.yaml"),
            (ImportFormat::Dockerfile, "Dockerfile"),
        ] {
            let beside = |path: &str| self.folder.read_text(path);
            // Of a Dockerfile the base image alone: what it installs is another machine's choice.
            let text = beside(path).map(|text| match format {
                ImportFormat::Dockerfile => base_lines(&text),
                _ => text,
            });
            let imported = text.and_then(|text| import_spec(format, path, &text, &beside).ok());
            if let Some(version) = imported.and_then(|imported| imported.spec.python.version) {
                return self.take_python(&version, path);
            }
        }
        if let Some((build, _)) = self.read_cog()
            && let Some(version) = build.get("python_version").and_then(YamlNode::as_text)
            && let Some(version) = exact_version(version)
        {
            self.take_python(&version, COG_FILE);
        }
    }

    /// An older Python, where the code imports what the newest does not have.
    fn bound_python(&mut self) {
        let Some(bound) = self.python_bound.take() else {
            return;
        };
        if self.spec().python.version.is_some() {
            return;
        }
        let beside = |path: &str| self.folder.read_text(path);
        let project = StaticProject::read(self.folder.name(), &beside);
        let allowed = project.and_then(|project| project.metadata.requires_python);
        let mut specifiers = format!("<{}", bound.below);
        if let Some(allowed) = allowed {
            specifiers = format!("{allowed},{specifiers}");
        }
        if let Ok(Some(_)) = BaseRelease::newest_that_meets(&specifiers) {
            let why = format!(
                "{}:{} imports {}, which Python {} does not have any more",
                bound.file, bound.line, bound.path, bound.below
            );
            let version = format!("<{}", bound.below);
            self.note(NoteKind::Decided, &format!("Python {version}"), &why);
            self.imported.spec.python.version = Some(version);
        }
    }

    fn take_python(&mut self, version: &str, path: &str) {
        let mut draft = Draft::default();
        match version.starts_with(|c: char| c.is_ascii_digit()) {
            true => draft.set_python(None, version),
            false => draft.requires_python(None, version),
        }
        let given = draft.finish();
        if let Some(version) = given.spec.python.version {
            self.imported.spec.python.version = Some(version.clone());
            self.imported.spec.system.release = given.spec.system.release;
            self.note(
                NoteKind::Decided,
                &format!("Python {version}"),
                &format!("as {path} has it"),
            );
        }
        self.imported.notes.extend(given.notes);
    }

    fn read_cog(&self) -> Option<(YamlNode, String)> {
        let text = self.folder.read_text(COG_FILE)?;
        let root = yaml::parse(&text, MAX_VALUES).ok()??;
        Some((root.get("build")?.clone(), text))
    }

    /// cog.yaml's packages where no file of packages is there, and its Debian packages.
    pub(super) fn add_cog(&mut self) {
        let Some((build, _)) = self.read_cog() else {
            return;
        };
        if !self.declared {
            let packages = build
                .get("python_packages")
                .map_or(&[][..], YamlNode::as_list);
            for node in packages.iter().take(1000) {
                let text = node.as_text().unwrap_or_default();
                match requirement::parse(text) {
                    Ok(one) => self.add_package(&one, format!("{COG_FILE}:{}", node.line)),
                    Err(why) => self.note(NoteKind::LeftOut, text, why),
                }
            }
            let file = build.get("python_requirements").and_then(YamlNode::as_text);
            if let Some(path) = file.and_then(super::super::inside)
                && self.spec().python.requirements.is_none()
                && let Some(text) = self.folder.read_text(&path)
            {
                let beside = |path: &str| self.folder.read_text(path);
                if let Ok(more) = import_spec(ImportFormat::Requirements, &path, &text, &beside) {
                    self.imported.spec.python.requirements = more.spec.python.requirements;
                    self.imported.provided.extend(more.provided);
                }
            }
        }
        let system = build
            .get("system_packages")
            .map_or(&[][..], YamlNode::as_list);
        for node in system.iter().take(200) {
            let name = node.as_text().unwrap_or_default();
            self.add_system_package(name, &format!("{COG_FILE}:{}", node.line));
        }
        if build
            .get("run")
            .is_some_and(|run| !run.as_list().is_empty())
        {
            self.note(
                NoteKind::LeftOut,
                "run (cog.yaml)",
                "an environment is made without running commands",
            );
        }
    }
}

/// The lines of a Dockerfile that say what it begins with.
fn base_lines(text: &str) -> String {
    let base = |line: &&str| line.starts_with("FROM ") || line.starts_with("ARG ");
    let lines = text.lines().filter(base);
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// `3.10`, `3.10.4`, `python-3.9.1` on a line of its own.
fn exact_version(text: &str) -> Option<String> {
    let line = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'))?;
    let version = line
        .trim_start_matches("python-")
        .trim_start_matches("cpython-");
    let plain = version.len() < 12 && version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    (plain && version.starts_with("3.")).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_one() {
        for (text, expected) in [
            ("3.10\n", Some("3.10")),
            ("# x\npython-3.9.1\n", Some("3.9.1")),
            ("pypy3.9\n", None),
            ("3.10-dev", None),
            ("my-env", None),
            ("", None),
        ] {
            assert_eq!(exact_version(text).as_deref(), expected, "{text}");
        }
    }
}
