//! One vulnerability has an entry in several databases, and they name each other.

use std::collections::HashMap;

use super::audit::Finding;
use super::versions::Ecosystem;

/// Findings of one subject (its number stands before each) that share an id or an alias become
/// one. Those that merely are about the same upstream vulnerability stay: a distribution's
/// advisory bundles several.
pub(super) fn merged(found: Vec<(usize, Finding)>) -> Vec<Finding> {
    let mut groups = Groups::default();
    for (at, (subject, finding)) in found.iter().enumerate() {
        groups.parent.push(at);
        for id in std::iter::once(&finding.id).chain(&finding.aliases) {
            groups.join(at, (*subject, id.as_str()));
        }
    }
    let roots: Vec<usize> = (0..found.len()).map(|at| groups.root(at)).collect();
    let mut all: Vec<Option<Finding>> = vec![None; found.len()];
    for (root, (_, finding)) in roots.into_iter().zip(found) {
        all[root] = Some(match all[root].take() {
            None => finding,
            Some(first) => both(first, finding),
        });
    }
    all.into_iter().flatten().map(tidy).collect()
}

/// Disjoint sets of findings.
#[derive(Default)]
struct Groups<'f> {
    parent: Vec<usize>,
    by_id: HashMap<(usize, &'f str), usize>,
}

impl<'f> Groups<'f> {
    fn join(&mut self, at: usize, id: (usize, &'f str)) {
        let other = *self.by_id.entry(id).or_insert(at);
        let (one, other) = (self.root(at), self.root(other));
        // The earliest is the root.
        self.parent[one.max(other)] = one.min(other);
    }

    fn root(&mut self, mut at: usize) -> usize {
        while self.parent[at] != at {
            // Halves the path, so that long chains stay cheap.
            self.parent[at] = self.parent[self.parent[at]];
            at = self.parent[at];
        }
        at
    }
}

/// The higher of two fixes: below it one of the databases says that it is not fixed.
fn both(mut one: Finding, other: Finding) -> Finding {
    let ecosystem: Ecosystem = one.subject.ecosystem;
    one.aliases.push(other.id);
    one.aliases.extend(other.aliases);
    one.upstream.extend(other.upstream);
    one.severity.extend(other.severity);
    one.summary = one.summary.or(other.summary);
    one.fixed = match (one.fixed, other.fixed) {
        (Some(a), Some(b)) => match ecosystem.compare(&a, &b) {
            Some(order) if order.is_lt() => Some(b),
            _ => Some(a),
        },
        (a, b) => a.or(b),
    };
    one
}

fn tidy(mut finding: Finding) -> Finding {
    finding.aliases.push(std::mem::take(&mut finding.id));
    for ids in [&mut finding.aliases, &mut finding.upstream] {
        ids.sort();
        ids.dedup();
    }
    finding.severity.sort();
    finding.severity.dedup();
    // A database that judged this package has named it: its id before the bare `CVE-…`.
    let first = finding
        .aliases
        .iter()
        .position(|id| !id.starts_with("CVE-"));
    finding.id = finding.aliases.remove(first.unwrap_or(0));
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upkeep::audit::Subject;

    fn finding(id: &str, aliases: &[&str], fixed: Option<&str>) -> Finding {
        Finding {
            subject: Subject {
                ecosystem: Ecosystem::Python,
                name: "six".into(),
                version: "1".into(),
                packages: vec!["six".into()],
            },
            id: id.into(),
            aliases: aliases.iter().map(|id| (*id).into()).collect(),
            upstream: Vec::new(),
            summary: None,
            severity: Vec::new(),
            fixed: fixed.map(Into::into),
        }
    }

    fn shown(found: Vec<(usize, Finding)>) -> Vec<String> {
        let one = |f: Finding| {
            format!(
                "{}={}:{}",
                f.id,
                f.aliases.join(","),
                f.fixed.unwrap_or_default()
            )
        };
        merged(found).into_iter().map(one).collect()
    }

    #[test]
    fn what_shares_a_name_is_one() {
        let found = vec![
            (0, finding("PYSEC-1", &["CVE-1"], Some("2"))),
            (0, finding("GHSA-2", &["CVE-2"], None)),
            (0, finding("GHSA-1", &["CVE-1"], Some("2.1"))),
            (1, finding("GHSA-1", &["CVE-1"], Some("9"))),
        ];
        assert_eq!(
            shown(found),
            [
                "GHSA-1=CVE-1,PYSEC-1:2.1",
                "GHSA-2=CVE-2:",
                "GHSA-1=CVE-1:9"
            ]
        );
    }

    #[test]
    fn what_joins_two_makes_them_one() {
        let found = vec![
            (0, finding("A", &[], None)),
            (0, finding("B", &["B"], Some("2"))),
            (0, finding("CVE-1", &["A", "B"], None)),
        ];
        assert_eq!(shown(found), ["A=B,CVE-1:2"]);
        assert_eq!(shown(vec![(0, finding("CVE-1", &[], None))]), ["CVE-1=:"]);
        assert!(shown(Vec::new()).is_empty());
    }

    #[test]
    fn a_long_chain_is_one() {
        let link = |n: usize| {
            (
                0,
                finding(&format!("X-{n}"), &[&format!("X-{}", n + 1)], None),
            )
        };
        assert_eq!(merged((0..50_000).map(link).collect()).len(), 1);
        assert_eq!(merged((0..50_000).rev().map(link).collect()).len(), 1);
    }
}
