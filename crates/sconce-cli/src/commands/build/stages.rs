//! The stages of a build: environments that are built before the image, as far as it copies from
//! them.

use std::collections::BTreeMap;

use sconce_image::plan::{LayerPlan, LayerPlanOptions};
use sconce_image::{devel, needs, ready};
use sconce_schema::spec::{CopySpec, Variant};
use sconce_schema::{EnvironmentLayers, Lock};
use sconce_store::ItemGuard;

use super::compile;
use super::steps::LayerStack;
use crate::background::Background;
use crate::commands::opened::CommandContext;
use crate::failure::Result;
use crate::prepare::EnvironmentBuilder;
use crate::staying::staying;

/// What stages are built with.
pub(super) struct StageBuilder<'a> {
    pub(super) opened: &'a CommandContext,
    pub(super) workshop: &'a EnvironmentBuilder<'a>,
    pub(super) lock: &'a Lock,
    /// Whether what is missing is fetched, compiled and run.
    pub(super) run: bool,
    pub(super) bytecode: bool,
}

impl<'a> StageBuilder<'a> {
    /// Builds the stages that `copies` need, and those that these copy from.
    pub(super) fn of(
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
            return Ok(LayerStack::unknown(opened, name));
        };
        self.of(&stage.copy, done)?;
        let lock = self.lock.stage(name);
        let Some(environment) = self.environment(&lock)? else {
            return Ok(LayerStack::unknown(opened, name));
        };
        let mut stack = LayerStack::new(opened, environment, Some(name), self.run);
        // No image is made of it: nobody asks for its layers.
        let mut plan = LayerPlan::of(&lock, LayerPlanOptions::default());
        if stage.variant() == Variant::Devel {
            devel::lay(&mut stack.environment, &lock, &opened.store)?;
        }
        stack.files(&stage.files, &mut plan)?;
        stack.copy(&stage.copy, done, &mut plan)?;
        stack.steps(&stage.run, stage.network.unwrap_or(false), &mut plan)?;
        Ok(stack)
    }

    /// As [`StageBuilder::complete`], and what has its trees stay; `None` where it is not there and nothing is to be
    /// fetched.
    fn environment(&self, lock: &Lock) -> Result<Option<(EnvironmentLayers, Vec<ItemGuard>)>> {
        let store = &self.opened.store;
        if !self.run && !needs(lock, store).is_empty() {
            return Ok(None);
        }
        let bring = || match self.run {
            true => self.complete(lock),
            false => Ok(ready(lock, store)?),
        };
        staying(bring, |image| &image.layers).map(Some)
    }

    /// The environment of a lock with its bytecode, fetched and compiled where it is missing.
    pub(super) fn complete(&self, lock: &Lock) -> Result<EnvironmentLayers> {
        let environment = self.workshop.assembled(lock, &mut Background::default())?;
        if !self.bytecode {
            return Ok(environment);
        }
        compile(self.workshop, lock, &environment)?;
        Ok(ready(lock, &self.opened.store)?)
    }
}
