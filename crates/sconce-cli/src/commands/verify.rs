//! `sconce verify`.

use std::path::PathBuf;

use clap::Args;
use sconce_image::publish;
use sconce_schema::exit;

use crate::output;
use crate::signing_keys::public_key;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::registries::{build_registry_client, parse_reference};

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
pub(crate) fn verify(args: &VerifyArgs, context: &AppContext) -> Result<u8> {
    let places = SconceDirs::find(context)?;
    let image = parse_reference(&args.image, &places)?;
    let keys = args
        .key
        .iter()
        .map(|path| public_key(path))
        .collect::<Result<Vec<_>>>()?;
    let progress = context.start_progress();
    let registry = build_registry_client(&places, context)?;
    let digest = publish::verify(&registry, &image, &keys, &*progress)?;
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
