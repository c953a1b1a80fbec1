//! The versions that decide whether an environment runs on a given card and driver.

use sconce_schema::CudaVersion;
use sconce_schema::lock::{LockedVersions, Wheel};

/// Names the versions among the wheels. `python` and `glibc` are the full versions of the
/// Debian packages.
#[must_use]
pub fn name_versions(wheels: &[Wheel], python: &str, glibc: &str) -> LockedVersions {
    let torch = version(wheels, &["torch"]);
    let cuda = cuda(wheels, torch);
    let text = |names: &[&str]| version(wheels, names).map(str::to_owned);
    LockedVersions {
        python: python.to_owned(),
        glibc: glibc.to_owned(),
        torch: torch.map(str::to_owned),
        cuda,
        cudnn: text(&[
            "nvidia-cudnn",
            "nvidia-cudnn-cu13",
            "nvidia-cudnn-cu12",
            "nvidia-cudnn-cu11",
        ]),
        nccl: text(&[
            "nvidia-nccl",
            "nvidia-nccl-cu13",
            "nvidia-nccl-cu12",
            "nvidia-nccl-cu11",
        ]),
        triton: text(&["triton", "pytorch-triton"]),
        lowest_driver: cuda.and_then(CudaVersion::lowest_driver),
    }
}

/// The CUDA version of the environment is that of its runtime library. It is not the largest
/// version among the wheels: some of them are asked for as ranges, so that an environment of
/// CUDA 13.2 holds an nvjitlink of 13.5. Wheels that carry CUDA inside themselves tell it in
/// torch's local version.
pub(super) fn cuda(wheels: &[Wheel], torch: Option<&str>) -> Option<CudaVersion> {
    let runtime = [
        "nvidia-cuda-runtime",
        "nvidia-cuda-runtime-cu13",
        "nvidia-cuda-runtime-cu12",
        "nvidia-cuda-runtime-cu11",
        "cuda-toolkit",
    ];
    version(wheels, &runtime)
        .and_then(|version| version.parse().ok())
        .or_else(|| local_cuda(torch?))
}

/// `2.8.0+cu126` is built for 12.6, `1.13.1+cu117` for 11.7: the last digit is the minor number.
fn local_cuda(torch: &str) -> Option<CudaVersion> {
    let (_, local) = torch.split_once('+')?;
    let digits = local.split('.').find_map(|part| part.strip_prefix("cu"))?;
    let (major, minor) = digits.split_at_checked(digits.len().checked_sub(1)?)?;
    Some(CudaVersion::new(major.parse().ok()?, minor.parse().ok()?))
}

/// The version of the first of these that is there.
fn version<'a>(wheels: &'a [Wheel], names: &[&str]) -> Option<&'a str> {
    names
        .iter()
        .find_map(|name| wheels.iter().find(|wheel| wheel.name == *name))
        .map(|wheel| wheel.version.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::Sha256;

    fn named(wheels: &[(&str, &str)]) -> LockedVersions {
        let wheels: Vec<Wheel> = wheels
            .iter()
            .map(|(name, version)| Wheel {
                name: (*name).to_owned(),
                version: (*version).to_owned(),
                file: String::new(),
                url: String::new(),
                size: None,
                sha256: Sha256([0; 32]),
                build: None,
            })
            .collect();
        name_versions(&wheels, "3.13.5-2", "2.41-12")
    }

    /// torch, the CUDA runtime's project and version, cuDNN, NCCL, triton, and the CUDA version and
    /// lowest driver that follow. Versions from the metadata of the wheels themselves.
    const RELEASES: [[&str; 7]; 7] = [
        [
            "2.0.1",
            "nvidia-cuda-runtime-cu11 11.7.99",
            "8.5.0.96",
            "2.14.3",
            "2.0.0",
            "11.7",
            "450.80.02",
        ],
        [
            "2.1.2",
            "nvidia-cuda-runtime-cu12 12.1.105",
            "8.9.2.26",
            "2.18.1",
            "2.1.0",
            "12.1",
            "525.60.13",
        ],
        [
            "2.4.1",
            "nvidia-cuda-runtime-cu12 12.1.105",
            "9.1.0.70",
            "2.20.5",
            "3.0.0",
            "12.1",
            "525.60.13",
        ],
        [
            "2.6.0",
            "nvidia-cuda-runtime-cu12 12.4.127",
            "9.1.0.70",
            "2.21.5",
            "3.2.0",
            "12.4",
            "525.60.13",
        ],
        [
            "2.8.0",
            "nvidia-cuda-runtime-cu12 12.8.90",
            "9.10.2.21",
            "2.27.3",
            "3.4.0",
            "12.8",
            "525.60.13",
        ],
        [
            "2.11.0",
            "nvidia-cuda-runtime 13.0.96",
            "9.19.0.56",
            "2.28.9",
            "3.6.0",
            "13.0",
            "580.65.06",
        ],
        [
            "2.15.0",
            "nvidia-cuda-runtime 13.2.86",
            "9.26.0.51",
            "2.30.7",
            "3.9.0",
            "13.2",
            "580.65.06",
        ],
    ];

    #[test]
    fn releases_of_torch() {
        for [torch, runtime, cudnn, nccl, triton, cuda, driver] in RELEASES {
            let (runtime, version) = runtime.split_once(' ').unwrap();
            let suffix = match cuda.split('.').next() {
                Some("11") => "cu11",
                Some("12") => "cu12",
                _ => "cu13",
            };
            let versions = named(&[
                (&format!("nvidia-cudnn-{suffix}"), cudnn),
                (&format!("nvidia-nccl-{suffix}"), nccl),
                // Newer than the runtime, as resolving gives it.
                ("nvidia-nvjitlink", "13.5.37"),
                ("nvidia-nvjitlink-cu12", "12.9.86"),
                (runtime, version),
                ("torch", torch),
                ("triton", triton),
            ]);
            assert_eq!(versions.torch.as_deref(), Some(torch));
            assert_eq!(versions.cuda, Some(cuda.parse().unwrap()), "torch {torch}");
            assert_eq!(versions.cudnn.as_deref(), Some(cudnn));
            assert_eq!(versions.nccl.as_deref(), Some(nccl));
            assert_eq!(versions.triton.as_deref(), Some(triton));
            assert_eq!(
                versions.lowest_driver,
                Some(driver.parse().unwrap()),
                "torch {torch}"
            );
        }
    }

    #[test]
    fn cuda_inside_the_torch_wheel() {
        for (torch, cuda) in [
            ("2.8.0+cu126", Some("12.6")),
            ("1.13.1+cu117", Some("11.7")),
            ("2.11.0+cu130", Some("13.0")),
            ("2.9.0+cu128.with.cudnn", Some("12.8")),
            ("2.8.0+cpu", None),
            ("2.8.0+cu", None),
            ("2.8.0+cu1", None),
            ("2.8.0+cuµ", None),
            ("2.8.0", None),
        ] {
            assert_eq!(
                named(&[("torch", torch)]).cuda,
                cuda.map(|c| c.parse().unwrap()),
                "{torch}"
            );
        }
    }

    #[test]
    fn what_is_not_there_is_absent() {
        let versions = named(&[("numpy", "2.5.5")]);
        let expected = LockedVersions {
            python: "3.13.5-2".into(),
            glibc: "2.41-12".into(),
            ..LockedVersions::default()
        };
        assert_eq!(versions, expected);
    }
}
