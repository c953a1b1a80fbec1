//! `sconce keygen`.

use std::path::PathBuf;

use clap::Args;
use sconce_registry::sign::SigningKey;
use sconce_schema::exit;

use crate::output;
use crate::signing_keys::read_password;
use sconce_app::context::AppContext;
use sconce_app::failure::Result;
use sconce_app::folder_conflict::ProtectedDirectory;
use sconce_app::outputs::{self, NewFile};

#[derive(Debug, Args)]
pub(crate) struct KeygenArgs {
    /// The files are called NAME.key and NAME.pub.
    #[arg(default_value = "sconce", value_name = "NAME")]
    name: PathBuf,
}

/// The private key is encrypted with a password and for its owner's eyes alone; no file is
/// replaced.
pub(crate) fn keygen(args: &KeygenArgs, context: &AppContext) -> Result<u8> {
    outputs::validate_name_stem(&args.name)?;
    let named = |end: &str| {
        let mut name = args.name.clone().into_os_string();
        name.push(end);
        PathBuf::from(name)
    };
    let (private, public) = (named(".key"), named(".pub"));
    // Before the password is asked for.
    let files = [
        NewFile::for_path(&private, 0o600)?,
        NewFile::for_path(&public, 0o644)?,
    ];
    // Keys may well lie beside the configuration, where they replace nothing.
    for file in &files {
        outputs::own_places::refuse_new_file(file, Some(ProtectedDirectory::Config))?;
    }
    let password = read_password("password for the new key: ", &context.env)?;
    let texts = SigningKey::generate_pem_pair(password.as_bytes())?;
    let [private_file, public_file] = &files;
    private_file.write(texts.private.as_bytes())?;
    if let Err(error) = public_file.write(texts.public.as_bytes()) {
        // Half a pair would keep the next one from its name.
        private_file.remove();
        return Err(error.into());
    }
    if !context.quiet {
        let [private, public] = [&private, &public].map(|path| output::format_path(path));
        output::print_message(&format!("{private} and {public}"));
    }
    Ok(exit::OK)
}
