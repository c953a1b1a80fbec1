//! PyTorch releases, their builds and what they pin: `torch.txt`.

use std::sync::LazyLock;

use sconce_schema::{ComputeCapability, CudaVersion};

use super::{TableError, TableSource, rows};
use crate::library::{CodeKind, CodeReach, CodeTarget, Coverage, GpuCode};

/// A release line, `2.4`.
#[derive(Debug, Clone)]
pub struct TorchRelease {
    /// Major and minor.
    pub release: (u32, u32),
    /// Its versions on the default index, `2.4.0` and `2.4.1`, the newest last.
    pub versions: Vec<&'static str>,
    /// Its newest version, `2.4.1`, which the pins are of.
    pub newest: &'static str,
    /// The CUDA of the wheel on the default index.
    pub cuda: CudaVersion,
    /// Pythons that there are wheels for, `3.12`.
    pub pythons: Vec<&'static str>,
    /// Pythons without a global lock that there are wheels for.
    pub free_threaded: Vec<&'static str>,
    /// cuDNN that the default build pins.
    pub cudnn: &'static str,
    /// NCCL that the default build pins.
    pub nccl: &'static str,
    /// Triton that it pins.
    pub triton: &'static str,
    /// The C library that its wheels ask for on x86-64, by their manylinux tag.
    pub glibc: &'static str,
    /// The minor of torchvision that was built for it.
    pub vision: u32,
    /// Whether newer torchvisions serve too.
    pub vision_onward: bool,
    /// Where the pins are from.
    pub source: TableSource,
    /// Its builds, the default one first.
    pub builds: Vec<TorchBuild>,
}

/// One build of a release.
#[derive(Debug, Clone)]
pub struct TorchBuild {
    /// The CUDA that it was built with.
    pub cuda: CudaVersion,
    /// What libtorch_cuda.so has code for, as one container.
    pub code: GpuCode,
    /// Where that is from.
    pub source: TableSource,
    /// cuDNN that it pins, where that is known and another than the default build's.
    pub cudnn: Option<&'static str>,
    /// NCCL that it pins, where that is known and another than the default build's.
    pub nccl: Option<&'static str>,
    /// What of it lacks a capability that libtorch_cuda.so has.
    pub gaps: Vec<BuildGap>,
}

/// A library of a build that lacks a capability.
#[derive(Debug, Clone, Copy)]
pub struct BuildGap {
    /// The capability.
    pub capability: ComputeCapability,
    /// What does not work on it, as the end of a sentence.
    pub what: &'static str,
    /// Where that is from.
    pub source: TableSource,
}

/// A release of Triton.
#[derive(Debug, Clone, Copy)]
pub struct Triton {
    /// Major and minor.
    pub release: (u32, u32),
    /// The CUDA of the ptxas in its wheel.
    pub ptxas: CudaVersion,
    /// Where that is from.
    pub source: TableSource,
}

impl TorchRelease {
    /// The build with this CUDA.
    #[must_use]
    pub fn find_build(&self, cuda: CudaVersion) -> Option<&TorchBuild> {
        self.builds.iter().find(|build| build.cuda == cuda)
    }

    /// Whether PyTorch published this version of it, numbers alone: `2.9` and `2.9.0`, which are one (PEP 440).
    #[must_use]
    pub fn has_version(&self, public: &str) -> bool {
        let wanted = parse_numbers(public);
        let known = self.versions.iter().map(|version| parse_numbers(version));
        wanted.is_some() && known.into_iter().any(|known| known == wanted)
    }

    /// The requirement that asks for this build: `torch==2.8.0` for the default one,
    /// `torch==2.8.0+cu126` for another.
    #[must_use]
    pub fn requirement(&self, cuda: CudaVersion) -> String {
        match cuda == self.cuda {
            true => format!("torch=={}", self.newest),
            false => format!("torch=={}+{}", self.newest, local_part(cuda)),
        }
    }
}

impl TorchBuild {
    /// Capabilities that it has machine code for.
    #[must_use]
    pub fn sass_capabilities(&self) -> Vec<ComputeCapability> {
        let targets = self.code.coverage.iter().flat_map(|kind| &kind.targets);
        let sass = targets.filter(|target| target.code == CodeKind::Sass);
        sass.map(|target| target.capability).collect()
    }
}

/// The numbers of `2.9.1`, without zeros at the end; `None` where there is anything else.
fn parse_numbers(version: &str) -> Option<Vec<u32>> {
    let numbers: Result<Vec<u32>, _> = version.split('.').map(str::parse).collect();
    let mut numbers = numbers.ok()?;
    let is_set = |number: &u32| *number != 0;
    numbers.truncate(numbers.iter().rposition(is_set).map_or(0, |last| last + 1));
    Some(numbers)
}

/// What a build of PyTorch's own is for, by the local part of its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TorchBuildName {
    /// `cu126`.
    Cuda(CudaVersion),
    /// `cpu`, and until 2.6 `cpu.cxx11.abi`.
    Cpu,
    /// `rocm6.4`, `rocm6.2.4`.
    Rocm,
    /// `xpu`.
    Xpu,
}

impl TorchBuildName {
    /// Reads a local part. `None` where no build of PyTorch's own is called so: more behind it, as in
    /// `cu126.mine`, is somebody's own.
    #[must_use]
    pub fn parse(local: &str) -> Option<Self> {
        let is_number = |text: &str| parse_numbers(text).is_some();
        match local {
            "cpu" | "cpu.cxx11.abi" => Some(Self::Cpu),
            "xpu" => Some(Self::Xpu),
            _ if local.strip_prefix("rocm").is_some_and(is_number) => Some(Self::Rocm),
            _ => {
                let cuda = crate::rules::local_cuda(local)?;
                (local_part(cuda) == local).then_some(Self::Cuda(cuda))
            }
        }
    }
}

/// `cu126` of CUDA 12.6.
#[must_use]
pub(crate) fn local_part(cuda: CudaVersion) -> String {
    format!("cu{}{}", cuda.major, cuda.minor)
}

struct Table {
    torches: Vec<TorchRelease>,
    tritons: Vec<Triton>,
}

static TABLE: LazyLock<Table> =
    LazyLock::new(|| read().expect("the compiled-in table is read by a test"));

fn release(row: &rows::TableRow<'_>) -> Result<(u32, u32), TableError> {
    let (major, minor) = row.text(0)?.split_once('.').ok_or_else(|| row.to_error())?;
    let number = |text: &str| text.parse().map_err(|_| row.to_error());
    Ok((number(major)?, number(minor)?))
}

fn read() -> Result<Table, TableError> {
    let table = rows::parse_table(include_str!("torch.txt"))?;
    let mut torches: Vec<TorchRelease> = Vec::new();
    let mut tritons = Vec::new();
    for row in &table.rows {
        match row.kind {
            "torch" => {
                let vision = row.text(9)?;
                let onward = vision.ends_with('+');
                let minor = vision.trim_end_matches('+').strip_prefix("0.");
                let minor = minor.and_then(|minor| minor.parse().ok());
                let versions: Vec<&str> = row.text(1)?.split_whitespace().collect();
                torches.push(TorchRelease {
                    release: release(row)?,
                    newest: versions.last().copied().ok_or_else(|| row.to_error())?,
                    versions,
                    cuda: row.value(2)?,
                    pythons: row.text(3)?.split_whitespace().collect(),
                    free_threaded: row.text(4)?.split_whitespace().collect(),
                    cudnn: row.text(5)?,
                    nccl: row.text(6)?,
                    triton: row.text(7)?,
                    glibc: row.text(8)?,
                    vision: minor.ok_or_else(|| row.to_error())?,
                    vision_onward: onward,
                    source: row.source(10, &table.sources)?,
                    builds: Vec::new(),
                });
            }
            "build" => {
                let cuda = row.value(1)?;
                let build = TorchBuild {
                    cuda,
                    code: code(row.values(2)?, row.values(3)?, cuda),
                    source: row.source(6, &table.sources)?,
                    cudnn: Some(row.text(4)?).filter(|text| !text.is_empty()),
                    nccl: Some(row.text(5)?).filter(|text| !text.is_empty()),
                    gaps: Vec::new(),
                };
                let release = release(row)?;
                let of = torches.iter_mut().find(|torch| torch.release == release);
                of.ok_or_else(|| row.to_error())?.builds.push(build);
            }
            "gap" => {
                let (release, cuda): (_, CudaVersion) = (release(row)?, row.value(1)?);
                let of = torches.iter_mut().find(|torch| torch.release == release);
                let builds = of.map(|torch| &mut torch.builds).into_iter().flatten();
                let mut build = builds.filter(|build| build.cuda == cuda);
                let build = build.next().ok_or_else(|| row.to_error())?;
                build.gaps.push(BuildGap {
                    capability: row.value(2)?,
                    what: row.text(3)?,
                    source: row.source(4, &table.sources)?,
                });
            }
            "triton" => tritons.push(Triton {
                release: release(row)?,
                ptxas: row.value(1)?,
                source: row.source(2, &table.sources)?,
            }),
            _ => return Err(row.to_error()),
        }
    }
    Ok(Table { torches, tritons })
}

fn code(sass: Vec<ComputeCapability>, ptx: Vec<ComputeCapability>, cuda: CudaVersion) -> GpuCode {
    // nvcc writes the newest PTX version that it knows, CUDA 12.9's is 8.8.
    let version = (0..=99)
        .rev()
        .map(|n| (n / 10, n % 10))
        .find(|&(major, minor)| super::ptx_cuda(major, minor).is_some_and(|of| of <= cuda));
    let target = |capability, code| CodeTarget {
        capability,
        code,
        reach: CodeReach::Onward,
    };
    let sass = sass.into_iter().map(|own| target(own, CodeKind::Sass));
    let ptx = ptx.into_iter().filter_map(|own| {
        let (major, minor) = version?;
        Some(target(own, CodeKind::Ptx { major, minor }))
    });
    let mut targets: Vec<CodeTarget> = sass.chain(ptx).collect();
    targets.sort();
    GpuCode {
        coverage: vec![Coverage {
            targets,
            containers: 1,
        }],
        ..GpuCode::default()
    }
}

/// All known releases, oldest first.
#[must_use]
pub fn torch_releases() -> &'static [TorchRelease] {
    &TABLE.torches
}

/// A release, by major and minor.
#[must_use]
pub fn find_torch_release(release: (u32, u32)) -> Option<&'static TorchRelease> {
    torch_releases()
        .iter()
        .find(|torch| torch.release == release)
}

/// What is known of a release of Triton: its own row, or the one before it.
#[must_use]
pub fn find_triton_release(release: (u32, u32)) -> Option<&'static Triton> {
    let older = TABLE.tritons.iter().rev();
    let mut older = older.filter(|row| row.release <= release);
    older.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order_and_whole() {
        let table = read().unwrap();
        assert!(table.torches.is_sorted_by(|a, b| a.release < b.release));
        assert!(table.tritons.is_sorted_by(|a, b| a.release < b.release));
        for torch in &table.torches {
            for (patch, version) in torch.versions.iter().enumerate() {
                let expected = format!("{}.{}.{patch}", torch.release.0, torch.release.1);
                assert_eq!(*version, expected);
            }
            assert_eq!(torch.versions.last(), Some(&torch.newest));
            assert_eq!(torch.vision, torch.release.1.min(14) + 15, "{torch:?}");
            // The default build is the first row, and no CUDA has two.
            assert_eq!(torch.builds[0].cuda, torch.cuda, "{torch:?}");
            for (at, build) in torch.builds.iter().enumerate() {
                let twice = |other: &TorchBuild| other.cuda == build.cuda;
                assert!(!torch.builds[..at].iter().any(twice), "{torch:?}");
                let capabilities = build.sass_capabilities();
                assert!(capabilities.is_sorted(), "{build:?}");
                assert!(capabilities.len() >= 6, "{build:?}");
                // No build has code that its CUDA cannot compile.
                for capability in capabilities {
                    let known = super::super::gpu_architecture(capability).unwrap();
                    let since = known.first_cuda.is_none_or(|first| build.cuda >= first);
                    let until = known.last_cuda.is_none_or(|last| build.cuda <= last);
                    assert!(since && until, "{build:?}: {capability}");
                }
            }
        }
    }

    #[test]
    fn builds_are_asked_for_by_their_local_part() {
        let torch = find_torch_release((2, 8)).unwrap();
        let requirement = |major, minor| torch.requirement(CudaVersion::new(major, minor));
        assert_eq!(requirement(12, 8), "torch==2.8.0");
        assert_eq!(requirement(12, 6), "torch==2.8.0+cu126");
        assert!(super::find_torch_release((1, 13)).is_none());
        assert_eq!(
            find_triton_release((3, 6)).unwrap().ptxas,
            CudaVersion::new(12, 8)
        );
        assert!(find_triton_release((2, 1)).is_none());
    }

    #[test]
    fn a_version_is_known_by_its_numbers() {
        let torch = find_torch_release((2, 9)).unwrap();
        for version in ["2.9", "2.9.0", "2.9.1", "2.9.0.0"] {
            assert!(torch.has_version(version), "{version}");
        }
        for version in ["2.9.2", "2.9.10", "2.9.1.1", "2.9.1rc1", "2.90", "2", ""] {
            assert!(!torch.has_version(version), "{version}");
        }
        assert!(find_torch_release((2, 0)).unwrap().has_version("2.0"));
    }

    #[test]
    fn local_parts_are_read_whole() {
        let cuda = |major, minor| Some(TorchBuildName::Cuda(CudaVersion::new(major, minor)));
        for (local, expected) in [
            ("cu128", cuda(12, 8)),
            ("cu118", cuda(11, 8)),
            ("cpu", Some(TorchBuildName::Cpu)),
            ("cpu.cxx11.abi", Some(TorchBuildName::Cpu)),
            ("rocm6.4", Some(TorchBuildName::Rocm)),
            ("rocm6.2.4", Some(TorchBuildName::Rocm)),
            ("xpu", Some(TorchBuildName::Xpu)),
            ("cu128.mycorp1", None),
            ("cu130-own", None),
            ("cu0128", None),
            ("cu12", None),
            ("cpu2", None),
            ("cpu.own", None),
            ("rocm", None),
            ("rocm6.4.own", None),
            ("rocm6.4_own", None),
            ("xpu1", None),
            ("", None),
        ] {
            assert_eq!(TorchBuildName::parse(local), expected, "{local}");
        }
    }

    #[test]
    fn ptx_has_the_version_of_its_toolkit() {
        let build = find_torch_release((2, 9))
            .unwrap()
            .find_build(CudaVersion::new(13, 0))
            .unwrap();
        let targets = &build.code.coverage[0].targets;
        let ptx = targets
            .iter()
            .find(|target| target.code != CodeKind::Sass)
            .unwrap();
        assert_eq!(ptx.code, CodeKind::Ptx { major: 9, minor: 0 });
    }
}
