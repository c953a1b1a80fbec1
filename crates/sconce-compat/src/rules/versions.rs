//! Whether the packages of an environment belong together.

use sconce_schema::CudaVersion;
use sconce_schema::finding::{Certainty, Finding, Severity};

use super::environment::{local_cuda, parse_release, parse_version_numbers};
use super::{CheckInput, EnvironmentVersions, TorchBackend, in_spec};
use crate::tables;

/// torch that has no CUDA, on a machine with cards.
pub(super) fn cpu_build(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let Some(version) = environment.version("torch") else {
        return Vec::new();
    };
    let what = match environment.torch_backend() {
        Some(TorchBackend::Cpu) => "for CPUs alone",
        Some(TorchBackend::Rocm) => "for AMD cards",
        Some(TorchBackend::Xpu) => "for Intel cards",
        _ => return Vec::new(),
    };
    if case.host.cards.is_empty() {
        return Vec::new();
    }
    let public = environment.torch_version().unwrap_or(version);
    let certainty = match version.contains('+') || environment.torch_build.is_some() {
        true => Certainty::Certain,
        false => Certainty::Likely,
    };
    let mut finding = Finding::new(
        "torch-without-cuda",
        Severity::Fails,
        certainty,
        format!("torch {version} is built {what}: it does not see the cards"),
    )
    .with_subject("torch");
    if environment.torch_build.is_some() {
        finding = finding.with_evidence("torch/version.py", Some("cuda"), "None");
    }
    let finding = finding
    .with_evidence("package", Some("torch"), version)
    .would_say("AssertionError: Torch not compiled with CUDA enabled")
    .with_fix(
        "Ask for the build of the default index, and see that no other index gives the one for CPUs",
        in_spec("python.packages", &format!("[\"torch=={public}\"]")),
    );
    vec![finding]
}

/// torchvision of another torch.
pub(super) fn check_torchvision(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let (Some(torch), Some(version)) = (
        environment.torch_release(),
        environment.version("torchvision"),
    ) else {
        return Vec::new();
    };
    let Some((0, minor)) = parse_release(version) else {
        return Vec::new();
    };
    let fits = minor == torch.vision || (torch.vision_onward && minor > torch.vision);
    if !fits {
        let wanted = format!("0.{}", torch.vision);
        let finding = pair(environment, "torchvision", version, &wanted);
        return vec![ask_for(finding, "torchvision", &wanted)];
    }
    builds_differ(environment, "torchvision", version)
        .into_iter()
        .collect()
}

/// From it on one torchaudio serves all later torches.
const MIN_SHARED_AUDIO_RELEASE: (u32, u32) = (2, 11);

/// torchaudio of another torch.
pub(super) fn check_torchaudio(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let (Some(torch), Some(version)) = (
        environment.torch_release(),
        environment.version("torchaudio"),
    ) else {
        return Vec::new();
    };
    let Some(of) = parse_release(version) else {
        return Vec::new();
    };
    let fits = of == torch.release
        || (torch.release >= MIN_SHARED_AUDIO_RELEASE && of >= MIN_SHARED_AUDIO_RELEASE);
    if !fits {
        let of = torch.release.min(MIN_SHARED_AUDIO_RELEASE);
        let wanted = format!("{}.{}", of.0, of.1);
        let finding = pair(environment, "torchaudio", version, &wanted);
        let own = tables::find_torch_release(of).map(|torch| torch.cuda);
        return match (own, environment.torch_cuda()) {
            (Some(own), Some(cuda)) if own != cuda => {
                let beside = format!(", \"torchaudio=={wanted}.*\"");
                vec![other_cuda(finding, own, cuda, of, &beside)]
            }
            _ => vec![ask_for(finding, "torchaudio", &wanted)],
        };
    }
    let differ = builds_differ(environment, "torchaudio", version);
    let differ = differ.or_else(|| audio_cuda(environment, version, of));
    differ.into_iter().collect()
}

/// torchaudio compares its own CUDA with torch's when it is imported, minor version included
/// (`torchaudio/_extension/utils.py`, read in 2.11.0). One without a local version is taken for the
/// default index's, which is built as the torch of its release is.
fn audio_cuda(environment: &EnvironmentVersions, version: &str, of: (u32, u32)) -> Option<Finding> {
    let own = match version.split_once('+') {
        Some((_, local)) => local_cuda(local)?,
        None => tables::find_torch_release(of)?.cuda,
    };
    let cuda = environment.torch_cuda()?;
    if own == cuda {
        return None;
    }
    let torch = environment.version("torch")?;
    let finding = Finding::new(
        "torchvision-mismatch",
        Severity::Fails,
        Certainty::Likely,
        format!("torchaudio {version} is built for CUDA {own}, torch {torch} for {cuda}: it does not import"),
    )
    .with_subject("torchaudio")
    .with_evidence("package", Some("torchaudio"), version)
    .with_evidence("package", Some("torch"), format!("{torch}, CUDA {cuda}"))
    .would_say(format!(
        "RuntimeError: Detected that PyTorch and TorchAudio were compiled with different CUDA versions. \
         PyTorch has CUDA version {cuda} whereas TorchAudio has CUDA version {own}. Please install the \
         TorchAudio version that matches your PyTorch version."
    ));
    Some(other_cuda(finding, own, cuda, of, ""))
}

/// The mends of a torchaudio that is built for `own`, beside a torch for `cuda`: a torch from release
/// `of` on that is built for the same, with what else the spec then has to name (`beside`), or
/// another build of torchaudio.
fn other_cuda(
    mut finding: Finding,
    own: CudaVersion,
    cuda: CudaVersion,
    of: (u32, u32),
    beside: &str,
) -> Finding {
    let mut newest_first = tables::torch_releases().iter().rev();
    let fits = |torch: &&tables::TorchRelease| torch.cuda == own && torch.release >= of;
    if let Some(fitting) = newest_first.find(fits) {
        let value = format!("[\"torch=={}\"{beside}]", fitting.newest);
        finding = finding.with_fix(
            format!("Take the newest torch that is built for CUDA {own}"),
            in_spec("python.packages", &value),
        );
    }
    finding.with_fix(
        format!(
            "Take a torchaudio for CUDA {cuda} from PyTorch's own index cu{}{}, if it has one",
            cuda.major, cuda.minor
        ),
        None,
    )
}

fn pair(environment: &EnvironmentVersions, name: &str, version: &str, wanted: &str) -> Finding {
    let torch = environment.version("torch").unwrap_or_default();
    Finding::new(
        "torchvision-mismatch",
        Severity::Fails,
        Certainty::Certain,
        format!("{name} {version} was built for another torch; {torch} goes with {name} {wanted}"),
    )
    .with_subject(name)
    .with_evidence("package", Some(name), version)
    .with_evidence("package", Some("torch"), torch)
    .would_say(match name {
        "torchvision" => "RuntimeError: operator torchvision::nms does not exist",
        _ => "OSError: undefined symbol (libtorchaudio.so)",
    })
}

fn ask_for(finding: Finding, name: &str, wanted: &str) -> Finding {
    finding.with_fix(
        format!("Ask for the {name} that goes with this torch"),
        in_spec("python.packages", &format!("[\"{name}=={wanted}.*\"]")),
    )
}

/// `0.23.0+cpu` beside `2.8.0+cu128`.
fn builds_differ(environment: &EnvironmentVersions, name: &str, version: &str) -> Option<Finding> {
    let torch = environment.version("torch")?;
    let local = |version: &str| version.split_once('+').map(|(_, local)| local.to_owned());
    let (own, of_torch) = (local(version)?, local(torch)?);
    if own == of_torch {
        return None;
    }
    let finding = Finding::new(
        "torchvision-mismatch",
        Severity::Warns,
        Certainty::Likely,
        format!("{name} is built for {own}, torch for {of_torch}: its operators do not run on cards"),
    )
    .with_subject(name)
    .with_evidence("package", Some(name), version)
    .with_evidence("package", Some("torch"), torch)
    .would_say("NotImplementedError: Could not run 'torchvision::nms' with arguments from the 'CUDA' backend")
    .with_fix("Take both from the same index", in_spec("python.extra-index", "[\"…\"]"));
    Some(finding)
}

/// What torch pins, for the very version that the table has.
struct Pins {
    cudnn: Option<&'static str>,
    nccl: Option<&'static str>,
    triton: &'static str,
    source: &'static str,
}

fn pins(environment: &EnvironmentVersions) -> Option<Pins> {
    let torch = environment.torch_release()?;
    // Another patch release may pin others.
    if environment.torch_version() != Some(torch.newest) {
        return None;
    }
    let cuda = environment.torch_cuda()?;
    let build = torch.find_build(cuda)?;
    let default = cuda == torch.cuda;
    Some(Pins {
        cudnn: build.cudnn.or(default.then_some(torch.cudnn)),
        nccl: build.nccl.or(default.then_some(torch.nccl)),
        triton: torch.triton,
        source: torch.source.what,
    })
}

/// cuDNN against what torch was built with.
pub(super) fn check_cudnn(case: &CheckInput<'_>) -> Vec<Finding> {
    let names = [
        "nvidia-cudnn-cu13",
        "nvidia-cudnn-cu12",
        "nvidia-cudnn-cu11",
    ];
    let Some((environment, pins)) = case.environment.and_then(|e| Some((e, pins(e)?))) else {
        return Vec::new();
    };
    let (Some((name, version)), Some(wanted)) =
        (environment.find_first_package(&names), pins.cudnn)
    else {
        return Vec::new();
    };
    if version == wanted {
        return Vec::new();
    }
    // A newer cuDNN of the same major serves programs of an older one; not the other way (NVIDIA
    // cuDNN, API compatibility).
    let major = parse_version_numbers(version).first() == parse_version_numbers(wanted).first();
    let newer = major && parse_version_numbers(version) > parse_version_numbers(wanted);
    let weight = match (major, newer) {
        (true, true) => Severity::Notes,
        (true, false) => Severity::Warns,
        (false, _) => Severity::Fails,
    };
    vec![pinned(environment, "cudnn-mismatch", weight, name, version, wanted, &pins).would_say(
        match major {
            true => "RuntimeError: cuDNN version incompatibility: PyTorch was compiled against another version",
            false => "libcudnn.so: cannot open shared object file: No such file or directory",
        },
    )]
}

/// NCCL against what torch was built with.
pub(super) fn check_nccl(case: &CheckInput<'_>) -> Vec<Finding> {
    let names = ["nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"];
    let Some((environment, pins)) = case.environment.and_then(|e| Some((e, pins(e)?))) else {
        return Vec::new();
    };
    let (Some((name, version)), Some(wanted)) = (environment.find_first_package(&names), pins.nccl)
    else {
        return Vec::new();
    };
    if version == wanted {
        return Vec::new();
    }
    let older = parse_version_numbers(version) < parse_version_numbers(wanted);
    let weight = if older {
        Severity::Warns
    } else {
        Severity::Notes
    };
    let finding = pinned(
        environment,
        "nccl-version",
        weight,
        name,
        version,
        wanted,
        &pins,
    );
    match older {
        true => vec![finding.would_say("undefined symbol: nccl…")],
        false => vec![finding],
    }
}

/// Triton against what torch was built with.
pub(super) fn check_triton(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some((environment, pins)) = case.environment.and_then(|e| Some((e, pins(e)?))) else {
        return Vec::new();
    };
    let Some(version) = environment.version("triton") else {
        return Vec::new();
    };
    if parse_release(version) == parse_release(pins.triton) {
        return Vec::new();
    }
    vec![
        pinned(
            environment,
            "triton-version",
            Severity::Warns,
            "triton",
            version,
            pins.triton,
            &pins,
        )
        .would_say("ImportError from torch/_inductor/runtime/triton_heuristics.py"),
    ]
}

fn pinned(
    environment: &EnvironmentVersions,
    code: &str,
    weight: Severity,
    name: &str,
    version: &str,
    wanted: &str,
    pins: &Pins,
) -> Finding {
    let torch = environment.version("torch").unwrap_or_default();
    Finding::new(
        code,
        weight,
        Certainty::Likely,
        format!("{name} is {version}; torch {torch} was built and tested with {wanted}"),
    )
    .with_subject(name)
    .with_evidence("package", Some(name), version)
    .with_evidence(pins.source, Some("Requires-Dist"), wanted)
    .with_fix(
        "Let torch choose it, or ask for that version",
        in_spec("python.packages", &format!("[\"{name}=={wanted}\"]")),
    )
}

/// nvJitLink, whose symbols cuSPARSE asks for by the version of the toolkit.
pub(super) fn jit_link(case: &CheckInput<'_>) -> Vec<Finding> {
    let names = [
        "nvidia-nvjitlink",
        "nvidia-nvjitlink-cu13",
        "nvidia-nvjitlink-cu12",
    ];
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let Some((name, version)) = environment.find_first_package(&names) else {
        return Vec::new();
    };
    let (Some(cuda), Some(of)) = (environment.torch_cuda(), parse_release(version)) else {
        return Vec::new();
    };
    if of >= (cuda.major, cuda.minor) {
        return Vec::new();
    }
    // From CUDA 13 on cuSPARSE and cuFFT open it when they first link code, and ask for no version:
    // torch 2.15 starts with one of 13.0.
    if cuda.major >= 13 {
        let what = format!(
            "{name} {version} is older than torch's CUDA {cuda}: what cuSPARSE and cuFFT link at run \
             time may fail"
        );
        let finding = Finding::new(
            "nvjitlink-older",
            Severity::Warns,
            Certainty::Possible,
            what,
        );
        let value = format!("[\"{name}>={cuda}\"]");
        return vec![
            finding
                .with_subject(name)
                .with_evidence("package", Some(name), version)
                .with_evidence("package", Some("torch"), format!("CUDA {cuda}"))
                .with_fix(
                    "Ask for one of this CUDA or newer",
                    in_spec("python.packages", &value),
                ),
        ];
    }
    let finding = Finding::new(
        "nvjitlink-stolen",
        Severity::Fails,
        Certainty::Likely,
        format!("{name} {version} is older than the CUDA {cuda} that cuSPARSE is of"),
    )
    .with_subject(name)
    .with_evidence("package", Some(name), version)
    .with_evidence("package", Some("torch"), format!("CUDA {cuda}"))
    .would_say(format!(
        "undefined symbol: __nvJitLinkComplete_{}_{}, version libnvJitLink.so.{}",
        cuda.major, cuda.minor, cuda.major
    ))
    .with_fix(
        "Ask for one of this CUDA or newer",
        in_spec("python.packages", &format!("[\"{name}>={cuda}\"]")),
    );
    vec![finding]
}
