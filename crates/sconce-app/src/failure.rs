//! What went wrong: one message with its causes, one hint, one documented exit code.

use std::error::Error;

use sconce_base::input::UnusableInput;
use sconce_base::secrets;
pub use sconce_base::text::{tame, with_causes};
use sconce_image::AssembleError;
use sconce_schema::Hint;
use sconce_store::StoreError;

use crate::file_action::FileAction;
use crate::folder_conflict::WritableSource;

/// An expected failure of any stage, on its way to whoever asked.
#[derive(Debug)]
pub struct Failure(Box<dyn Hint + Send>);

/// What a verb gives, or why it does not.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl<E: Hint + Send + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(Box::new(error))
    }
}

impl Failure {
    /// As the failure of a build that resolving asked for.
    pub fn into_build_failure(self) -> sconce_resolve::BuildFailure {
        sconce_resolve::BuildFailure::new(self.0)
    }

    /// The message with its causes alone.
    pub fn message(&self) -> String {
        with_causes(&*self.0)
    }

    /// What may help, without secrets and what a terminal would obey.
    pub fn hint(&self) -> Option<String> {
        let hint = self.0.hint()?;
        Some(tame(secrets::mask_text(&hint)))
    }

    /// The message and the hint, a line each, as a terminal without colours shows them.
    pub fn to_plain_text(&self) -> String {
        let message = format!("error: {}", self.message());
        match self.hint() {
            Some(hint) => format!("{message}\nhint: {hint}"),
            None => message,
        }
    }

    /// What the program exits with (`sconce_schema::exit`).
    pub fn exit_code(&self) -> u8 {
        self.0.exit_code()
    }

    /// Whether it is an error of this type.
    pub(crate) fn is<E: Error + 'static>(&self) -> bool {
        self.find::<E>().is_some()
    }

    /// It, where it is an error of this type.
    pub(crate) fn find<E: Error + 'static>(&self) -> Option<&E> {
        let error: &(dyn Error + 'static) = &*self.0;
        error.downcast_ref()
    }

    /// Whether another process removed something of the store meanwhile: the same again brings it.
    pub fn is_gone(&self) -> bool {
        let mut cause: Option<&(dyn Error + 'static)> = Some(&*self.0);
        while let Some(error) = cause {
            let of_store = matches!(error.downcast_ref(), Some(StoreError::Gone { .. }));
            let of_image = matches!(error.downcast_ref(), Some(AssembleError::Gone { .. }));
            if of_store || of_image {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

/// Failures of the program itself, beside those of the stages.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each is what its message says")]
pub enum AppError {
    #[error("there is no {runtime} on this machine")]
    NoRuntime { runtime: sconce_schema::Runtime },
    #[error("there is no spec at {}", path.display())]
    NoSpec { path: std::path::PathBuf },
    #[error("{} is no regular file, which a spec is", path.display())]
    NoSpecFile { path: std::path::PathBuf },
    #[error("the bytecode of {what} was not made: Python's compiler ended with exit code {}", exit.exit_code())]
    Compile {
        what: String,
        exit: sconce_schema::event::ExitStatus,
    },
    #[error("nothing brings {}, which the code imports", modules.join(", "))]
    MissingModules {
        modules: Vec<String>,
        path: std::path::PathBuf,
    },
    #[error("{mounted} {conflict}: a run could {}", conflict.own.write_risk())]
    OwnFolder {
        mounted: crate::folder_conflict::WritableSource,
        conflict: crate::folder_conflict::OwnFolderConflict,
    },
    #[error("`{name}` in [build] files {conflict}: the image would {}", conflict.own.packing_risk())]
    PackedOwnFolder {
        name: String,
        conflict: crate::folder_conflict::OwnFolderConflict,
    },
    #[error("{}", path.display())]
    Spec {
        path: std::path::PathBuf,
        source: sconce_schema::spec::SpecError,
    },
    #[error("the plan {plan} cannot be applied from outside of the program")]
    PlanNeedsLines { plan: String, lines: &'static str },
    #[error("ranks that are not there need cards that are not there")]
    RanksWithoutCards,
    #[error("{launcher} starts ranks itself, and --ranks takes its place")]
    RanksByLauncher { launcher: String },
    #[error("cannot {action} {}", path.display())]
    File {
        action: FileAction,
        path: std::path::PathBuf,
        source: std::io::Error,
    },
    #[error("{}", path.display())]
    Lock {
        path: std::path::PathBuf,
        source: sconce_schema::lock::LockError,
    },
    #[error("{}", path.display())]
    Config {
        path: std::path::PathBuf,
        source: toml::de::Error,
    },
    #[error("{}", path.display())]
    Policy {
        path: std::path::PathBuf,
        source: sconce_lease::PolicyError,
    },
    #[error("{} is empty, and a lock is not", path.display())]
    EmptyLock { path: std::path::PathBuf },
    #[error("{}", path.display())]
    Logins {
        path: std::path::PathBuf,
        source: sconce_registry::LoginsError,
    },
    #[error("the tag `latest` says nothing about what is inside")]
    Latest,
    #[error("neither HOME nor {variable} is set")]
    NoHome { variable: &'static str },
    #[error("no command was given and the spec has none")]
    NoCommand,
    #[error("the spec has no services")]
    NoServices,
    #[error("the service `{0}` comes with its environment, which --host leaves out")]
    ServiceOfImage(&'static str),
    #[error("no command was given and the image has none")]
    NoImageCommand,
    #[error("the image has no shell")]
    NoShell,
    #[error("{flag} has no meaning for an image")]
    ImageSource { flag: &'static str },
    #[error("`{name}` is no name for a variable")]
    BadVariable { name: String },
    #[error("`{name}` is not a variable of this shell")]
    NoVariable { name: String },
    #[error("the mount source {} does not exist", path.display())]
    NoMountSource { path: std::path::PathBuf },
    #[error("port {port} cannot be published: the run is on the machine's own network")]
    HostPort { port: u16 },
    #[error("the kernel killed the command before it began: {limit} of memory is too little")]
    TooLittleMemory { limit: sconce_schema::Bytes },
    #[error("the store lacks {} of what the lock names, and --offline forbids to fetch it: {}", missing.len(), missing.join(", "))]
    Offline { missing: Vec<String> },
}

impl AppError {
    /// For `map_err` after a file that was to be read.
    pub fn unreadable(path: &std::path::Path) -> impl Fn(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            action: FileAction::Read,
            path: path.clone(),
            source,
        }
    }
}

/// The hint for who names a command where a spec is read.
pub const AFTER_DASHES: &str =
    "the command stands after `--`, as in `sconce run -- python train.py`";

/// Whether a file is a program by its name, and so no spec.
fn is_script(path: &std::path::Path) -> bool {
    let extension = path.extension().and_then(|end| end.to_str());
    matches!(extension, Some("py" | "sh"))
}

/// Whether a path may be a program's name.
fn is_bare_name(path: &std::path::Path) -> bool {
    let mut parts = path.components();
    matches!(parts.next(), Some(std::path::Component::Normal(_)))
        && parts.next().is_none()
        && path.extension().is_none()
}

impl Hint for AppError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoSpec { path } if is_bare_name(path) => format!(
                "SPEC is a sconce.toml or the folder that has one, which `sconce init` writes; a command of `sconce run` stands after `--`: sconce run -- {}",
                path.display()
            ),
            Self::NoSpec { .. } => "SPEC is a sconce.toml or the folder that has one; the current \
                 folder where nothing is given. `sconce init` writes one"
                .to_owned(),
            Self::Compile { .. } => "build without it: `[build] bytecode = false`".to_owned(),
            Self::NoSpecFile { .. } => {
                "write it to a file in a folder of its own: its lock lies beside it".to_owned()
            }
            Self::MissingModules { modules, path } => {
                let (they, come, them) = match modules.len() {
                    1 => ("it", "comes", "it"),
                    _ => ("they", "come", "them"),
                };
                format!(
                    "name the packages that {they} {come} from in `[python] packages` of {path}, and take {them} out of `missing` there; where the run does without, only the latter; what conda alone has runs from an image made with conda, `sconce run IMAGE`",
                    path = path.display()
                )
            }
            Self::OwnFolder { mounted, conflict } => {
                let own = conflict.own;
                let elsewhere = own.relocation_hint();
                match mounted {
                    WritableSource::Project(_) => format!(
                        "move sconce.toml and the project's files into a folder of their own; or {elsewhere}"
                    ),
                    WritableSource::Folder(_) => format!(
                        "mount it read-only (SOURCE:TARGET:ro), or a folder beside {own}; or {elsewhere}"
                    ),
                    WritableSource::File(_) => {
                        format!("mount it read-only (SOURCE:TARGET:ro); or {elsewhere}")
                    }
                }
            }
            Self::PackedOwnFolder { conflict, .. } => {
                let elsewhere = conflict.own.relocation_hint();
                format!("name the project's files and folders alone; or {elsewhere}")
            }
            Self::Spec { path, .. } if is_script(path) => AFTER_DASHES.to_owned(),
            Self::Spec { source, .. } => return source.hint(),
            Self::Lock { source, .. } => return source.hint(),
            Self::Policy { source, .. } => return source.hint(),
            Self::RanksWithoutCards => "name one: --virtual-gpu h100".to_owned(),
            Self::RanksByLauncher { .. } => {
                "name the script itself: --ranks 64 -- python train.py".to_owned()
            }
            Self::PlanNeedsLines { lines, .. } => format!("write it: {lines}"),
            Self::EmptyLock { .. } => {
                "`sconce lock` writes a new one over it; or take the old one back".to_owned()
            }
            Self::Latest => "leave the tag out for one that does, or add --latest".to_owned(),
            Self::Logins { source, .. } => return source.hint(),
            Self::NoHome { .. } => "or name a folder with --store".to_owned(),
            Self::NoCommand => "add `command = [\"python\", \"train.py\"]` to [run], or say \
                 `sconce run -- python train.py`"
                .to_owned(),
            Self::NoRuntime { runtime } => format!(
                "install the package {runtime}, or leave `runtime` out: Sconce needs no other program"
            ),
            Self::NoServices => "add one: [services.NAME], with `command = [\"…\"]`".to_owned(),
            Self::ServiceOfImage(name) => format!(
                "leave --host out, or write it as a command of this machine: [services.my-{name}], with \
                 `command = [\"…\"]`"
            ),
            Self::NoImageCommand => "say one: `sconce run IMAGE -- COMMAND`".to_owned(),
            Self::NoShell => "run a program of it: `sconce run IMAGE -- COMMAND`".to_owned(),
            Self::ImageSource { .. } => "an image brings all its packages; leave it out".to_owned(),
            Self::Offline { .. } => "run it once without --offline".to_owned(),
            Self::BadVariable { .. } => {
                "a name has letters, digits, _, . and -, and begins with a letter or _".to_owned()
            }
            Self::NoVariable { .. } => "give its value: -e NAME=VALUE".to_owned(),
            Self::NoMountSource { .. } => "create it, or change `mounts` or -v".to_owned(),
            Self::TooLittleMemory { .. } => {
                "give it more with -m or `memory`, with its unit: 512MiB, 4GiB".to_owned()
            }
            Self::HostPort { .. } => "what it listens on can be reached as it is; or give it a \
                 network of its own with --network own (or --network none)"
                .to_owned(),
            Self::File { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                "free some space, and say it again".to_owned()
            }
            Self::File { source, .. } => return Some(UnusableInput::of(source)?.hint().to_owned()),
            Self::Config { .. } => return None,
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            // As a run whose port is taken.
            Self::NoRuntime { .. } => sconce_schema::exit::RUN,
            Self::NoCommand
            | Self::NoImageCommand
            | Self::ImageSource { .. }
            | Self::HostPort { .. }
            | Self::NoVariable { .. }
            | Self::BadVariable { .. }
            | Self::Latest
            | Self::PlanNeedsLines { .. }
            | Self::RanksWithoutCards
            | Self::RanksByLauncher { .. } => sconce_schema::exit::USAGE,
            Self::Offline { .. } => sconce_schema::exit::FETCH,
            Self::Compile { .. } => sconce_schema::exit::STORE,
            Self::File { action, .. } => action.exit_code(),
            // As if it had begun: 128 + SIGKILL.
            Self::TooLittleMemory { .. } => 137,
            Self::NoSpec { .. }
            | Self::NoSpecFile { .. }
            | Self::MissingModules { .. }
            | Self::OwnFolder { .. }
            | Self::PackedOwnFolder { .. }
            | Self::Spec { .. }
            | Self::Lock { .. }
            | Self::Config { .. }
            | Self::Policy { .. }
            | Self::EmptyLock { .. }
            | Self::Logins { .. }
            | Self::NoHome { .. }
            | Self::NoServices
            | Self::ServiceOfImage(_)
            | Self::NoShell
            | Self::NoMountSource { .. } => sconce_schema::exit::BAD_INPUT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_in_an_error() {
        let failure = Failure::from(AppError::NoSpec {
            path: "a\x1b]0;title\x07b\n\u{9b}c\u{202e}d\u{2066}e".into(),
        });
        let text = failure.to_plain_text();
        let obeyed = |c: char| sconce_base::text::is_unprintable(c) && c != '\n';
        assert!(
            !text.chars().any(obeyed) && text.contains("title"),
            "{text:?}"
        );
    }
}
