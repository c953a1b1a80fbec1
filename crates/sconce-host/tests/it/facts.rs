//! Facts of recorded machines, with stand-ins for NVIDIA's libraries where cards are asked.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sconce_host::facts::driver_query::{DriverQuery, QueryProcess, run_query};
use sconce_host::facts::{self, FactsOptions, NvmlSource};
use sconce_host::{NvmlLibrary, Roots};
use sconce_schema::facts::{CgroupVersion, DriverFlavour, FabricState, FeatureState, SeccompMode};
use sconce_schema::{Bytes, HostFacts};

use crate::testing;

/// A folder of a machine: files, and links with ` -> `. Libraries, the files whose names have
/// `.so.`, are made; device nodes lead to /dev/null.
fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let (name, target) = match name.split_once(" -> ") {
            Some((name, target)) => (name, Some(target)),
            None => (*name, None),
        };
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match target {
            Some(target) => std::os::unix::fs::symlink(target, path).unwrap(),
            None if name.contains(".so.") => {
                fs::write(path, testing::shared_library(Some("x"))).unwrap();
            }
            None => fs::write(path, text).unwrap(),
        }
    }
    let roots = Roots::from_dir(folder.path());
    (folder, roots)
}

/// The stand-ins, compiled for this test.
fn stand_ins() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stand-ins");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand-ins/build.sh");
    let status = Command::new(script).arg(&folder).status().unwrap();
    assert!(status.success(), "{status}");
    folder
}

/// This test program as a child that answers `question` (`nvml` or `cuda`) for a machine file.
fn child(question: &str, machine: &str, limit: Duration) -> QueryProcess {
    let library = match question {
        "nvml" => "libnvidia-ml.so.1",
        _ => "libcuda.so.1",
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand-ins/machines");
    let arguments = [
        format!("SCONCE_STAND_IN_MACHINE={}", file.join(machine).display()),
        format!("STAND_IN_QUESTION={question}"),
        format!("STAND_IN_LIBRARY={}", stand_ins().join(library).display()),
        std::env::current_exe().unwrap().display().to_string(),
        "--ignored".to_owned(),
        "--exact".to_owned(),
        "facts::the_child".to_owned(),
        "--nocapture".to_owned(),
    ];
    QueryProcess {
        program: "/usr/bin/env".into(),
        name: None,
        input: Vec::new(),
        arguments: arguments.map(OsString::from).to_vec(),
        limit,
    }
}

const LONG_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
#[ignore = "the child of other tests"]
fn the_child() {
    let Some(library) = std::env::var_os("STAND_IN_LIBRARY") else {
        return;
    };
    let question = match std::env::var("STAND_IN_QUESTION").as_deref() {
        Ok("nvml") => DriverQuery::Nvml(NvmlLibrary::File(library.into())),
        _ => DriverQuery::Cuda(library),
    };
    println!("\n{}", run_query(&question));
}

fn read_with(roots: &Roots, machine: &str) -> HostFacts {
    let ask = FactsOptions {
        nvml: NvmlSource::Child(child("nvml", machine, LONG_TIMEOUT)),
        cuda_init: Some(child("cuda", machine, LONG_TIMEOUT)),
        ..FactsOptions::default()
    };
    facts::read(roots, &ask)
}

/// The driver's two libraries in a default folder of the loader.
fn libraries(version: &str) -> Vec<(String, &'static str)> {
    let of = |name: &str, folder: &str| {
        [
            (format!("{folder}/{name}.so.{version}"), ""),
            (format!("{folder}/{name}.so.1 -> {name}.so.{version}"), ""),
        ]
    };
    [of("libcuda", "usr/lib64"), of("libnvidia-ml", "usr/lib64")].concat()
}

fn with_libraries(version: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
    let libraries = libraries(version);
    let mut all: Vec<(&str, &str)> = files.to_vec();
    all.extend(libraries.iter().map(|(name, text)| (name.as_str(), *text)));
    machine(&all)
}

const OPEN_580: &str = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder@U22-I3-AM02-24-3)  Sun Jul 27 07:31:13 UTC 2025\n";

/// A card's paragraph in the form of the driver's README, chapter "Using the /proc File System".
fn information(bus: &str, minor: u32, uuid: &str) -> String {
    format!(
        "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\nGPU UUID: \t {uuid}\n\
         Video BIOS: \t ??.??.??.??.??\nBus Type: \t PCIe\nBus Location: \t {bus}\n\
         Device Minor: \t {minor}\nGPU Excluded:\t No\n"
    )
}

#[test]
fn eight_cards_on_a_switch() {
    let first = information(
        "0000:19:00.0",
        0,
        "GPU-4039dfe4-0c97-4b1e-683e-eb7d42699050",
    );
    let (_folder, roots) = with_libraries(
        "580.65.06",
        &[
            ("proc/driver/nvidia/version", OPEN_580),
            ("proc/driver/nvidia/gpus/0000:19:00.0/information", &first),
            (
                "proc/modules",
                "nvidia_uvm 1 0 - Live 0x0 (OE)\nnvidia 1 1 nvidia_uvm, Live 0x0 (OE)\n",
            ),
            ("proc/sys/kernel/osrelease", "5.15.0-1084-nvidia\n"),
            ("proc/sys/kernel/hostname", "dgx-07\n"),
            (
                "proc/meminfo",
                "HugePages_Total:       0\nHugepagesize:       2048 kB\n",
            ),
            ("proc/cmdline", "BOOT_IMAGE=/vmlinuz iommu=pt\n"),
            ("etc/os-release", "PRETTY_NAME=\"DGX OS 6.3.2\"\n"),
            // Docker set up by the toolkit, and a CDI file of the driver before the last update.
            ("usr/bin/nvidia-ctk", ""),
            (
                "etc/docker/daemon.json",
                "{\"runtimes\":{\"nvidia\":{\"path\":\"nvidia-container-runtime\"}}}",
            ),
            (
                "etc/cdi/nvidia.yaml",
                "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits:\n  mounts:\n  - hostPath: /usr/lib64/libcuda.so.550.90.07\n    containerPath: /usr/lib64/libcuda.so.550.90.07\n",
            ),
            ("run/systemd/system/x", ""),
            ("lib/systemd/system/nvidia-fabricmanager.service", ""),
            (
                "sys/fs/cgroup/system.slice/nvidia-fabricmanager.service/cgroup.procs",
                "2101\n",
            ),
            ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
            (
                "sys/class/infiniband/mlx5_0/ports/1/link_layer",
                "InfiniBand\n",
            ),
            (
                "dev/kmsg",
                "6,100,5000000,-;NVRM: loading NVIDIA UNIX Open Kernel Module\n3,101,86400000000,-;NVRM: Xid (PCI:0000:19:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected\n",
            ),
            ("dev/nvidia0 -> /dev/null", ""),
            ("dev/nvidiactl -> /dev/null", ""),
        ],
    );
    let facts = read_with(&roots, "h100x8");
    assert_eq!(facts.name.as_deref(), Some("dgx-07"));
    assert_eq!(facts.system.as_deref(), Some("DGX OS 6.3.2"));
    let driver = facts.driver.as_ref().unwrap();
    assert_eq!(driver.version, "580.65.06".parse().ok());
    assert_eq!(driver.flavour, Some(DriverFlavour::Open));
    assert_eq!(driver.cuda, "13.0".parse().ok());
    let paths: Vec<_> = driver
        .libraries
        .iter()
        .map(|l| (l.path.as_str(), l.wins))
        .collect();
    let expected = [
        ("/usr/lib64/libcuda.so.580.65.06", true),
        ("/usr/lib64/libnvidia-ml.so.580.65.06", true),
    ];
    assert_eq!(paths, expected);
    assert_eq!(facts.unloaded_libraries, []);
    assert_eq!(facts.nvml.as_ref().unwrap().error, None);

    assert_eq!(facts.cards.len(), 8);
    let card = &facts.cards[0];
    assert_eq!(card.name.as_deref(), Some("NVIDIA H100 80GB HBM3"));
    assert_eq!(card.bus_id.as_deref(), Some("0000:19:00.0"));
    assert_eq!(card.capability, "9.0".parse().ok());
    assert_eq!(card.memory, Some(Bytes(85_520_809_984)));
    assert_eq!(card.memory_used, Some(Bytes::from_gib(2)));
    assert_eq!(
        card.memory_by_pid,
        Some([(4321, Bytes::from_gib(2))].into())
    );
    assert_eq!(card.mig, Some(Default::default()));
    assert_eq!(
        (card.ecc, card.ecc_uncorrected),
        (Some(FeatureState::On), Some(0))
    );
    assert_eq!(
        (card.remapped_rows, card.remap_pending),
        (Some(0), Some(false))
    );
    assert_eq!(card.power_limit_mw, Some(700_000));
    assert_eq!(card.throttle, Some(vec![]), "idle");
    assert_eq!(card.persistence, Some(FeatureState::On));
    assert_eq!(card.compute_mode.as_deref(), Some("default"));
    let links = card.nvlinks.as_ref().unwrap();
    assert_eq!(
        (links.len(), links[3].to.as_deref()),
        (4, Some("0000:0a:00.0"))
    );
    assert_eq!(
        (card.fabric, &card.fabric_error),
        (Some(FabricState::Completed), &None)
    );
    assert_eq!((&card.lost, card.data_centre), (&None, Some(true)));

    let init = facts.cuda_init.unwrap();
    assert_eq!((init.result, init.devices), (Some(0), Some(8)));
    let toolkit = facts.toolkit.unwrap();
    assert_eq!(toolkit.docker_runtimes.unwrap(), ["nvidia"]);
    assert_eq!(toolkit.cdi[0].driver, "550.90.07".parse().ok());
    assert_eq!(toolkit.cdi[0].missing, ["/usr/lib64/libcuda.so.550.90.07"]);
    assert_eq!(facts.services["nvidia-fabricmanager.service"], "active");
    assert_eq!(facts.infiniband.unwrap()[0].name, "mlx5_0");
    assert_eq!(facts.iommu.unwrap().parameters, ["iommu=pt"]);
    let xids = facts.xids.unwrap();
    assert_eq!(
        (xids.len(), xids[0].code, xids[0].since_boot_s),
        (1, 48, Some(86_400))
    );
    assert_eq!(xids[0].bus_id.as_deref(), Some("0000:19:00.0"));
    let nodes = facts.nodes.unwrap();
    assert_eq!(nodes.len(), 2);
    assert!(facts.container.is_none() && facts.limits.is_none());
}

#[test]
fn split_cards() {
    let (_folder, roots) = with_libraries(
        "570.124.06",
        &[
            ("sys/module/nvidia/version", "570.124.06\n"),
            ("sys/module/nvidia/taint", "OE\n"),
            ("dev/nvidia-caps/nvidia-cap21 -> /dev/null", ""),
        ],
    );
    let facts = read_with(&roots, "mig");
    assert_eq!(facts.driver.unwrap().flavour, Some(DriverFlavour::Open));
    let split = facts.cards[0].mig.as_ref().unwrap();
    assert!(split.enabled);
    let instances = [
        "MIG-6abb32b5-a1e3-5be9-a1f5-0ed8dba6c1f7",
        "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f",
    ];
    assert_eq!(split.instances, instances);
    assert!(!facts.cards[1].mig.as_ref().unwrap().enabled);
    assert_eq!(facts.cards[0].fabric, Some(FabricState::NotSupported));
    assert_eq!(facts.cards[0].nvlinks, None);
    assert_eq!(
        facts.nodes.unwrap()[0].path,
        "/dev/nvidia-caps/nvidia-cap21"
    );
}

#[test]
fn cards_that_are_lost() {
    let gone = information(
        "0000:3b:00.0",
        1,
        "GPU-51f06b0c-3a7e-4f21-9d35-7be0c4a8d912",
    );
    let (_folder, roots) = with_libraries(
        "550.90.07",
        &[
            (
                "proc/driver/nvidia/version",
                &OPEN_580.replace("580.65.06", "550.90.07"),
            ),
            ("proc/driver/nvidia/gpus/0000:3b:00.0/information", &gone),
        ],
    );
    let facts = read_with(&roots, "fallen");
    assert_eq!(facts.cards.len(), 3);
    let [at_work, fallen, stuck] = &facts.cards[..] else {
        unreachable!("three cards")
    };
    assert_eq!(
        (at_work.remapped_rows, at_work.remap_pending),
        (Some(3), Some(true))
    );
    assert_eq!(
        (at_work.ecc_uncorrected, at_work.remap_failed),
        (Some(2), Some(false))
    );
    assert_eq!(at_work.compute_mode.as_deref(), Some("exclusive-process"));
    assert_eq!(at_work.throttle.as_ref().unwrap(), &["hw-slowdown"]);
    assert_eq!(at_work.persistence, Some(FeatureState::Off));
    assert_eq!(fallen.lost.as_deref(), Some("GPU is lost"));
    assert_eq!(
        fallen.bus_id.as_deref(),
        Some("0000:3b:00.0"),
        "the kernel's word"
    );
    assert_eq!(stuck.lost.as_deref(), Some("GPU requires reset"));
    assert_eq!(stuck.bus_id.as_deref(), Some("0000:65:00.0"));
    assert_eq!(stuck.memory, None);
}

/// coljac in NVIDIA/ubuntu-packaging-nvidia-driver's sister guide: an update of the packages to
/// 550.107.02, while the module of 550.90.07 stayed loaded.
#[test]
fn an_updated_driver_without_a_restart() {
    let version =
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\n";
    let (_folder, roots) = with_libraries("550.107.02", &[("proc/driver/nvidia/version", version)]);
    let facts = read_with(&roots, "mismatch");
    let driver = facts.driver.unwrap();
    assert_eq!(driver.flavour, Some(DriverFlavour::Closed));
    assert_eq!(driver.version, "550.90.07".parse().ok());
    assert_eq!(driver.libraries[0].version, "550.107.02".parse().ok());
    let nvml = facts.nvml.unwrap();
    assert_eq!(
        nvml.error.as_deref(),
        Some("Driver/library version mismatch")
    );
    assert_eq!(nvml.version.as_deref(), Some("550.107.02"));
    let init = facts.cuda_init.unwrap();
    assert_eq!(
        (init.result, init.devices, init.error),
        (Some(803), None, None)
    );
    assert_eq!(init.driver_cuda, "12.4".parse().ok());
}

#[test]
fn a_desktop_with_an_old_driver() {
    let (_folder, roots) = with_libraries(
        "470.256.02",
        &[("sys/module/nvidia/version", "470.256.02\n")],
    );
    let facts = read_with(&roots, "rtx3070");
    let card = &facts.cards[0];
    assert_eq!(card.memory, Some(Bytes::from_gib(8)));
    assert_eq!(card.memory_used, Some(Bytes::from_mib(512)));
    assert_eq!(
        (card.data_centre, card.ecc, &card.nvlinks),
        (Some(false), None, &None)
    );
    assert_eq!(
        (card.fabric, card.remapped_rows),
        (Some(FabricState::NotSupported), None)
    );
}

/// Every result that failures.md names, a crash, and a driver that never answers.
#[test]
fn results_of_cuda() {
    let folder = tempfile::tempdir().unwrap();
    let init = |line: &str, limit| {
        let file = folder.path().join("machine");
        fs::write(&file, format!("cuinit {line}\ncuda 12080\n")).unwrap();
        let (_folder, roots) =
            with_libraries("570.86.15", &[("sys/module/nvidia/version", "570.86.15\n")]);
        let ask = FactsOptions {
            cuda_init: Some(child("cuda", file.to_str().unwrap(), limit)),
            ..FactsOptions::default()
        };
        facts::read(&roots, &ask).cuda_init.unwrap()
    };
    for result in [0, 100, 802, 803, 804, 999] {
        let told = init(&result.to_string(), LONG_TIMEOUT);
        assert_eq!((told.result, told.error), (Some(result), None));
        assert_eq!(told.driver_cuda, "12.8".parse().ok());
    }
    let crash = init("crash", LONG_TIMEOUT);
    assert_eq!(crash.error.as_deref(), Some("ended by signal 6 (SIGABRT)"));
    let hang = init("hang", Duration::from_millis(300));
    assert_eq!(hang.error.as_deref(), Some("no answer within 300 ms"));
    assert_eq!(hang.result, None);
}

/// Windows' subsystem, after microsoft/WSL issues 8587 and 11229: three plain files, a device
/// without a module, and a kernel of its own name.
#[test]
fn windows_subsystem() {
    let (_folder, roots) = machine(&[
        (
            "proc/sys/kernel/osrelease",
            "5.15.133.1-microsoft-standard-WSL2\n",
        ),
        ("proc/sys/kernel/arch", "x86_64\n"),
        (
            "usr/lib/os-release",
            "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
        ),
        ("usr/lib/wsl/lib/libcuda.so.1", ""),
        ("usr/lib/wsl/lib/libcuda.so.1.1", ""),
        ("usr/lib/wsl/lib/libnvidia-ml.so.1", ""),
        ("dev/dxg -> /dev/null", ""),
    ]);
    let variables = [("LD_LIBRARY_PATH".to_owned(), "/usr/lib/wsl/lib".to_owned())];
    let ask = FactsOptions {
        variables: variables.into(),
        ..FactsOptions::default()
    };
    let facts = facts::read(&roots, &ask);
    assert_eq!(facts.container.as_deref(), Some("wsl"));
    assert_eq!(facts.architecture.as_deref(), Some("x86_64"));
    let driver = facts.driver.unwrap();
    assert_eq!(driver.flavour, Some(DriverFlavour::Wsl));
    assert_eq!((driver.version, driver.modules), (None, None));
    assert!(
        driver
            .libraries
            .iter()
            .all(|library| library.wins && library.version.is_none())
    );
    assert_eq!(facts.nodes.unwrap()[0].path, "/dev/dxg");
    assert_eq!(facts.variables["LD_LIBRARY_PATH"], "/usr/lib/wsl/lib");
    assert!(
        facts.cuda_init.is_none() && facts.nvml.is_none(),
        "nobody was asked"
    );
}

/// A container of a CUDA image on a machine whose engine gave it no card.
#[test]
fn a_container_without_cards() {
    let (_folder, roots) = machine(&[
        (".dockerenv", ""),
        ("etc/os-release", "PRETTY_NAME=\"Ubuntu 22.04.5 LTS\"\n"),
        (
            "proc/self/mountinfo",
            "30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n40 23 0:50 / /dev/shm rw,nosuid - tmpfs shm rw,size=65536k\n",
        ),
        ("proc/self/cgroup", "0::/\n"),
        (
            "proc/self/status",
            "Uid:\t0\t0\t0\t0\nSeccomp:\t2\nCpus_allowed_list:\t0-7\n",
        ),
        (
            "proc/self/limits",
            "Max locked memory         65536                65536                bytes     \n",
        ),
        ("sys/fs/cgroup/memory.max", "8589934592\n"),
        ("sys/fs/cgroup/pids.max", "4096\n"),
        ("sys/fs/cgroup/memory.events", "oom 1\noom_kill 1\n"),
        ("usr/local/cuda-12.8/compat/libcuda.so.570.86.10", ""),
        (
            "usr/local/cuda-12.8/compat/libcuda.so.1 -> libcuda.so.570.86.10",
            "",
        ),
        ("usr/local/cuda -> cuda-12.8", ""),
        ("dev/shm/x", ""),
    ]);
    let facts = facts::read(&roots, &FactsOptions::default());
    assert_eq!(facts.container.as_deref(), Some("docker"));
    assert_eq!((facts.driver, facts.cards), (None, vec![]));
    let [compat] = &facts.unloaded_libraries[..] else {
        unreachable!("one library")
    };
    assert!(compat.compat && !compat.wins, "{compat:?}");
    assert_eq!((facts.root, facts.cpus), (Some(true), Some(8)));
    assert_eq!(facts.seccomp, Some(SeccompMode::Filter));
    let cgroup = facts.cgroup.unwrap();
    assert_eq!(cgroup.version, Some(CgroupVersion::V2));
    assert_eq!(cgroup.memory, Some(Bytes::from_gib(8)));
    assert_eq!((cgroup.pids, cgroup.oom_kills), (Some(4096), Some(1)));
    assert_eq!(facts.shm.unwrap().kind.as_deref(), Some("tmpfs"));
    let locked = facts.limits.unwrap().locked_memory.unwrap();
    assert_eq!(locked.soft, Some(65_536));
    assert!(
        facts
            .user_namespaces_barrier
            .unwrap()
            .contains("built without")
    );
}

#[test]
fn nothing_is_known_of_an_empty_machine() {
    let (_folder, roots) = machine(&[]);
    let facts = facts::read(&roots, &FactsOptions::default());
    let expected = HostFacts {
        version: sconce_schema::facts::FORMAT,
        mps: facts.mps.clone(),
        user_namespaces_barrier: facts.user_namespaces_barrier.clone(),
        ..HostFacts::default()
    };
    assert_eq!(facts, expected);
}

#[test]
fn this_machine() {
    let ask = FactsOptions {
        store: Some("/nowhere/yet".into()),
        open_nodes: true,
        ..FactsOptions::default()
    };
    let facts = facts::read(&Roots::default(), &ask);
    assert!(facts.kernel.is_some() && facts.architecture.is_some());
    assert!(facts.glibc.is_some_and(|version| version.starts_with("2.")));
    assert!(facts.limits.unwrap().open_files.is_some());
    assert_eq!(facts.store.unwrap().path, "/nowhere/yet");
    // What was read can be written and read again.
    let facts = facts::read(&Roots::default(), &ask);
    let text = serde_json::to_string(&facts).unwrap();
    let again: HostFacts = serde_json::from_str(&text).unwrap();
    assert_eq!(again.name, facts.name);
}
