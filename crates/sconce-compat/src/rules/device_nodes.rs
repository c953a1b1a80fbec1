//! Device nodes below /dev.

use sconce_schema::HostFacts;
use sconce_schema::facts::DeviceNodeFacts;
use sconce_schema::finding::{Certainty, Finding, Severity};

use super::{CheckInput, as_root, as_root_safely, card_number, is_wsl};
use sconce_base::words::quote_word;

/// The nodes, where they matter: with a driver, and not under Windows' Linux, which has /dev/dxg.
fn nodes(host: &HostFacts) -> Option<&[DeviceNodeFacts]> {
    host.driver.as_ref().filter(|_| !is_wsl(host))?;
    host.nodes.as_deref()
}

/// Whether CUDA itself starts and shows every card: whatever the nodes look like, they suffice.
fn cuda_starts(host: &HostFacts) -> bool {
    host.cuda_init.as_ref().is_some_and(|init| {
        let shown = init.devices.and_then(|count| usize::try_from(count).ok());
        init.result == Some(0) && shown.is_some_and(|count| count > 0 && count >= host.cards.len())
    })
}

fn has(nodes: &[DeviceNodeFacts], path: &str) -> bool {
    nodes.iter().any(|node| node.path == path)
}

/// The nodes of the driver or of a card are not there.
pub(super) fn check_missing_nodes(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(nodes) = nodes(case.host).filter(|_| !cuda_starts(case.host)) else {
        return Vec::new();
    };
    let absent = |path: &str, what: String| {
        Finding::new(
            "device-node-missing",
            Severity::Fails,
            Certainty::Certain,
            what,
        )
        .with_evidence(path, None, "no such file")
        .would_say("No CUDA GPUs are available")
        .with_fix("Make the nodes", as_root_safely("nvidia-modprobe -c=0 -u"))
    };
    if !has(nodes, "/dev/nvidiactl") {
        let what = "the driver is loaded but /dev/nvidiactl is not there".to_owned();
        return vec![absent("/dev/nvidiactl", what)];
    }
    let of_cards = case.host.cards.iter().filter_map(|card| {
        let path = format!("/dev/nvidia{}", card.minor?);
        let what = format!("{path} of {} is not there", card_number(case.host, card));
        (!has(nodes, &path)).then(|| absent(&path, what))
    });
    of_cards.collect()
}

/// /dev/nvidia-uvm, without which CUDA does not start.
pub(super) fn check_uvm_node(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(nodes) = nodes(case.host).filter(|_| !cuda_starts(case.host)) else {
        return Vec::new();
    };
    let modules = case
        .host
        .driver
        .as_ref()
        .and_then(|driver| driver.modules.as_ref());
    let loaded = modules.map(|modules| modules.iter().any(|module| module == "nvidia_uvm"));
    if has(nodes, "/dev/nvidia-uvm") || nodes.is_empty() {
        return Vec::new();
    }
    let mut finding = Finding::new(
        "uvm-broken",
        Severity::Fails,
        Certainty::Certain,
        "/dev/nvidia-uvm is not there; CUDA does not start without it, although nvidia-smi works",
    )
    .with_evidence("/dev/nvidia-uvm", None, "no such file")
    .would_say("CUDA unknown error - this may be due to an incorrectly set up environment")
    .with_fix(
        "Load the module and make its node",
        as_root_safely("nvidia-modprobe -u -c=0"),
    );
    if loaded == Some(false) {
        finding = finding.with_evidence("/proc/modules", None, "no nvidia_uvm");
    }
    vec![finding]
}

/// Nodes that may not be opened.
pub(super) fn check_node_access(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(nodes) = nodes(case.host) else {
        return Vec::new();
    };
    // What a run opens; nvidia-modeset and the like are for screens.
    let needed = |node: &&DeviceNodeFacts| {
        let rest = node.path.strip_prefix("/dev/nvidia").unwrap_or_default();
        matches!(rest, "ctl" | "-uvm") || rest.parse::<u32>().is_ok()
    };
    let mut findings = Vec::new();
    let shut: Vec<&DeviceNodeFacts> = nodes
        .iter()
        .filter(needed)
        .filter(|node| !node.usable)
        .collect();
    if let Some(first) = shut.first() {
        let mut finding = Finding::new(
            "permission-device",
            Severity::Fails,
            Certainty::Certain,
            format!("this user may not open {}", first.path),
        )
        .would_say("CUDA driver initialization failed, you might not have a CUDA gpu.")
        .with_fix(
            "Add the user to the group that the node belongs to, mostly `video`, and log in again",
            as_root("usermod -aG video \"$USER\""),
        );
        for node in &shut {
            finding = finding.with_evidence(
                node.path.as_str(),
                Some("mode"),
                format!("{:04o}", node.mode),
            );
        }
        findings.push(finding);
    }
    let refused = |node: &&DeviceNodeFacts| node.usable && node.open_error.is_some();
    let refused: Vec<&DeviceNodeFacts> = nodes.iter().filter(needed).filter(refused).collect();
    if let Some(first) = refused.first() {
        let mut finding = Finding::new(
            "nvml-lost-in-container",
            Severity::Fails,
            Certainty::Likely,
            format!(
                "{} may be opened by its permissions, and yet is refused: the device rules of the \
                 cgroup forbid it, mostly since systemd was reloaded on the host",
                first.path
            ),
        )
        .would_say("Failed to initialize NVML: Unknown Error")
        .with_fix("Start the container again", None)
        .with_fix(
            "So that it does not come back, make the links that systemd needs, on the host",
            as_root_safely("nvidia-ctk system create-dev-char-symlinks --create-all"),
        );
        for node in &refused {
            let error = node.open_error.clone().unwrap_or_default();
            finding = finding.with_evidence(node.path.as_str(), Some("open"), error);
        }
        findings.push(finding);
    }
    findings
}

/// Nodes without a link by their number, where systemd would look for it: it forgets a running
/// container's devices at the next `systemctl daemon-reload`, if runc gave them through it.
pub(super) fn check_char_links(case: &CheckInput<'_>) -> Vec<Finding> {
    let nodes = nodes(case.host).unwrap_or_default();
    // A container has no systemd of its own to lose anything to.
    if case.host.container.is_some() {
        return Vec::new();
    }
    let without: Vec<&DeviceNodeFacts> = nodes
        .iter()
        .filter(|node| node.char_link == Some(false))
        .collect();
    let Some(first) = without.first() else {
        return Vec::new();
    };
    let mut finding = Finding::new(
        "char-links-missing",
        Severity::Notes,
        Certainty::Possible,
        format!(
            "/dev/char/{}:{} does not lead to {}: containers whose cgroups systemd keeps (Docker's and \
             Podman's default with runc) lose the cards at `systemctl daemon-reload`",
            first.major, first.minor, first.path
        ),
    )
    .would_say("Failed to initialize NVML: Unknown Error");
    for node in &without {
        let link = format!("/dev/char/{}:{}", node.major, node.minor);
        finding = finding.with_evidence(link, None, format!("no link to {}", node.path));
    }
    vec![finding.with_fix(
        "Make the links now, and at every start of the machine: they do not stay",
        as_root_safely(&char_links(without)),
    )]
}

/// The command that makes links for nodes by their numbers.
#[must_use]
pub fn char_links<'n>(nodes: impl IntoIterator<Item = &'n DeviceNodeFacts>) -> String {
    let links = nodes.into_iter().map(|node| {
        let target = node.path.strip_prefix("/dev/").unwrap_or(&node.path);
        let target = quote_word(&format!("../{target}"));
        format!("ln -sf {target} /dev/char/{}:{}", node.major, node.minor)
    });
    links.collect::<Vec<_>>().join(" && ")
}
