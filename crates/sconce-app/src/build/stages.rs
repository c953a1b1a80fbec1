//! The stages of a build: environments that are built before the image, as far as it copies from
//! them.

use std::collections::BTreeMap;

use sconce_image::layer_plan::{LayerPlan, LayerPlanOptions};
use sconce_image::{AssembleError, bytecode, devel, find_missing_packages, load_environment};
use sconce_schema::spec::{CopySpec, Variant};
use sconce_schema::{EnvironmentLayers, Lock};
use sconce_store::ItemGuard;

use super::compile_missing_bytecode;
use super::steps::LayerStack;
use crate::background::Background;
use crate::command_context::CommandContext;
use crate::environment_builder::EnvironmentBuilder;
use crate::failure::Result;
use crate::item_guards::with_item_guards;

/// What stages are built with.
pub struct StageBuilder<'a> {
    /// The spec, its store and its lock, opened.
    pub opened: &'a CommandContext,
    /// What makes layers of a lock.
    pub workshop: &'a EnvironmentBuilder<'a>,
    /// The lock that is built.
    pub lock: &'a Lock,
    /// Whether what is missing is fetched, compiled and run.
    pub run: bool,
    /// Whether Python's bytecode is made before anyone runs it.
    pub bytecode: bool,
}

impl<'a> StageBuilder<'a> {
    /// Builds the stages that `copies` need, and those that these copy from.
    pub fn build_needed_stages(
        &self,
        copies: &[CopySpec],
        done: &mut BTreeMap<String, LayerStack<'a>>,
    ) -> Result<()> {
        for copy in copies {
            if !done.contains_key(&copy.stage) {
                let stack = self.build(&copy.stage, done)?;
                done.insert(copy.stage.clone(), stack);
            }
        }
        Ok(())
    }

    /// Builds one. The spec was checked: there are no circles.
    fn build(
        &self,
        name: &str,
        done: &mut BTreeMap<String, LayerStack<'a>>,
    ) -> Result<LayerStack<'a>> {
        let (opened, project) = (self.opened, &self.opened.project);
        let Some(stage) = project.spec.stages.get(name) else {
            return Ok(LayerStack::for_unfetched_packages(opened, Some(name)));
        };
        self.build_needed_stages(&stage.copy, done)?;
        let lock = self.lock.for_stage(name);
        let Some(environment) = self.environment(&lock)? else {
            return Ok(LayerStack::for_unfetched_packages(opened, Some(name)));
        };
        let mut stack = LayerStack::new(opened, environment, Some(name), self.run);
        // No image is made of it: nobody asks for its layers.
        let mut plan = LayerPlan::for_lock(&lock, LayerPlanOptions::default());
        if stage.variant_or_default() == Variant::Devel {
            devel::add_devel_layer(&mut stack.environment, &lock, &opened.store)?;
        }
        stack.push_project_files(&stage.files, &mut plan)?;
        stack.copy_from_stages(&stage.copy, done, &mut plan)?;
        stack.run_build_steps(&stage.run, stage.network.unwrap_or(false), &mut plan)?;
        Ok(stack)
    }

    /// As [`StageBuilder::assemble_and_compile`], and what has its trees stay; `None` where it is not there and nothing is to be
    /// fetched.
    fn environment(&self, lock: &Lock) -> Result<Option<(EnvironmentLayers, Vec<ItemGuard>)>> {
        let store = &self.opened.store;
        if !self.run && !find_missing_packages(lock, store).is_empty() {
            return Ok(None);
        }
        let bring = || match self.run {
            true => self.assemble_and_compile(lock),
            false => Ok(load_environment(lock, store)?),
        };
        with_item_guards(bring, |image| &image.layers).map(Some)
    }

    /// The environment of a lock with its bytecode, fetched and compiled where it is missing.
    pub fn assemble_and_compile(&self, lock: &Lock) -> Result<EnvironmentLayers> {
        let environment = self
            .workshop
            .assemble_environment(lock, &mut Background::default())?;
        if !self.bytecode {
            return Ok(environment);
        }
        compile_missing_bytecode(self.workshop, lock, &environment)?;
        let environment = load_environment(lock, &self.opened.store)?;
        // A prune may remove what was just made, or found, before anything has it stay.
        match bytecode::find_uncompiled(&environment, lock) {
            Some(name) => Err(AssembleError::Gone {
                what: format!("the bytecode of {name}"),
            }
            .into()),
            None => Ok(environment),
        }
    }
}
