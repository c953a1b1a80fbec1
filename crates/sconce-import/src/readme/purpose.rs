//! What a README's words say of a command: whether it is for installing the project, and for whom.

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
