//! The time of a training step, estimated: a roofline over the operations and bytes that PyTorch's own
//! calls have.
//!
//! Each call takes the longer of its products at the card's rate and its bytes at the memory's, and
//! never less than a launch. No card reaches its rates, and nothing here knows how near a kernel comes:
//! the figure is what a step takes at least, good for comparing one plan with another.
//!
//! What ranks send each other takes its bytes at the rate of the way, and is taken to go on beside the
//! rest, all of it: a step takes the longer of both. So this too is the least.

use serde::Deserialize;

/// What a kernel takes at least, s.
const LAUNCH: f64 = 3e-6;
/// What goes over the bus to the host in a second, bytes: PCIe 4.0 with 16 lanes moves about 25 GB; older
/// machines half of that.
const BUS: f64 = 20e9;

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkKind {
    /// Products of fp16 or bf16.
    Half,
    /// Products of fp32 that may be computed in tf32.
    Tf32,
    /// Products of fp32.
    Single,
    /// Nothing but bytes.
    Move,
    /// Bytes between host and card.
    Bus,
    /// Bytes that a rank sends within its machine.
    Near,
    /// Bytes that a rank sends, some of them to other machines.
    Far,
}

impl WorkKind {
    /// Whether ranks send them each other.
    fn is_exchange(self) -> bool {
        matches!(self, Self::Near | Self::Far)
    }
}

/// Calls of a kind: operations (a multiplication with its addition counts as two), bytes, and how often.
pub type WorkItem = (WorkKind, u64, u64, u64);

/// Rates of a card, in a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuRates {
    /// Operations of tensor cores in fp16 and bf16.
    pub half: f64,
    /// Operations in tf32.
    pub tf32: f64,
    /// Operations in fp32.
    pub single: f64,
    /// Bytes of the card's memory.
    pub memory: f64,
    /// Bytes that a card sends to others of its machine.
    pub near: f64,
    /// Bytes that a card sends to other machines.
    pub far: f64,
}

/// NVLink of an H100 in one direction; older cards have 300 GB/s (A100) or less.
const NVLINK: f64 = 450e9;
/// An adapter of 400 Gb/s for each card, as machines with NVLink have.
const ADAPTER: f64 = 50e9;
/// An adapter of 100 Gb/s.
const SMALL_ADAPTER: f64 = 12.5e9;

impl GpuRates {
    /// The rates `near` and `far` of cards that can have NVLink, and of others: those send over the bus.
    #[must_use]
    pub fn between_cards(nvlink: bool) -> (f64, f64) {
        match nvlink {
            true => (NVLINK, ADAPTER),
            false => (BUS, SMALL_ADAPTER),
        }
    }
}

/// What a step takes at least, ms: the longer of what is computed and what ranks send. `None` where nothing
/// was counted, or rates are none.
#[must_use]
pub fn step_ms(calls: &[WorkItem], rates: &GpuRates) -> Option<f64> {
    let all = [
        rates.half,
        rates.tf32,
        rates.single,
        rates.memory,
        rates.near,
        rates.far,
    ];
    if calls.is_empty() || all.iter().any(|rate| rate.is_nan() || *rate <= 0.0) {
        return None;
    }
    let of = |exchange: bool| {
        let of = calls.iter().filter(|call| call.0.is_exchange() == exchange);
        of.map(|call| seconds(call, rates)).sum::<f64>()
    };
    Some(of(false).max(of(true)) * 1e3).filter(|ms| ms.is_finite())
}

/// What ranks send each other takes at least, ms. `None` where they send nothing.
#[must_use]
pub fn exchange_ms(calls: &[WorkItem], rates: &GpuRates) -> Option<f64> {
    let exchanges = calls.iter().filter(|call| call.0.is_exchange());
    let sum: f64 = exchanges.map(|call| seconds(call, rates)).sum();
    Some(sum * 1e3).filter(|ms| *ms > 0.0 && ms.is_finite())
}

fn seconds(&(kind, operations, bytes, count): &WorkItem, rates: &GpuRates) -> f64 {
    let rate = match kind {
        WorkKind::Half => rates.half,
        WorkKind::Tf32 => rates.tf32,
        WorkKind::Single | WorkKind::Move | WorkKind::Bus | WorkKind::Near | WorkKind::Far => {
            rates.single
        }
    };
    let way = match kind {
        WorkKind::Bus => BUS,
        WorkKind::Near => rates.near,
        WorkKind::Far => rates.far,
        WorkKind::Half | WorkKind::Tf32 | WorkKind::Single | WorkKind::Move => rates.memory,
    };
    count as f64
        * (operations as f64 / rate)
            .max(bytes as f64 / way)
            .max(LAUNCH)
}

/// Operations of all products together.
#[must_use]
pub fn total_operations(calls: &[WorkItem]) -> f64 {
    let of = |call: &WorkItem| call.1 as f64 * call.3 as f64;
    calls.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: GpuRates = GpuRates {
        half: 40e12,
        tf32: 20e12,
        single: 20e12,
        memory: 400e9,
        near: 100e9,
        far: 10e9,
    };

    #[test]
    fn a_call_takes_the_longer_of_its_products_and_its_bytes() {
        let ms = |call: WorkItem| (step_ms(&[call], &RATES).unwrap() * 1e6).round() / 1e6;
        assert_eq!(ms((WorkKind::Half, 40_000_000_000, 0, 2)), 2.0);
        assert_eq!(ms((WorkKind::Single, 40_000_000_000, 400_000, 1)), 2.0);
        assert_eq!(ms((WorkKind::Tf32, 1, 400_000_000, 1)), 1.0);
        assert_eq!(ms((WorkKind::Move, 0, 4, 1000)), 3.0);
        assert_eq!(ms((WorkKind::Bus, 0, 20_000_000, 1)), 1.0);
    }

    #[test]
    fn ranks_send_beside_what_is_computed() {
        let computed = (WorkKind::Half, 40_000_000_000, 0, 2);
        let near = (WorkKind::Near, 0, 100_000_000, 1);
        let far = (WorkKind::Far, 0, 10_000_000, 4);
        let ms = |calls: &[WorkItem]| step_ms(calls, &RATES).map(|ms| ms.round());
        assert_eq!(ms(&[computed, near]), Some(2.0));
        assert_eq!(ms(&[computed, near, far]), Some(5.0));
        let sent = |calls: &[WorkItem]| exchange_ms(calls, &RATES).map(f64::round);
        assert_eq!(sent(&[computed, near, far]), Some(5.0));
        assert_eq!(sent(&[computed]), None);
        let (near, far) = GpuRates::between_cards(false);
        assert!(near > far && GpuRates::between_cards(true) > (near, far));
    }

    #[test]
    fn what_was_not_counted_is_not_estimated() {
        assert_eq!(step_ms(&[], &RATES), None);
        let none = GpuRates {
            memory: 0.0,
            ..RATES
        };
        assert_eq!(step_ms(&[(WorkKind::Move, 0, 4, 1)], &none), None);
        let none = GpuRates {
            half: f64::NAN,
            ..RATES
        };
        assert_eq!(step_ms(&[(WorkKind::Move, 0, 4, 1)], &none), None);
        let most = [(WorkKind::Half, u64::MAX, u64::MAX, u64::MAX); 3];
        assert!(step_ms(&most, &RATES).is_some() && total_operations(&most) > 0.0);
    }
}
