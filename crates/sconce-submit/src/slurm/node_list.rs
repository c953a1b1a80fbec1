//! Slurm's notation for nodes, as `SLURM_JOB_NODELIST` and squeue have it: `n[1-3,7],gpu-a[08-11],login`. Nodes have
//! no need of `scontrol show hostnames` with this, which asks for Slurm's configuration.
//!
//! Read by what slurm.conf(5) says of `NodeName` and by Slurm's `hostlist.c`: names are separated by commas outside of
//! brackets; brackets hold numbers and ranges of them; a range's first number says how many digits all of it have, with
//! zeros in front; of several groups in one name the last one counts fastest. What stands behind brackets is
//! taken too, which 22.05 itself refuses.

use std::ops::RangeInclusive;

/// The most nodes that a list may name: Slurm's own limit is 64,000 (`MAX_SLURM_NODES` of its `slurm.h`).
pub const MAX_NODES: usize = 65_536;

/// The longest list that is read, bytes.
const MAX_LIST_BYTES: usize = 1 << 20;

/// The longest name of a node without its numbers, bytes: a name with its domain has 255 at most (RFC 1035, 2.3.4).
const MAX_NAME_BYTES: usize = 255;

/// The most digits of a number: 18 fit into 64 bits.
const MAX_DIGITS: usize = 18;

/// The most groups of brackets in one name; Slurm takes as many as its build has dimensions, 5 at most
/// (`HIGHEST_DIMENSIONS`).
const MAX_GROUPS: usize = 5;

/// A text that is no list of nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeListError {
    /// Longer than any list is.
    #[error("a list of nodes is longer than {MAX_LIST_BYTES} bytes")]
    TooLong,
    /// More than there can be.
    #[error("a list of nodes names more than {MAX_NODES}")]
    TooMany,
    /// No notation of Slurm's.
    #[error("`{item}` is no name of nodes: {why}")]
    Malformed {
        /// The part that it is in, as it may be shown.
        item: String,
        /// What is wrong.
        why: &'static str,
    },
}

/// A piece of one name.
enum NamePiece<'a> {
    /// As it is.
    Literal(&'a str),
    /// One of these numbers.
    Numbers(Vec<NumberRange>),
}

/// Numbers between brackets.
struct NumberRange {
    numbers: RangeInclusive<u64>,
    /// Digits of each at least.
    width: usize,
}

/// Expands a list to the names of its nodes, in its order; a name that stands there twice is there twice. An empty
/// list has none.
///
/// # Errors
/// The text is no such list, or it would be of more than [`MAX_NODES`] names.
pub fn expand_node_list(list: &str) -> Result<Vec<String>, NodeListError> {
    if list.len() > MAX_LIST_BYTES {
        return Err(NodeListError::TooLong);
    }
    let mut names = Vec::new();
    if list.is_empty() {
        return Ok(names);
    }
    for item in split_items(list)? {
        let pieces = parse_pieces(item)?;
        let count = pieces.iter().try_fold(1_u64, |count, piece| match piece {
            NamePiece::Literal(_) => Some(count),
            NamePiece::Numbers(ranges) => count.checked_mul(count_numbers(ranges)?),
        });
        match count {
            Some(count) if count <= (MAX_NODES - names.len()) as u64 => {}
            _ => return Err(NodeListError::TooMany),
        }
        // Before there are any: many long names would fill the memory.
        let literals = pieces.iter().map(|piece| match piece {
            NamePiece::Literal(text) => text.len(),
            NamePiece::Numbers(_) => 0,
        });
        if literals.sum::<usize>() > MAX_NAME_BYTES {
            return Err(malformed(item, "a name is of 255 bytes at most"));
        }
        push_names(&pieces, &mut String::new(), &mut names);
    }
    Ok(names)
}

/// Splits a list at the commas outside of brackets.
fn split_items(list: &str) -> Result<Vec<&str>, NodeListError> {
    let mut items = Vec::new();
    let (mut start, mut is_within) = (0, false);
    for (at, c) in list.char_indices() {
        match c {
            '[' if is_within => return Err(malformed(&list[start..], "a `[` within brackets")),
            '[' => is_within = true,
            ']' if !is_within => return Err(malformed(&list[start..], "a `]` without its `[`")),
            ']' => is_within = false,
            ',' if !is_within => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if is_within {
        return Err(malformed(&list[start..], "a `[` without its `]`"));
    }
    items.push(&list[start..]);
    Ok(items)
}

/// Reads one item, whose brackets fit.
fn parse_pieces(item: &str) -> Result<Vec<NamePiece<'_>>, NodeListError> {
    let mut pieces = Vec::new();
    let mut groups = 0;
    let mut rest = item;
    while !rest.is_empty() {
        let (literal, after) = rest.split_at(rest.find('[').unwrap_or(rest.len()));
        if !literal.is_empty() {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            // A name is given to programs, and must be none of their options.
            let is_option = pieces.is_empty() && literal.starts_with('-');
            if is_option || !literal.chars().all(is_part) {
                return Err(malformed(
                    item,
                    "a name has letters, digits, `-`, `_` and `.`",
                ));
            }
            pieces.push(NamePiece::Literal(literal));
        }
        let Some((group, after)) = after
            .strip_prefix('[')
            .and_then(|text| text.split_once(']'))
        else {
            break;
        };
        groups += 1;
        if groups > MAX_GROUPS {
            return Err(malformed(item, "a name has 5 groups of brackets at most"));
        }
        let ranges = group.split(',').map(|range| parse_range(item, range));
        pieces.push(NamePiece::Numbers(ranges.collect::<Result<_, _>>()?));
        rest = after;
    }
    match pieces.first() {
        Some(NamePiece::Literal(_)) => Ok(pieces),
        Some(NamePiece::Numbers(_)) => Err(malformed(item, "a name begins before its brackets")),
        None => Err(malformed(item, "a name is missing")),
    }
}

/// Reads `7` or `08-11`.
fn parse_range(item: &str, text: &str) -> Result<NumberRange, NodeListError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |digits: &str| {
        let is_number = (1..=MAX_DIGITS).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = is_number.then(|| digits.parse().ok()).flatten();
        number.ok_or_else(|| malformed(item, "brackets hold numbers and ranges of them"))
    };
    let numbers = number(first)?..=number(last)?;
    if numbers.is_empty() {
        return Err(malformed(item, "a range's second number is the greater"));
    }
    Ok(NumberRange {
        numbers,
        width: first.len(),
    })
}

/// Counts the numbers of a group; `None` if they do not fit into 64 bits.
fn count_numbers(ranges: &[NumberRange]) -> Option<u64> {
    ranges.iter().try_fold(0_u64, |count, range| {
        let of_range = range.numbers.end() - range.numbers.start() + 1;
        count.checked_add(of_range)
    })
}

/// Adds every name that begins with `prefix` and goes on by `pieces`.
fn push_names(pieces: &[NamePiece<'_>], prefix: &mut String, names: &mut Vec<String>) {
    let Some((piece, rest)) = pieces.split_first() else {
        names.push(prefix.clone());
        return;
    };
    let length = prefix.len();
    match piece {
        NamePiece::Literal(text) => {
            prefix.push_str(text);
            push_names(rest, prefix, names);
            prefix.truncate(length);
        }
        NamePiece::Numbers(ranges) => {
            for range in ranges {
                for number in range.numbers.clone() {
                    prefix.push_str(&format!("{number:0width$}", width = range.width));
                    push_names(rest, prefix, names);
                    prefix.truncate(length);
                }
            }
        }
    }
}

fn malformed(item: &str, why: &'static str) -> NodeListError {
    NodeListError::Malformed {
        item: sconce_base::text::to_printable(item, 80),
        why,
    }
}

#[cfg(test)]
#[path = "node_list_tests.rs"]
mod tests;
