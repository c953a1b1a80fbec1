//! Where packages come from.

/// Where packages come from, instead of the spec's, this user's and this machine's own settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct PackageSources {
    /// The Python package index.
    pub(crate) index: Option<String>,
    /// Python package indexes beside it.
    pub(crate) extra_index: Vec<String>,
    /// The Debian mirror.
    pub(crate) mirror: Option<String>,
}
