//! `sconce verify`.

use std::path::PathBuf;

use clap::Args;
use sconce_image::publish;
use sconce_schema::exit;

use crate::args::GlobalArgs;
use crate::dirs::SconceDirs;
use crate::failure::Result;
use crate::output;
use crate::progress::TerminalProgress;
use crate::registries::{build_registry_client, parse_reference, public_key};

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The image: HOST/PATH[:TAG][@DIGEST].
    image: String,
    /// A public key that may have signed it; repeat it for several.
    #[arg(long, value_name = "KEY", required = true)]
    key: Vec<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Says on standard output what digest is good, so that it can be handed on.
pub(crate) fn verify(args: &VerifyArgs, global: &GlobalArgs) -> Result<u8> {
    let places = SconceDirs::find(global)?;
    let image = parse_reference(&args.image, &places)?;
    let keys = args
        .key
        .iter()
        .map(|path| public_key(path))
        .collect::<Result<Vec<_>>>()?;
    let progress = TerminalProgress::new(global.quiet);
    let registry = build_registry_client(&places, global)?;
    let digest = publish::verify(&registry, &image, &keys, &progress)?;
    progress.finish();
    let at = format!("{}/{}@{digest}", image.host(), image.path());
    output::write_data(&match args.json {
        true => {
            serde_json::json!({"verified": true, "reference": at, "digest": digest}).to_string()
        }
        false => at,
    })?;
    Ok(exit::OK)
}
