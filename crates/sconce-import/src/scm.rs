//! Where a project's files say that its version comes from its repository, and by which rules.

use sconce_formats::normalize_project_name;
use sconce_formats::scm_version::{ScmSettings, VersionFile, VersionScheme, VersionTool};
use toml::{Table, Value};

use super::SiblingFiles;
use super::project_table::{array_strings, tool_table};
use super::python::PythonValue;
use super::setup_cfg::config_values;

/// No setting that is read is longer.
const MAX_SETTING_BYTES: usize = 4096;

/// What a pyproject.toml says. `None` where the version comes from elsewhere.
pub(super) fn of_pyproject(root: &Table) -> Option<ScmSettings> {
    let at = |path: &[&str]| {
        let (first, rest) = path.split_first()?;
        let table = tool_table(root, first)?;
        rest.iter()
            .try_fold(table, |table, key| table.get(*key)?.as_table())
    };
    let says = |table: &Table, key: &str, value: &str| {
        table.get(key).and_then(Value::as_str) == Some(value)
    };
    if let Some(table) = at(&["hatch", "version"]).filter(|table| says(table, "source", "vcs")) {
        let options = table.get("raw-options").and_then(Value::as_table);
        let mut settings = of_setuptools_scm(&|key| lookup(options, key));
        let text = |key: &str| lookup(Some(table), key);
        settings.tag_prefix = text("tag-pattern").map_or(settings.tag_prefix, |p| prefix_of(&p));
        settings.fallback = text("fallback-version").or(settings.fallback);
        let hook = at(&["hatch", "build", "hooks", "vcs"]);
        settings.file = file_of(lookup(hook, "version-file"), lookup(hook, "template"));
        return Some(settings);
    }
    if let Some(table) = at(&["pdm", "version"]).filter(|table| says(table, "source", "scm")) {
        let text = |key: &str| lookup(Some(table), key);
        return Some(ScmSettings {
            tag_prefix: text("tag_regex").and_then(|p| prefix_of(&p)),
            tag_match: text("tag_filter"),
            fallback: text("fallback_version"),
            searches_parents: true,
            file: file_of(text("write_to"), text("write_template")),
            ..ScmSettings::new(VersionTool::SetuptoolsScm)
        });
    }
    if let Some(table) = at(&["poetry-dynamic-versioning"]) {
        let is_enabled = table.get("enable").and_then(Value::as_bool) == Some(true);
        return is_enabled.then(|| ScmSettings::new(VersionTool::Dunamai));
    }
    if let Some(table) = at(&["versioningit"]) {
        let write = at(&["versioningit", "write"]);
        return Some(ScmSettings {
            fallback: lookup(Some(table), "default-version"),
            file: file_of(lookup(write, "file"), lookup(write, "template")),
            ..ScmSettings::new(VersionTool::Versioningit)
        });
    }
    if let Some(table) = at(&["versioneer"]) {
        return Some(ScmSettings {
            tag_prefix: lookup(Some(table), "tag_prefix"),
            ..ScmSettings::new(VersionTool::Versioneer)
        });
    }
    let table = at(&["setuptools_scm"]);
    if table.is_none() && !is_built_with_setuptools_scm(root) {
        return None;
    }
    let mut settings = of_setuptools_scm(&|key| lookup(table, key));
    let prefix = lookup(at(&["setuptools_scm", "tag"]), "prefix");
    settings.tag_prefix = prefix.or(settings.tag_prefix);
    Some(settings)
}

/// What the arguments of `setup()` say: `use_scm_version`, or a version that versioneer computes. `source` is the
/// text of the setup.py.
pub(super) fn of_setup_call(
    call: &PythonValue,
    source: &str,
    beside: SiblingFiles<'_>,
) -> Option<ScmSettings> {
    if let Some(value) = call.get("use_scm_version") {
        let text = |key: &str| value.get(key)?.as_text().map(str::to_owned);
        return Some(of_setuptools_scm(&|key| {
            text(key).filter(|text| is_short(text))
        }));
    }
    if !source.contains("versioneer.get_version") {
        return None;
    }
    let config = beside("setup.cfg").unwrap_or_default();
    let mut values = config_values(&config).into_iter();
    let prefix = values.find(|(section, key, _)| (*section, *key) == ("versioneer", "tag_prefix"));
    let prefix = prefix.map(|(_, _, value)| value.trim_matches(['\'', '"', ' ']).to_owned());
    Some(ScmSettings {
        tag_prefix: prefix.filter(|text| is_short(text)),
        ..ScmSettings::new(VersionTool::Versioneer)
    })
}

/// setuptools_scm's own settings ("Configuration parameters").
fn of_setuptools_scm(text: &dyn Fn(&str) -> Option<String>) -> ScmSettings {
    let scheme = match text("version_scheme").as_deref() {
        Some("no-guess-dev") => VersionScheme::NoGuessDev,
        Some("post-release") => VersionScheme::PostRelease,
        Some("only-version") => VersionScheme::OnlyVersion,
        Some("python-simplified-semver" | "semver-pep440") => VersionScheme::SimplifiedSemver,
        Some("release-branch-semver" | "semver-pep440-release-branch") => {
            VersionScheme::ReleaseBranchSemver
        }
        // Those that go by dates or by the project's own code are not followed.
        _ => VersionScheme::GuessNextDev,
    };
    let local = text("local_scheme");
    let without = ["no-local-version", "no-local-version-strict", "dirty-tag"];
    let describe = text("git_describe_command");
    ScmSettings {
        scheme,
        has_local_part: local.is_none_or(|local| !without.contains(&local.as_str())),
        tag_prefix: text("tag_regex").and_then(|regex| prefix_of(&regex)),
        tag_match: describe.and_then(|command| match_of(&command)),
        fallback: text("fallback_version"),
        root: text("root").unwrap_or_else(|| ".".to_owned()),
        searches_parents: text("search_parent_directories").is_some(),
        file: file_of(text("version_file"), text("version_file_template"))
            .or_else(|| file_of(text("write_to"), text("write_to_template"))),
        ..ScmSettings::new(VersionTool::SetuptoolsScm)
    }
}

/// A text, or a list of them as one; `true` is a text, `false` is none.
fn lookup(table: Option<&Table>, key: &str) -> Option<String> {
    let text = match table?.get(key)? {
        Value::String(text) => text.clone(),
        Value::Boolean(true) => "true".to_owned(),
        list @ Value::Array(_) => array_strings(list).join(" "),
        _ => return None,
    };
    Some(text).filter(|text| is_short(text))
}

fn is_short(text: &str) -> bool {
    text.len() <= MAX_SETTING_BYTES
}

/// Whether setuptools_scm is what gives a version that `[project]` leaves open: it needs no table of its own since 8.
fn is_built_with_setuptools_scm(root: &Table) -> bool {
    let list = |table: &str, key: &str| {
        let list = root.get(table).and_then(|table| table.get(key));
        list.map(array_strings).unwrap_or_default()
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let name = |requirement: &&str| {
        let end = requirement.find(|c| !is_name(c));
        normalize_project_name(&requirement[..end.unwrap_or(requirement.len())])
    };
    let is_open = list("project", "dynamic").contains(&"version");
    let requires = list("build-system", "requires");
    let mut names = requires.iter().filter_map(name);
    is_open && names.any(|name| name == "setuptools-scm")
}

fn file_of(path: Option<String>, template: Option<String>) -> Option<VersionFile> {
    Some(VersionFile {
        path: path?,
        template,
    })
}

/// What a regular expression wants before the version; `None` where it wants nothing certain.
fn prefix_of(regex: &str) -> Option<String> {
    let mut prefix = String::new();
    let mut chars = regex.trim_start_matches('^').chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c) if !c.is_ascii_alphanumeric() => prefix.push(c),
                _ => return None,
            },
            '(' | '[' => break,
            '.' | '*' | '+' | '?' | '{' | '|' | '$' | ')' => return None,
            c => prefix.push(c),
        }
        if matches!(chars.peek(), Some('?' | '*' | '{')) {
            // The last character may be missing, as `v` may be by default.
            prefix.pop();
            return (!prefix.is_empty()).then_some(prefix);
        }
    }
    // A `v` may stand before any version.
    let prefix = prefix.trim_end_matches(['v', 'V']);
    (!prefix.is_empty()).then(|| prefix.to_owned())
}

/// The pattern of a call of `git describe --match PATTERN`.
fn match_of(command: &str) -> Option<String> {
    let mut words = command.split_whitespace();
    let pattern = words.find_map(|word| match word.strip_prefix("--match") {
        Some("") => Some(None),
        Some(rest) => Some(rest.strip_prefix('=')),
        None => None,
    })?;
    let pattern = pattern.or_else(|| words.next())?;
    Some(pattern.trim_matches(['\'', '"']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::StaticProject;
    use super::*;

    fn scm(files: &[(&str, &str)]) -> Option<ScmSettings> {
        let beside = |path: &str| {
            let found = files.iter().find(|(name, _)| *name == path)?;
            Some(found.1.to_owned())
        };
        StaticProject::read("folder", &beside).unwrap().scm
    }

    fn of_text(more: &str) -> Option<ScmSettings> {
        let text = format!("[project]\nname = 'a'\ndynamic = ['version']\n{more}");
        scm(&[("pyproject.toml", &text)])
    }

    #[test]
    fn tools_that_ask_git_are_known_by_their_tables() {
        let tool = |more: &str| of_text(more).map(|scm| scm.tool);
        let own = Some(VersionTool::SetuptoolsScm);
        for more in [
            "[tool.setuptools_scm]\n",
            "[build-system]\nrequires = ['setuptools>=64', 'setuptools-scm[toml]>=8']\n",
            "[tool.hatch.version]\nsource = 'vcs'\n",
            "[tool.pdm.version]\nsource = 'scm'\n",
        ] {
            assert_eq!(tool(more), own, "{more}");
        }
        let other = tool("[tool.versioningit]\n");
        assert_eq!(other, Some(VersionTool::Versioningit));
        for more in [
            "",
            "[tool.hatch.version]\npath = 'a/__init__.py'\n",
            "[build-system]\nrequires = ['setuptools']\n",
        ] {
            assert_eq!(of_text(more), None, "{more}");
        }
        // A version that stands there is the version.
        let said = "[project]\nname = 'a'\nversion = '1'\n[tool.setuptools_scm]\n";
        assert_eq!(scm(&[("pyproject.toml", said)]), None);
    }

    #[test]
    fn a_placeholder_is_no_version() {
        let text = "[tool.poetry]\nname = 'a'\nversion = '0.0.0'\n[tool.poetry-dynamic-versioning]\nenable = true\n";
        let beside = |path: &str| (path == "pyproject.toml").then(|| text.to_owned());
        let project = StaticProject::read("folder", &beside).unwrap();
        assert_eq!(project.metadata.version, None);
        assert_eq!(project.scm.unwrap().tool, VersionTool::Dunamai);
    }

    #[test]
    fn settings_are_read() {
        let scm = of_text(
            "[tool.setuptools_scm]\nroot = '../..'\nversion_file = 'src/a/_v.py'\nlocal_scheme = 'no-local-version'\n\
             version_scheme = 'post-release'\ntag_regex = '^a-(?P<version>.*)$'\nfallback_version = '3'\n\
             git_describe_command = ['git', 'describe', '--long', '--match', 'a-*']\n",
        );
        let scm = scm.unwrap();
        assert_eq!((scm.root.as_str(), scm.has_local_part), ("../..", false));
        assert_eq!(scm.scheme, VersionScheme::PostRelease);
        assert_eq!(scm.tag_prefix.as_deref(), Some("a-"));
        assert_eq!(scm.tag_match.as_deref(), Some("a-*"));
        assert_eq!(scm.fallback.as_deref(), Some("3"));
        assert_eq!(scm.file.unwrap().path, "src/a/_v.py");
        let hatch = of_text(
            "[tool.hatch.version]\nsource = 'vcs'\nraw-options = { root = '..' }\n\
             [tool.hatch.build.hooks.vcs]\nversion-file = 'a/_version.py'\n",
        );
        let hatch = hatch.unwrap();
        assert_eq!(hatch.root, "..");
        assert_eq!(hatch.file.unwrap().path, "a/_version.py");
    }

    #[test]
    fn a_setup_that_asks_git_is_known() {
        let plain = scm(&[("setup.py", "setup(name='a', use_scm_version=True)")]);
        assert_eq!(plain, Some(ScmSettings::new(VersionTool::SetuptoolsScm)));
        let written = scm(&[(
            "setup.py",
            "setup(name='a', use_scm_version={'write_to': 'a/version.py', 'root': '..'})",
        )])
        .unwrap();
        assert_eq!(written.root, "..");
        assert_eq!(written.file.unwrap().path, "a/version.py");
        let versioneer = scm(&[
            (
                "setup.py",
                "import versioneer\nsetup(name='a', version=versioneer.get_version())",
            ),
            ("setup.cfg", "[versioneer]\ntag_prefix = 'a-'\n"),
        ])
        .unwrap();
        assert_eq!(versioneer.tool, VersionTool::Versioneer);
        assert_eq!(versioneer.tag_prefix.as_deref(), Some("a-"));
    }

    #[test]
    fn what_a_pattern_begins_with() {
        for (regex, prefix) in [
            ("^(?P<version>v.*)$", None),
            ("^v(?P<version>.*)$", None),
            ("^v?(.*)$", None),
            (r"net\-v(\d+)", Some("net-")),
            ("rel/(.*)", Some("rel/")),
            (r"^\w+-(.*)", None),
            ("(", None),
        ] {
            assert_eq!(prefix_of(regex).as_deref(), prefix, "{regex}");
        }
    }
}
