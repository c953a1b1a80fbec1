//! What a project says of how it is built: with what, and whether something is compiled. Read, and nothing of it run.

use toml::{Table, Value};

use crate::SiblingFiles;
use crate::project_table::{array_strings, tool_table};
use crate::python::{ConstantTable, MAX_SOURCE_BYTES, PythonValue, find_imports};
use crate::setup_cfg::config_values;

/// Build backends that compile.
const COMPILING_BACKENDS: [&str; 5] = [
    "maturin",
    "mesonpy",
    "scikit_build_core",
    "py_build_cmake",
    "setuptools_rust",
];
/// Arguments of `setup()` that name something to compile.
const COMPILED: [&str; 4] = [
    "ext_modules",
    "rust_extensions",
    "cffi_modules",
    "libraries",
];

/// How a project is built.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaticBuild {
    /// What its build backend asks for (PEP 508); setuptools' own where nothing is said (PEP 517).
    pub requires: Vec<String>,
    /// Modules that its setup.py imports.
    pub imports: Vec<String>,
    /// Who compiles something, where something is compiled: `setup.py`, or the name of a backend.
    pub compiles: Option<String>,
    /// Whether that is CUDA's code.
    pub is_cuda: bool,
}

impl StaticBuild {
    /// Reads the files of a folder.
    #[must_use]
    pub fn read(beside: SiblingFiles<'_>) -> Self {
        let root = beside("pyproject.toml").and_then(|text| text.parse::<Table>().ok());
        let root = root.unwrap_or_default();
        let system = root.get("build-system").and_then(Value::as_table);
        let backend = system.and_then(|table| table.get("build-backend")?.as_str());
        let mut build = Self::default();
        let requires = system.and_then(|table| table.get("requires"));
        build.requires = owned(requires.map(array_strings).unwrap_or_default());
        if build.requires.is_empty() && backend.is_none() {
            build.requires = owned(vec!["setuptools", "wheel"]);
        }
        let top = backend.and_then(|name| name.split(['.', ':']).next());
        build.compiles = top
            .filter(|name| COMPILING_BACKENDS.contains(name))
            .map(str::to_owned);
        let listed = tool_table(&root, "setuptools").and_then(|table| table.get("ext-modules"));
        if listed.is_some_and(|list| !array_is_empty(list)) {
            build.compiles = Some("pyproject.toml".to_owned());
        }
        // Other backends do not run a setup.py.
        let is_setuptools =
            top.is_none_or(|name| name.starts_with("setuptools") || name == "flit_scm");
        if let Some(text) = beside("setup.py").filter(|_| is_setuptools) {
            build.read_setup(&text);
        }
        let config = beside("setup.cfg").unwrap_or_default();
        for (section, key, value) in config_values(&config) {
            if (section, key) == ("options", "setup_requires") {
                build.add_requires(value.lines());
            }
        }
        build
    }

    fn read_setup(&mut self, text: &str) {
        if text.len() > MAX_SOURCE_BYTES {
            return;
        }
        let (_, calls) = ConstantTable::read_calls(text, "setup");
        for call in &calls {
            match call.get("setup_requires") {
                Some(PythonValue::List(list)) => {
                    self.add_requires(list.iter().filter_map(PythonValue::as_text));
                }
                Some(PythonValue::Text(text)) => self.add_requires(text.lines()),
                _ => {}
            }
            let is_empty =
                |value: &PythonValue| matches!(value, PythonValue::List(list) if list.is_empty());
            let compiled = COMPILED.iter().filter_map(|name| call.get(name));
            if compiled.into_iter().any(|value| !is_empty(value)) {
                self.compiles = Some("setup.py".to_owned());
                self.is_cuda = text.contains("CUDAExtension");
            }
        }
        let imports = find_imports(text).into_iter();
        let imports = imports.filter(|import| import.level == 0 && !import.in_function);
        let mut imports: Vec<String> = imports.map(|import| import.module).collect();
        imports.dedup();
        self.imports = imports;
    }

    fn add_requires<'a>(&mut self, lines: impl Iterator<Item = &'a str>) {
        let lines = lines.map(str::trim).filter(|line| !line.is_empty());
        self.requires.extend(lines.take(100).map(str::to_owned));
    }
}

fn owned(texts: Vec<&str>) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}

fn array_is_empty(value: &Value) -> bool {
    value.as_array().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> StaticBuild {
        StaticBuild::read(&|path| {
            let found = files.iter().find(|(name, _)| *name == path)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn what_a_project_is_built_with() {
        assert_eq!(read(&[]).requires, ["setuptools", "wheel"]);
        let hatch = "[build-system]\nrequires = ['hatchling']\nbuild-backend = 'hatchling.build'\n";
        let build = read(&[
            ("pyproject.toml", hatch),
            ("setup.py", "import torch\nsetup()"),
        ]);
        assert_eq!(
            (build.requires, build.imports.len()),
            (vec!["hatchling".to_owned()], 0)
        );
        let own = "[build-system]\nrequires = []\nbuild-backend = 'own'\nbackend-path = ['.']\n";
        assert!(read(&[("pyproject.toml", own)]).requires.is_empty());
        let build = read(&[
            (
                "setup.py",
                "import os, torch\nfrom setuptools import setup\nsetup(setup_requires=['setuptools_scm'], ext_modules=[])",
            ),
            ("setup.cfg", "[options]\nsetup_requires =\n    cython\n"),
        ]);
        assert_eq!(
            build.requires,
            ["setuptools", "wheel", "setuptools_scm", "cython"]
        );
        assert_eq!(build.imports, ["os", "torch", "setuptools"]);
        assert_eq!(build.compiles, None);
    }

    #[test]
    fn what_is_compiled_is_known() {
        let compiles = |files: &[(&str, &str)]| read(files).compiles;
        for setup in [
            "setup(ext_modules=[CUDAExtension('a', ['a.cu'])])",
            "setup(name='a', ext_modules=get_extensions())",
            "setup(rust_extensions=[RustExtension('a')])",
        ] {
            assert_eq!(
                compiles(&[("setup.py", setup)]).as_deref(),
                Some("setup.py"),
                "{setup}"
            );
        }
        assert!(read(&[("setup.py", "setup(ext_modules=[CUDAExtension('a')])")]).is_cuda);
        let maturin = "[build-system]\nrequires = ['maturin']\nbuild-backend = 'maturin'\n";
        assert_eq!(
            compiles(&[("pyproject.toml", maturin)]).as_deref(),
            Some("maturin")
        );
        let listed = "[[tool.setuptools.ext-modules]]\nname = 'a'\nsources = ['a.c']\n";
        assert_eq!(
            compiles(&[("pyproject.toml", listed)]).as_deref(),
            Some("pyproject.toml")
        );
        assert_eq!(compiles(&[("setup.py", "setup(name='a')")]), None);
    }
}
