//! What later versions of Python do not have any more ("What's New in Python", the sections "Removed"): code that
//! imports it wants an older one.

use super::super::specifier::{VersionNumbers, parse_numbers};
use super::own_imports::{OwnCode, OwnImport};

/// A Python that is too new for the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PythonBound {
    /// The first version that does not have it: `3.12`.
    pub(super) below: &'static str,
    /// What it does not have.
    pub(super) path: &'static str,
    pub(super) file: String,
    pub(super) line: usize,
}

/// Modules and names of the standard library, and the first Python without them. By name.
const REMOVED: [(&str, &str); 38] = [
    ("aifc", "3.13"),
    ("asynchat", "3.12"),
    ("asyncore", "3.12"),
    ("audioop", "3.13"),
    ("base64.decodestring", "3.9"),
    ("base64.encodestring", "3.9"),
    ("cgi", "3.13"),
    ("cgitb", "3.13"),
    ("chunk", "3.13"),
    ("collections.Callable", "3.10"),
    ("collections.Container", "3.10"),
    ("collections.Hashable", "3.10"),
    ("collections.Iterable", "3.10"),
    ("collections.Iterator", "3.10"),
    ("collections.Mapping", "3.10"),
    ("collections.MutableMapping", "3.10"),
    ("collections.MutableSequence", "3.10"),
    ("collections.MutableSet", "3.10"),
    ("collections.Sequence", "3.10"),
    ("collections.Set", "3.10"),
    ("collections.Sized", "3.10"),
    ("crypt", "3.13"),
    ("fractions.gcd", "3.9"),
    ("imghdr", "3.13"),
    ("imp", "3.12"),
    ("inspect.formatargspec", "3.11"),
    ("inspect.getargspec", "3.11"),
    ("nntplib", "3.13"),
    ("parser", "3.10"),
    ("pipes", "3.13"),
    ("smtpd", "3.12"),
    ("sndhdr", "3.13"),
    ("sunau", "3.13"),
    ("symbol", "3.10"),
    ("telnetlib", "3.13"),
    ("uu", "3.13"),
    ("xdrlib", "3.13"),
    ("xml.etree.cElementTree", "3.9"),
];

/// The lowest bound that the project's own code has.
pub(super) fn find_python_bound(
    code: &OwnCode,
    is_own: &dyn Fn(&str) -> bool,
) -> Option<PythonBound> {
    let mut lowest: Option<(VersionNumbers, PythonBound)> = None;
    let mut meet = |asked: &str, file: &str, line: usize| {
        let top = asked.split('.').next().unwrap_or_default();
        let Ok(at) = REMOVED.binary_search_by(|(known, _)| (*known).cmp(asked)) else {
            return;
        };
        let (path, below) = REMOVED[at];
        let numbers = parse_numbers(below).unwrap_or_default();
        let is_lower = lowest.as_ref().is_none_or(|(found, _)| numbers < *found);
        // `parser.py` beside the program is what it imports.
        if is_lower && !is_own(top) {
            let bound = PythonBound {
                below,
                path,
                file: file.to_owned(),
                line,
            };
            lowest = Some((numbers, bound));
        }
    };
    for OwnImport { file, statement } in &code.imports {
        meet(&statement.module, file, statement.line);
        for name in &statement.names {
            meet(
                &format!("{}.{name}", statement.module),
                file,
                statement.line,
            );
        }
    }
    for used in &code.uses {
        meet(&used.path, &used.file, used.line);
    }
    lowest.map(|(_, bound)| bound)
}

/// Whether a newer Python does not have it.
pub(super) fn is_removed(path: &str) -> bool {
    REMOVED
        .binary_search_by(|(known, _)| (*known).cmp(path))
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(REMOVED.is_sorted());
        assert!(is_removed("collections.Mapping") && !is_removed("collections.OrderedDict"));
    }
}
