//! `sconce doctor --bundle`: one file for a bug report.
//!
//! Facts hold no secret: variables are chosen by name and masked where they are read. What would
//! tell who somebody is, the machine's name and the home folder, is masked here.

use std::path::Path;

use sconce_schema::HostFacts;

use super::Report;
use crate::text_layout::TextLayout;

/// Stands for the machine's name.
const HOST: &str = "HOST";

/// The file: what people read first, then everything as JSON.
pub(super) fn render_text(report: &Report<'_>, home: Option<&Path>) -> String {
    let name = report.host.name.as_deref();
    let host = HostFacts {
        name: name.map(|_| HOST.to_owned()),
        ..report.host.clone()
    };
    let report = Report {
        host: &host,
        ..*report
    };
    let text = format!(
        "sconce {}\n\n{}\n{}\n",
        env!("CARGO_PKG_VERSION"),
        report.text(&TextLayout::for_file()),
        report.json()
    );
    let home = home.unwrap_or(Path::new(""));
    // Paths of libraries have no links in them.
    let real = std::fs::canonicalize(home).unwrap_or_default();
    let text = masked(&text, name, &home.to_string_lossy());
    masked(&text, None, &real.to_string_lossy())
}

fn masked(text: &str, host: Option<&str>, home: &str) -> String {
    let mut text = text.to_owned();
    if home.len() > 1 {
        text = text.replace(home, "~");
    }
    // A short name may be a part of anything: of it only the fact itself is masked.
    if let Some(host) = host.filter(|host| host.len() > 3) {
        text = text.replace(host, HOST);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_masked() {
        let text = masked(
            "/home/ada/x on lovelace; /root",
            Some("lovelace"),
            "/home/ada",
        );
        assert_eq!(text, "~/x on HOST; /root");
        assert_eq!(masked("a b", Some("a"), "/"), "a b");
    }
}
