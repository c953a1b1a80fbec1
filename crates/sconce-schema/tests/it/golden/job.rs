//! A job's request, with all that it may say.

use sconce_schema::Sha256;
use sconce_schema::job::{
    FORMAT, ItemPack, JobArray, JobLayout, JobRequest, LocalStoreRequest, PackedItem,
    PreparationRequest, PreparedEnvironment,
};
use sconce_schema::request::Mount;
use sconce_schema::spec::{JobContainment, LaunchMode, SchedulerKind};

use super::spec::full_run;
use super::{goldens, json};

#[test]
fn full_job_is_written_as_before_and_read_back() {
    let job = JobRequest {
        format: FORMAT,
        token: "7gq2m4x9".into(),
        name: "digits".into(),
        spec: "/home/ada/digits/sconce.toml".into(),
        run: full_run(),
        directories: [("HOME".to_owned(), "/home/ada".to_owned())].into(),
        lock: Sha256([7; 32]),
        architecture: "amd64".into(),
        layout: JobLayout {
            nodes: 2,
            gpus_per_node: Some(8),
            ranks_per_node: Some(16),
            launch: LaunchMode::TaskPerGpu,
        },
        starts_own_ranks: true,
        array: Some(JobArray {
            indices: vec![0, 2],
            at_once: Some(1),
            arguments: vec![vec!["--lr".into(), "1".into()], vec![]],
        }),
        containment: JobContainment::Pyxis,
        strict: true,
        engine: SchedulerKind::Slurm,
        meet_within_ms: 120_000,
        local_store: Some(LocalStoreRequest {
            directory: Some("/scratch/$USER".into()),
            environment: ItemPack {
                file: "/home/ada/.local/share/sconce/packed/9f2a.tar.zst".into(),
                sha256: Sha256([9; 32]),
                size_bytes: 1_234_567,
                items: vec![PackedItem {
                    kind: "wheel".into(),
                    key: "six-1.17".into(),
                    disk_bytes: 40_960,
                }],
            },
        }),
        preparation: Some(PreparationRequest {
            target: "cpu".into(),
            token: "7gq2m4x9.prepare".into(),
            local_store: Some("/scratch/$USER".into()),
            mounts: vec![Mount {
                source: "/data".into(),
                target: "/data".into(),
                read_only: true,
            }],
        }),
        host_plugins: Some(true),
        unix_ms: 1_790_000_000_000,
    };
    let prepared = PreparedEnvironment {
        format: FORMAT,
        local_store: job.local_store.clone(),
    };
    goldens().assert_same("prepared.json", json(&prepared));
    let text = json(&job);
    goldens().assert_same("job.json", &text);
    assert_eq!(serde_json::from_str::<JobRequest>(&text).unwrap(), job);
}
