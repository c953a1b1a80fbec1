//! A run that Docker's daemon holds in Sconce's place: the daemon, and the environment's image in it.

use std::path::Path;

use sconce_image::docker::send_archive;
use sconce_image::layout::LayoutError;
use sconce_image::local::Image;
use sconce_run::Docker;
use sconce_schema::runtime::RuntimeSummary;
use sconce_schema::{Progress, Runtime};
use sconce_store::Store;

use crate::failure::{CliError, Result};
use crate::limits::helper;

/// What archives on their way are called in errors.
const PIPE: &str = "the standard input of docker load";

/// A daemon that answered.
pub(crate) struct Daemon(Docker);

/// The daemon, and the name by which it knows the image.
pub(crate) struct Handed {
    pub(crate) docker: Docker,
    pub(crate) image: String,
}

impl Handed {
    /// As a record names it.
    pub(crate) fn summary(&self) -> RuntimeSummary {
        RuntimeSummary {
            name: Runtime::Docker,
            version: self.docker.version().to_owned(),
        }
    }
}

/// The daemon of a run, asked before anything is fetched for it; none where the run is not Docker's.
pub(crate) fn find(runtime: Runtime) -> Result<Option<Daemon>> {
    if runtime != Runtime::Docker {
        return Ok(None);
    }
    let program = helper(runtime.name()).ok_or(CliError::NoRuntime { runtime })?;
    let environment: Vec<_> = std::env::vars_os().collect();
    Ok(Some(Daemon(Docker::ask(program, &environment)?)))
}

impl Daemon {
    /// Brings an image of the environment `name` there, unless it is there already.
    pub(crate) fn bring(
        self,
        image: &Image,
        name: &str,
        store: &Store,
        progress: &dyn Progress,
    ) -> Result<Handed> {
        let docker = self.0;
        let called = called(name, &image.digest.hex());
        if !docker.has(&called)? {
            let mut loading = docker.load()?;
            let names = std::slice::from_ref(&called);
            let to = (&mut loading, Path::new(PIPE));
            let sent = send_archive(image, names, store, to, progress);
            match (sent, loading.end()) {
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
        Ok(Handed {
            docker,
            image: called,
        })
    }
}

/// `sconce/NAME:DIGEST`, of letters that Docker takes (distribution's reference grammar). Another image
/// has another digest, so that what is there under this name is this image.
fn called(name: &str, digest: &str) -> String {
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
            assert_eq!(called(name, &digest), wanted, "{name}");
        }
    }
}
