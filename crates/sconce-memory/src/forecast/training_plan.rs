//! Plans: changes to how a program trains that are made from outside of it, by name.

use std::fmt;
use std::str::FromStr;

use sconce_schema::{Hint, exit};
use serde::{Serialize, Serializer};

/// Most plans at once, and the longest text that is read as them.
const MAX_TEXT_CHARS: usize = 200;

/// One plan. `python/sconce_probe/plans` carries them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrainingPlan {
    /// Forward pass and loss under autocast, in bf16.
    Bf16,
    /// The same in fp16: it can be measured, but to train it needs a scaler in the program.
    Fp16,
    /// Blocks that repeat are computed again in the backward pass: all, or so many.
    Checkpoint(Option<u32>),
    /// The optimizer takes one tensor after the other.
    ForeachOff,
    /// The optimizer takes all tensors in one kernel.
    Fused,
    /// Adam and AdamW of bitsandbytes, with states of 8 bits.
    EightBit,
    /// The allocator's segments grow.
    Expandable,
    /// What is kept for the backward pass waits in the host's memory.
    Offload,
    /// Each rank has the whole model.
    Ddp,
    /// Ranks divide the optimizer's state.
    Zero1,
    /// Gradients and parameters too, which are gathered once in a step.
    Zero2,
    /// The same, and each block's parameters are given back after its forward pass.
    Zero3,
}

const NAMES: [(&str, TrainingPlan); 12] = [
    ("bf16", TrainingPlan::Bf16),
    ("fp16", TrainingPlan::Fp16),
    ("checkpoint", TrainingPlan::Checkpoint(None)),
    ("foreach-off", TrainingPlan::ForeachOff),
    ("fused", TrainingPlan::Fused),
    ("8-bit", TrainingPlan::EightBit),
    ("expandable", TrainingPlan::Expandable),
    ("offload", TrainingPlan::Offload),
    ("ddp", TrainingPlan::Ddp),
    ("zero1", TrainingPlan::Zero1),
    ("zero2", TrainingPlan::Zero2),
    ("zero3", TrainingPlan::Zero3),
];

impl TrainingPlan {
    /// What ranks hold of the model, the most first.
    pub const OF_RANKS: [Self; 4] = [Self::Ddp, Self::Zero1, Self::Zero2, Self::Zero3];

    /// Whether it says what each of several ranks holds.
    #[must_use]
    pub fn is_of_ranks(self) -> bool {
        Self::OF_RANKS.contains(&self)
    }

    /// Whether both say something of the same thing.
    fn excludes(self, other: Self) -> bool {
        let about = |plan| match plan {
            Self::Bf16 | Self::Fp16 => 0,
            Self::Checkpoint(_) => 1,
            Self::ForeachOff | Self::Fused | Self::EightBit => 2,
            Self::Expandable => 3,
            Self::Offload => 4,
            Self::Ddp | Self::Zero1 | Self::Zero2 | Self::Zero3 => 5,
        };
        about(self) == about(other)
    }

    /// The lines that do the same from inside the program, as short as they can be said.
    #[must_use]
    pub fn code_lines(self) -> &'static str {
        match self {
            Self::Bf16 => {
                "with torch.autocast(\"cuda\", dtype=torch.bfloat16): around forward pass and loss"
            }
            Self::Fp16 => {
                "with torch.autocast(\"cuda\", dtype=torch.float16): around forward pass and loss, and a \
                 torch.amp.GradScaler: scaler.scale(loss).backward(), scaler.step(optimizer), \
                 scaler.update()"
            }
            Self::Checkpoint(_) => {
                "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) for x = block(x)"
            }
            Self::ForeachOff => "foreach=False for the optimizer",
            Self::Fused => "fused=True for the optimizer",
            Self::EightBit => "bitsandbytes.optim.AdamW8bit for torch.optim.AdamW",
            Self::Expandable => {
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment"
            }
            Self::Offload => {
                "with torch.autograd.graph.save_on_cpu(pin_memory=True): around the forward pass"
            }
            Self::Ddp => {
                "under torchrun: dist.init_process_group(\"nccl\"), torch.cuda.set_device(LOCAL_RANK), \
                 model = DistributedDataParallel(model) before the optimizer, a DistributedSampler for \
                 the data, and files written by rank 0 alone"
            }
            Self::Zero1 => {
                "with DistributedDataParallel: optimizer = ZeroRedundancyOptimizer(model.parameters(), \
                 torch.optim.AdamW, lr=...) of torch.distributed.optim; before its state is saved every \
                 rank calls optimizer.consolidate_state_dict()"
            }
            Self::Zero2 => {
                "in place of DistributedDataParallel, before the optimizer: fully_shard(block, \
                 reshard_after_forward=False) of torch.distributed.fsdp for each block, then \
                 fully_shard(model, reshard_after_forward=False); every rank calls get_model_state_dict() \
                 of torch.distributed.checkpoint.state_dict to save"
            }
            Self::Zero3 => {
                "in place of DistributedDataParallel, before the optimizer: fully_shard(block) of \
                 torch.distributed.fsdp for each block, then fully_shard(model); every rank calls \
                 get_model_state_dict() of torch.distributed.checkpoint.state_dict to save"
            }
        }
    }

    /// Whether it takes nothing but its name to train with it; otherwise lines must be written. What ranks
    /// divide is saved in other ways than what each has: that is the program's own to say.
    #[must_use]
    pub fn from_outside(self) -> bool {
        self != Self::Fp16 && !self.is_of_ranks()
    }
}

impl fmt::Display for TrainingPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same = |one: &&(&str, TrainingPlan)| match (one.1, self) {
            (Self::Checkpoint(_), Self::Checkpoint(_)) => true,
            (one, own) => one == *own,
        };
        let name = NAMES.iter().find(same).map_or("", |(name, _)| name);
        match self {
            Self::Checkpoint(Some(blocks)) => write!(f, "{name}={blocks}"),
            _ => f.write_str(name),
        }
    }
}

/// Plans that are carried out together; none of them is the program as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct TrainingPlans(Vec<TrainingPlan>);

impl TrainingPlans {
    /// Those that are named.
    pub fn iter(&self) -> impl Iterator<Item = TrainingPlan> + '_ {
        self.0.iter().copied()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// With one more, in place of what says something of the same thing.
    #[must_use]
    pub fn with_plan(&self, plan: TrainingPlan) -> Self {
        let mut plans: Vec<TrainingPlan> = self.iter().filter(|one| !one.excludes(plan)).collect();
        plans.push(plan);
        plans.sort_unstable();
        Self(plans)
    }

    /// The one that says what each of several ranks holds.
    #[must_use]
    pub fn of_ranks(&self) -> Option<TrainingPlan> {
        self.iter().find(|plan| plan.is_of_ranks())
    }

    /// The first that needs lines in the program.
    #[must_use]
    pub fn needs_lines(&self) -> Option<TrainingPlan> {
        self.iter().find(|plan| !plan.from_outside())
    }
}

impl From<TrainingPlan> for TrainingPlans {
    fn from(plan: TrainingPlan) -> Self {
        Self(vec![plan])
    }
}

impl fmt::Display for TrainingPlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(TrainingPlan::to_string).collect();
        f.write_str(&names.join("+"))
    }
}

impl Serialize for TrainingPlans {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Why a text names no plans.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// There is none of that name.
    #[error("no plan is called `{name}`")]
    Unknown {
        /// What was given.
        name: String,
        /// The plan whose name is nearest.
        nearest: Option<&'static str>,
    },
    /// Only `checkpoint` has a number.
    #[error("`{given}`: only checkpoint has a number, of blocks, from 1")]
    Value {
        /// What was given.
        given: String,
    },
    /// Two say different things of the same.
    #[error("{one} and {other} exclude each other")]
    Both {
        /// One of them.
        one: TrainingPlan,
        /// The other.
        other: TrainingPlan,
    },
}

impl Hint for PlanError {
    fn hint(&self) -> Option<String> {
        let Self::Unknown { nearest, .. } = self else {
            return None;
        };
        let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
        let all = format!("plans are {}, with + between them", names.join(", "));
        Some(nearest.map_or(all.clone(), |nearest| {
            format!("did you mean {nearest}? {all}")
        }))
    }

    fn exit_code(&self) -> u8 {
        exit::USAGE
    }
}

impl FromStr for TrainingPlans {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let mut plans = Self::default();
        let text: String = text.chars().take(MAX_TEXT_CHARS).collect();
        for word in text.split('+').map(str::trim) {
            let plan = one(word)?;
            if let Some(other) = plans.iter().find(|other| other.excludes(plan)) {
                return Err(PlanError::Both {
                    one: other,
                    other: plan,
                });
            }
            plans = plans.with_plan(plan);
        }
        Ok(plans)
    }
}

fn one(word: &str) -> Result<TrainingPlan, PlanError> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let Some((_, plan)) = NAMES.iter().find(|(known, _)| *known == name) else {
        let near = NAMES
            .iter()
            .map(|(known, _)| (distance(known, name), *known));
        let nearest = near.min().filter(|(far, known)| *far <= known.len() / 2);
        return Err(PlanError::Unknown {
            name: name.to_owned(),
            nearest: nearest.map(|(_, known)| known),
        });
    };
    let wrong = || PlanError::Value {
        given: word.to_owned(),
    };
    match (plan, value) {
        (plan, None) => Ok(*plan),
        (TrainingPlan::Checkpoint(_), Some(value)) => {
            let blocks = value.parse().ok().filter(|blocks| *blocks > 0);
            Ok(TrainingPlan::Checkpoint(Some(blocks.ok_or_else(wrong)?)))
        }
        _ => Err(wrong()),
    }
}

/// Letters to change, leave out or put in to make one of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, theirs) in other.iter().enumerate() {
            let changed = before + usize::from(letter != *theirs);
            before = row[j + 1];
            row[j + 1] = changed.min(before + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans(text: &str) -> Result<TrainingPlans, PlanError> {
        text.parse()
    }

    #[test]
    fn names_stand_in_one_order() {
        let one = plans("expandable + checkpoint=12+bf16").unwrap();
        assert_eq!(one.to_string(), "bf16+checkpoint=12+expandable");
        assert_eq!(plans(&one.to_string()), Ok(one.clone()));
        let less = one
            .with_plan(TrainingPlan::Checkpoint(None))
            .with_plan(TrainingPlan::Fp16);
        assert_eq!(less.to_string(), "fp16+checkpoint+expandable");
        assert_eq!(less.needs_lines(), Some(TrainingPlan::Fp16));
        assert_eq!(one.needs_lines(), None);
        let divided = one
            .with_plan(TrainingPlan::Ddp)
            .with_plan(TrainingPlan::Zero3);
        assert_eq!(divided.to_string(), "bf16+checkpoint=12+expandable+zero3");
        assert_eq!(divided.of_ranks(), Some(TrainingPlan::Zero3));
        assert_eq!(divided.needs_lines(), Some(TrainingPlan::Zero3));
        for (name, plan) in NAMES {
            assert_eq!(plan.to_string(), name);
        }
    }

    #[test]
    fn what_is_no_plan_is_refused_with_the_nearest() {
        let nearest = |text: &str| match plans(text).unwrap_err() {
            PlanError::Unknown { nearest, .. } => nearest,
            other => panic!("{other}"),
        };
        assert_eq!(nearest("bf-16"), Some("bf16"));
        assert_eq!(nearest("bf16+checkpoints"), Some("checkpoint"));
        assert_eq!(nearest("8bit"), Some("8-bit"));
        assert_eq!(nearest(""), None);
        assert_eq!(nearest("quantum"), None);
        assert_eq!(nearest(&"é+".repeat(100_000)), None);
        for text in [
            "checkpoint=",
            "checkpoint=0",
            "checkpoint=-1",
            "bf16=2",
            "checkpoint=99999999999",
        ] {
            assert!(
                matches!(plans(text), Err(PlanError::Value { .. })),
                "{text}"
            );
        }
        for text in [
            "bf16+fp16",
            "fused+8-bit",
            "bf16+bf16",
            "checkpoint+checkpoint=2",
            "zero1+zero3",
        ] {
            assert!(matches!(plans(text), Err(PlanError::Both { .. })), "{text}");
        }
    }
}
