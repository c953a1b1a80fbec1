//! What setuptools installs beside the modules of one folder: scripts, and packages that lie in folders of another name.
//! Read, and nothing of it run.

use toml::{Table, Value};

use crate::project_table::{array_strings, tool_table};
use crate::python::{ConstantTable, MAX_SOURCE_BYTES, PythonValue};
use crate::setup_cfg::config_values;
use crate::{SiblingFiles, inside};

/// Scripts and packages that are read, each.
const MAX_ENTRIES: usize = 200;

/// Scripts and folders of packages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetuptoolsLayout {
    /// Files that become programs, relative to the project's folder: `bin/x`.
    pub scripts: Vec<String>,
    /// Packages at the top and their folders: `remap` and `mod`.
    pub package_folders: Vec<(String, String)>,
}

impl SetuptoolsLayout {
    /// Reads pyproject.toml, setup.cfg and setup.py of a folder.
    #[must_use]
    pub fn read(beside: SiblingFiles<'_>) -> Self {
        let mut layout = Self::default();
        let root = beside("pyproject.toml").and_then(|text| text.parse::<Table>().ok());
        let root = root.unwrap_or_default();
        let system = root.get("build-system");
        let backend = system.and_then(|table| table.get("build-backend")?.as_str());
        if backend.is_some_and(|name| !name.starts_with("setuptools")) {
            return layout;
        }
        if let Some(tool) = tool_table(&root, "setuptools") {
            let scripts = tool.get("script-files").map(array_strings);
            layout.add_scripts(scripts.unwrap_or_default());
            let folders = tool.get("package-dir").and_then(Value::as_table);
            for (name, folder) in folders.into_iter().flatten() {
                layout.add_folder(name, folder.as_str().unwrap_or_default());
            }
        }
        for (section, key, value) in config_values(&beside("setup.cfg").unwrap_or_default()) {
            match (section, key) {
                ("options", "scripts") => layout.add_scripts(value.lines()),
                ("options", "package_dir") => {
                    let pairs = value.lines().filter_map(|line| line.split_once('='));
                    pairs.for_each(|(name, folder)| layout.add_folder(name.trim(), folder.trim()));
                }
                _ => {}
            }
        }
        if let Some(text) = beside("setup.py").filter(|text| text.len() <= MAX_SOURCE_BYTES) {
            let (_, calls) = ConstantTable::read_calls(&text, "setup");
            calls.iter().for_each(|call| layout.add_call(call));
        }
        layout
    }

    fn add_call(&mut self, call: &PythonValue) {
        if let Some(PythonValue::List(scripts)) = call.get("scripts") {
            self.add_scripts(scripts.iter().filter_map(PythonValue::as_text));
        }
        if let Some(PythonValue::Map(folders)) = call.get("package_dir") {
            for (name, folder) in folders {
                self.add_folder(name, folder.as_text().unwrap_or_default());
            }
        }
    }

    fn add_scripts<'t>(&mut self, paths: impl IntoIterator<Item = &'t str>) {
        for path in paths.into_iter().filter_map(|path| inside(path.trim())) {
            if self.scripts.len() < MAX_ENTRIES && !self.scripts.contains(&path) {
                self.scripts.push(path);
            }
        }
    }

    fn add_folder(&mut self, name: &str, folder: &str) {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_module = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(plain);
        let known = self.package_folders.iter().any(|(known, _)| known == name);
        if let Some(folder) = inside(folder)
            && is_module
            && !known
            && self.package_folders.len() < MAX_ENTRIES
        {
            self.package_folders.push((name.to_owned(), folder));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> SetuptoolsLayout {
        SetuptoolsLayout::read(&|path| {
            let found = files.iter().find(|(name, _)| *name == path)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn scripts_and_folders_are_read_wherever_setuptools_reads_them() {
        let setup = "setup(scripts=['bin/x', '../out'], package_dir={'': 'src', 'remap': 'mod', 'a.b': 'c'})";
        let pyproject =
            "[tool.setuptools]\nscript-files = ['bin/x']\npackage-dir = { remap = './mod' }\n";
        let config = "[options]\nscripts =\n    bin/x\npackage_dir =\n    =src\n    remap = mod\n";
        for file in [
            ("setup.py", setup),
            ("pyproject.toml", pyproject),
            ("setup.cfg", config),
        ] {
            let layout = read(&[file]);
            assert_eq!(layout.scripts, ["bin/x"], "{}", file.0);
            let expected = [("remap".to_owned(), "mod".to_owned())];
            assert_eq!(layout.package_folders, expected, "{}", file.0);
        }
        let other = "[build-system]\nbuild-backend = 'hatchling.build'\n";
        let layout = read(&[("pyproject.toml", other), ("setup.py", setup)]);
        assert_eq!(layout, SetuptoolsLayout::default());
    }
}
