//! The text of the live line: one line at any width.

use std::time::Duration;

use sconce_schema::Bytes;

/// Columns of a stage's name, on live lines and on those that stay.
pub(super) const NAME: usize = 9;
/// Fewer columns say nothing of a package's name, nor of how far a bar has come.
const MIN_ITEM_COLUMNS: usize = 8;
const MIN_BAR_COLUMNS: usize = 5;
const MAX_BAR_COLUMNS: usize = 24;

/// A download under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Download {
    pub(super) done: u64,
    /// Absent where not every size is known.
    pub(super) total: Option<u64>,
    /// Bytes a second; absent until something has come.
    pub(super) rate: Option<u64>,
    /// Absent until there is a rate.
    pub(super) left: Option<Duration>,
}

/// What `width` columns can show of a download, and, to be dimmed after it, of the name of what is
/// under way. Figures keep their columns while they change.
pub(super) fn format_download(
    stage: &str,
    at: Download,
    item: &str,
    width: usize,
) -> (String, String) {
    let done = Bytes(at.done).to_string();
    let mut figures = match at.total {
        Some(total) => format!("{done:>8} of {}", Bytes(total)),
        None => done,
    };
    let rate = at.rate.map(|rate| format!("{}/s", Bytes(rate)));
    let left = at.left.map(|left| format!("{} left", duration(left)));
    let further = [(10, rate), (11, left.filter(|_| at.total.is_some()))];
    for (columns, text) in further {
        let text = format!("  {:>columns$}", text.unwrap_or_default());
        if NAME + figures.len() + text.len() <= width {
            figures += &text;
        }
    }
    let mut room = width.saturating_sub(NAME + figures.len());
    let mut line = format!("{stage:<NAME$}");
    if let Some(total) = at.total {
        let bar = (room / 3).min(MAX_BAR_COLUMNS);
        if bar >= MIN_BAR_COLUMNS {
            line += &filled(at.done, total, bar);
            line += "  ";
            room -= bar + 2;
        }
    }
    line += &figures;
    (cut(&line, width), shortened(item, room.saturating_sub(2)))
}

/// A stage whose end is not known: its time.
pub(super) fn format_elapsed(
    stage: &str,
    elapsed: Duration,
    item: &str,
    width: usize,
) -> (String, String) {
    let line = format!("{stage:<NAME$}{}", format_seconds(elapsed));
    let room = width.saturating_sub(line.len() + 2);
    (cut(&line, width), shortened(item, room))
}

/// A stage that waits for another process: whom for, and since when.
pub(super) fn format_wait(stage: &str, wait: &str, width: usize) -> String {
    cut(&format!("{stage:<NAME$}{wait}"), width)
}

/// `4.8 s`
pub(super) fn format_seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Time that is left: rough, as it is a guess.
fn duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds @ 100..6000 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

fn filled(done: u64, total: u64, columns: usize) -> String {
    let share = if total == 0 {
        1.0
    } else {
        (done as f64 / total as f64).min(1.0)
    };
    let full = (share * columns as f64) as usize;
    let end = if full < columns { "╸" } else { "" };
    let rest = columns - full - usize::from(full < columns);
    format!("{}{end}{}", "━".repeat(full), " ".repeat(rest))
}

/// A name in `columns`: without its version if it has to be, cut if that does not help.
fn shortened(item: &str, columns: usize) -> String {
    let name = item.split(' ').next().unwrap_or_default();
    let fits = [item, name]
        .into_iter()
        .find(|text| text.chars().count() <= columns);
    match fits {
        _ if columns < MIN_ITEM_COLUMNS => String::new(),
        Some(text) => text.to_owned(),
        None => cut(name, columns - 1) + "…",
    }
}

fn cut(text: &str, columns: usize) -> String {
    text.chars().take(columns).collect()
}

/// A package's name and version out of its file's name; other names as they are.
pub(super) fn package_label(file: &str) -> String {
    if let Some(stem) = file.strip_suffix(".whl") {
        // PEP 427: name-version-…, and `_` where the project has `-`.
        let mut parts = stem.split('-');
        if let (Some(name), Some(version)) = (parts.next(), parts.next()) {
            return format!("{} {version}", name.replace('_', "-"));
        }
    }
    if let Some(stem) = file.strip_suffix(".deb") {
        // name_version_architecture, percent-encoded where it comes from a URL.
        let mut parts = stem.split('_');
        if let (Some(name), Some(version)) = (parts.next(), parts.next()) {
            let plain = |text: &str| {
                let text = text.replace("%2b", "+").replace("%2B", "+");
                text.replace("%7e", "~").replace("%7E", "~")
            };
            return format!("{} {}", plain(name), plain(version));
        }
    }
    file.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(done: u64) -> Download {
        Download {
            done,
            total: Some(2918 * MIB),
            rate: Some(154 * MIB),
            left: Some(Duration::from_secs(17)),
        }
    }

    #[test]
    fn a_line_never_wraps() {
        for width in 0..200 {
            for done in [0, 1023, 226 * MIB, 2918 * MIB, u64::MAX] {
                for total in [Some(0), Some(2918 * MIB), Some(u64::MAX), None] {
                    let at = Download { total, ..at(done) };
                    let item = "nvidia-cusparselt-cu13 0.8.0";
                    for (line, item) in [
                        format_download("fetch", at, item, width),
                        format_elapsed("get uv", Duration::from_secs(done / 1000), item, width),
                    ] {
                        let gap = if item.is_empty() { 0 } else { 2 };
                        let columns = line.chars().count() + gap + item.chars().count();
                        assert!(columns <= width, "{width}: {line}|{item}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_wait_fits_its_line() {
        let wait = "waiting for process 4711 on node7, which installs torch-2.15.0.whl (for 20 s)";
        assert_eq!(format_wait("fetch", wait, 200), format!("fetch    {wait}"));
        assert_eq!(
            format_wait("fetch", wait, 40),
            "fetch    waiting for process 4711 on nod"
        );
        assert_eq!(format_wait("fetch", "", 3), "fet");
    }

    #[test]
    fn figures_and_name_at_usual_widths() {
        let line = |width| {
            let (line, item) =
                format_download("fetch", at(226 * MIB), "nvidia-cublas 13.4.1.3", width);
            format!("{line}|{item}")
        };
        assert_eq!(
            line(79),
            "fetch    ╸          226 MiB of 2.8 GiB   154 MiB/s    17 s left|nvidia-cublas"
        );
        assert_eq!(
            line(99),
            "fetch    ━╸                226 MiB of 2.8 GiB   154 MiB/s    17 s left|nvidia-cublas 13.4.1.3"
        );
        assert_eq!(line(40), "fetch     226 MiB of 2.8 GiB   154 MiB/s|");
        assert_eq!(line(30), "fetch     226 MiB of 2.8 GiB|");
    }

    #[test]
    fn figures_keep_their_columns() {
        let ends = [0, 900, 99 * MIB, 226 * MIB, 2918 * MIB].map(|done| {
            let (line, _) = format_download("fetch", at(done), "", 99);
            line.find(" of ").map(|_| line.chars().count())
        });
        assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    }

    #[test]
    fn a_bar_is_empty_half_and_full() {
        assert_eq!(filled(0, 10, 4), "╸   ");
        assert_eq!(filled(5, 10, 4), "━━╸ ");
        assert_eq!(filled(9, 10, 4), "━━━╸");
        assert_eq!(filled(10, 10, 4), "━━━━");
        assert_eq!(filled(11, 10, 4), "━━━━");
    }

    #[test]
    fn files_are_named_as_packages() {
        for (file, name) in [
            (
                "torch-2.15.0-cp313-cp313-manylinux_2_28_x86_64.whl",
                "torch 2.15.0",
            ),
            (
                "nvidia_nccl_cu13-2.30.7-py3-none-manylinux_2_18_x86_64.whl",
                "nvidia-nccl-cu13 2.30.7",
            ),
            ("tzdata_2026f-0+deb13u1_all.deb", "tzdata 2026f-0+deb13u1"),
            ("libstdc%2b%2b6_14.2.0-19_amd64.deb", "libstdc++6 14.2.0-19"),
            ("uv 0.13.8", "uv 0.13.8"),
            ("x.whl", "x.whl"),
            ("x.deb", "x.deb"),
        ] {
            assert_eq!(package_label(file), name);
        }
    }

    #[test]
    fn what_is_left_is_rough() {
        let left = |seconds| duration(Duration::from_secs(seconds));
        assert_eq!(
            [left(0), left(99), left(125), left(7300)],
            ["0 s", "99 s", "2 min", "2 h"]
        );
    }
}
