//! The files in which a project says what it requires and what it is: its version, its modules, what builds it. They
//! name each other: a requirements file names folders with projects of their own, a pyproject.toml and a setup.py leave
//! their requirements to such files.

pub(crate) mod local_paths;
pub(crate) mod pipfile;
pub(crate) mod pyproject;
pub(crate) mod requirements;
pub(crate) mod setup;
mod setup_version;
pub(crate) mod setuptools_layout;
pub(crate) mod static_build;
pub(crate) mod static_project;
pub(crate) mod static_version;
