//! A program that carries its own requirements (PEP 723), in place of a spec.

use std::path::{Path, PathBuf};

use sconce_import::{InlineMetadataError, read_inline_metadata};
use sconce_resolve::python::build_settings::BuildSettings;
use sconce_resolve::python::local_sources::UvProject;
use sconce_schema::spec::{Spec, SpecError, WORKSPACE};
use sconce_schema::{Hint, exit};
use toml::{Table, Value};

use crate::failure::Result;

/// What a program says of its environment.
#[derive(Debug)]
pub struct Script {
    /// Its `[tool.sconce]`, which is as a spec is; the command is the program.
    pub spec: Spec,
    /// Whether that names the Debian release.
    pub is_release_given: bool,
    /// Its dependencies, its Python, and where uv finds them.
    pub project: UvProject,
    /// What its `[tool.uv]` says of builds.
    pub build_settings: BuildSettings,
    /// All that it says, as text: what decides the lock.
    pub metadata: String,
}

/// Why a program is no environment.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// It has no block.
    #[error("{} does not say what it needs", path.display())]
    NoMetadata {
        /// The program.
        path: PathBuf,
    },
    /// Its block cannot be read.
    #[error("{}", path.display())]
    Metadata {
        /// The program.
        path: PathBuf,
        /// What is wrong.
        source: InlineMetadataError,
    },
    /// A key of its block is not what the specification has there.
    #[error("{}: `{key}` is not {wanted}", path.display())]
    Key {
        /// The program.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// Its `[tool.sconce]` is no spec.
    #[error("{}: [tool.sconce]", path.display())]
    Spec {
        /// The program.
        path: PathBuf,
        /// What is wrong.
        source: SpecError,
    },
}

impl Hint for ScriptError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoMetadata { path } => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                Some(format!(
                    "`sconce run -- python {name}` runs it in the environment of its folder; or put \
                     `# /// script`, `# dependencies = [\"torch\"]` and `# ///` at its top, a line each (PEP 723)"
                ))
            }
            Self::Spec { source, .. } => source.hint(),
            Self::Metadata { .. } | Self::Key { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// Whether a path is a Python program's by its name.
#[must_use]
pub fn is_script(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "py") && !path.is_dir()
}

/// The program in the container. `file` lies in the spec's folder.
#[must_use]
pub(crate) fn path_inside(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    format!("{WORKSPACE}/{name}")
}

impl Script {
    /// Reads the text of the program at `path`.
    ///
    /// # Errors
    /// [`ScriptError`].
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self> {
        let owned = || path.to_owned();
        let table = read_inline_metadata(text).map_err(|source| ScriptError::Metadata {
            path: owned(),
            source,
        })?;
        let table = table.ok_or_else(|| ScriptError::NoMetadata { path: owned() })?;
        let wrong = |key, wanted| ScriptError::Key {
            path: owned(),
            key,
            wanted,
        };
        let tool = |name: &str| table.get("tool").and_then(|tools| tools.get(name)).cloned();
        let own = match tool("sconce") {
            None => Table::new(),
            Some(Value::Table(own)) => own,
            Some(_) => return Err(wrong("tool.sconce", "a table").into()),
        };
        let own = own.to_string();
        let mut spec = Spec::parse(&own).map_err(|source| ScriptError::Spec {
            path: owned(),
            source,
        })?;
        if spec.run.command.is_empty() {
            spec.run.command = vec!["python".to_owned(), path_inside(path)];
        }
        let mut project = Table::from_iter([
            ("name".to_owned(), "script".into()),
            ("version".to_owned(), "0".into()),
        ]);
        match table.get("dependencies") {
            None => {}
            Some(Value::Array(list)) if list.iter().all(Value::is_str) => {
                project.insert("dependencies".to_owned(), list.clone().into());
            }
            Some(_) => return Err(wrong("dependencies", "a list of requirements").into()),
        }
        match table.get("requires-python") {
            None => {}
            Some(Value::String(text)) => {
                project.insert("requires-python".to_owned(), text.clone().into());
            }
            Some(_) => return Err(wrong("requires-python", "a version specifier").into()),
        }
        let mut pyproject = Table::from_iter([("project".to_owned(), Value::Table(project))]);
        let uv = tool("uv");
        let build_settings = uv
            .as_ref()
            .and_then(Value::as_table)
            .map(BuildSettings::parse);
        if let Some(uv) = uv {
            let tools = Table::from_iter([("uv".to_owned(), uv)]);
            pyproject.insert("tool".to_owned(), tools.into());
        }
        Ok(Self {
            spec,
            is_release_given: Spec::names_release(&own),
            project: UvProject::from_table(pyproject, path),
            build_settings: build_settings.unwrap_or_default(),
            metadata: table.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(block: &str) -> Result<Script> {
        let lines = block.lines().map(|line| format!("# {line}\n"));
        let block: String = lines.collect();
        Script::parse(
            Path::new("/tmp/my train.py"),
            &format!("# /// script\n{block}# ///\nimport torch\n"),
        )
    }

    #[test]
    fn a_block_is_a_spec() {
        let script = parse(
            "requires-python = \">=3.11\"\ndependencies = [\"torch\"]\n[tool.sconce.run]\nmemory = \"4 GiB\"",
        );
        let script = script.unwrap();
        assert_eq!(
            script.spec.run.command,
            ["python", "/workspace/my train.py"]
        );
        assert_eq!(script.spec.run.memory, Some("4 GiB".parse().unwrap()));
        assert!(!script.is_release_given);
    }

    #[test]
    fn what_a_block_must_not_say_is_named() {
        for (block, said) in [
            ("dependencies = \"torch\"", "`dependencies` is not a list"),
            ("dependencies = [1]", "`dependencies` is not a list"),
            ("requires-python = 3.11", "`requires-python` is not"),
            ("tool.sconce = 1", "`tool.sconce` is not a table"),
            ("[tool.sconce]\nnmae = \"x\"", "[tool.sconce]"),
        ] {
            let error = parse(block).unwrap_err().to_plain_text();
            assert!(error.contains(said), "{block}: {error}");
        }
        let error = Script::parse(Path::new("a.py"), "import torch\n").unwrap_err();
        assert!(error.to_plain_text().contains("does not say what it needs"));
    }
}
