//! Version specifiers (PEP 440), as far as they are about released versions: `>=3.9,<3.12`,
//! `==3.11.*`, `~=3.10`.

use std::cmp::Ordering;

/// A released version's numbers: `3.11.2`. At most eight, as no interpreter has more.
pub(super) type VersionNumbers = Vec<u32>;

/// The numbers of `1.2.3`, also where more follows them (`1.2.3rc1`, `1.2.3+cu124`).
pub(super) fn parse_numbers(text: &str) -> Option<VersionNumbers> {
    let text = text.trim().trim_start_matches('v');
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let numbers: Option<VersionNumbers> = text[..end]
        .trim_end_matches('.')
        .split('.')
        .take(8)
        .map(|part| part.parse().ok())
        .collect();
    numbers.filter(|n| !n.is_empty())
}

/// Which of two versions is the higher one; what is not written is 0.
pub(super) fn compare_versions(a: &[u32], b: &[u32]) -> Ordering {
    let at = |numbers: &[u32], place: usize| numbers.get(place).copied().unwrap_or(0);
    (0..a.len().max(b.len()))
        .map(|place| at(a, place).cmp(&at(b, place)))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// Whether `version` meets every clause; `None` where one cannot be understood.
pub(super) fn evaluate_specifiers(version: &[u32], specifiers: &str) -> Option<bool> {
    let mut all = true;
    for clause in specifiers.split(',').map(str::trim) {
        if !clause.is_empty() {
            all &= meets_one(version, clause)?;
        }
    }
    Some(all)
}

fn meets_one(version: &[u32], clause: &str) -> Option<bool> {
    let end = clause.find(|c: char| !"<>=!~".contains(c))?;
    let (operator, wanted) = clause.split_at(end);
    let wanted = wanted.trim();
    let wildcard = wanted.strip_suffix(".*");
    let known = |c: char| c.is_ascii_digit() || c == '.';
    if !wildcard.unwrap_or(wanted).chars().all(known) {
        return None;
    }
    let numbers = parse_numbers(wildcard.unwrap_or(wanted))?;
    let begins = |prefix: &[u32]| {
        (0..prefix.len()).all(|place| version.get(place).copied().unwrap_or(0) == prefix[place])
    };
    let order = compare_versions(version, &numbers);
    Some(match (operator, wildcard.is_some()) {
        ("==", true) => begins(&numbers),
        ("!=", true) => !begins(&numbers),
        (_, true) => return None,
        ("==" | "===", false) => order.is_eq(),
        ("!=", false) => order.is_ne(),
        (">=", false) => order.is_ge(),
        ("<=", false) => order.is_le(),
        (">", false) => order.is_gt(),
        ("<", false) => order.is_lt(),
        ("~=", false) if numbers.len() > 1 => {
            order.is_ge() && begins(&numbers[..numbers.len() - 1])
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifiers_are_those_of_pep_440() {
        let meets = |specifiers| evaluate_specifiers(&[3, 11, 2], specifiers);
        for yes in [
            "",
            ">=3.9,<3.12",
            "==3.11.*",
            "~=3.10",
            "~=3.11.0",
            "!=3.12.*",
            ">3.11",
            "<=3.11.2",
            ">= 3.9 , ",
        ] {
            assert_eq!(meets(yes), Some(true), "{yes}");
        }
        for no in [
            ">=3.12", "<3.11", "==3.11", "~=3.12.0", "!=3.11.*", "<=3.11",
        ] {
            assert_eq!(meets(no), Some(false), "{no}");
        }
        for unknown in ["3.11", "^3.9", ">=3.x", ">=", "~=3", ">=3.9 || <2"] {
            assert_eq!(meets(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn numbers_end_where_the_release_ends() {
        assert_eq!(parse_numbers("2.6.0+cu124"), Some(vec![2, 6, 0]));
        assert_eq!(parse_numbers("v1.2.rc1"), Some(vec![1, 2]));
        assert_eq!(parse_numbers("rc1"), None);
        assert_eq!(parse_numbers("99999999999"), None);
    }
}
