//! What a shared library says of itself, as far as anything here judges it.
//!
//! It is a function of the file's bytes alone, so it can be kept by their digest and read again.

use sconce_schema::ComputeCapability;
use serde::{Deserialize, Serialize};

/// What was read from one ELF file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ElfLibrary {
    /// `e_machine`: 62 is x86-64, 183 is AArch64.
    pub machine: u16,
    /// `DT_SONAME`.
    pub soname: Option<String>,
    /// `DT_NEEDED`, in order.
    pub needed: Vec<String>,
    /// `DT_RPATH`, split at the colons. The loader ignores it where there is a `DT_RUNPATH`.
    pub rpath: Vec<String>,
    /// `DT_RUNPATH`, split at the colons.
    pub runpath: Option<Vec<String>>,
    /// Versions that it needs of others (`.gnu.version_r`).
    pub needs_versions: Vec<NeededVersions>,
    /// Versions that it defines (`.gnu.version_d`), without its own name's.
    pub defines_versions: Vec<String>,
    /// Undefined symbols of PyTorch's C++ libraries (namespaces `c10`, `at`, `torch`, `caffe2`,
    /// mangled) and of CUDA's ([`crate::loader::is_cuda_symbol`]), which must come from another
    /// library. Sorted.
    /// Undefined symbols of PyTorch's libraries (namespaces `c10`, `at`, `torch`, `caffe2`, `c10d`,
    /// mangled; its Python bindings and C interface), which must come from another library: weak
    /// ones are left out. Sorted.
    pub undefined: Vec<String>,
    /// [`symbol_hash`] of such symbols that it defines itself. Sorted.
    pub defined: Vec<u64>,
    /// Device code.
    pub gpu: GpuCode,
}

/// Versions needed of one library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct NeededVersions {
    /// `libc.so.6`.
    pub of: String,
    /// `GLIBC_2.27`, …; those marked weak are left out.
    pub versions: Vec<String>,
}

/// The device code in a library's fat binaries.
///
/// A library holds many containers, one for each compiled file; each has the same code for several
/// kinds of card. A kernel runs only if its own container has an entry for the card, so coverage is
/// counted by container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct GpuCode {
    /// The different sets of targets that containers have, most common first.
    pub coverage: Vec<Coverage>,
    /// Bytes in the sections of device code that are no container, or in one of no known kind of
    /// code: what could not be read.
    pub unread_bytes: u64,
    /// What some containers had code for before it was overwritten with zeros, as in a slim image for
    /// other cards. Sorted, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub emptied: Vec<CodeTarget>,
}

/// Containers with the same targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Coverage {
    /// What they have code for, sorted, each once.
    pub targets: Vec<CodeTarget>,
    /// How many containers there are of this kind.
    pub containers: u32,
}

/// What an entry of a fat binary is for. Orders by capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CodeTarget {
    /// The compute capability that it was compiled for.
    pub capability: ComputeCapability,
    /// Machine code, or text for the driver's compiler.
    pub code: CodeKind,
    /// How far beyond the capability it runs.
    pub reach: CodeReach,
}

/// Kind of device code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CodeKind {
    /// Machine code (a cubin).
    Sass,
    /// PTX of this version of the language, `8.7`; the driver compiles it if it knows the version.
    Ptx {
        /// Major.
        major: u16,
        /// Minor.
        minor: u16,
    },
}

/// Which cards run code beside those of its own capability (CUDA C++ programming guide, "Compute
/// capability and binary compatibility").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CodeReach {
    /// No suffix. Machine code: the same major and the same or a higher minor. PTX: everything from
    /// here on.
    Onward,
    /// `f`: cards of the same family.
    Family,
    /// `a`: this capability and no other.
    Exact,
}

impl CodeTarget {
    /// Whether a card of this capability can run it. PTX also needs a driver that knows its
    /// version, which is not asked here.
    #[must_use]
    pub fn can_run_on(self, card: ComputeCapability) -> bool {
        let own = self.capability;
        match (self.reach, self.code) {
            (CodeReach::Exact, _) => card == own,
            (CodeReach::Onward, CodeKind::Ptx { .. }) => card >= own,
            // A family is the cards of one major from the capability on: 10.0 and 10.3, 12.0 and 12.1.
            (CodeReach::Onward | CodeReach::Family, _) => {
                card.major == own.major && card.minor >= own.minor
            }
        }
    }
}

impl GpuCode {
    /// All containers.
    #[must_use]
    pub fn container_count(&self) -> u32 {
        self.coverage.iter().map(|kind| kind.containers).sum()
    }

    /// Whether code that a card of this capability can run was overwritten.
    #[must_use]
    pub fn is_emptied_for(&self, card: ComputeCapability) -> bool {
        self.emptied.iter().any(|target| target.can_run_on(card))
    }

    /// Containers with an entry that a card of this capability can run.
    #[must_use]
    pub fn container_count_for(&self, card: ComputeCapability) -> u32 {
        let serves = |kind: &&Coverage| kind.targets.iter().any(|target| target.can_run_on(card));
        let kinds = self.coverage.iter().filter(serves);
        kinds.map(|kind| kind.containers).sum()
    }
}

/// A symbol's hash, FNV-1a of 64 bits: small enough to keep the thousands that PyTorch exports.
#[must_use]
pub fn symbol_hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(major: u32, minor: u32, code: CodeKind, reach: CodeReach) -> CodeTarget {
        CodeTarget {
            capability: ComputeCapability::new(major, minor),
            code,
            reach,
        }
    }

    #[test]
    fn code_serves_the_cards_that_it_reaches() {
        const PTX: CodeKind = CodeKind::Ptx { major: 8, minor: 7 };
        for (own, code, reach, runs, not) in [
            (
                (8, 6),
                CodeKind::Sass,
                CodeReach::Onward,
                [(8, 6), (8, 9)],
                [(8, 0), (9, 0)],
            ),
            (
                (9, 0),
                CodeKind::Sass,
                CodeReach::Exact,
                [(9, 0), (9, 0)],
                [(9, 1), (10, 0)],
            ),
            (
                (10, 0),
                CodeKind::Sass,
                CodeReach::Family,
                [(10, 0), (10, 3)],
                [(9, 0), (12, 0)],
            ),
            (
                (7, 5),
                PTX,
                CodeReach::Onward,
                [(7, 5), (12, 1)],
                [(7, 0), (6, 1)],
            ),
            (
                (9, 0),
                PTX,
                CodeReach::Exact,
                [(9, 0), (9, 0)],
                [(10, 0), (8, 9)],
            ),
        ] {
            let target = target(own.0, own.1, code, reach);
            let serves = |(major, minor)| target.can_run_on(ComputeCapability::new(major, minor));
            assert_eq!(
                (runs.map(serves), not.map(serves)),
                ([true; 2], [false; 2]),
                "{target:?}"
            );
        }
    }

    #[test]
    fn coverage_is_counted_by_container() {
        let sass = |major, minor| target(major, minor, CodeKind::Sass, CodeReach::Onward);
        let kind = |targets, containers| Coverage {
            targets,
            containers,
        };
        let code = GpuCode {
            coverage: vec![
                kind(vec![sass(8, 0), sass(9, 0)], 475),
                kind(vec![sass(8, 9)], 1),
            ],
            ..GpuCode::default()
        };
        let serving = |major, minor| code.container_count_for(ComputeCapability::new(major, minor));
        assert_eq!(
            (
                code.container_count(),
                serving(8, 9),
                serving(8, 6),
                serving(7, 0)
            ),
            (476, 476, 475, 0)
        );
    }
}
