//! The written types as other crates use them.

mod golden;
