//! A recorded machine with two cards: facts, choice of cards, and what a container gets.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sconce_host::cdi::CdiProblemKind;
use sconce_host::{
    CdiError, CgroupMode, GpuMonitor, HostProfile, MigInstance, NvmlGpu, Roots, SampleScope,
    Sampler, UsernsObstacle, boot_id, cdi, edits_for, select_gpus,
};
use sconce_schema::event::GpuSample;
use sconce_schema::request::ContainerEdits;
use sconce_schema::spec::GpuRequest as WantedGpus;
use sconce_schema::{Bytes, Hint, Millicores};
use sconce_testkit::golden_files::Goldens;
use serde_json::Value;

use crate::testing;

const DRIVER: &str = "580.65.06";

fn machines() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines")
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&entry.path(), &target);
        } else if kind.is_symlink() {
            let link = fs::read_link(entry.path()).unwrap();
            std::os::unix::fs::symlink(link, target).unwrap();
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The recorded machine with libraries and programs, in a folder of its own.
fn two_cards() -> (tempfile::TempDir, Roots) {
    let folder = tempfile::tempdir().unwrap();
    copy(&machines().join("two-cards"), folder.path());
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    for (name, soname) in [
        ("libcuda", "libcuda.so.1"),
        ("libnvidia-ml", "libnvidia-ml.so.1"),
        ("libnvidia-ptxjitcompiler", "libnvidia-ptxjitcompiler.so.1"),
        ("libnvidia-nvvm", "libnvidia-nvvm.so.4"),
        ("libnvidia-glcore", "libnvidia-glcore.so.580.65.06"),
    ] {
        let library = testing::shared_library(Some(soname));
        write(&format!("opt/driver/lib/{name}.so.{DRIVER}"), &library);
        write("opt/driver/lib/libcuda.so.535.1.1", &library);
    }
    // A 32-bit library of the same name in a standard folder, and a whole one behind the first.
    let mut narrow = testing::shared_library(Some("libnvidia-cfg.so.1"));
    narrow[4] = 1;
    write(&format!("usr/lib/libnvidia-cfg.so.{DRIVER}"), &narrow);
    let second = testing::shared_library(Some("libother.so"));
    write(&format!("usr/lib64/libcuda.so.{DRIVER}"), &second);
    write("usr/bin/nvidia-smi", b"#!");
    write(&format!("lib/firmware/nvidia/{DRIVER}/gsp_ga10x.bin"), b"");
    write("etc/ld.so.cache", &ld_cache("/opt/driver/lib/libcuda.so.1"));
    let roots = Roots::from_dir(folder.path());
    (folder, roots)
}

/// A loader's cache with one entry, `libcuda.so.1`.
fn ld_cache(path: &str) -> Vec<u8> {
    let mut bytes = b"glibc-ld.so.cache1.1".to_vec();
    bytes.extend_from_slice(&1_u32.to_ne_bytes());
    bytes.resize(48, 0);
    for word in [0x303_u32, 72, 85, 0, 0, 0] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    bytes.extend_from_slice(b"libcuda.so.1\0");
    bytes.extend_from_slice(path.as_bytes());
    bytes.push(0);
    bytes
}

#[test]
fn facts() {
    let roots = Roots::from_dir(machines().join("two-cards"));
    let facts = HostProfile::read(&roots);
    assert_eq!(facts.hostname.as_deref(), Some("gpu-server"));
    assert_eq!(facts.cpus, Some(64));
    assert_eq!(facts.cpu_quota, Some(Millicores(8000)));
    assert_eq!(facts.usable_cpus(), Some(Millicores(8000)));
    assert_eq!(
        facts.cpu_model.as_deref(),
        Some("AMD EPYC 9354 32-Core Processor")
    );
    assert_eq!(facts.memory, Some(Bytes::from_kib(528_160_920)));
    assert_eq!(facts.memory_available, Some(Bytes::from_kib(498_073_600)));
    assert!(facts.overlay.registered && facts.overlay.in_user_namespaces);
    assert_eq!(facts.user_namespaces, Ok(()));
    assert_eq!(facts.cgroups.as_ref().unwrap().mode, CgroupMode::V2);
    assert!(
        !facts
            .cgroups
            .as_ref()
            .unwrap()
            .v2_hierarchy()
            .unwrap()
            .delegated
    );
    assert_eq!(
        boot_id(&roots).as_deref(),
        Some("0f1c2d3e-1111-4222-8333-444455556666")
    );
    let nvidia = facts.nvidia.as_ref().unwrap();
    assert_eq!(nvidia.driver.as_deref(), Some(DRIVER));
    assert_eq!(nvidia.open_module, Some(true));
    let order: Vec<_> = nvidia.cards.iter().map(|c| (c.index, c.minor)).collect();
    assert_eq!(order, [(0, Some(1)), (1, Some(0))], "PCI order, not minors");
    assert_eq!(nvidia.control.len(), 3);
    assert_eq!(facts.summary().driver.as_deref(), Some(DRIVER));
}

#[test]
fn an_empty_machine_has_no_facts() {
    let folder = tempfile::tempdir().unwrap();
    let facts = HostProfile::read(&Roots::from_dir(folder.path()));
    assert_eq!(facts.hostname, None);
    assert_eq!(facts.cpus, None);
    assert_eq!(facts.usable_cpus(), None);
    assert_eq!(facts.nvidia, None);
    assert_eq!(facts.cgroups, None);
    assert_eq!(facts.user_namespaces, Err(UsernsObstacle::NotBuilt));
}

#[test]
fn cards_without_the_drivers_folder_are_found_by_their_nodes() {
    let (folder, roots) = two_cards();
    let mut whole = HostProfile::read(&roots).nvidia.unwrap();
    whole.fill_from_nvml(&Recording::read());
    fs::remove_dir_all(roots.proc.join("driver")).unwrap();
    fs::create_dir_all(roots.sys.join("module/nvidia")).unwrap();
    fs::write(roots.sys.join("module/nvidia/version"), "580.65.06\n").unwrap();
    let mut facts = HostProfile::read(&roots);
    let nvidia = facts.nvidia.as_mut().unwrap();
    assert_eq!(nvidia.driver.as_deref(), Some(DRIVER));
    let minors: Vec<_> = nvidia.cards.iter().map(|card| card.minor).collect();
    assert_eq!(minors, [Some(0), Some(1)]);
    assert_eq!(nvidia.cards[0].uuid, None);
    // NVML knows the minor numbers, and counts by PCI address.
    let mut recording = Recording::read();
    recording.cards[0].minor = Some(1);
    recording.cards[1].minor = Some(0);
    nvidia.fill_from_nvml(&recording);
    let found: Vec<_> = nvidia.cards.iter().map(|c| (c.index, c.minor)).collect();
    assert_eq!(found, [(1, Some(0)), (0, Some(1))]);
    assert_eq!(nvidia.cards[0].memory, Some(Bytes(85_520_809_984)));
    // A lease service that does not see the driver's folder names a card as those do who see it.
    let addresses = |nvidia: &sconce_host::NvidiaDriver| {
        let addresses = nvidia
            .cards
            .iter()
            .map(|card| (card.index, card.bus_id.clone()));
        addresses.collect::<std::collections::BTreeMap<_, _>>()
    };
    assert_eq!(addresses(nvidia), addresses(&whole));
    assert!(addresses(&whole).values().all(Option::is_some));
    drop(folder);
}

/// The edits for `wanted`, with the machine's own folder as the scratch folder.
fn edits(roots: &Roots, wanted: &WantedGpus) -> Result<Vec<ContainerEdits>, CdiError> {
    let facts = HostProfile::read(roots);
    let cards = &facts.nvidia.as_ref().unwrap().cards;
    edits_for(
        &facts,
        &select_gpus(cards, wanted).unwrap(),
        roots,
        &roots.root,
    )
}

#[test]
fn a_container_gets_the_chosen_card_and_the_drivers_files() {
    let (folder, roots) = two_cards();
    let edits = edits(&roots, &WantedGpus::Count(1)).unwrap();
    assert_eq!(edits.len(), 2);
    let [common, card] = &edits[..] else {
        unreachable!("two edits")
    };
    let nodes: Vec<_> = card.device_nodes.iter().map(|n| n.path.as_str()).collect();
    assert_eq!(nodes, ["/dev/nvidia1"], "index 0 has minor 1");
    assert_eq!(
        (card.device_nodes[0].major, card.device_nodes[0].minor),
        (1, 3)
    );
    let nodes: Vec<_> = common
        .device_nodes
        .iter()
        .map(|n| n.path.as_str())
        .collect();
    assert_eq!(
        nodes,
        ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]
    );
    assert!(
        common
            .env
            .contains(&"NVIDIA_VISIBLE_DEVICES=void".to_owned())
    );

    let lib = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let inside: BTreeMap<_, _> = common
        .mounts
        .iter()
        .map(|m| (m.container_path.replace(&lib, "LIB"), m.host_path.as_str()))
        .collect();
    let expected = [
        "/lib/firmware/nvidia/580.65.06/gsp_ga10x.bin",
        "/proc/driver/nvidia/params",
        "/run/nvidia-persistenced/socket",
        "/usr/bin/nvidia-smi",
        "LIB/libcuda.so.580.65.06",
        "LIB/libnvidia-ml.so.580.65.06",
        "LIB/libnvidia-nvvm.so.580.65.06",
        "LIB/libnvidia-ptxjitcompiler.so.580.65.06",
    ];
    assert_eq!(inside.keys().collect::<Vec<_>>(), expected);
    let cuda = folder.path().join("opt/driver/lib/libcuda.so.580.65.06");
    assert_eq!(Path::new(inside["LIB/libcuda.so.580.65.06"]), cuda);
    assert!(
        common
            .mounts
            .iter()
            .all(|m| m.options.contains(&"nosuid".to_owned()))
    );
    let params = fs::read_to_string(inside["/proc/driver/nvidia/params"]).unwrap();
    assert!(params.contains("ModifyDeviceFiles: 0\n"), "{params}");

    let links: Vec<_> = common
        .links
        .iter()
        .map(|(target, link)| format!("{} -> {target}", link.replace(&lib, "LIB")))
        .collect();
    assert_eq!(
        links,
        [
            "LIB/libcuda.so.1 -> libcuda.so.580.65.06",
            "LIB/libnvidia-ml.so.1 -> libnvidia-ml.so.580.65.06",
            "LIB/libnvidia-nvvm.so.4 -> libnvidia-nvvm.so.580.65.06",
            "LIB/libnvidia-ptxjitcompiler.so.1 -> libnvidia-ptxjitcompiler.so.580.65.06",
            "LIB/libcuda.so -> libcuda.so.1",
        ]
    );
}

#[test]
fn no_card_needs_no_edit() {
    let (_folder, roots) = two_cards();
    assert_eq!(edits(&roots, &WantedGpus::Count(0)).unwrap(), []);
}

#[test]
fn what_is_missing_is_named() {
    let (folder, roots) = two_cards();
    let error = |roots: &Roots| edits(roots, &WantedGpus::All).unwrap_err();
    fs::remove_file(roots.dev.join("nvidia-uvm")).unwrap();
    let found = error(&roots);
    assert_eq!(
        found.to_string(),
        "the device node /dev/nvidia-uvm does not exist"
    );
    assert!(found.hint().unwrap().contains("nvidia-modprobe"));

    // A plain file is no device node.
    fs::write(roots.dev.join("nvidia-uvm"), "").unwrap();
    assert!(matches!(error(&roots), CdiError::NodeMissing { .. }));
    fs::remove_file(roots.dev.join("nvidia-uvm")).unwrap();
    std::os::unix::fs::symlink("/dev/null", roots.dev.join("nvidia-uvm")).unwrap();

    fs::remove_file(roots.dev.join("nvidia0")).unwrap();
    let found = error(&roots).to_string();
    assert_eq!(found, "the device node /dev/nvidia0 does not exist");
    std::os::unix::fs::symlink("/dev/null", roots.dev.join("nvidia0")).unwrap();

    // The module was updated, the libraries were not.
    let version = roots.proc.join("driver/nvidia/version");
    let text = fs::read_to_string(&version).unwrap();
    fs::write(&version, text.replace(DRIVER, "590.44.01")).unwrap();
    let found = error(&roots);
    assert!(matches!(&found, CdiError::NoLibrary { driver, .. } if driver == "590.44.01"));
    assert!(found.to_string().contains("/opt/driver/lib"), "{found}");

    fs::remove_file(version).unwrap();
    assert!(matches!(error(&roots), CdiError::NoDriver));
    drop(folder);
}

/// The device of a file that has this name.
fn device<'f>(file: &'f Value, name: &str) -> &'f Value {
    let devices = file["devices"].as_array().unwrap();
    let found = devices.iter().find(|device| device["name"] == name);
    found.unwrap_or_else(|| panic!("{name} in {file}"))
}

/// The nodes of that device.
fn nodes_of<'f>(file: &'f Value, name: &str) -> Vec<&'f str> {
    let nodes = device(file, name)["containerEdits"]["deviceNodes"].as_array();
    let paths = nodes.unwrap().iter();
    paths.map(|node| node["path"].as_str().unwrap()).collect()
}

#[test]
fn the_cdi_file() {
    let (_folder, roots) = two_cards();
    let machine = HostProfile::read(&roots);
    let file = cdi::build_spec(&machine, &[], cdi::NVIDIA, &roots).unwrap();
    assert_eq!(
        (&file["cdiVersion"], &file["kind"]),
        (&"0.5.0".into(), &"nvidia.com/gpu".into())
    );
    assert_eq!(
        nodes_of(&file, "0"),
        ["/dev/nvidia1"],
        "index 0 has minor 1"
    );
    assert_eq!(
        nodes_of(&file, "GPU-9221d5d1-b60b-a624-bf14-0a1819cfda3b"),
        ["/dev/nvidia1"]
    );
    assert_eq!(nodes_of(&file, "all"), ["/dev/nvidia1", "/dev/nvidia0"]);
    // Engines look numbers up, so that a file stays right when they change.
    assert!(!file.to_string().contains("\"major\""), "{file}");
    let mounts = file["containerEdits"]["mounts"].as_array().unwrap();
    let inside: BTreeMap<_, _> = mounts
        .iter()
        .map(|mount| {
            (
                mount["containerPath"].as_str().unwrap(),
                mount["hostPath"].as_str().unwrap(),
            )
        })
        .collect();
    let folder = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    for folder in [folder.as_str(), "/usr/lib64"] {
        let host = |name: &str| inside[format!("{folder}/{name}").as_str()];
        // Links became mounts of the same file.
        assert_eq!(host("libcuda.so"), host("libcuda.so.580.65.06"));
        assert_eq!(host("libcuda.so.1"), host("libcuda.so.580.65.06"));
    }
    // What engines refuse, and what is there only while a daemon runs.
    let odd = |path: &&&str| {
        path.starts_with("/proc") || path.starts_with("/run") || path.starts_with("/tmp")
    };
    assert_eq!(inside.keys().find(odd), None);

    // What was written is read again, and is right until the machine changes.
    let path = roots.etc.join("cdi/sconce.yaml");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // As the machine itself would name its files.
    let named = file.to_string().replace(roots.root.to_str().unwrap(), "");
    let named: Value = serde_json::from_str(&named).unwrap();
    for name in ["cdi.json", "cdi.yaml"] {
        let text = cdi::text_for(Path::new(name), &named).unwrap();
        let text = text.replace(&folder, "/usr/lib/MACHINE-linux-gnu");
        Goldens::new(env!("CARGO_MANIFEST_DIR")).assert_same(name, text);
    }
    std::fs::write(&path, cdi::text_for(&path, &named).unwrap()).unwrap();
    let troubles = || {
        let files = cdi::read_files(&roots, None);
        let machine = HostProfile::read(&roots);
        let found = cdi::check_file(&files[0], machine.nvidia.as_ref(), &roots);
        found
            .into_iter()
            .map(|trouble| trouble.kind)
            .collect::<Vec<_>>()
    };
    assert_eq!(troubles(), []);
    fs::remove_file(roots.dev.join("nvidia-uvm-tools")).unwrap();
    assert_eq!(troubles(), [CdiProblemKind::Missing]);
    let version = roots.proc.join("driver/nvidia/version");
    let text = fs::read_to_string(&version).unwrap();
    fs::write(&version, text.replace(DRIVER, "590.44.01")).unwrap();
    assert_eq!(
        troubles(),
        [CdiProblemKind::OtherDriver, CdiProblemKind::Missing]
    );
}

#[test]
fn instances_of_a_divided_card_are_devices() {
    let (_folder, roots) = two_cards();
    let capability = |path: &str, minor: u32| {
        let folder = roots.proc.join("driver/nvidia/capabilities").join(path);
        fs::create_dir_all(&folder).unwrap();
        let text = format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
        fs::write(folder.join("access"), text).unwrap();
    };
    fs::create_dir_all(roots.dev.join("nvidia-caps")).unwrap();
    for minor in [21, 22, 30, 31] {
        let node = roots.dev.join(format!("nvidia-caps/nvidia-cap{minor}"));
        std::os::unix::fs::symlink("/dev/null", node).unwrap();
    }
    // The folder is named by the minor number: index 0 has minor 1.
    capability("gpu1/mig/gi2", 21);
    capability("gpu1/mig/gi2/ci0", 22);
    capability("gpu1/mig/gi3", 30);
    capability("gpu1/mig/gi3/ci0", 31);
    let instance = |index, uuid: &str, gpu_instance| MigInstance {
        card: 0,
        index,
        uuid: uuid.to_owned(),
        gpu_instance,
        compute_instance: 0,
    };
    let instances = [instance(0, "MIG-a", 2), instance(2, "MIG-b", 3)];
    let machine = HostProfile::read(&roots);
    let describe = || cdi::build_spec(&machine, &instances, cdi::NVIDIA, &roots);
    let file = describe().unwrap();
    let first = [
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap21",
        "/dev/nvidia-caps/nvidia-cap22",
    ];
    assert_eq!(nodes_of(&file, "MIG-a"), first);
    assert_eq!(nodes_of(&file, "0:0"), first);
    assert_eq!(nodes_of(&file, "0:2")[1], "/dev/nvidia-caps/nvidia-cap30");
    assert_eq!(
        nodes_of(&file, "0").len(),
        5,
        "the card with all of its parts"
    );
    assert_eq!(nodes_of(&file, "1"), ["/dev/nvidia0"]);
    assert_eq!(nodes_of(&file, "all").len(), 6);

    let access = roots
        .proc
        .join("driver/nvidia/capabilities/gpu1/mig/gi3/access");
    fs::write(&access, "DeviceFileMinor: ../../x\n").unwrap();
    let error = describe().unwrap_err();
    assert!(
        matches!(&error, CdiError::NoCapability { uuid, .. } if uuid == "MIG-b"),
        "{error}"
    );
    fs::write(&access, "DeviceFileMinor: 99\n").unwrap();
    assert!(matches!(describe(), Err(CdiError::NodeMissing { .. })));
}

#[test]
fn a_machine_without_cards_has_nothing_to_describe() {
    let folder = tempfile::tempdir().unwrap();
    let roots = Roots::from_dir(folder.path());
    let error = cdi::build_spec(&HostProfile::read(&roots), &[], cdi::NVIDIA, &roots).unwrap_err();
    assert!(matches!(error, CdiError::NoDriver), "{error}");
}

/// Plays `gpus.json`.
struct Recording {
    cards: Vec<NvmlGpu>,
    sample: GpuSample,
}

impl Recording {
    fn read() -> Self {
        let text = fs::read_to_string(machines().join("gpus.json")).unwrap();
        let recorded: serde_json::Value = serde_json::from_str(&text).unwrap();
        let card = |card: &serde_json::Value| NvmlGpu {
            index: serde_json::from_value(card["index"].clone()).unwrap(),
            uuid: serde_json::from_value(card["uuid"].clone()).unwrap(),
            name: None,
            bus_id: serde_json::from_value(card["bus-id"].clone()).unwrap(),
            minor: None,
            memory: serde_json::from_value(card["memory"].clone()).unwrap(),
        };
        Self {
            cards: recorded["cards"]
                .as_array()
                .unwrap()
                .iter()
                .map(card)
                .collect(),
            sample: serde_json::from_value(recorded["sample"].clone()).unwrap(),
        }
    }
}

impl GpuMonitor for Recording {
    fn driver(&self) -> Option<String> {
        Some(DRIVER.to_owned())
    }

    fn cards(&self) -> Vec<NvmlGpu> {
        self.cards.clone()
    }

    fn sample(&self, index: u32) -> GpuSample {
        GpuSample {
            index,
            ..self.sample.clone()
        }
    }
}

#[test]
fn nvml_tells_the_memory_of_a_card() {
    let roots = Roots::from_dir(machines().join("two-cards"));
    let mut nvidia = HostProfile::read(&roots).nvidia.unwrap();
    nvidia.fill_from_nvml(&Recording::read());
    let summary = nvidia.cards[1].summary();
    assert_eq!(summary.memory, Some(Bytes(85_520_809_984)));
    assert_eq!(summary.name, "NVIDIA H100 80GB HBM3");
}

#[test]
fn a_sample_has_the_runs_cards_and_only_the_runs_processes() {
    let mut recording = Recording::read();
    let pid = std::process::id();
    let by_pid = &mut recording.sample.memory_by_pid;
    by_pid.insert(pid, Bytes::from_mib(700));
    let target = SampleScope {
        root_pid: Some(pid),
        gpus: vec![1],
        ..SampleScope::default()
    };
    let mut sampler = Sampler::new(&Roots::default(), target, Some(Box::new(recording)));
    let sample = sampler.sample();
    let [card] = &sample.gpus[..] else {
        unreachable!("one card")
    };
    assert_eq!(card.index, 1);
    assert_eq!(card.power_mw, Some(412_000));
    assert_eq!(card.throttle, Some(vec!["sw-power-cap".to_owned()]));
    let pids: Vec<_> = card.memory_by_pid.iter().collect();
    assert_eq!(
        pids,
        [(&pid, &Bytes::from_mib(700))],
        "process 1 is not the run's"
    );
}
