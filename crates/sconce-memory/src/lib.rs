//! Memory of a card: what PyTorch's caching allocator does with it, what filled it, and what would.
//!
//! Programs of calls, or snapshots that PyTorch wrote, come in; addresses, counters and reports go
//! out. Nothing here touches a disk or a card, and the same input always gives the same output.
#![forbid(unsafe_code)]

pub mod allocator;
pub mod analysis;
pub mod forecast;
pub mod pickle;
pub mod program;
pub mod replay;
pub mod snapshot;
