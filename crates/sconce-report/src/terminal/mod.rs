//! Reports for people: text of aligned lines, ended by newlines.

mod cards;
mod layout;
mod report;
mod runs;
mod spark;

pub use report::report;
pub use runs::runs;

/// How to show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Colours, as escape sequences of a terminal.
    pub color: bool,
    /// Columns of the terminal. Longer lines are broken; a width under 40 is taken as 40.
    pub width: u16,
}

impl Style {
    fn columns(self) -> usize {
        usize::from(self.width.max(40))
    }
}
