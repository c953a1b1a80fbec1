//! `sconce memory what-if`.

mod page;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::slice;

use clap::Args;
use sconce_memory::allocator::TorchVersion;
use sconce_memory::replay::{
    self, CapacitySource, DeviceWhatIf, ReplayOutcome, WhatIf, WhatIfQuery,
};
use sconce_schema::finding::Certainty;
use sconce_schema::{Bytes, exit};

use super::claim_page;
use super::format::{format_bytes, format_count, printable_text, read_snapshot};
use crate::output;
use crate::text_layout::TextLayout;
use sconce_app::context::AppContext;
use sconce_app::failure::Result;
use sconce_app::outputs;

/// Searched settings that are shown without --all.
const DEFAULT_ROWS: usize = 5;
/// Peaks within this part of each other are the same.
const SAME_PEAK_RATIO: f64 = 1.01;
/// What a request that did not fail leaves open.
const LATER_REQUESTS_NOTE: &str =
    "what the program would have asked for after the failed request is not in the snapshot";
/// Where what is said begins.
const DETAIL: usize = 2;
/// Where settings begin in a row of figures.
const SETTINGS: usize = 41;

#[derive(Debug, Args)]
pub(crate) struct WhatIfArgs {
    /// What torch.cuda.memory._dump_snapshot wrote, with history.
    #[arg(value_name = "SNAPSHOT")]
    snapshot: PathBuf,
    /// Settings to try instead of those of the run, as in PYTORCH_CUDA_ALLOC_CONF; several times.
    #[arg(long, value_name = "SETTINGS")]
    conf: Vec<String>,
    /// Look for the best settings; without --conf this is done anyway.
    #[arg(long)]
    search: bool,
    /// What PyTorch may have of the card; a failed request in the snapshot says it too.
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Bytes>,
    /// The release of PyTorch that wrote the snapshot, whose rules and settings are followed.
    #[arg(long, value_name = "VERSION")]
    torch: Option<TorchVersion>,
    /// Show all settings that were tried.
    #[arg(long)]
    all: bool,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
    /// Write a page with all settings that were tried to FILE; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Plays the snapshot's trace under other settings.
pub(super) fn what_if(args: &WhatIfArgs, context: &AppContext) -> Result<u8> {
    let html = claim_page(
        args.html.as_deref(),
        slice::from_ref(&args.snapshot),
        args.json,
    )?;
    let snapshot = read_snapshot(&args.snapshot)?;
    let question = WhatIfQuery {
        version: args.torch,
        capacity: args.capacity.map(|bytes| bytes.0),
        confs: args.conf.clone(),
        search: args.search || args.conf.is_empty(),
    };
    let answer = replay::what_if(&snapshot, &question)?;
    if let Some(output) = html {
        let name = args.snapshot.file_name().unwrap_or_default();
        let whole = page::render_page(&printable_text(&name.to_string_lossy()), &answer);
        outputs::write(output, whole.as_bytes(), context)?;
    }
    if args.json {
        output::write_data(&serde_json::to_string_pretty(&answer).unwrap_or_default())?;
    } else if args.html.is_none() {
        output::write_data(&text(&answer, args.all, &TextLayout::for_stdout()))?;
    }
    Ok(exit::OK)
}

fn text(answer: &WhatIf, all: bool, page: &TextLayout) -> String {
    let mut text = String::new();
    for (number, device) in answer.devices.iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        WhatIfText { answer, all, page }.device(&mut text, device);
    }
    text
}

struct WhatIfText<'a> {
    answer: &'a WhatIf,
    all: bool,
    page: &'a TextLayout,
}

impl WhatIfText<'_> {
    fn say(&self, text: &mut String, said: &str) {
        let _ = writeln!(text, "  {}", self.page.wrap_text(said, DETAIL, DETAIL));
    }

    fn device(&self, text: &mut String, device: &DeviceWhatIf) {
        let style = &self.page.style;
        let _ = writeln!(text, "{}", style.warn(&head(device)));
        self.trust(text, device);
        self.stands_on(text, device);
        let _ = writeln!(
            text,
            "\n{}",
            style.dim("   RESERVED    CHANGE   FAILED  RETRIES  SETTINGS")
        );
        let today = &device.today;
        self.row(text, device, today, &format!("now: {}", named(&today.conf)));
        for one in &device.asked {
            self.row(text, device, one, &named(&one.conf));
        }
        let mut searched = in_order(device);
        let tried = searched.len();
        if !self.all {
            searched = telling(&searched, today);
        }
        for one in &searched {
            self.row(text, device, one, &named(&one.conf));
        }
        if tried > searched.len() {
            let line = format!("  {tried} settings were tried: --all shows them");
            let _ = writeln!(text, "{}", style.dim(&line));
        }
        text.push('\n');
        self.verdict(text, device);
    }

    /// How near the replay comes to what was.
    fn trust(&self, text: &mut String, device: &DeviceWhatIf) {
        let said = trust(device);
        match device.as_it_was.certainty {
            Certainty::Possible => self.say(text, &self.page.style.warn(&said)),
            _ => self.say(text, &said),
        }
    }

    fn stands_on(&self, text: &mut String, device: &DeviceWhatIf) {
        for said in stands_on(self.answer, device) {
            self.say(text, &said);
        }
        if let Some(said) = unmatched(device) {
            self.say(text, &self.page.style.warn(&said));
        }
    }

    fn row(&self, text: &mut String, device: &DeviceWhatIf, one: &ReplayOutcome, name: &str) {
        let style = &self.page.style;
        let today = device.today.peak_reserved_bytes;
        let failed = format!("{:>7}", failed(one));
        let failed = match one.failed_request_count() {
            0 => failed,
            _ => style.error(&failed),
        };
        let reserved = format_bytes(one.peak_reserved_bytes);
        let change = change(one.peak_reserved_bytes, today);
        // Settings are one word, which is copied: where it does not fit, it stands below.
        let name = match self.page.fits(SETTINGS, name) {
            true => format!("  {name}"),
            false => format!("\n{:>13}{name}", ""),
        };
        let retries = one.retries;
        let _ = writeln!(
            text,
            "{reserved:>11}  {change:>8}  {failed}  {retries:>7}{name}"
        );
    }

    fn verdict(&self, text: &mut String, device: &DeviceWhatIf) {
        let Some(best) = &device.best else {
            return self.say(text, &verdict(device));
        };
        self.say(text, &self.page.style.hint(&verdict(device)));
        let _ = writeln!(
            text,
            "    PYTORCH_CUDA_ALLOC_CONF={}",
            printable_text(&best.conf)
        );
        if best.saved > 0 {
            self.say(text, LATER_REQUESTS_NOTE);
        }
    }
}

/// How near the replay comes to what was.
fn trust(device: &DeviceWhatIf) -> String {
    let was = &device.as_it_was;
    let peaks = format!(
        "played again as it was: {} reserved at its peak, {} in the snapshot",
        format_bytes(was.outcome.peak_reserved_bytes),
        format_bytes(device.peak_reserved_bytes)
    );
    match was.certainty {
        Certainty::Certain => {
            format!("{peaks}, and the same after each of {} calls", device.calls)
        }
        Certainty::Likely => format!(
            "{peaks}; the same after {} of {} calls, and at most {} off",
            was.same_calls,
            device.calls,
            format_bytes(was.farthest_bytes)
        ),
        Certainty::Possible => format!(
            "{peaks}; {} off at worst: what follows is no more than a hint",
            format_bytes(was.farthest_bytes)
        ),
    }
}

/// What the answer rests on.
fn stands_on(answer: &WhatIf, device: &DeviceWhatIf) -> Vec<String> {
    let torch = match answer.torch_given {
        true => format!("PyTorch {}", answer.torch),
        false => format!(
            "PyTorch {}, as the snapshot's form says (--torch names another)",
            answer.torch
        ),
    };
    let mut all = vec![format!("rules of {torch}")];
    let said = match device.room {
        Some(room) => {
            let bytes = format_bytes(room.bytes);
            match room.source {
                CapacitySource::Given => format!("{bytes} of the card for PyTorch, as you say"),
                CapacitySource::FailedRequest => {
                    format!("{bytes} of the card for PyTorch, as the failed request says")
                }
                CapacitySource::Retry => format!(
                    "at most {bytes} of the card for PyTorch, which gave its cache back once \
                         to get more"
                ),
            }
        }
        None => "nothing says what the card had: memory never runs out here \
                     (--capacity says it)"
            .to_owned(),
    };
    all.push(said);
    if device.reserved_before_bytes > 0 || device.live_before_bytes > 0 {
        let said = format!(
            "the history begins within the run, with {} live and {} reserved: all settings \
                 below begin with the live blocks alone, which is an approximation",
            format_bytes(device.live_before_bytes),
            format_bytes(device.reserved_before_bytes)
        );
        all.push(said);
    }
    all
}

fn unmatched(device: &DeviceWhatIf) -> Option<String> {
    let count = device.unmatched;
    (count > 0).then(|| format!("{count} entries do not fit each other"))
}

/// What the best settings give.
fn verdict(device: &DeviceWhatIf) -> String {
    let sure = match device.as_it_was.certainty {
        Certainty::Possible => " (possibly)",
        _ => "",
    };
    let Some(best) = &device.best else {
        let said = match device.today.failed_request_count() {
            0 => "no settings that were tried reserve less",
            _ => "no settings that were tried would have given the memory",
        };
        return said.to_owned();
    };
    if best.failed_request_count() < device.today.failed_request_count() {
        let left = match best.failed_request_count() {
            0 => "no request would have failed".to_owned(),
            left => format!("{} would have failed", format_count(left, "request")),
        };
        format!(
            "{left}{sure}, instead of {}, with",
            device.today.failed_request_count()
        )
    } else {
        let less = device.today.peak_reserved_bytes;
        let less = less.saturating_sub(best.peak_reserved_bytes);
        format!("{} less would be reserved{sure} with", format_bytes(less))
    }
}

/// Settings that were looked through, the best first.
fn in_order(device: &DeviceWhatIf) -> Vec<&ReplayOutcome> {
    let mut searched: Vec<&ReplayOutcome> = device.searched.iter().collect();
    searched.sort_by_key(|one| {
        (
            one.failed_request_count(),
            one.peak_reserved_bytes,
            one.conf.len(),
        )
    });
    searched
}

/// Failed requests, as a row tells them.
fn failed(one: &ReplayOutcome) -> String {
    match (one.failed_request_count(), one.saved) {
        (0, 0) => "–".to_owned(),
        (0, _) => "avoided".to_owned(),
        (failed, _) => failed.to_string(),
    }
}

/// The card and its peak.
fn head(device: &DeviceWhatIf) -> String {
    let failed = match device.oom_count {
        0 => String::new(),
        count => format!(", {} failed", format_count(count, "request")),
    };
    let peak = format_bytes(device.peak_reserved_bytes);
    format!(
        "card {}: {peak} reserved at its peak{failed}",
        device.device
    )
}

/// Of searched settings in order those that tell something: without those that do no better than
/// fewer of the same.
fn telling<'o>(searched: &[&'o ReplayOutcome], today: &ReplayOutcome) -> Vec<&'o ReplayOutcome> {
    let parts = |one: &ReplayOutcome| one.conf.split(',').map(str::to_owned).collect::<Vec<_>>();
    let as_good = |one: &ReplayOutcome, other: &ReplayOutcome| {
        let (one_peak, other_peak) = (one.peak_reserved_bytes, other.peak_reserved_bytes);
        one.failed_request_count() <= other.failed_request_count()
            && one_peak as f64 <= other_peak as f64 * SAME_PEAK_RATIO
    };
    let needless = |one: &&ReplayOutcome| {
        let own = parts(one);
        one.conf == today.conf
            || searched.iter().any(|other| {
                let others = parts(other);
                others.len() < own.len()
                    && others.iter().all(|part| own.contains(part))
                    && as_good(other, one)
            })
    };
    let telling = searched.iter().filter(|one| !needless(one)).copied();
    telling.take(DEFAULT_ROWS).collect()
}

/// A change in per cent of what it was.
fn change(now: u64, before: u64) -> String {
    match now as f64 / before.max(1) as f64 {
        _ if now == before => "–".to_owned(),
        part if part < 10.0 => format!("{:+.1} %", (part - 1.0) * 100.0),
        part => format!("{part:.0} times"),
    }
}

fn named(conf: &str) -> String {
    match conf.trim() {
        "" => "default settings".to_owned(),
        conf => printable_text(conf),
    }
}
