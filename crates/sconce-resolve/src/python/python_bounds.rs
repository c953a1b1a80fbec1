//! What projects say of the Pythons that they run on: `requires-python`, and setuptools'
//! `python_requires`. Files are read, nothing of them is run; what cannot be read says nothing.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use pep440_rs::{Version, VersionSpecifiers};
use sconce_base::input;
use sconce_schema::Bytes;

use super::local_sources::PyprojectForUv;

/// No file that is looked into is longer.
const MAX_FILE_BYTES: Bytes = Bytes::from_mib(4);

/// What one file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PythonBound {
    /// The file's name, or a whole reason.
    pub(crate) file: String,
    /// As it stands in the file, `>=3.7,<3.11`; absent beside a reason.
    text: Option<String>,
    specifiers: VersionSpecifiers,
}

impl PythonBound {
    /// A bound that no file says, with its reason.
    pub(crate) fn with_reason(reason: &str, text: &str) -> Option<Self> {
        Some(Self {
            file: reason.to_owned(),
            text: None,
            specifiers: VersionSpecifiers::from_str(text).ok()?,
        })
    }

    /// What `[python] version` says.
    pub(crate) fn of_spec(text: &str) -> Option<Self> {
        Self::new(Path::new("`[python] version`"), text)
    }

    /// `pyproject.toml asks for >=3.8,<3.11`, or the reason.
    pub(crate) fn describe(&self) -> String {
        match &self.text {
            Some(text) => format!("{} asks for {text}", self.file),
            None => self.file.clone(),
        }
    }

    fn new(file: &Path, text: &str) -> Option<Self> {
        let text = text.trim();
        let name = file.file_name().unwrap_or_default();
        Some(Self {
            file: name.to_string_lossy().into_owned(),
            specifiers: VersionSpecifiers::from_str(text).ok()?,
            text: Some(text.to_owned()),
        })
    }

    /// Whether some release of Python `3.minor` fits.
    pub(crate) fn allows(&self, minor: u32) -> bool {
        // A bound names the first releases (`>=3.8.1`) or excludes some (`!=3.9.0`).
        let patches = [0, 1, 2, 3, 5, 9, 13, 20, 99];
        patches.iter().any(|patch| {
            let version = Version::new([3, u64::from(minor), *patch]);
            self.specifiers.contains(&version)
        })
    }
}

/// What `pyprojects`, and projects in `folders`, say; each once.
pub(crate) fn read_bounds(pyprojects: &[PyprojectForUv], folders: &[PathBuf]) -> Vec<PythonBound> {
    let mut bounds = Vec::new();
    let of_folder = |folder: &PathBuf| {
        ["pyproject.toml", "setup.cfg", "setup.py"].map(|name| folder.join(name))
    };
    // What is not there is what a setup.py says, which is read as that.
    for project in pyprojects.iter().filter(|project| project.path().exists()) {
        let said = of_pyproject(&project.text);
        let bound = said.and_then(|said| PythonBound::new(project.path(), &said));
        bounds.extend(bound.filter(|bound| !bounds.contains(bound)));
    }
    for file in folders.iter().flat_map(of_folder) {
        let bytes = input::read_regular(&file, MAX_FILE_BYTES).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let said = match file.extension().and_then(|end| end.to_str()) {
            Some("toml") => of_pyproject(&text),
            Some("cfg") => of_setup_cfg(&text),
            _ => of_setup_py(&text),
        };
        let bound = said.and_then(|said| PythonBound::new(&file, &said));
        bounds.extend(bound.filter(|bound| !bounds.contains(bound)));
    }
    bounds
}

fn of_pyproject(text: &str) -> Option<String> {
    let table: toml::Table = text.parse().ok()?;
    let said = table.get("project")?.get("requires-python")?.as_str()?;
    Some(said.to_owned())
}

/// `python_requires = >=3.7` below `[options]`.
fn of_setup_cfg(text: &str) -> Option<String> {
    let mut is_options = false;
    text.lines().find_map(|line| {
        if line.starts_with('[') {
            is_options = line.trim_end() == "[options]";
        }
        let (key, value) = line.split_once('=')?;
        (is_options && key.trim() == "python_requires").then(|| value.to_owned())
    })
}

/// `python_requires=">=3.7"`, where it is a plain text.
fn of_setup_py(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("python_requires")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let quote = rest.chars().next().filter(|c| *c == '"' || *c == '\'')?;
    let (said, _) = rest[1..].split_once(quote)?;
    Some(said.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_say_which_pythons_fit() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "pyproject.toml",
            "[project]\nname = 'a'\nrequires-python = '>=3.8.1, <3.11'\n",
        );
        write(
            "setup.cfg",
            "[metadata]\npython_requires = ==3.0\n[options]\npython_requires = !=3.9.0,>3.7\n",
        );
        write(
            "setup.py",
            "setup(name='a', python_requires = '~=3.9', x=1)",
        );
        let bounds = read_bounds(&[], &[folder.path().to_owned()]);
        let said: Vec<&str> = bounds
            .iter()
            .map(|bound| bound.text.as_deref().unwrap_or_default())
            .collect();
        assert_eq!(said, [">=3.8.1, <3.11", "!=3.9.0,>3.7", "~=3.9"]);
        let allowed = |bound: &PythonBound| -> Vec<u32> {
            (7..=15).filter(|minor| bound.allows(*minor)).collect()
        };
        assert_eq!(allowed(&bounds[0]), [8, 9, 10]);
        assert_eq!(allowed(&bounds[1]), (7..=15).collect::<Vec<u32>>());
        assert_eq!(allowed(&bounds[2]), (9..=15).collect::<Vec<u32>>());
    }

    #[test]
    fn what_is_not_understood_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("pyproject.toml", "[project]\nrequires-python = 3"),
            ("pyproject.toml", "not toml"),
            ("setup.cfg", "python_requires = >=3.8"),
            ("setup.py", "python_requires=PYTHONS"),
            ("setup.py", "python_requires='>=3"),
            ("setup.py", "python_requires='whatever'"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
            assert_eq!(read_bounds(&[], &[folder.path().to_owned()]), [], "{text}");
            fs::remove_file(folder.path().join(name)).unwrap();
        }
        assert_eq!(read_bounds(&[], &["/nowhere".into()]), []);
    }
}
