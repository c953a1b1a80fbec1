//! `sconce init`.

mod format;
mod import_candidates;
mod lock_differences;
mod project_tree;
mod repository_folder;

use std::path::{Path, PathBuf};

use clap::Args;
use sconce_import::{ImportError, UnprovidedModule};
use sconce_schema::spec::{FILE_NAME, Spec, SpecError};
use sconce_schema::{Hint, exit};

use self::import_candidates::ImportCandidate;
use crate::output;
use crate::style::OutputStyle;
use sconce_app::context::AppContext;
use sconce_app::failure::{AppError, Result};
use sconce_app::file_action::FileAction;
use sconce_app::outputs::{self, NewFile, OutputDestination};
use sconce_app::project;

fn help() -> String {
    let search = format!(
        "With no SOURCE, the first of these that is here and names packages is taken: {}.",
        sconce_import::list_formats()
    );
    format!(
        "{search} What it does not name is added from the README's install commands and from what the \
         programs import, each with its file and line. The project itself is installed where it is a \
         package. Locks of other tools, requirements.txt and pyproject.toml are referred to where all of \
         them can be locked; anything else is copied. With nothing to read, a small spec is written. What \
         is left out is said, and noted in the file."
    )
}

fn source_help() -> String {
    format!(
        "A {}, whose paths are relative to this folder; or another folder to write a spec in",
        sconce_import::list_formats()
    )
}

/// What to write, and from what.
#[derive(Debug, Default, Args)]
#[command(after_help = help())]
pub(crate) struct InitArgs {
    /// What a spec is made from.
    #[arg(help = source_help())]
    pub(crate) source: Option<PathBuf>,
    /// Name of the environment [default: the source's, or else the folder's].
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Replace a sconce.toml that is there.
    #[arg(long)]
    pub(crate) force: bool,
    /// Write nothing: print the spec.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the spec, and what to know about it, as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Why no spec is written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitError {
    #[error("there is a {} already", path.display())]
    Exists { path: PathBuf },
    #[error("there is nothing at {}", path.display())]
    Missing { path: PathBuf },
    #[error("it is not known what {} is", path.display())]
    Unknown { path: PathBuf },
    #[error("{}", path.display())]
    Adopt { path: PathBuf, source: ImportError },
    #[error("--name")]
    Name { source: SpecError },
    #[error("{} has no spec yet", name_folder(folder))]
    NotYet {
        folder: PathBuf,
        source_file: String,
        text: String,
    },
    #[error("the spec that was made cannot be read again")]
    Unreadable { source: Option<SpecError> },
}

fn name_folder(folder: &Path) -> String {
    match folder == Path::new(".") {
        true => "this folder".to_owned(),
        false => folder.display().to_string(),
    }
}

impl Hint for InitError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Exists { .. } => {
                "--force replaces it, --dry-run only shows the new one".to_owned()
            }
            Self::NotYet {
                folder,
                source_file,
                text,
            } => {
                let target = match folder == Path::new(".") {
                    true => String::new(),
                    false => format!(" {}", folder.display()),
                };
                let lines = text.lines().filter(|line| !line.is_empty());
                let lines: String = lines.map(|line| format!("\n  {line}")).collect();
                format!(
                    "`sconce run --init` writes this one, from {source_file}, and goes on; `sconce init{target}` only \
                     writes it:{lines}"
                )
            }
            Self::Missing { .. } | Self::Unknown { .. } => {
                let formats = sconce_import::list_formats();
                format!("SOURCE is a {formats}, told by its name; or a folder")
            }
            Self::Adopt { source, .. } => return source.hint(),
            Self::Name { source } => return source.hint(),
            Self::Unreadable { .. } => return None,
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Exists { .. } | Self::Name { .. } => exit::USAGE,
            Self::NotYet { .. } | Self::Missing { .. } | Self::Unknown { .. } => exit::BAD_INPUT,
            Self::Adopt { source, .. } => source.exit_code(),
            Self::Unreadable { .. } => exit::BUG,
        }
    }
}

/// Where the spec goes.
enum SpecDestination {
    /// What comes there in the meantime stays.
    New(NewFile),
    Replaced(OutputDestination),
}

impl SpecDestination {
    fn find(target: &Path, folder: &Path, force: bool) -> Result<Self> {
        /// As any file, less what the umask takes.
        const MODE: u32 = 0o666;
        Ok(match force {
            true => Self::Replaced(outputs::find_in_project(target, folder)?),
            false => {
                let file = NewFile::for_path(target, MODE)?;
                outputs::own_places::refuse_new_file(&file, None)?;
                Self::New(file)
            }
        })
    }
}

pub(crate) fn init(args: &InitArgs, context: &AppContext) -> Result<u8> {
    if let Some(name) = &args.name {
        checked_name(name)?;
    }
    let given = args.source.as_deref();
    let (folder, source) = match given {
        Some(path) if path.is_dir() => (path, None),
        path => (Path::new("."), path),
    };
    let target = match folder.to_str() {
        Some(".") => PathBuf::from(FILE_NAME),
        _ => folder.join(FILE_NAME),
    };
    if !args.force && !args.dry_run && target.symlink_metadata().is_ok() {
        return Err(InitError::Exists { path: target }.into());
    }
    let place = match args.dry_run {
        true => None,
        false => Some(SpecDestination::find(&target, folder, args.force)?),
    };
    let mut found = match source {
        Some(source) => Some(import_candidates::read_source(folder, source)?),
        None => import_candidates::find_source(folder)?,
    };
    if let (Some(SpecDestination::Replaced(output)), Some(found)) = (&place, &found) {
        outputs::refuse_inputs(output, &[folder.join(&found.path)])?;
    }
    let text = match &mut found {
        Some(found) => adopted(found, folder, args),
        None => format::render_minimal_spec(&small_name(folder, args)?),
    };
    let spec = Spec::parse(&text).map_err(|source| InitError::Unreadable {
        source: Some(source),
    })?;
    if found
        .as_ref()
        .is_some_and(|found| found.adopted.spec != spec)
    {
        return Err(InitError::Unreadable { source: None }.into());
    }
    match place {
        Some(SpecDestination::New(file)) => file.write(text.as_bytes())?,
        Some(SpecDestination::Replaced(output)) => output.write(text.as_bytes())?,
        None => {}
    }
    if args.json {
        let json = format::as_json(found.as_ref(), &target, &spec, &text, !args.dry_run);
        output::write_data(&serde_json::to_string_pretty(&json).unwrap_or_default())?;
    } else if args.dry_run {
        output::write_data(&text)?;
    }
    if !args.json && !context.quiet {
        let style = OutputStyle::for_stderr();
        output::print_message(&format::render_summary(
            found.as_ref(),
            &target,
            &spec,
            args.dry_run,
            &style,
        ));
    }
    Ok(exit::OK)
}

/// Has a spec be there for a run. Where `folder` has none but what one is made from, it is written where
/// that is `wanted`, and else shown.
pub(crate) fn ensure_spec(folder: &Path, wanted: bool, context: &AppContext) -> Result<()> {
    if !folder.is_dir() || project::spec_file(folder).symlink_metadata().is_ok() {
        return Ok(());
    }
    // A spec above is found from here, but from no folder that is named.
    let folder = match folder == Path::new(".") {
        true => &*repository_folder::find_repository_folder(folder),
        false => folder,
    };
    let mut args = InitArgs {
        source: (folder != Path::new(".")).then(|| folder.to_owned()),
        ..InitArgs::default()
    };
    if wanted {
        return init(&args, context).map(drop);
    }
    args.dry_run = true;
    match import_candidates::find_source(folder)? {
        Some(mut found) => Err(InitError::NotYet {
            folder: folder.to_owned(),
            source_file: found.path.clone(),
            text: adopted(&mut found, folder, &args),
        }
        .into()),
        None => Ok(()),
    }
}

/// The text for what was found, with the name that was asked for and a command if one is plain.
fn adopted(found: &mut ImportCandidate, folder: &Path, args: &InitArgs) -> String {
    let spec = &mut found.adopted.spec;
    if let Some(name) = &args.name {
        spec.name = Some(name.clone());
    }
    if spec.run.command.is_empty()
        && let Some(script) = import_candidates::find_script(folder)
    {
        spec.run.command = vec!["python".to_owned(), script.to_owned()];
        found.script = Some(script);
    }
    let script = found.script;
    let is_needed = |module: &&UnprovidedModule| {
        module.is_required && (module.is_declared || script == Some(module.file.as_str()))
    };
    let needed = found.adopted.unprovided.iter().filter(is_needed);
    found.adopted.spec.python.missing = needed.map(|module| module.module.clone()).collect();
    format::render_imported_spec(found)
}

fn small_name(folder: &Path, args: &InitArgs) -> Result<String> {
    if let Some(name) = &args.name {
        return Ok(name.clone());
    }
    let folder = folder.canonicalize().map_err(|source| AppError::File {
        action: FileAction::Open,
        path: folder.to_owned(),
        source,
    })?;
    Ok(sconce_app::project::folder_name(&folder))
}

fn checked_name(name: &str) -> Result<(), InitError> {
    let spec = Spec {
        name: Some(name.to_owned()),
        ..Spec::default()
    };
    Spec::parse(&spec.to_text())
        .map(drop)
        .map_err(|source| InitError::Name { source })
}
