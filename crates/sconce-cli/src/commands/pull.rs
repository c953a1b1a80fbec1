//! `sconce pull`.

use clap::Args;
use sconce_image::local_image::LocalImage;
use sconce_image::publish;
use sconce_oci::Platform;
use sconce_registry::Reference;
use sconce_schema::{Bytes, Progress, exit};
use sconce_store::Store;

use super::push::full_name;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::environment_builder::debian_architecture;
use crate::failure::Result;
use crate::output;
use crate::registries::{build_registry_client, parse_reference};
use crate::style::OutputStyle;

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// The image: HOST/PATH[:TAG][@DIGEST].
    image: String,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn pull(args: &PullArgs, context: &AppContext) -> Result<u8> {
    let places = SconceDirs::find(context)?;
    let store = Store::open(&places.store)?;
    let from = parse_reference(&args.image, &places)?;
    let progress = context.start_progress();
    let platform = Platform {
        architecture: debian_architecture().to_owned(),
        os: "linux".to_owned(),
        variant: None,
    };
    let image = fetch_image(&from, &platform, &store, context, &*progress)?;
    progress.finish();
    let name = full_name(&from);
    if args.json {
        let said = serde_json::json!({
            "name": name,
            "digest": image.digest,
            "size_bytes": image.size_bytes(),
        });
        output::write_data(&said.to_string())?;
    } else if !context.quiet {
        output::print_message(&format!(
            "{name}\n{} {}\n{} layers, {}",
            OutputStyle::for_stderr().dim("digest"),
            image.digest,
            image.manifest.layers.len(),
            Bytes(image.size_bytes())
        ));
    }
    Ok(exit::OK)
}

/// Brings an image into the store, where it is called by its whole reference.
pub(super) fn fetch_image(
    from: &Reference,
    platform: &Platform,
    store: &Store,
    context: &AppContext,
    progress: &dyn Progress,
) -> Result<LocalImage> {
    let registry = build_registry_client(&SconceDirs::find(context)?, context)?;
    let image = publish::pull(&registry, from, platform, store, progress)?;
    image.assign_name(store, &full_name(from))?;
    Ok(image)
}
