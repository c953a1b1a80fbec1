//! The end of a container, whatever becomes of Sconce.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use super::DockerClient;
use crate::error::RunError;

/// Removes the container when this is dropped, and also when Sconce is killed: a shell outlives it,
/// whose standard input ends with Sconce. The daemon would let the container run for ever.
pub(super) struct ContainerCleanup<'a> {
    docker: &'a DockerClient,
    name: String,
    shell: Child,
}

impl<'a> ContainerCleanup<'a> {
    pub(super) fn start(docker: &'a DockerClient, name: &str) -> Result<Self, RunError> {
        let script = r#"read -r word; [ "$word" = done ] || exec "$@""#;
        let shell = Command::new("/bin/sh")
            .env_clear()
            .args(["-c", script, "sconce-remover"])
            .arg(docker.program())
            .args(docker.global_args())
            .args(["rm", "--force", "--volumes", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Out of reach of the terminal's signals.
            .process_group(0)
            .spawn()
            .map_err(RunError::at_step("start what removes the container"))?;
        Ok(Self {
            docker,
            name: name.to_owned(),
            shell,
        })
    }
}

impl Drop for ContainerCleanup<'_> {
    fn drop(&mut self) {
        let removed = self
            .docker
            .run_command(&["rm", "--force", "--volumes", &self.name]);
        // Where that failed, the shell tries once more.
        if let (Ok(_), Some(mut stdin)) = (removed, self.shell.stdin.take()) {
            let _ = stdin.write_all(b"done\n");
        }
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
