//! Whether cards are well.

use std::collections::BTreeMap;

use sconce_schema::Bytes;
use sconce_schema::facts::GpuFacts;
use sconce_schema::finding::{Certainty, Finding, Fix, Severity};

use super::{CheckInput, as_root, as_user, card_number};
use crate::tables;

/// Cards that the driver lost.
pub(super) fn check_lost_gpus(case: &CheckInput<'_>) -> Vec<Finding> {
    let host = case.host;
    let starts = host
        .cuda_init
        .as_ref()
        .is_some_and(|init| init.result == Some(0));
    let others_work = starts && host.cards.iter().any(|card| card.lost.is_none());
    let finding = |card: &GpuFacts| {
        let said = card.lost.as_deref()?;
        let what = format!("the driver lost {}: {said}", card_number(host, card));
        let (weight, what) = match others_work {
            true => (
                Severity::Warns,
                format!("{what}; CUDA starts with the others"),
            ),
            false => (Severity::Fails, what),
        };
        let finding = Finding::new("card-lost", weight, Certainty::Certain, what);
        let finding = finding
            .with_subject(card_number(host, card))
            .with_evidence("NVML", card.bus_id.as_deref(), said)
            .would_say("CUDA error: unspecified launch failure")
            .with_fix("Start the machine again", as_root("systemctl reboot"))
            .with_fix(
                "If it is lost again: look at the card's power, its heat and its seat in the slot",
                None,
            );
        Some(finding)
    };
    host.cards.iter().filter_map(finding).collect()
}

/// Memory of cards that is faulty.
pub(super) fn memory_errors(case: &CheckInput<'_>) -> Vec<Finding> {
    let host = case.host;
    let mut findings = Vec::new();
    for card in &host.cards {
        let name = card_number(host, card);
        let reset = format!("nvidia-smi --gpu-reset -i {}", card.index);
        if card.remap_failed == Some(true) {
            let finding = Finding::new(
                "remap-failed",
                Severity::Fails,
                Certainty::Certain,
                format!("a faulty row in the memory of {name} could not be replaced"),
            )
            .with_evidence("NVML", Some("remapped rows, failure"), "yes")
            .with_fix("Have the card exchanged", None);
            findings.push(finding.with_subject(name.as_str()));
        } else if card.remap_pending == Some(true) {
            let finding = Finding::new(
                "remap-pending",
                Severity::Warns,
                Certainty::Certain,
                format!("a faulty row in the memory of {name} waits for a reset to be replaced"),
            )
            .with_evidence("NVML", Some("remapped rows, pending"), "yes")
            .would_say("CUDA error: uncorrectable ECC error encountered")
            .with_fix("Stop what runs on it and reset it", as_root(&reset));
            findings.push(finding.with_subject(name.as_str()));
        }
        let errors = card.ecc_uncorrected.filter(|errors| *errors > 0);
        if let Some(errors) = errors {
            let finding = Finding::new(
                "ecc-errors",
                Severity::Warns,
                Certainty::Certain,
                format!(
                    "{name} had {errors} memory errors that could not be corrected since the driver \
                     was loaded"
                ),
            )
            .with_evidence("NVML", Some("uncorrected ECC errors, volatile"), errors.to_string())
            .would_say("CUDA error: uncorrectable ECC error encountered")
            .with_fix("Stop what runs on the card and reset it", as_root(&reset))
            .with_fix("If they come back, test it", as_user("dcgmi diag -r 3"));
            findings.push(finding.with_subject(name.as_str()));
        }
    }
    findings
}

/// Faults in the kernel log.
pub(super) fn check_xids(case: &CheckInput<'_>) -> Vec<Finding> {
    let host = case.host;
    let mut by_code: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for fault in host.xids.iter().flatten() {
        by_code.entry(fault.code).or_default().push(fault);
    }
    let finding = |(code, faults): (u32, Vec<&sconce_schema::facts::Xid>)| {
        let known = tables::find_xid(code);
        let meaning = known.map_or("it is not in our table", |known| known.meaning);
        let weight = known.map_or(Severity::Warns, tables::XidEntry::fault_severity);
        // The log holds what was; a reset since then may have mended it.
        let certainty = match known {
            Some(_) => Certainty::Likely,
            None => Certainty::Possible,
        };
        let times = match faults.len() {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        let mut finding = Finding::new(
            "xid",
            weight,
            certainty,
            format!(
                "the driver reported Xid {code} {times} since the machine was started: {meaning}"
            ),
        );
        let mut places: Vec<&str> = faults.iter().filter_map(|x| x.bus_id.as_deref()).collect();
        places.sort_unstable();
        places.dedup();
        if !places.is_empty() {
            finding = finding.with_subject(format!("Xid {code} at {}", places.join(", ")));
        }
        if let Some(last) = faults.last() {
            finding = finding.with_evidence("kernel log", None, last.text.as_str());
        }
        let mends = known.map_or_else(
            || vec![tables::unknown_xid()],
            tables::XidEntry::catalog_fixes,
        );
        let add = |finding: Finding, mend: Fix| finding.with_fix(&mend.what, mend.action);
        mends.into_iter().fold(finding, add)
    };
    by_code.into_iter().map(finding).collect()
}

/// Cards whose clocks are held down.
pub(super) fn check_throttling(case: &CheckInput<'_>) -> Vec<Finding> {
    let host = case.host;
    let finding = |card: &GpuFacts| {
        let reasons = card.throttle.as_ref()?;
        let has = |part: &str| reasons.iter().any(|reason| reason.contains(part));
        let name = card_number(host, card);
        let degrees = card
            .temperature_c
            .map_or(String::new(), |t| format!(" at {t} °C"));
        let (weight, what, mend) = if has("thermal") {
            (
                Severity::Warns,
                format!("{name} is held back by its heat{degrees}"),
                "Look at its fans, its air and the room",
            )
        } else if has("power-brake") || has("hw-slowdown") {
            (
                Severity::Warns,
                format!(
                    "{name} is held back by the machine: its power supply or its heat{degrees}"
                ),
                "Look at the machine's power supply and at the card's power cables",
            )
        } else if has("power-cap") {
            (
                Severity::Notes,
                format!("{name} runs at its power limit"),
                "This is what a busy card does; a higher limit makes it faster if it has one",
            )
        } else {
            return None;
        };
        let finding = Finding::new("throttled", weight, Certainty::Certain, what)
            .with_subject(name)
            .with_evidence("NVML", Some("clocks event reasons"), reasons.join(", "))
            .with_fix(mend, None);
        Some(finding)
    };
    let low = |card: &GpuFacts| {
        let (now, usual) = (card.power_limit_mw?, card.power_limit_default_mw?);
        // A few watts are a difference between boards.
        (u64::from(now) * 10 < u64::from(usual) * 9).then(|| {
            let name = card_number(host, card);
            Finding::new(
                "power-limit-low",
                Severity::Notes,
                Certainty::Certain,
                format!(
                    "{name} may draw {} W of its usual {} W and is slower for it",
                    now / 1000,
                    usual / 1000
                ),
            )
            .with_subject(name)
            .with_evidence("NVML", Some("power limit"), format!("{now} mW"))
            .with_fix(
                "Set the usual limit, if it was not lowered on purpose",
                as_root(&format!(
                    "nvidia-smi -i {} -pl {}",
                    card.index,
                    usual / 1000
                )),
            )
        })
    };
    let cards = host.cards.iter();
    cards
        .flat_map(|card| [finding(card), low(card)])
        .flatten()
        .collect()
}

/// Cards whose memory is taken before the run.
pub(super) fn check_memory_in_use(case: &CheckInput<'_>) -> Vec<Finding> {
    let host = case.host;
    let finding = |card: &GpuFacts| {
        let (all, used) = (card.memory?, card.memory_used?);
        // The driver itself keeps some hundred MiB.
        if used.0 < all.0 / 4 || used < Bytes::from_gib(1) {
            return None;
        }
        let by_pid = card.memory_by_pid.as_ref();
        let sum = |sum: u64, bytes: &Bytes| sum.saturating_add(bytes.0);
        let listed = by_pid.map(|by_pid| by_pid.values().fold(0, sum));
        let name = card_number(host, card);
        let mut finding = Finding::new(
            "memory-taken",
            Severity::Warns,
            Certainty::Certain,
            format!("{used} of the {all} of {name} are taken already"),
        )
        .with_subject(name)
        .with_evidence("NVML", Some("memory used"), used.to_string())
        .would_say("CUDA out of memory.");
        for (pid, bytes) in by_pid.into_iter().flatten().take(8) {
            finding = finding.with_evidence(format!("process {pid}"), None, bytes.to_string());
        }
        let hidden =
            listed.is_some_and(|listed| used.0.saturating_sub(listed) > Bytes::from_gib(1).0);
        Some(match hidden {
            true => finding.with_fix(
                "See who has the card open: a process of another container or a dead one is not \
                 listed",
                as_root("fuser -v /dev/nvidia*"),
            ),
            false => finding.with_fix(
                "End those processes, or take another card",
                as_user("nvidia-smi"),
            ),
        })
    };
    host.cards.iter().filter_map(finding).collect()
}
