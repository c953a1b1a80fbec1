//! Findings on environments by their versions and device code.

use sconce_compat::library::{CodeKind, CodeReach, CodeTarget, Coverage, GpuCode};
use sconce_compat::matrix::{self, Compatibility, NamedTorch};
use sconce_compat::rules::{self, CheckInput, EnvironmentVersions, InstalledPackage, TorchBackend};
use sconce_compat::tables;
use sconce_schema::finding::{Finding, FixAction, Severity};
use sconce_schema::{ComputeCapability, HostFacts};

fn host(gpu: &str, driver: Option<&str>) -> HostFacts {
    tables::host_from_gpu_name(gpu, driver).expect("a known card")
}

fn found(
    host: &HostFacts,
    environment: &EnvironmentVersions,
    files: &[(&str, &GpuCode)],
) -> Vec<Finding> {
    rules::check_all(&CheckInput {
        host,
        environment: Some(environment),
        files,
    })
}

/// Codes with their weights, and what they say.
fn text(findings: &[Finding]) -> String {
    let line = |found: &Finding| {
        let weight = format!("{:?}", found.weight).to_lowercase();
        let mut line = format!("{weight} [{}] {}\n", found.code, found.what);
        if let Some(error) = &found.error_text {
            line.push_str(&format!("    {error}\n"));
        }
        line
    };
    findings.iter().map(line).collect()
}

fn installed(packages: &[(&str, &str)]) -> EnvironmentVersions {
    EnvironmentVersions::from_packages(packages.iter().copied())
}

fn target(major: u32, minor: u32, code: CodeKind) -> CodeTarget {
    CodeTarget {
        capability: ComputeCapability::new(major, minor),
        code,
        reach: CodeReach::Onward,
    }
}

fn code(kinds: &[(&[CodeTarget], u32)]) -> GpuCode {
    let kind = |(targets, containers): &(&[CodeTarget], u32)| Coverage {
        targets: targets.to_vec(),
        containers: *containers,
    };
    GpuCode {
        coverage: kinds.iter().map(kind).collect(),
        ..GpuCode::default()
    }
}

#[test]
fn versions_that_do_not_belong_together() {
    let host = host("A100", Some("580.95.05"));
    let texts: Vec<String> = [
        &[("torch", "2.8.0+cpu")][..],
        &[("torch", "2.8.0"), ("numpy", "2.5.5")],
        &[("torch", "2.8.0+cu128"), ("torchvision", "0.22.1+cu128")],
        &[("torch", "2.8.0+cu128"), ("torchvision", "0.23.0+cpu")],
        &[("torch", "2.10.0+cu128"), ("torchaudio", "2.9.1+cu128")],
        &[
            ("torch", "2.8.0"),
            ("nvidia-cuda-runtime-cu12", "12.8.90"),
            ("nvidia-cudnn-cu12", "9.1.0.70"),
            ("nvidia-nccl-cu12", "2.21.5"),
            ("nvidia-nvjitlink-cu12", "12.4.127"),
            ("triton", "3.2.0"),
        ],
        &[
            ("torch", "2.8.0"),
            ("nvidia-cuda-runtime-cu12", "12.8.90"),
            ("nvidia-cudnn-cu12", "9.15.0.1"),
            ("nvidia-nccl-cu12", "2.28.9"),
        ],
        &[("torch", "2.8.0+cu128"), ("nvidia-cudnn-cu11", "8.9.2.26")],
    ]
    .iter()
    .map(|packages| text(&found(&host, &installed(packages), &[])))
    .collect();
    insta::assert_snapshot!(texts.join("--\n"));
}

#[test]
fn a_torchaudio_of_another_cuda() {
    // What Python says of these two.
    let text = "RuntimeError: Detected that PyTorch and TorchAudio were compiled with different CUDA \
                versions. PyTorch has CUDA version 13.2 whereas TorchAudio has CUDA version 13.0. \
                Please install the TorchAudio version that matches your PyTorch version.";
    let packages = [
        ("torch", "2.15.0"),
        ("nvidia-cuda-runtime", "13.2.86"),
        ("torchaudio", "2.11.0"),
    ];
    let found = found(&host("A100", Some("580.95.05")), &installed(&packages), &[]);
    let [finding] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(finding.error_text.as_deref(), Some(text));
    assert_eq!((finding.weight, finding.mends.len()), (Severity::Fails, 2));
}

/// The last torchaudio is built for CUDA 13.0: with the torch of a later CUDA it is refused, so asking
/// for it alone mends nothing.
#[test]
fn an_old_torchaudio_beside_a_torch_of_a_later_cuda() {
    let packages = [
        ("torch", "2.15.0"),
        ("nvidia-cuda-runtime", "13.2.86"),
        ("torchaudio", "2.8.0"),
    ];
    let found = found(&host("A100", Some("580.95.05")), &installed(&packages), &[]);
    let [finding] = found.as_slice() else {
        panic!("{found:?}");
    };
    let Some(FixAction::Spec { value, .. }) = &finding.mends[0].action else {
        panic!("{finding:?}");
    };
    let torch = value
        .strip_prefix("[\"torch==")
        .and_then(|rest| rest.strip_suffix("\", \"torchaudio==2.11.*\"]"));
    let mended = [
        ("torch", torch.expect("a torch and a torchaudio")),
        ("nvidia-cuda-runtime", "13.0.96"),
        ("torchaudio", "2.11.0"),
    ];
    let found = self::found(&host("A100", Some("580.95.05")), &installed(&mended), &[]);
    assert_eq!(text(&found), "");
}

#[test]
fn from_cuda_13_on_an_older_nvjitlink_is_no_reason_not_to_start() {
    let packages = [
        ("torch", "2.15.0"),
        ("nvidia-cuda-runtime", "13.2.86"),
        ("nvidia-nvjitlink", "13.0.88"),
    ];
    let found = found(&host("A100", Some("580.95.05")), &installed(&packages), &[]);
    let said: Vec<_> = found
        .iter()
        .map(|one| (one.code.as_str(), one.weight))
        .collect();
    assert_eq!(said, [("nvjitlink-older", Severity::Warns)]);
}

#[test]
fn versions_that_belong_together() {
    let host = host("A100", Some("580.95.05"));
    for packages in [
        &[("torch", "2.8.0+cu128"), ("torchvision", "0.23.0+cu128")][..],
        // From 0.29 on, one torchvision serves later torches; one torchaudio from 2.11 on.
        &[("torch", "2.15.0+cu132"), ("torchvision", "0.29.2")],
        &[
            ("torch", "2.12.1+cu130"),
            ("torchvision", "0.27.1"),
            ("torchaudio", "2.11.0"),
        ],
        // A newer nvJitLink is what resolving gives.
        &[
            ("torch", "2.4.1"),
            ("nvidia-cuda-runtime-cu12", "12.1.105"),
            ("nvidia-nvjitlink-cu12", "12.9.86"),
        ],
        // Nothing is known of what another patch release pins.
        &[
            ("torch", "2.4.0"),
            ("nvidia-cuda-runtime-cu12", "12.1.105"),
            ("nvidia-nccl-cu12", "2.20.4"),
        ],
        &[("numpy", "2.5.5")],
    ] {
        let found = found(&host, &installed(packages), &[]);
        assert_eq!(text(&found), "", "{packages:?}");
    }
}

#[test]
fn wheels_for_something_else() {
    let mut environment = EnvironmentVersions {
        python: Some("3.12".into()),
        glibc: Some("2.27".into()),
        architecture: Some("x86_64".into()),
        ..EnvironmentVersions::default()
    };
    for (name, file) in [
        ("pure", "pure-1.0-py3-none-any.whl"),
        ("old-pure", "old_pure-1.0-py2.py3-none-any.whl"),
        (
            "stable",
            "stable-1.0-cp38-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        ),
        (
            "too-stable",
            "too_stable-1.0-cp313-abi3-manylinux_2_17_x86_64.whl",
        ),
        ("own", "own-1.0-cp312-cp312-manylinux_2_17_x86_64.whl"),
        ("other", "other-1.0-cp313-cp313-manylinux_2_17_x86_64.whl"),
        ("arm", "arm-1.0-cp312-cp312-manylinux_2_17_aarch64.whl"),
        ("new", "new-1.0-3-cp312-cp312-manylinux_2_28_x86_64.whl"),
        (
            "either",
            "either-1.0-cp312-cp312-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
        ),
        ("broken", "not a wheel"),
    ] {
        let package = InstalledPackage {
            version: "1.0".into(),
            file: Some(file.into()),
        };
        environment.packages.insert(name.into(), package);
    }
    insta::assert_snapshot!(text(&found(&host("A100", None), &environment, &[])));
    // The whole environment is for another processor.
    let thor = found(&host("jetson thor", None), &environment, &[]);
    assert!(
        thor.iter()
            .any(|one| one.what.contains("the machine is aarch64"))
    );
}

#[test]
fn old_cards_have_limits() {
    let environment = installed(&[
        ("torch", "2.7.1+cu126"),
        ("triton", "3.3.1"),
        ("flash-attn", "2.8.3"),
        ("torchao", "0.14.0"),
    ]);
    let texts = ["P100", "GTX 1050 Ti", "T4", "A100", "GB10"].map(|gpu| {
        format!(
            "{gpu}\n{}",
            text(&found(&host(gpu, None), &environment, &[]))
        )
    });
    insta::assert_snapshot!(texts.join("--\n"));
}

#[test]
fn code_is_judged_by_container() {
    const PTX: CodeKind = CodeKind::Ptx { major: 8, minor: 8 };
    let sass = |major, minor| target(major, minor, CodeKind::Sass);
    let environment = EnvironmentVersions {
        torch_build: Some(TorchBackend::Cuda("12.8".parse().unwrap())),
        ..installed(&[("torch", "2.8.0")])
    };
    let ampere = [sass(8, 0), sass(8, 6)];
    let partial = code(&[(&ampere, 300), (&[sass(8, 6)], 2)]);
    let with_ptx = code(&[(&[sass(8, 0), target(9, 0, PTX)], 300)]);
    let torch = "env/torch/lib/libtorch_cuda.so";
    let linalg = code(&[(&ampere, 98), (&[sass(8, 6)], 1)]);
    let cublas = code(&[(&[sass(8, 6)], 50), (&[sass(8, 9)], 50)]);
    let placeholder = code(&[(&[sass(5, 2)], 1)]);
    let flash = code(&[(&[sass(9, 0)], 40)]);
    let all_80 = code(&[(&ampere, 300)]);
    type Files<'a> = Vec<(&'a str, &'a GpuCode)>;
    let cases: [(&str, Option<&str>, Files<'_>); 6] = [
        ("A100", None, vec![(torch, &partial)]),
        ("H100", Some("570.133.20"), vec![(torch, &with_ptx)]),
        ("H100", Some("575.57.08"), vec![(torch, &with_ptx)]),
        ("H100", None, vec![(torch, &with_ptx)]),
        (
            "A100",
            None,
            vec![
                (torch, &all_80),
                ("env/torch/lib/libtorch_cuda_linalg.so", &linalg),
                ("env/nvidia/cublas/lib/libcublasLt.so.12", &cublas),
                ("env/nvidia/cufft/lib/libcufft.so.11", &placeholder),
                (
                    "env/flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so",
                    &flash,
                ),
            ],
        ),
        ("2x V100", None, vec![(torch, &all_80)]),
    ];
    let texts: Vec<String> = cases
        .iter()
        .map(|(gpu, driver, files)| {
            let host = host(gpu, *driver);
            format!(
                "{}\n{}",
                host.name.clone().unwrap(),
                text(&found(&host, &environment, files))
            )
        })
        .collect();
    insta::assert_snapshot!(texts.join("--\n"));
}

#[test]
fn boards_run_code_of_their_own_only() {
    let sass = |major, minor| target(major, minor, CodeKind::Sass);
    let servers = code(&[(&[sass(8, 0), sass(9, 0)], 10)]);
    let orin = ComputeCapability::new(8, 7);
    let running = |cuda: &str| {
        let built = Some(cuda.parse().unwrap());
        rules::runnable_code(&servers, orin, None, built).runnable_count()
    };
    assert_eq!((running("12.9"), running("13.2")), (0, 10));
}

#[test]
fn a_card_that_torch_left_behind() {
    let environment = installed(&[
        ("torch", "2.15.0"),
        ("nvidia-cuda-runtime", "13.2.86"),
        ("triton", "3.9.0"),
    ]);
    let found = found(&host("V100", Some("580.95.05")), &environment, &[]);
    let heaviest = &found[0];
    assert_eq!(
        (heaviest.code.as_str(), heaviest.weight),
        ("no-kernel-image", Severity::Fails)
    );
    let mends: Vec<&str> = heaviest
        .mends
        .iter()
        .map(|mend| mend.what.as_str())
        .collect();
    assert_eq!(
        mends,
        [
            "Take the newest that runs on this machine: torch 2.14.1 built with CUDA 12.6, from \
          PyTorch's own index cu126 (python.extra-index)"
        ]
    );
}

#[test]
fn a_slim_image_for_other_cards() {
    let environment = installed(&[("torch", "2.15.0"), ("nvidia-cuda-runtime", "13.2.86")]);
    let sass = |major, minor| target(major, minor, CodeKind::Sass);
    let mut slim = code(&[(&[sass(9, 0)], 476)]);
    slim.emptied = vec![sass(7, 5), sass(8, 6)];
    let files = [
        ("torch/lib/libtorch_cuda.so", &slim),
        ("nvidia/cu13/lib/libcublas.so.13", &slim),
        ("torchvision/_C.so", &slim),
    ];
    let found = found(&host("RTX 3070", None), &environment, &files);
    let said: Vec<&str> = found.iter().map(|one| one.what.as_str()).collect();
    // One finding: the rest is mended with it.
    assert_eq!(
        said,
        [
            "torch 2.15.0 has code for the GeForce RTX 3070 (8.6), but this copy of it does not: it \
             was left out, as in an image made for other cards"
        ]
    );
    let mends: Vec<&str> = found[0].mends.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(
        mends,
        [
            "Add the card to `build.cards` in sconce.toml (\"8.6\"), or leave `build.cards` out so \
             that the image is for every card; then build again"
        ]
    );
}

#[test]
fn a_torch_that_was_built_for_other_cards() {
    let environment = installed(&[("torch", "2.15.0"), ("nvidia-cuda-runtime", "13.2.86")]);
    let own = code(&[(&[target(9, 0, CodeKind::Sass)], 476)]);
    let files = [("torch/lib/libtorch_cuda.so", &own)];
    let found = found(&host("RTX 3070", None), &environment, &files);
    let [finding] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!(
        finding.what,
        "this torch 2.15.0 has no code for the GeForce RTX 3070 (compute capability 8.6), which \
         PyTorch's own build of it has: it was built for other cards"
    );
    let mends: Vec<&str> = finding.mends.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(
        mends,
        [
            "Take PyTorch's own build of torch 2.15.0",
            "Build it for this card too"
        ]
    );
}

#[test]
fn what_comes_with_torch_is_not_named_beside_it() {
    let environment = installed(&[("torch", "2.15.0"), ("nvidia-cuda-runtime", "13.2.86")]);
    let sass = |major, minor| target(major, minor, CodeKind::Sass);
    let newer = code(&[(&[sass(7, 5), sass(9, 0)], 40)]);
    let files = [
        ("torch/lib/libtorch_cuda.so", &newer),
        ("nvidia/cu13/lib/libcublas.so.13", &newer),
        ("torchvision/_C.so", &newer),
        ("flash_attn_2_cuda.so", &newer),
    ];
    let of_v100 = found(&host("V100", None), &environment, &files);
    let heavy = of_v100.iter().filter(|one| one.weight != Severity::Notes);
    let said: Vec<&str> = heavy.map(|one| one.what.as_str()).collect();
    assert_eq!(
        said,
        [
            "torch 2.15.0 has no code for the Tesla V100 (compute capability 7.0)",
            "flash_attn_2_cuda.so has no code for the Tesla V100 (7.0)",
        ]
    );
    // Nothing was read on a machine that was only named.
    let sources = of_v100.iter().flat_map(|one| &one.evidence);
    let mut sources = sources.map(|one| one.source.as_str());
    assert!(sources.all(|source| source != "NVML" && !source.starts_with("/proc")));
}

#[test]
fn libraries_of_nvidia_are_named_by_their_families() {
    let environment = installed(&[("torch", "2.15.0"), ("nvidia-cuda-runtime", "13.2.86")]);
    let sass = |major, minor| target(major, minor, CodeKind::Sass);
    let all = code(&[(&[sass(7, 5), sass(8, 0), sass(9, 0)], 40)]);
    let some = code(&[(&[sass(8, 0), sass(9, 0)], 40)]);
    let files = [
        ("torch/lib/libtorch_cuda.so", &all),
        ("nvidia/cu13/lib/libcublas.so.13", &some),
        ("nvidia/cu13/lib/libcublasLt.so.13", &some),
        ("nvidia/cudnn/lib/libcudnn_ops.so.9", &some),
        // Neither an extension nor of weight.
        ("nvidia/cu13/lib/libcufile.so.0", &some),
    ];
    let of_t4 = found(&host("T4", None), &environment, &files);
    let said = of_t4.iter().find(|one| one.code == "no-kernel-image");
    let said = said.map(|one| (one.weight, one.what.as_str(), one.evidence.len()));
    assert_eq!(
        said,
        Some((
            Severity::Warns,
            "4 of NVIDIA's libraries have no code for the Tesla T4 (7.5): files of libcublas, \
             libcudnn, libcufile",
            4
        ))
    );
    let found = found(&host("T4", None), &environment, &[files[0], files[4]]);
    let cufile = found.iter().find(|one| one.code == "no-kernel-image");
    assert_eq!(cufile.map(|one| one.weight), Some(Severity::Notes));
}

#[test]
fn a_card_that_nobody_knows_is_not_said_to_run() {
    let mut host = host("H100", Some("580.95.05"));
    let mut unknown = host.cards[0].clone();
    unknown.index = 1;
    unknown.name = Some("NVIDIA X9000".to_owned());
    unknown.capability = None;
    let of = |environment: &EnvironmentVersions, host: &HostFacts| -> Vec<Finding> {
        let mut found = found(host, environment, &[]);
        found.retain(|one| one.code == rules::NOT_JUDGED);
        found
    };
    let torch = installed(&[("torch", "2.10.0+cu128")]);
    assert_eq!(of(&torch, &host), []);
    host.cards.push(unknown.clone());
    // Beside one that is known, and alone.
    for cards in [host.cards.clone(), vec![unknown.clone()]] {
        host.cards = cards;
        let said = of(&torch, &host);
        assert_eq!(said.len(), 1);
        assert!(said[0].what.contains("NVIDIA X9000"), "{}", said[0].what);
        let row = matrix::environment_row("it", &torch, &[], std::slice::from_ref(&host));
        assert_eq!(row.cells[0].verdict, Compatibility::Unknown);
        assert!(
            row.cells[0].reason.contains("X9000"),
            "{}",
            row.cells[0].reason
        );
    }
    // What uses no CUDA, and a card that was lost, are told of otherwise.
    assert_eq!(of(&installed(&[("torch", "2.10.0+cpu")]), &host), []);
    host.cards[0].lost = Some("GPU is lost".to_owned());
    assert_eq!(of(&torch, &host), []);
}

#[test]
fn a_table_says_so_of_a_machine_with_a_card_that_nobody_knows() {
    let mut host = host("H100", Some("580.95.05"));
    let mut unknown = host.cards[0].clone();
    (unknown.name, unknown.capability) = (Some("NVIDIA X9000".to_owned()), None);
    host.cards.push(unknown);
    let torch = NamedTorch::parse("2.10.0+cu128").unwrap();
    let table = matrix::build_torch_matrix(&[torch], &[host]);
    assert_eq!(table.rows[0].cells[0].verdict, Compatibility::Unknown);
}
