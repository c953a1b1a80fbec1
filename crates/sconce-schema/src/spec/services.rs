//! `[services.NAME]`: what runs beside the command, or instead of one.
//!
//! Three names are known and bring their packages along: `jupyter`, `ssh` and `tensorboard`. Any
//! other is a program of the environment, with its command.

mod health;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use serde::de::{self, MapAccess};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::health::HealthCheckSpec;
use super::parse::{is_variable, validate_value};
use super::values::at_least_one;
use super::{PortSpec, Spec, SpecError};
use crate::request::{ContainerUser, PublishedPort};
use crate::service::{RestartPolicy, RunService, StopSignal, is_service_name};

/// The table of all services.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServicesSpec {
    /// `[services.jupyter]`.
    pub jupyter: Option<Jupyter>,
    /// `[services.ssh]`.
    pub ssh: Option<Ssh>,
    /// `[services.tensorboard]`.
    pub tensorboard: Option<TensorBoard>,
    /// Every other, by its name.
    pub programs: BTreeMap<String, CustomServiceSpec>,
}

/// A service that Sconce knows by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuiltinService {
    /// JupyterLab.
    Jupyter,
    /// An SSH server.
    Ssh,
    /// TensorBoard.
    Tensorboard,
}

impl BuiltinService {
    /// Its name in a spec, in the lock's inputs and in `sconce ps`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Jupyter => "jupyter",
            Self::Ssh => "ssh",
            Self::Tensorboard => "tensorboard",
        }
    }
}

/// `[services.jupyter]`: JupyterLab, behind a token that is new in every run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Jupyter {
    /// Where it listens; 8888 of the loopback address where it is absent.
    #[serde(with = "port", skip_serializing_if = "Option::is_none")]
    pub port: Option<PortSpec>,
    /// The folder that it shows, inside; the working directory where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// A password that is taken beside the token, as `jupyter server password` hashes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_hash: Option<String>,
    /// Kernels that did nothing for so long are ended; never where it is absent.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "at_least_one"
    )]
    pub cull_idle_minutes: Option<u64>,
}

/// `[services.ssh]`: an SSH server for the run's user, with keys and nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Ssh {
    /// Where it listens; 2222 of the loopback address where it is absent.
    #[serde(with = "port", skip_serializing_if = "Option::is_none")]
    pub port: Option<PortSpec>,
    /// Files with the public keys that may log in, relative to the spec or from `~/` on; the
    /// caller's own in `~/.ssh` where it is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

/// `[services.tensorboard]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct TensorBoard {
    /// Where it listens; 6006 of the loopback address where it is absent.
    #[serde(with = "port", skip_serializing_if = "Option::is_none")]
    pub port: Option<PortSpec>,
    /// The folder of event files, inside; `runs` in the working directory where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logdir: Option<String>,
}

/// Any other `[services.NAME]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct CustomServiceSpec {
    /// Program and arguments; never empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Where it listens.
    #[serde(with = "port::list", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortSpec>,
    /// Working directory inside, absolute; the run's where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Who it is inside; the run's user where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<ContainerUser>,
    /// When it is started again; `on-failure` where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartPolicy>,
    /// Seconds from the signal that asks it to end until it is killed; 10 where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_s: Option<u32>,
    /// The signal that asks it to end; `TERM` where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<StopSignal>,
    /// Services that have to be healthy before it is started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// How it is found out whether it does its work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthCheckSpec>,
    /// Variables beside the run's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// The port of a service: a number, or text as in `[run] ports`.
mod port {
    use super::{Deserialize, Deserializer, IpAddr, Ipv4Addr, PortSpec, Serializer, de, fmt};

    const EXPECTED: &str = "a port such as 8888, \"8899:8888\" or \"0.0.0.0:8888:8888\"";

    struct PortText(PortSpec);

    impl<'de> Deserialize<'de> for PortText {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            struct V;
            impl de::Visitor<'_> for V {
                type Value = PortText;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(EXPECTED)
                }
                fn visit_i64<E: de::Error>(self, v: i64) -> Result<PortText, E> {
                    let wrong = || E::invalid_value(de::Unexpected::Signed(v), &self);
                    let port = u16::try_from(v).ok().filter(|port| *port > 0);
                    port.map(super::on_loopback).map(PortText).ok_or_else(wrong)
                }
                fn visit_str<E: de::Error>(self, v: &str) -> Result<PortText, E> {
                    v.parse().map(PortText).map_err(E::custom)
                }
            }
            d.deserialize_any(V)
        }
    }

    impl serde::Serialize for PortText {
        fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            let port = &self.0;
            let loopback = port.host_ip == IpAddr::V4(Ipv4Addr::LOCALHOST);
            match (loopback, port.host == port.container) {
                (true, true) => s.serialize_u16(port.host),
                (true, false) => s.collect_str(&format_args!("{}:{}", port.host, port.container)),
                (false, _) => s.collect_str(port),
            }
        }
    }

    pub(super) fn serialize<S: Serializer>(
        port: &Option<PortSpec>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&port.map(PortText), s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<PortSpec>, D::Error> {
        PortText::deserialize(d).map(|port| Some(port.0))
    }

    pub(super) mod list {
        use super::{Deserialize, Deserializer, PortSpec, PortText, Serializer};

        pub(in super::super) fn serialize<S: Serializer>(
            ports: &[PortSpec],
            s: S,
        ) -> Result<S::Ok, S::Error> {
            s.collect_seq(ports.iter().map(|port| PortText(*port)))
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            d: D,
        ) -> Result<Vec<PortSpec>, D::Error> {
            let ports = Vec::<PortText>::deserialize(d)?;
            Ok(ports.into_iter().map(|port| port.0).collect())
        }
    }
}

/// A port of the loopback address, the same inside.
#[must_use]
pub fn on_loopback(port: u16) -> PortSpec {
    PortSpec {
        host_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
        host: port,
        container: port,
    }
}

impl<'de> Deserialize<'de> for ServicesSpec {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> de::Visitor<'de> for V {
            type Value = ServicesSpec;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tables `[services.NAME]`")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ServicesSpec, A::Error> {
                let mut all = ServicesSpec::default();
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "jupyter" => all.jupyter = Some(map.next_value()?),
                        "ssh" => all.ssh = Some(map.next_value()?),
                        "tensorboard" => all.tensorboard = Some(map.next_value()?),
                        _ => {
                            let program = map.next_value()?;
                            all.programs.insert(name, program);
                        }
                    }
                }
                Ok(all)
            }
        }
        d.deserialize_map(V)
    }
}

impl Serialize for ServicesSpec {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        if let Some(jupyter) = &self.jupyter {
            map.serialize_entry("jupyter", jupyter)?;
        }
        if let Some(ssh) = &self.ssh {
            map.serialize_entry("ssh", ssh)?;
        }
        if let Some(tensorboard) = &self.tensorboard {
            map.serialize_entry("tensorboard", tensorboard)?;
        }
        for (name, program) in &self.programs {
            map.serialize_entry(name, program)?;
        }
        map.end()
    }
}

impl ServicesSpec {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.builtin_services().is_empty() && self.programs.is_empty()
    }

    /// Those that bring packages into the environment, in a fixed order.
    #[must_use]
    pub fn builtin_services(&self) -> Vec<BuiltinService> {
        let all = [
            (self.jupyter.is_some(), BuiltinService::Jupyter),
            (self.ssh.is_some(), BuiltinService::Ssh),
            (self.tensorboard.is_some(), BuiltinService::Tensorboard),
        ];
        all.into_iter()
            .filter(|one| one.0)
            .map(|one| one.1)
            .collect()
    }

    /// Every service's name: the known ones, then the others in the order of their names.
    pub fn service_names(&self) -> impl Iterator<Item = &str> {
        let known = self
            .builtin_services()
            .into_iter()
            .map(|known| -> &str { known.name() });
        known.chain(self.programs.keys().map(String::as_str))
    }

    /// Where each listens on the machine.
    fn ports(&self) -> impl Iterator<Item = PortSpec> {
        let jupyter = self.jupyter.as_ref().map(Jupyter::port_or_default);
        let ssh = self.ssh.as_ref().map(Ssh::port_or_default);
        let tensorboard = self.tensorboard.as_ref().map(TensorBoard::port_or_default);
        let programs = self.programs.values().flat_map(|program| &program.ports);
        let known = jupyter.into_iter().chain(ssh).chain(tensorboard);
        known.chain(programs.copied())
    }
}

impl Jupyter {
    /// Where it listens.
    #[must_use]
    pub fn port_or_default(&self) -> PortSpec {
        self.port.unwrap_or(on_loopback(8888))
    }
}

impl Ssh {
    /// Where it listens.
    #[must_use]
    pub fn port_or_default(&self) -> PortSpec {
        self.port.unwrap_or(on_loopback(2222))
    }
}

impl TensorBoard {
    /// Where it listens.
    #[must_use]
    pub fn port_or_default(&self) -> PortSpec {
        self.port.unwrap_or(on_loopback(6006))
    }

    /// The folder of event files.
    #[must_use]
    pub fn logdir_or_default(&self) -> &str {
        self.logdir.as_deref().unwrap_or("runs")
    }
}

impl CustomServiceSpec {
    /// What it is as a service of a run, every default decided.
    #[must_use]
    pub fn to_run_service(&self, name: &str) -> RunService {
        let usual = RunService::new(name, self.command.clone());
        let first = self.ports.first().map(|port| port.container);
        RunService {
            env: self.env.clone(),
            workdir: self.workdir.as_ref().map(Into::into),
            user: self.user,
            restart: self.restart.unwrap_or(usual.restart),
            grace_s: self.grace_s.unwrap_or(usual.grace_s),
            stop_signal: self.stop_signal.unwrap_or(usual.stop_signal),
            ports: self.ports.iter().map(|port| (*port).into()).collect(),
            health: (self.health.as_ref()).and_then(|check| check.to_health_check(first)),
            after: self.after.clone(),
            ..usual
        }
    }
}

impl From<PortSpec> for PublishedPort {
    fn from(port: PortSpec) -> Self {
        Self {
            host_ip: port.host_ip,
            host: port.host,
            container: port.container,
        }
    }
}

impl Spec {
    /// The rules of services that a type cannot say.
    pub(super) fn check_services(&self) -> Result<(), SpecError> {
        let services = &self.services;
        validate_value(
            "services",
            services
                .programs
                .keys()
                .map(String::as_str)
                .find(|n| !is_service_name(n)),
            is_service_name,
            "lower-case letters, digits, `-` and `_`, 32 at most, and not `run`",
        )?;
        let without = services
            .programs
            .iter()
            .find(|one| one.1.command.is_empty());
        validate_value(
            "services",
            without.map(|one| one.0.as_str()),
            |_| false,
            "give it a `command`; `jupyter`, `ssh` and `tensorboard` need none",
        )?;
        self.check_known()?;
        let mut ports: Vec<u16> = Vec::new();
        for port in services.ports().map(|port| port.host) {
            validate_value(
                "services.port",
                Some(&port.to_string())
                    .filter(|_| ports.contains(&port))
                    .map(String::as_str),
                |_| false,
                "each service has a port of its own on the machine",
            )?;
            ports.push(port);
        }
        for program in services.programs.values() {
            program.fits()?;
        }
        self.check_order()
    }

    fn check_known(&self) -> Result<(), SpecError> {
        let services = &self.services;
        let jupyter = services.jupyter.as_ref();
        validate_value(
            "services.jupyter.folder",
            jupyter.and_then(|jupyter| jupyter.folder.as_deref()),
            is_folder,
            FOLDER,
        )?;
        validate_value(
            "services.jupyter.password-hash",
            // What it is, and not what it says: it may be a password.
            jupyter
                .and_then(|jupyter| jupyter.password_hash.as_deref())
                .filter(|hash| !is_hash(hash))
                .map(|_| "…"),
            |_| false,
            "what `jupyter server password` writes, from `argon2:$argon2id$` on",
        )?;
        let keys = services.ssh.iter().flat_map(|ssh| &ssh.keys);
        validate_value(
            "services.ssh.keys",
            keys.map(String::as_str).find(|file| !is_text(file)),
            is_text,
            "each is a file of public keys, such as \"~/.ssh/id_ed25519.pub\"",
        )?;
        validate_value(
            "services.tensorboard.logdir",
            services
                .tensorboard
                .as_ref()
                .and_then(|board| board.logdir.as_deref()),
            is_folder,
            FOLDER,
        )
    }

    /// Services wait for services that are there, and none for itself.
    fn check_order(&self) -> Result<(), SpecError> {
        let services = &self.services;
        let unknown = |name: &&String| !services.service_names().any(|known| known == *name);
        let after = services
            .programs
            .values()
            .flat_map(|program| &program.after);
        validate_value(
            "services.after",
            after.into_iter().find(unknown).map(String::as_str),
            |_| false,
            "it names services of this file",
        )?;
        // Each round takes those that wait for nobody who still waits.
        let mut waiting: Vec<(&String, &CustomServiceSpec)> = services.programs.iter().collect();
        loop {
            let names: Vec<&String> = waiting.iter().map(|(name, _)| *name).collect();
            waiting.retain(|(_, program)| program.after.iter().any(|name| names.contains(&name)));
            if waiting.len() == names.len() {
                break;
            }
        }
        validate_value(
            "services.after",
            waiting.first().map(|(name, _)| name.as_str()),
            |_| false,
            "no service waits for itself, nor for one that waits for it",
        )
    }
}

const FOLDER: &str = "a folder inside, absolute or relative to the working directory, without `..`";

impl CustomServiceSpec {
    fn fits(&self) -> Result<(), SpecError> {
        let words = self
            .command
            .iter()
            .chain(self.health.iter().flat_map(|h| &h.command));
        validate_value(
            "services.command",
            words.map(String::as_str).find(|word| word.contains('\0')),
            |_| false,
            "no word of a command has a zero byte",
        )?;
        validate_value(
            "services.command",
            self.command.first().map(String::as_str),
            |program| !program.is_empty(),
            "its first word is a program",
        )?;
        validate_value(
            "services.workdir",
            self.workdir.as_deref(),
            |dir| dir.starts_with('/') && is_folder(dir),
            "an absolute path inside the container",
        )?;
        validate_value(
            "services.env",
            self.env
                .keys()
                .map(String::as_str)
                .find(|name| !is_variable(name)),
            is_variable,
            "a variable's name has no `=` and is not empty",
        )?;
        let first = self.ports.first().map(|port| port.container);
        match &self.health {
            Some(health) => health.validate_for_service(self.restart, first),
            None => Ok(()),
        }
    }
}

fn is_text(text: &str) -> bool {
    !text.is_empty() && text.len() <= 4096 && !text.chars().any(char::is_control)
}

/// A program takes it as an argument, so it does not begin like a flag.
fn is_folder(text: &str) -> bool {
    is_text(text) && !text.starts_with('-') && !text.split('/').any(|part| part == "..")
}

/// The form of `jupyter_server.auth.passwd`. Its older form, a salted SHA-1, is not taken.
fn is_hash(text: &str) -> bool {
    text.len() <= 1024
        && text.starts_with("argon2:$argon2")
        && text.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests;
