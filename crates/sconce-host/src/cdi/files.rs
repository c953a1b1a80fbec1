//! The CDI files of a machine, and which of them an engine takes a device from.
//!
//! Anybody's tool may have written them, and a user's own folder is anybody's: a file has a size, its
//! YAML no aliases, and nothing is opened that could make the reader wait.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use sconce_schema::DriverVersion;
use serde_json::Value;

use super::spec::CdiSpec;
use super::yaml;
use crate::facts::version_in_name;
use crate::roots::Roots;

/// Where engines look, /var/run being a link to /run.
const FOLDERS: [(&str, u32); 3] = [("/etc/cdi", 0), ("/var/run/cdi", 1), ("/run/cdi", 1)];
/// The rank of a user's own folder.
const USER_DIR_RANK: u32 = 2;
/// More files than an engine is given.
const MAX_FILES: usize = 64;
/// A file for eight split cards has 100 KB.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// More devices than a file for eight split cards has.
const MAX_DEVICES: usize = 10_000;

/// A CDI file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CdiFile {
    /// As the machine names it.
    pub path: String,
    /// Of folders that hold the same device the one with the higher rank has it.
    pub rank: u32,
    pub(super) read: Result<CdiSpec, String>,
}

impl CdiFile {
    /// Why it cannot be read.
    #[must_use]
    pub fn read_error(&self) -> Option<&str> {
        self.read.as_ref().err().map(String::as_str)
    }

    /// What it says of itself, `nvidia.com/gpu`.
    #[must_use]
    pub fn kind(&self) -> Option<&str> {
        self.read.as_ref().ok()?.kind.as_deref()
    }

    /// The version of the specification that it says it follows.
    #[must_use]
    pub fn cdi_version(&self) -> Option<&str> {
        self.read.as_ref().ok()?.version.as_deref()
    }

    /// Why engines refuse it although it can be read; empty where they take it.
    #[must_use]
    pub fn rejection_reasons(&self) -> &[String] {
        self.read.as_ref().map_or(&[], |spec| &spec.wrong)
    }

    /// Names of its devices, as the file has them.
    pub fn device_names(&self) -> impl Iterator<Item = &str> {
        let devices = self.read.iter().flat_map(|spec| &spec.devices);
        devices.map(|device| device.name.as_str()).take(MAX_DEVICES)
    }

    /// The driver's version in the names of the libraries that it mounts, `libcuda` first.
    #[must_use]
    pub fn driver_version(&self) -> Option<DriverVersion> {
        let spec = self.read.as_ref().ok()?;
        let paths = || spec.all_edits().flat_map(|edits| &edits.mounts);
        let names = || paths().filter_map(|path| path.rsplit('/').next());
        let cuda = names().filter(|name| name.starts_with("libcuda.so."));
        let others = names().filter(|name| name.starts_with("libnvidia-"));
        cuda.chain(others).find_map(version_in_name)
    }
}

/// Every CDI file, by folder and name; one that lies behind two folders' names once. `own` is the
/// folder of a user, which engines that the user started read after the machine's.
#[must_use]
pub fn read_files(roots: &Roots, own: Option<&Path>) -> Vec<CdiFile> {
    let machine = FOLDERS.map(|(folder, rank)| (PathBuf::from(folder), rank));
    let own = own.map(|folder| (folder.to_owned(), USER_DIR_RANK));
    let mut known: Vec<PathBuf> = Vec::new();
    let mut files = Vec::new();
    for (folder, rank) in machine.into_iter().chain(own) {
        let located = roots.locate(&folder);
        for name in names(&located) {
            let path = located.join(&name);
            let end = path.canonicalize().ok();
            if files.len() == MAX_FILES || end.as_ref().is_some_and(|end| known.contains(end)) {
                continue;
            }
            known.extend(end);
            files.push(CdiFile {
                path: folder.join(&name).to_string_lossy().into_owned(),
                rank,
                read: read(&path),
            });
        }
    }
    files
}

/// One file by its path on the machine.
#[must_use]
pub fn read_file(roots: &Roots, path: &Path) -> CdiFile {
    let located = roots.locate(path);
    let folder = located
        .parent()
        .and_then(|folder| folder.canonicalize().ok());
    let rank = FOLDERS.iter().find_map(|(name, rank)| {
        let known = roots.locate(Path::new(name)).canonicalize().ok()?;
        (Some(known) == folder).then_some(*rank)
    });
    CdiFile {
        path: path.to_string_lossy().into_owned(),
        rank: rank.unwrap_or(USER_DIR_RANK),
        read: read(&located),
    }
}

/// Files that engines read, by name: no other ending, no folder below.
fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = folder.read_dir() else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter(|name| name.ends_with(".yaml") || name.ends_with(".json"))
        .filter(|name| !folder.join(name).is_dir())
        .collect();
    names.sort();
    names
}

fn read(path: &Path) -> Result<CdiSpec, String> {
    let text = text(path)?;
    parse_spec(
        &text,
        path.extension().is_some_and(|ending| ending == "json"),
    )
}

fn text(path: &Path) -> Result<String, String> {
    // Not to wait for whoever writes into a pipe.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = open(path, flags, Mode::empty()).map_err(|error| error.to_string())?;
    let file = File::from(opened);
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err("it is no file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err("it is larger than 4 MiB".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "it is no UTF-8".to_owned())
}

pub(super) fn parse_spec(text: &str, json: bool) -> Result<CdiSpec, String> {
    let value: Value = match json {
        true => serde_json::from_str(text).map_err(|error| error.to_string())?,
        false => yaml::parse(text).map_err(|error| error.to_string())?,
    };
    Ok(CdiSpec::from_value(&value))
}

/// A device of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CdiDevice {
    /// What engines are asked for: `nvidia.com/gpu=0`.
    pub name: String,
    /// Its file.
    pub path: String,
    /// Whether an engine takes it from there.
    pub standing: CdiPrecedence,
}

/// Which of several files has a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CdiPrecedence {
    /// Engines take it from here.
    Taken,
    /// A file of a folder with a higher rank has it too.
    Hidden {
        /// That file.
        by: String,
    },
    /// A file of the same folder has it too: engines find it in none.
    Conflict {
        /// The other file.
        with: String,
    },
}

/// The devices of all files that engines take. Of the same device in two folders the one with the
/// higher rank wins (`SPEC.md`, "CDI Spec file locations"); in two files of one folder it is in
/// conflict, and then the library that engines use finds it nowhere, not in another folder either.
#[must_use]
pub fn list_devices(files: &[CdiFile]) -> Vec<CdiDevice> {
    let taken = files
        .iter()
        .filter(|file| file.rejection_reasons().is_empty());
    let mut all: Vec<(String, &CdiFile)> = Vec::new();
    for file in taken {
        let Some(kind) = file.kind() else { continue };
        all.extend(
            file.device_names()
                .map(|name| (format!("{kind}={name}"), file)),
        );
    }
    let mut by_name: BTreeMap<&str, Vec<&CdiFile>> = BTreeMap::new();
    for (name, file) in &all {
        by_name.entry(name).or_default().push(file);
    }
    let standing = |name: &str, file: &CdiFile| {
        let others = by_name.get(name).map_or(&[][..], Vec::as_slice);
        let other = |of: &dyn Fn(&&&CdiFile) -> bool| {
            let found = others
                .iter()
                .filter(|other| other.path != file.path)
                .find(of);
            found.map(|other| other.path.clone())
        };
        let beside = |rank: u32| others.iter().filter(|other| other.rank == rank).count() > 1;
        if let Some(with) = other(&|other| other.rank == file.rank) {
            CdiPrecedence::Conflict { with }
        } else if let Some(with) = other(&|other| beside(other.rank)) {
            CdiPrecedence::Conflict { with }
        } else if let Some(by) = other(&|other| other.rank > file.rank) {
            CdiPrecedence::Hidden { by }
        } else {
            CdiPrecedence::Taken
        }
    };
    all.iter()
        .map(|(name, file)| CdiDevice {
            name: name.clone(),
            path: file.path.clone(),
            standing: standing(name, file),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The form that nvidia-ctk 1.12 wrote (NVIDIA/nvidia-container-toolkit issue 38), shortened.
    const YAML: &str = "\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidia-uvm
  - path: /dev/nvidiactl
  hooks:
  - args:
    - nvidia-ctk
    - hook
    - chmod
    - --mode
    - \"755\"
    hookName: createContainer
    path: /bin/nvidia-ctk
  mounts:
  - containerPath: /usr/lib64/libnvidia-tls.so.520.61.05
    hostPath: /usr/lib64/libnvidia-tls.so.520.61.05
    options:
    - ro
    - bind
  - containerPath: /usr/lib64/libcuda.so.520.61.05
    hostPath: /usr/lib64/libcuda.so.520.61.05
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      hostPath: /dev/dri/renderD129
      major: 226
      minor: 129
  name: \"0\"
kind: nvidia.com/gpu
";
    /// A device plugin's (NVIDIA/k8s-device-plugin issue 632), shortened.
    const JSON: &str = r#"{ "cdiVersion": "v0.5.0", "kind": "k8s.device-plugin.nvidia.com/gpu",
      "devices": [ { "name": "GPU-13f2a0cd", "containerEdits": {
        "deviceNodes": [ { "path": "/dev/nvidia0", "hostPath": "/dev/nvidia0" } ] } } ],
      "containerEdits": { "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "mounts": [ { "hostPath": "/lib64/libnvidia-ml.so.535.129.03", "containerPath": "/x" } ] } }"#;

    #[test]
    fn both_forms_are_read() {
        let read = |text: &str, json| CdiFile {
            path: "/etc/cdi/a".to_owned(),
            rank: 0,
            read: parse_spec(text, json),
        };
        let file = read(YAML, false);
        assert_eq!(file.rejection_reasons(), [""; 0]);
        assert_eq!(
            (file.kind(), file.cdi_version()),
            (Some("nvidia.com/gpu"), Some("0.5.0"))
        );
        assert_eq!(file.driver_version(), "520.61.05".parse().ok());
        let spec = file.read.unwrap();
        assert_eq!(spec.devices[0].edits.nodes[0].path, "/dev/dri/renderD129");
        assert_eq!(spec.devices[0].edits.nodes[0].number, Some((226, 129)));
        assert_eq!(spec.edits.hooks, ["/bin/nvidia-ctk"]);
        let file = read(JSON, true);
        assert_eq!(file.driver_version(), "535.129.03".parse().ok());
        assert_eq!(file.device_names().collect::<Vec<_>>(), ["GPU-13f2a0cd"]);
        assert_eq!(file.rejection_reasons(), [""; 0]);
    }

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let roots = Roots::from_dir(folder.path());
        (folder, roots)
    }

    #[test]
    fn the_folders_of_a_machine() {
        let (folder, roots) = machine(&[
            ("etc/cdi/nvidia.yaml", YAML),
            ("etc/cdi/notes.txt", "no CDI file"),
            ("etc/cdi/more/deep.yaml", YAML),
            ("run/cdi/broken.json", "{"),
            ("home/ada/.config/cdi/own.json", JSON),
            ("var/x", ""),
        ]);
        std::os::unix::fs::symlink("../run", folder.path().join("var/run")).unwrap();
        let own = Path::new("/home/ada/.config/cdi");
        let found = read_files(&roots, Some(own));
        let names: Vec<_> = found.iter().map(|f| (f.path.as_str(), f.rank)).collect();
        let expected = [
            ("/etc/cdi/nvidia.yaml", 0),
            ("/var/run/cdi/broken.json", 1),
            ("/home/ada/.config/cdi/own.json", 2),
        ];
        assert_eq!(names, expected);
        assert!(
            found[1].read_error().unwrap().contains("line 1"),
            "{found:?}"
        );
        assert_eq!(read_files(&roots, None).len(), 2);
        assert_eq!(read_file(&roots, Path::new("/run/cdi/broken.json")).rank, 1);
    }

    /// A file with these devices.
    fn with(names: &[&str]) -> String {
        let node = r#"{ "deviceNodes": [{ "path": "/dev/null" }] }"#;
        let devices = names
            .iter()
            .map(|name| format!(r#"{{ "name": "{name}", "containerEdits": {node} }}"#));
        let devices = devices.collect::<Vec<_>>().join(",");
        format!(r#"{{ "cdiVersion": "0.5.0", "kind": "a.com/b", "devices": [{devices}] }}"#)
    }

    #[test]
    fn the_later_folder_wins_and_equals_are_in_conflict() {
        let (_folder, roots) = machine(&[
            ("etc/cdi/a.json", &with(&["static", "both", "twice", "low"])),
            ("etc/cdi/b.json", &with(&["twice", "low"])),
            ("etc/cdi/refused.json", &with(&["static", "bad name"])),
            ("run/cdi/c.json", &with(&["both", "low"])),
        ]);
        let found = list_devices(&read_files(&roots, None));
        let standing = |name: &str, file: &str| {
            let one = found
                .iter()
                .find(|one| one.name == format!("a.com/b={name}") && one.path.ends_with(file));
            one.map(|one| one.standing.clone())
        };
        assert_eq!(standing("static", "a.json"), Some(CdiPrecedence::Taken));
        assert_eq!(
            standing("static", "refused.json"),
            None,
            "engines do not take that file"
        );
        let by = "/run/cdi/c.json".to_owned();
        assert_eq!(
            standing("both", "a.json"),
            Some(CdiPrecedence::Hidden { by })
        );
        assert_eq!(standing("both", "c.json"), Some(CdiPrecedence::Taken));
        let with = "/etc/cdi/b.json".to_owned();
        assert_eq!(
            standing("twice", "a.json"),
            Some(CdiPrecedence::Conflict { with })
        );
        assert!(matches!(
            standing("low", "c.json"),
            Some(CdiPrecedence::Conflict { .. })
        ));
    }

    #[test]
    fn nobody_makes_the_reader_wait_or_eat_memory() {
        let (folder, roots) = machine(&[
            ("etc/cdi/bomb.yaml", "a: &a [x, x]\nb: &b [*a, *a]\n"),
            (
                "etc/cdi/large.yaml",
                &" ".repeat(MAX_FILE_BYTES as usize + 1),
            ),
            ("etc/cdi/bytes.json", ""),
        ]);
        let pipe = folder.path().join("etc/cdi/pipe.json");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            Mode::RWXU,
            0,
        )
        .unwrap();
        fs::write(folder.path().join("etc/cdi/bytes.json"), b"\xff{}").unwrap();
        std::os::unix::fs::symlink("none", folder.path().join("etc/cdi/void.json")).unwrap();
        let found = read_files(&roots, None);
        let errors: Vec<_> = found
            .iter()
            .map(|file| file.read_error().unwrap())
            .collect();
        let expected = [
            "an alias",
            "UTF-8",
            "larger than 4 MiB",
            "no file",
            "No such file",
        ];
        for (error, part) in errors.iter().zip(expected) {
            assert!(error.contains(part), "{errors:?}");
        }
        assert_eq!(errors.len(), expected.len());
        assert_eq!(list_devices(&found), []);
    }
}
