//! Patterns of names.

/// Whether a name fits a pattern of `*`, `?`, sets of characters in brackets, and characters themselves, with `\\`
/// before those that would mean something else (glob(7)). It takes no more steps than both have characters, multiplied.
#[must_use]
pub fn fits_glob(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut to) = (0, 0);
    // Where to go on after the last `*`, which takes one character more.
    let mut again: Option<(usize, usize)> = None;
    while to < name.len() {
        let step = match pattern.get(at) {
            Some('*') => {
                again = Some((at, to));
                at += 1;
                continue;
            }
            Some('?') => Some(1),
            Some('\\') => (pattern.get(at + 1) == Some(&name[to])).then_some(2),
            Some('[') => fit_set(&pattern[at..], name[to]),
            Some(c) => (*c == name[to]).then_some(1),
            None => None,
        };
        match (step, again) {
            (Some(length), _) => (at, to) = (at + length, to + 1),
            (None, Some((star, from))) => {
                again = Some((star, from + 1));
                (at, to) = (star + 1, from + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

/// The length of a set in brackets, where it has a character.
fn fit_set(pattern: &[char], c: char) -> Option<usize> {
    let end = pattern.iter().skip(2).position(|c| *c == ']')? + 2;
    let mut set = &pattern[1..end];
    let is_inverse = matches!(set[0], '!' | '^');
    if is_inverse {
        set = &set[1..];
    }
    let mut has = false;
    loop {
        set = match set {
            [first, '-', last, rest @ ..] => {
                has |= (*first..=*last).contains(&c);
                rest
            }
            [first, rest @ ..] => {
                has |= *first == c;
                rest
            }
            [] => break,
        };
    }
    (has != is_inverse).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_patterns() {
        for (pattern, name, is_fit) in [
            ("*[0-9]*", "v1", true),
            ("*[0-9]*", "v", false),
            ("v?.[!a]", "v1.2", true),
            ("v?.[!a]", "v1.a", false),
            ("[]x]", "]", true),
            (r"\*", "*", true),
            (r"\*", "a", false),
            ("[", "[", false),
            ("a*b*c", "a-b-b-c", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(fits_glob(pattern, name), is_fit, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_that_begins_again_and_again_ends() {
        let hostile = "*a".repeat(2000);
        assert!(!fits_glob(&hostile, &"a".repeat(1500)));
    }
}
