//! A step within a job that is running, beside those that it has.

use super::options::check_options;
use super::owned_options::{SRUN, owned_of_srun};
use super::script::absolute;
use crate::error::SubmitError;
use crate::scheduler::JobStep;

/// The arguments of srun. They say all that srun would else take from the variables of `salloc` or of the job around it
/// (srun(1), "INPUT ENVIRONMENT VARIABLES").
pub(super) fn step_args(step: &JobStep<'_>) -> Result<Vec<String>, SubmitError> {
    let options = check_options(&SRUN, step.options, &owned_of_srun())?;
    let tasks = u64::from(step.nodes) * u64::from(step.tasks_per_node);
    let mut args = vec![
        format!("--jobid={}", step.job),
        // The job's cards and CPUs are others' too: its script's, a shell's.
        "--overlap".to_owned(),
        "--export=ALL".to_owned(),
        format!("--nodes={}", step.nodes),
        format!("--ntasks={tasks}"),
        format!("--ntasks-per-node={}", step.tasks_per_node),
        format!(
            "--chdir={}",
            absolute("the working directory", step.work_dir)?
        ),
        "--kill-on-bad-exit=1".to_owned(),
    ];
    args.extend(
        step.cpus_per_task
            .map(|cpus| format!("--cpus-per-task={cpus}")),
    );
    args.extend(step.node.map(|node| format!("--nodelist={node}")));
    match (step.has_terminal, tasks) {
        (true, _) => args.push("--pty".to_owned()),
        (false, 1) => {}
        (false, _) => args.push("--label".to_owned()),
    }
    args.extend(options.into_iter().flatten());
    args.extend(step.command.iter().cloned());
    Ok(args)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::job_id::SchedulerJobId;

    #[test]
    fn a_step_says_all_itself() {
        let job = SchedulerJobId::parse("4711").unwrap();
        let command = ["/p/sconce", "node", "/j"].map(str::to_owned);
        let step = JobStep {
            job: &job,
            nodes: 2,
            tasks_per_node: 4,
            cpus_per_task: Some(8),
            node: None,
            has_terminal: false,
            work_dir: Path::new("/home/ada"),
            options: &["--cpu-bind=none".to_owned()],
            command: &command,
        };
        assert_eq!(
            step_args(&step).unwrap().join(" "),
            "--jobid=4711 --overlap --export=ALL --nodes=2 --ntasks=8 --ntasks-per-node=4 --chdir=/home/ada \
             --kill-on-bad-exit=1 --cpus-per-task=8 --label --cpu-bind=none /p/sconce node /j"
        );
        let one = JobStep {
            nodes: 1,
            tasks_per_node: 1,
            cpus_per_task: None,
            node: Some("n10"),
            has_terminal: true,
            options: &[],
            ..step
        };
        let one = step_args(&one).unwrap().join(" ");
        assert!(one.contains("--nodelist=n10 --pty /p/sconce"), "{one}");
        let own = ["--nodes=3".to_owned()];
        let contradicts = JobStep {
            options: &own,
            ..step
        };
        assert!(step_args(&contradicts).is_err());
        let relative = JobStep {
            work_dir: Path::new("a"),
            ..step
        };
        assert!(step_args(&relative).is_err());
    }
}
