use std::path::Path;

use super::*;

#[test]
fn a_filter_gives_targets_their_own_levels() {
    let filter = parse_filter("sconce_store=trace, info,sconce_run::engine=off").unwrap();
    for (target, level, is_shown) in [
        ("sconce_store", tracing::Level::TRACE, true),
        ("sconce_store::turn", tracing::Level::TRACE, true),
        ("sconce_image", tracing::Level::INFO, true),
        ("sconce_image", tracing::Level::DEBUG, false),
        ("sconce_run::engine", tracing::Level::ERROR, false),
        ("sconce_run::supervise", tracing::Level::INFO, true),
    ] {
        assert_eq!(
            filter.would_enable(target, &level),
            is_shown,
            "{target} {level}"
        );
    }
}

#[test]
fn a_filter_that_would_show_nothing_is_refused() {
    for (text, wanted) in [
        ("debgu", "SCONCE_LOG: `debgu` is no level"),
        ("info,", "SCONCE_LOG: `` is no level"),
        ("sconce_store=", "SCONCE_LOG: `` is no level"),
        (
            "store=debug",
            "SCONCE_LOG: no part of Sconce is named `store`",
        ),
        (
            "sconce_stores=debug",
            "SCONCE_LOG: no part of Sconce is named `sconce_stores`",
        ),
    ] {
        let error = parse_filter(text).unwrap_err();
        assert_eq!(error.to_string(), wanted);
        assert_eq!(error.exit_code(), exit::BAD_INPUT);
        assert!(error.hint().is_some());
    }
}

/// What no crate writes cannot be asked for, and what one writes can.
#[test]
fn every_crate_that_writes_events_can_be_named() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut writers = Vec::new();
    for entry in crates.read_dir().unwrap() {
        let manifest = entry.unwrap().path().join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).unwrap();
        let manifest: toml::Table = toml::from_str(&text).unwrap();
        let dependencies = manifest.get("dependencies");
        if dependencies.is_some_and(|all| all.get("tracing").is_some()) {
            let name = manifest["package"]["name"].as_str().unwrap();
            writers.push(name.replace('-', "_"));
        }
    }
    writers.sort();
    assert_eq!(writers, TARGETS);
}

#[test]
fn a_line_holds_no_secret_and_nothing_that_a_terminal_obeys() {
    for (text, wanted) in [
        (
            "https://me:hunter2@example.org/simple",
            "https://(masked)@example.org/simple",
        ),
        ("password=hunter2", "password=(masked)"),
        ("a\x1b]0;title\x07\nb", "a ]0;title  b"),
        ("a\u{202e}b", "a b"),
        ("torch-2.9.0 → fine", "torch-2.9.0 → fine"),
    ] {
        assert_eq!(printable(text), wanted);
    }
}
