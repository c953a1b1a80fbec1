//! Images, their bytecode and registries, from outside.

mod bytecode;
mod outputs;
mod registry;
