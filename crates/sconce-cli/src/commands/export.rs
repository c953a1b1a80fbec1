//! `sconce export`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use sconce_report::export::{self, ExportError, Table, Written};
use sconce_schema::exit;

use crate::args::Global;
use crate::failure::{CliError, Result};
use crate::output;
use crate::places::Places;

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// A run's id, the beginning of one, or `last`.
    pub(crate) run: String,
    /// What to write.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Format,
    /// The rows of CSV and Parquet [default: readings].
    #[arg(long, value_name = "TABLE")]
    pub(crate) table: Option<Rows>,
    /// Where to; `-` is standard output. For TensorBoard a folder, which is made where it is not there.
    pub(crate) file: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
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
pub(crate) enum Rows {
    /// One row a reading.
    Readings,
    /// One row a training step that is on record.
    Steps,
    /// One row a process and reading.
    Processes,
}

impl From<Rows> for Table {
    fn from(rows: Rows) -> Self {
        match rows {
            Rows::Readings => Self::Readings,
            Rows::Steps => Self::Steps,
            Rows::Processes => Self::Processes,
        }
    }
}

pub(crate) fn export(args: &ExportArgs, global: &Global) -> Result<u8> {
    let format = match args.to {
        Format::Json => Some("json"),
        Format::Tensorboard => Some("tensorboard"),
        Format::Perfetto => Some("perfetto"),
        Format::Csv | Format::Parquet => None,
    };
    if let (Some(format), Some(_)) = (format, args.table) {
        return Err(CliError::NoTables { format }.into());
    }
    let places = Places::find(global)?;
    let record = sconce_record::find(&places.runs, &args.run)?;
    let (path, written) = if args.file.as_os_str() == "-" {
        (None, to_stdout(args, &record)?)
    } else {
        let path = match args.to {
            Format::Tensorboard => in_folder(&args.file, &record)?,
            _ => args.file.clone(),
        };
        let written = to_file(args, &record, &path)?;
        (Some(path), written)
    };
    if written.damaged_lines > 0 {
        let lines = written.damaged_lines;
        output::say(&format!("lines of the record that cannot be read: {lines}"));
    }
    if written.columns_left_out > 0 {
        let columns = written.columns_left_out;
        output::say(&format!(
            "columns left out, as there are too many: {columns}"
        ));
    }
    if let (Some(path), false) = (path, global.quiet) {
        let things = match args.to {
            Format::Tensorboard => "scalars",
            Format::Perfetto => "events",
            _ => "rows",
        };
        let path = path.display();
        output::say(&format!("written: {path} ({things}: {})", written.rows));
    }
    Ok(exit::OK)
}

/// Writes the record, in the format that was asked for, to `out`.
fn write(args: &ExportArgs, record: &Path, out: &mut impl Write) -> Result<Written, ExportError> {
    let open = || sconce_record::read(record);
    let table = args.table.map_or(Table::Readings, Table::from);
    match args.to {
        Format::Csv => export::csv(open, table, out),
        Format::Parquet => export::parquet(open, table, out),
        Format::Json => export::json(open, out),
        Format::Tensorboard => export::tensorboard(open()?, out),
        Format::Perfetto => export::perfetto(open()?, out),
    }
}

/// A closed pipe is the reader's wish.
fn to_stdout(args: &ExportArgs, record: &Path) -> Result<Written> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = write(args, record, &mut out).and_then(|written| {
        out.flush()?;
        Ok(written)
    });
    match written {
        Err(ExportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(Written::default())
        }
        written => Ok(written?),
    }
}

/// Writes a file whole or not at all.
fn to_file(args: &ExportArgs, record: &Path, path: &Path) -> Result<Written> {
    let refused = |source| CliError::File {
        action: "write",
        path: path.to_owned(),
        source,
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = path.with_file_name(format!(".{name}.{}", std::process::id()));
    // Nothing that is there under this name is followed or written over.
    let made = File::options().write(true).create_new(true).open(&fresh);
    let mut out = BufWriter::new(made.map_err(refused)?);
    let done = write(args, record, &mut out).and_then(|written| {
        out.flush()?;
        std::fs::rename(&fresh, path)?;
        Ok(written)
    });
    done.map_err(|error| {
        let _ = std::fs::remove_file(&fresh);
        match error {
            ExportError::Write(source) => refused(source).into(),
            error @ ExportError::Record(_) => error.into(),
        }
    })
}

/// The event file of a run in TensorBoard's folder: `tfevents` in a name is how it knows them.
fn in_folder(folder: &Path, record: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).map_err(|source| CliError::File {
        action: "create",
        path: folder.to_owned(),
        source,
    })?;
    let began_s = sconce_record::read(record)?.started.unix_ms / 1000;
    Ok(folder.join(format!("events.out.tfevents.{began_s:010}.sconce")))
}
