//! Container engines and the cards.

use sconce_schema::facts::CdiFileFacts;
use sconce_schema::finding::{Certainty, Finding, Severity};

use super::{CheckInput, as_root, as_root_safely, kernel_driver};
use sconce_base::words::quote_word;

/// Docker runs, and nothing hands it the cards.
pub(super) fn check_docker_runtime(case: &CheckInput<'_>) -> Vec<Finding> {
    let host = case.host;
    let docker = host
        .services
        .get("docker.service")
        .or_else(|| host.services.get("docker"));
    let has_cards = host.driver.is_some() && !host.cards.is_empty();
    if !has_cards || docker.map(String::as_str) != Some("active") {
        return Vec::new();
    }
    let start = |what: &str| {
        Finding::new(
            "docker-no-gpu-runtime",
            Severity::Notes,
            Certainty::Likely,
            what,
        )
        .with_evidence("systemctl is-active docker.service", None, "active")
        .would_say("could not select device driver \"\" with capabilities: [[gpu]]")
    };
    let configure = "nvidia-ctk runtime configure --runtime=docker && systemctl restart docker";
    let Some(toolkit) = &host.toolkit else {
        let finding = start(
            "Docker runs here, and the NVIDIA container toolkit, which gives it the cards, is not \
             installed",
        )
        .with_fix("Install nvidia-container-toolkit", None)
        .with_fix("Then tell Docker of it", as_root(configure));
        return vec![finding];
    };
    let runtimes = toolkit.docker_runtimes.as_deref();
    let knows = |runtimes: &[String]| runtimes.iter().any(|name| name.contains("nvidia"));
    // With CDI files Docker needs no runtime of NVIDIA's.
    if runtimes.is_none_or(knows) || !toolkit.cdi.is_empty() {
        return Vec::new();
    }
    let finding =
        start("the NVIDIA container toolkit is installed, but Docker does not know of it")
            .with_evidence("/etc/docker/daemon.json", Some("runtimes"), "no nvidia")
            .with_fix("Tell Docker of it", as_root(configure));
    vec![finding]
}

/// What writes a file like this one again: NVIDIA's own by its tool, Sconce's by Sconce.
fn again(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or_default();
    match name.starts_with("sconce") {
        true => "sconce cdi write --output ",
        false => "nvidia-ctk cdi generate --output=",
    }
}

/// CDI files that describe another driver, other cards, or what is no longer there.
pub(super) fn stale_cdi(case: &CheckInput<'_>) -> Vec<Finding> {
    let host = case.host;
    let kernel = kernel_driver(host);
    let finding = |file: &CdiFileFacts| {
        let other = file
            .driver
            .filter(|driver| kernel.is_some_and(|kernel| kernel != *driver));
        let what = match (&file.error, other, file.missing.as_slice()) {
            (Some(error), _, _) => format!("{} cannot be read: {error}", file.path),
            (None, Some(driver), _) => format!(
                "{} was written for driver {driver}; the loaded one is {}",
                file.path,
                kernel.map_or(String::new(), |kernel| kernel.to_string())
            ),
            (None, None, [first, ..]) => {
                format!("{} names {first}, which is not there", file.path)
            }
            (None, None, []) => format!("{}: {}", file.path, file.stale.first()?),
        };
        let mut finding = Finding::new("cdi-stale", Severity::Warns, Certainty::Certain, what)
            .with_subject(file.path.as_str());
        if let Some(driver) = file.driver {
            finding = finding.with_evidence(file.path.as_str(), Some("mounts"), driver.to_string());
        }
        for path in file.missing.iter().take(8) {
            finding = finding.with_evidence(path.as_str(), None, "no such file");
        }
        for what in file.stale.iter().take(8) {
            finding = finding.with_evidence(file.path.as_str(), None, what.as_str());
        }
        let finding = finding
            .would_say("failed to stat CDI host device: no such file or directory")
            .with_fix(
                "Write it anew",
                as_root_safely(&format!("{}{}", again(&file.path), quote_word(&file.path))),
            );
        Some(finding)
    };
    let files = host.toolkit.iter().flat_map(|toolkit| &toolkit.cdi);
    files.filter_map(finding).collect()
}
