//! The `if` statements around a line.

use super::brackets::top_level_position;
use super::conditions::{Pythons, both, evaluate_condition};
use super::lines::{LogicalLine, PythonToken};

/// Statements in each other that are followed.
const MAX_BRANCHES: usize = 100;

/// The branches that a line lies in.
#[derive(Debug, Default)]
pub(super) struct Branches {
    open: Vec<Branch>,
}

#[derive(Debug)]
struct Branch {
    indent: usize,
    /// The Pythons that come into it; `None` where something else decides.
    inside: Option<Pythons>,
    /// Those that come into what follows it, `elif` and `else`.
    after: Option<Pythons>,
    /// Its line, where its statements stand on the same one.
    only_line: Option<usize>,
}

impl Branches {
    /// Goes on to a line, and gives what of it is to be read: where it begins with a condition, what stands behind
    /// that.
    pub(super) fn enter<'t, 'a>(&mut self, line: &'t LogicalLine<'a>) -> &'t [PythonToken<'a>] {
        let tokens = line.tokens.as_slice();
        let word = tokens.first().and_then(PythonToken::as_name);
        let goes_on = matches!(word, Some("elif" | "else"));
        let mut before = None;
        while let Some(last) = self.open.last() {
            let is_left = line.indent <= last.indent && last.only_line != Some(line.line);
            if !is_left {
                break;
            }
            before = self.open.pop().filter(|last| last.indent == line.indent);
        }
        let before = match (goes_on, before) {
            (true, Some(before)) => before.after,
            // That of a loop, or of a `try`.
            (true, None) => return tokens,
            _ if word == Some("if") => Some(Pythons::ALL),
            _ => return tokens,
        };
        let Some(end) = colon(tokens) else {
            return tokens;
        };
        let condition = match word {
            Some("else") => Some(Pythons::ALL),
            _ => evaluate_condition(&tokens[1..end]),
        };
        let rest = &tokens[end + 1..];
        if self.open.len() < MAX_BRANCHES {
            self.open.push(Branch {
                indent: line.indent,
                inside: both(before, condition),
                after: both(before, condition.map(Pythons::others)),
                only_line: (!rest.is_empty()).then_some(line.line),
            });
        }
        rest
    }

    /// The Pythons that come to the line; `None` where something else decides.
    pub(super) fn reached_by(&self) -> Option<Pythons> {
        let inside = self.open.iter().map(|branch| branch.inside);
        inside.fold(Some(Pythons::ALL), both)
    }
}

/// The end of a condition.
fn colon(tokens: &[PythonToken<'_>]) -> Option<usize> {
    top_level_position(tokens, |token| token.is_sign(':'))
}
