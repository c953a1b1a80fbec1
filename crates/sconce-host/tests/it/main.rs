//! Recorded machines, and the one that the tests run on.

mod facts;
mod recorded;
#[path = "../../src/testing.rs"]
mod testing;
mod this_machine;
mod watched;
