//! Conditions of a setup.py: the Pythons that they hold for, on Linux.

use super::lines::PythonToken;

/// The first Python that counts, 3.8: `sconce lock` takes none below.
const FIRST_MINOR: u32 = 8;
const MINORS: u32 = 24;
/// Conditions in each other that are read.
const MAX_DEPTH: usize = 20;

/// Versions of Python 3 that something holds for, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pythons(u32);

impl Pythons {
    pub(super) const NONE: Self = Self(0);
    pub(super) const ALL: Self = Self((1 << MINORS) - 1);

    pub(super) fn others(self) -> Self {
        Self(!self.0 & Self::ALL.0)
    }

    /// As an environment marker (PEP 508); `None` for all.
    pub(super) fn to_marker(self) -> Option<String> {
        if self == Self::ALL {
            return None;
        }
        let mut runs: Vec<String> = Vec::new();
        let holds = |at: u32| at < MINORS && self.0 >> at & 1 == 1;
        for start in (0..MINORS).filter(|at| holds(*at) && (*at == 0 || !holds(at - 1))) {
            let end = (start..=MINORS).find(|at| !holds(*at)).unwrap_or(MINORS);
            let from =
                (start > 0).then(|| format!("python_version >= \"3.{}\"", start + FIRST_MINOR));
            let to =
                (end < MINORS).then(|| format!("python_version < \"3.{}\"", end + FIRST_MINOR));
            let bounds: Vec<String> = from.into_iter().chain(to).collect();
            runs.push(bounds.join(" and "));
        }
        Some(runs.join(" or "))
    }

    fn that_meet(is_met: impl Fn(u32) -> bool) -> Self {
        let bits = (0..MINORS).filter(|at| is_met(at + FIRST_MINOR));
        Self(bits.fold(0, |all, at| all | 1 << at))
    }
}

/// Both, as far as they are known: what is never met is not, whatever the other says.
pub(super) fn both(left: Option<Pythons>, right: Option<Pythons>) -> Option<Pythons> {
    match (left, right) {
        (Some(left), Some(right)) => Some(Pythons(left.0 & right.0)),
        (Some(Pythons::NONE), _) | (_, Some(Pythons::NONE)) => Some(Pythons::NONE),
        _ => None,
    }
}

fn negated(condition: Option<Pythons>) -> Option<Pythons> {
    condition.map(Pythons::others)
}

/// The Pythons for which a condition holds; `None` where something else decides.
pub(super) fn evaluate_condition(tokens: &[PythonToken<'_>]) -> Option<Pythons> {
    evaluate(tokens, 0)
}

fn evaluate(tokens: &[PythonToken<'_>], depth: usize) -> Option<Pythons> {
    if depth > MAX_DEPTH {
        return None;
    }
    if let Some((left, right)) = split_at_word(tokens, "or") {
        let (left, right) = (evaluate(left, depth + 1), evaluate(right, depth + 1));
        return negated(both(negated(left), negated(right)));
    }
    if let Some((left, right)) = split_at_word(tokens, "and") {
        return both(evaluate(left, depth + 1), evaluate(right, depth + 1));
    }
    match tokens {
        [PythonToken::Name("not"), rest @ ..] => negated(evaluate(rest, depth + 1)),
        [PythonToken::Sign('('), inner @ .., PythonToken::Sign(')')] if is_balanced(inner) => {
            evaluate(inner, depth + 1)
        }
        _ => evaluate_plain(tokens),
    }
}

/// A condition without `and`, `or` and `not`.
fn evaluate_plain(tokens: &[PythonToken<'_>]) -> Option<Pythons> {
    let decided = |is_met| Some(if is_met { Pythons::ALL } else { Pythons::NONE });
    let is_operator =
        |token: &PythonToken<'_>| matches!(token, PythonToken::Sign('<' | '>' | '=' | '!'));
    let Some(at) = tokens.iter().position(is_operator) else {
        return match tokens {
            [
                head @ ..,
                PythonToken::Sign('('),
                PythonToken::Text(start),
                PythonToken::Sign(')'),
            ] if spell(head)? == "sys.platform.startswith" => {
                decided("linux".starts_with(start.as_str()))
            }
            _ => match spell(tokens)?.as_str() {
                "True" | "six.PY3" | "PY3" => decided(true),
                "False" | "six.PY2" | "PY2" => decided(false),
                _ => None,
            },
        };
    };
    let (left, rest) = tokens.split_at(at);
    let end = rest.iter().position(|token| !is_operator(token))?;
    let (operator, right) = rest.split_at(end);
    let (left, operator) = (spell(left)?, spell(operator)?);
    if let [PythonToken::Text(right)] = right {
        let here = match left.as_str() {
            "__name__" => "__main__",
            "sys.platform" => "linux",
            "os.name" => "posix",
            "platform.system()" => "Linux",
            _ => return None,
        };
        return match operator.as_str() {
            "==" => decided(here == right),
            "!=" => decided(here != right),
            _ => None,
        };
    }
    let version = |minor: u32| -> Option<Vec<u32>> {
        let rest = left.strip_prefix("sys.").unwrap_or(&left);
        Some(match rest.strip_prefix("version_info")? {
            // What follows is more than nothing.
            "" | "[:3]" => vec![3, minor, u32::MAX],
            "[:2]" => vec![3, minor],
            "[0]" | ".major" | "[:1]" => vec![3],
            "[1]" | ".minor" => vec![minor],
            _ => return None,
        })
    };
    version(0)?;
    let right = numbers(right)?;
    let is_met: fn(std::cmp::Ordering) -> bool = match operator.as_str() {
        "<" => std::cmp::Ordering::is_lt,
        "<=" => std::cmp::Ordering::is_le,
        ">" => std::cmp::Ordering::is_gt,
        ">=" => std::cmp::Ordering::is_ge,
        "==" => std::cmp::Ordering::is_eq,
        "!=" => std::cmp::Ordering::is_ne,
        _ => return None,
    };
    Some(Pythons::that_meet(|minor| {
        version(minor).is_some_and(|version| is_met(version.cmp(&right)))
    }))
}

/// `3`, `(3, 9)`.
fn numbers(tokens: &[PythonToken<'_>]) -> Option<Vec<u32>> {
    let text = spell(tokens)?;
    let inner = text
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'));
    let inner = inner.unwrap_or(&text).trim_end_matches(',');
    inner.split(',').map(|number| number.parse().ok()).collect()
}

/// Names, numbers and signs as one text; `None` where a literal is among them.
fn spell(tokens: &[PythonToken<'_>]) -> Option<String> {
    let mut text = String::new();
    for token in tokens.iter().take(40) {
        match token {
            PythonToken::Name(part) | PythonToken::Number(part) => text += part,
            PythonToken::Sign(sign) => text.push(*sign),
            PythonToken::Text(_) => return None,
        }
    }
    Some(text)
}

fn split_at_word<'t, 'a>(
    tokens: &'t [PythonToken<'a>],
    word: &str,
) -> Option<(&'t [PythonToken<'a>], &'t [PythonToken<'a>])> {
    let at = super::brackets::top_level_name(tokens, word)?;
    Some((&tokens[..at], &tokens[at + 1..]))
}

fn is_balanced(tokens: &[PythonToken<'_>]) -> bool {
    let mut depth = 0_usize;
    for token in tokens {
        match token {
            PythonToken::Sign('(') => depth += 1,
            PythonToken::Sign(')') => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return false,
            },
            _ => {}
        }
    }
    depth == 0
}

#[cfg(test)]
mod tests {
    use super::super::lines::split_logical_lines;
    use super::*;

    fn marker(text: &str) -> String {
        let lines = split_logical_lines(text);
        match evaluate_condition(&lines[0].tokens) {
            None => "?".to_owned(),
            Some(Pythons::NONE) => "never".to_owned(),
            Some(pythons) => pythons.to_marker().unwrap_or("always".to_owned()),
        }
    }

    #[test]
    fn conditions_are_decided_or_become_markers() {
        for (text, expected) in [
            ("sys.version_info[0] >= 3", "always"),
            ("sys.version_info.major == 2", "never"),
            ("sys.version_info < (3,)", "never"),
            ("sys.version_info < (3, 7)", "never"),
            ("sys.version_info < (3, 14)", "python_version < \"3.14\""),
            ("sys.version_info > (3, 9)", "python_version >= \"3.9\""),
            (
                "sys.version_info[:2] <= (3, 9)",
                "python_version < \"3.10\"",
            ),
            (
                "version_info.minor == 9",
                "python_version >= \"3.9\" and python_version < \"3.10\"",
            ),
            (
                "sys.version_info[:2] != (3, 9)",
                "python_version < \"3.9\" or python_version >= \"3.10\"",
            ),
            ("(3,) < x", "?"),
            ("sys.platform == 'win32'", "never"),
            ("not sys.platform.startswith('win')", "always"),
            ("os.name != 'nt' and CUDA", "?"),
            ("os.name == 'nt' and CUDA", "never"),
            ("platform.system() == 'Linux' or CUDA", "always"),
            (
                "(sys.version_info >= (3, 9)) and (PY3)",
                "python_version >= \"3.9\"",
            ),
            ("__name__ == '__main__'", "always"),
            ("CUDA", "?"),
            ("version_info < 3.9", "?"),
            ("<", "?"),
        ] {
            assert_eq!(marker(text), expected, "{text}");
        }
    }
}
