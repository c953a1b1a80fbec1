//! Debian packages to trees.
