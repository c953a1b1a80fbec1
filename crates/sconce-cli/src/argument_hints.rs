//! What to type instead of arguments that were refused: a command whose `--` was left out, as other tools take it, and
//! options of sbatch's.

use std::ffi::OsString;

use clap::error::{ContextKind, ErrorKind};
use sconce_app::failure::AFTER_DASHES;
use sconce_base::secrets::mask_text;
use sconce_base::words::quote_word;

/// What to type instead.
pub(crate) fn find_hint(
    wrong: &clap::Error,
    arguments: impl Iterator<Item = OsString>,
) -> Option<String> {
    let of_sbatch = find_option_of_sbatch(wrong).map(|option| {
        format!(
            "options of sbatch that `sconce submit` does not have stand in the target: `{option}` as an item of its `sbatch`"
        )
    });
    of_sbatch.or_else(|| find_line(wrong, arguments))
}

/// The line as it should have been typed, where a verb that takes a command after `--` was given one without it.
fn find_line(wrong: &clap::Error, arguments: impl Iterator<Item = OsString>) -> Option<String> {
    let words: Vec<String> = arguments
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let takes_command = match wrong.kind() {
        ErrorKind::UnknownArgument => takes_command(wrong),
        // A value that is refused comes without the usage: what a flag of Python's was taken for.
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

/// A long option that `submit` does not know, and that is near none that it knows.
fn find_option_of_sbatch(wrong: &clap::Error) -> Option<String> {
    let said = |kind| wrong.get(kind).map(ToString::to_string);
    let is_submit = said(ContextKind::Usage).is_some_and(|usage| usage.contains("sconce submit"));
    let is_unknown = wrong.kind() == ErrorKind::UnknownArgument;
    let is_other = is_submit && is_unknown && wrong.get(ContextKind::SuggestedArg).is_none();
    said(ContextKind::InvalidArg).filter(|option| is_other && option.starts_with("--"))
}

/// Whether the verb takes a command after `--`.
pub(crate) fn takes_command(wrong: &clap::Error) -> bool {
    let usage = wrong.get(ContextKind::Usage).map(ToString::to_string);
    usage.is_some_and(|usage| usage.contains("-- <COMMAND>"))
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
