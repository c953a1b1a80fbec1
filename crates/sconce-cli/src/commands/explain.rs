//! `sconce explain`.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use sconce_compat::explain::{
    Cause, Environment, Explainer, Explanation, OutOfMemory, Rules, Then,
};
use sconce_schema::finding::Certainty;
use sconce_schema::{Bytes, exit};

use super::check;
use crate::args::Global;
use crate::failure::{CliError, Result};
use crate::findings::mended;
use crate::hosts::HostFlags;
use crate::output;
use crate::places::Places;
use crate::style::Style;

/// How much of a log is read at once, in bytes.
const PIECE: usize = 1 << 20;
/// Causes that are shown; --json has all.
const MOST_CAUSES: usize = 3;

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
    hosts: HostFlags,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Says what an error means. The answer "nothing is known of it" is exit code 1.
pub(crate) fn explain(args: &ExplainArgs, global: &Global) -> Result<u8> {
    let places = Places::find(global)?;
    let host = match args.elsewhere {
        true => None,
        false => args.hosts.hosts(Some(&places.store))?.into_iter().next(),
    };
    let environment = match &args.of {
        Some(what) => check::subject(what, &places, global)?.for_logs(),
        None => Environment::default(),
    };
    let explained = read(&args.file, global)?.finish(host.as_ref(), &environment);
    if args.json {
        output::data(&serde_json::to_string_pretty(&explained).unwrap_or_default())?;
    } else {
        output::data(&text(&explained, &Style::for_stdout()))?;
    }
    Ok(match explained.causes.is_empty() {
        true => exit::NO,
        false => exit::OK,
    })
}

/// Reads all of it, in memory that does not grow with it.
fn read(path: &Path, global: &Global) -> Result<Explainer<'static>> {
    let failed = |source| CliError::File {
        action: "read",
        path: path.to_owned(),
        source,
    };
    let mut from: Box<dyn Read> = match path == Path::new("-") {
        true => {
            if io::stdin().is_terminal() && !global.quiet {
                output::say("paste the error, then press Ctrl-D");
            }
            Box::new(io::stdin().lock())
        }
        false => Box::new(File::open(path).map_err(failed)?),
    };
    let mut explainer = Explainer::new(Rules::own());
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(explainer),
            Ok(n) => explainer.push(&piece[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error).into()),
        }
    }
}

fn text(explained: &Explanation, style: &Style) -> String {
    let mut text = String::new();
    for (number, cause) in explained.causes.iter().take(MOST_CAUSES).enumerate() {
        let oom = explained
            .oom
            .as_ref()
            .filter(|_| cause.code == "out-of-memory");
        text += &block(number, cause, oom, style);
    }
    let more = explained.causes.len().saturating_sub(MOST_CAUSES);
    if more > 0 {
        let _ = writeln!(text, "{more} more, less likely: --json shows them\n");
    }
    if let Some(unknown) = &explained.unknown {
        let _ = writeln!(text, "{}", style.warn("Nothing is known of this error:"));
        let _ = writeln!(text, "  line {}: {}", unknown.line, unknown.text);
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
    } else if explained.causes.is_empty() {
        let _ = writeln!(text, "no error was found in {} lines", explained.lines);
    }
    text
}

fn block(number: usize, cause: &Cause, oom: Option<&OutOfMemory>, style: &Style) -> String {
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
    let mut line = |name: &str, said: &str| {
        let _ = writeln!(text, "  {}  {said}", style.dim(&format!("{name:5}")));
    };
    line("why", oom.map_or(&cause.why, |oom| &oom.why));
    if let Some(other) = &cause.consequence_of {
        line("", &format!("it follows from {other}"));
    }
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
            &format!("{}{rank}{times}: {}", found.number, found.text),
        );
    }
    for seen in &cause.seen {
        let speaks = match seen.speaks {
            Then::Raise => "here",
            Then::Lower => "but",
            Then::Tell => "note",
        };
        line(speaks, &seen.what);
    }
    for mend in &cause.mends {
        line("mend", &style.hint(&mended(mend)));
    }
    for source in cause.sources.iter().take(2) {
        line("see", source);
    }
    text + "\n"
}

/// The figures of an out-of-memory message; what it does not say has no line.
fn figures(oom: &OutOfMemory) -> Vec<String> {
    let figure =
        |name: &str, bytes: Option<Bytes>| Some(format!("{name:34}{:>10}", bytes?.to_string()));
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
        ("  of it allocated by PyTorch", oom.allocated),
        ("  of it in private pools", oom.private_pools),
        ("  of it reserved and unallocated", oom.unallocated),
        ("allowed to PyTorch", oom.allowed),
    ];
    rows.into_iter()
        .filter_map(|(name, bytes)| figure(name, bytes))
        .collect()
}
