//! The program from outside: each verb with its exit code, standard output and standard error.

mod bytecode;
mod cdi;
mod direction;
mod documents;
mod environment;
mod error_texts;
mod exit_codes;
mod fit;
mod images;
mod inputs;
mod json;
mod judging;
mod log;
mod memory;
mod outputs;
mod own_folders;
mod plan;
mod programs;
mod ranks;
mod services;
mod snapshots;
mod source;
mod top;
mod type_names;
mod verbs;
mod virtual_gpu;
