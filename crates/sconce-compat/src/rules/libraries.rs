//! Device code of the libraries that are not torch's own.

use sconce_schema::finding::{Certainty, Finding, Severity};

use super::code_reach::{driver_cuda, runnable_code};
use super::device_code::{BAD_PTX, NO_KERNEL, file_name, sass_capabilities, whole_torch_fails};
use super::{CheckInput, EnvironmentVersions, format_capabilities, group_gpus, variable_action};
use crate::library::GpuCode;

/// NVIDIA's CUDA libraries with device code, by what their names begin with.
const NVIDIAS: [&str; 11] = [
    "libcublas",
    "libcudnn",
    "libcufft",
    "libcufile",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libnccl",
    "libnpp",
    "libnvjpeg",
    "libnvshmem",
];

/// Which of NVIDIA's CUDA libraries a file belongs to, by its name: `libcudnn` is nine files.
fn family(path: &str) -> Option<&'static str> {
    let name = file_name(path);
    NVIDIAS.into_iter().find(|start| name.starts_with(start))
}

fn is_nvidia(path: &str) -> bool {
    family(path).is_some()
}

/// Whether a file comes with a package that is made for one torch, and is exchanged with it.
fn comes_with_torch(path: &str) -> bool {
    let folders = ["torchvision", "torchaudio"];
    path.split('/').any(|part| folders.contains(&part))
}

/// Whether there is something to judge. cuFFT's containers are placeholders, its kernels are linked
/// at run time; a single container elsewhere is such a placeholder too.
fn is_judged(path: &str, code: &GpuCode) -> bool {
    code.container_count() > 1 && !file_name(path).starts_with("libcufft")
}

/// NVIDIA's libraries: they choose among their containers themselves, so that only a card for which
/// there is nothing at all says something.
pub(super) fn check_nvidia_libraries(case: &CheckInput<'_>) -> Vec<Finding> {
    let cuda = case.environment.and_then(EnvironmentVersions::torch_cuda);
    let driver = driver_cuda(case.host);
    let mut findings = Vec::new();
    for kind in group_gpus(case.host) {
        if whole_torch_fails(case, &kind) {
            continue;
        }
        let nothing = |path: &str, code: &GpuCode| {
            let reached = runnable_code(code, kind.capability, driver, cuda);
            is_nvidia(path) && is_judged(path, code) && reached.runnable_count() == 0
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
        // Sparse tensor cores are Ampere's: nobody expects that library on older cards. cuFile has
        // kernels for compressed files alone.
        let apart = ["libcusparseLt", "libcufile"];
        let minor = |name: &&str| apart.iter().any(|start| name.starts_with(start));
        let weight = match names.iter().all(minor) {
            true => Severity::Notes,
            false => Severity::Warns,
        };
        let what = match names.as_slice() {
            [one] => format!(
                "{one} has no code for the {} ({})",
                kind.name(),
                kind.capability
            ),
            many => {
                // The evidence has every file.
                let mut families: Vec<&str> = without.iter().filter_map(|p| family(p)).collect();
                families.sort_unstable();
                families.dedup();
                format!(
                    "{} of NVIDIA's libraries have no code for the {} ({}): files of {}",
                    many.len(),
                    kind.name(),
                    kind.capability,
                    families.join(", ")
                )
            }
        };
        let mut finding = Finding::new("no-kernel-image", weight, Certainty::Likely, what)
            .with_subject(kind.name_with_count())
            .would_say(NO_KERNEL)
            .with_evidence(
                *first,
                Some(".nv_fatbin"),
                format!("nothing for {}", kind.capability),
            );
        for path in without.iter().skip(1).take(15) {
            finding = finding.with_evidence(*path, None, "nothing");
        }
        findings.push(finding.with_fix(
            "They come with torch's build: take one that has code for this card",
            None,
        ));
    }
    findings
}

/// Extensions: whatever is neither torch's nor NVIDIA's.
pub(super) fn check_extensions(case: &CheckInput<'_>) -> Vec<Finding> {
    let cuda = case.environment.and_then(EnvironmentVersions::torch_cuda);
    let driver = driver_cuda(case.host);
    let mut findings = Vec::new();
    for kind in group_gpus(case.host) {
        for (path, device) in case.files {
            let name = file_name(path);
            // `_C.so` says nothing without its package.
            let shown = path.rsplit_once('/').map_or(*path, |(folder, _)| {
                let package = folder.rfind('/').map_or(0, |slash| slash + 1);
                &path[package..]
            });
            let torchs = name.starts_with("libtorch") || name.starts_with("libc10");
            let mut parts = path.split('/');
            let other = is_nvidia(path) || torchs || parts.any(|part| part == "nvidia");
            if comes_with_torch(path) && whole_torch_fails(case, &kind) {
                continue;
            }
            let reached = runnable_code(device, kind.capability, driver, cuda);
            if other || reached.containers == 0 || reached.runnable_count() > 0 {
                continue;
            }
            let (code, text, what) = match reached.too_new {
                0 => ("no-kernel-image", NO_KERNEL, "has no code"),
                _ => (
                    "ptx-too-new",
                    BAD_PTX,
                    "has only PTX, too new for this driver,",
                ),
            };
            let finding = Finding::new(
                code,
                Severity::Warns,
                Certainty::Certain,
                format!(
                    "{shown} {what} for the {} ({})",
                    kind.name(),
                    kind.capability
                ),
            )
            .with_subject(shown)
            .with_evidence(
                *path,
                Some(".nv_fatbin"),
                format!(
                    "machine code for {}",
                    format_capabilities(&sass_capabilities(device))
                ),
            )
            .would_say(text)
            .with_fix(
                format!("Take or make a build of it for {}", kind.capability),
                variable_action("TORCH_CUDA_ARCH_LIST", Some(&kind.capability.to_string())),
            );
            findings.push(finding);
        }
    }
    findings
}
