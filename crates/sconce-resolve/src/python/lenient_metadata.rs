//! Requirements that a package's own metadata has wrong: uv mends what it reads of wheels, and refuses the same text
//! where it stands in its settings. The usual slips are mended as uv does; of what remains the version is dropped.

use std::str::FromStr as _;

use pep440_rs::VersionSpecifiers;

/// A requirement that uv reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadableRequirement {
    /// The requirement.
    pub(crate) text: String,
    /// Whether something of it was dropped that could not be read.
    pub(crate) is_shortened: bool,
}

/// A requirement as uv reads it (PEP 508); `None` where not even its project can be told.
pub(crate) fn read_requirement(text: &str) -> Option<ReadableRequirement> {
    let text = text.trim();
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let end = text.find(|c: char| !is_name(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    sconce_formats::normalize_project_name(name)?;
    let rest = rest.trim_start();
    let (extras, rest) = match rest.strip_prefix('[') {
        Some(list) => {
            let (list, rest) = list.split_once(']')?;
            let mut extras = list.split(',').map(str::trim);
            let good = |extra: &str| sconce_formats::normalize_project_name(extra).is_some();
            match extras.all(good) {
                true => (format!("[{list}]"), rest.trim_start()),
                false => (String::new(), rest.trim_start()),
            }
        }
        None => (String::new(), rest),
    };
    // An address may hold anything; whose it is, is looked at elsewhere.
    if rest.starts_with('@') {
        return Some(ReadableRequirement {
            text: text.to_owned(),
            is_shortened: false,
        });
    }
    let (version, marker) = match rest.split_once(';') {
        Some((version, marker)) => (version.trim(), marker.trim()),
        None => (rest.trim(), ""),
    };
    let specifiers = read_specifiers(version);
    let readable_marker = read_marker(marker);
    // Whatever an extra brings is not needed without it.
    if readable_marker.is_none() && marker.contains("extra") {
        return None;
    }
    let is_shortened = specifiers.is_none() || readable_marker.is_none();
    let mut readable = format!("{name}{extras}{}", specifiers.unwrap_or_default());
    if let Some(marker) = readable_marker.filter(|marker| !marker.is_empty()) {
        readable += &format!(" ; {marker}");
    }
    Some(ReadableRequirement {
        text: readable,
        is_shortened,
    })
}

/// Version specifiers as uv reads them (PEP 440): `(>=3.)` is `>=3`; empty where there are none.
pub(crate) fn read_specifiers(text: &str) -> Option<String> {
    let text = text.trim();
    let bare = text.strip_prefix('(').unwrap_or(text);
    let bare = bare.trim_end().strip_suffix(')').unwrap_or(bare).trim();
    if VersionSpecifiers::from_str(bare).is_ok() {
        return Some(bare.to_owned());
    }
    let mut clauses = Vec::new();
    for clause in split_clauses(bare) {
        let clause: String = clause
            .chars()
            .filter(|c| !"'\"()".contains(*c) && !c.is_whitespace())
            .collect();
        if clause.is_empty() {
            continue;
        }
        let mended = mend_clause(&clause);
        if mended.is_empty() {
            continue;
        }
        VersionSpecifiers::from_str(&mended).ok()?;
        clauses.push(mended);
    }
    Some(clauses.join(","))
}

/// The parts between commas, and before an operator where the comma is missing: `>=7.2<8`.
fn split_clauses(text: &str) -> Vec<String> {
    let is_operator = |c: char| "<>=!~".contains(c);
    let mut clauses = vec![String::new()];
    let mut before = ',';
    for c in text.chars() {
        let begins = is_operator(c) && !is_operator(before) && before != ',';
        if c == ',' || begins {
            clauses.push(String::new());
        }
        if c != ',' {
            clauses.last_mut().expect("there is one").push(c);
        }
        if !c.is_whitespace() {
            before = c;
        }
    }
    clauses
}

/// One clause without spaces and quotes: `>=3.` is `>=3`, `>=1.*` is `>=1`, `!=3.0*` is `!=3.0.*`, `=2` is `==2`.
fn mend_clause(clause: &str) -> String {
    let is_operator = |c: char| "<>=!~".contains(c);
    let end = clause.find(|c: char| !is_operator(c));
    let (operator, version) = clause.split_at(end.unwrap_or(clause.len()));
    let (operator, is_prefix) = match operator {
        "=" | "" => ("==", false),
        "=>" => (">=", false),
        "=<" => ("<=", false),
        "=~" => ("~=", false),
        "!=~" => ("!=", true),
        other => (other, false),
    };
    let has_star = version.ends_with('*') || is_prefix;
    let version = version.trim_end_matches(['*', '.', '-']);
    match (has_star, operator) {
        // It is any version.
        (true, _) if version.is_empty() => String::new(),
        (true, "==" | "!=") => format!("{operator}{version}.*"),
        // `~=1.*` is `>=1`.
        (_, "~=") if has_star || !version.contains('.') => format!(">={version}"),
        _ => format!("{operator}{version}"),
    }
}

/// What markers compare (PEP 508), and names of theirs from before it.
const VARIABLES: [&str; 17] = [
    "extra",
    "implementation_name",
    "implementation_version",
    "os.name",
    "os_name",
    "platform.machine",
    "platform.python_implementation",
    "platform.version",
    "platform_machine",
    "platform_python_implementation",
    "platform_release",
    "platform_system",
    "platform_version",
    "python_full_version",
    "python_implementation",
    "python_version",
    "sys.platform",
];

/// A marker as uv reads it: `python_version<3.8` gets its quotes.
fn read_marker(text: &str) -> Option<String> {
    let tokens = marker_tokens(text)?;
    if tokens.is_empty() {
        return Some(String::new());
    }
    let rest = read_any(&tokens)?;
    rest.is_empty().then(|| tokens.join(" "))
}

/// Words, operators, quoted values and brackets; what has no quotes and is no variable gets some.
fn marker_tokens(text: &str) -> Option<Vec<String>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '(' | ')' => 1,
            '"' | '\'' => rest[1..].find(first)? + 2,
            c if "<>=!~".contains(c) => rest.find(|c: char| !"<>=!~".contains(c))?,
            _ => {
                let ends = |c: char| c.is_whitespace() || "()<>=!~'\"".contains(c);
                rest.find(ends).unwrap_or(rest.len())
            }
        };
        let token = &rest[..length];
        let is_word = !"()'\"<>=!~".contains(first);
        let is_known = ["and", "or", "in", "not", "sys_platform"].contains(&token)
            || VARIABLES.contains(&token);
        tokens.push(match (is_word && !is_known, token) {
            (true, _) => format!("'{token}'"),
            (false, "=") => "==".to_owned(),
            (false, "=>") => ">=".to_owned(),
            (false, "=<") => "<=".to_owned(),
            (false, token) => token.to_owned(),
        });
        rest = rest[length..].trim_start();
    }
    Some(tokens)
}

/// `a or b`, `a and b`; what is behind it.
fn read_any(tokens: &[String]) -> Option<&[String]> {
    let mut rest = read_one(tokens)?;
    while let Some((first, more)) = rest.split_first()
        && (first == "and" || first == "or")
    {
        rest = read_one(more)?;
    }
    Some(rest)
}

/// One comparison, or what stands in brackets; what is behind it.
fn read_one(tokens: &[String]) -> Option<&[String]> {
    let (first, rest) = tokens.split_first()?;
    if first == "(" {
        let (last, rest) = read_any(rest)?.split_first()?;
        return (last == ")").then_some(rest);
    }
    let is_value = |token: &str| {
        token.starts_with(['\'', '"']) || token == "sys_platform" || VARIABLES.contains(&token)
    };
    let (operator, rest) = rest.split_first()?;
    let rest = match operator.as_str() {
        "not" => rest.split_first().filter(|(next, _)| *next == "in")?.1,
        "in" | "<" | "<=" | ">" | ">=" | "==" | "!=" | "~=" | "===" => rest,
        _ => return None,
    };
    let (value, rest) = rest.split_first()?;
    let is_quoted = |token: &str| token.starts_with(['\'', '"']);
    let is_good = is_value(first) && is_value(value) && is_quoted(first) != is_quoted(value);
    is_good.then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_slips_are_mended() {
        for (written, expected) in [
            ("numpy>=1.18.0", "numpy>=1.18.0"),
            (
                "opencv-python (>=3.) ; extra == 'all'",
                "opencv-python>=3 ; extra == 'all'",
            ),
            ("torch (>=1.9.*)", "torch>=1.9"),
            ("x>=2.7,!=3.0*,!=3.1.*", "x>=2.7,!=3.0.*,!=3.1.*"),
            (
                "elasticsearch-dsl (>=7.2.0<8.0.0)",
                "elasticsearch-dsl>=7.2.0,<8.0.0",
            ),
            ("x !=~5.0", "x!=5.0.*"),
            ("x >=1.0,", "x>=1.0"),
            ("x (>=1.0,)", "x>=1.0"),
            ("x >='1.0'", "x>=1.0"),
            ("x[a,b]=>1", "x[a,b]>=1"),
            ("x ==*", "x"),
            ("x (*)", "x"),
            ("x 1.5", "x==1.5"),
            ("x ~=1.*", "x>=1"),
            ("x; python_version<3.8", "x ; python_version < '3.8'"),
            (
                "x>1 ; (python_version < \"3\" or os_name=='nt') and extra == 'y z'",
                "x>1 ; ( python_version < \"3\" or os_name == 'nt' ) and extra == 'y z'",
            ),
            ("x ; 'linux' in sys_platform", "x ; 'linux' in sys_platform"),
            (
                "x @ https://example.org/a;b.zip ; what",
                "x @ https://example.org/a;b.zip ; what",
            ),
        ] {
            let read = read_requirement(written).unwrap();
            assert_eq!(read.text, expected, "{written}");
            assert!(!read.is_shortened, "{written}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_dropped() {
        for (written, expected) in [
            ("x>=one", "x"),
            ("x>=1 ; python_version", "x>=1"),
            ("x>=1 ; whatever > 3", "x>=1"),
            ("x>=1 ; python_version < '3", "x>=1"),
            ("x ><1 ; extra == 'a'", "x ; extra == 'a'"),
        ] {
            let read = read_requirement(written).unwrap();
            assert_eq!(
                (&*read.text, read.is_shortened),
                (expected, true),
                "{written}"
            );
        }
        for written in ["", "(>=1)", "x ; extra = ", "x[a"] {
            assert_eq!(read_requirement(written), None, "{written}");
        }
        assert_eq!(read_specifiers(">=3.6.*").as_deref(), Some(">=3.6"));
        assert_eq!(read_specifiers("whatever"), None);
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(text in ".{0,60}") {
            if let Some(read) = read_requirement(&text) {
                proptest::prop_assert!(!read.text.is_empty());
            }
        }

        #[test]
        fn what_is_read_stays_as_it_is(text in "x ?[<>=!~]{1,2}[0-9.*]{1,6}[,;]? ?(python_version|extra)?[<>=]{0,2}['3.]{0,4}") {
            if let Some(read) = read_requirement(&text) {
                let again = read_requirement(&read.text).unwrap();
                proptest::prop_assert_eq!(again.text, read.text);
                proptest::prop_assert!(!again.is_shortened);
            }
        }
    }
}
