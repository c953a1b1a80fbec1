//! What a README's words say of a command: whether it is for installing the project, and for whom.

/// Whom a command is for, by the words right before or behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    Everyone,
    /// Those who want something else than what the project needs.
    Some,
    /// Those with another operating system or machine.
    OtherSystem,
}

impl Audience {
    /// Of a line of text before a block. Only the last sentence counts, and of a system only what leads to the
    /// block: a colon ends it, or it is a title in bold.
    pub(super) fn of_lead(lead: &str) -> Self {
        let is_bold = lead.starts_with("**") || lead.starts_with("__");
        let line = lead.trim_matches(|c: char| c.is_whitespace() || "*_".contains(c));
        let last = |mark: &str| line.rfind(mark).map_or(0, |at| at + mark.len());
        let sentence = &line[last(". ").max(last("! ")).max(last("? "))..];
        match Self::of_words(sentence) {
            Self::OtherSystem if !is_bold && !line.ends_with(':') => Self::Everyone,
            audience => audience,
        }
    }

    /// Of a comment or a title.
    pub(super) fn of_words(words: &str) -> Self {
        let words = words.to_lowercase();
        let has = |list: &[&str]| list.iter().any(|word| words.contains(word));
        let conditional = ["if ", "in case "].iter().any(|begin| {
            let at = words.find(begin);
            at.is_some_and(|at| !words[..at].ends_with(char::is_alphanumeric))
        });
        if has(OTHER_SYSTEMS) && !has(&["linux", "ubuntu", "unix"]) {
            Self::OtherSystem
        } else if has(&["optional"]) || conditional && !has(USUAL_CONDITIONS) {
            Self::Some
        } else {
            Self::Everyone
        }
    }
}

const OTHER_SYSTEMS: &[&str] = &[
    "windows",
    "macos",
    "mac os",
    "osx",
    "apple silicon",
    "raspberry",
    "jetson",
];

/// Conditions that hold in an environment which is made, or that only choose among ways to make it.
const USUAL_CONDITIONS: &[&str] = &[
    "already",
    "n't",
    "not have",
    "have not",
    "not installed",
    "pip",
    "conda",
    "mamba",
    "venv",
    "virtualenv",
    "source",
    "linux",
    "ubuntu",
    "debian",
    "gpu",
    "cuda",
];

/// Whether the headings speak of installing: the nearest that says what it is about decides.
pub(super) fn is_about_installing(headings: &[String]) -> bool {
    let has = |heading: &str, words: &[&str]| words.iter().any(|word| heading.contains(word));
    for (distance, heading) in headings.iter().rev().enumerate() {
        if has(heading, OTHER_PURPOSES) {
            return false;
        }
        if has(heading, PURPOSES) || distance == 0 && has(heading, NEAR_PURPOSES) {
            return true;
        }
    }
    // Under the title alone.
    headings.len() < 2
}

const PURPOSES: &[&str] = &[
    "install",
    "setup",
    "set up",
    "set-up",
    "setting up",
    "requirement",
    "prerequisite",
    "dependenc",
    "environment",
];

/// Words that speak of it where nothing stands between them and the command.
const NEAR_PURPOSES: &[&str] = &[
    "getting started",
    "get started",
    "quick start",
    "quickstart",
    "quick tour",
    "preparation",
    "prepare",
    "preparing",
    "how to use",
    "how to run",
    "usage",
];

pub(super) const OTHER_PURPOSES: &[&str] = &[
    "test",
    "docs",
    "documentation",
    "develop",
    "contribut",
    "docker",
    "podman",
    "deploy",
    "benchmark",
    "windows",
    "macos",
    "mac os",
    "apple",
    "raspberry",
    "jetson",
    "tpu",
    "optional",
    "lint",
    "nightly",
    "master",
    "release",
    "citation",
    "troubleshoot",
    "faq",
    "colab",
    "web demo",
    "other version",
    "uninstall",
    "translation",
    "related",
    "acknowledg",
    "changelog",
    "news",
];

/// Installers, and what serves to work on a project.
pub(super) fn is_tool(name: &str) -> bool {
    let names = [
        "pip",
        "setuptools",
        "setuptools-rust",
        "wheel",
        "uv",
        "poetry",
        "pipx",
        "virtualenv",
        "conda",
        "mamba",
        "pdm",
        "hatch",
        "build",
        "twine",
        "tox",
        "nox",
        "black",
        "flake8",
        "ruff",
        "mypy",
        "isort",
        "yapf",
        "pylint",
        "autopep8",
        "pre-commit",
        "coverage",
        "codecov",
        "mkdocs",
        "sphinx",
        "jupyter",
        "jupyterlab",
        "notebook",
        "ipykernel",
    ];
    let begins = ["pytest", "sphinx", "mkdocs"];
    names.contains(&name)
        || begins.iter().any(|begin| name.starts_with(begin))
        || name.ends_with("-nightly")
}

/// What is of the machine, not of an environment.
pub(super) fn is_host_package(name: &str) -> bool {
    let names = [
        "git", "git-lfs", "wget", "curl", "vim", "tmux", "screen", "htop", "sudo", "unzip", "zip",
        "make", "cmake",
    ];
    names.contains(&name)
        || ["nvidia-", "docker", "linux-"]
            .iter()
            .any(|begin| name.starts_with(begin))
}
