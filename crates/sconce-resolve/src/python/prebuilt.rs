//! Wheels that projects publish with the releases of their repository and not on an index: extensions of
//! torch, a wheel for each of its series, of Python's and of CUDA's. Their setup.py would fetch the same
//! file from the same address, or compile for an hour with a CUDA toolkit.

use sconce_schema::lock::Wheel;

use super::versions;

/// Where they are, unless the user's configuration has another address.
pub const RELEASES: &str = "https://github.com";

/// Projects that publish such wheels: the name on indexes, the repository.
///
/// The names of their files are those of `get_wheel_url` in each project's setup.py (flash-attention
/// 2.8, mamba 2.2, causal-conv1d 1.5).
const PROJECTS: [(&str, &str); 3] = [
    ("causal-conv1d", "Dao-AILab/causal-conv1d"),
    ("flash-attn", "Dao-AILab/flash-attention"),
    ("mamba-ssm", "state-spaces/mamba"),
];

/// The torch that an extension is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TorchBuild {
    major: u32,
    minor: u32,
    /// The CUDA that it is built with.
    cuda: u32,
    /// Whether its C++ names are those of the newer ABI of libstdc++.
    cxx11_abi: bool,
}

impl TorchBuild {
    /// That of an environment; `None` where it has none, or one for the CPU.
    fn find(wheels: &[Wheel]) -> Option<Self> {
        let torch = wheels.iter().find(|wheel| wheel.name == "torch")?;
        let (public, local) = (torch.version.split_once('+')).unwrap_or((&torch.version, ""));
        let mut parts = public.split('.').map_while(|part| part.parse().ok());
        let (major, minor): (u32, u32) = (parts.next()?, parts.next()?);
        Some(Self {
            major,
            minor,
            cuda: versions::cuda(wheels, Some(&torch.version))?.major,
            // The notes of torch 2.6 and 2.7: from 2.7 on all builds, of 2.6 the one for CUDA 12.6.
            cxx11_abi: (major, minor) >= (2, 7) || (major, minor) == (2, 6) && local == "cu126",
        })
    }
}

/// Whether wheels of a package may be found so.
#[must_use]
pub fn publishes_wheels(name: &str) -> bool {
    PROJECTS.iter().any(|(project, _)| *project == name)
}

/// Where the wheel of a package may be, for the torch among `installed`, a Python such as `3.12` and a
/// Debian architecture; the likeliest first. `releases` is the address of the repositories' host.
#[must_use]
pub fn wheel_addresses(
    releases: &str,
    (name, version): (&str, &str),
    installed: &[Wheel],
    python: &str,
    architecture: &str,
) -> Vec<String> {
    let project = PROJECTS.iter().find(|(project, _)| *project == name);
    let (Some((_, repository)), Some(torch)) = (project, TorchBuild::find(installed)) else {
        return Vec::new();
    };
    let machine = match architecture {
        "arm64" => "aarch64",
        _ => "x86_64",
    };
    let tag = format!("cp{}", python.replace('.', ""));
    let abi = match torch.cxx11_abi {
        true => "TRUE",
        false => "FALSE",
    };
    let releases = releases.trim_end_matches('/');
    let stem = name.replace('-', "_");
    // Older releases have the minor version of CUDA.
    let of_cuda: &[&str] = match torch.cuda {
        11 => &["11", "118"],
        12 => &["12", "123", "122"],
        13 => &["13"],
        _ => &[],
    };
    let address = |cuda: &&str| {
        let TorchBuild { major, minor, .. } = torch;
        format!(
            "{releases}/{repository}/releases/download/v{version}/{stem}-{version}%2B\
             cu{cuda}torch{major}.{minor}cxx11abi{abi}-{tag}-{tag}-linux_{machine}.whl"
        )
    };
    of_cuda.iter().map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::Sha256;

    fn wheel(name: &str, version: &str) -> Wheel {
        Wheel {
            name: name.into(),
            version: version.into(),
            file: format!("{name}-{version}-py3-none-any.whl"),
            url: String::new(),
            size: None,
            sha256: Sha256([0; 32]),
            build: None,
        }
    }

    fn first(torch: &str, cuda: &[Wheel], name: (&str, &str)) -> Option<String> {
        let wheels = [&[wheel("torch", torch)], cuda].concat();
        let all = wheel_addresses("https://host.example/", name, &wheels, "3.12", "amd64");
        all.into_iter().next()
    }

    #[test]
    fn files_are_named_by_torch_cuda_and_python() {
        let cuda12 = [wheel("nvidia-cuda-runtime-cu12", "12.4.127")];
        assert_eq!(
            first("2.5.1", &cuda12, ("flash-attn", "2.7.4.post1")).as_deref(),
            Some(
                "https://host.example/Dao-AILab/flash-attention/releases/download/v2.7.4.post1/\
                 flash_attn-2.7.4.post1%2Bcu12torch2.5cxx11abiFALSE-cp312-cp312-linux_x86_64.whl"
            )
        );
        let abi = |torch: &str| {
            let found = first(torch, &cuda12, ("mamba-ssm", "2.2.4")).unwrap();
            found.contains("cxx11abiTRUE")
        };
        for (torch, expected) in [
            ("2.6.0", false),
            ("2.6.0+cu126", true),
            ("2.7.0", true),
            ("2.10.1", true),
        ] {
            assert_eq!(abi(torch), expected, "{torch}");
        }
    }

    #[test]
    fn without_a_torch_for_cards_there_are_none() {
        let flash = ("flash-attn", "2.8.3");
        assert_eq!(first("2.5.1+cpu", &[], flash), None);
        let cuda12 = [wheel("nvidia-cuda-runtime-cu12", "12.4.127")];
        assert_eq!(first("2.5.1", &cuda12, ("numpy", "2.0")), None);
        let all = wheel_addresses("https://host.example", flash, &cuda12, "3.12", "amd64");
        assert_eq!(all, [""; 0]);
    }
}
