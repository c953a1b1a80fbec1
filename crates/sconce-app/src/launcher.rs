//! Whether a command starts ranks itself: by one of the programs that do, wherever in it that stands.
//!
//! A program is looked for where a shell or another program would start it: behind `env A=1`, `nice`, `uv run`, in the
//! text of `sh -c`, and in a script of shell that can be read.

mod shell_text;
mod wrappers;

use std::cell::Cell;

use sconce_base::text::to_printable;
use shell_text::{ShellWord, read_shell_text};
use wrappers::{Unwrapped, unwrap};

/// Programs within programs are followed so far.
const MAX_DEPTH: usize = 8;
/// So much text of shell is read of one command: scripts that start each other have no end.
const MAX_TEXT_BYTES: usize = 256 << 10;
/// So many arguments of a script are what its `"$@"` stands for.
const MAX_ARGUMENTS: usize = 64;
/// So much of a text is shown.
const MAX_SHOWN_CHARS: usize = 40;
/// Programs that start ranks.
const PROGRAMS: [&str; 11] = [
    "accelerate-launch",
    "composer",
    "deepspeed",
    "horovodrun",
    "mpiexec",
    "mpiexec.hydra",
    "mpirun",
    "orterun",
    "prun",
    "srun",
    "torchrun",
];
/// Programs that do by one of their subcommands.
const SUBCOMMANDS: [(&str, &str); 6] = [
    ("accelerate", "launch"),
    ("axolotl", "train"),
    ("colossalai", "run"),
    ("fabric", "run"),
    ("lightning", "run"),
    ("llamafactory-cli", "train"),
];
/// Modules that do as programs (`python -m`).
const MODULES: [&str; 4] = [
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
    "torch.distributed.launch",
    "torch.distributed.run",
];
/// Accelerate's program as a module, with its subcommands.
const ACCELERATE_MODULE: &str = "accelerate.commands.accelerate_cli";
const SHELLS: [&str; 6] = ["ash", "bash", "dash", "ksh", "sh", "zsh"];

/// Who starts the ranks of a command, as far as its text says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RankStarter {
    /// The command itself, by the program that is named.
    Command(Launcher),
    /// Nobody: it is one process.
    Nobody,
    /// A part of it cannot be read: the part.
    Unknown(String),
}

impl RankStarter {
    /// Of a part that cannot be read, which may be shown then.
    fn unknown(part: &str) -> Self {
        Self::Unknown(to_printable(part, MAX_SHOWN_CHARS))
    }
}

/// A program that starts ranks, within a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launcher {
    /// As the command names it.
    pub(crate) name: String,
    /// Its arguments, as they stand there.
    pub(crate) arguments: Vec<String>,
}

impl Launcher {
    /// The option by which torchrun starts a world of its own on each node, where it has one.
    pub(crate) fn find_own_world(&self) -> Option<String> {
        let is_torchrun = ["torchrun", "torch.distributed.run"]
            .iter()
            .any(|name| self.name.ends_with(name));
        let options = self.arguments.iter().filter(|_| is_torchrun);
        let mut options =
            options.take_while(|word| word.starts_with('-') || !word.ends_with(".py"));
        options
            .find(|word| {
                matches!(
                    word.as_str(),
                    "--standalone" | "--nnodes=1" | "--nnodes=1:1"
                )
            })
            .cloned()
    }
}

/// Finds who starts the ranks of `command`; `read_script` reads a file that the command names, where that is one of the
/// project's.
pub(crate) fn find_rank_starter(
    command: &[String],
    read_script: &dyn Fn(&str) -> Option<String>,
) -> RankStarter {
    let words: Vec<ShellWord> = command.iter().map(|word| ShellWord::plain(word)).collect();
    let search = Search {
        read_script,
        left_bytes: Cell::new(MAX_TEXT_BYTES),
    };
    search.of_words(&words, MAX_DEPTH)
}

/// The program of a command that starts ranks itself, of those that are known; files that it names are not read.
pub(crate) fn find_launcher(command: &[String]) -> Option<String> {
    match find_rank_starter(command, &|_| None) {
        RankStarter::Command(launcher) => Some(launcher.name),
        RankStarter::Nobody | RankStarter::Unknown(_) => None,
    }
}

struct Search<'a> {
    read_script: &'a dyn Fn(&str) -> Option<String>,
    /// How much more text is read.
    left_bytes: Cell<usize>,
}

impl Search<'_> {
    /// Of the words of one command.
    fn of_words(&self, words: &[ShellWord], depth: usize) -> RankStarter {
        let Some((first, rest)) = words.split_first() else {
            return RankStarter::Nobody;
        };
        let unreadable = || RankStarter::unknown(&first.text);
        if let Some(launcher) = find_program(first, rest) {
            return RankStarter::Command(launcher);
        }
        let name = first.base_name();
        if first.is_expanded || is_python(name) {
            return match find_module(rest) {
                Some(launcher) => RankStarter::Command(launcher),
                None if first.is_expanded => unreadable(),
                None => RankStarter::Nobody,
            };
        }
        let Some(depth) = depth.checked_sub(1) else {
            return unreadable();
        };
        if SHELLS.contains(&name) {
            return self.of_shell(first, rest, depth);
        }
        if name.ends_with(".sh") {
            return self.of_script(first, rest, depth);
        }
        match unwrap(name, rest) {
            Some(Unwrapped::Command(command)) => self.of_words(command, depth),
            Some(Unwrapped::Module(command)) => match find_module_at(command) {
                Some(launcher) => RankStarter::Command(launcher),
                None => RankStarter::Nobody,
            },
            None => RankStarter::Nobody,
        }
    }

    /// Of a shell, with the words behind its name: `-c TEXT`, or a script.
    fn of_shell(&self, shell: &ShellWord, words: &[ShellWord], depth: usize) -> RankStarter {
        let mut at = 0;
        while let Some(word) = words
            .get(at)
            .filter(|word| word.text.starts_with(['-', '+']))
        {
            at += 1;
            let letters = word.text.trim_start_matches('-');
            let is_long = word.text.starts_with("--");
            if !is_long && word.text.starts_with('-') && letters.contains('c') {
                // Further options may stand before the text.
                let is_option = |word: &&ShellWord| word.text.starts_with('-');
                let options = words[at..].iter().take_while(is_option).count();
                let Some(text) = words.get(at + options) else {
                    return RankStarter::Nobody;
                };
                // The word behind the text is `$0`.
                let arguments = words.get(at + options + 2..).unwrap_or_default();
                return self.of_text(&text.text, arguments, depth);
            }
            let takes_value = !is_long && letters.ends_with(['o', 'O'])
                || ["--rcfile", "--init-file"].contains(&word.text.as_str());
            at += usize::from(takes_value);
        }
        match words.get(at) {
            Some(script) => self.of_script(script, &words[at + 1..], depth),
            // Its commands come from its input.
            None => RankStarter::unknown(&shell.text),
        }
    }

    /// Of a file of shell.
    fn of_script(&self, file: &ShellWord, arguments: &[ShellWord], depth: usize) -> RankStarter {
        let text = (self.read_script)(&file.text).filter(|_| !file.is_expanded);
        match text {
            Some(text) => self.of_text(&text, arguments, depth),
            None => RankStarter::unknown(&file.text),
        }
    }

    /// Of all commands of a text of shell: the first that starts ranks counts, and else the first that cannot be read.
    fn of_text(&self, text: &str, arguments: &[ShellWord], depth: usize) -> RankStarter {
        // An empty one counts too.
        let Some(left) = self.left_bytes.get().checked_sub(text.len() + 1) else {
            self.left_bytes.set(0);
            return RankStarter::unknown(text);
        };
        self.left_bytes.set(left);
        let arguments = &arguments[..arguments.len().min(MAX_ARGUMENTS)];
        let read = read_shell_text(text, arguments);
        let mut found = match read.is_whole {
            true => RankStarter::Nobody,
            false => RankStarter::unknown(text),
        };
        for command in &read.commands {
            let of_command = match command.split_first() {
                Some((first, rest)) if first.text == "eval" => {
                    let text: Vec<&str> = rest.iter().map(|word| word.text.as_str()).collect();
                    match depth.checked_sub(1) {
                        Some(depth) => self.of_text(&text.join(" "), arguments, depth),
                        None => RankStarter::unknown(&text.join(" ")),
                    }
                }
                // What is read in says mostly variables: one that cannot be read starts nothing.
                Some((first, [file, ..])) if [".", "source"].contains(&first.text.as_str()) => {
                    match self.of_script(file, &[], depth.saturating_sub(1)) {
                        RankStarter::Unknown(_) => RankStarter::Nobody,
                        known => known,
                    }
                }
                _ => self.of_words(command, depth),
            };
            match of_command {
                RankStarter::Command(_) => return of_command,
                RankStarter::Unknown(_) if found == RankStarter::Nobody => found = of_command,
                RankStarter::Unknown(_) | RankStarter::Nobody => {}
            }
        }
        found
    }
}

/// `first` as a program that starts ranks. Of one that is the output of another (`$(which torchrun)`), any of its words
/// counts.
fn find_program(first: &ShellWord, rest: &[ShellWord]) -> Option<Launcher> {
    let launcher = |name: &str, rest: &[ShellWord]| Launcher {
        name: name.to_owned(),
        arguments: rest.iter().map(|word| word.text.clone()).collect(),
    };
    let name = first.base_name();
    if PROGRAMS.contains(&name) {
        return Some(launcher(&first.text, rest));
    }
    if let Some((program, subcommand)) = SUBCOMMANDS.iter().find(|(program, _)| *program == name) {
        let is_named = rest.first().is_some_and(|word| word.text == *subcommand);
        return is_named.then(|| launcher(&format!("{program} {subcommand}"), &rest[1..]));
    }
    let is_output = first.is_expanded && first.text.contains(['(', '`']);
    let is_part = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.');
    let mut parts = first.text.split(is_part).filter(|_| is_output);
    let named = parts.find(|part| PROGRAMS.contains(part))?;
    Some(launcher(named, rest))
}

fn is_python(name: &str) -> bool {
    let version = name
        .strip_prefix("python")
        .or_else(|| name.strip_prefix("pypy"));
    version.is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// What a Python with these words starts, where that starts ranks (python(1)): a module, or a launcher's own file.
fn find_module(words: &[ShellWord]) -> Option<Launcher> {
    let mut at = 0;
    loop {
        let word = words.get(at)?;
        let Some(letters) = word.text.strip_prefix('-').filter(|text| !text.is_empty()) else {
            // After the script everything is the script's own.
            return find_program(word, &words[at + 1..]);
        };
        at += 1;
        if letters.starts_with('-') {
            continue;
        }
        // Letters stand together, and the first that takes a value has what is left of the word.
        let Some((end, letter)) = letters
            .char_indices()
            .find(|(_, letter)| matches!(letter, 'm' | 'c' | 'W' | 'X'))
        else {
            continue;
        };
        let value = &letters[end + 1..];
        match letter {
            'c' => return None,
            'm' if value.is_empty() => return find_module_at(&words[at..]),
            'm' => {
                let module = [ShellWord::plain(value)];
                return find_module_at(&[&module[..], &words[at..]].concat());
            }
            _ => at += usize::from(value.is_empty()),
        }
    }
}

/// The module that is the first of `words`, where that starts ranks.
fn find_module_at(words: &[ShellWord]) -> Option<Launcher> {
    let (module, rest) = words.split_first()?;
    let launcher = |name: String, rest: &[ShellWord]| Launcher {
        name,
        arguments: rest.iter().map(|word| word.text.clone()).collect(),
    };
    if MODULES.contains(&module.text.as_str()) {
        return Some(launcher(module.text.clone(), rest));
    }
    let is_launch = rest.first().is_some_and(|word| word.text == "launch");
    (module.text == ACCELERATE_MODULE && is_launch)
        .then(|| launcher(format!("{ACCELERATE_MODULE} launch"), &rest[1..]))
}

#[cfg(test)]
#[path = "launcher/tests.rs"]
mod tests;
