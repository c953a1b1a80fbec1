//! Programs that start the command behind their own options.

use super::shell_text::{ShellWord, is_assignment};

/// A program that starts another.
struct Wrapper {
    name: &'static str,
    /// The subcommand by which it does, where it has some.
    subcommand: Option<&'static str>,
    /// Its letters that take a value.
    letters: &'static str,
    /// Its long options that take a value in the next word.
    options: &'static [&'static str],
    /// Words of its own between its options and the command.
    operands: usize,
}

const fn wrapper(name: &'static str, letters: &'static str) -> Wrapper {
    Wrapper {
        name,
        subcommand: None,
        letters,
        options: &[],
        operands: 0,
    }
}

const fn runner(
    name: &'static str,
    letters: &'static str,
    options: &'static [&'static str],
) -> Wrapper {
    Wrapper {
        subcommand: Some("run"),
        options,
        ..wrapper(name, letters)
    }
}

/// Options of `uv run` that take a value (`uv run --help`).
const UV_OPTIONS: &[&str] = &[
    "allow-insecure-host",
    "cache-dir",
    "color",
    "config-file",
    "config-setting",
    "default-index",
    "directory",
    "env-file",
    "exclude-newer",
    "extra",
    "extra-index-url",
    "find-links",
    "fork-strategy",
    "group",
    "index",
    "index-strategy",
    "index-url",
    "keyring-provider",
    "link-mode",
    "no-build-package",
    "no-binary-package",
    "no-editable-package",
    "no-extra",
    "no-group",
    "only-group",
    "package",
    "prerelease",
    "project",
    "python",
    "python-platform",
    "refresh-package",
    "reinstall-package",
    "resolution",
    "upgrade-package",
    "with",
    "with-editable",
    "with-requirements",
];
const CONDA_OPTIONS: &[&str] = &["name", "prefix", "cwd"];

const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        options: &["unset", "chdir"],
        ..wrapper("env", "uC")
    },
    Wrapper {
        options: &["adjustment"],
        ..wrapper("nice", "n")
    },
    Wrapper {
        options: &["class", "classdata"],
        ..wrapper("ionice", "cn")
    },
    Wrapper {
        options: &["format", "output"],
        ..wrapper("time", "fo")
    },
    Wrapper {
        options: &["kill-after", "signal"],
        operands: 1,
        ..wrapper("timeout", "ks")
    },
    Wrapper {
        options: &["input", "output", "error"],
        ..wrapper("stdbuf", "ioe")
    },
    Wrapper {
        options: &[
            "cpunodebind",
            "interleave",
            "membind",
            "physcpubind",
            "preferred",
        ],
        ..wrapper("numactl", "CNPimpw")
    },
    Wrapper {
        operands: 1,
        ..wrapper("taskset", "")
    },
    Wrapper {
        operands: 1,
        ..wrapper("chrt", "DPT")
    },
    wrapper("exec", "a"),
    wrapper("command", ""),
    wrapper("nohup", ""),
    wrapper("setsid", ""),
    runner("uv", "CPfipw", UV_OPTIONS),
    Wrapper {
        options: &["from", "index", "python", "with"],
        ..wrapper("uvx", "pw")
    },
    runner("conda", "np", CONDA_OPTIONS),
    runner("mamba", "np", CONDA_OPTIONS),
    runner("micromamba", "np", CONDA_OPTIONS),
    runner("hatch", "e", &["env"]),
    runner("pdm", "p", &["project"]),
    runner("pipenv", "", &[]),
    runner("pixi", "e", &["environment", "manifest-path"]),
    runner("poetry", "CP", &["directory", "project"]),
    runner("rye", "", &[]),
];

/// What a wrapper starts.
#[derive(Debug)]
pub(super) enum Unwrapped<'a> {
    /// A command.
    Command(&'a [ShellWord]),
    /// A module of Python's, with its arguments.
    Module(&'a [ShellWord]),
}

/// What the program `name` starts with these words behind it; `None` where it starts nothing of them.
pub(super) fn unwrap<'a>(name: &str, words: &'a [ShellWord]) -> Option<Unwrapped<'a>> {
    if name == "nsys" {
        return unwrap_nsys(words);
    }
    let found = WRAPPERS.iter().find(|wrapper| wrapper.name == name)?;
    let mut words = words;
    if let Some(subcommand) = found.subcommand {
        words = found.skip_options(words);
        let (first, rest) = words.split_first()?;
        if first.text != subcommand {
            return None;
        }
        words = rest;
    }
    words = found.skip_options(words);
    if name == "uv"
        && let Some((first, rest)) = words.split_first()
        && ["-m", "--module"].contains(&first.text.as_str())
    {
        return Some(Unwrapped::Module(rest));
    }
    if name == "env" {
        let assigned = words.iter().take_while(|word| is_assignment(&word.text));
        words = &words[assigned.count()..];
    }
    Some(Unwrapped::Command(words.get(found.operands..)?))
}

/// Of Nsight Systems each option may have its value in the next word, and none has none but by `=`.
fn unwrap_nsys(words: &[ShellWord]) -> Option<Unwrapped<'_>> {
    let (first, mut words) = words.split_first()?;
    if !["profile", "launch"].contains(&first.text.as_str()) {
        return None;
    }
    while let Some((first, rest)) = words.split_first().filter(|(first, _)| is_option(first)) {
        let has_value = first.text.contains('=')
            || rest.first().is_none_or(is_option)
            || first.text.len() > 2 && !first.text.starts_with("--");
        words = &rest[usize::from(!has_value)..];
    }
    Some(Unwrapped::Command(words))
}

fn is_option(word: &ShellWord) -> bool {
    word.text.starts_with('-')
}

impl Wrapper {
    /// `words` without the options at their beginning; `-m` of `uv run` stays, as it says what is started.
    fn skip_options<'a>(&self, words: &'a [ShellWord]) -> &'a [ShellWord] {
        let mut words = words;
        while let Some((first, rest)) = words.split_first().filter(|(first, _)| is_option(first)) {
            let text = first.text.as_str();
            if text == "--" {
                return rest;
            }
            if self.name == "uv" && ["-m", "--module"].contains(&text) {
                return words;
            }
            let takes_next = match text.strip_prefix("--") {
                Some(long) => self.options.contains(&long),
                // The last of several letters that stand together.
                None => {
                    let mut letters = text.chars().skip(1);
                    letters
                        .find(|letter| self.letters.contains(*letter))
                        .is_some()
                        && letters.next().is_none()
                }
            };
            words = rest.get(usize::from(takes_next)..).unwrap_or_default();
        }
        words
    }
}
