//! The environment of a process: its variables, as they were at one moment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// Variables and the home that they lead to. A program reads them once, at its start, and hands them on, so
/// that what a function depends on stands in its arguments, and a test can have others.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Env {
    variables: BTreeMap<OsString, OsString>,
    home: Option<PathBuf>,
}

/// How many there are: values may be secrets.
impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Env({} variables)", self.variables.len())
    }
}

impl Env {
    /// Reads those of this process. Without `HOME`, the home is the user's in the password file.
    #[must_use]
    pub fn of_process() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
            home: std::env::home_dir(),
        }
    }

    /// The variables that are given, and no other.
    pub fn from_variables<N: Into<OsString>, V: Into<OsString>>(
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let variables = variables.into_iter();
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        let mut env = Self {
            variables: variables.collect(),
            home: None,
        };
        env.home = env.path_var("HOME");
        env
    }

    /// Returns the value of `name`, whatever bytes it has.
    #[must_use]
    pub fn var_os(&self, name: &str) -> Option<&OsStr> {
        self.variables
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
    }

    /// Returns the value of `name`, if it is UTF-8.
    #[must_use]
    pub fn var(&self, name: &str) -> Option<&str> {
        self.var_os(name)?.to_str()
    }

    /// Returns the value of `name` as a path; a variable that is empty counts as none.
    #[must_use]
    pub fn path_var(&self, name: &str) -> Option<PathBuf> {
        let value = self.var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    }

    /// Returns the directories of `PATH`, in its order.
    #[must_use]
    pub fn search_path(&self) -> Vec<PathBuf> {
        let path = self.var_os("PATH");
        path.map_or_else(Vec::new, |path| std::env::split_paths(path).collect())
    }

    /// Finds the first file of that name in the directories of `PATH`.
    #[must_use]
    pub fn find_program(&self, name: &str) -> Option<PathBuf> {
        let files = self.search_path().into_iter();
        files
            .map(|directory| directory.join(name))
            .find(|file| file.is_file())
    }

    /// Returns the user's home, if it is an absolute path.
    #[must_use]
    pub fn home_dir(&self) -> Option<&Path> {
        self.home.as_deref().filter(|home| home.is_absolute())
    }

    /// Iterates over all variables, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let all = self.variables.iter();
        all.map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// Iterates over the variables whose name and value are UTF-8, by name.
    pub fn iter_utf8(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter()
            .filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn values_that_are_no_text_are_bytes_and_not_shown() {
        let env = Env::from_variables([
            (OsString::from("A"), OsString::from("secret")),
            (OsString::from("B"), OsStr::from_bytes(b"\xff").to_owned()),
        ]);
        assert_eq!((env.var("A"), env.var("B")), (Some("secret"), None));
        assert_eq!(env.var_os("B"), Some(OsStr::from_bytes(b"\xff")));
        assert_eq!(env.iter().count(), 2);
        assert_eq!(env.iter_utf8().collect::<Vec<_>>(), [("A", "secret")]);
        assert_eq!(format!("{env:?}"), "Env(2 variables)");
    }

    #[test]
    fn a_home_is_absolute_and_an_empty_path_is_none() {
        let of = |home: &str| Env::from_variables([("HOME", home)]);
        assert_eq!(of("/home/a").home_dir(), Some(Path::new("/home/a")));
        assert_eq!((of("a").home_dir(), of("").home_dir()), (None, None));
        assert_eq!(of("").path_var("HOME"), None);
        assert_eq!(Env::default().home_dir(), None);
    }

    #[test]
    fn programs_are_found_in_the_order_of_path() {
        let folder = tempfile::tempdir().unwrap();
        let directory = |name: &str| folder.path().join(name);
        for name in ["a", "b"] {
            std::fs::create_dir(directory(name)).unwrap();
        }
        std::fs::write(directory("b").join("tool"), "").unwrap();
        // A directory of the name is no program.
        std::fs::create_dir(directory("a").join("tool")).unwrap();
        let path = std::env::join_paths([directory("a"), directory("b")]).unwrap();
        let env = Env::from_variables([("PATH", path)]);
        assert_eq!(env.find_program("tool"), Some(directory("b").join("tool")));
        assert_eq!(Env::default().find_program("tool"), None);
        assert_eq!(Env::default().search_path(), [] as [PathBuf; 0]);
    }
}
