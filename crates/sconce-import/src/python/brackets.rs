//! Brackets among the tokens of Python, and what stands outside them.

use super::lines::PythonToken;

/// What stands in the brackets that `tokens` begin with, and what stands behind them.
pub(crate) fn bracketed<'t, 'a>(
    tokens: &'t [PythonToken<'a>],
) -> (&'t [PythonToken<'a>], &'t [PythonToken<'a>]) {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            PythonToken::Sign('(' | '[' | '{') => depth += 1,
            PythonToken::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return (&tokens[at.min(1)..at], &tokens[at + 1..]);
        }
    }
    (&tokens[tokens.len().min(1)..], &[])
}

/// The parts between commas outside brackets.
pub(crate) fn split_commas<'t, 'a>(tokens: &'t [PythonToken<'a>]) -> Vec<&'t [PythonToken<'a>]> {
    let mut depth = 0_usize;
    tokens
        .split(|token| {
            match token {
                PythonToken::Sign('(' | '[' | '{') => depth += 1,
                PythonToken::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && token.is_sign(',')
        })
        .filter(|part| !part.is_empty())
        .collect()
}

/// Where a name stands outside brackets.
pub(super) fn top_level_name(tokens: &[PythonToken<'_>], name: &str) -> Option<usize> {
    top_level_position(tokens, |token| token.as_name() == Some(name))
}

/// The first token outside brackets that is looked for.
pub(super) fn top_level_position(
    tokens: &[PythonToken<'_>],
    is_it: impl Fn(&PythonToken<'_>) -> bool,
) -> Option<usize> {
    let mut depth = 0_usize;
    tokens.iter().position(|token| {
        match token {
            PythonToken::Sign('(' | '[' | '{') => depth += 1,
            PythonToken::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && is_it(token)
    })
}
