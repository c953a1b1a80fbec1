//! What a long-running stage tells while it works. The library tells, the program draws.

/// A stage's view of whoever watches. All methods may be called from several threads at once.
///
/// `name` identifies one item (a wheel's file name, a package) for as long as it is under way.
pub trait Progress: Send + Sync {
    /// A stage begins: a word for people (`"resolve"`, `"download"`, `"unpack"`) and how many
    /// bytes it will take in, where that is known.
    fn stage(&self, stage: &str, total_bytes: Option<u64>);
    /// `bytes` more of `name` have arrived and been worked on; 0: it is being worked on.
    fn advance(&self, name: &str, bytes: u64);
    /// `name` is complete.
    fn done(&self, name: &str);
    /// Something a person should know, though nothing failed (a retry, a slower way).
    fn note(&self, text: &str);
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn stage(&self, _: &str, _: Option<u64>) {}
    fn advance(&self, _: &str, _: u64) {}
    fn done(&self, _: &str) {}
    fn note(&self, _: &str) {}
}
