//! No verb has an output that the tests of outputs do not know.

use std::any::TypeId;
use std::collections::BTreeSet;

use clap::{Arg, Command};
use sconce_schema::{Bytes, Millicores};

/// What each argument that could name a file is; `tests/it/outputs` writes to those that are outputs.
const TABLE: &str = include_str!("../tests/it/outputs/table.txt");

/// Whether a value of the argument could be a path: whatever is no number and no word of a few.
fn may_be_a_path(arg: &Arg) -> bool {
    let kind = arg.get_value_parser().type_id();
    let numbers = [
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<f64>(),
        TypeId::of::<Bytes>(),
        TypeId::of::<Millicores>(),
    ];
    arg.get_action().takes_values()
        && arg.get_possible_values().is_empty()
        && !numbers.iter().any(|number| kind == *number)
}

fn name(arg: &Arg) -> String {
    match arg.get_long() {
        Some(long) => format!("--{long}"),
        None => arg.get_id().as_str().to_uppercase(),
    }
}

fn walk(command: &Command, verb: &str, found: &mut BTreeSet<String>) {
    for arg in command.get_arguments().filter(|arg| may_be_a_path(arg)) {
        found.insert(format!("{verb} {}", name(arg)).trim_start().to_owned());
    }
    for inner in command.get_subcommands() {
        walk(
            inner,
            format!("{verb} {}", inner.get_name()).trim_start(),
            found,
        );
    }
}

#[test]
fn every_argument_that_could_be_an_output_is_known() {
    let mut found = BTreeSet::new();
    walk(&crate::args::command(), "", &mut found);
    let lines = TABLE
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let known: BTreeSet<String> = lines
        .map(|line| {
            line.rsplit_once(' ')
                .map_or(line, |(argument, _)| argument.trim())
        })
        .map(str::to_owned)
        .collect();
    let missing: Vec<&String> = found.difference(&known).collect();
    let gone: Vec<&String> = known.difference(&found).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "tests/it/outputs/table.txt has no line for {missing:#?}\nand lines for {gone:#?}, which are no arguments"
    );
}
