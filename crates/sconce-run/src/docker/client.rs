//! What Docker's client is asked, and how its answers are read.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use sconce_base::Env;
use sconce_schema::Runtime;
use serde::Deserialize;

use super::{Can, DockerClient};
use crate::error::RunError;

/// The oldest daemon that this was tried with. `--pull never` came with it.
const MIN_VERSION: (u32, u32) = (20, 10);

/// Where no file of settings is: they could add variables to the container, and choose another daemon.
const NO_SETTINGS: &str = "/nonexistent";

/// The most that is told of what a client said, bytes.
const MAX_QUOTED_BYTES: usize = 2000;

impl DockerClient {
    /// The client, to be told what to do. Its environment is empty, so that no variable of the caller
    /// changes what it does.
    pub(super) fn build_command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().args(self.global_args()).args(words);
        command
    }

    /// What comes before its verb.
    pub(super) fn global_args(&self) -> [&OsStr; 4] {
        ["--config", NO_SETTINGS, "-H", &self.host].map(OsStr::new)
    }

    pub(super) fn program(&self) -> &std::path::Path {
        &self.program
    }

    /// Asks, and gives what was answered.
    pub(super) fn run_command(&self, words: &[&str]) -> Result<String, RunError> {
        let mut command = self.build_command(words);
        // Out of reach of the terminal's signals, which are the command's.
        command.stdin(Stdio::null()).process_group(0);
        let output = command.output().map_err(cannot_start)?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(error_from_output(&output)),
        }
    }

    /// How the container `name` is.
    pub(super) fn container_state(&self, name: &str) -> Result<ContainerState, RunError> {
        let words = ["container", "inspect", "--format", "{{json .State}}", name];
        let text = self.run_command(&words)?;
        serde_json::from_str(&text).map_err(|error| engine_error(Some(error.to_string())))
    }
}

/// Of a container (`docker inspect`, `.State`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ContainerState {
    pub(super) running: bool,
    /// In the daemon's numbering; 0 where there is none.
    pub(super) pid: u32,
    pub(super) exit_code: i64,
    /// The C library's spelling would be the field's: Docker writes it so.
    #[serde(rename = "OOMKilled")]
    pub(super) oom_killed: bool,
    pub(super) error: String,
    started_at: String,
}

impl ContainerState {
    /// Whether its command was ever started: the time is Go's zero until then.
    pub(super) fn was_started(&self) -> bool {
        !self.started_at.starts_with("0001-")
    }
}

/// Of `docker info`. Where no daemon answers, clients of 20.10 leave the daemon's part out and say why in
/// `ServerErrors`, with exit code 0; newer ones say it on standard error.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Info {
    server_version: String,
    server_errors: Option<Vec<String>>,
    name: String,
    kernel_version: String,
    init_binary: String,
    security_options: Option<Vec<String>>,
    cpu_cfs_quota: bool,
    #[serde(rename = "CPUSet")]
    cpu_set: bool,
    memory_limit: bool,
    pids_limit: bool,
}

pub(super) fn connect(program: PathBuf, environment: &Env) -> Result<DockerClient, RunError> {
    // Which daemon the caller means: DOCKER_HOST, DOCKER_CONTEXT, or what `docker context use` says.
    let format = "{{.Endpoints.docker.Host}}";
    let asked = Command::new(&program)
        .env_clear()
        .envs(environment.iter())
        .args(["context", "inspect", "--format", format])
        .stdin(Stdio::null())
        .output()
        .map_err(|source| RunError::EngineUnknown {
            program: program.clone(),
            source: Some(source),
        })?;
    if !asked.status.success() {
        return Err(error_from_output(&asked));
    }
    let host = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    if !host.starts_with("unix:///") {
        return Err(RunError::DockerElsewhere { host });
    }
    let mut docker = DockerClient {
        program,
        host,
        version: String::new(),
        can: Can {
            init: false,
            cpus: false,
            cpuset: false,
            memory: false,
            pids: false,
        },
    };
    let output = docker
        .build_command(&["info", "--format", "{{json .}}"])
        .stdin(Stdio::null())
        .output()
        .map_err(cannot_start)?;
    let words = said(&output.stderr);
    if !output.status.success() || !words.is_empty() && !words.starts_with("WARNING") {
        return Err(silent(docker.host, words));
    }
    let info: Info =
        serde_json::from_slice(&output.stdout).map_err(|_| RunError::EngineUnknown {
            program: docker.program.clone(),
            source: None,
        })?;
    if let Some(errors) = info
        .server_errors
        .as_ref()
        .filter(|errors| !errors.is_empty())
    {
        return Err(silent(docker.host, said(errors.join("; ").as_bytes())));
    }
    let system = rustix::system::uname();
    let same = |one: &std::ffi::CStr, other: &str| one.to_bytes() == other.as_bytes();
    if !same(system.nodename(), &info.name) || !same(system.release(), &info.kernel_version) {
        return Err(RunError::DockerElsewhere { host: docker.host });
    }
    docker.judge(info)?;
    tracing::info!(
        host = docker.host,
        version = docker.version,
        "Docker's daemon"
    );
    Ok(docker)
}

impl DockerClient {
    /// Takes over what the daemon says of itself.
    fn judge(&mut self, info: Info) -> Result<(), RunError> {
        let numbers = numbers(&info.server_version).ok_or_else(|| RunError::EngineUnknown {
            program: self.program.clone(),
            source: None,
        })?;
        if numbers < MIN_VERSION {
            return Err(RunError::EngineTooOld {
                runtime: Runtime::Docker,
                found: info.server_version,
                oldest: MIN_VERSION,
            });
        }
        let options = info.security_options.unwrap_or_default();
        let of_users = |option: &&String| {
            let name = option.split(',').next();
            matches!(name, Some("name=rootless" | "name=userns"))
        };
        if options.iter().any(|option| of_users(&option)) {
            return Err(RunError::DockerUsers {
                host: self.host.clone(),
            });
        }
        self.version = info.server_version;
        self.can = Can {
            init: !info.init_binary.is_empty(),
            cpus: info.cpu_cfs_quota,
            cpuset: info.cpu_set,
            memory: info.memory_limit,
            pids: info.pids_limit,
        };
        Ok(())
    }
}

/// The first two numbers of a version; it is not read any further than a record may hold.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(|c: char| !c.is_ascii_digit());
    let mut number = || parts.next()?.parse().ok();
    let numbers = (number()?, number()?);
    (version.len() <= 64).then_some(numbers)
}

pub(super) fn has_image(docker: &DockerClient, image: &str) -> Result<bool, RunError> {
    let words = ["image", "inspect", "--format", "{{.Id}}", image];
    let output = docker.build_command(&words).stdin(Stdio::null()).output();
    Ok(output.map_err(cannot_start)?.status.success())
}

/// An image on its way to the daemon.
#[derive(Debug)]
pub struct ImageLoad {
    child: Child,
    stdin: Option<ChildStdin>,
}

pub(super) fn start_image_load(docker: &DockerClient) -> Result<ImageLoad, RunError> {
    let mut command = docker.build_command(&["load", "--quiet"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot_start)?;
    let stdin = child.stdin.take();
    Ok(ImageLoad { child, stdin })
}

impl io::Write for ImageLoad {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.stdin {
            Some(stdin) => stdin.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stdin.as_mut().map_or(Ok(()), io::Write::flush)
    }
}

impl ImageLoad {
    /// Until the daemon has it.
    ///
    /// # Errors
    /// [`RunError::Engine`] with the client's own words.
    pub fn wait_until_loaded(mut self) -> Result<(), RunError> {
        drop(self.stdin.take());
        let output = self.child.wait_with_output().map_err(cannot_start)?;
        match output.status.success() {
            true => Ok(()),
            false => Err(error_from_output(&output)),
        }
    }
}

pub(super) fn engine_error(said: Option<String>) -> RunError {
    RunError::Engine {
        name: "docker".to_owned(),
        said,
    }
}

pub(super) fn cannot_start(source: io::Error) -> RunError {
    engine_error(Some(source.to_string()))
}

/// What a client that failed said of it.
pub(super) fn error_from_output(output: &Output) -> RunError {
    let said = said(&output.stderr);
    engine_error((!said.is_empty()).then_some(said))
}

fn said(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_QUOTED_BYTES)]);
    text.trim().to_owned()
}

/// Why no daemon answered: the client tells it in words alone.
fn silent(host: String, said: String) -> RunError {
    match said.contains("permission denied") {
        true => RunError::DockerClosed { host },
        false => RunError::DockerSilent { host, said },
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn docker() -> DockerClient {
        DockerClient {
            program: "/usr/bin/docker".into(),
            host: "unix:///run/docker.sock".to_owned(),
            version: "28.2.2".to_owned(),
            can: Can {
                init: true,
                cpus: true,
                cpuset: true,
                memory: true,
                pids: true,
            },
        }
    }

    fn info(version: &str, options: &str) -> Info {
        let text = format!(
            r#"{{"ServerVersion":"{version}","Name":"a","KernelVersion":"6.1","InitBinary":"docker-init",
            "SecurityOptions":{options},"CpuCfsQuota":false,"CPUSet":true,"MemoryLimit":true,
            "PidsLimit":true,"Swarm":{{}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_daemon_is_judged_by_what_it_says() {
        let mut docker = docker();
        let usual = r#"["name=seccomp,profile=default","name=cgroupns"]"#;
        docker.judge(info("20.10.24+dfsg1", usual)).unwrap();
        assert_eq!(docker.version(), "20.10.24+dfsg1");
        assert!(docker.can.init && docker.can.memory && !docker.can.cpus);
        docker.judge(info("28.2.2", "null")).unwrap();
        for (version, options) in [
            ("20.9.1", "null"),
            ("", "null"),
            ("twenty", "null"),
            ("99999999999999999999.1", "null"),
            ("28.2.2", r#"["name=rootless"]"#),
            (
                "28.2.2",
                r#"["name=seccomp,profile=default","name=userns"]"#,
            ),
        ] {
            let judged = docker.judge(info(version, options));
            assert!(judged.is_err(), "{version} {options}");
        }
        assert_eq!(numbers(&format!("20.10.{}", "1".repeat(100))), None);
    }

    #[test]
    fn an_old_client_says_in_its_answer_that_nobody_answers() {
        let text = r#"{"ServerErrors":["Cannot connect to the Docker daemon"],"ClientInfo":{}}"#;
        let info: Info = serde_json::from_str(text).unwrap();
        assert_eq!(info.server_errors.map(|errors| errors.len()), Some(1));
        assert!(docker().judge(Info::default()).is_err());
    }

    #[test]
    fn a_closed_socket_is_told_from_a_silent_daemon() {
        let host = || "unix:///run/docker.sock".to_owned();
        let words = "permission denied while trying to connect to the Docker daemon socket";
        assert!(matches!(
            silent(host(), words.to_owned()),
            RunError::DockerClosed { .. }
        ));
        let words = "Cannot connect to the Docker daemon. Is the docker daemon running?";
        assert!(matches!(
            silent(host(), words.to_owned()),
            RunError::DockerSilent { .. }
        ));
    }

    #[test]
    fn a_container_that_never_began_is_known() {
        let state = |started: &str| -> ContainerState {
            let text = format!(
                r#"{{"Status":"created","Running":false,"OOMKilled":false,"Pid":0,"ExitCode":127,
                "Error":"no such file","StartedAt":"{started}"}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        assert!(!state("0001-01-01T00:00:00Z").was_started());
        assert!(state("2026-01-01T00:00:00Z").was_started());
    }
}
