//! Device code of the libraries that are not torch's own.

use sconce_schema::finding::{Certainty, Finding, Weight};

use super::code::{BAD_PTX, NO_KERNEL, capabilities, file_name};
use super::reach::{driver_cuda, reached};
use super::{Case, Environment, kinds, listed, variable};
use crate::library::GpuCode;

/// Whether a file is one of NVIDIA's CUDA libraries, by its name.
fn is_nvidia(path: &str) -> bool {
    let name = file_name(path);
    let named = [
        "libcublas",
        "libcudnn",
        "libcufft",
        "libcurand",
        "libcusolver",
        "libcusparse",
        "libnccl",
        "libnpp",
        "libnvjpeg",
        "libnvshmem",
    ];
    named.iter().any(|start| name.starts_with(start))
}

/// Whether there is something to judge. cuFFT's containers are placeholders, its kernels are linked
/// at run time; a single container elsewhere is such a placeholder too.
fn is_judged(path: &str, code: &GpuCode) -> bool {
    code.containers() > 1 && !file_name(path).starts_with("libcufft")
}

/// NVIDIA's libraries: they choose among their containers themselves, so that only a card for which
/// there is nothing at all says something.
pub(super) fn nvidia(case: &Case<'_>) -> Vec<Finding> {
    let cuda = case.environment.and_then(Environment::cuda);
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
            "They come with torch's build: take one that has code for this card",
            None,
        ));
    }
    findings
}

/// Extensions: whatever is neither torch's nor NVIDIA's.
pub(super) fn extensions(case: &Case<'_>) -> Vec<Finding> {
    let cuda = case.environment.and_then(Environment::cuda);
    let driver = driver_cuda(case.host);
    let mut findings = Vec::new();
    for kind in kinds(case.host) {
        for (path, code) in case.files {
            let name = file_name(path);
            // `_C.so` says nothing without its package.
            let shown = path.rsplit_once('/').map_or(*path, |(folder, _)| {
                let package = folder.rfind('/').map_or(0, |slash| slash + 1);
                &path[package..]
            });
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
                    "{shown} {what} for the {} ({})",
                    kind.name(),
                    kind.capability
                ),
            )
            .about(shown)
            .seen(
                *path,
                Some(".nv_fatbin"),
                format!("machine code for {}", listed(&capabilities(code))),
            )
            .would_say(text)
            .mend(
                format!("Take or make a build of it for {}", kind.capability),
                variable("TORCH_CUDA_ARCH_LIST", Some(&kind.capability.to_string())),
            );
            findings.push(finding);
        }
    }
    findings
}
