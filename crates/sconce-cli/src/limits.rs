//! Limits of a run that few need, and where it is placed.

use std::path::PathBuf;

use clap::Args;
use sconce_base::Env;
use sconce_host::{GpuDevice, HostProfile, Roots, numa};
use sconce_schema::request::{NetworkMode, NumaPlacement, RunLimits};
use sconce_schema::spec::{IO_WEIGHTS, NumaPolicy, RunSpec};
use sconce_schema::units::{Bytes, LockedMemory};
use sconce_schema::{Millicores, NumberSet};

use crate::number::whole_number_parser;

/// Each overrides the spec.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct LimitFlags {
    /// CPUs that it may run on, such as 0-3,8.
    #[arg(long, value_name = "CPUS", help_heading = "More limits")]
    pub(crate) cpuset: Option<NumberSet>,
    /// Limit of memory and swap together (with --memory) [default: no swap].
    #[arg(long, value_name = "SIZE", help_heading = "More limits")]
    pub(crate) memory_swap: Option<Bytes>,
    /// Share of a busy disk, 1 to 1000; others have 100.
    #[arg(
        long,
        value_name = "N",
        value_parser = whole_number_parser::<u32>(u64::from(*IO_WEIGHTS.start()), u64::from(*IO_WEIGHTS.end())),
        help_heading = "More limits"
    )]
    pub(crate) io_weight: Option<u32>,
    /// Limit of memory in huge pages, of each size.
    #[arg(long, value_name = "SIZE", help_heading = "More limits")]
    pub(crate) hugepages: Option<Bytes>,
    /// Open files of each process.
    #[arg(long, value_name = "N", value_parser = whole_number_parser::<u64>(1, u64::MAX), help_heading = "More limits")]
    pub(crate) nofile: Option<u64>,
    /// Memory that each process may lock: a size, or `unlimited` for RDMA.
    #[arg(long, value_name = "SIZE", help_heading = "More limits")]
    pub(crate) memlock: Option<LockedMemory>,
    /// `auto`: on the CPUs and memory next to its cards; `off`: where the kernel likes [default: auto].
    #[arg(long, value_name = "NUMA", help_heading = "More limits")]
    pub(crate) numa: Option<NumaPolicy>,
}

impl LimitFlags {
    /// `limits` with these, and `spec`'s where they say nothing.
    pub(crate) fn merge_with_spec(&self, spec: &RunSpec, limits: RunLimits) -> RunLimits {
        RunLimits {
            cpuset: self.cpuset.or(spec.cpuset),
            memory_swap: self.memory_swap.or(spec.memory_swap),
            io_weight: self.io_weight.or(spec.io_weight),
            hugepages: self.hugepages.or(spec.hugepages),
            nofile: self.nofile.or(spec.nofile),
            memlock: self.memlock.or(spec.memlock),
            ..limits
        }
    }

    /// Whether the run is to be placed next to its cards: not where its CPUs are named.
    pub(crate) fn is_placed_near_gpus(&self, spec: &RunSpec, limits: &RunLimits) -> bool {
        let numa = self.numa.or(spec.numa).unwrap_or(NumaPolicy::Auto);
        numa == NumaPolicy::Auto && limits.cpuset.is_none()
    }
}

/// The part of `host` that is next to `cards`, where that says anything.
pub(crate) fn place_near_gpus(
    cards: &[&GpuDevice],
    host: &HostProfile,
    cpus: Option<Millicores>,
) -> Option<NumaPlacement> {
    if cards.is_empty() {
        return None;
    }
    let roots = Roots::default();
    let on = numa::nodes_of(cards, &roots);
    numa::place_near_gpus(
        &numa::read_nodes(&roots),
        &on,
        host.allowed_cpus.as_ref(),
        cpus,
    )
}

/// Folders of programs that nobody but root can change. A PATH that root has from somebody else's
/// environment may name others, and what is found there would run as root.
const TRUSTED_PROGRAM_DIRS: [&str; 4] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];

/// The programs that give a network of its own a way out, for a run that needs one, the better
/// first.
pub(crate) fn ways_out(network: NetworkMode, env: &Env) -> Vec<PathBuf> {
    if network != NetworkMode::Own {
        return Vec::new();
    }
    sconce_run::WAYS_OUT
        .iter()
        .filter_map(|name| find_helper_program(name, env))
        .collect()
}

/// Where a program is that a run needs: root's in [`TRUSTED_PROGRAM_DIRS`] alone, others' on PATH.
pub(crate) fn find_helper_program(name: &str, env: &Env) -> Option<PathBuf> {
    let root = rustix::process::geteuid().is_root();
    let found = folders(root, env).into_iter();
    found
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

fn folders(root: bool, env: &Env) -> Vec<PathBuf> {
    let mut folders = match root {
        true => TRUSTED_PROGRAM_DIRS.map(PathBuf::from).to_vec(),
        false => env.search_path(),
    };
    folders.retain(|folder| folder.is_absolute());
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_helper_is_not_looked_for_on_path() {
        let path = Env::from_variables([("PATH", "/home/anna/bin:.:/usr/local/bin:")]);
        let own = ["/home/anna/bin", "/usr/local/bin"].map(PathBuf::from);
        assert_eq!(folders(false, &path), own);
        assert_eq!(
            folders(true, &path),
            TRUSTED_PROGRAM_DIRS.map(PathBuf::from)
        );
    }
}
