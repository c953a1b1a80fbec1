//! The probe inside a run, and beside it.

use std::path::PathBuf;
use std::process::Command;

use sconce_schema::RunRequest;
use sconce_schema::environment_layers::LayerTree;
use sconce_schema::request::{ContainerUser, RunRoot};

use crate::bench::{Bench, NOBODY_IN_PARTICULAR, Who};

/// Every user inside.
pub(crate) const USERS: [ContainerUser; 2] = [ContainerUser::Plain, ContainerUser::Root];

/// Adds a layer to the image, an empty folder at first.
pub(crate) fn layer(bench: &Bench, request: &mut RunRequest, name: &str) -> PathBuf {
    let path = bench.folder.path().join(name);
    std::fs::create_dir_all(&path).unwrap();
    let RunRoot::Image(image) = &mut request.root else {
        panic!("a run without an image has no layers")
    };
    image.layers.push(LayerTree {
        name: name.to_owned(),
        path: path.clone(),
    });
    path
}

/// Adds `/bin/probe` to the image, with the libraries that this program itself has loaded.
pub(crate) fn with_probe(bench: &Bench, request: &mut RunRequest) {
    let top = layer(bench, request, "probe");
    for folder in ["bin", "lib", "lib64"] {
        std::fs::create_dir_all(top.join(folder)).unwrap();
    }
    std::fs::copy(env!("CARGO_BIN_EXE_probe"), top.join("bin/probe")).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for path in maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
    {
        if let Some(name) = path.rsplit('/').next().filter(|name| name.contains(".so")) {
            // Both are where a loader may be named.
            for folder in ["lib", "lib64"] {
                std::fs::copy(path, top.join(folder).join(name)).unwrap();
            }
        }
    }
    let folder = ("LD_LIBRARY_PATH".to_owned(), "/lib64".to_owned());
    request.env.extend([folder]);
}

/// The bench's busybox.
pub(crate) fn busybox(bench: &Bench) -> Command {
    Command::new(bench.folder.path().join("base/bin/busybox"))
}

/// The probe outside of any container, as the caller, in a mount namespace of its own.
pub(crate) fn probe_outside(bench: &Bench, arguments: &[&str]) -> String {
    let probe = bench.folder.path().join("probe-outside");
    if !probe.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_probe"), &probe).unwrap();
    }
    let mut command = busybox(bench);
    command.args(["unshare", "-m"]);
    if bench.who == Who::Plain {
        command.args(["-U", "-r"]);
    }
    run_as(bench, command.arg(probe).args(arguments))
}

/// The output of a program that runs as the bench's caller.
pub(crate) fn run_as(bench: &Bench, command: &mut Command) -> String {
    use std::os::unix::process::CommandExt;
    if bench.who == Who::Plain && rustix::process::geteuid().is_root() {
        command.uid(NOBODY_IN_PARTICULAR).gid(NOBODY_IN_PARTICULAR);
    }
    let done = command.output().unwrap();
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}
