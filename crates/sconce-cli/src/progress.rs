//! Progress for people: one live line on a terminal, plain lines elsewhere.

mod heartbeat;
mod line;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, WeakProgressBar};
use sconce_schema::{Bytes, Progress, WaitCause};

use crate::style::OutputStyle;
use heartbeat::Heartbeat;
use line::Download;

/// Time between two drawings of the live line.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);
/// A stage that was shorter and fetched nothing is not worth a line that stays.
const MIN_LINE_DURATION: Duration = Duration::from_millis(50);

/// The live line, for those who write to the terminal and know of no progress. Weak, so that its end
/// stays its owner's.
static LIVE_LINE: Mutex<Option<WeakProgressBar>> = Mutex::new(None);

/// Has `write` write to the terminal, with the live line out of its way.
pub(crate) fn above_live_line(write: impl FnOnce()) {
    let bar = held(&LIVE_LINE).as_ref().and_then(WeakProgressBar::upgrade);
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Draws on standard error.
pub(crate) struct TerminalProgress {
    mode: ProgressMode,
    style: OutputStyle,
    stage: Mutex<Option<ProgressTask>>,
    /// What is under way, the oldest first, as it is shown. A lock of its own, as the live line
    /// reads it while it is drawn.
    under_way: Arc<Mutex<Vec<String>>>,
    /// What waits for another process, by its name.
    waits: Arc<Mutex<BTreeMap<String, WaitCause>>>,
    /// The processes that lines have named.
    waited: Mutex<BTreeSet<(String, u32)>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ProgressMode {
    Plain,
    Live,
}

/// The stage that is under way.
struct ProgressTask {
    name: String,
    bar: Option<ProgressBar>,
    /// In place of a bar.
    heartbeat: Option<Heartbeat>,
    bytes: u64,
    /// What brought bytes.
    items: BTreeSet<String>,
    began: Instant,
}

impl TerminalProgress {
    pub(crate) fn new() -> Self {
        let mode = match std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            true => ProgressMode::Live,
            false => ProgressMode::Plain,
        };
        Self {
            mode,
            style: OutputStyle::for_stderr(),
            stage: Mutex::default(),
            under_way: Arc::default(),
            waits: Arc::default(),
            waited: Mutex::default(),
        }
    }

    fn end(&self, stage: Option<ProgressTask>) {
        let Some(stage) = stage else { return };
        if let Some(bar) = stage.bar {
            bar.finish_and_clear();
        }
        let (took, name) = (stage.began.elapsed(), stage.name);
        let seconds = line::format_seconds(took);
        let figures = match stage.items.len() {
            // A log has the time of each line.
            0 if self.mode == ProgressMode::Plain || took < MIN_LINE_DURATION => return,
            0 => seconds,
            count => {
                let rate = stage.bytes as f64 / took.as_secs_f64().max(0.001);
                // Stages of images bring other things than packages.
                let what = match name.as_str() {
                    "read" | "unpack" => "layer",
                    "build" | "export" | "squashfs" => "layer",
                    "inflate" => "archive",
                    // Layers and what describes them.
                    "push" | "pull" => "blob",
                    _ => "package",
                };
                format!(
                    "{count} {what}{}, {}, {}/s, {seconds}",
                    if count == 1 { "" } else { "s" },
                    Bytes(stage.bytes),
                    Bytes(rate as u64)
                )
            }
        };
        self.line(&format!("{name:<width$}{figures}", width = line::NAME));
    }

    fn line(&self, text: &str) {
        write_line(self.style, text);
    }

    fn heartbeat(&self, name: &str, total: Option<u64>) -> Option<Heartbeat> {
        let (name, style) = (name.to_owned(), self.style);
        Heartbeat::start(total, heartbeat::INTERVAL, move |sign| {
            write_line(style, &format!("{name:<width$}{sign}", width = line::NAME));
        })
    }

    /// The live line of a stage.
    fn bar(&self, name: &str, total: Option<u64>) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        let (name, style) = (name.to_owned(), self.style);
        let (under_way, waits) = (Arc::clone(&self.under_way), Arc::clone(&self.waits));
        let draw = move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            // The last column stays free: some terminals go on to the next line there.
            let width = usize::from(style.for_reports().width.saturating_sub(1));
            let waits = held(&waits).clone();
            let item = held(&under_way)
                .iter()
                .find(|item| !waits.contains_key(*item))
                .cloned();
            // While something goes on here, that is worth more than who is waited for.
            if let (None, Some(wait)) = (&item, waits.values().next()) {
                let text = line::format_wait(&name, &said(wait), width);
                let _ = write!(out, "{text}");
                return;
            }
            let item = item.unwrap_or_default();
            let (text, item) = match (state.pos(), total) {
                (0, None) => line::format_elapsed(&name, state.elapsed(), &item, width),
                (done, total) => {
                    let rate = Some(state.per_sec()).filter(|rate| *rate >= 1.0);
                    let at = Download {
                        done,
                        total,
                        rate: rate.map(|rate| rate as u64),
                        // Never nothing, as something is left.
                        left: rate.map(|_| state.eta().max(Duration::from_secs(1))),
                    };
                    line::format_download(&name, at, &item, width)
                }
            };
            let _ = write!(out, "{text}");
            if !item.is_empty() {
                let _ = write!(out, "  {}", style.dim(&item));
            }
        };
        if let Ok(style) = ProgressStyle::with_template("{line}") {
            bar.set_style(style.with_key("line", draw));
        }
        bar.enable_steady_tick(DRAW_INTERVAL);
        *held(&LIVE_LINE) = Some(bar.downgrade());
        bar
    }
}

fn write_line(style: OutputStyle, text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", style.dim(text));
}

/// Whom something waits for, and since when that process does what it does.
fn said(wait: &WaitCause) -> String {
    let since = match wait {
        WaitCause::Maker(maker) => SystemTime::now().duration_since(maker.since).ok(),
        WaitCause::Unknown | WaitCause::Users => None,
    };
    match since {
        Some(time) if time.as_secs() > 0 => format!("{wait} (for {} s)", time.as_secs()),
        _ => wait.to_string(),
    }
}

/// A panic while drawing must not turn into a second one.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Progress for TerminalProgress {
    /// Ends the stage that is under way with a line that stays.
    fn finish(&self) {
        self.end(held(&self.stage).take());
        held(&self.under_way).clear();
    }

    fn stage(&self, name: &str, total_bytes: Option<u64>) {
        let mut stage = held(&self.stage);
        self.end(stage.take());
        if self.mode == ProgressMode::Plain {
            let of = total_bytes.map(|total| format!("{} ", Bytes(total)));
            self.line(&format!(
                "{name:<width$}{}...",
                of.unwrap_or_default(),
                width = line::NAME
            ));
        }
        *stage = Some(ProgressTask {
            name: name.to_owned(),
            bar: (self.mode == ProgressMode::Live).then(|| self.bar(name, total_bytes)),
            heartbeat: match self.mode {
                ProgressMode::Live => None,
                ProgressMode::Plain => self.heartbeat(name, total_bytes),
            },
            bytes: 0,
            items: BTreeSet::new(),
            began: Instant::now(),
        });
    }

    fn advance(&self, name: &str, bytes: u64) {
        let name = line::package_label(name);
        let mut under_way = held(&self.under_way);
        if !under_way.contains(&name) {
            under_way.push(name.clone());
        }
        drop(under_way);
        if let Some(stage) = &mut *held(&self.stage)
            && bytes > 0
        {
            stage.bytes += bytes;
            stage.items.insert(name);
            if let Some(bar) = &stage.bar {
                bar.inc(bytes);
            }
            if let Some(heartbeat) = &stage.heartbeat {
                heartbeat.advance(bytes);
            }
        }
    }

    fn done(&self, name: &str) {
        let name = line::package_label(name);
        held(&self.under_way).retain(|item| *item != name);
    }

    fn note(&self, text: &str) {
        let stage = held(&self.stage);
        match stage.as_ref().and_then(|stage| stage.bar.as_ref()) {
            Some(bar) => bar.suspend(|| self.line(text)),
            None => self.line(text),
        }
    }

    fn waits(&self, name: &str, wait: Option<&WaitCause>) {
        let name = line::package_label(name);
        let mut waits = held(&self.waits);
        match wait {
            Some(wait) => drop(waits.insert(name, wait.clone())),
            None => drop(waits.remove(&name)),
        }
        drop(waits);
        // A stage's live line says it as long as it is so; elsewhere each process is named once, not
        // for everything that it makes.
        let is_live = held(&self.stage)
            .as_ref()
            .is_some_and(|stage| stage.bar.is_some());
        if let Some(wait) = wait.filter(|_| !is_live) {
            let who = match wait {
                WaitCause::Maker(maker) => (maker.host.clone(), maker.pid),
                WaitCause::Unknown | WaitCause::Users => (wait.to_string(), 0),
            };
            if held(&self.waited).insert(who) {
                self.line(&said(wait));
            }
        }
    }
}

#[cfg(test)]
mod tests;
