//! `sconce memory simulate`.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use sconce_base::input::check_stream;
use sconce_memory::allocator::{
    Allocator, AllocatorSettings, PoolStat, SimulatedGpu, TorchVersion,
};
use sconce_memory::program::{CallResult, LineResult, MAX_LINE_BYTES, Runner};
use sconce_schema::{Bytes, Hint, exit};

use crate::output;
use crate::table::format_table;
use crate::text_layout::TextLayout;
use sconce_app::context::AppContext;
use sconce_app::failure::{AppError, Result};
use sconce_app::file_action::FileAction;
use sconce_app::input;

/// Out-of-memory errors that are shown; --json has all.
const MAX_LISTED_ERRORS: usize = 3;
/// Answers are printed when so many bytes of them came together.
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Calls as JSON lines, such as {"op":"alloc","id":1,"bytes":512}; `-` is standard input.
    #[arg(value_name = "FILE|-")]
    program: PathBuf,
    /// Settings, as in PYTORCH_CUDA_ALLOC_CONF.
    #[arg(
        long,
        value_name = "SETTINGS",
        default_value = "",
        hide_default_value = true
    )]
    conf: String,
    /// The card's memory.
    #[arg(long, value_name = "SIZE", default_value = "80GiB")]
    capacity: Bytes,
    /// What of it is taken by others: the CUDA context, other processes.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    outside: Bytes,
    /// The release of PyTorch whose allocator it is.
    #[arg(long, value_name = "VERSION", default_value_t = TorchVersion::MAX_KNOWN)]
    torch: TorchVersion,
    /// Print each answer and all counters as JSON lines.
    #[arg(long)]
    json: bool,
}

/// Settings that ask for another allocator.
#[derive(Debug, thiserror::Error)]
#[error("`backend:cudaMallocAsync` is an allocator of CUDA's own, which is not simulated")]
struct MallocAsync;

impl Hint for MallocAsync {
    fn hint(&self) -> Option<String> {
        Some("leave `backend` out of --conf".to_owned())
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// Runs the program. Memory that runs out is an answer, and no failure.
pub(super) fn simulate_program(args: &SimulateArgs, context: &AppContext) -> Result<u8> {
    let settings = AllocatorSettings::parse(&args.conf, args.torch)?;
    if settings.malloc_async {
        return Err(MallocAsync.into());
    }
    let device = SimulatedGpu::new(args.capacity.0)?.with_outside(args.outside.0);
    let mut runner = Runner::new(Allocator::new(settings, device, args.torch));
    let mut seen = SimulationTotals::default();
    let mut text = String::new();
    let ended = lines(&args.program, context, |line| {
        if let Some(answer) = runner.run_line(line)? {
            seen.count(&answer);
            if args.json {
                text += &serde_json::to_string(&answer).unwrap_or_default();
                text.push('\n');
            }
            if text.len() > CHUNK_BYTES {
                output::write_data(&std::mem::take(&mut text))?;
            }
        }
        Ok(())
    });
    if !text.is_empty() {
        output::write_data(&text)?;
    }
    ended?;
    let stats = runner.allocator().stats();
    if args.json {
        let stats = serde_json::json!({ "stats": stats.counters_by_name() });
        output::write_data(&stats.to_string())?;
    } else {
        output::write_data(&shown(args, &seen, &runner, &TextLayout::for_stdout()))?;
    }
    Ok(exit::OK)
}

/// Hands each line over, in memory that does not grow with the file.
fn lines(
    path: &Path,
    context: &AppContext,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let failed = |source| AppError::File {
        action: FileAction::Read,
        path: path.to_owned(),
        source,
    };
    let mut from: Box<dyn BufRead> = match path == Path::new("-") {
        true => {
            if io::stdin().is_terminal() && !context.quiet {
                output::print_message("type the calls, then press Ctrl-D");
            }
            check_stream(&io::stdin()).map_err(failed)?;
            Box::new(io::stdin().lock())
        }
        false => Box::new(BufReader::new(
            input::open_stream(path, &output::tell_fifo_wait).map_err(failed)?,
        )),
    };
    let mut line = Vec::new();
    loop {
        line.clear();
        // One byte more than a line may have, and its end.
        let mut piece = (&mut from).take(MAX_LINE_BYTES as u64 + 2);
        if piece.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            return Ok(());
        }
        each(line.strip_suffix(b"\n").unwrap_or(&line))?;
    }
}

/// What the answers were.
#[derive(Debug, Default)]
struct SimulationTotals {
    requests: u64,
    refused: u64,
    /// The first of them, with their lines.
    errors: Vec<(u64, String)>,
}

impl SimulationTotals {
    fn count(&mut self, answer: &LineResult) {
        match &answer.given {
            CallResult::Address(_) => self.requests += 1,
            CallResult::OutOfMemory(error) => {
                self.requests += 1;
                self.refused += 1;
                if self.errors.len() < MAX_LISTED_ERRORS {
                    self.errors.push((answer.line, error.to_string()));
                }
            }
            _ => {}
        }
    }
}

fn shown(
    args: &SimulateArgs,
    seen: &SimulationTotals,
    runner: &Runner,
    page: &TextLayout,
) -> String {
    let style = &page.style;
    let stats = runner.allocator().stats();
    let mut text = String::new();
    let conf = match args.conf.trim() {
        "" => "default settings",
        conf => conf,
    };
    let _ = writeln!(text, "PyTorch {} on {}, {conf}", args.torch, args.capacity);
    let _ = write!(
        text,
        "{} lines, {} requests, ",
        runner.line_count(),
        seen.requests
    );
    let _ = match seen.refused {
        0 => writeln!(text, "none out of memory\n"),
        refused => writeln!(
            text,
            "{}\n",
            style.error(&format!("{refused} out of memory"))
        ),
    };
    let size = |bytes: i64| match u64::try_from(bytes) {
        Ok(bytes) => Bytes(bytes).to_string(),
        Err(_) => "–".to_owned(),
    };
    let row = |name: &str, stat: &PoolStat| {
        let [all, large, small] = [&stat.all, &stat.large_pool, &stat.small_pool];
        let figures = [all.peak, all.current, large.current, small.current];
        let [peak, now, large, small] = figures.map(size);
        [name.to_owned(), peak, now, large, small]
    };
    let rows = [
        row("requested", &stats.requested_bytes),
        row("allocated", &stats.allocated_bytes),
        row("active", &stats.active_bytes),
        row("reserved", &stats.reserved_bytes),
        row("inactive split", &stats.inactive_split_bytes),
    ];
    let heads = ["", "PEAK", "NOW", "LARGE POOL", "SMALL POOL"];
    let _ = writeln!(text, "{}\n", format_table(heads, &rows, style));
    let _ = writeln!(
        text,
        "{} calls for memory of the card, {} to give it back, {} retries after emptying the cache",
        stats.num_device_alloc, stats.num_device_free, stats.num_alloc_retries
    );
    for (line, error) in &seen.errors {
        let _ = writeln!(
            text,
            "{}",
            page.wrap_text(&format!("line {line}: {error}"), 0, 2)
        );
    }
    let more = seen.refused - seen.errors.len() as u64;
    if more > 0 {
        let _ = writeln!(text, "{more} more: --json shows them");
    }
    text
}
