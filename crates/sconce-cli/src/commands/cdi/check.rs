//! `sconce cdi check`.

use std::path::PathBuf;

use clap::Args;
use sconce_base::Env;
use sconce_base::input::open_regular;
use sconce_base::text::to_printable;
use sconce_host::cdi::{self, CdiDevice, CdiFile, CdiProblem};
use sconce_host::{HostProfile, Roots};
use sconce_schema::{Hint, exit};
use serde_json::json;

use super::standing;
use crate::output;
use crate::style::OutputStyle;
use sconce_app::failure::{AppError, Result};
use sconce_app::lease_client;

/// A longer text is cut: it is no path and no reason.
const MAX_TEXT_CHARS: usize = 400;

#[derive(Debug, Args)]
pub(crate) struct CdiCheckArgs {
    /// The files [default: every one that engines read].
    files: Vec<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// A file and what is wrong with it.
struct CheckedCdiFile {
    file: CdiFile,
    troubles: Vec<CdiProblem>,
}

pub(super) fn check_cdi_files(args: &CdiCheckArgs, env: &Env) -> Result<u8> {
    let roots = Roots::default();
    let all = super::files(env);
    let offered = cdi::list_devices(&all);
    let named = named(&args.files, &roots)?;
    let (machine, _nvml) = lease_client::read_host_profile();
    let checked: Vec<CheckedCdiFile> = if args.files.is_empty() { all } else { named }
        .into_iter()
        .map(|file| CheckedCdiFile {
            troubles: cdi::check_file(&file, machine.nvidia.as_ref(), &roots),
            file,
        })
        .collect();
    let conflicts: Vec<&CdiDevice> = offered
        .iter()
        .filter(|one| matches!(standing(one), Some(("conflict", _))))
        .filter(|one| checked.iter().any(|checked| checked.file.path == one.path))
        .collect();
    output::write_data(&match args.json {
        true => as_json(&checked, &conflicts),
        false => as_text(&checked, &conflicts, &machine, &OutputStyle::for_stdout()),
    })?;
    let wrong = checked.iter().any(|one| !one.troubles.is_empty());
    Ok(match wrong || !conflicts.is_empty() {
        true => exit::NO,
        false => exit::OK,
    })
}

/// The files that were named; each must be there.
fn named(paths: &[PathBuf], roots: &Roots) -> Result<Vec<CdiFile>> {
    let read = |path: &PathBuf| {
        open_regular(path).map_err(AppError::unreadable(path))?;
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        Ok(cdi::read_file(roots, &path))
    };
    paths.iter().map(read).collect()
}

fn as_json(checked: &[CheckedCdiFile], conflicts: &[&CdiDevice]) -> String {
    let file = |one: &CheckedCdiFile| {
        json!({
            "path": one.file.path,
            "kind": one.file.kind(),
            "cdi-version": one.file.cdi_version(),
            "driver": one.file.driver_version(),
            "troubles": one.troubles,
        })
    };
    let conflict = |device: &&CdiDevice| {
        json!({
            "name": device.name,
            "path": device.path,
            "other": standing(device).map(|(_, other)| other),
        })
    };
    let value = json!({
        "files": checked.iter().map(file).collect::<Vec<_>>(),
        "conflicts": conflicts.iter().map(conflict).collect::<Vec<_>>(),
    });
    format!("{value:#}")
}

fn as_text(
    checked: &[CheckedCdiFile],
    conflicts: &[&CdiDevice],
    machine: &HostProfile,
    style: &OutputStyle,
) -> String {
    if checked.is_empty() {
        return "there is no CDI file; `sconce cdi write` makes one".to_owned();
    }
    let mut lines = Vec::new();
    for one in checked {
        let path = to_printable(&one.file.path, MAX_TEXT_CHARS);
        if one.troubles.is_empty() {
            let devices = one.file.device_names().count();
            let kind = to_printable(one.file.kind().unwrap_or_default(), MAX_TEXT_CHARS);
            lines.push(format!("{path}: right, {devices} devices of {kind}"));
            continue;
        }
        lines.push(format!("{path}: {}", style.warn("wrong")));
        let what = one
            .troubles
            .iter()
            .map(|trouble| to_printable(&trouble.what, MAX_TEXT_CHARS));
        lines.extend(what.map(|what| format!("  {what}")));
        lines.push(format!(
            "  {} {}",
            style.hint("hint:"),
            hint(&one.file, machine)
        ));
    }
    for device in conflicts {
        let (_, other) = standing(device).unwrap_or_default();
        let what = format!(
            "{} is in {} and in {other}: engines find it in neither; remove one",
            device.name, device.path
        );
        lines.push(to_printable(&what, MAX_TEXT_CHARS));
    }
    lines.join("\n")
}

/// What puts a file right.
fn hint(file: &CdiFile, machine: &HostProfile) -> String {
    let cards = machine.nvidia.as_ref().is_some_and(|n| !n.cards.is_empty());
    if !cards {
        return cdi_error_hint(&file.path);
    }
    let path = to_printable(&file.path, MAX_TEXT_CHARS);
    format!(
        "write it again with what wrote it: `sconce cdi write --output {path}`, `nvidia-ctk cdi generate --output={path}`"
    )
}

fn cdi_error_hint(path: &str) -> String {
    let hint = sconce_host::CdiError::NoDriver.hint().unwrap_or_default();
    let path = to_printable(path, MAX_TEXT_CHARS);
    format!("no card is known here: {hint}; or remove {path}")
}
