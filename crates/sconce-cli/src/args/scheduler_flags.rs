//! What Slurm is told of one job, in the place of what its target says.

use clap::Args;
use sconce_app::job::scheduler_overrides::SchedulerOverrides;

/// Each overrides the target; the long names are sbatch's.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct SchedulerFlags {
    /// The name that queues show [default: the environment's].
    #[arg(long, short = 'J', value_name = "NAME", value_parser = one_line, help_heading = "Scheduler")]
    pub(crate) job_name: Option<String>,
    /// Partition.
    #[arg(long, short = 'p', value_name = "PARTITION", value_parser = one_line, help_heading = "Scheduler")]
    pub(crate) partition: Option<String>,
    /// Account that is charged.
    #[arg(long, short = 'A', value_name = "ACCOUNT", value_parser = one_line, help_heading = "Scheduler")]
    pub(crate) account: Option<String>,
    /// Quality of service.
    #[arg(long, value_name = "QOS", value_parser = one_line, help_heading = "Scheduler")]
    pub(crate) qos: Option<String>,
    /// Features that nodes must have, such as "a100&ib".
    #[arg(long, short = 'C', value_name = "FEATURES", value_parser = one_line, help_heading = "Scheduler")]
    pub(crate) constraint: Option<String>,
    /// Reservation whose nodes are used.
    #[arg(long, value_name = "NAME", value_parser = one_line, help_heading = "Scheduler")]
    pub(crate) reservation: Option<String>,
    /// Nodes that are left out, such as n[3-5].
    #[arg(long, short = 'x', value_name = "NODES", value_parser = one_line, help_heading = "Scheduler")]
    pub(crate) exclude: Option<String>,
    /// Nodes that it must have.
    #[arg(
        long = "nodelist",
        alias = "node-list",
        value_name = "NODES",
        value_parser = one_line,
        help_heading = "Scheduler"
    )]
    pub(crate) node_list: Option<String>,
}

impl SchedulerFlags {
    /// Returns what they say, for the application.
    pub(crate) fn to_overrides(&self) -> SchedulerOverrides {
        let flags = self.clone();
        SchedulerOverrides {
            name: flags.job_name,
            partition: flags.partition,
            account: flags.account,
            qos: flags.qos,
            constraint: flags.constraint,
            reservation: flags.reservation,
            exclude: flags.exclude,
            node_list: flags.node_list,
        }
    }
}

/// A value of one line of the script.
fn one_line(text: &str) -> Result<String, String> {
    let is_wrong = |c: char| c.is_control() || matches!(c, '\'' | '"' | '\\');
    match text.trim().is_empty() || text.contains(is_wrong) {
        true => Err("not one line with something in it, without quotes".to_owned()),
        false => Ok(text.trim().to_owned()),
    }
}
