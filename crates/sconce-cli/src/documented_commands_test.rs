//! What this program tells people to type exists: rules, documents and hints are read, and each
//! `sconce …` in them is parsed by the real command line.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

use crate::args;

/// Words in capitals stand for what a person puts there.
const PLACEHOLDERS: &[(&str, &str)] = &[
    ("TIME", "4h"),
    ("SIZE", "4GiB"),
    ("N", "2"),
    ("KEEP", "2"),
    ("GPUS", "1"),
    ("CORES", "2"),
    ("FORMAT", "csv"),
    ("CARDS", "h100"),
    ("CARD", "h100"),
    ("GPU", "h100"),
    ("URL", "https://example.org/"),
    ("PLAN", "bf16"),
    ("RANKS", "2"),
    ("DAYS", "2"),
    ("LEASE", "1"),
    ("ID", "1"),
    ("NUMBER", "1"),
    ("NETWORK", "own"),
    ("VERSION", "2.15"),
    ("DRIVER", "535.104.05"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files below a folder that end so.
fn files(folder: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            files(&path, end, found);
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
}

/// What stands between backticks on one line, and lines of code of a document.
fn typed(text: &str, document: bool) -> Vec<String> {
    let mut typed = Vec::new();
    let mut code = None;
    for line in text.lines() {
        let line = line.trim_start();
        if document && line.starts_with("```") {
            let kind = line.trim_start_matches('`').to_owned();
            code = if code.is_some() { None } else { Some(kind) };
        } else if code.is_some() {
            typed.push(line.trim_start_matches("$ ").to_owned());
        } else {
            // Odd parts are between backticks, where their number is even.
            let parts: Vec<&str> = line.split('`').collect();
            if parts.len() % 2 == 1 {
                typed.extend(parts.iter().skip(1).step_by(2).map(|&part| part.to_owned()));
            }
        }
    }
    typed
}

/// A command line in words, without what a shell does with it: quotes, comments, pipes, files.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut any) = (Vec::new(), String::new(), None, false);
    for letter in line.chars().chain([' ']) {
        match (letter, quote) {
            (letter, Some(end)) if letter == end => quote = None,
            (letter, Some(_)) => word.push(letter),
            ('"' | '\'', None) => (quote, any) = (Some(letter), true),
            (' ', None) if any || !word.is_empty() => {
                words.push(std::mem::take(&mut word));
                any = false;
            }
            (' ', None) => {}
            ('#' | '|' | ';' | '<' | '>' | '&', None) if word.is_empty() => return words,
            (letter, None) => word.push(letter),
        }
    }
    words
}

/// `[--json]` is `--json`, `a | b` is `a`, and what stands in capitals is filled in.
fn filled(word: &str) -> String {
    let word = word.trim_matches(['[', ']', ',', '.', ':', '…']);
    let (flag, value) = word.split_once('=').unwrap_or(("", word));
    let value = value.split('|').next().unwrap_or(value);
    let found = PLACEHOLDERS.iter().find(|(name, _)| *name == value);
    let value = found.map_or(value, |(_, value)| *value);
    match flag {
        "" => value.to_owned(),
        flag => format!("{flag}={value}"),
    }
}

/// Why a command line is none of this program's. A command that is named without what it needs is
/// well named.
fn wrong(line: &str) -> Option<String> {
    let words = words(line);
    // What shows that there are more words, or stands for none.
    let words = words
        .iter()
        .filter(|word| !matches!(word.as_str(), "…" | "..." | "\\"));
    let error = args::command()
        .try_get_matches_from(words.map(|word| filled(word)))
        .err()?;
    let fine = matches!(
        error.kind(),
        ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::TooFewValues
            | ErrorKind::NoEquals
    );
    let told = error.to_string();
    // A flag that is named without its value is well named too.
    let fine = fine || told.contains("but none was supplied");
    (!fine).then(|| told.lines().next().unwrap_or_default().to_owned())
}

fn told() -> BTreeMap<String, String> {
    let root = root();
    let mut found = BTreeMap::new();
    let mut paths = Vec::new();
    files(&root.join("crates"), ".toml", &mut paths);
    paths.retain(|path| path.components().any(|part| part.as_os_str() == "rules"));
    files(&root.join("docs"), ".md", &mut paths);
    for path in fs::read_dir(root.join("crates")).unwrap() {
        files(&path.unwrap().path().join("src"), ".rs", &mut paths);
    }
    paths.push(root.join("README.md"));
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let place = path.strip_prefix(&root).unwrap().display().to_string();
        for line in typed(&text, place.ends_with(".md")) {
            // A table writes `|` so.
            let line = line.replace("\\|", "|");
            found.entry(line).or_insert_with(|| place.clone());
        }
    }
    found
}

#[test]
fn every_command_that_is_told_exists() {
    let mut wrongs = Vec::new();
    let mut count = 0;
    for (line, place) in told() {
        // `{}` is filled in by the program itself.
        // A picture of boxes and arrows is no command.
        if !line.starts_with("sconce ") || line.contains(['{', '─']) {
            continue;
        }
        count += 1;
        if let Some(why) = wrong(&line) {
            wrongs.push(format!("{place}: `{line}`: {why}"));
        }
    }
    assert!(count > 100, "{count}");
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}

/// A flag that is named alone in a rule of the report is one of this program's.
#[test]
fn every_flag_that_rules_tell_exists() {
    let mut known = Vec::new();
    flags(&args::command(), &mut known);
    let mut paths = Vec::new();
    files(
        &root().join("crates/sconce-report/rules"),
        ".toml",
        &mut paths,
    );
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        for line in typed(&text, false)
            .iter()
            .filter(|line| line.starts_with("--"))
        {
            let flag = line.split([' ', '=']).next().unwrap_or(line);
            let flag = flag.trim_start_matches('-');
            assert!(
                known.iter().any(|one| one == flag),
                "{}: {line}",
                path.display()
            );
        }
    }
}

fn flags(command: &clap::Command, found: &mut Vec<String>) {
    found.extend(
        command
            .get_arguments()
            .filter_map(|arg| Some(arg.get_long()?.to_owned())),
    );
    for verb in command.get_subcommands() {
        flags(verb, found);
    }
}

#[test]
fn what_is_not_there_is_found() {
    for line in [
        "sconce tidy",
        "sconce report --page x",
        "sconce memory rapport x",
        "sconce export last --to xls x",
        "sconce run --cpus many -- true",
    ] {
        assert!(wrong(line).is_some(), "{line}");
    }
    for line in [
        "sconce",
        "sconce lease take",
        "sconce run --memory SIZE --cpus N -- python train.py --lr 1 # so",
        "sconce report RUN --html FILE",
        "sconce usage --by user|project|card|day [--json | --csv]",
    ] {
        assert_eq!(wrong(line), None, "{line}");
    }
}
