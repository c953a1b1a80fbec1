//! What a skip does, in processes of its own: it is told by variables.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::process::Command;

#[test]
#[ignore = "the child of another test"]
fn the_child() {
    sconce_testkit::report_skip("no-such-skip", "a test\nof two lines");
}

/// Whether the child went on, and what it added to the file.
fn child(variables: &[(&str, &str)]) -> (bool, String) {
    let file = std::env::temp_dir().join(format!("sconce-skips-{}", std::process::id()));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "the_child"]);
    command.env_remove("CI").env_remove(sconce_testkit::SKIP);
    command.env(sconce_testkit::SKIPPED_FILE, &file);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    (output.status.success(), text)
}

#[test]
fn a_skip_is_counted_and_in_ci_only_one_that_is_named_passes() {
    let line = "no-such-skip\tthe_child\ta test of two lines\n".to_owned();
    assert_eq!(child(&[]), (true, line.clone()));
    assert_eq!(child(&[("CI", "true")]), (false, line.clone()));
    let named = [("CI", "true"), (sconce_testkit::SKIP, "other,no-such-skip")];
    assert_eq!(child(&named), (true, line));
}
