//! Reports for people: text of aligned lines, ended by newlines.

mod compare;
mod gpus;
mod layout;
mod load;
mod network;
mod report;
mod run_table;
mod runs;
mod services;
mod spark;
mod training;
mod verdicts;

pub use compare::render_comparison;
pub use report::render_report;
pub use run_table::render_run_table;
pub use runs::render_run_list;
pub(crate) use services::describe_failed_services as failed_services;
pub(crate) use verdicts::render_verdicts as verdicts;

/// How to show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalStyle {
    /// Colours, as escape sequences of a terminal.
    pub color: bool,
    /// Columns of the terminal. Longer lines are broken; a width under 40 is taken as 40.
    pub width: u16,
}

impl TerminalStyle {
    fn columns(self) -> usize {
        usize::from(self.width.max(40))
    }
}
