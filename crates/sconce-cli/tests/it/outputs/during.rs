//! What a command leaves in the place of the report that is written after it: a contained one may be hostile, and
//! what it makes belongs to the caller. And what it leaves in the place of the project's own files.

use std::fs;

use super::home::Home;

/// Runs a shell's `commands` with the report going to `file`, which the shell gets as `$1`, beside `victim`.
fn run(home: &Home, file: &str, commands: &str) -> i32 {
    fs::write(home.path("victim"), "precious").unwrap();
    let words = ["run", "--host", "-q", "--json", file, "--", "sh", "-c"];
    let words = [&words[..], &[commands, "sh", file]].concat();
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    // Who waits for a FIFO's reader is ended after a while, with another code.
    let done = home.sconce(&words);
    assert_eq!(
        fs::read_to_string(home.path("victim")).unwrap(),
        "precious",
        "{commands}: {done:?}"
    );
    done.code
}

fn is_report(text: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(text)
        .is_ok_and(|report| report["run"]["id"].is_string())
}

#[test]
fn a_link_that_came_while_the_command_ran_is_replaced_and_not_followed() {
    for (before, commands) in [
        (None, "ln -s victim \"$1\""),
        (None, "ln -s \"$PWD/victim\" \"$1\""),
        (Some("old"), "rm \"$1\"; ln -s victim \"$1\""),
        (Some("old"), "ln -sf ../\"${PWD##*/}\"/victim \"$1\""),
    ] {
        let home = Home::new();
        let path = home.path("report.json");
        if let Some(text) = before {
            fs::write(&path, text).unwrap();
        }
        assert_eq!(run(&home, "report.json", commands), 0, "{commands}");
        assert!(path.symlink_metadata().unwrap().is_file(), "{commands}");
        assert!(is_report(&fs::read_to_string(&path).unwrap()), "{commands}");
    }
}

#[test]
fn a_fifo_that_came_while_the_command_ran_is_not_waited_for() {
    let home = Home::new();
    assert_eq!(run(&home, "report.json", "mkfifo \"$1\""), 0);
    assert!(is_report(
        &fs::read_to_string(home.path("report.json")).unwrap()
    ));
}

#[test]
fn a_folder_that_was_exchanged_while_the_command_ran_is_not_entered() {
    let home = Home::new();
    for folder in ["out", "outside"] {
        fs::create_dir(home.path(folder)).unwrap();
    }
    fs::write(home.path("outside/report.json"), "precious").unwrap();
    let commands = "mv out moved; ln -s outside out";
    assert_eq!(run(&home, "out/report.json", commands), 0);
    let text = |path: &str| fs::read_to_string(home.path(path)).unwrap();
    assert_eq!(text("outside/report.json"), "precious");
    // In the folder that was meant, wherever that is by now.
    assert!(is_report(&text("moved/report.json")));
}

#[test]
fn a_link_that_a_run_left_as_spec_or_lock_is_not_followed_out_of_the_project() {
    let home = Home::new();
    let project = home.path("project");
    fs::create_dir(&project).unwrap();
    for (target, victim) in [("../new", "new"), ("../victim", "victim")] {
        fs::write(home.path("victim"), "precious").unwrap();
        let link = project.join("sconce.toml");
        std::os::unix::fs::symlink(target, &link).unwrap();
        let done = home.sconce(&["init", "--force", "project"].map(str::to_owned));
        assert_eq!(done.code, 3, "{done:?}");
        assert!(done.err.contains("leads out of the project"), "{done:?}");
        assert!(done.err.contains("remove it"), "{done:?}");
        let text = fs::read_to_string(home.path(victim)).ok();
        assert!(text.is_none_or(|text| text == "precious"), "{victim}");
        // The hint.
        fs::remove_file(&link).unwrap();
        let done = home.sconce(&["init", "--force", "project"].map(str::to_owned));
        assert_eq!(done.code, 0, "{done:?}");

        // An empty lock is written over; a link to one is not.
        let lock = project.join("sconce.lock");
        fs::write(home.path("victim"), "").unwrap();
        std::os::unix::fs::symlink(target, &lock).unwrap();
        let done = home.sconce(&["lock", "project"].map(str::to_owned));
        assert_eq!(done.code, 3, "{done:?}");
        assert!(done.err.contains("leads out of the project"), "{done:?}");
        let text = fs::read_to_string(home.path(victim)).ok();
        assert!(text.is_none_or(|text| text.is_empty()), "{victim}");
        fs::remove_file(&lock).unwrap();
        fs::remove_file(&link).unwrap();
    }
    // Within the project it is somebody's wish.
    std::os::unix::fs::symlink("other.toml", project.join("sconce.toml")).unwrap();
    let done = home.sconce(&["init", "--force", "project"].map(str::to_owned));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(project.join("other.toml").is_file());
}
