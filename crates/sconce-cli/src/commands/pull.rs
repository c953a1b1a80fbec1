//! `sconce pull`.

use clap::Args;
use sconce_oci::Platform;
use sconce_schema::{Bytes, exit};
use sconce_store::Store;

use crate::output;
use crate::style::OutputStyle;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::environment_builder::debian_architecture;
use sconce_app::failure::Result;
use sconce_app::registries::{fetch_image, full_name, parse_reference};

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
