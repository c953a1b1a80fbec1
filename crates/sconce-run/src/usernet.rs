//! The way out of a network of one's own: slirp4netns or pasta, programs that are a TCP/IP stack in
//! user space. They need no root and change nothing of the machine's own network: no bridge, no
//! firewall rule.

use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sconce_schema::event::UnenforcedLimit;

use crate::sys::follow::kill_with_parent;
use crate::tun_access::{TUN, TunAccess};

/// The helpers that are known, the one that is known to be right first (docs/decisions/048).
pub const HELPERS: [&str; 2] = ["slirp4netns", "pasta"];

/// Where a helper answers questions for names, by the machine's own resolvers. slirp4netns has it so,
/// and pasta is told the same.
pub(crate) const RESOLVER: &str = "10.0.2.3";

/// How long a helper may take to set an interface up.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two looks.
const READY_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// As much of what a helper says is kept.
const MAX_OUTPUT_BYTES: u64 = 4096;

/// A running helper; ends when this is dropped, and when this process ends in any way.
#[derive(Debug)]
pub(crate) struct UserModeNetwork {
    child: Child,
    /// Its standard error, as far as it is kept.
    said: File,
}

/// The network that gets a way out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NetnsTarget {
    /// The process in whose network it is.
    pub(crate) first: u32,
    /// Whether a user namespace owns that network; else the machine's root does.
    pub(crate) by_user: bool,
}

impl UserModeNetwork {
    /// Starts the first of `programs` that works here, waits until the network is set up, and names
    /// it, with what is to be told of it.
    ///
    /// # Errors
    /// What is to be told where there is none, or where none works; then it is the first that is told
    /// of.
    pub(crate) fn start(
        programs: &[PathBuf],
        inside: NetnsTarget,
    ) -> Result<(Self, String, Option<UnenforcedLimit>), UnenforcedLimit> {
        let mut told = None;
        for program in programs {
            let name = program.file_name().unwrap_or_default().to_string_lossy();
            let started = match &*name {
                "pasta" => pasta(program, inside),
                _ => slirp4netns(program, inside),
            };
            match started {
                Ok(helper) => {
                    let fault =
                        (name == "pasta" && has_no_version(program)).then(|| faulty(program));
                    return Ok((helper, name.into_owned(), fault));
                }
                Err(error) => {
                    let tun = TunAccess::detect(Path::new(TUN));
                    told = told.or_else(|| Some(fails(program, &error, &tun)));
                }
            }
        }
        Err(told.unwrap_or_else(absent))
    }
}

impl Drop for UserModeNetwork {
    fn drop(&mut self) {
        // It keeps nothing that would have to be put away.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Why a helper does not work.
#[derive(Debug, thiserror::Error)]
enum HelperError {
    #[error(transparent)]
    Start(#[from] std::io::Error),
    #[error("it set no interface up{}", words(.0))]
    NotReady(String),
    #[error("it ended: {status}{}", words(.said))]
    Ended {
        status: std::process::ExitStatus,
        said: String,
    },
}

/// What a helper said of it.
fn words(said: &str) -> String {
    match said {
        "" => String::new(),
        said => format!(", and said: {said}"),
    }
}

/// pasta(1). Without flags it forwards every port between the two loopbacks, and the address of the
/// gateway is the machine's loopback: all of that is switched off. Inside it has the addresses that
/// slirp4netns gives, and the machine's own IPv6 address where there is one.
fn pasta(program: &Path, inside: NetnsTarget) -> Result<UserModeNetwork, HelperError> {
    let mut command = Command::new(program);
    command
        .args(["--foreground", "--quiet", "--config-net"])
        .args(["--tcp-ports", "none", "--udp-ports", "none"])
        .args(["--tcp-ns", "none", "--udp-ns", "none", "--no-map-gw"])
        .args(["--address", "10.0.2.100", "--netmask", "24"])
        .args(["--gateway", "10.0.2.2", "--dns-forward", RESOLVER])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    if inside.by_user {
        command.arg(inside.first.to_string());
    } else {
        // It gives its rights up before it looks, and may open no other process's files then.
        let network = File::open(format!("/proc/{}/ns/net", inside.first))?;
        command
            .args([
                "--runas",
                "0",
                "--no-netns-quit",
                "--netns",
                "/proc/self/fd/0",
            ])
            .stdin(network);
    }
    let mut helper = spawn(command)?;
    let end = Instant::now() + READY_TIMEOUT;
    // The default route is what it makes last; packets wait for it from then on.
    while !has_route(inside.first) {
        if let Some(status) = helper.child.try_wait()? {
            let said = helper.last_words();
            return Err(HelperError::Ended { status, said });
        }
        if Instant::now() >= end {
            return Err(HelperError::NotReady(helper.last_words()));
        }
        std::thread::sleep(READY_POLL_INTERVAL);
    }
    Ok(helper)
}

/// Whether this pasta does not know its version, as that of Debian 12 (2023-03-09).
fn has_no_version(program: &Path) -> bool {
    let told = Command::new(program)
        .arg("--version")
        .env_clear()
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    told.is_ok_and(|told| String::from_utf8_lossy(&told.stdout).contains("unknown version"))
}

/// What that version does: measured, see docs/decisions/048.
fn faulty(program: &Path) -> UnenforcedLimit {
    UnenforcedLimit {
        what: "network".to_owned(),
        why: format!(
            "{} is of a version that may repeat data and hang on connections of which the run's side \
             has ended its half first",
            program.display()
        ),
        hint: Some("install the package slirp4netns, which is taken before it".to_owned()),
    }
}

/// slirp4netns(1).
fn slirp4netns(program: &Path, inside: NetnsTarget) -> Result<UserModeNetwork, HelperError> {
    let mut command = Command::new(program);
    command
        .args(["--configure", "--mtu=65520", "--disable-host-loopback"])
        .arg("--enable-seccomp")
        // Nothing is ever written there: it ends when the other end is gone.
        .args(["--exit-fd=0", "--ready-fd=1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    // It makes its sandbox as root of the network's user namespace, in which a plain user's run has no
    // root (setegid(0) fails).
    if !inside.by_user {
        command.arg("--enable-sandbox");
    }
    command.arg(inside.first.to_string()).arg("tap0");
    let mut helper = spawn(command)?;
    match helper.child.stdout.take().is_some_and(is_ready) {
        true => Ok(helper),
        false => Err(HelperError::NotReady(helper.last_words())),
    }
}

fn spawn(mut command: Command) -> Result<UserModeNetwork, HelperError> {
    use std::os::unix::process::CommandExt as _;
    let said = limited_file()?;
    command
        .env_clear()
        .stderr(said.try_clone()?)
        // A Ctrl-C is for the command, which may want the network while it ends.
        .process_group(0);
    kill_with_parent(&mut command);
    let child = command.spawn()?;
    Ok(UserModeNetwork { child, said })
}

/// A file in memory that takes no more than its size: a helper that goes on to complain for days fills
/// nothing, and is not ended by a pipe that nobody reads.
fn limited_file() -> std::io::Result<File> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let file = File::from(memfd_create(
        "way-out",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?);
    file.set_len(MAX_OUTPUT_BYTES)?;
    fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK)?;
    Ok(file)
}

impl UserModeNetwork {
    /// The last line that it said, shortened; empty where there is none.
    fn last_words(&self) -> String {
        use std::os::unix::fs::FileExt as _;
        let mut bytes = vec![0; MAX_OUTPUT_BYTES as usize];
        let read = self.said.read_at(&mut bytes, 0).unwrap_or(0);
        last_line(&bytes[..read])
    }
}

/// The last line with a letter in it, of at most 200 characters, of bytes that end in zeros.
fn last_line(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let mut lines = text.lines().rev();
    let line = lines.find(|line| line.contains(char::is_alphabetic));
    let plain = line
        .unwrap_or_default()
        .chars()
        .filter(|letter| !sconce_base::text::is_unprintable(*letter));
    plain.take(200).collect::<String>().trim().to_owned()
}

/// Reads until it says that it is ready, or says no more, or takes too long.
fn is_ready(mut ready: ChildStdout) -> bool {
    use std::io::Read as _;
    let end = Instant::now() + READY_TIMEOUT;
    let mut said = Vec::new();
    while !says_ready(&said) {
        let left = end.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else {
            return false;
        };
        let mut fds = [PollFd::new(&ready, PollFlags::IN)];
        if !poll(&mut fds, Some(&left)).is_ok_and(|count| count > 0) {
            return false;
        }
        let mut some = [0_u8; 256];
        match ready.read(&mut some) {
            Ok(read) if read > 0 && said.len() < 65_536 => said.extend_from_slice(&some[..read]),
            _ => return false,
        }
    }
    true
}

/// A line `1`, without its end. Version 1.2.0 warns on its standard output first.
fn says_ready(said: &[u8]) -> bool {
    said == b"1" || said.ends_with(b"\n1")
}

/// Whether the network of a process has a default route of either kind.
fn has_route(first: u32) -> bool {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{first}/net/{name}"));
    read("route").is_ok_and(|text| has_default(&text))
        || read("ipv6_route").is_ok_and(|text| has_default_6(&text))
}

/// /proc/net/route: interface, destination, gateway, ….
fn has_default(routes: &str) -> bool {
    let destination = |line: &str| line.split_ascii_whitespace().nth(1) == Some("00000000");
    routes.lines().any(destination)
}

/// /proc/net/ipv6_route: destination, its length, …, interface. The kernel itself has one on `lo`
/// that refuses.
fn has_default_6(routes: &str) -> bool {
    routes.lines().any(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let all = |word: &&str| word.bytes().all(|digit| digit == b'0');
        words.first().is_some_and(all) && words.get(1) == Some(&"00") && words.last() != Some(&"lo")
    })
}

fn fails(program: &Path, error: &dyn Display, tun: &TunAccess) -> UnenforcedLimit {
    let (cause, hint) = match tun.problem_and_fix() {
        Some((cause, mend)) => (cause, format!("{mend}; or use `--network host`")),
        None => (error.to_string(), "use `--network host`".to_owned()),
    };
    UnenforcedLimit {
        what: "network".to_owned(),
        why: format!(
            "{} does not work here ({cause}), and without it the run's own network leads nowhere",
            program.display()
        ),
        hint: Some(hint),
    }
}

/// That there is no helper.
fn absent() -> UnenforcedLimit {
    UnenforcedLimit {
        what: "network".to_owned(),
        why: "neither slirp4netns nor pasta is installed, and without one of them the run's own \
              network leads nowhere"
            .to_owned(),
        hint: Some("install the package slirp4netns or passt, or use `--network host`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_route_is_told_from_others() {
        let head = "Iface\tDestination\tGateway \tFlags\n";
        let near = "eth0\t0002000A\t00000000\t0001\n";
        let default = "eth0\t00000000\t0202000A\t0003\n";
        assert!(!has_default(&format!("{head}{near}")));
        assert!(has_default(&format!("{head}{default}{near}")));
        let zeros = "0".repeat(32);
        let line = |length: &str, interface: &str| {
            format!(
                "{zeros} {length} {zeros} 00 {zeros} ffffffff 00000001 00000000 00200200 {interface}\n"
            )
        };
        assert!(!has_default_6(&line("00", "lo")));
        assert!(!has_default_6(&line("40", "eth0")));
        assert!(has_default_6(&format!(
            "{}{}",
            line("00", "lo"),
            line("00", "eth0")
        )));
        assert!(!has_default("") && !has_default_6(""));
    }

    #[test]
    fn a_warning_before_the_sign_is_no_failure() {
        assert!(says_ready(b"1"));
        assert!(says_ready(
            b"WARNING: Support for seccomp is experimental\n1"
        ));
        for said in ["", "W", "WARNING: 1", "11", "1\n2"] {
            assert!(!says_ready(said.as_bytes()), "{said}");
        }
    }

    #[test]
    fn the_cause_is_the_devices_or_what_the_helper_says() {
        let program = Path::new("/usr/bin/slirp4netns");
        let error = HelperError::NotReady("it said so".to_owned());
        let closed = TunAccess::Closed {
            mode: 0o600,
            owner: 0,
        };
        let told = fails(program, &error, &closed);
        assert!(told.why.contains("has the mode 0600"), "{told:?}");
        let hint = told.hint.unwrap();
        assert!(hint.contains("chmod 0666 /dev/net/tun"), "{hint}");
        // Not of the device where nothing is wrong with it.
        let told = fails(program, &error, &TunAccess::Opens);
        assert!(
            told.why.contains("no interface up, and said: it said so"),
            "{told:?}"
        );
        assert!(!told.hint.unwrap().contains("tun"));
    }

    #[test]
    fn the_last_words_of_a_helper_are_short_and_plain() {
        assert_eq!(last_line(b""), "");
        assert_eq!(last_line(&[0; 64]), "");
        assert_eq!(
            last_line(b"first\nsecond \x1b[1mline\n\n\0\0"),
            "second [1mline"
        );
        assert_eq!(last_line(&[b'x'; 4096]).len(), 200);
    }

    #[test]
    fn what_a_helper_says_is_kept_as_far_as_there_is_room() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "head -c 3000 /dev/zero | tr '\\0' x >&2; echo >&2; echo the end >&2; head -c 9000 /dev/zero >&2; exit 0"]);
        command
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut helper = spawn(command).unwrap();
        helper.child.wait().unwrap();
        assert_eq!(helper.last_words(), "the end");
    }

    #[test]
    fn what_does_not_work_is_told_of_the_first() {
        let inside = NetnsTarget {
            first: std::process::id(),
            by_user: true,
        };
        let told = UserModeNetwork::start(&[], inside).unwrap_err();
        assert!(
            told.why.contains("neither slirp4netns nor pasta"),
            "{told:?}"
        );
        let programs = ["/nowhere/slirp4netns", "/nowhere/pasta"].map(PathBuf::from);
        let told = UserModeNetwork::start(&programs, inside).unwrap_err();
        assert!(
            told.why
                .starts_with("/nowhere/slirp4netns does not work here"),
            "{told:?}"
        );
    }
}
