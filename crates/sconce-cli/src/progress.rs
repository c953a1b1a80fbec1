//! Progress for people: one live line on a terminal, plain lines elsewhere, nothing with --quiet.

use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sconce_schema::{Bytes, Progress};

use crate::style::Style;

/// Draws on standard error.
pub(crate) struct Drawn {
    mode: Mode,
    style: Style,
    stage: Mutex<Stage>,
}

enum Mode {
    Quiet,
    Plain,
    Live,
}

/// The stage that is under way.
struct Stage {
    name: String,
    bar: Option<ProgressBar>,
    bytes: u64,
    items: u64,
    began: std::time::Instant,
}

impl Drawn {
    pub(crate) fn new(quiet: bool) -> Self {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        let mode = match (quiet, terminal) {
            (true, _) => Mode::Quiet,
            (false, true) => Mode::Live,
            (false, false) => Mode::Plain,
        };
        let stage = Mutex::new(Stage {
            name: String::new(),
            bar: None,
            bytes: 0,
            items: 0,
            began: std::time::Instant::now(),
        });
        Self {
            mode,
            style: Style::for_stderr(),
            stage,
        }
    }

    /// Ends the stage that is under way with a line that stays.
    pub(crate) fn finish(&self) {
        self.end(&mut self.lock());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Stage> {
        // A panic while drawing must not turn into a second one.
        self.stage
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn end(&self, stage: &mut Stage) {
        if let Some(bar) = stage.bar.take() {
            bar.finish_and_clear();
        }
        if stage.name.is_empty() {
            return;
        }
        let seconds = stage.began.elapsed().as_secs_f64();
        let mut line = format!("{:<9}", stage.name);
        if stage.bytes > 0 {
            let rate = Bytes((stage.bytes as f64 / seconds.max(0.001)) as u64);
            let plural = if stage.items == 1 { "" } else { "s" };
            line += &format!(
                "{} package{plural}, {}, {rate}/s, ",
                stage.items,
                Bytes(stage.bytes)
            );
        }
        line += &format!("{seconds:.1} s");
        self.line(&line);
        stage.name.clear();
    }

    fn line(&self, text: &str) {
        if !matches!(self.mode, Mode::Quiet) {
            let _ = writeln!(std::io::stderr(), "{}", self.style.dim(text));
        }
    }
}

impl Progress for Drawn {
    fn stage(&self, name: &str, total_bytes: Option<u64>) {
        let mut stage = self.lock();
        self.end(&mut stage);
        *stage = Stage {
            name: name.to_owned(),
            bar: None,
            bytes: 0,
            items: 0,
            began: std::time::Instant::now(),
        };
        if matches!(self.mode, Mode::Plain) {
            let of = total_bytes
                .map(|total| format!(" {}", Bytes(total)))
                .unwrap_or_default();
            self.line(&format!("{name}{of} ..."));
        }
        if matches!(self.mode, Mode::Live) {
            let bar = ProgressBar::with_draw_target(total_bytes, ProgressDrawTarget::stderr());
            let template = match total_bytes {
                Some(_) => {
                    "{prefix:9} {bar:28} {binary_bytes} of {binary_total_bytes}  \
                     {binary_bytes_per_sec}  {eta} left  {msg:.dim}"
                }
                None => "{prefix:9} {spinner} {elapsed}  {msg:.dim}",
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("━╸ "));
            }
            bar.set_prefix(name.to_owned());
            bar.enable_steady_tick(Duration::from_millis(100));
            stage.bar = Some(bar);
        }
    }

    fn advance(&self, name: &str, bytes: u64) {
        let mut stage = self.lock();
        stage.bytes += bytes;
        if let Some(bar) = &stage.bar {
            bar.inc(bytes);
            bar.set_message(name.to_owned());
        }
    }

    fn done(&self, _: &str) {
        self.lock().items += 1;
    }

    fn note(&self, text: &str) {
        let stage = self.lock();
        if let Some(bar) = &stage.bar {
            bar.suspend(|| self.line(text));
        } else {
            self.line(text);
        }
    }
}
