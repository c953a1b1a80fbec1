//! `sconce.toml` with every key, and what of it decides the lock.

use std::collections::BTreeMap;

use sconce_schema::request::{ContainerUser, NetworkMode};
use sconce_schema::service::{RestartPolicy, StopSignal};
use sconce_schema::spec::{
    BuildSpec, CustomServiceSpec, GpuId, GpuRequest, HealthCheckSpec, JobContainment, Jupyter,
    LaunchMode, NumaPolicy, Python, Removal, RunSpec, SchedulerKind, ServicesSpec, Ssh, StageSpec,
    System, TargetSpec, TensorBoard, Variant,
};
use sconce_schema::{Bytes, LockedMemory, Millicores, Runtime, Spec};

use super::{goldens, parse};

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|one| (*one).to_owned()).collect()
}

fn variables(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}

/// A spec in which every key has a value, but for one of the two that exclude each other.
fn full_spec() -> Spec {
    Spec {
        version: Some(1),
        name: Some("digits".into()),
        python: Python {
            version: Some("3.13".into()),
            packages: strings(&["torch==2.15.0", "scikit-learn"]),
            requirements: None,
            pyproject: Some("pyproject.toml".into()),
            lock: None,
            editable: strings(&[".", "libs/mine[gpu]"]),
            extras: strings(&["train"]),
            groups: strings(&["dev"]),
            as_of: Some("2026-03-25".into()),
            build_sources: Some(false),
            no_build_isolation: strings(&["flash-attn"]),
            missing: strings(&["cudf"]),
            index: Some("https://packages.example/simple".into()),
            extra_index: strings(&["https://more.example/simple"]),
        },
        system: System {
            release: "debian/bookworm".into(),
            packages: strings(&["git", "ffmpeg"]),
            compiler: Some(true),
            mirror: Some("https://deb.example/debian".into()),
            security_mirror: Some("https://deb.example/security".into()),
        },
        run: full_run(),
        build: BuildSpec {
            files: strings(&["src"]),
            bytecode: Some(false),
            layers: Some(12),
            variant: Some(Variant::Slim),
            cards: strings(&["h100"]),
            keep: vec![Removal::Docs, Removal::DeviceCode],
            copy: vec![parse("wheels:/out/a.whl:/opt/a.whl")],
            run: strings(&["pip install --no-deps /opt/a.whl"]),
            network: Some(true),
        },
        stages: BTreeMap::from([
            (
                "wheels".to_owned(),
                StageSpec {
                    variant: Some(Variant::Devel),
                    system: strings(&["cmake"]),
                    python: strings(&["setuptools"]),
                    files: strings(&["ext"]),
                    copy: vec![parse("source:/src:/src")],
                    run: strings(&["make"]),
                    network: Some(false),
                },
            ),
            ("source".to_owned(), StageSpec::default()),
        ]),
        services: full_services(),
        targets: BTreeMap::from([("lab".to_owned(), full_target())]),
    }
}

fn full_target() -> TargetSpec {
    TargetSpec {
        engine: SchedulerKind::Slurm,
        partition: Some("gpu".into()),
        account: Some("vision".into()),
        qos: Some("normal".into()),
        constraint: Some("a100&ib".into()),
        reservation: Some("course".into()),
        nodes: Some(2),
        gpus_per_node: Some(8),
        gpu_type: Some("a100".into()),
        cpus_per_node: Some(64),
        time: Some("4h".into()),
        meet_within: Some("2m".into()),
        launch: Some(LaunchMode::Torchrun),
        containment: JobContainment::Apptainer,
        allow_uncontained: true,
        storage: Some("/lustre/$USER/sconce".into()),
        local_store: Some("/scratch/$USER".into()),
        prepare_on: Some("cpu".into()),
        host_plugins: Some(false),
        sbatch: strings(&["--mail-type=END"]),
        srun: strings(&["--cpu-bind=none"]),
        setup: strings(&["module load slurm"]),
    }
}

pub(super) fn full_run() -> RunSpec {
    RunSpec {
        command: strings(&["python", "train.py"]),
        gpus: Some(GpuRequest::Listed(vec![
            GpuId::Index(0),
            GpuId::Uuid("GPU-8b0c".into()),
        ])),
        cpus: Some(Millicores(2500)),
        memory: Some(Bytes::from_gib(4)),
        shm: Some(Bytes::from_gib(1)),
        pids: Some(4096),
        sample_hz: Some(2),
        cpuset: Some(parse("0-3,8")),
        memory_swap: Some(Bytes::from_gib(6)),
        io_weight: Some(200),
        hugepages: Some(Bytes::from_mib(512)),
        nofile: Some(65_536),
        memlock: Some(LockedMemory::Unlimited),
        numa: Some(NumaPolicy::Off),
        mounts: vec![parse("./data:/data:ro")],
        network: Some(NetworkMode::Own),
        runtime: Some(Runtime::Crun),
        ports: vec![parse("0.0.0.0:8080:80")],
        user: Some(ContainerUser::Root),
        workdir: Some("/workspace/src".into()),
        probe: Some(true),
        kernel_cache: Some(false),
        flops: Some(true),
        env: variables("OMP_NUM_THREADS", "2"),
    }
}

fn full_services() -> ServicesSpec {
    ServicesSpec {
        jupyter: Some(Jupyter {
            port: Some(parse("8889:8888")),
            folder: Some("notebooks".into()),
            password_hash: Some("argon2:$argon2id$v=19$m=10240$c2FsdA$aGFzaA".into()),
            cull_idle_minutes: Some(60),
        }),
        ssh: Some(Ssh {
            port: Some(parse("2223")),
            keys: strings(&["~/.ssh/id_ed25519.pub"]),
        }),
        tensorboard: Some(TensorBoard {
            port: Some(parse("0.0.0.0:6006:6006")),
            logdir: Some("runs".into()),
        }),
        programs: BTreeMap::from([
            (
                "api".to_owned(),
                CustomServiceSpec {
                    command: strings(&["python", "serve.py"]),
                    ports: vec![parse("9000"), parse("9002:9001")],
                    workdir: Some("/workspace/api".into()),
                    user: Some(ContainerUser::Plain),
                    restart: Some(RestartPolicy::Always),
                    grace_s: Some(30),
                    stop_signal: Some(StopSignal::Int),
                    after: strings(&["queue", "ssh"]),
                    health: Some(HealthCheckSpec {
                        http: Some("/health".into()),
                        port: Some(9000),
                        tcp: None,
                        command: Vec::new(),
                        interval_s: Some(5),
                        timeout_s: Some(2),
                        retries: Some(4),
                        start_period_s: Some(20),
                        restart: Some(true),
                    }),
                    env: variables("WORKERS", "4"),
                },
            ),
            (
                "cache".to_owned(),
                checked(HealthCheckSpec {
                    command: strings(&["redis-cli", "ping"]),
                    ..HealthCheckSpec::default()
                }),
            ),
            (
                "queue".to_owned(),
                checked(HealthCheckSpec {
                    tcp: Some(5672),
                    ..HealthCheckSpec::default()
                }),
            ),
        ]),
    }
}

fn checked(health: HealthCheckSpec) -> CustomServiceSpec {
    CustomServiceSpec {
        command: strings(&["program"]),
        health: Some(health),
        ..CustomServiceSpec::default()
    }
}

#[test]
fn full_spec_is_written_as_before_and_read_back() {
    let spec = full_spec();
    let text = spec.to_text();
    goldens().assert_same("sconce.toml", &text);
    assert_eq!(Spec::parse(&text), Ok(spec));
}

#[test]
fn every_key_of_a_target_is_listed() {
    let table = toml::Table::try_from(full_target()).unwrap();
    let keys: Vec<&str> = table.keys().map(String::as_str).collect();
    assert_eq!(keys, TargetSpec::KEYS);
}

/// Each of these texts is hashed into locks that are committed elsewhere: another text makes them stale.
#[test]
fn inputs_of_the_lock_are_as_before() {
    let full = full_spec();
    let with = |python: Python| Spec {
        python,
        ..Spec::default()
    };
    let requirements = with(Python {
        requirements: Some("requirements.txt".into()),
        ..Python::default()
    });
    let pyproject = with(Python {
        pyproject: Some("pyproject.toml".into()),
        ..Python::default()
    });
    let devel = Spec {
        build: BuildSpec {
            variant: Some(Variant::Devel),
            ..BuildSpec::default()
        },
        ..Spec::default()
    };
    let cases = [
        ("an empty spec", Spec::default()),
        ("a full spec", full),
        ("a requirements file", requirements),
        ("a pyproject.toml", pyproject),
        ("an image with compilers", devel),
    ];
    let text: String = cases
        .iter()
        .map(|(case, spec)| format!("# {case}\n{}", spec.lock_inputs()))
        .collect();
    goldens().assert_same("lock-inputs.toml", &text);
}

/// All keys of `[python]`: in a spec, three of them exclude each other.
#[test]
fn full_python_table_is_written_as_before_and_read_back() {
    let python = Python {
        requirements: Some("requirements.txt".into()),
        pyproject: Some("pyproject.toml".into()),
        lock: Some("uv.lock".into()),
        ..full_spec().python
    };
    let text = toml::to_string(&python).unwrap();
    goldens().assert_same("python.toml", &text);
    assert_eq!(toml::from_str::<Python>(&text), Ok(python));
}
