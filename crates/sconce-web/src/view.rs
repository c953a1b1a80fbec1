//! The page of runs: served by `sconce serve`, or written by `sconce report --html` with one run's data
//! inside. Both have the same script, style and markup.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use sconce_report::views::{self, RecordView};
use sha2::{Digest as _, Sha256};

use crate::html::{STYLE, escape_html, fill_template};

/// The most points that a figure of a whole run has.
pub const POINTS_PER_FIGURE: usize = 4096;

const PAGE: &str = include_str!("view/page.html");
const CSS: &str = include_str!("view/page.css");
/// The page's script.
pub const SCRIPT: &str = concat!(
    include_str!("view/words.js"),
    include_str!("view/plot.js"),
    include_str!("view/page.js")
);

/// Returns the page as it is served: with nothing in it.
pub fn render_served_page() -> String {
    let head =
        "<link rel=\"stylesheet\" href=\"page.css\">\n<script src=\"page.js\" defer></script>";
    fill_template(PAGE, &[("TITLE", "Sconce"), ("HEAD", head), ("END", "")])
}

/// Returns the style of both.
pub fn page_css() -> String {
    format!("{STYLE}{CSS}")
}

/// Returns one file with a run in it: it opens without a network and without Sconce, and its policy lets it load
/// nothing. `points` is how many each figure has.
pub fn render_standalone_page(view: &RecordView, points: usize) -> String {
    let series = views::render_series(&view.series, 0, view.series.wall_us.max(1), points);
    let data = format!(
        "{{\"run\":{},\"series\":{series}}}",
        views::render_run(view)
    );
    let mut packed = GzEncoder::new(Vec::new(), Compression::new(6));
    // Writing into memory does not fail.
    let written = packed.write_all(data.as_bytes());
    let data = STANDARD.encode(written.and_then(|()| packed.finish()).unwrap_or_default());
    let style = page_css();
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(&style)
    );
    let head = format!(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n<style>{style}</style>"
    );
    // The report in words needs no script.
    let words = escape_html(&sconce_report::terminal::render_report(
        &view.report,
        sconce_report::terminal::TerminalStyle {
            color: false,
            width: 100,
        },
    ));
    let end = format!(
        "<noscript><p>The plots need JavaScript; what follows does not.</p><pre>{words}</pre></noscript>\n\
         <script id=\"data\" type=\"application/gzip\">{data}</script>\n<script>{SCRIPT}</script>\n"
    );
    let title = escape_html(&view.report.started.id);
    fill_template(PAGE, &[("TITLE", &title), ("HEAD", &head), ("END", &end)])
}
