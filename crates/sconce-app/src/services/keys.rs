//! SSH keys: the public ones that may log in, and the server's own.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use sha2::Digest as _;

use super::ServiceError;
use super::files;
use crate::failure::{AppError, Result};
use crate::input::{self, WaitMessage};
use crate::run_temp_dir::private_folder;

/// What every private key begins with, whatever its kind.
const PRIVATE_KEY_MARKER: &str = "PRIVATE KEY-----";
/// OpenSSH's limit of a line, bytes (`sshd` reads a whole one; no key needs more).
const MAX_LINE_BYTES: usize = 16 << 10;

/// The lines of a text of public keys, as sshd(8) has them in "AUTHORIZED_KEYS FILE FORMAT", or the
/// number of the first line that is none. Comments are left out.
pub(super) fn parse_public_keys(text: &str) -> Result<Vec<&str>, usize> {
    let lines = text
        .lines()
        .enumerate()
        .map(|(n, line)| (n + 1, line.trim()));
    let keys = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    keys.map(|(number, line)| if is_key(line) { Ok(line) } else { Err(number) })
        .collect()
}

/// `[options] type base64 [comment]`.
fn is_key(line: &str) -> bool {
    if line.len() > MAX_LINE_BYTES || line.chars().any(|c| c.is_control() && c != '\t') {
        return false;
    }
    has_type(line) || after_options(line).is_some_and(has_type)
}

/// Whether a type and its key stand here. The key says its type once more, with its length before.
fn has_type(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let (Some(kind), Some(key)) = (words.next(), words.next()) else {
        return false;
    };
    let Ok(bytes) = STANDARD
        .decode(key)
        .or_else(|_| STANDARD_NO_PAD.decode(key))
    else {
        return false;
    };
    let length = u32::try_from(kind.len()).unwrap_or_default().to_be_bytes();
    bytes.starts_with(&[&length, kind.as_bytes()].concat())
}

/// What follows options, which have no white space but between quotes.
fn after_options(line: &str) -> Option<&str> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ' ' | '\t' if !quoted => return Some(line[at..].trim_start()),
            _ => {}
        }
    }
    None
}

/// The lines of every key that may log in: of the files that the spec names, or of the caller's own.
pub(super) fn read_authorized_keys(
    files: &[String],
    folder: &Path,
    home: Option<&Path>,
    tell_wait: WaitMessage<'_>,
) -> Result<String> {
    let mut all = Vec::new();
    for name in files {
        let path = match (name.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            (Some(_), None) => return Err(ServiceError::NoHome.into()),
            (None, _) => folder.join(name),
        };
        let text = read(&path, tell_wait)?;
        if text.contains(PRIVATE_KEY_MARKER) {
            return Err(ServiceError::PrivateKey { path }.into());
        }
        let keys = parse_public_keys(&text).map_err(|line| ServiceError::NotAKey {
            path: path.clone(),
            line,
        })?;
        if keys.is_empty() {
            return Err(ServiceError::Empty { path }.into());
        }
        all.extend(keys.into_iter().map(str::to_owned));
    }
    if files.is_empty() {
        let home = home.ok_or(ServiceError::NoHome)?;
        all = of_caller(&home.join(".ssh"));
        if all.is_empty() {
            let folder = home.join(".ssh");
            return Err(ServiceError::NoKeys { folder }.into());
        }
    }
    all.sort();
    all.dedup();
    Ok(all.join("\n") + "\n")
}

fn read(path: &Path, tell_wait: WaitMessage<'_>) -> Result<String> {
    Ok(input::read_stream_text(path, tell_wait).map_err(AppError::unreadable(path))?)
}

/// The caller's own keys, and those that log in as the caller here. Files that hold something else
/// are passed over.
fn of_caller(ssh: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(ssh).into_iter().flatten().flatten();
    let is_public =
        |path: &PathBuf| path.extension().is_some_and(|end| end == "pub") && path.is_file();
    let own = entries.map(|entry| entry.path()).filter(is_public);
    let login = Some(ssh.join("authorized_keys")).filter(|path| path.is_file());
    let texts = own
        .chain(login)
        .filter_map(|path| crate::input::read_text(&path).ok());
    let mut all: Vec<String> = Vec::new();
    for text in texts {
        let lines = text.lines().map(str::trim).filter(|line| is_key(line));
        // A certificate lets nobody in where no authority is trusted.
        all.extend(
            lines
                .filter(|line| !line.contains("-cert-v01@openssh.com"))
                .map(str::to_owned),
        );
    }
    all
}

/// The host key of an environment, made where there is none yet.
pub(super) struct HostKey {
    /// As OpenSSH keeps it.
    pub(super) text: String,
    /// `SHA256:…`, as ssh shows it.
    pub(super) fingerprint: String,
}

const KIND: &str = "ssh-ed25519";
const PEM_HEADER: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const PEM_FOOTER: &str = "-----END OPENSSH PRIVATE KEY-----";
const MAGIC: &[u8] = b"openssh-key-v1\0";
/// Where the 32 public bytes lie in what [`encode`] writes.
const PUBLIC_AT: usize = 62;

impl HostKey {
    /// The key in `folder`, which is made.
    pub(super) fn load_or_create(folder: &Path) -> Result<Self> {
        let path = folder.join("ssh_host_ed25519_key");
        private_folder(folder)?;
        if !path.exists() {
            let seed = files::random_bytes::<32>()?;
            let check = files::random_bytes::<4>()?;
            files::replace_file(&path, 0o600, encode(&seed, check)?.as_bytes())?;
        }
        let text = input::read_text(&path).map_err(AppError::unreadable(&path))?;
        let Some(public) = public_half(&text) else {
            return Err(ServiceError::HostKey { path }.into());
        };
        let digest = sha2::Sha256::digest(blob(&public));
        Ok(Self {
            fingerprint: format!("SHA256:{}", STANDARD_NO_PAD.encode(digest)),
            text,
        })
    }
}

fn string(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or_default().to_be_bytes();
    [&length, bytes].concat()
}

/// A public key on the wire (RFC 8709, section 4).
fn blob(public: &[u8]) -> Vec<u8> {
    [string(KIND.as_bytes()), string(public)].concat()
}

/// A key that is not encrypted, in OpenSSH's own form (its `PROTOCOL.key`). `check` is any number.
fn encode(seed: &[u8; 32], check: [u8; 4]) -> Result<String> {
    let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| ServiceError::HostKey {
        path: PathBuf::new(),
    })?;
    let public = pair.public_key().as_ref();
    let both = [seed, public].concat();
    let mut private = [
        &check[..],
        &check,
        &string(KIND.as_bytes()),
        &string(public),
    ]
    .concat();
    private.extend(string(&both));
    private.extend(string(b""));
    private.extend((1..=8).take((8 - private.len() % 8) % 8));
    let mut whole = MAGIC.to_vec();
    for part in [&b"none"[..], b"none", b""] {
        whole.extend(string(part));
    }
    whole.extend(1_u32.to_be_bytes());
    whole.extend(string(&blob(public)));
    whole.extend(string(&private));
    let text = STANDARD.encode(whole);
    let lines = text.as_bytes().chunks(70);
    let lines: Vec<String> = lines
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    Ok(format!(
        "{PEM_HEADER}\n{}\n{PEM_FOOTER}\n",
        lines.join("\n")
    ))
}

/// The public half of what [`encode`] wrote.
fn public_half(text: &str) -> Option<Vec<u8>> {
    let body = text
        .trim()
        .strip_prefix(PEM_HEADER)?
        .strip_suffix(PEM_FOOTER)?;
    let bytes = STANDARD
        .decode(body.split_whitespace().collect::<String>())
        .ok()?;
    let head = [string(b"none"), string(b"none"), string(b"")].concat();
    let known = bytes.strip_prefix(MAGIC)?.starts_with(&head);
    let named = bytes
        .get(..PUBLIC_AT)?
        .ends_with(&[string(KIND.as_bytes()), vec![0, 0, 0, 32]].concat());
    (known && named).then(|| bytes.get(PUBLIC_AT..PUBLIC_AT + 32).map(<[u8]>::to_vec))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt as _;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJAz6eGO/ogyzZ5PXbqXZJ3rXg2pIhdGp5UsXvqxqLX0";

    #[test]
    fn lines_of_keys_are_known() {
        let good = [
            KEY.to_owned(),
            format!("{KEY} me@here, on my laptop"),
            format!("no-pty,from=\"10.0.0.0/8\" {KEY}"),
            format!("command=\"echo \\\"a b\\\" c\" {KEY} x"),
        ];
        for line in &good {
            let text = format!("# a comment\n\n  {line}\n");
            assert_eq!(parse_public_keys(&text), Ok(vec![line.as_str()]), "{line}");
        }
        for line in [
            "ssh-ed25519",
            "ssh-ed25519 AAAA",
            "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIJAz6eGO/ogyzZ5PXbqXZJ3rXg2pIhdGp5UsXvqxqLX0",
            "-----BEGIN OPENSSH PRIVATE KEY-----",
            "command=\"unclosed ssh-ed25519 AAAA",
            "hello there",
            &format!("{KEY}\u{1b}[2J"),
        ] {
            assert_eq!(
                parse_public_keys(&format!("{KEY}\n{line}")),
                Err(2),
                "{line}"
            );
        }
    }

    #[test]
    fn keys_come_from_files_or_from_the_caller() {
        let home = tempfile::tempdir().unwrap();
        let ssh = home.path().join(".ssh");
        let none = |files: &[String]| {
            read_authorized_keys(files, home.path(), Some(home.path()), &|_| {})
                .err()
                .unwrap()
        };
        let text = none(&[]).to_plain_text();
        assert!(
            text.contains("no public key that may log in") && text.contains("ssh-keygen"),
            "{text}"
        );
        std::fs::create_dir(&ssh).unwrap();
        std::fs::write(
            ssh.join("id_ed25519"),
            "-----BEGIN OPENSSH PRIVATE KEY-----\n",
        )
        .unwrap();
        std::fs::write(ssh.join("known_hosts"), format!("host {KEY}\n")).unwrap();
        assert!(none(&[]).to_plain_text().contains(".ssh"));
        std::fs::write(ssh.join("id_ed25519.pub"), format!("{KEY} own\n")).unwrap();
        std::fs::write(
            ssh.join("authorized_keys"),
            format!("{KEY} other\nbroken\n{KEY} own\n"),
        )
        .unwrap();
        let all = read_authorized_keys(&[], home.path(), Some(home.path()), &|_| {})
            .ok()
            .unwrap();
        assert_eq!(all, format!("{KEY} other\n{KEY} own\n"));
        let one = ["~/.ssh/id_ed25519.pub".to_owned()];
        assert_eq!(
            read_authorized_keys(&one, home.path(), Some(home.path()), &|_| {})
                .ok()
                .unwrap(),
            format!("{KEY} own\n")
        );
        for (file, message) in [
            ("~/.ssh/id_ed25519", "holds a private key"),
            (".ssh/authorized_keys", "line 2: not a public key"),
            ("nowhere", "cannot read"),
        ] {
            let text = none(&[file.to_owned()]).to_plain_text();
            assert!(text.contains(message), "{text}");
        }
        std::fs::write(home.path().join("empty"), "# nobody\n").unwrap();
        assert!(
            none(&["empty".to_owned()])
                .to_plain_text()
                .contains("has no public key")
        );
    }

    /// RFC 8032, section 7.1, test 1.
    #[test]
    fn a_host_key_has_its_public_half() {
        let bytes = |hex: &str| -> Vec<u8> {
            let pairs = hex.as_bytes().chunks(2);
            pairs
                .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect()
        };
        let seed = bytes("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let public = bytes("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        let text = encode(&seed.try_into().unwrap(), [1, 2, 3, 4])
            .ok()
            .unwrap();
        assert_eq!(public_half(&text), Some(public));
        assert!(text.lines().all(|line| line.len() <= 70));
    }

    #[test]
    fn a_host_key_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("env");
        let first = HostKey::load_or_create(&folder).ok().unwrap();
        let path = folder.join("ssh_host_ed25519_key");
        assert_eq!(
            path.metadata().unwrap().permissions().mode() & 0o7777,
            0o600
        );
        let again = HostKey::load_or_create(&folder).ok().unwrap();
        assert_eq!(
            (&first.text, &first.fingerprint),
            (&again.text, &again.fingerprint)
        );
        let other = HostKey::load_or_create(&dir.path().join("other"))
            .ok()
            .unwrap();
        assert_ne!(first.fingerprint, other.fingerprint);
        std::fs::write(&path, "garbage").unwrap();
        assert!(HostKey::load_or_create(&folder).is_err());
    }

    proptest! {
        #[test]
        fn no_text_of_keys_panics(text in "\\PC*", at in 0..KEY.len()) {
            let _ = parse_public_keys(&text);
            let _ = public_half(&text);
            let (head, tail) = KEY.split_at(at);
            let _ = parse_public_keys(&format!("{head}{text}{tail}"));
            let _ = public_half(&format!("{PEM_HEADER}{text}{PEM_FOOTER}"));
        }
    }
}
