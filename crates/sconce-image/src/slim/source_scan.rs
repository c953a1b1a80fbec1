//! What a package's own Python sources say that they need of what could be left out.

use std::fs;
use std::path::Path;

/// The largest source that is read, in bytes. A larger one is taken to need everything.
const MAX_SOURCE_BYTES: u64 = 16 << 20;

/// What the sources of one tree need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SourceScan {
    /// A module that is no test imports a package `tests` or `test`, as PyTables' and Astropy's do.
    pub(super) import_tests: bool,
    /// A module finds its names in its stub: lazy_loader's `attach_stub`, as in scikit-image.
    pub(super) read_stubs: bool,
}

impl SourceScan {
    /// Reads every source below `root` that does not lie in a folder of tests. What cannot be read
    /// needs everything.
    pub(super) fn read(root: &Path) -> Self {
        let mut found = Self::default();
        if found.add(root).is_err() {
            found = Self {
                import_tests: true,
                read_stubs: true,
            };
        }
        found
    }

    fn add(&mut self, folder: &Path) -> std::io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (kind, path) = (entry.file_type()?, entry.path());
            if kind.is_dir() {
                if !is_tests(&entry.file_name().to_string_lossy()) {
                    self.add(&path)?;
                }
            } else if kind.is_file() && path.extension().is_some_and(|e| e == "py") {
                if entry.metadata()?.len() > MAX_SOURCE_BYTES {
                    return Err(std::io::ErrorKind::FileTooLarge.into());
                }
                let text = String::from_utf8_lossy(&fs::read(path)?).into_owned();
                self.import_tests |= imports_tests(&text);
                self.read_stubs |= text.contains("attach_stub");
            }
        }
        Ok(())
    }
}

fn is_tests(name: &str) -> bool {
    name == "tests" || name == "test"
}

/// Whether an import statement names `tests` or `test` as a part of a module's name. Lines that
/// only look like one, in a docstring, count too.
fn imports_tests(text: &str) -> bool {
    let mut open = false;
    text.lines().any(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let begins = line.trim_start();
        if !open && !begins.starts_with("from ") && !begins.starts_with("import ") {
            return false;
        }
        // A list in parentheses goes on over lines.
        open = (open || line.contains('(')) && !line.contains(')');
        let part = |c: char| !c.is_alphanumeric() && c != '_';
        line.split(part).any(is_tests)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_of_tests_are_found() {
        for text in [
            "from .tests import run",
            "    from pkg.tests.runner import TestRunner",
            "import pkg.tests",
            "from . import tests",
            "from . import (\n    core,\n    tests,\n)",
            "import a, b.test",
        ] {
            assert!(imports_tests(text), "{text}");
        }
        for text in [
            "from unittest import TestCase",
            "from .testing import assert_equal",
            "import pytest  # runs the tests",
            "tests = 1",
            "from . import (\n    core,\n)\ntests = []",
            "def test(): pass",
        ] {
            assert!(!imports_tests(text), "{text}");
        }
    }
}
