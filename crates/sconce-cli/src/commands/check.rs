//! `sconce check`.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use sconce_compat::matrix::{self, Basis, Cell, Matrix, Row, Verdict};
use sconce_compat::tables::{self, Sure};
use sconce_image::local::{Image, LocalError};
use sconce_image::unpack::{self, UnpackLimits};
use sconce_schema::finding::Weight;
use sconce_schema::{Finding, HostFacts, exit};
use sconce_store::Store;

use crate::args::Global;
use crate::failure::{CliError, Failure, Result};
use crate::findings;
use crate::hosts::HostFlags;
use crate::judge::Judged;
use crate::output;
use crate::places::Places;
use crate::progress::Drawn;
use crate::project::{Project, is_lock, read_lock};
use crate::style::Style;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A sconce.toml or its folder, a lock, an image, or a folder of installed packages, such as
    /// .venv.
    #[arg(default_value = ".")]
    subject: String,
    #[command(flatten)]
    hosts: HostFlags,
    /// Judge PyPI's build of this torch instead, by what is known of it: `2.8`. Repeat it for a
    /// table; `all` is every one.
    #[arg(long, value_name = "VERSION", conflicts_with = "subject")]
    torch: Vec<String>,
    /// Leave out what is only good to know.
    #[arg(long)]
    no_notes: bool,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Says whether the environment will run: on this machine, or on named ones.
pub(crate) fn check(args: &CheckArgs, global: &Global) -> Result<u8> {
    let places = Places::find(global)?;
    let hosts = args.hosts.hosts(Some(&places.store))?;
    if !args.torch.is_empty() {
        let releases = releases(&args.torch)?;
        return print_matrix(&matrix::torches(&releases, &hosts), args.json);
    }
    let judged = subject(&args.subject, &places, global)?;
    if judged.is_empty() {
        return Err(CliError::NothingToCheck {
            subject: args.subject.clone(),
        }
        .into());
    }
    if !judged.absent.is_empty() && !global.quiet && !args.json {
        output::say(&format!(
            "{} of its packages are not in the store: of these the versions are judged, not the \
             bytes (`sconce run` or `build` fetches them)",
            judged.absent.len()
        ));
    }
    match &hosts[..] {
        [host] => one(&judged, host, args, global),
        hosts => {
            let matrix = Matrix {
                machines: hosts.iter().map(named).collect(),
                rows: vec![judged.row(hosts)],
                newest: matrix::newest(hosts),
            };
            print_matrix(&matrix, args.json)
        }
    }
}

/// Findings for one machine.
fn one(judged: &Judged, host: &HostFacts, args: &CheckArgs, global: &Global) -> Result<u8> {
    let mut found = judged.findings(host);
    if args.no_notes {
        found.retain(|one| one.weight != Weight::Notes);
    }
    if args.json {
        let said = serde_json::json!({
            "subject": judged.name,
            "host": named(host),
            "runs": !fails(&found),
            "not-in-the-store": judged.absent,
            "findings": found,
        });
        output::data(&serde_json::to_string_pretty(&said).unwrap_or_default())?;
        return Ok(code(&found));
    }
    let style = Style::for_stdout();
    if !found.is_empty() {
        output::data(&findings::listing(&found, &style))?;
    }
    if !global.quiet {
        output::say(&verdict(judged, host, &found));
    }
    Ok(code(&found))
}

/// `digits on RTX 3070: it will not run (1 fails, 2 notes)`.
fn verdict(judged: &Judged, host: &HostFacts, found: &[Finding]) -> String {
    let style = Style::for_stderr();
    let warns = found.iter().any(|one| one.weight == Weight::Warns);
    let said = match (fails(found), warns) {
        (true, _) => style.error("it will not run"),
        (false, true) => style.warn("it will run, with what is said above"),
        (false, false) => "nothing stands in its way".to_owned(),
    };
    let counted = match found.is_empty() {
        true => String::new(),
        false => format!(" ({})", findings::counted(found)),
    };
    format!("{} on {}: {said}{counted}", judged.name, named(host))
}

fn fails(found: &[Finding]) -> bool {
    found.iter().any(|one| one.weight == Weight::Fails)
}

fn code(found: &[Finding]) -> u8 {
    if fails(found) { exit::NO } else { exit::OK }
}

fn named(host: &HostFacts) -> String {
    host.name
        .clone()
        .unwrap_or_else(|| "this machine".to_owned())
}

/// What the tables know of these releases.
fn releases(wanted: &[String]) -> Result<Vec<&'static tables::Torch>> {
    if wanted.iter().any(|version| version == "all") {
        return Ok(tables::torches().iter().collect());
    }
    let find = |version: &String| {
        let mut numbers = version.split('.').map(str::parse::<u32>);
        let release = numbers.next().zip(numbers.next());
        let known = match release {
            Some((Ok(major), Ok(minor))) => tables::torch((major, minor)),
            _ => None,
        };
        known.ok_or_else(|| {
            let newest = tables::torches().last();
            CliError::UnknownTorch {
                version: version.clone(),
                newest: newest.map_or("", |torch| torch.newest),
            }
            .into()
        })
    };
    wanted.iter().map(find).collect()
}

/// In this order: a file that ends with `.lock`, a spec or a folder with one, another folder, a local
/// image's name or digest.
pub(super) fn subject(what: &str, places: &Places, global: &Global) -> Result<Judged> {
    let path = Path::new(what);
    let store = Store::open(&places.store)?;
    if path.exists() && is_lock(path) {
        return Judged::locked(what, &read_lock(path)?, &store);
    }
    if path.is_dir() && !path.join("sconce.toml").is_file() {
        return Judged::folder(path, variables());
    }
    if path.exists() {
        let project = Project::open(path)?;
        let lock = project.lock()?.ok_or_else(|| CliError::NoLock {
            path: project.lock_file(),
        })?;
        if lock.inputs != project.inputs && !global.quiet {
            output::say(
                "the spec has changed since it was locked; the lock is judged as it is \
                 (`sconce lock` renews it)",
            );
        }
        let judged = Judged::locked(&project.name, &lock, &store)?;
        return Ok(judged.with_variables(&project.spec.run.env));
    }
    let image = Image::find(&store, what).map_err(|error| match error {
        // More likely the path of something that is not there.
        LocalError::Name { name } => CliError::NoSubject { subject: name }.into(),
        error => Failure::from(error),
    })?;
    let progress = Drawn::new(global.quiet);
    let trees = unpack::trees(&image, what, &store, UnpackLimits::default(), &progress)?;
    progress.finish();
    let env = image
        .config()?
        .config
        .and_then(|config| config.env)
        .unwrap_or_default();
    let env = env.iter().filter_map(|line| line.split_once('='));
    let manifest = sconce_schema::ImageManifest {
        layers: trees,
        env: env
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    };
    Judged::of_trees(what, &manifest, &store)
}

/// What the loader obeys of this process's environment.
fn variables() -> BTreeMap<String, String> {
    let obeyed = ["LD_LIBRARY_PATH", "LD_PRELOAD"];
    let variable = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
    obeyed.into_iter().filter_map(variable).collect()
}

/// A table, the reasons below it, and the newest torch for all.
fn print_matrix(matrix: &Matrix, json: bool) -> Result<u8> {
    let any_fails = |row: &Row| row.cells.iter().any(|cell| cell.verdict == Verdict::Fails);
    let code = match matrix.rows.iter().any(any_fails) {
        true => exit::NO,
        false => exit::OK,
    };
    if json {
        output::data(&serde_json::to_string_pretty(matrix).unwrap_or_default())?;
    } else {
        output::data(&drawn(matrix, &Style::for_stdout()))?;
    }
    Ok(code)
}

fn drawn(matrix: &Matrix, style: &Style) -> String {
    let machines: Vec<&str> = matrix.machines.iter().map(|name| short(name)).collect();
    let widths: Vec<usize> = machines
        .iter()
        .map(|name| name.chars().count().max(4))
        .collect();
    let name = |row: &Row| match row.cuda {
        Some(cuda) => format!("{}, CUDA {cuda}", row.name),
        None => row.name.clone(),
    };
    let first = matrix
        .rows
        .iter()
        .map(|row| name(row).chars().count())
        .max()
        .unwrap_or(0);
    let mut notes: Vec<String> = Vec::new();
    let head = machines
        .iter()
        .zip(&widths)
        .map(|(name, width)| format!("  {name:width$}"));
    let head = format!("{:first$}{}", "", head.collect::<String>());
    let mut text = style.dim(head.trim_end());
    for row in &matrix.rows {
        text += &format!("\n{:first$}", name(row));
        for (cell, width) in row.cells.iter().zip(&widths) {
            text += "  ";
            text += &shown(cell, *width, &mut notes, style);
        }
        text.truncate(text.trim_end().len());
    }
    let mut notes: Vec<String> = notes
        .iter()
        .enumerate()
        .map(|(number, note)| format!("\n{}  {note}", mark(number)))
        .collect();
    if matrix.rows.iter().flat_map(|row| &row.cells).any(is_lead) {
        notes.push("\n~  inferred, not measured".to_owned());
    }
    if !notes.is_empty() {
        text += "\n";
        text += &notes.concat();
    }
    text += &match &matrix.newest {
        Some(newest) => format!("\n\nnewest for all of them: {}", newest.sentence()),
        None => "\n\nno torch that is known runs on all of them".to_owned(),
    };
    text
}

/// `yes`, `no a`, `yes~`: the letter leads to the reason.
fn shown(cell: &Cell, width: usize, notes: &mut Vec<String>, style: &Style) -> String {
    let word = match cell.verdict {
        Verdict::Runs | Verdict::Warns => "yes",
        Verdict::Unknown => "?",
        Verdict::Fails => "no",
    };
    let lead = if is_lead(cell) { "~" } else { "" };
    let instead = cell
        .instead
        .map(|cuda| format!("; built with CUDA {cuda} it runs"));
    let reason = format!("{}{}", cell.reason, instead.unwrap_or_default());
    let mut text = format!("{word}{lead}");
    if !reason.is_empty() {
        let number = notes
            .iter()
            .position(|note| *note == reason)
            .unwrap_or_else(|| {
                notes.push(reason);
                notes.len() - 1
            });
        text += &format!(" {}", mark(number));
    }
    let padding = " ".repeat(width.saturating_sub(text.chars().count()));
    let painted = match cell.verdict {
        Verdict::Fails => style.error(&text),
        Verdict::Warns => style.warn(&text),
        Verdict::Runs | Verdict::Unknown => text,
    };
    painted + &padding
}

fn is_lead(cell: &Cell) -> bool {
    cell.basis == Basis::Table(Sure::Lead)
}

/// `a` to `z`, then `aa`.
fn mark(number: usize) -> String {
    let letter = |n: usize| char::from(b'a' + (n % 26) as u8);
    match number {
        0..26 => letter(number).to_string(),
        _ => format!("{}{}", letter(number / 26 - 1), letter(number)),
    }
}

/// Without what every card's name begins with.
fn short(name: &str) -> &str {
    let makers = ["NVIDIA ", "GeForce ", "Tesla "];
    makers
        .iter()
        .find_map(|maker| name.strip_prefix(maker))
        .unwrap_or(name)
}
