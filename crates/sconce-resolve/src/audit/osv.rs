//! Entries of an OSV database (Open Source Vulnerability format 1.7), as far as an audit needs
//! them. Unknown fields and unknown kinds of ranges are passed over: databases add their own.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// The most packages that one entry may name. Each takes 60 times its shortest text in memory;
/// real entries name some hundred.
const MAX_AFFECTED: usize = 20_000;

/// One vulnerability.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct OsvEntry {
    /// `GHSA-…`, `PYSEC-…`, `DSA-…`.
    pub id: String,
    /// When the entry was last changed, RFC 3339.
    #[serde(default)]
    pub modified: String,
    /// When it was taken back, if it was.
    #[serde(default)]
    pub withdrawn: Option<String>,
    /// The same vulnerability in other databases.
    #[serde(default, deserialize_with = "list")]
    pub aliases: Vec<String>,
    /// What a distribution's advisory is about: `CVE-…`.
    #[serde(default, deserialize_with = "list")]
    pub upstream: Vec<String>,
    /// One line.
    #[serde(default)]
    pub summary: Option<String>,
    /// The whole story, CommonMark.
    #[serde(default)]
    pub details: Option<String>,
    /// Severities for all packages.
    #[serde(default, deserialize_with = "list")]
    pub severity: Vec<OsvSeverity>,
    /// The packages that have it.
    #[serde(default, deserialize_with = "affected")]
    pub affected: Vec<Affected>,
}

/// A severity, as given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OsvSeverity {
    /// `CVSS_V3`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// The vector.
    pub score: String,
}

/// Versions of one package.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Affected {
    /// The package; an entry about a repository has none.
    #[serde(default)]
    pub package: Option<OsvPackage>,
    /// Severities for this package.
    #[serde(default, deserialize_with = "list")]
    pub severity: Vec<OsvSeverity>,
    /// Ranges of versions.
    #[serde(default, deserialize_with = "list")]
    pub ranges: Vec<OsvRange>,
    /// Single versions.
    #[serde(default, deserialize_with = "list")]
    pub versions: Vec<String>,
    /// What Debian's security team says of it.
    #[serde(default)]
    pub ecosystem_specific: Option<DebianSpecific>,
}

/// A package in its ecosystem.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct OsvPackage {
    /// `PyPI`, `Debian:13`, …
    pub ecosystem: String,
    /// Its name; Debian's are source packages.
    pub name: String,
}

/// Debian's own words.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DebianSpecific {
    /// `unimportant`, `low**`, `not yet assigned`, …
    #[serde(default)]
    pub urgency: Option<String>,
}

/// A range of versions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct OsvRange {
    /// `ECOSYSTEM`, `SEMVER` or `GIT`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where the state changes, in any order.
    #[serde(default, deserialize_with = "list")]
    pub events: Vec<OsvEvent>,
}

/// A change of state; sound entries have exactly one of these.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct OsvEvent {
    /// The first version that has it; `0` comes before every version.
    #[serde(default)]
    pub introduced: Option<Box<str>>,
    /// The first that has it no more.
    #[serde(default)]
    pub fixed: Option<Box<str>>,
    /// The last that has it.
    #[serde(default)]
    pub last_affected: Option<Box<str>>,
    /// Nothing is said of this version and what follows; `*` is no limit.
    #[serde(default)]
    pub limit: Option<Box<str>>,
}

/// A list that may also be `null`: some exporters write that for an empty one.
fn list<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

fn affected<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Affected>, D::Error> {
    Ok(Option::<AtMost<Affected, MAX_AFFECTED>>::deserialize(from)?
        .map(|list| list.0)
        .unwrap_or_default())
}

/// A list of at most `N`.
struct AtMost<T, const N: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for AtMost<T, N> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Elements::<T, N>(PhantomData))
    }
}

struct Elements<T, const N: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for Elements<T, N> {
    type Value = AtMost<T, N>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {N}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = from.next_element()? {
            if all.len() == N {
                return Err(serde::de::Error::invalid_length(N + 1, &self));
            }
            all.push(one);
        }
        Ok(AtMost(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_an_entry_with_fields_of_its_own() {
        let text = include_str!("../../tests/data/osv/GHSA-0000-made-up01.json");
        let entry: OsvEntry = serde_json::from_str(text).unwrap();
        assert_eq!(entry.id, "GHSA-0000-made-up01");
        assert_eq!(entry.aliases, ["CVE-2099-0001", "PYSEC-2099-1"]);
        assert_eq!(entry.withdrawn, None);
        let package = entry.affected[0].package.as_ref().unwrap();
        assert_eq!(
            (package.ecosystem.as_str(), package.name.as_str()),
            ("PyPI", "Torch")
        );
        let events = &entry.affected[0].ranges[0].events;
        assert_eq!(events[0].introduced.as_deref(), Some("0"));
        assert_eq!(events[1].fixed.as_deref(), Some("2.6.0"));
    }

    #[test]
    fn empty_lists_may_be_null() {
        let entry: OsvEntry =
            serde_json::from_str(r#"{"id":"A","aliases":null,"affected":null,"withdrawn":null}"#)
                .unwrap();
        assert!(entry.aliases.is_empty() && entry.affected.is_empty());
    }

    #[test]
    fn refuses_what_is_no_entry() {
        let many = format!(
            "{{\"id\":\"A\",\"affected\":[{}{{}}]}}",
            "{},".repeat(MAX_AFFECTED)
        );
        let deep = "[".repeat(100_000);
        let deep = format!("{{\"id\":\"A\",\"database_specific\":{deep}");
        let nested = format!("{{\"id\":\"A\",\"affected\":{}", "[".repeat(100_000));
        for text in [
            "",
            "[]",
            "{}",
            "{\"id\":1}",
            "{\"id\":\"A\"",
            &many,
            &deep,
            &nested,
        ] {
            assert!(
                serde_json::from_str::<OsvEntry>(text).is_err(),
                "{:.40}",
                text
            );
        }
    }
}
