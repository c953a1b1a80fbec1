//! What a card cannot do although torch runs on it.

use sconce_schema::finding::{Certainty, Finding, Severity};
use sconce_schema::{Bytes, ComputeCapability};

use super::environment::parse_release;
use super::{CheckInput, group_gpus, variable_action};
use crate::tables;

const VOLTA: ComputeCapability = ComputeCapability::new(7, 0);
const AMPERE: ComputeCapability = ComputeCapability::new(8, 0);
const ADA: ComputeCapability = ComputeCapability::new(8, 9);

/// Whether torch of the environment uses cards at all.
fn has_cuda(case: &CheckInput<'_>) -> bool {
    case.environment
        .is_some_and(|environment| environment.torch_cuda().is_some())
}

/// torch.compile: torch refuses cards below 7.0 (torch/_dynamo/device_interface.py, read in 2.4 to
/// 2.15); Triton is tested on 8.0 and newer since 3.3 (triton-lang/triton#5066).
pub(super) fn check_torch_compile(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment.filter(|_| has_cuda(case)) else {
        return Vec::new();
    };
    let triton = environment.version("triton").and_then(parse_release);
    let finding = |kind: super::SameGpus<'_>| {
        let (name, capability) = (kind.name(), kind.capability);
        if capability < VOLTA {
            let finding = Finding::new(
                "triton-unsupported",
                Severity::Warns,
                Certainty::Certain,
                format!("torch.compile does not work on the {name}: it needs compute capability 7.0"),
            )
            .with_subject(kind.name_with_count())
            .with_evidence(kind.name(), Some("compute capability"), capability.to_string())
            .would_say(format!(
                "Found {name} which is too old to be supported by the triton GPU compiler, which is \
                 used as the backend. Triton only supports devices of CUDA Capability >= 7.0, but \
                 your device is of CUDA capability {capability}"
            ))
            .with_fix("Run without it", variable_action("TORCHDYNAMO_DISABLE", Some("1")));
            return Some(finding);
        }
        let (major, minor) = triton.filter(|triton| *triton >= (3, 3) && capability < AMPERE)?;
        let finding = Finding::new(
            "triton-unsupported",
            Severity::Notes,
            Certainty::Possible,
            format!(
                "Triton {major}.{minor} is made for compute capability 8.0 and newer; on the {name} \
                 ({capability}) torch.compile may fail or be slow"
            ),
        )
        .with_subject(kind.name_with_count())
        .with_evidence("triton-lang/triton#5066", None, "tensor cores before 8.0 were given up with 3.3");
        Some(finding)
    };
    group_gpus(case.host)
        .into_iter()
        .filter_map(finding)
        .collect()
}

/// Triton's own ptxas must know the card.
pub(super) fn check_ptxas(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let Some(version) = environment.version("triton") else {
        return Vec::new();
    };
    let Some(row) = parse_release(version).and_then(tables::find_triton_release) else {
        return Vec::new();
    };
    let finding = |kind: super::SameGpus<'_>| {
        let first = tables::gpu_architecture(kind.capability)?.first_cuda?;
        if row.ptxas >= first {
            return None;
        }
        // A release between two rows has this ptxas or a newer one.
        let exact = parse_release(version) == Some(row.release);
        let (weight, certainty, may) = match exact {
            true => (Severity::Warns, row.source.sure.certainty(), "fails"),
            false => (Severity::Notes, Certainty::Possible, "may fail"),
        };
        let sm = format!("sm_{}{}", kind.capability.major, kind.capability.minor);
        let finding = Finding::new(
            "triton-ptxas",
            weight,
            certainty,
            format!(
                "the {} needs the ptxas of CUDA {first}, and Triton {version} brings that of {}{}: \
                 torch.compile {may}",
                kind.name(),
                row.ptxas,
                if exact { "" } else { " or little newer" }
            ),
        )
        .with_subject("triton")
        .with_evidence(row.source.what, None, format!("ptxas {}", row.ptxas))
        .would_say(format!(
            "ptxas fatal   : Value '{sm}a' is not defined for option 'gpu-name'"
        ))
        .with_fix(
            format!("Use the ptxas of a CUDA toolkit from {first} on"),
            variable_action("TRITON_PTXAS_PATH", Some("/usr/local/cuda/bin/ptxas")),
        );
        Some(finding)
    };
    group_gpus(case.host)
        .into_iter()
        .filter_map(finding)
        .collect()
}

/// FlashAttention 2 and 3.
pub(super) fn check_flash_attention(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let Some((package, version)) = environment.find_first_package(&["flash-attn"]) else {
        return Vec::new();
    };
    let old = group_gpus(case.host)
        .into_iter()
        .filter(|kind| kind.capability < AMPERE);
    old.map(|kind| {
        Finding::new(
            "flash-attn-unsupported",
            Severity::Warns,
            Certainty::Certain,
            format!(
                "{package} {version} does not work on the {} ({}): it needs compute capability 8.0",
                kind.name(),
                kind.capability
            ),
        )
        .with_subject(package)
        .with_evidence("package", Some(package), version)
        .would_say("RuntimeError: FlashAttention only supports Ampere GPUs or newer.")
        .with_fix(
            "Let torch choose: torch.nn.functional.scaled_dot_product_attention, or \
             attn_implementation=\"sdpa\" with transformers",
            None,
        )
    })
    .collect()
}

/// bfloat16 and float8 in hardware.
pub(super) fn check_reduced_precision(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment.filter(|_| has_cuda(case)) else {
        return Vec::new();
    };
    let eight = environment.find_first_package(&["transformer-engine", "torchao"]);
    let mut findings = Vec::new();
    for kind in group_gpus(case.host) {
        let (name, capability) = (kind.name(), kind.capability);
        if capability < AMPERE {
            let finding = Finding::new(
                "bf16-emulated",
                Severity::Notes,
                Certainty::Certain,
                format!(
                    "the {name} ({capability}) has no bfloat16 in hardware: it is slow there{}",
                    // Tensor cores for float16 came with Volta.
                    if capability >= VOLTA {
                        ", float16 is not"
                    } else {
                        ""
                    }
                ),
            );
            findings.push(finding.with_subject(kind.name_with_count()).with_evidence(
                "NVML",
                Some("compute capability"),
                capability.to_string(),
            ));
        }
        if let Some((package, version)) = eight.filter(|_| capability < ADA) {
            let finding = Finding::new(
                "fp8-unsupported",
                Severity::Notes,
                Certainty::Certain,
                format!("the {name} ({capability}) has no float8: {package} cannot use it there"),
            )
            .with_subject(kind.name_with_count())
            .with_evidence("package", Some(package), version);
            findings.push(finding);
        }
    }
    findings
}

/// Little memory.
pub(super) fn check_gpu_memory(case: &CheckInput<'_>) -> Vec<Finding> {
    if !has_cuda(case) {
        return Vec::new();
    }
    let finding = |kind: super::SameGpus<'_>| {
        let least = kind.cards.iter().filter_map(|card| card.memory).min()?;
        if least >= Bytes::from_gib(6) {
            return None;
        }
        let finding = Finding::new(
            "card-memory",
            Severity::Notes,
            Certainty::Certain,
            format!(
                "the {} has {least}, of which CUDA and its libraries take some hundred MiB",
                kind.name()
            ),
        );
        Some(finding.with_subject(kind.name_with_count()).with_evidence(
            kind.name(),
            Some("memory"),
            least.to_string(),
        ))
    };
    group_gpus(case.host)
        .into_iter()
        .filter_map(finding)
        .collect()
}
