//! The version that a build backend gives a project of its repository's tags and commits.
//!
//! The rules are those of setuptools_scm's "Version number construction", of which hatch-vcs, flit-scm and
//! pdm-backend have theirs; of versioningit's and versioneer's default styles; and of dunamai's PEP 440 style, which
//! poetry-dynamic-versioning has. A working tree with changes counts as its commit: to compare it with the commit
//! takes longer than a run's start, and may run filters that its configuration names.

use std::str::FromStr as _;

use pep440_rs::Version;

use crate::fits_glob;

/// Hexadecimal digits of a commit in a version of setuptools_scm (since its 9.0), and of the others.
const NODE_DIGITS: usize = 9;
const SHORT_NODE_DIGITS: usize = 7;

/// Which tool's rules count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionTool {
    /// setuptools_scm, and hatch-vcs and flit-scm, which ask it; pdm-backend.
    SetuptoolsScm,
    /// versioningit.
    Versioningit,
    /// versioneer.
    Versioneer,
    /// poetry-dynamic-versioning.
    Dunamai,
}

/// What becomes of the version of the last tag where commits follow it: setuptools_scm's `version_scheme`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VersionScheme {
    /// `1.2` and three commits are `1.3.dev3`.
    #[default]
    GuessNextDev,
    /// `1.2.post1.dev3`
    NoGuessDev,
    /// `1.2.post3`
    PostRelease,
    /// `1.2`
    OnlyVersion,
    /// `1.2.1.dev3`
    SimplifiedSemver,
    /// `1.3.0.dev3`, as on any branch that is not named by a release.
    ReleaseBranchSemver,
}

/// A file that the backend writes the version to: a module that the package may import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionFile {
    /// Below the project's folder.
    pub path: String,
    /// Its text with `{version}` in it; absent: the tool's own.
    pub template: Option<String>,
}

/// What a project's files say of a version that comes from its repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScmSettings {
    /// Whose rules count.
    pub tool: VersionTool,
    /// `version_scheme`.
    pub scheme: VersionScheme,
    /// Whether the commit stands behind a `+`: not with `local_scheme = "no-local-version"`.
    pub has_local_part: bool,
    /// What tags begin with before the version; absent: what a tag may begin with by default.
    pub tag_prefix: Option<String>,
    /// A pattern of `git describe --match` that tags have to fit.
    pub tag_match: Option<String>,
    /// The version where the repository tells none.
    pub fallback: Option<String>,
    /// The repository's folder as seen from the project's: `.`, `../..`.
    pub root: String,
    /// Whether the repository may be any folder above, too.
    pub searches_parents: bool,
    /// What the backend writes.
    pub file: Option<VersionFile>,
}

impl ScmSettings {
    /// A tool's own settings.
    #[must_use]
    pub fn new(tool: VersionTool) -> Self {
        Self {
            tool,
            scheme: VersionScheme::default(),
            has_local_part: true,
            tag_prefix: None,
            tag_match: None,
            fallback: None,
            root: ".".to_owned(),
            searches_parents: tool != VersionTool::SetuptoolsScm,
            file: None,
        }
    }

    /// The version that a tag names, in its normal form. `None` for a tag that names none, which does not count.
    #[must_use]
    pub fn version_of_tag(&self, tag: &str) -> Option<String> {
        if !self
            .tag_match
            .as_ref()
            .is_none_or(|glob| fits_glob(glob, tag))
        {
            return None;
        }
        let text = match &self.tag_prefix {
            Some(prefix) => tag.strip_prefix(prefix.as_str())?,
            None => without_prefix(tag),
        };
        // What stands behind a `+` in a tag is of another commit.
        let text = text.split('+').next().unwrap_or_default();
        if !text
            .trim_start_matches(['v', 'V'])
            .starts_with(|c: char| c.is_ascii_digit())
        {
            return None;
        }
        Version::from_str(text)
            .ok()
            .map(|version| version.to_string())
    }

    /// The version of a commit: `tag_version` is that of its nearest tag ([`Self::version_of_tag`]), `distance` the
    /// number of commits since then, or of all commits where there is no tag.
    #[must_use]
    pub fn version_of_commit(
        &self,
        tag_version: Option<&str>,
        distance: u64,
        commit: &str,
    ) -> String {
        if let (Some(version), 0) = (tag_version, distance) {
            return version.to_owned();
        }
        let node = |digits: usize| commit.get(..digits).unwrap_or(commit);
        let (long, short) = (node(NODE_DIGITS), node(SHORT_NODE_DIGITS));
        let base = |none: &'static str| tag_version.or(self.fallback.as_deref()).unwrap_or(none);
        match self.tool {
            VersionTool::SetuptoolsScm => {
                let main = self.next_version(base("0.0"), distance);
                match self.has_local_part {
                    true => format!("{main}+g{long}"),
                    false => main,
                }
            }
            VersionTool::Versioningit => match tag_version {
                Some(version) => format!("{version}.post{distance}+g{short}"),
                None => base("0+unknown").to_owned(),
            },
            VersionTool::Versioneer => match tag_version {
                Some(version) => format!("{version}+{distance}.g{short}"),
                None => format!("0+untagged.{distance}.g{short}"),
            },
            VersionTool::Dunamai => {
                format!("{}.post{distance}.dev0+{short}", base("0.0.0"))
            }
        }
    }

    /// The version that comes after `base`.
    fn next_version(&self, base: &str, distance: u64) -> String {
        let public = base.split('+').next().unwrap_or_default();
        let undeveloped = public.rsplit_once(".dev").map(|(before, _)| before);
        let numbers = || -> Vec<u64> {
            let parts = public.split('.').map_while(|part| part.parse().ok());
            parts.take(3).collect()
        };
        let bumped = |keep: usize| {
            let mut parts = numbers();
            parts.resize(keep, 0);
            if let Some(last) = parts.last_mut() {
                *last = last.saturating_add(1);
            }
            parts.resize(3, 0);
            format!("{}.{}.{}", parts[0], parts[1], parts[2])
        };
        let next = match self.scheme {
            VersionScheme::OnlyVersion => return base.to_owned(),
            VersionScheme::PostRelease => return format!("{base}.post{distance}"),
            VersionScheme::GuessNextDev => {
                undeveloped.map_or_else(|| bump_last(public), str::to_owned)
            }
            VersionScheme::NoGuessDev => {
                undeveloped.map_or_else(|| format!("{public}.post1"), str::to_owned)
            }
            VersionScheme::SimplifiedSemver => bumped(3),
            VersionScheme::ReleaseBranchSemver => bumped(2),
        };
        format!("{next}.dev{distance}")
    }
}

impl VersionFile {
    /// The module's text for a version.
    #[must_use]
    pub fn render(&self, version: &str) -> String {
        if let Some(template) = &self.template {
            let text = template
                .replace("{version}", version)
                .replace("{version!r}", &format!("'{version}'"))
                .replace("{version_tuple}", &version_tuple(version))
                .replace("{version_tuple!r}", &version_tuple(version));
            if !text.contains(['{', '}']) {
                return text;
            }
        }
        let commit = version.split_once('+').map(|(_, local)| local);
        let commit = commit.and_then(|local| local.split('.').find(|part| part.starts_with('g')));
        let commit = commit.map_or_else(|| "None".to_owned(), |node| format!("'{node}'"));
        format!(
            "__version__ = version = '{version}'\n__version_tuple__ = version_tuple = {}\n\
             __commit_id__ = commit_id = {commit}\n",
            version_tuple(version)
        )
    }
}

/// `1.3.dev3+gabc` as `(1, 3, 'dev3', 'gabc')`.
fn version_tuple(version: &str) -> String {
    let parts = version
        .split(['.', '+'])
        .map(|part| match part.parse::<u64>() {
            Ok(number) => number.to_string(),
            Err(_) => format!("'{part}'"),
        });
    format!("({},)", parts.collect::<Vec<_>>().join(", "))
}

/// A tag without the dashed words that may stand before its version (setuptools_scm's `tag_regex`).
fn without_prefix(tag: &str) -> &str {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let words = tag.find(|c| !is_word(c)).unwrap_or(tag.len());
    let is_version = |at: &usize| {
        let rest = &tag[*at..];
        let rest = rest.strip_prefix(['v', 'V']).unwrap_or(rest);
        rest.starts_with(|c: char| c.is_ascii_digit())
    };
    let dashes = tag[..words].rmatch_indices('-').map(|(at, _)| at + 1);
    let start = dashes.chain([0]).find(is_version);
    &tag[start.unwrap_or(0)..]
}

/// A version whose last number is one higher.
fn bump_last(version: &str) -> String {
    let before = version.trim_end_matches(|c: char| c.is_ascii_digit());
    match version[before.len()..].parse::<u64>() {
        Ok(last) => format!("{before}{}", last.saturating_add(1)),
        Err(_) => version.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn scm() -> ScmSettings {
        ScmSettings::new(VersionTool::SetuptoolsScm)
    }

    /// Each pair as setuptools_scm 10.3 has it.
    #[test]
    fn tags_name_versions() {
        for (tag, version) in [
            ("v1.2", Some("1.2")),
            ("1.2.3rc1", Some("1.2.3rc1")),
            ("V2.0", Some("2.0")),
            ("release-1.0", Some("1.0")),
            ("my-net-v1.2.0", Some("1.2.0")),
            ("1.0-rc1", Some("1.0rc1")),
            ("v1.0+cu118", Some("1.0")),
            ("2024-stable", None),
            ("nightly", None),
            ("build7", None),
            ("", None),
            ("v", None),
            ("größe-1", Some("1")),
        ] {
            assert_eq!(scm().version_of_tag(tag).as_deref(), version, "{tag}");
        }
    }

    #[test]
    fn a_project_among_others_has_tags_of_its_own() {
        let prefixed = ScmSettings {
            tag_prefix: Some("net-".to_owned()),
            ..scm()
        };
        assert_eq!(prefixed.version_of_tag("net-v1.2").as_deref(), Some("1.2"));
        assert_eq!(prefixed.version_of_tag("other-1.2"), None);
        let matched = ScmSettings {
            tag_match: Some("v[0-9]*".to_owned()),
            ..scm()
        };
        assert_eq!(matched.version_of_tag("v3").as_deref(), Some("3"));
        assert_eq!(matched.version_of_tag("lib-v3"), None);
    }

    /// As setuptools_scm 10.3 writes them.
    #[test]
    fn commits_after_a_tag_lead_to_the_next_version() {
        let of = |scheme, tag: Option<&str>, distance| {
            let settings = ScmSettings { scheme, ..scm() };
            settings.version_of_commit(tag, distance, COMMIT)
        };
        use VersionScheme::*;
        for (scheme, tag, distance, version) in [
            (GuessNextDev, Some("1.2"), 0, "1.2"),
            (GuessNextDev, Some("1.2"), 3, "1.3.dev3+g012345678"),
            (GuessNextDev, Some("1.2rc1"), 1, "1.2rc2.dev1+g012345678"),
            (GuessNextDev, Some("1.2.dev0"), 4, "1.2.dev4+g012345678"),
            (GuessNextDev, None, 7, "0.1.dev7+g012345678"),
            (NoGuessDev, Some("1.2"), 3, "1.2.post1.dev3+g012345678"),
            (PostRelease, Some("1.2"), 3, "1.2.post3+g012345678"),
            (OnlyVersion, Some("1.2"), 3, "1.2+g012345678"),
            (SimplifiedSemver, Some("1.2"), 3, "1.2.1.dev3+g012345678"),
            (
                ReleaseBranchSemver,
                Some("1.2.4"),
                3,
                "1.3.0.dev3+g012345678",
            ),
        ] {
            assert_eq!(of(scheme, tag, distance), version);
        }
        let plain = ScmSettings {
            has_local_part: false,
            fallback: Some("2.0".to_owned()),
            ..scm()
        };
        assert_eq!(plain.version_of_commit(None, 3, COMMIT), "2.1.dev3");
    }

    #[test]
    fn other_tools_have_other_rules() {
        let of = |tool, tag| ScmSettings::new(tool).version_of_commit(tag, 3, COMMIT);
        use VersionTool::*;
        assert_eq!(of(Versioningit, Some("1.2")), "1.2.post3+g0123456");
        assert_eq!(of(Versioneer, Some("1.2")), "1.2+3.g0123456");
        assert_eq!(of(Versioneer, None), "0+untagged.3.g0123456");
        assert_eq!(of(Dunamai, Some("1.2")), "1.2.post3.dev0+0123456");
    }

    #[test]
    fn a_version_is_written_as_a_module() {
        let file = |template: Option<&str>| VersionFile {
            path: "net/_version.py".to_owned(),
            template: template.map(str::to_owned),
        };
        assert_eq!(
            file(None).render("1.3.dev3+gab"),
            "__version__ = version = '1.3.dev3+gab'\n\
             __version_tuple__ = version_tuple = (1, 3, 'dev3', 'gab',)\n__commit_id__ = commit_id = 'gab'\n"
        );
        let own = file(Some("VERSION = \"{version}\"\n"));
        assert_eq!(own.render("1"), "VERSION = \"1\"\n");
        // What only the tool can fill in is not made up.
        let unknown = file(Some("X = {scm_version.branch}\n"));
        assert!(unknown.render("1").starts_with("__version__"));
    }

    proptest::proptest! {
        #[test]
        fn what_is_made_of_any_tag_is_a_version(tag in "(.{0,40}|v?[0-9.a-c-]{1,12})", glob in "[\\[\\]*?!a-c0-9-]{0,12}", distance in 0u64..) {
            let settings = ScmSettings { tag_match: Some(glob), ..scm() };
            for settings in [settings, scm()] {
                if let Some(version) = settings.version_of_tag(&tag) {
                    let next = settings.version_of_commit(Some(&version), distance, COMMIT);
                    proptest::prop_assert!(Version::from_str(&next).is_ok(), "{}", next);
                }
            }
        }
    }
}
