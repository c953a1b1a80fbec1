//! Relations between packages: the text of `Depends`, `Provides`, `Conflicts` and their like
//! (deb-control(5), Debian Policy 7.1).

use std::cmp::Ordering;
use std::fmt;

use super::version;

/// How a version is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `<<`
    Earlier,
    /// `<=`
    EarlierOrEqual,
    /// `=`
    Exactly,
    /// `>=`
    LaterOrEqual,
    /// `>>`
    Later,
}

impl Operator {
    fn accepts(self, order: Ordering) -> bool {
        match self {
            Self::Earlier => order.is_lt(),
            Self::EarlierOrEqual => order.is_le(),
            Self::Exactly => order.is_eq(),
            Self::LaterOrEqual => order.is_ge(),
            Self::Later => order.is_gt(),
        }
    }
}

/// One package that is named, with what its version must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relation<'a> {
    /// The package's name.
    pub name: &'a str,
    /// What follows a colon: `any`, `native` or an architecture.
    pub qualifier: Option<&'a str>,
    /// The version that is asked for.
    pub version: Option<(Operator, &'a str)>,
}

impl Relation<'_> {
    /// Whether `version` is one of those asked for.
    #[must_use]
    pub fn accepts(&self, version: &str) -> bool {
        self.version
            .is_none_or(|(operator, wanted)| operator.accepts(version::compare(version, wanted)))
    }
}

impl fmt::Display for Relation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        let Some((operator, version)) = self.version else {
            return Ok(());
        };
        let operator = match operator {
            Operator::Earlier => "<<",
            Operator::EarlierOrEqual => "<=",
            Operator::Exactly => "=",
            Operator::LaterOrEqual => ">=",
            Operator::Later => ">>",
        };
        write!(f, " ({operator} {version})")
    }
}

/// Alternatives, the preferred one first.
pub type RelationAlternatives<'a> = Vec<Relation<'a>>;

/// A text that is not a relation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a relation such as `name (>= 1.2)`")]
pub struct RelationError {
    /// The text.
    pub text: String,
}

/// Reads a whole field: groups separated by commas, alternatives by bars.
pub fn parse_field(field: &str) -> Result<Vec<RelationAlternatives<'_>>, RelationError> {
    field
        .split(',')
        .map(str::trim)
        .filter(|group| !group.is_empty())
        .map(|group| group.split('|').map(parse_relation).collect())
        .collect()
}

/// Reads what a person writes for one package: `name`, `name=version` as apt-get takes it, or a
/// relation.
pub fn parse_request(text: &str) -> Result<Relation<'_>, RelationError> {
    match text.split_once('=') {
        Some((name, version)) if !name.contains('(') => {
            let wrong = || RelationError {
                text: text.to_owned(),
            };
            let version = version.trim();
            let relation = parse_relation(name)?;
            (is_version(version) && relation.version.is_none())
                .then_some(Relation {
                    version: Some((Operator::Exactly, version)),
                    ..relation
                })
                .ok_or_else(wrong)
        }
        _ => parse_relation(text),
    }
}

fn parse_relation(text: &str) -> Result<Relation<'_>, RelationError> {
    let text = text.trim();
    let wrong = || RelationError {
        text: text.to_owned(),
    };
    let (name, version) = match text.split_once('(') {
        None => (text, None),
        Some((name, rest)) => {
            let inside = rest.strip_suffix(')').ok_or_else(wrong)?.trim();
            (
                name.trim_end(),
                Some(parse_version(inside).ok_or_else(wrong)?),
            )
        }
    };
    let (name, qualifier) = match name.split_once(':') {
        None => (name, None),
        Some((name, qualifier)) => (name, Some(qualifier)),
    };
    if !is_name(name) || qualifier.is_some_and(|q| !is_name(q)) {
        return Err(wrong());
    }
    Ok(Relation {
        name,
        qualifier,
        version,
    })
}

fn parse_version(inside: &str) -> Option<(Operator, &str)> {
    let end = inside.find(|c| !matches!(c, '<' | '=' | '>'))?;
    let operator = match &inside[..end] {
        "<<" => Operator::Earlier,
        // `<` and `>` are old spellings of `<=` and `>=` (Debian Policy 7.1).
        "<=" | "<" => Operator::EarlierOrEqual,
        "=" => Operator::Exactly,
        ">=" | ">" => Operator::LaterOrEqual,
        ">>" => Operator::Later,
        _ => return None,
    };
    let version = inside[end..].trim_start();
    is_version(version).then_some((operator, version))
}

fn is_version(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".+-:~".contains(&b))
}

/// Whether this can be a package's name (Debian Policy 5.6.1; upper case occurs in old archives).
#[must_use]
pub fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_a_real_field() {
        let groups = parse_field(
            "debconf (>= 0.5) | debconf-2.0, libc6 (>> 2.38), python3:any, dash (<< 1:2~)",
        )
        .unwrap();
        let texts: Vec<Vec<String>> = groups
            .iter()
            .map(|g| g.iter().map(ToString::to_string).collect())
            .collect();
        assert_eq!(
            texts,
            [
                vec!["debconf (>= 0.5)", "debconf-2.0"],
                vec!["libc6 (>> 2.38)"],
                vec!["python3"],
                vec!["dash (<< 1:2~)"]
            ]
        );
        assert_eq!(groups[2][0].qualifier, Some("any"));
        assert!(groups[1][0].accepts("2.41-12"));
        assert!(!groups[1][0].accepts("2.38"));
    }

    #[test]
    fn reads_what_apt_get_takes() {
        let relation = parse_request("git=1:2.47.3-0+deb13u1").unwrap();
        assert_eq!(relation.to_string(), "git (= 1:2.47.3-0+deb13u1)");
        assert_eq!(
            parse_request("git (>= 1:2)").unwrap().to_string(),
            "git (>= 1:2)"
        );
        assert_eq!(parse_request(" git ").unwrap().to_string(), "git");
        for wrong in ["git=", "git==1", "=1", "git (= 1)=2"] {
            assert!(parse_request(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_relation() {
        for text in [
            "a (1)",
            "a (>= )",
            "a (>= 1",
            "a b",
            "../a",
            "a | | b",
            "a (>= 1) [amd64]",
            "a (=! 1)",
            "a:",
            "-a",
        ] {
            assert!(parse_field(text).is_err(), "{text}");
        }
        assert_eq!(parse_field(" , ").unwrap().len(), 0);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = parse_field(&text);
            let _ = parse_request(&text);
        }
    }
}
