//! A lock against the entries of a vulnerability database, one entry at a time.

mod advisory_match;
mod aliases;
pub mod database;
pub mod osv;

use std::collections::{BTreeSet, HashMap};

use sconce_schema::lock::Lock;
use sconce_schema::{Hint, exit};
use serde::Serialize;

use self::advisory_match::{AdvisoryMatch, match_advisory};
use self::osv::{Affected, OsvEntry, OsvSeverity};
use crate::ecosystem::Ecosystem;
use sconce_base::text::to_printable;
use sconce_formats::normalize_project_name;

/// Debian's releases by codename, as databases number them.
const DEBIAN: [(&str, &str); 2] = [("bookworm", "12"), ("trixie", "13")];

/// The first format of a lock that names source packages.
const MIN_FORMAT_WITH_SOURCES: u32 = 2;

/// The most that is kept of what was found. A lock with the kernel's headers has some thousand.
const MAX_FOUND: usize = 100_000;

/// The most characters of a summary that are kept.
const MAX_SUMMARY_CHARS: usize = 160;
/// The most characters of an id, a version or a severity that are kept.
const MAX_WORD_CHARS: usize = 120;

/// Why a lock cannot be audited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    /// A lock of an older program.
    #[error(
        "the lock has format {found}, which does not name the source packages that Debian's advisories are about"
    )]
    NoSources {
        /// The lock's format.
        found: u32,
    },
    /// A release that is not known.
    #[error("`{release}` is not a release whose advisories are known")]
    Release {
        /// The lock's release.
        release: String,
    },
    /// Too much was found.
    #[error("the database says more than {limit} things of this lock")]
    TooMany {
        /// The limit.
        limit: usize,
    },
}

impl Hint for AuditError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoSources { .. } => {
                "`sconce lock` writes it anew, with the same versions where they still fit"
                    .to_owned()
            }
            Self::Release { .. } => "update Sconce".to_owned(),
            Self::TooMany { .. } => "this is no sound database: get it anew".to_owned(),
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// A package of the lock as databases name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct AuditedPackage {
    /// Where it comes from.
    pub ecosystem: Ecosystem,
    /// Its normalised name; of Debian's the source package's.
    pub name: String,
    /// Its version; of Debian's the source package's.
    pub version: String,
    /// The lock's packages that this is about: itself, or what was built from the source package.
    pub packages: Vec<String>,
}

/// One vulnerability of one package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Vulnerability {
    /// The package.
    pub subject: AuditedPackage,
    /// The first of its ids.
    pub id: String,
    /// Its other ids, of the same entry and of entries that name each other.
    pub aliases: Vec<String>,
    /// What a distribution's advisory is about.
    pub upstream: Vec<String>,
    /// One line, where an entry has one.
    pub summary: Option<String>,
    /// Severities as given, and Debian's urgency.
    pub severity: Vec<OsvSeverity>,
    /// The lowest version above the locked one that does not have it; `None`: there is none yet.
    pub fixed: Option<String>,
}

/// An entry about a package of the lock that cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct UndecidedEntry {
    /// The package.
    pub subject: AuditedPackage,
    /// The entry.
    pub id: String,
    /// What cannot be understood.
    pub why: String,
}

/// What an audit found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct AuditReport {
    /// Vulnerabilities by package, then id.
    pub findings: Vec<Vulnerability>,
    /// Entries that could not be judged.
    pub unclear: Vec<UndecidedEntry>,
    /// How many were left out as asked.
    pub ignored: usize,
    /// Python packages in the lock, and entries about Python packages in the database. Without
    /// the latter the former were not judged.
    pub python: AuditCoverage,
    /// The same of Debian's: source packages, and entries for the lock's release.
    pub debian: AuditCoverage,
}

/// How far an ecosystem was judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct AuditCoverage {
    /// Packages in the lock.
    pub packages: usize,
    /// Entries of the database about this ecosystem.
    pub entries: u64,
}

/// An audit under way.
#[derive(Debug)]
pub struct LockAuditor {
    subjects: Vec<AuditedPackage>,
    /// Numbers of subjects.
    by_name: HashMap<(Ecosystem, String), Vec<usize>>,
    /// `Debian:13`
    debian: String,
    ignore: BTreeSet<String>,
    /// By the subject's number.
    found: Vec<(usize, Vulnerability)>,
    done: AuditReport,
    too_many: bool,
}

impl LockAuditor {
    /// Begins one. Entries whose id, or an alias of it, is in `ignore` are left out, and advisories
    /// all of whose vulnerabilities are.
    ///
    /// # Errors
    /// [`AuditError::NoSources`], [`AuditError::Release`].
    pub fn new(lock: &Lock, ignore: &[String]) -> Result<Self, AuditError> {
        let subjects = subjects(lock)?;
        let number = lock
            .target
            .release
            .strip_prefix("debian/")
            .and_then(|name| DEBIAN.iter().find(|(codename, _)| *codename == name))
            .ok_or_else(|| AuditError::Release {
                release: lock.target.release.clone(),
            })?
            .1;
        let mut by_name: HashMap<_, Vec<usize>> = HashMap::new();
        let mut done = AuditReport::default();
        for (at, subject) in subjects.iter().enumerate() {
            let name = (subject.ecosystem, subject.name.clone());
            by_name.entry(name).or_default().push(at);
            done.judged(subject.ecosystem).packages += 1;
        }
        Ok(Self {
            subjects,
            by_name,
            debian: format!("Debian:{number}"),
            ignore: ignore.iter().cloned().collect(),
            found: Vec::new(),
            done,
            too_many: false,
        })
    }

    /// Takes an entry of the database.
    pub fn add_entry(&mut self, entry: &OsvEntry) {
        if entry.withdrawn.is_some() {
            return;
        }
        let named: Vec<(Ecosystem, &Affected, String)> = entry
            .affected
            .iter()
            .filter_map(|affected| {
                let package = affected.package.as_ref()?;
                let ecosystem = self.ecosystem(&package.ecosystem)?;
                let name = match ecosystem {
                    Ecosystem::Python => normalize_project_name(&package.name)?,
                    Ecosystem::Debian => package.name.clone(),
                };
                Some((ecosystem, affected, name))
            })
            .collect();
        for ecosystem in [Ecosystem::Python, Ecosystem::Debian] {
            let is_about = named.iter().any(|(of, ..)| *of == ecosystem);
            self.done.judged(ecosystem).entries += u64::from(is_about);
        }
        // One verdict a subject, though several parts of the entry may be about it.
        let mut verdicts: HashMap<usize, (AdvisoryMatch, Vec<OsvSeverity>)> = HashMap::new();
        for (ecosystem, affected, name) in named {
            let Some(numbers) = self.by_name.get(&(ecosystem, name)) else {
                continue;
            };
            for &number in numbers {
                let verdict = match_advisory(affected, ecosystem, &self.subjects[number].version);
                let (so_far, severity) = verdicts
                    .entry(number)
                    .or_insert((AdvisoryMatch::Clear, Vec::new()));
                if matches!(verdict, AdvisoryMatch::Affected { .. }) {
                    severity.extend(severities(affected));
                }
                *so_far = worse(
                    std::mem::replace(so_far, AdvisoryMatch::Clear),
                    verdict,
                    ecosystem,
                );
            }
        }
        let mut numbers: Vec<usize> = verdicts.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            if let Some((verdict, severity)) = verdicts.remove(&number) {
                self.note(number, entry, verdict, severity);
            }
        }
    }

    fn note(
        &mut self,
        number: usize,
        entry: &OsvEntry,
        verdict: AdvisoryMatch,
        severity: Vec<OsvSeverity>,
    ) {
        if verdict == AdvisoryMatch::Clear {
            return;
        }
        if self.found.len() + self.done.unclear.len() >= MAX_FOUND {
            self.too_many = true;
            return;
        }
        let subject = self.subjects[number].clone();
        let fixed = match verdict {
            AdvisoryMatch::Affected { fixed } => fixed,
            AdvisoryMatch::Clear => return,
            AdvisoryMatch::Unclear { .. }
                if self.ignores(&entry.id, &entry.aliases, &entry.upstream) =>
            {
                self.done.ignored += 1;
                return;
            }
            AdvisoryMatch::Unclear { why } => {
                self.done.unclear.push(UndecidedEntry {
                    subject,
                    id: word(&entry.id),
                    why: to_printable(&why, MAX_SUMMARY_CHARS),
                });
                return;
            }
        };
        let mut all: Vec<OsvSeverity> = entry.severity.iter().map(shown).chain(severity).collect();
        all.sort();
        all.dedup();
        let finding = Vulnerability {
            subject,
            id: word(&entry.id),
            aliases: entry.aliases.iter().map(|id| word(id)).collect(),
            upstream: entry.upstream.iter().map(|id| word(id)).collect(),
            summary: summary(entry),
            severity: all,
            fixed: fixed.map(|version| word(&version)),
        };
        self.found.push((number, finding));
    }

    fn ignores(&self, id: &String, aliases: &[String], upstream: &[String]) -> bool {
        let ignored = |id: &String| self.ignore.contains(id);
        ignored(id)
            || aliases.iter().any(ignored)
            || (!upstream.is_empty()
                && upstream
                    .iter()
                    .all(|id| ignored(id) || self.ignore.contains(aliases::upstream_name(id))))
    }

    /// `Debian` without a release is about all of them.
    fn ecosystem(&self, name: &str) -> Option<Ecosystem> {
        match name {
            "PyPI" => Some(Ecosystem::Python),
            "Debian" => Some(Ecosystem::Debian),
            _ if name == self.debian => Some(Ecosystem::Debian),
            _ => None,
        }
    }

    /// What was found.
    ///
    /// # Errors
    /// [`AuditError::TooMany`].
    pub fn finish(mut self) -> Result<AuditReport, AuditError> {
        if self.too_many {
            return Err(AuditError::TooMany { limit: MAX_FOUND });
        }
        // Only now is it known which ids are one vulnerability.
        let mut findings = aliases::merge_aliases(std::mem::take(&mut self.found));
        let all = findings.len();
        findings.retain(|one| !self.ignores(&one.id, &one.aliases, &one.upstream));
        self.done.ignored += all - findings.len();
        self.done.findings = findings;
        let key = |subject: &AuditedPackage, id: &str| (subject.clone(), id.to_owned());
        self.done
            .findings
            .sort_by_cached_key(|finding| key(&finding.subject, &finding.id));
        self.done
            .unclear
            .sort_by_cached_key(|one| key(&one.subject, &one.id));
        Ok(self.done)
    }
}

impl AuditReport {
    fn judged(&mut self, ecosystem: Ecosystem) -> &mut AuditCoverage {
        match ecosystem {
            Ecosystem::Python => &mut self.python,
            Ecosystem::Debian => &mut self.debian,
        }
    }
}

fn subjects(lock: &Lock) -> Result<Vec<AuditedPackage>, AuditError> {
    if !lock.debs.is_empty() && lock.version < MIN_FORMAT_WITH_SOURCES {
        return Err(AuditError::NoSources {
            found: lock.version,
        });
    }
    let mut all: Vec<AuditedPackage> = lock
        .wheels
        .iter()
        .map(|wheel| AuditedPackage {
            ecosystem: Ecosystem::Python,
            name: normalize_project_name(&wheel.name).unwrap_or_else(|| wheel.name.clone()),
            version: wheel.version.clone(),
            packages: vec![wheel.name.clone()],
        })
        .collect();
    let mut sources: HashMap<(&str, &str), Vec<String>> = HashMap::new();
    for deb in lock.all_debs() {
        let source = deb.source.as_deref().unwrap_or(&deb.name);
        let version = deb.source_version.as_deref().unwrap_or(&deb.version);
        let packages = sources.entry((source, version)).or_default();
        packages.push(deb.name.clone());
    }
    all.extend(
        sources
            .into_iter()
            .map(|((name, version), packages)| AuditedPackage {
                ecosystem: Ecosystem::Debian,
                name: name.to_owned(),
                version: version.to_owned(),
                packages,
            }),
    );
    all.sort();
    Ok(all)
}

/// Of two verdicts of one entry on one package: affected before unclear before clear.
fn worse(one: AdvisoryMatch, other: AdvisoryMatch, ecosystem: Ecosystem) -> AdvisoryMatch {
    match (one, other) {
        (AdvisoryMatch::Affected { fixed: a }, AdvisoryMatch::Affected { fixed: b }) => {
            let lower =
                |a: &String, b: &String| ecosystem.compare_versions(a, b).is_none_or(|o| o.is_le());
            let fixed = match (a, b) {
                (Some(a), Some(b)) => Some(if lower(&a, &b) { a } else { b }),
                (a, b) => a.or(b),
            };
            AdvisoryMatch::Affected { fixed }
        }
        (affected @ AdvisoryMatch::Affected { .. }, _)
        | (_, affected @ AdvisoryMatch::Affected { .. }) => affected,
        (unclear @ AdvisoryMatch::Unclear { .. }, _) | (_, unclear) => unclear,
    }
}

fn severities(affected: &Affected) -> impl Iterator<Item = OsvSeverity> {
    let urgency = affected
        .ecosystem_specific
        .as_ref()
        .and_then(|specific| specific.urgency.as_ref())
        .map(|urgency| OsvSeverity {
            kind: "Debian".to_owned(),
            score: word(urgency),
        });
    affected.severity.iter().map(shown).chain(urgency)
}

fn shown(severity: &OsvSeverity) -> OsvSeverity {
    OsvSeverity {
        kind: word(&severity.kind),
        score: word(&severity.score),
    }
}

fn word(text: &str) -> String {
    to_printable(text, MAX_WORD_CHARS)
}

/// The entry's own line, or the first one of its story.
fn summary(entry: &OsvEntry) -> Option<String> {
    let texts = [&entry.summary, &entry.details];
    let mut lines = texts.into_iter().flatten().flat_map(|text| text.lines());
    let line = lines.find(|line| !line.trim().is_empty())?;
    Some(to_printable(line.trim(), MAX_SUMMARY_CHARS))
}

#[cfg(test)]
mod tests;
