//! `sconce outdated`.

use std::path::PathBuf;

use clap::Args;
use sconce_resolve::ecosystem::Ecosystem;
use sconce_resolve::outdated::diff_locks;
use sconce_resolve::outdated::{LockChange, LockChangeKind, LockChanges};
use sconce_schema::exit;

use crate::args::SourceFlags;
use crate::error::CliError;
use crate::output;
use crate::style::OutputStyle;
use crate::table::format_table;
use sconce_app::command_context::CommandContext;
use sconce_app::context::AppContext;
use sconce_app::failure::Result;
use sconce_app::project::Project;
use sconce_app::sources::LockUse;

#[derive(Debug, Args)]
pub(crate) struct OutdatedArgs {
    /// A sconce.toml or its folder.
    #[arg(default_value = ".")]
    pub(crate) spec: PathBuf,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) sources: SourceFlags,
}

/// Resolves the spec anew, writes nothing, and says what would change.
pub(crate) fn outdated(args: &OutdatedArgs, context: &AppContext) -> Result<u8> {
    let project = Project::open(&args.spec)?;
    let present = project.load_lock()?.ok_or_else(|| CliError::NoLock {
        path: project.lock_file(),
    })?;
    if present.inputs != project.inputs && !context.quiet {
        output::print_message(
            "the spec has changed since it was locked: that is part of what differs",
        );
    }
    let opened = CommandContext::open(project, context)?;
    let newest = opened
        .environment_builder(args.sources.to_sources(LockUse::Update), context)
        .resolve_newest()?;
    opened.progress.finish();
    let changes = diff_locks(&present, &newest.lock, newest.security.as_ref());
    if args.json {
        let answer = serde_json::json!({ "current": changes.0.is_empty(), "changes": changes });
        output::write_data(&serde_json::to_string_pretty(&answer).unwrap_or_default())?;
    } else {
        if !changes.0.is_empty() {
            output::write_data(&listing(&changes, &OutputStyle::for_stdout()))?;
        }
        if !context.quiet {
            output::print_message(&summary(&changes));
        }
    }
    Ok(if changes.0.is_empty() {
        exit::OK
    } else {
        exit::NO
    })
}

fn listing(changes: &LockChanges, style: &OutputStyle) -> String {
    let version = |version: &Option<String>| version.clone().unwrap_or_else(|| "–".to_owned());
    let row = |change: &LockChange| {
        [
            change.name.clone(),
            version(&change.locked),
            version(&change.newest),
            kind(change),
        ]
    };
    let rows: Vec<_> = changes.0.iter().map(row).collect();
    format_table(["NAME", "LOCKED", "NEWEST", "KIND"], &rows, style)
}

fn kind(change: &LockChange) -> String {
    let mut text = match change.ecosystem {
        Ecosystem::Python => "Python".to_owned(),
        Ecosystem::Debian => "Debian".to_owned(),
    };
    if change.security == Some(true) {
        text += ", security";
    }
    text += match change.kind {
        LockChangeKind::Newer => "",
        LockChangeKind::Older => ", older",
        LockChangeKind::Rebuilt => ", rebuilt",
        LockChangeKind::Added => ", added",
        LockChangeKind::Removed => ", removed",
    };
    text
}

/// `3 newer (1 a security update), 1 added: …`
fn summary(changes: &LockChanges) -> String {
    if changes.0.is_empty() {
        return "nothing newer exists that the spec allows".to_owned();
    }
    let counted = [
        (LockChangeKind::Newer, "newer"),
        (LockChangeKind::Older, "older"),
        (LockChangeKind::Rebuilt, "rebuilt"),
        (LockChangeKind::Added, "added"),
        (LockChangeKind::Removed, "removed"),
    ];
    let mut parts: Vec<String> = counted
        .into_iter()
        .map(|(kind, name)| (changes.count(kind), name))
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    match changes.security_update_count() {
        0 => {}
        1 => parts.push("1 of them a security update".to_owned()),
        n => parts.push(format!("{n} of them security updates")),
    }
    format!("{}: `sconce lock --upgrade` takes them", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, kind: LockChangeKind, security: Option<bool>) -> LockChange {
        LockChange {
            name: name.into(),
            ecosystem: security.map_or(Ecosystem::Python, |_| Ecosystem::Debian),
            kind,
            locked: (kind != LockChangeKind::Added).then(|| "1.0".into()),
            newest: (kind != LockChangeKind::Removed).then(|| "1.0+deb13u2".into()),
            security,
        }
    }

    #[test]
    fn a_short_table_and_one_line() {
        let changes = LockChanges(vec![
            change("torch", LockChangeKind::Newer, None),
            change("six", LockChangeKind::Added, None),
            change("openssl", LockChangeKind::Newer, Some(true)),
            change("perl", LockChangeKind::Removed, Some(false)),
        ]);
        insta::assert_snapshot!(listing(&changes, &OutputStyle { color: false }), @r"
        NAME     LOCKED  NEWEST       KIND
        torch    1.0     1.0+deb13u2  Python
        six      –       1.0+deb13u2  Python, added
        openssl  1.0     1.0+deb13u2  Debian, security
        perl     1.0     –            Debian, removed
        ");
        assert_eq!(
            summary(&changes),
            "2 newer, 1 added, 1 removed, 1 of them a security update: `sconce lock --upgrade` takes them"
        );
        assert_eq!(
            summary(&LockChanges::default()),
            "nothing newer exists that the spec allows"
        );
    }
}
