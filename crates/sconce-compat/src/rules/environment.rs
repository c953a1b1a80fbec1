//! An environment by its packages: what a lock or a site-packages folder names.

use std::collections::BTreeMap;

use sconce_formats::torch_builds::cuda_of_torch;
use sconce_schema::lock::Lock;
use sconce_schema::{ComputeCapability, CudaVersion};

use crate::tables::{self, TorchBuildName, TorchRelease};

/// What an environment has, as far as versions tell it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvironmentVersions {
    /// Python's major and minor version, `3.13`.
    pub python: Option<String>,
    /// Python packages by normalised name (`nvidia-cudnn-cu13`).
    pub packages: BTreeMap<String, InstalledPackage>,
    /// What torch was built for, where torch/version.py or the lock says it; otherwise it is told by
    /// the packages.
    pub torch_build: Option<TorchBackend>,
    /// Version of the C library, `2.41`.
    pub glibc: Option<String>,
    /// The kernel's name of the processor, `x86_64`.
    pub architecture: Option<String>,
}

/// A Python package.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstalledPackage {
    /// Its version.
    pub version: String,
    /// The wheel's file name, where it is known.
    pub file: Option<String>,
}

/// What torch was built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TorchBackend {
    /// CPUs alone.
    Cpu,
    /// AMD cards.
    Rocm,
    /// Intel cards.
    Xpu,
    /// NVIDIA cards.
    Cuda(CudaVersion),
}

impl TorchBackend {
    /// As `torch/version.py` says it, which is written when torch is built: `cuda: Optional[str] =
    /// '13.2'`, `None` for builds without.
    #[must_use]
    pub fn of_version_py(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let line = text.lines().find_map(|line| {
                let rest = line.strip_prefix(name)?;
                rest.starts_with([':', ' ', '=']).then_some(rest)
            });
            Some(line?.split_once('=')?.1.trim().trim_matches(['\'', '"']))
        };
        match (value("cuda")?, value("hip")) {
            ("None", None | Some("None")) => Some(Self::Cpu),
            ("None", Some(_)) => Some(Self::Rocm),
            (cuda, _) => cuda.parse().ok().map(Self::Cuda),
        }
    }
}

impl EnvironmentVersions {
    /// The environment of a lock.
    #[must_use]
    pub fn from_lock(lock: &Lock) -> Self {
        let package = |wheel: &sconce_schema::lock::Wheel| {
            let package = InstalledPackage {
                version: wheel.version.clone(),
                file: Some(wheel.file.clone()),
            };
            (wheel.name.clone(), package)
        };
        // Debian's version of the C library is `2.41-12+deb13u4`.
        let glibc = lock.versions.glibc.split(['-', '+']).next();
        Self {
            python: Some(lock.target.python.clone()),
            packages: lock.wheels.iter().map(package).collect(),
            torch_build: None,
            glibc: glibc.filter(|text| !text.is_empty()).map(str::to_owned),
            architecture: Some(match lock.target.architecture.as_str() {
                "amd64" => "x86_64".to_owned(),
                "arm64" => "aarch64".to_owned(),
                other => other.to_owned(),
            }),
        }
    }

    /// An environment of installed packages, by name as their metadata have it, and version.
    #[must_use]
    pub fn from_packages<'a>(packages: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let package = |(name, version): (&str, &str)| {
            let package = InstalledPackage {
                version: version.to_owned(),
                file: None,
            };
            (normalised(name), package)
        };
        Self {
            packages: packages.into_iter().map(package).collect(),
            ..Self::default()
        }
    }

    /// A package's version.
    #[must_use]
    pub fn version(&self, name: &str) -> Option<&str> {
        self.packages.get(name).map(|found| found.version.as_str())
    }

    /// The first of these packages that there is, as name and version.
    #[must_use]
    pub fn find_first_package<'a>(&'a self, names: &[&'a str]) -> Option<(&'a str, &'a str)> {
        let found = |name: &&'a str| self.version(name).map(|version| (*name, version));
        names.iter().find_map(found)
    }

    /// torch's version without its local part.
    #[must_use]
    pub fn torch_version(&self) -> Option<&str> {
        self.version("torch")?.split('+').next()
    }

    /// The build of the tables that this torch is: none of what came before or after a release, of versions that
    /// they do not have, and of builds with a name of somebody's own.
    #[must_use]
    pub fn known_build(&self) -> Option<&'static tables::TorchBuild> {
        let version = self.version("torch")?;
        let local = version.split_once('+').map(|(_, local)| local);
        let is_own = |local| TorchBuildName::parse(local).is_none();
        let torch = self.torch_release()?;
        if !torch.has_version(self.torch_version()?) || local.is_some_and(is_own) {
            return None;
        }
        torch.find_build(self.torch_cuda()?)
    }

    /// What the tables know of this release of torch.
    #[must_use]
    pub fn torch_release(&self) -> Option<&'static TorchRelease> {
        tables::find_torch_release(parse_release(self.torch_version()?)?)
    }

    /// What torch was built for: as it was told, by its version's local part, by the CUDA runtime
    /// among the packages, by the default index's build of this release. In this order.
    #[must_use]
    pub fn torch_backend(&self) -> Option<TorchBackend> {
        const RUNTIMES: [&str; 8] = [
            "nvidia-cuda-nvrtc",
            "nvidia-cuda-nvrtc-cu13",
            "nvidia-cuda-nvrtc-cu12",
            "nvidia-cuda-nvrtc-cu11",
            "nvidia-cuda-runtime",
            "nvidia-cuda-runtime-cu13",
            "nvidia-cuda-runtime-cu12",
            "nvidia-cuda-runtime-cu11",
        ];
        let version = self.version("torch")?;
        let local = version.split_once('+').map(|(_, local)| local);
        let of_local = local.and_then(|local| match TorchBuildName::parse(local) {
            Some(TorchBuildName::Cpu) => Some(TorchBackend::Cpu),
            Some(TorchBuildName::Rocm) => Some(TorchBackend::Rocm),
            Some(TorchBuildName::Xpu) => Some(TorchBackend::Xpu),
            // What somebody's own build says of its CUDA rules cards out all the same.
            _ => local_cuda(local).map(TorchBackend::Cuda),
        });
        let of_runtime = || {
            let (_, version) = self.find_first_package(&RUNTIMES)?;
            version.parse().ok().map(TorchBackend::Cuda)
        };
        // Wheels on the default index ask for the CUDA libraries as packages; without any of them, and
        // with a whole set of packages, it is a build for CPUs.
        let whole = self.packages.len() > 1;
        // Somebody's own build, or one from before or after a release, is none of the tables'.
        let is_other = local.is_some() || !is_release(version);
        let of_table = || match (whole, self.torch_release()) {
            _ if is_other => None,
            _ if brings_own_cuda(version) => own_cuda(version).map(TorchBackend::Cuda),
            (true, _) => Some(TorchBackend::Cpu),
            (false, Some(torch)) if torch.has_version(version) => {
                Some(TorchBackend::Cuda(torch.cuda))
            }
            (false, _) => None,
        };
        self.torch_build
            .or(of_local)
            .or_else(of_runtime)
            .or_else(of_table)
    }

    /// The CUDA that torch was built with.
    #[must_use]
    pub fn torch_cuda(&self) -> Option<CudaVersion> {
        match self.torch_backend()? {
            TorchBackend::Cuda(cuda) => Some(cuda),
            TorchBackend::Cpu | TorchBackend::Rocm | TorchBackend::Xpu => None,
        }
    }
}

/// Whether the default index's wheels of a torch have CUDA inside them, and ask for no packages of it: those before
/// 1.13.
fn brings_own_cuda(torch: &str) -> bool {
    parse_release(torch).is_some_and(|release| release < (1, 13))
}

/// The CUDA inside of those wheels, where it is known.
fn own_cuda(torch: &str) -> Option<CudaVersion> {
    cuda_of_torch(torch)?.parse().ok()
}

/// Whether it is numbers alone: no `.dev`, `a0`, `rc1` or `.post1`.
fn is_release(version: &str) -> bool {
    let public = version.split('+').next().unwrap_or_default();
    public.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// `cu126` is CUDA 12.6.
pub(crate) fn local_cuda(local: &str) -> Option<CudaVersion> {
    let digits = local.strip_prefix("cu")?;
    let digits = digits.split(['.', '-', '_']).next()?;
    if !(3..=4).contains(&digits.len()) || !digits.is_ascii() {
        return None;
    }
    let (major, minor) = digits.split_at(2);
    Some(CudaVersion::new(major.parse().ok()?, minor.parse().ok()?))
}

/// A project's name as indexes compare it (PEP 503).
fn normalised(name: &str) -> String {
    let mut out = String::new();
    for part in name.split(['-', '_', '.']).filter(|part| !part.is_empty()) {
        if !out.is_empty() {
            out.push('-');
        }
        out.push_str(&part.to_ascii_lowercase());
    }
    out
}

/// Major and minor of a version.
#[must_use]
pub(crate) fn parse_release(version: &str) -> Option<(u32, u32)> {
    let numbers = parse_version_numbers(version);
    let number = |at: usize| u32::try_from(*numbers.get(at)?).ok();
    Some((number(0)?, number(1)?))
}

/// A version's numbers: what can be compared of `13.4.1.3` or `9.1.0.post1`.
pub(crate) fn parse_version_numbers(version: &str) -> Vec<u64> {
    let public = version.split('+').next().unwrap_or_default();
    let mut out = Vec::new();
    for part in public.split('.').take(8) {
        let digits = part.split(|c: char| !c.is_ascii_digit()).next();
        let Some(number) = digits.and_then(|digits| digits.parse().ok()) else {
            break;
        };
        out.push(number);
        if !part.bytes().all(|b| b.is_ascii_digit()) {
            break;
        }
    }
    out
}

/// `7.5, 8.0 and 9.0`.
pub(crate) fn format_capabilities(capabilities: &[ComputeCapability]) -> String {
    let texts: Vec<String> = capabilities.iter().map(ToString::to_string).collect();
    match texts.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn build(packages: &[(&str, &str)]) -> Option<TorchBackend> {
        EnvironmentVersions::from_packages(packages.iter().copied()).torch_backend()
    }

    #[test]
    fn the_build_is_told_by_the_best_that_there_is() {
        let cuda = |major, minor| Some(TorchBackend::Cuda(CudaVersion::new(major, minor)));
        for (packages, expected) in [
            (&[("torch", "2.8.0+cu126")][..], cuda(12, 6)),
            (&[("torch", "2.8.0+cu126.with.pypi")], cuda(12, 6)),
            (&[("torch", "2.8.0+cpu")], Some(TorchBackend::Cpu)),
            (&[("torch", "2.8.0+rocm6.4")], Some(TorchBackend::Rocm)),
            (&[("torch", "2.8.0+xpu")], Some(TorchBackend::Xpu)),
            (&[("torch", "2.8.0+cpu.own")], None),
            (&[("torch", "2.10.1")], None),
            (
                &[("torch", "2.8.0"), ("nvidia_cuda_runtime_cu12", "12.8.90")],
                cuda(12, 8),
            ),
            // Alone, it is taken for the default index's; among others, its libraries are missing.
            (&[("torch", "2.8.0")], cuda(12, 8)),
            (
                &[("torch", "2.8.0"), ("sympy", "1.14.0")],
                Some(TorchBackend::Cpu),
            ),
            (&[("torch", "1.13.0")], None),
            (&[("numpy", "2.0")], None),
            (&[("torch", "2.8.0+cu99999")], None),
            (&[("torch", "2.8.0+abc")], None),
            (&[("torch", "2.8.0.dev20250601")], None),
            (&[("torch", "2.8.0.post2"), ("sympy", "1.14.0")], None),
            (
                &[
                    ("torch", "2.8.0+abc"),
                    ("nvidia-cuda-runtime-cu12", "12.6.77"),
                ],
                cuda(12, 6),
            ),
        ] {
            assert_eq!(build(packages), expected, "{packages:?}");
        }
    }

    #[test]
    fn torch_says_what_it_was_built_for() {
        let text = |cuda: &str, hip: &str| {
            format!(
                "__version__ = '2.15.0'\ncuda_x = '9.9'\ncuda: Optional[str] = {cuda}\nhip: Optional[str] = {hip}\n"
            )
        };
        let built = |cuda, hip| TorchBackend::of_version_py(&text(cuda, hip));
        assert_eq!(
            built("'13.2'", "None"),
            Some(TorchBackend::Cuda(CudaVersion::new(13, 2)))
        );
        assert_eq!(built("None", "None"), Some(TorchBackend::Cpu));
        assert_eq!(built("None", "'6.3.42131'"), Some(TorchBackend::Rocm));
        // Without annotations.
        assert_eq!(
            TorchBackend::of_version_py("cuda = '12.1'\nhip = None\n"),
            Some(TorchBackend::Cuda(CudaVersion::new(12, 1)))
        );
        assert_eq!(TorchBackend::of_version_py("cuda = what\n"), None);
        assert_eq!(TorchBackend::of_version_py(""), None);
    }

    #[test]
    fn versions_are_numbers() {
        assert_eq!(parse_version_numbers("13.4.1.3"), [13, 4, 1, 3]);
        assert_eq!(parse_version_numbers("2.9.0rc1+cu130"), [2, 9, 0]);
        assert!(parse_version_numbers("abc").is_empty());
        assert_eq!(parse_release("2.15.0+cu132"), Some((2, 15)));
        assert_eq!(normalised("NVIDIA_cuDNN.cu13"), "nvidia-cudnn-cu13");
    }

    proptest! {
        #[test]
        fn no_version_panics(version in "\\PC{0,40}", name in "\\PC{0,40}") {
            let _ = parse_version_numbers(&version);
            let _ = local_cuda(&version);
            let _ = build(&[("torch", &version), (&name, &version)]);
        }
    }
}
