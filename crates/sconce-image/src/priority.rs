//! Who waits for what is made.

/// Whether somebody waits for a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Somebody does: others who need it wait for this process.
    Foreground,
    /// Nobody does, and this process may be stopped for long: it holds nobody up while it unpacks.
    Background,
}
