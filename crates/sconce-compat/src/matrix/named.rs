//! A torch as somebody names it, with the build that its version says.

use sconce_schema::{CudaVersion, HostFacts};

use super::{
    Compatibility, CompatibilityBasis, MatrixCell, MatrixRow, build_for, default_cell, on,
    unjudged, unknown,
};
use crate::rules::{self, local_cuda};
use crate::tables::{self, TorchRelease};

/// A torch by name: `2.8`, `2.8.0`, `2.8.0+cu126`, `2.16.0.dev20261101+cu134`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTorch {
    /// Major and minor.
    release: (u32, u32),
    /// What was said, in lower case.
    version: String,
    build: NamedBuild,
    /// What came before or after the release, or is somebody's own build of it: `.dev20261101`, `rc1`, `.post2`.
    /// Its builds are not those of the release.
    is_other: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum NamedBuild {
    /// None was named: the default index's.
    Default,
    Cuda(CudaVersion),
    Cpu,
    Rocm,
    /// A local version that says nothing of CUDA.
    Other(String),
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
            Some("") => return None,
            Some(local) => build_of(local),
        };
        let is_other = !rest.is_empty();
        Some(Self {
            release: (major, minor),
            version,
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
    #[must_use]
    fn known(&self) -> Option<&'static TorchRelease> {
        tables::find_torch_release(self.release)
    }
}

impl From<&TorchRelease> for NamedTorch {
    fn from(torch: &TorchRelease) -> Self {
        Self {
            release: torch.release,
            version: torch.newest.to_owned(),
            build: NamedBuild::Default,
            is_other: false,
        }
    }
}

fn build_of(local: &str) -> NamedBuild {
    let first = local.split(['.', '-', '_']).next().unwrap_or(local);
    match local_cuda(first) {
        Some(cuda) => NamedBuild::Cuda(cuda),
        None if first == "cpu" => NamedBuild::Cpu,
        None if first.starts_with("rocm") => NamedBuild::Rocm,
        None => NamedBuild::Other(local.to_owned()),
    }
}

/// One named torch on machines. `None` where nothing is known of its release and of its build.
#[must_use]
pub(super) fn torch_row(named: &NamedTorch, machines: &[HostFacts]) -> MatrixRow {
    let torch = named.known();
    let as_released = torch.filter(|_| !named.is_other);
    let cuda = match &named.build {
        NamedBuild::Default => as_released.map(|torch| torch.cuda),
        NamedBuild::Cuda(cuda) => Some(*cuda),
        _ => None,
    };
    let name = match (&named.build, as_released) {
        (NamedBuild::Default, Some(torch)) => torch.newest,
        _ => &named.version,
    };
    let cell = |machine: &HostFacts| cell(named, as_released, machine);
    MatrixRow {
        name: format!("torch {name}"),
        cuda,
        cells: machines.iter().map(cell).collect(),
    }
}

fn cell(
    named: &NamedTorch,
    torch: Option<&'static TorchRelease>,
    machine: &HostFacts,
) -> MatrixCell {
    let Some(cuda) = (match &named.build {
        NamedBuild::Cpu => return without_cuda("it is built for CPUs alone", machine),
        NamedBuild::Rocm => return without_cuda("it is built for AMD cards", machine),
        NamedBuild::Other(local) => {
            return unknown(&format!(
                "nothing is known of a build that is called {local}"
            ));
        }
        NamedBuild::Default => match torch {
            Some(torch) => return default_cell(torch, machine),
            None => None,
        },
        NamedBuild::Cuda(cuda) => Some(*cuda),
    }) else {
        return unknown("the builds of releases alone are known");
    };
    if let Some((torch, build)) = torch.and_then(|torch| Some((torch, torch.find_build(cuda)?))) {
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
    match never(cuda, machine) {
        Some(why) => MatrixCell {
            verdict: Compatibility::Fails,
            basis: CompatibilityBasis::Table(tables::SourceQuality::Published),
            ..unknown(&why)
        },
        None => unknown(&format!(
            "for which cards its build for CUDA {cuda} has code is not known"
        )),
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
