//! `CMD` and `ENTRYPOINT` as the command of a run.

use super::parse::Instruction;
use super::shell::{self, ShellVariables};

/// A command as a Dockerfile gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommandWords {
    pub(super) line: usize,
    pub(super) words: Vec<String>,
    /// Given as a text for a shell: as an entrypoint, it takes no arguments.
    pub(super) shell: bool,
}

/// `["a", "b"]`. The same text is a list of TOML, but for `\/` and pairs of surrogates.
pub(super) fn exec_form(text: &str) -> Option<Vec<String>> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct List {
        list: Vec<String>,
    }
    let text = text.trim();
    if !text.starts_with('[') || text.len() > 64 << 10 {
        return None;
    }
    let list: List = toml::from_str(&format!("list = {text}")).ok()?;
    Some(list.list)
}

pub(super) fn parse_words(one: &Instruction, variables: &mut ShellVariables) -> CommandWords {
    let line = one.line;
    if let Some(words) = exec_form(&one.rest) {
        return CommandWords {
            line,
            words,
            shell: false,
        };
    }
    let words = match one.rest.trim() {
        "" => Vec::new(),
        text => shell::plain_words(text, variables)
            .unwrap_or_else(|| vec!["sh".to_owned(), "-c".to_owned(), text.to_owned()]),
    };
    CommandWords {
        line,
        words,
        shell: true,
    }
}

/// The command of the run: without what only starts another one, such as an init process.
pub(super) fn resolve_command(
    entrypoint: Option<CommandWords>,
    cmd: Option<CommandWords>,
) -> Option<CommandWords> {
    let mut all = match (entrypoint, cmd) {
        (Some(entrypoint), Some(cmd)) if !entrypoint.shell && !entrypoint.words.is_empty() => {
            CommandWords {
                words: [entrypoint.words, cmd.words].concat(),
                ..entrypoint
            }
        }
        (Some(entrypoint), _) if !entrypoint.words.is_empty() => entrypoint,
        (_, cmd) => cmd?,
    };
    all.words = without_starters(all.words);
    let program = all.words.first()?;
    let name = program.rsplit('/').next().unwrap_or_default();
    // The interpreter lies elsewhere in an environment.
    if program.starts_with('/')
        && (name.starts_with("python") || matches!(name, "pip" | "torchrun" | "accelerate"))
    {
        let name = if name.starts_with("python3.") {
            "python3"
        } else {
            name
        };
        all.words[0] = name.to_owned();
    }
    Some(all)
}

fn without_starters(mut words: Vec<String>) -> Vec<String> {
    loop {
        let name = words
            .first()
            .map(|word| word.rsplit('/').next().unwrap_or_default().to_owned());
        let second = words.get(1).map(String::as_str);
        let own = match (name.as_deref(), second) {
            (Some("tini" | "dumb-init"), _) => 1,
            (Some("uv" | "poetry" | "conda" | "mamba" | "micromamba" | "pipenv"), Some("run")) => 2,
            _ => return words,
        };
        let mut at = own;
        while let Some(word) = words.get(at).filter(|word| word.starts_with('-')) {
            let valued = matches!(
                word.as_str(),
                "-n" | "--name" | "-p" | "--prefix" | "--extra" | "--group"
            );
            let end = word == "--";
            at += if valued { 2 } else { 1 };
            if end {
                break;
            }
        }
        words.drain(..at.min(words.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse_instructions;
    use super::*;

    fn of(text: &str) -> Option<Vec<String>> {
        let mut variables = ShellVariables::default();
        let all = parse_instructions(text);
        let mut find = |keyword: &str| {
            let one = all.iter().find(|one| one.keyword == keyword)?;
            Some(parse_words(one, &mut variables))
        };
        let (entrypoint, cmd) = (find("ENTRYPOINT"), find("CMD"));
        resolve_command(entrypoint, cmd).map(|all| all.words)
    }

    #[test]
    fn an_entrypoint_takes_its_arguments_from_cmd() {
        for (text, expected) in [
            ("CMD [\"python\", \"a b.py\"]", &["python", "a b.py"][..]),
            (
                "CMD python train.py --lr 0.1",
                &["python", "train.py", "--lr", "0.1"],
            ),
            (
                "CMD python a.py && python b.py",
                &["sh", "-c", "python a.py && python b.py"],
            ),
            (
                "ENTRYPOINT [\"python\"]\nCMD [\"a.py\"]",
                &["python", "a.py"],
            ),
            ("ENTRYPOINT python a.py\nCMD [\"b\"]", &["python", "a.py"]),
            (
                "ENTRYPOINT [\"/usr/bin/tini\", \"-g\", \"--\", \"conda\", \"run\", \"--no-capture-output\", \"-n\", \"x\", \"/opt/conda/bin/python3.10\", \"a.py\"]",
                &["python3", "a.py"],
            ),
            ("ENTRYPOINT [\"uv\", \"run\", \"train.py\"]", &["train.py"]),
            ("CMD [\"tini\", \"--\"]", &[]),
        ] {
            let words = of(text).unwrap_or_default();
            assert_eq!(words, expected, "{text}");
        }
    }

    #[test]
    fn lists_are_strings() {
        assert_eq!(
            exec_form("[\"a\\n\\u00e9\"]"),
            Some(vec!["a\né".to_owned()])
        );
        for text in ["[ -f x ] && y", "[\"a\"", "[1]", "a", "[\"a\"]\nb = 1"] {
            assert_eq!(exec_form(text), None, "{text}");
        }
    }
}
