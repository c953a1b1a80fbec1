//! How single packages are built from their sources, beside what they say themselves: uv's settings
//! `extra-build-dependencies`, `extra-build-variables`, `no-build-isolation` and
//! `no-build-isolation-package` (<https://docs.astral.sh/uv/reference/settings/>), and pip's
//! `--no-build-isolation`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::str::FromStr as _;

use pep440_rs::{Version, VersionSpecifiers};
use sconce_formats::normalize_project_name;
use sconce_schema::lock::{BuildRequest, Wheel};
use sconce_schema::{Hint, exit};
use serde::Serialize;
use toml::{Table, Value};

use super::uv_settings;

/// The most variables of one package, and the longest of their values in bytes.
const MAX_VARIABLES: usize = 100;
const MAX_VALUE_BYTES: usize = 4096;
/// The most further requirements of one package, and the longest of them in bytes.
const MAX_REQUIREMENTS: usize = 200;
const MAX_REQUIREMENT_BYTES: usize = 1000;
/// Variables that a build has from Sconce, or that make another program of an interpreter or a shell.
const RESERVED: [&str; 14] = [
    "BASH_ENV",
    "ENV",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "HOME",
    "IFS",
    "LC_ALL",
    "LOCPATH",
    "PATH",
    "PERL5OPT",
    "SHELL",
    "SOURCE_DATE_EPOCH",
    "TZ",
    "VIRTUAL_ENV",
];
/// Beginnings of such names.
const RESERVED_PREFIXES: [&str; 7] = [
    "LD_",
    "PYTHON",
    "PIP_",
    "SCONCE_",
    "UV_",
    "GIT_",
    "BASH_FUNC_",
];

/// Why a package is not built as the settings say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildSettingError {
    /// A further requirement that is none.
    #[error("`{text}` of `extra-build-dependencies` for {package} {why}")]
    Requirement {
        /// The package.
        package: String,
        /// As it stands in the settings.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A requirement that is to have the environment's version, which has none.
    #[error(
        "{package} is built with the environment's `{requirement}` (`match-runtime = true`), which has none"
    )]
    NotInstalled {
        /// The package.
        package: String,
        /// What is asked for.
        requirement: String,
    },
    /// A variable that a build may not have.
    #[error("`{name}` of `extra-build-variables` for {package} {why}")]
    Variable {
        /// The package.
        package: String,
        /// The variable.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More than any build needs.
    #[error("the settings for the build of {package} have more than {limit} {what}")]
    TooMany {
        /// The package.
        package: String,
        /// Of what.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

impl Hint for BuildSettingError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Requirement { .. } => {
                "write a name of the index and a version, as in `torch>=2.4`"
            }
            Self::NotInstalled { .. } => {
                "add it to `[python] packages`, or take `match-runtime` out"
            }
            Self::Variable { .. } => {
                "take it out; what is built is found by its requirements and `[system] packages`"
            }
            Self::TooMany { .. } => "take some out",
        };
        Some(text.to_owned())
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// How packages are built, by their normalised names. Nothing of it is checked before a package is built
/// for which it stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BuildSettings {
    extra: BTreeMap<String, Vec<ExtraRequirement>>,
    variables: BTreeMap<String, BTreeMap<String, String>>,
    /// Those that are built in sight of the environment's packages.
    unisolated: BTreeSet<String>,
    /// Whether all are.
    all_unisolated: bool,
}

/// A requirement that a package does not name itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct ExtraRequirement {
    text: String,
    match_runtime: bool,
}

impl BuildSettings {
    /// What uv's settings for `folder` say: those of the nearest `uv.toml`, or `pyproject.toml` with
    /// `[tool.uv]`, in it or above it.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        uv_settings::find_settings(folder).map_or_else(Self::default, |table| Self::parse(&table))
    }

    /// What a `[tool.uv]` says. Its `pip` table counts too, as for `uv pip`; what has another shape is
    /// passed over here, as uv itself refuses it.
    #[must_use]
    pub fn parse(uv: &Table) -> Self {
        let mut settings = Self::default();
        let pip = uv.get("pip").and_then(Value::as_table);
        for table in [Some(uv), pip].into_iter().flatten() {
            settings.add_table(table);
        }
        settings
    }

    fn add_table(&mut self, table: &Table) {
        let by_name = |key: &str| {
            let packages = table
                .get(key)
                .and_then(Value::as_table)
                .into_iter()
                .flatten();
            packages.filter_map(|(name, value)| Some((normalize_project_name(name)?, value)))
        };
        for (name, value) in by_name("extra-build-dependencies") {
            let list = value.as_array().into_iter().flatten();
            self.extra
                .insert(name, list.filter_map(ExtraRequirement::parse).collect());
        }
        for (name, value) in by_name("extra-build-variables") {
            let variables = value.as_table().into_iter().flatten();
            let variables = variables
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
            self.variables.insert(name, variables.collect());
        }
        let names = table
            .get("no-build-isolation-package")
            .and_then(Value::as_array);
        let names = names.into_iter().flatten().filter_map(Value::as_str);
        self.add_unisolated(names);
        let all = table.get("no-build-isolation").and_then(Value::as_bool);
        self.all_unisolated = all.unwrap_or(self.all_unisolated);
    }

    /// These packages are built in sight of the environment's.
    pub fn add_unisolated<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let names = names.into_iter().filter_map(normalize_project_name);
        self.unisolated.extend(names);
    }

    /// All packages are built in sight of the environment's.
    pub fn set_all_unisolated(&mut self) {
        self.all_unisolated = true;
    }

    /// Whether they say nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How `package` is built where the environment has these packages. A requirement without
    /// `match-runtime` gets the environment's version, too, where that is one that it allows: what is
    /// compiled against one version seldom works with another.
    ///
    /// # Errors
    /// A setting for this package that a build may not have, or that the environment does not meet.
    pub fn for_package(
        &self,
        package: &str,
        installed: &[Wheel],
    ) -> Result<BuildRequest, BuildSettingError> {
        let extra = self.extra.get(package).map_or(&[][..], Vec::as_slice);
        let variables = self.variables.get(package).cloned().unwrap_or_default();
        if extra.len() > MAX_REQUIREMENTS {
            return Err(BuildSettingError::TooMany {
                package: package.to_owned(),
                what: "requirements",
                limit: MAX_REQUIREMENTS,
            });
        }
        check_variables(package, &variables)?;
        let pinned = extra.iter().map(|one| one.pin(package, installed));
        Ok(BuildRequest {
            requires: pinned.collect::<Result<_, _>>()?,
            variables,
            sees_environment: self.all_unisolated || self.unisolated.contains(package),
        })
    }
}

impl ExtraRequirement {
    /// `"torch"`, or `{ requirement = "torch", match-runtime = true }`.
    fn parse(value: &Value) -> Option<Self> {
        if let Some(text) = value.as_str() {
            return Some(Self {
                text: text.to_owned(),
                match_runtime: false,
            });
        }
        let table = value.as_table()?;
        let match_runtime = table.get("match-runtime").and_then(Value::as_bool);
        Some(Self {
            text: table.get("requirement")?.as_str()?.to_owned(),
            match_runtime: match_runtime.unwrap_or(false),
        })
    }

    /// The requirement in the environment's version, where that is asked for or allowed.
    fn pin(&self, package: &str, installed: &[Wheel]) -> Result<String, BuildSettingError> {
        let wrong = |why| BuildSettingError::Requirement {
            package: package.to_owned(),
            text: self.text.clone(),
            why,
        };
        let parts = RequirementParts::parse(&self.text).map_err(wrong)?;
        let found = installed.iter().find(|wheel| wheel.name == parts.name);
        let Some(wheel) = found else {
            return match self.match_runtime {
                true => Err(BuildSettingError::NotInstalled {
                    package: package.to_owned(),
                    requirement: self.text.clone(),
                }),
                false => Ok(self.text.trim().to_owned()),
            };
        };
        let is_allowed = || {
            let version = Version::from_str(&wheel.version);
            version.is_ok_and(|version| parts.specifiers.contains(&version))
        };
        if self.match_runtime || is_allowed() {
            return Ok(format!(
                "{}{}=={}{}",
                parts.name, parts.extras, wheel.version, parts.marker
            ));
        }
        Ok(self.text.trim().to_owned())
    }
}

/// A requirement of an index (PEP 508 without an address), taken apart.
struct RequirementParts<'a> {
    name: String,
    /// `[extra]`, or nothing.
    extras: &'a str,
    specifiers: VersionSpecifiers,
    /// With the semicolon before it, or nothing.
    marker: String,
}

impl<'a> RequirementParts<'a> {
    fn parse(text: &'a str) -> Result<Self, &'static str> {
        let text = text.trim();
        if text.len() > MAX_REQUIREMENT_BYTES {
            return Err("is too long");
        }
        if text.contains(|c: char| c.is_control()) {
            return Err("has control characters");
        }
        if text.starts_with('-') {
            return Err("is an option");
        }
        let (before, marker) = match text.split_once(';') {
            Some((before, marker)) => (before.trim(), format!(" ; {}", marker.trim())),
            None => (text, String::new()),
        };
        if before.contains('@') || before.contains("://") {
            return Err("is an address");
        }
        if before.contains(['/', '\\']) || before.starts_with('.') {
            return Err("is a path");
        }
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let end = before.find(|c| !is_of_name(c)).unwrap_or(before.len());
        let (name, rest) = before.split_at(end);
        let name = normalize_project_name(name).ok_or("has no name of a package")?;
        let rest = rest.trim();
        let (extras, versions) = match rest.strip_prefix('[') {
            Some(inner) => {
                let at = inner.find(']').ok_or("has extras without an end")?;
                rest.split_at(at + 2)
            }
            None => ("", rest),
        };
        let versions = versions.trim();
        let versions = versions
            .strip_prefix('(')
            .and_then(|inner| inner.strip_suffix(')'))
            .unwrap_or(versions);
        let specifiers = VersionSpecifiers::from_str(versions)
            .map_err(|_| "does not say which versions it means")?;
        Ok(Self {
            name,
            extras,
            specifiers,
            marker,
        })
    }
}

/// Whether a build may have these variables: those of a lock are checked, too, as others write locks.
///
/// # Errors
/// [`BuildSettingError::Variable`], [`BuildSettingError::TooMany`].
pub fn check_variables(
    package: &str,
    variables: &BTreeMap<String, String>,
) -> Result<(), BuildSettingError> {
    if variables.len() > MAX_VARIABLES {
        return Err(BuildSettingError::TooMany {
            package: package.to_owned(),
            what: "variables",
            limit: MAX_VARIABLES,
        });
    }
    for (name, value) in variables {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(is_of_name)
            && name.len() <= MAX_VALUE_BYTES;
        let why = if !is_name {
            "is no name of a variable"
        } else if RESERVED.contains(&name.as_str())
            || RESERVED_PREFIXES.iter().any(|p| name.starts_with(p))
        {
            "is not for a build to have: it changes which programs and libraries run, or what Sconce sets"
        } else if value.len() > MAX_VALUE_BYTES || value.contains(|c: char| c.is_control()) {
            "has a value that is too long, or of more than one line"
        } else {
            continue;
        };
        return Err(BuildSettingError::Variable {
            package: package.to_owned(),
            name: name.clone(),
            why,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::Sha256;

    fn wheel(name: &str, version: &str) -> Wheel {
        Wheel {
            name: name.to_owned(),
            version: version.to_owned(),
            file: String::new(),
            url: String::new(),
            size: None,
            sha256: Sha256([0; 32]),
            build: None,
        }
    }

    fn of(text: &str) -> BuildSettings {
        BuildSettings::parse(&text.parse().unwrap())
    }

    fn requires(list: &str) -> Result<Vec<String>, BuildSettingError> {
        let settings = of(&format!("extra-build-dependencies = {{ x = [{list}] }}"));
        let installed = [wheel("torch", "2.8.0+cpu"), wheel("numpy", "1.26.4")];
        settings
            .for_package("x", &installed)
            .map(|asked| asked.requires)
    }

    #[test]
    fn settings_of_uv_are_read_by_package() {
        let settings = of("no-build-isolation-package = ['Flash_Attn']\n\
             extra-build-dependencies = { 'Deep.Speed' = ['torch', 3, { match-runtime = true }], odd = 3 }\n\
             extra-build-variables = { x = { FLASH = '1', number = 3 } }\n\
             [pip]\nno-build-isolation-package = ['other']\n");
        let asked = |name: &str| settings.for_package(name, &[]).unwrap();
        assert!(asked("flash-attn").sees_environment && asked("other").sees_environment);
        assert_eq!(asked("deep-speed").requires, ["torch"]);
        assert_eq!(
            asked("x").variables,
            [("FLASH".to_owned(), "1".to_owned())].into()
        );
        assert_eq!(asked("odd"), BuildRequest::default());
        assert!(
            of("no-build-isolation = true")
                .for_package("any", &[])
                .unwrap()
                .sees_environment
        );
        assert!(of("extra-build-dependencies = 3\nno-build-isolation = 'x'").is_empty());
    }

    #[test]
    fn the_environments_version_is_taken_where_it_is_allowed_or_asked_for() {
        for (list, expected) in [
            ("'Torch'", "torch==2.8.0+cpu"),
            (
                "'numpy<2 ; python_version > \"3\"'",
                "numpy==1.26.4 ; python_version > \"3\"",
            ),
            ("'numpy (>=1.20)'", "numpy==1.26.4"),
            ("'numpy>=2'", "numpy>=2"),
            ("'cython<3'", "cython<3"),
            (
                "{ requirement = 'torch[opt]>=9', match-runtime = true }",
                "torch[opt]==2.8.0+cpu",
            ),
        ] {
            assert_eq!(requires(list).unwrap(), [expected], "{list}");
        }
        let missing = requires("{ requirement = 'jax', match-runtime = true }").unwrap_err();
        assert!(
            matches!(missing, BuildSettingError::NotInstalled { .. }),
            "{missing}"
        );
    }

    #[test]
    fn a_requirement_is_a_name_of_an_index() {
        for (text, why) in [
            ("torch @ https://example.org/t.whl", "is an address"),
            ("torch@file:///etc/passwd", "is an address"),
            ("https://example.org/t.whl", "is an address"),
            ("git+https://example.org/t", "is an address"),
            ("./torch", "is a path"),
            ("/etc/passwd", "is a path"),
            ("..", "is a path"),
            ("--index-url=https://example.org", "is an option"),
            ("-r /etc/passwd", "is an option"),
            (
                "torch --hash=sha256:00",
                "does not say which versions it means",
            ),
            ("torch other", "does not say which versions it means"),
            ("torch[a", "has extras without an end"),
            ("torch\\n-r x", "has control characters"),
            ("", "has no name of a package"),
        ] {
            let error = requires(&format!("\"{text}\"")).unwrap_err();
            let said = error.to_string();
            assert!(said.ends_with(why), "{text}: {said}");
        }
        let long = requires(&format!("'{}'", "a".repeat(MAX_REQUIREMENT_BYTES + 1)));
        assert!(long.unwrap_err().to_string().ends_with("is too long"));
        let many = "'a',".repeat(MAX_REQUIREMENTS + 1);
        assert!(matches!(
            requires(&many),
            Err(BuildSettingError::TooMany { .. })
        ));
        // What is for another package does no harm here.
        let settings = of("extra-build-dependencies = { y = ['-r x'] }");
        assert!(settings.for_package("x", &[]).is_ok());
    }

    #[test]
    fn a_variable_changes_no_program_that_runs() {
        let check = |name: &str, value: &str| {
            check_variables("x", &[(name.to_owned(), value.to_owned())].into())
        };
        for name in [
            "FORCE_CUDA",
            "MAX_JOBS",
            "_x",
            "SETUPTOOLS_SCM_PRETEND_VERSION",
            "CFLAGS",
        ] {
            assert_eq!(check(name, "1"), Ok(()), "{name}");
        }
        for name in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "PATH",
            "PYTHONPATH",
            "HOME",
            "PIP_INDEX_URL",
            "SCONCE_BUILD",
            "BASH_ENV",
            "GCONV_PATH",
            "SOURCE_DATE_EPOCH",
            "",
            "a b",
            "A=B",
            "1A",
            "Ä",
            "BASH_FUNC_x%%",
        ] {
            assert!(check(name, "1").is_err(), "{name}");
        }
        for value in ["a\nb", "\0", "\u{1b}[2J", &"x".repeat(MAX_VALUE_BYTES + 1)] {
            assert!(check("A", value).is_err());
        }
        let many = (0..=MAX_VARIABLES).map(|number| (format!("A{number}"), String::new()));
        assert!(check_variables("x", &many.collect()).is_err());
    }
}
