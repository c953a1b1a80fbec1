//! Device code against cards.

use sconce_schema::finding::{Certainty, Finding, Weight};
use sconce_schema::{ComputeCapability, CudaVersion, HostFacts};

use super::{Case, Same, in_spec, kinds, listed, user_driver};
use crate::library::{Code, GpuCode, Reach, Target};
use crate::matrix;
use crate::tables;

const NO_KERNEL: &str = "CUDA error: no kernel image is available for execution on the device";
const BAD_PTX: &str = "CUDA error: the provided PTX was compiled with an unsupported toolchain.";

/// Cards that sit on one chip with their CPU: machine code of another minor is not theirs (CUDA C++
/// programming guide, "Binary compatibility"), before CUDA 13.2 made them one with servers.
const INTEGRATED: [ComputeCapability; 4] = [
    ComputeCapability::new(5, 3),
    ComputeCapability::new(6, 2),
    ComputeCapability::new(7, 2),
    ComputeCapability::new(8, 7),
];
const ONE_WITH_SERVERS: CudaVersion = CudaVersion::new(13, 2);

/// What of a library's device code a card can run, in containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reached {
    /// All.
    pub containers: u32,
    /// Those with machine code for the card.
    pub machine_code: u32,
    /// Those without it that have PTX, which the driver compiles at their first use.
    pub compiled: u32,
    /// Those without it whose PTX is too new for the driver.
    pub too_new: u32,
    /// The CUDA that a driver must serve to compile all PTX that is needed.
    pub needs: Option<CudaVersion>,
}

impl Reached {
    /// Containers that run.
    #[must_use]
    pub fn running(self) -> u32 {
        self.machine_code + self.compiled
    }
}

/// What of a library's device code a card can run. `driver` is the newest CUDA that the driver
/// serves, absent where that is not known; `built` is the CUDA that the library was built with.
#[must_use]
pub fn reached(
    code: &GpuCode,
    card: ComputeCapability,
    driver: Option<CudaVersion>,
    built: Option<CudaVersion>,
) -> Reached {
    let own_only = INTEGRATED.contains(&card) && built.is_none_or(|cuda| cuda < ONE_WITH_SERVERS);
    let runs = |target: &&Target| {
        target.code == Code::Sass
            && target.serves(card)
            && (!own_only || target.capability == card || target.reach == Reach::Family)
    };
    let mut reached = Reached::default();
    for kind in &code.coverage {
        reached.containers += kind.containers;
        if kind.targets.iter().any(|target| runs(&target)) {
            reached.machine_code += kind.containers;
            continue;
        }
        let ptx = kind.targets.iter().filter(|target| target.serves(card));
        let cudas = ptx.filter_map(|target| match target.code {
            Code::Ptx { major, minor } => tables::ptx_cuda(major, minor),
            Code::Sass => None,
        });
        let Some(needs) = cudas.min() else {
            continue;
        };
        reached.needs = reached.needs.max(Some(needs));
        match driver.is_some_and(|driver| driver < needs) {
            true => reached.too_new += kind.containers,
            false => reached.compiled += kind.containers,
        }
    }
    reached
}

/// The newest CUDA that the machine's driver serves.
pub(crate) fn driver_cuda(host: &HostFacts) -> Option<CudaVersion> {
    let said = host.driver.as_ref().and_then(|driver| driver.cuda);
    // A forward-compatibility library serves what it was made for, whatever the kernel module is.
    user_driver(host).and_then(tables::driver_cuda).max(said)
}

/// Whether a file is torch's own library with most of its kernels.
fn is_torch(path: &str) -> bool {
    file_name(path) == "libtorch_cuda.so"
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// torch's own code: every kernel's container must have an entry that the card can run.
pub(super) fn torch(case: &Case<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let Some(version) = environment.version("torch") else {
        return Vec::new();
    };
    let cuda = environment.cuda();
    let build = environment
        .torch()
        .zip(cuda)
        .and_then(|(torch, cuda)| torch.build(cuda));
    let own = case.files.iter().find(|(path, _)| is_torch(path));
    let (code, certainty, source, place) = match (own, build) {
        (Some((path, code)), _) if code.containers() > 0 => {
            (*code, Certainty::Certain, *path, Some(".nv_fatbin"))
        }
        // The tables know wheels for x86-64 alone.
        (_, Some(build)) if is_x86(case) => {
            let sure = build.source.sure.certainty();
            (&build.code, sure, build.source.what, None)
        }
        _ => return Vec::new(),
    };
    let driver = driver_cuda(case.host);
    let mut findings = Vec::new();
    for kind in kinds(case.host) {
        let reached = reached(code, kind.capability, driver, cuda);
        let seen = match place {
            Some(_) => format!(
                "{} of {} containers run on {}",
                reached.running(),
                reached.containers,
                kind.capability
            ),
            None => format!("machine code for {}", listed(&capabilities(code))),
        };
        if let Some(finding) = judged(case, version, &kind, reached, certainty) {
            let finding = finding.about(kind.all()).seen(source, place, seen);
            findings.push(mended(finding, case, &kind));
        }
        if own.is_none() {
            findings.extend(gaps(build, version, &kind));
        }
    }
    findings.extend(beside(case, version));
    findings
}

fn is_x86(case: &Case<'_>) -> bool {
    let of_environment = case.environment.and_then(|e| e.architecture.as_deref());
    let machine = of_environment.or(case.host.architecture.as_deref());
    machine.is_none_or(|machine| machine == "x86_64")
}

fn judged(
    case: &Case<'_>,
    version: &str,
    kind: &Same<'_>,
    reached: Reached,
    certainty: Certainty,
) -> Option<Finding> {
    let (name, capability) = (kind.name(), kind.capability);
    let needs = reached.needs.map_or(String::new(), |cuda| cuda.to_string());
    if reached.running() == 0 && reached.too_new > 0 {
        let what = format!(
            "torch {version} has only PTX for the {name} ({capability}), and this driver is too old \
             to compile it: it must serve CUDA {needs}"
        );
        let finding = Finding::new("ptx-too-new", Weight::Fails, certainty, what);
        return Some(finding.would_say(BAD_PTX));
    }
    if reached.running() == 0 {
        let what =
            format!("torch {version} has no code for the {name} (compute capability {capability})");
        let finding = Finding::new("no-kernel-image", Weight::Fails, certainty, what);
        return Some(finding.would_say(NO_KERNEL));
    }
    let without = reached.containers - reached.running();
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
        let finding = Finding::new("no-kernel-image", Weight::Warns, certainty, what);
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
        Weight::Warns,
        certainty.max(Certainty::Likely),
        what,
    ))
}

fn capabilities(code: &GpuCode) -> Vec<ComputeCapability> {
    let targets = code.coverage.iter().flat_map(|kind| &kind.targets);
    let sass = targets.filter(|target| target.code == Code::Sass);
    let mut all: Vec<ComputeCapability> = sass.map(|target| target.capability).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn mended(mut finding: Finding, case: &Case<'_>, kind: &Same<'_>) -> Finding {
    // What else is known to run on this very machine; if nothing does, on this card alone.
    let machine = std::slice::from_ref(case.host);
    let environment = case.environment;
    let same = environment
        .and_then(super::Environment::torch)
        .and_then(|torch| matrix::build_for(torch, machine));
    if let Some(choice) =
        same.filter(|choice| Some(choice.cuda) != environment.and_then(super::Environment::cuda))
    {
        finding = finding.mend(
            format!("Take {}", choice.sentence()),
            in_spec("python.packages", &choice.spec()),
        );
    }
    match matrix::newest(machine) {
        Some(choice) => finding.mend(
            format!(
                "Take the newest that runs on this machine: {}",
                choice.sentence()
            ),
            in_spec("python.packages", &choice.spec()),
        ),
        None => finding.mend(
            format!(
                "No wheel of PyTorch 2 is known to run here on {}; build it from source",
                kind.capability
            ),
            None,
        ),
    }
}

fn gaps(build: Option<&tables::Build>, version: &str, kind: &Same<'_>) -> Vec<Finding> {
    let gaps = build.map(|build| build.gaps.as_slice()).unwrap_or_default();
    let of_card = gaps.iter().filter(|gap| gap.capability == kind.capability);
    let finding = |gap: &tables::Gap| {
        let what = format!(
            "torch {version} has no code for the {} in {}",
            kind.name(),
            gap.what
        );
        Finding::new(
            "no-kernel-image",
            Weight::Warns,
            gap.source.sure.certainty().max(Certainty::Likely),
            what,
        )
        .about(kind.all())
        .seen(gap.source.what, None, gap.what)
        .would_say(NO_KERNEL)
    };
    of_card.map(finding).collect()
}

/// torch's libraries beside the main one.
fn beside(case: &Case<'_>, version: &str) -> Vec<Finding> {
    let cuda = case.environment.and_then(super::Environment::cuda);
    let driver = driver_cuda(case.host);
    let mut findings = Vec::new();
    for (path, code) in case.files {
        let name = file_name(path);
        let own = name.starts_with("libtorch_") || name.starts_with("libc10_cuda");
        if !own || is_torch(path) {
            continue;
        }
        for kind in kinds(case.host) {
            let reached = reached(code, kind.capability, driver, cuda);
            if reached.running() == reached.containers || whole_torch_fails(case, &kind) {
                continue;
            }
            let fails = match name.contains("linalg") {
                true => "parts of torch.linalg fail",
                false => "what needs it fails",
            };
            let what = format!(
                "{name} of torch {version} has code for the {} in {} of {} files: {fails}",
                kind.name(),
                reached.running(),
                reached.containers
            );
            let finding = Finding::new("no-kernel-image", Weight::Warns, Certainty::Likely, what)
                .about(kind.all())
                .seen(
                    *path,
                    Some(".nv_fatbin"),
                    format!("{} of {} containers", reached.running(), reached.containers),
                )
                .would_say(NO_KERNEL);
            findings.push(finding);
        }
    }
    findings
}

fn whole_torch_fails(case: &Case<'_>, kind: &Same<'_>) -> bool {
    let cuda = case.environment.and_then(super::Environment::cuda);
    let own = case.files.iter().find(|(path, _)| is_torch(path));
    own.is_some_and(|(_, code)| {
        let reached = reached(code, kind.capability, driver_cuda(case.host), cuda);
        reached.running() == 0
    })
}

/// Whether a file is one of NVIDIA's CUDA libraries, by its name.
fn is_nvidia(path: &str) -> bool {
    let name = file_name(path);
    let named = [
        "libcublas",
        "libcudnn",
        "libcusparse",
        "libcusolver",
        "libcurand",
        "libnccl",
    ];
    named.iter().any(|start| name.starts_with(start))
        || name.starts_with("libnvshmem")
        || name.starts_with("libcufft")
}

/// Whether there is something to judge. cuFFT's containers are placeholders, its kernels are linked
/// at run time; a single container elsewhere is such a placeholder too.
fn is_judged(path: &str, code: &GpuCode) -> bool {
    code.containers() > 1 && !file_name(path).starts_with("libcufft")
}

/// NVIDIA's libraries: they choose among their containers themselves, so that only a card for which
/// there is nothing at all says something.
pub(super) fn libraries(case: &Case<'_>) -> Vec<Finding> {
    let cuda = case.environment.and_then(super::Environment::cuda);
    let driver = driver_cuda(case.host);
    let mut findings = Vec::new();
    for kind in kinds(case.host) {
        let nothing = |path: &str, code: &GpuCode| {
            let reached = reached(code, kind.capability, driver, cuda);
            is_nvidia(path) && is_judged(path, code) && reached.running() == 0
        };
        let mut without: Vec<&str> = Vec::new();
        for (path, code) in case.files {
            if nothing(path, code) {
                without.push(path);
            }
        }
        let Some(first) = without.first() else {
            continue;
        };
        let names: Vec<&str> = without.iter().map(|path| file_name(path)).collect();
        // Sparse tensor cores are Ampere's: nobody expects that library on older cards.
        let sparse = names.iter().all(|name| name.starts_with("libcusparseLt"));
        let weight = if sparse { Weight::Notes } else { Weight::Warns };
        let what = match names.as_slice() {
            [one] => format!(
                "{one} has no code for the {} ({})",
                kind.name(),
                kind.capability
            ),
            many => format!(
                "{} CUDA libraries have no code for the {} ({}): {}",
                many.len(),
                kind.name(),
                kind.capability,
                many.join(", ")
            ),
        };
        let mut finding = Finding::new("no-kernel-image", weight, Certainty::Likely, what)
            .about(kind.all())
            .would_say(NO_KERNEL)
            .seen(
                *first,
                Some(".nv_fatbin"),
                format!("nothing for {}", kind.capability),
            );
        for path in without.iter().skip(1).take(15) {
            finding = finding.seen(*path, None, "nothing");
        }
        findings.push(finding.mend(
            "Take an environment with an older CUDA: these libraries belong to torch's build",
            None,
        ));
    }
    findings
}

/// Extensions: whatever is neither torch's nor NVIDIA's.
pub(super) fn extensions(case: &Case<'_>) -> Vec<Finding> {
    let cuda = case.environment.and_then(super::Environment::cuda);
    let driver = driver_cuda(case.host);
    let mut findings = Vec::new();
    for kind in kinds(case.host) {
        for (path, code) in case.files {
            let name = file_name(path);
            let torchs = name.starts_with("libtorch") || name.starts_with("libc10");
            let other = is_nvidia(path) || torchs || path.contains("/nvidia/");
            let reached = reached(code, kind.capability, driver, cuda);
            if other || reached.containers == 0 || reached.running() > 0 {
                continue;
            }
            let (text, what) = match reached.too_new {
                0 => (NO_KERNEL, "has no code"),
                _ => (BAD_PTX, "has only PTX, too new for this driver,"),
            };
            let finding = Finding::new(
                "no-kernel-image",
                Weight::Warns,
                Certainty::Certain,
                format!(
                    "{name} {what} for the {} ({})",
                    kind.name(),
                    kind.capability
                ),
            )
            .about(name)
            .seen(
                *path,
                Some(".nv_fatbin"),
                format!("machine code for {}", listed(&capabilities(code))),
            )
            .would_say(text)
            .mend(
                format!(
                    "Build it for {}, or leave it out on this card",
                    kind.capability
                ),
                super::variable("TORCH_CUDA_ARCH_LIST", Some(&kind.capability.to_string())),
            );
            findings.push(finding);
        }
    }
    findings
}
