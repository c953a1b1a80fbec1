//! What is read of the sources.

use std::path::{Path, PathBuf};

use super::Start;
use super::shell::Script;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Shell,
    Rust,
    Python,
}

/// What needs no program of the machine: builtins and keywords of bash that can begin a command.
const BUILTINS: [&str; 49] = [
    ".", ":", "[", "[[", "alias", "bg", "break", "builtin", "case", "cd", "command", "compgen",
    "continue", "declare", "done", "echo", "esac", "eval", "exec", "exit", "export", "false", "fg",
    "fi", "for", "function", "getopts", "hash", "jobs", "kill", "local", "mapfile", "printf",
    "pwd", "read", "return", "select", "set", "shift", "source", "test", "times", "trap", "true",
    "type", "ulimit", "umask", "unset", "wait",
];
/// What `Command::new` is given in tests that is no name of a program: our own programs and scripts, and
/// what was asked for before.
const OWN: [&str; 18] = [
    "&busybox",
    "&compiler",
    "&copy",
    "&program",
    "&self.program",
    "bench.folder.path().join(\"base/bin/busybox\")",
    "driver",
    "env!(\"CARGO_BIN_EXE_sconce\")",
    "sconce_testkit::find_program(\"python3\")?",
    "script",
    "self.folder.path().join(\"base/bin/busybox\")",
    "self.path(\"sconce\")",
    "stand_ins.join(\"build.sh\")",
    "std::env::current_exe().unwrap()",
    "tests.join(\"build.sh\")",
    "top.join(\"bin/given\")",
    "unsquashfs",
    // Of `tool("program words")`, which is read.
    "words.next().unwrap()",
];

/// The files below some folders that are text, by their paths from `top`.
pub(crate) fn texts(top: &Path, folders: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> = folders.iter().map(|folder| top.join(folder)).collect();
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if is_source(&path)
                && let Ok(text) = std::fs::read_to_string(&path)
            {
                found.push((path.strip_prefix(top).unwrap().to_owned(), text));
            }
        }
    }
    found.sort();
    found
}

fn is_source(path: &Path) -> bool {
    let kind = path.extension().and_then(|kind| kind.to_str());
    matches!(kind, None | Some("sh" | "rs" | "py"))
}

pub(crate) fn kind(file: &Path, text: &str) -> Option<Kind> {
    let first = text.lines().next().unwrap_or_default();
    match file.extension().and_then(|kind| kind.to_str()) {
        Some("rs") => Some(Kind::Rust),
        Some("py") => Some(Kind::Python),
        _ if first.starts_with("#!") && first.contains("python") => Some(Kind::Python),
        _ if first.starts_with("#!") && first.ends_with("sh") => Some(Kind::Shell),
        // What other scripts source begins with a comment.
        _ if first.starts_with("# ") && file.starts_with("scripts") => Some(Kind::Shell),
        _ => None,
    }
}

/// What a script asks for by `need NAME...`.
pub(crate) fn needs(script: &Script) -> Vec<String> {
    let calls = script
        .commands
        .iter()
        .filter(|command| command.name == "need");
    calls
        .flat_map(|command| command.words.iter().cloned())
        .collect()
}

pub(crate) fn of_shell<'a>(
    file: &'a Path,
    script: &'a Script,
) -> impl Iterator<Item = Start> + use<'a> {
    let users = needs(script);
    let start = move |line: usize, program: &str| Start {
        file: file.to_owned(),
        line,
        program: program.to_owned(),
        users: users.clone(),
    };
    script.commands.iter().flat_map(move |command| {
        let words = command.words.iter().map(String::as_str);
        // `for program in …` goes through programs.
        let listed: Vec<&str> = match (command.name.as_str(), command.words.first()) {
            ("for", Some(variable)) if variable == "program" => words.skip(2).collect(),
            _ => vec![command.name.as_str()],
        };
        let names = listed.into_iter().filter_map(name_of);
        names
            .map(|name| start(command.line, name))
            .collect::<Vec<_>>()
    })
}

/// The program that a word names, if it is one of the machine's. `name:package` is a name too.
fn name_of(word: &str) -> Option<&str> {
    let word = word.split(':').next().unwrap_or_default();
    let folders = ["/usr/bin/", "/usr/sbin/", "/bin/", "/sbin/"];
    let word = folders
        .iter()
        .find_map(|folder| word.strip_prefix(folder))
        .unwrap_or(word);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    let is_name = word.bytes().all(fits) && word.bytes().any(|byte| byte.is_ascii_lowercase());
    (is_name && !word.starts_with(['-', '.', '+']) && !BUILTINS.contains(&word)).then_some(word)
}

pub(crate) fn of_rust(file: &Path, text: &str) -> Vec<Start> {
    let calls = ["Command::new(", "program(", "has_programs(&[", ".tool("];
    let mut found = of_calls(file, text, &calls);
    for start in &mut found {
        start.users = vec!["tests".to_owned()];
    }
    found
}

pub(crate) fn of_python(file: &Path, text: &str) -> Vec<Start> {
    let calls = [
        "subprocess.run([",
        "subprocess.check_output([",
        "subprocess.check_call([",
        "Popen([",
        "which(",
        " = [",
    ];
    of_calls(file, text, &calls)
}

/// The literals that follow these calls.
fn of_calls(file: &Path, text: &str, calls: &[&str]) -> Vec<Start> {
    let mut found = Vec::new();
    for call in calls {
        // A list that is assigned is a command if an option stands second.
        let assigned = *call == " = [";
        let all = *call == "has_programs(&[";
        let packed = text.match_indices(call.trim_end_matches('['));
        for (at, head) in packed {
            let after = &text[at + head.len()..];
            let list = after.trim_start().strip_prefix('[');
            let Some(rest) = (if call.ends_with('[') {
                list
            } else {
                Some(after)
            }) else {
                continue;
            };
            let mut words = Words(rest);
            let line = 1 + text[..at].matches('\n').count();
            let first = words.next();
            if assigned && !words.next().is_some_and(|word| word.starts_with('-')) {
                continue;
            }
            let more: Vec<&str> = if all { words.collect() } else { Vec::new() };
            for word in first.into_iter().chain(more) {
                let command = if *call == ".tool(" {
                    word.split(' ').next()
                } else {
                    Some(word)
                };
                if let Some(name) = command.and_then(name_of) {
                    found.push(Start {
                        file: file.to_owned(),
                        line,
                        program: name.to_owned(),
                        users: Vec::new(),
                    });
                }
            }
        }
    }
    found
}

/// String literals with commas between them.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let (word, rest) = self.0.trim_start().strip_prefix('"')?.split_once('"')?;
        self.0 = rest.trim_start().strip_prefix(',').unwrap_or(rest);
        Some(word)
    }
}

pub(crate) fn is_test(file: &Path) -> bool {
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let in_tests = file.components().any(|part| part.as_os_str() == "tests");
    name.ends_with(".rs") && (in_tests || name.ends_with("tests.rs")) && !file.starts_with(SELF)
}

/// The examples of this test itself.
pub(crate) const SELF: &str = "crates/sconce-cli/tests/it/programs";

/// The arguments of `Command::new` that are neither literal nor known.
pub(crate) fn unknown_arguments(text: &str) -> Vec<String> {
    let calls = text.match_indices("Command::new(");
    let arguments = calls.map(|(at, head)| argument(&text[at + head.len()..]));
    arguments
        .filter(|argument| !argument.starts_with('"') && !OWN.contains(&argument.as_str()))
        .collect()
}

/// What stands before the parenthesis that closes, without white space around it.
fn argument(text: &str) -> String {
    let mut depth = 1;
    let end = text.find(|letter| {
        depth += match letter {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    text[..end.unwrap_or(text.len())].trim().to_owned()
}
