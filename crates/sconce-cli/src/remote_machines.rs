//! The machines that something is judged for: this one, cards by name, saved facts.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use sconce_base::Env;
use sconce_compat::tables;
use sconce_host::facts::driver_query::{DriverQuery, QueryProcess};
use sconce_host::facts::{self, FactsOptions, NvmlSource};
use sconce_host::{NvmlLibrary, Roots};
use sconce_schema::{Bytes, HostFacts};
use serde::de::Error as _;

use crate::error::CliError;
use crate::output;
use sconce_app::failure::{AppError, Result};
use sconce_app::input;
use sconce_app::worker::{self, DriverLibrary, WorkerTask};

/// What NVIDIA's libraries may take. A card that sleeps answers within seconds, a broken one never.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(20);
/// A fleet's facts. One machine's are some ten KiB.
const MAX_FACTS_BYTES: u64 = 64 << 20;

/// Machines other than this one.
#[derive(Debug, Default, Args)]
pub(crate) struct RemoteMachineFlags {
    /// Judge for this card instead of this machine's: `RTX 3070`, `v100`, `8x H100`. Repeat it for
    /// a table of several, or put commas between them.
    #[arg(long, value_name = "CARD", value_delimiter = ',')]
    pub(crate) gpu: Vec<String>,
    /// With this driver; without it, one that suits.
    #[arg(long, value_name = "VERSION", requires = "gpu")]
    pub(crate) driver: Option<String>,
    /// Judge for the machines of these files, which `sconce doctor --facts` wrote.
    #[arg(long, value_name = "FILE")]
    pub(crate) facts: Vec<PathBuf>,
    /// Take a fact for another than it is: `driver.version=535.104.05`.
    #[arg(long, value_name = "FACT=VALUE")]
    pub(crate) set: Vec<String>,
}

impl RemoteMachineFlags {
    /// Whether other machines are named.
    pub(crate) fn names_others(&self) -> bool {
        !self.gpu.is_empty() || !self.facts.is_empty()
    }

    /// The named machines, or this one.
    pub(crate) fn load_host_facts(
        &self,
        store: Option<&Path>,
        env: &Env,
    ) -> Result<Vec<HostFacts>> {
        let mut hosts = Vec::new();
        for path in &self.facts {
            hosts.extend(saved(path)?);
        }
        let gpus = self.gpu.iter().map(String::as_str);
        hosts.extend(tables::hosts_from_gpu_names(gpus, self.driver.as_deref())?);
        if !self.names_others() {
            hosts.push(read_local_facts(store, env));
        }
        for host in &mut hosts {
            for set in &self.set {
                *host = facts::set_fact(host, set)?;
            }
        }
        Ok(hosts)
    }
}

/// This machine. NVIDIA's libraries are asked in a child, where they are.
pub(crate) fn read_local_facts(store: Option<&Path>, env: &Env) -> HostFacts {
    let child = |library: DriverLibrary| QueryProcess {
        program: "/proc/self/exe".into(),
        name: Some(worker::NAME.into()),
        arguments: Vec::new(),
        // A task of no paths can always be written.
        input: WorkerTask::QueryDriver(library)
            .to_line()
            .unwrap_or_default(),
        limit: DRIVER_TIMEOUT,
    };
    let ask = FactsOptions {
        // What is no text changes nothing here.
        variables: (env.iter_utf8())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        store: store.map(Path::to_owned),
        nvml: NvmlSource::Child(child(DriverLibrary::Nvml)),
        cuda_init: Some(child(DriverLibrary::Cuda)),
        open_nodes: true,
    };
    facts::read(&Roots::default(), &ask)
}

/// Facts from a file: of one machine, or a list of several.
fn saved(path: &Path) -> Result<Vec<HostFacts>> {
    let file = AppError::unreadable(path);
    let mut text = Vec::new();
    let source = input::open_stream(path, &output::tell_fifo_wait).map_err(&file)?;
    source
        .take(MAX_FACTS_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(&file)?;
    let wrong = |source| CliError::Facts {
        path: path.to_owned(),
        source,
    };
    if text.len() as u64 > MAX_FACTS_BYTES {
        let limit = Bytes(MAX_FACTS_BYTES);
        return Err(wrong(serde_json::Error::custom(format!(
            "it is larger than {limit}"
        )))
        .into());
    }
    let hosts: Vec<HostFacts> = match text.trim_ascii_start().starts_with(b"[") {
        true => serde_json::from_slice(&text).map_err(wrong)?,
        false => vec![serde_json::from_slice(&text).map_err(wrong)?],
    };
    // On no machine at all, everything would run.
    if hosts.is_empty() {
        return Err(wrong(serde_json::Error::custom("the list is empty")).into());
    }
    // Another program's.
    if hosts.iter().any(|host| host.version == 0) {
        return Err(wrong(serde_json::Error::custom("it says no version")).into());
    }
    for host in &hosts {
        host.check_format().map_err(|source| CliError::NewerFacts {
            path: path.to_owned(),
            source,
        })?;
    }
    Ok(hosts)
}

/// Prints an answer of NVIDIA's libraries, for [`read_local_facts`] in another process.
pub(crate) fn query_driver(library: DriverLibrary) -> Result<u8> {
    let question = match library {
        DriverLibrary::Cuda => DriverQuery::system_cuda(),
        DriverLibrary::Nvml => DriverQuery::Nvml(NvmlLibrary::Machine),
    };
    output::write_data(&sconce_host::facts::driver_query::run_query(&question))?;
    Ok(sconce_schema::exit::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_machines_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("facts.json");
        let machine = serde_json::to_string(&HostFacts {
            version: 1,
            ..HostFacts::default()
        });
        let machine = machine.unwrap();
        for (text, machines) in [
            ("[]", None),
            ("{}", None),
            ("[{}]", None),
            ("\"x\"", None),
            ("", None),
            (machine.as_str(), Some(1)),
            (&format!(" [{machine}, {machine}]"), Some(2)),
            (&machine.replace(":1", ":9"), None),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(saved(&path).ok().map(|all| all.len()), machines, "{text}");
        }
    }
}
