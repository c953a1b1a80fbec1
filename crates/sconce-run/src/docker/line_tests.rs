//! What Docker is told, and what it is not.

use std::collections::BTreeMap;

use sconce_schema::environment_layers::EnvironmentLayers;
use sconce_schema::number_set::NumberSet;
use sconce_schema::request::{ContainerEdits, DeviceNode, PublishedPort, RunLimits};
use sconce_schema::units::{Bytes, Millicores};

use super::super::client::tests::docker;
use super::*;

pub(in super::super) fn request() -> RunRequest {
    let root = RunRoot::Image(EnvironmentLayers {
        layers: Vec::new(),
        env: BTreeMap::new(),
    });
    let command = ["--version", "-c", "1"].map(str::to_owned).into();
    RunRequest {
        workdir: "/workspace".into(),
        ..RunRequest::new("a-1", root, command)
    }
}

fn words(request: &RunRequest, can: Can) -> Vec<String> {
    let asked = CreateArgs {
        request,
        image: "sconce/a:0f",
        can,
        shm_bytes: 4096,
        variables: Path::new("/s/environment"),
        filter: Path::new("/s/seccomp.json"),
    };
    let words = build_create_args(&asked).unwrap().into_iter();
    words.map(|word| word.into_string().unwrap()).collect()
}

fn all_limits() -> RunLimits {
    RunLimits {
        cpus: Some(Millicores(1500)),
        memory: Some(Bytes::from_gib(1)),
        shm: None,
        pids: Some(64),
        cpuset: Some("0-1".parse::<NumberSet>().unwrap()),
        memory_swap: Some(Bytes::from_gib(2)),
        io_weight: Some(300),
        hugepages: Some(Bytes::from_gib(1)),
        nofile: Some(256),
        memlock: Some(LockedMemory::Unlimited),
    }
}

#[test]
fn every_limit_is_a_flag_and_everything_is_dropped() {
    let mut request = request();
    request.limits = all_limits();
    let line = words(&request, docker().can);
    for word in [
        "--name=sconce-a-1",
        "--label=sconce.run=a-1",
        "--user=1000:1000",
        "--workdir=/workspace",
        "--network=none",
        "--shm-size=4096b",
        "--cpus=1.5",
        "--cpuset-cpus=0-1",
        "--memory=1073741824b",
        "--memory-swap=2147483648b",
        "--pids-limit=64",
        "--blkio-weight=300",
        "--ulimit=nofile=256:256",
        "--ulimit=memlock=-1:-1",
        "--security-opt=seccomp=/s/seccomp.json",
        "no-new-privileges",
        "ALL",
        "--init",
        "--interactive",
    ] {
        assert!(line.iter().any(|one| one == word), "{word}: {line:?}");
    }
    for word in ["--tty", "--privileged"] {
        assert!(!line.iter().any(|one| one == word), "{word}: {line:?}");
    }
    assert!(!line.iter().any(|one| one.contains("cap-add")), "{line:?}");
    // A command that looks like a flag is the image's entrypoint, and no flag of Docker's.
    let end = ["--entrypoint=--version", "--", "sconce/a:0f", "-c", "1"];
    assert!(line.ends_with(&end.map(str::to_owned)), "{line:?}");
    request.limits.memory_swap = None;
    let line = words(&request, docker().can);
    assert!(
        line.contains(&"--memory-swap=1073741824b".to_owned()),
        "{line:?}"
    );
}

#[test]
fn what_the_daemon_cannot_do_is_said_and_not_asked() {
    let mut request = request();
    request.limits = all_limits();
    request.limits.io_weight = Some(5);
    let none = Can {
        init: false,
        cpus: false,
        cpuset: false,
        memory: false,
        pids: false,
    };
    let line = words(&request, none).join(" ");
    for flag in ["--cpus", "--cpuset", "--memory", "--pids", "--init"] {
        assert!(!line.contains(flag), "{flag}: {line}");
    }
    assert!(line.contains("--blkio-weight=10"), "{line}");
    let said = unenforced_limits(&request, none);
    let said: Vec<&str> = said.iter().map(|one| one.what.as_str()).collect();
    let all = [
        "cpus",
        "cpuset",
        "memory",
        "pids",
        "hugepages",
        "io-weight",
        "process 1",
    ];
    assert_eq!(said, all);
}

#[test]
fn root_ports_terminal_and_mounts() {
    let folder = tempfile::tempdir().unwrap();
    let mut request = request();
    request.user = ContainerUser::Root;
    request.terminal = true;
    request.network = NetworkMode::Own;
    let port = |host_ip: &str| PublishedPort {
        host_ip: host_ip.parse().unwrap(),
        host: 8080,
        container: 80,
    };
    request.ports = vec![port("127.0.0.1"), port("::1")];
    request.mounts = vec![Mount {
        source: folder.path().to_owned(),
        target: "/data:1".into(),
        read_only: true,
    }];
    let line = words(&request, docker().can);
    assert_eq!(
        line.iter()
            .filter(|one| one.starts_with("--cap-add=CAP_"))
            .count(),
        10
    );
    let bind = format!(
        "--mount=type=bind,source={},target=/data:1,readonly",
        folder.path().display()
    );
    for word in [
        "--user=0:0",
        "--tty",
        "--network=bridge",
        "--publish=127.0.0.1:8080:80",
        "--publish=[::1]:8080:80",
        &bind,
    ] {
        assert!(line.iter().any(|one| one == word), "{word}: {line:?}");
    }
    let owner = std::fs::metadata(folder.path()).unwrap().uid();
    let said = unenforced_limits(&request, docker().can);
    assert_eq!(said.len(), usize::from(owner != 0), "{said:?}");
    request.user = ContainerUser::Plain;
    let said = unenforced_limits(&request, docker().can);
    assert_eq!(said.len(), usize::from(owner != 1000), "{said:?}");
}

#[test]
fn cards_are_sconces_own_edits() {
    let mut request = request();
    let mount = |container: &str| EditMount {
        host_path: "/usr/lib/libcuda.so.570".to_owned(),
        container_path: container.to_owned(),
        options: vec!["ro".to_owned()],
    };
    request.edits = vec![ContainerEdits {
        env: Vec::new(),
        device_nodes: vec![DeviceNode {
            path: "/dev/nvidia0".to_owned(),
            host_path: String::new(),
            r#type: "c".to_owned(),
            major: 195,
            minor: 0,
        }],
        mounts: vec![
            mount("/usr/lib/libcuda.so.570"),
            mount("/proc/driver/nvidia/params"),
        ],
        links: vec![(
            "libcuda.so.570".to_owned(),
            "/usr/lib/libcuda.so.1".to_owned(),
        )],
    }];
    let line = words(&request, docker().can).join(" ");
    let bind = "--mount=type=bind,source=/usr/lib/libcuda.so.570,target=/usr/lib/libcuda.so";
    assert!(
        line.contains("--device=/dev/nvidia0:/dev/nvidia0:rw"),
        "{line}"
    );
    assert!(line.contains(&format!("{bind}.570,readonly")), "{line}");
    assert!(line.contains(&format!("{bind}.1,readonly")), "{line}");
    assert!(!line.contains("/proc"), "{line}");
    let said = unenforced_limits(&request, docker().can);
    assert_eq!(said[0].what, "/proc/driver/nvidia/params");
}

#[test]
fn what_would_be_read_otherwise_is_refused() {
    for path in ["/a,readonly=false", "/a\"", "/a\nb"] {
        assert!(
            bind(Path::new(path), Path::new("/x"), true).is_err(),
            "{path}"
        );
        assert!(
            bind(Path::new("/x"), Path::new(path), true).is_err(),
            "{path}"
        );
    }
    let read = |text: &str| render_env_file(&[OsString::from(text)]);
    for text in [
        "A=1\nLD_PRELOAD=/x",
        "#A=1",
        "",
        "=1",
        "A B=1",
        " A=1",
        "A=1\r",
    ] {
        assert!(read(text).is_err(), "{text:?}");
    }
    assert!(render_env_file(&[OsString::from("HF_TOKEN=hf_secret # x")]).is_ok());
    let mut request = request();
    request
        .env
        .insert("HF_TOKEN".to_owned(), "hf_secret".to_owned());
    let line = words(&request, docker().can).join(" ");
    assert!(!line.contains("hf_secret") && line.contains("--env-file=/s/environment"));
}

#[test]
fn what_cannot_be_handed_over_is_refused() {
    let mut request = request();
    assert!(validate_request(&request, false).is_ok());
    assert!(validate_request(&request, true).is_err());
    request.ports = vec![PublishedPort {
        host_ip: "127.0.0.1".parse().unwrap(),
        host: 1,
        container: 1,
    }];
    let error = validate_request(&request, false).unwrap_err();
    assert!(
        error.to_string().contains("docker cannot hold ports"),
        "{error}"
    );
    request.root = RunRoot::Host;
    request.ports.clear();
    assert!(validate_request(&request, false).is_err());
}
