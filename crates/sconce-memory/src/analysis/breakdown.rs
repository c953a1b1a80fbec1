//! What fills the memory at one moment: by the user's lines, by modules, by what it is for.

use std::collections::HashMap;
use std::hash::Hash;

use sconce_schema::finding::Certainty;
use serde::{Deserialize, Serialize};

use super::replay::{LiveBlock, LiveBlocks};
use super::source_locations::{MemoryCategory, SourceLocation, StackIndex};
use super::stack_lines;
use crate::snapshot::{Snapshot, StackId};

/// Groups that are listed of a kind.
const MAX_GROUPS: usize = 200;

/// Blocks that were allocated from one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LocationGroup {
    /// The line; absent where nothing was recorded, as of autograd's threads, which run no Python.
    pub place: Option<SourceLocation>,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// What most of it is for.
    pub category: MemoryCategory,
    /// How sure that is.
    pub certainty: Certainty,
    /// The stack of most of it, the innermost frame first.
    pub stack: Vec<String>,
}

/// Blocks that were allocated in one module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ModuleGroup {
    /// The `forward` functions that are inside each other; absent outside of modules.
    pub module: Option<String>,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// Blocks that are for one purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CategoryGroup {
    /// The purpose.
    pub category: MemoryCategory,
    /// How sure that is.
    pub certainty: Certainty,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// What fills the memory at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct MemoryBreakdown {
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Of the bytes those whose allocation was not recorded: the ring began later.
    pub unrecorded_bytes: u64,
    /// By the user's own lines, the largest first.
    pub places: Vec<LocationGroup>,
    /// By modules, the largest first.
    pub modules: Vec<ModuleGroup>,
    /// By purpose, the largest first.
    pub categories: Vec<CategoryGroup>,
}

/// Bytes and blocks.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    bytes: u64,
    blocks: u64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.blocks += other.blocks;
    }
}

/// The largest first, and those of one size in the order of their keys.
fn ordered<K: Ord + Hash>(sums: HashMap<K, Sum>) -> impl Iterator<Item = (K, Sum)> {
    let mut sums: Vec<(K, Sum)> = sums.into_iter().collect();
    sums.sort_by(|(a, one), (b, other)| other.bytes.cmp(&one.bytes).then_with(|| a.cmp(b)));
    sums.into_iter().take(MAX_GROUPS)
}

pub(super) fn compute_breakdown(
    snapshot: &Snapshot,
    places: &StackIndex,
    live: &LiveBlocks,
) -> MemoryBreakdown {
    filled_by(snapshot, places, live.values().copied())
}

pub(super) fn filled_by(
    snapshot: &Snapshot,
    places: &StackIndex,
    live: impl Iterator<Item = LiveBlock>,
) -> MemoryBreakdown {
    let mut stacks: HashMap<Option<StackId>, Sum> = HashMap::new();
    for block in live {
        let sum = Sum {
            bytes: block.size,
            blocks: 1,
        };
        stacks.entry(block.stack).or_default().add(sum);
    }
    let mut filled = MemoryBreakdown::default();
    let mut by_place: HashMap<Option<usize>, Sum> = HashMap::new();
    let mut largest: HashMap<Option<usize>, (Sum, Option<StackId>)> = HashMap::new();
    let mut by_module: HashMap<Option<usize>, Sum> = HashMap::new();
    let mut by_category: HashMap<(MemoryCategory, Certainty), Sum> = HashMap::new();
    for (stack, sum) in stacks {
        let said = places.stack_summary(stack);
        by_place.entry(said.place).or_default().add(sum);
        by_module.entry(said.module).or_default().add(sum);
        by_category.entry(said.category).or_default().add(sum);
        filled.bytes = filled.bytes.saturating_add(sum.bytes);
        filled.blocks += sum.blocks;
        if stack.is_none() {
            filled.unrecorded_bytes = filled.unrecorded_bytes.saturating_add(sum.bytes);
        }
        let most = largest.entry(said.place).or_insert((sum, stack));
        // Of two with as much the first recorded, so that the answer is always the same.
        if (sum.bytes, most.1) > (most.0.bytes, stack) {
            *most = (sum, stack);
        }
    }
    let place_groups = ordered(by_place).map(|(place, sum)| {
        let stack = largest.get(&place).and_then(|(_, stack)| *stack);
        let (category, certainty) = places.stack_summary(stack).category;
        LocationGroup {
            place: place.and_then(|place| places.places.get(place).cloned()),
            bytes: sum.bytes,
            blocks: sum.blocks,
            category,
            certainty,
            stack: stack_lines(snapshot, stack),
        }
    });
    filled.places = place_groups.collect();
    let module_groups = ordered(by_module).map(|(module, sum)| ModuleGroup {
        module: module.and_then(|module| places.modules.get(module).cloned()),
        bytes: sum.bytes,
        blocks: sum.blocks,
    });
    filled.modules = module_groups.collect();
    let category_groups = ordered(by_category).map(|((category, certainty), sum)| CategoryGroup {
        category,
        certainty,
        bytes: sum.bytes,
        blocks: sum.blocks,
    });
    filled.categories = category_groups.collect();
    filled
}
