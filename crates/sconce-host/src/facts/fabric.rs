//! Services of the driver: the fabric manager, the persistence daemon, the multi-process service.
//! None of them is asked anything.

use std::collections::BTreeMap;
use std::path::Path;

use sconce_schema::facts::MpsFacts;

use crate::roots::Roots;
use crate::small_files;

/// Units, and the socket by which a container that got one from its host knows them.
const UNITS: [(&str, Option<&str>); 4] = [
    (
        "nvidia-fabricmanager.service",
        Some("run/nvidia-fabricmanager/socket"),
    ),
    ("nvidia-imex.service", None),
    (
        "nvidia-persistenced.service",
        Some("run/nvidia-persistenced/socket"),
    ),
    ("nvidia-mps.service", None),
];

const UNIT_FOLDERS: [&str; 4] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

/// The state of each unit that is there, without running systemctl:
///
/// 1. `active`: systemd keeps a unit's processes in a cgroup of its name, and it has one with
///    processes;
/// 2. `inactive`: its file is installed, systemd runs, and it has none;
/// 3. `active`: nothing is installed and the socket is there, which a container got from its host.
pub(super) fn read_service_states(roots: &Roots) -> BTreeMap<String, String> {
    let there = |path: &str| roots.root.join(path).symlink_metadata().is_ok();
    let state = |unit: &str, socket: Option<&str>| {
        if has_processes(roots, unit) {
            return Some("active");
        }
        let installed = UNIT_FOLDERS
            .iter()
            .any(|folder| there(&format!("{folder}/{unit}")));
        if installed {
            return there("run/systemd/system").then_some("inactive");
        }
        there(socket?).then_some("active")
    };
    let told = |(unit, socket): &(&str, Option<&str>)| {
        Some(((*unit).to_owned(), state(unit, *socket)?.to_owned()))
    };
    UNITS.iter().filter_map(told).collect()
}

/// v2's hierarchy, v2 beside v1, and systemd's own v1 hierarchy.
fn has_processes(roots: &Roots, unit: &str) -> bool {
    ["", "unified/", "systemd/"].iter().any(|hierarchy| {
        let folder = format!("fs/cgroup/{hierarchy}system.slice/{unit}");
        small_files::read_line(&roots.sys.join(folder).join("cgroup.procs")).is_some()
    })
}

/// The multi-process service: the folder of its pipes is `CUDA_MPS_PIPE_DIRECTORY`, else
/// /tmp/nvidia-mps (NVIDIA's "Multi-Process Service", chapter "Environment variables"). Whether
/// its daemon runs is looked for among the processes, only where that folder has a pipe; a
/// container sees its own processes alone, and then it is told as not running.
pub(super) fn detect_mps(roots: &Roots, pipe_folder: Option<&String>) -> Option<MpsFacts> {
    let folder = pipe_folder.map_or("/tmp/nvidia-mps", String::as_str);
    let located = roots.locate(Path::new(folder));
    if !located.is_dir() {
        return Some(MpsFacts::default());
    }
    let started = located.join("control").symlink_metadata().is_ok();
    Some(MpsFacts {
        running: started && runs(roots),
        pipe_folder: Some(folder.to_owned()),
    })
}

/// The kernel keeps 15 letters of a program's name (proc_pid_comm(5)), so that the control daemon
/// and its servers look alike; there is no server without the daemon.
fn runs(roots: &Roots) -> bool {
    const DAEMON: &str = "nvidia-cuda-mps";
    let Ok(entries) = roots.proc.read_dir() else {
        return false;
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        is_process && small_files::read_line(&entry.path().join("comm")).as_deref() == Some(DAEMON)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let roots = Roots::from_dir(folder.path());
        (folder, roots)
    }

    #[test]
    fn states_of_units() {
        let fabric = "nvidia-fabricmanager.service";
        let procs = format!("sys/fs/cgroup/system.slice/{fabric}/cgroup.procs");
        let (_folder, roots) = machine(&[
            ("usr/lib/systemd/system/nvidia-fabricmanager.service", ""),
            ("lib/systemd/system/nvidia-persistenced.service", ""),
            ("run/systemd/system/x", ""),
            (&procs, "1234\n"),
        ]);
        let found = read_service_states(&roots);
        assert_eq!(found.get(fabric).map(String::as_str), Some("active"));
        let persistence = found.get("nvidia-persistenced.service");
        assert_eq!(persistence.map(String::as_str), Some("inactive"));
        assert_eq!(found.len(), 2);
        std::fs::write(roots.root.join(procs), "").unwrap();
        assert_eq!(read_service_states(&roots)[fabric], "inactive");
    }

    #[test]
    fn a_container_knows_a_service_by_its_socket() {
        let (_folder, roots) = machine(&[("run/nvidia-persistenced/socket", "")]);
        let expected = BTreeMap::from([(
            "nvidia-persistenced.service".to_owned(),
            "active".to_owned(),
        )]);
        assert_eq!(read_service_states(&roots), expected);
    }

    #[test]
    fn the_multi_process_service() {
        let (_folder, roots) = machine(&[("proc/77/comm", "nvidia-cuda-mps\n")]);
        assert_eq!(detect_mps(&roots, None), Some(MpsFacts::default()));
        let (_folder, roots) = machine(&[
            ("proc/77/comm", "nvidia-cuda-mps\n"),
            ("proc/self/comm", "sconce\n"),
            ("run/mps/control", ""),
        ]);
        let found = detect_mps(&roots, Some(&"/run/mps".to_owned())).unwrap();
        assert!(found.running, "{found:?}");
        assert_eq!(found.pipe_folder.as_deref(), Some("/run/mps"));
        std::fs::remove_dir_all(roots.proc.join("77")).unwrap();
        assert!(
            !detect_mps(&roots, Some(&"/run/mps".to_owned()))
                .unwrap()
                .running
        );
    }
}
