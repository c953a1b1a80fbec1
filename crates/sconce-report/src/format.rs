//! Figures in words.

use std::fmt::Write;

use sconce_record::UtcMinute;
use sconce_schema::event::{Containment, RunStarted};
use sconce_schema::spec::JobContainment;

/// A length of time: `under 1 ms`, `340 ms`, `14.2 s`, `12 min 05 s`, `3 h 12 min`, `2 d 3 h`.
pub(crate) fn format_duration(us: u64) -> String {
    let s = us / 1_000_000;
    match s {
        0 if (1..1000).contains(&us) => "under 1 ms".to_owned(),
        0 if us < 999_500 => format!("{} ms", (us + 500) / 1000),
        0..100 => format!("{:.1} s", us as f64 / 1e6),
        100..3_600 => format!("{} min {:02} s", s / 60, s % 60),
        3_600..86_400 => format!("{} h {:02} min", s / 3_600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3_600 % 24),
    }
}

/// A share between 0 and 1: `23 %`; a small one that is not nothing is `under 1 %`.
pub(crate) fn format_percent(share: f64) -> String {
    let percent = (share * 100.0).round();
    if share > 0.0 && percent < 1.0 {
        "under 1 %".to_owned()
    } else {
        format!("{percent:.0} %")
    }
}

/// A wall-clock time to the minute, UTC: `2026-11-21 00:34`.
pub(crate) fn format_date_time(unix_ms: u64) -> String {
    let at = UtcMinute::from_unix_ms(unix_ms);
    let (day, minute) = (
        format!("{:04}-{:02}-{:02}", at.year, at.month, at.day),
        format!("{:02}:{:02}", at.hour, at.minute),
    );
    format!("{day} {minute}")
}

/// Program and arguments as a shell would take them.
pub(crate) fn format_command(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let mut line = String::new();
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        if !word.is_empty() && word.chars().all(plain) {
            line.push_str(word);
        } else {
            let _ = write!(line, "'{}'", word.replace('\'', r"'\''"));
        }
    }
    line
}

/// What a run runs, for a list: its command, or `(services)`.
pub(crate) fn format_workload(words: &[String]) -> String {
    match words {
        [] => "(services)".to_owned(),
        words => format_command(words),
    }
}

/// A text from a record as it may go to a terminal: what would move the cursor, change colours or
/// turn the direction of writing is replaced.
pub(crate) fn printable_text(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => ' ',
            c if sconce_base::text::is_unprintable(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// `1 process`, `2 processes`.
pub(crate) fn format_count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// A signal's name and meaning on Linux (`signal(7)`), as the end of "the command was …".
#[must_use]
pub fn describe_signal(number: i32) -> (String, &'static str) {
    let (name, meaning) = match number {
        1 => ("SIGHUP", "ended because its terminal closed"),
        2 => ("SIGINT", "interrupted (Ctrl-C)"),
        3 => ("SIGQUIT", "ended by Ctrl-\\"),
        4 => (
            "SIGILL",
            "ended by an instruction that this CPU does not know",
        ),
        5 => ("SIGTRAP", "ended by a trap"),
        6 => ("SIGABRT", "aborted by itself"),
        7 => ("SIGBUS", "ended by a bus error"),
        8 => ("SIGFPE", "ended by an arithmetic error"),
        9 => ("SIGKILL", "killed"),
        11 => ("SIGSEGV", "ended by a segmentation fault"),
        13 => ("SIGPIPE", "ended because nobody read its output"),
        14 => ("SIGALRM", "ended by its alarm clock"),
        15 => ("SIGTERM", "asked to end"),
        24 => ("SIGXCPU", "ended by its limit of CPU time"),
        25 => ("SIGXFSZ", "ended by its limit of file size"),
        31 => ("SIGSYS", "ended by a system call that is not allowed"),
        _ => return (format!("signal {number}"), "ended"),
    };
    (name.to_owned(), meaning)
}

/// What a run had instead of a container of Sconce's or of a runtime that it was told to use; `None` where it had one.
pub(crate) fn containment_label(started: &RunStarted) -> Option<&'static str> {
    match (started.containment, started.mode) {
        (Some(JobContainment::None), _) => {
            Some("the lock's packages on the machine itself, no container")
        }
        (Some(JobContainment::Apptainer), _) => Some("in apptainer's container"),
        (Some(JobContainment::Slurm), _) => Some("in a container of Slurm's"),
        (Some(JobContainment::Pyxis), _) => Some("in enroot's container"),
        (Some(JobContainment::Sconce) | None, Containment::Container) => None,
        (Some(JobContainment::Sconce) | None, Containment::Host) => {
            Some("the machine's own, no container")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time() {
        for (us, text) in [
            (0, "0 ms"),
            (400, "under 1 ms"),
            (340_400, "340 ms"),
            (999_600, "1.0 s"),
            (14_249_000, "14.2 s"),
            (725_000_000, "12 min 05 s"),
            (11_520_000_000, "3 h 12 min"),
            (183_600_000_000, "2 d 3 h"),
        ] {
            assert_eq!(format_duration(us), text);
        }
    }

    #[test]
    fn shares_are_not_rounded_to_nothing() {
        for (share, text) in [
            (0.0, "0 %"),
            (0.001, "under 1 %"),
            (0.006, "1 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(format_percent(share), text);
        }
    }

    #[test]
    fn commands_can_be_pasted() {
        let words = |words: &[&str]| {
            format_command(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(
            words(&["python", "train.py", "--lr=1e-3"]),
            "python train.py --lr=1e-3"
        );
        assert_eq!(
            words(&["sh", "-c", "echo it's; ls"]),
            r"sh -c 'echo it'\''s; ls'"
        );
        assert_eq!(words(&["x", ""]), "x ''");
        assert_eq!(words(&[]), "");
    }

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(
            printable_text("a\u{1b}[2Jb\r\u{9b}31m\u{202e}c\nd"),
            "a\u{fffd}[2Jb\u{fffd}\u{fffd}31m\u{fffd}c d"
        );
        assert_eq!(printable_text("Grüße, 数字"), "Grüße, 数字");
    }
}
