//! Conditions of rules: `data-share >= 10 %`, `workers is 0`, `card-name has A100 | H100`.

use super::figures::{FigureSet, unit_of};
use super::value::{FigureUnit, FigureValue};

/// One condition. A figure that was not measured meets none but `is missing`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FigureCondition {
    pub(crate) figure: String,
    test: Test,
    /// As it is written.
    pub(crate) text: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    Compare(Compare, f64),
    IsNumber(f64),
    IsFlag(bool),
    IsText(String),
    IsNot(String),
    /// One of these stands in the text as words.
    Has(Vec<String>),
    Known,
    Missing,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Compare {
    AtLeast,
    AtMost,
    More,
    Less,
}

/// What a run says to a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truth {
    Yes,
    No,
    NotMeasured,
}

/// Why a condition cannot be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum ConditionError {
    #[error("`{0}` is not of the form FIGURE TEST VALUE")]
    Form(String),
    #[error("no figure is named `{0}`")]
    Figure(String),
    #[error("`{0}` does not fit the figure's unit")]
    Value(String),
}

impl FigureCondition {
    pub(crate) fn parse(text: &str) -> Result<Self, ConditionError> {
        let form = || ConditionError::Form(text.to_owned());
        let (figure, rest) = text.trim().split_once(' ').ok_or_else(form)?;
        let (test, value) = rest.trim().split_once(' ').ok_or_else(form)?;
        let value = value.trim();
        let unit = unit_of(figure).ok_or_else(|| ConditionError::Figure(figure.to_owned()))?;
        let number = || literal(value, unit).ok_or_else(|| ConditionError::Value(text.to_owned()));
        let test = match (test, value, unit) {
            ("is", "known", _) => Test::Known,
            ("is", "missing", _) => Test::Missing,
            ("is", "yes", FigureUnit::Flag) => Test::IsFlag(true),
            ("is", "no", FigureUnit::Flag) => Test::IsFlag(false),
            ("is", _, FigureUnit::Text) => Test::IsText(value.to_owned()),
            ("is-not", _, FigureUnit::Text) => Test::IsNot(value.to_owned()),
            ("is", ..) => Test::IsNumber(number()?),
            ("has", _, FigureUnit::Text) => {
                Test::Has(value.split('|').map(|one| one.trim().to_owned()).collect())
            }
            (">=", ..) => Test::Compare(Compare::AtLeast, number()?),
            ("<=", ..) => Test::Compare(Compare::AtMost, number()?),
            (">", ..) => Test::Compare(Compare::More, number()?),
            ("<", ..) => Test::Compare(Compare::Less, number()?),
            _ => return Err(form()),
        };
        Ok(Self {
            figure: figure.to_owned(),
            test,
            text: text.trim().to_owned(),
        })
    }

    /// What the figures say to it. Where the figure was not measured that is no answer, unless that is
    /// what is asked.
    pub(crate) fn evaluate(&self, figures: &FigureSet) -> Truth {
        match (figures.get(&self.figure), &self.test) {
            (None, Test::Missing) => Truth::Yes,
            (None, _) => Truth::NotMeasured,
            (Some(_), _) if self.is_true(figures) => Truth::Yes,
            (Some(_), _) => Truth::No,
        }
    }

    /// The number that it compares with.
    pub(crate) fn number(&self) -> Option<f64> {
        match self.test {
            Test::Compare(_, number) | Test::IsNumber(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn is_true(&self, figures: &FigureSet) -> bool {
        let Some(value) = figures.get(&self.figure) else {
            return self.test == Test::Missing;
        };
        match (&self.test, value) {
            (Test::Known, _) => true,
            (Test::IsFlag(yes), FigureValue::Flag(is)) => yes == is,
            (Test::IsText(text), FigureValue::Text(is)) => text == is,
            (Test::IsNot(text), FigureValue::Text(is)) => text != is,
            (Test::Has(words), FigureValue::Text(is)) => words.iter().any(|word| has(is, word)),
            (Test::IsNumber(n), value) => value.as_number().is_some_and(|is| is == *n),
            (Test::Compare(compare, n), value) => {
                value.as_number().is_some_and(|is| match compare {
                    Compare::AtLeast => is >= *n,
                    Compare::AtMost => is <= *n,
                    Compare::More => is > *n,
                    Compare::Less => is < *n,
                })
            }
            _ => false,
        }
    }
}

/// Whether words stand in a text by themselves, one after another: `T4` is in `Tesla T4` and not in `T400`.
fn has(text: &str, words: &str) -> bool {
    let parts: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let words: Vec<&str> = words.split(' ').collect();
    parts.windows(words.len()).any(|found| {
        let mut pairs = found.iter().zip(&words);
        pairs.all(|(a, b)| a.eq_ignore_ascii_case(b))
    })
}

/// `10 %`, `8 MiB`, `60 s`, `5 ms`, `200`, in the figure's own unit.
fn literal(text: &str, unit: FigureUnit) -> Option<f64> {
    let (number, name) = text.split_once(' ').unwrap_or((text, ""));
    let number: f64 = number.parse().ok().filter(|n: &f64| n.is_finite())?;
    let scale = match (unit, name) {
        (FigureUnit::Share, "%") => 0.01,
        (FigureUnit::Bytes, "B") | (FigureUnit::Count, "") => 1.0,
        (FigureUnit::Bytes, "KiB") => 1024.0,
        (FigureUnit::Bytes, "MiB") => 1024.0 * 1024.0,
        (FigureUnit::Bytes, "GiB") => 1024.0 * 1024.0 * 1024.0,
        (FigureUnit::Time, "ms") => 1e3,
        (FigureUnit::Time, "s") => 1e6,
        _ => return None,
    };
    Some(number * scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_wrong_is_named() {
        for (text, error) in [
            ("steps", ConditionError::Form("steps".to_owned())),
            ("speed >= 1", ConditionError::Figure("speed".to_owned())),
            (
                "steps >= 1 %",
                ConditionError::Value("steps >= 1 %".to_owned()),
            ),
            ("steps ~ 1", ConditionError::Form("steps ~ 1".to_owned())),
        ] {
            assert_eq!(FigureCondition::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn names_of_cards_are_words() {
        assert!(
            has("Tesla T4", "T4")
                && has("NVIDIA H100 PCIe", "H100")
                && has("NVIDIA A100-SXM4-80GB", "A100")
        );
        assert!(!has("NVIDIA T400", "T4") && !has("NVIDIA A1000", "A100"));
        assert!(has("NVIDIA TITAN V", "TITAN V") && !has("NVIDIA TITAN Xp", "TITAN V"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,60}", rest in "(>=|<=|is|has) .{0,20}") {
            let _ = FigureCondition::parse(&text);
            let _ = FigureCondition::parse(&format!("steps {rest}"));
        }
    }
}
