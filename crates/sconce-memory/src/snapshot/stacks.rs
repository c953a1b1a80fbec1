//! Frames and stacks, each kept once: a million events come from some thousand places.

use std::collections::HashMap;

use super::names::{NameId, in_order};
use crate::pickle::PickleRejection;

/// A frame of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct FrameIds {
    /// File, as the interpreter or the debug information names it.
    pub(super) filename: NameId,
    /// Function.
    pub(super) name: NameId,
    /// Line; 0 where it is not known, as PyTorch writes it.
    pub(super) line: u32,
}

/// A stack by its number in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// Stacks while they are gathered.
#[derive(Debug)]
pub(super) struct Stacks {
    frames: HashMap<FrameIds, u32>,
    stacks: HashMap<Box<[u32]>, u32>,
    kept: u64,
    most: u64,
}

impl Stacks {
    pub(super) fn new(most: u64) -> Self {
        Self {
            frames: HashMap::new(),
            // The empty stack is number 0.
            stacks: HashMap::from([(Box::default(), 0)]),
            kept: 0,
            most,
        }
    }

    fn keep(&mut self, count: usize) -> Result<(), PickleRejection> {
        self.kept += count as u64;
        if self.kept > self.most {
            return Err(PickleRejection::TooMany {
                what: "frames of different stacks",
                limit: self.most,
            });
        }
        Ok(())
    }

    pub(super) fn intern_frame(&mut self, frame: FrameIds) -> Result<u32, PickleRejection> {
        if let Some(&number) = self.frames.get(&frame) {
            return Ok(number);
        }
        self.keep(4)?;
        let number = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        self.frames.insert(frame, number);
        Ok(number)
    }

    pub(super) fn intern_stack(&mut self, frames: &[u32]) -> Result<StackId, PickleRejection> {
        if let Some(&number) = self.stacks.get(frames) {
            return Ok(StackId(number));
        }
        // What a stack costs beside its frames, in frames.
        self.keep(frames.len() + 12)?;
        let number = u32::try_from(self.stacks.len()).unwrap_or(u32::MAX);
        self.stacks.insert(frames.into(), number);
        Ok(StackId(number))
    }

    pub(super) fn finish(self) -> (Vec<FrameIds>, Vec<Box<[u32]>>) {
        (in_order(self.frames), in_order(self.stacks))
    }
}
