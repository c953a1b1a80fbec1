//! What a CDI file says, and whether engines take it: the specification of the Container Device
//! Interface, version 1.1.0 (`SPEC.md`), as strict as the library that engines read it with, which
//! refuses a file with a field or a name that it does not know.

use serde_json::{Map, Value};

/// Every released version of the specification, the oldest first.
const VERSIONS: [&str; 10] = [
    "0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0",
];
/// What a file needs that uses nothing newer.
const MIN_VERSION_INDEX: usize = 2;
const SINCE_0_4: usize = 3;
const SINCE_0_5: usize = 4;
const SINCE_0_6: usize = 5;
const SINCE_0_7: usize = 6;
const SINCE_1_1: usize = 9;
/// So much that is wrong says enough.
const MAX_TROUBLES: usize = 32;

const FILE: &[&str] = &[
    "cdiVersion",
    "kind",
    "annotations",
    "devices",
    "containerEdits",
];
const DEVICE: &[&str] = &["name", "annotations", "containerEdits"];
const EDITS: &[&str] = &[
    "env",
    "deviceNodes",
    "netDevices",
    "hooks",
    "mounts",
    "intelRdt",
    "additionalGids",
];
const NODE: &[&str] = &[
    "path",
    "hostPath",
    "type",
    "major",
    "minor",
    "fileMode",
    "permissions",
    "uid",
    "gid",
];
const MOUNT: &[&str] = &["hostPath", "containerPath", "options", "type"];
const HOOK: &[&str] = &["hookName", "path", "args", "env", "timeout"];
const HOOKS: [&str; 6] = [
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
];

/// What a file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CdiSpec {
    /// `nvidia.com/gpu`.
    pub(super) kind: Option<String>,
    pub(super) version: Option<String>,
    pub(super) devices: Vec<CdiSpecDevice>,
    /// The edits of whatever device of the file.
    pub(super) edits: CdiHostPaths,
    /// Why engines refuse the file; empty where they take it.
    pub(super) wrong: Vec<String>,
    /// The oldest version of the specification that has all that the file uses.
    pub(super) needs: &'static str,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CdiSpecDevice {
    pub(super) name: String,
    pub(super) edits: CdiHostPaths,
}

/// What edits name of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CdiHostPaths {
    pub(super) nodes: Vec<DeviceNodeEdit>,
    /// Sources of mounts.
    pub(super) mounts: Vec<String>,
    /// Programs of hooks.
    pub(super) hooks: Vec<String>,
}

/// A device node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeviceNodeEdit {
    /// On the host.
    pub(super) path: String,
    /// Major and minor number, where the file has them. Engines look the host's up where it has none.
    pub(super) number: Option<(u32, u32)>,
}

impl CdiSpec {
    /// Reads what can be understood, and says what cannot.
    pub(super) fn from_value(file: &Value) -> Self {
        let mut reader = Reader {
            wrong: Vec::new(),
            needs: MIN_VERSION_INDEX,
        };
        let mut spec = reader.file(file);
        spec.needs = VERSIONS[reader.needs];
        spec.wrong = reader.wrong;
        spec
    }

    /// Edits of the file and of each of its devices.
    pub(super) fn all_edits(&self) -> impl Iterator<Item = &CdiHostPaths> {
        let of_devices = self.devices.iter().map(|device| &device.edits);
        std::iter::once(&self.edits).chain(of_devices)
    }
}

struct Reader {
    wrong: Vec<String>,
    needs: usize,
}

impl Reader {
    fn file(&mut self, value: &Value) -> CdiSpec {
        let Some(file) = value.as_object() else {
            self.wrong("it is no map of fields".to_owned());
            return CdiSpec::default();
        };
        self.fields(file, FILE, "the file");
        if file.contains_key("annotations") {
            self.uses(SINCE_0_6);
        }
        let kind = text(file, "kind");
        self.kind(kind.as_deref());
        let devices: Vec<CdiSpecDevice> = list(file, "devices")
            .iter()
            .map(|device| self.device(device))
            .collect();
        if devices.is_empty() {
            self.wrong("it has no devices".to_owned());
        }
        let mut names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            self.wrong(format!("it has two devices `{}`", twice[0]));
        }
        let edits = file.get("containerEdits").map(|edits| self.edits(edits));
        // Last: it is held against what the file uses.
        let version = text(file, "cdiVersion");
        self.version(version.as_deref());
        CdiSpec {
            kind,
            version,
            devices,
            edits: edits.unwrap_or_default(),
            ..CdiSpec::default()
        }
    }

    fn version(&mut self, version: Option<&str>) {
        let Some(version) = version else {
            return self.wrong("it has no `cdiVersion`".to_owned());
        };
        let plain = version.strip_prefix('v').unwrap_or(version);
        match VERSIONS.iter().position(|known| *known == plain) {
            None => self.wrong(format!(
                "`cdiVersion` is `{version}`, which is no released version up to {}",
                VERSIONS[VERSIONS.len() - 1]
            )),
            Some(at) if at < self.needs => self.wrong(format!(
                "`cdiVersion` is {version}, and what it uses needs {}",
                VERSIONS[self.needs]
            )),
            Some(_) => {}
        }
    }

    fn kind(&mut self, kind: Option<&str>) {
        let Some(kind) = kind else {
            return self.wrong("it has no `kind`".to_owned());
        };
        if !is_kind(kind) {
            self.wrong(format!(
                "its kind `{kind}` has not the form vendor.com/class"
            ));
        } else if kind
            .rsplit('/')
            .next()
            .is_some_and(|class| class.contains('.'))
        {
            self.uses(SINCE_0_6);
        }
    }

    fn device(&mut self, value: &Value) -> CdiSpecDevice {
        let Some(device) = value.as_object() else {
            self.wrong("one of its devices is no map of fields".to_owned());
            return CdiSpecDevice::default();
        };
        let name = text(device, "name").unwrap_or_default();
        self.fields(device, DEVICE, "a device");
        if device.contains_key("annotations") {
            self.uses(SINCE_0_6);
        }
        if !is_device_name(&name) {
            self.wrong(format!("`{name}` is no name of a device"));
        } else if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            self.uses(SINCE_0_5);
        }
        let edits = device.get("containerEdits");
        if edits
            .and_then(Value::as_object)
            .is_none_or(serde_json::Map::is_empty)
        {
            self.wrong(format!("the device `{name}` changes nothing"));
        }
        CdiSpecDevice {
            name,
            edits: edits.map(|edits| self.edits(edits)).unwrap_or_default(),
        }
    }

    fn edits(&mut self, value: &Value) -> CdiHostPaths {
        let Some(edits) = value.as_object() else {
            self.wrong("`containerEdits` is no map of fields".to_owned());
            return CdiHostPaths::default();
        };
        self.fields(edits, EDITS, "containerEdits");
        for (field, since) in [
            ("additionalGids", SINCE_0_7),
            ("intelRdt", SINCE_0_7),
            ("netDevices", SINCE_1_1),
        ] {
            if edits.contains_key(field) {
                self.uses(since);
            }
        }
        for variable in list(edits, "env") {
            if !variable.as_str().is_some_and(|text| text.contains('=')) {
                self.wrong("a variable in `env` has not the form NAME=VALUE".to_owned());
            }
        }
        let mut found = CdiHostPaths::default();
        for node in self.maps(edits, "deviceNodes", NODE) {
            let (path, host) = (text(node, "path"), text(node, "hostPath"));
            if host.is_some() {
                self.uses(SINCE_0_5);
            }
            if path.is_none() {
                self.wrong("a device node has no `path`".to_owned());
            }
            found.nodes.extend(host.or(path).map(|path| {
                DeviceNodeEdit {
                    path,
                    number: number(node, "major")
                        .zip(number(node, "minor").or(Some(0)))
                        .filter(|&number| number != (0, 0)),
                }
            }));
        }
        for mount in self.maps(edits, "mounts", MOUNT) {
            if mount.contains_key("type") {
                self.uses(SINCE_0_4);
            }
            if text(mount, "containerPath").is_none() {
                self.wrong("a mount has no `containerPath`".to_owned());
            }
            match text(mount, "hostPath") {
                Some(path) => found.mounts.push(path),
                None => self.wrong("a mount has no `hostPath`".to_owned()),
            }
        }
        for hook in self.maps(edits, "hooks", HOOK) {
            if !text(hook, "hookName").is_some_and(|name| HOOKS.contains(&name.as_str())) {
                self.wrong("a hook has no `hookName` that there is".to_owned());
            }
            match text(hook, "path") {
                Some(path) => found.hooks.push(path),
                None => self.wrong("a hook has no `path`".to_owned()),
            }
        }
        found
    }

    /// The maps of a list, each with no fields but these.
    fn maps<'v>(
        &mut self,
        of: &'v Map<String, Value>,
        key: &str,
        known: &[&str],
    ) -> Vec<&'v Map<String, Value>> {
        let mut maps = Vec::new();
        for value in list(of, key) {
            match value.as_object() {
                Some(map) => {
                    self.fields(map, known, key);
                    maps.push(map);
                }
                None => self.wrong(format!("an entry of `{key}` is no map of fields")),
            }
        }
        maps
    }

    fn fields(&mut self, map: &Map<String, Value>, known: &[&str], place: &str) {
        for field in map.keys().filter(|field| !known.contains(&field.as_str())) {
            self.wrong(format!("{place} has the unknown field `{field}`"));
        }
    }

    fn uses(&mut self, since: usize) {
        self.needs = self.needs.max(since);
    }

    fn wrong(&mut self, what: String) {
        if self.wrong.len() < MAX_TROUBLES && !self.wrong.contains(&what) {
            self.wrong.push(what);
        }
    }
}

/// Whether a text has the form of a kind, `vendor.com/class`.
#[must_use]
pub fn is_kind(text: &str) -> bool {
    text.split_once('/')
        .is_some_and(|(vendor, class)| is_label(vendor) && is_label(class))
}

/// A vendor or a class: begins with a letter, ends with a letter or digit, and has `_`, `-` and `.`
/// between.
fn is_label(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && is_joined(text, "_-.")
}

/// A device's name: begins and ends with a letter or digit, and has `_`, `-`, `.` and `:` between.
fn is_device_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && is_joined(text, "_-.:")
}

fn is_joined(text: &str, between: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || between.contains(c);
    text.chars().all(fits) && text.ends_with(|c: char| c.is_ascii_alphanumeric())
}

fn text(map: &Map<String, Value>, key: &str) -> Option<String> {
    map.get(key)?.as_str().map(str::to_owned)
}

/// JSON has numbers; what is read of YAML has their texts.
fn number(map: &Map<String, Value>, key: &str) -> Option<u32> {
    match map.get(key)? {
        Value::Number(number) => number.as_u64()?.try_into().ok(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn list<'v>(map: &'v Map<String, Value>, key: &str) -> &'v [Value] {
    map.get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
