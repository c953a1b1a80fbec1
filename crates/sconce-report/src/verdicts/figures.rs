//! The figures that rules may name: of a run, a rank, a growing figure, a card, a card that ran out.

mod card;
mod rank;
mod run;

use std::collections::BTreeMap;

use super::value::Unit;
pub(crate) use super::value::Value;
use crate::model::Report;

/// What a rule is about, and so which figures it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// The run as a whole.
    Run,
    /// A process that trains, and its card; with the run's figures.
    Rank,
    /// One figure of a rank over its steps; with the rank's and the run's.
    Growth,
    /// A card; with the run's.
    Card,
    /// A time when a card's memory ran out; with the rank's and the run's.
    CardOom,
}

impl About {
    pub(crate) const ALL: [Self; 5] = [
        Self::Run,
        Self::Rank,
        Self::Growth,
        Self::Card,
        Self::CardOom,
    ];

    pub(crate) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|about| about.word() == word)
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Rank => "rank",
            Self::Growth => "growth",
            Self::Card => "card",
            Self::CardOom => "card-oom",
        }
    }

    /// Whether a rule about this knows figures of that.
    #[cfg(test)]
    pub(crate) fn has(self, figures: Self) -> bool {
        match figures {
            Self::Run => true,
            Self::Rank => matches!(self, Self::Rank | Self::Growth | Self::CardOom),
            Self::Growth | Self::Card | Self::CardOom => self == figures,
        }
    }

    /// Several of them.
    pub(crate) fn many(self) -> Option<&'static str> {
        match self {
            Self::Run => None,
            Self::Rank => Some("ranks"),
            Self::Growth => Some("growing figures that were watched"),
            Self::Card => Some("cards"),
            Self::CardOom => Some("times"),
        }
    }
}

/// Every figure: its name, its unit, whose it is, what it is.
pub(crate) const FIGURES: &[(&str, Unit, About, &str)] = &[
    ("wall", Unit::Time, About::Run, "the run's time"),
    ("ranks", Unit::Count, About::Run, "processes that train"),
    (
        "cpus",
        Unit::Count,
        About::Run,
        "CPUs that the run may use: its limit, or the machine's",
    ),
    ("cpu-limit", Unit::Count, About::Run, "its CPU limit, cores"),
    (
        "cores-used",
        Unit::Count,
        About::Run,
        "cores used on average",
    ),
    (
        "cores-free",
        Unit::Count,
        About::Run,
        "CPUs that it may use and that neither it nor others of the machine used, on average, rounded down",
    ),
    (
        "throttled-share",
        Unit::Share,
        About::Run,
        "of the time in which it wanted to run, the share in which its CPU limit held it back",
    ),
    (
        "memory-limit",
        Unit::Bytes,
        About::Run,
        "its memory limit, or the machine's memory",
    ),
    (
        "memory-peak",
        Unit::Bytes,
        About::Run,
        "the most that was charged to it, or its processes' largest resident set",
    ),
    (
        "memory-share",
        Unit::Share,
        About::Run,
        "the peak's share of the limit",
    ),
    (
        "cache-share",
        Unit::Share,
        About::Run,
        "file cache at the fullest reading",
    ),
    (
        "swap-peak",
        Unit::Bytes,
        About::Run,
        "the most swap that it held",
    ),
    (
        "memory-stall-share",
        Unit::Share,
        About::Run,
        "of the run's time, that in which tasks waited for memory (PSI, some)",
    ),
    (
        "io-stall-share",
        Unit::Share,
        About::Run,
        "of the run's time, that in which tasks waited for the disk (PSI, some)",
    ),
    (
        "oom-kills",
        Unit::Count,
        About::Run,
        "processes that the kernel killed because memory ran out",
    ),
    (
        "memory-double",
        Unit::Text,
        About::Run,
        "twice the limit that was hit, as `--memory` takes it",
    ),
    (
        "loader-workers",
        Unit::Count,
        About::Run,
        "the most loader workers that one rank has",
    ),
    (
        "oom-limit",
        Unit::Bytes,
        About::Run,
        "the run's own limit that was hit then",
    ),
    (
        "largest-process",
        Unit::Bytes,
        About::Run,
        "the largest resident set of one process",
    ),
    ("shm-size", Unit::Bytes, About::Run, "the size of /dev/shm"),
    ("steps", Unit::Count, About::Rank, "steps that ended"),
    (
        "evaluated",
        Unit::Count,
        About::Rank,
        "batches of loops that train nothing",
    ),
    (
        "step-mean",
        Unit::Time,
        About::Rank,
        "mean time of a step, without the run's beginning",
    ),
    (
        "step-median",
        Unit::Time,
        About::Rank,
        "median time of a step",
    ),
    (
        "step-p95",
        Unit::Time,
        About::Rank,
        "one step of twenty took longer",
    ),
    (
        "data-share",
        Unit::Share,
        About::Rank,
        "waiting for data, of a mean step without the run's beginning",
    ),
    (
        "data-time",
        Unit::Time,
        About::Rank,
        "waiting for data in a mean step",
    ),
    (
        "copy-share",
        Unit::Share,
        About::Rank,
        "copies between host and card, without the run's beginning",
    ),
    (
        "copy-time",
        Unit::Time,
        About::Rank,
        "copies in a mean step",
    ),
    (
        "forward-share",
        Unit::Share,
        About::Rank,
        "forward passes on the host",
    ),
    (
        "backward-share",
        Unit::Share,
        About::Rank,
        "backward passes on the host",
    ),
    (
        "optimizer-share",
        Unit::Share,
        About::Rank,
        "optimizers on the host",
    ),
    (
        "other-share",
        Unit::Share,
        About::Rank,
        "everything else of a step on the host",
    ),
    (
        "compute-share",
        Unit::Share,
        About::Rank,
        "forward, backward and optimizer on the host",
    ),
    (
        "host-over-card",
        Unit::Share,
        About::Rank,
        "the host's time of forward and backward in shares of the card's: near 100 % the card waits for each launch",
    ),
    (
        "copy-on-card-share",
        Unit::Share,
        About::Rank,
        "copies on the card's own clock, of a step's time",
    ),
    (
        "batches",
        Unit::Count,
        About::Rank,
        "batches that its loader gave",
    ),
    (
        "empty-share",
        Unit::Share,
        About::Rank,
        "batches for which none stood ready; of a loader with workers",
    ),
    ("workers", Unit::Count, About::Rank, "the loader's workers"),
    (
        "workers-more",
        Unit::Count,
        About::Rank,
        "workers that the free CPUs would carry, with those that are there",
    ),
    (
        "prefetch",
        Unit::Count,
        About::Rank,
        "batches that each worker prepares ahead",
    ),
    (
        "pinned",
        Unit::Flag,
        About::Rank,
        "whether the loader pins memory",
    ),
    (
        "persistent",
        Unit::Flag,
        About::Rank,
        "whether workers outlive an epoch",
    ),
    (
        "on-card",
        Unit::Flag,
        About::Rank,
        "whether it trains on a card",
    ),
    ("card-name", Unit::Text, About::Rank, "its card"),
    (
        "card-utilisation",
        Unit::Share,
        About::Rank,
        "the card's readings with a kernel on it, mean",
    ),
    ("card-not-busy", Unit::Share, About::Rank, "the rest of it"),
    ("card-total", Unit::Bytes, About::Rank, "the card's memory"),
    (
        "autocast",
        Unit::Text,
        About::Rank,
        "the dtype of autocast; missing without it",
    ),
    (
        "dtype",
        Unit::Text,
        About::Rank,
        "the dtype of the parameters",
    ),
    (
        "compiled",
        Unit::Flag,
        About::Rank,
        "whether torch.compile made the model",
    ),
    (
        "cudnn-benchmark",
        Unit::Flag,
        About::Rank,
        "torch.backends.cudnn.benchmark",
    ),
    (
        "convolutions",
        Unit::Flag,
        About::Rank,
        "whether the model has convolutions",
    ),
    (
        "fixed-shapes",
        Unit::Flag,
        About::Rank,
        "whether all batches had the same shapes",
    ),
    (
        "allocator",
        Unit::Text,
        About::Rank,
        "the allocator's settings as set",
    ),
    (
        "allocated-peak",
        Unit::Bytes,
        About::Rank,
        "the most that tensors held on the card",
    ),
    (
        "reserved-peak",
        Unit::Bytes,
        About::Rank,
        "the most that the allocator took from the card",
    ),
    (
        "reserved-card-share",
        Unit::Share,
        About::Rank,
        "that, as a share of the card's memory",
    ),
    (
        "unused",
        Unit::Bytes,
        About::Rank,
        "peak of reserved less peak of allocated",
    ),
    (
        "unused-share",
        Unit::Share,
        About::Rank,
        "that, as a share of the peak of reserved",
    ),
    (
        "inactive-split",
        Unit::Bytes,
        About::Rank,
        "free pieces of blocks of which other pieces are in use, at last",
    ),
    (
        "retries",
        Unit::Count,
        About::Rank,
        "times the allocator gave its cache back and asked the card again",
    ),
    (
        "context-memory",
        Unit::Bytes,
        About::Rank,
        "the CUDA context and what libraries take by themselves",
    ),
    (
        "communication",
        Unit::Time,
        About::Rank,
        "DDP's communication, and FSDP's, in a mean measured step",
    ),
    (
        "sharded",
        Unit::Flag,
        About::Rank,
        "whether FSDP exchanges something; missing where nothing is exchanged",
    ),
    (
        "all-gather",
        Unit::Time,
        About::Rank,
        "FSDP's all-gathers in a mean step that was timed",
    ),
    (
        "all-gather-exposed",
        Unit::Time,
        About::Rank,
        "the part of them that no computation hid",
    ),
    (
        "reduce-scatter",
        Unit::Time,
        About::Rank,
        "FSDP's reduce-scatters in a mean step that was timed",
    ),
    (
        "reduce-scatter-exposed",
        Unit::Time,
        About::Rank,
        "the part of them that no computation hid",
    ),
    (
        "exposed",
        Unit::Time,
        About::Rank,
        "the part of it that nothing hid, without waiting for a slower rank",
    ),
    (
        "exposed-share",
        Unit::Share,
        About::Rank,
        "that, as a share of a mean step",
    ),
    (
        "world-size",
        Unit::Count,
        About::Rank,
        "ranks that train together",
    ),
    (
        "backend",
        Unit::Text,
        About::Rank,
        "what gradients are exchanged with: `nccl`, `gloo`",
    ),
    (
        "behind",
        Unit::Time,
        About::Rank,
        "its own part of a mean step (without waiting for others) less the middle of the other ranks'",
    ),
    (
        "behind-share",
        Unit::Share,
        About::Rank,
        "that, as a share of a mean step",
    ),
    (
        "behind-phase",
        Unit::Text,
        About::Rank,
        "the phase that is the most longer than in the other ranks; missing where it is less than half of that",
    ),
    (
        "behind-phase-time",
        Unit::Time,
        About::Rank,
        "by how much it is longer in a mean step",
    ),
    (
        "growing",
        Unit::Text,
        About::Growth,
        "which figure: rss, allocated, reserved, blocks",
    ),
    (
        "grows",
        Unit::Flag,
        About::Growth,
        "whether it grows and goes on to, as src/stats/growth.rs tells",
    ),
    (
        "rate",
        Unit::Bytes,
        About::Growth,
        "Theil and Sen's slope, a step; missing for blocks",
    ),
    (
        "rate-low",
        Unit::Bytes,
        About::Growth,
        "the lower end of its 95 % interval",
    ),
    ("rate-high", Unit::Bytes, About::Growth, "the upper end"),
    (
        "grown",
        Unit::Bytes,
        About::Growth,
        "the rate times the steps that were watched; missing for blocks",
    ),
    (
        "grown-share",
        Unit::Share,
        About::Growth,
        "that, as a share of what it was at last",
    ),
    ("block-rate", Unit::Count, About::Growth, "blocks a step"),
    (
        "blocks-grown",
        Unit::Count,
        About::Growth,
        "blocks over the steps that were watched",
    ),
    (
        "allocated-grows",
        Unit::Flag,
        About::Growth,
        "whether allocated memory of the rank grows",
    ),
    (
        "watched",
        Unit::Count,
        About::Growth,
        "steps after the warm-up that were watched",
    ),
    (
        "last",
        Unit::Bytes,
        About::Growth,
        "what it was at last; missing for blocks",
    ),
    (
        "limit",
        Unit::Bytes,
        About::Growth,
        "where it ends: the memory limit, or the card's memory",
    ),
    (
        "limit-steps",
        Unit::Count,
        About::Growth,
        "steps until then at this rate",
    ),
    ("limit-time", Unit::Time, About::Growth, "time until then"),
    ("card", Unit::Text, About::Card, "its index and name"),
    ("readings", Unit::Count, About::Card, "readings of it"),
    (
        "utilisation",
        Unit::Share,
        About::Card,
        "readings with a kernel on it, mean",
    ),
    (
        "idle-share",
        Unit::Share,
        About::Card,
        "readings in which no kernel ran at all",
    ),
    (
        "held",
        Unit::Bytes,
        About::Card,
        "the most memory that the run held on it",
    ),
    (
        "thermal-share",
        Unit::Share,
        About::Card,
        "readings in which heat held its clocks down",
    ),
    (
        "power-share",
        Unit::Share,
        About::Card,
        "readings in which power held its clocks down",
    ),
    (
        "brake-share",
        Unit::Share,
        About::Card,
        "readings in which the supply's brake or another hardware slowdown held them down",
    ),
    (
        "temperature",
        Unit::Count,
        About::Card,
        "its highest temperature, °C",
    ),
    (
        "clock",
        Unit::Count,
        About::Card,
        "the multiprocessors' mean clock, MHz",
    ),
    ("asked", Unit::Bytes, About::CardOom, "what was asked for"),
    (
        "free",
        Unit::Bytes,
        About::CardOom,
        "what the card had left",
    ),
    ("total", Unit::Bytes, About::CardOom, "the card's memory"),
    ("oom-step", Unit::Count, About::CardOom, "the step"),
    ("oom-phase", Unit::Text, About::CardOom, "the phase"),
    (
        "oom-device",
        Unit::Count,
        About::CardOom,
        "the card's index as the process sees it",
    ),
    (
        "oom-allocated",
        Unit::Bytes,
        About::CardOom,
        "allocated then",
    ),
    ("oom-reserved", Unit::Bytes, About::CardOom, "reserved then"),
    (
        "oom-unused",
        Unit::Bytes,
        About::CardOom,
        "reserved and not allocated then",
    ),
    (
        "oom-covered",
        Unit::Flag,
        About::CardOom,
        "whether what was reserved and not allocated would have been enough",
    ),
    (
        "where",
        Unit::Text,
        About::CardOom,
        "the innermost frame of the asking",
    ),
    ("holder", Unit::Text, About::CardOom, "who held the most"),
    ("holder-bytes", Unit::Bytes, About::CardOom, "how much"),
    (
        "snapshot",
        Unit::Text,
        About::CardOom,
        "the snapshot's file",
    ),
];

/// A figure's unit.
pub(crate) fn unit_of(name: &str) -> Option<Unit> {
    FIGURES
        .iter()
        .find(|figure| figure.0 == name)
        .map(|figure| figure.1)
}

/// Whose figure it is.
#[cfg(test)]
pub(crate) fn about_of(name: &str) -> Option<About> {
    FIGURES
        .iter()
        .find(|figure| figure.0 == name)
        .map(|figure| figure.2)
}

/// The figures of one subject.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    pub(crate) about: About,
    /// `rank 1`, `card 0`.
    pub(crate) name: Option<String>,
    values: BTreeMap<&'static str, Value>,
}

impl Figures {
    /// Every subject of a run.
    pub(crate) fn all(report: &Report) -> Vec<Self> {
        let run = run::figures(report);
        let mut all = vec![run.clone()];
        for rank in &report.training {
            let figures = rank::figures(&run, rank, report);
            all.extend(rank::growth(&figures, rank, report));
            all.push(figures);
        }
        all.extend(report.cards.iter().map(|one| card::figures(&run, one)));
        for oom in &report.card_oom {
            let rank = report.training.iter().find(|rank| rank.pid == oom.pid);
            let base = rank.map_or_else(|| run.clone(), |rank| rank::figures(&run, rank, report));
            all.push(card::out_of_memory(&base, oom));
        }
        all
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    fn new(about: About) -> Self {
        Self {
            about,
            name: None,
            values: BTreeMap::new(),
        }
    }

    /// The same figures, for others to be added to.
    fn under(&self, about: About, name: Option<String>) -> Self {
        Self {
            about,
            name,
            values: self.values.clone(),
        }
    }

    /// Puts a figure in, where it was measured and is a number.
    fn put(&mut self, name: &'static str, value: Option<Value>) {
        let Some(value) = value.filter(|value| value.number().is_none_or(f64::is_finite)) else {
            return;
        };
        debug_assert_eq!(unit_of(name), Some(value.unit()), "{name}");
        self.values.insert(name, value);
    }

    fn share(&mut self, name: &'static str, value: Option<f64>) {
        self.put(name, value.map(Value::Share));
    }

    fn bytes(&mut self, name: &'static str, value: Option<f64>) {
        self.put(name, value.map(Value::Bytes));
    }

    fn time(&mut self, name: &'static str, us: Option<f64>) {
        self.put(name, us.map(Value::Time));
    }

    fn count(&mut self, name: &'static str, value: Option<f64>) {
        self.put(name, value.map(Value::Count));
    }

    fn text(&mut self, name: &'static str, value: Option<&str>) {
        let value = value.filter(|text| !text.is_empty());
        self.put(name, value.map(|text| Value::Text(text.to_owned())));
    }

    fn flag(&mut self, name: &'static str, value: Option<bool>) {
        self.put(name, value.map(Value::Flag));
    }
}

/// A share of a whole that is there.
fn of(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
