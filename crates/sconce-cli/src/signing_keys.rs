//! Keys that sign images, and their passwords.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use crate::error::CliError;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use sconce_app::failure::{AppError, Result};
use sconce_app::file_action::FileAction;
use sconce_app::input;
use sconce_base::Env;
use sconce_registry::sign::{KeyFile, PublicKey, SigningKey};

use crate::output;

/// The variable that has the password of a key.
const PASSWORD: &str = "COSIGN_PASSWORD";

fn read(path: &Path) -> Result<Vec<u8>> {
    Ok(input::read_stream_bytes(path, &output::tell_fifo_wait)
        .map_err(AppError::unreadable(path))?)
}

/// Whether a file holds a private key, whatever its password is.
pub(crate) fn check_signing_key(path: &Path) -> Result<()> {
    KeyFile::parse(&read(path)?)?;
    Ok(())
}

/// The private key in a file, opened with its password.
pub(crate) fn signing_key(path: &Path, env: &Env) -> Result<SigningKey> {
    let file = KeyFile::parse(&read(path)?)?;
    let password = read_password(&format!("password of {}: ", path.display()), env)?;
    Ok(SigningKey::from_key_file(&file, password.as_bytes())?)
}

/// The public key in a file.
pub(crate) fn public_key(path: &Path) -> Result<PublicKey> {
    Ok(PublicKey::parse(&read(path)?)?)
}

/// A password: from the environment, or asked for on the terminal without showing it.
pub(crate) fn read_password(question: &str, env: &Env) -> Result<String> {
    if let Some(password) = env.var(PASSWORD) {
        return Ok(password.to_owned());
    }
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(CliError::NoPassword { variable: PASSWORD }.into());
    }
    let terminal = |source: std::io::Error| AppError::File {
        action: FileAction::Read,
        path: PathBuf::from("the terminal"),
        source,
    };
    let before = tcgetattr(&input).map_err(|e| terminal(e.into()))?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    let mut out = std::io::stderr();
    let _ = out.write_all(question.as_bytes());
    tcsetattr(&input, OptionalActions::Flush, &silent).map_err(|e| terminal(e.into()))?;
    let mut line = String::new();
    let asked = input.lock().read_line(&mut line);
    let _ = tcsetattr(&input, OptionalActions::Flush, &before);
    let _ = out.write_all(b"\n");
    asked.map_err(terminal)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
