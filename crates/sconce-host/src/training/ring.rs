//! The file in which a training process tells what it does, as `python/sconce_probe/account/ring.py`
//! says it is. The process can write anything there, so nothing in it is believed but as a figure.

use sconce_schema::Bytes;
use sconce_schema::training::{
    CollectiveTimes, DataLoaderCounters, EvaluationCounters, GpuAllocatorCounters, PhaseTimes,
    TrainingSample, TrainingStep,
};

/// The file's size, bytes.
pub const SIZE: usize = STEPS_AT + ENTRIES * STEP_SIZE;

const MAGIC: &[u8; 8] = b"SCONCEAC";
const VERSION: u32 = 2;
const ENTRIES: usize = 2048;
const STEP_SIZE: usize = 72;
const FIGURES: usize = 64;
const FIGURES_AT: [usize; 2] = [1024, 1536];
const STEPS_AT: usize = 4096;
const PHASES: [&str; 6] = ["data", "copy", "forward", "backward", "optimizer", "other"];

/// The file's bytes.
#[derive(Debug, Clone, Copy)]
pub struct ProbeRing<'a>(&'a [u8]);

impl<'a> ProbeRing<'a> {
    /// `None` where it is not such a file.
    #[must_use]
    pub fn from_bytes(bytes: &'a [u8]) -> Option<Self> {
        let ring = Self(bytes);
        (bytes.len() == SIZE
            && bytes.starts_with(MAGIC)
            && ring.small(8)? == VERSION
            && ring.small(12)? as usize == ENTRIES)
            .then_some(ring)
    }

    /// The process, in its own numbering.
    #[must_use]
    pub fn inner_pid(self) -> Option<u32> {
        self.small(16)
    }

    /// Who started the process, in its own numbering.
    #[must_use]
    pub fn parent_pid(self) -> Option<u32> {
        self.small(20)
    }

    /// The cell of a notebook that it is of.
    #[must_use]
    pub fn notebook_cell(self) -> Option<u32> {
        self.small(CELL_AT).filter(|cell| *cell > 0)
    }

    /// How many times figures were told. Where the file still says the same after its bytes were read,
    /// [`Self::training_sample`] is of one time.
    #[must_use]
    pub fn update_count(self) -> u64 {
        self.number(TOLD_AT).unwrap_or_default()
    }

    /// What was told last; `None` before anything was. Without its `pid` and `recent`.
    #[must_use]
    pub fn training_sample(self) -> Option<TrainingSample> {
        let told = self.update_count();
        if told == 0 {
            return None;
        }
        let at = FIGURES_AT[usize::from(told % 2 == 1)];
        let mut figures = (0..FIGURES).map(|index| known(self.number(at + index * 8)?));
        let mut next = || figures.next().flatten();

        let steps = next().unwrap_or_default();
        let _at = next();
        let wall_ns = next().unwrap_or_default();
        let [data, copy, forward, backward, optimizer] =
            std::array::from_fn(|_| micro(next().unwrap_or_default()));
        let named = [data, copy, forward, backward, optimizer];
        let named = named.into_iter().fold(0, u64::saturating_add);
        // The rest is what rounding leaves too, so that phases sum to the whole.
        let wall_us = micro(wall_ns).max(named);
        let phases = PhaseTimes {
            data_us: data,
            copy_us: copy,
            forward_us: forward,
            backward_us: backward,
            optimizer_us: optimizer,
            other_us: wall_us - named,
        };
        let evaluation = EvaluationCounters {
            batches: next().unwrap_or_default(),
            wall_us: micro(next().unwrap_or_default()),
        };
        let (samples, tokens) = (next(), next());
        let (batches, empty, ready) = (next(), next(), next());
        let on_card_steps = next();
        let mut on_card = || micro(next().unwrap_or_default());
        let on_card = PhaseTimes {
            data_us: on_card(),
            copy_us: on_card(),
            forward_us: on_card(),
            backward_us: on_card(),
            optimizer_us: on_card(),
            other_us: on_card(),
        };
        let device = next();
        let mut count = || next().unwrap_or_default();
        let mut memory = GpuAllocatorCounters {
            device: 0,
            allocated: Bytes(count()),
            allocated_peak: Bytes(count()),
            reserved: Bytes(count()),
            reserved_peak: Bytes(count()),
            inactive_split: Bytes(count()),
            blocks: count(),
            allocations: count(),
            retries: count(),
            ooms: count(),
        };
        let card_memory = device.and_then(small).map(|device| {
            memory.device = device;
            memory
        });
        let mut exchange = CollectiveTimes {
            communication_us: next(),
            exposed_us: next(),
            ..CollectiveTimes::default()
        };
        let rank = next();
        let _resident = next();
        exchange.sharded_steps = next().filter(|steps| *steps > 0);
        if exchange.sharded_steps.is_some() {
            exchange.all_gather_us = next().map(micro);
            exchange.all_gather_exposed_us = next().map(micro);
            exchange.reduce_scatter_us = next().map(micro);
            exchange.reduce_scatter_exposed_us = next().map(micro);
        }
        Some(TrainingSample {
            rank: rank.and_then(small),
            steps,
            wall_us,
            phases,
            on_card: on_card_steps.map(|_| on_card),
            on_card_steps,
            samples,
            tokens,
            loader: batches.map(|batches| DataLoaderCounters {
                batches,
                empty,
                ready: ready.and_then(small),
            }),
            evaluation: (evaluation.batches > 0).then_some(evaluation),
            card_memory,
            exchange: (exchange != CollectiveTimes::default()).then_some(exchange),
            phase: self.current_phase().map(str::to_owned),
            cell: self.notebook_cell(),
            ..TrainingSample::default()
        })
    }

    /// The phase in which the process is.
    #[must_use]
    pub fn current_phase(self) -> Option<&'static str> {
        PHASES.get(usize::from(*self.0.get(PHASE_AT)?)).copied()
    }

    /// A step, where it is still there. `began_ns`: the run's beginning on `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn read_step(self, number: u64, began_ns: u64) -> Option<TrainingStep> {
        let figure = |index: usize| self.figure(number, index);
        let wall_us = micro(figure(2)?);
        Some(TrainingStep {
            step: number,
            t_us: micro(figure(1)?.saturating_sub(began_ns)),
            wall_us,
            data_us: micro(figure(3)?).min(wall_us),
            rss: figure(4).map(Bytes),
            allocated: figure(5).map(Bytes),
            reserved: figure(6).map(Bytes),
            blocks: figure(7),
        })
    }

    /// Whether the process's memory was read at the end of a step, and that of its card with it.
    pub(super) fn has_process(self, number: u64) -> bool {
        self.figure(number, 4).is_some()
    }

    /// Whether the card's memory was read at the end of a step.
    pub(super) fn has_card(self, number: u64) -> bool {
        self.figure(number, 5).is_some()
    }

    /// What malloc had given out at the end of a step, where it was read then.
    #[must_use]
    pub fn heap_after_step(self, number: u64) -> Option<Bytes> {
        self.figure(number, 8).map(Bytes)
    }

    /// A figure of a step that is still there.
    fn figure(self, number: u64, index: usize) -> Option<u64> {
        let entry = usize::try_from(number.checked_sub(1)? % ENTRIES as u64).ok()?;
        let at = STEPS_AT + entry * STEP_SIZE;
        if self.number(at)? != number {
            return None;
        }
        self.number(at + index * 8).and_then(known)
    }

    /// The oldest step that no later one can have overwritten meanwhile.
    #[must_use]
    pub fn oldest_intact_step(steps: u64) -> u64 {
        // The next one may be in the making.
        steps.saturating_sub(ENTRIES as u64 - 2).max(1)
    }

    fn number(self, at: usize) -> Option<u64> {
        let bytes = self.0.get(at..at.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn small(self, at: usize) -> Option<u32> {
        let bytes = self.0.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }
}

const CELL_AT: usize = 24;
const ENDED_AT: usize = 28;
/// As many bytes as [`is_closed`] looks at.
pub(super) const START: usize = ENDED_AT + 4;
const TOLD_AT: usize = 40;
const PHASE_AT: usize = 48;

/// Whether the start of a file says that nothing more will come, though its process may go on.
pub(super) fn is_closed(start: &[u8; START]) -> bool {
    start[ENDED_AT..START] == 1_u32.to_le_bytes()
}

/// All bits set: not known.
fn known(figure: u64) -> Option<u64> {
    (figure != u64::MAX).then_some(figure)
}

fn small(figure: u64) -> Option<u32> {
    u32::try_from(figure).ok()
}

/// Nanoseconds in microseconds.
fn micro(ns: u64) -> u64 {
    ns / 1000
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A process's file with `steps` steps of 1 ms, of which 0.25 ms is data.
    pub(in crate::training) fn made(inner: u32, steps: u64) -> Vec<u8> {
        made_with(inner, steps, |_| [u64::MAX; 2])
    }

    /// The same with the memory of its process and of its card at the end of each step.
    pub(in crate::training) fn made_with(
        inner: u32,
        steps: u64,
        memory: fn(u64) -> [u64; 2],
    ) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        bytes[..8].copy_from_slice(MAGIC);
        for (at, number) in [(8, VERSION), (12, ENTRIES as u32), (16, inner), (20, 1)] {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        let mut put = |at: usize, number: u64| {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        };
        put(TOLD_AT, steps + 1);
        let at = FIGURES_AT[usize::from((steps + 1) % 2 == 1)];
        for index in 0..FIGURES {
            put(at + index * 8, u64::MAX);
        }
        let told = [
            steps,
            0,
            steps * 1_000_900,
            steps * 250_000,
            0,
            300_700,
            1,
            2,
        ];
        for (index, number) in told.into_iter().enumerate() {
            put(at + index * 8, number);
        }
        for step in ProbeRing::oldest_intact_step(steps)..=steps {
            let index = usize::try_from((step - 1) % ENTRIES as u64).unwrap();
            let entry = [step, 5_000_000 + step * 1_000_900, 1_000_900, 250_000];
            // The heap is read at every other step.
            let heap = [u64::MAX, 1000 * step][usize::from(step % 2 == 0)];
            for word in 0..9 {
                let rest = match word {
                    4 | 5 => memory(step)[word - 4],
                    8 => heap,
                    _ => u64::MAX,
                };
                let number = entry.get(word).copied().unwrap_or(rest);
                put(STEPS_AT + index * STEP_SIZE + word * 8, number);
            }
        }
        bytes
    }

    /// Each number of the file is another one, at the place where the probe puts it; places are numbers
    /// here, so that none moves with a constant.
    #[test]
    fn numbers_of_the_ring_are_where_they_were() {
        let mut bytes = vec![0; SIZE];
        bytes[..8].copy_from_slice(b"SCONCEAC");
        for (at, number) in [(8, 2_u32), (12, 2_048), (16, 17), (20, 16), (24, 3)] {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        let mut put = |at: usize, number: u64| {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        };
        put(40, 3);
        for index in 0..64 {
            put(1_536 + index * 8, 1_000_000 + index as u64 * 1_000);
        }
        for (index, word) in [2, 9_000_000, 5_000_000, 1_000_000, 4_096, 5, 6, 7, 8]
            .iter()
            .enumerate()
        {
            put(4_096 + 72 + index * 8, *word);
        }
        bytes[48] = 2;
        assert_eq!(bytes.len(), 4_096 + 2_048 * 72);
        let ring = ProbeRing::from_bytes(&bytes).unwrap();
        let whole = serde_json::json!({
            "inner-pid": ring.inner_pid(),
            "parent": ring.parent_pid(),
            "told": ring.update_count(),
            "training": ring.training_sample(),
            "step": ring.read_step(2, 1_000_000),
            "heap": ring.heap_after_step(2),
        });
        crate::golden::goldens().assert_same("ring.json", format!("{whole:#}\n"));
    }

    #[test]
    fn what_was_told_is_read_and_phases_sum_to_the_whole() {
        let bytes = made(7, 3);
        let ring = ProbeRing::from_bytes(&bytes).unwrap();
        assert_eq!(ring.inner_pid(), Some(7));
        let told = ring.training_sample().unwrap();
        assert_eq!((told.steps, told.wall_us), (3, 3002));
        assert_eq!(told.phases.sum_us(), told.wall_us);
        assert_eq!(told.phases.data_us, 750);
        assert_eq!(told.loader, None);
        assert_eq!(told.card_memory, None);
        assert_eq!(told.phase.as_deref(), Some("data"));
        let step = ring.read_step(2, 1_000_000).unwrap();
        assert_eq!((step.t_us, step.wall_us, step.data_us), (6001, 1000, 250));
        assert_eq!(step.rss, None);
        assert_eq!(ring.read_step(4, 0), None);
        assert_eq!(ring.read_step(0, 0), None);
        assert_eq!(ring.heap_after_step(2), Some(Bytes(2000)));
        assert_eq!(
            (
                ring.heap_after_step(1),
                ring.heap_after_step(4),
                ring.heap_after_step(0)
            ),
            (None, None, None)
        );
    }

    #[test]
    fn what_fsdp_exchanged_is_read_where_it_was_told() {
        let mut bytes = made(7, 3);
        let mut put = |index: usize, number: u64| {
            let at = FIGURES_AT[0] + index * 8;
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        };
        for (index, number) in [(36, 3), (37, 9000), (39, 5999), (40, 1000)] {
            put(index, number);
        }
        let told = ProbeRing::from_bytes(&bytes)
            .unwrap()
            .training_sample()
            .unwrap();
        let exchange = CollectiveTimes {
            sharded_steps: Some(3),
            all_gather_us: Some(9),
            all_gather_exposed_us: None,
            reduce_scatter_us: Some(5),
            reduce_scatter_exposed_us: Some(1),
            ..CollectiveTimes::default()
        };
        assert_eq!(told.exchange, Some(exchange));
        let at = FIGURES_AT[0] + 36 * 8;
        bytes[at..at + 8].copy_from_slice(&0_u64.to_le_bytes());
        let told = ProbeRing::from_bytes(&bytes)
            .unwrap()
            .training_sample()
            .unwrap();
        assert_eq!(told.exchange, None);
    }

    #[test]
    fn nothing_told_is_nothing() {
        let mut bytes = made(7, 3);
        bytes[TOLD_AT..TOLD_AT + 8].fill(0);
        assert!(
            ProbeRing::from_bytes(&bytes)
                .unwrap()
                .training_sample()
                .is_none()
        );
        assert!(ProbeRing::from_bytes(&bytes[..SIZE - 1]).is_none());
        bytes[0] = 0;
        assert!(ProbeRing::from_bytes(&bytes).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_make_no_panic(
            changes in proptest::collection::vec((0..SIZE, any::<u8>()), 0..200),
            number in any::<u64>(),
        ) {
            let mut bytes = made(7, 600);
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            if let Some(ring) = ProbeRing::from_bytes(&bytes) {
                if let Some(told) = ring.training_sample() {
                    prop_assert_eq!(told.phases.sum_us(), told.wall_us);
                }
                let _ = (ring.read_step(number, number), ring.heap_after_step(number));
            }
        }
    }
}
