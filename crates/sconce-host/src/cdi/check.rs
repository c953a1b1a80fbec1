//! Whether a CDI file still describes this machine.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{major, minor};
use serde::Serialize;

use super::files::CdiFile;
use super::spec::{CdiSpec, CdiSpecDevice, DeviceNodeEdit};
use crate::nvidia::NvidiaDriver;
use crate::roots::Roots;

/// So many troubles of one file say enough.
const MAX_TROUBLES: usize = 64;

/// Something wrong with a CDI file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CdiProblem {
    /// What is the matter.
    pub kind: CdiProblemKind,
    /// The file or node that it is about, where it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A sentence without the file's own name.
    pub what: String,
}

/// Kinds of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CdiProblemKind {
    /// It cannot be read at all.
    Unreadable,
    /// Engines refuse it.
    Invalid,
    /// A file or node that it names is not there.
    Missing,
    /// It was written for another driver than the loaded one.
    OtherDriver,
    /// A node has other numbers than it says.
    Renumbered,
    /// A card that it names is not there, or is another one now.
    CardGone,
    /// A card of this machine is not in it.
    CardMissing,
}

/// What is wrong with `file` on the machine below `roots` with the driver and cards `nvidia`. A
/// file about other things than NVIDIA's cards is held against its paths and numbers alone.
#[must_use]
pub fn check_file(file: &CdiFile, nvidia: Option<&NvidiaDriver>, roots: &Roots) -> Vec<CdiProblem> {
    let mut found = CdiProblems(Vec::new());
    let spec = match &file.read {
        Ok(spec) => spec,
        Err(error) => {
            found.add(
                CdiProblemKind::Unreadable,
                None,
                format!("it cannot be read: {error}"),
            );
            return found.0;
        }
    };
    for wrong in &spec.wrong {
        found.add(CdiProblemKind::Invalid, None, wrong.clone());
    }
    driver(file, nvidia, &mut found);
    cards(spec, nvidia, &mut found);
    paths(spec, roots, &mut found);
    found.0
}

struct CdiProblems(Vec<CdiProblem>);

impl CdiProblems {
    fn add(&mut self, kind: CdiProblemKind, path: Option<&str>, what: String) {
        let path = path.map(str::to_owned);
        let trouble = CdiProblem { kind, path, what };
        if self.0.len() < MAX_TROUBLES && !self.0.contains(&trouble) {
            self.0.push(trouble);
        }
    }
}

fn driver(file: &CdiFile, nvidia: Option<&NvidiaDriver>, found: &mut CdiProblems) {
    let (Some(written), Some(loaded)) = (
        file.driver_version(),
        nvidia.and_then(NvidiaDriver::driver_version),
    ) else {
        return;
    };
    if written != loaded {
        let what = format!("it was written for driver {written}; the loaded one is {loaded}");
        found.add(CdiProblemKind::OtherDriver, None, what);
    }
}

fn paths(spec: &CdiSpec, roots: &Roots, found: &mut CdiProblems) {
    for edits in spec.all_edits() {
        for node in &edits.nodes {
            numbers(node, roots, found);
        }
        for path in edits.mounts.iter().chain(&edits.hooks) {
            // Engines refuse others, or take them for names of volumes.
            if path.starts_with('/') && !roots.locate(Path::new(path)).exists() {
                missing(path, found);
            }
        }
    }
}

fn missing(path: &str, found: &mut CdiProblems) {
    let what = format!("{path} is not there");
    found.add(CdiProblemKind::Missing, Some(path), what);
}

fn numbers(node: &DeviceNodeEdit, roots: &Roots, found: &mut CdiProblems) {
    let Ok(metadata) = std::fs::metadata(roots.locate(Path::new(&node.path))) else {
        return missing(&node.path, found);
    };
    let kind = metadata.file_type();
    if !kind.is_char_device() && !kind.is_block_device() {
        // Engines take a folder of nodes too.
        if !metadata.is_dir() {
            missing(&node.path, found);
        }
        return;
    }
    let here = (major(metadata.rdev()), minor(metadata.rdev()));
    if let Some(said) = node.number.filter(|said| *said != here) {
        let what = format!(
            "{} is {}:{} here, and it says {}:{}",
            node.path, here.0, here.1, said.0, said.1
        );
        found.add(CdiProblemKind::Renumbered, Some(&node.path), what);
    }
}

/// The minor number in the name of a card's node.
fn of_card(path: &str) -> Option<u32> {
    path.strip_prefix("/dev/nvidia")?.parse().ok()
}

fn cards(spec: &CdiSpec, nvidia: Option<&NvidiaDriver>, found: &mut CdiProblems) {
    let here = nvidia.map_or(&[][..], |nvidia| &nvidia.cards);
    let minors = |device: &CdiSpecDevice| -> Vec<u32> {
        let nodes = device.edits.nodes.iter();
        nodes.filter_map(|node| of_card(&node.path)).collect()
    };
    if !spec.devices.iter().any(|device| !minors(device).is_empty()) {
        return;
    }
    let known = here.iter().all(|card| card.uuid.is_some());
    for device in &spec.devices {
        let given = minors(device);
        let gone = |what: String| (CdiProblemKind::CardGone, what);
        let trouble = if device.name.starts_with("GPU-") {
            let card = here
                .iter()
                .find(|card| card.uuid.as_deref() == Some(&device.name));
            match card {
                None if known => Some(gone(format!("there is no card {} here", device.name))),
                Some(card) => other(&device.name, card.minor, &given).map(gone),
                None => None,
            }
        } else if let Ok(index) = device.name.parse::<u32>() {
            match here.iter().find(|card| card.index == index) {
                None => Some(gone(format!("there is no card {index} here"))),
                Some(card) => other(&device.name, card.minor, &given).map(gone),
            }
        } else {
            None
        };
        if let Some((kind, what)) = trouble {
            found.add(kind, None, what);
        }
    }
    for card in here {
        let Some(minor) = card.minor else { continue };
        if !spec
            .devices
            .iter()
            .any(|device| minors(device).contains(&minor))
        {
            let name = card.summary();
            let what = format!(
                "card {} ({}, {}) is not in it",
                name.index, name.name, name.uuid
            );
            found.add(CdiProblemKind::CardMissing, None, what);
        }
    }
}

/// What to say of a device that gives one node, and that of another card.
fn other(name: &str, minor: Option<u32>, given: &[u32]) -> Option<String> {
    let (minor, [given]) = (minor?, given) else {
        return None;
    };
    (minor != *given).then(|| {
        format!(
            "the device `{name}` gives /dev/nvidia{given}, and that card is /dev/nvidia{minor} here"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cdi::files::parse_spec;
    use crate::host_profile::HostProfile;
    use CdiProblemKind::*;

    fn file(text: &str) -> CdiFile {
        CdiFile {
            path: "/etc/cdi/a.json".to_owned(),
            rank: 0,
            read: parse_spec(text, true),
        }
    }

    /// A machine with the cards 0 (minor 1) and 1 (minor 0) of driver 580.65.06, whose nodes are 1:3.
    fn machine() -> (tempfile::TempDir, Roots, NvidiaDriver) {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::from_dir(folder.path());
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  x\n",
        );
        for (bus, minor, digit) in [("17", 1, 'a'), ("65", 0, 'b')] {
            let text = format!(
                "Model: \t NVIDIA L4\nGPU UUID: \t GPU-{digit}\nBus Location: \t 0000:{bus}:00.0\nDevice Minor: \t {minor}\n"
            );
            write(
                &format!("proc/driver/nvidia/gpus/0000:{bus}:00.0/information"),
                &text,
            );
        }
        write("usr/lib/libcuda.so.580.65.06", "");
        std::fs::create_dir_all(&roots.dev).unwrap();
        for name in ["nvidia0", "nvidia1", "nvidiactl"] {
            std::os::unix::fs::symlink("/dev/null", roots.dev.join(name)).unwrap();
        }
        let nvidia = HostProfile::read(&roots).nvidia.unwrap();
        (folder, roots, nvidia)
    }

    const FRESH: &str = r#"{ "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu",
      "devices": [
        { "name": "0", "containerEdits": { "deviceNodes": [{ "path": "/dev/nvidia1", "major": 1, "minor": 3 }] } },
        { "name": "GPU-b", "containerEdits": { "deviceNodes": [{ "path": "/dev/nvidia0" }] } },
        { "name": "all", "containerEdits": { "deviceNodes": [{ "path": "/dev/nvidia0" }, { "path": "/dev/nvidia1" }] } }],
      "containerEdits": { "deviceNodes": [{ "path": "/dev/nvidiactl" }],
        "mounts": [{ "hostPath": "/usr/lib/libcuda.so.580.65.06", "containerPath": "/x" }] } }"#;

    #[test]
    fn a_file_of_this_machine_has_no_trouble() {
        let (_folder, roots, nvidia) = machine();
        assert_eq!(check_file(&file(FRESH), Some(&nvidia), &roots), []);
    }

    #[test]
    fn what_has_changed_is_named() {
        let (_folder, roots, nvidia) = machine();
        for (from, to, kind, said) in [
            (
                "580.65.06",
                "535.104.05",
                OtherDriver,
                "written for driver 535.104.05; the loaded one is 580.65.06",
            ),
            (
                "580.65.06",
                "535.104.05",
                Missing,
                "/usr/lib/libcuda.so.535.104.05 is not there",
            ),
            (
                "\"minor\": 3",
                "\"minor\": 9",
                Renumbered,
                "/dev/nvidia1 is 1:3 here, and it says 1:9",
            ),
            (
                "nvidiactl",
                "nvidia-uvm",
                Missing,
                "/dev/nvidia-uvm is not there",
            ),
            ("GPU-b", "GPU-c", CardGone, "there is no card GPU-c here"),
            (
                "GPU-b",
                "GPU-a",
                CardGone,
                "`GPU-a` gives /dev/nvidia0, and that card is /dev/nvidia1 here",
            ),
            ("\"0\"", "\"7\"", CardGone, "there is no card 7 here"),
            (
                "\"0\"",
                "\"1\"",
                CardGone,
                "`1` gives /dev/nvidia1, and that card is /dev/nvidia0 here",
            ),
            (", { \"path\": \"/dev/nvidia1\" }", "", CardMissing, ""),
            ("0.5.0", "0.3.0", Invalid, "needs 0.5.0"),
            ("{", "", Unreadable, "cannot be read"),
        ] {
            let text = FRESH.replace(from, to);
            let text = match kind {
                // The card is in no other device either.
                CardMissing => text
                    .replace(
                        "\"/dev/nvidia1\", \"major\": 1, \"minor\": 3",
                        "\"/dev/nvidia0\"",
                    )
                    .replace("\"0\"", "\"x\""),
                _ => text,
            };
            let found = check_file(&file(&text), Some(&nvidia), &roots);
            assert!(
                found
                    .iter()
                    .any(|one| one.kind == kind && one.what.contains(said)),
                "{said}: {found:?}"
            );
        }
        // Without a driver nothing is said of cards but that they are gone.
        let found = check_file(&file(FRESH), None, &roots);
        assert!(found.iter().all(|one| one.kind == CardGone), "{found:?}");
    }

    #[test]
    fn files_of_other_devices_are_not_held_against_cards() {
        let (_folder, roots, nvidia) = machine();
        let text = r#"{ "cdiVersion": "0.5.0", "kind": "a.com/disk", "devices": [
            { "name": "7", "containerEdits": { "deviceNodes": [{ "path": "/dev/nvidiactl" }] } }] }"#;
        assert_eq!(check_file(&file(text), Some(&nvidia), &roots), []);
    }
}
