//! `sconce check`.

mod table;

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use sconce_base::Env;
use sconce_base::text::to_printable;
use sconce_compat::matrix::{self, Compatibility, Matrix, MatrixRow, NamedTorch};
use sconce_compat::rules::NOT_JUDGED;
use sconce_compat::tables;
use sconce_image::local_image::{LocalError, LocalImage};
use sconce_image::open::{self, ImageSource};
use sconce_image::unpack::{self, UnpackLimits};
use sconce_schema::finding::Severity;
use sconce_schema::spec::FILE_NAME;
use sconce_schema::{Finding, HostFacts, Progress, exit};
use sconce_store::Store;

use crate::error::CliError;
use crate::findings;
use crate::output;
use crate::remote_machines::RemoteMachineFlags;
use crate::style::OutputStyle;
use crate::text_layout::TextLayout;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::inspect::InspectedEnvironment;
use sconce_app::missing_libraries::LibraryAdvisor;
use sconce_app::project::{Project, is_lock, read_lock};
use sconce_app::run::image::host_platform;

/// Names of machines and subjects are anyone's text; longer ones are cut.
const MAX_NAME_CHARS: usize = 400;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A sconce.toml or its folder, a lock, an image (a name, an OCI layout, what `docker save`
    /// writes), or a folder of installed packages, such as .venv.
    #[arg(default_value = ".")]
    subject: String,
    #[command(flatten)]
    hosts: RemoteMachineFlags,
    /// Judge this torch instead, by what is known of its build: `2.8` (PyPI's), `2.8.0+cu126`. Repeat it
    /// for a table; `all` is every release.
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
pub(crate) fn check(args: &CheckArgs, context: &AppContext) -> Result<u8> {
    let places = SconceDirs::find(context)?;
    let hosts = args
        .hosts
        .load_host_facts(Some(&places.store), &context.env)?;
    if !args.torch.is_empty() {
        let torches = torches(&args.torch)?;
        if !args.hosts.names_others() && hosts.iter().all(|host| host.cards.is_empty()) {
            return Err(CliError::NoCardHere.into());
        }
        return print_matrix(&matrix::build_torch_matrix(&torches, &hosts), args.json);
    }
    let judged = inspect_environment(&args.subject, &places, context)?;
    if judged.is_empty() {
        return Err(CliError::NothingToCheck {
            subject: args.subject.clone(),
            source_file: source_file(Path::new(&args.subject)),
        }
        .into());
    }
    if !judged.absent.is_empty() && !context.quiet && !args.json {
        let (are, versions, them) = match judged.absent.len() {
            1 => ("is", "of it the version is judged", "it"),
            _ => ("are", "of these the versions are judged", "them"),
        };
        output::print_message(&format!(
            "{} of its packages {are} not in the store: {versions}, not the bytes (`sconce run` or \
             `build` fetches {them})",
            judged.absent.len()
        ));
    }
    match &hosts[..] {
        [host] => one(
            &advised(judged, host, args, &places, context)?,
            host,
            args,
            context,
        ),
        hosts => {
            let matrix = Matrix::new(vec![judged.matrix_row(hosts)], hosts);
            print_matrix(&matrix, args.json)
        }
    }
}

/// With the Debian packages of libraries that a lock lacks, where only the archive knows them.
fn advised(
    judged: InspectedEnvironment,
    host: &HostFacts,
    args: &CheckArgs,
    places: &SconceDirs,
    context: &AppContext,
) -> Result<InspectedEnvironment> {
    if judged.unknown_libraries(host).is_none() {
        return Ok(judged);
    }
    let path = Path::new(&args.subject);
    let project = match is_lock(path) {
        true => None,
        false => Project::open(path).ok(),
    };
    let store = Store::open(&places.store)?;
    let progress = context.start_progress();
    let advisor = LibraryAdvisor {
        places,
        store: &store,
        context,
        system: project.as_ref().map(|project| &project.spec.system),
        mirror: None,
        progress: &*progress,
    };
    let judged = advisor.advise(judged, host);
    progress.finish();
    Ok(judged)
}

/// Findings for one machine.
fn one(
    judged: &InspectedEnvironment,
    host: &HostFacts,
    args: &CheckArgs,
    context: &AppContext,
) -> Result<u8> {
    let mut found = judged.check_host(host);
    let code = code(&found);
    if args.no_notes {
        found.retain(|one| one.weight != Severity::Notes);
    }
    if args.json {
        let said = serde_json::json!({
            "subject": judged.name,
            "host": named(host),
            "runs": (code != exit::NOT_JUDGED).then(|| !fails(&found)),
            "not-judged": not_judged(judged, code),
            "not-in-the-store": judged.absent,
            "findings": found,
        });
        output::write_data(&serde_json::to_string_pretty(&said).unwrap_or_default())?;
        return Ok(code);
    }
    if !found.is_empty() {
        output::write_data(&findings::render_findings(
            &found,
            &TextLayout::for_stdout(),
        ))?;
    }
    if !context.quiet {
        output::print_message(&verdict(judged, host, &found, code));
    }
    Ok(code)
}

/// What nobody looked at, in few words.
fn not_judged(judged: &InspectedEnvironment, code: u8) -> Vec<&'static str> {
    let code = (code == exit::NOT_JUDGED).then_some("torch-code");
    let packages = (!judged.is_resolved).then_some("python-requirements");
    code.into_iter().chain(packages).collect()
}

/// `digits on RTX 3070: it will not run (1 fails, 2 notes)`.
fn verdict(judged: &InspectedEnvironment, host: &HostFacts, found: &[Finding], code: u8) -> String {
    let style = OutputStyle::for_stderr();
    let warns = found.iter().any(|one| one.weight == Severity::Warns);
    let said = match (fails(found), warns) {
        (true, _) if !judged.needs_cards && only_the_card_is_missing(host, found) => {
            let said = style.error("it will not run on a card, as there is none");
            format!("{said}; `sconce run` takes the CPU")
        }
        (true, _) => style.error("it will not run"),
        (false, _) if code == exit::NOT_JUDGED => {
            style.warn("whether it runs is not known, as torch's code for the card is not")
        }
        (false, true) => style.warn("it will run, with what is said above"),
        (false, false) if !judged.has_torch() => {
            "it has no torch; nothing stands in the way of its libraries".to_owned()
        }
        (false, false) if judged.is_resolved => "nothing stands in its way".to_owned(),
        (false, false) => "nothing that was judged stands in its way".to_owned(),
    };
    let counted = match found.is_empty() {
        true => String::new(),
        false => format!(" ({})", findings::format_severity_counts(found)),
    };
    // Nobody may take what is said of libraries for the whole.
    let unjudged = match fails(found) || judged.is_resolved {
        true => "",
        false => {
            ". Not judged: whether its Python packages go together (`python -m pip check` there tells)"
        }
    };
    format!(
        "{} on {}: {said}{counted}{unjudged}",
        to_printable(&judged.name, MAX_NAME_CHARS),
        named(host)
    )
}

/// Nothing else is in the way, and PyTorch computes on the CPU there.
fn only_the_card_is_missing(host: &HostFacts, found: &[Finding]) -> bool {
    let mut failing = found.iter().filter(|one| one.weight == Severity::Fails);
    host.pci_cards.as_deref() == Some(&[]) && failing.all(|one| one.code == "no-driver")
}

fn fails(found: &[Finding]) -> bool {
    found.iter().any(|one| one.weight == Severity::Fails)
}

fn code(found: &[Finding]) -> u8 {
    match found.iter().any(|one| one.code == NOT_JUDGED) {
        _ if fails(found) => exit::NO,
        true => exit::NOT_JUDGED,
        false => exit::OK,
    }
}

fn named(host: &HostFacts) -> String {
    let name = host.name.as_deref().unwrap_or("this machine");
    to_printable(name, MAX_NAME_CHARS)
}

/// The torches that are named; their releases, or at least what they are built with, must be known.
fn torches(wanted: &[String]) -> Result<Vec<NamedTorch>> {
    if wanted.iter().any(|version| version == "all") {
        return Ok(tables::torch_releases()
            .iter()
            .map(NamedTorch::from)
            .collect());
    }
    let find = |version: &String| {
        let named = NamedTorch::parse(version).filter(NamedTorch::is_judged);
        named.ok_or_else(|| {
            let (oldest, newest) = (
                tables::torch_releases().first(),
                tables::torch_releases().last(),
            );
            CliError::UnknownTorch {
                version: version.clone(),
                oldest: oldest.map_or("", |torch| torch.versions[0]),
                newest: newest.map_or("", |torch| torch.newest),
            }
            .into()
        })
    };
    wanted.iter().map(find).collect()
}

/// In this order: an image in a file or a folder, as `run` takes it, a file that ends with `.lock`, a
/// spec or a folder with one, another folder, a local image's name or digest.
pub(super) fn inspect_environment(
    what: &str,
    places: &SconceDirs,
    context: &AppContext,
) -> Result<InspectedEnvironment> {
    let path = Path::new(what);
    if let Some(source) = packed(what) {
        let store = Store::open(&places.store)?;
        let progress = context.start_progress();
        let image = open::load_image(&source, &host_platform(), &store, &*progress)?;
        return of_image(what, &image, &store, progress);
    }
    // A folder of this machine needs no store: it is judged where none can be made, too.
    if path.is_dir() && path.join(FILE_NAME).symlink_metadata().is_err() {
        return InspectedEnvironment::from_dir(path, variables(&context.env));
    }
    let store = Store::open(&places.store)?;
    if path.exists() && is_lock(path) {
        return InspectedEnvironment::from_lock(what, &read_lock(path)?, &store);
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
        let lock = project.load_lock()?.ok_or_else(|| CliError::NoLock {
            path: project.lock_file(),
        })?;
        if lock.inputs != project.inputs && !context.quiet {
            output::print_message(
                "the spec has changed since it was locked; the lock is judged as it is \
                 (`sconce lock` renews it)",
            );
        }
        let judged = InspectedEnvironment::from_lock(&project.name, &lock, &store)?;
        let run = &project.spec.run;
        let judged = judged
            .with_variables(&run.env)
            .with_compiler_request(project.spec.system.compiler);
        return Ok(judged.with_cards(run.gpus.as_ref()));
    }
    let image = match LocalImage::find(&store, what) {
        Err(LocalError::Name { .. } | LocalError::Unknown { .. }) => {
            return Err(CliError::NoSubject {
                subject: what.to_owned(),
            }
            .into());
        }
        found => found?,
    };
    of_image(what, &image, &store, context.start_progress())
}

/// An image that lies outside of the store: one that is named as such, or a layout or archive that is
/// neither a spec nor a lock by its name.
fn packed(what: &str) -> Option<ImageSource> {
    let path = Path::new(what);
    let named = ImageSource::parse(what).filter(|_| !path.exists());
    let is_other = || {
        let is_toml = path.extension().is_some_and(|end| end == "toml");
        is_toml || is_lock(path) || path.join(FILE_NAME).is_file()
    };
    let found = || {
        ImageSource::detect_at(path)
            .ok()
            .flatten()
            .filter(|_| !is_other())
    };
    named.or_else(found)
}

fn of_image(
    what: &str,
    image: &LocalImage,
    store: &Store,
    progress: Box<dyn Progress>,
) -> Result<InspectedEnvironment> {
    let trees = unpack::ensure_trees(image, what, store, UnpackLimits::default(), &*progress)?;
    progress.finish();
    let env = image
        .parse_config()?
        .config
        .and_then(|config| config.env)
        .unwrap_or_default();
    let env = env.iter().filter_map(|line| line.split_once('='));
    let manifest = sconce_schema::EnvironmentLayers {
        layers: trees,
        env: env
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    };
    InspectedEnvironment::of_trees(what, &manifest, store)
}

/// A file in a folder that a spec can be made of.
fn source_file(folder: &Path) -> Option<&'static str> {
    sconce_import::known_file_names().find(|file| folder.join(file).is_file())
}

/// What the loader obeys of this process's environment.
fn variables(env: &Env) -> BTreeMap<String, String> {
    let obeyed = ["LD_LIBRARY_PATH", "LD_PRELOAD"];
    let variable = |name: &str| Some((name.to_owned(), env.var(name)?.to_owned()));
    obeyed.into_iter().filter_map(variable).collect()
}

/// A table, the reasons below it, and the newest torch for all.
fn print_matrix(matrix: &Matrix, json: bool) -> Result<u8> {
    let any = |verdict| {
        let cells = matrix.rows.iter().flat_map(|row: &MatrixRow| &row.cells);
        cells.into_iter().any(|cell| cell.verdict == verdict)
    };
    let code = match (any(Compatibility::Fails), any(Compatibility::Unknown)) {
        (true, _) => exit::NO,
        (false, true) => exit::NOT_JUDGED,
        (false, false) => exit::OK,
    };
    if json {
        output::write_data(&serde_json::to_string_pretty(matrix).unwrap_or_default())?;
    } else {
        output::write_data(&table::render_matrix(matrix, &TextLayout::for_stdout()))?;
    }
    Ok(code)
}
