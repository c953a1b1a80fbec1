//! Licences, as far as packages say them.

/// What a package says of its licence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum License {
    /// An SPDX licence expression (a wheel's `License-Expression`), `MIT OR Apache-2.0`. One that
    /// is not well formed is treated as [`License::Text`], so that a package's metadata cannot
    /// spoil a document.
    Expression(String),
    /// Anything else: a wheel's `License`, a licence's whole text.
    Text(String),
}

impl License {
    /// The expression, if there is one and it is well formed.
    pub(crate) fn valid_expression(&self) -> Option<&str> {
        match self {
            Self::Expression(text) if is_expression(text) => Some(text.trim()),
            _ => None,
        }
    }

    /// What the package wrote.
    pub(crate) fn raw_text(&self) -> &str {
        match self {
            Self::Expression(text) | Self::Text(text) => text,
        }
    }
}

/// The licences of an expression that its package defines itself, `LicenseRef-…`.
pub(crate) fn own_references(expression: &str) -> impl Iterator<Item = &str> {
    let word = |c: char| c.is_whitespace() || "()+".contains(c);
    expression
        .split(word)
        .filter(|w| w.starts_with("LicenseRef-"))
}

/// Whether `text` follows the grammar of SPDX 2.3, annex D. Names are not looked up: the list of
/// licences grows. References to other documents are refused, as there are none here.
fn is_expression(text: &str) -> bool {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let name = |word: &str| {
        let word = word.strip_suffix('+').unwrap_or(word);
        let letters = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        let operator = ["AND", "OR", "WITH"]
            .iter()
            .any(|o| word.eq_ignore_ascii_case(o));
        !word.is_empty() && !operator && word.chars().all(letters)
    };
    let (mut depth, mut value, mut with) = (0_usize, false, false);
    let mut words = spaced.split_whitespace();
    while let Some(word) = words.next() {
        match (word, value) {
            ("(", false) => depth += 1,
            (")", true) if depth > 0 => (depth, with) = (depth - 1, true),
            ("AND" | "OR", true) => (value, with) = (false, false),
            // One exception a licence, and none for a group.
            ("WITH", true) if !with => {
                with = true;
                if !words.next().is_some_and(name) {
                    return false;
                }
            }
            (word, false) if name(word) => value = true,
            _ => return false,
        }
    }
    value && depth == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_told_from_texts() {
        for good in [
            "MIT",
            " Apache-2.0 ",
            "GPL-2.0+ OR MIT",
            "(MIT AND (BSD-3-Clause OR Apache-2.0 WITH LLVM-exception))",
            "LicenseRef-NVIDIA-Proprietary",
        ] {
            let license = License::Expression(good.to_owned());
            assert_eq!(license.valid_expression(), Some(good.trim()));
        }
        for bad in [
            "",
            "Apache 2.0",
            "MIT OR",
            "OR MIT",
            "(MIT",
            "MIT)",
            "()",
            "MIT and BSD",
            "MIT WITH",
            "MIT WITH a WITH b",
            "(MIT) WITH a",
            "AND",
            "DocumentRef-a:LicenseRef-b",
            "MIT; rm",
            "+",
        ] {
            assert_eq!(
                License::Expression(bad.to_owned()).valid_expression(),
                None,
                "{bad}"
            );
        }
        assert_eq!(License::Text("MIT".to_owned()).valid_expression(), None);
    }

    #[test]
    fn a_package_s_own_licences_are_found() {
        let found: Vec<_> = own_references("(LicenseRef-a OR MIT) AND LicenseRef-b+").collect();
        assert_eq!(found, ["LicenseRef-a", "LicenseRef-b"]);
    }
}
