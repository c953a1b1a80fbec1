//! Registries as this user has set them up: logins, mirrors, keys.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use sconce_base::Env;
use sconce_image::local_image;
use sconce_registry::sign::{KeyFile, PublicKey, SigningKey};
use sconce_registry::{
    HelperPrograms, LoginSources, Mirror, Reference, Registry, RegistrySettings,
};

use crate::context::AppContext;
use crate::dirs::{self, SconceDirs};
use crate::failure::{CliError, Result};
use crate::file_action::FileAction;
use crate::input;
use crate::network;
use crate::output;

/// How long a credential helper may take; one may ask its user.
const HELPER_TIMEOUT: Duration = Duration::from_secs(60);
/// The variable that cosign reads a key's password from.
const PASSWORD: &str = "COSIGN_PASSWORD";

/// The tag that moves.
const LATEST_TAG: &str = "latest";

/// A client with this user's settings.
///
/// Logins come from `REGISTRY_AUTH_FILE`, podman's file in `XDG_RUNTIME_DIR` and Docker's
/// `config.json` in `DOCKER_CONFIG` or `~/.docker`; the first that knows a registry counts.
pub(crate) fn build_registry_client(places: &SconceDirs, context: &AppContext) -> Result<Registry> {
    let config = &places.config;
    let mut logins = LoginSources::empty();
    for path in login_files(&context.env) {
        if let Ok(text) = crate::input::read_text(&path) {
            logins = logins
                .with_file(&text)
                .map_err(|source| CliError::Logins { path, source })?;
        }
    }
    let helpers = HelperPrograms {
        folders: context.env.search_path(),
        limit: HELPER_TIMEOUT,
    };
    let mirror = |mirror: &dirs::RegistryMirror| Mirror {
        of: mirror.of.clone(),
        base: mirror.base.clone(),
    };
    let settings = RegistrySettings {
        fetch: network::fetch_config(context.offline, &[], &context.env),
        logins: logins.with_helpers(Arc::new(helpers)),
        insecure: config.insecure_registries.clone(),
        mirrors: config.registry_mirrors.iter().map(mirror).collect(),
        ..RegistrySettings::default()
    };
    Ok(Registry::new(settings)?)
}

fn login_files(env: &Env) -> Vec<PathBuf> {
    let file = |variable: &str, rest: &str| Some(env.path_var(variable)?.join(rest));
    let home = || Some(env.home_dir()?.join(".docker/config.json"));
    [
        env.path_var("REGISTRY_AUTH_FILE"),
        file("XDG_RUNTIME_DIR", "containers/auth.json"),
        file("DOCKER_CONFIG", "config.json").or_else(home),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A reference as a user writes it.
pub(crate) fn parse_reference(text: &str, places: &SconceDirs) -> Result<Reference> {
    Ok(Reference::parse(text, places.config.registry.as_deref())?)
}

/// Where an image goes: with `tag` where the text has none. `latest` says nothing about what is
/// inside, so it has to be asked for twice: by the tag and by `--latest`.
pub(crate) fn parse_destination(
    text: &str,
    tag: &str,
    latest: bool,
    places: &SconceDirs,
) -> Result<Reference> {
    let named = parse_reference(text, places)?;
    if named.tag() == Some(LATEST_TAG) && !latest {
        return Err(CliError::Latest.into());
    }
    match named.tag() {
        Some(_) => Ok(named),
        None => parse_reference(&format!("{}/{}:{tag}", named.host(), named.path()), places),
    }
}

/// Whether local names may be given.
pub(crate) fn check_local(names: &[String], latest: bool) -> Result<()> {
    names
        .iter()
        .try_for_each(|name| local_image::check_name(name))?;
    let is_latest = |name: &String| {
        name.rsplit_once(':')
            .is_some_and(|(_, tag)| tag == LATEST_TAG)
    };
    match names.iter().any(is_latest) && !latest {
        true => Err(CliError::Latest.into()),
        false => Ok(()),
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    Ok(input::read_stream_bytes(path, output::tell_fifo_wait)
        .map_err(CliError::unreadable(path))?)
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
    let terminal = |source: std::io::Error| CliError::File {
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
