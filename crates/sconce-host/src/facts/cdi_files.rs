//! CDI files: which driver they were made for, and what of them is gone (the specification of the
//! Container Device Interface, version 1.1.0).

use std::path::Path;

use sconce_schema::DriverVersion;
use sconce_schema::facts::CdiFile;
use serde_json::Value;

use super::libraries::version_in_name;
use super::toolkit::exists;
use super::yaml;
use crate::read;
use crate::roots::Roots;

/// Where engines look, /var/run being a link to /run.
const FOLDERS: [&str; 3] = ["/etc/cdi", "/var/run/cdi", "/run/cdi"];
/// More files than an engine is given.
const MOST_FILES: usize = 64;
/// A file for eight split cards has 100 KB.
const MOST_BYTES: u64 = 4 << 20;
/// More files than a driver has.
const MOST_PATHS: usize = 10_000;
/// So many missing files say enough.
const MOST_MISSING: usize = 32;

/// Every CDI file, by name; one that lies behind two folders' names once.
pub(super) fn read(roots: &Roots) -> Vec<CdiFile> {
    let mut known = Vec::new();
    let mut files = Vec::new();
    for folder in FOLDERS {
        let located = roots.locate(Path::new(folder));
        let Ok(entries) = located.read_dir() else {
            continue;
        };
        let names = entries
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok());
        let mut names: Vec<String> = names
            .filter(|name| name.ends_with(".yaml") || name.ends_with(".json"))
            .collect();
        names.sort();
        for name in names {
            let path = located.join(&name);
            let end = path.canonicalize().ok();
            if files.len() < MOST_FILES && (end.is_none() || !known.contains(&end)) {
                files.push(describe(roots, format!("{folder}/{name}"), &path));
                known.push(end);
            }
        }
    }
    files
}

fn describe(roots: &Roots, path: String, file: &Path) -> CdiFile {
    let text = read::text_up_to(file, MOST_BYTES);
    let read = match text {
        None => Err("it cannot be read".to_owned()),
        Some(text) if path.ends_with(".json") => {
            serde_json::from_str(&text).map_err(|error| error.to_string())
        }
        Some(text) => yaml::parse(&text).map_err(|error| error.to_string()),
    };
    let named = match read {
        Ok(value) => Named::of(&value),
        Err(error) => {
            return CdiFile {
                path,
                error: Some(error),
                ..CdiFile::default()
            };
        }
    };
    let gone = |path: &&String| path.starts_with('/') && !exists(roots, path);
    CdiFile {
        path,
        missing: named
            .paths
            .iter()
            .filter(gone)
            .take(MOST_MISSING)
            .cloned()
            .collect(),
        driver: named.driver(),
        kind: named.kind,
        error: None,
    }
}

/// What a file names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Named {
    kind: Option<String>,
    /// Files and nodes of the host, each once.
    paths: Vec<String>,
}

impl Named {
    /// The edits of the whole file and of every device.
    fn of(file: &Value) -> Self {
        let mut named = Self {
            kind: text(file, "kind"),
            paths: Vec::new(),
        };
        let devices = list(file, "devices");
        for edits in [file]
            .into_iter()
            .chain(devices)
            .filter_map(|of| of.get("containerEdits"))
        {
            for node in list(edits, "deviceNodes") {
                named.add(text(node, "hostPath").or_else(|| text(node, "path")));
            }
            for mount in list(edits, "mounts") {
                named.add(text(mount, "hostPath"));
            }
            for hook in list(edits, "hooks") {
                named.add(text(hook, "path"));
            }
        }
        named.paths.sort();
        named.paths.dedup();
        named.paths.truncate(MOST_PATHS);
        named
    }

    fn add(&mut self, path: Option<String>) {
        self.paths.extend(path);
    }

    /// The version in the names of the driver's libraries, `libcuda` first.
    fn driver(&self) -> Option<DriverVersion> {
        let names = || self.paths.iter().filter_map(|path| path.rsplit('/').next());
        let cuda = names().filter(|name| name.starts_with("libcuda.so."));
        let others = names().filter(|name| name.starts_with("libnvidia-"));
        cuda.chain(others).find_map(version_in_name)
    }
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key)?.as_str().map(str::to_owned)
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The form that nvidia-ctk 1.12 wrote (NVIDIA/nvidia-container-toolkit issue 38), shortened.
    const YAML: &str = "\
---
cdiVersion: 0.4.0
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
    fn what_files_name() {
        let named = Named::of(&yaml::parse(YAML).unwrap());
        assert_eq!(named.kind.as_deref(), Some("nvidia.com/gpu"));
        assert_eq!(named.driver(), "520.61.05".parse().ok());
        let expected = [
            "/bin/nvidia-ctk",
            "/dev/dri/renderD129",
            "/dev/nvidia-uvm",
            "/dev/nvidiactl",
            "/usr/lib64/libcuda.so.520.61.05",
            "/usr/lib64/libnvidia-tls.so.520.61.05",
        ];
        assert_eq!(named.paths, expected);
        let named = Named::of(&serde_json::from_str(JSON).unwrap());
        assert_eq!(named.driver(), "535.129.03".parse().ok());
        assert_eq!(named.paths.len(), 2);
        assert_eq!(Named::of(&Value::Null), Named::default());
        let odd =
            serde_json::json!({ "kind": 3, "devices": {}, "containerEdits": { "mounts": [1] } });
        assert_eq!(Named::of(&odd), Named::default());
    }

    #[test]
    fn what_of_them_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::recorded(folder.path());
        assert_eq!(read(&roots), []);
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for there in [
            "bin/nvidia-ctk",
            "dev/nvidia-uvm",
            "dev/nvidiactl",
            "usr/lib64/libnvidia-tls.so.520.61.05",
        ] {
            write(there, "");
        }
        write("etc/cdi/nvidia.yaml", YAML);
        write("etc/cdi/notes.txt", "no CDI file");
        write("run/cdi/broken.json", "{");
        fs::create_dir_all(folder.path().join("var")).unwrap();
        std::os::unix::fs::symlink("../run", folder.path().join("var/run")).unwrap();
        let files = read(&roots);
        assert_eq!(files.len(), 2, "{files:?}");
        assert_eq!(files[0].path, "/etc/cdi/nvidia.yaml");
        let gone = ["/dev/dri/renderD129", "/usr/lib64/libcuda.so.520.61.05"];
        assert_eq!(files[0].missing, gone);
        assert_eq!(files[1].path, "/var/run/cdi/broken.json");
        assert!(
            files[1].error.as_ref().unwrap().contains("line 1"),
            "{files:?}"
        );
    }
}
