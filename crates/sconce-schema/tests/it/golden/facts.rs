//! Facts of a machine, with every figure.

use std::collections::BTreeMap;

use sconce_schema::facts::{
    CdiFileFacts, CgroupFacts, CgroupVersion, ContainerToolkit, CpuCache, CudaInit,
    DeviceNodeFacts, Driver, DriverFlavour, DriverLibrary, FORMAT, FabricState, FeatureState,
    FilesystemFacts, GpuFacts, Hugepages, InfiniBand, Iommu, Mig, MpsFacts, NvLink, Nvml, PciGpu,
    Processor, RlimitFacts, RlimitPair, SeccompMode, Shm, Xid,
};
use sconce_schema::{Bytes, ComputeCapability, CudaVersion, DriverVersion, HostFacts, Millicores};

use super::{goldens, json, parse};

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn map(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}

fn driver_version() -> DriverVersion {
    parse("580.65.06")
}

fn full_facts() -> HostFacts {
    HostFacts {
        version: FORMAT,
        name: some("node-1"),
        system: some("Debian GNU/Linux 13 (trixie)"),
        kernel: some("6.12.41"),
        architecture: some("x86_64"),
        glibc: some("2.41"),
        glibcxx: some("3.4.33"),
        container: some("docker"),
        root: Some(true),
        cpus: Some(16),
        cpu_model: some("Xeon"),
        processor: Some(full_processor()),
        memory: Some(Bytes::from_gib(128)),
        memory_available: Some(Bytes::from_gib(120)),
        system_cudnn: vec!["/usr/lib/libcudnn.so.9".into()],
        other_drivers: map("amdgpu", "6.12"),
        pci_cards: Some(vec![PciGpu {
            address: "0000:17:00.0".into(),
            device: "10de:2330".into(),
            driver: some("nvidia"),
            link_now: some("gen 5, 16 lanes"),
            link_most: some("gen 5, 16 lanes"),
        }]),
        driver: Some(Driver {
            version: Some(driver_version()),
            flavour: Some(DriverFlavour::Open),
            modules: Some(vec!["nvidia".into(), "nvidia_uvm".into()]),
            libraries: vec![library()],
            cuda: Some(CudaVersion::new(13, 0)),
        }),
        unloaded_libraries: vec![library()],
        cards: vec![full_card()],
        nodes: Some(vec![DeviceNodeFacts {
            path: "/dev/nvidia0".into(),
            major: 195,
            minor: 0,
            mode: 0o666,
            usable: true,
            open_error: some("EPERM"),
            char_link: Some(false),
        }]),
        nvml: Some(Nvml {
            error: some("Driver/library version mismatch"),
            version: some("13.580.65"),
        }),
        cuda_init: Some(CudaInit {
            result: Some(802),
            error: some("signal 9"),
            driver_cuda: Some(CudaVersion::new(13, 0)),
            devices: Some(1),
        }),
        cgroup: Some(CgroupFacts {
            version: Some(CgroupVersion::V2),
            delegated: vec!["cpu".into(), "memory".into()],
            memory: Some(Bytes::from_gib(64)),
            cpu: Some(Millicores(8500)),
            pids: Some(32_768),
            oom_kills: Some(1),
        }),
        user_namespaces_barrier: some("kernel.unprivileged_userns_clone is 0"),
        seccomp: Some(SeccompMode::Filter),
        shm: Some(Shm {
            size: Some(Bytes::from_mib(64)),
            free: Some(Bytes::from_mib(60)),
            kind: some("tmpfs"),
            writable: Some(true),
        }),
        limits: Some(full_limits()),
        hugepages: Some(Hugepages {
            total: Some(8),
            size: Some(Bytes::from_mib(2)),
            transparent: some("madvise"),
        }),
        store: Some(FilesystemFacts {
            path: "/var/lib/sconce".into(),
            kind: some("ext4"),
            size: Some(Bytes::from_gib(500)),
            free: Some(Bytes::from_gib(400)),
            free_files: Some(30_000_000),
        }),
        toolkit: Some(ContainerToolkit {
            version: some("1.18.0"),
            docker_runtimes: Some(vec!["nvidia".into()]),
            cdi: vec![CdiFileFacts {
                path: "/etc/cdi/nvidia.yaml".into(),
                kind: some("nvidia.com/gpu"),
                driver: Some(driver_version()),
                missing: vec!["/dev/nvidia9".into()],
                stale: vec!["it names another driver".into()],
                error: some("line 3 is no YAML"),
            }],
        }),
        mps: Some(MpsFacts {
            running: true,
            pipe_folder: some("/tmp/nvidia-mps"),
        }),
        iommu: Some(Iommu {
            active: Some(true),
            parameters: vec!["iommu=pt".into()],
            acs_bridges: Some(vec!["0000:16:01.0".into()]),
        }),
        infiniband: Some(vec![InfiniBand {
            name: "mlx5_0".into(),
            state: some("ACTIVE"),
            layer: some("Ethernet"),
        }]),
        interfaces: Some(vec!["eth0".into()]),
        xids: Some(vec![Xid {
            code: 79,
            bus_id: some("0000:17:00"),
            since_boot_s: Some(86_400),
            text: "NVRM: Xid (PCI:0000:17:00): 79".into(),
        }]),
        services: map("nvidia-fabricmanager", "active"),
        variables: map("CUDA_VISIBLE_DEVICES", "0"),
    }
}

fn full_processor() -> Processor {
    Processor {
        vendor: some("GenuineIntel"),
        family: Some(6),
        model: Some(143),
        stepping: Some(8),
        online: Some(32),
        sockets: Some(2),
        cores: Some(16),
        numa_nodes: Some(2),
        caches: vec![CpuCache {
            level: 1,
            kind: "Data".into(),
            size: Bytes::from_kib(48),
            shared_by: Some(2),
        }],
        max_mhz: Some(3800),
        governor: some("performance"),
        hypervisor: Some(true),
        flags: vec!["avx512f".into()],
        vulnerabilities: map("meltdown", "Not affected"),
    }
}

fn library() -> DriverLibrary {
    DriverLibrary {
        name: "libcuda.so.1".into(),
        path: "/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06".into(),
        version: Some(driver_version()),
        wins: true,
        compat: true,
    }
}

fn full_card() -> GpuFacts {
    GpuFacts {
        index: 1,
        name: some("NVIDIA H100 80GB HBM3"),
        uuid: some("GPU-8b0c"),
        bus_id: some("0000:17:00.0"),
        minor: Some(1),
        capability: Some(ComputeCapability::new(9, 0)),
        memory: Some(Bytes::from_gib(80)),
        memory_used: Some(Bytes::from_gib(3)),
        memory_by_pid: Some(BTreeMap::from([(4123, Bytes::from_gib(2))])),
        mig: Some(Mig {
            enabled: true,
            instances: vec!["MIG-1".into()],
        }),
        ecc: Some(FeatureState::On),
        ecc_uncorrected: Some(2),
        remapped_rows: Some(1),
        remap_pending: Some(true),
        remap_failed: Some(false),
        power_limit_mw: Some(650_000),
        power_limit_default_mw: Some(700_000),
        temperature_c: Some(64),
        throttle: Some(vec!["power".into()]),
        persistence: Some(FeatureState::Off),
        compute_mode: some("default"),
        nvlinks: Some(vec![NvLink {
            link: 3,
            to: some("0000:18:00.0"),
        }]),
        fabric: Some(FabricState::InProgress),
        fabric_error: some("no fabric manager"),
        lost: some("GPU is lost"),
        data_centre: Some(true),
    }
}

fn full_limits() -> RlimitFacts {
    let limit = |soft| {
        Some(RlimitPair {
            soft: Some(soft),
            hard: Some(1_048_576),
        })
    };
    RlimitFacts {
        open_files: limit(1024),
        locked_memory: limit(65_536),
        processes: limit(4096),
        stack: limit(8192),
        address_space: limit(16_384),
    }
}

#[test]
fn full_facts_are_written_as_before_and_read_back() {
    let facts = full_facts();
    let text = json(&facts);
    goldens().assert_same("facts.json", &text);
    assert_eq!(serde_json::from_str::<HostFacts>(&text).unwrap(), facts);
}
