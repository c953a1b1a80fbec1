//! From the text of a `sconce.toml` to a [`Spec`], or to an error that names the line.

use super::{FORMAT, Spec};
use crate::{Hint, exit};

/// What is wrong with a spec. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A key that does not exist.
    #[error("line {line}: there is no key `{key}` here")]
    UnknownKey {
        /// Where.
        line: usize,
        /// The key as written.
        key: String,
        /// The known key that is closest to it, where one is close.
        nearest: Option<String>,
        /// Every key that exists there.
        known: Vec<String>,
    },
    /// Not TOML, or a value of the wrong type or form.
    #[error("line {line}: {message}")]
    Value {
        /// Where.
        line: usize,
        /// What is wrong with it.
        message: String,
        /// How to write it, where that can be told.
        hint: Option<String>,
    },
    /// Written for a newer Sconce.
    #[error("the spec has version {found}; this Sconce reads version {FORMAT}")]
    Newer {
        /// The version that the file names.
        found: u32,
    },
    /// Two keys that exclude each other.
    #[error("[python] has both `{first}` and `{second}`")]
    Both {
        /// One of them.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// Extras or groups without a project that has them.
    #[error("[python] has `{key}` and no project that they are of")]
    NoProject {
        /// The key.
        key: &'static str,
    },
    /// A text that is empty, or has a character that it cannot have.
    #[error("`{key}` cannot be `{value}`")]
    Unfit {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What fits.
        fits: &'static str,
    },
}

impl Hint for SpecError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::UnknownKey {
                nearest: Some(nearest),
                ..
            } => {
                format!("did you mean `{nearest}`?")
            }
            Self::UnknownKey { known, .. } => format!("known keys: {}", known.join(", ")),
            Self::Value { hint, .. } => return hint.clone(),
            Self::Newer { .. } => "update Sconce".to_owned(),
            Self::Both { .. } => {
                "give one of them, and what else there is in `packages`".to_owned()
            }
            Self::NoProject { .. } => {
                "give `pyproject = \"pyproject.toml\"`, `lock` or `editable = [\".\"]`".to_owned()
            }
            Self::Unfit { fits, .. } => (*fits).to_owned(),
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

impl Spec {
    /// Reads the text of a `sconce.toml`.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let spec: Self = toml::from_str(text).map_err(|error| located(text, &error))?;
        spec.check()?;
        Ok(spec)
    }

    /// The rules that a type cannot say.
    fn check(&self) -> Result<(), SpecError> {
        if let Some(found) = self.version.filter(|&v| v > FORMAT) {
            return Err(SpecError::Newer { found });
        }
        let python = &self.python;
        let files = [
            ("requirements", &python.requirements),
            ("pyproject", &python.pyproject),
            ("lock", &python.lock),
        ];
        let mut given = files.iter().filter(|(_, file)| file.is_some());
        if let (Some((first, _)), Some((second, _))) = (given.next(), given.next()) {
            return Err(SpecError::Both { first, second });
        }
        let project =
            python.pyproject.is_some() || python.lock.is_some() || !python.editable.is_empty();
        for (key, values) in [("extras", &python.extras), ("groups", &python.groups)] {
            if !values.is_empty() && !project {
                return Err(SpecError::NoProject { key });
            }
        }
        for name in python.extras.iter().chain(&python.groups) {
            validate_value(
                "python.extras and python.groups",
                Some(name),
                is_name,
                "letters, digits, `.`, `_` and `-`, 63 at most",
            )?;
        }
        for folder in &python.editable {
            validate_value(
                "python.editable",
                Some(folder),
                is_project_folder,
                "a folder in that of the spec, as `.` or `libs/mine`, with its extras as `.[train]`",
            )?;
        }
        validate_value(
            "python.as-of",
            python.as_of.as_deref(),
            is_date,
            "a day such as \"2021-03-25\"",
        )?;
        validate_value(
            "name",
            self.name.as_deref(),
            is_name,
            "letters, digits, `.`, `_` and `-`, 63 at most",
        )?;
        validate_value(
            "python.version",
            python.version.as_deref(),
            |version| is_minor(version) || is_python_bound(version),
            "a version such as \"3.13\", or a bound such as \"<3.11\" or \">=3.9,<3.12\"",
        )?;
        validate_value(
            "system.release",
            Some(&self.system.release),
            |release| matches!(release, "debian/trixie" | "debian/bookworm"),
            "`debian/trixie` and `debian/bookworm` are known",
        )?;
        validate_value(
            "run.workdir",
            self.run.workdir.as_deref(),
            |dir| dir.starts_with('/') && !dir.split('/').any(|part| part == ".."),
            "an absolute path inside the container",
        )?;
        self.check_build()?;
        self.check_services()?;
        for (name, target) in &self.targets {
            target.check(name)?;
        }
        let variable = self.run.env.keys().find(|key| !is_variable(key));
        validate_value(
            "run.env",
            variable.map(String::as_str),
            is_variable,
            "a variable's name has no `=` and is not empty",
        )
    }

    /// Whether a spec's text names the Debian release, which is not to be told from the default
    /// afterwards. Where it does not, the release may follow the Python.
    #[must_use]
    pub fn names_release(text: &str) -> bool {
        let table: Option<toml::Table> = text.parse().ok();
        let system = table.as_ref().and_then(|table| table.get("system"));
        system.is_some_and(|system| system.get("release").is_some())
    }

    /// The one Python that `[python] version` names, `3.13`.
    #[must_use]
    pub fn exact_python(&self) -> Option<&str> {
        let version = self.python.version.as_deref();
        version.filter(|version| is_minor(version))
    }

    /// The Pythons that `[python] version` allows where it names no single one, `<3.11`.
    #[must_use]
    pub fn python_bound(&self) -> Option<&str> {
        let version = self.python.version.as_deref();
        version.filter(|version| !is_minor(version))
    }

    /// What decides the lock, in a fixed form: the `[python]` and `[system]` tables, without the
    /// addresses that packages come from, what stages need beside them, and which services bring
    /// packages.
    ///
    /// # Panics
    /// Never: all of it is plain data.
    #[must_use]
    pub fn lock_inputs(&self) -> String {
        let mut python = self.python.clone();
        (python.index, python.extra_index) = (None, Vec::new());
        let mut system = self.system.clone();
        (system.mirror, system.security_mirror) = (None, None);
        let text = |table: Result<String, toml::ser::Error>| table.expect("plain data");
        let mut inputs = format!(
            "[python]\n{}[system]\n{}",
            text(toml::to_string(&python)),
            text(toml::to_string(&system))
        );
        for more in self.stage_requirements() {
            inputs += &format!("[[more]]\n{}", text(toml::to_string(&more)));
        }
        // Where there is none, nothing: a lock from before there were services stays good.
        for service in self.services.builtin_services() {
            inputs += &format!("[services.{}]\n", service.name());
        }
        inputs
    }
}

pub(super) fn validate_value(
    key: &'static str,
    value: Option<&str>,
    fit: impl Fn(&str) -> bool,
    fits: &'static str,
) -> Result<(), SpecError> {
    match value {
        Some(value) if !fit(value) => Err(SpecError::Unfit {
            key,
            value: value.to_owned(),
            fits,
        }),
        _ => Ok(()),
    }
}

/// A name becomes part of file and host names.
pub(super) fn is_name(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

fn is_minor(text: &str) -> bool {
    let digits =
        |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    text.split_once('.')
        .is_some_and(|(major, minor)| major == "3" && digits(minor))
}

/// Specifiers of PEP 440 with plain numbers, as far as they are about Python 3: `<3.11`, `>=3.9,!=3.10.*`.
fn is_python_bound(text: &str) -> bool {
    let is_clause = |clause: &str| {
        let clause = clause.trim();
        let end = clause.find(|c: char| !"<>=!~".contains(c));
        let (operator, version) = clause.split_at(end.unwrap_or(clause.len()));
        let version = version.trim_start();
        let (numbers, is_prefix) = match version.strip_suffix(".*") {
            Some(numbers) => (numbers, true),
            None => (version, false),
        };
        let digits =
            |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        let count = numbers.split('.').count();
        numbers.split('.').all(digits)
            && count <= 3
            && match operator {
                "==" | "!=" => true,
                "~=" => !is_prefix && count > 1,
                "<" | "<=" | ">" | ">=" => !is_prefix,
                _ => false,
            }
    };
    text.len() <= 100 && text.split(',').all(is_clause)
}

/// A relative path without `..`, with extras behind it in brackets or not.
fn is_project_folder(text: &str) -> bool {
    let (path, extras) = match text.split_once('[') {
        Some((path, rest)) => match rest.strip_suffix(']') {
            Some(extras) => (path.trim_end(), extras),
            None => return false,
        },
        None => (text, ""),
    };
    let known = |extra: &str| extra.is_empty() || is_name(extra.trim());
    !path.is_empty()
        && !path.starts_with(['/', '-', '~'])
        && !path.contains(['\0', '\n', '\r', ']'])
        && !path.split('/').any(|part| part == "..")
        && extras.split(',').all(known)
}

/// Whether a text is a day of ISO 8601, `2021-03-25`.
#[must_use]
pub fn is_date(text: &str) -> bool {
    let number = |part: &str, digits: usize| {
        let plain = part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| part.parse::<u32>().ok()).flatten()
    };
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else {
        return false;
    };
    let (year, month, day) = (number(year, 4), number(month, 2), number(day, 2));
    let leap = |year: u32| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (Some(year), Some(month), Some(day)) = (year, month, day) else {
        return false;
    };
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap(year) => 29,
        2 => 28,
        _ => 0,
    };
    (1..=days).contains(&day)
}

pub(super) fn is_variable(text: &str) -> bool {
    !text.is_empty() && !text.contains(['=', '\0'])
}

/// serde's message and toml's place, as an error of ours.
fn located(text: &str, error: &toml::de::Error) -> SpecError {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = text.as_bytes()[..start]
        .iter()
        .filter(|&&b| b == b'\n')
        .count()
        + 1;
    let message = error.message().lines().next().unwrap_or_default();
    let unknown = message
        .strip_prefix("unknown field `")
        .and_then(|rest| rest.split_once('`'));
    let Some((key, expected)) = unknown else {
        let value = error.span().and_then(|span| text.get(span));
        return SpecError::Value {
            line,
            message: message.to_owned(),
            hint: rewritten(value.unwrap_or_default(), message),
        };
    };
    // serde lists the known keys in backticks: every second piece is one.
    let known: Vec<String> = expected
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    SpecError::UnknownKey {
        line,
        key: key.to_owned(),
        nearest: nearest(key, &known),
        known,
    }
}

/// How to write `value` so that it has the type that serde's message asks for.
fn rewritten(value: &str, message: &str) -> Option<String> {
    let (found, expected) = message
        .strip_prefix("invalid type: ")?
        .split_once(", expected ")?;
    let is = |kinds: &[&str]| kinds.iter().any(|kind| found.starts_with(kind));
    let short = !value.is_empty() && value.len() <= 60 && !value.contains('\n');
    match expected {
        // A command's words, or one requirement: the text does not tell which.
        "a sequence" if is(&["string"]) && short && !value.contains(char::is_whitespace) => {
            Some(format!("write it as a list: [{value}]"))
        }
        "a sequence" => Some("write it as a list: [\"…\", \"…\"]".to_owned()),
        "a string" if is(&["integer", "floating point", "boolean"]) && short => {
            Some(format!("write it in quotes: \"{value}\""))
        }
        _ => None,
    }
}

/// The candidate that `word` is most likely a slip of, if any is close enough.
fn nearest(word: &str, candidates: &[String]) -> Option<String> {
    candidates
        .iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(score, _)| *score > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::GpuRequest;
    use crate::units::{Bytes, Millicores};
    use proptest::prelude::*;

    const FULL: &str = r#"
name = "digits"
[python]
version = "3.13"
packages = ["torch==2.15.0", "torchvision", "scikit-learn"]
[system]
release = "debian/trixie"
packages = []
[run]
command = ["python", "train.py"]
gpus = "all"
cpus = 2.0
memory = "4GiB"
shm = "1GiB"
mounts = ["./data:/data:ro"]
[run.env]
OMP_NUM_THREADS = "2"
"#;

    #[test]
    fn the_documented_spec_is_read() {
        let spec = Spec::parse(FULL).unwrap();
        assert_eq!(spec.name.as_deref(), Some("digits"));
        assert_eq!(spec.run.gpus, Some(GpuRequest::All));
        assert_eq!(spec.run.cpus, Some(Millicores(2000)));
        assert_eq!(spec.run.memory, Some(Bytes::from_gib(4)));
        assert_eq!(spec.run.mounts[0].to_string(), "./data:/data:ro");
        assert_eq!(spec.run.env["OMP_NUM_THREADS"], "2");
    }

    #[test]
    fn an_empty_spec_is_trixie() {
        assert_eq!(Spec::parse("").unwrap().system.release, "debian/trixie");
        assert!(!Spec::names_release("[system]\npackages = [\"git\"]"));
        assert!(Spec::names_release("system.release = \"debian/trixie\""));
    }

    /// Each wrong text, its message and its hint.
    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let cases = [
            (
                "name = 1",
                "line 1: invalid type: integer `1`, expected a string",
                Some("write it in quotes: \"1\""),
            ),
            (
                "[python]\nversion = 3.10",
                "line 2: invalid type: floating point `3.1`, expected a string",
                Some("write it in quotes: \"3.10\""),
            ),
            (
                "[python]\n\npackages = \"torch\"",
                "line 3: invalid type: string \"torch\", expected a sequence",
                Some("write it as a list: [\"torch\"]"),
            ),
            (
                "[run]\ncommand = 1",
                "line 2: invalid type: integer `1`, expected a sequence",
                Some("write it as a list: [\"…\", \"…\"]"),
            ),
            (
                "[run]\ncommand = [\"sleep\", 1]",
                "line 2: invalid type: integer `1`, expected a string",
                Some("write it in quotes: \"1\""),
            ),
            (
                "[run]\ncpus = 2.0\npids = 0",
                "line 3: invalid value: integer `0`, expected at least 1",
                None,
            ),
            (
                "[run]\nsample-hz = 11",
                "line 2: invalid value: integer `11`, expected 1 to 10",
                None,
            ),
            (
                "[run]\npids = -1",
                "line 2: invalid value: integer `-1`, expected at least 1",
                None,
            ),
            (
                "\n[python]\npackges = []",
                "line 3: there is no key `packges` here",
                Some("did you mean `packages`?"),
            ),
            (
                "[rum]\n",
                "line 1: there is no key `rum` here",
                Some("did you mean `run`?"),
            ),
            (
                "[run]\ngpus = \"some\"",
                "line 2: `some` is not \"all\", a number of cards, or a list of indices and UUIDs",
                None,
            ),
            (
                "[run]\ngpus = -1",
                "line 2: invalid value: integer `-1`, expected \"all\", a number of cards, or a list of indices and UUIDs",
                None,
            ),
            (
                "[run]\nmemory = \"4 gigs\"",
                "line 2: `4 gigs` is not a size such as 512MiB or 4GiB",
                None,
            ),
            (
                "[run]\ncpus = 0.0",
                "line 2: `0` is not a number of cores above 0 such as 2 or 0.5",
                None,
            ),
            (
                "[run]\ncommand = \"python train.py\"",
                "line 2: invalid type: string \"python train.py\", expected a sequence",
                Some("write it as a list: [\"…\", \"…\"]"),
            ),
            (
                "[run]\nmounts = [\"data\"]",
                "line 2: `data` is not a mount such as ./data:/data or ./data:/data:ro (the second part absolute)",
                None,
            ),
            (
                "version = 2",
                "the spec has version 2; this Sconce reads version 1",
                Some("update Sconce"),
            ),
            (
                "[python]\nversion = \"4\"",
                "`python.version` cannot be `4`",
                Some("a version such as \"3.13\", or a bound such as \"<3.11\" or \">=3.9,<3.12\""),
            ),
            (
                "[python]\nlock = \"uv.lock\"\nrequirements = \"r.txt\"",
                "[python] has both `requirements` and `lock`",
                Some("give one of them, and what else there is in `packages`"),
            ),
            (
                "[python]\npyproject = \"p.toml\"\nrequirements = \"r.txt\"",
                "[python] has both `requirements` and `pyproject`",
                Some("give one of them, and what else there is in `packages`"),
            ),
            (
                "[python]\nextras = [\"train\"]",
                "[python] has `extras` and no project that they are of",
                Some("give `pyproject = \"pyproject.toml\"`, `lock` or `editable = [\".\"]`"),
            ),
            (
                "[python]\neditable = [\"../other\"]",
                "`python.editable` cannot be `../other`",
                Some(
                    "a folder in that of the spec, as `.` or `libs/mine`, with its extras as `.[train]`",
                ),
            ),
            (
                "[python]\nas-of = \"2021-02-29\"",
                "`python.as-of` cannot be `2021-02-29`",
                Some("a day such as \"2021-03-25\""),
            ),
            (
                "name = \"a/b\"",
                "`name` cannot be `a/b`",
                Some("letters, digits, `.`, `_` and `-`, 63 at most"),
            ),
            (
                "[build]\nrun = [\"true\", \" \"]",
                "`run` cannot be ` `",
                Some("each is a line for bash, such as \"pip install --no-deps ./ext\""),
            ),
            (
                "[system]\nrelease = \"debian/sid\"",
                "`system.release` cannot be `debian/sid`",
                Some("`debian/trixie` and `debian/bookworm` are known"),
            ),
        ];
        for (text, message, hint) in cases {
            let error = Spec::parse(text).expect_err(text);
            assert_eq!(error.to_string(), message, "{text}");
            assert_eq!(error.hint().as_deref(), hint, "{text}");
        }
        assert!(matches!(
            Spec::parse("a = = b"),
            Err(SpecError::Value { line: 1, .. })
        ));
    }

    #[test]
    fn a_key_that_resembles_nothing_lists_what_exists() {
        let error = Spec::parse("[system]\nzzz = 1").unwrap_err();
        assert_eq!(
            error.hint().as_deref(),
            Some("known keys: release, packages, compiler, mirror, security-mirror")
        );
    }

    #[test]
    fn a_python_is_one_or_a_bound() {
        let of = |version: &str| Spec::parse(&format!("[python]\nversion = \"{version}\""));
        for (version, exact) in [
            ("3.10", Some("3.10")),
            ("<3.11", None),
            (">=3.8, <3.11", None),
            ("!=3.9.*,~=3.8", None),
            ("==3.10.*", None),
        ] {
            let spec = of(version).unwrap();
            assert_eq!(spec.exact_python(), exact, "{version}");
            assert_eq!(spec.python_bound().is_none(), exact.is_some(), "{version}");
        }
        for version in [
            "", "3", "3.10.2", "^3.8", "<", "<3.11,", "~=3", "<3.*", "<3.x", "===3.10", "<3.10rc1",
        ] {
            assert!(of(version).is_err(), "{version}");
        }
        assert!(of(&"<3.9,".repeat(40)).is_err());
    }

    #[test]
    fn the_lock_depends_on_packages_and_not_on_mirrors_or_the_command() {
        let base = Spec::parse(FULL).unwrap().lock_inputs();
        let other =
            |from: &str, to: &str| Spec::parse(&FULL.replace(from, to)).unwrap().lock_inputs();
        assert_eq!(base, other("train.py", "other.py"));
        assert_eq!(
            base,
            other("[system]", "[system]\nmirror = \"http://deb.example.org\"")
        );
        // A spec that says nothing of a compiler has the digest that it had before there was one.
        assert!(
            base.ends_with("[system]\nrelease = \"debian/trixie\"\n"),
            "{base}"
        );
        assert_ne!(base, other("[system]", "[system]\ncompiler = false"));
        assert_ne!(base, other("torchvision", "torchaudio"));
        assert_ne!(base, other("trixie", "bookworm"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = Spec::parse(&text);
        }

        #[test]
        fn no_broken_spec_panics(cut in 0..FULL.len(), insert in "\\PC{0,3}") {
            let mut text = FULL.to_owned();
            if text.is_char_boundary(cut) {
                text.insert_str(cut, &insert);
            }
            let _ = Spec::parse(&text);
        }
    }
}
