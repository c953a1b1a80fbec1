//! One line of a record of each kind, with every figure.

use std::collections::BTreeMap;

use sconce_schema::event::{
    Containment, ExitStatus, FORMAT, GpuInstance, GpuSample, GpuSummary, HostSummary, OomKill,
    Pressure, ProcessSample, RecordEvent, RecordLine, RunEnded, RunStarted, Sample, ServiceEvent,
    ServiceState, UnenforcedLimit, WriteLoss,
};
use sconce_schema::lock::LockedVersions;
use sconce_schema::network::{HostPlugin, NcclNetwork, NodeNetwork};
use sconce_schema::request::{NetworkMode, NumaPlacement, RunLimits};
use sconce_schema::runtime::{Runtime, RuntimeSummary};
use sconce_schema::spec::JobContainment;
use sconce_schema::training::{
    CollectiveTimes, DataLoaderCounters, DataLoaderSetup, EvaluationCounters, GpuAllocatorCounters,
    GpuOutOfMemory, LeakCandidate, MemoryHolder, Operations, PhaseTimes, RatedThroughput,
    TrainingSample, TrainingSetup, TrainingStep,
};
use sconce_schema::{Bytes, LockedMemory, Millicores};

use super::{goldens, parse};

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn started() -> RunStarted {
    RunStarted {
        format: FORMAT,
        id: "brave-otter-7".into(),
        name: some("digits"),
        unix_ms: 1_764_000_000_000,
        command: vec!["python".into(), "train.py".into()],
        folder: "/home/user/digits".into(),
        mode: Containment::Container,
        sconce_pid: 4000,
        limits: RunLimits {
            cpus: Some(Millicores(2500)),
            memory: Some(Bytes::from_gib(4)),
            shm: Some(Bytes::from_gib(1)),
            pids: Some(4096),
            cpuset: Some(parse("0-3,8")),
            memory_swap: Some(Bytes::from_gib(6)),
            io_weight: Some(200),
            hugepages: Some(Bytes::from_mib(512)),
            nofile: Some(65_536),
            memlock: Some(LockedMemory::Unlimited),
        },
        near: Some(NumaPlacement {
            nodes: parse("1"),
            cpus: Some(parse("8-15")),
        }),
        network: Some(NetworkMode::Own),
        way_out: some("pasta"),
        containment: Some(JobContainment::Slurm),
        node_network: Some(NodeNetwork {
            nodes: 2,
            active_ports: vec!["mlx5_0/1".into()],
            host_plugins: vec![HostPlugin {
                name: "aws-ofi-nccl".into(),
                directory: "/opt/amazon/ofi-nccl".into(),
                obstacle: some("the environment has no libhwloc.so.15"),
            }],
        }),
        runtime: Some(RuntimeSummary {
            name: Runtime::Crun,
            version: "1.21".into(),
        }),
        versions: Some(LockedVersions {
            python: "3.13.5-2".into(),
            glibc: "2.41-12".into(),
            torch: some("2.15.0"),
            cuda: Some(parse("13.2")),
            cudnn: some("9.26.0.51"),
            nccl: some("2.30.3"),
            triton: some("3.8.0"),
            lowest_driver: Some(parse("580.65.06")),
        }),
        plan: some("autocast+pinned"),
        host: HostSummary {
            hostname: "node-1".into(),
            kernel: "6.12.41".into(),
            cpus: 16,
            cpu_model: some("Xeon"),
            memory: Bytes::from_gib(128),
            driver: some("580.65.06"),
            boot_id: some("0d9c8b7a"),
        },
        gpus: vec![GpuSummary {
            index: 1,
            uuid: "GPU-8b0c".into(),
            name: "NVIDIA H100".into(),
            memory: Some(Bytes::from_gib(80)),
        }],
    }
}

fn full_sample() -> Sample {
    Sample {
        cpu_us: Some(1_000_001),
        throttled_us: Some(1_000_002),
        memory: Some(Bytes(1_000_003)),
        memory_peak: Some(Bytes(1_000_004)),
        cache: Some(Bytes(1_000_005)),
        pss: Some(Bytes(1_000_006)),
        rss: Some(Bytes(1_000_007)),
        processes: Some(8),
        threads: Some(9),
        read_bytes: Some(1_000_010),
        write_bytes: Some(1_000_011),
        shm: Some(Bytes(1_000_012)),
        oom_kills: Some(13),
        pids_refused: Some(14),
        pressure: Some(Pressure {
            cpu_some_us: Some(15),
            memory_some_us: Some(16),
            memory_full_us: Some(17),
            io_some_us: Some(18),
            io_full_us: Some(19),
        }),
        swap: Some(Bytes(1_000_020)),
        cpus_busy_us: vec![1_000_021, 1_000_022],
        received_bytes: Some(1_000_023),
        sent_bytes: Some(1_000_024),
        by_process: vec![ProcessSample {
            pid: 4123,
            inner_pid: Some(7),
            parent: 4001,
            name: "python".into(),
            role: some("rank 0"),
            cpu_us: 1_000_025,
            rss: Bytes(1_000_026),
            threads: 27,
        }],
        gpus: vec![full_gpu_sample()],
        training: vec![full_training()],
        training_left_out: Some(3),
        nccl: vec![NcclNetwork {
            inner_pid: 7,
            rank: Some(1),
            ranks: Some(16),
            multi_node_nvlink: Some(false),
            version: some("2.27.7+cuda12.9"),
            network: "IB".into(),
            devices: vec!["mlx5_0:1/RoCE".into()],
            gpu_direct: Some(true),
            settings: BTreeMap::from([("NCCL_IB_HCA".into(), "mlx5_0".into())]),
        }],
    }
}

fn full_gpu_sample() -> GpuSample {
    GpuSample {
        index: 1,
        utilisation_percent: Some(97),
        memory_utilisation_percent: Some(41),
        memory_used: Some(Bytes(2_000_001)),
        memory_by_pid: BTreeMap::from([(4123, Bytes(2_000_002))]),
        power_mw: Some(650_000),
        energy_mj: Some(2_000_003),
        temperature_c: Some(64),
        sm_clock_mhz: Some(1980),
        memory_clock_mhz: Some(2619),
        pcie_received_bytes_per_s: Some(2_000_004),
        pcie_sent_bytes_per_s: Some(2_000_005),
        nvlink_received_bytes: Some(2_000_006),
        nvlink_sent_bytes: Some(2_000_007),
        xids: vec![79],
        instances: vec![GpuInstance {
            uuid: "MIG-1".into(),
            memory_used: Some(Bytes(2_000_008)),
            memory: Some(Bytes(2_000_009)),
        }],
        throttle: Some(vec!["power".into()]),
    }
}

fn full_training() -> TrainingSample {
    let phases = |us| PhaseTimes {
        data_us: us,
        copy_us: us + 1,
        forward_us: us + 2,
        backward_us: us + 3,
        optimizer_us: us + 4,
        other_us: us + 5,
    };
    TrainingSample {
        pid: 4123,
        rank: Some(3),
        group: Some(2),
        cell: Some(5),
        steps: 120,
        wall_us: 3_000_001,
        phases: phases(3_000_010),
        on_card: Some(phases(3_000_020)),
        on_card_steps: Some(118),
        samples: Some(3840),
        tokens: Some(491_520),
        flops_per_step: Some(3_000_030),
        loader: Some(DataLoaderCounters {
            batches: 121,
            empty: Some(4),
            ready: Some(2),
        }),
        evaluation: Some(EvaluationCounters {
            batches: 10,
            wall_us: 3_000_031,
        }),
        card_memory: Some(card_memory()),
        exchange: Some(CollectiveTimes {
            communication_us: Some(41),
            exposed_us: Some(42),
            sharded_steps: Some(43),
            all_gather_us: Some(44),
            all_gather_exposed_us: Some(45),
            reduce_scatter_us: Some(46),
            reduce_scatter_exposed_us: Some(47),
        }),
        phase: some("backward"),
        recent: vec![TrainingStep {
            step: 119,
            t_us: 51,
            wall_us: 52,
            data_us: 53,
            rss: Some(Bytes(54)),
            allocated: Some(Bytes(55)),
            reserved: Some(Bytes(56)),
            blocks: Some(57),
        }],
        heap: vec![(119, Bytes(58))],
    }
}

fn card_memory() -> GpuAllocatorCounters {
    GpuAllocatorCounters {
        device: 1,
        allocated: Bytes(4_000_001),
        allocated_peak: Bytes(4_000_002),
        reserved: Bytes(4_000_003),
        reserved_peak: Bytes(4_000_004),
        inactive_split: Bytes(4_000_005),
        blocks: 4_000_006,
        allocations: 4_000_007,
        retries: 4_000_008,
        ooms: 4_000_009,
    }
}

fn setup() -> TrainingSetup {
    TrainingSetup {
        pid: 4123,
        cell: Some(5),
        rank: Some(3),
        world_size: Some(4),
        backend: some("nccl"),
        python: "3.13.5".into(),
        torch: "2.15.0".into(),
        card: some("GPU-8b0c"),
        model: some("GPT"),
        modules: Some(148),
        parameters: Some(124_000_000),
        optimizers: vec!["AdamW".into()],
        loader: Some(DataLoaderSetup {
            workers: 4,
            prefetch: Some(2),
            pinned: true,
            persistent: true,
            batch: Some(32),
        }),
        autocast: some("bfloat16"),
        dtype: some("float32"),
        compiled: Some(true),
        cudnn_benchmark: Some(false),
        convolutions: Some(true),
        fixed_shapes: Some(true),
        flops_per_step: Some(5_000_001),
        flops: Some(Operations {
            half: 5_000_002,
            tf32: 5_000_003,
            single: 5_000_004,
            other: 5_000_005,
        }),
        flops_without: vec!["aten::custom".into()],
        no_flops: some("the model is compiled"),
        peak: Some(RatedThroughput {
            card: "H100 SXM".into(),
            half_per_s: 989.5e12,
            tf32_per_s: 494.5e12,
            single_per_s: 67e12,
        }),
        allocator: some("expandable_segments:True"),
        kept: vec![LeakCandidate {
            name: some("losses"),
            of: some("train"),
            adds: vec!["train.py:12 losses.append(loss)".into()],
            holds: "float32[8, 4]".into(),
            grown: 100,
            steps: 110,
            bytes: Bytes(5_000_006),
            graph: true,
        }],
    }
}

fn card_out_of_memory() -> GpuOutOfMemory {
    GpuOutOfMemory {
        pid: 4123,
        rank: Some(3),
        device: 1,
        step: 120,
        phase: some("forward"),
        asked: Some(Bytes(6_000_001)),
        free: Some(Bytes(6_000_002)),
        total: Some(Bytes(6_000_003)),
        memory: Some(card_memory()),
        message: some("CUDA out of memory."),
        stack: vec!["train.py:20 loss = model(x)".into()],
        holders: vec![MemoryHolder {
            bytes: Bytes(6_000_004),
            blocks: 7,
            stack: vec!["model.py:8 self.fc(x)".into()],
            tensor: some("fc.weight"),
        }],
        snapshot: some("oom-1.pickle"),
        no_snapshot: some("the disk is full"),
    }
}

fn full_events() -> Vec<RecordEvent> {
    let unenforced = UnenforcedLimit {
        what: "memory".into(),
        why: "the cgroup is not delegated".into(),
        hint: some("log in by systemd"),
    };
    let service = ServiceEvent {
        name: "api".into(),
        state: ServiceState::Restarting,
        starts: 2,
        exit: Some(ExitStatus::Code(3)),
        why: some("3 checks failed"),
        again_ms: Some(2000),
        open: vec!["http://127.0.0.1:8080/".into()],
    };
    let ended = RunEnded {
        exit: ExitStatus::Signal(9),
        last: Box::new(full_sample()),
        out_of_memory: Some(OomKill {
            limit: Some(Bytes::from_gib(4)),
            kills: 1,
        }),
        largest_process: Some(Bytes::from_gib(3)),
        lost: Some(WriteLoss {
            lines: 12,
            log_bytes: 4096,
        }),
    };
    every_variant!(RecordEvent:
        Started(Box::new(started())),
        Unenforced(unenforced),
        Sample(Box::new(full_sample())),
        Setup(Box::new(setup())),
        CardOutOfMemory(Box::new(card_out_of_memory())),
        Service(Box::new(service)),
        Ended(ended),
    )
}

#[test]
fn full_line_of_each_event_is_written_as_before_and_read_back() {
    let lines = (0..).zip(full_events());
    let lines: Vec<RecordLine> = lines
        .map(|(second, event)| RecordLine {
            t_us: second * 1_000_000,
            event,
        })
        .collect();
    let text: String = lines
        .iter()
        .map(|line| serde_json::to_string(line).unwrap() + "\n")
        .collect();
    goldens().assert_same("record.jsonl", &text);
    let read: Vec<RecordLine> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(read, lines);
    // An event is also read on its own, by another implementation.
    for line in &lines {
        let alone = serde_json::to_string(&line.event).unwrap();
        assert_eq!(
            serde_json::from_str::<RecordEvent>(&alone).unwrap(),
            line.event
        );
    }
}

#[test]
fn step_is_read_as_an_object_too() {
    let step: TrainingStep = serde_json::from_str(
        r#"{"step":1,"t-us":2,"wall-us":3,"data-us":4,"rss":5,"allocated":6,"reserved":7,"blocks":8}"#,
    )
    .unwrap();
    let list = serde_json::to_string(&step).unwrap();
    assert_eq!(list, "[1,2,3,4,5,6,7,8]");
}
