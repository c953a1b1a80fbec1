//! Where packages come from.

/// Where packages come from, instead of the spec's, this user's and this machine's own settings.
#[derive(Debug, Clone, Default)]
pub struct PackageSources {
    /// The Python package index.
    pub index: Option<String>,
    /// Python package indexes beside it.
    pub extra_index: Vec<String>,
    /// The Debian mirror.
    pub mirror: Option<String>,
}
