//! torch's own device code against cards.

use sconce_schema::ComputeCapability;
use sconce_schema::CudaVersion;
use sconce_schema::facts::GpuFacts;
use sconce_schema::finding::{Certainty, Finding, Severity};

use super::code_reach::{RunnableCode, driver_cuda, runnable_code};
use super::{
    CheckInput, EnvironmentVersions, SameGpus, TorchBackend, as_user, card_number,
    format_capabilities, gpu_capability, group_gpus, in_spec, parse_release, variable_action,
};
use crate::library::{CodeKind, GpuCode};
use crate::matrix;
use crate::tables;

pub(super) const NO_KERNEL: &str =
    "CUDA error: no kernel image is available for execution on the device";
pub(super) const BAD_PTX: &str =
    "CUDA error: the provided PTX was compiled with an unsupported toolchain.";

/// What is said of a torch whose code for a card is not known.
pub const NOT_JUDGED: &str = "torch-not-judged";

/// Whether a file is torch's own library with most of its kernels.
fn is_torch(path: &str) -> bool {
    file_name(path) == "libtorch_cuda.so"
}

pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// torch's own code: every kernel's container must have an entry that the card can run.
pub(super) fn check_torch_code(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let Some(version) = environment.version("torch") else {
        return Vec::new();
    };
    let mut findings = unknown_cards(case, environment, version);
    let cuda = environment.torch_cuda();
    let build = environment.known_build();
    let own = case.files.iter().find(|(path, _)| is_torch(path));
    let (code, certainty, source, place) = match (own, build) {
        (Some((path, code)), _) if code.container_count() > 0 => {
            (*code, Certainty::Certain, *path, Some(".nv_fatbin"))
        }
        // The tables know wheels for x86-64 alone.
        (_, Some(build)) if is_x86(case) => {
            let sure = build.source.sure.certainty();
            (&build.code, sure, build.source.what, None)
        }
        _ => {
            findings.extend(unjudged(case, environment, version));
            return findings;
        }
    };
    let driver = driver_cuda(case.host);
    for kind in group_gpus(case.host) {
        let reached = runnable_code(code, kind.capability, driver, cuda);
        let seen = match place {
            Some(_) => format!(
                "{} of {} containers run on {}",
                reached.runnable_count(),
                reached.containers,
                kind.capability
            ),
            None => format!(
                "machine code for {}",
                format_capabilities(&sass_capabilities(code))
            ),
        };
        let nothing = reached.runnable_count() == 0 && reached.too_new == 0;
        if place.is_some() && nothing && code.is_emptied_for(kind.capability) {
            let finding = Finding::new(
                "no-kernel-image",
                Severity::Fails,
                Certainty::Certain,
                format!(
                    "torch {version} has code for the {} ({}), but this copy of it does not: it was \
                     left out, as in an image made for other cards",
                    kind.name(),
                    kind.capability
                ),
            );
            let finding = finding.would_say(NO_KERNEL).with_fix(
                format!(
                    "Add the card to `build.cards` in sconce.toml (\"{}\"), or leave `build.cards` \
                     out so that the image is for every card; then build again",
                    kind.capability
                ),
                None,
            );
            findings.push(
                finding
                    .with_subject(kind.name_with_count())
                    .with_evidence(source, place, seen),
            );
        } else if place.is_some() && nothing && index_has(case, &kind) {
            findings.push(built_for_others(version, &kind).with_evidence(source, place, seen));
        } else if let Some(finding) = judged(case, version, &kind, reached, certainty) {
            let finding = finding
                .with_subject(kind.name_with_count())
                .with_evidence(source, place, seen);
            findings.push(mended(finding, case, &kind));
        }
        if own.is_none() {
            findings.extend(gaps(build, version, &kind));
        }
    }
    findings.extend(beside(case, version));
    findings
}

/// Whether it is a build that uses no CUDA: those have a finding of their own.
fn is_without_cuda(environment: &EnvironmentVersions) -> bool {
    matches!(
        environment.torch_backend(),
        Some(TorchBackend::Cpu | TorchBackend::Rocm | TorchBackend::Xpu)
    )
}

/// Whether nothing tells for which capability a card needs code; one that the driver lost tells nothing at all, and has
/// a finding of its own.
pub(crate) fn is_unknown(card: &GpuFacts) -> bool {
    card.lost.is_none() && gpu_capability(card).is_none()
}

/// Of a card that tells no compute capability, and whose name is in no table, nobody can tell whether torch has code
/// for it. Nothing else would be said of it, which reads as a yes.
fn unknown_cards(
    case: &CheckInput<'_>,
    environment: &EnvironmentVersions,
    version: &str,
) -> Vec<Finding> {
    if is_without_cuda(environment) {
        return Vec::new();
    }
    let cards = case.host.cards.iter();
    let finding = |card: &GpuFacts| {
        let name = card_number(case.host, card);
        let what = format!(
            "whether torch {version} has code for the {name} is not known: it tells no compute capability, \
             and is in no table"
        );
        Finding::new(NOT_JUDGED, Severity::Notes, Certainty::Certain, what)
            .with_subject(name)
            .with_evidence("NVML", None, "no compute capability")
            .with_fix(
                "Let the driver tell it",
                as_user("nvidia-smi --query-gpu=name,compute_cap --format=csv"),
            )
    };
    cards.filter(|card| is_unknown(card)).map(finding).collect()
}

/// Of a torch whose bytes are not here, and whose build is in no table, nobody can tell for which cards it
/// has code. Nothing else would be said of it, which reads as a yes.
fn unjudged(
    case: &CheckInput<'_>,
    environment: &EnvironmentVersions,
    version: &str,
) -> Vec<Finding> {
    if is_without_cuda(environment) {
        return Vec::new();
    }
    let of_build = match environment.torch_cuda() {
        _ if !is_x86(case) => " (only wheels for x86-64 are in the tables)".to_owned(),
        Some(cuda) => format!(" (its build for CUDA {cuda} is in no table)"),
        None => " (its build is in no table)".to_owned(),
    };
    let finding = |kind: &SameGpus<'_>| {
        // Of PyTorch 1 no table has the code; newer ones have PTX for cards to come.
        if let Some(cuda) = environment.torch_cuda()
            && parse_release(version).is_some_and(|release| release < (2, 0))
            && oldest_cuda_for(kind.capability).is_some_and(|oldest| cuda < oldest)
        {
            return older_than_the_card(case, version, cuda, kind);
        }
        let what = format!(
            "whether torch {version} has code for the {} ({}) is not known: its bytes are not here to be \
             read{of_build}",
            kind.name(),
            kind.capability
        );
        Finding::new(NOT_JUDGED, Severity::Notes, Certainty::Certain, what)
            .with_subject(kind.name_with_count())
            .with_evidence("package", Some("torch"), version)
            .with_fix(
                "Install it, and check the folder that it is installed in",
                None,
            )
    };
    group_gpus(case.host).iter().map(finding).collect()
}

/// The first CUDA whose compiler makes machine code that a capability runs, its own or that of a lower minor number:
/// the release notes of CUDA 9.0, 11.0, 11.8, 12.8 and 13.0. `None` for what none of them speaks of.
fn oldest_cuda_for(capability: ComputeCapability) -> Option<CudaVersion> {
    let (major, minor) = match capability.major {
        7 => (9, 0),
        8 => (11, 0),
        9 => (11, 8),
        10 | 12 => (12, 8),
        11 => (13, 0),
        _ => return None,
    };
    Some(CudaVersion::new(major, minor))
}

/// A torch that was built before there was such a card.
fn older_than_the_card(
    case: &CheckInput<'_>,
    version: &str,
    cuda: CudaVersion,
    kind: &SameGpus<'_>,
) -> Finding {
    let what = format!(
        "torch {version} is built with CUDA {cuda}, which is older than the {} and has no machine code for it ({})",
        kind.name(),
        kind.capability
    );
    let finding = Finding::new("no-kernel-image", Severity::Fails, Certainty::Likely, what)
        .with_subject(kind.name_with_count())
        .with_evidence("package", Some("torch"), version)
        .would_say(NO_KERNEL);
    mended(finding, case, kind)
}

fn is_x86(case: &CheckInput<'_>) -> bool {
    let of_environment = case.environment.and_then(|e| e.architecture.as_deref());
    let machine = of_environment.or(case.host.architecture.as_deref());
    machine.is_none_or(|machine| machine == "x86_64")
}

/// A torch without code that the build of its version and CUDA on the index has: somebody built it.
fn built_for_others(version: &str, kind: &SameGpus<'_>) -> Finding {
    let (name, capability) = (kind.name(), kind.capability);
    let what = format!(
        "this torch {version} has no code for the {name} (compute capability {capability}), which \
         PyTorch's own build of it has: it was built for other cards"
    );
    let finding = Finding::new("no-kernel-image", Severity::Fails, Certainty::Certain, what);
    let list = variable_action("TORCH_CUDA_ARCH_LIST", Some(&capability.to_string()));
    let public = version.split('+').next().unwrap_or(version);
    finding
        .with_subject(kind.name_with_count())
        .would_say(NO_KERNEL)
        .with_fix(
            format!("Take PyTorch's own build of torch {public}"),
            in_spec("python.packages", &format!("[\"torch=={public}\"]")),
        )
        .with_fix("Build it for this card too", list)
}

/// Whether PyTorch's own build of this torch has code for a card, by the tables.
fn index_has(case: &CheckInput<'_>, kind: &SameGpus<'_>) -> bool {
    let environment = case.environment.filter(|_| is_x86(case));
    let build = environment.and_then(EnvironmentVersions::known_build);
    build.is_some_and(|build| {
        let reached = runnable_code(&build.code, kind.capability, None, Some(build.cuda));
        reached.machine_code > 0
    })
}

fn judged(
    case: &CheckInput<'_>,
    version: &str,
    kind: &SameGpus<'_>,
    reached: RunnableCode,
    certainty: Certainty,
) -> Option<Finding> {
    let (name, capability) = (kind.name(), kind.capability);
    let needs = reached.needs.map_or(String::new(), |cuda| cuda.to_string());
    if reached.runnable_count() == 0 && reached.too_new > 0 {
        let what = format!(
            "torch {version} has only PTX for the {name} ({capability}), and this driver is too old \
             to compile it: it must serve CUDA {needs}"
        );
        let finding = Finding::new("ptx-too-new", Severity::Fails, certainty, what);
        return Some(finding.would_say(BAD_PTX));
    }
    if reached.runnable_count() == 0 {
        let what =
            format!("torch {version} has no code for the {name} (compute capability {capability})");
        let finding = Finding::new("no-kernel-image", Severity::Fails, certainty, what);
        return Some(finding.would_say(NO_KERNEL));
    }
    let without = reached.containers - reached.runnable_count();
    if without > 0 {
        let (text, why) = match reached.too_new {
            0 => (NO_KERNEL, String::new()),
            _ => (
                BAD_PTX,
                format!("; some have PTX that needs a driver of CUDA {needs}"),
            ),
        };
        let what = format!(
            "{without} of {} files of torch {version} have no code for the {name} \
             ({capability}): what they compute fails{why}",
            reached.containers
        );
        let finding = Finding::new("no-kernel-image", Severity::Warns, certainty, what);
        return Some(finding.would_say(text));
    }
    if reached.compiled == 0 {
        return None;
    }
    let known = driver_cuda(case.host).is_some();
    let what = format!(
        "torch {version} has only PTX for the {name} ({capability}): the driver compiles it, which \
         makes the first start take minutes{}",
        match known {
            true => String::new(),
            false => format!(", and needs a driver of CUDA {needs} or newer"),
        }
    );
    Some(Finding::new(
        "ptx-jit",
        Severity::Warns,
        certainty.max(Certainty::Likely),
        what,
    ))
}

pub(super) fn sass_capabilities(code: &GpuCode) -> Vec<ComputeCapability> {
    let targets = code.coverage.iter().flat_map(|kind| &kind.targets);
    let sass = targets.filter(|target| target.code == CodeKind::Sass);
    let mut all: Vec<ComputeCapability> = sass.map(|target| target.capability).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn mended(mut finding: Finding, case: &CheckInput<'_>, kind: &SameGpus<'_>) -> Finding {
    // What else is known to run on this very machine; if nothing does, on this card alone.
    let machine = std::slice::from_ref(case.host);
    let environment = case.environment;
    let same = environment
        .and_then(EnvironmentVersions::torch_release)
        .and_then(|torch| matrix::build_for(torch, machine));
    if let Some(choice) = same
        .filter(|choice| Some(choice.cuda) != environment.and_then(EnvironmentVersions::torch_cuda))
    {
        finding = finding.with_fix(
            format!("Take {}", choice.to_sentence()),
            in_spec("python.packages", &choice.spec_value()),
        );
    }
    match matrix::newest_torch_for(machine) {
        Some(choice) => finding.with_fix(
            format!(
                "Take the newest that runs on this machine: {}",
                choice.to_sentence()
            ),
            in_spec("python.packages", &choice.spec_value()),
        ),
        None => finding.with_fix(
            format!(
                "No wheel of PyTorch 2 is known to run here on {}; build it from source",
                kind.capability
            ),
            None,
        ),
    }
}

fn gaps(build: Option<&tables::TorchBuild>, version: &str, kind: &SameGpus<'_>) -> Vec<Finding> {
    let gaps = build.map(|build| build.gaps.as_slice()).unwrap_or_default();
    let of_card = gaps.iter().filter(|gap| gap.capability == kind.capability);
    let finding = |gap: &tables::BuildGap| {
        let what = format!(
            "torch {version} has no code for the {} in {}",
            kind.name(),
            gap.what
        );
        Finding::new(
            "no-kernel-image",
            Severity::Warns,
            gap.source.sure.certainty().max(Certainty::Likely),
            what,
        )
        .with_subject(kind.name_with_count())
        .with_evidence(gap.source.what, None, gap.what)
        .would_say(NO_KERNEL)
    };
    of_card.map(finding).collect()
}

/// torch's libraries beside the main one.
fn beside(case: &CheckInput<'_>, version: &str) -> Vec<Finding> {
    let cuda = case.environment.and_then(EnvironmentVersions::torch_cuda);
    let driver = driver_cuda(case.host);
    let mut findings = Vec::new();
    for (path, code) in case.files {
        let name = file_name(path);
        let own = name.starts_with("libtorch_") || name.starts_with("libc10_cuda");
        if !own || is_torch(path) {
            continue;
        }
        for kind in group_gpus(case.host) {
            let reached = runnable_code(code, kind.capability, driver, cuda);
            if reached.runnable_count() == reached.containers || whole_torch_fails(case, &kind) {
                continue;
            }
            let fails = match name.contains("linalg") {
                true => "parts of torch.linalg fail",
                false => "what needs it fails",
            };
            let what = format!(
                "{name} of torch {version} has code for the {} in {} of {} files: {fails}",
                kind.name(),
                reached.runnable_count(),
                reached.containers
            );
            let finding = Finding::new("no-kernel-image", Severity::Warns, Certainty::Likely, what)
                .with_subject(kind.name_with_count())
                .with_evidence(
                    *path,
                    Some(".nv_fatbin"),
                    format!(
                        "{} of {} containers",
                        reached.runnable_count(),
                        reached.containers
                    ),
                )
                .would_say(NO_KERNEL);
            findings.push(finding);
        }
    }
    findings
}

/// Whether torch itself has nothing for a card: what comes with it has nothing either, and is mended
/// with it.
pub(super) fn whole_torch_fails(case: &CheckInput<'_>, kind: &SameGpus<'_>) -> bool {
    let cuda = case.environment.and_then(EnvironmentVersions::torch_cuda);
    let own = case.files.iter().find(|(path, _)| is_torch(path));
    own.is_some_and(|(_, code)| {
        let reached = runnable_code(code, kind.capability, driver_cuda(case.host), cuda);
        reached.runnable_count() == 0
    })
}
