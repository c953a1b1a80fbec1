//! podman, by its command line, over the root that init has mounted (`--rootfs`).
//!
//! Its lists of containers are in the run's folder and go with it: `podman ps` elsewhere does not
//! show the run, and a killed one leaves nothing that podman would have to clean up.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{EngineContext, PATH, Start, nodes, pid_file, write_private};
use crate::error::{InvalidRequest, RunError};
use crate::seccomp;
use crate::sys::mount::{NOEXEC, RDONLY};

/// Settings in the place of the machine's: locks in files of the run's own and not in memory that
/// every podman of the machine shares, no journal, and no limit that nobody asked for.
const SETTINGS: &str = "[engine]\nlock_type = \"file\"\nevents_logger = \"none\"\n\
                        cgroup_manager = \"cgroupfs\"\n[containers]\npids_limit = 0\ndefault_sysctls = []\n";

/// Where init mounts [`RUN_FILES`] of the run's folder: it is there on every machine, and podman
/// needs nothing of what is there otherwise.
pub(super) const SHORT: &str = "/dev/shm";

/// podman's own state, which goes with the run.
pub(super) const RUN_FILES: &str = "podman-run";

/// Hidden by Sconce, and not by podman.
const MASKED: &str = "mask=/proc/dynamic_debug:/proc/latency_stats:/sys/devices/virtual/powercap";

/// The engines that podman starts in turn; the first that is there. crun by way of podman asks for
/// cgroups that it is not shown.
const RUNC: [&str; 2] = ["/usr/sbin/runc", "/usr/bin/runc"];

/// Writes the settings, the environment and the filter, and gives podman's command line.
pub(super) fn write_config(asked: &EngineContext<'_>) -> Result<Start, RunError> {
    let folder = |name: &str| asked.scratch.join(name);
    let (settings, filter) = (folder("containers.conf"), folder("seccomp.json"));
    write_private(&settings, SETTINGS.as_bytes())?;
    write_private(&filter, seccomp::build_oci_filter().to_string().as_bytes())?;
    let variables = folder("environment");
    write_private(&variables, &environment(asked)?)?;

    let mut line = Line(vec![asked.engine.program.clone().into()]);
    line.pair("--root", folder("podman"));
    // The run's folder: podman takes no path of more than 50 characters here.
    line.pair("--runroot", SHORT);
    line.pair("--tmpdir", folder("podman-tmp"));
    line.words("--storage-driver vfs --log-level error");
    if let Some(runc) = RUNC.iter().find(|path| Path::new(path).exists()) {
        line.pair("--runtime", runc);
        line.joined("--runtime-flag=root=", folder("engine"));
        // runc's warnings are of no run; its errors come on standard error all the same.
        line.joined("--runtime-flag=log=", folder("runc.log"));
    }
    line.words("run --rm -i --no-hosts --dns none --systemd false --log-driver");
    line.words(match hands_streams_over(asked) {
        true => "passthrough",
        false => "none",
    });
    // Those in which podman runs, which are the run's own.
    line.words("--pid host --network host --ulimit host --umask 0022 --cap-drop all");
    if asked.request.terminal {
        line.words("-t");
    }
    line.pair("--pidfile", pid_file(asked));
    line.pair("--hostname", asked.hostname);
    line.pair("--shm-size", format!("{}b", asked.shm_bytes));
    let (uid, gid) = asked.user();
    line.pair("--user", format!("{uid}:{gid}"));
    line.pair("--workdir", &asked.request.workdir);
    for name in asked.capabilities() {
        line.pair("--cap-add", name);
    }
    line.words("--security-opt no-new-privileges");
    line.pair("--security-opt", MASKED);
    line.joined_pair("--security-opt", "seccomp=", filter);
    if let Some((_, cgroup)) = asked.cgroup() {
        line.pair("--cgroup-parent", cgroup);
    }
    line.pair("--env-file", variables);
    for node in nodes(&asked.request.edits) {
        let host = match node.host_path.is_empty() {
            true => &node.path,
            false => &node.host_path,
        };
        line.pair("--device", format!("{host}:{}:rw", node.path));
    }
    for mount in covered(asked) {
        line.pair("--mount", mount?);
    }
    line.pair("--rootfs", folder("root"));
    line.0.extend(asked.command.iter().cloned());
    Ok(Start {
        command: line.0,
        env: own_environment(asked, &settings),
    })
}

/// Whether the command gets the caller's streams themselves. Otherwise podman copies what it writes,
/// and a reader that goes away ends podman, whatever the command makes of it. podman hands no
/// terminal over.
fn hands_streams_over(asked: &EngineContext<'_>) -> bool {
    use rustix::stdio::{stderr, stdin, stdout};
    let streams = [stdin(), stdout(), stderr()];
    !asked.request.terminal && !streams.iter().any(rustix::termios::isatty)
}

/// A command line that grows.
struct Line(Vec<OsString>);

impl Line {
    fn words(&mut self, words: &str) {
        self.0
            .extend(words.split_ascii_whitespace().map(OsString::from));
    }

    fn pair(&mut self, flag: &str, value: impl AsRef<std::ffi::OsStr>) {
        self.0.extend([flag.into(), value.as_ref().to_owned()]);
    }

    fn joined(&mut self, prefix: &str, value: PathBuf) {
        let mut word = OsString::from(prefix);
        word.push(value);
        self.0.push(word);
    }

    fn joined_pair(&mut self, flag: &str, prefix: &str, value: PathBuf) {
        self.0.push(flag.into());
        self.joined(prefix, value);
    }
}

/// podman's own variables. The last two are how podman tells itself, when it starts itself again,
/// that it is in a user namespace already.
fn own_environment(asked: &EngineContext<'_>, settings: &Path) -> Vec<OsString> {
    let mut env: Vec<OsString> = vec![PATH.into()];
    let mut set = |name: &str, value: &Path| {
        let mut word = OsString::from(format!("{name}="));
        word.push(value);
        env.push(word);
    };
    set("HOME", asked.scratch);
    set("XDG_RUNTIME_DIR", asked.scratch);
    set("CONTAINERS_CONF", settings);
    if !asked.root {
        let uid = rustix::process::geteuid().as_raw();
        env.push("_CONTAINERS_USERNS_CONFIGURED=done".into());
        env.push(format!("_CONTAINERS_ROOTLESS_UID={uid}").into());
    }
    env
}

/// The run's variables, a line each: on the command line every user of the machine could read them.
fn environment(asked: &EngineContext<'_>) -> Result<Vec<u8>, RunError> {
    let mut text = Vec::new();
    for variable in asked.env {
        let bytes = variable.as_bytes();
        if bytes.contains(&b'\n') {
            return Err(cannot(asked, "a variable of more than one line"));
        }
        text.extend_from_slice(bytes);
        text.push(b'\n');
    }
    Ok(text)
}

fn cannot(asked: &EngineContext<'_>, what: &'static str) -> RunError {
    RunError::Request(InvalidRequest::Engine {
        runtime: asked.engine.runtime,
        what,
    })
}

/// Driver files over which podman lays file systems of its own: mounted again by podman.
fn covered<'a>(
    asked: &'a EngineContext<'_>,
) -> impl Iterator<Item = Result<String, RunError>> + 'a {
    let is_node = |target: &Path| nodes(&asked.request.edits).any(|n| Path::new(&n.path) == target);
    let covered = asked.mounts.iter();
    let covered =
        covered.filter(move |m| super::is_covered(&m.target) && !is_node(m.target.as_path()));
    covered.map(|mount| {
        let (source, target) = (mount.source.to_str(), mount.target.to_str());
        let (Some(source), Some(target)) = (source, target) else {
            return Err(cannot(asked, "paths that are no UTF-8"));
        };
        if [source, target]
            .iter()
            .any(|path| path.contains([',', '"']))
        {
            return Err(cannot(asked, "paths with a comma or a quotation mark"));
        }
        let mut text = format!("type=bind,source={source},target={target}");
        for (bit, word) in [(RDONLY, ",ro"), (NOEXEC, ",noexec")] {
            if mount.attributes & bit != 0 {
                text.push_str(word);
            }
        }
        Ok(text)
    })
}

#[cfg(test)]
mod tests {
    use sconce_schema::Runtime;
    use sconce_schema::request::ContainerUser;

    use super::super::testing::EngineFixture;
    use super::*;

    fn line(made: &EngineFixture) -> String {
        let words = write_config(&made.engine_context()).unwrap().command;
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn the_line_drops_everything_and_names_no_secret() {
        let mut made = EngineFixture::new(Runtime::Podman, ContainerUser::Plain, true);
        made.request.terminal = true;
        let line = line(&made);
        for part in [
            "--cap-drop all",
            "--security-opt no-new-privileges",
            "--security-opt seccomp=",
            "--user 1000:1000",
            "--device /dev/nvidia0:/dev/nvidia0:rw",
            "--mount type=bind,source=/proc/driver/nvidia,target=/proc/driver/nvidia,ro",
            "--workdir /workspace",
            "--shm-size 1048576b",
            " -t ",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(line.ends_with("/root python -c 1"), "{line}");
        for part in ["hf_secret", "--cap-add", "--privileged", "libcuda"] {
            assert!(!line.contains(part), "{part}: {line}");
        }
        let file = std::fs::read_to_string(made.folder.path().join("environment")).unwrap();
        assert_eq!(file, "HF_TOKEN=hf_secret\n");
    }

    #[test]
    fn root_inside_and_a_users_run_are_told_apart() {
        let inside = line(&EngineFixture::new(
            Runtime::Podman,
            ContainerUser::Root,
            true,
        ));
        assert_eq!(inside.matches("--cap-add CAP_").count(), 10, "{inside}");
        let made = EngineFixture::new(Runtime::Podman, ContainerUser::Plain, false);
        let start = write_config(&made.engine_context()).unwrap();
        assert!(start.command.contains(&"0:0".into()));
        let told = |word: &OsString| word.as_bytes().starts_with(b"_CONTAINERS_");
        assert_eq!(start.env.iter().filter(|word| told(word)).count(), 2);
    }

    #[test]
    fn what_podman_would_read_otherwise_is_refused() {
        let mut made = EngineFixture::new(Runtime::Podman, ContainerUser::Plain, true);
        made.env.push("A=1\nLD_PRELOAD=/x".into());
        let error = write_config(&made.engine_context()).err().unwrap();
        assert!(error.to_string().contains("more than one line"), "{error}");
        let mut made = EngineFixture::new(Runtime::Podman, ContainerUser::Plain, true);
        made.mounts[2].source = "/proc/a,target=/etc".into();
        let error = write_config(&made.engine_context()).err().unwrap();
        assert!(error.to_string().contains("comma"), "{error}");
    }
}
