//! One vulnerability has an entry in several databases, and they name each other.

use std::collections::{BTreeSet, HashMap};

use super::Vulnerability;
use crate::ecosystem::Ecosystem;

/// An upstream vulnerability by its own name: Debian's entries also name Debian's entry of it.
pub(super) fn upstream_name(id: &str) -> &str {
    id.strip_prefix("DEBIAN-").unwrap_or(id)
}

fn upstream(finding: &Vulnerability) -> BTreeSet<&str> {
    finding
        .upstream
        .iter()
        .map(|id| upstream_name(id))
        .collect()
}

/// Findings of one subject (its number stands before each) that share an id or an alias, or are
/// about one and the same upstream vulnerability, become one. A distribution's advisory that
/// bundles several becomes another name of each, where each was found by itself.
pub(super) fn merge_aliases(found: Vec<(usize, Vulnerability)>) -> Vec<Vulnerability> {
    let mut groups = Groups::default();
    for (at, (subject, finding)) in found.iter().enumerate() {
        groups.parent.push(at);
        for id in std::iter::once(&finding.id).chain(&finding.aliases) {
            groups.join(at, (*subject, id.as_str()));
        }
        let upstream = upstream(finding);
        if let (1, Some(only)) = (upstream.len(), upstream.first()) {
            groups.join(at, (*subject, only));
        }
    }
    let roots: Vec<usize> = (0..found.len()).map(|at| groups.root(at)).collect();
    let mut all: Vec<Option<(usize, Vulnerability)>> = vec![None; found.len()];
    for (root, (subject, finding)) in roots.into_iter().zip(found) {
        let finding = match all[root].take() {
            None => finding,
            Some((_, first)) => both(first, finding),
        };
        all[root] = Some((subject, finding));
    }
    let all = all.into_iter().flatten();
    unbundled(all.map(|(subject, one)| (subject, tidy(one))).collect())
}

fn unbundled(found: Vec<(usize, Vulnerability)>) -> Vec<Vulnerability> {
    let mut single: HashMap<(usize, String), usize> = HashMap::new();
    for (at, (subject, finding)) in found.iter().enumerate() {
        let upstream = upstream(finding);
        if let (1, Some(only)) = (upstream.len(), upstream.first()) {
            single.insert((*subject, (*only).to_owned()), at);
        }
    }
    let mut names: HashMap<usize, Vec<String>> = HashMap::new();
    let mut is_bundle = vec![false; found.len()];
    for (at, (subject, finding)) in found.iter().enumerate() {
        let upstream = upstream(finding);
        let parts = upstream
            .iter()
            .map(|id| single.get(&(*subject, (*id).to_owned())));
        let parts: Option<Vec<usize>> = parts.map(Option::<&usize>::copied).collect();
        let Some(parts) = parts.filter(|parts| parts.len() > 1) else {
            continue;
        };
        is_bundle[at] = true;
        for part in parts {
            let all = std::iter::once(&finding.id).chain(&finding.aliases);
            names.entry(part).or_default().extend(all.cloned());
        }
    }
    let rest = found.into_iter().zip(is_bundle).enumerate();
    let rest = rest.filter(|(_, (_, is_bundle))| !is_bundle);
    rest.map(|(at, ((_, mut finding), _))| {
        finding
            .aliases
            .extend(names.remove(&at).unwrap_or_default());
        finding.aliases.sort();
        finding.aliases.dedup();
        finding
    })
    .collect()
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
fn both(mut one: Vulnerability, other: Vulnerability) -> Vulnerability {
    let ecosystem: Ecosystem = one.subject.ecosystem;
    one.aliases.push(other.id);
    one.aliases.extend(other.aliases);
    one.upstream.extend(other.upstream);
    one.severity.extend(other.severity);
    one.summary = one.summary.or(other.summary);
    one.fixed = match (one.fixed, other.fixed) {
        (Some(a), Some(b)) => match ecosystem.compare_versions(&a, &b) {
            Some(order) if order.is_lt() => Some(b),
            _ => Some(a),
        },
        (a, b) => a.or(b),
    };
    one
}

fn tidy(mut finding: Vulnerability) -> Vulnerability {
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
    use crate::audit::AuditedPackage;

    fn finding(id: &str, aliases: &[&str], fixed: Option<&str>) -> Vulnerability {
        Vulnerability {
            subject: AuditedPackage {
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

    fn shown(found: Vec<(usize, Vulnerability)>) -> Vec<String> {
        let one = |f: Vulnerability| {
            format!(
                "{}={}:{}",
                f.id,
                f.aliases.join(","),
                f.fixed.unwrap_or_default()
            )
        };
        merge_aliases(found).into_iter().map(one).collect()
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
    fn an_advisory_is_another_name_of_what_it_is_about() {
        let about = |id: &str, upstream: &[&str], fixed| {
            let mut finding = finding(id, &[], fixed);
            finding.upstream = upstream.iter().map(|id| (*id).into()).collect();
            (0, finding)
        };
        let found = vec![
            about("DEBIAN-CVE-1", &["CVE-1"], None),
            about("DSA-1", &["CVE-1", "DEBIAN-CVE-1"], Some("2")),
        ];
        assert_eq!(shown(found), ["DEBIAN-CVE-1=DSA-1:2"]);
        let mut found = vec![
            about("DSA-2", &["CVE-1", "CVE-2"], Some("2")),
            about("DEBIAN-CVE-1", &["CVE-1"], Some("2")),
        ];
        assert_eq!(
            shown(found.clone()),
            ["DSA-2=:2", "DEBIAN-CVE-1=:2"],
            "one is in the bundle alone"
        );
        found.push(about("DEBIAN-CVE-2", &["CVE-2"], Some("2")));
        assert_eq!(
            shown(found),
            ["DEBIAN-CVE-1=DSA-2:2", "DEBIAN-CVE-2=DSA-2:2"]
        );
    }

    #[test]
    fn a_long_chain_is_one() {
        let link = |n: usize| {
            (
                0,
                finding(&format!("X-{n}"), &[&format!("X-{}", n + 1)], None),
            )
        };
        assert_eq!(merge_aliases((0..50_000).map(link).collect()).len(), 1);
        assert_eq!(
            merge_aliases((0..50_000).rev().map(link).collect()).len(),
            1
        );
    }
}
