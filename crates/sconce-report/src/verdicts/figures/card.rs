//! Figures of a card, and of a time when its memory ran out.

use sconce_schema::Bytes;
use sconce_schema::training::GpuOutOfMemory;

use super::{FigureSet, RuleSubject};
use crate::model::GpuReport;

pub(super) fn compute_figures(run: &FigureSet, card: &GpuReport) -> FigureSet {
    let name = format!("card {}", card.summary.index);
    let mut figures = run.under(RuleSubject::Card, Some(name));
    let it = &mut figures;
    let index = card.summary.index;
    it.text(
        "card",
        Some(&match card.summary.name.as_str() {
            "" => format!("{index}"),
            name => format!("{index} ({name})"),
        }),
    );
    it.count("readings", Some(card.samples as f64));
    it.share("utilisation", card.utilisation_mean);
    it.share("idle-share", card.idle_share);
    it.bytes("held", card.memory_peak_run.map(|peak| peak.value.0 as f64));
    it.count("temperature", card.temperature_peak_c.map(f64::from));
    it.count("clock", card.sm_clock_mean_mhz);
    // Reasons come together; the most frequent of a kind is its share at least.
    let share = |kinds: &[&str]| {
        let reasons = card.throttled.as_ref()?.iter();
        let of = reasons.filter(|(reason, _)| kinds.iter().any(|kind| reason.contains(kind)));
        Some(of.map(|(_, share)| *share).fold(0.0, f64::max))
    };
    it.share("thermal-share", share(&["thermal"]));
    it.share("power-share", share(&["power-cap"]));
    it.share("brake-share", share(&["power-brake", "hw-slowdown"]));
    figures
}

pub(super) fn out_of_memory(base: &FigureSet, told: &GpuOutOfMemory) -> FigureSet {
    let name = told.rank.map(|rank| format!("rank {rank}"));
    let mut figures = base.under(RuleSubject::CardOom, name);
    let it = &mut figures;
    let float = |bytes: Bytes| bytes.0 as f64;
    it.bytes("asked", told.asked.map(float));
    it.bytes("free", told.free.map(float));
    it.bytes("total", told.total.map(float));
    it.count("oom-step", Some(told.step as f64));
    it.text("oom-phase", told.phase.as_deref());
    it.count("oom-device", Some(f64::from(told.device)));
    if let Some(memory) = told.memory {
        let unused = memory.reserved.0.saturating_sub(memory.allocated.0);
        it.bytes("oom-allocated", Some(float(memory.allocated)));
        it.bytes("oom-reserved", Some(float(memory.reserved)));
        it.bytes("oom-unused", Some(unused as f64));
        it.flag(
            "oom-covered",
            told.asked
                .map(|asked| unused.saturating_add(told.free.map_or(0, |free| free.0)) >= asked.0),
        );
    }
    it.text("where", told.stack.first().map(String::as_str));
    if let Some(holder) = told.holders.first() {
        let who = holder.stack.first().or(holder.tensor.as_ref());
        it.text("holder", who.map(String::as_str));
        it.bytes("holder-bytes", Some(float(holder.bytes)));
    }
    it.text("snapshot", told.snapshot.as_deref());
    figures
}
