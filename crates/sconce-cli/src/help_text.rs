//! What `--help` of every verb says, as one text to read and to compare.

use clap::Command;

/// Everything is asked of one command line, so that what every verb has in common is in each.
fn collect(command: &mut Command, path: &str, all: &mut String) {
    all.push_str(&format!("=== {path} --help\n"));
    let text = command.clone().render_long_help().to_string();
    for line in text.lines() {
        all.push_str(line.trim_end());
        all.push('\n');
    }
    all.push('\n');
    for inner in command.get_subcommands_mut() {
        let path = format!("{path} {}", inner.get_name());
        collect(inner, &path, all);
    }
}

#[test]
fn help_of_every_verb_is_as_it_was_read() {
    let mut command = crate::args::command()
        .term_width(100)
        .mut_args(|arg| arg.hide_env_values(true));
    command.build();
    let mut all = String::new();
    collect(&mut command, "sconce", &mut all);
    insta::assert_snapshot!(all);
}
