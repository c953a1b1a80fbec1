//! Which network NCCL takes, while a node's run goes on: what it is told to write, what is read of that, and what is said
//! where its ranks take TCP although a port of the node's fabric is up.

use std::path::Path;

use sconce_host::nccl::{self, NcclReader};
use sconce_schema::network::{HostPlugin, NcclNetwork, NodeNetwork};
use sconce_schema::request::{RunRequest, RunRoot};
use sconce_schema::{Hint, exit};

use super::JobNetwork;
use super::plugins::bring_plugins;
use crate::accounting::open_to_all;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::probe::seen_as;
use crate::run_temp_dir::RunTempDir;

/// Where a container sees the directory that NCCL writes to.
const INSIDE: &str = "/run/sconce/nccl";
/// What every variable begins with that says what NCCL writes, and where.
const DEBUG: &str = "NCCL_DEBUG";

/// Ranks took TCP, and the job wants none that do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SocketsChosen(pub(crate) String);

impl Hint for SocketsChosen {
    fn hint(&self) -> Option<String> {
        Some("without `--strict` of `sconce submit` it goes on all the same".to_owned())
    }

    fn exit_code(&self) -> u8 {
        exit::NODE
    }
}

/// What a reading has.
#[derive(Debug, Default)]
pub(crate) struct NetworkUpdate {
    /// What processes chose, as far as it is new.
    pub(crate) networks: Vec<NcclNetwork>,
    /// That ranks took TCP although a port is up: once.
    pub(crate) slow: Option<String>,
}

/// Reads what NCCL chose in a node's run.
#[derive(Debug)]
pub(crate) struct NetworkWatch {
    network: JobNetwork,
    host_plugins: Vec<HostPlugin>,
    /// Both absent where nothing is read.
    reader: Option<NcclReader>,
    _directory: Option<RunTempDir>,
    has_said: bool,
}

impl NetworkWatch {
    pub(crate) fn new(network: JobNetwork) -> Self {
        Self {
            network,
            host_plugins: Vec::new(),
            reader: None,
            _directory: None,
            has_said: false,
        }
    }

    /// Whether the job ends where its ranks take TCP.
    pub(crate) fn is_strict(&self) -> bool {
        self.network.strict
    }

    /// Brings the node's plugins into a container whose C library has the version `glibc`; returns what is to be said of
    /// that.
    pub(crate) fn add_plugins(
        &mut self,
        request: &mut RunRequest,
        glibc: Option<&str>,
    ) -> Vec<String> {
        let RunRoot::Image(image) = &request.root else {
            return Vec::new();
        };
        let image = image.clone();
        self.host_plugins = bring_plugins(&self.network.plugins, &image, glibc, request);
        let node = &self.network.node;
        let remarks = self.host_plugins.iter().map(|plugin| {
            let HostPlugin { name, directory, obstacle } = plugin;
            let but = obstacle.as_ref().map_or_else(String::new, |obstacle| {
                format!(", and will not be loaded: {obstacle}")
            });
            format!("node {node}: the node's own {name} ({directory}) comes into the container; it is not of the lock{but}")
        });
        remarks.collect()
    }

    /// Has NCCL write which network it takes, where nobody else says what it is to write; returns what is to be said.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub(crate) fn listen(
        &mut self,
        request: &mut RunRequest,
        scratch: &Path,
    ) -> Result<Option<String>> {
        if !self.network.joins_ranks {
            return Ok(None);
        }
        if let Some(name) = request.env.keys().find(|name| name.starts_with(DEBUG)) {
            let node = &self.network.node;
            let strict = match self.network.strict {
                true => ", where `--strict` does not look",
                false => "",
            };
            return Ok(Some(format!(
                "node {node}: {name} is set: which network NCCL takes stands in the job's log alone{strict}"
            )));
        }
        let above = RunTempDir::create(&scratch.join(format!("{}.nccl.private", request.id)))?;
        let directory = above.path().join("nccl");
        open_to_all(&directory).map_err(|source| AppError::File {
            action: FileAction::Write,
            path: directory.clone(),
            source,
        })?;
        self.reader = Some(NcclReader::new(directory.clone(), &request.env));
        self._directory = Some(above);
        let seen = seen_as(request, &directory, INSIDE, false);
        // NCCL takes `%` for more than a sign.
        let seen = seen.replace('%', "%%");
        let file = format!("{seen}/{}", nccl::FILE_NAME);
        let told = nccl::VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned()));
        request.env.extend(told);
        request.env.insert(nccl::FILE_VARIABLE.to_owned(), file);
        Ok(None)
    }

    /// What the record says of the node; absent where no other node is there.
    pub(crate) fn node_network(&self) -> Option<NodeNetwork> {
        let network = &self.network;
        (network.nodes > 1).then(|| NodeNetwork {
            nodes: network.nodes,
            active_ports: network.active_ports.clone(),
            host_plugins: self.host_plugins.clone(),
        })
    }

    /// Returns what is new.
    pub(crate) fn read(&mut self) -> NetworkUpdate {
        let networks = self
            .reader
            .as_mut()
            .map(NcclReader::read)
            .unwrap_or_default();
        let slow = match self.has_said {
            true => None,
            false => networks
                .iter()
                .find_map(|chosen| self.describe_sockets(chosen)),
        };
        self.has_said |= slow.is_some();
        NetworkUpdate { networks, slow }
    }

    /// Keeps what NCCL wrote in `record`, the record's directory: its warnings stand there, too.
    pub(crate) fn keep_logs(&self, record: &Path) -> std::io::Result<()> {
        self.reader
            .as_ref()
            .map_or(Ok(()), |reader| reader.copy_logs(record))
    }

    /// That a process took TCP while a port of the node is up, and what to do.
    fn describe_sockets(&self, chosen: &NcclNetwork) -> Option<String> {
        let network = &self.network;
        let port = network.active_ports.first()?;
        if network.nodes < 2 || !chosen.uses_sockets() {
            return None;
        }
        let who = match (chosen.rank, chosen.ranks) {
            (Some(rank), Some(ranks)) => format!("rank {rank} of {ranks}"),
            _ => format!("process {}", chosen.inner_pid),
        };
        let settings = chosen.refusing_settings();
        let not_loaded = self.host_plugins.iter().find_map(|plugin| {
            let obstacle = plugin.obstacle.as_ref()?;
            Some(format!(
                "{} of the node is not loaded: {obstacle}",
                plugin.name
            ))
        });
        let prefix = format!("node {}: ", network.node);
        let why = if !settings.is_empty() {
            format!("{} is set: take it away", settings.join(", "))
        } else if let Some(obstacle) = &network.obstacle {
            obstacle
                .strip_prefix(&prefix)
                .unwrap_or(obstacle)
                .to_owned()
        } else {
            not_loaded.unwrap_or_else(|| {
                "NCCL says why in `nccl-*.log` beside the record, in lines that begin with NET"
                    .to_owned()
            })
        };
        Some(format!(
            "{prefix}NCCL took TCP ({}) in {who}, and port {port} is up: {why}",
            chosen.label()
        ))
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
