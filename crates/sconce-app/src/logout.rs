//! What a logout does to a run in the background, on a machine that systemd runs.
//!
//! A process is where its cgroup is. What is part of a login session outlives it, unless logind is set
//! to end it (logind.conf(5), `KillUserProcesses=`). What the user's own manager has started (user@.service:
//! `systemd-run --user`, user units) ends with the manager, ten seconds after the user's last session
//! (`UserStopDelaySec=`), unless the user lingers (loginctl(1), `enable-linger`).

use std::process::{Command, Stdio};

/// Where in systemd's tree a process is, with the user id of the user whose part that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// A login session.
    Session(u32),
    /// What the user's own manager keeps.
    Manager(u32),
}

/// What there is to say, before a run goes on in the background, where a logout would end it.
pub fn warning() -> Option<String> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    fate(part(&own)?, asked)
}

/// What there is to say of a process there. `ask` gives logind's answer to a question of `loginctl`.
fn fate(part: Part, ask: impl Fn(&[&str]) -> Option<bool>) -> Option<String> {
    match part {
        // Root's sessions are left alone by default (`KillExcludeUsers=`).
        Part::Session(0) => None,
        Part::Session(_) => {
            let kills = ask(&["show-session", "--property=KillUserProcesses"])?;
            kills.then(|| {
                "this machine ends what you started when you log out (KillUserProcesses=yes): have \
                 `loginctl enable-linger` done once, and start it with `systemd-run --user --scope -p \
                 Delegate=yes sconce …`"
                    .to_owned()
            })
        }
        Part::Manager(uid) => {
            let lingers = ask(&["show-user", &uid.to_string(), "--property=Linger"])?;
            (!lingers).then(|| {
                "this run ends with your last session, as all that `systemd-run --user` and user units \
                 start: `loginctl enable-linger` keeps it (where that is refused, have root do \
                 `loginctl enable-linger USER`)"
                    .to_owned()
            })
        }
    }
}

/// `None` where logind does not say.
fn asked(question: &[&str]) -> Option<bool> {
    let answer = Command::new("loginctl")
        .args(question)
        .arg("--value")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    match answer.stdout.trim_ascii() {
        b"yes" => Some(true),
        b"no" => Some(false),
        _ => None,
    }
}

/// Which part of a user's a process is in, by its `/proc/PID/cgroup`. On cgroup v1 the hierarchy of
/// systemd's own tells it, which is one of its lines.
fn part(cgroups: &str) -> Option<Part> {
    cgroups.lines().find_map(|line| {
        let path = line.splitn(3, ':').nth(2)?;
        let below = path.strip_prefix("/user.slice/user-")?;
        let (uid, rest) = below.split_once(".slice/")?;
        let (uid, unit) = (uid.parse().ok()?, rest.split('/').next()?);
        if unit.starts_with("session-") && unit.ends_with(".scope") {
            Some(Part::Session(uid))
        } else if unit == format!("user@{uid}.service") {
            Some(Part::Manager(uid))
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_a_user_is_read() {
        let below = |path: &str| format!("0::/user.slice/user-1000.slice/{path}\n");
        for (text, expected) in [
            (below("session-3.scope"), Some(Part::Session(1000))),
            (
                below("session-c1.scope/sconce-itself"),
                Some(Part::Session(1000)),
            ),
            (
                below("user@1000.service/app.slice/run-r1.scope"),
                Some(Part::Manager(1000)),
            ),
            (
                "4:memory:/a\n1:name=systemd:/user.slice/user-0.slice/session-1.scope\n0::/\n"
                    .to_owned(),
                Some(Part::Session(0)),
            ),
            // A user's manager is its own, and of a name it takes more than the look of it.
            (below("user@1001.service/app.slice"), None),
            (below("session-3.scope.d"), None),
            (
                "0::/user.slice/user-x.slice/session-3.scope\n".to_owned(),
                None,
            ),
            (
                "0::/system.slice/user-1000.slice/session-3.scope\n".to_owned(),
                None,
            ),
            ("0::/user.slice/user-1000.slice\n".to_owned(), None),
            ("0::/system.slice/cron.service\n0::\n:\n\n".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(part(&text), expected, "{text}");
        }
    }

    #[test]
    fn who_is_ended_by_a_logout_is_told() {
        let said = |part, answer| fate(part, |_: &[&str]| answer);
        let killed = said(Part::Session(1000), Some(true)).unwrap();
        assert!(killed.contains("KillUserProcesses=yes"), "{killed}");
        assert!(killed.contains("-p Delegate=yes"), "{killed}");
        assert_eq!(said(Part::Session(1000), Some(false)), None);
        assert_eq!(said(Part::Session(0), Some(true)), None);
        let ends = said(Part::Manager(1000), Some(false)).unwrap();
        assert!(ends.contains("loginctl enable-linger"), "{ends}");
        assert_eq!(said(Part::Manager(1000), Some(true)), None);
        // What logind does not say is not guessed.
        assert_eq!(said(Part::Manager(1000), None), None);
        assert_eq!(said(Part::Session(1000), None), None);
        // It is asked of the user whose manager it is.
        let asked = fate(Part::Manager(1000), |question: &[&str]| {
            Some(question[1] != "1000")
        });
        assert!(asked.is_some());
    }
}
