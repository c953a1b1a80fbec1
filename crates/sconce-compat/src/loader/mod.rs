//! What glibc's `ld.so` would load, and what is wrong with it.
//!
//! - [`LibraryTree`]: the libraries of an environment and what steers the search for them.
//! - [`LoaderProcess`]: the loader at work in one process: what is loaded, from where, and why from there.
//! - [`check_imports`]: a Python process that imports torch and the other extension modules, to findings.
//!
//! Rules are those of ld.so(8), dlopen(3) and of glibc's `elf/dl-load.c`, `dl-deps.c` and
//! `dl-version.c`; `tests/it/ld_so.rs` compares them with the real loader on random trees.

mod cudnn;
mod duplicates;
mod findings;
mod load_results;
mod merge;
mod mismatch;
mod missing_libraries;
mod names;
mod process;
mod symbols;
mod torch;
mod tree;

pub use findings::{LibraryResolution, LoaderInput, LoaderReport, check_imports};
pub use missing_libraries::SystemPackage;
pub use names::is_cuda_symbol;
pub use process::{
    DlopenResult, LoadedObject, LoaderProcess, LookupOrigin, UnresolvedLibrary, UnresolvedReason,
};
pub use symbols::{UndefinedSymbols, VersionMismatch};
pub use torch::TorchVersion;
pub use tree::{BASE_NAMES, DRIVER_NAMES, LibraryTree};
