//! How the program says that something went wrong.

use sconce_app::failure::Failure;

use crate::style::OutputStyle;

/// Returns what is printed of a failure: `error: …` with its causes, and the hint.
pub(crate) fn render_failure(failure: &Failure, style: &OutputStyle) -> String {
    let message = format!("{} {}", style.error("error:"), failure.message());
    match failure.hint() {
        Some(hint) => format!("{message}\n{} {hint}", style.hint("hint:")),
        None => message,
    }
}
