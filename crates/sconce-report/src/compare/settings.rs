//! What a run was given, as texts under names.

use sconce_schema::event::{Containment, RunStarted};
use sconce_schema::runtime::Runtime;
use sconce_schema::training::TrainingSetup;

use super::SettingChange;
use crate::format::containment_label;
use crate::format::format_command;
use crate::model::RunReport;
use crate::network::group_networks;

/// What is set otherwise, and what only one of the runs tells. What neither tells is left out, and so is
/// what was always different (the run's name and time).
pub(super) fn diff_settings(
    before: &RunReport,
    after: &RunReport,
) -> (Vec<SettingChange>, Vec<SettingChange>) {
    (settings(before).into_iter().zip(settings(after)))
        .filter(|(a, b)| a.1 != b.1)
        .map(|((what, before), (_, after))| SettingChange {
            what: what.to_owned(),
            before,
            after,
        })
        .partition(|change| change.before.is_some() && change.after.is_some())
}

/// What was not asked for is an answer, where the record tells all that was.
const NONE: &str = "none";

/// The same names in the same order for every run.
pub(super) fn settings(report: &RunReport) -> Vec<(&'static str, Option<String>)> {
    let mut all = given(report);
    all.extend(environment(report));
    all.extend(training(report));
    all
}

fn or_none(value: Option<impl ToString>) -> Option<String> {
    text(value).or_else(|| Some(NONE.to_owned()))
}

fn text(value: Option<impl ToString>) -> Option<String> {
    value
        .map(|value| value.to_string())
        .filter(|text| !text.is_empty())
}

fn given(report: &RunReport) -> Vec<(&'static str, Option<String>)> {
    let started = &report.started;
    let (host, limits) = (&started.host, &started.limits);
    let mut networks: Vec<String> = (group_networks(&report.nccl).iter())
        .map(|group| match group.first.gpu_direct {
            Some(true) => format!("{}, GPU Direct RDMA", group.first.label()),
            _ => group.first.label(),
        })
        .collect();
    networks.sort();
    let cards: Vec<&str> = started.gpus.iter().map(|card| card.name.as_str()).collect();
    let mode = match started.containment {
        Some(_) => containment_label(started).unwrap_or_default(),
        None => match started.mode {
            Containment::Container => "in a container",
            Containment::Host => "on the machine itself",
        },
    };
    vec![
        (
            "command",
            Some(format_command(own_command(&started.command))),
        ),
        ("launcher", or_none(launcher(&started.command))),
        (
            "folder",
            Some(started.folder.to_string_lossy().into_owned()),
        ),
        ("environment", or_none(started.name.as_ref())),
        ("where", Some(mode.to_owned())),
        ("runtime", runtime(started)),
        ("plan", or_none(started.plan.as_ref())),
        ("CPU limit", or_none(limits.cpus)),
        ("memory limit", or_none(limits.memory)),
        ("/dev/shm", or_none(limits.shm)),
        ("limit of processes", or_none(limits.pids)),
        ("machine", text(Some(&host.hostname))),
        ("CPU", text(host.cpu_model.as_ref())),
        ("CPUs", Some(host.cpus.to_string())),
        ("main memory", Some(host.memory.to_string())),
        ("kernel", text(Some(&host.kernel))),
        ("driver", text(host.driver.as_ref())),
        ("cards", or_none(Some(cards.join(", ")))),
        ("network of ranks", text(Some(networks.join("; ")))),
    ]
}

/// The program that set the container up. One that another held, or none, is named by "where".
fn runtime(started: &RunStarted) -> Option<String> {
    let is_contained = started.containment.is_none() && started.mode == Containment::Container;
    is_contained.then(|| match &started.runtime {
        Some(runtime) => format!("{} {}", runtime.name, runtime.version),
        None => Runtime::Sconce.to_string(),
    })
}

/// Where torchrun's own words end that it was given whole: `--no_python` is followed by the command of a rank.
const COMMAND_FOLLOWS: [&str; 2] = ["--no_python", "--no-python"];

/// What each rank runs: of a command that torchrun starts as it is, that command. Which ranks there are is a setting
/// of its own, and addresses and ports are nobody's choice.
pub(super) fn own_command(command: &[String]) -> &[String] {
    let of_torchrun = launcher(command).is_some();
    let option = (command.iter()).position(|word| COMMAND_FOLLOWS.contains(&word.as_str()));
    match option {
        Some(at) if of_torchrun => &command[at + 1..],
        _ => command,
    }
}

fn launcher(command: &[String]) -> Option<&'static str> {
    (command.first()?.rsplit('/').next() == Some("torchrun")).then_some("torchrun")
}

fn environment(report: &RunReport) -> Vec<(&'static str, Option<String>)> {
    let versions = report.started.versions.as_ref();
    let setup = setup(report);
    let of_setup = |of: fn(&TrainingSetup) -> &String| text(setup.map(of));
    vec![
        (
            "Python",
            of_setup(|setup| &setup.python).or_else(|| text(versions.map(|v| &v.python))),
        ),
        (
            "torch",
            of_setup(|setup| &setup.torch)
                .or_else(|| text(versions.and_then(|v| v.torch.as_ref()))),
        ),
        ("CUDA", text(versions.and_then(|v| v.cuda))),
        ("cuDNN", text(versions.and_then(|v| v.cudnn.as_ref()))),
        ("NCCL", text(versions.and_then(|v| v.nccl.as_ref()))),
        ("Triton", text(versions.and_then(|v| v.triton.as_ref()))),
        ("glibc", text(versions.map(|v| &v.glibc))),
    ]
}

fn setup(report: &RunReport) -> Option<&TrainingSetup> {
    report.training.first().and_then(|rank| rank.setup.as_ref())
}

fn training(report: &RunReport) -> Vec<(&'static str, Option<String>)> {
    let setup = setup(report);
    let loader = setup.and_then(|setup| setup.loader.as_ref());
    let yes = |yes: Option<bool>| yes.map(|yes| if yes { "yes" } else { "no" }.to_owned());
    // Without autocast there is no word for it: with a setup, its missing is an answer.
    let autocast = setup.map(|setup| setup.autocast.clone().unwrap_or_else(|| "off".to_owned()));
    vec![
        (
            "ranks",
            text(setup.map(|setup| setup.world_size.unwrap_or(1))),
        ),
        (
            "ranks' backend",
            setup.and_then(|setup| or_none(setup.backend.as_ref())),
        ),
        ("model", text(setup.and_then(|setup| setup.model.as_ref()))),
        ("parameters", text(setup.and_then(|setup| setup.parameters))),
        (
            "optimizer",
            text(setup.map(|setup| setup.optimizers.join(", "))),
        ),
        ("dtype", text(setup.and_then(|setup| setup.dtype.as_ref()))),
        ("autocast", autocast),
        ("compiled", yes(setup.and_then(|setup| setup.compiled))),
        (
            "cuDNN benchmark",
            yes(setup.and_then(|setup| setup.cudnn_benchmark)),
        ),
        (
            "fixed shapes",
            yes(setup.and_then(|setup| setup.fixed_shapes)),
        ),
        (
            "allocator",
            setup.and_then(|setup| or_none(setup.allocator.as_ref())),
        ),
        ("batch size", text(loader.and_then(|loader| loader.batch))),
        // A setup without a loader is of a program that has none of PyTorch's.
        (
            "loader workers",
            setup.map(|_| {
                loader.map_or("no loader".to_owned(), |loader| loader.workers.to_string())
            }),
        ),
        (
            "batches ahead",
            text(loader.and_then(|loader| loader.prefetch)),
        ),
        ("pinned memory", yes(loader.map(|loader| loader.pinned))),
        (
            "persistent workers",
            yes(loader.map(|loader| loader.persistent)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_what_each_rank_runs() {
        let own = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            own_command(&words).join(" ")
        };
        let wrapped = "torchrun --nnodes=2 --master_port=41685 --no_python python train.py --lr 1";
        assert_eq!(own(wrapped), "python train.py --lr 1");
        assert_eq!(own("/opt/venv/bin/torchrun --no-python ./train"), "./train");
        for untouched in [
            "torchrun --standalone train.py",
            "python train.py --no_python",
        ] {
            assert_eq!(own(untouched), untouched);
        }
    }
}
