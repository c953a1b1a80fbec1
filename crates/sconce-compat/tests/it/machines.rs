//! Findings on machines of which the facts were put together by hand, after what NVML, /proc and
//! public threads show of such machines.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sconce_compat::rules::{self, CheckInput, EnvironmentVersions};
use sconce_compat::tables;
use sconce_schema::facts::{
    CdiFileFacts, CgroupFacts, CgroupVersion, ContainerToolkit, CudaInit, DeviceNodeFacts, Driver,
    DriverFlavour, DriverLibrary, FabricState, FeatureState, FilesystemFacts, GpuFacts, InfiniBand,
    Iommu, Mig, NvLink, PciGpu, RlimitFacts, RlimitPair, SeccompMode, Shm, Xid,
};
use sconce_schema::finding::{Finding, FixAction, Severity};
use sconce_schema::{Bytes, ComputeCapability, CudaVersion, DriverVersion, HostFacts};

proptest! {
    /// Facts may come from a file that somebody else wrote.
    #[test]
    fn no_facts_panic(words in proptest::collection::vec("\\PC{0,20}", 12), numbers: [u64; 6], small: [u32; 4]) {
        let mut host = well("2x T4", "580.95.05");
        let word = |at: usize| Some(words[at].clone());
        let driver = host.driver.get_or_insert_default();
        driver.cuda = Some(CudaVersion::new(small[0], small[1]));
        driver.version = Some(DriverVersion { major: small[2] % 700, minor: small[3], patch: None });
        driver.libraries[0].name = words[0].clone();
        let card = &mut host.cards[0];
        card.name = word(1);
        card.capability = None;
        card.memory = Some(Bytes(numbers[0]));
        card.memory_used = Some(Bytes(numbers[1]));
        card.memory_by_pid = Some(BTreeMap::from([(1, Bytes(numbers[2])), (2, Bytes(u64::MAX))]));
        card.power_limit_mw = Some(small[0]);
        card.power_limit_default_mw = Some(u32::MAX);
        card.throttle = Some(vec![words[2].clone()]);
        card.compute_mode = word(3);
        host.cards[1].capability = Some(ComputeCapability::new(small[0], small[1]));
        host.variables = BTreeMap::from([("CUDA_VISIBLE_DEVICES".into(), words[4].clone())]);
        host.architecture = word(5);
        host.cuda_init = Some(CudaInit { error: word(6), ..CudaInit::default() });
        host.limits = Some(RlimitFacts {
            open_files: Some(RlimitPair { soft: Some(numbers[3]), hard: Some(numbers[4]) }),
            ..RlimitFacts::default()
        });
        host.shm = Some(Shm { size: Some(Bytes(numbers[5])), ..Shm::default() });
        let environment = EnvironmentVersions {
            python: word(7),
            glibc: word(8),
            ..EnvironmentVersions::from_packages([
                ("torch", words[9].as_str()),
                ("torchvision", words[10].as_str()),
                ("triton", words[11].as_str()),
            ])
        };
        let _ = judged(&host, &environment);
        let _ = judged(&host, &torch_215());
    }
}

/// A finding as people read it, so that a changed word is seen.
fn text(findings: &[Finding]) -> String {
    let mut out = String::new();
    for found in findings {
        let weight = format!("{:?}", found.weight).to_lowercase();
        let certainty = format!("{:?}", found.certainty).to_lowercase();
        out.push_str(&format!(
            "{weight}, {certainty}: {} [{}]\n",
            found.what, found.code
        ));
        for seen in &found.evidence {
            let place = seen
                .place
                .as_deref()
                .map_or(String::new(), |place| format!(", {place}"));
            out.push_str(&format!(
                "    seen: {}{place}: {}\n",
                seen.source, seen.value
            ));
        }
        if let Some(error) = &found.error_text {
            out.push_str(&format!("    error: {error}\n"));
        }
        for mend in &found.mends {
            let how = match &mend.action {
                None => String::new(),
                Some(FixAction::Command { line, root, safe }) => {
                    let sign = if *root { "#" } else { "$" };
                    let safe = if *safe { " (safe)" } else { "" };
                    format!(" {sign} {line}{safe}")
                }
                Some(FixAction::Spec { key, value }) => format!(" | {key} = {value}"),
                Some(FixAction::Variable { name, value }) => {
                    format!(" | {name}={}", value.as_deref().unwrap_or("(unset)"))
                }
            };
            out.push_str(&format!("    mend: {}{how}\n", mend.what));
        }
    }
    if out.is_empty() {
        out.push_str("nothing found\n");
    }
    out
}

fn node(path: &str, minor: u32) -> DeviceNodeFacts {
    DeviceNodeFacts {
        path: path.to_owned(),
        major: 195,
        minor,
        mode: 0o666,
        usable: true,
        open_error: None,
        char_link: None,
    }
}

fn nodes(cards: u32) -> Option<Vec<DeviceNodeFacts>> {
    let of_cards = (0..cards).map(|card| node(&format!("/dev/nvidia{card}"), card));
    let others = [node("/dev/nvidiactl", 255), node("/dev/nvidia-uvm", 0)];
    Some(of_cards.chain(others).collect())
}

fn library(name: &str, version: &str) -> DriverLibrary {
    DriverLibrary {
        name: name.to_owned(),
        path: format!(
            "/usr/lib/x86_64-linux-gnu/{}.{version}",
            name.trim_end_matches(".1")
        ),
        version: version.parse().ok(),
        wins: true,
        compat: false,
    }
}

/// A machine on which nothing is wrong.
fn well(gpu: &str, driver: &str) -> HostFacts {
    let mut host = tables::host_from_gpu_name(gpu, Some(driver)).expect("a known card");
    let facts = host.driver.get_or_insert_default();
    facts.flavour = Some(DriverFlavour::Open);
    facts.modules = Some(vec!["nvidia".into(), "nvidia_uvm".into()]);
    facts.libraries = vec![
        library("libcuda.so.1", driver),
        library("libnvidia-ml.so.1", driver),
    ];
    for card in &mut host.cards {
        card.minor = Some(card.index);
        card.persistence = Some(FeatureState::On);
        card.ecc_uncorrected = Some(0);
        card.remap_pending = Some(false);
        card.throttle = Some(vec!["gpu-idle".into()]);
        card.compute_mode = Some("default".into());
        card.memory_used = Some(Bytes::from_mib(600));
        card.bus_id = Some(format!("0000:{:02x}:00.0", card.index + 1));
        card.uuid = Some(format!("GPU-0000000{}", card.index));
    }
    HostFacts {
        nodes: nodes(host.cards.len() as u32),
        pci_cards: Some(host.cards.iter().map(pci).collect()),
        cuda_init: Some(CudaInit {
            result: Some(0),
            ..CudaInit::default()
        }),
        shm: Some(Shm {
            size: Some(Bytes::from_gib(64)),
            writable: Some(true),
            ..Shm::default()
        }),
        limits: Some(RlimitFacts {
            open_files: Some(limit(65_536)),
            ..RlimitFacts::default()
        }),
        cgroup: Some(CgroupFacts {
            version: Some(CgroupVersion::V2),
            delegated: vec!["cpu".into(), "memory".into(), "pids".into()],
            oom_kills: Some(0),
            ..CgroupFacts::default()
        }),
        user_namespaces_barrier: Some(String::new()),
        xids: Some(Vec::new()),
        ..host
    }
}

fn limit(soft: u64) -> RlimitPair {
    RlimitPair {
        soft: Some(soft),
        hard: Some(soft.max(1_048_576)),
    }
}

fn pci(card: &GpuFacts) -> PciGpu {
    PciGpu {
        address: card.bus_id.clone().unwrap_or_default(),
        device: "0x2330".to_owned(),
        driver: Some("nvidia".to_owned()),
        link_now: None,
        link_most: None,
    }
}

fn torch_215() -> EnvironmentVersions {
    EnvironmentVersions::from_packages([
        ("torch", "2.15.0"),
        ("torchvision", "0.29.2"),
        ("triton", "3.9.0"),
        ("nvidia-cuda-runtime", "13.2.86"),
        ("nvidia-cudnn-cu13", "9.26.0.51"),
        ("nvidia-nccl-cu13", "2.30.7"),
        ("nvidia-nvjitlink", "13.5.37"),
    ])
}

fn judged(host: &HostFacts, environment: &EnvironmentVersions) -> String {
    let case = CheckInput {
        host,
        environment: Some(environment),
        files: &[],
    };
    text(&rules::check_all(&case))
}

#[test]
fn a_machine_that_is_well_has_nothing() {
    for (gpu, driver) in [("8x H100", "580.95.05"), ("RTX 4090", "595.45.04")] {
        let host = well(gpu, driver);
        assert_eq!(judged(&host, &torch_215()), "nothing found\n", "{gpu}");
    }
    // Of a machine that was only named, nothing is made up.
    let host = tables::host_from_gpu_name("A100", None).unwrap();
    assert_eq!(judged(&host, &torch_215()), "nothing found\n");
    assert_eq!(
        text(&rules::check_host(&HostFacts {
            driver: Some(Driver::default()),
            ..HostFacts::default()
        })),
        "nothing found\n"
    );
}

#[test]
fn eight_h100_before_the_fabric_manager() {
    let mut host = well("8x H100 80GB", "580.95.05");
    for card in &mut host.cards {
        card.fabric = Some(FabricState::InProgress);
        card.nvlinks = Some(vec![NvLink { link: 0, to: None }]);
    }
    host.services = BTreeMap::from([("nvidia-fabricmanager.service".into(), "failed".into())]);
    host.cuda_init = Some(CudaInit {
        result: Some(802),
        ..CudaInit::default()
    });
    host.infiniband = Some(vec![InfiniBand {
        name: "mlx5_0".into(),
        state: Some("ACTIVE".into()),
        layer: Some("InfiniBand".into()),
    }]);
    host.limits = Some(RlimitFacts {
        open_files: Some(limit(1024)),
        locked_memory: Some(limit(65_536)),
        ..RlimitFacts::default()
    });
    host.cards[3].persistence = Some(FeatureState::Off);
    host.cards[5].throttle = Some(vec!["sw-thermal-slowdown".into()]);
    host.cards[5].temperature_c = Some(87);
    host.cards[6].memory_used = Some(Bytes::from_gib(60));
    host.cards[6].memory_by_pid = Some(BTreeMap::from([(4242, Bytes::from_gib(20))]));
    insta::assert_snapshot!(judged(&host, &torch_215()));
}

#[test]
fn a_divided_a100() {
    let mut host = well("2x A100 80GB", "535.183.06");
    host.cards[0].mig = Some(Mig {
        enabled: true,
        instances: Vec::new(),
    });
    host.cards[1].mig = Some(Mig {
        enabled: true,
        instances: vec!["MIG-aaaa-1".into(), "MIG-bbbb-2".into()],
    });
    host.cards[1].compute_mode = Some("exclusive-process".into());
    host.variables = BTreeMap::from([("CUDA_VISIBLE_DEVICES".into(), "MIG-bbbb,7".into())]);
    insta::assert_snapshot!(judged(&host, &torch_215()));
}

#[test]
fn a_geforce_with_an_old_driver() {
    let mut host = well("RTX 3070", "535.104.05");
    host.shm = Some(Shm {
        size: Some(Bytes::from_mib(64)),
        writable: Some(true),
        ..Shm::default()
    });
    host.container = Some("docker".into());
    insta::assert_snapshot!(judged(&host, &torch_215()));
}

#[test]
fn a_geforce_with_a_forward_compatibility_library() {
    let mut host = well("RTX 3070", "535.104.05");
    let libraries = &mut host.driver.as_mut().unwrap().libraries;
    libraries[0] = DriverLibrary {
        path: "/usr/local/cuda/compat/libcuda.so.580.65.06".into(),
        version: Some("580.65.06".parse().unwrap()),
        compat: true,
        ..libraries[0].clone()
    };
    host.cuda_init = Some(CudaInit {
        result: Some(804),
        ..CudaInit::default()
    });
    insta::assert_snapshot!(judged(&host, &torch_215()));
    // On a data-centre card with that driver it works, and torch 2.15 with it.
    let libraries = host.driver.unwrap().libraries;
    let mut server = well("A100 80GB", "535.104.05");
    server.driver.as_mut().unwrap().libraries = libraries;
    assert_eq!(judged(&server, &torch_215()), "nothing found\n");
}

#[test]
fn windows_linux() {
    let mut host = well("RTX 4070", "580.95.05");
    host.container = Some("wsl".into());
    let driver = host.driver.as_mut().unwrap();
    driver.flavour = Some(DriverFlavour::Wsl);
    driver.libraries = vec![library("libcuda.so.1", "1.1")];
    host.nodes = Some(Vec::new());
    host.pci_cards = Some(Vec::new());
    insta::assert_snapshot!(judged(&host, &torch_215()));
}

#[test]
fn no_driver() {
    let card = PciGpu {
        address: "0000:01:00.0".into(),
        device: "0x2684".into(),
        driver: None,
        link_now: None,
        link_most: None,
    };
    let bare = HostFacts::default();
    let absent = HostFacts {
        pci_cards: Some(vec![card.clone()]),
        ..bare.clone()
    };
    let nouveau = HostFacts {
        pci_cards: Some(vec![PciGpu {
            driver: Some("nouveau".into()),
            ..card
        }]),
        ..bare.clone()
    };
    let container = HostFacts {
        container: Some("docker".into()),
        ..absent.clone()
    };
    let none = HostFacts {
        pci_cards: Some(Vec::new()),
        ..bare.clone()
    };
    let machines = [absent, nouveau, container, none, bare];
    let texts: Vec<String> = machines
        .iter()
        .map(|host| text(&rules::check_host(host)))
        .collect();
    insta::assert_snapshot!(texts.join("--\n"));
    // An environment that asks for no card is not the worse for it.
    let numpy = EnvironmentVersions::from_packages([("numpy", "2.5.5")]);
    let case = CheckInput {
        host: &machines[3],
        environment: Some(&numpy),
        files: &[],
    };
    let weights: Vec<_> = rules::check_all(&case)
        .iter()
        .map(|found| found.weight)
        .collect();
    assert_eq!(weights, [sconce_schema::finding::Severity::Notes]);
}

#[test]
fn a_driver_that_was_updated_without_a_restart() {
    let mut host = well("RTX A6000", "570.133.20");
    host.driver.as_mut().unwrap().libraries = vec![
        library("libcuda.so.1", "570.172.08"),
        library("libnvidia-ml.so.1", "570.172.08"),
    ];
    host.cuda_init = Some(CudaInit {
        result: Some(803),
        ..CudaInit::default()
    });
    host.services = BTreeMap::from([("docker.service".into(), "active".into())]);
    host.toolkit = Some(ContainerToolkit {
        version: Some("1.18.0".into()),
        docker_runtimes: Some(vec!["nvidia".into()]),
        cdi: vec![CdiFileFacts {
            path: "/etc/cdi/nvidia.yaml".into(),
            kind: Some("nvidia.com/gpu".into()),
            driver: Some("565.57.01".parse().unwrap()),
            missing: vec!["/usr/lib/x86_64-linux-gnu/libcuda.so.565.57.01".into()],
            stale: Vec::new(),
            error: None,
        }],
    });
    insta::assert_snapshot!(text(&rules::check_host(&host)));
}

/// Codes of what is found on a machine by itself.
fn codes(host: &HostFacts) -> Vec<String> {
    let found = rules::check_host(host).into_iter();
    found.map(|one| one.code).collect()
}

#[test]
fn what_cuda_itself_did_is_believed() {
    // A driver that is not in /proc, and a library of another version.
    let mut host = well("RTX A6000", "570.133.20");
    host.driver = None;
    host.pci_cards = Some(Vec::new());
    host.nodes = Some(Vec::new());
    host.cuda_init = Some(CudaInit {
        result: Some(803),
        ..CudaInit::default()
    });
    assert_eq!(codes(&host), ["driver-mismatch"]);

    // CUDA started and saw both cards, so the nodes are there.
    let mut host = well("2x T4", "580.95.05");
    let devices = |host: &mut HostFacts, devices| {
        host.cuda_init = Some(CudaInit {
            result: Some(0),
            devices: Some(devices),
            ..CudaInit::default()
        });
    };
    host.nodes = Some(Vec::new());
    devices(&mut host, 2);
    assert_eq!(codes(&host), [""; 0]);
    host.nodes = Some(vec![node("/dev/nvidiactl", 255), node("/dev/nvidia0", 0)]);
    assert_eq!(codes(&host), [""; 0]);
    devices(&mut host, 1);
    assert_eq!(codes(&host), ["device-node-missing", "uvm-broken"]);
    devices(&mut host, 0);
    assert_eq!(codes(&host), ["device-node-missing", "uvm-broken"]);
}

#[test]
fn a_card_without_a_name_is_named_once() {
    let mut host = well("2x T4", "580.95.05");
    host.cards[1] = GpuFacts {
        index: 1,
        lost: Some("GPU is lost".into()),
        ..GpuFacts::default()
    };
    let found = rules::check_host(&host);
    assert_eq!(
        found[0].what,
        "the driver lost card 1: GPU is lost; CUDA starts with the others"
    );
}

#[test]
fn a_lost_card_among_four() {
    let mut host = well("4x V100", "550.144.03");
    host.cards[2] = GpuFacts {
        index: 2,
        name: host.cards[2].name.clone(),
        capability: host.cards[2].capability,
        lost: Some("GPU is lost".into()),
        bus_id: Some("0000:03:00.0".into()),
        ..GpuFacts::default()
    };
    host.cards[1].remap_pending = Some(true);
    host.cards[1].ecc_uncorrected = Some(2);
    host.cards[0].remap_failed = Some(true);
    host.cards[0].power_limit_mw = Some(150_000);
    host.cards[0].power_limit_default_mw = Some(300_000);
    let xid = |code, text: &str| Xid {
        code,
        bus_id: Some("0000:03:00.0".into()),
        since_boot_s: Some(86_400),
        text: text.to_owned(),
    };
    host.xids = Some(vec![
        xid(
            79,
            "NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus.",
        ),
        xid(45, "NVRM: Xid (PCI:0000:03:00): 45, pid=1, Ch 00000001"),
        xid(45, "NVRM: Xid (PCI:0000:03:00): 45, pid=1, Ch 00000002"),
        xid(9999, "NVRM: Xid (PCI:0000:03:00): 9999, something new"),
    ]);
    host.iommu = Some(Iommu {
        active: Some(true),
        parameters: vec!["intel_iommu=on".into()],
        acs_bridges: Some(vec!["0000:00:01.0".into()]),
    });
    insta::assert_snapshot!(text(&rules::check_host(&host)));
}

#[test]
fn a_narrow_container() {
    let mut host = well("T4", "580.95.05");
    host.container = Some("docker".into());
    host.seccomp = Some(SeccompMode::Filter);
    host.user_namespaces_barrier = Some("unshare: EPERM".into());
    host.cgroup = Some(CgroupFacts {
        version: Some(CgroupVersion::V1),
        memory: Some(Bytes::from_gib(8)),
        oom_kills: Some(3),
        ..CgroupFacts::default()
    });
    host.store = Some(FilesystemFacts {
        path: "/home/me/.local/share/sconce".into(),
        free: Some(Bytes::from_gib(2)),
        ..FilesystemFacts::default()
    });
    let nodes = host.nodes.as_mut().unwrap();
    nodes[0].usable = false;
    nodes[0].mode = 0o660;
    nodes[1].open_error = Some("EPERM".into());
    nodes.retain(|node| node.path != "/dev/nvidia-uvm");
    host.shm = Some(Shm {
        writable: Some(false),
        ..Shm::default()
    });
    insta::assert_snapshot!(text(&rules::check_host(&host)));
}

#[test]
fn limits_that_cannot_be_held_are_said_with_what_would_hold_them() {
    let said = |version, delegated: &[&str]| {
        let mut host = well("RTX 4090", "595.45.04");
        host.cgroup = Some(CgroupFacts {
            version: Some(version),
            delegated: delegated.iter().map(ToString::to_string).collect(),
            ..CgroupFacts::default()
        });
        judged(&host, &torch_215())
    };
    // A login session is not delegated, whatever the user's own manager has.
    let session = said(CgroupVersion::V2, &[]);
    assert!(
        session.contains("systemd-run --user --scope -p Delegate=yes"),
        "{session}"
    );
    assert!(!session.contains("user@.service.d"), "{session}");
    // Older systemd hands down two of the three.
    let part = said(CgroupVersion::V2, &["memory", "pids"]);
    assert!(
        part.contains("limits of cpu") && part.contains("user@.service.d"),
        "{part}"
    );
    for version in [CgroupVersion::V1, CgroupVersion::Hybrid] {
        let old = said(version, &[]);
        assert!(old.contains("systemd.unified_cgroup_hierarchy=1"), "{old}");
    }
}

#[test]
fn cards_and_branches() {
    let of = |gpu, driver| text(&rules::check_host(&well(gpu, driver)));
    let texts = [
        of("RTX 5090", "550.144.03"),
        of("8x B200", "565.57.01"),
        of("V100", "590.48.01"),
        of("K80", "525.60.13"),
        // No driver for this card serves what torch 2.15 needs.
        judged(&well("K80", "470.256.02"), &torch_215()),
        judged(&well("GTX 1080", "550.144.03"), &torch_215()),
    ];
    insta::assert_snapshot!(texts.join("--\n"));
    for (gpu, driver) in [
        ("V100", "580.95.05"),
        ("H100", "515.65.01"),
        ("4090", "520.61.05"),
    ] {
        assert_eq!(of(gpu, driver), "nothing found\n", "{gpu} {driver}");
    }
}

#[test]
fn docker_without_the_toolkit() {
    let mut host = well("RTX 3090", "580.95.05");
    host.services = BTreeMap::from([("docker.service".into(), "active".into())]);
    let mut known = host.clone();
    known.toolkit = Some(ContainerToolkit {
        docker_runtimes: Some(Vec::new()),
        ..ContainerToolkit::default()
    });
    let texts = [&host, &known].map(|host| text(&rules::check_host(host)));
    insta::assert_snapshot!(texts.join("--\n"));
}

#[test]
fn links_that_a_reload_needs_are_named_with_the_command() {
    let mut host = well("RTX 3090", "580.95.05");
    let linked = |yes| {
        let nodes = nodes(1).into_iter().flatten();
        let with = |node| DeviceNodeFacts {
            char_link: Some(yes),
            ..node
        };
        Some(nodes.map(with).collect::<Vec<_>>())
    };
    host.nodes = linked(true);
    assert_eq!(codes(&host), [""; 0]);
    host.nodes = linked(false);
    let found = rules::check_host(&host);
    assert_eq!(
        (found[0].code.as_str(), found[0].weight),
        ("char-links-missing", Severity::Notes)
    );
    assert_eq!(found[0].evidence.len(), 3);
    let Some(FixAction::Command {
        line, root: true, ..
    }) = &found[0].mends[0].action
    else {
        panic!("{found:?}");
    };
    assert_eq!(
        line,
        "ln -sf ../nvidia0 /dev/char/195:0 && ln -sf ../nvidiactl /dev/char/195:255 && \
         ln -sf ../nvidia-uvm /dev/char/195:0"
    );
    // In a container there is nothing to mend.
    host.container = Some("docker".to_owned());
    assert!(!codes(&host).contains(&"char-links-missing".to_owned()));
}

#[test]
fn a_cdi_file_of_other_cards_is_stale() {
    let mut host = well("RTX 3090", "580.95.05");
    host.toolkit = Some(ContainerToolkit {
        cdi: vec![CdiFileFacts {
            path: "/etc/cdi/sconce.json".into(),
            stale: vec!["there is no card GPU-x here".into()],
            ..CdiFileFacts::default()
        }],
        ..ContainerToolkit::default()
    });
    let found = rules::check_host(&host);
    assert_eq!(
        found[0].what,
        "/etc/cdi/sconce.json: there is no card GPU-x here"
    );
    let Some(FixAction::Command { line, .. }) = &found[0].mends[0].action else {
        panic!("{found:?}");
    };
    assert_eq!(line, "sconce cdi write --output /etc/cdi/sconce.json");
}

#[test]
fn a_path_from_elsewhere_stays_one_word() {
    let mut host = well("RTX 3090", "580.95.05");
    host.toolkit = Some(ContainerToolkit {
        cdi: vec![CdiFileFacts {
            path: "/etc/cdi/a'; rm -rf ~ #.yaml".into(),
            error: Some("not YAML".into()),
            ..CdiFileFacts::default()
        }],
        ..ContainerToolkit::default()
    });
    let found = rules::check_host(&host);
    let Some(FixAction::Command { line, .. }) = &found[0].mends[0].action else {
        panic!("{found:?}");
    };
    assert_eq!(
        line,
        r"nvidia-ctk cdi generate --output='/etc/cdi/a'\''; rm -rf ~ #.yaml'"
    );
}

#[test]
fn what_cuda_starts_with_is_enough() {
    let mut host = well("2x V100", "550.144.03");
    host.cuda_init = Some(CudaInit {
        result: Some(0),
        devices: Some(2),
        ..CudaInit::default()
    });
    // Nodes that are elsewhere or not listed do not keep it from starting.
    host.nodes = Some(Vec::new());
    assert!(rules::check_host(&host).is_empty());
    host.cards[1] = GpuFacts {
        index: 1,
        lost: Some("GPU is lost".into()),
        ..GpuFacts::default()
    };
    let found = rules::check_host(&host);
    let lost = found.iter().find(|one| one.code == "card-lost").unwrap();
    assert_eq!(
        (lost.weight, lost.what.as_str()),
        (
            Severity::Warns,
            "the driver lost card 1: GPU is lost; CUDA starts with the others"
        )
    );
}
