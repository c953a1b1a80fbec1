//! Credential helpers: programs that keep logins (docker-credential-helpers' README).

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::error::printable_text;

/// The longest answer of a helper that is read, bytes.
const MAX_ANSWER_BYTES: u64 = 256 << 10;

/// Asks credential helpers.
pub trait CredentialHelpers: Send + Sync {
    /// What `docker-credential-NAME get` answers for `host`; `None` when it knows no login.
    ///
    /// # Errors
    /// [`HelperError`].
    fn get(&self, name: &str, host: &str) -> Result<Option<String>, HelperError>;
}

/// Why a helper gave nothing. What it wrote is not shown: it can be a secret.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// A name with more than letters, digits, `.`, `_` and `-`.
    #[error("the credential helper `{name}` has a name that no program can have")]
    Name {
        /// The name, cut and escaped.
        name: String,
    },
    /// The program is not there or cannot be started.
    #[error("the credential helper docker-credential-{name} could not be started")]
    Missing {
        /// Its name.
        name: String,
    },
    /// It did not end in time.
    #[error("the credential helper docker-credential-{name} did not answer within {seconds} s")]
    Slow {
        /// Its name.
        name: String,
        /// The limit.
        seconds: u64,
    },
    /// It ended with a failure.
    #[error("the credential helper docker-credential-{name} failed")]
    Failed {
        /// Its name.
        name: String,
    },
    /// Its answer does not read.
    #[error("the credential helper docker-credential-{name} gave an answer that does not read")]
    Answer {
        /// Its name.
        name: String,
    },
}

/// Runs the programs themselves, in the surroundings of this process.
#[derive(Debug, Clone)]
pub struct HelperPrograms {
    /// Folders that are searched for them; empty: those of the process's search path.
    pub folders: Vec<PathBuf>,
    /// Longest time that one may take.
    pub limit: Duration,
}

impl Default for HelperPrograms {
    fn default() -> Self {
        Self {
            folders: Vec::new(),
            // A helper may wait for a person who unlocks a key ring.
            limit: Duration::from_secs(60),
        }
    }
}

impl CredentialHelpers for HelperPrograms {
    fn get(&self, name: &str, host: &str) -> Result<Option<String>, HelperError> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.len() > 100 || !name.chars().all(is_part) {
            return Err(HelperError::Name {
                name: printable_text(name, 100),
            });
        }
        let missing = || HelperError::Missing {
            name: name.to_owned(),
        };
        let file = format!("docker-credential-{name}");
        let program = if self.folders.is_empty() {
            PathBuf::from(file)
        } else {
            let mut paths = self.folders.iter().map(|folder| folder.join(&file));
            paths.find(|path| path.is_file()).ok_or_else(missing)?
        };
        let mut child = Command::new(program)
            .arg("get")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|_| missing())?;
        self.listen(&mut child, name, host)
    }
}

impl HelperPrograms {
    fn listen(
        &self,
        child: &mut Child,
        name: &str,
        host: &str,
    ) -> Result<Option<String>, HelperError> {
        let end = Instant::now() + self.limit;
        if let Some(mut stdin) = child.stdin.take() {
            // One that does not read what it is asked will say so itself.
            let _ = writeln!(stdin, "{host}");
        }
        let (send, receive) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            // A thread of its own: a grandchild can hold the pipe open for ever.
            std::thread::spawn(move || {
                let mut text = Vec::new();
                let _ = stdout.take(MAX_ANSWER_BYTES).read_to_end(&mut text);
                let _ = send.send(text);
            });
        }
        let text = receive.recv_timeout(self.limit);
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if text.is_ok() && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break None;
                }
            }
        };
        let (Some(status), Ok(text)) = (status, text) else {
            return Err(HelperError::Slow {
                name: name.to_owned(),
                seconds: self.limit.as_secs(),
            });
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        if status.success() {
            return Ok(Some(text));
        }
        // The words of docker-credential-helpers' `errCredentialsNotFoundMessage`.
        if text.trim() == "credentials not found in native keychain" {
            return Ok(None);
        }
        Err(HelperError::Failed {
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn programs(scripts: &[(&str, &str)], limit: Duration) -> (tempfile::TempDir, HelperPrograms) {
        let folder = tempfile::tempdir().unwrap();
        for (name, script) in scripts {
            let path = folder.path().join(format!("docker-credential-{name}"));
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let folders = vec![folder.path().to_owned()];
        (folder, HelperPrograms { folders, limit })
    }

    #[test]
    fn programs_are_asked() {
        let (_folder, helpers) = programs(
            &[
                ("good", "read host; echo \"$1 $host\""),
                (
                    "none",
                    "echo 'credentials not found in native keychain'; exit 1",
                ),
                ("bad", "echo hunter2; exit 1"),
            ],
            Duration::from_secs(60),
        );
        let got = helpers.get("good", "a.example.org").unwrap();
        assert_eq!(got.as_deref(), Some("get a.example.org\n"));
        assert_eq!(helpers.get("none", "a.example.org").unwrap(), None);
        let error = helpers.get("bad", "a.example.org").unwrap_err();
        assert!(matches!(error, HelperError::Failed { .. }), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
        for name in ["", "a/b", "../good", "a b", "good\n"] {
            let error = helpers.get(name, "a.example.org").unwrap_err();
            assert!(matches!(error, HelperError::Name { .. }), "{error}");
        }
        let error = helpers.get("gone", "a.example.org").unwrap_err();
        assert!(matches!(error, HelperError::Missing { .. }), "{error}");
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let (_folder, helpers) = programs(
            &[
                ("hangs", "exec sleep 600"),
                ("leaves", "sleep 30 & exit 0"),
                ("closes", "exec >&-; exec sleep 600"),
            ],
            Duration::from_millis(300),
        );
        for name in ["hangs", "leaves", "closes"] {
            let error = helpers.get(name, "a.example.org").unwrap_err();
            assert!(matches!(error, HelperError::Slow { .. }), "{name}: {error}");
        }
    }
}
