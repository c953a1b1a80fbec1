//! What a command leaves in the place of the report that is written after it: a contained one may be hostile, and
//! what it makes belongs to the caller.

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
    serde_json::from_str::<serde_json::Value>(text).is_ok_and(|report| report["run"]["id"].is_string())
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
