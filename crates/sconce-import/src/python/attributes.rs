//! The names of modules that a program uses by their dots: `np.float`, after `import numpy as np`.

use std::collections::BTreeMap;

use super::lines::{LogicalLine, PythonToken, split_logical_lines};

/// Uses of one file that are read.
const MAX_USES: usize = 20_000;
/// Names in one that are kept: `matplotlib.pyplot.cm.get_cmap`.
const MAX_PARTS: usize = 6;

/// `numpy.float`, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttributeUse {
    /// From 1.
    pub(crate) line: usize,
    /// As the module that was imported is called, whatever it is called here.
    pub(crate) path: String,
    /// It is set, or asked for (`hasattr`), so that the program does without.
    pub(crate) is_provided: bool,
}

/// The uses of modules in `text`.
pub(crate) fn find_attribute_uses(text: &str) -> Vec<AttributeUse> {
    let lines = split_logical_lines(text);
    let mut modules = BTreeMap::new();
    for line in &lines {
        read_import(line, &mut modules);
    }
    let mut uses = Vec::new();
    for line in &lines {
        let name = |at: usize| line.tokens.get(at).and_then(PythonToken::as_name);
        if matches!(name(0), Some("import" | "from")) {
            continue;
        }
        for (at, token) in line.tokens.iter().enumerate() {
            let follows_dot = at > 0 && line.tokens[at - 1].is_sign('.');
            let module = token.as_name().and_then(|name| modules.get(name));
            let Some(module) = module.filter(|_| !follows_dot) else {
                continue;
            };
            let sign = |at: usize, sign| line.tokens.get(at).is_some_and(|t| t.is_sign(sign));
            let asks =
                at > 1 && matches!(name(at - 2), Some("hasattr" | "getattr")) && sign(at - 1, '(');
            if asks
                && let Some(PythonToken::Text(attribute)) = line.tokens.get(at + 2)
                && uses.len() < MAX_USES
            {
                uses.push(AttributeUse {
                    line: line.line,
                    path: format!("{module}.{attribute}"),
                    is_provided: true,
                });
            }
            let mut path: String = module.clone();
            let mut next = at + 1;
            for _ in 0..MAX_PARTS {
                let Some(part) = name(next + 1).filter(|_| sign(next, '.')) else {
                    break;
                };
                path = format!("{path}.{part}");
                next += 2;
            }
            if next > at + 1 && uses.len() < MAX_USES {
                uses.push(AttributeUse {
                    line: line.line,
                    path,
                    is_provided: sign(next, '=') && !sign(next + 1, '='),
                });
            }
        }
    }
    uses
}

/// `import a.b as c`, `import a.b` (which names `a`), `from a import b as c`.
fn read_import(line: &LogicalLine<'_>, modules: &mut BTreeMap<String, String>) {
    let tokens: Vec<&PythonToken<'_>> = line.tokens.iter().collect();
    let (first, rest) = match tokens.split_first() {
        Some((first, rest)) => (first.as_name(), rest),
        None => return,
    };
    let (from, names) = match first {
        Some("import") => (None, rest),
        Some("from") => {
            let Some(at) = rest.iter().position(|t| t.as_name() == Some("import")) else {
                return;
            };
            match dotted(&rest[..at]) {
                Some(module) => (Some(module), &rest[at + 1..]),
                None => return,
            }
        }
        _ => return,
    };
    for one in names.split(|token| token.is_sign(',')) {
        let one: Vec<&PythonToken<'_>> = one
            .iter()
            .filter(|token| !token.is_sign('(') && !token.is_sign(')'))
            .copied()
            .collect();
        let alias = one.iter().position(|token| token.as_name() == Some("as"));
        let Some(path) = dotted(&one[..alias.unwrap_or(one.len())]) else {
            continue;
        };
        let alias = alias.and_then(|at| one.get(at + 1)?.as_name());
        let (name, module) = match (&from, alias) {
            (Some(from), alias) => (alias.unwrap_or(&path).to_owned(), format!("{from}.{path}")),
            (None, Some(alias)) => (alias.to_owned(), path),
            (None, None) => {
                let top = path.split('.').next().unwrap_or_default().to_owned();
                (top.clone(), top)
            }
        };
        modules.insert(name, module);
    }
}

/// `a.b.c`; `None` for anything else, and for what begins with a point.
fn dotted(tokens: &[&PythonToken<'_>]) -> Option<String> {
    let mut path = String::new();
    for (at, token) in tokens.iter().enumerate() {
        match (at % 2, token.as_name()) {
            (0, Some(name)) => path += name,
            (1, None) if token.is_sign('.') => path.push('.'),
            _ => return None,
        }
    }
    (tokens.len() % 2 == 1).then_some(path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uses(text: &str) -> Vec<String> {
        let shown = |one: AttributeUse| match one.is_provided {
            true => format!("{} {} is provided", one.line, one.path),
            false => format!("{} {}", one.line, one.path),
        };
        find_attribute_uses(text).into_iter().map(shown).collect()
    }

    #[test]
    fn modules_are_known_by_what_they_are_called_here() {
        let text = "import numpy as np, os.path\nimport torch.nn as nn\nfrom PIL import (Image as I, ImageDraw)\n\
                    from . import np2\nx = np.float(1)  # np.int\ny = 'np.bool'; nn.Linear(np.Inf)\n\
                    z = x.np.object\nI.ANTIALIAS; os.path.join(a)\n\
                    w = np.str if hasattr(np, 'str') else str\nnp\nnp.NaN = np.nan\nnp.a == 1\n";
        assert_eq!(
            uses(text),
            [
                "5 numpy.float",
                "6 torch.nn.Linear",
                "6 numpy.Inf",
                "8 PIL.Image.ANTIALIAS",
                "8 os.path.join",
                "9 numpy.str",
                "9 numpy.str is provided",
                "11 numpy.NaN is provided",
                "11 numpy.nan",
                "12 numpy.a",
            ]
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "((import|from|as|a|b|np|\\.|,|\\(|\\)|=|'|#|\n|é) ?){0,60}") {
            uses(&text);
        }
    }
}
