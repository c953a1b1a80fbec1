//! The environment of a job, in the form that its nodes take: made on the machine that submits, or by a job of its own.

use std::path::PathBuf;

use sconce_schema::job::LocalStoreRequest;
use sconce_schema::lock::Lock;
use sconce_schema::spec::JobContainment;

use super::local_store::{find_packed_environment, pack_environment, wants_pack};
use super::site_image::{ensure_site_image, find_site_image};
use crate::background::Background;
use crate::build::compile_missing_bytecode;
use crate::context::AppContext;
use crate::environment_builder::EnvironmentBuilder;
use crate::failure::Result;
use crate::probe;
use crate::source_builds::lacks_built_wheels;

/// In which form nodes take an environment.
#[derive(Debug, Clone, Copy)]
pub(super) struct EnvironmentForm<'a> {
    /// What holds their processes.
    pub(super) containment: JobContainment,
    /// `local-store` of the target.
    pub(super) local_store: Option<&'a str>,
}

/// What nodes run on, where that is not the store itself.
#[derive(Debug, Default)]
pub(super) struct JobEnvironment {
    /// What each unpacks to a disk of its own.
    pub(super) local_store: Option<LocalStoreRequest>,
    /// What the site's container takes.
    pub(super) site_image: Option<PathBuf>,
}

impl EnvironmentForm<'_> {
    /// Makes the environment of `lock`, with what is missing fetched: nodes may have no network, and may not write to the
    /// store.
    ///
    /// # Errors
    /// Something cannot be fetched, made or written.
    pub(super) fn make(
        self,
        builder: &EnvironmentBuilder<'_>,
        lock: &Lock,
        context: &AppContext,
    ) -> Result<JobEnvironment> {
        let mut background = Background::default();
        let (environment, _guards) = builder.assemble_with_guards(lock, &mut background)?;
        if builder.store.is_writable() {
            probe::ensure_modules(builder.store)?;
        }
        // What a site's container takes is one tree or one file already.
        let local_store = match self.containment.is_own() {
            true => pack_environment(self.local_store, builder, lock, &environment, context)?,
            false => None,
        };
        Ok(JobEnvironment {
            local_store,
            site_image: ensure_site_image(self.containment, builder, lock, &environment)?,
        })
    }

    /// As [`Self::make`], from files that are there, with the bytecode that a first run would else compile.
    ///
    /// # Errors
    /// As of [`Self::make`].
    pub(super) fn make_with_bytecode(
        self,
        builder: &EnvironmentBuilder<'_>,
        lock: &Lock,
        context: &AppContext,
    ) -> Result<JobEnvironment> {
        let (environment, _guards) =
            builder.assemble_with_guards(lock, &mut Background::default())?;
        compile_missing_bytecode(builder, lock, &environment)?;
        self.make(builder, lock, context)
    }

    /// What [`Self::make`] would give, where nothing is to be made for it.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) fn find(
        self,
        builder: &EnvironmentBuilder<'_>,
        lock: &Lock,
    ) -> Result<Option<JobEnvironment>> {
        let store = builder.store;
        if lacks_built_wheels(lock, store) || !builder.has_environment(lock) {
            return Ok(None);
        }
        if !self.containment.is_own() {
            let image = find_site_image(self.containment, lock, store);
            return Ok(image.map(|image| JobEnvironment {
                site_image: Some(image),
                ..JobEnvironment::default()
            }));
        }
        if !wants_pack(self.local_store, store) {
            return Ok(Some(JobEnvironment::default()));
        }
        let packed = find_packed_environment(self.local_store, store, lock)?;
        Ok(packed.map(|packed| JobEnvironment {
            local_store: Some(packed),
            ..JobEnvironment::default()
        }))
    }
}
