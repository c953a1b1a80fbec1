//! One requirement (PEP 508), as far as it matters whether Sconce can lock it.

use sconce_base::text::redact_url_credentials;
use sconce_formats::normalize_project_name;

/// A requirement that can stand in `[python] packages`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requirement {
    /// The project, normalised.
    pub(super) name: String,
    /// As it is written in the spec: one line, no options, no credentials.
    pub(super) text: String,
    /// It says which version or file, not only which project.
    pub(super) versioned: bool,
    /// It has an environment marker.
    pub(super) marked: bool,
    /// It held a login, which `text` does not have.
    pub(super) had_login: bool,
}

/// Why a line is no requirement that can be locked, and what to do about it.
pub(super) type UnsupportedReason = &'static str;

pub(super) const SOURCES: UnsupportedReason =
    "only wheels are locked: build one (`pip wheel`) and name it as `name @ file:///…`";
pub(super) const PROJECT: UnsupportedReason = "the project's own folder is not installed but is /workspace inside; \
     for a src/ layout, set PYTHONPATH = \"/workspace/src\" in [run.env]";
pub(super) const LOCAL: UnsupportedReason =
    "a file of this machine: name it as `name @ file:///…`, with its whole path";
pub(super) const VARIABLE: UnsupportedReason = "its text depends on a variable: write it out";
pub(super) const NOT_ONE: UnsupportedReason = "not a requirement that is understood";
pub(super) const LOGIN: &str =
    "the login in its address is left out, as the spec is shared: put it into ~/.netrc";

/// The longest requirement.
const MAX_REQUIREMENT_BYTES: usize = 2000;

/// Reads a requirement without comment and options.
pub(super) fn parse(text: &str) -> Result<Requirement, UnsupportedReason> {
    let text = text.trim();
    if text.len() > MAX_REQUIREMENT_BYTES || text.chars().any(char::is_control) {
        return Err(NOT_ONE);
    }
    if text.contains("${") {
        return Err(VARIABLE);
    }
    if is_repository(text) {
        return Err(SOURCES);
    }
    if is_local(text) {
        return Err(if text.ends_with(".whl") {
            LOCAL
        } else if text.ends_with(".gz") || text.ends_with(".zip") {
            SOURCES
        } else {
            PROJECT
        });
    }
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)))
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let name = normalize_project_name(name).ok_or(NOT_ONE)?;
    let rest = rest.trim();
    let (extras, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or(NOT_ONE)?,
        None => ("", rest),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_., ".contains(c);
    if !extras.chars().all(plain) {
        return Err(NOT_ONE);
    }
    let rest = rest.trim();
    if let Some(url) = rest.strip_prefix('@') {
        return at_url(name, text, url.trim());
    }
    let (version, marker) = match rest.split_once(';') {
        Some((version, marker)) => (version.trim(), Some(marker.trim())),
        None => (rest, None),
    };
    let of_version = |c: char| c.is_ascii_alphanumeric() || "<>=!~,.*+-_() ".contains(c);
    let begins = version.is_empty() || version.starts_with(['<', '>', '=', '!', '~', '(']);
    if !begins || !version.chars().all(of_version) {
        return Err(NOT_ONE);
    }
    Ok(Requirement {
        name,
        text: text.to_owned(),
        versioned: !version.is_empty(),
        marked: marker.is_some(),
        had_login: false,
    })
}

fn at_url(name: String, text: &str, url: &str) -> Result<Requirement, UnsupportedReason> {
    // A marker after a URL has a space before its semicolon (PEP 508).
    let (address, marker) = match url.split_once(" ;") {
        Some((address, marker)) => (address.trim(), Some(marker)),
        None => (url, None),
    };
    if is_repository(address) {
        return Err(SOURCES);
    }
    let file = address.split(['?', '#']).next().unwrap_or_default();
    let known = ["https://", "http://", "file://"]
        .iter()
        .any(|scheme| address.starts_with(scheme));
    if !known || address.contains(char::is_whitespace) {
        return Err(NOT_ONE);
    }
    if !file.ends_with(".whl") {
        return Err(SOURCES);
    }
    let clean = redact_url_credentials(text);
    Ok(Requirement {
        name,
        versioned: true,
        marked: marker.is_some(),
        had_login: clean != text,
        text: clean,
    })
}

impl Requirement {
    /// The version of `==`, where it names one: `2.6.0`, `2.6.0+cu124`.
    pub(super) fn pinned_version(&self) -> Option<&str> {
        let (_, version) = self.text.split_once("==")?;
        let version = version.trim_start_matches('=').split([';', ',']).next()?;
        let version = version.trim().trim_end_matches(')');
        let only = !self.text.contains(['<', '>', '~', '!', '@']) || self.marked;
        (only && !version.is_empty()).then_some(version)
    }
}

/// `git+https://…` and its kind.
fn is_repository(text: &str) -> bool {
    ["git+", "hg+", "svn+", "bzr+", "git://", "ssh://", "git@"]
        .iter()
        .any(|scheme| text.starts_with(scheme))
}

/// A path or a bare URL instead of a name.
fn is_local(text: &str) -> bool {
    let path = text.split([' ', ';', '[']).next().unwrap_or_default();
    path.starts_with(['.', '/', '~'])
        || path.contains("://") && !text.contains('@')
        || ["http://", "https://", "file:"]
            .iter()
            .any(|scheme| text.starts_with(scheme))
        || path.contains('/')
        || path.ends_with(".whl")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requirements_are_names_with_versions() {
        for (text, name, versioned, pin) in [
            ("torch==2.6.0+cu124", "torch", true, Some("2.6.0+cu124")),
            ("Scikit_Learn", "scikit-learn", false, None),
            ("numpy >= 1.20, <2", "numpy", true, None),
            (
                "ray[data,train]==2.9 ; python_version < '3.12'",
                "ray",
                true,
                Some("2.9"),
            ),
            ("x (==1.0)", "x", true, Some("1.0")),
            (
                "flash-attn @ https://a.example.org/flash_attn-2.7-cp313-cp313-linux_x86_64.whl#sha256=ab",
                "flash-attn",
                true,
                None,
            ),
        ] {
            let requirement = parse(text).expect(text);
            assert_eq!(requirement.name, name);
            assert_eq!(requirement.text, text);
            assert_eq!(requirement.versioned, versioned, "{text}");
            assert_eq!(requirement.pinned_version(), pin, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_locked_says_why() {
        for (text, why) in [
            ("git+https://git.example.org/me/x.git@v1", SOURCES),
            ("x @ git+ssh://git@git.example.org/me/x", SOURCES),
            ("x @ https://a.example.org/x-1.0.tar.gz", SOURCES),
            ("https://a.example.org/x-1.0.zip", SOURCES),
            ("numpy @ file:///croot/numpy_1/work", SOURCES),
            (".", PROJECT),
            ("./lib[extra]", PROJECT),
            ("libs/mine", PROJECT),
            ("./dist/x-1.0-py3-none-any.whl", LOCAL),
            ("x==${VERSION}", VARIABLE),
            ("--pre", NOT_ONE),
            ("a b c", NOT_ONE),
            ("", NOT_ONE),
        ] {
            assert_eq!(parse(text), Err(why), "{text}");
        }
    }

    #[test]
    fn a_login_does_not_come_along() {
        let text = "x @ https://me:s3cret@a.example.org/x-1.0-py3-none-any.whl";
        let requirement = parse(text).unwrap();
        assert!(requirement.had_login);
        assert!(!requirement.text.contains("s3cret"));
    }

    proptest! {
        #[test]
        fn is_one_line_and_no_option(text in "(?s).{0,60}") {
            if let Ok(requirement) = parse(&text) {
                prop_assert!(!requirement.text.starts_with('-'));
                prop_assert!(!requirement.text.contains(['\n', '\r', '\0']));
                prop_assert_eq!(parse(&requirement.text), Ok(requirement));
            }
        }
    }
}
