//! `sconce memory what-if`.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use sconce_memory::allocator::Version;
use sconce_memory::replay::{self, DeviceWhatIf, Outcome, Question, RoomSource, WhatIf};
use sconce_schema::finding::Certainty;
use sconce_schema::{Bytes, exit};

use super::words::{counted, open, shown, size};
use crate::args::Global;
use crate::failure::Result;
use crate::output;
use crate::page::Page;

/// Searched settings that are shown without --all.
const FEW: usize = 5;
/// Where what is said begins.
const DETAIL: usize = 2;
/// Where settings begin in a row of figures.
const SETTINGS: usize = 46;

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
    torch: Option<Version>,
    /// Show all settings that were tried.
    #[arg(long)]
    all: bool,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Plays the snapshot's trace under other settings.
pub(super) fn what_if(args: &WhatIfArgs, _: &Global) -> Result<u8> {
    let snapshot = open(&args.snapshot)?;
    let question = Question {
        version: args.torch,
        capacity: args.capacity.map(|bytes| bytes.0),
        confs: args.conf.clone(),
        search: args.search || args.conf.is_empty(),
    };
    let answer = replay::what_if(&snapshot, &question)?;
    if args.json {
        output::data(&serde_json::to_string_pretty(&answer).unwrap_or_default())?;
    } else {
        output::data(&text(&answer, args.all, &Page::stdout()))?;
    }
    Ok(exit::OK)
}

fn text(answer: &WhatIf, all: bool, page: &Page) -> String {
    let mut text = String::new();
    for (number, device) in answer.devices.iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        Shown { answer, all, page }.device(&mut text, device);
    }
    text
}

struct Shown<'a> {
    answer: &'a WhatIf,
    all: bool,
    page: &'a Page,
}

impl Shown<'_> {
    fn say(&self, text: &mut String, said: &str) {
        let _ = writeln!(text, "  {}", self.page.wrapped(said, DETAIL, DETAIL));
    }

    fn device(&self, text: &mut String, device: &DeviceWhatIf) {
        let style = &self.page.style;
        let failed = match device.oom_count {
            0 => String::new(),
            count => format!(", {} failed", counted(count, "request")),
        };
        let peak = size(device.peak_reserved_bytes);
        let head = format!(
            "card {}: {peak} reserved at its peak{failed}",
            device.device
        );
        let _ = writeln!(text, "{}", style.warn(&head));
        self.trust(text, device);
        self.stands_on(text, device);
        let _ = writeln!(
            text,
            "\n{}",
            style.dim("  PEAK RESERVED    CHANGE  OUT OF MEMORY  RETRIES  SETTINGS")
        );
        let today = &device.today;
        self.row(
            text,
            device,
            today,
            &format!("{} (the run's own)", named(&today.conf)),
        );
        for one in &device.asked {
            self.row(text, device, one, &named(&one.conf));
        }
        let mut searched: Vec<&Outcome> = device.searched.iter().collect();
        searched.sort_by_key(|one| (one.failed(), one.peak_reserved_bytes, one.conf.len()));
        let few = if self.all { usize::MAX } else { FEW };
        for one in searched.iter().take(few) {
            self.row(text, device, one, &named(&one.conf));
        }
        if let Some(rest) = searched.len().checked_sub(few).filter(|&rest| rest > 0) {
            let line = format!("  {rest} more that were tried: --all shows them");
            let _ = writeln!(text, "{}", style.dim(&line));
        }
        text.push('\n');
        self.verdict(text, device);
    }

    /// How near the replay comes to what was.
    fn trust(&self, text: &mut String, device: &DeviceWhatIf) {
        let was = &device.as_it_was;
        let peaks = format!(
            "played again as it was: {} reserved at its peak, {} in the snapshot",
            size(was.outcome.peak_reserved_bytes),
            size(device.peak_reserved_bytes)
        );
        let said = match was.certainty {
            Certainty::Certain => {
                format!("{peaks}, and the same after each of {} calls", device.calls)
            }
            Certainty::Likely => format!(
                "{peaks}; the same after {} of {} calls, and at most {} off",
                was.same_calls,
                device.calls,
                size(was.farthest_bytes)
            ),
            Certainty::Possible => format!(
                "{peaks}; {} off at worst: what follows is no more than a hint",
                size(was.farthest_bytes)
            ),
        };
        match was.certainty {
            Certainty::Possible => self.say(text, &self.page.style.warn(&said)),
            _ => self.say(text, &said),
        }
    }

    fn stands_on(&self, text: &mut String, device: &DeviceWhatIf) {
        let torch = match self.answer.torch_given {
            true => format!("PyTorch {}", self.answer.torch),
            false => format!(
                "PyTorch {}, as the snapshot's form says (--torch names another)",
                self.answer.torch
            ),
        };
        self.say(text, &format!("rules of {torch}"));
        let said = match device.room {
            Some(room) => {
                let bytes = size(room.bytes);
                match room.source {
                    RoomSource::Given => format!("{bytes} of the card for PyTorch, as you say"),
                    RoomSource::FailedRequest => {
                        format!("{bytes} of the card for PyTorch, as the failed request says")
                    }
                    RoomSource::Retry => format!(
                        "at most {bytes} of the card for PyTorch, which gave its cache back once \
                         to get more"
                    ),
                }
            }
            None => "nothing says what the card had: memory never runs out here \
                     (--capacity says it)"
                .to_owned(),
        };
        self.say(text, &said);
        if device.reserved_before_bytes > 0 || device.live_before_bytes > 0 {
            let said = format!(
                "the history begins within the run, with {} live and {} reserved: all settings \
                 below begin with the live blocks alone, which is an approximation",
                size(device.live_before_bytes),
                size(device.reserved_before_bytes)
            );
            self.say(text, &said);
        }
        if device.unmatched > 0 {
            let said = format!("{} entries do not fit each other", device.unmatched);
            self.say(text, &self.page.style.warn(&said));
        }
    }

    fn row(&self, text: &mut String, device: &DeviceWhatIf, one: &Outcome, name: &str) {
        let style = &self.page.style;
        let today = device.today.peak_reserved_bytes;
        let failed = match (one.failed(), one.saved) {
            (0, 0) => "no".to_owned(),
            (0, _) => "avoided".to_owned(),
            (failed, _) => counted(failed, "time"),
        };
        let line = format!(
            "  {:>13}  {:>8}  {failed:>13}  {:>7}  ",
            size(one.peak_reserved_bytes),
            change(one.peak_reserved_bytes, today),
            one.retries
        );
        let line = if one.failed() > 0 {
            style.error(&line)
        } else {
            line
        };
        // Settings are one word, which is copied: where it does not fit, it stands below.
        let name = match self.page.fits(SETTINGS + 6, name) {
            true => name.to_owned(),
            false => format!("\n      {name}"),
        };
        let _ = writeln!(text, "{}{}", line, name);
    }

    fn verdict(&self, text: &mut String, device: &DeviceWhatIf) {
        let style = &self.page.style;
        let sure = match device.as_it_was.certainty {
            Certainty::Possible => " (possibly)",
            _ => "",
        };
        let Some(best) = &device.best else {
            let said = match device.today.failed() {
                0 => "no settings that were tried reserve less",
                _ => "no settings that were tried would have given the memory",
            };
            return self.say(text, said);
        };
        let said = if best.failed() < device.today.failed() {
            let all = match (best.failed(), device.oom_count) {
                (0, 0 | 1) => "the out-of-memory error would not have been".to_owned(),
                (0, count) => format!("none of the {count} out-of-memory errors would have been"),
                (left, _) => format!("{left} of the out-of-memory errors would be left"),
            };
            format!("{all}{sure} with")
        } else {
            let less = device.today.peak_reserved_bytes;
            let less = less.saturating_sub(best.peak_reserved_bytes);
            format!("{} less would be reserved{sure} with", size(less))
        };
        self.say(text, &style.hint(&said));
        let _ = writeln!(text, "    PYTORCH_CUDA_ALLOC_CONF={}", shown(&best.conf));
        if best.saved > 0 {
            self.say(
                text,
                "what the program would have asked for after the failed request is not in the \
                 snapshot",
            );
        }
    }
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
        conf => shown(conf),
    }
}
