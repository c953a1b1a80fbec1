//! What a run waits for where its trees have no bytecode yet: that of the modules which its
//! command imports when it starts. While that is compiled, on every core, the kernel reads the
//! libraries that they need. Nothing that goes wrong here is a failure of the run.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use sconce_image::Libraries;
use sconce_image::bytecode::first::{self, Code};
use sconce_image::bytecode::{self, Job};
use sconce_run::Watcher;
use sconce_schema::manifest::{ImageManifest, Layer};
use sconce_schema::request::Mount;
use sconce_schema::{Lock, exit};
use sconce_store::{Scratch, Store};

use super::Interpreter;
use crate::failure::Result;
use crate::places::Places;
use crate::project::Project;
use crate::wish::Wish;

/// No run waits longer. Torch takes 2.2 seconds of one core on a slow machine; what is not done by
/// then is compiled by the import.
const LONGEST: Duration = Duration::from_secs(10);
/// Kind of the folders that hold what a run has, among the store's scratch folders.
const KIND: &str = "imports";

/// Bytecode for one run. Dropping it removes it.
pub(crate) struct First {
    pub(crate) layer: Layer,
    _scratch: Scratch,
}

/// What is needed to make it.
pub(crate) struct Making<'a> {
    pub(crate) project: &'a Project,
    pub(crate) places: &'a Places,
    pub(crate) store: &'a Store,
    pub(crate) lock: &'a Lock,
    pub(crate) manifest: &'a ImageManifest,
    pub(crate) wish: &'a Wish,
}

impl Making<'_> {
    /// Compiles what the command imports, if trees lack their bytecode and it is Python. `id` is
    /// the run's.
    pub(crate) fn make(&self, id: &str) -> Option<First> {
        let jobs = bytecode::missing(self.manifest, self.lock, self.store);
        let code = Code::of(&self.wish.command, self.manifest)?;
        if jobs.is_empty() {
            return None;
        }
        self.compile(&code)?;
        let scratch = self.store.scratch(KIND, id).ok()?;
        let folder = scratch.path().join("content");
        std::fs::create_dir(&folder).ok()?;
        let laid = first::lay(&jobs, self.manifest, &folder).ok()?;
        (laid > 0).then(|| First {
            layer: first::layer(folder),
            _scratch: scratch,
        })
    }

    /// Has a process of its own compile, so that it can be ended, and reads ahead what it finds.
    fn compile(&self, code: &Code) -> Option<()> {
        let program = crate::commands::run::program().ok()?;
        let (kind, what, folder) = self.seen(code)?;
        let mut command = Command::new(program);
        command.arg("--store").arg(&self.places.store);
        command.arg("chores").arg(&self.project.file);
        if let Some(folder) = folder {
            command.arg("--folder").arg(folder);
        }
        command.arg("--imports").args([kind, &what]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
        let output = BufReader::new(child.stdout.take()?);
        let (found, extensions) = mpsc::channel();
        let (done, ended) = mpsc::channel::<()>();
        // The one ends with the pipe, the other may go on beside the run.
        std::thread::spawn(move || {
            for line in output.lines().map_while(std::io::Result::ok) {
                let _ = found.send(line);
            }
            drop(done);
        });
        let manifest = self.manifest.clone();
        std::thread::spawn(move || {
            let files = extensions
                .iter()
                .filter_map(|line| first::extension(&line, &manifest));
            let mut libraries = None;
            for file in files {
                libraries
                    .get_or_insert_with(|| Libraries::find(&manifest))
                    .read_ahead(file);
            }
        });
        if ended.recv_timeout(LONGEST) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _ = child.kill();
        }
        let _ = child.wait();
        Some(())
    }

    /// What the compiler is told of the command, and the folder of its own modules.
    fn seen(&self, code: &Code) -> Option<(&'static str, String, Option<PathBuf>)> {
        let (mounts, workdir) = (&self.wish.mounts, &self.wish.workdir);
        let here = || on_host(workdir, mounts).filter(|folder| folder.is_dir());
        match code {
            Code::Text(text) => Some(("code", text.clone(), here())),
            Code::Module(name) => Some(("module", name.clone(), here())),
            Code::Script(tree, path) => {
                let path = path.to_str()?;
                Some(("file", format!("trees/{tree}/source/{path}"), None))
            }
            Code::File(path) => {
                let path = on_host(&workdir.join(path), mounts)?.canonicalize().ok()?;
                let name = path.file_name()?.to_str()?;
                Some((
                    "file",
                    format!("local/{name}"),
                    Some(path.parent()?.to_owned()),
                ))
            }
        }
    }
}

/// Where a path of the container lies on this machine, if that is in one of its mounts.
fn on_host(path: &Path, mounts: &[Mount]) -> Option<PathBuf> {
    let over = mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.target));
    let mount = over.max_by_key(|mount| mount.target.components().count())?;
    Some(mount.source.join(path.strip_prefix(&mount.target).ok()?))
}

/// Watches nothing.
struct Unwatched;

impl Watcher for Unwatched {}

/// The work itself, in the process that was started for it.
pub(super) fn compile(
    work: &Interpreter<'_>,
    store: &Store,
    code: [&String; 2],
    folder: Option<&Path>,
) -> Result<u8> {
    let jobs: Vec<Job> = bytecode::missing(work.manifest, work.lock, store);
    // One that cannot be begun is not mounted.
    let jobs: Vec<Job> = jobs.into_iter().filter(|job| job.begin().is_ok()).collect();
    let (places, trees) = first::places(&jobs, work.manifest);
    let mut mounts: Vec<Mount> = places
        .into_iter()
        .map(|place| Mount {
            source: place.source,
            target: Path::new("/").join(place.target),
            read_only: !place.writable,
        })
        .collect();
    mounts.extend(folder.map(|folder| Mount {
        source: folder.to_owned(),
        target: PathBuf::from("/local"),
        read_only: true,
    }));
    let site = sconce_image::site_packages(work.lock);
    let trees = trees.to_string();
    let [kind, what] = code;
    let arguments = [first::SCRIPT, "/", &trees, &site, kind, what];
    work.execute(&arguments, mounts, &mut Unwatched)?;
    Ok(exit::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_container_is_found_in_the_innermost_mount() {
        let mount = |source: &str, target: &str| Mount {
            source: source.into(),
            target: target.into(),
            read_only: false,
        };
        let mounts = [
            mount("/home/a/project", "/workspace"),
            mount("/data/models", "/workspace/models"),
        ];
        let found = |path: &str| on_host(Path::new(path), &mounts);
        let path = |path: &str| Some(PathBuf::from(path));
        assert_eq!(found("/workspace/t.py"), path("/home/a/project/t.py"));
        assert_eq!(found("/workspace/models/m.py"), path("/data/models/m.py"));
        assert_eq!(found("/workspaces/t.py"), None);
        assert_eq!(found("/usr/bin/tool"), None);
    }
}
