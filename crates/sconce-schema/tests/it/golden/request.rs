//! A run request, with every kind of what it asks for.

use std::collections::BTreeMap;

use sconce_schema::environment_layers::LayerTree;
use sconce_schema::request::{
    ContainerEdits, ContainerUser, DeviceNode, EditMount, Mount, NetworkMode, NumaPlacement,
    PublishedPort, RunLimits, RunRoot,
};
use sconce_schema::service::{HealthCheck, HealthTest, RestartPolicy, RunService, StopSignal};
use sconce_schema::{Bytes, EnvironmentLayers, LockedMemory, Millicores, RunRequest};

use super::{goldens, json, parse};

fn full_request() -> RunRequest {
    let variables = BTreeMap::from([("LANG".to_owned(), "C.UTF-8".to_owned())]);
    RunRequest {
        id: "brave-otter-7".into(),
        command: vec!["python".into(), "train.py".into()],
        root: RunRoot::Image(EnvironmentLayers {
            layers: vec![LayerTree {
                name: "torch".into(),
                path: "/store/items/layer/1a/tree".into(),
            }],
            env: variables.clone(),
        }),
        workdir: "/workspace".into(),
        env: variables.clone(),
        limits: full_limits(),
        mounts: vec![Mount {
            source: "/data".into(),
            target: "/mnt/data".into(),
            read_only: true,
        }],
        network: NetworkMode::Own,
        address: Some([10, 0, 0, 7].into()),
        ports: vec![port()],
        near: Some(NumaPlacement {
            nodes: parse("0-1"),
            cpus: Some(parse("0-3,8")),
        }),
        user: ContainerUser::Plain,
        edits: vec![ContainerEdits {
            env: vec!["NVIDIA_VISIBLE_DEVICES=void".into()],
            device_nodes: vec![DeviceNode {
                path: "/dev/nvidia0".into(),
                host_path: "/dev/nvidia3".into(),
                r#type: "c".into(),
                major: 195,
                minor: 3,
            }],
            mounts: vec![EditMount {
                host_path: "/usr/lib/libcuda.so.580.65.06".into(),
                container_path: "/usr/lib/libcuda.so.580.65.06".into(),
                options: vec!["ro".into(), "nosuid".into()],
            }],
            links: Vec::new(),
        }],
        terminal: true,
        services: vec![full_service()],
    }
}

fn full_limits() -> RunLimits {
    RunLimits {
        cpus: Some(Millicores(2500)),
        memory: Some(Bytes::from_gib(4)),
        shm: Some(Bytes::from_gib(1)),
        pids: Some(4096),
        cpuset: Some(parse("0-3,8")),
        memory_swap: Some(Bytes::from_gib(6)),
        io_weight: Some(200),
        hugepages: Some(Bytes::from_mib(512)),
        nofile: Some(65_536),
        memlock: Some(LockedMemory::Limited(Bytes::from_mib(64))),
    }
}

fn port() -> PublishedPort {
    PublishedPort {
        host_ip: parse("127.0.0.1"),
        host: 8080,
        container: 80,
    }
}

fn full_service() -> RunService {
    RunService {
        name: "api".into(),
        command: vec!["serve".into()],
        env: BTreeMap::from([("WORKERS".to_owned(), "4".to_owned())]),
        workdir: Some("/workspace/api".into()),
        user: Some(ContainerUser::Root),
        restart: RestartPolicy::Always,
        grace_s: 30,
        stop_signal: StopSignal::Int,
        ports: vec![port()],
        links: vec!["http://127.0.0.1:8080/".into()],
        health: Some(HealthCheck {
            check: HealthTest::Http {
                port: 80,
                path: "/health".into(),
            },
            interval_ms: 5_000,
            timeout_ms: 2_000,
            retries: 4,
            start_period_ms: 20_000,
            restart: true,
        }),
        after: vec!["queue".into()],
    }
}

#[test]
fn full_request_is_written_as_before_and_read_back() {
    let request = full_request();
    let text = json(&request);
    goldens().assert_same("run-request.json", &text);
    assert_eq!(serde_json::from_str::<RunRequest>(&text).unwrap(), request);
}
