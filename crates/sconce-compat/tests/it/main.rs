//! What is found about environments and machines, and the loader held against the real one.

mod environments;
mod golden;
mod ld_so;
mod loader_findings;
mod loader_order;
mod machines;
mod matrix;
