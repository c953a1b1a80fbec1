//! What `build --plan` says.

use sconce_image::layer::LayerBlob;
use sconce_image::layer_plan::{LayerPlan, PlannedLayer};
use sconce_schema::{Bytes, exit};

use super::LayerSharing;
use crate::output;
use crate::style::OutputStyle;
use sconce_app::failure::Result;

/// Prints the plan. Whether layers are there is `known` where their packages are.
pub(super) fn print_plan(
    plan: &LayerPlan,
    (layers, known): (&[Option<LayerBlob>], bool),
    shared: &LayerSharing,
    json: bool,
) -> Result<u8> {
    let rows = plan.layers.iter().zip(layers);
    if json {
        let row = |(planned, layer): (&PlannedLayer, &Option<LayerBlob>)| {
            serde_json::json!({
                "layer": planned.name,
                "packages": planned.packages.iter()
                    .map(|(name, version)| serde_json::json!({"name": name, "version": version}))
                    .collect::<Vec<_>>(),
                "download_bytes": planned.download_bytes,
                "digest": layer.as_ref().map(|l| l.digest),
                "size_bytes": layer.as_ref().map(|l| l.size_bytes),
                "shared_with": shared.of(layer.as_ref()),
            })
        };
        output::write_data(&serde_json::Value::Array(rows.map(row).collect()).to_string())?;
        return Ok(exit::OK);
    }
    output::write_data(&format_plan(
        plan,
        (layers, known),
        shared,
        &OutputStyle::for_stdout(),
    ))?;
    Ok(exit::OK)
}

/// The plan as a table. Before packages are here, all that is known of a layer's size is how much has to be
/// downloaded for it: that has a heading of its own, and a mark where it stands for the size of a layer that was
/// not made yet.
fn format_plan(
    plan: &LayerPlan,
    (layers, known): (&[Option<LayerBlob>], bool),
    shared: &LayerSharing,
    style: &OutputStyle,
) -> String {
    let rows = plan.layers.iter().zip(layers);
    let width = plan.layers.iter().map(|l| l.name.len()).max().unwrap_or(0);
    let mut text = style.dim(&format!(
        "{:>3}  {:width$}  {:>9}  contents\n",
        "",
        "layer",
        if known { "size" } else { "download" }
    ));
    let mut is_any_guessed = false;
    for (number, (planned, layer)) in rows.enumerate() {
        let size = match (layer, planned.download_bytes) {
            (Some(layer), _) => Bytes(layer.size_bytes).to_string(),
            (None, Some(bytes)) if known => {
                is_any_guessed = true;
                format!("~{}", Bytes(bytes))
            }
            (None, Some(bytes)) => Bytes(bytes).to_string(),
            (None, None) => "–".to_owned(),
        };
        text += &format!(
            "{:>3}  {:width$}  {size:>9}  {}",
            number + 1,
            planned.name,
            contents(planned)
        );
        let names = shared.of(layer.as_ref());
        if !names.is_empty() {
            text += &style.dim(&format!(" · in {}", names.join(", ")));
        }
        text += "\n";
    }
    let there: Vec<&LayerBlob> = layers.iter().flatten().collect();
    let bytes = Bytes(there.iter().map(|layer| layer.size_bytes).sum());
    let count = plan.layers.len();
    text += &match known {
        true => format!(
            "{count} layers, {} of them in the store ({bytes})\n",
            there.len()
        ),
        false => format!(
            "{count} layers; how large they are, and which of them are in the store, is known once the packages are \
             there\n"
        ),
    };
    if is_any_guessed {
        text += "~ what was downloaded for it; the layer's own size is known once it is made\n";
    }
    text
}

/// What a layer holds, in a few words.
fn contents(planned: &PlannedLayer) -> String {
    const MAX_LISTED_PACKAGES: usize = 4;
    let names: Vec<&str> = planned.packages.iter().map(|p| p.0.as_str()).collect();
    match names.len() {
        0 => String::new(),
        1 => "1 package".to_owned(),
        n if n <= MAX_LISTED_PACKAGES => names.join(", "),
        n => format!(
            "{}, … ({n} packages)",
            names[..MAX_LISTED_PACKAGES - 1].join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The same layers and rows before and after; a download is never shown as if it were a layer.
    #[test]
    fn downloads_are_not_taken_for_layers() {
        let mut plan = LayerPlan {
            layers: Vec::new(),
            slim: None,
        };
        for (name, download) in [("trixie", Some(3 << 20)), ("compiler", Some(64 << 20))] {
            plan.push(name, None);
            plan.layers.last_mut().unwrap().download_bytes = download;
        }
        plan.push("lock and SBOM", None);
        let layer = |size_bytes| LayerBlob {
            digest: sconce_oci::Digest::hash_bytes(b"layer"),
            size_bytes,
            diff_id: sconce_oci::Digest::hash_bytes(b"tar"),
            unpacked_bytes: 0,
            entries: 0,
            compression: sconce_image::layer::Compression::None,
        };
        let said = |layers: &[Option<LayerBlob>], known| {
            let (style, shared) = (OutputStyle { color: false }, BTreeMap::new());
            let text = format_plan(&plan, (layers, known), &LayerSharing(shared), &style);
            let lines = text.lines().map(|line| line.trim_end().to_owned());
            lines.collect::<Vec<_>>()
        };
        let before = [
            "     layer           download  contents",
            "  1  trixie             3 MiB",
            "  2  compiler          64 MiB",
            "  3  lock and SBOM          –",
            "3 layers; how large they are, and which of them are in the store, is known once the packages are there",
        ];
        assert_eq!(said(&[None, None, None], false), before);
        let after = [
            "     layer               size  contents",
            "  1  trixie             2 MiB",
            "  2  compiler         ~64 MiB",
            "  3  lock and SBOM          –",
            "3 layers, 1 of them in the store (2 MiB)",
            "~ what was downloaded for it; the layer's own size is known once it is made",
        ];
        assert_eq!(said(&[Some(layer(2 << 20)), None, None], true), after);
        let all = [2, 39, 1].map(|mib| Some(layer(mib << 20)));
        assert!(!said(&all, true).concat().contains('~'));
    }
}
