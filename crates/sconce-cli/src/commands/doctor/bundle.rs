//! `sconce doctor --bundle`: one file for a bug report.
//!
//! Facts hold no secret: variables are chosen by name and masked where they are read. What would
//! tell who somebody is, the machine's name and the home folder, is masked here.

use super::Report;
use crate::page::Page;

/// The file: what people read first, then everything as JSON.
pub(super) fn text(report: &Report<'_>) -> String {
    let text = format!(
        "sconce {}\n\n{}\n{}\n",
        env!("CARGO_PKG_VERSION"),
        report.text(&Page::file()),
        report.json()
    );
    let home = std::env::var("HOME").unwrap_or_default();
    masked(&text, report.host.name.as_deref(), &home)
}

fn masked(text: &str, host: Option<&str>, home: &str) -> String {
    let mut text = text.to_owned();
    if home.len() > 1 {
        text = text.replace(home, "~");
    }
    // A short name may be a part of anything but where it stands by itself.
    if let Some(host) = host {
        text = text.replace(&format!("\"name\": \"{host}\""), "\"name\": \"HOST\"");
    }
    if let Some(host) = host.filter(|host| host.len() > 3) {
        text = text.replace(host, "HOST");
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
        assert_eq!(
            masked("vmalloc, \"name\": \"vm\"", Some("vm"), "/"),
            "vmalloc, \"name\": \"HOST\""
        );
    }
}
