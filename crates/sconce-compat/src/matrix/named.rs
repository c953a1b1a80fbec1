//! A torch as somebody names it, with the build that its version says.

use sconce_schema::{CudaVersion, HostFacts};

use super::{
    Compatibility, CompatibilityBasis, MatrixCell, MatrixRow, build_for, default_cell, on,
    unjudged, unknown,
};
use crate::rules::{self, local_cuda};
use crate::tables::{self, TorchBuildName, TorchRelease};

/// A torch by name: `2.8`, `2.8.0`, `2.8.0+cu126`, `2.16.0.dev20261101+cu134`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTorch {
    /// Major and minor.
    release: (u32, u32),
    /// What was said, in lower case.
    version: String,
    /// Its numbers: `2.8`, `2.8.0`.
    numbers: String,
    build: NamedBuild,
    /// What came before or after the release, or is somebody's own build of it: `.dev20261101`, `rc1`, `.post2`.
    /// Its builds are not those of the release.
    is_other: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum NamedBuild {
    /// None was named: the default index's.
    Default,
    /// One that PyTorch calls so.
    Published(TorchBuildName),
    /// Somebody's own, and the CUDA that its name begins with.
    Own {
        local: String,
        cuda: Option<CudaVersion>,
    },
}

impl NamedTorch {
    /// Reads a version. `None` where it is none, with nothing after its numbers but what versions of Python
    /// packages have there (PEP 440).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let version = text.trim().to_ascii_lowercase();
        let (public, local) = match version.split_once('+') {
            Some((public, local)) => (public, Some(local)),
            None => (version.as_str(), None),
        };
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let end = public.find(|c| !is_number(c)).unwrap_or(public.len());
        let (numbers, rest) = public.split_at(end);
        let rest_is_known = || {
            let known = [
                "a", "b", "rc", "alpha", "beta", "c", "pre", "preview", "dev", "post", "rev", "r",
            ];
            let word = rest.trim_start_matches(['-', '_', '.']);
            let letters = word
                .find(|c: char| !c.is_ascii_lowercase())
                .unwrap_or(word.len());
            known.contains(&&word[..letters])
        };
        let numbers = match rest.is_empty() {
            true => numbers,
            // `2.16.0.dev1` has its last dot before the word.
            false if rest_is_known() => numbers.trim_end_matches('.'),
            false => return None,
        };
        let mut parts = numbers.split('.').map(str::parse::<u32>);
        let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else {
            return None;
        };
        if parts.any(|part| part.is_err()) {
            return None;
        }
        let build = match local {
            None => NamedBuild::Default,
            Some(local) => parse_build(local)?,
        };
        let is_other = !rest.is_empty();
        Some(Self {
            release: (major, minor),
            numbers: numbers.to_owned(),
            version: version.clone(),
            build,
            is_other,
        })
    }

    /// Whether there is anything to say of it: its release is known, or it is not to be in the tables, as a
    /// build of before a release is, or names its build.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        self.known().is_some() || self.is_other || self.build != NamedBuild::Default
    }

    /// What is known of its release.
    fn known(&self) -> Option<&'static TorchRelease> {
        tables::find_torch_release(self.release)
    }

    /// The release, where this is a version of it that PyTorch published.
    fn published(&self) -> Option<&'static TorchRelease> {
        let of_release = |torch: &&TorchRelease| !self.is_other && torch.has_version(&self.numbers);
        self.known().filter(of_release)
    }

    /// Why it is no version of a release.
    fn why_unpublished(&self) -> String {
        match self.known() {
            Some(torch) if !self.is_other => format!(
                "torch {} is in no table; of {}.{} they have {}",
                self.numbers,
                torch.release.0,
                torch.release.1,
                torch.versions.join(" and ")
            ),
            _ => "the builds of releases alone are known".to_owned(),
        }
    }

    /// The CUDA that its name says.
    fn named_cuda(&self) -> Option<CudaVersion> {
        match &self.build {
            NamedBuild::Published(TorchBuildName::Cuda(cuda)) => Some(*cuda),
            NamedBuild::Own { cuda, .. } => *cuda,
            _ => None,
        }
    }
}

impl From<&TorchRelease> for NamedTorch {
    fn from(torch: &TorchRelease) -> Self {
        Self {
            release: torch.release,
            version: torch.newest.to_owned(),
            numbers: torch.newest.to_owned(),
            build: NamedBuild::Default,
            is_other: false,
        }
    }
}

/// `None` where it is no local part of a version (PEP 440).
fn parse_build(local: &str) -> Option<NamedBuild> {
    let mut parts = local.split(['.', '-', '_']);
    let is_part = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric());
    if !parts.all(is_part) {
        return None;
    }
    Some(match TorchBuildName::parse(local) {
        Some(name) => NamedBuild::Published(name),
        None => NamedBuild::Own {
            local: local.to_owned(),
            cuda: local_cuda(local),
        },
    })
}

/// One named torch on machines.
#[must_use]
pub(super) fn torch_row(named: &NamedTorch, machines: &[HostFacts]) -> MatrixRow {
    let torch = named.published();
    let cuda = match named.build {
        NamedBuild::Default => torch.map(|torch| torch.cuda),
        _ => named.named_cuda(),
    };
    let cell = |machine: &HostFacts| {
        let cell = cell(named, torch, machine);
        match torch {
            Some(torch) if !is_newest(named, torch) => inferred(cell),
            _ => cell,
        }
    };
    MatrixRow {
        name: format!("torch {}", named.version),
        cuda,
        cells: machines.iter().map(cell).collect(),
    }
}

/// Whether it is the version that the rows were read from; `2.9` alone means the newest of them.
fn is_newest(named: &NamedTorch, torch: &TorchRelease) -> bool {
    named.numbers == torch.newest || named.numbers.split('.').count() == 2
}

/// What was read from the newest version's wheel is inferred for those before it.
fn inferred(cell: MatrixCell) -> MatrixCell {
    use tables::SourceQuality::{Lead, Measured, Reported};
    let basis = match cell.basis {
        CompatibilityBasis::Table(Measured | Reported) => CompatibilityBasis::Table(Lead),
        basis => basis,
    };
    MatrixCell { basis, ..cell }
}

fn cell(
    named: &NamedTorch,
    torch: Option<&'static TorchRelease>,
    machine: &HostFacts,
) -> MatrixCell {
    let build = match &named.build {
        NamedBuild::Default => match torch {
            Some(torch) => return default_cell(torch, machine),
            None => return unknown(&named.why_unpublished()),
        },
        NamedBuild::Published(build) => Some(*build),
        NamedBuild::Own { .. } => None,
    };
    let without = match build {
        Some(TorchBuildName::Cpu) => Some("CPUs alone"),
        Some(TorchBuildName::Rocm) => Some("AMD cards"),
        Some(TorchBuildName::Xpu) => Some("Intel cards"),
        Some(TorchBuildName::Cuda(_)) | None => None,
    };
    if let Some(kind) = without {
        return without_cuda(&format!("it is built for {kind}"), machine);
    }
    if let (Some(TorchBuildName::Cuda(cuda)), Some(torch)) = (build, torch)
        && let Some(build) = torch.find_build(cuda)
    {
        let mut cell = on(torch, build, machine);
        if cell.verdict == Compatibility::Fails {
            let other = build_for(torch, std::slice::from_ref(machine));
            cell.instead = other.map(|choice| choice.cuda);
        }
        return cell;
    }
    if let Some(why) = unjudged(machine) {
        return unknown(why);
    }
    let cuda = named.named_cuda();
    if let Some(why) = cuda.and_then(|cuda| never(cuda, machine)) {
        return MatrixCell {
            verdict: Compatibility::Fails,
            basis: CompatibilityBasis::Table(tables::SourceQuality::Published),
            ..unknown(&why)
        };
    }
    match (&named.build, cuda) {
        (NamedBuild::Own { local, .. }, _) => unknown(&format!(
            "nothing is known of a build that is called {local}"
        )),
        _ if torch.is_none() && named.known().is_some() && !named.is_other => {
            unknown(&named.why_unpublished())
        }
        (_, Some(cuda)) => unknown(&format!(
            "for which cards its build for CUDA {cuda} has code is not known"
        )),
        (_, None) => unknown(&named.why_unpublished()),
    }
}

fn without_cuda(why: &str, machine: &HostFacts) -> MatrixCell {
    if let Some(why) = unjudged(machine) {
        return unknown(why);
    }
    MatrixCell {
        verdict: Compatibility::Fails,
        basis: CompatibilityBasis::Table(tables::SourceQuality::Published),
        ..unknown(&format!("{why}: it does not see the card"))
    }
}

/// Why no build for this CUDA runs on a machine, whatever it has code for.
fn never(cuda: CudaVersion, machine: &HostFacts) -> Option<String> {
    let driver = rules::user_driver(machine);
    if let (Some(driver), Some(floor)) = (driver, cuda.lowest_driver())
        && driver < floor
    {
        return Some(format!("CUDA {cuda} needs driver {floor}"));
    }
    let kinds = rules::group_gpus(machine);
    let mut of_cards = kinds.iter().filter_map(|kind| {
        let last = tables::gpu_architecture(kind.capability)?.last_cuda?;
        let said = format!(
            "CUDA {cuda} makes no code for {}, {last} is its last",
            kind.capability
        );
        (cuda > last).then_some(said)
    });
    of_cards.next()
}
