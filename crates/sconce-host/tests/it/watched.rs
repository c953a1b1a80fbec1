//! Cards that are watched, played by the stand-in for NVML.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::path::Path;
use std::process::Command;

use sconce_host::{GpuMonitor, NvmlLibrary, NvmlMonitor};
use sconce_schema::Bytes;
use sconce_schema::event::GpuSample;

/// Two readings of the three cards of `stand-ins/machines/watched`.
fn readings() -> Vec<Vec<GpuSample>> {
    serde_json::from_str(&child("watched", "watched::the_child")).unwrap()
}

/// The line of JSON that a test of this program says about a machine as its child: the stand-in reads
/// its machine's name from the environment.
fn child(machine: &str, test: &str) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand-ins");
    // A machine without a compiler has brought them, under the name that all tests know.
    let brought = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stand-ins");
    let compiler = Command::new("cc").arg("--version").output().is_ok();
    let folder = if compiler {
        let folder = brought.with_file_name("stand-ins-watched");
        let built = Command::new(tests.join("build.sh")).arg(&folder).status();
        assert!(built.unwrap().success());
        folder
    } else {
        brought
    };
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env(
            "SCONCE_STAND_IN_MACHINE",
            tests.join("machines").join(machine),
        )
        .env("STAND_IN_LIBRARY", folder.join("libnvidia-ml.so.1"))
        .output()
        .unwrap();
    let text = String::from_utf8(child.stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with("[["));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
#[ignore = "the child of another test"]
fn the_child_of_instances() {
    let Some(library) = std::env::var_os("STAND_IN_LIBRARY") else {
        return;
    };
    let nvml = NvmlMonitor::open(&NvmlLibrary::File(library.into())).unwrap();
    let told: Vec<_> = nvml
        .mig_instances()
        .into_iter()
        .map(|one| {
            (
                one.card,
                one.index,
                one.uuid,
                one.gpu_instance,
                one.compute_instance,
            )
        })
        .collect();
    println!("\n{}", serde_json::to_string(&told).unwrap());
}

#[test]
fn instances_tell_where_they_belong() {
    let told: serde_json::Value =
        serde_json::from_str(&child("mig", "watched::the_child_of_instances")).unwrap();
    // Their numbers have a hole, and the other card is whole.
    let expected = serde_json::json!([
        [0, 0, "MIG-6abb32b5-a1e3-5be9-a1f5-0ed8dba6c1f7", 1, 0],
        [0, 2, "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", 5, 0],
    ]);
    assert_eq!(told, expected);
}

#[test]
#[ignore = "the child of other tests"]
fn the_child() {
    let Some(library) = std::env::var_os("STAND_IN_LIBRARY") else {
        return;
    };
    let nvml = NvmlMonitor::open(&NvmlLibrary::File(library.into())).unwrap();
    let read = || (0..4).map(|index| nvml.sample(index)).collect::<Vec<_>>();
    let series = || {
        (0..4)
            .map(|index| nvml.sample_in_series(index))
            .collect::<Vec<_>>()
    };
    // The first of a series is whole; so is one that is asked for by itself, in the middle and at the end.
    let readings = [read(), read(), series(), read()];
    println!("\n{}", serde_json::to_string(&readings).unwrap());
}

/// NVML takes longest for it.
#[test]
fn energy_is_read_now_and_then_in_a_series_and_always_in_a_whole_reading() {
    let energy: Vec<Option<u64>> = readings().iter().map(|cards| cards[0].energy_mj).collect();
    let known = Some(123_456_789);
    assert_eq!(energy, [known, known, None, known]);
}

#[test]
fn cards_tell_what_they_can() {
    let readings = readings();
    let [whole, split, old, none] = &readings[0][..] else {
        panic!("{readings:?}");
    };
    assert_eq!(whole.utilisation_percent, Some(97));
    assert_eq!(whole.memory_utilisation_percent, Some(41));
    assert_eq!(whole.sm_clock_mhz, Some(1755));
    assert_eq!(whole.memory_clock_mhz, Some(2619));
    assert_eq!(whole.energy_mj, Some(123_456_789));
    assert_eq!(whole.xids, [79, 31]);
    assert_eq!(whole.pcie_received_bytes_per_s, None, "nothing before it");
    assert_eq!(whole.nvlink_received_bytes, Some(0));
    assert_eq!(whole.memory_by_pid[&4321], Bytes::from_gib(2));

    assert_eq!(split.xids, [0_u64; 0]);
    let parts: Vec<_> = split
        .instances
        .iter()
        .map(|part| (part.uuid.as_str(), part.memory_used, part.memory))
        .collect();
    assert_eq!(
        parts,
        [
            (
                "MIG-6abb32b5-a1e3-5be9-a1f5-0ed8dba6c1f7",
                Some(Bytes::from_gib(1)),
                Some(Bytes::from_gib(40))
            ),
            ("MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", None, None),
        ]
    );
    assert_eq!(old.sm_clock_mhz, None);
    assert_eq!(old.nvlink_sent_bytes, None);
    let empty = GpuSample {
        index: 3,
        ..GpuSample::default()
    };
    assert_eq!(none, &empty);
}

#[test]
fn links_are_counted_between_readings() {
    let readings = readings();
    let [whole, split, _, _] = &readings[1][..] else {
        panic!("{readings:?}");
    };
    let (received, sent) = (
        whole.pcie_received_bytes_per_s.unwrap(),
        whole.pcie_sent_bytes_per_s.unwrap(),
    );
    // The counters grow 500 times as fast in one direction.
    assert!(
        (499..=501).contains(&(received / sent)),
        "{received} {sent}"
    );
    // The stand-in was asked four times for each card's links in one round: every card counts.
    let rounds = whole.nvlink_received_bytes.unwrap() / (512 * 1024);
    assert!(rounds >= 1, "{whole:?}");
    assert_eq!(whole.nvlink_sent_bytes, Some(rounds * 256 * 1024));
    assert_eq!(whole.xids, [0_u64; 0], "told once");
    assert_eq!(split.pcie_sent_bytes_per_s, None);
    // Without a counter one card a reading is asked, in turn.
    let asked: Vec<_> = (readings.iter())
        .filter_map(|reading| reading[2].pcie_received_bytes_per_s)
        .collect();
    assert_eq!(asked, [5_000_000]);
}
