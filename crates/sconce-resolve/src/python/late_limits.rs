//! What published packages do not say of themselves, because it came after them: a package whose limits are
//! open resolves to what was never made for it. Kept by hand, each with what breaks.

use std::str::FromStr as _;

use super::pylock::LockedPackages;
use pep440_rs::{Version, VersionSpecifiers};

/// Something that is to be asked for in addition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LateLimit {
    /// Of what: a requirement, `numpy<2`, or a bound of Python, `<3.13`.
    pub(crate) asks: LimitKind,
    /// Why, `torch 2.2.2: it was built before NumPy 2`.
    pub(crate) why: String,
}

/// What a limit is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LimitKind {
    /// A package (PEP 508).
    Package(String),
    /// Python (PEP 440).
    Python(String),
}

/// A package in some versions, and another one that breaks it in some.
struct Conflict {
    package: &'static str,
    versions: &'static str,
    /// The other one.
    other: &'static str,
    /// In which versions it breaks; empty: where it is missing, or any of `asks` is not met.
    breaks: &'static str,
    /// What to ask for.
    asks: &'static str,
    why: &'static str,
}

const NO_PKG_RESOURCES: &str = "it imports pkg_resources, which setuptools had until 81";

/// By package.
const CONFLICTS: [Conflict; 16] = [
    Conflict {
        package: "torch",
        versions: "<2.3",
        other: "numpy",
        breaks: ">=2",
        asks: "numpy<2",
        why: "it was built before NumPy 2",
    },
    Conflict {
        package: "torch",
        versions: "<1.13",
        other: "numpy",
        breaks: ">=1.24",
        asks: "numpy<1.24",
        why: "code of its time uses np.float and np.bool, which NumPy had until 1.23",
    },
    Conflict {
        package: "librosa",
        versions: "<0.8",
        other: "numba",
        breaks: ">=0.50",
        asks: "numba<0.50",
        why: "it imports numba.decorators, which numba had until 0.49",
    },
    Conflict {
        package: "tensorboard",
        versions: "<2.9",
        other: "protobuf",
        breaks: ">=4",
        asks: "protobuf<4",
        why: "its code was generated for protobuf 3 (\"Descriptors cannot be created directly\")",
    },
    Conflict {
        package: "tensorboardx",
        versions: "<2.5.1",
        other: "protobuf",
        breaks: ">=4",
        asks: "protobuf<4",
        why: "its code was generated for protobuf 3 (\"Descriptors cannot be created directly\")",
    },
    Conflict {
        package: "timm",
        versions: "<0.4.5",
        other: "torch",
        breaks: ">=1.9",
        asks: "torch<1.9",
        why: "it imports container_abcs of torch._six, which torch had until 1.8",
    },
    Conflict {
        package: "basicsr",
        versions: "<=1.4.2",
        other: "torchvision",
        breaks: ">=0.17",
        asks: "torchvision<0.17",
        why: "it imports torchvision.transforms.functional_tensor, which torchvision had until 0.16",
    },
    Conflict {
        package: "numpy",
        versions: "<2",
        other: "pyarrow",
        breaks: ">=26",
        asks: "pyarrow<26",
        why: "pyarrow 26 refuses it",
    },
    Conflict {
        package: "pytorch-lightning",
        versions: "<2.1",
        other: "setuptools",
        breaks: ">=81",
        asks: "setuptools<81",
        why: NO_PKG_RESOURCES,
    },
    Conflict {
        package: "pytorch-lightning",
        versions: ">=1.3,<1.5",
        other: "torchmetrics",
        breaks: ">=0.7",
        asks: "torchmetrics<0.7",
        why: "it imports get_num_classes, which torchmetrics had until 0.6",
    },
    Conflict {
        package: "tilelang",
        versions: ">=0.1.8,<0.1.10",
        other: "apache-tvm-ffi",
        breaks: ">=0.1.12",
        asks: "apache-tvm-ffi<0.1.12",
        why: "it fails on import with newer ones (\"attribute '__dict__' of 'type' objects is not writable\")",
    },
    Conflict {
        package: "torchtext",
        versions: ">=0.18",
        other: "torch",
        breaks: ">=2.4",
        asks: "torch<2.4",
        why: "its library uses parseSchemaOrName as torch had it until 2.3 (\"undefined symbol\")",
    },
    Conflict {
        package: "transformers",
        versions: "<4.4",
        other: "packaging",
        breaks: ">=22",
        asks: "packaging<22",
        why: "it reads \">=0.10.1,<0.11\" as one version, which packaging did until 21",
    },
    Conflict {
        package: "tensorboard",
        versions: "<2.17",
        other: "setuptools",
        breaks: ">=81",
        asks: "setuptools<81",
        why: NO_PKG_RESOURCES,
    },
    Conflict {
        package: "wandb",
        versions: "<0.15.5",
        other: "setuptools",
        breaks: ">=81",
        asks: "setuptools<81",
        why: NO_PKG_RESOURCES,
    },
    Conflict {
        package: "gym",
        versions: "<0.22",
        other: "numpy",
        breaks: ">=1.24",
        asks: "numpy<1.24",
        why: "it uses np.bool, which NumPy had until 1.23",
    },
];

/// A package that fails on Pythons that it has wheels for.
struct PythonConflict {
    package: &'static str,
    versions: &'static str,
    /// The first Python, 12 for 3.12.
    minor: u32,
    asks: &'static str,
    why: &'static str,
}

const NO_COMPILE: &str = "torch.compile, and what imports it, does not know this Python";

const PYTHON_CONFLICTS: [PythonConflict; 3] = [
    PythonConflict {
        package: "torch",
        versions: "<2.6",
        minor: 13,
        asks: "<3.13",
        why: NO_COMPILE,
    },
    PythonConflict {
        package: "torch",
        versions: "<2.4",
        minor: 12,
        asks: "<3.12",
        why: NO_COMPILE,
    },
    PythonConflict {
        package: "hydra-core",
        versions: "<1.3",
        minor: 11,
        asks: "<3.11",
        why: "its dataclasses have defaults that Python 3.11 refuses (\"mutable default … is not allowed\")",
    },
];

/// The Debian release that packages want in place of a newer one: its name, its glibc's minor version, and why.
pub(crate) fn find_older_release(packages: &LockedPackages) -> Option<(&'static str, u32, String)> {
    let torch = packages.wheels.iter().find(|wheel| wheel.name == "torch")?;
    let version = Version::from_str(&torch.version).ok()?.without_local();
    // PT_GNU_STACK of libtorch_cpu.so is RWE in 1.10.2, 1.11.0 and 1.12.1, and RW in 1.9.1 and 1.13.1.
    let has_executable_stack = VersionSpecifiers::from_str(">=1.10,<1.13").ok()?;
    let why = || {
        format!(
            "torch {version}: its libraries want an executable stack, which glibc refuses from 2.41 on"
        )
    };
    has_executable_stack
        .contains(&version)
        .then(|| ("debian/bookworm", 36, why()))
}

/// What these packages, resolved for Python `3.minor`, want in addition; each once.
pub(crate) fn find_limits(packages: &LockedPackages, minor: u32) -> Vec<LateLimit> {
    let version_of = |name: &str| {
        let wheel = packages.wheels.iter().find(|wheel| wheel.name == name);
        let source = packages.sources.iter().find(|source| source.name == name);
        let of_source = source.and_then(|source| source.version.as_deref());
        let version = wheel.map(|wheel| wheel.version.as_str()).or(of_source)?;
        Version::from_str(version).ok()
    };
    let is_within = |version: &Version, specifiers: &str| {
        // `2.2.0+cu121` is below 2.3 as 2.2.0 is.
        let version = version.clone().without_local();
        VersionSpecifiers::from_str(specifiers).is_ok_and(|all| all.contains(&version))
    };
    let mut limits: Vec<LateLimit> = Vec::new();
    for conflict in &CONFLICTS {
        let Some(version) = version_of(conflict.package) else {
            continue;
        };
        // What is missing and is imported breaks as well.
        let is_broken = match version_of(conflict.other) {
            Some(other) => is_within(&other, conflict.breaks),
            None => conflict.why == NO_PKG_RESOURCES,
        };
        let asks = LimitKind::Package(conflict.asks.to_owned());
        let is_new = limits.iter().all(|limit| limit.asks != asks);
        if is_within(&version, conflict.versions) && is_broken && is_new {
            let why = format!("{} {version}: {}", conflict.package, conflict.why);
            limits.push(LateLimit { asks, why });
        }
    }
    for conflict in &PYTHON_CONFLICTS {
        if minor >= conflict.minor
            && let Some(version) = version_of(conflict.package)
            && is_within(&version, conflict.versions)
        {
            let why = format!("{} {version}: {}", conflict.package, conflict.why);
            let asks = LimitKind::Python(conflict.asks.to_owned());
            limits.push(LateLimit { asks, why });
        }
    }
    if let (Some(torch), Some(audio)) = (version_of("torch"), version_of("torchaudio")) {
        limits.extend(limit_torchaudio(&torch, &audio));
    }
    limits
}

/// The first torchaudio that is built for torch's stable interface, and runs with newer ones too (its METADATA: "requires
/// `torch` 2.11 or newer"). It uses `torch_exception_get_what_without_backtrace`, which torch has from 2.13 on.
const FIRST_STABLE_TORCHAUDIO: [u64; 3] = [2, 11, 1];
const OLDEST_STABLE_TORCH: (u64, u64) = (2, 13);
/// The series whose first release alone is built for the torch of that series.
const LAST_SERIES_OF_TORCHAUDIO: (u64, u64) = (2, 11);

/// Both are built together; torchaudio ended before torch did. torchaudio 0.13 is of torch 1.13.
fn limit_torchaudio(torch: &Version, audio: &Version) -> Vec<LateLimit> {
    let series = |version: &Version, of_zero: u64| {
        let numbers = version.release();
        let major = numbers.first().copied().unwrap_or_default();
        let major = if major == 0 { of_zero } else { major };
        (major, numbers.get(1).copied().unwrap_or_default())
    };
    let (of_torch, of_audio) = (series(torch, 0), series(audio, 1));
    let is_stable = audio.release() >= FIRST_STABLE_TORCHAUDIO.as_slice();
    let runs = match is_stable {
        true => of_torch >= OLDEST_STABLE_TORCH,
        false => of_torch == of_audio,
    };
    if runs {
        return Vec::new();
    }
    let (major, minor) = of_torch.min(of_audio);
    let audio_major = if major == 1 { 0 } else { major };
    let is_last = (major, minor) == LAST_SERIES_OF_TORCHAUDIO;
    let patch = if is_last { "0" } else { "*" };
    let why = match is_stable {
        true => format!("torchaudio {audio}: it uses functions that torch has from 2.13 on"),
        false => {
            format!("torchaudio {audio}: it runs with the torch that it was built with alone")
        }
    };
    let limit = |text: String| LateLimit {
        asks: LimitKind::Package(text),
        why: why.clone(),
    };
    vec![
        limit(format!("torch=={major}.{minor}.*")),
        limit(format!("torchaudio=={audio_major}.{minor}.{patch}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::Sha256;
    use sconce_schema::lock::Wheel;

    fn limits(wheels: &[(&str, &str)], minor: u32) -> Vec<LimitKind> {
        let wheel = |(name, version): &(&str, &str)| Wheel {
            name: (*name).to_owned(),
            version: (*version).to_owned(),
            file: String::new(),
            url: String::new(),
            size: None,
            sha256: Sha256([0; 32]),
            build: None,
        };
        let packages = LockedPackages {
            wheels: wheels.iter().map(wheel).collect(),
            ..LockedPackages::default()
        };
        let found = find_limits(&packages, minor);
        found.into_iter().map(|limit| limit.asks).collect()
    }

    fn package(text: &str) -> LimitKind {
        LimitKind::Package(text.to_owned())
    }

    #[test]
    fn old_packages_get_what_they_were_made_for() {
        let numpy = limits(&[("torch", "2.2.2+cu121"), ("numpy", "2.1.0")], 11);
        assert_eq!(numpy, [package("numpy<2")]);
        assert_eq!(limits(&[("torch", "2.2.2"), ("numpy", "1.26.4")], 11), []);
        assert_eq!(limits(&[("torch", "2.3.0"), ("numpy", "2.1.0")], 11), []);
        let both = limits(&[("tensorboard", "2.0.0"), ("protobuf", "5.29.0")], 8);
        assert_eq!(both, [package("protobuf<4"), package("setuptools<81")]);
        let there = [("wandb", "0.13.5"), ("setuptools", "75.0.0")];
        assert_eq!(limits(&there, 11), []);
        assert_eq!(
            limits(&[("wandb", "0.13.5")], 11),
            [package("setuptools<81")]
        );
        let text = limits(&[("torchtext", "0.18.0"), ("torch", "2.15.0")], 12);
        assert_eq!(text, [package("torch<2.4")]);
        let mae = limits(&[("timm", "0.3.2"), ("torch", "2.15.0")], 13);
        assert_eq!(mae, [package("torch<1.9")]);
    }

    #[test]
    fn torchaudio_and_torch_are_of_one_series() {
        let found = limits(&[("torch", "2.15.0"), ("torchaudio", "2.11.0+cu130")], 13);
        assert_eq!(
            found,
            [package("torch==2.11.*"), package("torchaudio==2.11.0")]
        );
        // Seen: 2.11.1 is imported with torch 2.15.0, and not with 2.11.0.
        assert_eq!(
            limits(&[("torch", "2.15.0"), ("torchaudio", "2.11.1")], 13),
            []
        );
        assert_eq!(
            limits(&[("torch", "2.13.0"), ("torchaudio", "2.11.1+cu130")], 13),
            []
        );
        assert_eq!(
            limits(&[("torch", "2.11.0"), ("torchaudio", "2.11.1")], 13),
            [package("torch==2.11.*"), package("torchaudio==2.11.0")]
        );
        assert_eq!(
            limits(&[("torch", "2.9.1"), ("torchaudio", "2.11.1")], 13),
            [package("torch==2.9.*"), package("torchaudio==2.9.*")]
        );
        assert_eq!(
            limits(&[("torch", "2.11.1"), ("torchaudio", "2.11.0")], 13),
            []
        );
        assert_eq!(
            limits(&[("torch", "1.13.1+cu117"), ("torchaudio", "0.13.1")], 10),
            []
        );
        assert_eq!(
            limits(&[("torch", "1.12.1"), ("torchaudio", "0.13.1")], 10),
            [package("torch==1.12.*"), package("torchaudio==0.12.*")]
        );
    }

    #[test]
    fn a_torch_that_cannot_compile_on_a_python_gets_an_older_one() {
        assert_eq!(
            limits(&[("torch", "2.5.1")], 13),
            [LimitKind::Python("<3.13".to_owned())]
        );
        assert_eq!(limits(&[("torch", "2.5.1")], 12), []);
        let two = limits(&[("torch", "2.2.0")], 13);
        assert_eq!(
            two,
            ["<3.13", "<3.12"].map(|text| LimitKind::Python(text.to_owned()))
        );
    }
}
