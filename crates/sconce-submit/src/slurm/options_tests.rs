use std::path::Path;

use super::*;
use crate::scheduler::{JobScript, NodeWork};
use crate::slurm::owned_options::{SBATCH, SRUN, owned_of_sbatch, owned_of_srun};
use sconce_schema::job::JobLayout;
use sconce_schema::spec::LaunchMode;
use sconce_schema::spec::{SchedulerKind, TargetSpec};

fn check(
    key: &str,
    items: &[&str],
    partition: Option<&str>,
) -> Result<Vec<Vec<String>>, SubmitError> {
    let mut target = TargetSpec::new(SchedulerKind::Slurm);
    target.partition = partition.map(str::to_owned);
    let job = JobScript {
        array: None,
        name: "a",
        token: "t",
        work: NodeWork::Run,
        layout: JobLayout {
            nodes: 1,
            gpus_per_node: None,
            ranks_per_node: None,
            launch: LaunchMode::Torchrun,
        },
        cpus_per_task: None,
        memory_per_node: None,
        time_limit: None,
        after: &[],
        is_prepared: false,
        leaves_limits: false,
        program: Path::new("/p"),
        job_dir: Path::new("/j"),
        work_dir: Path::new("/w"),
        container: None,
        target: &target,
    };
    let items: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
    match key {
        "sbatch" => check_options(&SBATCH, &items, &owned_of_sbatch(&job)),
        _ => check_options(&SRUN, &items, &owned_of_srun()),
    }
}

#[test]
fn every_spelling_of_sconces_own_options_is_refused_by_both_names() {
    for (item, ours) in [
        ("--nodes=2", "--nodes"),
        ("--nodes 2", "--nodes"),
        ("-N2", "--nodes"),
        ("-N 2", "--nodes"),
        ("-HN2", "--nodes"),
        ("--node=2", "--nodes"),
        ("--mail-type=END -N2", "--nodes"),
        ("\"--nodes\"=2", "--nodes"),
        ("--ntasks=4", "--ntasks-per-node"),
        ("-n4", "--ntasks-per-node"),
        ("--ntasks-per-node=4", "--ntasks-per-node"),
        ("--ntasks-per-gpu 1", "--ntasks-per-node"),
        ("--gpus=8", "--gpus-per-node"),
        ("-G 8", "--gpus-per-node"),
        ("--gpus-per-task=1", "--gpus-per-node"),
        ("--gres=gpu:2", "--gpus-per-node"),
        ("--gres gpu", "--gpus-per-node"),
        ("--gre=lustre:1,gpu:a100:2", "--gpus-per-node"),
        ("--tres-per-node=gres/gpu:2", "--gpus-per-node"),
        ("--cpus-per-task=4", "--cpus-per-task"),
        ("-c4", "--cpus-per-task"),
        ("--export=ALL", "--export"),
        ("--array=1-3", "--array"),
        ("--ar=1-3", "--array"),
        ("-a 1-3", "--array"),
        ("--comment=mine", "--comment"),
        ("-o log", "--output"),
        ("-elog", "--output"),
        ("--job-name=x", "--job-name"),
        ("-J x", "--job-name"),
        ("-D /", "--chdir"),
        ("--open-mode=truncate", "--open-mode"),
        ("--partition=b", "--partition"),
        ("-pb", "--partition"),
    ] {
        let error = check("sbatch", &[item], Some("a")).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, SubmitError::ConflictingOption { .. }),
            "{item}: {error:?}"
        );
        assert!(text.contains(&format!("contradicts {ours},")), "{text}");
        assert!(text.contains(item), "{text}");
    }
    for item in [
        "-K0",
        "-r1",
        "--kill=0",
        "-lN2",
        "--export=NONE",
        "-c 2",
        "--output=x",
    ] {
        let error = check("srun", &[item], None).unwrap_err();
        assert!(
            matches!(error, SubmitError::ConflictingOption { .. }),
            "{item}"
        );
    }
}

#[test]
fn what_no_job_can_have_is_refused_by_name() {
    for (key, item) in [
        ("sbatch", "--wrap=true"),
        ("sbatch", "hetjob"),
        ("sbatch", "--hold : --mem=1G"),
        ("sbatch", "-W"),
        ("sbatch", "--wait"),
        ("sbatch", "--clusters=a"),
        ("sbatch", "-Ma"),
        ("sbatch", "--container=/b"),
        ("sbatch", "--container-image=ubuntu"),
        ("srun", "--container-mounts /a:/a"),
        ("srun", "--no-container-mount-home"),
        ("sbatch", "--test-only"),
        ("srun", "--mpi=pmix_v4"),
        ("srun", "--mpi pmi2"),
        ("srun", "--het-group=0"),
        ("srun", "--pty"),
        ("srun", "-E"),
    ] {
        let error = check(key, &[item], None).unwrap_err();
        assert!(
            matches!(error, SubmitError::UnsupportedOption { .. }),
            "{item}: {error:?}"
        );
        assert!(error.to_string().contains(item));
    }
}

#[test]
fn other_options_pass_word_by_word() {
    for (key, item, words) in [
        ("sbatch", "--mail-type=END", &["--mail-type=END"][..]),
        ("sbatch", "-p b", &["-p", "b"]),
        ("sbatch", "--gres=lustre:1", &["--gres=lustre:1"]),
        (
            "sbatch",
            "--gres-flags=enforce-binding",
            &["--gres-flags=enforce-binding"],
        ),
        ("sbatch", "--nodelist=n[1-2]", &["--nodelist=n[1-2]"]),
        ("sbatch", "--exclusive -H", &["--exclusive", "-H"]),
        ("sbatch", "--mem=0", &["--mem=0"]),
        ("sbatch", "--wckey='a b' --nice", &["--wckey=a b", "--nice"]),
        ("sbatch", "--wait-all-nodes=1", &["--wait-all-nodes=1"]),
        ("sbatch", "--begin=now+1hour", &["--begin=now+1hour"]),
        ("srun", "--mpi=none", &["--mpi=none"]),
        ("srun", "-l --wait=5", &["-l", "--wait=5"]),
        ("srun", "--cpu-bind=none", &["--cpu-bind=none"]),
    ] {
        assert_eq!(check(key, &[item], None).unwrap(), [words], "{item}");
    }
}

#[test]
fn what_is_no_option_is_refused() {
    for item in [
        "",
        " ",
        "mail-type=END",
        "2",
        "--",
        "-",
        "--hold -- x",
        "--hold now later",
        "--a='b",
        "--a\\",
        "--a\nb",
        "\"",
    ] {
        let error = check("sbatch", &[item], None).unwrap_err();
        assert!(
            matches!(error, SubmitError::MalformedOption { .. }),
            "{item:?}: {error:?}"
        );
    }
}
