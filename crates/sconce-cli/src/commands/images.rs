//! `sconce images`.

use clap::Args;
use sconce_image::local_image::{self, LocalImage};
use sconce_oci::Digest;
use sconce_schema::{Bytes, exit};
use sconce_store::Store;

use crate::output;
use crate::style::OutputStyle;
use crate::table::format_table;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;

#[derive(Debug, Args)]
pub(crate) struct ImagesArgs {
    /// Print as JSON.
    #[arg(long)]
    json: bool,
    /// Take the name of an image away. Its bytes stay until `sconce prune` finds that nobody uses
    /// them.
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    remove: Vec<String>,
}

pub(crate) fn images(args: &ImagesArgs, context: &AppContext) -> Result<u8> {
    let store = Store::open(&SconceDirs::find(context)?.store)?;
    if !args.remove.is_empty() {
        for name in &args.remove {
            local_image::remove_name(&store, name)?;
        }
        return Ok(exit::OK);
    }
    // An image that left the store keeps its name, and is shown as what it is.
    let named = local_image::list_names(&store)?;
    let images = named
        .iter()
        .map(|(name, digest)| (name, digest, LocalImage::load(&store, *digest).ok()));
    if args.json {
        let row = |(name, digest, image): (&String, &Digest, Option<LocalImage>)| {
            serde_json::json!({
                "name": name,
                "digest": digest,
                "size_bytes": image.as_ref().map(LocalImage::size_bytes),
                "layers": image.as_ref().map(|image| image.manifest.layers.len()),
                "complete": image.is_some_and(|image| image.layer_blobs(&store).is_ok()),
            })
        };
        output::write_data(&serde_json::Value::Array(images.map(row).collect()).to_string())?;
        return Ok(exit::OK);
    }
    let row = |(name, digest, image): (&String, &Digest, Option<LocalImage>)| {
        let none = || "–".to_owned();
        let complete = image
            .as_ref()
            .is_some_and(|image| image.layer_blobs(&store).is_ok());
        [
            name.clone(),
            digest.to_hex()[..12].to_owned(),
            image
                .as_ref()
                .map_or_else(none, |i| i.manifest.layers.len().to_string()),
            match (&image, complete) {
                (Some(image), true) => Bytes(image.size_bytes()).to_string(),
                _ => "not complete".to_owned(),
            },
        ]
    };
    let rows: Vec<[String; 4]> = images.map(row).collect();
    if rows.is_empty() {
        if !context.quiet {
            output::print_message("no images yet: `sconce build` makes one");
        }
    } else {
        let heads = ["image", "digest", "layers", "size"];
        output::write_data(&format_table(heads, &rows, &OutputStyle::for_stdout()))?;
    }
    Ok(exit::OK)
}
