//! A command whose `--` was left out, as other tools take it.

use std::ffi::OsString;

use clap::error::{ContextKind, ErrorKind};
use sconce_app::failure::AFTER_DASHES;
use sconce_base::secrets::mask_text;
use sconce_base::words::quote_word;

/// What to type instead, where a verb that takes a command after `--` was given one without it.
pub(crate) fn find_hint(
    wrong: &clap::Error,
    arguments: impl Iterator<Item = OsString>,
) -> Option<String> {
    let words: Vec<String> = arguments
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let usage = wrong.get(ContextKind::Usage).map(ToString::to_string);
    // A value that is refused comes without the usage: what a flag of Python's was taken for.
    let takes_command = match wrong.kind() {
        ErrorKind::UnknownArgument => usage.is_some_and(|usage| usage.contains("-- <COMMAND>")),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => true,
        _ => false,
    };
    if !takes_command || words.iter().any(|word| word == "--") {
        return None;
    }
    if let Some(start) = words.iter().position(|word| is_program(word)) {
        let quote = |words: &[String]| {
            let quoted: Vec<String> = words.iter().map(|word| quote_word(word)).collect();
            quoted.join(" ")
        };
        let (before, command) = words.split_at(start);
        let line = format!("sconce {} -- {}", quote(before), quote(command));
        return Some(format!(
            "the command stands after `--`: {}",
            mask_text(&line)
        ));
    }
    let word = wrong
        .get(ContextKind::InvalidArg)
        .map(ToString::to_string)
        .filter(|word| !word.starts_with('-'));
    (wrong.kind() == ErrorKind::UnknownArgument && word.is_some()).then(|| AFTER_DASHES.to_owned())
}

/// Whether a word is a program that commands of training begin with, and so neither a spec nor a flag's value.
fn is_program(word: &str) -> bool {
    let python = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '.');
    word.strip_prefix("python").is_some_and(python)
        || [
            "torchrun",
            "accelerate",
            "deepspeed",
            "pytest",
            "bash",
            "sh",
            "env",
        ]
        .contains(&word)
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::find_hint;

    fn hint(line: &[&str]) -> Option<String> {
        let run = Command::new("run")
            .override_usage("sconce run [SPEC] [-- <COMMAND>...]")
            .arg(Arg::new("SPEC"))
            .arg(
                Arg::new("memory")
                    .short('m')
                    .long("memory")
                    .value_parser(clap::value_parser!(u32)),
            )
            .arg(Arg::new("COMMAND").last(true).num_args(0..));
        let program = Command::new("sconce").subcommand(run);
        let wrong = program.try_get_matches_from(line).unwrap_err();
        find_hint(&wrong, line.iter().map(Into::into))
    }

    #[test]
    fn the_line_is_said_as_it_should_have_been_typed() {
        for (line, typed) in [
            (
                &["sconce", "run", "python", "main.py"][..],
                "sconce run -- python main.py",
            ),
            (
                &["sconce", "run", "-m", "4", "python3.11", "-c", "print(1)"],
                "sconce run -m 4 -- python3.11 -c 'print(1)'",
            ),
            (
                &["sconce", "run", "python", "-m", "scripts.t"],
                "sconce run -- python -m scripts.t",
            ),
        ] {
            let wanted = format!("the command stands after `--`: {typed}");
            assert_eq!(hint(line), Some(wanted), "{line:?}");
        }
        assert!(hint(&["sconce", "run", "a", "b"]).is_some_and(|hint| hint.contains("train.py")));
        for line in [
            &["sconce", "run", "-m", "x", "--", "python"][..],
            &["sconce", "run", "--no-such-flag"],
            &["sconce", "run", "-m", "x"],
        ] {
            assert_eq!(hint(line), None, "{line:?}");
        }
    }
}
