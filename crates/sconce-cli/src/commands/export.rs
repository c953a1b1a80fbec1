//! `sconce export`.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use sconce_report::export::{self, ExportError, ExportSummary, ExportTable};
use sconce_schema::exit;

use crate::error::CliError;
use crate::output;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::{Failure, Result};
use sconce_app::outputs::{
    self, DirectoryDestination, OutputDestination, OutputDirectory, OutputError, OutputForm,
    VerbFiles, inputs,
};

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// A run's id, the beginning of one, or `last`.
    pub(crate) run: String,
    /// What to write.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: ExportFormat,
    /// The rows of CSV and Parquet [default: readings].
    #[arg(long, value_name = "TABLE")]
    pub(crate) table: Option<ExportRows>,
    /// Where to; `-` is standard output. For TensorBoard a folder, which is made where it is not there.
    pub(crate) file: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Comma-separated values.
    Csv,
    /// Apache Parquet.
    Parquet,
    /// All tables and events in one object.
    Json,
    /// TensorBoard's event file.
    Tensorboard,
    /// A trace for ui.perfetto.dev and chrome://tracing.
    Perfetto,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportRows {
    /// One row a reading.
    Readings,
    /// One row a training step that is on record.
    Steps,
    /// One row a process and reading.
    Processes,
}

impl From<ExportRows> for ExportTable {
    fn from(rows: ExportRows) -> Self {
        match rows {
            ExportRows::Readings => Self::Readings,
            ExportRows::Steps => Self::Steps,
            ExportRows::Processes => Self::Processes,
        }
    }
}

pub(crate) fn export(args: &ExportArgs, context: &AppContext) -> Result<u8> {
    let format = match args.to {
        ExportFormat::Json => Some("json"),
        ExportFormat::Tensorboard => Some("tensorboard"),
        ExportFormat::Perfetto => Some("perfetto"),
        ExportFormat::Csv | ExportFormat::Parquet => None,
    };
    if let (Some(format), Some(_)) = (format, args.table) {
        return Err(CliError::NoTables { format }.into());
    }
    let found = outputs::find_with_output_error(&args.file, form(args.to));
    let place = match args.to {
        ExportFormat::Tensorboard => event_file(found, &args.file)?,
        _ => ExportDestination::Known(found?),
    };
    let places = SconceDirs::find(context)?;
    let record = sconce_record::resolve_run(&places.runs, &args.run)?;
    let inputs = inputs::of_record(&record);
    let (output, folder) = match &place {
        ExportDestination::Known(output) => (Some(output), None),
        ExportDestination::InFolder(folder) => (None, Some(folder)),
    };
    VerbFiles {
        outputs: &[output],
        folder,
        inputs: &inputs,
        ..VerbFiles::default()
    }
    .claim()?;
    let (output, folder) = match place {
        ExportDestination::Known(output) => (output, None),
        ExportDestination::InFolder(_) => {
            let folder = OutputDirectory::open_or_create(&args.file)?;
            let output = event_output(&folder, &record)?;
            // It may be a link.
            outputs::refuse_inputs(&output, &inputs)?;
            outputs::own_places::refuse_own_folders(&output)?;
            outputs::own_places::refuse_project_files(&output)?;
            (output, Some(folder))
        }
    };
    let path = output.is_file().then(|| output.path().to_owned());
    let written = to(output, args, &record)?;
    if let Some(folder) = folder {
        folder.keep();
    }
    if written.damaged_lines > 0 {
        let lines = written.damaged_lines;
        output::print_message(&format!("lines of the record that cannot be read: {lines}"));
    }
    if written.columns_left_out > 0 {
        let columns = written.columns_left_out;
        output::print_message(&format!(
            "columns left out, as there are too many: {columns}"
        ));
    }
    if let (Some(path), false) = (path, context.quiet) {
        let things = match args.to {
            ExportFormat::Tensorboard => "scalars",
            ExportFormat::Perfetto => "events",
            _ => "rows",
        };
        let path = output::format_path(&path);
        output::print_message(&format!("written: {path} ({things}: {})", written.rows));
    }
    Ok(exit::OK)
}

/// Writes the record, in the format that was asked for, to `out`.
fn write(
    args: &ExportArgs,
    record: &Path,
    out: &mut impl Write,
) -> Result<ExportSummary, ExportError> {
    let open = || sconce_record::open_record(record);
    let table = args.table.map_or(ExportTable::Readings, ExportTable::from);
    match args.to {
        ExportFormat::Csv => export::write_csv(open, table, out),
        ExportFormat::Parquet => export::write_parquet(open, table, out),
        ExportFormat::Json => export::write_json(open, out),
        ExportFormat::Tensorboard => export::write_tensorboard(open()?, out),
        ExportFormat::Perfetto => export::write_perfetto(open()?, out),
    }
}

/// Writes a file whole or not at all.
fn to(output: OutputDestination, args: &ExportArgs, record: &Path) -> Result<ExportSummary> {
    let path = output.path().to_owned();
    let mut out = BufWriter::new(output.open()?);
    let done = write(args, record, &mut out).and_then(|written| {
        out.flush()?;
        Ok(written)
    });
    let written = done.map_err(|error| match error {
        ExportError::Write(source) => Failure::from(OutputError::io_error(&path)(source)),
        error @ ExportError::Record(_) => error.into(),
    })?;
    let file = out.into_inner().map_err(|error| error.into_error());
    file.map_err(OutputError::io_error(&path))?.finish()?;
    Ok(written)
}

fn form(format: ExportFormat) -> OutputForm {
    match format {
        ExportFormat::Csv | ExportFormat::Json | ExportFormat::Perfetto => OutputForm::Text,
        ExportFormat::Parquet | ExportFormat::Tensorboard => OutputForm::Binary,
    }
}

/// Where an export goes.
enum ExportDestination {
    Known(OutputDestination),
    /// To a file in it that is called by the run.
    InFolder(DirectoryDestination),
}

/// A stream gets the event file itself; anything else is TensorBoard's folder.
fn event_file(
    found: Result<OutputDestination, OutputError>,
    path: &Path,
) -> Result<ExportDestination> {
    match found {
        Ok(output) if !output.is_file() => return Ok(ExportDestination::Known(output)),
        Ok(_) | Err(OutputError::Io { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let folder = DirectoryDestination::for_path(path)?;
    Ok(ExportDestination::InFolder(folder))
}

/// The event file of a run in TensorBoard's folder: `tfevents` in a name is how it knows them.
fn event_output(folder: &OutputDirectory, record: &Path) -> Result<OutputDestination> {
    let began_s = sconce_record::open_record(record)?.started.unix_ms / 1000;
    let name = format!("events.out.tfevents.{began_s:010}.sconce");
    Ok(folder.output_for(&name, OutputForm::Binary)?)
}
