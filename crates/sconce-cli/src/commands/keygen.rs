//! `sconce keygen`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use clap::Args;
use sconce_image::sign::SigningKey;
use sconce_schema::exit;

use crate::args::Global;
use crate::failure::{CliError, Result};
use crate::output;
use crate::registries::password;

#[derive(Debug, Args)]
pub(crate) struct KeygenArgs {
    /// The files are called NAME.key and NAME.pub.
    #[arg(default_value = "sconce", value_name = "NAME")]
    name: PathBuf,
}

/// The private key is encrypted with a password and for its owner's eyes alone; no file is
/// replaced.
pub(crate) fn keygen(args: &KeygenArgs, global: &Global) -> Result<u8> {
    let named = |end: &str| {
        let mut name = args.name.clone().into_os_string();
        name.push(end);
        PathBuf::from(name)
    };
    let (private, public) = (named(".key"), named(".pub"));
    let write = |path: &PathBuf, text: &str, mode: u32| {
        let opened = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path);
        let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|source| CliError::File {
            action: "create",
            path: path.clone(),
            source,
        })
    };
    let password = password("password for the new key: ")?;
    let texts = SigningKey::generate(password.as_bytes())?;
    write(&private, &texts.private, 0o600)?;
    write(&public, &texts.public, 0o644)?;
    if !global.quiet {
        output::say(&format!("{} and {}", private.display(), public.display()));
    }
    Ok(exit::OK)
}
