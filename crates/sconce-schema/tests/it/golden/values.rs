//! Every variant of every enum that is written, units, and exit codes.

use std::fmt::Debug;

use sconce_schema::event::{Containment, ExitStatus, ServiceState};
use sconce_schema::facts::{
    CgroupVersion, DriverFlavour, FabricState, FeatureState as Switch, SeccompMode,
};
use sconce_schema::finding::{Certainty, FixAction, Severity};
use sconce_schema::request::{ContainerUser, NetworkMode, RunRoot};
use sconce_schema::service::{HealthTest, RestartPolicy, StopSignal};
use sconce_schema::spec::{
    BuiltinService, GpuId, GpuRequest, JobContainment, LaunchMode, NumaPolicy, Removal,
    SchedulerKind, Variant,
};
use sconce_schema::{Bytes, EnvironmentLayers, LockedMemory, Millicores, Runtime, exit};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::goldens;

/// Adds values of a type to the golden text, and reads each back.
fn add<T: Serialize + DeserializeOwned + PartialEq + Debug>(
    text: &mut Vec<String>,
    name: &str,
    values: Vec<T>,
) {
    for value in values {
        let json = serde_json::to_string(&value).expect("plain data is JSON");
        let read: T = serde_json::from_str(&json).expect("what was written is read");
        assert_eq!(read, value);
        text.push(format!("{name} {json}\n"));
    }
}

#[test]
fn every_variant_is_written_as_before_and_read_back() {
    let mut text = Vec::new();
    add_spec_values(&mut text);
    add_run_values(&mut text);
    add_machine_values(&mut text);
    goldens().assert_same("values.txt", text.concat());
}

fn add_spec_values(text: &mut Vec<String>) {
    let ids = every_variant!(GpuId: Index(3), Uuid("GPU-8b0c".into()));
    add(text, "gpu", ids.clone());
    add(
        text,
        "gpus",
        every_variant!(GpuRequest: All, Count(2), Listed(ids)),
    );
    add(text, "numa", every_variant!(NumaPolicy: Auto, Off));
    add(
        text,
        "variant",
        every_variant!(Variant: Runtime, Slim, Devel),
    );
    let removals = every_variant!(Removal: Amd, Bytecode, Compiler, DeviceCode, Docs, Headers, Static,
        Stubs, Symbols, Tests);
    add(text, "removal", removals);
    add(
        text,
        "service",
        every_variant!(BuiltinService: Jupyter, Ssh, Tensorboard),
    );
    let locked = every_variant!(LockedMemory: Limited(Bytes::from_mib(64)), Unlimited);
    add(text, "locked memory", locked);
    add(text, "size", vec![Bytes(0), Bytes::from_gib(4)]);
    add(text, "cores", vec![Millicores(500), Millicores(2000)]);
}

fn add_run_values(text: &mut Vec<String>) {
    add(
        text,
        "network",
        every_variant!(NetworkMode: Host, None, Own),
    );
    add(text, "user", every_variant!(ContainerUser: Plain, Root));
    let image = EnvironmentLayers {
        layers: Vec::new(),
        env: Default::default(),
    };
    add(text, "root", every_variant!(RunRoot: Image(image), Host));
    let runtimes = every_variant!(Runtime: Sconce, Runc, Crun, Podman, Docker);
    add(text, "runtime", runtimes);
    add(text, "scheduler", every_variant!(SchedulerKind: Slurm));
    let containments = every_variant!(JobContainment: Sconce, Apptainer, Slurm, Pyxis, None);
    add(text, "containment", containments);
    let modes = every_variant!(LaunchMode: Torchrun, TaskPerGpu, Node);
    add(text, "launch", modes);
    add(
        text,
        "restart",
        every_variant!(RestartPolicy: Always, OnFailure, Never),
    );
    let checks = every_variant!(HealthTest: Command(vec!["true".into()]), Tcp(5672), Http {
        port: 80,
        path: "/health".into(),
    });
    add(text, "check", checks);
    let signals = every_variant!(StopSignal: Term, Int, Quit, Hup, Usr1, Usr2, Kill);
    add(text, "stop signal", signals);
    add(text, "mode", every_variant!(Containment: Container, Host));
    let states = every_variant!(ServiceState: Waiting, Starting, Running, Healthy, Unhealthy, Restarting,
        Stopping, Ended, Failed);
    for state in &states {
        let written = serde_json::to_value(state).expect("plain data is JSON");
        assert_eq!(written, state.label());
    }
    add(text, "service state", states);
    add(text, "exit", every_variant!(ExitStatus: Code(3), Signal(9)));
}

fn add_machine_values(text: &mut Vec<String>) {
    let flavours = every_variant!(DriverFlavour: Open, Closed, Nouveau, Wsl);
    add(text, "driver", flavours);
    let states = every_variant!(FabricState: NotSupported, NotStarted, InProgress, Completed);
    add(text, "fabric", states);
    add(text, "switch", every_variant!(Switch: On, Off));
    add(
        text,
        "cgroup",
        every_variant!(CgroupVersion: V1, V2, Hybrid),
    );
    add(
        text,
        "seccomp",
        every_variant!(SeccompMode: Off, Strict, Filter),
    );
    add(
        text,
        "weight",
        every_variant!(Severity: Fails, Warns, Notes),
    );
    add(
        text,
        "certainty",
        every_variant!(Certainty: Certain, Likely, Possible),
    );
    let actions = every_variant!(FixAction: Command {
        line: "modprobe nvidia".into(),
        root: true,
        safe: true,
    }, Spec {
        key: "run.shm".into(),
        value: "\"1GiB\"".into(),
    }, Variable {
        name: "NCCL_P2P_DISABLE".into(),
        value: Some("1".into()),
    });
    add(text, "action", actions);
}

/// Constants may have other names; what scripts rely on are the numbers, as the documentation has them.
#[test]
fn exit_codes_are_as_before_and_documented() {
    let codes = [
        (exit::OK, 0),
        (exit::NO, 1),
        (exit::USAGE, 2),
        (exit::BAD_INPUT, 3),
        (exit::NO_SOLUTION, 4),
        (exit::FETCH, 5),
        (exit::VERIFY, 6),
        (exit::STORE, 7),
        (exit::UNENFORCED, 8),
        (exit::STEP, 9),
        (exit::NOT_JUDGED, 10),
        (exit::NODE, 11),
        (exit::BUG, 70),
        (exit::RUN, 125),
        (exit::NOT_EXECUTABLE, 126),
        (exit::NOT_FOUND, 127),
    ];
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exit-codes.md");
    let page = std::fs::read_to_string(page).unwrap();
    for (code, number) in codes {
        assert_eq!(code, number);
        assert!(page.contains(&format!("\n| {number} | ")), "{number}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| ")).count();
    assert_eq!(rows, 1 + codes.len() + 1, "a head, each code, and signals");
    assert_eq!([2, 9, 15].map(exit::code_for_signal), [130, 137, 143]);
}
