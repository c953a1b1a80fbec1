//! What a job is wished to be: the spec's `[run]`, with what its caller says laid over it.

use std::collections::BTreeMap;
use std::path::Path;

use sconce_base::Env;
use sconce_schema::spec::{MountSpec, RunSpec};

use crate::failure::Result;
use crate::run_options::{RunOverrides, merge_variables};

/// A run's options, and the values that no file but one of its owner's alone may hold.
#[derive(Debug)]
pub(super) struct JobWishes {
    pub(super) run: RunSpec,
    /// Of variables that the caller passes on by name.
    pub(super) variables: BTreeMap<String, String>,
}

impl JobWishes {
    /// Lays `overrides` over `spec`. Relative mounts of the caller's are relative to `here`; `workdir` is where the
    /// command starts, and `command` replaces the spec's where it is not empty.
    ///
    /// # Errors
    /// A variable that is passed on is not set, or has no name.
    pub(super) fn new(
        spec: &RunSpec,
        overrides: &RunOverrides,
        here: &Path,
        workdir: &Path,
        command: &[String],
        env: &Env,
    ) -> Result<Self> {
        let limits = overrides.limits.or(spec.limits());
        let (by_name, by_value): (Vec<String>, Vec<String>) =
            (overrides.env.iter().cloned()).partition(|variable| !variable.contains('='));
        let lookup = |name: &str| env.var(name).map(str::to_owned);
        let variables = merge_variables(&BTreeMap::new(), &by_name, lookup)?;
        let mounts = overrides.mounts.iter().map(|mount| MountSpec {
            source: here.join(&mount.source).to_string_lossy().into_owned(),
            ..mount.clone()
        });
        let accounting = overrides.accounting;
        let run = RunSpec {
            command: match command.is_empty() {
                true => spec.command.clone(),
                false => command.to_vec(),
            },
            cpus: limits.cpus,
            memory: limits.memory,
            shm: limits.shm,
            pids: limits.pids,
            cpuset: limits.cpuset,
            memory_swap: limits.memory_swap,
            io_weight: limits.io_weight,
            hugepages: limits.hugepages,
            nofile: limits.nofile,
            memlock: limits.memlock,
            numa: overrides.numa.or(spec.numa),
            sample_hz: overrides.sample_hz.or(spec.sample_hz),
            mounts: spec.mounts.iter().cloned().chain(mounts).collect(),
            network: overrides.network.or(spec.network),
            runtime: overrides.runtime.or(spec.runtime),
            user: match overrides.root {
                true => Some(sconce_schema::request::ContainerUser::Root),
                false => spec.user,
            },
            workdir: Some(workdir.to_string_lossy().into_owned()),
            probe: match accounting.no_probe {
                true => Some(false),
                false => spec.probe,
            },
            flops: match accounting.flops {
                true => Some(true),
                false => spec.flops,
            },
            env: merge_variables(&spec.env, &by_value, lookup)?,
            ..spec.clone()
        };
        Ok(Self { run, variables })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_passed_by_name_stand_in_no_request() {
        let spec = RunSpec {
            command: vec!["python".into(), "train.py".into()],
            env: BTreeMap::from([("A".into(), "1".into())]),
            ..RunSpec::default()
        };
        let overrides = RunOverrides {
            env: vec!["TOKEN".into(), "B=2".into()],
            mounts: vec!["data:/data".parse().unwrap()],
            ..RunOverrides::default()
        };
        let env = Env::from_variables([("TOKEN", "s3cret")]);
        let (here, workdir) = (Path::new("/home/ada"), Path::new("/workspace/src"));
        let wishes = JobWishes::new(&spec, &overrides, here, workdir, &[], &env).unwrap();
        assert_eq!(wishes.variables["TOKEN"], "s3cret");
        assert_eq!(wishes.run.env.len(), 2);
        assert_eq!(wishes.run.mounts[0].source, "/home/ada/data");
        assert_eq!(wishes.run.command, spec.command);
        assert!(!format!("{:?}", wishes.run).contains("s3cret"));
        let unset = JobWishes::new(&spec, &overrides, here, workdir, &[], &Env::default());
        assert!(unset.is_err());
    }
}
