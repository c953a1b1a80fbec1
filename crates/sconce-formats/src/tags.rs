//! Wheel file names and their tags: which wheel suits the target, and which suits it best (the
//! binary distribution format's file names, platform compatibility tags, manylinux PEP 600).

/// What wheels have to run on: CPython and glibc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WheelTarget {
    /// Python's minor version: 13 for 3.13.
    pub python_minor: u32,
    /// glibc's minor version: 41 for 2.41.
    pub glibc_minor: u32,
    /// The machine.
    pub machine: CpuArchitecture,
}

/// A machine that Sconce makes environments for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuArchitecture {
    /// Debian's amd64.
    X86_64,
    /// Debian's arm64.
    Aarch64,
}

impl CpuArchitecture {
    /// From Debian's name of the architecture.
    #[must_use]
    pub fn from_debian(architecture: &str) -> Option<Self> {
        match architecture {
            "amd64" => Some(Self::X86_64),
            "arm64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// The machine that this program runs on; `None` for one that Sconce does not know.
    #[must_use]
    pub fn current_host() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// As wheels and uv name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }
}

/// A wheel's file name, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WheelName<'a> {
    /// The project, as written.
    pub project: &'a str,
    /// The version, as written.
    pub version: &'a str,
    /// The build number, which decides between builds of one version; absent sorts lowest.
    pub build: Option<(u64, &'a str)>,
    pythons: &'a str,
    abis: &'a str,
    platforms: &'a str,
}

/// How well a wheel suits; the greatest is taken. ABI before platform before build, as installers
/// order their tags; a build number only decides between wheels of one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TagPriority<'a> {
    interpreter: (u32, u32),
    platform: u32,
    build: Option<(u64, &'a str)>,
}

impl<'a> WheelName<'a> {
    /// Reads `project-version[-build]-python-abi-platform.whl`; `None` for anything else.
    #[must_use]
    pub fn parse(file: &'a str) -> Option<Self> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._+!-".contains(&b);
        let stem = file
            .strip_suffix(".whl")
            .filter(|stem| stem.bytes().all(plain))?;
        let parts: Vec<&str> = stem.split('-').collect();
        let (project, version, build, tags) = match parts[..] {
            [project, version, p, a, t] => (project, version, None, [p, a, t]),
            [project, version, build, p, a, t] => {
                (project, version, Some(parse_build(build)?), [p, a, t])
            }
            _ => return None,
        };
        let filled = ![project, version]
            .into_iter()
            .chain(tags)
            .any(str::is_empty);
        let [pythons, abis, platforms] = tags;
        filled.then_some(Self {
            project,
            version,
            build,
            pythons,
            abis,
            platforms,
        })
    }

    /// How well it suits the target; `None` when it does not run there.
    #[must_use]
    pub fn tag_priority(&self, target: WheelTarget) -> Option<TagPriority<'a>> {
        let interpreter = self
            .pythons
            .split('.')
            .flat_map(|python| self.abis.split('.').map(move |abi| (python, abi)))
            .filter_map(|(python, abi)| interpreter(python, abi, target.python_minor))
            .max()?;
        let platform = self
            .platforms
            .split('.')
            .filter_map(|tag| platform(tag, target))
            .max()?;
        Some(TagPriority {
            interpreter,
            platform,
            build: self.build,
        })
    }

    /// Its tags, `cp313-cp313-manylinux_2_28_x86_64`.
    #[must_use]
    pub fn tag_string(&self) -> String {
        format!("{}-{}-{}", self.pythons, self.abis, self.platforms)
    }
}

/// A build tag begins with a number.
fn parse_build(build: &str) -> Option<(u64, &str)> {
    let end = build
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(build.len());
    Some((build[..end].parse().ok()?, &build[end..]))
}

/// Rank of a Python tag with an ABI tag: the interpreter's own ABI, then the stable ABI of it and
/// of older ones, then no ABI at all.
fn interpreter(python: &str, abi: &str, minor: u32) -> Option<(u32, u32)> {
    // `cp313t`, the free-threaded ABI, is another interpreter's: not a number, so refused.
    let number = |tag: &str, prefix: &str| tag.strip_prefix(prefix)?.parse::<u32>().ok();
    let cpython = number(python, "cp3");
    match abi {
        "abi3" => cpython.filter(|m| *m <= minor && *m >= 2).map(|m| (3, m)),
        "none" if cpython == Some(minor) => Some((2, minor)),
        "none" if python == "py3" => Some((1, 0)),
        "none" => number(python, "py3")
            .filter(|m| *m <= minor)
            .map(|m| (1, m)),
        _ => (cpython == Some(minor) && number(abi, "cp3") == Some(minor)).then_some((4, minor)),
    }
}

/// Rank of a platform tag: the newest glibc that the target has first, then the machine's plain
/// tag, then any.
fn platform(tag: &str, target: WheelTarget) -> Option<u32> {
    if tag == "any" {
        return Some(0);
    }
    let system = tag.strip_suffix(target.machine.name())?.strip_suffix('_')?;
    let glibc_minor = match system {
        "linux" => return Some(1),
        // Older names of three levels (PEP 600).
        "manylinux1" => 5,
        "manylinux2010" => 12,
        "manylinux2014" => 17,
        _ => system.strip_prefix("manylinux_2_")?.parse().ok()?,
    };
    (glibc_minor <= target.glibc_minor).then_some(2 + glibc_minor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRIXIE: WheelTarget = WheelTarget {
        python_minor: 13,
        glibc_minor: 41,
        machine: CpuArchitecture::X86_64,
    };

    fn fits(file: &str, target: WheelTarget) -> bool {
        WheelName::parse(file)
            .unwrap()
            .tag_priority(target)
            .is_some()
    }

    #[test]
    fn runs_on_trixie() {
        for tags in [
            "cp313-cp313-manylinux_2_28_x86_64",
            "cp313-cp313-manylinux_2_41_x86_64",
            "cp313-cp313-linux_x86_64",
            "cp313-none-manylinux_2_17_x86_64.manylinux2014_x86_64",
            "cp39-abi3-manylinux_2_5_x86_64.manylinux1_x86_64",
            "cp313-abi3-any",
            "py3-none-any",
            "py2.py3-none-any",
            "py310-none-any",
            "py3-none-manylinux_2_28_x86_64",
            "cp312.cp313-cp312.cp313-manylinux2010_x86_64",
        ] {
            assert!(fits(&format!("a-1.0-{tags}.whl"), TRIXIE), "{tags}");
        }
    }

    #[test]
    fn does_not_run_on_trixie() {
        for tags in [
            "cp312-cp312-manylinux_2_28_x86_64",
            "cp313-cp313t-manylinux_2_28_x86_64",
            "cp314-abi3-any",
            "py2-none-any",
            "py314-none-any",
            "cp312-none-any",
            "cp313-cp313-manylinux_2_42_x86_64",
            "cp313-cp313-manylinux_3_1_x86_64",
            "cp313-cp313-musllinux_1_2_x86_64",
            "cp313-cp313-manylinux_2_28_aarch64",
            "cp313-cp313-win_amd64",
            "cp313-cp313-macosx_11_0_x86_64",
            "pp310-pypy310_pp73-manylinux_2_28_x86_64",
        ] {
            assert!(!fits(&format!("a-1.0-{tags}.whl"), TRIXIE), "{tags}");
        }
        let bookworm = WheelTarget {
            python_minor: 11,
            glibc_minor: 36,
            ..TRIXIE
        };
        assert!(!fits("a-1-py3-none-manylinux_2_38_x86_64.whl", bookworm));
        let arm = WheelTarget {
            machine: CpuArchitecture::Aarch64,
            ..TRIXIE
        };
        assert!(fits("a-1-cp313-cp313-manylinux_2_28_aarch64.whl", arm));
    }

    #[test]
    fn the_best_comes_last() {
        let files = [
            "a-1-py3-none-any.whl",
            "a-1-py311-none-any.whl",
            "a-1-py3-none-manylinux_2_28_x86_64.whl",
            "a-1-cp313-none-any.whl",
            "a-1-cp310-abi3-manylinux_2_28_x86_64.whl",
            "a-1-cp312-abi3-manylinux_2_17_x86_64.whl",
            "a-1-cp313-cp313-linux_x86_64.whl",
            "a-1-cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
            "a-1-cp313-cp313-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
            "a-1-2-cp313-cp313-manylinux_2_28_x86_64.whl",
            "a-1-10-cp313-cp313-manylinux_2_28_x86_64.whl",
            "a-1-10b-cp313-cp313-manylinux_2_28_x86_64.whl",
        ];
        let fit = |file| {
            WheelName::parse(file)
                .unwrap()
                .tag_priority(TRIXIE)
                .unwrap()
        };
        for pair in files.windows(2) {
            // A py3.11 tag is better than py3, but a platform is only compared within one ABI.
            let expected = pair[0] != "a-1-py311-none-any.whl";
            assert_eq!(fit(pair[0]) < fit(pair[1]), expected, "{pair:?}");
        }
    }

    #[test]
    fn refuses_what_is_no_wheel() {
        for file in [
            "",
            ".whl",
            "a-1.tar.gz",
            "a-1-py3-none.whl",
            "a--py3-none-any.whl",
            "a-1-x-py3-none-any.whl",
            "a-1-1-2-py3-none-any.whl",
            "../a-1-py3-none-any.whl",
            "a b-1-py3-none-any.whl",
        ] {
            assert_eq!(WheelName::parse(file), None, "{file}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(file in "(\\PC|-|_|[0-9]){0,40}(\\.whl)?") {
            if let Some(name) = WheelName::parse(&file) {
                let _ = name.tag_priority(TRIXIE);
            }
        }
    }
}
