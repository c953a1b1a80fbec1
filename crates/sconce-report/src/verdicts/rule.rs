//! Rules as they are written in `rules/`.

use serde::Deserialize;

use super::condition::{ConditionError, FigureCondition};
use super::figures::{FigureSet, RuleSubject, unit_of};
use super::value::FigureUnit;
use crate::verdict::{Verdict, VerdictSeverity};

/// One rule, read and checked.
#[derive(Debug, Clone)]
pub(crate) struct VerdictRule {
    pub(crate) code: String,
    pub(crate) about: RuleSubject,
    pub(crate) weight: VerdictSeverity,
    pub(crate) costly_when: Vec<FigureCondition>,
    pub(crate) fatal_when: Vec<FigureCondition>,
    /// How much evidence it takes.
    pub(crate) needs: Vec<FigureCondition>,
    /// All of these.
    pub(crate) when: Vec<FigureCondition>,
    /// And one of these, where there are any.
    pub(crate) any: Vec<FigureCondition>,
    /// And none of these.
    pub(crate) unless: Vec<FigureCondition>,
    pub(crate) title: String,
    pub(crate) evidence: Vec<String>,
    pub(crate) gain: Option<String>,
    pub(crate) gain_share: Option<String>,
    pub(crate) mends: Vec<VerdictFix>,
    pub(crate) why: String,
}

/// One thing to change.
#[derive(Debug, Clone)]
pub(crate) struct VerdictFix {
    pub(crate) what: String,
    pub(crate) when: Vec<FigureCondition>,
}

/// Why a rule cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuleError {
    #[error("it is no rule")]
    Toml(#[from] toml::de::Error),
    #[error(transparent)]
    Condition(#[from] ConditionError),
    #[error("`{0}` names no figure")]
    Blank(String),
    #[error("`{0}` is no weight: fatal, costly or note")]
    Weight(String),
    #[error("`{0}` is not what a rule can be about: run, rank, growth, card or card-oom")]
    About(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RuleFile {
    code: String,
    about: String,
    weight: String,
    #[serde(default)]
    costly_when: Vec<String>,
    #[serde(default)]
    fatal_when: Vec<String>,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    when: Vec<String>,
    #[serde(default)]
    any: Vec<String>,
    #[serde(default)]
    unless: Vec<String>,
    title: String,
    evidence: Vec<String>,
    gain: Option<String>,
    gain_share: Option<String>,
    why: String,
    mends: Vec<WrittenMend>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct WrittenMend {
    what: String,
    #[serde(default)]
    when: Vec<String>,
}

impl VerdictRule {
    pub(crate) fn parse(text: &str) -> Result<Self, RuleError> {
        let written: RuleFile = toml::from_str(text)?;
        let weight = match written.weight.as_str() {
            "fatal" => VerdictSeverity::Fatal,
            "costly" => VerdictSeverity::Costly,
            "note" => VerdictSeverity::Note,
            _ => return Err(RuleError::Weight(written.weight)),
        };
        let about =
            RuleSubject::from_label(&written.about).ok_or(RuleError::About(written.about))?;
        let mends = (written.mends.into_iter())
            .map(|mend| {
                Ok(VerdictFix {
                    when: conditions(&mend.when)?,
                    what: checked(mend.what)?,
                })
            })
            .collect::<Result<_, RuleError>>()?;
        if let Some(figure) = &written.gain_share
            && unit_of(figure) != Some(FigureUnit::Share)
        {
            return Err(RuleError::Blank(figure.clone()));
        }
        Ok(Self {
            code: written.code,
            about,
            weight,
            costly_when: conditions(&written.costly_when)?,
            fatal_when: conditions(&written.fatal_when)?,
            needs: conditions(&written.needs)?,
            when: conditions(&written.when)?,
            any: conditions(&written.any)?,
            unless: conditions(&written.unless)?,
            title: checked(written.title)?,
            evidence: (written.evidence.into_iter().map(checked)).collect::<Result<_, _>>()?,
            gain: written.gain.map(checked).transpose()?,
            gain_share: written.gain_share,
            mends,
            why: written.why,
        })
    }

    /// Every figure that it names.
    #[cfg(test)]
    pub(crate) fn figure_names(&self) -> Vec<&str> {
        let lists = [
            &self.costly_when,
            &self.fatal_when,
            &self.needs,
            &self.when,
            &self.any,
            &self.unless,
        ];
        let mends = self.mends.iter().flat_map(|mend| &mend.when);
        let conditions = (lists.into_iter().flatten().chain(mends)).map(|one| one.figure.as_str());
        let texts = (self.evidence.iter().chain(&self.gain).chain([&self.title]))
            .chain(self.mends.iter().map(|mend| &mend.what));
        conditions
            .chain(texts.flat_map(|text| blanks(text)))
            .chain(self.gain_share.as_deref())
            .collect()
    }

    /// What it says of these figures; nothing where it does not apply.
    pub(crate) fn evaluate(&self, figures: &FigureSet) -> Option<Verdict> {
        let holds = |condition: &FigureCondition| condition.is_true(figures);
        let applies = (self.needs.iter().chain(&self.when)).all(holds)
            && (self.any.is_empty() || self.any.iter().any(holds))
            && !self.unless.iter().any(holds);
        if !applies {
            return None;
        }
        let all =
            |conditions: &[FigureCondition]| !conditions.is_empty() && conditions.iter().all(holds);
        let weight = match () {
            () if all(&self.fatal_when) => VerdictSeverity::Fatal,
            () if all(&self.costly_when) => VerdictSeverity::Costly,
            () => self.weight,
        };
        let share = self
            .gain_share
            .as_ref()
            .and_then(|figure| figures.get(figure)?.as_number());
        Some(Verdict {
            rule: self.code.clone(),
            weight,
            title: filled(&self.title, figures).unwrap_or_else(|| self.code.clone()),
            evidence: (self
                .evidence
                .iter()
                .filter_map(|text| filled(text, figures)))
            .collect(),
            gain: self.gain.as_ref().and_then(|text| filled(text, figures)),
            gain_share: share.map(|share| share.clamp(0.0, 1.0)),
            mends: (self.mends.iter())
                .filter(|mend| mend.when.iter().all(holds))
                .filter_map(|mend| filled(&mend.what, figures))
                .collect(),
        })
    }
}

fn conditions(texts: &[String]) -> Result<Vec<FigureCondition>, ConditionError> {
    texts
        .iter()
        .map(|text| FigureCondition::parse(text))
        .collect()
}

/// A text whose blanks all name figures.
fn checked(text: String) -> Result<String, RuleError> {
    let unknown = blanks(&text)
        .find(|name| unit_of(name).is_none())
        .map(str::to_owned);
    unknown.map_or(Ok(text), |name| Err(RuleError::Blank(name)))
}

/// The names in braces.
fn blanks(text: &str) -> impl Iterator<Item = &str> {
    (text.split('{').skip(1)).map(|part| part.split_once('}').map_or(part, |(name, _)| name))
}

/// A text with its blanks filled; nothing where one of them was not measured.
fn filled(text: &str, figures: &FigureSet) -> Option<String> {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}')?;
        filled += &figures.get(name)?.format_value();
        filled += rest;
    }
    Some(filled)
}
