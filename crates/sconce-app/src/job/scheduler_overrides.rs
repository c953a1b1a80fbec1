//! What a scheduler is told of one job, in the place of what its target says.

use sconce_schema::spec::TargetSpec;

/// What a caller says of one job. Each value is one line without quotes.
#[derive(Debug, Clone, Default)]
pub struct SchedulerOverrides {
    /// The name that queues show; absent: the environment's.
    pub name: Option<String>,
    /// The partition.
    pub partition: Option<String>,
    /// The account that is charged.
    pub account: Option<String>,
    /// The quality of service.
    pub qos: Option<String>,
    /// Features that nodes must have.
    pub constraint: Option<String>,
    /// A reservation whose nodes are used.
    pub reservation: Option<String>,
    /// Nodes that are left out.
    pub exclude: Option<String>,
    /// Nodes that it must have.
    pub node_list: Option<String>,
}

impl SchedulerOverrides {
    /// The target as this job has it. Of options that stand twice the last counts (sbatch(1), "INPUT ENVIRONMENT
    /// VARIABLES").
    pub(super) fn lay_over(&self, target: TargetSpec) -> TargetSpec {
        let or = |own: &Option<String>, of_target: Option<String>| own.clone().or(of_target);
        let options = [("exclude", &self.exclude), ("nodelist", &self.node_list)];
        let options = options
            .into_iter()
            .filter_map(|(name, value)| Some(format!("--{name}='{}'", value.as_ref()?)));
        TargetSpec {
            partition: or(&self.partition, target.partition),
            account: or(&self.account, target.account),
            qos: or(&self.qos, target.qos),
            constraint: or(&self.constraint, target.constraint),
            reservation: or(&self.reservation, target.reservation),
            sbatch: target.sbatch.into_iter().chain(options).collect(),
            ..target
        }
    }
}

#[cfg(test)]
mod tests {
    use sconce_schema::spec::SchedulerKind;

    use super::*;

    #[test]
    fn what_is_said_of_a_job_counts_before_its_target() {
        let target = TargetSpec {
            partition: Some("gpu".into()),
            account: Some("vision".into()),
            sbatch: vec!["--mail-type=END".into()],
            ..TargetSpec::new(SchedulerKind::Slurm)
        };
        let none = SchedulerOverrides::default().lay_over(target.clone());
        assert_eq!(none, target);
        let overrides = SchedulerOverrides {
            partition: Some("long".into()),
            exclude: Some("n[1-2]".into()),
            ..SchedulerOverrides::default()
        };
        let laid = overrides.lay_over(target);
        assert_eq!(laid.partition.as_deref(), Some("long"));
        assert_eq!(laid.account.as_deref(), Some("vision"));
        assert_eq!(laid.sbatch, ["--mail-type=END", "--exclude='n[1-2]'"]);
    }
}
