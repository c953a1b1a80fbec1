//! Which packages are needed: the closure over `Pre-Depends` and `Depends`, without
//! `Recommends`, as `apt-get install --no-install-recommends` would choose it on an empty system.
//!
//! As in apt, every name has one candidate version (the kept one, else the newest of all suites),
//! so that the only choices are between alternatives and between providers. Everything that is
//! not a choice is taken first; then each choice tries the options in the order in which the
//! packager wrote them, and goes back when one cannot be had.

use std::collections::{BTreeMap, HashMap};

use super::index::{DebianIndex, DebianPackage};
use super::policy;
use super::relation::{self, Operator, Relation, RelationAlternatives, RelationError};

/// A search that goes on for longer than this is given up. Real closures take some hundred steps.
const STEP_LIMIT: usize = 20_000;
/// Reasons shown when there is no solution.
const REASONS_SHOWN: usize = 3;

/// Why there is no closure.
#[derive(Debug, thiserror::Error)]
pub enum SolveError {
    /// No package has this name and none provides it.
    #[error("there is no package `{name}` in this release")]
    NoSuchPackage {
        /// The name that was asked for.
        name: String,
        /// Names that are spelled alike.
        near: Vec<String>,
    },
    /// A request that cannot be read.
    #[error("a package that was asked for cannot be read")]
    Request(#[source] RelationError),
    /// A relation of a package that cannot be read.
    #[error("package `{package}` has a malformed relation")]
    Relation {
        /// The package.
        package: String,
        /// What is wrong.
        source: RelationError,
    },
    /// The requests cannot be had together.
    #[error("the system packages cannot be had together:\n{}", reasons.join("\n"))]
    NoSolution {
        /// For each way that was tried first, why it does not lead on.
        reasons: Vec<String>,
    },
    /// The search took too long.
    #[error("no answer after {STEP_LIMIT} steps of the search for system packages")]
    TooHard,
}

impl sconce_schema::Hint for SolveError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoSuchPackage { near, .. } if !near.is_empty() => {
                Some(format!("did you mean {}?", near.join(", ")))
            }
            Self::NoSuchPackage { .. } => {
                Some("look the name up with `apt-cache search`".to_owned())
            }
            Self::Request(_) => {
                Some("write `name`, `name=version` or `name (>= version)`".to_owned())
            }
            Self::NoSolution { .. } | Self::TooHard => Some(
                "ask for fewer packages in `[system] packages`, or without versions".to_owned(),
            ),
            Self::Relation { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Request(_) => sconce_schema::exit::BAD_INPUT,
            Self::Relation { .. } => sconce_schema::exit::VERIFY,
            Self::NoSuchPackage { .. } | Self::NoSolution { .. } | Self::TooHard => {
                sconce_schema::exit::NO_SOLUTION
            }
        }
    }
}

/// The packages that are needed so that every one of `requests` is there, sorted by name.
/// `keep` holds versions, by name, that are taken before newer ones where the index still has
/// them; when they stand in each other's way the newest are taken.
pub fn solve_dependencies(
    index: &DebianIndex<'_>,
    requests: &[String],
    keep: &BTreeMap<String, String>,
) -> Result<Vec<usize>, SolveError> {
    let requests: Vec<Relation<'_>> = requests
        .iter()
        .map(|text| relation::parse_request(text).map_err(SolveError::Request))
        .collect::<Result<_, _>>()?;
    // As with `apt-get install name=version`, a version that is asked for is the candidate.
    let asked: BTreeMap<String, String> = requests
        .iter()
        .filter_map(|request| match request.version {
            Some((Operator::Exactly, version)) => {
                Some((request.name.to_owned(), version.to_owned()))
            }
            _ => None,
        })
        .collect();
    let mut kept = keep.clone();
    kept.extend(asked.clone());
    let solution = Search::new(index, &kept).run(&requests);
    let mut packages = match solution {
        Err(SolveError::NoSolution { .. } | SolveError::TooHard) if !keep.is_empty() => {
            Search::new(index, &asked).run(&requests)?
        }
        solution => solution?,
    };
    packages.sort_by_key(|number| index.package(*number).name);
    Ok(packages)
}

/// A group of alternatives that has to be satisfied, and who asks for it.
#[derive(Clone)]
struct PackageNeed<'a> {
    /// `None`: the person.
    by: Option<usize>,
    group: RelationAlternatives<'a>,
}

/// A package that was taken, and the need that it satisfies.
struct ChosenPackage<'a> {
    package: usize,
    need: PackageNeed<'a>,
}

/// A choice that can be made otherwise: how much had been done before it.
struct Choice<'a> {
    need: PackageNeed<'a>,
    options: Vec<usize>,
    next_option: usize,
    taken: usize,
    single: usize,
    single_done: usize,
    several: usize,
    several_done: usize,
}

/// What a package refuses to stand beside.
struct Refusals<'a> {
    relations: Vec<Relation<'a>>,
}

struct Search<'i, 'a> {
    index: &'i DebianIndex<'a>,
    keep: &'i BTreeMap<String, String>,
    taken: Vec<ChosenPackage<'i>>,
    by_name: HashMap<&'a str, usize>,
    refusals: HashMap<usize, Refusals<'a>>,
    /// Needs with one option or none, and how many of them were looked at.
    single: Vec<PackageNeed<'i>>,
    single_done: usize,
    /// Needs with several options.
    several: Vec<PackageNeed<'i>>,
    several_done: usize,
    choices: Vec<Choice<'i>>,
    reasons: Vec<String>,
}

impl<'i, 'a: 'i> Search<'i, 'a> {
    fn new(index: &'i DebianIndex<'a>, keep: &'i BTreeMap<String, String>) -> Self {
        Self {
            index,
            keep,
            taken: Vec::new(),
            by_name: HashMap::new(),
            refusals: HashMap::new(),
            single: Vec::new(),
            single_done: 0,
            several: Vec::new(),
            several_done: 0,
            choices: Vec::new(),
            reasons: Vec::new(),
        }
    }

    fn run(mut self, requests: &[Relation<'i>]) -> Result<Vec<usize>, SolveError> {
        for request in requests {
            if self.index.versions_of(request.name).is_empty()
                && self.index.providers_of(request.name).is_empty()
            {
                return Err(SolveError::NoSuchPackage {
                    name: request.name.to_owned(),
                    near: near(request.name, self.index),
                });
            }
            self.add_need(PackageNeed {
                by: None,
                group: vec![*request],
            });
        }
        for _ in 0..STEP_LIMIT {
            let Some((need, is_choice)) = self.next_need() else {
                return Ok(self.taken.iter().map(|taken| taken.package).collect());
            };
            if self.is_satisfied(&need) {
                continue;
            }
            let options = self.options(&need.group);
            if is_choice && options.len() > 1 {
                self.choices.push(Choice {
                    need,
                    options,
                    next_option: 0,
                    taken: self.taken.len(),
                    single: self.single.len(),
                    single_done: self.single_done,
                    several: self.several.len(),
                    several_done: self.several_done,
                });
                self.next_option()?;
            } else if let Err(reason) = self.take_first(&need, &options)? {
                self.reasons.push(reason);
                self.next_option()?;
            }
        }
        Err(SolveError::TooHard)
    }

    fn next_need(&mut self) -> Option<(PackageNeed<'i>, bool)> {
        if let Some(need) = self.single.get(self.single_done) {
            self.single_done += 1;
            return Some((need.clone(), false));
        }
        let need = self.several.get(self.several_done)?;
        self.several_done += 1;
        Some((need.clone(), true))
    }

    fn add_need(&mut self, need: PackageNeed<'i>) {
        if self.options(&need.group).len() > 1 {
            self.several.push(need);
        } else {
            self.single.push(need);
        }
    }

    /// Goes back to the last choice that has an option left and takes it.
    fn next_option(&mut self) -> Result<(), SolveError> {
        while let Some(mut choice) = self.choices.pop() {
            for taken in self.taken.drain(choice.taken..) {
                self.by_name.remove(self.index.package(taken.package).name);
            }
            self.single.truncate(choice.single);
            self.single_done = choice.single_done;
            self.several.truncate(choice.several);
            self.several_done = choice.several_done;
            let Some(option) = choice.options.get(choice.next_option).copied() else {
                continue;
            };
            choice.next_option += 1;
            let need = choice.need.clone();
            self.choices.push(choice);
            match self.take(option, &need)? {
                Ok(()) => return Ok(()),
                Err(reason) => self.reasons.push(reason),
            }
        }
        let mut reasons = std::mem::take(&mut self.reasons);
        let mut seen = std::collections::HashSet::new();
        reasons.retain(|reason| seen.insert(reason.clone()));
        reasons.truncate(REASONS_SHOWN);
        Err(SolveError::NoSolution { reasons })
    }

    fn take_first(
        &mut self,
        need: &PackageNeed<'i>,
        options: &[usize],
    ) -> Result<Result<(), String>, SolveError> {
        match options.first() {
            Some(option) => self.take(*option, need),
            None => Ok(Err(self.why_none(need))),
        }
    }

    /// Takes a package, unless something that was taken before stands against it.
    fn take(
        &mut self,
        number: usize,
        need: &PackageNeed<'i>,
    ) -> Result<Result<(), String>, SolveError> {
        let package = self.index.package(number);
        if let Some(other) = self.by_name.get(package.name) {
            let other = self.index.package(*other);
            return Ok(Err(format!(
                "{} needs {}, but {} {} was chosen already",
                self.chain(need.by),
                show_group(&need.group),
                other.name,
                other.version
            )));
        }
        self.read_refusals(number)?;
        for taken in &self.taken {
            let other = self.index.package(taken.package);
            let stands_against = self
                .refuses(number, other)
                .or_else(|| self.refuses(taken.package, package));
            if let Some(relation) = stands_against {
                return Ok(Err(format!(
                    "{} needs {} {}, which cannot stand beside {} {} (it says `{relation}`), and {} needs that one",
                    self.chain(need.by),
                    package.name,
                    package.version,
                    other.name,
                    other.version,
                    self.chain(taken.need.by),
                )));
            }
        }
        self.taken.push(ChosenPackage {
            package: number,
            need: need.clone(),
        });
        self.by_name.insert(package.name, number);
        for field in [package.pre_depends, package.depends] {
            for group in self.parse(package, field)? {
                if !group.iter().any(|r| policy::is_dropped(r.name)) {
                    self.add_need(PackageNeed {
                        by: Some(number),
                        group,
                    });
                }
            }
        }
        Ok(Ok(()))
    }

    fn parse(
        &self,
        package: &DebianPackage<'a>,
        field: &'a str,
    ) -> Result<Vec<RelationAlternatives<'a>>, SolveError> {
        relation::parse_field(field).map_err(|source| SolveError::Relation {
            package: package.name.to_owned(),
            source,
        })
    }

    fn read_refusals(&mut self, number: usize) -> Result<(), SolveError> {
        let package = self.index.package(number);
        let mut relations = Vec::new();
        for field in [package.conflicts, package.breaks] {
            relations.extend(self.parse(package, field)?.into_iter().flatten());
        }
        self.refusals.insert(number, Refusals { relations });
        Ok(())
    }

    /// The relation by which `number` refuses `other`, where there is one. A package never
    /// refuses itself: that is how a virtual package is made exclusive (Debian Policy 7.4).
    fn refuses(&self, number: usize, other: &DebianPackage<'a>) -> Option<Relation<'a>> {
        if self.index.package(number).name == other.name {
            return None;
        }
        let refusals = self.refusals.get(&number)?;
        refusals.relations.iter().copied().find(|relation| {
            let by_name = relation.name == other.name && relation.accepts(other.version);
            by_name || provides(other, relation)
        })
    }

    fn is_satisfied(&self, need: &PackageNeed<'_>) -> bool {
        need.group.iter().any(|relation| {
            let by_name = self
                .by_name
                .get(relation.name)
                .is_some_and(|number| relation.accepts(self.index.package(*number).version));
            by_name
                || self
                    .index
                    .providers_of(relation.name)
                    .iter()
                    .any(|provider| {
                        let package = self.index.package(provider.package);
                        self.by_name.get(package.name) == Some(&provider.package)
                            && accepts_provided(relation, provider.version)
                    })
        })
    }

    /// The packages that would satisfy the group, best first: alternatives in their order, of
    /// each the package of that name before those that provide it, and of these the most
    /// important first, then by name.
    fn options(&self, group: &[Relation<'_>]) -> Vec<usize> {
        let mut options = Vec::new();
        for relation in group.iter().filter(|r| is_for_us(r)) {
            options.extend(
                self.candidate(relation.name)
                    .filter(|number| relation.accepts(self.index.package(*number).version)),
            );
            let mut providers: Vec<usize> = self
                .index
                .providers_of(relation.name)
                .iter()
                .filter(|provider| accepts_provided(relation, provider.version))
                .map(|provider| provider.package)
                .filter(|number| self.candidate(self.index.package(*number).name) == Some(*number))
                .collect();
            providers.sort_by_key(|number| {
                let package = self.index.package(*number);
                (package.priority, package.name)
            });
            options.extend(providers);
        }
        let mut seen = std::collections::HashSet::new();
        options.retain(|option| seen.insert(*option));
        options
    }

    fn candidate(&self, name: &str) -> Option<usize> {
        self.keep
            .get(name)
            .and_then(|version| self.index.find_version(name, version))
            .or_else(|| self.index.find_newest(name))
    }

    /// Why a group has no option at all.
    fn why_none(&self, need: &PackageNeed<'_>) -> String {
        let wanted = &need.group[0];
        let but = match self.candidate(wanted.name).map(|n| self.index.package(n)) {
            None => format!("there is no package {}", wanted.name),
            Some(package)
                if self
                    .keep
                    .get(wanted.name)
                    .is_some_and(|v| v == package.version) =>
            {
                format!("the lock keeps {} {}", package.name, package.version)
            }
            Some(package) => format!("{} {} is the newest", package.name, package.version),
        };
        format!(
            "{} needs {}, but {but}",
            self.chain(need.by),
            show_group(&need.group)
        )
    }

    /// How a package came to be needed, from what was asked for to itself: `a needs b, b`.
    fn chain(&self, by: Option<usize>) -> String {
        let mut names = Vec::new();
        let mut at = by;
        while let Some(number) = at {
            names.push(self.index.package(number).name);
            at = self
                .taken
                .iter()
                .find(|t| t.package == number)
                .and_then(|t| t.need.by);
        }
        names.reverse();
        match names.split_last() {
            None => "the request".to_owned(),
            Some((last, [])) => (*last).to_owned(),
            Some((last, before)) => format!("{} needs {last}, {last}", before.join(" needs ")),
        }
    }
}

/// Whether the alternative speaks of packages that can be in an image of one architecture.
fn is_for_us(relation: &Relation<'_>) -> bool {
    matches!(relation.qualifier, None | Some("any" | "native"))
}

/// A versioned relation is met by a versioned `Provides` only (Debian Policy 7.5).
fn accepts_provided(relation: &Relation<'_>, version: Option<&str>) -> bool {
    match version {
        Some(version) => relation.accepts(version),
        None => relation.version.is_none(),
    }
}

fn provides(package: &DebianPackage<'_>, relation: &Relation<'_>) -> bool {
    // Read anew each time: only some hundred packages are ever looked at, and the index refused
    // a malformed field.
    relation::parse_field(package.provides).is_ok_and(|groups| {
        groups.iter().flatten().any(|provided| {
            provided.name == relation.name
                && accepts_provided(relation, provided.version.map(|(_, version)| version))
        })
    })
}

fn show_group(group: &[Relation<'_>]) -> String {
    let texts: Vec<String> = group.iter().map(ToString::to_string).collect();
    texts.join(" or ")
}

/// Up to three names that are spelled like `name`, else that begin with it. One letter in four
/// may differ; two neighbours that changed places count as one letter.
fn near(name: &str, index: &DebianIndex<'_>) -> Vec<String> {
    let allowed = (name.len() / 4).max(1);
    let mut scored: Vec<(usize, &str)> = index
        .package_names()
        .filter_map(|other| {
            if other.len().abs_diff(name.len()) <= allowed {
                let distance = strsim::osa_distance(name, other);
                if distance <= allowed {
                    return Some((distance, other));
                }
            }
            other
                .starts_with(name)
                .then_some((allowed + other.len(), other))
        })
        .collect();
    scored.sort_unstable();
    scored
        .into_iter()
        .take(3)
        .map(|(_, other)| other.to_owned())
        .collect()
}

#[cfg(test)]
#[path = "solve_tests.rs"]
mod tests;
