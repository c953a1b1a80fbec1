use super::*;

fn words(line: &str) -> Vec<String> {
    sconce_base::words::split_words(line).unwrap()
}

fn name_of(line: &str) -> Option<String> {
    find_launcher(&words(line))
}

#[test]
fn programs_that_start_ranks_are_known() {
    for (command, said) in [
        ("torchrun --nproc-per-node 8 train.py", Some("torchrun")),
        ("/opt/bin/torchrun train.py", Some("/opt/bin/torchrun")),
        ("accelerate launch train.py", Some("accelerate launch")),
        ("accelerate-launch train.py", Some("accelerate-launch")),
        ("accelerate config", None),
        (
            "python -u -m torch.distributed.run train.py",
            Some("torch.distributed.run"),
        ),
        (
            "python3.12 -W ignore -Xdev -um torch.distributed.run t.py",
            Some("torch.distributed.run"),
        ),
        (
            "python -m accelerate.commands.launch train.py",
            Some("accelerate.commands.launch"),
        ),
        (
            "python -m accelerate.commands.accelerate_cli launch t.py",
            Some("accelerate.commands.accelerate_cli launch"),
        ),
        (
            "python -mtorch.distributed.launch t.py",
            Some("torch.distributed.launch"),
        ),
        ("python /usr/bin/torchrun t.py", Some("/usr/bin/torchrun")),
        ("python train.py -m torch.distributed.run", None),
        ("python -c 'import torch' -m torch.distributed.run", None),
        ("python -m mine -m torch.distributed.run", None),
        ("python -m mine", None),
        ("python", None),
        ("which torchrun", None),
        ("echo torchrun", None),
    ] {
        assert_eq!(name_of(command).as_deref(), said, "{command}");
    }
    assert_eq!(find_launcher(&[]), None);
}

#[test]
fn what_starts_another_program_is_looked_behind() {
    for command in [
        "env A=1 B='x y' torchrun t.py",
        "env -i -u HOME --chdir /tmp -- A=1 torchrun t.py",
        "nice -n 5 torchrun t.py",
        "nice -n5 ionice -c 2 torchrun t.py",
        "time -f %e -o log torchrun t.py",
        "timeout -k 5 4h torchrun t.py",
        "taskset -c 0-3 torchrun t.py",
        "numactl -N 0 --membind=0 torchrun t.py",
        "stdbuf -oL torchrun t.py",
        "uv run --no-sync --with deepspeed torchrun t.py",
        "uv --quiet run -p 3.12 -- torchrun t.py",
        "poetry run torchrun t.py",
        "conda run -n deepspeed --no-capture-output torchrun t.py",
        "nsys profile -t cuda,nvtx --stats=true -o out torchrun t.py",
        "env A=1 sh -c 'exec torchrun t.py'",
    ] {
        assert_eq!(name_of(command).as_deref(), Some("torchrun"), "{command}");
    }
    let module = name_of("uv run --no-sync -m torch.distributed.run t.py");
    assert_eq!(module.as_deref(), Some("torch.distributed.run"));
    for command in [
        "env torchrun=1 python t.py",
        "uv run --with deepspeed python t.py",
        "uv pip install deepspeed",
        "conda run -n deepspeed python t.py",
        "timeout 4h python t.py",
        "env",
        "timeout",
    ] {
        assert_eq!(name_of(command), None, "{command}");
    }
}

#[test]
fn a_text_of_shell_is_read() {
    for text in [
        "torchrun t.py",
        "cd src && A=1 torchrun t.py",
        "export A=$(nproc); torchrun --nproc-per-node=$A t.py",
        "nvidia-smi\n# a note: don't\ntorchrun \\\n  t.py",
        "cat >x <<'END'\nit's\nEND\ntorchrun t.py 2>&1 | tee log",
        "if [ \"$N\" -gt 1 ]; then torchrun t.py; else python t.py; fi",
        "start() { torchrun t.py \"$@\"; }; start",
        "(torchrun t.py)",
        "for i in 1 2; do torchrun t.py; done",
        "RUN=\"torchrun --nnodes=$N\"; $RUN t.py",
        "export RUN='torchrun --x'\nexec ${RUN} t.py",
        "CMD='torchrun t.py'; eval $CMD",
        "eval \"torchrun t.py\"",
        "$(which torchrun) t.py",
        "$CONDA_PREFIX/bin/torchrun t.py",
        "time torchrun t.py",
        "! torchrun t.py",
        "$PYTHON -m torch.distributed.run t.py",
    ] {
        for shell in ["sh -c", "bash -lc", "bash --norc -eo pipefail -c"] {
            let mut command = words(shell);
            command.push(text.to_owned());
            let found = find_launcher(&command);
            assert!(found.is_some(), "{shell} {text}");
        }
    }
    for text in [
        "python t.py torchrun",
        "which torchrun && python t.py",
        "echo 'torchrun t.py'; python t.py $ARGS",
        "python t.py # torchrun",
        "cat <<E\ntorchrun t.py\nE\npython t.py",
        "for torchrun in a b; do python $torchrun; done",
    ] {
        let command = ["sh", "-c", text].map(str::to_owned);
        let found = find_rank_starter(&command, &|_| None);
        assert_eq!(found, RankStarter::Nobody, "{text}");
    }
}

#[test]
fn what_cannot_be_read_is_said() {
    let unknown = |command: &str| match find_rank_starter(&words(command), &|_| None) {
        RankStarter::Unknown(part) => part,
        other => panic!("{command}: {other:?}"),
    };
    assert_eq!(unknown("sh -c '$CMD t.py'"), "$CMD");
    assert_eq!(unknown("bash run.sh"), "run.sh");
    assert_eq!(unknown("./run.sh 8"), "./run.sh");
    assert_eq!(unknown("bash"), "bash");
    assert_eq!(unknown("sh -c \"echo 'a\""), "echo 'a");
    assert_eq!(
        unknown(&format!("bash {}.sh", "x".repeat(999)))
            .chars()
            .count(),
        MAX_SHOWN_CHARS
    );
}

#[test]
fn a_script_of_the_project_is_read_with_its_arguments() {
    let read = |name: &str| match name {
        "run.sh" => Some("#!/bin/bash\nset -e\nexec \"$@\"\n".to_owned()),
        "train.sh" => Some("source env.sh\ntorchrun \\\n  --standalone t.py\n".to_owned()),
        "again.sh" => Some("bash again.sh".to_owned()),
        _ => None,
    };
    let find = |command: &str| find_rank_starter(&words(command), &read);
    let RankStarter::Command(launcher) = find("bash -x train.sh") else {
        panic!("it is read");
    };
    assert_eq!(launcher.find_own_world().as_deref(), Some("--standalone"));
    assert!(matches!(
        find("bash run.sh torchrun t.py"),
        RankStarter::Command(_)
    ));
    assert_eq!(find("bash run.sh python t.py"), RankStarter::Nobody);
    assert!(matches!(find("bash again.sh"), RankStarter::Unknown(_)));
    let own = name_of("torchrun t.py --standalone").and(Some(()));
    assert_eq!(own, Some(()));
}

#[test]
fn scripts_without_end_are_given_up() {
    let again = "bash again.sh \"$@\" \"$@\"\n".repeat(200);
    let read = |_: &str| Some(again.clone());
    let command = words("bash again.sh a b c");
    let found = find_rank_starter(&command, &read);
    assert!(matches!(found, RankStarter::Unknown(_)), "{found:?}");
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "[a-z$(){}<>|&;'\"`\\\\ \n#=@*-]{0,60}") {
        let command = ["sh", "-c", &text].map(str::to_owned);
        let _ = find_rank_starter(&command, &|_| None);
    }
}
