//! Modes that cards are in, and which of them a process sees.

use sconce_schema::facts::{FabricState, FeatureState};
use sconce_schema::finding::{Certainty, Finding, Severity};

use super::{
    CheckInput, as_root, as_root_safely, card_number, format_count, forward_compatible, is_wsl,
    kernel_driver, variable_action,
};

/// Machines with NVSwitch: the cards must be registered with the fabric before CUDA starts.
pub(super) fn check_fabric_state(case: &CheckInput<'_>) -> Vec<Finding> {
    let host = case.host;
    let waits = |state: Option<FabricState>| {
        matches!(
            state,
            Some(FabricState::NotStarted | FabricState::InProgress)
        )
    };
    let waiting: Vec<_> = host
        .cards
        .iter()
        .filter(|card| waits(card.fabric))
        .collect();
    let Some(first) = waiting.first() else {
        return Vec::new();
    };
    let state = match first.fabric {
        Some(FabricState::InProgress) => "in progress",
        _ => "not started",
    };
    let service = host
        .services
        .iter()
        .find(|(unit, _)| unit.contains("fabricmanager"));
    let mut finding = Finding::new(
        "fabric-not-ready",
        Severity::Fails,
        Certainty::Certain,
        format!(
            "{} not registered with the NVLink fabric ({state})",
            match waiting.len() {
                1 => "1 card is".to_owned(),
                count => format!("{count} cards are"),
            }
        ),
    )
    .with_evidence("NVML", Some("fabric state"), state)
    .would_say("Error 802: system not yet initialized");
    if let Some((unit, state)) = service {
        finding =
            finding.with_evidence(format!("systemctl is-active {unit}"), None, state.as_str());
    }
    let version = kernel_driver(host).map_or(String::new(), |driver| format!(" {driver}"));
    let finding = finding
        .with_fix(
            "Start the fabric manager",
            as_root_safely("systemctl enable --now nvidia-fabricmanager"),
        )
        .with_fix(
            format!("If it does not start: it must have the driver's very version{version}"),
            None,
        );
    vec![finding]
}

/// Multi-instance mode.
pub(super) fn check_mig_instances(case: &CheckInput<'_>) -> Vec<Finding> {
    let host = case.host;
    let mut findings = Vec::new();
    let mut divided = 0;
    let mut all = 0;
    for card in &host.cards {
        let Some(mig) = card.mig.as_ref().filter(|mig| mig.enabled) else {
            continue;
        };
        if mig.instances.is_empty() {
            let finding = Finding::new(
                "mig-without-instance",
                Severity::Fails,
                Certainty::Certain,
                format!(
                    "{} is in multi-instance mode and has no instance, so that nothing can run on it",
                    card_number(host, card)
                ),
            )
            .with_subject(card_number(host, card))
            .with_evidence("NVML", Some("MIG mode"), "enabled, 0 instances")
            .would_say("No CUDA GPUs are available")
            .with_fix(
                "Make an instance; `nvidia-smi mig -lgip` shows which sizes there are",
                as_root(&format!("nvidia-smi mig -i {} -cgi 0 -C", card.index)),
            )
            .with_fix(
                "Or leave the mode",
                as_root(&format!("nvidia-smi -i {} -mig 0", card.index)),
            );
            findings.push(finding);
        } else {
            divided += 1;
            all += mig.instances.len();
        }
    }
    if divided > 0 {
        let finding = Finding::new(
            "mig-one-instance",
            Severity::Notes,
            Certainty::Certain,
            format!(
                "{} divided into {}: a process sees one of them only, and NCCL does not join several",
                match divided {
                    1 => "1 card is".to_owned(),
                    count => format!("{count} cards are"),
                },
                format_count(all, "instance")
            ),
        )
        .with_evidence("NVML", Some("MIG mode"), format!("{all} instances"))
        .with_fix(
            "Name the instance that a process is to have",
            variable_action("CUDA_VISIBLE_DEVICES", Some("MIG-…")),
        );
        findings.push(finding);
    }
    findings
}

/// Compute mode.
pub(super) fn check_compute_mode(case: &CheckInput<'_>) -> Vec<Finding> {
    let host = case.host;
    let finding = |card: &sconce_schema::facts::GpuFacts| {
        let (weight, certainty, what, text) = match card.compute_mode.as_deref()? {
            "prohibited" => (
                Severity::Fails,
                Certainty::Certain,
                "forbids all programs",
                "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
            ),
            "exclusive-process" | "exclusive-thread" => (
                Severity::Warns,
                Certainty::Certain,
                "takes one process only: a second one on the same card fails",
                "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
            ),
            _ => return None,
        };
        let mode = card.compute_mode.clone().unwrap_or_default();
        let finding = Finding::new(
            "exclusive-mode",
            weight,
            certainty,
            format!("{} {what} (compute mode {mode})", card_number(host, card)),
        );
        let finding = finding
            .with_subject(card_number(host, card))
            .with_evidence("NVML", Some("compute mode"), mode)
            .would_say(text)
            .with_fix(
                "Set the default mode",
                as_root(&format!("nvidia-smi -i {} -c DEFAULT", card.index)),
            );
        Some(finding)
    };
    host.cards.iter().filter_map(finding).collect()
}

/// CUDA_VISIBLE_DEVICES against the cards that there are.
pub(super) fn check_visible_devices(case: &CheckInput<'_>) -> Vec<Finding> {
    const NAME: &str = "CUDA_VISIBLE_DEVICES";
    let host = case.host;
    let Some(value) = host.variables.get(NAME) else {
        return Vec::new();
    };
    if host.cards.is_empty() {
        return Vec::new();
    }
    let mut usable = 0;
    let mut wrong = None;
    // CUDA takes the list up to the first entry that it does not know (CUDA C++ programming guide,
    // "CUDA environment variables").
    for entry in value.split(',').map(str::trim).take(256) {
        let known = match entry.parse::<i64>() {
            Ok(index) => usize::try_from(index).is_ok_and(|index| index < host.cards.len()),
            Err(_) => host.cards.iter().any(|card| is_uuid_of(card, entry)),
        };
        if !known {
            wrong = Some(entry);
            break;
        }
        usable += 1;
    }
    let Some(wrong) = wrong else {
        return Vec::new();
    };
    let what = match (usable, wrong) {
        (0, "" | "-1") => format!("{NAME} hides every card"),
        (0, wrong) => format!(
            "{NAME} begins with `{wrong}`, which this machine does not have, so that no card is seen"
        ),
        (_, wrong) => format!(
            "{NAME} names `{wrong}`, which this machine does not have: only what stands before it \
             is seen"
        ),
    };
    let weight = match usable {
        0 => Severity::Fails,
        _ => Severity::Warns,
    };
    let finding = Finding::new("invalid-device", weight, Certainty::Certain, what)
        .with_subject(NAME)
        .with_evidence(NAME, None, value.as_str())
        .with_evidence("NVML", Some("cards"), host.cards.len().to_string())
        .would_say(match usable {
            0 => "No CUDA GPUs are available",
            _ => "CUDA error: invalid device ordinal",
        })
        .with_fix(
            "Unset it, or name cards that are there",
            variable_action(NAME, None),
        );
    vec![finding]
}

/// CUDA takes the beginning of a UUID too.
fn is_uuid_of(card: &sconce_schema::facts::GpuFacts, entry: &str) -> bool {
    let instances = card.mig.iter().flat_map(|mig| &mig.instances);
    let mut all = card.uuid.iter().chain(instances);
    entry.len() > 4 && all.any(|uuid| uuid.starts_with(entry))
}

/// Persistence mode: without it a card is started and stopped with every program.
pub(super) fn check_persistence_mode(case: &CheckInput<'_>) -> Vec<Finding> {
    let host = case.host;
    let off = host.cards.iter().filter(|card| {
        card.persistence == Some(FeatureState::Off) && forward_compatible(card) == Some(true)
    });
    let off = off.count();
    if off == 0 || is_wsl(host) {
        return Vec::new();
    }
    let daemon = host
        .services
        .iter()
        .find(|(unit, _)| unit.contains("persistenced"));
    let mut finding = Finding::new(
        "persistence-off",
        Severity::Notes,
        Certainty::Certain,
        format!(
            "persistence mode is off on {}: every first use of a card takes seconds",
            format_count(off, "card")
        ),
    )
    .with_evidence("NVML", Some("persistence mode"), "off")
    .with_fix(
        "Let the persistence daemon run",
        as_root_safely("systemctl enable --now nvidia-persistenced"),
    );
    if let Some((unit, state)) = daemon {
        finding =
            finding.with_evidence(format!("systemctl is-active {unit}"), None, state.as_str());
    }
    vec![finding]
}
