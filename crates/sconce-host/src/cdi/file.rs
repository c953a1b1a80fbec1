//! The same edits as a CDI file, for engines that read those.

use std::collections::BTreeMap;
use std::path::Path;

use sconce_schema::request::{ContainerEdits, EditMount};
use serde_json::{Value, json};

use super::CdiError;
use crate::nvidia::Card;

/// The lowest version of the specification that has `hostPath` of device nodes and names that
/// begin with a digit.
const VERSION: &str = "0.5.0";
/// What engines call the devices: `sconce.local/gpu=0`, `=GPU-…`, `=all`.
const KIND: &str = "sconce.local/gpu";

/// The CDI specification of `edits`, made by [`super::edits_for`] for `cards`.
///
/// CDI has no edit for a link, and a hook would need a program of its own on every machine; a
/// link is therefore told as one more mount of the file it leads to, under the link's name.
#[must_use]
pub fn cdi_json(cards: &[&Card], edits: &[ContainerEdits]) -> Value {
    let (common, each) = match edits.split_first() {
        Some((common, each)) => (common.clone(), each),
        None => (ContainerEdits::default(), &[][..]),
    };
    let mut devices = Vec::new();
    for (card, edits) in cards.iter().zip(each) {
        let names = [Some(card.index.to_string()), card.uuid.clone()];
        for name in names.into_iter().flatten() {
            devices.push(json!({ "name": name, "containerEdits": edits }));
        }
    }
    if !each.is_empty() {
        let nodes: Vec<_> = each.iter().flat_map(|edits| &edits.device_nodes).collect();
        devices.push(json!({ "name": "all", "containerEdits": { "deviceNodes": nodes } }));
    }
    json!({
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": devices,
        "containerEdits": with_links_as_mounts(common),
    })
}

/// Writes [`cdi_json`] to `path`, whole or not at all.
///
/// # Errors
/// When the file cannot be written.
pub fn write_cdi(path: &Path, cards: &[&Card], edits: &[ContainerEdits]) -> Result<(), CdiError> {
    let part = path.with_extension("json.part");
    let text = format!("{:#}\n", cdi_json(cards, edits));
    std::fs::write(&part, text)
        .and_then(|()| std::fs::rename(&part, path))
        .map_err(|source| CdiError::Write {
            path: path.to_owned(),
            source,
        })
}

fn with_links_as_mounts(mut edits: ContainerEdits) -> ContainerEdits {
    let mut files: BTreeMap<String, EditMount> = edits
        .mounts
        .iter()
        .map(|mount| (mount.container_path.clone(), mount.clone()))
        .collect();
    // A link to a link comes after the link it leads to.
    for (target, link) in std::mem::take(&mut edits.links) {
        let Some((folder, _)) = link.rsplit_once('/') else {
            continue;
        };
        if let Some(file) = files.get(&format!("{folder}/{target}")) {
            let mount = EditMount {
                container_path: link.clone(),
                ..file.clone()
            };
            edits.mounts.push(mount.clone());
            files.insert(link, mount);
        }
    }
    edits
}
