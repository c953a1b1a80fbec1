//! URL and SHA-256 to verified bytes and trees: downloads, unpacking, content addressing, locks.
