//! From a [`Spec`] to the text of a `sconce.toml`, as a person would write it.

use std::fmt::Write as _;

use toml::{Table, Value};

use super::Spec;
use crate::units::Bytes;

/// The keys in the order of the documentation; a key that is not here comes after these.
const ORDER: [&str; 60] = [
    "version",
    "name",
    "release",
    "packages",
    "compiler",
    "requirements",
    "pyproject",
    "lock",
    "editable",
    "extras",
    "groups",
    "as-of",
    "build-sources",
    "no-build-isolation",
    "missing",
    "index",
    "extra-index",
    "mirror",
    "security-mirror",
    "command",
    "gpus",
    "cpus",
    "memory",
    "shm",
    "pids",
    "sample-hz",
    "cpuset",
    "memory-swap",
    "io-weight",
    "hugepages",
    "nofile",
    "memlock",
    "numa",
    "mounts",
    "network",
    "runtime",
    "ports",
    "user",
    "workdir",
    "env",
    "engine",
    "partition",
    "account",
    "qos",
    "constraint",
    "reservation",
    "nodes",
    "gpus-per-node",
    "gpu-type",
    "cpus-per-node",
    "time",
    "meet-within",
    "launch",
    "containment",
    "allow-uncontained",
    "storage",
    "local-store",
    "prepare-on",
    "host-plugins",
    "sbatch",
];

/// A list that would make its line longer than this has one element a line.
const WIDTH: usize = 88;

impl Spec {
    /// The text that [`Spec::parse`] reads as this spec. What is at its default is not written.
    ///
    /// # Panics
    /// Never: a spec is plain data.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut root = Table::try_from(self).expect("plain data");
        let default = Table::try_from(Self::default()).expect("plain data");
        let mut text = String::new();
        let mut tables = Vec::new();
        for name in ["python", "system", "run", "build"] {
            if let Some(Value::Table(mut table)) = root.remove(name) {
                let usual = default.get(name).and_then(Value::as_table);
                table.retain(|key, value| usual.and_then(|u| u.get(key)) != Some(value));
                tables.push((name, table));
            }
        }
        let mut named = |name: &str| match root.remove(name) {
            Some(Value::Table(tables)) => tables,
            _ => Table::new(),
        };
        let (services, targets) = (named("services"), named("target"));
        pairs(&mut text, root);
        for (name, mut table) in tables {
            let inner = match table.remove("env") {
                Some(Value::Table(inner)) => inner,
                _ => Table::new(),
            };
            if !table.is_empty() {
                let gap = if text.is_empty() { "" } else { "\n" };
                let _ = writeln!(text, "{gap}[{name}]");
                pairs(&mut text, table);
            }
            if !inner.is_empty() {
                let gap = if text.is_empty() { "" } else { "\n" };
                let _ = writeln!(text, "{gap}[{name}.env]");
                pairs(&mut text, inner);
            }
        }
        for (name, service) in services {
            if let Value::Table(service) = service {
                write_service(&mut text, &bare(&name), service);
            }
        }
        for (name, target) in targets {
            if let Value::Table(target) = target {
                let gap = if text.is_empty() { "" } else { "\n" };
                let _ = writeln!(text, "{gap}[target.{}]", bare(&name));
                pairs(&mut text, target);
            }
        }
        text
    }
}

/// A service's table, also where it is empty: that it is there says enough. Its own tables follow.
fn write_service(text: &mut String, name: &str, mut table: Table) {
    let inner: Vec<(&str, Table)> = ["health", "env"]
        .into_iter()
        .filter_map(|key| match table.remove(key) {
            Some(Value::Table(inner)) => Some((key, inner)),
            _ => None,
        })
        .collect();
    let gap = if text.is_empty() { "" } else { "\n" };
    let _ = writeln!(text, "{gap}[services.{name}]");
    pairs(text, table);
    for (key, inner) in inner {
        let _ = writeln!(text, "\n[services.{name}.{key}]");
        pairs(text, inner);
    }
}

fn pairs(text: &mut String, table: Table) {
    let mut pairs: Vec<(String, Value)> = table.into_iter().collect();
    let place = |key: &str| ORDER.iter().position(|known| *known == key);
    pairs.sort_by_key(|(key, _)| place(key).unwrap_or(ORDER.len()));
    for (key, value) in pairs {
        let value = size(&key, value);
        let line = format!("{} = {value}", bare(&key));
        match value {
            Value::Array(list) if line.len() > WIDTH => {
                let _ = writeln!(text, "{} = [", bare(&key));
                for element in list {
                    let _ = writeln!(text, "    {element},");
                }
                text.push_str("]\n");
            }
            _ => {
                text.push_str(&line);
                text.push('\n');
            }
        }
    }
}

/// A size with its unit, where that says it exactly.
fn size(key: &str, value: Value) -> Value {
    let Some(bytes) = value.as_integer().and_then(|n| u64::try_from(n).ok()) else {
        return value;
    };
    let text = Bytes(bytes).to_string();
    if matches!(
        key,
        "memory" | "shm" | "memory-swap" | "hugepages" | "memlock"
    ) && text.parse() == Ok(Bytes(bytes))
    {
        return Value::String(text.replace(' ', ""));
    }
    value
}

/// A key as it is, or quoted (TOML 1.0, "Keys").
fn bare(key: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if !key.is_empty() && key.bytes().all(plain) {
        return key.to_owned();
    }
    let mut quoted = "\"".to_owned();
    for c in key.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;
    use crate::spec::GpuRequest;
    use crate::units::{LockedMemory, Millicores};

    #[test]
    fn is_what_a_person_would_write() {
        let mut spec = Spec {
            name: Some("digits".into()),
            ..Spec::default()
        };
        spec.python.packages = vec!["torch==2.15.0".into(), "scikit-learn".into()];
        spec.run.command = vec!["python".into(), "train.py".into()];
        spec.run.gpus = Some(GpuRequest::All);
        spec.run.cpus = Some(Millicores(2000));
        spec.run.memory = Some(Bytes::from_gib(4));
        spec.run.env.insert("OMP_NUM_THREADS".into(), "2".into());
        assert_eq!(
            spec.to_text(),
            "name = \"digits\"\n\n[python]\npackages = [\"torch==2.15.0\", \"scikit-learn\"]\n\n\
             [run]\ncommand = [\"python\", \"train.py\"]\ngpus = \"all\"\ncpus = 2.0\n\
             memory = \"4GiB\"\n\n[run.env]\nOMP_NUM_THREADS = \"2\"\n"
        );
        assert_eq!(Spec::default().to_text(), "");
    }

    #[test]
    fn a_long_list_has_one_element_a_line() {
        let mut spec = Spec::default();
        spec.system.packages = (0..12).map(|n| format!("package-{n}")).collect();
        let text = spec.to_text();
        assert!(text.starts_with("[system]\npackages = [\n    \"package-0\",\n"));
        assert_eq!(Spec::parse(&text), Ok(spec));
    }

    proptest! {
        #[test]
        fn is_read_as_the_same_spec(
            packages in vec("(?s).{0,40}", 0..6),
            command in vec("(?s).{0,60}", 0..4),
            env in btree_map("(?s)[^=\\x00]{1,8}", "(?s).{0,20}", 0..4),
            bookworm in any::<bool>(),
            memory in any::<i64>(),
        ) {
            let mut spec = Spec::default();
            spec.run.memory = u64::try_from(memory).ok().map(Bytes);
            spec.run.shm = spec.run.memory.map(|m| Bytes((m.0 % 70) << 20));
            spec.run.memory_swap = spec.run.memory;
            spec.run.hugepages = spec.run.shm;
            spec.run.memlock = spec.run.shm.map(LockedMemory::Limited);
            spec.run.cpuset = "0-3,8".parse().ok();
            spec.run.io_weight = Some(200);
            spec.run.nofile = Some(65_536);
            spec.run.numa = Some(crate::spec::NumaPolicy::Off);
            spec.python.packages = packages;
            spec.run.command = command;
            spec.run.env = env;
            if bookworm {
                spec.system.release = "debian/bookworm".into();
            }
            let text = spec.to_text();
            prop_assert_eq!(Spec::parse(&text), Ok(spec), "{}", text);
        }
    }
}
