//! What a program keeps more and more of, for the figures of what grows.

use std::fmt::Write as _;

use sconce_schema::Bytes;
use sconce_schema::training::LeakCandidate;

use super::FigureSet;

/// What is kept grows by this share of the rate at least, for it to be named as a reason.
const MIN_GROWTH_SHARE: f64 = 0.1;
/// So many lines are told.
const MAX_LISTED_LINES: usize = 3;

/// `rate`: bytes a step; `None` where it is not known.
pub(super) fn add_figures(it: &mut FigureSet, kept: &[LeakCandidate], rate: Option<f64>) {
    let reason = |kept: &&LeakCandidate| {
        let a_step = kept.bytes.0 as f64 / kept.steps.max(1) as f64;
        kept.graph || rate.is_none_or(|rate| a_step >= rate * MIN_GROWTH_SHARE)
    };
    let Some(kept) = kept.iter().find(reason) else {
        return;
    };
    it.text("kept", Some(&what(kept)));
    it.text("kept-by", Some(&lines(&kept.adds).join(" · ")));
}

fn what(kept: &LeakCandidate) -> String {
    let steps = kept.steps.max(1);
    let mut text = match (&kept.name, kept.of.as_deref()) {
        (Some(name), None | Some("<module>" | "__main__")) => format!("`{name}`: "),
        (Some(name), Some(of)) => format!("`{name}` of `{of}`: "),
        (None, _) => String::new(),
    };
    text.push_str(&kept.holds);
    if kept.graph && kept.bytes.0 > 0 {
        text.push_str(", with the graph that it hangs on");
    }
    // Writing to a string cannot fail.
    let _ = match kept.grown {
        0 => write!(text, ", {} more a step", Bytes(kept.bytes.0 / steps)),
        grown => write!(text, ", {:.1} more a step", grown as f64 / steps as f64),
    };
    text
}

/// The program's own, where there are some: of frames the innermost are mostly PyTorch's.
fn lines(adds: &[String]) -> Vec<&str> {
    let theirs = |line: &&str| !line.contains("/torch/");
    let all = || adds.iter().map(String::as_str);
    let own: Vec<&str> = all().filter(theirs).take(MAX_LISTED_LINES).collect();
    match own.is_empty() {
        true => all().take(MAX_LISTED_LINES).collect(),
        false => own,
    }
}
