//! What holds a run's container: found before anything is fetched for the run, and, where that is Docker's
//! daemon, with the environment's image brought to it.

use std::path::Path;

use sconce_base::Env;
use sconce_image::docker_archive::send_archive;
use sconce_image::layout::LayoutError;
use sconce_image::local_image::LocalImage;
use sconce_run::{ContainerEngine, DockerClient, DockerContainer, Executor, Native};
use sconce_schema::{Progress, Runtime};
use sconce_store::Store;

use crate::failure::{AppError, Result};
use crate::limits::find_helper_program;

/// What archives on their way are called in errors.
const PIPE: &str = "the standard input of docker load";

/// Returns the help of `--runtime`.
pub fn runtime_help() -> String {
    let others: Vec<String> = Runtime::ALL
        .iter()
        .filter(|one| !matches!(one, Runtime::Sconce | Runtime::Docker))
        .map(|one| format!("`{one}`"))
        .collect();
    let (last, others) = others.split_last().expect("there are other runtimes");
    format!(
        "What sets the container up: {} or {last}, where it is installed; `docker`, to whose daemon the run \
         is handed over; or `sconce` [default: sconce]",
        others.join(", ")
    )
}

/// Reads what `--runtime` says.
pub fn parse_runtime(text: &str) -> Result<Runtime, String> {
    text.parse()
}

/// What is to hold a run, as it answered.
pub enum FoundExecutor {
    /// It needs nothing but the request.
    Ready(Box<dyn Executor>),
    /// It needs the environment's image first.
    Daemon(DockerClient),
}

/// Finds what holds runs under `runtime`, and asks it for its version.
pub fn find_executor(runtime: Runtime, env: &Env) -> Result<FoundExecutor> {
    if runtime == Runtime::Sconce {
        return Ok(FoundExecutor::Ready(Box::new(Native)));
    }
    let program =
        find_helper_program(runtime.name(), env).ok_or(AppError::NoRuntime { runtime })?;
    if runtime == Runtime::Docker {
        return Ok(FoundExecutor::Daemon(DockerClient::connect(program, env)?));
    }
    let engine = ContainerEngine::from_program(runtime, program)?;
    Ok(FoundExecutor::Ready(Box::new(engine)))
}

impl FoundExecutor {
    /// The executor, with the image of the environment `name` where it needs one.
    pub fn with_image(
        self,
        name: &str,
        store: &Store,
        progress: &dyn Progress,
        image: impl FnOnce() -> Result<LocalImage>,
    ) -> Result<Box<dyn Executor>> {
        match self {
            Self::Ready(executor) => Ok(executor),
            Self::Daemon(docker) => {
                let container = load_image(docker, &image()?, name, store, progress)?;
                Ok(Box::new(container))
            }
        }
    }
}

/// Brings an image of the environment `name` to a daemon, unless it is there already.
fn load_image(
    docker: DockerClient,
    image: &LocalImage,
    name: &str,
    store: &Store,
    progress: &dyn Progress,
) -> Result<DockerContainer> {
    let reference = docker_reference(name, &image.digest.to_hex());
    if !docker.has_image(&reference)? {
        let mut loading = docker.start_image_load()?;
        let names = std::slice::from_ref(&reference);
        let to = (&mut loading, Path::new(PIPE));
        let sent = send_archive(image, names, store, to, progress);
        match (sent, loading.wait_until_loaded()) {
            // Why the daemon hung up is told by its client alone.
            (
                Ok(())
                | Err(LayoutError::File {
                    action: "write", ..
                }),
                ended,
            ) => ended?,
            (Err(error), _) => return Err(error.into()),
        }
    }
    Ok(DockerContainer {
        docker,
        image: reference,
    })
}

/// `sconce/NAME:DIGEST`, of letters that Docker takes (distribution's reference grammar). Another image
/// has another digest, so that what is there under this name is this image.
fn docker_reference(name: &str, digest: &str) -> String {
    let plain = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '-',
    };
    let name: String = name.chars().map(plain).collect();
    let words: Vec<&str> = name.split('-').filter(|word| !word.is_empty()).collect();
    let name = match words.is_empty() {
        true => "image".to_owned(),
        false => words.join("-"),
    };
    let digest = digest.get(..12).unwrap_or(digest);
    format!("sconce/{name}:{digest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_becomes_one_that_docker_takes() {
        let digest = "0f".repeat(32);
        for (name, becomes) in [
            ("demo", "demo"),
            ("My_Env.2", "my-env-2"),
            ("--a--", "a"),
            ("../é:x", "x"),
            ("", "image"),
        ] {
            let wanted = format!("sconce/{becomes}:0f0f0f0f0f0f");
            assert_eq!(docker_reference(name, &digest), wanted, "{name}");
        }
    }
}
