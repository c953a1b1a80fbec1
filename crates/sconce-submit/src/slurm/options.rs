//! Options that a target hands through to sbatch and srun: read as those programs read them, so that none of them
//! contradicts unseen what Sconce says itself.
//!
//! Both programs take options by getopt_long(3): `--nodes=2`, `--nodes 2`, `-N2`, `-N 2`, letters without an argument
//! together (`-HN2`), and every beginning of a long name that is no other's (`--nod=2`). A beginning of one of Sconce's
//! own names counts as that name here: the programs would take it so, or refuse it.

use sconce_base::text::to_printable;
use sconce_base::words::split_words;

use super::owned_options::{OwnedOption, ProgramOptions};
use super::unsupported_options::{UNSUPPORTED, UnsupportedOption};
use crate::error::SubmitError;

/// What an item has to be.
const WHOLE_LINE: &str = "one line whose quotes are closed";

/// One option as it was found among words.
struct FoundOption<'a> {
    name: OptionName<'a>,
    value: Option<&'a str>,
}

/// How an option was named.
#[derive(Clone, Copy)]
enum OptionName<'a> {
    /// `--nodes`, or a beginning of it.
    Long(&'a str),
    /// `-N`.
    Short(char),
}

/// Reads the options of a target, and refuses those that Sconce sets itself or cannot have. Returns the words of each
/// item, without the quotes of a shell.
///
/// # Errors
/// An item is no option, contradicts one of `owned`, or is one that no job can have.
pub(super) fn check_options(
    program: &ProgramOptions,
    items: &[String],
    owned: &[OwnedOption],
) -> Result<Vec<Vec<String>>, SubmitError> {
    let key = program.key;
    let mut read = Vec::with_capacity(items.len());
    for item in items {
        let malformed = |wanted| SubmitError::MalformedOption {
            key,
            option: to_printable(item, 120),
            wanted,
        };
        let words = split_words(item).map_err(|_| malformed(WHOLE_LINE))?;
        if let Some(why) = heterogeneous(&words) {
            return Err(unsupported(key, item, why));
        }
        if !words.first().is_some_and(|word| word.starts_with('-')) {
            return Err(malformed("an option, which begins with `-`"));
        }
        for option in find_options(program, &words).map_err(malformed)? {
            if let Some(found) = UNSUPPORTED
                .iter()
                .find(|one| one.keys.contains(&key) && is_unsupported(one, &option))
            {
                return Err(unsupported(key, item, found.why));
            }
            if let Some(found) = owned.iter().find(|one| is_owned(one, &option)) {
                return Err(SubmitError::ConflictingOption {
                    key,
                    option: to_printable(item, 120),
                    ours: found.ours,
                    instead: found.instead,
                });
            }
        }
        read.push(words);
    }
    Ok(read)
}

fn unsupported(key: &'static str, item: &str, why: &'static str) -> SubmitError {
    SubmitError::UnsupportedOption {
        key,
        option: to_printable(item, 120),
        why,
    }
}

/// Why words speak of a heterogeneous job (sbatch(1), "HETEROGENEOUS JOB SUPPORT"): its parts are separated by `:`, or
/// by a line `hetjob`, which was `packjob` once.
fn heterogeneous(words: &[String]) -> Option<&'static str> {
    let found = words
        .iter()
        .any(|word| matches!(word.as_str(), ":" | "hetjob" | "packjob"));
    found.then_some(
        "heterogeneous jobs have nodes of several kinds, and Sconce starts all of them alike",
    )
}

/// Finds the options among the words of one item. Words after one that takes a value are that value.
fn find_options<'a>(
    program: &ProgramOptions,
    words: &'a [String],
) -> Result<Vec<FoundOption<'a>>, &'static str> {
    let mut found = Vec::new();
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        // The value of an option in the next word; where the option takes none, that word is no option and fails in
        // the next turn, as it would end the options for the program.
        let mut next_value = || words.next_if(|next| !next.starts_with('-'));
        if let Some(long) = word.strip_prefix("--") {
            if long.is_empty() {
                return Err("an option: `--` ends them");
            }
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (long, next_value()),
            };
            let name = OptionName::Long(name);
            found.push(FoundOption { name, value });
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            let mut rest = letters.chars();
            while let Some(letter) = rest.next() {
                let name = OptionName::Short(letter);
                if program.flags.contains(letter) {
                    found.push(FoundOption { name, value: None });
                    continue;
                }
                let value = Some(rest.as_str()).filter(|value| !value.is_empty());
                let value = value.or_else(&mut next_value);
                found.push(FoundOption { name, value });
                break;
            }
        } else {
            return Err("one option with its value, or several that begin with `-`");
        }
    }
    Ok(found)
}

/// Whether an option is one of Sconce's own, by any of its names.
fn is_owned(owned: &OwnedOption, option: &FoundOption<'_>) -> bool {
    let named = match option.name {
        OptionName::Short(letter) => owned.letters.contains(letter),
        OptionName::Long(name) => owned.names.iter().any(|own| own.starts_with(name)),
    };
    // `--gres` names other things than cards too.
    named && (!owned.cards_only || option.value.is_none_or(names_cards))
}

fn is_unsupported(one: &UnsupportedOption, option: &FoundOption<'_>) -> bool {
    let named = match option.name {
        OptionName::Short(letter) => one.letters.contains(letter),
        OptionName::Long(name) => one.names.iter().any(|own| own.starts_with(name)),
    };
    named
        && !option
            .value
            .is_some_and(|value| one.harmless.contains(&value))
}

/// Whether a list of generic resources names cards: `gpu:2`, `gpu:a100:2,lustre`, `gres/gpu=2`.
fn names_cards(list: &str) -> bool {
    list.split(',').any(|item| {
        let item = item.trim_start_matches("gres/").trim_start_matches("gres:");
        item.split([':', '=']).next() == Some("gpu")
    })
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
