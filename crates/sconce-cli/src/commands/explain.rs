//! `sconce explain`.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use sconce_base::input::check_stream;
use sconce_compat::explain::{
    Cause, Explainer, Explanation, LikelihoodEffect, LogEnvironment, OomMessage, RuleSet,
};
use sconce_schema::finding::Certainty;
use sconce_schema::{Bytes, exit};

use super::check;
use crate::error::CliError;
use crate::findings::{format_fix, format_title};
use crate::output;
use crate::remote_machines::RemoteMachineFlags;
use crate::text_layout::TextLayout;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::{AppError, Result};
use sconce_app::file_action::FileAction;
use sconce_app::input;

/// How much of a log is read at once, in bytes.
const CHUNK_BYTES: usize = 1 << 20;
/// Causes that are shown; --json has all.
const MAX_LISTED_CAUSES: usize = 3;

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A log or a traceback; `-` is standard input.
    #[arg(default_value = "-", value_name = "FILE|-")]
    file: PathBuf,
    /// The environment it came from: a sconce.toml or its folder, a lock, an image, or a folder of
    /// installed packages.
    #[arg(long, value_name = "SUBJECT")]
    of: Option<String>,
    /// It came from elsewhere: judge by the text alone.
    #[arg(long, conflicts_with_all = ["gpu", "facts", "set"])]
    elsewhere: bool,
    #[command(flatten)]
    hosts: RemoteMachineFlags,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Says what an error means. The answer "nothing is known of it" is exit code 1.
pub(crate) fn explain(args: &ExplainArgs, context: &AppContext) -> Result<u8> {
    let places = SconceDirs::find(context)?;
    let hosts = match args.elsewhere {
        true => Vec::new(),
        false => args
            .hosts
            .load_host_facts(Some(&places.store), &context.env)?,
    };
    let host = hosts.first();
    if let Some(first) = host.filter(|_| hosts.len() > 1 && !context.quiet) {
        let name = first.name.as_deref().unwrap_or("the first machine");
        output::print_message(&format!(
            "judged for {name} alone: a log comes from one machine"
        ));
    }
    let environment = match &args.of {
        Some(what) => check::inspect_environment(what, &places, context)?.for_logs(),
        None => LogEnvironment::default(),
    };
    let explained = read(&args.file, context)?.finish(host, &environment);
    if args.json {
        output::write_data(&serde_json::to_string_pretty(&explained).unwrap_or_default())?;
    } else {
        output::write_data(&text(&explained, &TextLayout::for_stdout()))?;
    }
    Ok(match explained.causes.is_empty() {
        true => exit::NO,
        false => exit::OK,
    })
}

/// Reads all of it, in memory that does not grow with it.
fn read(path: &Path, context: &AppContext) -> Result<Explainer<'static>> {
    let failed = |source| AppError::File {
        action: FileAction::Read,
        path: path.to_owned(),
        source,
    };
    let mut from: Box<dyn Read> = match path == Path::new("-") {
        true => {
            if io::stdin().is_terminal() && !context.quiet {
                output::print_message("paste the error, then press Ctrl-D");
            }
            check_stream(&io::stdin()).map_err(failed)?;
            Box::new(io::stdin().lock())
        }
        false => Box::new(match input::open_stream(path, &output::tell_fifo_wait) {
            Ok(file) => file,
            // Somebody pasted the error itself.
            Err(error) if is_text(path) && !path.exists() => {
                drop(error);
                return Err(CliError::NotALog.into());
            }
            Err(error) => return Err(failed(error).into()),
        }),
    };
    let mut explainer = Explainer::new(RuleSet::builtin_rules());
    let mut piece = vec![0; CHUNK_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(explainer),
            Ok(n) => explainer.push(&piece[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error).into()),
        }
    }
}

/// Whether a name is rather a line of a log.
fn is_text(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.contains(' ') || name.contains('\n') || name.chars().count() > 255
}

fn text(explained: &Explanation, page: &TextLayout) -> String {
    let style = &page.style;
    let mut text = String::new();
    // What another cause explains is mended with it.
    let follows = |cause: &&Cause| cause.consequence_of.is_some();
    let (behind, causes): (Vec<&Cause>, Vec<&Cause>) = explained.causes.iter().partition(follows);
    for (number, cause) in causes.iter().take(MAX_LISTED_CAUSES).enumerate() {
        text += &cause_block(number, cause, explained, page);
    }
    let more = causes.len().saturating_sub(MAX_LISTED_CAUSES);
    if more > 0 {
        let _ = writeln!(text, "{more} more, less likely: --json shows them\n");
    }
    for cause in behind.iter().take(MAX_LISTED_CAUSES) {
        let by = cause.consequence_of.as_deref().unwrap_or_default();
        let what = format!("{}, which {by} explains", cause.title);
        let _ = writeln!(text, "also: {}", format_title(&what, &cause.code, 6, page));
    }
    if !behind.is_empty() {
        text.push('\n');
    }
    if let Some(unknown) = &explained.unknown {
        let _ = writeln!(text, "{}", style.warn("Nothing is known of this:"));
        let line = format!("line {}: {}", unknown.line, unknown.text);
        let _ = writeln!(text, "  {}", page.wrap_text(&line, 2, 4));
        if !unknown.nearest.is_empty() {
            let _ = writeln!(text, "The most like it, which need not be its cause:");
        }
        for nearest in &unknown.nearest {
            let _ = writeln!(
                text,
                "  {} {} ({} % alike)",
                nearest.title,
                style.dim(&format!("[{}]", nearest.code)),
                nearest.likeness
            );
        }
        let _ = writeln!(
            text,
            "`sconce doctor` looks at this machine, `sconce check` at an environment, without a text"
        );
    } else if explained.causes.is_empty() {
        let lines = match explained.lines {
            1 => "1 line".to_owned(),
            lines => format!("{lines} lines"),
        };
        let _ = writeln!(text, "no error was found in {lines}");
    }
    text
}

/// The likeliest cause, as a failed run ends with it.
pub(crate) fn render_first_cause(explained: &Explanation, page: &TextLayout) -> String {
    let cause = explained.causes.first();
    cause.map_or_else(String::new, |cause| cause_block(0, cause, explained, page))
}

/// Where what is said of a cause begins.
const DETAIL: usize = 9;

fn cause_block(number: usize, cause: &Cause, explained: &Explanation, page: &TextLayout) -> String {
    let oom = explained
        .oom
        .as_ref()
        .filter(|_| cause.code == "out-of-memory");
    let style = &page.style;
    let sure = match cause.certainty {
        Certainty::Certain => "",
        Certainty::Likely => " (likely)",
        Certainty::Possible => " (possibly)",
    };
    let title = match number {
        0 => style.error(&cause.title),
        _ => style.warn(&cause.title),
    };
    let code = style.dim(&format!("[{}]", cause.code));
    let mut text = format!("{title}{sure} {code}\n");
    let wrapped = |said: &str| page.wrap_text(said, DETAIL, DETAIL);
    let mut line = |name: &str, said: &str| {
        let _ = writeln!(text, "  {}  {said}", style.dim(&format!("{name:5}")));
    };
    line("why", &wrapped(oom.map_or(&cause.why, |oom| &oom.why)));
    if let Some(oom) = oom {
        figures(oom).iter().for_each(|figure| line("", figure));
    }
    for found in cause.lines.iter().take(1) {
        let times = match cause.count {
            0 | 1 => String::new(),
            count => format!(" ({count} times)"),
        };
        let rank = found
            .rank
            .map_or(String::new(), |rank| format!(" of rank {rank}"));
        line(
            "line",
            &wrapped(&format!("{}{rank}{times}: {}", found.number, found.text)),
        );
    }
    for seen in &cause.seen {
        let speaks = match seen.speaks {
            LikelihoodEffect::Raise => "here",
            LikelihoodEffect::Lower => "but",
            LikelihoodEffect::Tell => "note",
        };
        line(speaks, &wrapped(&seen.what));
    }
    for mend in &cause.mends {
        line("mend", &style.hint(&format_fix(mend, DETAIL, page)));
    }
    for source in cause.sources.iter().take(2) {
        line("see", source);
    }
    text + "\n"
}

/// The figures of an out-of-memory message; what it does not say has no line.
fn figures(oom: &OomMessage) -> Vec<String> {
    let figure =
        |name: &str, bytes: Option<Bytes>| Some(format!("{name:34}{:>10}", bytes?.to_string()));
    // Old wordings say what PyTorch held, not the process.
    let held = match (oom.in_use, oom.allocated, oom.unallocated) {
        (None, Some(allocated), Some(rest)) => Some(Bytes(allocated.0.saturating_add(rest.0))),
        _ => None,
    };
    let others: u64 = oom.others.iter().map(|(_, bytes)| bytes.0).sum();
    let rows = [
        ("asked for", oom.asked),
        ("the card's memory", oom.capacity),
        ("free on the card", oom.free),
        (
            "held by other processes",
            (others > 0).then_some(Bytes(others)),
        ),
        ("held by this process", oom.in_use),
        ("held by PyTorch in this process", held),
        ("  of it allocated to tensors", oom.allocated),
        ("  of it in private pools", oom.private_pools),
        ("  of it reserved and unallocated", oom.unallocated),
        ("allowed to PyTorch", oom.allowed),
    ];
    rows.into_iter()
        .filter_map(|(name, bytes)| figure(name, bytes))
        .collect()
}
