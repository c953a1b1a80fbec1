//! The owner's rules: who may hold how many cards for how long, and who comes first.

use std::collections::BTreeMap;
use std::ops::Range;

use sconce_schema::{Hint, duration, exit};
use serde::Deserialize;
use toml::Spanned;
use toml::value::Datetime;

use super::maintenance::{MaintenanceWindow, to_unix_seconds};
use super::numbers::BoundedNumber;
use super::types::{LeaseUser, Millis};

const DAY_MS: Millis = 24 * 3600 * 1000;

/// A policy that cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Not TOML, or a key that nobody knows.
    #[error("line {line}: {text}")]
    Text {
        /// From 1.
        line: usize,
        /// What is wrong, in the parser's words.
        text: String,
    },
    /// A value that cannot be meant.
    #[error("line {line}: `{key}` is {value}, {why}")]
    Value {
        /// From 1.
        line: usize,
        /// Its key.
        key: &'static str,
        /// What was written.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// Two rules of which one makes the other meaningless.
    #[error("line {line}: {one} contradicts {other}")]
    Contradiction {
        /// From 1: the line of `one`.
        line: usize,
        /// A rule.
        one: String,
        /// The other.
        other: String,
    },
}

impl Hint for PolicyError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Text { .. } | Self::Value { .. } => {
                "a policy is TOML: half-life, patience, idle-grace, [default], [groups.NAME], \
                 [users.NAME] with cards, hours-a-week, longest, idle, priority and queue, \
                 [[maintenance]]"
                    .to_owned()
            }
            Self::Contradiction { .. } => "change one of the two".to_owned(),
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// What holds for one person; absent is without limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseLimits {
    /// Cards at once.
    pub cards: Option<u32>,
    /// Card milliseconds in seven days.
    pub week_ms: Option<u64>,
    /// The longest lease.
    pub longest_ms: Option<Millis>,
    /// Unused for so long, the holder is warned.
    pub idle_ms: Option<Millis>,
    /// Higher comes first.
    pub priority: i32,
    /// Requests that may wait at once.
    pub queue: u32,
}

/// Requests of one user that may wait, where no rule says how many: a sweep of runs, and no more
/// than can be planned at every look.
const DEFAULT_QUEUE_LIMIT: u32 = 64;

/// The rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// In which half of the use is forgotten.
    pub half_life_ms: Millis,
    /// Whoever waited for so long comes before everyone who waited less.
    pub patience_ms: Millis,
    /// Time between the warning that nothing is used and the end of the lease.
    pub idle_grace_ms: Millis,
    /// Times in which no card is given, in order.
    pub maintenance: Vec<MaintenanceWindow>,
    pub(super) default: PolicyTable,
    pub(super) groups: BTreeMap<String, PolicyTable>,
    pub(super) users: BTreeMap<String, PolicyTable>,
}

impl Default for Policy {
    /// Without a policy file: no limit for anybody, use forgotten by half in 7 days, patience of 3.
    fn default() -> Self {
        Self {
            half_life_ms: 7 * DAY_MS,
            patience_ms: 3 * DAY_MS,
            idle_grace_ms: 10 * 60 * 1000,
            maintenance: Vec::new(),
            default: PolicyTable::default(),
            groups: BTreeMap::new(),
            users: BTreeMap::new(),
        }
    }
}

/// What one table of the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PolicyTable {
    pub(super) cards: Option<u32>,
    pub(super) week_ms: Option<u64>,
    longest_ms: Option<Millis>,
    idle_ms: Option<Millis>,
    priority: Option<i32>,
    pub(super) queue: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct PolicyFile {
    half_life: Option<Spanned<String>>,
    patience: Option<Spanned<String>>,
    idle_grace: Option<Spanned<String>>,
    #[serde(default)]
    default: WrittenRules,
    #[serde(default)]
    groups: BTreeMap<String, WrittenRules>,
    #[serde(default)]
    users: BTreeMap<String, WrittenRules>,
    #[serde(default)]
    maintenance: Vec<WrittenWindow>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct WrittenRules {
    cards: Option<BoundedNumber<u32>>,
    hours_a_week: Option<Spanned<BoundedNumber<u32>>>,
    longest: Option<Spanned<String>>,
    idle: Option<Spanned<String>>,
    priority: Option<BoundedNumber<i32>>,
    queue: Option<BoundedNumber<u32>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct WrittenWindow {
    from: Spanned<Datetime>,
    until: Spanned<Datetime>,
    why: Option<String>,
}

/// Reads values with the lines that they stand on.
struct Reader<'a>(&'a str);

impl Reader<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.0.as_bytes().get(..span.start).unwrap_or_default();
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    fn value(
        &self,
        span: &Range<usize>,
        key: &'static str,
        value: impl ToString,
        why: impl Into<String>,
    ) -> PolicyError {
        PolicyError::Value {
            line: self.line(span),
            key,
            value: value.to_string(),
            why: why.into(),
        }
    }

    fn contradiction(
        &self,
        span: &Range<usize>,
        one: String,
        other: impl Into<String>,
    ) -> PolicyError {
        PolicyError::Contradiction {
            line: self.line(span),
            one,
            other: other.into(),
        }
    }

    fn duration(
        &self,
        key: &'static str,
        written: Option<&Spanned<String>>,
    ) -> Result<Option<Millis>, PolicyError> {
        let Some(written) = written else {
            return Ok(None);
        };
        let wrong = |why: String| {
            let value = format!("`{}`", written.as_ref());
            self.value(&written.span(), key, value, why)
        };
        match duration::parse_milliseconds(written.as_ref()) {
            Err(error) => Err(wrong(format!("not {}", error.expected))),
            Ok(0) => Err(wrong("which is no time".to_owned())),
            Ok(ms) => Ok(Some(ms)),
        }
    }

    fn rules(&self, written: &WrittenRules) -> Result<PolicyTable, PolicyError> {
        let longest_ms = self.duration("longest", written.longest.as_ref())?;
        let idle_ms = self.duration("idle", written.idle.as_ref())?;
        let cards = written.cards.map(|cards| cards.0);
        let week_ms = written
            .hours_a_week
            .as_ref()
            .map(|hours| u64::from(hours.as_ref().0) * 3600 * 1000);
        if let (Some(written), Some(cards), Some(0)) = (&written.hours_a_week, cards, week_ms)
            && cards > 0
        {
            let one = "`hours-a-week` of 0".to_owned();
            return Err(self.contradiction(&written.span(), one, format!("`cards` of {cards}")));
        }
        Ok(PolicyTable {
            cards,
            week_ms,
            longest_ms,
            idle_ms,
            priority: written.priority.map(|priority| priority.0),
            queue: written.queue.map(|queue| queue.0),
        })
    }

    /// What holds for somebody with these rules must leave something that can be done.
    fn consistent(
        &self,
        who: &str,
        written: &WrittenRules,
        limits: &LeaseLimits,
    ) -> Result<(), PolicyError> {
        let place = |key: Option<Range<usize>>| key.unwrap_or(0..0);
        if let (Some(longest), Some(week)) = (limits.longest_ms, limits.week_ms)
            && week > 0
            && longest > week
        {
            let span = written.longest.as_ref().map(Spanned::span);
            let span = span.or_else(|| written.hours_a_week.as_ref().map(Spanned::span));
            let one = format!("`longest` of {} h for {who}", longest / 3_600_000);
            let other = format!("`hours-a-week` of {}", week / 3_600_000);
            return Err(self.contradiction(&place(span), one, other));
        }
        if let (Some(idle), Some(longest)) = (limits.idle_ms, limits.longest_ms)
            && idle >= longest
        {
            let span = written.idle.as_ref().map(Spanned::span);
            let span = span.or_else(|| written.longest.as_ref().map(Spanned::span));
            let one = format!("`idle` of {} min for {who}", idle / 60_000);
            let other = format!(
                "`longest` of {} min, which is over before",
                longest / 60_000
            );
            return Err(self.contradiction(&place(span), one, other));
        }
        Ok(())
    }

    fn windows(&self, written: &[WrittenWindow]) -> Result<Vec<MaintenanceWindow>, PolicyError> {
        let mut windows: Vec<(MaintenanceWindow, Range<usize>)> = Vec::with_capacity(written.len());
        for window in written {
            let at = |key, at: &Spanned<Datetime>| {
                to_unix_seconds(at.as_ref()).ok_or_else(|| {
                    let why = "not a date and time with its zone, such as 2026-12-01T08:00:00Z";
                    self.value(&at.span(), key, at.as_ref(), why)
                })
            };
            let (from_s, until_s) = (at("from", &window.from)?, at("until", &window.until)?);
            let span = window.until.span();
            if until_s <= from_s {
                let one = format!("`until` of {}", window.until.as_ref());
                let other = format!("`from` of {}", window.from.as_ref());
                return Err(self.contradiction(&span, one, other));
            }
            let overlap = windows
                .iter()
                .find(|(other, _)| from_s < other.until_s && other.from_s < until_s);
            if let Some((_, other)) = overlap {
                let one = "a maintenance window".to_owned();
                let other = format!("the one on line {}: they overlap", self.line(other));
                return Err(self.contradiction(&window.from.span(), one, other));
            }
            let why = window.why.clone();
            windows.push((
                MaintenanceWindow {
                    from_s,
                    until_s,
                    why,
                },
                window.from.span(),
            ));
        }
        windows.sort_by_key(|(window, _)| window.from_s);
        Ok(windows.into_iter().map(|(window, _)| window).collect())
    }
}

impl Policy {
    /// Reads a policy file's text.
    ///
    /// # Errors
    /// What cannot be followed, with its line.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let reader = Reader(text);
        let written: PolicyFile = toml::from_str(text).map_err(|error| PolicyError::Text {
            line: reader.line(&error.span().unwrap_or(0..0)),
            text: error.message().to_owned(),
        })?;
        let or = Self::default();
        let time = |key, written: Option<&Spanned<String>>, or| {
            Ok::<_, PolicyError>(reader.duration(key, written)?.unwrap_or(or))
        };
        let each = |tables: &BTreeMap<String, WrittenRules>| {
            let read = |(name, rules): (&String, &WrittenRules)| {
                Ok::<_, PolicyError>((name.clone(), reader.rules(rules)?))
            };
            tables
                .iter()
                .map(read)
                .collect::<Result<BTreeMap<_, _>, _>>()
        };
        let policy = Self {
            half_life_ms: time("half-life", written.half_life.as_ref(), or.half_life_ms)?,
            patience_ms: time("patience", written.patience.as_ref(), or.patience_ms)?,
            idle_grace_ms: time("idle-grace", written.idle_grace.as_ref(), or.idle_grace_ms)?,
            maintenance: reader.windows(&written.maintenance)?,
            default: reader.rules(&written.default)?,
            groups: each(&written.groups)?,
            users: each(&written.users)?,
        };
        policy.consistent(&reader, &written)?;
        Ok(policy)
    }

    fn consistent(&self, reader: &Reader<'_>, written: &PolicyFile) -> Result<(), PolicyError> {
        let person = |name: &str, groups: &[&String]| LeaseUser {
            uid: u32::MAX,
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).clone()).collect(),
        };
        let limits = self.limits_for(&person("", &[]));
        reader.consistent("everybody", &written.default, &limits)?;
        for (group, rules) in &written.groups {
            let limits = self.limits_for(&person("", &[group]));
            reader.consistent(&format!("the group {group}"), rules, &limits)?;
        }
        for (user, rules) in &written.users {
            let limits = self.limits_for(&person(user, &[]));
            reader.consistent(user, rules, &limits)?;
        }
        // A lease without an end could never begin before a window.
        if let Some(window) = written.maintenance.first()
            && self.default.longest_ms.is_none()
        {
            let one = "a maintenance window".to_owned();
            let other = "leases without an end: [default] has no `longest`";
            return Err(reader.contradiction(&window.from.span(), one, other));
        }
        Ok(())
    }

    /// Whether there are rules for a user of that name.
    #[must_use]
    pub fn has_rules_for(&self, user: &str) -> bool {
        self.users.contains_key(user)
    }

    /// The shortest time after which somebody is warned, or loses cards, that are not used; absent
    /// where nobody does.
    #[must_use]
    pub fn soonest_idle_ms(&self) -> Option<Millis> {
        let rules = self.groups.values().chain(self.users.values());
        let idle = rules
            .chain([&self.default])
            .filter_map(|rules| rules.idle_ms);
        idle.min().map(|idle| idle.min(self.idle_grace_ms))
    }

    /// What holds for a person: what is said of the user, else the most generous of what is said
    /// of the groups, else the default; each limit for itself.
    #[must_use]
    pub fn limits_for(&self, person: &LeaseUser) -> LeaseLimits {
        let own = self.users.get(&person.name);
        let groups = || {
            person
                .groups
                .iter()
                .filter_map(|name| self.groups.get(name))
        };
        macro_rules! of {
            ($key:ident) => {
                own.and_then(|rules| rules.$key)
                    .or_else(|| groups().filter_map(|rules| rules.$key).max())
                    .or(self.default.$key)
            };
        }
        LeaseLimits {
            cards: of!(cards),
            week_ms: of!(week_ms),
            longest_ms: of!(longest_ms),
            idle_ms: of!(idle_ms),
            priority: of!(priority).unwrap_or(0),
            queue: of!(queue).unwrap_or(DEFAULT_QUEUE_LIMIT),
        }
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
