//! `sconce check`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use clap::Args;
use sconce_compat::matrix::{self, Basis, Cell, Matrix, Row, Verdict};
use sconce_compat::tables::{self, Sure};
use sconce_image::local::{Image, LocalError};
use sconce_image::open::{self, Source};
use sconce_image::unpack::{self, UnpackLimits};
use sconce_schema::finding::Weight;
use sconce_schema::spec::FILE_NAME;
use sconce_schema::{Finding, HostFacts, exit};
use sconce_store::Store;

use super::run::image::platform;
use crate::args::Global;
use crate::failure::{CliError, Result};
use crate::findings;
use crate::hosts::HostFlags;
use crate::judge::Judged;
use crate::output;
use crate::page::Page;
use crate::places::Places;
use crate::progress::Drawn;
use crate::project::{Project, is_lock, read_lock};
use crate::style::Style;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A sconce.toml or its folder, a lock, an image (a name, an OCI layout, what `docker save`
    /// writes), or a folder of installed packages, such as .venv.
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
        if !args.hosts.names_others() && hosts.iter().all(|host| host.cards.is_empty()) {
            return Err(CliError::NoCardHere.into());
        }
        return print_matrix(&matrix::torches(&releases, &hosts), args.json);
    }
    let judged = subject(&args.subject, &places, global)?;
    if judged.is_empty() {
        return Err(CliError::NothingToCheck {
            subject: args.subject.clone(),
            source_file: source_file(Path::new(&args.subject)),
        }
        .into());
    }
    if !judged.absent.is_empty() && !global.quiet && !args.json {
        let (are, versions, them) = match judged.absent.len() {
            1 => ("is", "of it the version is judged", "it"),
            _ => ("are", "of these the versions are judged", "them"),
        };
        output::say(&format!(
            "{} of its packages {are} not in the store: {versions}, not the bytes (`sconce run` or \
             `build` fetches {them})",
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
    if !found.is_empty() {
        output::data(&findings::listing(&found, &Page::stdout()))?;
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
        (false, false) if !judged.has_torch() => {
            "it has no torch; nothing stands in the way of its libraries".to_owned()
        }
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
            let (oldest, newest) = (tables::torches().first(), tables::torches().last());
            CliError::UnknownTorch {
                version: version.clone(),
                oldest: oldest.map_or("", |torch| torch.newest),
                newest: newest.map_or("", |torch| torch.newest),
            }
            .into()
        })
    };
    wanted.iter().map(find).collect()
}

/// In this order: an image in a file or a folder, as `run` takes it, a file that ends with `.lock`, a
/// spec or a folder with one, another folder, a local image's name or digest.
pub(super) fn subject(what: &str, places: &Places, global: &Global) -> Result<Judged> {
    let path = Path::new(what);
    if let Some(source) = packed(what) {
        let store = Store::open(&places.store)?;
        let progress = Drawn::new(global.quiet);
        let image = open::open(&source, &platform(), &store, &progress)?;
        return of_image(what, &image, &store, progress);
    }
    // A folder of this machine needs no store: it is judged where none can be made, too.
    if path.is_dir() && !path.join("sconce.toml").is_file() {
        return Judged::folder(path, variables());
    }
    let store = Store::open(&places.store)?;
    if path.exists() && is_lock(path) {
        return Judged::locked(what, &read_lock(path)?, &store);
    }
    if path.exists() {
        let is_toml = path.is_dir() || path.extension().is_some_and(|end| end == "toml");
        let project = match Project::open(path) {
            Err(_) if !is_toml => {
                return Err(CliError::NotASubject {
                    path: path.to_owned(),
                }
                .into());
            }
            opened => opened?,
        };
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
    let image = match Image::find(&store, what) {
        Err(LocalError::Name { .. } | LocalError::Unknown { .. }) => {
            return Err(CliError::NoSubject {
                subject: what.to_owned(),
            }
            .into());
        }
        found => found?,
    };
    of_image(what, &image, &store, Drawn::new(global.quiet))
}

/// An image that lies outside of the store: one that is named as such, or a layout or archive that is
/// neither a spec nor a lock by its name.
fn packed(what: &str) -> Option<Source> {
    let path = Path::new(what);
    let named = Source::parse(what).filter(|_| !path.exists());
    let is_other = || {
        let is_toml = path.extension().is_some_and(|end| end == "toml");
        is_toml || is_lock(path) || path.join(FILE_NAME).is_file()
    };
    let found = || Source::at(path).ok().flatten().filter(|_| !is_other());
    named.or_else(found)
}

fn of_image(what: &str, image: &Image, store: &Store, progress: Drawn) -> Result<Judged> {
    let trees = unpack::trees(image, what, store, UnpackLimits::default(), &progress)?;
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
    Judged::of_trees(what, &manifest, store)
}

/// A file in a folder that a spec can be made of.
fn source_file(folder: &Path) -> Option<&'static str> {
    let files = [
        "uv.lock",
        "pyproject.toml",
        "requirements.txt",
        "environment.yml",
        "Dockerfile",
    ];
    files.into_iter().find(|file| folder.join(file).is_file())
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
        output::data(&drawn(matrix, &Page::stdout()))?;
    }
    Ok(code)
}

fn drawn(matrix: &Matrix, page: &Page) -> String {
    let style = &page.style;
    let machines: Vec<String> = matrix.machines.iter().map(|name| short(name)).collect();
    let name = |row: &Row| match row.cuda {
        Some(cuda) => format!("{}, CUDA {cuda}", brief(&row.name)),
        None => brief(&row.name),
    };
    let names = matrix.rows.iter().map(|row| name(row).chars().count());
    let first = names.max().unwrap_or(0);
    let mut notes: Vec<String> = Vec::new();
    let texts: Vec<Vec<String>> = matrix
        .rows
        .iter()
        .map(|row| {
            row.cells
                .iter()
                .map(|cell| shown(cell, &mut notes))
                .collect()
        })
        .collect();
    let width = |(at, machine): (usize, &String)| {
        let cells = texts.iter().filter_map(|row| row.get(at));
        let widest = cells.map(String::len).max().unwrap_or(0);
        machine.chars().count().max(widest)
    };
    let widths: Vec<usize> = machines.iter().enumerate().map(width).collect();
    let mut tables: Vec<String> = Vec::new();
    for columns in side_by_side(&widths, first, page.columns) {
        let mut head = " ".repeat(first);
        for at in columns.clone() {
            head += &format!("  {:wide$}", machines[at], wide = widths[at]);
        }
        let mut table = style.dim(head.trim_end());
        for (row, texts) in matrix.rows.iter().zip(&texts) {
            table += &format!("\n{:first$}", name(row));
            for at in columns.clone() {
                let Some((cell, said)) = row.cells.get(at).zip(texts.get(at)) else {
                    continue;
                };
                table += "  ";
                table += &painted(cell, said, widths[at], style);
            }
            table.truncate(table.trim_end().len());
        }
        tables.push(table);
    }
    let mut text = tables.join("\n\n");
    let leads = matrix.rows.iter().flat_map(|row| &row.cells).any(is_lead);
    if leads || !notes.is_empty() {
        text += "\n";
    }
    for (number, note) in notes.iter().enumerate() {
        let mark = mark(number);
        let indent = mark.len() + 2;
        text += &format!("\n{mark}  {}", page.wrapped(note, indent, indent));
    }
    if leads {
        text += "\n~  inferred, not measured";
    }
    let newest = match &matrix.newest {
        Some(newest) => format!("newest for all of them: {}", newest.sentence()),
        None => "no torch that is known runs on all of them".to_owned(),
    };
    text + "\n\n" + &page.wrapped(&newest, 0, 0)
}

/// Which columns stand beside each other where all are too wide for the terminal.
fn side_by_side(widths: &[usize], first: usize, terminal: Option<usize>) -> Vec<Range<usize>> {
    const GAP: usize = 2;
    let mut tables = Vec::new();
    let (mut begin, mut wide) = (0, first);
    for (at, width) in widths.iter().enumerate() {
        if at > begin && terminal.is_some_and(|most| wide + GAP + width > most) {
            tables.push(begin..at);
            (begin, wide) = (at, first);
        }
        wide += GAP + width;
    }
    tables.push(begin..widths.len());
    tables
}

/// `yes`, `no a`, `yes~`: the letter leads to the reason.
fn shown(cell: &Cell, notes: &mut Vec<String>) -> String {
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
    text
}

/// A cell in its colour, and blanks up to its column's width.
fn painted(cell: &Cell, text: &str, width: usize, style: &Style) -> String {
    let padding = " ".repeat(width.saturating_sub(text.chars().count()));
    let painted = match cell.verdict {
        Verdict::Fails => style.error(text),
        Verdict::Warns => style.warn(text),
        Verdict::Runs | Verdict::Unknown => text.to_owned(),
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

/// The end of a long path: a table has one column for it.
fn brief(name: &str) -> String {
    const LONGEST: usize = 32;
    let ends = name.match_indices('/').map(|(at, _)| &name[at..]);
    let mut short = ends.filter(|end| end.chars().count() < LONGEST);
    match short.next() {
        Some(end) if name.chars().count() > LONGEST => format!("…{end}"),
        _ => name.to_owned(),
    }
}

/// Without what every card's name begins with: `8 × H100`.
fn short(name: &str) -> String {
    let makers = ["NVIDIA ", "GeForce ", "Tesla "];
    let (times, card) = match name.split_once(" × ") {
        Some((times, card)) => (format!("{times} × "), card),
        None => (String::new(), name),
    };
    let card = makers
        .iter()
        .find_map(|maker| card.strip_prefix(maker))
        .unwrap_or(card);
    format!("{times}{card}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::CudaVersion;

    #[test]
    fn of_a_long_path_the_end_is_shown() {
        for (name, shown) in [
            ("venv", "venv"),
            ("/a/b", "/a/b"),
            (
                "/home/ada/work/venv/lib/python3.11/site-packages",
                "…/lib/python3.11/site-packages",
            ),
            (&"é".repeat(40), &"é".repeat(40)),
        ] {
            assert_eq!(brief(name), shown);
        }
    }

    #[test]
    fn columns_are_as_wide_as_what_stands_in_them() {
        let cell = |verdict, reason: &str, sure| Cell {
            verdict,
            reason: reason.to_owned(),
            basis: Basis::Table(sure),
            instead: None,
        };
        let row = |name: &str, cells| Row {
            name: name.to_owned(),
            cuda: Some(CudaVersion::new(12, 8)),
            cells,
        };
        let runs = cell(Verdict::Runs, "", Sure::Measured);
        let mut matrix = Matrix {
            machines: vec!["Tesla P100".to_owned(), "8 × NVIDIA H100".to_owned()],
            rows: vec![
                row(
                    "torch 2.7.1",
                    vec![cell(Verdict::Fails, "no code", Sure::Lead), runs.clone()],
                ),
                row(
                    "torch 2.8.0",
                    vec![
                        cell(Verdict::Fails, "no code", Sure::Measured),
                        runs.clone(),
                    ],
                ),
            ],
            newest: None,
        };
        let mut page = Page::file();
        assert_eq!(
            drawn(&matrix, &page),
            "                        P100   8 × H100
torch 2.7.1, CUDA 12.8  no~ a  yes
torch 2.8.0, CUDA 12.8  no a   yes

a  no code
~  inferred, not measured

no torch that is known runs on all of them"
        );
        matrix.rows = vec![row("torch 2.8.0", vec![runs.clone(), runs])];
        assert_eq!(
            drawn(&matrix, &page),
            "                        P100  8 × H100
torch 2.8.0, CUDA 12.8  yes   yes

no torch that is known runs on all of them"
        );
        // Too wide for the terminal: one below the other.
        page.columns = Some(34);
        assert_eq!(
            drawn(&matrix, &page),
            "                        P100
torch 2.8.0, CUDA 12.8  yes

                        8 × H100
torch 2.8.0, CUDA 12.8  yes

no torch that is known runs on all
of them"
        );
    }
}
