//! How cards reach each other.

use sconce_schema::facts::GpuFacts;
use sconce_schema::finding::{Certainty, Finding, Severity};

use super::{CheckInput, as_root, is_wsl, variable_action};

/// Several cards without NVLink, and something on the PCI bus that redirects what they send each
/// other.
pub(super) fn check_peer_access(case: &CheckInput<'_>) -> Vec<Finding> {
    let host = case.host;
    let linked = |card: &GpuFacts| card.nvlinks.as_ref().is_some_and(|links| !links.is_empty());
    let unlinked = host.cards.iter().filter(|card| !linked(card)).count();
    let Some(iommu) = host
        .iommu
        .as_ref()
        .filter(|_| unlinked > 1 && !is_wsl(host))
    else {
        return Vec::new();
    };
    let bridges = iommu.acs_bridges.as_deref().unwrap_or_default();
    let passes = iommu
        .parameters
        .iter()
        .any(|parameter| parameter == "iommu=pt");
    let translates = iommu.active == Some(true) && !passes;
    if bridges.is_empty() && !translates {
        return Vec::new();
    }
    let what = match (bridges.is_empty(), translates) {
        (false, _) => format!(
            "{} set to redirect what the cards send each other (ACS): NCCL may hang or be slow",
            match bridges.len() {
                1 => "1 PCI bridge is".to_owned(),
                count => format!("{count} PCI bridges are"),
            }
        ),
        (true, _) => {
            "the IOMMU translates what the cards send each other: NCCL may hang or be slow"
                .to_owned()
        }
    };
    let mut finding = Finding::new("nccl-p2p", Severity::Warns, Certainty::Possible, what)
        .would_say("Watchdog caught collective operation timeout: WorkNCCL");
    if translates {
        let parameters = match iommu.parameters.as_slice() {
            [] => "no parameter about it".to_owned(),
            parameters => parameters.join(" "),
        };
        finding = finding
            .with_evidence("/proc/cmdline", None, parameters)
            .with_fix(
                "Start the kernel with `iommu=pt`, in /etc/default/grub",
                as_root("update-grub"),
            );
    }
    for bridge in bridges.iter().take(8) {
        finding = finding.with_evidence("lspci", Some("ACSCtl"), bridge.as_str());
    }
    if !bridges.is_empty() {
        finding = finding.with_fix(
            "Switch ACS off in the machine's firmware, or on each bridge",
            None,
        );
    }
    let finding = finding.with_fix(
        "Until then, let NCCL go through main memory",
        variable_action("NCCL_P2P_DISABLE", Some("1")),
    );
    vec![finding]
}
