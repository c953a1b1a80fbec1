//! One requirement (PEP 508), as far as it matters whether Sconce can lock it.

use sconce_base::text::redact_git_credentials;
use sconce_formats::normalize_project_name;
use sconce_schema::Spec;

use super::specifier::{VersionNumbers, compare_versions, parse_numbers};

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
    /// It is installed with `--no-build-isolation`.
    pub(super) unisolated: bool,
}

/// pip's option that says that builds see what is installed.
pub(super) const NO_BUILD_ISOLATION: &str = "--no-build-isolation";

/// Adds the project of a requirement to those that are built in sight of the environment, where it is one.
pub(super) fn note_isolation(one: &Requirement, spec: &mut Spec) {
    let names = &mut spec.python.no_build_isolation;
    if one.unisolated && !names.contains(&one.name) {
        names.push(one.name.clone());
    }
}

/// Why a line is no requirement that can be locked, and what to do about it.
pub(super) type UnsupportedReason = &'static str;

pub(super) const FOLDER: UnsupportedReason =
    "a folder outside the spec's own: what is in it can be named in `[python] editable`";
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
    let address = text.split(" ;").next().unwrap_or_default().trim();
    if let Some((name, source)) = name_of_address(address) {
        let named = match source {
            NameSource::Said => format!("{name} @ {text}"),
            NameSource::Guessed => text.to_owned(),
        };
        return at_url(name, &named, text);
    }
    if is_local(text) {
        let archive = [".whl", ".gz", ".zip"]
            .iter()
            .any(|end| text.ends_with(end));
        return Err(if archive { LOCAL } else { FOLDER });
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
    if !begins || !version.chars().all(of_version) || has_no_version(version) {
        return Err(NOT_ONE);
    }
    Ok(Requirement {
        name,
        text: text.to_owned(),
        versioned: !version.is_empty(),
        marked: marker.is_some(),
        had_login: false,
        unisolated: false,
    })
}

/// Whether a clause names no version: `==latest`, `==` (PEP 440).
fn has_no_version(specifiers: &str) -> bool {
    let clauses = specifiers.trim_matches(['(', ')', ' ']).split(',');
    let mut clauses = clauses
        .map(str::trim)
        .filter(|clause| !clause.is_empty() && !clause.starts_with("==="));
    clauses.any(|clause| {
        let version = clause.trim_start_matches(['<', '>', '=', '!', '~', ' ']);
        let number = version.strip_prefix(['v', 'V']).unwrap_or(version);
        !number.starts_with(|c: char| c.is_ascii_digit())
    })
}

fn at_url(name: String, text: &str, url: &str) -> Result<Requirement, UnsupportedReason> {
    // A marker after a URL has a space before its semicolon (PEP 508).
    let (address, marker) = match url.split_once(" ;") {
        Some((address, marker)) => (address.trim(), Some(marker)),
        None => (url, None),
    };
    let file = address.split(['?', '#']).next().unwrap_or_default();
    let known = ["https://", "http://", "file://"]
        .iter()
        .any(|scheme| address.starts_with(scheme));
    if !(known || is_repository(address)) || address.contains(char::is_whitespace) {
        return Err(NOT_ONE);
    }
    if address.starts_with("file:") && !file.ends_with(".whl") {
        return Err(LOCAL);
    }
    // `#egg=` repeats the name, and says nothing that `name @` does not.
    let text = match text.split_once('#') {
        Some((before, fragment)) if is_repository(address) => {
            let end = fragment.find(char::is_whitespace).unwrap_or(fragment.len());
            let (fragment, rest) = fragment.split_at(end);
            let kept: Vec<&str> = fragment
                .split('&')
                .filter(|part| !part.starts_with("egg="))
                .collect();
            match kept.as_slice() {
                [] => format!("{before}{rest}"),
                kept => format!("{before}#{}{rest}", kept.join("&")),
            }
        }
        _ => text.to_owned(),
    };
    let clean = redact_git_credentials(&text);
    Ok(Requirement {
        name,
        versioned: true,
        marked: marker.is_some(),
        had_login: clean != text,
        unisolated: false,
        text: clean,
    })
}

/// How the project of an address is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameSource {
    /// By `#egg=`, by its file, or as a well-known repository: the requirement names it. A wrong name is an error
    /// when it is locked, never another project.
    Said,
    /// Only as the repository or the folder in it is called: what is built of it says what it is.
    Guessed,
}

/// The project of an address that stands for itself.
fn name_of_address(text: &str) -> Option<(String, NameSource)> {
    let said = |name: &str| Some((normalize_project_name(name)?, NameSource::Said));
    let web = ["https://", "http://"]
        .iter()
        .any(|scheme| text.starts_with(scheme));
    if !web && !is_repository(text) || text.contains(char::is_whitespace) {
        return None;
    }
    let (address, fragment) = text.split_once('#').unwrap_or((text, ""));
    let egg = fragment
        .split('&')
        .find_map(|part| part.strip_prefix("egg="));
    if let Some(egg) = egg {
        return said(egg.split('[').next()?);
    }
    let address = address.split('?').next()?.trim_end_matches('/');
    // The version of `repository.git@v1`, which may have slashes; the host may have a user before it.
    let begin = address.find("://").map_or(0, |at| at + 3);
    let begin = address[begin..].find(['/', ':']).map_or(0, |at| begin + at);
    let repository = address[begin..].split('@').next()?;
    let last = repository.trim_end_matches('/').rsplit(['/', ':']).next()?;
    // `…/OWNER/NAME/archive/refs/heads/main.zip`, GitLab's `…/NAME/-/archive/main/NAME-main.zip`.
    if web && let Some((before, _)) = address.split_once("/archive/") {
        let repository = before.trim_end_matches("/-");
        let last = repository.rsplit('/').next()?;
        return said(known_project_of(repository).unwrap_or(last));
    }
    if web {
        let version = [".whl", ".tar.gz", ".zip", ".tgz"]
            .iter()
            .find_map(|end| last.strip_suffix(end))?;
        return said(version.split('-').next()?);
    }
    let repository = repository.trim_end_matches('/').trim_end_matches(".git");
    if let Some(project) = known_project_of(repository) {
        return said(project);
    }
    let folder = fragment
        .split('&')
        .find_map(|part| part.strip_prefix("subdirectory="));
    let folder = folder.and_then(|path| path.trim_end_matches('/').rsplit('/').next());
    let guess = folder.unwrap_or(last.trim_end_matches(".git"));
    Some((normalize_project_name(guess)?, NameSource::Guessed))
}

/// The project of a well-known repository, by the end of its address.
fn known_project_of(repository: &str) -> Option<&'static str> {
    let is_end = |end: &str| {
        let before = repository.strip_suffix(end);
        before.is_some_and(|before| before.ends_with(['/', ':']))
    };
    let known = REPOSITORIES.iter().find(|(end, _)| is_end(end));
    known.map(|(_, project)| *project)
}

/// Repositories that are called otherwise than the project in them; with the owner where others are called so, too.
const REPOSITORIES: &[(&str, &str)] = &[
    ("cocoapi", "pycocotools"),
    ("facebookresearch/hydra", "hydra-core"),
    ("state-spaces/mamba", "mamba-ssm"),
    ("flash-attention", "flash-attn"),
    ("pytorch-image-models", "timm"),
    ("openai/whisper", "openai-whisper"),
    ("CompVis/stable-diffusion", "latent-diffusion"),
    ("pytorch_geometric", "torch-geometric"),
    ("pytorch_scatter", "torch-scatter"),
    ("pytorch_sparse", "torch-sparse"),
    ("pytorch_cluster", "torch-cluster"),
    ("pytorch-fid", "pytorch-fid"),
    ("TransformerEngine", "transformer-engine"),
    ("pytorch/vision", "torchvision"),
    ("pytorch/audio", "torchaudio"),
];

impl Requirement {
    /// Whether no version meets both this and `other`, as far as bounds say it: `numpy==1.26` and `numpy<1.24`.
    pub(super) fn conflicts_with(&self, other: &Self) -> bool {
        if self.name != other.name || self.marked || other.marked {
            return false;
        }
        let bounds = |one: &Self| (one.highest(), one.lowest());
        let ((own_high, own_low), (other_high, other_low)) = (bounds(self), bounds(other));
        let apart = |low: Option<VersionNumbers>, high: Option<VersionNumbers>| {
            low.zip(high)
                .is_some_and(|(low, high)| compare_versions(&low, &high).is_ge())
        };
        apart(own_low, other_high) || apart(other_low, own_high)
    }

    /// The version that all have to be below (`<`).
    fn highest(&self) -> Option<VersionNumbers> {
        self.bound(&["<"])
    }

    /// A version that none may be below.
    fn lowest(&self) -> Option<VersionNumbers> {
        self.bound(&["==", "===", ">=", ">", "~="])
    }

    fn bound(&self, operators: &[&str]) -> Option<VersionNumbers> {
        let begin = self.text.find(['<', '>', '=', '~', '!'])?;
        let specifiers = self.text[begin..].trim_end_matches(')').split(',');
        specifiers.map(str::trim).find_map(|clause| {
            let end = clause.find(|c: char| !"<>=!~".contains(c))?;
            let (operator, version) = clause.split_at(end);
            operators
                .contains(&operator)
                .then(|| parse_numbers(version.trim_end_matches(".*")))?
        })
    }

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
    // `name@git+https://…`, without spaces.
    let of_name = |c: char| c.is_ascii_alphanumeric() || "-_.[],".contains(c);
    if let Some((name, _)) = text.split_once('@')
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.trim_end().chars().all(of_name)
    {
        return false;
    }
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
    fn bounds_that_are_apart_conflict() {
        for (own, other, conflicts) in [
            ("numpy==1.26.4", "numpy<1.24", true),
            ("numpy<1.24", "numpy==1.26.4", true),
            ("numpy>=1.24,<3", "numpy<1.24", true),
            ("numpy~=2.0", "numpy<2", true),
            ("numpy>=1.20", "numpy<1.24", false),
            ("numpy==1.2*", "numpy<1.24", false),
            ("numpy==1.19.2", "numpy<1.24", false),
            ("numpy", "numpy<1.24", false),
            ("numpy (>=1.25)", "numpy<1.24", true),
            ("numpy==1.26 ; python_version > '3.9'", "numpy<1.24", false),
            ("scipy==1.26", "numpy<1.24", false),
        ] {
            let (own, other) = (parse(own).unwrap(), parse(other).unwrap());
            assert_eq!(
                own.conflicts_with(&other),
                conflicts,
                "{} {}",
                own.text,
                other.text
            );
        }
    }

    #[test]
    fn what_cannot_be_locked_says_why() {
        for (text, why) in [
            ("numpy @ file:///croot/numpy_1/work", LOCAL),
            (".", FOLDER),
            ("./lib[extra]", FOLDER),
            ("libs/mine", FOLDER),
            ("./dist/x-1.0-py3-none-any.whl", LOCAL),
            ("x==${VERSION}", VARIABLE),
            ("--pre", NOT_ONE),
            ("a b c", NOT_ONE),
            ("mmcv-full==latest+torch1.5.0+cu101", NOT_ONE),
            ("numpy>=1.20,<", NOT_ONE),
            ("", NOT_ONE),
        ] {
            assert_eq!(parse(text), Err(why), "{text}");
        }
    }

    #[test]
    fn addresses_have_a_name() {
        for (text, expected) in [
            (
                "git+https://git.example.org/me/X_y.git@v1",
                "git+https://git.example.org/me/X_y.git@v1",
            ),
            (
                "git+https://git.example.org/me/mono#subdirectory=py/pkga",
                "git+https://git.example.org/me/mono#subdirectory=py/pkga",
            ),
            (
                "git+https://git.example.org/me/flash-attention@v2",
                "flash-attn @ git+https://git.example.org/me/flash-attention@v2",
            ),
            (
                "git+https://git.example.org/me/audio",
                "git+https://git.example.org/me/audio",
            ),
            (
                "git+https://me@git.example.org:99/me/X_y.git@release/stable",
                "git+https://git.example.org:99/me/X_y.git@release/stable",
            ),
            (
                "git+https://git.example.org/coco/cocoapi.git#subdirectory=PythonAPI&egg=pycocotools",
                "pycocotools @ git+https://git.example.org/coco/cocoapi.git#subdirectory=PythonAPI",
            ),
            (
                "x @ git+ssh://git@git.example.org/me/x#egg=x",
                "x @ git+ssh://git@git.example.org/me/x",
            ),
            (
                "git+https://git.example.org/x#egg=y ; python_version < '3.9'",
                "y @ git+https://git.example.org/x ; python_version < '3.9'",
            ),
            (
                "https://a.example.org/my_x-1.0.tar.gz",
                "my-x @ https://a.example.org/my_x-1.0.tar.gz",
            ),
            (
                "https://a.example.org/x-1.0-py3-none-any.whl",
                "x @ https://a.example.org/x-1.0-py3-none-any.whl",
            ),
            (
                "x@git+https://git.example.org/y@abc#egg=x",
                "x@git+https://git.example.org/y@abc",
            ),
            (
                "x @ https://a.example.org/x-1.0.tar.gz",
                "x @ https://a.example.org/x-1.0.tar.gz",
            ),
        ] {
            assert_eq!(parse(text).expect(text).text, expected);
        }
    }

    #[test]
    fn a_nameless_address_goes_by_what_it_is_called() {
        for (text, expected) in [
            ("git+https://git.example.org/me/X_y.git@v1", "x-y"),
            (
                "git+ssh://git@git.example.org/me/mono#subdirectory=py/pkga/",
                "pkga",
            ),
            (
                "git+ssh://git@git.example.org/pytorch/vision",
                "torchvision",
            ),
        ] {
            assert_eq!(parse(text).expect(text).name, expected, "{text}");
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
