//! Formats of others that more than one stage reads, as bytes and text alone: names of wheels, names of projects,
//! what a `pyproject.toml` says of its project, what locks pin, which project
//! a module is of, and what well-known projects need of Debian.
#![forbid(unsafe_code)]

mod glob;
mod known_projects;
mod names;
mod pinned;
pub mod pyproject;
pub mod scm_version;
mod system_needs;
pub mod tags;
pub mod torch_builds;

pub use glob::fits_glob;
pub use known_projects::{
    brought_projects, find_providers, is_known_project, is_standard_module, known_modules,
};
pub use names::normalize_project_name;
pub use pinned::{PinnedFile, PinnedPackage};
pub use system_needs::{
    debian_build_packages_of, debian_package_of_program, debian_packages_of, projects_with_needs,
};
