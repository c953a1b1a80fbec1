use std::process::Command;

use proptest::prelude::*;
use sconce_schema::job::{JobArray, JobLayout};
use sconce_schema::spec::{LaunchMode, SchedulerKind, TargetSpec};
use sconce_schema::units::Bytes;

use super::*;

fn job(target: &TargetSpec) -> JobScript<'_> {
    JobScript {
        name: "train",
        token: "0123456789abcdef",
        work: NodeWork::Run,
        layout: JobLayout {
            nodes: 2,
            gpus_per_node: Some(4),
            ranks_per_node: None,
            launch: LaunchMode::Torchrun,
        },
        array: None,
        cpus_per_task: Some(32),
        memory_per_node: Some(Bytes(100_000_000_001)),
        time_limit: Some(Duration::from_secs(26 * 3600 + 90)),
        after: &[],
        is_prepared: false,
        leaves_limits: false,
        program: Path::new("/home/a/bin/sconce"),
        job_dir: Path::new("/home/a/.local/state/sconce/jobs/0123456789abcdef"),
        work_dir: Path::new("/home/a/project"),
        container: None,
        target,
    }
}

fn target() -> TargetSpec {
    TargetSpec::new(SchedulerKind::Slurm)
}

#[test]
fn elements_of_an_array_have_logs_of_their_own() {
    let array = JobArray {
        indices: vec![0, 1, 2, 5, 7, 8],
        at_once: Some(2),
        arguments: Vec::new(),
    };
    let target = target();
    let script = render_script(&JobScript {
        array: Some(&array),
        ..job(&target)
    });
    let script = script.unwrap();
    let has = |line: &str| assert!(script.contains(line), "{line} {script}");
    has("\n#SBATCH --array=0-2,5,7-8%2\n");
    has("jobs/0123456789abcdef/array/%a/logs/scheduler.log\n");
    has("jobs/0123456789abcdef/array/%a/logs/task-%t.log");
    let one = JobArray {
        indices: vec![3],
        at_once: None,
        arguments: Vec::new(),
    };
    assert_eq!(format_array(&one), "3");
}

#[test]
fn a_preparation_has_logs_of_its_own_and_says_what_it_does() {
    let array = JobArray {
        indices: vec![0, 1],
        at_once: None,
        arguments: Vec::new(),
    };
    let target = target();
    let script = render_script(&JobScript {
        work: NodeWork::Preparation,
        leaves_limits: true,
        array: Some(&array),
        ..job(&target)
    });
    let script = script.unwrap();
    let has = |text: &str| assert!(script.contains(text), "{text} {script}");
    has("=/home/a/.local/state/sconce/jobs/0123456789abcdef/preparation/logs/scheduler.log\n");
    has("jobs/0123456789abcdef/preparation/logs/task-%t.log");
    has("\n#SBATCH --propagate=NONE\n");
    has(" node --prepare /home/a/.local/state/sconce/jobs/0123456789abcdef\n");
}

#[test]
fn who_waits_for_a_preparation_waits_for_nothing_that_its_target_names() {
    let mut target = target();
    target.sbatch = vec!["--dependency=afterok:1".to_owned()];
    let waits = |is_prepared| {
        render_script(&JobScript {
            is_prepared,
            ..job(&target)
        })
    };
    assert!(waits(false).is_ok() && waits(true).is_err());
}

#[test]
fn both_scripts_are_handed_over_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let sbatch = folder.path().join("sbatch");
    let body = "#!/bin/sh\nn=$(($(cat n 2>/dev/null || echo 0) + 1))\necho $n >n\necho \"$@\" >words-$n\ncat >script-$n\necho \"17;cluster\"\n";
    std::fs::write(&sbatch, body).unwrap();
    std::fs::set_permissions(&sbatch, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let scripts = ["#!/bin/sh\necho '$HOME' `x` \\\n", "#!/bin/sh\nEOF\n"];
    let after = [16, 15].map(|id| JobDependency::after_ok(id.into()));
    let both = render_both(scripts[0], scripts[1], &after).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let mut shell = Command::new("/bin/sh");
    let shell = shell.args(["-c", &both, "sh", "--wait"]);
    let shell = shell.current_dir(folder.path()).env("PATH", path);
    assert!(shell.output().unwrap().status.success());
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!([read("script-1"), read("script-2")], scripts);
    assert_eq!(read("words-1"), "--parsable\n");
    assert_eq!(
        read("words-2"),
        "--dependency=afterok:16:15:17 --kill-on-invalid-dep=yes --wait\n"
    );
    let ends = "#!/bin/sh\nEND_OF_JOB\nrm x\n";
    assert!(
        render_both(scripts[0], ends, &[]).is_err() && render_both(ends, scripts[1], &[]).is_err()
    );
}

#[test]
fn a_line_of_setup_that_fails_ends_the_script_and_is_said() {
    let run = |lines: &[&str]| {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let script = format!("{}echo begun\n", setup_lines(&lines));
        let done = Command::new("sh").args(["-c", &script]).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (done.status.code(), text(done.stdout), text(done.stderr))
    };
    let (code, out, err) = run(&["true", "sh -c 'exit 3'", "echo on"]);
    assert_eq!((code, &*out), (Some(3), ""));
    assert_eq!(err, format!("{SETUP_FAILED}3\n"));
    let (code, out, err) = run(&["no-such-module load x"]);
    assert_eq!((code, &*out), (Some(127), ""));
    assert!(err.ends_with(&format!("{SETUP_FAILED}127\n")), "{err}");
    for lines in [
        &["set +e", "false"][..],
        &["if false; then", "  false", "fi"],
        &["false || true"],
        &[],
    ] {
        let (code, out, err) = run(lines);
        assert_eq!((code, &*out, &*err), (Some(0), "begun\n", ""), "{lines:?}");
    }
}

/// Scripts that earlier versions rendered are kept by people; what one holds is read here as a whole.
#[test]
fn a_whole_script() {
    let mut target = target();
    target.partition = Some("gpu".to_owned());
    target.account = Some("lab".to_owned());
    target.qos = Some("long".to_owned());
    target.constraint = Some("a100&ib".to_owned());
    target.reservation = Some("course 7".to_owned());
    target.sbatch = vec!["--mail-type=END".to_owned(), "--wckey='a #b'".to_owned()];
    target.srun = vec!["--cpu-bind=none".to_owned()];
    target.setup = vec![
        "module load slurm".to_owned(),
        "ulimit -l unlimited".to_owned(),
    ];
    let script = render_script(&job(&target)).unwrap();
    assert_eq!(
        script,
        r#"#!/bin/sh
#SBATCH --job-name=train
#SBATCH --comment=sconce:0123456789abcdef
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=4
#SBATCH --mem=95368M
#SBATCH --time=1-02:01:30
#SBATCH --partition=gpu
#SBATCH --account=lab
#SBATCH --qos=long
#SBATCH --constraint=a100&ib
#SBATCH --reservation="course 7"
#SBATCH --export=NONE
#SBATCH --open-mode=append
#SBATCH --output=/home/a/.local/state/sconce/jobs/0123456789abcdef/logs/scheduler.log
#SBATCH --chdir=/home/a/project
#SBATCH --mail-type=END
#SBATCH "--wckey=a #b"

trap 'echo "sconce: a line of setup failed with exit code $?" >&2' EXIT
set -e
module load slurm
ulimit -l unlimited
set +e
trap - EXIT
exec srun --cpus-per-task=32 --export=ALL --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --output=/home/a/.local/state/sconce/jobs/0123456789abcdef/logs/task-%t.log --cpu-bind=none /home/a/bin/sconce node /home/a/.local/state/sconce/jobs/0123456789abcdef
"#
    );
}

#[test]
fn what_is_not_known_is_not_said() {
    let target = target();
    let script = render_script(&JobScript {
        layout: JobLayout {
            nodes: 3,
            gpus_per_node: Some(2),
            ranks_per_node: None,
            launch: LaunchMode::TaskPerGpu,
        },
        cpus_per_task: None,
        memory_per_node: None,
        time_limit: None,
        ..job(&target)
    })
    .unwrap();
    for absent in [
        "#SBATCH --cpus-per-task",
        "--mem",
        "--time",
        "--partition",
        "--qos",
    ] {
        assert!(!script.contains(absent), "{absent}\n{script}");
    }
    let share = "--cpus-per-task=$((SLURM_CPUS_ON_NODE > 2 ? SLURM_CPUS_ON_NODE / 2 : 1))";
    assert!(script.contains(share), "{script}");
    assert!(script.contains("--nodes=3 --ntasks=6 --ntasks-per-node=2 --kill"));
}

#[test]
fn jobs_that_come_before_are_waited_for() {
    let target = target();
    let after = ["17", "18"].map(|id| JobDependency::parse(id).unwrap());
    let script = render_script(&JobScript {
        after: &after,
        ..job(&target)
    });
    let script = script.unwrap();
    for line in [
        "#SBATCH --dependency=afterok:17:18",
        "#SBATCH --kill-on-invalid-dep=yes",
    ] {
        assert!(script.lines().any(|one| one == line), "{line}\n{script}");
    }
    let mut other = target.clone();
    other.sbatch = vec!["--dependency=singleton".to_owned()];
    let with = |after| {
        render_script(&JobScript {
            after,
            ..job(&other)
        })
    };
    assert!(with(&after).is_err() && with(&[]).is_ok());
}

#[test]
fn paths_are_quoted_for_whom_they_are() {
    let target = target();
    let script = render_script(&JobScript {
        name: "it's \"mine\" #1",
        job_dir: Path::new("/j 1%j#x'q\"z/"),
        work_dir: Path::new("/w\\1 %"),
        program: Path::new("/opt/my $tools/sconce"),
        ..job(&target)
    })
    .unwrap();
    for line in [
        r#"#SBATCH --job-name="it's \"mine\" #1""#,
        r#"#SBATCH --output="/j 1%%j#x'q\"z/logs/scheduler.log""#,
        r#"#SBATCH --chdir="/w\\1 %""#,
    ] {
        assert!(script.lines().any(|one| one == line), "{line}\n{script}");
    }
    let last = script.lines().last().unwrap();
    assert!(
        last.ends_with(r#"'/opt/my $tools/sconce' node '/j 1%j#x'\''q"z/'"#),
        "{last}"
    );
}

#[test]
fn values_that_cannot_stand_in_a_script_are_refused() {
    let plain = target();
    let base = job(&plain);
    let no_nodes = JobLayout {
        nodes: 0,
        ..base.layout
    };
    for (case, job) in [
        (
            "name",
            JobScript {
                name: "a\n#SBATCH --uid=0",
                ..base
            },
        ),
        ("empty name", JobScript { name: " ", ..base }),
        (
            "token",
            JobScript {
                token: "a b",
                ..base
            },
        ),
        ("empty token", JobScript { token: "", ..base }),
        (
            "nodes",
            JobScript {
                layout: no_nodes,
                ..base
            },
        ),
        (
            "cpus",
            JobScript {
                cpus_per_task: Some(0),
                ..base
            },
        ),
        (
            "memory",
            JobScript {
                memory_per_node: Some(Bytes(0)),
                ..base
            },
        ),
        (
            "time",
            JobScript {
                time_limit: Some(Duration::ZERO),
                ..base
            },
        ),
        (
            "relative program",
            JobScript {
                program: Path::new("sconce"),
                ..base
            },
        ),
        (
            "relative directory",
            JobScript {
                job_dir: Path::new("jobs"),
                ..base
            },
        ),
        (
            "backslash",
            JobScript {
                job_dir: Path::new("/a\\b"),
                ..base
            },
        ),
        (
            "line end",
            JobScript {
                work_dir: Path::new("/a\nb"),
                ..base
            },
        ),
    ] {
        let error = render_script(&job).unwrap_err();
        assert!(
            matches!(error, SubmitError::Value { .. }),
            "{case}: {error:?}"
        );
    }
    for line in ["#SBATCH --nodes=4", "#PBS -l x", "a\nb", ""] {
        let mut target = target();
        target.setup = vec![line.to_owned()];
        assert!(render_script(&job(&target)).is_err(), "{line:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_shell_reads_what_was_meant(word in "[ -~äé]{0,20}") {
        let script = format!("printf %s {}", quote_for_shell(&word));
        let output = Command::new("/bin/sh").args(["-c", &script]).output().unwrap();
        prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
    }
}

#[test]
fn times_are_as_sbatch_takes_them() {
    for (seconds, text) in [
        (1, "00:00:01"),
        (4 * 3600, "04:00:00"),
        (86_400, "1-00:00:00"),
    ] {
        assert_eq!(format_time(Duration::from_secs(seconds)), text);
    }
    assert_eq!(format_time(Duration::from_millis(59_001)), "00:01:00");
}

#[test]
fn a_container_of_slurms_stands_before_the_program() {
    fn step(container: StepContainer<'_>) -> Result<String, SubmitError> {
        let target = target();
        let job = JobScript {
            container: Some(container),
            ..job(&target)
        };
        let script = render_script(&job)?;
        Ok(script.lines().last().unwrap_or_default().to_owned())
    }
    let bundle = step(StepContainer::Bundle(Path::new("/home/a/jobs/x/bundle"))).unwrap();
    assert!(
        bundle.contains(" --container=/home/a/jobs/x/bundle /home/a/bin/sconce node "),
        "{bundle}"
    );
    let mount = |source: &str, read_only| Mount {
        source: source.into(),
        target: "/data".into(),
        read_only,
    };
    let image = Path::new("/store/image.sqsh");
    let mounts = [mount("/home/a/my data", false), mount("/scratch", true)];
    let pyxis = step(StepContainer::Squashfs {
        image,
        mounts: &mounts,
    });
    let pyxis = pyxis.unwrap();
    assert!(
        pyxis.contains(
            " --container-image=/store/image.sqsh '--container-mounts=/home/a/my data:/data,/scratch:/data:ro' \
             --no-container-mount-home --no-container-remap-root --no-container-entrypoint --container-writable \
             /home/a/bin/sconce node "
        ),
        "{pyxis}"
    );
    for source in ["/a:b", "/a,b", "relative"] {
        let mounts = [mount(source, false)];
        let refused = step(StepContainer::Squashfs {
            image,
            mounts: &mounts,
        });
        assert!(refused.is_err(), "{source}");
    }
}
