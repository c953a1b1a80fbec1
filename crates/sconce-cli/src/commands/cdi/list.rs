//! `sconce cdi list`.

use clap::Args;
use sconce_base::Env;
use sconce_base::text::to_printable;
use sconce_host::cdi::{self, CdiDevice, CdiFile};
use sconce_schema::exit;
use serde_json::json;

use super::standing;
use crate::output;
use crate::style::OutputStyle;
use crate::table::format_table;
use sconce_app::failure::Result;

/// A longer text is cut: it is no path and no reason.
const MAX_TEXT_CHARS: usize = 400;

#[derive(Debug, Args)]
pub(crate) struct CdiListArgs {
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn list_cdi_devices(args: &CdiListArgs, env: &Env) -> Result<u8> {
    let files = super::files(env);
    let offered = cdi::list_devices(&files);
    output::write_data(&match args.json {
        true => as_json(&files, &offered),
        false => as_text(&files, &offered, &OutputStyle::for_stdout()),
    })?;
    Ok(exit::OK)
}

fn as_json(files: &[CdiFile], offered: &[CdiDevice]) -> String {
    let file = |file: &CdiFile| {
        json!({
            "path": file.path,
            "rank": file.rank,
            "kind": file.kind(),
            "cdi-version": file.cdi_version(),
            "driver": file.driver_version(),
            "error": file.read_error(),
            "refused": file.rejection_reasons(),
            "devices": file.device_names().collect::<Vec<_>>(),
        })
    };
    let device = |device: &CdiDevice| {
        let (state, other) = standing(device).unzip();
        json!({
            "name": device.name,
            "path": device.path,
            "state": state.unwrap_or("taken"),
            "other": other,
        })
    };
    let value = json!({
        "files": files.iter().map(file).collect::<Vec<_>>(),
        "devices": offered.iter().map(device).collect::<Vec<_>>(),
    });
    format!("{value:#}")
}

fn as_text(files: &[CdiFile], offered: &[CdiDevice], style: &OutputStyle) -> String {
    if files.is_empty() {
        return "there is no CDI file; `sconce cdi write` makes one".to_owned();
    }
    let row = |device: &CdiDevice| {
        let state = match standing(device) {
            None => "taken".to_owned(),
            Some(("hidden", by)) => format!("hidden by {by}"),
            Some((_, with)) => format!("conflict with {with}"),
        };
        [device.name.clone(), device.path.clone(), state]
    };
    let rows: Vec<_> = offered.iter().map(row).collect();
    let mut parts = Vec::new();
    if !rows.is_empty() {
        parts.push(format_table(["DEVICE", "FILE", "STATE"], &rows, style));
    }
    let mut notes: Vec<String> = files.iter().filter_map(unread).collect();
    if offered
        .iter()
        .any(|one| matches!(standing(one), Some(("conflict", _))))
    {
        notes.push("engines find a device in conflict in no file at all".to_owned());
    }
    let notes: Vec<_> = notes.iter().map(|note| style.warn(note)).collect();
    parts.extend((!notes.is_empty()).then(|| notes.join("\n")));
    parts.join("\n\n")
}

/// Why engines take no device of a file.
fn unread(file: &CdiFile) -> Option<String> {
    let why = match file.read_error() {
        Some(error) => format!("cannot be read: {error}"),
        None => format!(
            "is refused by engines: {}",
            file.rejection_reasons().first()?
        ),
    };
    Some(to_printable(
        &format!("{} {why}", file.path),
        MAX_TEXT_CHARS,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A file that two folders have, of which the later wins, and one that engines refuse.
    #[test]
    fn json_is_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"{ "cdiVersion": "0.5.0", "kind": "a.com/b", "devices": [
            { "name": "x", "containerEdits": { "deviceNodes": [{ "path": "/dev/null" }] } }] }"#;
        for (name, text) in [
            ("etc/cdi/a.json", text.to_owned()),
            ("run/cdi/b.json", text.to_owned()),
            ("run/cdi/c.json", text.replace("0.5.0", "9.0.0")),
            ("run/cdi/d.json", "{".to_owned()),
        ] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let roots = sconce_host::Roots::from_dir(folder.path());
        let files = cdi::read_files(&roots, None);
        let json = as_json(&files, &cdi::list_devices(&files));
        let json = json.replace(folder.path().to_str().unwrap(), "");
        crate::golden::goldens().assert_same("cdi-list.json", json + "\n");
    }
}
