//! The verbs' work: from a spec or an image to an environment, a run, its record. No flags, no printing: a verb
//! takes an [`AppContext`](context::AppContext) and tells its [`Reporter`](reporter::Reporter) what happens.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod background;
pub mod background_work;
pub mod build;
pub mod bytecode_compiler;
pub mod command_context;
pub mod commit_day;
pub mod context;
mod debian_sources;
pub mod detach;
pub mod dirs;
pub mod editable_projects;
pub mod environment_builder;
pub mod executor;
pub mod failure;
pub mod file_action;
pub mod folder_conflict;
pub mod foreign_lock;
mod git;
#[cfg(test)]
mod golden;
pub mod input;
pub mod inspect;
mod internal_run;
pub mod item_guards;
pub mod kernel_cache;
pub mod lease_client;
pub mod limits;
pub mod logout;
pub mod missing_libraries;
pub mod network;
mod offline;
pub mod outputs;
pub mod pip;
pub mod probe;
pub mod project;
mod project_files;
pub mod project_version;
pub mod protected_dirs;
pub mod ranks;
pub mod registries;
pub mod reporter;
pub mod requirement_lines;
pub mod run;
mod run_id;
pub mod run_lookup;
pub mod run_options;
pub mod run_recorder;
pub mod run_temp_dir;
pub mod script;
pub mod services;
mod source_builds;
pub mod sources;
pub mod virtual_gpu;
pub mod worker;
