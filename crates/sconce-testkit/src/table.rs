//! `scripts/programs.tsv` and `scripts/skips.tsv`, as they were when the tests were compiled.

/// The programs that tests and their scripts start.
pub const PROGRAMS: &str = include_str!("../../../scripts/programs.tsv");
/// The skips that are allowed, and where.
pub const SKIPS: &str = include_str!("../../../scripts/skips.tsv");

/// A row of `scripts/programs.tsv`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestProgram<'a> {
    /// Its name, or the path of a file that is no program.
    pub name: &'a str,
    /// The Debian package that has it.
    pub package: &'a str,
    /// Who needs it, as the head of the file says.
    pub users: &'a str,
}

/// The rows, without comments; `None` for a row that is not one.
pub fn parse_programs(text: &str) -> impl Iterator<Item = Option<TestProgram<'_>>> {
    rows(text).map(|row| {
        let (name, rest) = row.split_once('\t')?;
        let (package, users) = rest.split_once('\t')?;
        let bad = |field: &str| field.is_empty() || field.contains(['\t', ' ']);
        let row = TestProgram {
            name,
            package,
            users,
        };
        (![name, package, users].into_iter().any(bad)).then_some(row)
    })
}

/// The package of a program.
#[must_use]
pub fn find_package(program: &str) -> Option<&'static str> {
    let mut rows = parse_programs(PROGRAMS).flatten();
    rows.find(|row| row.name == program).map(|row| row.package)
}

/// Whether a skip is allowed `place`: `ci`, or a user of the emulated machine. `named` are allowed
/// everywhere, with commas between them.
#[must_use]
pub fn is_allowed(skip: &str, place: &str, named: &str) -> bool {
    let listed = |row: &str| {
        let mut fields = row.split('\t');
        fields.next() == Some(skip)
            && fields
                .next()
                .is_some_and(|places| places.split(',').any(|one| one == place))
    };
    named.split(',').any(|one| one == skip) || rows(SKIPS).any(listed)
}

fn rows(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_both_lists_is_whole() {
        let mut seen = std::collections::BTreeSet::new();
        for (number, row) in parse_programs(PROGRAMS).enumerate() {
            let row = row.unwrap_or_else(|| panic!("row {number} of programs.tsv"));
            assert!(seen.insert(row.name), "{} is there twice", row.name);
        }
        for row in rows(SKIPS) {
            let fields: Vec<_> = row.split('\t').collect();
            assert!(fields.len() == 3, "{row}: name, places, reason");
            assert!(fields.iter().all(|field| !field.is_empty()), "{row}");
            for place in fields[1].split(',') {
                assert!(["ci", "v2-root", "v2-user"].contains(&place), "{row}");
            }
        }
    }

    #[test]
    fn only_what_is_named_is_allowed() {
        assert!(!is_allowed("no-such-skip", "ci", ""));
        assert!(!is_allowed("no-such-skip", "ci", "no-such-skip-2,no-such"));
        assert!(is_allowed("no-such-skip", "ci", "a,no-such-skip"));
        assert!(!is_allowed("", "ci", "a"));
        // The list is for one place each.
        assert!(is_allowed("not-root", "v2-user", ""));
        assert!(!is_allowed("not-root", "ci", ""));
    }

    #[test]
    fn a_row_that_lacks_something_is_none() {
        let rows: Vec<_> = parse_programs("# head\n\na\tb\tc\na\tb\na\tb\tc d\na\t\tc\n").collect();
        assert_eq!(rows.iter().filter(|row| row.is_none()).count(), 3);
        assert_eq!(rows[0].map(|row| row.package), Some("b"));
    }
}
