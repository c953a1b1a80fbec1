//! `sconce audit`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use sconce_base::text::to_printable;
use sconce_resolve::audit::database::{self, DatabaseLimits, DatabaseSummary};
use sconce_resolve::audit::{AuditCoverage, Vulnerability};
use sconce_resolve::audit::{AuditReport, LockAuditor};
use sconce_schema::{Lock, exit};

use crate::error::CliError;
use crate::output;
use crate::style::OutputStyle;
use crate::table::format_table;
use sconce_app::context::AppContext;
use sconce_app::failure::Result;
use sconce_app::project::{Project, is_lock, read_lock};

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// A sconce.toml or its folder, or a lock.
    #[arg(default_value = ".", value_name = "SPEC|LOCK")]
    pub(crate) subject: PathBuf,
    /// An OSV export: all.zip, a JSON list, JSON lines, or a folder of .json files. Repeat it for
    /// PyPI's and Debian's.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) db: Vec<PathBuf>,
    /// Leave out this id, or what has it as an alias.
    #[arg(long, value_name = "ID")]
    pub(crate) ignore: Vec<String>,
    /// Leave out what no version fixes yet.
    #[arg(long)]
    pub(crate) ignore_unfixed: bool,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads the databases, entry by entry, and says what they have against the lock.
pub(crate) fn audit(args: &AuditArgs, context: &AppContext) -> Result<u8> {
    let lock = locked(&args.subject, context)?;
    let mut audit = LockAuditor::new(&lock, &args.ignore)?;
    let mut databases = Vec::new();
    for path in &args.db {
        let seen = database::read_database(path, DatabaseLimits::default(), &mut |entry| {
            audit.add_entry(entry)
        })?;
        databases.push((path.as_path(), seen));
    }
    let mut audited = audit.finish()?;
    if args.ignore_unfixed {
        let all = audited.findings.len();
        audited.findings.retain(|finding| finding.fixed.is_some());
        audited.ignored += all - audited.findings.len();
    }
    if args.json {
        output::write_data(&json(&audited, &databases))?;
    } else {
        let text = listing(&audited, &OutputStyle::for_stdout());
        if !text.is_empty() {
            output::write_data(&text)?;
        }
        if !context.quiet {
            output::print_message(&summary(&audited, &databases, SystemTime::now()));
        }
    }
    // Not judged is no clean bill, whatever else is printed or not.
    if !context.quiet {
        for warning in not_judged(&audited) {
            output::print_message(&OutputStyle::for_stderr().warn(&warning));
        }
    }
    let clean = audited.findings.is_empty() && audited.unclear.is_empty();
    Ok(if clean { exit::OK } else { exit::NO })
}

/// The lock at `path`, or the lock of the spec there.
fn locked(path: &Path, context: &AppContext) -> Result<Lock> {
    if is_lock(path) {
        return read_lock(path);
    }
    let project = Project::open(path)?;
    let lock = project.load_lock()?.ok_or_else(|| CliError::NoLock {
        path: project.lock_file(),
    })?;
    if lock.inputs != project.inputs && !context.quiet {
        output::print_message("the spec has changed since it was locked: this is about the lock");
    }
    Ok(lock)
}

fn json(audited: &AuditReport, databases: &[(&Path, DatabaseSummary)]) -> String {
    let databases: Vec<_> = databases
        .iter()
        .map(|(path, seen)| {
            serde_json::json!({
                "file": path.to_string_lossy(), "entries": seen.entries, "newest": seen.newest,
            })
        })
        .collect();
    let mut all = serde_json::to_value(audited).unwrap_or_default();
    all["databases"] = databases.into();
    serde_json::to_string_pretty(&all).unwrap_or_default()
}

/// The findings in a table, then what each is about, then what could not be judged.
fn listing(audited: &AuditReport, style: &OutputStyle) -> String {
    let row = |finding: &Vulnerability| {
        let fixed = finding.fixed.clone();
        [
            finding.subject.name.clone(),
            finding.subject.version.clone(),
            finding.id.clone(),
            fixed.unwrap_or_else(|| "–".to_owned()),
        ]
    };
    let mut text = String::new();
    if !audited.findings.is_empty() {
        let rows: Vec<_> = audited.findings.iter().map(row).collect();
        text = format_table(["PACKAGE", "VERSION", "ID", "FIXED IN"], &rows, style);
        for finding in &audited.findings {
            text += "\n\n";
            text += &about(finding, style);
        }
    }
    for (number, one) in audited.unclear.iter().enumerate() {
        text += match number {
            0 if text.is_empty() => "",
            0 => "\n\n",
            _ => "\n",
        };
        let name = to_printable(&one.subject.name, 60);
        let _ = write!(text, "cannot be judged: {name} by {}: {}", one.id, one.why);
    }
    text
}

/// A few lines on one finding.
fn about(finding: &Vulnerability, style: &OutputStyle) -> String {
    let mut text = format!("{} {}", finding.id, to_printable(&finding.subject.name, 60));
    let packages = &finding.subject.packages;
    if packages.len() > 1 || packages.first() != Some(&finding.subject.name) {
        let _ = write!(text, " ({})", to_printable(&packages.join(", "), 200));
    }
    if let Some(summary) = &finding.summary {
        let _ = write!(text, "\n  {summary}");
    }
    for (name, ids) in [("also", &finding.aliases), ("about", &finding.upstream)] {
        if !ids.is_empty() {
            let _ = write!(
                text,
                "\n  {} {}",
                style.dim(name),
                to_printable(&ids.join(", "), 500)
            );
        }
    }
    for severity in &finding.severity {
        let _ = write!(text, "\n  {} {}", style.dim(&severity.kind), severity.score);
    }
    text
}

fn summary(
    audited: &AuditReport,
    databases: &[(&Path, DatabaseSummary)],
    now: SystemTime,
) -> String {
    let packages: BTreeSet<_> = audited.findings.iter().map(|one| &one.subject).collect();
    let fixed = audited.findings.iter().filter(|one| one.fixed.is_some());
    let mut text = match audited.findings.len() {
        0 => "nothing found".to_owned(),
        found => format!(
            "{}, {} with a fix, in {}",
            counted(found, "vulnerability", "vulnerabilities"),
            fixed.count(),
            counted(packages.len(), "package", "packages")
        ),
    };
    if !audited.unclear.is_empty() {
        let entries = counted(audited.unclear.len(), "entry", "entries");
        let _ = write!(text, ", {entries} not judged");
    }
    if audited.ignored > 0 {
        let _ = write!(text, ", {} ignored", audited.ignored);
    }
    for (path, seen) in databases {
        let day = seen.newest.as_deref().and_then(|newest| newest.get(..10));
        let newest = match (day, seen.age_days(now)) {
            (Some(newest), Some(1)) => format!("the newest of {newest} (1 day ago)"),
            (Some(newest), Some(days)) => {
                format!("the newest of {newest} ({days} days ago)")
            }
            _ => "without dates".to_owned(),
        };
        let entries = counted(
            usize::try_from(seen.entries).unwrap_or(usize::MAX),
            "entry",
            "entries",
        );
        let _ = write!(text, "\n{}: {entries}, {newest}", output::format_path(path));
    }
    text
}

fn counted(number: usize, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

/// What the databases are not about.
fn not_judged(audited: &AuditReport) -> Vec<String> {
    [("Python", audited.python), ("Debian", audited.debian)]
        .into_iter()
        .filter(|(_, AuditCoverage { packages, entries })| *packages > 0 && *entries == 0)
        .map(|(name, judged)| {
            format!(
                "{} from {name} not judged: no database given is about them",
                counted(judged.packages, "package", "packages")
            )
        })
        .collect()
}
