use sconce_base::Env;
use sconce_schema::lock::{LockTarget, LockedVersions};
use sconce_schema::spec::{RunSpec, SchedulerKind};

use super::*;
use crate::run_options::RunOverrides;

/// What a case says; the rest is absent.
#[derive(Default)]
struct Case {
    nodes: Option<u32>,
    gpus: Option<u32>,
    ranks: Option<u32>,
    launch: Option<LaunchMode>,
    spec_gpus: Option<GpuRequest>,
    kind: Option<&'static str>,
    network: Option<NetworkMode>,
    command: &'static str,
    /// A lock that has no torch.
    without_torch: bool,
}

fn choose_in(folder: &Path, case: &Case) -> Result<ChosenLayout, LayoutError> {
    let job = JobOptions {
        target: "lab".into(),
        nodes: case.nodes,
        gpus_per_node: case.gpus,
        ranks_per_node: case.ranks,
        launch: case.launch,
        ..JobOptions::default()
    };
    let target = TargetSpec {
        gpu_type: case.kind.map(str::to_owned),
        ..TargetSpec::new(SchedulerKind::Slurm)
    };
    let command = match case.command {
        "" => "python train.py",
        command => command,
    };
    let command = sconce_base::words::split_words(command).unwrap();
    let overrides = RunOverrides {
        network: case.network,
        ..RunOverrides::default()
    };
    let (run, env) = (RunSpec::default(), Env::default());
    let options = ResolvedRunOptions::merge(&run, folder, &overrides, folder, &command, &env);
    let lock = case.without_torch.then(empty_lock);
    LayoutWishes {
        job: &job,
        target: &target,
        spec_gpus: case.spec_gpus.as_ref(),
        options: &options.ok().unwrap(),
        containment: JobContainment::Sconce,
        lock: lock.as_ref(),
        folder,
    }
    .choose()
}

fn choose(case: &Case) -> Result<ChosenLayout, LayoutError> {
    choose_in(Path::new("/home/ada/demo"), case)
}

fn empty_lock() -> Lock {
    Lock {
        version: 2,
        inputs: sconce_schema::Sha256([0; 32]),
        target: LockTarget {
            release: "debian/trixie".to_owned(),
            architecture: "amd64".to_owned(),
            python: "3.13".to_owned(),
        },
        versions: LockedVersions::default(),
        wheels: Vec::new(),
        debs: Vec::new(),
        stages: Vec::new(),
        interpreter: None,
    }
}

#[test]
fn ranks_are_started_by_torchrun_where_there_are_several() {
    let launch = |nodes, gpus, launch| {
        let case = Case {
            nodes,
            gpus,
            launch,
            ..Case::default()
        };
        let layout = choose(&case).ok()?.layout;
        Some((layout.nodes, layout.launch))
    };
    assert_eq!(launch(None, None, None), Some((1, LaunchMode::Node)));
    assert_eq!(launch(None, Some(1), None), Some((1, LaunchMode::Node)));
    assert_eq!(launch(Some(2), None, None), Some((2, LaunchMode::Torchrun)));
    assert_eq!(launch(None, Some(8), None), Some((1, LaunchMode::Torchrun)));
    let node = Some(LaunchMode::Node);
    assert_eq!(launch(Some(2), Some(8), node), Some((2, LaunchMode::Node)));
    assert_eq!(launch(Some(2), None, Some(LaunchMode::TaskPerGpu)), None);
}

#[test]
fn the_cards_of_the_spec_are_those_of_each_node() {
    let cards = |gpus: Option<u32>, of_spec: GpuRequest| {
        let case = Case {
            gpus,
            spec_gpus: Some(of_spec),
            ..Case::default()
        };
        choose(&case).ok().map(|chosen| chosen.layout.gpus_per_node)
    };
    assert_eq!(cards(None, GpuRequest::Count(2)), Some(Some(2)));
    assert_eq!(cards(Some(1), GpuRequest::Count(2)), Some(Some(1)));
    assert_eq!(cards(None, GpuRequest::Count(0)), Some(None));
    assert_eq!(cards(Some(4), GpuRequest::All), Some(Some(4)));
    assert_eq!(cards(None, GpuRequest::All), None);
}

#[test]
fn wishes_that_do_not_agree_are_named() {
    let says = |case: Case| choose(&case).unwrap_err().to_string();
    let said = says(Case {
        kind: Some("a100"),
        ..Case::default()
    });
    assert!(said.contains("`gpu-type = \"a100\"`"), "{said}");
    let none = Case {
        kind: Some("a100"),
        gpus: Some(0),
        ..Case::default()
    };
    assert!(choose(&none).is_ok());
    for command in ["env A=1 torchrun t.py", "bash -c 'torchrun t.py'"] {
        let said = says(Case {
            gpus: Some(8),
            launch: Some(LaunchMode::TaskPerGpu),
            command,
            ..Case::default()
        });
        assert!(
            said.contains("`task-per-gpu`") && said.contains("`torchrun`"),
            "{said}"
        );
    }
    let said = says(Case {
        nodes: Some(2),
        command: "torchrun --standalone --nproc-per-node 4 t.py",
        ..Case::default()
    });
    assert!(
        said.contains("2 nodes") && said.contains("--standalone"),
        "{said}"
    );
    let alone = Case {
        command: "torchrun --standalone --nproc-per-node 4 t.py",
        ..Case::default()
    };
    assert!(choose(&alone).is_ok());
    let said = says(Case {
        nodes: Some(2),
        network: Some(NetworkMode::None),
        ..Case::default()
    });
    assert!(
        said.contains("`network` is none") && said.contains("2 containers"),
        "{said}"
    );
    let alone = Case {
        network: Some(NetworkMode::Own),
        ..Case::default()
    };
    assert!(choose(&alone).is_ok());
}

#[test]
fn without_torch_nobody_starts_ranks_who_is_not_named() {
    let case = |launch, ranks, command| Case {
        launch,
        ranks,
        command,
        without_torch: true,
        ..Case::default()
    };
    let torchrun = Some(LaunchMode::Torchrun);
    for (case, part) in [
        (case(torchrun, None, ""), "`launch` is torchrun"),
        (case(None, Some(4), ""), "4 ranks a node"),
    ] {
        let said = choose(&case).unwrap_err().to_string();
        assert!(said.contains(part), "{said}");
    }
    for case in [
        case(Some(LaunchMode::TaskPerGpu), Some(4), ""),
        case(Some(LaunchMode::Node), Some(4), ""),
        case(None, Some(1), ""),
        case(None, Some(4), "mpirun -n 4 t"),
        case(torchrun, None, "torchrun t.py"),
    ] {
        assert!(choose(&case).is_ok());
    }
}

#[test]
fn what_a_text_of_shell_starts_is_said() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("run.sh"), "torchrun t.py \"$@\"\n").unwrap();
    let choose = |command, launch| {
        let case = Case {
            nodes: Some(2),
            launch,
            command,
            ..Case::default()
        };
        let chosen = choose_in(folder.path(), &case).unwrap();
        (chosen.starts_own_ranks, chosen.remark.unwrap_or_default())
    };
    let (own, said) = choose("bash run.sh", None);
    assert!(own && said.contains("`torchrun`"), "{said}");
    assert_eq!(choose("torchrun t.py", None), (true, String::new()));
    assert_eq!(choose("python t.py", None), (false, String::new()));
    let (own, said) = choose("bash other.sh", None);
    assert!(!own && said.contains("whether `other.sh`"), "{said}");
    let node = Some(LaunchMode::Node);
    assert_eq!(choose("bash other.sh", node), (false, String::new()));
}
