//! Whether the packages of an environment belong together.

use sconce_schema::finding::{Certainty, Finding, Weight};

use super::environment::{numbers, release};
use super::{Build, Case, Environment, in_spec};

/// torch that has no CUDA, on a machine with cards.
pub(super) fn cpu_build(case: &Case<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let Some(version) = environment.version("torch") else {
        return Vec::new();
    };
    let what = match environment.build() {
        Some(Build::Cpu) => "for CPUs alone",
        Some(Build::Rocm) => "for AMD cards",
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
    let finding = Finding::new(
        "torch-without-cuda",
        Weight::Fails,
        certainty,
        format!("torch {version} is built {what}: it does not see the cards"),
    )
    .about("torch")
    .seen("package", Some("torch"), version)
    .would_say("AssertionError: Torch not compiled with CUDA enabled")
    .mend(
        "Ask for the build of the default index, and see that no other index gives the one for CPUs",
        in_spec("python.packages", &format!("[\"torch=={public}\"]")),
    );
    vec![finding]
}

/// torchvision of another torch.
pub(super) fn vision(case: &Case<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let (Some(torch), Some(version)) = (environment.torch(), environment.version("torchvision"))
    else {
        return Vec::new();
    };
    let Some((0, minor)) = release(version) else {
        return Vec::new();
    };
    let fits = minor == torch.vision || (torch.vision_onward && minor > torch.vision);
    if !fits {
        return vec![pair(
            environment,
            "torchvision",
            version,
            &format!("0.{}", torch.vision),
        )];
    }
    builds_differ(environment, "torchvision", version)
        .into_iter()
        .collect()
}

/// torchaudio of another torch. From 2.11 on one torchaudio serves all later torches.
pub(super) fn audio(case: &Case<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let (Some(torch), Some(version)) = (environment.torch(), environment.version("torchaudio"))
    else {
        return Vec::new();
    };
    let Some(of) = release(version) else {
        return Vec::new();
    };
    let fits = of == torch.release || (torch.release >= (2, 11) && of >= (2, 11));
    if !fits {
        let (major, minor) = torch.release.min((2, 11));
        return vec![pair(
            environment,
            "torchaudio",
            version,
            &format!("{major}.{minor}"),
        )];
    }
    builds_differ(environment, "torchaudio", version)
        .into_iter()
        .collect()
}

fn pair(environment: &Environment, name: &str, version: &str, wanted: &str) -> Finding {
    let torch = environment.version("torch").unwrap_or_default();
    Finding::new(
        "torchvision-mismatch",
        Weight::Fails,
        Certainty::Certain,
        format!("{name} {version} was built for another torch; {torch} goes with {name} {wanted}"),
    )
    .about(name)
    .seen("package", Some(name), version)
    .seen("package", Some("torch"), torch)
    .would_say(match name {
        "torchvision" => "RuntimeError: operator torchvision::nms does not exist",
        _ => "OSError: undefined symbol (libtorchaudio.so)",
    })
    .mend(
        format!("Ask for the {name} that goes with this torch"),
        in_spec("python.packages", &format!("[\"{name}=={wanted}.*\"]")),
    )
}

/// `0.23.0+cpu` beside `2.8.0+cu128`.
fn builds_differ(environment: &Environment, name: &str, version: &str) -> Option<Finding> {
    let torch = environment.version("torch")?;
    let local = |version: &str| version.split_once('+').map(|(_, local)| local.to_owned());
    let (own, of_torch) = (local(version)?, local(torch)?);
    if own == of_torch {
        return None;
    }
    let finding = Finding::new(
        "torchvision-mismatch",
        Weight::Warns,
        Certainty::Likely,
        format!("{name} is built for {own}, torch for {of_torch}: its operators do not run on cards"),
    )
    .about(name)
    .seen("package", Some(name), version)
    .seen("package", Some("torch"), torch)
    .would_say("NotImplementedError: Could not run 'torchvision::nms' with arguments from the 'CUDA' backend")
    .mend("Take both from the same index", in_spec("python.extra-index", "[\"…\"]"));
    Some(finding)
}

/// What torch pins, for the very version that the table has.
struct Pins {
    cudnn: Option<&'static str>,
    nccl: Option<&'static str>,
    triton: &'static str,
    source: &'static str,
}

fn pins(environment: &Environment) -> Option<Pins> {
    let torch = environment.torch()?;
    // Another patch release may pin others.
    if environment.torch_version() != Some(torch.newest) {
        return None;
    }
    let cuda = environment.cuda()?;
    let build = torch.build(cuda)?;
    let default = cuda == torch.cuda;
    Some(Pins {
        cudnn: build.cudnn.or(default.then_some(torch.cudnn)),
        nccl: build.nccl.or(default.then_some(torch.nccl)),
        triton: torch.triton,
        source: torch.source.what,
    })
}

/// cuDNN against what torch was built with.
pub(super) fn cudnn(case: &Case<'_>) -> Vec<Finding> {
    let names = [
        "nvidia-cudnn-cu13",
        "nvidia-cudnn-cu12",
        "nvidia-cudnn-cu11",
    ];
    let Some((environment, pins)) = case.environment.and_then(|e| Some((e, pins(e)?))) else {
        return Vec::new();
    };
    let (Some((name, version)), Some(wanted)) = (environment.first(&names), pins.cudnn) else {
        return Vec::new();
    };
    if version == wanted {
        return Vec::new();
    }
    // A newer cuDNN of the same major serves programs of an older one; not the other way (NVIDIA
    // cuDNN, API compatibility).
    let major = numbers(version).first() == numbers(wanted).first();
    let newer = major && numbers(version) > numbers(wanted);
    let weight = match (major, newer) {
        (true, true) => Weight::Notes,
        (true, false) => Weight::Warns,
        (false, _) => Weight::Fails,
    };
    vec![pinned(environment, "cudnn-mismatch", weight, name, version, wanted, &pins).would_say(
        match major {
            true => "RuntimeError: cuDNN version incompatibility: PyTorch was compiled against another version",
            false => "libcudnn.so: cannot open shared object file: No such file or directory",
        },
    )]
}

/// NCCL against what torch was built with.
pub(super) fn nccl(case: &Case<'_>) -> Vec<Finding> {
    let names = ["nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"];
    let Some((environment, pins)) = case.environment.and_then(|e| Some((e, pins(e)?))) else {
        return Vec::new();
    };
    let (Some((name, version)), Some(wanted)) = (environment.first(&names), pins.nccl) else {
        return Vec::new();
    };
    if version == wanted {
        return Vec::new();
    }
    let older = numbers(version) < numbers(wanted);
    let weight = if older { Weight::Warns } else { Weight::Notes };
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
pub(super) fn triton(case: &Case<'_>) -> Vec<Finding> {
    let Some((environment, pins)) = case.environment.and_then(|e| Some((e, pins(e)?))) else {
        return Vec::new();
    };
    let Some(version) = environment.version("triton") else {
        return Vec::new();
    };
    if release(version) == release(pins.triton) {
        return Vec::new();
    }
    vec![
        pinned(
            environment,
            "triton-version",
            Weight::Warns,
            "triton",
            version,
            pins.triton,
            &pins,
        )
        .would_say("ImportError from torch/_inductor/runtime/triton_heuristics.py"),
    ]
}

fn pinned(
    environment: &Environment,
    code: &str,
    weight: Weight,
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
    .about(name)
    .seen("package", Some(name), version)
    .seen(pins.source, Some("Requires-Dist"), wanted)
    .mend(
        "Let torch choose it, or ask for that version",
        in_spec("python.packages", &format!("[\"{name}=={wanted}\"]")),
    )
}

/// nvJitLink, whose symbols cuSPARSE asks for by the version of the toolkit.
pub(super) fn jit_link(case: &Case<'_>) -> Vec<Finding> {
    let names = [
        "nvidia-nvjitlink",
        "nvidia-nvjitlink-cu13",
        "nvidia-nvjitlink-cu12",
    ];
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let Some((name, version)) = environment.first(&names) else {
        return Vec::new();
    };
    let (Some(cuda), Some(of)) = (environment.cuda(), release(version)) else {
        return Vec::new();
    };
    if of >= (cuda.major, cuda.minor) {
        return Vec::new();
    }
    let finding = Finding::new(
        "nvjitlink-stolen",
        Weight::Fails,
        Certainty::Likely,
        format!("{name} {version} is older than the CUDA {cuda} that cuSPARSE is of"),
    )
    .about(name)
    .seen("package", Some(name), version)
    .seen("package", Some("torch"), format!("CUDA {cuda}"))
    .would_say(format!(
        "undefined symbol: __nvJitLinkComplete_{}_{}, version libnvJitLink.so.{}",
        cuda.major, cuda.minor, cuda.major
    ))
    .mend(
        "Ask for one of this CUDA or newer",
        in_spec("python.packages", &format!("[\"{name}>={cuda}\"]")),
    );
    vec![finding]
}

/// A wheel's tags: Pythons, interfaces and platforms that it is for, each alternatives.
struct Tags<'a> {
    python: Vec<&'a str>,
    abi: Vec<&'a str>,
    platform: Vec<&'a str>,
}

/// The last three parts of a wheel's file name (binary distribution format, "File name convention").
fn tags(file: &str) -> Option<Tags<'_>> {
    let stem = file.strip_suffix(".whl")?;
    let mut parts = stem.rsplitn(4, '-');
    let (platform, abi, python) = (parts.next()?, parts.next()?, parts.next()?);
    parts.next()?;
    Some(Tags {
        python: python.split('.').collect(),
        abi: abi.split('.').collect(),
        platform: platform.split('.').collect(),
    })
}

fn each_wheel<'a>(
    environment: &'a Environment,
) -> impl Iterator<Item = (&'a str, &'a str, Tags<'a>)> {
    environment.packages.iter().filter_map(|(name, package)| {
        let file = package.file.as_deref()?;
        Some((name.as_str(), file, tags(file)?))
    })
}

/// Wheels for another Python.
pub(super) fn python(case: &Case<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let Some((major, minor)) = environment.python.as_deref().and_then(release) else {
        return Vec::new();
    };
    let own = format!("cp{major}{minor}");
    let fits = |tags: &Tags<'_>| {
        let stable = tags.abi.contains(&"abi3");
        tags.python.iter().any(|tag| {
            if let Some(rest) = tag.strip_prefix("py") {
                return rest.starts_with(&major.to_string());
            }
            // The stable interface serves later Pythons too.
            let number = |tag: &str| tag.strip_prefix("cp3").and_then(|rest| rest.parse().ok());
            *tag == own || (stable && number(tag).is_some_and(|of: u32| of <= minor))
        })
    };
    let wrong = each_wheel(environment).filter(|(_, _, tags)| !fits(tags));
    wrong
        .map(|(name, file, tags)| {
            Finding::new(
                "python-abi",
                Weight::Fails,
                Certainty::Certain,
                format!(
                    "the wheel of {name} is for {}; the environment has Python {major}.{minor}",
                    tags.python.join(", ")
                ),
            )
            .about(name)
            .seen("wheel", Some(name), file)
            .would_say(format!("ModuleNotFoundError: No module named '{name}._C'"))
            .mend("Resolve again", super::as_user("sconce lock"))
        })
        .collect()
}

/// Wheels for another processor.
pub(super) fn machine_code(case: &Case<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let host = case.host.architecture.as_deref();
    let Some(wanted) = environment.architecture.as_deref().or(host) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    if let Some(host) = host.filter(|host| *host != wanted) {
        let finding = Finding::new(
            "python-abi",
            Weight::Fails,
            Certainty::Certain,
            format!("the environment is made for {wanted}, the machine is {host}"),
        )
        .would_say("exec format error");
        findings.push(finding.seen("uname -m", None, host));
    }
    let fits = |tags: &Tags<'_>| {
        let mut platforms = tags.platform.iter();
        platforms.any(|platform| *platform == "any" || platform.ends_with(wanted))
    };
    for (name, file, _) in each_wheel(environment).filter(|(_, _, tags)| !fits(tags)) {
        let finding = Finding::new(
            "python-abi",
            Weight::Fails,
            Certainty::Certain,
            format!("the wheel of {name} is not for {wanted}"),
        )
        .about(name)
        .seen("wheel", Some(name), file)
        .would_say("cannot open shared object file: wrong ELF class or machine")
        .mend("Resolve again", super::as_user("sconce lock"));
        findings.push(finding);
    }
    findings
}

/// Wheels that ask for a newer C library than the environment has.
pub(super) fn glibc(case: &Case<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let Some(own) = environment.glibc.as_deref().and_then(release) else {
        return Vec::new();
    };
    let needs = |tags: &Tags<'_>| tags.platform.iter().filter_map(|tag| manylinux(tag)).min();
    let wrong = each_wheel(environment).filter_map(|(name, file, tags)| {
        let needs = needs(&tags).filter(|needs| *needs > own)?;
        Some((name, file, needs))
    });
    wrong
        .map(|(name, file, (major, minor))| {
            Finding::new(
                "glibc-too-old",
                Weight::Fails,
                Certainty::Certain,
                format!(
                    "the wheel of {name} needs glibc {major}.{minor}; the environment has {}.{}",
                    own.0, own.1
                ),
            )
            .about(name)
            .seen("wheel", Some(name), file)
            .would_say(format!(
                "libc.so.6: version `GLIBC_{major}.{minor}' not found"
            ))
            .mend(
                "Take a newer release",
                in_spec("system.release", "\"debian/trixie\""),
            )
        })
        .collect()
}

/// The C library that a platform tag asks for (PEP 600, and its older names).
fn manylinux(tag: &str) -> Option<(u32, u32)> {
    for (name, glibc) in [
        ("manylinux1_", (2, 5)),
        ("manylinux2010_", (2, 12)),
        ("manylinux2014_", (2, 17)),
    ] {
        if tag.starts_with(name) {
            return Some(glibc);
        }
    }
    let mut parts = tag.strip_prefix("manylinux_")?.split('_');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tags_tell_their_glibc() {
        for (tag, glibc) in [
            ("manylinux_2_28_x86_64", Some((2, 28))),
            ("manylinux2014_x86_64", Some((2, 17))),
            ("manylinux1_x86_64", Some((2, 5))),
            ("linux_x86_64", None),
            ("any", None),
            ("manylinux_2_x_y", None),
        ] {
            assert_eq!(manylinux(tag), glibc, "{tag}");
        }
    }

    proptest! {
        #[test]
        fn no_file_name_panics(file in "\\PC{0,80}") {
            let _ = tags(&file);
            let _ = tags(&format!("{file}.whl"));
            let _ = manylinux(&file);
            let _ = manylinux(&format!("manylinux_{file}"));
        }
    }
}
