//! The matrix of torch and cards, from the tables alone.

use sconce_compat::library::{CodeKind, CodeReach, CodeTarget, Coverage, GpuCode};
use sconce_compat::matrix::{
    self, Compatibility, CompatibilityBasis, Matrix, MatrixRow, NamedTorch,
};
use sconce_compat::rules::{EnvironmentVersions, TorchBackend};
use sconce_compat::tables;
use sconce_schema::{ComputeCapability, CudaVersion, HostFacts};

const CARDS: [&str; 9] = [
    "P100", "V100", "T4", "A100", "3090", "4090", "H100", "B200", "5090",
];

fn releases() -> Vec<NamedTorch> {
    let all = tables::torch_releases().iter();
    all.filter(|torch| torch.release >= (2, 4))
        .map(NamedTorch::from)
        .collect()
}

/// The verdict, the CUDA and the reason of a named torch on a card.
fn named(version: &str, card: &str) -> (Compatibility, Option<String>, String) {
    let torch = NamedTorch::parse(version).expect(version);
    let matrix = matrix::build_torch_matrix(&[torch], &machines(&[card], None));
    let row = &matrix.rows[0];
    let cell = &row.cells[0];
    let cuda = row.cuda.map(|cuda| cuda.to_string());
    (cell.verdict, cuda, cell.reason.clone())
}

fn machines(cards: &[&str], driver: Option<&str>) -> Vec<HostFacts> {
    tables::hosts_from_gpu_names(cards.iter().copied(), driver).expect("known cards")
}

/// One line a cell, so that a change is seen where it is.
fn text(matrix: &Matrix) -> String {
    let mut out = String::new();
    for row in &matrix.rows {
        let cuda = row
            .cuda
            .map_or(String::new(), |cuda| format!(" (CUDA {cuda})"));
        out.push_str(&format!("{}{cuda}\n", row.name));
        for (machine, cell) in matrix.machines.iter().zip(&row.cells) {
            let instead = cell.instead.map_or(String::new(), |cuda| {
                format!("; runs built with CUDA {cuda}")
            });
            let basis = match cell.basis {
                CompatibilityBasis::Bytes => "bytes".to_owned(),
                CompatibilityBasis::Table(sure) => format!("{sure:?}").to_lowercase(),
                CompatibilityBasis::Nothing => "nothing".to_owned(),
            };
            let verdict = format!("{:?}", cell.verdict).to_lowercase();
            let line = format!(
                "{machine:<34} {verdict:<7} {basis:<9} {}{instead}",
                cell.reason
            );
            out.push_str(&format!("  {}\n", line.trim_end()));
        }
    }
    out.push_str(&match &matrix.newest {
        Some(choice) => format!(
            "newest on all: {} ({})\n",
            choice.requirement,
            choice.to_sentence()
        ),
        None => "newest on all: none\n".to_owned(),
    });
    out
}

#[test]
fn torch_2_4_to_2_15_on_nine_cards() {
    let matrix = matrix::build_torch_matrix(&releases(), &machines(&CARDS, None));
    insta::assert_snapshot!(text(&matrix));
}

#[test]
fn with_a_driver_the_cuda_decides_too() {
    let cards = ["V100", "RTX 3070", "B200"];
    let matrix = matrix::build_torch_matrix(&releases(), &machines(&cards, Some("535.104.05")));
    insta::assert_snapshot!(text(&matrix));
}

#[test]
fn the_newest_for_a_set_of_machines() {
    let newest = |cards: &[&str], driver| {
        matrix::newest_torch_for(&machines(cards, driver)).map(|choice| choice.requirement)
    };
    for (cards, driver, expected) in [
        (&["T4", "A100", "5090"][..], None, Some("torch==2.15.0")),
        (&["P100"], None, Some("torch==2.14.1+cu126")),
        (&["V100"], None, Some("torch==2.14.1+cu126")),
        (&["P100", "4090"], None, Some("torch==2.14.1+cu126")),
        // Volta and Blackwell meet in the cu128 builds of 2.8 to 2.10 only.
        (&["V100", "4090", "B200"], None, Some("torch==2.10.0")),
        (&["P100", "B200"], None, None),
        (&["K80"], None, Some("torch==2.7.1+cu118")),
        // On a driver without CUDA 13, the newest build with CUDA 12.
        (&["A100"], Some("550.54.15"), Some("torch==2.14.1+cu126")),
        (&["A100"], Some("470.57.02"), Some("torch==2.7.1+cu118")),
        (&["5090"], Some("575.57.08"), Some("torch==2.11.0+cu128")),
        (&["5090"], Some("550.54.15"), None),
        (&["V100"], Some("590.48.01"), None),
        // Nothing is known of wheels for other processors.
        (&["GB200"], None, None),
        (&[], None, None),
    ] {
        assert_eq!(
            newest(cards, driver).as_deref(),
            expected,
            "{cards:?} {driver:?}"
        );
    }
}

fn sass(capabilities: &[(u32, u32)], containers: u32) -> Coverage {
    let target = |&(major, minor): &(u32, u32)| CodeTarget {
        capability: ComputeCapability::new(major, minor),
        code: CodeKind::Sass,
        reach: CodeReach::Onward,
    };
    Coverage {
        targets: capabilities.iter().map(target).collect(),
        containers,
    }
}

fn cells(row: &MatrixRow) -> Vec<(Compatibility, CompatibilityBasis)> {
    let cells = row.cells.iter();
    cells.map(|cell| (cell.verdict, cell.basis)).collect()
}

#[test]
fn bytes_go_before_the_tables() {
    let environment = EnvironmentVersions {
        torch_build: Some(TorchBackend::Cuda(CudaVersion::new(12, 8))),
        ..EnvironmentVersions::from_packages([("torch", "2.8.0")])
    };
    let machines = machines(&["P100", "V100", "4090"], None);
    let row = matrix::environment_row("mine", &environment, &[], &machines);
    let measured = CompatibilityBasis::Table(tables::SourceQuality::Measured);
    assert_eq!(
        cells(&row),
        [
            (Compatibility::Fails, measured),
            (Compatibility::Runs, measured),
            (Compatibility::Runs, measured)
        ]
    );
    // A build of one's own, for Pascal alone, with one file that somebody forgot.
    let own = GpuCode {
        coverage: vec![sass(&[(6, 0), (8, 0)], 300), sass(&[(8, 0)], 1)],
        ..GpuCode::default()
    };
    let files = [("site-packages/torch/lib/libtorch_cuda.so", &own)];
    let row = matrix::environment_row("mine", &environment, &files, &machines);
    assert_eq!(
        cells(&row),
        [
            (Compatibility::Warns, CompatibilityBasis::Bytes),
            (Compatibility::Fails, CompatibilityBasis::Bytes),
            (Compatibility::Runs, CompatibilityBasis::Bytes)
        ]
    );
}

#[test]
fn an_unknown_torch_is_unknown() {
    let environment = EnvironmentVersions {
        torch_build: Some(TorchBackend::Cuda(CudaVersion::new(13, 9))),
        ..EnvironmentVersions::from_packages([("torch", "2.99.0")])
    };
    let row = matrix::environment_row("next", &environment, &[], &machines(&["4090"], None));
    assert_eq!(
        cells(&row),
        [(Compatibility::Unknown, CompatibilityBasis::Nothing)]
    );
    // What is known of it counts all the same: its CUDA needs a newer driver.
    let old = machines(&["4090"], Some("535.104.05"));
    let row = matrix::environment_row("next", &environment, &[], &old);
    assert_eq!(
        cells(&row),
        [(Compatibility::Fails, CompatibilityBasis::Nothing)]
    );
}

#[test]
fn the_build_that_is_named_is_judged() {
    for (version, card, verdict, cuda, reason) in [
        ("2.10.0", "v100", Compatibility::Runs, Some("12.8"), ""),
        (
            "2.10.0+cu130",
            "v100",
            Compatibility::Fails,
            Some("13.0"),
            "no code for 7.0, begins at 7.5",
        ),
        (
            "2.10.0+cu126",
            "v100",
            Compatibility::Runs,
            Some("12.6"),
            "",
        ),
        (
            "2.10.0+CU126",
            "p100",
            Compatibility::Warns,
            Some("12.6"),
            "no torch.compile below 7.0",
        ),
        (
            "2.10.0+cu126.with.pypi",
            "b200",
            Compatibility::Unknown,
            Some("12.6"),
            "nothing is known of a build that is called cu126.with.pypi",
        ),
        (
            "2.10.0+cu130-own",
            "h100",
            Compatibility::Unknown,
            Some("13.0"),
            "nothing is known of a build that is called cu130-own",
        ),
        // Whoever built it: no CUDA 13 makes code for Volta.
        (
            "2.10.0+cu130_own",
            "v100",
            Compatibility::Fails,
            Some("13.0"),
            "CUDA 13.0 makes no code for 7.0, 12.9 is its last",
        ),
        (
            "2.8.0+cu128.mycorp1",
            "v100",
            Compatibility::Unknown,
            Some("12.8"),
            "nothing is known of a build that is called cu128.mycorp1",
        ),
        (
            "2.8.0+cpu.own",
            "h100",
            Compatibility::Unknown,
            None,
            "nothing is known of a build that is called cpu.own",
        ),
        (
            "2.8.0+xpu",
            "h100",
            Compatibility::Fails,
            None,
            "it is built for Intel cards: it does not see the card",
        ),
        // Versions that no index has.
        (
            "2.10.1",
            "v100",
            Compatibility::Unknown,
            None,
            "torch 2.10.1 is in no table; of 2.10 they have 2.10.0",
        ),
        (
            "2.14.5",
            "h100",
            Compatibility::Unknown,
            None,
            "torch 2.14.5 is in no table; of 2.14 they have 2.14.0 and 2.14.1",
        ),
        (
            "2.4.2+cu121",
            "v100",
            Compatibility::Unknown,
            Some("12.1"),
            "torch 2.4.2 is in no table; of 2.4 they have 2.4.0 and 2.4.1",
        ),
        (
            "2.15.7+cu132",
            "v100",
            Compatibility::Fails,
            Some("13.2"),
            "CUDA 13.2 makes no code for 7.0, 12.9 is its last",
        ),
        (
            "2.10.0.1",
            "h100",
            Compatibility::Unknown,
            None,
            "torch 2.10.0.1 is in no table; of 2.10 they have 2.10.0",
        ),
        // Builds that are in no table: what their CUDA rules out is known, the rest is not.
        (
            "2.8.0+cu118",
            "v100",
            Compatibility::Unknown,
            Some("11.8"),
            "for which cards its build for CUDA 11.8 has code is not known",
        ),
        (
            "2.8.0+cu130",
            "v100",
            Compatibility::Fails,
            Some("13.0"),
            "CUDA 13.0 makes no code for 7.0, 12.9 is its last",
        ),
        (
            "2.8.0+cpu",
            "h100",
            Compatibility::Fails,
            None,
            "it is built for CPUs alone: it does not see the card",
        ),
        (
            "2.8.0+cpu.cxx11.abi",
            "h100",
            Compatibility::Fails,
            None,
            "it is built for CPUs alone: it does not see the card",
        ),
        (
            "2.8.0+rocm6.4",
            "h100",
            Compatibility::Fails,
            None,
            "it is built for AMD cards: it does not see the card",
        ),
        (
            "2.8.0+abc",
            "h100",
            Compatibility::Unknown,
            None,
            "nothing is known of a build that is called abc",
        ),
        (
            "2.8.0+cu99999",
            "h100",
            Compatibility::Unknown,
            None,
            "nothing is known of a build that is called cu99999",
        ),
        (
            "2.10.0a0+git1234",
            "h100",
            Compatibility::Unknown,
            None,
            "nothing is known of a build that is called git1234",
        ),
        (
            "2.16.0.dev20261101+cu134",
            "h100",
            Compatibility::Unknown,
            Some("13.4"),
            "for which cards its build for CUDA 13.4 has code is not known",
        ),
        (
            "2.16.0.dev20261101+cu134",
            "v100",
            Compatibility::Fails,
            Some("13.4"),
            "CUDA 13.4 makes no code for 7.0, 12.9 is its last",
        ),
        (
            "2.15.0.dev20261101",
            "h100",
            Compatibility::Unknown,
            None,
            "the builds of releases alone are known",
        ),
        (
            "2.15.0rc1",
            "h100",
            Compatibility::Unknown,
            None,
            "the builds of releases alone are known",
        ),
        (
            "2.8.0.post2",
            "h100",
            Compatibility::Unknown,
            None,
            "the builds of releases alone are known",
        ),
        ("2.8", "h100", Compatibility::Runs, Some("12.8"), ""),
    ] {
        let expected = (verdict, cuda.map(str::to_owned), reason.to_owned());
        assert_eq!(named(version, card), expected, "{version} on {card}");
    }
    for text in [
        "",
        "2",
        "abc",
        "2.8.0+",
        "2.8.0+cu126..x",
        "2.8.0+own\u{202e}",
        "2.8.0+own build",
        "2.8.x",
        "2.8.0 abc",
        "2..8",
        "+cu126",
        "2.8.0-1-2",
        "99999999999.1",
    ] {
        assert_eq!(NamedTorch::parse(text), None, "{text}");
    }
    assert!(!NamedTorch::parse("7.1").unwrap().is_judged());
}

#[test]
fn versions_are_shown_as_they_were_asked_for() {
    for (version, name, sure) in [
        ("2.4", "torch 2.4", tables::SourceQuality::Measured),
        ("2.4.1", "torch 2.4.1", tables::SourceQuality::Measured),
        // The wheel of 2.4.1 was read, and not this one.
        ("2.4.0", "torch 2.4.0", tables::SourceQuality::Lead),
        ("2.9.0", "torch 2.9.0", tables::SourceQuality::Published),
        (
            "2.9.0+CU126 ",
            "torch 2.9.0+cu126",
            tables::SourceQuality::Published,
        ),
    ] {
        let torch = NamedTorch::parse(version).expect(version);
        let matrix = matrix::build_torch_matrix(&[torch], &machines(&["a100"], None));
        let row = &matrix.rows[0];
        assert_eq!(row.name, name);
        assert_eq!(row.cells[0].verdict, Compatibility::Runs, "{version}");
        assert_eq!(
            row.cells[0].basis,
            CompatibilityBasis::Table(sure),
            "{version}"
        );
    }
}

/// The default index's wheels before 1.13 carry CUDA 10.2 inside.
#[test]
fn an_old_pin_is_judged_by_the_cuda_inside_of_its_wheel() {
    let hosts = machines(&["rtx 5090", "a100", "v100"], None);
    for (version, found) in [
        (
            "1.12.1",
            ["no-kernel-image", "no-kernel-image", "torch-not-judged"],
        ),
        (
            "1.5.0",
            ["no-kernel-image", "no-kernel-image", "torch-not-judged"],
        ),
        (
            "1.12.1+cu113",
            ["no-kernel-image", "torch-not-judged", "torch-not-judged"],
        ),
        ("1.12.1+cpu", ["torch-without-cuda"; 3]),
        ("1.2.0", ["torch-not-judged"; 3]),
    ] {
        let packages = [
            ("torch", version),
            ("numpy", "1.21.6"),
            ("typing-extensions", "4.0"),
        ];
        let environment = EnvironmentVersions::from_packages(packages);
        for (host, expected) in hosts.iter().zip(found) {
            let case = sconce_compat::rules::CheckInput {
                host,
                environment: Some(&environment),
                files: &[],
            };
            let findings = sconce_compat::rules::check_environment(&case);
            let codes = ["torch-not-judged", "no-kernel-image", "torch-without-cuda"];
            let told = findings
                .iter()
                .find(|one| codes.contains(&one.code.as_str()));
            let told = told.unwrap_or_else(|| panic!("{version}: {findings:?}"));
            assert_eq!(told.code, expected, "{version}");
            let names_torch = told.mends.iter().any(|fix| fix.what.contains("torch 2."));
            assert_eq!(
                names_torch,
                expected == "no-kernel-image",
                "{version}: {told:?}"
            );
        }
    }
}

#[test]
fn a_lock_whose_build_is_in_no_table_is_not_said_to_run() {
    let hosts = machines(&["v100"], None);
    for (version, found) in [
        ("2.8.0+cu118", Some("torch-not-judged")),
        ("2.8.0.dev20250601+cu128", Some("torch-not-judged")),
        ("2.8.0+abc", Some("torch-not-judged")),
        ("2.10.1", Some("torch-not-judged")),
        ("2.10.1+cu128", Some("torch-not-judged")),
        ("2.10.0+cu128.mycorp1", Some("torch-not-judged")),
        ("2.10.0+cpu.own", Some("torch-not-judged")),
        ("2.10.0+xpu", Some("torch-without-cuda")),
        ("2.9.0", None),
        ("2.10.0+cu130", Some("no-kernel-image")),
        ("2.10.0+cpu", Some("torch-without-cuda")),
        ("2.10.0+cu128", None),
    ] {
        let environment = EnvironmentVersions::from_packages([("torch", version)]);
        let case = sconce_compat::rules::CheckInput {
            host: &hosts[0],
            environment: Some(&environment),
            files: &[],
        };
        let findings = sconce_compat::rules::check_environment(&case);
        let telling = ["torch-not-judged", "no-kernel-image", "torch-without-cuda"];
        let codes: Vec<&str> = findings
            .iter()
            .map(|one| one.code.as_str())
            .filter(|code| telling.contains(code))
            .collect();
        assert_eq!(codes.first().copied(), found, "{version}: {codes:?}");
        assert!(codes.len() < 2, "{version}: {codes:?}");
    }
}
