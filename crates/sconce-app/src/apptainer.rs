//! The command line of the site's apptainer (apptainer-exec(1) of 1.1): the environment as a directory, with what the
//! run mounts. It is a program like another to the supervisor.

use std::collections::BTreeMap;
use std::path::Path;

use sconce_schema::request::Mount;
use sconce_schema::{Hint, exit};

/// The program.
pub(crate) const PROGRAM: &str = "apptainer";

/// Apptainer is not on `PATH`.
#[derive(Debug, thiserror::Error)]
#[error("`apptainer` is not on this node's PATH")]
pub(crate) struct MissingProgram;

impl Hint for MissingProgram {
    fn hint(&self) -> Option<String> {
        Some(
            "bring it by a line of `setup` in the target, such as `module load apptainer`"
                .to_owned(),
        )
    }

    fn exit_code(&self) -> u8 {
        exit::NODE
    }
}

/// What makes a variable one of the container's, whatever else is left out.
const VARIABLE_PREFIX: &str = "APPTAINERENV_";

/// One container.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Container<'a> {
    pub(crate) program: &'a Path,
    /// The environment's root.
    pub(crate) image: &'a Path,
    pub(crate) mounts: &'a [Mount],
    /// Where the command starts, inside.
    pub(crate) workdir: &'a Path,
    /// Where the run is at home, inside.
    pub(crate) home: Option<&'a str>,
    /// Whether it has NVIDIA's cards, whose files apptainer finds itself.
    pub(crate) has_gpus: bool,
}

impl Container<'_> {
    /// The words that run `command` in it.
    pub(crate) fn command(&self, command: &[String]) -> Vec<String> {
        let program = self.program.to_string_lossy();
        let mut words: Vec<String> = [
            &*program,
            "exec",
            // Of the node's variables, files of the home and places that its settings mount, nothing.
            "--cleanenv",
            // Else a shell expands what stands in variables: `$` and `$(…)` (tried with 1.4).
            "--no-eval",
            "--no-home",
            "--no-mount",
            "home,cwd,bind-paths",
            // What is written elsewhere than in mounts goes away with the container.
            "--writable-tmpfs",
        ]
        .map(str::to_owned)
        .to_vec();
        if self.has_gpus {
            words.push("--nv".to_owned());
        }
        for mount in self.mounts {
            words.extend(["--mount".to_owned(), mount_value(mount)]);
        }
        let pwd = self.workdir.to_string_lossy().into_owned();
        words.extend(["--pwd".to_owned(), pwd]);
        words.push(self.image.to_string_lossy().into_owned());
        // The one variable that apptainer sets itself, whatever it is told.
        if let Some(home) = self.home {
            words.extend(["/usr/bin/env".to_owned(), format!("HOME={home}")]);
        }
        words.extend(command.iter().cloned());
        words
    }
}

/// A mount as `--mount` takes it: a line of comma-separated values, whose fields are quoted as in such files.
fn mount_value(mount: &Mount) -> String {
    let field = |key: &str, path: &Path| {
        let field = format!("{key}={}", path.display());
        match field.contains([',', '"', '\n']) {
            true => format!("\"{}\"", field.replace('"', "\"\"")),
            false => field,
        }
    };
    let mut value = format!(
        "type=bind,{},{}",
        field("source", &mount.source),
        field("destination", &mount.target)
    );
    if mount.read_only {
        value.push_str(",ro");
    }
    value
}

/// A container's variables, as apptainer takes them from its own.
pub(crate) fn variables(inside: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let named = inside.iter().filter(|(name, _)| *name != "HOME");
    named
        .map(|(name, value)| (format!("{VARIABLE_PREFIX}{name}"), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_command_line() {
        let mounts = [
            Mount {
                source: "/home/ada/digits".into(),
                target: "/workspace".into(),
                read_only: false,
            },
            Mount {
                source: "/data/a,b \"c\"".into(),
                target: "/data".into(),
                read_only: true,
            },
        ];
        let container = Container {
            program: Path::new("/usr/bin/apptainer"),
            image: Path::new("/store/items/flat-root/7f/content"),
            mounts: &mounts,
            workdir: Path::new("/workspace/src"),
            home: Some("/home/sconce"),
            has_gpus: true,
        };
        let words = container.command(&["python".to_owned(), "-c".to_owned(), "1, 2".to_owned()]);
        assert_eq!(
            words,
            [
                "/usr/bin/apptainer",
                "exec",
                "--cleanenv",
                "--no-eval",
                "--no-home",
                "--no-mount",
                "home,cwd,bind-paths",
                "--writable-tmpfs",
                "--nv",
                "--mount",
                "type=bind,source=/home/ada/digits,destination=/workspace",
                "--mount",
                "type=bind,\"source=/data/a,b \"\"c\"\"\",destination=/data,ro",
                "--pwd",
                "/workspace/src",
                "/store/items/flat-root/7f/content",
                "/usr/bin/env",
                "HOME=/home/sconce",
                "python",
                "-c",
                "1, 2",
            ]
        );
        let env = BTreeMap::from([("PATH".to_owned(), "/opt/venv/bin:/bin".to_owned())]);
        assert_eq!(variables(&env)["APPTAINERENV_PATH"], "/opt/venv/bin:/bin");
    }
}
